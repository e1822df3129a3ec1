//! `attach` and `detach`, and the processes that they start.

use std::path::PathBuf;

/// `plexum attach`.
#[derive(clap::Args, Debug)]
pub struct Attach {
    /// Name of the volume; may be left out when one runs
    pub volume: Option<String>,
    /// Folder to mount it at
    pub mountpoint: Option<String>,
    /// Show this file system of a ZFS pool as a read-only tree; FOLDER and MEMBER... follow
    #[arg(long, value_name = "NAME[@SNAP]")]
    pub dataset: Option<String>,
    /// With --dataset: members of the pool
    #[arg(value_name = "MEMBER", requires = "dataset")]
    pub members: Vec<String>,
    /// With --dataset: the newest root up to this transaction group
    #[arg(long, value_name = "N", requires = "dataset")]
    pub txg: Option<u64>,
    /// When the server has gone, requests wait so long for it to come back before they fail; 0: not at all
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub reconnect: u64,
    /// When the volume, which is named then, is not served yet, wait so long for it
    #[arg(long, value_name = "SECONDS", default_value_t = 0, conflicts_with = "dataset", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub wait: u64,
    /// By what the kernel reaches the volume; the first of these that it can [default: ublk, nbd, fuse]
    #[arg(long, value_enum, value_name = "WAY", conflicts_with = "dataset")]
    pub by: Option<AttachBy>,
    /// By nbd: connections to the server (1 to 16) [default: 4]
    #[arg(long, value_name = "N", conflicts_with = "dataset", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub connections: Option<u16>,
    /// By nbd: a request that has no answer is sent again over another connection after this time [default: 60]
    #[arg(long = "timeout", value_name = "SECONDS", conflicts_with = "dataset", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub timeout_s: Option<u64>,
}

/// By what the kernel reaches an attached volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum AttachBy {
    /// The kernel's ublk, to which the server serves a device of its own; needs root and Linux 6.5
    Ublk,
    /// The kernel's own NBD client, which talks with the server itself; needs root and its module
    Nbd,
    /// A FUSE file, for root with a loop device on it
    Fuse,
}

/// `plexum detach`.
#[derive(clap::Args, Debug)]
pub struct Detach {
    /// Name of the volume, its device or its mount point; may be left out when one is attached
    pub volume: Option<String>,
}

/// The process that `plexum attach` starts.
#[derive(clap::Args, Debug)]
pub struct AttachProcess {
    /// Unix socket of the server and the export.
    #[arg(long)]
    pub uri: String,
    /// Path of the file to be; its folder exists.
    #[arg(long)]
    pub file: PathBuf,
    /// Which array it is, as its server tells.
    #[arg(long)]
    pub identity: Option<String>,
    /// Seconds to wait for a server that is away.
    #[arg(long, default_value_t = 0)]
    pub reconnect: u64,
}

/// The process that `plexum attach --by nbd` starts.
#[derive(clap::Args, Debug)]
pub struct AttachNbdProcess {
    /// Unix socket of the server and the export.
    #[arg(long)]
    pub uri: String,
    /// Which array it is, as its server tells.
    #[arg(long)]
    pub identity: Option<String>,
    /// What the device is made with.
    #[arg(long)]
    pub identifier: String,
    /// Seconds that requests wait for a connection.
    #[arg(long)]
    pub reconnect: u64,
    /// Seconds after which a request is sent again.
    #[arg(long = "timeout")]
    pub timeout_s: u64,
    /// Connections to the server.
    #[arg(long)]
    pub connections: u16,
}

/// The process that `plexum attach --dataset` starts.
#[derive(clap::Args, Debug)]
pub struct TreeProcess {
    /// The file system.
    #[arg(long)]
    pub dataset: String,
    /// Where it goes.
    #[arg(long)]
    pub folder: PathBuf,
    /// An older root.
    #[arg(long)]
    pub txg: Option<u64>,
    /// Members.
    #[arg(required = true)]
    pub members: Vec<String>,
}
