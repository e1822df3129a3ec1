//! `plexum add`, `remove`, `fail`, `re-add`, `replace`: one member of a running volume.

use plexum_daemon::control::Action;
use plexum_daemon::inspect::inspect;
use plexum_daemon::open::{AnyDevice, MemberWord};
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{JobKind, JobStatus, MemberState, Verdict, VolumeStatus};
use plexum_runtime::file::OpenOptions;
use serde_json::{Value, json};

use crate::args::{AddMember, Common, ReAdd, Replace, VolumeMember};
use crate::client::Client;
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::{Screen, object};
use crate::plan::{Found, Plan};
use crate::progress;

/// A path as the server can open it: relative ones are made absolute, everything else stays.
///
/// A word with a `/`, or that names an existing file, is a path; otherwise it is a slot number or a serial.
#[must_use]
pub fn member_word(word: &str) -> String {
    let path = std::path::Path::new(word);
    let is_uri = word.contains("://") || word.starts_with("volume:");
    if is_uri || !(word.contains('/') || path.exists()) {
        return word.to_owned();
    }
    std::path::absolute(path).map_or_else(|_| word.to_owned(), |full| full.display().to_string())
}

/// `plexum fail`.
///
/// # Errors
/// Of the server: `WouldLoseData`, `NoSuchMember`, ...
pub fn fail(args: &VolumeMember, common: &Common, screen: &Screen) -> Outcome {
    let action = Action::Fail {
        member: member_word(&args.member),
    };
    act(&args.volume, &action, common, screen)
}

/// `plexum remove`.
///
/// # Errors
/// Of the server: `WrongState` for a member in use.
pub fn remove(args: &VolumeMember, common: &Common, screen: &Screen) -> Outcome {
    let action = Action::Remove {
        member: member_word(&args.member),
    };
    act(&args.volume, &action, common, screen)
}

/// `plexum add`.
///
/// # Errors
/// Of the server: `WouldDestroy` for a member with something on it, `MemberTooSmall`, ...
pub fn add(args: &AddMember, common: &Common, screen: &Screen) -> Outcome {
    let action = Action::Add {
        member: member_word(&args.member),
        force: args.force,
    };
    agree(
        &action,
        &args.volume,
        &args.member,
        args.force,
        common,
        screen,
    )?;
    let exit = act(&args.volume, &action, common, screen)?;
    wait_for_rebuild(&args.volume, args.wait && !common.dry_run, exit, screen)
}

/// `plexum re-add`.
///
/// # Errors
/// Of the server: `ForeignMember`, `WrongState`, ...
pub fn re_add(args: &ReAdd, common: &Common, screen: &Screen) -> Outcome {
    let action = Action::ReAdd {
        member: member_word(&args.member),
    };
    let exit = act(&args.volume, &action, common, screen)?;
    wait_for_rebuild(&args.volume, args.wait && !common.dry_run, exit, screen)
}

/// `plexum replace`.
///
/// # Errors
/// Of the server: as `add`, and `NoSuchMember` for the old one.
pub fn replace(args: &Replace, common: &Common, screen: &Screen) -> Outcome {
    let action = Action::Replace {
        old: member_word(&args.old),
        new: member_word(&args.new),
        force: args.force,
    };
    agree(&action, &args.volume, &args.new, args.force, common, screen)?;
    let exit = act(&args.volume, &action, common, screen)?;
    wait_for_rebuild(&args.volume, args.wait && !common.dry_run, exit, screen)
}

/// With `--force`: what is on the new member is shown, and has to be agreed to. Without it the server refuses by
/// itself.
fn agree(
    action: &Action,
    volume: &str,
    word: &str,
    is_forced: bool,
    common: &Common,
    screen: &Screen,
) -> Result<(), Problem> {
    if !is_forced && !common.dry_run {
        return Ok(());
    }
    let client = Client::find(Some(volume))?;
    if common.dry_run {
        client.rehearse(action)?;
    }
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let found = runtime.block_on(async {
        let parsed = MemberWord::parse(word);
        let device = AnyDevice::open(&handle, &parsed, &OpenOptions::read_only()).await?;
        inspect(&device, word).await
    });
    let found = match found {
        Ok(found) => found,
        // The server itself may still hold it; it knows what to say.
        Err(problem) if problem.code == Code::Busy => return Ok(()),
        Err(problem) => return Err(problem),
    };
    let command = action.route();
    let plan = Plan {
        command,
        volume: volume.to_owned(),
        lines: vec![format!("{command} {word} in {volume}")],
        details: json!({"member": word}),
        destroys: found
            .into_iter()
            .map(|finding| Found {
                member: word.to_owned(),
                what: finding.what,
            })
            .collect(),
    };
    if common.dry_run {
        plan.show(screen); // the server has looked whether it may be
        return Ok(());
    }
    plan.confirm(common, is_forced.into(), screen).map(|_| ())
}

fn act(volume: &str, action: &Action, common: &Common, screen: &Screen) -> Outcome {
    let client = Client::find(Some(volume))?;
    if common.dry_run {
        let is_rehearsed = matches!(action, Action::Add { .. } | Action::Replace { .. });
        if !is_rehearsed {
            client.rehearse(action)?;
        }
        let mut fields = serde_json::to_value(action).unwrap_or_default();
        fields["command"] = action.route().into();
        screen.line(format!("would ask {volume} to {}", describe(action)));
        // `agree` has shown the plan of a new member already.
        if !is_rehearsed {
            screen.object(&object("plan", Some(volume), fields));
        }
        return Ok(0);
    }
    let answer = client.act_because(action, common.why.as_deref())?;
    let message = answer["message"].as_str().map_or_else(
        || format!("{volume}: {}", describe(action)),
        ToOwned::to_owned,
    );
    screen.done(message);
    screen.object(&object(action.route(), Some(volume), merge(action, answer)));
    Ok(0)
}

/// The action's fields and what the server added.
fn merge(action: &Action, answer: Value) -> Value {
    let mut fields = serde_json::to_value(action).unwrap_or_else(|_| json!({}));
    if let (Some(fields), Value::Object(answer)) = (fields.as_object_mut(), answer) {
        fields.extend(answer);
    }
    fields
}

/// What an action does, in words.
pub fn describe(action: &Action) -> String {
    match action {
        Action::Fail { member } => format!("treat {member} as failed"),
        Action::Add { member, .. } => format!("add {member}"),
        Action::Remove { member } => format!("remove {member}"),
        Action::ReAdd { member } => format!("take {member} back"),
        Action::Replace { old, new, .. } => format!("replace {old} by {new}"),
        other => other.route().to_owned(),
    }
}

fn rebuild_job(status: &VolumeStatus) -> Option<JobStatus> {
    let filling = |job: &&JobStatus| matches!(job.kind, JobKind::Rebuild | JobKind::Replace);
    if let Some(job) = status.jobs.iter().find(filling) {
        return Some(job.clone());
    }
    // Between the answer and the job's begin: a member that is not yet filled, or a spare that will take an empty slot.
    let has = |state: MemberState| status.members.iter().any(|member| member.state == state);
    let is_taken_soon = status.verdict == Verdict::Degraded && has(MemberState::Spare);
    (has(MemberState::Rebuilding) || is_taken_soon).then(|| JobStatus {
        kind: JobKind::Rebuild,
        done_bytes: 0,
        total_bytes: status.member_bytes.unwrap_or(0),
        rate_bytes_per_s: 0,
        eta_s: None,
        eta_range_s: None,
        slots: Vec::new(),
    })
}

fn wait_for_rebuild(volume: &str, wanted: bool, exit: u8, screen: &Screen) -> Outcome {
    if !wanted {
        return Ok(exit);
    }
    let client = Client::find(Some(volume))?;
    let status = progress::wait(&client, screen, rebuild_job)?;
    screen.done(format!("{volume} is {}", status.verdict.word()));
    screen.object(&serde_json::to_value(&status).unwrap_or_default());
    progress::outcome(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_slash_is_a_path_and_a_bare_one_a_slot_or_serial() {
        assert_eq!(member_word("2"), "2");
        assert_eq!(member_word("WCC4-81"), "WCC4-81");
        assert_eq!(member_word("/dev/sdx"), "/dev/sdx");
        assert_eq!(member_word("volume:inner"), "volume:inner");
        assert_eq!(member_word("nbd://host/export"), "nbd://host/export");
        assert!(member_word("disks/a.img").starts_with('/'));
        assert!(member_word("Cargo.toml").ends_with("/Cargo.toml"));
    }
}
