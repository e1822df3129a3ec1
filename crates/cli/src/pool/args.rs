//! The words of `plexum pool`.

use std::path::PathBuf;

use crate::units::parse_bytes;

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
    /// Compare everything that the pool says about itself: space, sums, counts; exit 1 when something is wrong
    #[command(after_help = "Example:\n  plexum pool check disk1 disk2 disk3")]
    Check(Check),
    /// Make a pool that OpenZFS can import
    #[command(
        after_help = "Example:\n  plexum pool create tank raidz2 --member-size 4G disks/a disks/b disks/c disks/d disks/e\n  plexum pool create -n fast mirror a b mirror c d"
    )]
    Create(Create),
    /// Make a volume in a pool
    #[command(after_help = "Example:\n  plexum pool create-volume tank/vol 10G disks/*")]
    CreateVolume(CreateVolume),
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

/// `plexum pool check`.
#[derive(clap::Args, Debug)]
pub struct Check {
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool create`.
#[derive(clap::Args, Debug)]
pub struct Create {
    /// Name of the pool
    pub name: String,
    /// Groups, each a word and its members: mirror, raidz1, raidz2 or raidz3; a member before the first word stands
    /// alone. A file of such a name is written ./mirror
    #[arg(value_name = "[KIND] MEMBER", required = true)]
    pub groups: Vec<String>,
    /// Make members that do not exist as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub member_size: Option<u64>,
    /// Sector of the pool; cannot be changed later
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "4K")]
    pub sector: u64,
    /// Overwrite what was found on members
    #[arg(long)]
    pub force: bool,
}

/// `plexum pool create-volume`.
#[derive(clap::Args, Debug)]
pub struct CreateVolume {
    /// Name of the volume, the pool's included
    #[arg(value_name = "POOL/VOLUME")]
    pub name: String,
    /// Its size
    #[arg(value_name = "SIZE", value_parser = parse_bytes)]
    pub size: u64,
    /// All members of the pool, in any order: file, device or URI
    #[arg(value_name = "MEMBER", required = true)]
    pub members: Vec<String>,
    /// Block of the volume; cannot be changed later [default: 16K on RAID-Z, 4K elsewhere]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub block: Option<u64>,
    /// Write it although another host has it in use, as its labels say
    #[arg(long)]
    pub force: bool,
    /// Do not check the pool first
    #[arg(long)]
    pub trust: bool,
}
