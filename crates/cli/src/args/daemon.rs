//! Words of `plexum daemon`, `plexum forget` and `plexum config`.

use std::path::PathBuf;

use plexum_daemon::scrub::{Every, Rate, Windows};

use crate::units::parse_bytes;

/// `plexum daemon`.
#[derive(clap::Args, Debug)]
pub struct Daemon {
    /// Configuration, and the files of conf.d beside it [default: /etc/plexum/plexum.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Wait so long for a member that was there at the last stop, from when the last other one came, before a volume
    /// starts without it [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: Option<u64>,
    /// Start then without it: never, if-safe (nothing can be wrong with the data) or always (rows in doubt
    /// fail) [default: if-safe]
    #[arg(long, value_name = "POLICY")]
    pub degraded: Option<String>,
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
    /// Serve metrics for Prometheus at this address, which must be a loopback one
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics_listen: Option<std::net::SocketAddr>,
    /// Compare every byte so often, in parts: 30d, 4w, 12h
    #[arg(long, value_name = "TIME")]
    pub scrub_every: Option<Every>,
    /// Do so at these times alone, by this machine's clock: 01:00-06:00, or Sat,Sun 22:00-08:00
    #[arg(long, value_name = "TIMES", requires = "scrub_every")]
    pub scrub_within: Option<Windows>,
    /// Read no more of each member then, in bytes per second
    #[arg(long, value_name = "RATE", requires = "scrub_every")]
    pub scrub_rate: Option<Rate>,
}

/// `plexum metrics`.
#[derive(clap::Args, Debug)]
pub struct Metrics {}

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

/// `plexum config`.
#[derive(clap::Args, Debug)]
pub struct Config {
    /// Drives, or one text; after `check` a file of Plexum's own configuration, or none for that of this machine
    #[arg(value_name = "MEMBER|FILE", required = true)]
    pub members: Vec<String>,
}
