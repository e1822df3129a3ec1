//! The words of `plexum pool`.

use std::path::PathBuf;

/// `plexum pool`.
#[derive(clap::Args, Debug)]
pub struct PoolArgs {
    /// What to do
    #[command(subcommand)]
    pub command: PoolCommand,
}

/// Commands on a pool.
#[derive(clap::Subcommand, Debug)]
pub enum PoolCommand {
    /// Data sets, volumes and snapshots with their sizes
    List(List),
    /// Names in a directory, or one file
    Ls(Ls),
    /// A file, or without a path a volume, to standard output
    Cat(Cat),
    /// Copy files out of the pool
    #[command(
        after_help = "Example:\n  plexum pool cp -r tank/home@monday:/docs copy/ disk1 disk2 disk3"
    )]
    Cp(Cp),
    /// Read and check everything; exit 1 when something is wrong
    Scrub(Scrub),
}

/// What all commands take.
#[derive(clap::Args, Debug)]
pub struct Source {
    /// Members in any order: file, device or URI
    #[arg(value_name = "MEMBER", required = true)]
    pub members: Vec<String>,
    /// Read the newest root up to this transaction group instead of the newest of all
    #[arg(long, value_name = "N")]
    pub txg: Option<u64>,
}

/// `plexum pool list`.
#[derive(clap::Args, Debug)]
pub struct List {
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool ls`.
#[derive(clap::Args, Debug)]
pub struct Ls {
    /// What to read; the data set is named in full, the pool's name included
    #[arg(value_name = "DATASET[@SNAP][:/PATH]")]
    pub place: String,
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool cat`.
#[derive(clap::Args, Debug)]
pub struct Cat {
    /// What to read; the data set is named in full, the pool's name included
    #[arg(value_name = "DATASET[@SNAP][:/PATH]")]
    pub place: String,
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool cp`.
#[derive(clap::Args, Debug)]
pub struct Cp {
    /// What to copy; the data set is named in full, the pool's name included
    #[arg(value_name = "DATASET[@SNAP]:/PATH")]
    pub place: String,
    /// File or folder to copy to
    #[arg(value_name = "DESTINATION")]
    pub destination: PathBuf,
    /// Members.
    #[command(flatten)]
    pub source: Source,
    /// Folders with everything below them
    #[arg(short = 'r', long)]
    pub recursive: bool,
    /// List the SHA-256 of every file copied, as sha256sum does
    #[arg(long)]
    pub checksums: bool,
}

/// `plexum pool scrub`.
#[derive(clap::Args, Debug)]
pub struct Scrub {
    /// Change nothing: the only way that there is so far
    #[arg(long)]
    pub read_only: bool,
    /// Members.
    #[command(flatten)]
    pub source: Source,
}
