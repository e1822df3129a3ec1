//! `plexum convert`: a volume becomes one of another format, in place or onto new members.

use std::path::{Path, PathBuf};
use std::time::Instant;

use plexum_daemon::changes::Reverse;
use plexum_daemon::examine::examine_path;
use plexum_daemon::foreign::convert::{
    Goal, Journal, Phase, Source, Step, VolumeOnMembers, copy, plan_in_place, run_in_place,
    source_of,
};
use plexum_daemon::foreign::offline::{Found, system_of};
use plexum_daemon::problem::{Code, Problem};
use plexum_format::md::MdVersion;
use plexum_format::vinum::HeaderFormat;
use plexum_freebsd::in_place::InPlace;
use serde_json::json;

use crate::args::{Cli, Command, Common, Convert, Create};
use crate::errors::Outcome;
use crate::history::{noted, tell, tell_undo};
use crate::offline::{rehearse_members, runtime};
use crate::output::{Screen, object};
use crate::pool::args::CreateVolume;
use crate::progress::Progress;
use crate::units::show_bytes;

/// Size of a new volume of a pool is a multiple of this: of any block that it may have.
const POOL_SIZE_BYTES: u64 = 128 << 10;

/// Bytes that are copied between two notes in the journal.
const SAVE_BYTES: u64 = 64 << 20;

/// Runs the command.
///
/// # Errors
/// `WrongState` when the data cannot stay in place; of opening, making, copying, comparing.
pub fn run(args: &Convert, common: &Common, screen: &Screen) -> Outcome {
    if !args.onto.is_empty() {
        return onto(args, common, screen);
    }
    let goal = match args.to.as_str() {
        "gmirror" => Goal::Gmirror,
        "gvinum" | "vinum" if !carries_md(args)? => return headers(args, common, screen),
        "gvinum" | "vinum" => Goal::Gvinum,
        format => Goal::Md(version(format)?),
    };
    in_place(args, goal, common, screen)
}

/// Whether a member is one of a Linux array, perhaps besides what a conversion that was cut has written.
fn carries_md(args: &Convert) -> Result<bool, Problem> {
    for member in &args.members {
        if examine_path(Path::new(member), member)?
            .superblock
            .is_some()
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn version(format: &str) -> Result<MdVersion, Problem> {
    let known = MdVersion::ALL
        .into_iter()
        .find(|version| format == format!("md-{version}"));
    known.ok_or_else(|| {
        Problem::new(
            Code::Usage,
            format!("{format} is no format to convert to in place"),
        )
        .hint("these are:   md-1.2 md-1.1 md-1.0 md-0.90 gmirror gvinum")
        .hint("others are made onto new members:   --onto MEMBER...")
    })
}

/// Shows each step; gives the listener of the work.
fn shown<'a>(progress: &'a mut Progress, screen: &'a Screen) -> impl FnMut(Step) -> bool + 'a {
    let mut begun: Option<(Phase, u64, Instant)> = None;
    move |step| {
        // The rate is that of this run: what was copied before does not count.
        let (phase, from, since) = *begun.get_or_insert((step.phase, 0, Instant::now()));
        if phase != step.phase {
            begun = Some((step.phase, 0, Instant::now()));
        } else if from == 0 && since.elapsed().is_zero() {
            begun = Some((step.phase, step.done_bytes, since));
        }
        progress.show_own(step.phase.word(), step.done_bytes, step.total_bytes, since);
        if screen.is_json && screen.verbosity > 0 {
            let word = step.phase.word();
            let fields = json!({"phase": word, "done_bytes": step.done_bytes, "total_bytes": step.total_bytes});
            screen.object(&object("progress", None, fields));
        }
        true
    }
}

fn in_place(args: &Convert, goal: Goal, common: &Common, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let planned = runtime.block_on(plan_in_place(&handle, &args.members, goal));
    let plan = planned.map_err(|problem| match problem.code {
        Code::WrongState => problem.why("nothing was written").hint(format!(
            "to copy it:   plexum convert {} --to {} --onto MEMBER...",
            args.members.join(" "),
            args.to
        )),
        _ => problem,
    })?;
    if plan.make.is_empty() && plan.erase.is_empty() {
        screen.done(format!("{}: {} already", plan.name, plan.to));
        return Ok(0);
    }
    if common.dry_run {
        rehearse_members(&args.members)?;
        show(&plan, args, screen);
        return Ok(0);
    }
    let mut progress = Progress::new(screen);
    let noted = noted(common, Reverse::Allowed);
    let done = runtime.block_on(run_in_place(
        &handle,
        &args.members,
        goal,
        noted.as_ref(),
        &mut shown(&mut progress, screen),
    ));
    progress.finish();
    let (done, written) = done?;
    let details = json!({"from": done.from, "to": done.to, "size_bytes": done.volume_bytes, "is_in_place": true});
    screen.object(&object("converted", Some(&done.name), details));
    screen.done(format!("{}: {} is now {}", done.name, done.from, done.to));
    let words = args.members.join(" ");
    let write = match goal {
        Goal::Gmirror | Goal::Gvinum => "--write ",
        Goal::Md(_) => "",
    };
    screen.done(format!("to serve it:   plexum serve {write}{words}"));
    tell(&written, screen);
    tell_undo(&written, screen);
    Ok(0)
}

fn show(plan: &InPlace, args: &Convert, screen: &Screen) {
    let size = show_bytes(plan.volume_bytes);
    screen.line(format!(
        "convert {}: {} becomes {}, {size}, in place",
        plan.name, plan.from, plan.to
    ));
    let halves = [("write", &plan.make), ("erase", &plan.erase)];
    let mut steps = Vec::new();
    for (word, writes) in halves {
        for (index, write) in writes {
            let (member, at) = (&args.members[*index], write.at_bytes);
            let length = write.bytes.len();
            screen.line(format!("  {word} {length} bytes at byte {at} of {member}"));
            steps.push(
                json!({"step": word, "member": member, "at_bytes": at, "length_bytes": length}),
            );
        }
        if word == "write" && !writes.is_empty() {
            screen.line("  compare both volumes byte by byte");
        }
    }
    let details =
        json!({"from": plan.from, "to": plan.to, "size_bytes": plan.volume_bytes, "steps": steps});
    screen.object(&object("plan", Some(&plan.name), details));
}

/// Headers of before 2009 become current ones; what they head stays.
fn headers(args: &Convert, common: &Common, screen: &Screen) -> Outcome {
    let mut found = Vec::new();
    for member in &args.members {
        match examine_path(Path::new(member), member)?.foreign {
            Some(foreign @ Found::Drive(_)) => found.push(foreign),
            _ => {
                let text = format!("{member} is no Vinum drive");
                return Err(Problem::new(Code::WrongState, text)
                    .why("the header of a Vinum drive stands where other formats have theirs or data")
                    .hint(format!(
                        "to copy the volume:   plexum convert {} --to gvinum --onto MEMBER...",
                        args.members.join(" ")
                    )));
            }
        }
    }
    let found: Vec<&Found> = found.iter().collect();
    let system = system_of(&found)
        .map_err(|error| Problem::new(Code::DamagedMetadata, error.to_string()))?;
    let mut old = 0;
    for drive in &system.drives {
        let header = drive.header.as_ref();
        if header.is_none() {
            let text = format!("drive {} is not here", drive.name);
            return Err(Problem::new(Code::TooFewMembers, text)
                .hint("name all drives: each holds the configuration of all"));
        }
        if header.is_some_and(|header| header.format != HeaderFormat::Current) {
            screen.line(format!("{}: a header from before 2009", drive.device));
            old += 1;
        }
    }
    if old == 0 {
        screen.done("all headers are current already");
        return Ok(0);
    }
    let code = crate::gvinum::save(&system, &args.members, common, screen)?;
    if !common.dry_run {
        screen.done(format!("{old} headers were converted"));
    }
    Ok(code)
}

fn onto(args: &Convert, common: &Common, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let (from, to) = ends(args)?;
    let source = runtime.block_on(source_of(&handle, &from))?;
    let path = args
        .journal
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("plexum-convert-{}.journal", source.name)));
    let mut journal = match Journal::load(&path)? {
        Some(journal) => {
            check_journal(&journal, (&from, &to), &path)?;
            let (done, all) = (journal.copied_bytes, journal.size_bytes);
            screen.note(format!(
                "{} goes on: {} of {} are copied",
                path.display(),
                show_bytes(done),
                show_bytes(all)
            ));
            if common.dry_run {
                rehearse_members(&args.onto)?;
                return Ok(0);
            }
            journal
        }
        None => match begin(&source, (from, to), &path, args, common, screen)? {
            Some(journal) => journal,
            None => return Ok(0),
        },
    };
    let mut progress = Progress::new(screen);
    let copied = runtime.block_on(copy(
        &handle,
        &mut journal,
        &path,
        SAVE_BYTES,
        &mut shown(&mut progress, screen),
    ));
    progress.finish();
    copied.map_err(|problem| {
        problem.hint("to go on from where it is:   the same command once more")
    })?;
    let details = json!({"to": args.to, "size_bytes": source.size_bytes, "is_in_place": false});
    screen.object(&object("converted", Some(&source.name), details));
    let size = show_bytes(source.size_bytes);
    screen.done(format!("{}: {size} copied and compared", source.name));
    screen.done("the old members are as they were");
    Ok(0)
}

/// Makes the new volume, and the journal; `None` in a dry run.
fn begin(
    source: &Source,
    (from, to): (VolumeOnMembers, VolumeOnMembers),
    path: &Path,
    args: &Convert,
    common: &Common,
    screen: &Screen,
) -> Result<Option<Journal>, Problem> {
    match &to.volume {
        Some(name) => make_in_pool(name, source, args, common, screen)?,
        None => make(source, args, common, screen)?,
    }
    if common.dry_run {
        screen.line(format!(
            "  copy {} of {}, noted in {}, then compare",
            show_bytes(source.size_bytes),
            source.name,
            path.display()
        ));
        return Ok(None);
    }
    let journal = Journal {
        version: 1,
        source: from.members,
        volume: from.volume,
        target: to.members,
        target_volume: to.volume,
        size_bytes: source.size_bytes,
        phase: Phase::Copying,
        copied_bytes: 0,
    };
    journal.save(path)?;
    Ok(Some(journal))
}

/// The old volume and the new one; that of a pool has a name with a slash.
fn ends(args: &Convert) -> Result<(VolumeOnMembers, VolumeOnMembers), Problem> {
    let from = VolumeOnMembers {
        members: args.members.clone(),
        volume: args.volume.clone(),
    };
    let to = VolumeOnMembers {
        members: args.onto.clone(),
        volume: args.name.clone().filter(|_| args.to == "zfs"),
    };
    if args.to == "zfs" && to.dataset().is_none() {
        return Err(
            Problem::new(Code::Usage, "a volume of a pool has a name with a slash")
                .why("the pool is made before:   plexum pool create tank raidz2 MEMBER...")
                .hint("say which volume the copy becomes:   --name tank/vol"),
        );
    }
    if from.dataset().is_some() && args.to != "zfs" && args.level.is_none() {
        return Err(
            Problem::new(Code::Usage, "a volume of a pool has no level of its own")
                .hint("say which the new one has:   --level 6"),
        );
    }
    Ok((from, to))
}

fn check_journal(
    journal: &Journal,
    (from, to): (&VolumeOnMembers, &VolumeOnMembers),
    path: &Path,
) -> Result<(), Problem> {
    if journal.from() == *from && journal.to() == *to {
        return Ok(());
    }
    let shown = path.display();
    let text = format!("{shown} is about another conversion");
    let words =
        |place: VolumeOnMembers| [place.members, place.volume.into_iter().collect()].concat();
    Err(Problem::new(Code::WrongState, text)
        .why(format!(
            "it copies {} onto {}",
            words(journal.from()).join(" "),
            words(journal.to()).join(" ")
        ))
        .hint("give another name:   --journal FILE")
        .hint(format!("if that one is given up:   rm {shown}")))
}

/// Makes the new volume as `plexum pool create-volume` does.
fn make_in_pool(
    name: &str,
    source: &Source,
    args: &Convert,
    common: &Common,
    screen: &Screen,
) -> Result<(), Problem> {
    let create = CreateVolume {
        name: name.to_owned(),
        size: source.size_bytes.next_multiple_of(POOL_SIZE_BYTES),
        members: args.onto.clone(),
        block: None,
        force: false,
        trust: false,
    };
    crate::pool::make::create_volume(&create, common, screen).map(drop)
}

/// Makes the new volume as `plexum create` does.
fn make(source: &Source, args: &Convert, common: &Common, screen: &Screen) -> Result<(), Problem> {
    let name = args.name.as_deref().unwrap_or(&source.name);
    let level = args.level.as_deref().or(source.level.as_deref());
    let level = level.ok_or_else(|| Problem::new(Code::Bug, "a volume without a level"))?;
    let mut typed = vec![
        "plexum", "create", name, "--level", level, "--format", &args.to,
    ];
    let is_md = args.to.starts_with("md");
    let has_strips = !matches!(level, "1" | "raid1" | "mirror" | "linear");
    let fits = |strip: &u64| !is_md || strip.is_power_of_two() && *strip >= 4096;
    let strip = args.strip.or(source.strip_bytes.filter(fits));
    let strip = strip.map(|strip| strip.to_string());
    if let Some(strip) = strip.as_deref().filter(|_| has_strips) {
        typed.extend(["--strip", strip]);
    }
    let size = args.member_size.map(|size| size.to_string());
    if let Some(size) = size.as_deref() {
        typed.extend(["--member-size", size]);
    }
    if args.force {
        typed.push("--force");
    }
    typed.extend(args.onto.iter().map(String::as_str));
    let cli = <Cli as clap::Parser>::try_parse_from(typed)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
    let Command::Create(create) = cli.command else {
        return Err(Problem::new(Code::Bug, "create is create"));
    };
    let create = Create {
        size_min_bytes: Some(source.size_bytes),
        ..*create
    };
    crate::create::run(&create, common, screen).map(drop)
}
