//! The words of `plexum lab`.

use std::path::PathBuf;

use crate::units::parse_bytes;

/// `plexum lab`.
#[derive(clap::Args, Debug)]
pub struct Lab {
    /// What to do
    #[command(subcommand)]
    pub command: LabCommand,
}

/// The commands of the laboratory.
#[derive(clap::Subcommand, Debug)]
pub enum LabCommand {
    /// Run one workload: on a simulated arrangement in virtual time, or on something real
    #[command(
        after_help = "Example:\n  plexum lab work random-read --level 10 --members 4 --disk nas-12t\n  \
        plexum lab work rawio --level 1 --members 2 --balance round-robin\n  \
        plexum lab work random-read --on \"nbd+unix:///pool1?socket=pool1.sock\" --depth 16\n  \
        plexum lab work bonnie++ --on /mnt/array --range 16G\n  \
        plexum lab work sequential-write --on /dev/sdx --destroy /dev/sdx"
    )]
    Work(Box<Work>),
    /// Run the published tables again and show published figures beside ours
    #[command(
        after_help = "Example:\n  plexum lab reproduce vinum\n  plexum lab reproduce --check"
    )]
    Reproduce(Reproduce),
    /// Compare read balance policies: disk sets times loads, and why one is faster
    #[command(
        after_help = "Example:\n  plexum lab balance\n  plexum lab balance --disks \"2 equal\" --load rebuild -v"
    )]
    Balance(Balance),
    /// Run an experiment file: a matrix of arrangements and workloads, resumable
    #[command(after_help = "Example:\n  plexum lab run strips.toml --out strips/")]
    Run(RunFile),
    /// Report of an experiment: which arrangement is best, by how much, and why
    #[command(after_help = "Example:\n  plexum lab report strips/")]
    Report(Report),
    /// Measure a real disk by reads alone, and make a preset of it
    #[command(
        after_help = "Example:\n  plexum lab calibrate /dev/sdb --out sdb.toml\n  \
        plexum lab work random-read --level 5 --members 4 --disk sdb.toml"
    )]
    Calibrate(Calibrate),
    /// Predict twelve experiments on a disk by simulation, then run them by reads alone
    #[command(after_help = "Example:\n  plexum lab predict /dev/sdb --disk sdb.toml")]
    Predict(Predict),
    /// List the simulated disks
    Presets,
}

/// `plexum lab balance`.
#[derive(clap::Args, Debug)]
pub struct Balance {
    /// Only disk sets whose name contains this
    #[arg(long, default_value = "")]
    pub disks: String,
    /// Only loads whose name contains this
    #[arg(long, default_value = "")]
    pub load: String,
    /// Exit with 1 when the policy `adaptive` misses its bands
    #[arg(long)]
    pub check: bool,
    /// First seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// How many seeds: a cell is their median
    #[arg(long, default_value_t = 5)]
    pub seeds: u64,
    /// text, csv, json (JSON Lines) or markdown
    #[arg(long, default_value = "text")]
    pub format: String,
}

/// `plexum lab run`.
#[derive(clap::Args, Debug)]
pub struct RunFile {
    /// The experiment file
    pub file: PathBuf,
    /// Folder of the results [default: the file's name without its ending]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `plexum lab report`.
#[derive(clap::Args, Debug)]
pub struct Report {
    /// Folder of the results
    pub folder: PathBuf,
    /// What fio wrote with --output-format=json, as one more result; may be repeated, and needs no experiment
    #[arg(long, value_name = "FILE")]
    pub fio: Vec<PathBuf>,
    /// Do not write the report (HTML, Markdown, charts) into the folder
    #[arg(long)]
    pub no_files: bool,
}

/// `plexum lab reproduce`.
#[derive(clap::Args, Debug)]
pub struct Reproduce {
    /// Tables [default: all]
    #[arg(value_name = "TABLE")]
    pub tables: Vec<String>,
    /// Exit with 1 when a band is missed; runs 5 seeds
    #[arg(long)]
    pub check: bool,
    /// First seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Number of seeds [default: 1, with --check 5]
    #[arg(long)]
    pub seeds: Option<u64>,
    /// Write a page with all of it: published beside ours, errors, effects, what each disk did
    #[arg(long, value_name = "FILE.html")]
    pub out: Option<PathBuf>,
    /// text, csv, json (JSON Lines) or markdown
    #[arg(long, default_value = "text")]
    pub format: String,
}

/// Options that say what is simulated.
const SIMULATED: [&str; 10] = [
    "disk",
    "members",
    "level",
    "layout",
    "strip",
    "balance",
    "no_bitmap",
    "consistency",
    "queue_depth",
    "member_size_bytes",
];

/// `plexum lab work`.
#[derive(clap::Args, Debug)]
pub struct Work {
    /// Workload; `list` shows all
    #[arg(value_name = "WORKLOAD")]
    pub kind: String,
    /// Run it on something real: a device, a file, a folder of a file system, or the NBD URI of a served volume
    #[arg(long, value_name = "PLACE", conflicts_with_all = SIMULATED)]
    pub on: Option<String>,
    /// The workload writes, and what is on this device, file or export may be lost; the same words as after --on
    #[arg(long, value_name = "PLACE", requires = "on")]
    pub destroy: Option<String>,
    /// Let the program that the workload is named after do it: fio, dd, bonnie++ or iozone, which must be installed
    #[arg(long, requires = "on")]
    pub real: bool,
    /// Preset or preset file of the disks; may be repeated, the last one stands for the rest
    #[arg(long, value_name = "PRESET", default_value = "sata-7200-750")]
    pub disk: Vec<String>,
    /// Number of disks
    #[arg(long, default_value_t = 4)]
    pub members: usize,
    /// single, linear, 0, 1, 4, 5, 6 or 10
    #[arg(long, default_value = "10")]
    pub level: String,
    /// Layout in md's words
    #[arg(long, default_value = "")]
    pub layout: String,
    /// Strip size
    #[arg(long, default_value = "512K", value_parser = parse_bytes)]
    pub strip: u64,
    /// Balance policy
    #[arg(long, default_value = "load")]
    pub balance: String,
    /// Leave the bitmap out
    #[arg(long)]
    pub no_bitmap: bool,
    /// What closes the write hole: log, write-back, ppl, bitmap or resync [default: bitmap]
    #[arg(long, value_name = "HOW")]
    pub consistency: Option<String>,
    /// Commands each disk holds [default: as the preset says]
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub queue_depth: u32,
    /// Length of a request
    #[arg(long, default_value = "4K", value_parser = parse_bytes)]
    pub block: u64,
    /// Processes
    #[arg(long, default_value_t = 4)]
    pub processes: usize,
    /// Requests under way of each process
    #[arg(long, default_value_t = 1)]
    pub depth: usize,
    /// Requests of each process
    #[arg(long, default_value_t = 500)]
    pub requests: u64,
    /// Reads in a hundred requests, for `mixed` and `superblocks`
    #[arg(long, default_value_t = 70)]
    pub read_percent: u64,
    /// Bytes of a cylinder group, for `superblocks`
    #[arg(long, value_name = "SIZE", default_value = "32M", value_parser = parse_bytes)]
    pub group: u64,
    /// Range of the volume that is used [default: all]; in a folder the size of the file
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub range: Option<u64>,
    /// Host between bonnie and a simulated volume: ufs-1999 or ext2-1999
    #[arg(long, default_value = "", conflicts_with = "on")]
    pub host: String,
    /// Job file of `fio`, or trace of `trace`
    #[arg(long, value_name = "FILE", default_value = "")]
    pub file: String,
    /// bonnie++ in a folder: N times 1024 files for its phases with many, of MIN to MAX bytes, over so many FOLDERS;
    /// 0: without them
    #[arg(long, value_name = "N[:MAX[:MIN[:FOLDERS]]]", default_value = "16", value_parser = parse_files)]
    pub files: ManyFiles,
    /// iozone: all files from 64K to --range (512M) with all records from 4K to 16M
    #[arg(short = 'a', long)]
    pub auto: bool,
    /// Bytes used of each member [default: all]
    #[arg(long = "member-size", value_name = "SIZE", value_parser = parse_bytes)]
    pub member_size_bytes: Option<u64>,
    /// Each write is durable before it counts
    #[arg(long)]
    pub sync: bool,
    /// rawio: lengths of 1 to 120 sectors as in the Vinum measurements
    #[arg(long)]
    pub vinum_mix: bool,
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// text, csv, json (JSON Lines) or markdown
    #[arg(long, default_value = "text")]
    pub format: String,
}

/// bonnie++'s files in units of 1024, as its `-n` takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManyFiles {
    /// How many.
    pub count: u64,
    /// Bytes of the largest.
    pub bytes_max: u64,
    /// Bytes of the smallest.
    pub bytes_min: u64,
    /// Folders that they are spread over.
    pub folders: u64,
}

/// `16`, `16:4K`, or `16:1024:0:16`. As in the program the least size is 0 when it is left out.
fn parse_files(text: &str) -> Result<ManyFiles, String> {
    let mut words = text.split(':');
    let count = words.next().unwrap_or_default();
    let number = |word: &str, what: &str| {
        let number = word.parse::<u64>();
        number.map_err(|_| format!("{word:?} is no number of {what}"))
    };
    let mut files = ManyFiles {
        count: number(count, "files in units of 1024")?,
        ..ManyFiles::default()
    };
    if let Some(size) = words.next() {
        files.bytes_max = parse_bytes(size)?;
    }
    files.bytes_min = words.next().map_or(Ok(0), parse_bytes)?;
    if let Some(folders) = words.next() {
        // The program takes a unit here as well.
        let (digits, unit) = match folders.strip_suffix(['k', 'K']) {
            Some(digits) => (digits, 1024),
            None => (folders, 1),
        };
        files.folders = number(digits, "folders")?.saturating_mul(unit);
        if files.folders == 0 {
            return Err("files are in 1 folder at least: N:MAX:MIN:FOLDERS".to_owned());
        }
    }
    match words.next() {
        Some(more) => Err(format!("{more:?} is one too many: N:MAX:MIN:FOLDERS")),
        None if files.bytes_min > files.bytes_max => {
            Err("the least size is above the largest: N:MAX:MIN:FOLDERS".to_owned())
        }
        None => Ok(files),
    }
}

/// `plexum lab calibrate`.
#[derive(clap::Args, Debug)]
pub struct Calibrate {
    /// Device or file; it is only read
    pub device: PathBuf,
    /// Write the preset to this new file, and a chart beside it [default: print it]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// `plexum lab predict`.
#[derive(clap::Args, Debug)]
pub struct Predict {
    /// Device or file; it is only read
    pub device: PathBuf,
    /// Preset that stands for it, as `lab calibrate` writes them
    #[arg(long, value_name = "PRESET")]
    pub disk: String,
    /// Real runs of each experiment; their median counts
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub rounds: u8,
    /// Seed
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Exit with 1 when less than 9 of the 12 predictions are within 30 %
    #[arg(long)]
    pub check: bool,
    /// text, csv, json (JSON Lines) or markdown
    #[arg(long, default_value = "text")]
    pub format: String,
}
