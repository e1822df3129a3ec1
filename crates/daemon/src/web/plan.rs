//! What a change that somebody wishes would do, before it is done: told, and made sure by what has to be typed.
//!
//! Invariants:
//! - where redundancy or data go, the serial of the disk that it is about has to be typed, or the name of the file
//!   where there is none; it is compared here, not in the browser, with what is at that path when it is done;
//! - nothing is forced from here: a new member that has something on it is refused.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::words::bytes;
use crate::advice::shell_word;
use crate::control::request::Action;
use crate::problem::{Code, Problem};
use crate::volume::status::{JSON_VERSION, MemberState, MemberStatus, VolumeStatus};

/// A change that somebody wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Wish {
    /// The change, by the word of its route.
    pub(super) action: String,
    pub(super) volume: String,
    /// Path of the member that it is about.
    pub(super) member: Option<String>,
    /// Path of a new member.
    pub(super) new: Option<String>,
    /// Stop the check that runs.
    pub(super) stop: bool,
    /// Mend what differs.
    pub(super) repair: bool,
    /// Number of an incident.
    pub(super) id: Option<String>,
    /// Why that is enough.
    pub(super) why: Option<String>,
    /// What was typed to make sure.
    pub(super) typed: Option<String>,
}

/// A disk that would become a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NewDisk {
    pub(super) path: String,
    /// As on the sticker; none of a file.
    pub(super) serial: Option<String>,
    pub(super) words: String,
}

/// What a change would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) title: String,
    pub(super) lines: Vec<String>,
    /// The same as a command.
    pub(super) command: String,
    /// What has to be typed, and what that is; none where nothing goes.
    pub(super) confirm: Option<(String, String)>,
}

impl Plan {
    pub(super) fn to_json(&self) -> Value {
        let confirm = self.confirm.as_ref();
        let confirm = confirm.map(|(word, what)| json!({"word": word, "what": what}));
        json!({"version": JSON_VERSION, "kind": "plan", "title": self.title, "lines": self.lines,
            "command": self.command, "confirm": confirm})
    }

    /// Whether what was typed is what is asked for.
    ///
    /// # Errors
    /// `NotConfirmed`, without telling the word.
    pub(super) fn check(&self, typed: Option<&str>) -> Result<(), Problem> {
        let Some((word, what)) = &self.confirm else {
            return Ok(());
        };
        match typed.map(str::trim) {
            Some(typed) if typed == word => Ok(()),
            _ => {
                let text = format!("nothing was done: {what} was not typed");
                Err(Problem::new(Code::NotConfirmed, text))
            }
        }
    }
}

impl Wish {
    fn member(&self) -> Result<String, Problem> {
        let missing = || Problem::new(Code::Usage, format!("{} needs a member", self.action));
        self.member.clone().ok_or_else(missing)
    }

    /// The change of a volume that is wished; none where it is something else.
    ///
    /// # Errors
    /// `Usage` when something is missing.
    pub(super) fn change(&self) -> Result<Option<Action>, Problem> {
        Ok(Some(match self.action.as_str() {
            "fail" => Action::Fail {
                member: self.member()?,
            },
            "remove" => Action::Remove {
                member: self.member()?,
            },
            "re-add" => Action::ReAdd {
                member: self.member()?,
            },
            "replace" => Action::Replace {
                old: self.member()?,
                new: self.new.clone().ok_or_else(|| {
                    Problem::new(Code::Usage, "replace needs the path of a new disk")
                })?,
                force: false,
            },
            "scrub" => Action::Scrub {
                repair: self.repair,
                stop: self.stop,
            },
            "stop" => Action::Stop,
            _ => return Ok(None),
        }))
    }
}

fn find<'a>(status: &'a VolumeStatus, path: &str) -> Result<&'a MemberStatus, Problem> {
    let is_it = |member: &&MemberStatus| member.path.as_deref() == Some(path);
    status.members.iter().find(is_it).ok_or_else(|| {
        let text = format!("{} has no member {path}", status.volume);
        Problem::new(Code::NoSuchMember, text).member(path)
    })
}

/// What is typed to make sure that a disk is meant, and what that is.
fn word_of(serial: Option<&String>, path: &str) -> (String, String) {
    match serial {
        Some(serial) => (serial.clone(), "the serial of the disk".to_owned()),
        None => {
            let name = Path::new(path).file_name();
            let name = name.map_or(path.to_owned(), |name| name.to_string_lossy().into_owned());
            (name, "the name of the file".to_owned())
        }
    }
}

fn words_of(member: &MemberStatus) -> String {
    let path = member.path.clone().unwrap_or_default();
    let slot = member
        .slot
        .map_or("spare".to_owned(), |slot| format!("slot {slot}"));
    match &member.disk {
        Some(disk) => format!("{slot}: {path}, {}", disk.words()),
        None => format!("{slot}: {path}"),
    }
}

/// The plan of a change of a volume as it is now; `new` is the disk that would become a member.
///
/// # Errors
/// `NoSuchMember`.
pub(super) fn plan(
    status: &VolumeStatus,
    action: &Action,
    new: Option<&NewDisk>,
) -> Result<Plan, Problem> {
    match action {
        Action::Fail { member } => of_fail(status, member),
        Action::Remove { member } => of_remove(status, member),
        Action::ReAdd { member } => of_re_add(status, member),
        Action::Replace { old, new: path, .. } => of_replace(status, old, path, new),
        Action::Scrub { stop, repair } => Ok(of_scrub(status, *stop, *repair)),
        Action::Stop => Ok(of_stop(status)),
        Action::Add { .. } | Action::Grow { .. } | Action::Device { .. } | Action::Set { .. } => {
            let text = format!("{} has no plan here", action.route());
            Err(Problem::new(Code::NotYet, text))
        }
    }
}

fn of_fail(status: &VolumeStatus, member: &str) -> Result<Plan, Problem> {
    let (name, left) = (&status.volume, status.spare_failures);
    let found = find(status, member)?;
    let is_active = found.state == MemberState::Active;
    let after = left.saturating_sub(u32::from(is_active));
    let mut lines = vec![
        words_of(found),
        format!("losses that {name} survives: {left} now, {after} then"),
    ];
    if left == 0 && is_active {
        lines.push("it is the last that may not be lost: data would be gone".to_owned());
    }
    Ok(Plan {
        title: format!("Treat a member of {name} as failed"),
        lines,
        command: command(&["fail", name, member]),
        confirm: Some(word_of(serial_of(found), member)),
    })
}

fn of_remove(status: &VolumeStatus, member: &str) -> Result<Plan, Problem> {
    let name = &status.volume;
    Ok(Plan {
        title: format!("Let go of a member of {name}"),
        lines: vec![
            words_of(find(status, member)?),
            "what is on it stays".to_owned(),
        ],
        command: command(&["remove", name, member]),
        confirm: None,
    })
}

fn of_re_add(status: &VolumeStatus, member: &str) -> Result<Plan, Problem> {
    let name = &status.volume;
    Ok(Plan {
        title: format!("Take a member of {name} back"),
        lines: vec![
            words_of(find(status, member)?),
            "only what it missed is copied where the bitmap says so, otherwise all".to_owned(),
        ],
        command: command(&["re-add", name, member]),
        confirm: None,
    })
}

fn of_replace(
    status: &VolumeStatus,
    old: &str,
    path: &str,
    new: Option<&NewDisk>,
) -> Result<Plan, Problem> {
    let name = &status.volume;
    let new = new.cloned().unwrap_or_default();
    Ok(Plan {
        title: format!("Replace a member of {name}"),
        lines: vec![
            format!("old, {}", words_of(find(status, old)?)),
            format!("new: {path}{}", new.words),
            "everything on the new one is overwritten".to_owned(),
            "the old one serves until all is copied".to_owned(),
        ],
        command: command(&["replace", name, old, path]),
        confirm: Some(word_of(new.serial.as_ref(), path)),
    })
}

fn of_scrub(status: &VolumeStatus, stop: bool, repair: bool) -> Plan {
    let name = &status.volume;
    if stop {
        return Plan {
            title: format!("Stop the check of {name}"),
            lines: vec!["what was compared so far is kept as compared".to_owned()],
            command: command(&["scrub", name, "--stop"]),
            confirm: None,
        };
    }
    let each = status.member_bytes;
    let each = each.map_or(String::new(), |each| format!(", {} of each", bytes(each)));
    let (title, does, words): (_, _, &[&str]) = match repair {
        true => (
            "Check and mend",
            "mends what differs",
            &["scrub", name, "--repair"],
        ),
        false => ("Check", "changes nothing", &["scrub", name]),
    };
    Plan {
        title: format!("{title} every byte of {name}"),
        lines: vec![format!(
            "reads all {} members{each}, and {does}; clients come first",
            status.slots
        )],
        command: command(words),
        confirm: None,
    }
}

fn of_stop(status: &VolumeStatus) -> Plan {
    let name = &status.volume;
    let clients: u64 = status.exports.iter().map(|one| one.clients).sum();
    Plan {
        title: format!("Stop serving {name}"),
        lines: vec![
            format!("{clients} clients lose it"),
            "it stays stopped over starts, until it is asked for".to_owned(),
        ],
        command: command(&["stop", name]),
        confirm: None,
    }
}

/// The words of a command, as a shell takes them.
fn command(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| shell_word(word)).collect();
    format!("plexum {}", words.join(" "))
}

fn serial_of(member: &MemberStatus) -> Option<&String> {
    let of_disk = member.disk.as_ref().and_then(|disk| disk.serial.as_ref());
    of_disk.or(member.serial.as_ref())
}
