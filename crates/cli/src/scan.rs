//! `plexum scan`: all sets on these disks, with what is there and what is missing.

use plexum_daemon::examine::judge;
use plexum_daemon::foreign::offline::{self};
use plexum_daemon::open::MemberWord;
use plexum_daemon::problem::Problem;
use plexum_md::assemble::{Assembly, JournalUse, Options};
use serde_json::json;

use crate::args::Scan;
use crate::disputed::format_option;
use crate::errors::Outcome;
use crate::examine_zfs;
use crate::nested;
use crate::output::{Screen, object, table};
use crate::sets::{AllFound, FoundSet, find_all};
use crate::units::show_bytes;

/// Runs the command. Exit code 1 when a set cannot be started as it is.
///
/// # Errors
/// `NoSuchFile` for a place that does not exist.
pub fn run(args: &Scan, screen: &Screen) -> Outcome {
    let AllFound {
        sets,
        pools,
        bystanders,
        damaged,
        containers,
        disputes,
    } = find_all(&args.places)?;
    let is_nothing = sets.is_empty() && pools.is_empty() && bystanders.is_empty();
    if is_nothing && damaged.is_empty() {
        screen.line("no sets found");
        show_notes("container", containers, screen);
        return Ok(0);
    }
    let head = ["VOLUME", "LEVEL", "FORMAT", "SIZE", "MEMBERS", "STATE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let mut details = Vec::new();
    let mut exit = 0;
    for (set, told) in sets
        .iter()
        .flat_map(|set| tell_all(set).into_iter().map(move |told| (set, told)))
    {
        exit = exit.max(u8::from(told.problem.is_some()));
        details.push(format!("  {}: {}", told.row[0], set.members.join(" ")));
        details.extend(told.notes.iter().map(|note| format!("    {note}")));
        details.extend(told.problem.is_none().then(|| command_for(set)).flatten());
        if let Some(problem) = &told.problem {
            details.push(format!("    {}", problem.message));
            details.extend(problem.hints.iter().map(|hint| format!("    {hint}")));
        }
        screen.object(&told.object);
        rows.push(told.row);
    }
    for inner in nested::inside(&sets) {
        exit = exit.max(u8::from(inner.is_lacking));
        rows.push(inner.row.clone());
        details.extend(inner.way());
        screen.object(&inner.object);
    }
    for pool in &pools {
        let (row, more, value, is_whole) = examine_zfs::tell_pool(pool);
        exit = exit.max(u8::from(!is_whole));
        rows.push(row);
        details.extend(more);
        screen.object(&value);
    }
    for (line, value) in bystanders {
        details.push(line);
        screen.object(&value);
    }
    for (member, texts) in &damaged {
        exit = 1;
        details.extend(
            texts
                .iter()
                .map(|text| format!("damaged: {member}: {text}")),
        );
        let value = json!({"member": member, "damaged": texts});
        screen.object(&object("damaged_member", None, value));
    }
    for line in table(&rows).into_iter().chain(details) {
        screen.line(line);
    }
    exit = exit.max(u8::from(!disputes.is_empty()));
    show_notes("container", containers, screen);
    show_notes("dispute", disputes, screen);
    Ok(exit)
}

fn show_notes(kind: &str, lines: Vec<String>, screen: &Screen) {
    for line in lines {
        screen.object(&object(kind, None, json!({"text": line.trim_start()})));
        screen.line(line);
    }
}

/// How to serve a set whose members are not simply the files that were looked at.
fn command_for(set: &FoundSet) -> Option<String> {
    let option = format_option(&set.examined);
    let words = set.members.iter().map(|word| MemberWord::parse(word));
    let is_plain = words
        .into_iter()
        .all(|word| matches!(word, MemberWord::Path(_)));
    if is_plain && option.is_empty() {
        return None;
    }
    let words = format!("{option} {}", set.members.join(" "));
    Some(format!(
        "    to serve it:   plexum serve {}",
        words.trim_start()
    ))
}

/// What is told about one set.
struct Told {
    row: Vec<String>,
    object: serde_json::Value,
    /// Worth knowing although it starts.
    notes: Vec<String>,
    problem: Option<Problem>,
}

/// One entry a volume: drives of Vinum may hold several.
fn tell_all(set: &FoundSet) -> Vec<Told> {
    if !set.is_foreign() {
        return vec![tell(set)];
    }
    let found = set.foreign();
    let judged = offline::judge(&found).into_iter();
    judged
        .map(|judged| Told {
            row: vec![
                judged.name.clone(),
                judged.level.clone(),
                judged.kind.name().to_owned(),
                show_bytes(judged.size_bytes),
                format!("{} found", set.members.len()),
                judged.state.clone(),
            ],
            object: object(
                "set",
                Some(&judged.name),
                json!({
                    "level": judged.level, "format": judged.kind.name(),
                    "size_bytes": judged.size_bytes, "members": set.members, "state": judged.state,
                    "problem": judged.problem.as_ref().map(|problem| problem.to_json()["error"].clone()),
                }),
            ),
            notes: Vec::new(),
            problem: judged.problem,
        })
        .collect()
}

fn tell(set: &FoundSet) -> Told {
    let options = Options {
        read_only: true,
        run_degraded: true,
        ..Options::default()
    };
    let judged = judge(&set.examined, &options);
    let first = &set.examined[0];
    let superblock = first.superblock.as_ref();
    let uuid = superblock.map(|sb| plexum_format::uuid::md_uuid_text(&sb.array_uuid));
    let (name, level, format) = (first.volume_name(), first.level_word(), first.format_word());
    // While it is reshaped, those of both halves.
    let slots = match &judged {
        Ok(assembly) => assembly.missing().len() as u32, // md has 16 bits for them
        Err(_) => superblock.map_or(0, |sb| sb.member_count),
    };
    let (size_bytes, state, missing) = match &judged {
        Ok(assembly) => (
            assembly.volume_bytes,
            state_word(assembly),
            assembly.missing_slots.clone(),
        ),
        Err(_) => (0, "cannot start".to_owned(), Vec::new()),
    };
    let count = match &judged {
        Ok(_) => {
            let slots_there = (slots as usize).saturating_sub(missing.len());
            format!("{slots_there} of {slots}")
        }
        Err(_) => format!("{} found, {slots} slots", set.members.len()),
    };
    let (problem, notes) = match judged {
        Ok(assembly) => (None, assembly.notes),
        Err(problem) => (Some(problem), Vec::new()),
    };
    let details = json!({
        "uuid": uuid, "level": level, "format": format, "size_bytes": size_bytes,
        "slots": slots, "members": set.members, "missing_slots": missing, "state": state,
        "notes": notes, "problem": problem.as_ref().map(|problem| problem.to_json()["error"].clone()),
    });
    Told {
        object: object("set", Some(&name), details),
        row: vec![name, level, format, show_bytes(size_bytes), count, state],
        notes,
        problem,
    }
}

fn state_word(assembly: &Assembly) -> String {
    let has_journal = assembly.journal != JournalUse::None;
    let mut words = vec![match (assembly.is_degraded, assembly.is_dirty()) {
        // With a journal an array counts as clean whatever the journal holds.
        (false, false) if has_journal => "whole",
        (false, false) => "clean",
        (false, true) => "not stopped cleanly",
        (true, false) => "degraded",
        (true, true) => "degraded, not stopped cleanly",
    }];
    words.extend(has_journal.then_some("with a write journal"));
    words.extend(
        assembly
            .reshape
            .as_ref()
            .map(|_| "in the middle of a reshape"),
    );
    words.join(", ")
}
