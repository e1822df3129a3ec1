//! The command line as clap sees it. Names and meanings are the contract in docs; habits of other tools are in
//! `habits.rs`.

mod alarm;
mod attach;
mod daemon;
mod disks;
mod history;
pub mod lab;
mod make;
mod served;

use std::path::PathBuf;

use crate::units::parse_bytes;

pub use alarm::{Ack, Alert, AlertCommand, Incident};
pub use attach::{Attach, AttachBy, AttachNbdProcess, AttachProcess, Detach, TreeProcess};
pub use daemon::{Config, Daemon, Doctor, Forget, Metrics, UdevClaim};
pub use disks::{Disks, Locate, Top};
pub use history::{History, Undo};
pub use make::{Convert, Create};
pub use served::{
    AddMember, Debug, Events, Grow, ReAdd, Replace, Scrub, Set, Stats, StatsColumns, Status, Stop,
    VolumeMember,
};

/// Software RAID as a program: volumes on disks, files and remote exports, served over NBD.
#[derive(clap::Parser, Debug)]
#[command(
    name = "plexum",
    version,
    disable_help_subcommand = true,
    propagate_version = true
)]
#[command(
    after_help = "Start here:\n  plexum create nas --level 6 --member-size 4G a.img b.img c.img d.img\n  \
    plexum serve a.img b.img c.img d.img &\n  plexum status"
)]
pub struct Cli {
    /// Options that every command takes.
    #[command(flatten)]
    pub common: Common,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options that every command takes.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Common {
    /// Show the plan and change nothing
    #[arg(short = 'n', long, global = true)]
    pub dry_run: bool,
    /// Do not ask; without a terminal a destructive command needs it
    #[arg(short = 'y', long, global = true)]
    pub yes: bool,
    /// Why: kept in the history of what changes members, and with the events of a volume that is served
    #[arg(long, global = true, value_name = "TEXT")]
    pub why: Option<String>,
    /// One JSON object per result
    #[arg(long, global = true)]
    pub json: bool,
    /// Only results and errors
    #[arg(short = 'q', long, global = true)]
    pub quiet: bool,
    /// Say more; may be repeated
    #[arg(short = 'v', long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// No colours
    #[arg(long, global = true)]
    pub no_color: bool,
}

/// Every command.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// The tour: a volume on sparse files loses disks, is rebuilt, damaged, repaired and killed
    #[command(after_help = "Example:\n  plexum demo\n  plexum demo --level 5 --seed 7")]
    Demo(Demo),
    /// Make a new volume: write metadata to its members
    #[command(
        after_help = "Example:\n  plexum create nas --level 6 --member-size 4G a.img b.img c.img d.img\n  \
        plexum create home --level 1 /dev/sdb /dev/sdc --dry-run"
    )]
    Create(Box<Create>),
    /// Say what is on members and how they fit together
    #[command(after_help = "Example:\n  plexum examine a.img b.img c.img")]
    Examine(Examine),
    /// Find all sets on disks or in folders
    #[command(after_help = "Example:\n  plexum scan images/")]
    Scan(Scan),
    /// Explain a problem code, or what the loss of a member would mean
    #[command(
        after_help = "Example:\n  plexum explain stale_member\n  plexum explain nas --if 1,2"
    )]
    Explain(Explain),
    /// Assemble members and serve the volume until told to stop
    #[command(
        after_help = "Example:\n  plexum serve a.img b.img c.img d.img\n  plexum serve --scan images/ --read-only"
    )]
    Serve(Box<Serve>),
    /// State of running volumes, and what to do next
    #[command(
        after_help = "Exit codes:\n  0 all are OK   1 DEGRADED, DAMAGED or FULL   8 FAILED   7 a server ended without a stop\n\nExample:\n  plexum status nas --watch"
    )]
    Status(Status),
    /// Stop a volume cleanly
    #[command(
        after_help = "SIGTERM and SIGINT to the server are a clean stop of all its volumes, whoever is connected.\n\nExample:\n  plexum stop nas"
    )]
    Stop(Stop),
    /// Make a volume a block device, mounted when asked; without root a file
    #[command(
        after_help = "Example:\n  plexum attach nas\n  plexum attach nas /mnt\n  plexum attach nas --by nbd"
    )]
    Attach(Attach),
    /// Undo `attach`
    #[command(after_help = "Example:\n  plexum detach nas")]
    Detach(Detach),
    /// The process below an attachment
    #[command(hide = true)]
    AttachProcess(AttachProcess),
    /// The process behind a device of the kernel's nbd
    #[command(hide = true)]
    AttachNbdProcess(AttachNbdProcess),
    /// The process below an attached file system
    #[command(hide = true)]
    TreeProcess(TreeProcess),
    /// Treat a member as failed
    #[command(after_help = "Example:\n  plexum fail nas c.img")]
    Fail(VolumeMember),
    /// Add a member: fills an empty slot, or waits as a spare
    #[command(after_help = "Example:\n  plexum add nas e.img")]
    Add(AddMember),
    /// Let go of a failed member or a spare
    #[command(after_help = "Example:\n  plexum remove nas c.img")]
    Remove(VolumeMember),
    /// Take a member back; only what it missed is copied
    #[command(
        name = "re-add",
        alias = "readd",
        after_help = "Example:\n  plexum re-add nas c.img --wait"
    )]
    ReAdd(ReAdd),
    /// Copy a member to a new one while it still serves
    #[command(after_help = "Example:\n  plexum replace nas c.img new.img --wait")]
    Replace(Replace),
    /// Compare all copies or parity; exit 1 when something differs
    #[command(
        after_help = "Example:\n  plexum scrub nas --wait\n  plexum scrub nas --repair --wait"
    )]
    Scrub(Scrub),
    /// Change settings while the volume is served
    #[command(
        after_help = "Example:\n  plexum set nas balance=load rebuild-max=100M\n\nSettings:\n  balance=POLICY  rebuild-min=RATE  rebuild-max=RATE  rebuild=pause|resume\n  bitmap=internal|none  bitmap-region=SIZE"
    )]
    Set(Set),
    /// Counters, rates and latency
    #[command(
        after_help = "Example:\n  plexum stats nas --interval 1\n  plexum stats nas --interval 1 --columns freebsd"
    )]
    Stats(Stats),
    /// What happened
    #[command(after_help = "Example:\n  plexum events nas --follow")]
    Events(Events),
    /// Requests in flight with their stage
    #[command(after_help = "Example:\n  plexum debug requests nas")]
    Debug(Debug),
    /// Run the engine in a made-up world and look for violations
    #[command(after_help = "Example:\n  plexum sim --seeds 100\n  plexum sim --seed 42 --trace")]
    Sim(Sim),
    /// Measure own speed beside the peers that are installed, and hold it against the goals
    #[command(
        after_help = "Example:\n  plexum bench\n  plexum bench served --rounds 9 --chart served.svg\n  plexum bench engine --json"
    )]
    Bench(Bench),
    /// Print completions for a shell
    #[command(after_help = "Example:\n  plexum completions bash > /etc/bash_completion.d/plexum")]
    Completions(Completions),
    /// The names of the volumes that are served, one a line: for completions
    #[command(hide = true)]
    VolumeNames,
    /// Print the manual page, or write all pages to a folder
    #[command(after_help = "Example:\n  plexum man | man -l -\n  plexum man --out man/")]
    Man(Man),
    /// The laboratory: which volume is best for these disks and this work, and why
    #[command(
        after_help = "Example:\n  plexum lab work rawio --level 1 --members 2\n  plexum lab reproduce vinum"
    )]
    Lab(lab::Lab),
    /// Another number of members, level, layout, strip or size, while the volume is served
    #[command(
        after_help = "Example:\n  plexum grow nas --add e.img --dry-run\n  plexum grow nas --add e.img --wait\n  \
        plexum grow nas --level 6 --add f.img\n  plexum grow nas --size max\n  plexum grow nas --revert"
    )]
    Grow(Grow),
    /// ZFS pools without ZFS: list, show and copy what is in them; make, check
    #[command(
        after_help = "Example:\n  plexum pool list disks/*\n  plexum pool cp -r tank/home:/ copy/ disks/*"
    )]
    Pool(PoolArgs),
    /// Own the volumes of this machine: serve them now and at each start
    #[command(after_help = "Example:\n  plexum daemon\n  plexum daemon --wait 60 --degraded never")]
    Daemon(Daemon),
    /// Have the daemon expect a volume no more; nothing on its members changes
    #[command(after_help = "Example:\n  plexum forget nas")]
    Forget(Forget),
    /// What commands wrote on members that nobody served: who, when, why
    #[command(after_help = "Example:\n  plexum history\n  plexum history --json")]
    History(History),
    /// Put back what a command overwrote, as long as nobody has used what it made
    #[command(after_help = "Example:\n  plexum undo 7 --dry-run\n  plexum undo 7")]
    Undo(Undo),
    /// Which disk is in which slot, where it sits, and how it is
    #[command(after_help = "Example:\n  plexum disks\n  plexum disks nas")]
    Disks(Disks),
    /// Switch the light at a disk's bay on, also when the disk is gone
    #[command(
        after_help = "Example:\n  plexum locate nas 2\n  plexum locate nas 2 --off\n  plexum locate --all-off"
    )]
    Locate(Locate),
    /// Print the metrics of all volumes, in the text format of Prometheus
    #[command(after_help = "Example:\n  plexum metrics")]
    Metrics(Metrics),
    /// Who gets which set at the next start of the machine, Plexum or the kernel's md, and why
    #[command(after_help = "Example:\n  plexum doctor")]
    Doctor(Doctor),
    /// Tell udev whether a device is a member of a volume that the daemon is to serve
    #[command(hide = true)]
    UdevClaim(UdevClaim),
    /// What is wrong now and was today: incidents, their messages, and what became of them
    #[command(after_help = "Example:\n  plexum incident\n  plexum incident 1c8f2a3")]
    Incident(Incident),
    /// Say that an incident is known: nothing is repeated until it gets worse or ends
    #[command(after_help = "Example:\n  plexum ack 1c8f2a3 --why \"disk is ordered\"")]
    Ack(Ack),
    /// Try whether messages arrive
    #[command(after_help = "Example:\n  plexum alert test\n  plexum alert test phone")]
    Alert(Alert),
    /// Watch all volumes on a terminal: verdict, members, jobs, incidents
    #[command(after_help = "Example:\n  plexum top\n  plexum top --once")]
    Top(Top),
    /// The vocabulary of FreeBSD's gmirror
    #[command(
        after_help = "Its commands:\n  plexum gmirror help\n\nExample:\n  plexum gmirror status --in images/\n  plexum gmirror label gm0 a.img b.img"
    )]
    Gmirror(Words),
    /// The vocabulary of FreeBSD's gvinum
    #[command(
        after_help = "Its commands:\n  plexum gvinum help\n\nExample:\n  plexum gvinum list --in images/\n  plexum gvinum printconfig --in images/"
    )]
    Gvinum(Words),
    /// Make another format of a volume: in place where the data can stay, or onto new members
    #[command(after_help = "Example:\n  plexum convert a.img b.img --to md-1.0\n  \
        plexum convert da0.img da1.img da2.img --onto x.img y.img z.img --to md-1.2 --member-size 1T\n  \
        plexum convert a.img b.img --to zfs --name tank/vol --onto disks/*\n  \
        plexum convert disks/* --volume tank/vol --to md-1.2 --level 6 --onto e f g h")]
    Convert(Convert),
    /// Print the Vinum configuration of drives, or check a text; or check that of Plexum
    #[command(
        after_help = "Example:\n  plexum config d0.img d1.img\n  plexum config vinum.conf\n  \
        plexum config check\n  plexum config check plexum.toml"
    )]
    Config(Config),
}

/// Words of another program's command line.
#[derive(clap::Args, Debug)]
pub struct Words {
    /// Command and its words; --in DIR says where to look for members
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "WORD"
    )]
    pub words: Vec<String>,
}

pub use crate::pool::args::PoolArgs;

/// `plexum demo`.
#[derive(clap::Args, Debug)]
pub struct Demo {
    /// Seed of every choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// 1, 4, 5, 6 or 10
    #[arg(long, short = 'l', default_value = "6")]
    pub level: String,
    /// Members besides the two spares [default: 6, mirrors 2, others 4]
    #[arg(long, value_name = "N")]
    pub members: Option<u64>,
    /// Leave the members in this folder
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Break something on purpose: the demo must notice and fail
    #[arg(long)]
    pub sabotage: bool,
}

/// `plexum examine`.
#[derive(clap::Args, Debug)]
pub struct Examine {
    /// Files, devices or URIs
    #[arg(value_name = "MEMBER", required = true)]
    pub members: Vec<String>,
    /// Also show the bytes of the metadata
    #[arg(long)]
    pub raw: bool,
}

/// `plexum scan`.
#[derive(clap::Args, Debug)]
pub struct Scan {
    /// Folders, files or devices [default: all disks and partitions]
    #[arg(value_name = "DIR or DEVICE")]
    pub places: Vec<String>,
}

/// `plexum explain`.
#[derive(clap::Args, Debug)]
pub struct Explain {
    /// A problem code, or the name of a running volume; all codes when left out
    #[arg(value_name = "CODE or VOLUME")]
    pub what: Option<String>,
    /// Members that are imagined lost: slots or paths, separated by commas
    #[arg(long = "if", value_name = "MEMBER", value_delimiter = ',')]
    pub lost: Vec<String>,
}

/// `plexum serve`.
#[derive(clap::Args, Debug, Clone)]
pub struct Serve {
    /// Members in any order: file, device or URI
    #[arg(value_name = "MEMBER", required_unless_present_any = ["scan", "dataset"])]
    pub members: Vec<String>,
    /// Serve all sets found in folders or on devices; with --dataset find the members of its pool there
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub scan: Vec<String>,
    /// Serve this volume of the ZFS pool on the members; read-only without --write; may be repeated
    #[arg(long, value_name = "NAME[@SNAP]")]
    pub dataset: Vec<String>,
    /// With --dataset and --write: do not check the pool first
    #[arg(long, requires = "dataset")]
    pub trust: bool,
    /// With --dataset: the newest root up to this transaction group
    #[arg(long, value_name = "N", requires = "dataset")]
    pub txg: Option<u64>,
    /// Name of the volume [default: the name in the metadata]
    #[arg(long)]
    pub name: Option<String>,
    /// Unix socket for clients [default: RUNTIME/NAME.nbd]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Also listen on TCP
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// Also listen for NVMe over TCP, for hosts that attach it as a disk; its usual port is 4420
    #[arg(long, value_name = "ADDR:PORT")]
    pub nvme: Option<String>,
    /// With --nvme: let only this host in, by its name (NQN); may be repeated [default: all that reach the address]
    #[arg(long, value_name = "NQN", requires = "nvme")]
    pub allow_host: Vec<String>,
    /// Also make it a block device, /dev/plexum/NAME (Linux 6.5 or newer, as root)
    #[arg(long)]
    pub ublk: bool,
    /// Also let one virtual machine have it as a disk: the vhost-user-blk socket for QEMU and others
    #[arg(long, value_name = "PATH", conflicts_with = "scan")]
    pub vhost_user: Option<PathBuf>,
    /// Fail a member that has not answered for so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub member_timeout: u64,
    /// Allow a --listen address that others can reach, without TLS, and such a --nvme address
    #[arg(long)]
    pub insecure_listen: bool,
    /// Change no byte of any member
    #[arg(long)]
    pub read_only: bool,
    /// Allow writes to formats that are read-only by default, and with --force to stale members
    #[arg(long)]
    pub write: bool,
    /// Start although members disagree, a dirty volume lacks a member, or (members named) only stale ones are left
    #[arg(long)]
    pub force: bool,
    /// With --force: answer rows in doubt with what is there, instead of an error
    #[arg(long)]
    pub force_data: bool,
    /// Read what a reshape in place was moving from the file that mdadm --grow --backup-file was given
    #[arg(long, value_name = "FILE")]
    pub backup_file: Option<PathBuf>,
    /// Start although a member is missing that was there at the last stop
    #[arg(long, alias = "run")]
    pub run_degraded: bool,
    /// Of a RAID-0 of unequal members whose superblocks do not say: original (Linux before 3.14) or alternate (3.14 to
    /// 5.3)
    #[arg(long, value_name = "LAYOUT")]
    pub raid0_layout: Option<String>,
    /// Where several sets claim a member's bytes, the one that is meant: md-1.2, md-1.1, md-1.0, md-0.90, gmirror,
    /// gstripe, gconcat or gvinum
    #[arg(long, alias = "metadata")]
    pub format: Option<String>,
    /// Which copy is read: round-robin, prefer, split, split:SIZE, load, load-7, nearest, adaptive or adaptive:ahead
    #[arg(long, value_name = "POLICY")]
    pub balance: Option<String>,
    /// Member I/O: auto, uring or threads
    #[arg(long, default_value = "auto")]
    pub io: String,
    /// Instructions that compute parity: auto (the fastest) or one of scalar, ssse3, neon, avx2, gfni-avx2, avx512,
    /// gfni-avx512
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    pub parity: String,
    /// Memory for requests and caches
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub memory: Option<u64>,
    /// Threads that serve each volume; connections go to them in turn
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub cores: usize,
    /// Look for a client's next request awake for so many microseconds before sleeping, 0 to 1000 [default: 50; 0 on
    /// one processor]
    #[arg(long, value_name = "MICROSECONDS", value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub spin: Option<u64>,
    /// Return when the volume is ready; the server goes on in the background
    #[arg(long)]
    pub background: bool,
    /// Serve in a process of its own although a daemon runs
    #[arg(long)]
    pub alone: bool,
    /// Certificate chain that TLS clients are shown, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,
    /// Key of the certificate, PEM
    #[arg(long, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,
    /// Let only TLS clients in whose certificate this authority signed, PEM
    #[arg(long, value_name = "CA")]
    pub tls_clients: Option<PathBuf>,
    /// TLS on --listen: forced, or selective (clients may) [default: forced, with a certificate]
    #[arg(long, value_name = "MODE")]
    pub tls: Option<String>,
}

/// `plexum sim`.
#[derive(clap::Args, Debug)]
pub struct Sim {
    /// Number of seeds to run
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    pub seeds: Option<u64>,
    /// The first seed [default: 0]
    #[arg(long, value_name = "S", conflicts_with = "seed")]
    pub from: Option<u64>,
    /// Stop after so many minutes
    #[arg(long, value_name = "M")]
    pub minutes: Option<u64>,
    /// Run this seed only
    #[arg(long, value_name = "S")]
    pub seed: Option<u64>,
    /// Print what happens, one line per event
    #[arg(long)]
    pub trace: bool,
    /// Format of the arrays: md, gmirror or gvinum; reshape: md arrays that get another shape while they are served;
    /// pool: ZFS pools
    #[arg(long, value_name = "FORMAT", default_value = "md", value_parser = ["md", "gmirror", "gvinum", "reshape", "pool"])]
    pub format: String,
    /// Instructions that compute parity: auto (the fastest) or one of scalar, ssse3, neon, avx2, gfni-avx2, avx512,
    /// gfni-avx512
    #[arg(long, value_name = "KERNEL", default_value = "auto")]
    pub parity: String,
}

/// `plexum bench`.
#[derive(clap::Args, Debug)]
pub struct Bench {
    /// Groups of goals: parity, engine, cores, served, scrub, rebuild, start, log [default: all]; of parts alone:
    /// direct, nbd, consistency, pool
    #[arg(value_name = "GROUP")]
    pub groups: Vec<String>,
    /// Rounds, in which everybody is asked by turns; the median counts
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..=100))]
    pub rounds: u64,
    /// Milliseconds of one measurement
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub millis: u64,
    /// Folder for members in files [default: /dev/shm; of parts alone: the folder for temporary files]
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,
    /// Folder on a disk for members that are opened past the page cache; they need 8 GiB [default: /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub disk_folder: Option<PathBuf>,
    /// Member I/O: auto, uring or threads
    #[arg(long, default_value = "auto")]
    pub io: String,
    /// Print the table of goals as Markdown
    #[arg(long)]
    pub markdown: bool,
    /// Draw the table of goals into this SVG file
    #[arg(long, value_name = "FILE")]
    pub chart: Option<PathBuf>,
    /// Serve FILE at SOCKET with nothing between: the yardstick that the bench starts for itself
    #[arg(long, hide = true, num_args = 2, value_names = ["SOCKET", "FILE"])]
    pub bare_server: Vec<PathBuf>,
}

/// `plexum completions`.
#[derive(clap::Args, Debug)]
pub struct Completions {
    /// bash, elvish, fish, powershell or zsh
    pub shell: clap_complete::Shell,
}

/// `plexum man`.
#[derive(clap::Args, Debug)]
pub struct Man {
    /// Write plexum.1 and one page per command into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_declaration_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn every_visible_command_has_an_example_in_its_help() {
        let command = <Cli as clap::CommandFactory>::command();
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            let after = sub.get_after_help().map(ToString::to_string);
            assert!(
                after.is_some_and(|text| text.contains("Example:\n  plexum ")),
                "{}",
                sub.get_name()
            );
        }
    }
}
