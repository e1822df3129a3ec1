//! `plexum gmirror`: FreeBSD's words for mirrors, and their output.
//!
//! Invariants:
//! - a command is one event of the mirror's state machine; what it asks to be written is written, nothing else;
//! - members in use by a server are left to it (`live.rs`): their locks refuse everybody else;
//! - as the originals, commands that went well say nothing; with `-v` they do.
//!
//! Source: freebsd-geom.md section 1.13.

mod live;
mod show;

use std::collections::BTreeMap;
use std::path::Path;

use plexum_daemon::changes::Reverse;
use plexum_daemon::create::random_uuid;
use plexum_daemon::examine::{examine_each, examine_path};
use plexum_daemon::foreign::Kind;
use plexum_daemon::foreign::create::{Edit, LabelRequest, MirrorOptions, carry_out};
use plexum_daemon::foreign::offline::{Found, mirror_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_format::gmirror::MirrorLabel;
use plexum_freebsd::gmirror::{
    Assembled, Command, Effect, Event, Key, Mirror, NewComponent, Provider, Refusal, Settings,
};

use crate::args::Common;
use crate::errors::Outcome;
use crate::foreign::{CreateRequest, NewMember, check_owners, label_balance};
use crate::history::{noted, tell};
use crate::offline::runtime;
use crate::output::Screen;
use crate::sets::find_sets;
use crate::words::{self, Vocabulary, Words};

/// What gmirror understands. Source: freebsd-geom.md section 1.13.
const VOCABULARY: Vocabulary = Vocabulary {
    program: "plexum gmirror",
    commands: &[
        word(&["activate"], "[-v] name prov ..."),
        word(&["clear"], "[-v] prov ..."),
        word(
            &["configure"],
            "[-adfFhnv] [-b balance] [-s slice] [-p priority] name [prov]",
        ),
        word(&["create"], "[-Fnv] [-b balance] [-s slice] name prov ..."),
        word(&["deactivate"], "[-v] name prov ..."),
        word(&["destroy"], "[-fv] name ..."),
        word(&["dump"], "prov ..."),
        word(&["forget"], "[-v] name ..."),
        word(&["help"], ""),
        word(&["insert"], "[-fhiv] [-p priority] name prov ..."),
        word(&["label"], "[-Fhnv] [-b balance] [-s slice] name prov ..."),
        word(&["list"], "[-a] [name ...]"),
        word(&["load"], "[-v]"),
        word(&["rebuild"], "[-v] name prov ..."),
        word(&["remove"], "[-v] name prov ..."),
        word(&["resize"], "[-v] [-s size] name"),
        word(&["status"], "[-ags] [name ...]"),
        word(&["stop"], "[-fv] name ..."),
        word(&["unload"], "[-v]"),
    ],
};

const fn word(names: &'static [&'static str], usage: &'static str) -> words::Command {
    words::Command { names, usage }
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
    let (command, words) = VOCABULARY.parse(words)?;
    match command {
        "help" => VOCABULARY.help(screen),
        "load" | "unload" => finish(&words, common, screen), // there is no module
        "status" => show::run(show::Form::Status, &words, screen),
        "list" => show::run(show::Form::List, &words, screen),
        "dump" => show::dump(&words, screen),
        "label" => label(&words, common, screen),
        "clear" => clear(&words, common, screen),
        "stop" => live::stop(&words, common, screen),
        "create" => Err(VOCABULARY.wrong(
            "label",
            "a mirror without labels would be forgotten at the next start",
        )),
        "forget" | "destroy" => {
            for name in &words.rest {
                change(command, &words, name, common, screen)?;
            }
            finish(&words, common, screen)
        }
        _ => {
            change(command, &words, &words.rest[0], common, screen)?;
            finish(&words, common, screen)
        }
    }
}

/// What the originals say at the end of a command when they are asked to say more.
fn finish(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    if (words.has('v') || screen.verbosity > 0) && !common.dry_run {
        screen.line("Done.");
    }
    Ok(0)
}

/// All mirrors in the places, by name; without places on all disks, and those that are served.
fn mirrors(places: &[String]) -> Result<Vec<Known>, Problem> {
    let mut known = Vec::new();
    let mut sets = find_sets(places)?;
    let served = live::served_files();
    if places.is_empty() && !served.is_empty() {
        sets.extend(find_sets(&served)?);
    }
    for set in sets {
        let found = set.foreign();
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

/// The label on a member, also where another set claims its bytes too.
fn provider_at(path: &str) -> Result<Provider, Problem> {
    let each = examine_each(Path::new(path), path).map_err(without_slots)?;
    let own = || each.iter().filter(|one| one.member == path);
    let label = own().find_map(|one| match &one.foreign {
        Some(Found::Mirror(provider)) => Some((**provider).clone()),
        _ => None,
    });
    label.ok_or_else(|| {
        let text = format!("{path}: no gmirror metadata in its last sector");
        let problem = Problem::new(Code::NoMetadata, text).member(path);
        let what = own()
            .next()
            .and_then(|one| match (&one.superblock, &one.foreign) {
                (Some(_), _) => Some(format!(
                    "array {} ({})",
                    one.volume_name(),
                    one.format_word()
                )),
                (None, Some(foreign)) => Some(format!("a set of {}", foreign.kind().name())),
                _ => None,
            });
        let problem = match what {
            Some(what) => problem.why(format!("it is a member of {what}")),
            None => problem,
        };
        problem.hint(format!("to see what is on it:   plexum examine {path}"))
    })
}

/// A mirror has no slots that could be left empty.
fn without_slots(mut problem: Problem) -> Problem {
    problem.hints.retain(|hint| !hint.contains("`missing`"));
    problem
}

/// Writes by member.
type Edits = BTreeMap<String, Vec<(u64, Vec<u8>)>>;

/// The write of a label, or of zeroes in its place.
fn label_edit(provider: &Provider, label: Option<&MirrorLabel>) -> (u64, Vec<u8>) {
    let mut bytes = label.map_or_else(Vec::new, |label| label.encode().to_vec());
    bytes.resize(provider.sector_bytes as usize, 0);
    let at = provider.size_bytes - u64::from(provider.sector_bytes);
    (at, bytes)
}

fn write(edits: Edits, common: &Common, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let members: Vec<String> = edits.keys().cloned().collect();
    check_owners(&members, common)?;
    let edits = edits
        .into_iter()
        .map(|(member, writes)| Edit { member, writes });
    let noted = noted(common, Reverse::Refused);
    let written = runtime.block_on(carry_out(&handle, edits.collect(), noted.as_ref()))?;
    tell(&written, screen);
    for member in members.iter().filter(|_| common.dry_run) {
        screen.line(format!("would write the label of {member}"));
    }
    Ok(0)
}

fn clear(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let mut edits = BTreeMap::new();
    for path in &words.rest {
        let provider = provider_at(path)?;
        edits.insert(path.clone(), vec![label_edit(&provider, None)]);
    }
    write(edits, common, screen)?;
    if words.has('v') && !common.dry_run {
        for path in &words.rest {
            screen.line(format!("Metadata cleared on {path}."));
        }
    }
    finish(words, common, screen)
}

fn number_of(text: &str, what: &str) -> Result<u32, Problem> {
    text.parse()
        .map_err(|_| Problem::new(Code::Usage, format!("{text}: {what} is expected")))
}

/// `label` is `create` with FreeBSD's options. What else is on a member is destroyed only as `create --force` would.
fn label(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    let (name, members) = (&words.rest[0], &words.rest[1..]);
    let mut mirror = MirrorOptions {
        has_no_autosync: words.has('n'),
        has_no_failsync: words.has('F'),
        is_bound: words.has('h'),
        ..MirrorOptions::default()
    };
    if let Some(slice) = words.value('s') {
        mirror.slice_bytes = number_of(slice, "a number of bytes")?;
    }
    let request = CreateRequest::Labels(LabelRequest {
        kind: Kind::Gmirror,
        name: name.clone(),
        members: members.to_vec(),
        member_size_bytes: None,
        strip_bytes: None,
        balance: label_balance(words.value('b').unwrap_or("load"))?,
        is_assume_clean: false,
        mirror,
    });
    let typed = ["plexum", "create", name, "--force", "--level", "1"];
    let cli = <crate::args::Cli as clap::Parser>::try_parse_from(typed)
        .map_err(|error| VOCABULARY.wrong("label", error.to_string()))?;
    let crate::args::Command::Create(args) = &cli.command else {
        return Err(Problem::new(Code::Bug, "create is create"));
    };
    let made = crate::foreign::create(&request, args, common, screen);
    made.map_err(without_slots)?;
    if words.has('v') && !common.dry_run {
        for member in members {
            screen.line(format!("Metadata value stored on {member}."));
        }
    }
    finish(words, common, screen)
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

fn change(
    command: &'static str,
    words: &Words,
    name: &str,
    common: &Common,
    screen: &Screen,
) -> Outcome {
    let mut known = find(words, name)?;
    let served = live::served();
    if let Some(status) = live::status_of(&known, &served) {
        let mut served = served.iter();
        if let Some(server) = served.find(|(_, other)| other.volume == status.volume) {
            return live::change(command, words, server, common, screen);
        }
    }
    let rest = words.rest.get(1..).unwrap_or_default();
    let mut effects = known.assembled.effects.clone();
    let new = NewMember::of(words, common, screen);
    for asked in commands(command, words, rest, &mut known, &new)? {
        let Some(mirror) = known.assembled.mirror.as_mut() else {
            break;
        };
        match mirror.apply(Event::Command(asked)) {
            Ok(more) => effects.extend(more),
            // Nobody is missing: as it should be, and the original says nothing either.
            Err(Refusal::NothingChanged) if command == "forget" => return Ok(0),
            Err(refusal) => {
                return Err(Problem::new(Code::WrongState, format!("{name}: {refusal}")));
            }
        }
    }
    let mut edits = Edits::new();
    for effect in effects {
        let (key, label) = match effect {
            Effect::WriteLabel { key, label } => (key, Some(label)),
            Effect::ClearLabel(key) => (key, None),
            _ => continue,
        };
        let edit = label_edit(&known.providers[key.0], label.as_deref());
        // The last label of a member counts.
        edits.insert(known.paths[key.0].clone(), vec![edit]);
    }
    write(edits, common, screen)
}

/// The commands for the state machine; members that are new get a number of their own.
fn commands(
    command: &'static str,
    words: &Words,
    rest: &[String],
    known: &mut Known,
    asked: &NewMember<'_>,
) -> Result<Vec<Command>, Problem> {
    let number = |text: &str| {
        text.parse::<u8>()
            .map_err(|_| VOCABULARY.wrong(command, format!("{text}: a priority is 0 to 255")))
    };
    if let Some(double) = (1..rest.len()).find(|at| rest[..*at].contains(&rest[*at])) {
        let text = format!("{} is given twice", rest[double]);
        return Err(Problem::new(Code::DuplicateMember, text).member(rest[double].clone()));
    }
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
            let priority = words.value('p').map_or(Ok(0), number)?;
            let inserted = rest
                .iter()
                .map(|member| insert(member, priority, words, known, asked));
            inserted.collect()
        }
        "configure" => match words.value('p') {
            Some(_) if words.has_other_than("pv") || rest.is_empty() => Err(VOCABULARY.wrong(
                command,
                "-p is for one component, with no other option:   configure -p priority name prov",
            )),
            Some(priority) => {
                let priority = number(priority)?;
                each(known, &|key| Command::Priority(key, priority))
            }
            None if !rest.is_empty() => {
                Err(VOCABULARY.wrong(command, "a component is named with -p only"))
            }
            None => configure(words).map(|settings| vec![Command::Configure(settings)]),
        },
        _ => resize(words, known).map(|command| vec![command]),
    }
}

fn resize(words: &Words, known: &Known) -> Result<Command, Problem> {
    let mirror = known.mirror();
    let sector = mirror.map_or(512, |mirror| u64::from(mirror.sector_bytes));
    let rooms = mirror.into_iter().flat_map(|mirror| &mirror.components);
    let room = rooms
        .map(|component| component.size_bytes - u64::from(component.sector_bytes))
        .min();
    let asked = words.value('s').map(|text| {
        let sectors = text.parse::<u64>().ok();
        let bytes = sectors.and_then(|sectors| sectors.checked_mul(sector));
        bytes.ok_or_else(|| {
            VOCABULARY.wrong("resize", format!("{text}: a number of sectors is expected"))
        })
    });
    let bytes = asked.unwrap_or(Ok(room.unwrap_or(0)))?;
    if let Some(room) = room.filter(|room| *room < bytes) {
        let text = format!(
            "the smallest component has room for {} sectors",
            room / sector
        );
        return Err(Problem::new(Code::MemberTooSmall, text));
    }
    Ok(Command::Resize(bytes))
}

fn configure(words: &Words) -> Result<Settings, Problem> {
    let switch = |on: char, off: char| match (words.has(on), words.has(off)) {
        (true, true) => {
            Err(VOCABULARY.wrong("configure", format!("-{on} and -{off} exclude each other")))
        }
        (true, false) => Ok(Some(true)),
        (false, true) => Ok(Some(false)),
        (false, false) => Ok(None),
    };
    let slice = words
        .value('s')
        .map(|text| number_of(text, "a number of bytes"));
    Ok(Settings {
        balance: words.value('b').map(label_balance).transpose()?,
        slice_bytes: slice.transpose()?,
        has_autosync: switch('a', 'n')?,
        has_failsync: switch('f', 'F')?,
        is_bound: switch('h', 'd')?,
    })
}

fn insert(
    member: &str,
    priority: u8,
    words: &Words,
    known: &mut Known,
    asked: &NewMember<'_>,
) -> Result<Command, Problem> {
    if known.paths.iter().any(|path| live::is_same(path, member)) {
        let text = format!("{member} is a component already");
        return Err(Problem::new(Code::DuplicateMember, text).member(member));
    }
    let examined = examine_path(Path::new(member), member).map_err(without_slots)?;
    if !examined.detection.is_blank() {
        let problem = Problem::new(
            Code::WouldDestroy,
            format!("{member} is a member of something already"),
        );
        let problem = problem
            .member(member)
            .hint(format!("to look at it:   plexum examine {member}"));
        return Err(match examined.foreign {
            Some(Found::Mirror(_)) => {
                problem.hint(format!("to use it anew:   plexum gmirror clear {member}"))
            }
            _ => problem,
        });
    }
    asked.check("gmirror", member).map_err(without_slots)?;
    let mirror = known
        .mirror()
        .ok_or_else(|| Problem::new(Code::WrongState, "the mirror cannot start"))?;
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
        is_inactive: words.has('i'),
        is_bound: words.has('h'),
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
