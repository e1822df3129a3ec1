//! Words of `plexum daemon` and `plexum forget`.

use crate::units::parse_bytes;

/// `plexum daemon`.
#[derive(clap::Args, Debug)]
pub struct Daemon {
    /// Wait so long for a member that was there at the last stop, from when the last other one came, before a volume
    /// starts without it
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: u64,
    /// Start then without it: never, if-safe (nothing can be wrong with the data), or always
    #[arg(long, value_name = "POLICY", default_value = "if-safe")]
    pub degraded: String,
    /// Member I/O: auto, uring or threads
    #[arg(long, default_value = "auto")]
    pub io: String,
    /// Memory for requests and caches
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Threads that serve each volume; connections go to them in turn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub cores: usize,
    /// Look for a client's next request awake for so many microseconds before sleeping, 0 to 1000
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub spin: u64,
}

/// `plexum forget`.
#[derive(clap::Args, Debug)]
pub struct Forget {
    /// Name of the volume; it must have been stopped
    pub volume: String,
}

/// `plexum udev-claim`.
#[derive(clap::Args, Debug)]
pub struct UdevClaim {
    /// The device's file
    pub device: std::path::PathBuf,
}

/// `plexum doctor`.
#[derive(clap::Args, Debug)]
pub struct Doctor {
    /// Folders, files and devices with sets [default: all disks]
    #[arg(value_name = "PLACE")]
    pub places: Vec<String>,
    /// Where the machine's files begin: another machine's root file system
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: std::path::PathBuf,
}
