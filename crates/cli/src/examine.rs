//! `plexum examine`: what is on members, every decoded field, and how several of them fit together.

use std::path::Path;

use plexum_daemon::examine::{Examination, examine_each, examine_remote, judge};
use plexum_daemon::foreign::offline::Found as Foreign;
use plexum_daemon::inspect::signatures;
use plexum_daemon::open::MemberWord;
use plexum_daemon::problem::{Code, Problem};
use plexum_engine::meta::assemble::{AssembledStanding, Assembly, Doubt, Options};
use plexum_format::Container;
use plexum_format::md::{Field, Role, Superblock, Value as FieldValue};
use serde_json::{Map, Value, json};

use crate::args::Examine;
use crate::errors::{Outcome, report};
use crate::examine_zfs;
use crate::output::{Color, Screen, object, table};
use crate::scan::into_sets;
use crate::units::{show_bytes, show_time};

/// Runs the command. Exit code 4 when a member holds nothing usable or the members are not of one array.
///
/// # Errors
/// When the only member cannot be read at all; of several the others are examined.
pub fn run(args: &Examine, screen: &Screen) -> Outcome {
    let (mut examinations, mut beside) = (Vec::new(), Vec::new());
    let mut exit = 0;
    for word in &args.members {
        let examined = match MemberWord::parse(word) {
            MemberWord::Path(_) | MemberWord::Partition(..) => examine_each(Path::new(word), word),
            MemberWord::Missing => continue,
            remote @ (MemberWord::Nbd(_) | MemberWord::Volume(_)) => {
                examine_remote(&remote).map(|examination| vec![examination])
            }
        };
        let examination = match examined {
            Ok(mut each) => {
                beside.extend(each.drain(1..));
                each.swap_remove(0)
            }
            Err(problem) if args.members.len() == 1 => return Err(problem),
            // The others can be looked at all the same.
            Err(problem) => {
                exit = exit.max(report(&problem, screen.is_json));
                continue;
            }
        };
        let is_known = examination.superblock.is_some()
            || examination.foreign.is_some()
            || !examination.zfs.is_empty()
            || !examination.survey.inner.is_empty();
        if !is_known {
            exit = exit.max(Code::NoMetadata.exit());
        }
        examinations.push(examination);
    }
    for examination in examinations.iter().chain(&beside) {
        show_member(examination, args, screen);
        show_owners(examination, screen);
    }
    if examinations.iter().any(|one| one.superblock.is_some()) {
        exit = exit.max(show_together(&examinations, screen));
    }
    exit = exit.max(crate::foreign::show_sets(&examinations, screen));
    // What is beside them is not what was asked for: that it is of several sets is no mistake.
    for set in into_sets(beside) {
        match set.is_foreign() {
            true => crate::foreign::show_sets(&set.examined, screen),
            false => show_together(&set.examined, screen),
        };
    }
    examine_zfs::show_pools(&examinations, screen);
    Ok(exit)
}

/// Its partitions, and the sets that claim its bytes when those are several.
fn show_owners(examination: &Examination, screen: &Screen) {
    let survey = &examination.survey;
    for part in &survey.partitions {
        let claims = survey.inner.iter();
        let claims = claims.filter(|claim| claim.partition.as_ref() == Some(part));
        let names: Vec<String> = claims
            .map(|claim| format!("{} {}", claim.format, claim.set))
            .collect();
        let what = match names.is_empty() {
            true => String::new(),
            false => format!(": {}", names.join(", ")),
        };
        screen.line(format!(
            "  partition {} ({}), {} from byte {}{what}",
            part.name,
            part.table.name(),
            show_bytes(part.place.end - part.place.start),
            part.place.start,
        ));
    }
    for claim in &survey.covered {
        let name = format!("{} {}", claim.format, claim.set);
        let part = claim
            .partition
            .as_ref()
            .map_or("", |part| part.name.as_str());
        screen.line(format!(
            "  {name} lies in partition {part}, and belongs to that"
        ));
    }
    if let Some(container) = survey.container {
        screen.line(format!(
            "  mdadm reads such members ({}), plexum does not",
            container.word()
        ));
    }
    let rivals = examination.rivals();
    if !rivals.is_empty() {
        screen.line(
            "  several sets claim the same bytes; which one is meant has to be said to serve it",
        );
        for line in rivals {
            screen.line(format!("    {line}"));
        }
    }
}

fn show_member(examination: &Examination, args: &Examine, screen: &Screen) {
    if let Some(foreign) = &examination.foreign {
        show_foreign(examination, foreign, screen);
        return;
    }
    let found: Vec<Value> = signatures(Path::new(&examination.member))
        .into_iter()
        .map(|finding| json!({"what": finding.what, "offset_bytes": finding.offset_bytes}))
        .collect();
    let damaged = examination.damaged();
    let raw = examination.superblock.as_ref().filter(|_| args.raw);
    let raw = raw.map(|superblock| hex(&superblock.encode()));
    screen.object(&object(
        "member",
        Some(&examination.volume_name()),
        json!({
            "member": examination.member, "size_bytes": examination.size_bytes,
            "superblock": fields_json(&examination.superblock_fields()),
            "bitmap": fields_json(&examination.bitmap_fields()),
            "bad_blocks": fields_json(&examination.bad_block_fields()),
            "stripe_log": fields_json(&examination.log_fields()),
            "journal": fields_json(&examination.journal_fields()),
            "damaged": damaged, "signatures": found, "superblock_hex": raw,
            "partitions": partitions_json(examination), "rivals": examination.rivals(),
            "container": examination.survey.container.map(Container::word),
            "zfs": examine_zfs::members_json(examination),
        }),
    ));
    screen.line(headline(examination, screen));
    for text in &damaged {
        screen.line(format!("  damaged: {text}"));
    }
    let broken = [
        examination.bitmap.as_ref().and_then(|r| r.as_ref().err()),
        examination
            .bad_blocks
            .as_ref()
            .and_then(|r| r.as_ref().err()),
    ];
    for error in broken.into_iter().flatten() {
        screen.line(format!("  damaged: {error}"));
    }
    if examine_zfs::show_members(examination, screen) {
        return;
    }
    if examination.superblock.is_none() {
        for signature in &found {
            screen.line(format!(
                "  {} found",
                signature["what"].as_str().unwrap_or("?")
            ));
        }
        return;
    }
    show_fields("superblock", &examination.superblock_fields(), screen);
    show_fields("bitmap", &examination.bitmap_fields(), screen);
    show_log(examination, screen);
    show_fields("write journal", &examination.journal_fields(), screen);
    show_fields("bad blocks", &examination.bad_block_fields(), screen);
    if let (Some(superblock), true) = (&examination.superblock, args.raw) {
        show_raw(superblock, screen);
    }
}

/// Its partitions and the sets in each, for programs.
fn partitions_json(examination: &Examination) -> Value {
    let survey = &examination.survey;
    let parts = survey.partitions.iter().map(|part| {
        let claims = survey.inner.iter();
        let claims = claims.filter(|claim| claim.partition.as_ref() == Some(part));
        let sets: Vec<String> = claims
            .map(|claim| format!("{} {}", claim.format, claim.set))
            .collect();
        json!({"partition": part.name, "table": part.table.name(), "offset_bytes": part.place.start,
            "size_bytes": part.place.end - part.place.start, "sets": sets})
    });
    parts.collect()
}

/// A member of one of FreeBSD's formats.
fn show_foreign(examination: &Examination, foreign: &Foreign, screen: &Screen) {
    let fields = foreign.fields();
    let details: Map<String, Value> = fields
        .iter()
        .map(|(title, fields)| ((*title).to_owned(), fields_json(fields)))
        .collect();
    screen.object(&object(
        "member",
        None,
        json!({"member": examination.member, "size_bytes": examination.size_bytes,
            "format": foreign.kind().name(), "metadata": details}),
    ));
    let size = show_bytes(examination.size_bytes);
    screen.line(format!(
        "{}: {size}, {}",
        examination.member,
        foreign.headline()
    ));
    for (title, fields) in &fields {
        show_fields(title, fields, screen);
    }
}

fn show_log(examination: &Examination, screen: &Screen) {
    show_fields("stripe log", &examination.log_fields(), screen);
    if let Some((_, Some(reason))) = &examination.log {
        screen.line(format!("  the stripe log is not used: {reason}"));
    }
}

fn headline(examination: &Examination, screen: &Screen) -> String {
    let size = show_bytes(examination.size_bytes);
    let Some(superblock) = &examination.superblock else {
        if let Some(text) = examine_zfs::headline(examination) {
            return format!("{}: {size}, {text}", examination.member);
        }
        let what = match examination.detection.best() {
            _ if examination.survey.container.is_some() => examination
                .survey
                .container
                .map_or_else(String::new, |container| container.to_string()),
            None if !examination.survey.inner.is_empty() => "a disk with partitions".to_owned(),
            Some(_) => screen.paint(Color::Red, "damaged metadata"),
            None => "nothing that plexum knows".to_owned(),
        };
        return format!("{}: {size}, {what}", examination.member);
    };
    let role = match superblock.role() {
        Role::Active(slot) => format!("slot {slot}"),
        Role::Spare => "spare".into(),
        Role::Faulty => "failed member".into(),
        Role::Journal => "journal".into(),
    };
    let state = match (superblock.rebuild_offset_sectors, superblock.is_clean()) {
        (Some(_), _) => "being rebuilt",
        (None, true) => "clean",
        (None, false) => "not stopped cleanly",
    };
    format!(
        "{}: {size}, {} of {} ({}, {}), {state}, event count {}, updated {}",
        examination.member,
        role,
        screen.paint(Color::Green, &examination.volume_name()),
        examination.level_word(),
        examination.format_word(),
        superblock.events.0,
        show_time(superblock.utime.seconds),
    )
}

pub(crate) fn show_fields(title: &str, fields: &[Field], screen: &Screen) {
    if fields.is_empty() {
        return;
    }
    screen.line(format!("  {title}"));
    let rows: Vec<Vec<String>> = fields
        .iter()
        .map(|field| vec![field.name.to_owned(), field.value.to_string()])
        .collect();
    for line in table(&rows) {
        screen.line(format!("    {line}"));
    }
}

/// Hex dump of the superblock; lines of zeroes are left out.
fn show_raw(superblock: &Superblock, screen: &Screen) {
    let bytes = superblock.encode();
    let start = superblock.super_offset_sectors * 512;
    screen.line("  raw (byte offsets on the member; zeroes left out)");
    for (at, line) in bytes.chunks(16).enumerate() {
        if line.iter().any(|byte| *byte != 0) {
            screen.line(format!("    {:08x}  {}", start + at as u64 * 16, hex(line)));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn fields_json(fields: &[Field]) -> Value {
    if fields.is_empty() {
        return Value::Null;
    }
    let entries = fields
        .iter()
        .map(|field| (field.name.to_owned(), value_json(&field.value)));
    Value::Object(entries.collect::<Map<String, Value>>())
}

fn value_json(value: &FieldValue) -> Value {
    match value {
        FieldValue::None => Value::Null,
        FieldValue::Flag(flag) => (*flag).into(),
        FieldValue::Number(number) => (*number).into(),
        FieldValue::Signed(number) => (*number).into(),
        FieldValue::List(values) => values.iter().map(value_json).collect(),
        other => other.to_string().into(),
    }
}

/// How the members fit together and what they need to start; the exit code.
fn show_together(examinations: &[Examination], screen: &Screen) -> u8 {
    let judged = judge(examinations, &Options::default());
    // Refusals that an option overrides still have a judgement for each member.
    let insisted = Options {
        force: true,
        run_degraded: true,
        read_only: true,
        force_data: false,
        ..Options::default()
    };
    let described = match &judged {
        Ok(assembly) => Some(assembly.clone()),
        Err(_) => judge(examinations, &insisted).ok(),
    };
    let name = examinations
        .iter()
        .find(|one| one.superblock.is_some())
        .map(Examination::volume_name);
    let name = name.unwrap_or_default();
    screen.line("");
    if let Some(assembly) = &described {
        screen.line(format!(
            "{name}: {}, {}, {}",
            assembly.geometry.organisation(),
            show_bytes(assembly.volume_bytes),
            state_words(assembly),
        ));
        for line in member_table(assembly, examinations) {
            screen.line(format!("  {line}"));
        }
    }
    let needs = match &judged {
        Ok(assembly) => format!(
            "plexum serve {}{}{}",
            words(assembly),
            if assembly.is_read_only {
                " --read-only"
            } else {
                ""
            },
            format_option(examinations),
        ),
        Err(problem) => problem.message.clone(),
    };
    let problem = judged.as_ref().err();
    screen.object(&set_json(&name, &needs, problem, described.as_ref()));
    match problem {
        None => screen.line(format!("to serve it:   {needs}")),
        Some(problem) => {
            screen.line(format!("cannot start as it is: {}", problem.message));
            for line in problem.why.iter().chain(&problem.hints) {
                screen.line(format!("  {line}"));
            }
        }
    }
    let is_mixed = problem.is_some_and(|p| {
        matches!(
            p.code,
            Code::ForeignMember | Code::DuplicateMember | Code::SplitBrain
        )
    });
    if is_mixed {
        Code::ForeignMember.exit()
    } else {
        0
    }
}

/// The option that says which set is meant, where several claim the same bytes.
pub(crate) fn format_option(examinations: &[Examination]) -> String {
    let disputed = examinations.iter().find(|one| !one.rivals().is_empty());
    let format = disputed.map(|one| match &one.foreign {
        Some(foreign) => foreign.kind().name().to_owned(),
        None => one.format_word(),
    });
    format.map_or(String::new(), |format| format!(" --format {format}"))
}

/// The judgement for programs. `described`: what the members would be if one insisted.
fn set_json(
    name: &str,
    needs: &str,
    problem: Option<&Problem>,
    described: Option<&Assembly>,
) -> Value {
    object(
        "set",
        Some(name),
        json!({
            "can_start": problem.is_none(),
            "needs": needs,
            "problem": problem.map(|problem| problem.to_json()["error"].clone()),
            "size_bytes": described.map(|assembly| assembly.volume_bytes),
            "missing_slots": described.map(|assembly| assembly.missing_slots.clone()),
            "is_degraded": described.map(|assembly| assembly.is_degraded),
            "is_dirty": described.map(Assembly::is_dirty),
            "members": described.map(members_json),
        }),
    )
}

fn state_words(assembly: &Assembly) -> String {
    let mut words = vec![match (assembly.is_degraded, assembly.is_dirty()) {
        (false, false) => "clean".to_owned(),
        (false, true) => "not stopped cleanly, a resync follows".to_owned(),
        (true, false) => "degraded".to_owned(),
        (true, true) => "degraded and not stopped cleanly".to_owned(),
    }];
    if !assembly.missing_slots.is_empty() {
        let slots: Vec<String> = assembly
            .missing_slots
            .iter()
            .map(ToString::to_string)
            .collect();
        words.push(format!(
            "slots without a complete member: {}",
            slots.join(" ")
        ));
    }
    if assembly.reshape.is_some() {
        words.push("in the middle of a reshape".into());
    }
    if assembly.doubt != Doubt::None {
        words.push("some rows would be in doubt".into());
    }
    words.join(", ")
}

fn standing_word(standing: &AssembledStanding) -> &'static str {
    match standing {
        AssembledStanding::Active => "active",
        AssembledStanding::Rebuilding { .. } => "rebuilding",
        AssembledStanding::Spare => "spare",
        AssembledStanding::Journal => "journal",
        AssembledStanding::Stale { .. } => "stale",
        AssembledStanding::Faulty => "faulty",
        AssembledStanding::Unusable => "unusable",
    }
}

fn member_table(assembly: &Assembly, examinations: &[Examination]) -> Vec<String> {
    let mut rows = vec![
        ["SLOT", "MEMBER", "STATE", "EVENTS", "WHY"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let mut members: Vec<_> = assembly.members.iter().collect();
    members.sort_by_key(|member| (member.slot.is_none(), member.slot));
    for member in members {
        rows.push(vec![
            member.slot.map_or("-".to_owned(), |slot| slot.to_string()),
            member.name.clone(),
            standing_word(&member.standing).to_owned(),
            member.events.0.to_string(),
            member.reason.clone().unwrap_or_default(),
        ]);
    }
    for one in examinations.iter().filter(|one| one.superblock.is_none()) {
        let why = "nothing usable was found on it".to_owned();
        rows.push(vec![
            "-".into(),
            one.member.clone(),
            "unusable".into(),
            "-".into(),
            why,
        ]);
    }
    table(&rows)
}

fn members_json(assembly: &Assembly) -> Value {
    let member = |member: &plexum_engine::meta::assemble::AssembledMember| {
        json!({"member": member.name, "slot": member.slot, "state": standing_word(&member.standing),
            "event_count": member.events.0, "reason": member.reason,
            "is_replacement": member.is_replacement, "is_write_mostly": member.is_write_mostly})
    };
    assembly.members.iter().map(member).collect()
}

/// Members worth naming to `serve`.
fn words(assembly: &Assembly) -> String {
    let used = assembly
        .members
        .iter()
        .filter(|member| member.standing.is_used());
    let names: Vec<&str> = used.map(|member| member.name.as_str()).collect();
    names.join(" ")
}
