//! `plexum locate`: the light at a disk's bay, also when the disk is gone; and where there is none, the lamps of its
//! neighbours.
//!
//! Invariants:
//! - a light is addressed by the bay that the volume remembers, never by the name of a device that may be another's;
//! - nothing is written but the light.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plexum_daemon::advice::shell_word;
use plexum_daemon::disk::{DiskBay, DiskSettings, DiskStatus};
use plexum_daemon::open::full_path;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{MemberStatus, VolumeStatus};
use plexum_inventory::{
    BayAddress, Inventory, Ledctl, Light, LightError, Lit, Roots, read_light, set_light,
};
use serde_json::json;

use crate::args::{Common, Locate};
use crate::client::Client;
use crate::disks::{Line, kept_disks, kept_lines, last_seen, lines};
use crate::errors::Outcome;
use crate::output::{Screen, is_lost, object};

/// How long one disk is read before the next one: long enough to be seen.
const TURN: Duration = Duration::from_secs(1);
/// What is read at once.
const READ_BYTES: usize = 1 << 20;

/// Runs the command.
///
/// # Errors
/// `NoSuchVolume`, `NoSuchMember`; `WrongState` where there is no light; as the system says.
pub fn run(args: &Locate, common: &Common, screen: &Screen) -> Outcome {
    let roots = DiskSettings::of_this_process().roots;
    let light = match args.fault {
        true => Light::Fault,
        false => Light::Locate,
    };
    let (Some(volume), Some(word)) = (&args.volume, &args.member) else {
        return all_off(&roots, light, common, screen);
    };
    let status = Client::find(Some(volume)).and_then(|client| client.status());
    let kept = match status {
        Ok(_) => Vec::new(),
        Err(_) => kept_disks(volume),
    };
    let all = match &status {
        Ok(status) => lines(status),
        // Of a volume that is not served the disks are those that were kept.
        Err(problem) if kept.is_empty() || args.by_activity => return Err(problem.clone()),
        Err(_) => kept_lines(&kept),
    };
    let line = find(&all, volume, word)?;
    if let (Ok(status), true) = (&status, args.by_activity) {
        let limit = Duration::from_secs(args.seconds);
        return by_activity(status, line, limit, common, screen);
    }
    let disk = disk_of(line, word)?;
    let Some(bay) = &disk.bay else {
        let text = format!("nobody says where the {} sits", disk.words());
        return Err(by_lamps(Problem::new(Code::WrongState, text), volume, word));
    };
    let lit = match args.off {
        true => Lit::Off,
        false => Lit::On,
    };
    let switch = Switch {
        roots: &roots,
        bay,
        light,
        lit,
    };
    let by = match common.dry_run {
        true => switch.check(disk),
        false => switch.set(disk),
    };
    let by = by.map_err(|problem| by_lamps(problem.why(who(line, disk)), volume, word))?;
    let fields = json!({"slot": line.slot, "bay": bay, "light": light, "lit": lit, "by": by,
        "disk": disk});
    let (kind, verb) = match common.dry_run {
        true => ("plan", "would be"),
        false => ("light", "is"),
    };
    screen.object(&object(kind, Some(volume), fields));
    screen.line(format!("the {light} light of {} {verb} {lit}", bay.words));
    screen.line(format!("  {}", who(line, disk)));
    if lit == Lit::On && !common.dry_run {
        let which = if args.fault { " --fault" } else { "" };
        let (volume, word) = (shell_word(volume), shell_word(word));
        screen.done(format!(
            "to switch it off:   plexum locate {volume} {word}{which} --off"
        ));
    }
    Ok(0)
}

/// The line that a word names: a slot, a path, also one that a member had, a serial or a world-wide name.
fn find<'a>(all: &[Line<'a>], volume: &str, word: &str) -> Result<Line<'a>, Problem> {
    let slot: Option<u32> = word.parse().ok();
    let wanted = full_path(Path::new(word));
    let in_slot = |line: &Line| slot.is_some() && line.slot == slot && !line.is_beside;
    let is_path = |line: &Line| {
        let path = line.member;
        path.is_some_and(|path| path == word || full_path(Path::new(path)) == wanted)
    };
    let is_disk = |line: &Line| {
        let names = line.disk.map(|disk| [&disk.serial, &disk.wwn]);
        names.is_some_and(|names| names.into_iter().flatten().any(|name| name == word))
    };
    let by = |is_it: &dyn Fn(&Line) -> bool| -> Vec<Line<'a>> {
        all.iter().filter(|line| is_it(line)).copied().collect()
    };
    let found = [by(&in_slot), by(&is_path), by(&is_disk)];
    let found = found.into_iter().find(|found| !found.is_empty());
    let found = found.unwrap_or_default();
    let bays: Vec<Option<&DiskBay>> = found.iter().map(|line| line.disk?.bay.as_ref()).collect();
    let is_one = bays.windows(2).all(|pair| pair[0] == pair[1]);
    match found.first() {
        Some(line) if is_one => Ok(*line),
        Some(_) => {
            let text = format!("{word} is the serial of several disks of {}", volume);
            Err(Problem::new(Code::Usage, text)
                .hint("name the one that is meant by its slot, its path or its world-wide name"))
        }
        None => {
            let text = format!("{} has no member {word}, and had none", volume);
            Err(Problem::new(Code::NoSuchMember, text)
                .member(word)
                .hint(format!("to see them:   plexum disks {}", volume)))
        }
    }
}

fn disk_of<'a>(line: Line<'a>, word: &str) -> Result<&'a DiskStatus, Problem> {
    line.disk.ok_or_else(|| {
        let text = format!("no disk is known for {word}, so it has no light");
        Problem::new(Code::WrongState, text)
            .member(word)
            .why("files, addresses and devices made of others are no disks")
    })
}

/// Which disk it is, in a line.
fn who(line: Line, disk: &DiskStatus) -> String {
    let name = disk.name.as_ref().map(|name| format!(", now /dev/{name}"));
    let gone = last_seen(disk).map(|seen| format!(", gone, {seen}"));
    let slot = line.slot.map(|slot| format!("slot {slot}: "));
    let parts = [slot, Some(disk.words()), name, gone];
    parts.into_iter().flatten().collect()
}

/// With the way that needs no light.
fn by_lamps(problem: Problem, volume: &str, word: &str) -> Problem {
    let (volume, word) = (shell_word(volume), shell_word(word));
    problem.hint(format!(
        "to have its neighbours' lamps blink:   plexum locate {volume} {word} --by-activity"
    ))
}

/// A light that is to be switched.
struct Switch<'a> {
    roots: &'a Roots,
    bay: &'a DiskBay,
    light: Light,
    lit: Lit,
}

impl Switch<'_> {
    /// Switches it, by sysfs, or by ledctl where that is the way. Says by what.
    fn set(&self, disk: &DiskStatus) -> Result<&'static str, Problem> {
        match set_light(self.roots, &self.bay.address, self.light, self.lit) {
            Ok(_) => Ok("sysfs"),
            Err(error) => match ledctl_device(&error, disk) {
                Some(device) => self.by_ledctl(&device, &error),
                None => Err(problem_of(&error)),
            },
        }
    }

    /// Whether it could be switched.
    fn check(&self, disk: &DiskStatus) -> Result<&'static str, Problem> {
        match read_light(self.roots, &self.bay.address, self.light) {
            Ok(_) => Ok("sysfs"),
            Err(error) => match ledctl_device(&error, disk) {
                Some(_) => Ok("ledctl"),
                None => Err(problem_of(&error)),
            },
        }
    }

    fn by_ledctl(&self, device: &str, error: &LightError) -> Result<&'static str, Problem> {
        let pattern = match (self.light, self.lit) {
            (Light::Locate, Lit::On) => "locate",
            (Light::Locate, Lit::Off) => "locate_off",
            (Light::Fault, Lit::On) => "failure",
            (Light::Fault, Lit::Off) => "normal",
        };
        let mut command = Command::new("ledctl");
        command
            .arg(format!("{pattern}={device}"))
            .stdin(Stdio::null());
        let output = match command.output() {
            Ok(output) => output,
            Err(problem) if problem.kind() == ErrorKind::NotFound => return Err(problem_of(error)),
            Err(problem) => return Err(Problem::from_io(&problem, "starting", "ledctl")),
        };
        if output.status.success() {
            return Ok("ledctl");
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said
            .lines()
            .next()
            .unwrap_or("it did not say why")
            .to_owned();
        let text = format!(
            "ledctl could not switch the light of {}: {said}",
            self.bay.words
        );
        Err(Problem::new(Code::IoError, text))
    }
}

/// The device by which ledctl would reach the light. It knows devices and no bays: of one that is gone there is none.
fn ledctl_device(error: &LightError, disk: &DiskStatus) -> Option<String> {
    let LightError::NobodySpeaks { ledctl, .. } = error else {
        return None;
    };
    let name = disk.name.as_ref().filter(|_| *ledctl != Ledctl::WouldNot)?;
    Some(format!("/dev/{name}"))
}

fn problem_of(error: &LightError) -> Problem {
    let code = match error {
        LightError::Refused { .. } | LightError::NotTaken { .. } => Code::IoError,
        _ => Code::WrongState,
    };
    Problem::new(code, error.to_string())
}

/// Switches all lights of a kind off.
fn all_off(roots: &Roots, light: Light, common: &Common, screen: &Screen) -> Outcome {
    let inventory =
        Inventory::read(roots).map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let is_on = |bay: &&BayAddress| read_light(roots, bay, light) == Ok(Lit::On);
    let bays = inventory.bays.iter().map(|bay| &bay.address);
    let on: Vec<&BayAddress> = bays.filter(is_on).collect();
    let mut failed = None;
    for bay in &on {
        let result = match common.dry_run {
            true => Ok(Lit::On),
            false => set_light(roots, bay, light, Lit::Off),
        };
        match result {
            Ok(_) if common.dry_run => screen.line(format!("would be switched off: {bay}")),
            Ok(_) => screen.line(format!("off: {bay}")),
            Err(error) => failed = Some(problem_of(&error)),
        }
    }
    screen.object(&object("lights", None, json!({"light": light, "off": on})));
    if on.is_empty() {
        screen.done(format!("no {light} light is on that can be reached"));
    }
    failed.map_or(Ok(0), Err)
}

/// Reads the disks beside one in turn, so that their lamps blink and its own stays dark.
fn by_activity(
    status: &VolumeStatus,
    line: Line,
    limit: Duration,
    common: &Common,
    screen: &Screen,
) -> Outcome {
    let is_other = |other: &&MemberStatus| {
        let is_there = other.disk.as_ref().is_some_and(|disk| !disk.is_gone);
        is_there && other.path.is_some() && other.path.as_deref() != line.member
    };
    let others: Vec<&MemberStatus> = status.members.iter().filter(is_other).collect();
    if others.is_empty() {
        let text = format!("{} has no other disk whose lamp could blink", status.volume);
        return Err(Problem::new(Code::WrongState, text));
    }
    let paths: Vec<&String> = others
        .iter()
        .filter_map(|other| other.path.as_ref())
        .collect();
    let verb = if common.dry_run {
        "would read"
    } else {
        "reads"
    };
    for other in &others {
        let disk = other
            .disk
            .as_ref()
            .map(DiskStatus::words)
            .unwrap_or_default();
        let path = other.path.as_deref().unwrap_or_default();
        screen.line(format!("{verb} {path}: {disk}"));
    }
    let fields = json!({"slot": line.slot, "neighbours": paths, "seconds": limit.as_secs()});
    if common.dry_run {
        screen.object(&object("plan", Some(&status.volume), fields));
        return Ok(0);
    }
    screen.line(format!(
        "for {} s, each in turn; the disk whose lamp stays dark is the one",
        limit.as_secs()
    ));
    let end = Instant::now() + limit;
    let (mut problem, mut failed) = (None, 0);
    let mut turns = paths.iter().cycle();
    // It goes on when one cannot be read: the others blink all the same.
    while Instant::now() < end && failed < paths.len() && !is_lost() {
        let Some(path) = turns.next() else { break };
        match read_for_a_turn(Path::new(path), end) {
            Ok(()) => failed = 0,
            Err(error) => {
                failed += 1;
                problem = Some(Problem::from_io(&error, "reading", path));
            }
        }
    }
    screen.object(&object("activity", Some(&status.volume), fields));
    problem.map_or(Ok(0), Err)
}

/// Reads from a device for a turn, from its start again where it ends.
fn read_for_a_turn(path: &Path, end: Instant) -> std::io::Result<()> {
    let mut file = File::open(path)?;
    let mut bytes = vec![0; READ_BYTES];
    let end = end.min(Instant::now() + TURN);
    while Instant::now() < end {
        if file.read(&mut bytes)? == 0 {
            file.rewind()?;
        }
    }
    Ok(())
}
