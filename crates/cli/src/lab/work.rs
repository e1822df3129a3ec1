//! `plexum lab work`: one workload, on simulated disks or on something real.

use plexum_daemon::problem::Problem;
use plexum_lab::iostat;
use plexum_lab::report::inside::checks_table;
use plexum_lab::report::table::Table;
use plexum_lab::setup::Setup;
use plexum_lab::work::program::{measure_program, rehearse_program};
use plexum_lab::work::real::{On, measure_on, rehearse_on};
use plexum_lab::work::{KINDS, Measurement, Work as LabWork, measure};
use serde_json::json;

use super::{print, problem};
use crate::args::Common;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::units::parse_bytes;

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

/// Runs `plexum lab work`.
///
/// # Errors
/// `Usage` for what cannot be, `WouldDestroy` for a workload that would write to what was not named for it.
pub fn run(args: &Work, common: &Common, screen: &Screen) -> Outcome {
    if args.kind == "list" {
        let mut table = Table::new("", &["workload", "what it does"]);
        for (kind, about) in KINDS {
            table.push(vec![json!(kind), json!(about)]);
        }
        print(&table, "lab_workload", &args.format, screen)?;
        return Ok(0);
    }
    let work = work_of(args);
    let told = |error| problem(&error);
    if let Some(name) = &args.on {
        let on = On {
            name,
            destroy: args.destroy.as_deref(),
        };
        if common.dry_run {
            let checked = match args.real {
                true => rehearse_program(&on, &work),
                false => rehearse_on(&on, &work, args.seed),
            };
            checked.map_err(told)?;
            screen.line(format!("would run {} on {name}", work.kind));
            let fields =
                json!({"command": "lab work", "on": name, "destroy": args.destroy, "work": work});
            screen.object(&object("plan", None, fields));
            return Ok(0);
        }
        let seen = if args.real {
            measure_program(&on, &work, args.seed)
        } else {
            measure_on(&on, &work, args.seed)
        };
        let seen = seen.map_err(told)?;
        let head = json!({"on": name, "is_real_program": args.real, "work": work, "seed": args.seed, "result": seen});
        show_measurement(name, head, &work, &seen, args, screen)?;
        return Ok(0);
    }
    let setup = Setup {
        disks: args.disk.clone(),
        members: args.members,
        level: args.level.clone(),
        layout: args.layout.clone(),
        strip_bytes: args.strip,
        balance: args.balance.clone(),
        has_bitmap: !args.no_bitmap,
        consistency: args.consistency.clone().unwrap_or_default(),
        queue_depth: args.queue_depth,
        member_bytes: args.member_size_bytes.unwrap_or(0),
        ..Setup::default()
    };
    let seen = measure(&setup, &work, args.seed).map_err(told)?;
    let head = json!({"setup": setup, "work": work, "seed": args.seed, "result": seen});
    show_measurement(&setup.label(), head, &work, &seen, args, screen)?;
    Ok(0)
}

fn work_of(args: &Work) -> LabWork {
    let files = match args.kind.as_str() {
        "bonnie++" => args.files,
        _ => ManyFiles::default(),
    };
    LabWork {
        kind: args.kind.clone(),
        block_bytes: args.block,
        processes: args.processes,
        depth: args.depth,
        requests: args.requests,
        read_percent: args.read_percent,
        group_bytes: args.group,
        range_bytes: args.range.unwrap_or(0),
        is_sync: args.sync,
        has_vinum_mix: args.vinum_mix,
        file: args.file.clone(),
        host: args.host.clone(),
        files: files.count,
        files_bytes: files.bytes_max,
        files_bytes_min: files.bytes_min,
        file_folders: files.folders,
        is_auto: args.auto,
        ..LabWork::default()
    }
}

/// bonnie++'s files in units of 1024, as its `-n` takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ManyFiles {
    count: u64,
    bytes_max: u64,
    bytes_min: u64,
    folders: u64,
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

fn show_measurement(
    label: &str,
    fields: serde_json::Value,
    work: &LabWork,
    seen: &Measurement,
    args: &Work,
    screen: &Screen,
) -> Result<(), Problem> {
    for note in &seen.notes {
        screen.note(note);
    }
    screen.object(&object("lab_measurement", None, fields));
    if screen.is_json {
        return Ok(());
    }
    let mut table = Table::new("", &["arrangement", "workload", "figure", "value", "unit"]);
    for figure in &seen.figures {
        table.push(vec![
            json!(label),
            json!(work.kind),
            json!(figure.name),
            json!((figure.value * 100.0).round() / 100.0),
            json!(figure.unit),
        ]);
    }
    print(&table, "lab_figure", &args.format, screen)?;
    if args.format != "text" {
        return Ok(());
    }
    if !seen.classic.is_empty() {
        screen.line(format!("\n{}", seen.classic.trim_end()));
    }
    for (name, latency) in [("reads", &seen.reads), ("writes", &seen.writes)] {
        if latency.count > 0 {
            screen.line(format!(
                "\n{name}: {} requests, mean {:.0} us, median {:.0}, 90 % {:.0}, 99 % {:.0}, 99.9 % {:.0}, worst {:.0}",
                latency.count,
                latency.mean_us,
                latency.p50_us,
                latency.p90_us,
                latency.p99_us,
                latency.p999_us,
                latency.max_us
            ));
        }
    }
    if screen.verbosity > 0 && !seen.inside.checks.is_empty() {
        let checks: Vec<_> = seen.inside.checks.iter().collect();
        screen.line(format!("\n{}", checks_table(&checks).text().trim_end()));
    }
    if seen.members.is_empty() {
        return Ok(());
    }
    screen.line(format!("\n{}", iostat::freebsd(&seen.members).trim_end()));
    screen.line(format!("\n{}", iostat::linux(&seen.members).trim_end()));
    screen.line(format!("\n{}", iostat::reasons(&seen.members).trim_end()));
    Ok(())
}
