//! Words of `plexum disks` and `plexum locate`.

/// `plexum disks`.
#[derive(clap::Args, Debug)]
pub struct Disks {
    /// Name of the volume [default: all]
    pub volume: Option<String>,
}

/// `plexum top`.
#[derive(clap::Args, Debug)]
pub struct Top {
    /// Print one frame as text, and end
    #[arg(long)]
    pub once: bool,
    /// Look again after so many seconds
    #[arg(long = "interval", value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub interval_s: u64,
}

/// `plexum locate`.
#[derive(clap::Args, Debug)]
pub struct Locate {
    /// Name of the volume
    #[arg(required_unless_present = "all_off")]
    pub volume: Option<String>,
    /// Slot number, path, serial or world-wide name; also of a disk that is gone
    #[arg(required_unless_present = "all_off")]
    pub member: Option<String>,
    /// Switch the light off
    #[arg(long)]
    pub off: bool,
    /// The fault light instead of the locate light
    #[arg(long)]
    pub fault: bool,
    /// Without a light: read the disks beside it in turn; the one whose lamp stays dark is the one
    #[arg(long, conflicts_with_all = ["off", "fault"])]
    pub by_activity: bool,
    /// With --by-activity: for so long
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub seconds: u64,
    /// Switch the locate lights of all bays of this machine off; with --fault the fault lights
    #[arg(long, conflicts_with_all = ["volume", "member", "by_activity"])]
    pub all_off: bool,
}
