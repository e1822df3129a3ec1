//! `plexum gmirror`: FreeBSD's words for mirrors that nobody serves, and their output.
//!
//! Invariants:
//! - a command is one event of the mirror's state machine; what it asks to be written is written, nothing else;
//! - members in use by a server are refused by their locks.
//!
//! Source: freebsd-geom.md section 1.13.

use std::collections::BTreeMap;
use std::path::Path;

use plexum_daemon::create::random_uuid;
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::create::{Edit, carry_out};
use plexum_daemon::foreign::offline::{Found, mirror_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_engine::meta::gmirror::{
    Assembled, Command, Component, Effect, Event, Key, Mirror, NewComponent, Provider, Settings,
};
use plexum_format::gmirror::describe;

use crate::args::Common;
use crate::create::runtime;
use crate::errors::Outcome;
use crate::foreign::label_balance;
use crate::output::Screen;
use crate::scan::find_sets;

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text).hint("plexum gmirror status|list|dump|label|insert|remove|forget|configure|rebuild|activate|deactivate|resize|destroy|clear")
}

/// Words of a command: options with their values, and what is left.
pub struct Words {
    /// Folders, files and devices in which members are looked for.
    pub places: Vec<String>,
    options: Vec<(String, Option<String>)>,
    /// Everything else, in order.
    pub rest: Vec<String>,
}

impl Words {
    /// Sorts words; `with_value`: options that take one.
    ///
    /// # Errors
    /// `Usage` for an option without its value.
    pub fn parse(words: &[String], with_value: &[&str]) -> Result<Self, Problem> {
        let mut parsed = Self {
            places: Vec::new(),
            options: Vec::new(),
            rest: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut value = || {
                let value = words.next().cloned();
                value.ok_or_else(|| usage(format!("{word} needs a value")))
            };
            match word.as_str() {
                "--in" => parsed.places.push(value()?),
                option if with_value.contains(&option) => {
                    let value = value()?;
                    parsed.options.push((option.to_owned(), Some(value)));
                }
                option if option.starts_with('-') && option.len() > 1 => {
                    parsed.options.push((option.to_owned(), None));
                }
                _ => parsed.rest.push(word.clone()),
            }
        }
        Ok(parsed)
    }

    /// Whether an option was given.
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|(known, _)| known == option)
    }

    /// The value of an option.
    #[must_use]
    pub fn value(&self, option: &str) -> Option<&str> {
        let found = self.options.iter().rev().find(|(known, _)| known == option);
        found.and_then(|(_, value)| value.as_deref())
    }

    /// Refuses options that the command does not have.
    ///
    /// # Errors
    /// `Usage` with the option.
    pub fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self
            .options
            .iter()
            .find(|(option, _)| !known.contains(&option.as_str()))
        {
            None => Ok(()),
            Some((option, _)) => Err(usage(format!("{option} is no option of this command"))),
        }
    }
}

/// A mirror with the paths of its members.
struct Known {
    assembled: Assembled,
    /// By the number of the provider.
    paths: Vec<String>,
    providers: Vec<Provider>,
}

impl Known {
    fn mirror(&self) -> Option<&Mirror> {
        self.assembled.mirror.as_ref()
    }
}

/// Runs the command.
///
/// # Errors
/// `Usage`; what the mirror refuses; of reading and writing.
pub fn run(words: &[String], common: &Common, screen: &Screen) -> Outcome {
    let Some((command, words)) = words.split_first() else {
        return Err(usage("a command is missing"));
    };
    let with_value = ["-b", "-s", "-p"];
    let parsed = Words::parse(words, &with_value)?;
    match command.as_str() {
        "status" | "list" => show(command == "status", &parsed, screen),
        "dump" => dump(&parsed, screen),
        "label" => label(&parsed, common, screen),
        "clear" => clear(&parsed, common, screen),
        "stop" => Err(usage("a mirror is stopped with:   plexum stop NAME")),
        "create" => Err(usage(
            "a mirror without metadata would be forgotten at the next start",
        )),
        _ => change(command, &parsed, common, screen),
    }
}

/// All mirrors in the places, by name.
fn mirrors(places: &[String]) -> Result<Vec<Known>, Problem> {
    let mut known = Vec::new();
    for set in find_sets(places)? {
        let found: Vec<&Found> = set
            .examined
            .iter()
            .filter_map(|one| one.foreign.as_ref())
            .collect();
        if !matches!(found.first(), Some(Found::Mirror(_))) {
            continue;
        }
        let mut assembled = mirror_of(&found);
        assembled.start_degraded();
        let providers = found
            .iter()
            .enumerate()
            .filter_map(|(index, found)| match found {
                Found::Mirror(provider) => Some(Provider {
                    key: Key(index),
                    ..(**provider).clone()
                }),
                _ => None,
            });
        known.push(Known {
            assembled,
            providers: providers.collect(),
            paths: set.members,
        });
    }
    Ok(known)
}

fn show(is_short: bool, words: &Words, screen: &Screen) -> Outcome {
    words.only(&[])?;
    if is_short {
        screen.line(format!("{:>15}  {:>8}  Components", "Name", "Status"));
    }
    for known in mirrors(&words.places)? {
        let Some(mirror) = known.mirror() else {
            continue;
        };
        if !words.rest.is_empty() && !words.rest.contains(&mirror.name) {
            continue;
        }
        let lines = if is_short {
            status(mirror)
        } else {
            list(mirror)
        };
        for line in lines {
            screen.line(line);
        }
    }
    Ok(0)
}

fn state_of(component: &Component, mirror: &Mirror) -> String {
    let label = &component.label;
    match component.state.name() {
        "SYNCHRONIZING" => {
            let percent = label.sync_offset_bytes * 100 / mirror.volume_bytes.max(1);
            format!("SYNCHRONIZING, {percent}%")
        }
        name => name.to_owned(),
    }
}

fn status(mirror: &Mirror) -> Vec<String> {
    let mut lines = Vec::new();
    for (index, component) in mirror.components.iter().enumerate() {
        let (name, state) = if index == 0 {
            (format!("mirror/{}", mirror.name), mirror.state().name())
        } else {
            (String::new(), "")
        };
        let (provider, shown) = (&component.provider, state_of(component, mirror));
        lines.push(format!("{name:>15}  {state:>8}  {provider} ({shown})"));
    }
    lines
}

fn flags(pairs: &[(bool, &str)]) -> String {
    let set: Vec<&str> = pairs
        .iter()
        .filter(|(is_set, _)| *is_set)
        .map(|(_, name)| *name)
        .collect();
    if set.is_empty() {
        "NONE".to_owned()
    } else {
        set.join(", ")
    }
}

fn list(mirror: &Mirror) -> Vec<String> {
    let mut lines = vec![
        format!("Geom name: {}", mirror.name),
        format!("State: {}", mirror.state().name()),
        format!("Components: {}", mirror.component_count),
        format!("Balance: {}", mirror.balance.name()),
        format!("Slice: {}", mirror.slice_bytes),
        format!(
            "Flags: {}",
            flags(&[
                (mirror.has_no_autosync, "NOAUTOSYNC"),
                (mirror.has_no_failsync, "NOFAILSYNC"),
            ])
        ),
        format!("GenID: {}", mirror.generation_id),
        format!("SyncID: {}", mirror.sync_id),
        format!("ID: {}", mirror.mirror_id),
        "Type: AUTOMATIC".to_owned(),
        "Providers:".to_owned(),
        format!("1. Name: mirror/{}", mirror.name),
        format!("   Mediasize: {}", mirror.volume_bytes),
        format!("   Sectorsize: {}", mirror.sector_bytes),
        "   Mode: r0w0e0".to_owned(),
        "Consumers:".to_owned(),
    ];
    for (index, component) in mirror.components.iter().enumerate() {
        let label = &component.label;
        let number = index + 1;
        lines.push(format!("{number}. Name: {}", component.provider));
        let mut fields = vec![
            format!("Mediasize: {}", component.size_bytes),
            format!("Sectorsize: {}", component.sector_bytes),
            "Mode: r0w0e0".to_owned(),
            format!("State: {}", component.state.name()),
            format!("Priority: {}", label.priority),
            format!(
                "Flags: {}",
                flags(&[
                    (label.is_dirty, "DIRTY"),
                    (!label.provider.is_empty(), "HARDCODED"),
                    (label.is_inactive, "INACTIVE"),
                    (label.is_rebuilding, "SYNCHRONIZING"),
                    (label.is_rebuild_forced, "FORCE_SYNC"),
                ])
            ),
            format!("GenID: {}", label.generation_id),
            format!("SyncID: {}", label.sync_id),
            format!("ID: {}", label.component_id),
        ];
        if component.state.name() == "SYNCHRONIZING" {
            let percent = label.sync_offset_bytes * 100 / mirror.volume_bytes.max(1);
            fields.push(format!("Synchronized: {percent}%"));
            fields.push(format!("BytesSynced: {}", label.sync_offset_bytes));
        }
        lines.extend(fields.into_iter().map(|field| format!("   {field}")));
    }
    lines.push(String::new());
    lines
}

fn provider_at(path: &str) -> Result<Provider, Problem> {
    match examine_path(Path::new(path), path)?.foreign {
        Some(Found::Mirror(provider)) => Ok(*provider),
        _ => {
            Err(Problem::new(Code::NoMetadata, format!("{path}: no gmirror metadata")).member(path))
        }
    }
}

fn dump(words: &Words, screen: &Screen) -> Outcome {
    words.only(&[])?;
    for path in &words.rest {
        let provider = provider_at(path)?;
        screen.line(format!("Metadata on {path}:"));
        for field in describe(&provider.label) {
            screen.line(format!("{:>22}: {}", field.name, field.value));
        }
    }
    Ok(0)
}

fn write(
    edits: BTreeMap<String, Vec<(u64, Vec<u8>)>>,
    common: &Common,
    screen: &Screen,
) -> Outcome {
    if common.dry_run {
        for member in edits.keys() {
            screen.line(format!("would write the label of {member}"));
        }
        return Ok(0);
    }
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let edits = edits
        .into_iter()
        .map(|(member, writes)| Edit { member, writes });
    runtime.block_on(carry_out(&handle, edits.collect()))?;
    Ok(0)
}

fn clear(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    words.only(&[])?;
    let mut edits = BTreeMap::new();
    for path in &words.rest {
        let provider = provider_at(path)?;
        let sector = u64::from(provider.sector_bytes);
        let zeroes = vec![0; provider.sector_bytes as usize];
        edits.insert(path.clone(), vec![(provider.size_bytes - sector, zeroes)]);
    }
    write(edits, common, screen)
}

/// `label` is `create` with FreeBSD's options.
fn label(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    words.only(&["-b", "-v"])?;
    let Some((name, members)) = words
        .rest
        .split_first()
        .filter(|(_, members)| !members.is_empty())
    else {
        return Err(usage("label NAME MEMBER..."));
    };
    let mut typed = vec![
        "plexum", "create", name, "--level", "1", "--format", "gmirror", "--force",
    ];
    typed.extend(["--balance", words.value("-b").unwrap_or("load")]);
    typed.extend(members.iter().map(String::as_str));
    let cli = <crate::args::Cli as clap::Parser>::try_parse_from(typed)
        .map_err(|error| usage(error.to_string()))?;
    match &cli.command {
        crate::args::Command::Create(args) => crate::create::run(args, common, screen),
        _ => Err(Problem::new(Code::Bug, "create is create")),
    }
}

fn find(words: &Words, name: &str) -> Result<Known, Problem> {
    let bare = name.strip_prefix("mirror/").unwrap_or(name);
    let mut known = mirrors(&words.places)?.into_iter();
    let found = known.find(|known| known.mirror().is_some_and(|mirror| mirror.name == bare));
    found.ok_or_else(|| {
        Problem::new(Code::NoMetadata, format!("no mirror {bare} was found"))
            .hint("say where its members are:   --in DIR")
    })
}

fn change(command: &str, words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let Some((name, rest)) = words.rest.split_first() else {
        return Err(usage(format!("{command} needs the name of a mirror")));
    };
    let mut known = find(words, name)?;
    let mut effects = known.assembled.effects.clone();
    for command in commands(command, words, rest, &mut known)? {
        let Some(mirror) = known.assembled.mirror.as_mut() else {
            break;
        };
        let result = mirror.apply(Event::Command(command));
        effects.extend(
            result
                .map_err(|refusal| Problem::new(Code::WrongState, format!("{name}: {refusal}")))?,
        );
    }
    let mut edits: BTreeMap<String, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
    for effect in effects {
        let (key, label) = match effect {
            Effect::WriteLabel { key, label } => (key, Some(label)),
            Effect::ClearLabel(key) => (key, None),
            _ => continue,
        };
        let provider = &known.providers[key.0];
        let mut bytes = label.map_or_else(Vec::new, |label| label.encode().to_vec());
        bytes.resize(provider.sector_bytes as usize, 0);
        let at = provider.size_bytes - u64::from(provider.sector_bytes);
        // The last label of a member counts.
        edits.insert(known.paths[key.0].clone(), vec![(at, bytes)]);
    }
    write(edits, common, screen)
}

/// The commands for the state machine; members that are new get a number of their own.
fn commands(
    command: &str,
    words: &Words,
    rest: &[String],
    known: &mut Known,
) -> Result<Vec<Command>, Problem> {
    let number = |text: &str| {
        text.parse::<u8>()
            .map_err(|_| usage(format!("{text}: a priority is 0 to 255")))
    };
    let each = |known: &Known, make: &dyn Fn(Key) -> Command| {
        let keys = rest.iter().map(|member| key_of(known, member));
        keys.map(|key| key.map(make))
            .collect::<Result<Vec<Command>, Problem>>()
    };
    match command {
        "forget" => Ok(vec![Command::Forget]),
        "destroy" => Ok(vec![Command::Destroy]),
        "remove" => each(known, &Command::Remove),
        "deactivate" => each(known, &Command::Deactivate),
        "rebuild" => each(known, &Command::Rebuild),
        "activate" => {
            let keys: Result<Vec<Key>, Problem> =
                rest.iter().map(|member| key_of(known, member)).collect();
            let providers = keys?.into_iter().map(|key| known.providers[key.0].clone());
            Ok(providers
                .map(|provider| Command::Activate(Box::new(provider)))
                .collect())
        }
        "insert" => {
            words.only(&["-h", "-i", "-p"])?;
            let priority = words.value("-p").map_or(Ok(0), number)?;
            let inserted = rest
                .iter()
                .map(|member| insert(member, priority, words, known));
            inserted.collect()
        }
        "configure" => match words.value("-p") {
            Some(priority) => {
                words.only(&["-p"])?;
                let priority = number(priority)?;
                each(known, &|key| Command::Priority(key, priority))
            }
            None => configure(words).map(|settings| vec![Command::Configure(settings)]),
        },
        "resize" => {
            words.only(&["-s"])?;
            let mirror = known.mirror();
            let sector = mirror.map_or(512, |mirror| u64::from(mirror.sector_bytes));
            let rooms = mirror.into_iter().flat_map(|mirror| &mirror.components);
            let room = rooms
                .map(|component| component.size_bytes - u64::from(component.sector_bytes))
                .min();
            let asked = words.value("-s").map(|text| {
                let sectors = text.parse::<u64>().ok();
                let bytes = sectors.and_then(|sectors| sectors.checked_mul(sector));
                bytes.ok_or_else(|| usage(format!("{text}: a number of sectors is expected")))
            });
            let bytes = asked.unwrap_or(Ok(room.unwrap_or(0)))?;
            Ok(vec![Command::Resize(bytes)])
        }
        _ => Err(usage(format!("{command} is no command of gmirror"))),
    }
}

fn configure(words: &Words) -> Result<Settings, Problem> {
    words.only(&["-a", "-n", "-d", "-h", "-f", "-F", "-b", "-s"])?;
    let switch = |on: &str, off: &str| match (words.has(on), words.has(off)) {
        (true, true) => Err(usage(format!("{on} and {off} exclude each other"))),
        (true, false) => Ok(Some(true)),
        (false, true) => Ok(Some(false)),
        (false, false) => Ok(None),
    };
    let slice = words.value("-s").map(|text| {
        text.parse()
            .map_err(|_| usage(format!("{text}: a number of bytes is expected")))
    });
    Ok(Settings {
        balance: words.value("-b").map(label_balance).transpose()?,
        slice_bytes: slice.transpose()?,
        has_autosync: switch("-a", "-n")?,
        has_failsync: switch("-f", "-F")?,
        is_bound: switch("-h", "-d")?,
    })
}

fn insert(
    member: &str,
    priority: u8,
    words: &Words,
    known: &mut Known,
) -> Result<Command, Problem> {
    let examined = examine_path(Path::new(member), member)?;
    if examined.foreign.is_some() || examined.superblock.is_some() {
        return Err(Problem::new(
            Code::WouldDestroy,
            format!("{member} is a member of something already"),
        )
        .member(member)
        .hint(format!("plexum gmirror clear {member}")));
    }
    let mirror = known
        .mirror()
        .ok_or_else(|| usage("the mirror cannot start"))?;
    let template = mirror.components[0].label.clone();
    let uuid = random_uuid()?;
    let key = Key(known.providers.len());
    let new = NewComponent {
        key,
        provider: member.rsplit('/').next().unwrap_or(member).to_owned(),
        size_bytes: examined.size_bytes / 512 * 512,
        sector_bytes: 512,
        component_id: u32::from_le_bytes([uuid[0], uuid[1], uuid[2], uuid[3]]),
        priority,
        is_inactive: words.has("-i"),
        is_bound: words.has("-h"),
    };
    known.paths.push(member.to_owned());
    known.providers.push(Provider {
        key,
        name: new.provider.clone(),
        size_bytes: new.size_bytes,
        sector_bytes: 512,
        label: template,
    });
    Ok(Command::Insert(new))
}

fn key_of(known: &Known, member: &str) -> Result<Key, Problem> {
    let bare = member.strip_prefix("/dev/").unwrap_or(member);
    let same = |path: &String| {
        let ends = path.rsplit('/').next() == Some(bare);
        let real = |path: &str| std::fs::canonicalize(path).ok();
        path == member || ends || real(path).is_some_and(|path| Some(path) == real(member))
    };
    let found = known.paths.iter().position(same);
    found.map(Key).ok_or_else(|| {
        Problem::new(
            Code::NoSuchMember,
            format!("{member} is no component of the mirror"),
        )
        .member(member)
    })
}
