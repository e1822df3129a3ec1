//! The words of commands on a volume that is served.

use crate::units::parse_bytes;

/// `plexum status`.
#[derive(clap::Args, Debug)]
pub struct Status {
    /// Name of the volume [default: all]
    pub volume: Option<String>,
    /// Show again every second
    #[arg(long)]
    pub watch: bool,
}

/// `plexum stop`.
#[derive(clap::Args, Debug)]
pub struct Stop {
    /// Name of the volume; may be left out when one runs
    pub volume: Option<String>,
    /// Stop it although it is attached, or clients are connected: they get errors from then on
    #[arg(long)]
    pub force: bool,
}

/// A command on one member of a volume.
#[derive(clap::Args, Debug)]
pub struct VolumeMember {
    /// Name of the volume
    pub volume: String,
    /// Path, slot number or serial
    pub member: String,
}

/// `plexum add`.
#[derive(clap::Args, Debug)]
pub struct AddMember {
    /// Name of the volume
    pub volume: String,
    /// File, device or URI
    pub member: String,
    /// Overwrite what was found on it
    #[arg(long)]
    pub force: bool,
    /// Wait until it is in sync
    #[arg(long)]
    pub wait: bool,
}

/// `plexum re-add`.
#[derive(clap::Args, Debug)]
pub struct ReAdd {
    /// Name of the volume
    pub volume: String,
    /// Path, slot number or serial
    pub member: String,
    /// Wait until it is in sync
    #[arg(long)]
    pub wait: bool,
}

/// `plexum replace`.
#[derive(clap::Args, Debug)]
pub struct Replace {
    /// Name of the volume
    pub volume: String,
    /// The old member: path, slot number or serial
    pub old: String,
    /// The new member: file, device or URI
    pub new: String,
    /// Overwrite what was found on the new member
    #[arg(long)]
    pub force: bool,
    /// Wait until the new one serves
    #[arg(long)]
    pub wait: bool,
}

/// `plexum grow`.
#[derive(clap::Args, Debug)]
pub struct Grow {
    /// Name of the volume
    pub volume: String,
    /// New members: files, devices or URIs
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub add: Vec<String>,
    /// Number of members afterwards [default: those that there are, and the new ones]
    #[arg(long, value_name = "N")]
    pub members: Option<u16>,
    /// Level afterwards: 0, 1, 4, 5, 6 or 10
    #[arg(long)]
    pub level: Option<String>,
    /// Layout afterwards
    #[arg(long)]
    pub layout: Option<String>,
    /// Bytes of a strip afterwards
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub strip: Option<u64>,
    /// Bytes used of each member afterwards, or `max`: all that the smallest one has
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub size: Option<String>,
    /// Back to what there was before the reshape that is under way
    #[arg(long, conflicts_with_all = ["add", "members", "level", "layout", "strip", "size"])]
    pub revert: bool,
    /// Overwrite what was found on new members, and give up what a smaller volume has no room for
    #[arg(long)]
    pub force: bool,
    /// Wait for the end
    #[arg(long)]
    pub wait: bool,
}

/// `max`, or a number of bytes in digits.
fn parse_size(text: &str) -> Result<String, String> {
    match text {
        "max" => Ok(text.to_owned()),
        _ => parse_bytes(text).map(|bytes| bytes.to_string()),
    }
}

/// `plexum scrub`.
#[derive(clap::Args, Debug)]
pub struct Scrub {
    /// Name of the volume; may be left out when one runs
    pub volume: Option<String>,
    /// Mend what differs
    #[arg(long)]
    pub repair: bool,
    /// Wait for the end and report
    #[arg(long)]
    pub wait: bool,
    /// Stop the scrub that runs
    #[arg(long, conflicts_with_all = ["repair", "wait"])]
    pub stop: bool,
}

/// `plexum set`.
#[derive(clap::Args, Debug)]
pub struct Set {
    /// Name of the volume (may be left out when one runs), then NAME=VALUE ...
    #[arg(value_name = "[VOLUME] NAME=VALUE", required = true)]
    pub words: Vec<String>,
}

/// `plexum stats`.
#[derive(clap::Args, Debug)]
pub struct Stats {
    /// Name of the volume; may be left out when one runs
    pub volume: Option<String>,
    /// Show the difference every S seconds
    #[arg(long = "interval", value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub interval_s: Option<u64>,
    /// Rates in the columns of this iostat; without `--interval` since the start or the last reset [default with it:
    /// plexum]
    #[arg(long, value_enum, value_name = "WHOSE")]
    pub columns: Option<StatsColumns>,
    /// Start counting anew
    #[arg(long)]
    pub reset: bool,
}

/// Whose columns `plexum stats` shows.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsColumns {
    /// Plexum's: rates, flushes, queue, time of a request, share of time busy
    Plexum,
    /// Of FreeBSD's `iostat -x`
    Freebsd,
    /// Of Linux's `iostat -x`
    Linux,
}

/// `plexum events`.
#[derive(clap::Args, Debug)]
pub struct Events {
    /// Name of the volume; may be left out when one runs
    pub volume: Option<String>,
    /// Go on until interrupted
    #[arg(long, short = 'f')]
    pub follow: bool,
}

/// What `plexum debug` understands. `bug` ends with a panic on purpose, to see what a bug looks like.
fn debug_topics() -> clap::builder::PossibleValuesParser {
    use clap::builder::PossibleValue;
    [
        PossibleValue::new("requests"),
        PossibleValue::new("bug").hide(true),
    ]
    .into()
}

/// `plexum debug`.
#[derive(clap::Args, Debug)]
pub struct Debug {
    /// What to show: requests
    #[arg(value_parser = debug_topics())]
    pub what: String,
    /// Name of the volume; may be left out when one runs
    pub volume: Option<String>,
}
