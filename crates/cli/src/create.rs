//! `plexum create`: from the words of the command line to a plan, and from the plan to metadata on members.

use plexum_daemon::claims::{Claim, blkid_uuid, claim_for_now};
use plexum_daemon::create::{CreateRequest, Creation, PlannedMember, Start, this_host};
use plexum_daemon::problem::{Code, Problem};
use plexum_engine::balance::Policy;
use plexum_format::md::MdVersion;
use plexum_layout::{Level, Organisation};
use plexum_runtime::file::Access;

use crate::args::{Common, Create};
use crate::control::runtime_dir;
use crate::daemon_client::Daemon;
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::{Screen, object, table};
use crate::plan::{Found, Plan, Verdict, check_size};
use crate::units::show_bytes;

/// Runs the command.
///
/// # Errors
/// `Usage`, and everything that `Creation::prepare` and `carry_out` refuse.
pub fn run(args: &Create, common: &Common, screen: &Screen) -> Outcome {
    if let Some(request) = crate::foreign::create_request(args)? {
        if args.is_trial {
            return Err(usage("--try is for the formats of md"));
        }
        return crate::foreign::create(&request, args, common, screen);
    }
    let request = request(args)?;
    if args.is_trial {
        return crate::trial::run(args, request, common, screen);
    }
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let preparing = Creation::prepare(&handle, &request, Access::ReadWrite);
    let creation = runtime.block_on(preparing)?;
    check_size(args, creation.volume_bytes)?;
    let plan = plan(&creation);
    if !screen.is_json {
        for note in &creation.notes {
            screen.note(note);
        }
    }
    if plan.confirm(common, args.force.into(), screen)? == Verdict::OnlyShown {
        return Ok(0);
    }
    let report = object("created", Some(&creation.name), plan.details.clone());
    let words = serve_words(&creation);
    let (name, organisation) = (creation.name.clone(), creation.organisation.clone());
    let size = show_bytes(creation.volume_bytes);
    let start = start_words(creation.start);
    let is_assumed = creation.start == Start::AssumedClean;
    keep_from_md(&creation);
    runtime.block_on(creation.carry_out(&handle))?;
    screen.object(&report);
    screen.done(format!("{name}: {organisation}, {size}; {start}"));
    if is_assumed {
        screen.done(format!(
            "to look at it, without a change:   plexum serve --read-only {words}"
        ));
    }
    screen.done(format!("to serve it:   plexum serve {words}"));
    Ok(0)
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

fn not_yet(text: impl Into<String>) -> Problem {
    Problem::new(Code::NotYet, text)
}

fn request(args: &Create) -> Result<CreateRequest, Problem> {
    let name = args.name.clone().unwrap_or_default();
    let looks_like_path = name.contains('/') || name.ends_with(".img");
    if looks_like_path {
        return Err(usage(format!(
            "the name of the volume comes first, {name} looks like a member"
        ))
        .hint(format!(
            "for example:   plexum create nas --level 5 {name} ..."
        )));
    }
    let level: Level = parse(args.level.as_deref().unwrap_or_default())?;
    let organisation = Organisation::from_words(level, args.layout.as_deref())
        .map_err(|error| usage(error.to_string()))?;
    check_balance(args, level)?;
    let has_bitmap = has_bitmap(args, level)?;
    let has_log = level.has_parity() && matches!(args.consistency.as_deref(), None | Some("log"));
    if args.log.is_some() && !has_log {
        return Err(usage("--log goes with --consistency log"));
    }
    Ok(CreateRequest {
        name,
        homehost: args.homehost.clone().unwrap_or_else(this_host),
        organisation,
        members: args.members.clone(),
        spares: args.spare.clone(),
        strip_bytes: args.strip,
        size_bytes: args.size,
        member_size_bytes: args.member_size,
        data_offset_bytes: args.data_offset,
        version: version(&args.format)?,
        has_bitmap,
        region_bytes: args.bitmap_region,
        has_log,
        is_write_back: args.log.as_deref() == Some("write-back"),
        has_ppl: args.consistency.as_deref() == Some("ppl"),
        write_mostly: args.write_mostly.clone(),
        is_assume_clean: args.assume_clean,
        is_forced: args.force,
    })
}

fn parse(word: &str) -> Result<Level, Problem> {
    let problem = match word.parse::<Level>() {
        Ok(level) => return Ok(level),
        Err(error) => usage(error.to_string()),
    };
    Err(match word.to_ascii_lowercase().as_str() {
        "raidz" | "raidz1" => problem.hint("the nearest to raidz here:   --level 5"),
        "raidz2" => problem.hint("the nearest to raidz2 here:   --level 6"),
        "raidz3" => {
            problem.hint("three parities come with the pool; the nearest here:   --level 6")
        }
        "1+0" | "01" | "0+1" | "1e" => problem.hint("for striped mirrors:   --level 10"),
        _ => problem,
    })
}

fn version(format: &str) -> Result<MdVersion, Problem> {
    Ok(match format.to_ascii_lowercase().as_str() {
        "md-1.2" | "1.2" | "md" | "1" => MdVersion::V12,
        "md-1.1" | "1.1" => MdVersion::V11,
        "md-1.0" | "1.0" => MdVersion::V10,
        "md-0.90" | "0.90" | "0" => MdVersion::V090,
        _ => {
            return Err(usage(format!("{format} is no format")).hint(
                "formats are:   md-1.2 md-1.1 md-1.0 md-0.90 gmirror gstripe gconcat gvinum",
            ));
        }
    })
}

/// A policy is a setting of the server; it is checked here so that a mistake shows at once.
fn check_balance(args: &Create, level: Level) -> Result<(), Problem> {
    let Some(word) = &args.balance else {
        return Ok(());
    };
    word.parse::<Policy>()
        .map_err(|error| usage(error.to_string()))?;
    if !matches!(level, Level::Raid1 | Level::Raid10) {
        return Err(usage(format!(
            "{level} has no copies to balance reads between"
        )));
    }
    Err(
        not_yet("md metadata has no place for a balance policy").hint(format!(
            "give it to the server:   plexum serve --balance {word} MEMBER..."
        )),
    )
}

fn check_log(args: &Create) -> Result<(), Problem> {
    match args.log.as_deref() {
        None | Some("write-through" | "write-back") => Ok(()),
        Some(other) => Err(usage(format!(
            "--log {other}: it is write-through or write-back"
        ))),
    }
}

fn has_bitmap(args: &Create, level: Level) -> Result<bool, Problem> {
    let wanted = match args.bitmap.as_deref() {
        None => None,
        Some("internal") => Some(true),
        Some("none") => Some(false),
        Some(other) => {
            return Err(usage(format!("--bitmap {other}: it is internal or none"))
                .why("bitmaps in files of their own are not supported"));
        }
    };
    check_log(args)?;
    if !level.has_redundancy() {
        if wanted == Some(true) || args.consistency.is_some() {
            return Err(
                usage(format!("{level} has no redundancy, so nothing can differ"))
                    .hint("leave out --bitmap and --consistency"),
            );
        }
        return Ok(false);
    }
    let has_region = args.bitmap_region.is_some();
    let result = match (args.consistency.as_deref(), wanted) {
        (None, wanted) => wanted.unwrap_or(true),
        (Some("bitmap"), Some(false)) => {
            return Err(usage(
                "--consistency bitmap and --bitmap none contradict each other",
            ));
        }
        (Some("bitmap"), _) => true,
        (Some("resync"), Some(true)) => {
            return Err(usage(
                "--consistency resync and --bitmap internal contradict each other",
            ));
        }
        (Some("resync"), _) => false,
        (Some("ppl"), Some(true)) => {
            return Err(usage("ppl excludes the bitmap").hint("leave out --bitmap internal"));
        }
        (Some("ppl"), _) if level != Level::Raid5 => {
            return Err(usage(format!("ppl is for level 5, not for {level}")));
        }
        (Some("ppl"), _) if args.format.contains("0.90") => {
            return Err(usage("md-0.90 has no place for ppl"));
        }
        (Some("ppl"), _) => false,
        (Some("log"), _) if !level.has_parity() => {
            return Err(usage(format!(
                "the stripe log is for parity, not for {level}"
            )));
        }
        (Some("log"), wanted) => wanted.unwrap_or(true),
        (Some(other), _) => {
            return Err(usage(format!(
                "--consistency {other}: it is log, ppl, bitmap or resync"
            )));
        }
    };
    if has_region && !result {
        return Err(usage("--bitmap-region without a bitmap"));
    }
    Ok(result)
}

/// Claims the set while a daemon runs: udev hears of the new superblocks as soon as the members are closed, and md
/// would have them before the daemon is given them.
fn keep_from_md(creation: &Creation) {
    if let (true, Some(uuid)) = (Daemon::find().is_some(), blkid_uuid(&creation.uuid)) {
        let volume = creation.name.clone();
        // Without it the set is made all the same.
        let _ = claim_for_now(&runtime_dir(), &Claim { uuid, volume });
    }
}

fn plan(creation: &Creation) -> Plan {
    let mut lines = vec![format!(
        "create {}: {}, {}, {}",
        creation.name,
        creation.organisation,
        creation.format,
        show_bytes(creation.volume_bytes)
    )];
    let mut facts = Vec::new();
    if creation.strip_bytes > 0 {
        facts.push(format!("strip {}", show_bytes(creation.strip_bytes)));
    }
    if creation.component_bytes > 0 {
        facts.push(format!(
            "{} of each member",
            show_bytes(creation.component_bytes)
        ));
    }
    facts.push(match creation.region_bytes {
        Some(bytes) => format!("bitmap with regions of {}", show_bytes(bytes)),
        None => "no bitmap".into(),
    });
    facts.push(start_words(creation.start).into());
    lines.push(format!("  {}", facts.join(", ")));
    let mut rows = vec![
        ["SLOT", "MEMBER", "SIZE", "WHAT IS DONE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for member in &creation.members {
        let slot = member
            .slot
            .map_or("spare".to_owned(), |slot| slot.to_string());
        let size = match member.size_bytes {
            0 => "-".to_owned(),
            bytes => show_bytes(bytes),
        };
        rows.push(vec![
            slot,
            member.member.clone(),
            size,
            deed(member).to_owned(),
        ]);
    }
    lines.extend(table(&rows).into_iter().map(|line| format!("  {line}")));
    Plan {
        command: "create",
        volume: creation.name.clone(),
        lines,
        details: serde_json::to_value(creation).unwrap_or_default(),
        destroys: creation
            .destroys()
            .map(|(member, found)| Found {
                member: member.to_owned(),
                what: found.what.clone(),
            })
            .collect(),
    }
}

fn deed(member: &PlannedMember) -> &'static str {
    match (member.is_missing, member.is_new, member.found.is_empty()) {
        (true, ..) => "stays empty",
        (_, true, _) => "made as a sparse file",
        (_, _, true) => "blank, metadata is written",
        (_, _, false) => "OVERWRITTEN",
    }
}

fn start_words(start: Start) -> &'static str {
    match start {
        Start::NothingToCompare => "no first resync (nothing to compare)",
        Start::AllZero => "no first resync (members are all zero)",
        Start::AssumedClean => "no first resync (as you say)",
        Start::Resync => "a first resync runs while it is served",
        Start::Rebuild => "one member is filled from the others while it is served",
    }
}

fn serve_words(creation: &Creation) -> String {
    let words: Vec<&str> = creation
        .members
        .iter()
        .filter(|member| !member.is_missing)
        .map(|member| member.member.as_str())
        .collect();
    words.join(" ")
}
