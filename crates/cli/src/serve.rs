//! `plexum serve`: from the command line to the server's body, and the server in the background.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use plexum_daemon::assembly::{AssembleRequest, DeviceWish};
use plexum_daemon::control::{Action, OpenRequest};
use plexum_daemon::create::check_name;
use plexum_daemon::memory::{self, StateDir};
use plexum_daemon::open::full_path;
use plexum_daemon::owners::Choice;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::{Kind, Surroundings};
use plexum_daemon::serve::{
    MEMORY_BYTES_DEFAULT, MEMORY_BYTES_MIN, Ready, ServeRequest, rehearse_serve, serve,
};
use plexum_daemon::serve_dataset::{DatasetRequest, pool_of, rehearse_dataset, serve_dataset};
use plexum_daemon::status::{Verdict, VolumeStatus};
use plexum_engine::shard::SHARDS_MAX;
use plexum_md::assemble::{Options, StaleUse};
use plexum_runtime::IoChoice;
use plexum_runtime::file::Access;
use serde_json::json;

use crate::args::{Common, Serve};
use crate::client::Client;
use crate::control::runtime_dir;
use crate::daemon_client::Daemon;
use crate::errors::{Outcome, report_beside};
use crate::listen::{listen_address, nvme, tls};
use crate::log::{keep_earlier_log, log_file};
use crate::nested;
use crate::output::{Screen, check, object, write_raw};
use crate::pool::scan::found_members;
use crate::sets;
use crate::traces::record;
use crate::units::show_bytes;

/// Set for a server that another process waits for, and what it says at the end of its start, before its exit code.
const IN_BACKGROUND: &str = "PLEXUM_IN_BACKGROUND";
const END: &str = "\u{4}all that can be is served: ";

/// Default of `--spin`: about what a sleep and its end cost on a virtual machine.
const SPIN_US: u64 = 50;

/// Runs the command: returns when the volumes were stopped, or with `--background` when they are ready.
///
/// # Errors
/// Everything that keeps a volume from being served.
pub fn run(args: &Serve, common: &Common, screen: &Screen) -> Outcome {
    crate::parity::force(&args.parity)?;
    if !args.dataset.is_empty() {
        return run_datasets(&with_members(args)?, common, screen);
    }
    if let Some(daemon) = Daemon::find().filter(|_| !args.alone && !common.dry_run) {
        return by_daemon(&daemon, args, screen);
    }
    let request = request(args)?;
    start(request, args.background.into(), common, screen)
}

/// Where the server runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ground {
    /// In this process, until the volumes were stopped.
    Fore,
    /// In a process of its own, which goes on.
    Back,
}

impl From<bool> for Ground {
    fn from(in_background: bool) -> Self {
        match in_background {
            true => Self::Back,
            false => Self::Fore,
        }
    }
}

/// Has the daemon serve what was named or found, and returns when clients may come.
fn by_daemon(daemon: &Daemon, args: &Serve, screen: &Screen) -> Outcome {
    check_daemon_words(args)?;
    let mut exit = 0;
    if let [word] = args.members.as_slice()
        && !std::path::Path::new(word).exists()
        && daemon.waits(word)?
    {
        for ready in daemon.start(word)? {
            exit = announce(&ready, screen);
        }
        return Ok(exit);
    }
    let request = request(args)?;
    nested::tell(&request, screen);
    let (served, _) = daemon.volumes()?;
    let mut left_out = Vec::new();
    for (at, volume) in request.volumes.iter().enumerate() {
        if at >= request.named
            && let Some(known) = served.iter().find(|one| has_all(one, &volume.members))
        {
            screen.note(format!("{} is served already", known.volume));
            continue;
        }
        let open = OpenRequest {
            members: volume.members.clone(),
            ..asked(args)
        };
        match daemon.open(&open) {
            Ok(opened) => {
                for ready in opened {
                    announce(&ready, screen);
                    if args.ublk {
                        check_device(&ready)?;
                    }
                }
            }
            Err(problem) if at < request.named || request.volumes.len() == 1 => {
                return Err(problem);
            }
            Err(problem) => left_out.push((volume.members.join(" "), problem)),
        }
    }
    exit = exit.max(tell_left_out(&left_out, screen));
    Ok(exit)
}

/// The daemon serves a volume whose block device cannot be all the same: why it cannot.
fn check_device(ready: &Ready) -> Result<(), Problem> {
    let client = Client::at(ready.control.clone(), &ready.status.volume);
    let made = client.act(&Action::Device { remove: false });
    made.map(drop).map_err(|problem| {
        problem.why(format!(
            "{} is served without a block device",
            ready.status.volume
        ))
    })
}

/// Whether a volume has all of these members.
fn has_all(status: &VolumeStatus, members: &[String]) -> bool {
    let path = |word: &str| full_path(std::path::Path::new(word));
    let own: Vec<PathBuf> = status
        .members
        .iter()
        .filter_map(|member| member.path.as_deref().map(path))
        .collect();
    members.iter().all(|member| own.contains(&path(member)))
}

/// What holds for a whole process is the daemon's own.
fn check_daemon_words(args: &Serve) -> Result<(), Problem> {
    let words = [
        ("--socket", args.socket.is_some()),
        ("--listen", args.listen.is_some()),
        ("--nvme", args.nvme.is_some()),
        ("--memory", args.memory.is_some()),
        ("--spin", args.spin.is_some()),
        ("--cores", args.cores != 1),
        ("--io", args.io != "auto"),
        ("--parity", args.parity != "auto"),
        ("--tls-cert", args.tls_cert.is_some()),
    ];
    match words.iter().find(|(_, is_said)| *is_said) {
        None => Ok(()),
        Some((word, _)) => Err(usage(format!(
            "{word} holds for a whole server, and a daemon runs, which serves all volumes alike"
        ))
        .hint("to serve in a process of its own, add:   --alone")),
    }
}

/// Serves what is asked for; another process does it when it is to be in the background.
///
/// # Errors
/// As `run`.
pub fn start(request: ServeRequest, ground: Ground, common: &Common, screen: &Screen) -> Outcome {
    if common.dry_run {
        return plan(&request, screen);
    }
    if ground == Ground::Back {
        return background(screen);
    }
    nested::tell(&request, screen);
    let mut records = Vec::new();
    let mut exit = 0;
    let result = serve(request, &mut |ready: &Ready| {
        exit = tell(ready, &mut records, screen)?;
        Ok(())
    });
    records.iter().for_each(|control| record::remove(control));
    result.map(|()| exit)
}

/// With the members of the pool, when they are to be found.
fn with_members(args: &Serve) -> Result<Serve, Problem> {
    let mut args = args.clone();
    if args.scan.is_empty() {
        return Ok(args);
    }
    if !args.members.is_empty() {
        return Err(usage("with --dataset members are named or found: not both"));
    }
    let pool = args.dataset.first().map(|dataset| pool_of(dataset));
    args.members = found_members(&args.scan, pool)?;
    Ok(args)
}

/// Volumes of a ZFS pool.
fn run_datasets(args: &Serve, common: &Common, screen: &Screen) -> Outcome {
    if args.dataset.len() > 1 && args.name.is_some() {
        return Err(usage("--name is for one volume: several have their own"));
    }
    if args.listen.is_some() || args.write && args.txg.is_some() {
        return Err(usage(
            "--dataset goes without --listen, and with --txg or --write",
        ));
    }
    if let Some(daemon) = Daemon::find().filter(|_| !args.alone && !common.dry_run) {
        check_daemon_words(args)?;
        let mut exit = 0;
        for ready in daemon.open(&asked(args))? {
            exit = announce(&ready, screen).max(exit);
            if args.ublk {
                check_device(&ready)?;
            }
        }
        return Ok(exit);
    }
    if args.members.is_empty() {
        return Err(usage("no daemon runs that has the pool: name its members"));
    }
    let request = DatasetRequest {
        datasets: args.dataset.clone(),
        members: args.members.clone(),
        txg: args.txg,
        access: match args.write {
            true => Access::ReadWrite,
            false => Access::ReadOnly,
        },
        trust: args.trust.into(),
        name: args.name.clone(),
        socket: args.socket.clone(),
        nvme: nvme(args)?,
        vhost_user: args.vhost_user.clone(),
        device: match args.ublk {
            true => DeviceWish::Make,
            false => DeviceWish::TakeOver,
        },
        io: io_choice(&args.io)?,
        spin: spin(args.spin),
        memory_bytes: args
            .memory
            .unwrap_or(MEMORY_BYTES_DEFAULT)
            .max(MEMORY_BYTES_MIN),
        runtime_dir: runtime_dir(),
    };
    if common.dry_run {
        rehearse_dataset(&request)?;
        let (names, members) = (args.dataset.join(" "), args.members.join(" "));
        screen.line(format!("would serve {names} of {members}"));
        let fields = json!({"command": "serve", "datasets": args.dataset, "dataset": args.dataset.first(),
            "members": args.members});
        screen.object(&object("plan", args.name.as_deref(), fields));
        return Ok(0);
    }
    if args.background {
        return background(screen);
    }
    let mut records = Vec::new();
    let mut ready = |ready: &Ready| tell(ready, &mut records, screen).map(drop);
    let result = serve_dataset(&request, &mut ready);
    records.iter().for_each(|control| record::remove(control));
    result.map(|()| 0)
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

fn request(args: &Serve) -> Result<ServeRequest, Problem> {
    if let Some(name) = &args.name {
        check_name(name)?;
    }
    if args.backup_file.is_some() && !args.scan.is_empty() {
        return Err(usage(
            "--backup-file belongs to one array: name its members",
        ));
    }
    let template = asked(args).assemble()?;
    let mut volumes = Vec::new();
    if !args.members.is_empty() {
        volumes.extend(named_volumes(args, &template)?);
    }
    let named = volumes.len();
    if !args.scan.is_empty() {
        volumes.extend(found_volumes(args, &template)?);
    }
    Ok(ServeRequest {
        volumes,
        named,
        socket: args.socket.clone(),
        listen: args
            .listen
            .as_deref()
            .map(|text| listen_address(text, args))
            .transpose()?,
        nvme: nvme(args)?,
        tls: tls(args)?,
        io: io_choice(&args.io)?,
        spin: spin(args.spin),
        memory_bytes: memory_bytes(args.memory.unwrap_or(MEMORY_BYTES_DEFAULT))?,
        cores: cores(args.cores)?,
        runtime_dir: runtime_dir(),
        state_dir: StateDir::locate(&memory::Surroundings::of_this_process()),
    })
}

/// What is asked of each volume; the members are those that were named.
fn asked(args: &Serve) -> OpenRequest {
    OpenRequest {
        members: args.members.clone(),
        datasets: args.dataset.clone(),
        trust: args.trust,
        txg: args.txg,
        name: args.name.clone(),
        read_only: args.read_only,
        write: args.write,
        force: args.force,
        force_data: args.force_data,
        run_degraded: args.run_degraded,
        balance: args.balance.clone(),
        format: args.format.clone(),
        raid0_layout: args.raid0_layout.clone(),
        backup_file: args.backup_file.clone(),
        ublk: args.ublk,
        vhost_user: args.vhost_user.clone(),
        member_timeout_s: Some(args.member_timeout),
    }
}

/// One for all members that were named; mirrors of several names are one each.
fn named_volumes(
    args: &Serve,
    template: &AssembleRequest,
) -> Result<Vec<AssembleRequest>, Problem> {
    let sets = sets::mirrors_among(&args.members);
    if args.name.is_some() && !sets.is_empty() {
        return Err(usage(format!(
            "--name is for one volume, {} were named",
            sets.len()
        )));
    }
    if sets.is_empty() {
        return Ok(vec![template.clone()]);
    }
    let with = |members| AssembleRequest {
        members,
        ..template.clone()
    };
    Ok(sets.into_iter().map(with).collect())
}

fn found_volumes(
    args: &Serve,
    template: &AssembleRequest,
) -> Result<Vec<AssembleRequest>, Problem> {
    let mut sets = sets::find_sets(&args.scan)?;
    if let Choice::Format(format) = template.choice {
        sets.retain(|set| set.format() == Some(format));
    }
    if sets.is_empty() {
        return Err(Problem::new(
            Code::NoMetadata,
            format!("no sets were found in {}", args.scan.join(" ")),
        ));
    }
    if args.name.is_some() && sets.len() > 1 {
        return Err(usage(format!(
            "--name is for one volume, {} were found",
            sets.len()
        )));
    }
    Ok(sets
        .into_iter()
        .map(|set| AssembleRequest {
            members: set.members,
            options: Options {
                stale: StaleUse::Never, // nobody has named them
                ..template.options
            },
            ..template.clone()
        })
        .collect())
}

/// Memory for requests.
///
/// # Errors
/// `Usage`: the largest requests could not be served with it.
pub fn memory_bytes(asked: u64) -> Result<u64, Problem> {
    if asked >= MEMORY_BYTES_MIN {
        return Ok(asked);
    }
    Err(usage(format!(
        "--memory {}: at least {} are needed for the largest requests",
        show_bytes(asked),
        show_bytes(MEMORY_BYTES_MIN)
    )))
}

/// How many threads serve each volume.
///
/// # Errors
/// `Usage`: none, or more than there can be.
pub fn cores(asked: usize) -> Result<usize, Problem> {
    if (1..=SHARDS_MAX).contains(&asked) {
        return Ok(asked);
    }
    Err(usage(format!("--cores {asked}: it is 1 to {SHARDS_MAX}")))
}

/// How long to look for a client's next request: where others can work meanwhile, about what a sleep and its end cost.
pub fn spin(asked_us: Option<u64>) -> Duration {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let default_us = if processors > 1 { SPIN_US } else { 0 };
    Duration::from_micros(asked_us.unwrap_or(default_us))
}

/// Which reactor a word means.
///
/// # Errors
/// `Usage` for another word.
pub fn io_choice(word: &str) -> Result<IoChoice, Problem> {
    match word {
        "auto" => Ok(IoChoice::Auto),
        "uring" => Ok(IoChoice::Uring),
        "threads" => Ok(IoChoice::Threads),
        other => Err(usage(format!("--io {other}: it is auto, uring or threads"))),
    }
}

/// Records how the volume is served, and says that clients may come. Whoever cannot be told would never know. Gives the
/// exit code as `announce` does.
fn tell(ready: &Ready, records: &mut Vec<PathBuf>, screen: &Screen) -> Result<u8, Problem> {
    record::write(&ready.control, &ready.status.volume);
    records.push(ready.control.clone());
    let exit = announce(ready, screen);
    check().map(|()| exit)
}

/// The one line that says that clients may come. Gives the exit code for when everything has ended.
fn announce(ready: &Ready, screen: &Screen) -> u8 {
    let status = &ready.status;
    for note in &ready.notes {
        screen.note(note);
    }
    let uris: Vec<&str> = status
        .exports
        .iter()
        .map(|export| export.uri.as_str())
        .collect();
    screen.object(&object(
        "ready",
        Some(&status.volume),
        json!({"uri": uris.first(), "uris": uris, "control": ready.control,
            "pid": status.server_pid, "verdict": status.verdict, "size_bytes": status.size_bytes,
            "notes": ready.notes}),
    ));
    let verdict = match status.verdict {
        Verdict::Ok => String::new(),
        other => format!(" {}", other.word()),
    };
    screen.line(format!(
        "{}{verdict} {} {}: {}",
        status.volume,
        status.level,
        show_bytes(status.size_bytes),
        uris.join(" ")
    ));
    let Some(left_out) = &ready.left_out else {
        return 0;
    };
    let exit = tell_left_out(left_out, screen);
    if std::env::var_os(IN_BACKGROUND).is_some() {
        write_raw(format!("{END}{exit}\n").as_bytes());
    }
    exit
}

/// Says what was found and is not served; the exit code of the first one.
fn tell_left_out(left_out: &[(String, Problem)], screen: &Screen) -> u8 {
    let mut exit = 0;
    for (members, problem) in left_out {
        screen.note(format!("not served: {members}"));
        let code = report_beside(problem, screen);
        exit = if exit == 0 { code } else { exit };
    }
    exit
}

fn plan(request: &ServeRequest, screen: &Screen) -> Outcome {
    let rehearsal = rehearse_serve(request)?;
    nested::tell(request, screen);
    for (status, notes) in &rehearsal.volumes {
        for note in notes {
            screen.note(format!("{}: {note}", status.volume));
        }
    }
    for volume in &request.volumes {
        let members = volume.members.join(" ");
        if rehearsal.left_out.iter().any(|(out, _)| *out == members) {
            continue;
        }
        screen.line(format!("would serve {}", volume.members.join(" ")));
        screen.object(&object(
            "plan",
            volume.name.as_deref(),
            json!({"command": "serve", "members": volume.members}),
        ));
    }
    Ok(tell_left_out(&rehearsal.left_out, screen))
}

/// Starts the same command without `--background` in a process group of its own and waits for a line of each volume.
///
/// Its standard error goes to a file in the runtime folder, which outlives this process: a pipe would end the server
/// with the first message that nobody reads.
fn background(screen: &Screen) -> Outcome {
    let tell = |error: std::io::Error| Problem::from_io(&error, "starting", "the server");
    let folder = runtime_dir();
    folder.ensure(&Surroundings::of_this_process())?;
    let log = folder
        .path()
        .join(format!("start-{}.log", std::process::id()));
    let errors = log_file(&log)?;
    let program = std::env::current_exe().map_err(tell)?;
    let words = std::env::args_os()
        .skip(1)
        .filter(|word| word != "--background");
    let mut child = Command::new(program)
        .args(words)
        .env(IN_BACKGROUND, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .env(record::BACKGROUND, "1")
        .process_group(0)
        .spawn()
        .map_err(tell)?;
    let (mut lines, mut exit) = (Vec::new(), None);
    if let Some(out) = child.stdout.take() {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if let Some(code) = line.strip_prefix(END) {
                exit = code.parse::<u8>().ok();
                break;
            }
            lines.push(line);
        }
    }
    crate::output::tell_part!("{}", std::fs::read_to_string(&log).unwrap_or_default());
    let Some(exit) = exit else {
        // It ended before it was ready: its words, printed above, are ours, also in JSON.
        let status = child.wait().map_err(tell)?;
        let _ = std::fs::remove_file(&log);
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        return Ok(code.unwrap_or(Code::Bug.exit()));
    };
    let name = |line: &String| -> Option<String> {
        let value: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(value["volume"].as_str()?.to_owned())
    };
    let first = lines.first();
    let volume =
        first.and_then(|first| name(first).or_else(|| first.split(' ').next().map(str::to_owned)));
    if let Some(volume) = volume {
        let kept = folder.file(&volume, Kind::Log);
        keep_earlier_log(&kept);
        let _ = std::fs::rename(&log, kept);
    }
    for line in &lines {
        match serde_json::from_str(line) {
            Ok(value) if screen.is_json => screen.object(&value),
            _ => screen.line(line),
        }
    }
    Ok(exit)
}
