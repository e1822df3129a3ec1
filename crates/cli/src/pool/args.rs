//! The words of `plexum pool`.

use std::path::PathBuf;

use crate::units::parse_bytes;

/// `plexum pool`.
#[derive(clap::Args, Clone, Debug)]
pub struct PoolArgs {
    /// What to do
    #[command(subcommand)]
    pub command: PoolCommand,
    /// Find the members of the pool in folders and on devices; in their place stands its name, or nothing
    #[arg(long, value_name = "PLACE", num_args = 1.., global = true)]
    pub scan: Vec<String>,
}

/// Commands on a pool.
#[derive(clap::Subcommand, Clone, Debug)]
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
    /// Read and check everything; exit 1 when something is wrong, with --repair when something is lost
    Scrub(Scrub),
    /// Members, and what they miss; exit 1 when something is not whole
    #[command(
        after_help = "Example:\n  plexum pool status disk1 disk2 disk3\n  plexum pool status tank\n  plexum pool status tank --scan disks/"
    )]
    Status(Status),
    /// Take a snapshot of a volume
    #[command(
        after_help = "Example:\n  plexum pool snapshot tank/vol@monday\n  plexum pool snapshot tank/vol@monday disks/*"
    )]
    Snapshot(Name),
    /// Destroy a snapshot
    #[command(
        after_help = "Example:\n  plexum pool destroy-snapshot --force tank/vol@monday disks/*"
    )]
    DestroySnapshot(Destroy),
    /// Destroy a volume that has no snapshots
    #[command(after_help = "Example:\n  plexum pool destroy-volume --force tank/vol disks/*")]
    DestroyVolume(Destroy),
    /// Make a volume what its last snapshot is
    #[command(after_help = "Example:\n  plexum pool rollback --force tank/vol@monday disks/*")]
    Rollback(Destroy),
    /// Make a volume of a snapshot; they share what neither overwrites
    #[command(after_help = "Example:\n  plexum pool clone tank/vol@monday tank/trial disks/*")]
    Clone(NewName),
    /// Give a volume or a snapshot another name
    #[command(after_help = "Example:\n  plexum pool rename tank/vol tank/old disks/*")]
    Rename(NewName),
    /// Give a volume another size
    #[command(after_help = "Example:\n  plexum pool resize tank/vol 20G disks/*")]
    Resize(Resize),
    /// Take a member out: it is not written until it is online
    #[command(after_help = "Example:\n  plexum pool offline disks/b disks/*")]
    Offline(MemberChange),
    /// Write a member again that is offline, and give it what it missed
    #[command(after_help = "Example:\n  plexum pool online disks/b disks/*")]
    Online(MemberChange),
    /// Put a new member in the place of another, which may be missing
    #[command(
        after_help = "Example:\n  plexum pool replace /dev/sdb /dev/sdx tank\n  plexum pool replace disks/b disks/new disks/a disks/b disks/c\n  plexum pool replace /old/b disks/new disks/a disks/c missing"
    )]
    Replace(Replace),
    /// Make a new member a side of a mirror: beside a single member, or one more of a mirror
    #[command(
        after_help = "Example:\n  plexum pool attach disks/a disks/new disks/a\n  plexum pool attach disks/a disks/new disks/a disks/b"
    )]
    Attach(Attach),
    /// Take a side out of its mirror for good, when another one is whole
    #[command(after_help = "Example:\n  plexum pool detach disks/b disks/a disks/b")]
    Detach(MemberChange),
    /// Add a group of members; it cannot be taken out again
    #[command(
        after_help = "Example:\n  plexum pool add mirror disks/c disks/d --to disks/a disks/b\n  plexum pool add -n raidz1 d e f --to a b c"
    )]
    Add(Add),
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
#[derive(clap::Args, Clone, Debug)]
pub struct Source {
    /// Members in any order: file, device or URI
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Read the newest root up to this transaction group instead of the newest of all
    #[arg(long, value_name = "N")]
    pub txg: Option<u64>,
}

/// `plexum pool list`.
#[derive(clap::Args, Clone, Debug)]
pub struct List {
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool ls`.
#[derive(clap::Args, Clone, Debug)]
pub struct Ls {
    /// What to read; the data set is named in full, the pool's name included
    #[arg(value_name = "DATASET[@SNAP][:/PATH]")]
    pub place: String,
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool cat`.
#[derive(clap::Args, Clone, Debug)]
pub struct Cat {
    /// What to read; the data set is named in full, the pool's name included
    #[arg(value_name = "DATASET[@SNAP][:/PATH]")]
    pub place: String,
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool cp`.
#[derive(clap::Args, Clone, Debug)]
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
#[derive(clap::Args, Clone, Debug)]
pub struct Scrub {
    /// Change nothing, which is the default: name what is wrong, by member and file
    #[arg(long, conflicts_with = "repair")]
    pub read_only: bool,
    /// Write what is wrong again, where the others know it
    #[arg(long)]
    pub repair: bool,
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool check`.
#[derive(clap::Args, Clone, Debug)]
pub struct Check {
    /// Members.
    #[command(flatten)]
    pub source: Source,
}

/// `plexum pool create`.
#[derive(clap::Args, Clone, Debug)]
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
#[derive(clap::Args, Clone, Debug)]
pub struct CreateVolume {
    /// Name of the volume, the pool's included
    #[arg(value_name = "POOL/VOLUME")]
    pub name: String,
    /// Its size
    #[arg(value_name = "SIZE", value_parser = parse_bytes)]
    pub size: u64,
    /// All members of the pool, in any order; `missing` for each that is gone; not needed when the pool is served
    #[arg(value_name = "MEMBER")]
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

/// `plexum pool status`.
#[derive(clap::Args, Clone, Debug)]
pub struct Status {
    /// Members in any order: file, device or URI; `missing` for each that is gone;
    /// or the name of a pool that is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
}

/// `plexum pool snapshot`.
#[derive(clap::Args, Clone, Debug)]
pub struct Name {
    /// The snapshot, the pool's and the volume's names included
    #[arg(value_name = "POOL/VOLUME@SNAP")]
    pub name: String,
    /// All members of the pool, in any order; `missing` for each that is gone; not needed when the pool is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
}

/// `plexum pool destroy-snapshot`, `destroy-volume` and `rollback`.
#[derive(clap::Args, Clone, Debug)]
pub struct Destroy {
    /// What is meant, the pool's name included
    #[arg(value_name = "POOL/VOLUME[@SNAP]")]
    pub name: String,
    /// All members of the pool, in any order; `missing` for each that is gone; not needed when the pool is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// It is meant to be lost
    #[arg(long)]
    pub force: bool,
}

/// `plexum pool clone` and `rename`.
#[derive(clap::Args, Clone, Debug)]
pub struct NewName {
    /// What is there, the pool's name included
    #[arg(value_name = "POOL/VOLUME[@SNAP]")]
    pub old: String,
    /// The new name, the pool's included
    #[arg(value_name = "NEW")]
    pub new: String,
    /// All members of the pool, in any order; `missing` for each that is gone; not needed when the pool is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
}

/// `plexum pool resize`.
#[derive(clap::Args, Clone, Debug)]
pub struct Resize {
    /// The volume, the pool's name included
    #[arg(value_name = "POOL/VOLUME")]
    pub name: String,
    /// Its new size
    #[arg(value_name = "SIZE", value_parser = parse_bytes)]
    pub size: u64,
    /// All members of the pool, in any order; `missing` for each that is gone; not needed when the pool is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// It may become smaller: what is behind its new end is lost
    #[arg(long)]
    pub shrink: bool,
}

/// `plexum pool offline` and `online`.
#[derive(clap::Args, Clone, Debug)]
pub struct MemberChange {
    /// The member, as it is given below, or its identity
    #[arg(value_name = "WHICH")]
    pub member: String,
    /// All members of the pool, in any order; `missing` for each that is gone;
    /// or the name of a pool that is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
}

/// A member that comes to a pool.
#[derive(clap::Args, Clone, Debug)]
pub struct Coming {
    /// The one that comes: file, device or URI
    #[arg(value_name = "NEW")]
    pub new: String,
    /// All members of the pool without the new one, in any order; `missing` for each that is gone;
    /// or the name of a pool that is served
    #[arg(value_name = "MEMBER")]
    pub members: Vec<String>,
    /// Make the new member as a sparse file of this size, when it does not exist
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub member_size: Option<u64>,
    /// Overwrite what was found on the new member
    #[arg(long)]
    pub force: bool,
}

/// `plexum pool attach`.
#[derive(clap::Args, Clone, Debug)]
pub struct Attach {
    /// A side of the mirror, or a single member: as it is given below, as the pool remembers it, or its identity
    #[arg(value_name = "SIDE")]
    pub old: String,
    /// Who comes, and to which pool
    #[command(flatten)]
    pub coming: Coming,
}

/// `plexum pool add`.
#[derive(clap::Args, Clone, Debug)]
pub struct Add {
    /// The group, a word and its members: mirror, raidz1, raidz2 or raidz3; or one member alone
    #[arg(value_name = "[KIND] MEMBER", required = true)]
    pub group: Vec<String>,
    /// All members that the pool has, in any order; `missing` for each that is gone;
    /// or the name of a pool that is served
    #[arg(long, value_name = "MEMBER", num_args = 1..)]
    pub to: Vec<String>,
    /// Although it is of another kind than the pool's groups, or can do without another number of members
    #[arg(long)]
    pub mixed: bool,
    /// Make members that do not exist as sparse files of this size
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub member_size: Option<u64>,
    /// Overwrite what was found on members
    #[arg(long)]
    pub force: bool,
}

/// `plexum pool replace`.
#[derive(clap::Args, Clone, Debug)]
pub struct Replace {
    /// The member that goes: as it is given below, as the pool remembers it, or its identity
    #[arg(value_name = "OLD")]
    pub old: String,
    /// Who comes, and to which pool
    #[command(flatten)]
    pub coming: Coming,
}
