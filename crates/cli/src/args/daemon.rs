//! Words of `plexum daemon`, `plexum forget` and `plexum config`.

use std::path::PathBuf;

use crate::units::parse_bytes;

/// `plexum daemon`.
#[derive(clap::Args, Debug)]
pub struct Daemon {
    /// Configuration, and the files of conf.d beside it [default: /etc/plexum/plexum.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Wait so long for a member that was there at the last stop, before a volume starts without it [default: 30]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: Option<u64>,
    /// Start then without it: never, or if-safe (nothing can be wrong with the data) [default: if-safe]
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
}

/// `plexum forget`.
#[derive(clap::Args, Debug)]
pub struct Forget {
    /// Name of the volume; it must have been stopped
    pub volume: String,
}

/// `plexum config`.
#[derive(clap::Args, Debug)]
pub struct Config {
    /// Drives, or one text; after `check` a file of Plexum's own configuration, or none for that of this machine
    #[arg(value_name = "MEMBER|FILE", required = true)]
    pub members: Vec<String>,
}
