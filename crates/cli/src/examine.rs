//! `plexum examine`: what is on members, every decoded field, and how several of them fit together.

mod together;

use std::path::Path;

use plexum_daemon::examine::{Examination, examine_each, examine_remote};
use plexum_daemon::foreign::offline::Found as Foreign;
use plexum_daemon::inspect::signatures;
use plexum_daemon::open::MemberWord;
use plexum_daemon::problem::Code;
use plexum_daemon::zfs::PoolView;
use plexum_format::Container;
use plexum_format::md::{Role, Superblock};
use serde_json::{Map, Value, json};

use self::together::Together;
use crate::args::Examine;
use crate::errors::{Outcome, report_beside};
use crate::examine_zfs;
use crate::fields::{fields_json, show_fields};
use crate::foreign::ForeignSets;
use crate::output::{Color, Screen, object};
use crate::sets::into_sets;
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
                exit = exit.max(report_beside(&problem, screen));
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
    // What is beside them is not what was asked for: that it is of several sets is no mistake.
    let beside = into_sets(beside);
    let sets = sets_of(&examinations);
    let further: Vec<Set<'_>> = beside
        .iter()
        .flat_map(|set| sets_of(&set.examined))
        .collect();
    let verdicts: Vec<String> = sets.iter().chain(&further).flat_map(Set::lines).collect();
    for line in &verdicts {
        screen.line(line);
    }
    if !verdicts.is_empty() {
        screen.line("");
    }
    let further_members = beside.iter().flat_map(|set| &set.examined);
    for examination in examinations.iter().chain(further_members) {
        show_member(examination, args, screen);
        show_owners(examination, screen);
    }
    for set in &sets {
        exit = exit.max(set.show(screen));
    }
    for set in &further {
        set.show(screen);
    }
    Ok(exit)
}

/// What members make together.
enum Set<'a> {
    Md(Box<Together<'a>>),
    Foreign(ForeignSets),
    Pools(Vec<PoolView>),
}

/// What these members make, by kind.
fn sets_of(examinations: &[Examination]) -> Vec<Set<'_>> {
    let md = Together::of(examinations).map(|together| Set::Md(Box::new(together)));
    let pools = examine_zfs::pools_of(examinations);
    let further = [
        Set::Foreign(ForeignSets::of(examinations)),
        Set::Pools(pools),
    ];
    md.into_iter().chain(further).collect()
}

impl Set<'_> {
    /// One line for each set.
    fn lines(&self) -> Vec<String> {
        match self {
            Self::Md(together) => vec![together.verdict().line()],
            Self::Foreign(sets) => sets.verdicts().map(|one| one.line()).collect(),
            Self::Pools(pools) => pools
                .iter()
                .map(|pool| examine_zfs::verdict(pool).line())
                .collect(),
        }
    }

    /// All about them; the exit code.
    fn show(&self, screen: &Screen) -> u8 {
        match self {
            Self::Md(together) => together.show(screen),
            Self::Foreign(sets) => sets.show(screen),
            Self::Pools(pools) => {
                examine_zfs::show_pools(pools, screen);
                0
            }
        }
    }
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
            "verdict": verdict_word(examination),
            "verdict_text": headline(examination, &Screen { has_color: false, ..screen.clone() }),
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
            "format": foreign.kind().name(), "metadata": details,
            "verdict": verdict_word(examination), "verdict_text": foreign_headline(examination, foreign)}),
    ));
    screen.line(foreign_headline(examination, foreign));
    for (title, fields) in &fields {
        show_fields(title, fields, screen);
    }
}

fn foreign_headline(examination: &Examination, foreign: &Foreign) -> String {
    let size = show_bytes(examination.size_bytes);
    format!("{}: {size}, {}", examination.member, foreign.headline())
}

/// What a member is, for programs: whether a set can be used is said of the set.
fn verdict_word(examination: &Examination) -> &'static str {
    let survey = &examination.survey;
    if examination.superblock.is_some() || examination.foreign.is_some() {
        "member"
    } else if !examination.zfs.is_empty() {
        "pool_member"
    } else if survey.container.is_some() {
        "container"
    } else if !survey.inner.is_empty() {
        "partitioned"
    } else if examination.detection.best().is_some() {
        "damaged"
    } else {
        "unknown"
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
