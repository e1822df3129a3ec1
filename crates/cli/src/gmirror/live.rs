//! FreeBSD's words for a mirror that is served: what its server can do is asked of it, the rest is refused with the
//! way.
//!
//! Invariants:
//! - labels of members that a server holds are never written from here.

use std::collections::BTreeMap;
use std::path::Path;

use plexum_daemon::control::Action;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{MemberState, VolumeStatus};

use super::{Known, VOCABULARY, finish, label_edit, provider_at, write};
use crate::args::{Common, Stop};
use crate::client::{Client, running_volumes};
use crate::errors::Outcome;
use crate::member_ops::{describe, member_word};
use crate::output::Screen;
use crate::words::Words;

/// The mirrors that are served.
pub fn served() -> Vec<(Client, VolumeStatus)> {
    let mut running = running_volumes();
    running.retain(|(_, status)| status.format == "gmirror");
    running
}

/// Their members that are files, so that a mirror is found by its name alone; devices are looked at anyway.
pub fn served_files() -> Vec<String> {
    let served = served();
    let members = served.iter().flat_map(|(_, status)| &status.members);
    let paths = members.filter_map(|member| member.path.clone());
    let is_file = |path: &String| !path.starts_with("/dev/") && Path::new(path).is_file();
    paths.filter(is_file).collect()
}

/// Whether two paths are one file.
pub fn is_same(one: &str, other: &str) -> bool {
    let real = |path: &str| std::fs::canonicalize(path).ok();
    one == other || real(one).is_some_and(|path| Some(path) == real(other))
}

/// The server's status of a mirror that was found, when it serves one of its members.
pub fn status_of<'a>(
    known: &Known,
    served: &'a [(Client, VolumeStatus)],
) -> Option<&'a VolumeStatus> {
    let holds = |status: &VolumeStatus| {
        let mut members = status
            .members
            .iter()
            .filter_map(|member| member.path.as_ref());
        members.any(|at| known.paths.iter().any(|path| is_same(at, path)))
    };
    let mut statuses = served.iter().map(|(_, status)| status);
    statuses.find(|status| holds(status))
}

/// Stops mirrors.
///
/// # Errors
/// `NoSuchVolume` for one that is not served.
pub fn stop(words: &Words, common: &Common, screen: &Screen) -> Outcome {
    for name in &words.rest {
        let bare = name.strip_prefix("mirror/").unwrap_or(name);
        Client::find(Some(bare))?;
        let args = Stop {
            volume: Some(bare.to_owned()),
            force: words.has('f'),
        };
        crate::stop::run(&args, common, &quiet(screen))?;
    }
    finish(words, common, screen)
}

/// Without what says no more than that all went well.
fn quiet(screen: &Screen) -> Screen {
    Screen {
        is_quiet: true,
        ..screen.clone()
    }
}

/// A command for a mirror that is served.
///
/// # Errors
/// `WrongState` for what can only be done to labels that nobody serves; of the server.
pub fn change(
    command: &'static str,
    words: &Words,
    (client, status): &(Client, VolumeStatus),
    common: &Common,
    screen: &Screen,
) -> Outcome {
    let members = &words.rest[1..];
    let only_balance = words.has('b') && !words.has_other_than("bv");
    let has_room = status
        .members
        .iter()
        .any(|member| member.state == MemberState::Missing);
    let mut actions = Vec::new();
    match command {
        "configure" if only_balance => {
            let balance = words.value('b').unwrap_or_default().to_owned();
            let settings = BTreeMap::from([("balance".to_owned(), balance)]);
            actions.push(Action::Set { settings });
        }
        "insert" if has_room && !words.has_other_than("v") => {
            let added = members.iter().map(|member| Action::Add {
                member: member_word(member),
                force: false,
            });
            actions.extend(added);
        }
        "deactivate" => {
            for member in members {
                let member = held(status, member)?;
                actions.push(Action::Fail {
                    member: member.clone(),
                });
                actions.push(Action::Remove { member });
            }
        }
        "activate" => return activate(words, status, common, screen),
        _ => return Err(needs_a_stop(command, status, members)),
    }
    if common.dry_run {
        for (at, action) in actions.iter().enumerate() {
            // A member that is to be failed first cannot be removed yet.
            let follows = at > 0 && matches!(action, Action::Remove { .. });
            if !follows {
                client.rehearse(action)?;
            }
            screen.line(format!(
                "would ask {} to {}",
                client.volume,
                describe(action)
            ));
        }
        return Ok(0);
    }
    for action in &actions {
        client.act(action)?;
    }
    if command == "configure" {
        screen.note("this holds until it is stopped; labels are changed while nobody serves them");
    }
    if command == "deactivate" {
        let paths: Vec<String> = members
            .iter()
            .map(|member| held(status, member))
            .collect::<Result<_, _>>()?;
        mark(&paths, true, common, screen)?;
    }
    Ok(0)
}

fn needs_a_stop(command: &str, status: &VolumeStatus, members: &[String]) -> Problem {
    let name = &status.volume;
    let text = format!("{name} is served: {command} changes labels that its server holds");
    let problem =
        Problem::new(Code::Busy, text).hint(format!("to stop it:   plexum gmirror stop {name}"));
    let is_missing = status
        .members
        .iter()
        .any(|member| member.state == MemberState::Missing);
    let new = members.first().map_or("MEMBER", String::as_str);
    match command {
        "forget" | "insert" if is_missing => problem.hint(format!(
            "a new member takes the place of the missing one at once:   plexum add {name} {new}"
        )),
        "rebuild" => problem.hint(format!(
            "to compare and mend all copies:   plexum scrub {name} --repair"
        )),
        _ => problem,
    }
}

/// The member as its server calls it.
fn held(status: &VolumeStatus, word: &str) -> Result<String, Problem> {
    let bare = word.strip_prefix("/dev/").unwrap_or(word);
    let mut paths = status
        .members
        .iter()
        .filter_map(|member| member.path.clone());
    let fits = |path: &String| is_same(path, word) || path.rsplit('/').next() == Some(bare);
    paths.find(fits).ok_or_else(|| {
        let text = format!("{word} is no component of {}", status.volume);
        Problem::new(Code::NoSuchMember, text).member(word)
    })
}

/// Takes the mark off members that the server does not hold: the next start attaches them.
fn activate(words: &Words, status: &VolumeStatus, common: &Common, screen: &Screen) -> Outcome {
    let (name, members) = (&status.volume, &words.rest[1..]);
    for member in members {
        let label = provider_at(member)?.label;
        if label.name != *name || !label.is_inactive {
            let text = format!("{member} is no component of {name} that was deactivated");
            return Err(VOCABULARY.wrong("activate", text));
        }
    }
    mark(members, false, common, screen)?;
    screen.note(format!("{name} takes it at its next start"));
    Ok(0)
}

/// Writes INACTIVE on labels, or takes it off.
fn mark(paths: &[String], is_inactive: bool, common: &Common, screen: &Screen) -> Outcome {
    let mut edits = BTreeMap::new();
    for path in paths {
        let mut provider = provider_at(path)?;
        provider.label.is_inactive = is_inactive;
        provider.label.is_rebuild_forced &= !is_inactive;
        edits.insert(
            path.clone(),
            vec![label_edit(&provider, Some(&provider.label))],
        );
    }
    write(edits, common, screen)
}
