//! `plexum history` and `plexum undo`: what commands wrote on members, and taking it back.

use plexum_daemon::advice::shell_word;
use plexum_daemon::changes::{
    Change, ChangeNote, ChangeState, Changes, Noted, Reverse, Written, undo as undo_change,
};
use plexum_daemon::date::show_time;
use plexum_daemon::memory::{StateDir, Surroundings};
use plexum_daemon::problem::{Code, Problem};
use serde_json::json;

use crate::args::{Common, Undo};
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::{Screen, object, table};
use crate::units::show_bytes;

/// Where a change of this command is noted; nowhere in a dry run, or for a user without a home.
pub fn noted(common: &Common, reverse: Reverse) -> Option<Noted> {
    if common.dry_run {
        return None;
    }
    let words = std::env::args().skip(1).map(|word| shell_word(&word));
    let words: Vec<String> = words.collect();
    Some(Noted {
        changes: changes()?,
        note: ChangeNote {
            command: format!("plexum {}", words.join(" ")),
            user: user(),
            why: common.why.clone(),
            reverse,
        },
    })
}

/// Keeps a change whose bytes are not kept: that it was made. `None`: a dry run, or there is no folder for it.
pub fn keep(noted: Option<Noted>, screen: &Screen) {
    if let Some(noted) = noted
        && let Err(reason) = noted.changes.keep(&noted.note)
    {
        screen.note(format!("the change is not in the history: {reason}"));
    }
}

/// Says why a change that was made is not kept.
pub fn tell(written: &Written, screen: &Screen) {
    if let Some(problem) = &written.problem {
        screen.note(problem);
    }
}

/// Says how a change is undone that has overwritten something.
pub fn tell_undo(written: &Written, screen: &Screen) {
    if let Some(number) = written.change {
        screen.done(format!(
            "to undo it, before it is used:   plexum undo {number}"
        ));
    }
}

fn changes() -> Option<Changes> {
    StateDir::locate(&Surroundings::of_this_process()).map(Changes::in_folder)
}

/// Who types: behind `sudo` whoever called it.
fn user() -> String {
    let named = ["SUDO_USER", "USER", "LOGNAME"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    named.unwrap_or_else(|| match Surroundings::of_this_process().user_id {
        0 => "root".to_owned(),
        user_id => format!("uid {user_id}"),
    })
}

fn known() -> Result<Changes, Problem> {
    changes().ok_or_else(|| {
        let problem = Problem::new(Code::NoSuchFile, "no folder keeps changes");
        problem.hint("set XDG_STATE_HOME or HOME")
    })
}

/// `plexum history`.
///
/// # Errors
/// Of reading.
pub fn history(screen: &Screen) -> Outcome {
    let changes = known()?.list()?;
    let mut rows = Vec::new();
    for change in &changes {
        screen.object(&json!(change));
        rows.push(vec![
            change.id.to_string(),
            show_time(change.time_s),
            change.user.clone(),
            state_word(change).to_owned(),
            change.command.clone(),
        ]);
        let why = change.why.iter().map(|why| format!("why: {why}"));
        rows.extend(why.map(|why| {
            vec![
                String::new(),
                String::new(),
                String::new(),
                String::new(),
                why,
            ]
        }));
    }
    if rows.is_empty() {
        screen.line("no change is known");
        return Ok(0);
    }
    let mut lines = vec![
        ["NO", "WHEN (UTC)", "WHO", "STATE", "COMMAND"]
            .map(String::from)
            .to_vec(),
    ];
    lines.extend(rows);
    for line in table(&lines) {
        screen.line(line);
    }
    Ok(0)
}

fn state_word(change: &Change) -> &'static str {
    match change.state {
        ChangeState::Begun => "begun",
        ChangeState::Done => "done",
        ChangeState::Failed => "failed",
        ChangeState::Undone => "undone",
    }
}

/// `plexum undo`.
///
/// # Errors
/// `NoSuchFile` for a number that is not known; `WrongState` when what was written is something else now; `Busy` for a
/// member in use.
pub fn undo(args: &Undo, common: &Common, screen: &Screen) -> Outcome {
    let changes = known()?;
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let undone = runtime.block_on(undo_change(&handle, &changes, args.change))?;
    let (size, members) = (show_bytes(undone.written_bytes), undone.members.join(" "));
    let details = json!({"change": args.change, "members": undone.members, "written_bytes": undone.written_bytes});
    if common.dry_run {
        screen.line(format!("would put {size} back on {members}"));
        screen.object(&object("plan", None, details));
        return Ok(0);
    }
    screen.object(&object("undone", None, details));
    screen.done(format!("{size} were put back on {members}"));
    if let Some(problem) = &undone.problem {
        screen.note(problem);
    }
    Ok(0)
}
