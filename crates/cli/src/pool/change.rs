//! Words that change a pool that is not served: snapshots, volumes, members.
//!
//! Each opens the pool for writing, does its one thing, and leaves the pool as exported.

use plexum_daemon::open::AnyDevice;
use plexum_daemon::pool_write::{
    PlannedMember, of_pool, open_writable, random_seed, replace_member, wall_seconds,
};
use plexum_daemon::problem::Problem;
use plexum_pool::{Foreign, Now, PoolError, Shrink, Task, UpkeepReport, WritablePool};
use plexum_runtime::Handle;
use serde_json::{Value, json};

use super::args::{Destroy, MemberChange, Name, NewName, Replace, Resize, Scrub};
use crate::args::Common;
use crate::errors::Outcome;
use crate::history::{keep, noted};
use crate::offline::runtime;
use crate::output::{Screen, object};
use crate::plan::{Force, Found, Plan};
use crate::units::show_bytes;

pub(super) type Writable = WritablePool<AnyDevice>;

/// A change that is not carried out yet.
pub(super) struct Change<'a> {
    pub(super) command: &'static str,
    /// What it is about.
    pub(super) what: String,
    /// What is done, as a line for people.
    pub(super) done: String,
    pub(super) members: &'a [String],
    /// What is lost by it.
    pub(super) destroys: Vec<Found>,
    pub(super) details: Value,
}

/// What a command was asked with.
pub(super) struct Asked<'a> {
    pub(super) common: &'a Common,
    pub(super) screen: &'a Screen,
    pub(super) force: Force,
}

/// Opens the pool, makes the change, exports the pool. In a dry run what would be refused is refused, and nothing is
/// written.
pub(super) fn carry_out(
    change: Change<'_>,
    asked: &Asked<'_>,
    work: impl AsyncFnOnce(&Handle, &mut Writable, Now) -> Result<Value, Problem>,
) -> Outcome {
    let Asked {
        common,
        screen,
        force,
    } = *asked;
    let plan = Plan {
        command: change.command,
        volume: change.what.clone(),
        lines: vec![change.done.clone()],
        details: change.details.clone(),
        destroys: change.destroys,
    };
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let is_refused = !plan.destroys.is_empty() && force == Force::No;
    if !common.dry_run || is_refused {
        plan.confirm(common, force, screen)?;
    }
    if common.dry_run {
        handle.rehearse();
    }
    let found = runtime.block_on(async {
        let trust = false.into();
        let mut pool = open_writable(&handle, change.members, Foreign::Refused, trust).await?;
        let now = Now {
            wall_s: wall_seconds()?,
            seed: random_seed()?,
        };
        let found = work(&handle, &mut pool, now).await?;
        let exported = pool.export(now.wall_s).await;
        exported.map_err(|error| of_pool(&error))?;
        Ok::<_, Problem>(found)
    })?;
    if common.dry_run {
        plan.confirm(common, force, screen)?;
        return Ok(0);
    }
    keep(
        noted(common, plexum_daemon::changes::Reverse::Refused),
        screen,
    );
    let mut details = change.details;
    if let (Some(details), Value::Object(found)) = (details.as_object_mut(), found) {
        details.extend(found);
    }
    screen.object(&object(change.command, Some(&change.what), details));
    screen.done(change.done);
    Ok(0)
}

pub(super) fn problem<T>(result: Result<T, PoolError>) -> Result<T, Problem> {
    result.map_err(|error| of_pool(&error))
}

/// Runs `pool snapshot`.
///
/// # Errors
/// Of opening the pool; why the snapshot cannot be taken.
pub fn snapshot(args: &Name, common: &Common, screen: &Screen) -> Outcome {
    let name = &args.name;
    let change = Change {
        command: "pool snapshot",
        what: name.clone(),
        done: format!("{name}: taken"),
        members: &args.members,
        destroys: Vec::new(),
        details: json!({"format": "zfs"}),
    };
    let asked = asked(common, screen);
    carry_out(change, &asked, async |_, pool, now| {
        problem(pool.snapshot(name, now).await)?;
        Ok(json!({}))
    })
}

pub(super) fn asked<'a>(common: &'a Common, screen: &'a Screen) -> Asked<'a> {
    Asked {
        common,
        screen,
        force: Force::No,
    }
}

/// What a word of destruction destroys.
#[derive(Clone, Copy)]
pub enum Destruction {
    /// A snapshot.
    Snapshot,
    /// A volume.
    Volume,
    /// What was written since a snapshot.
    Rollback,
}

/// Runs `pool destroy-snapshot`, `pool destroy-volume` and `pool rollback`.
///
/// # Errors
/// `WouldDestroy` without `--force`; of opening the pool; why it cannot be done.
pub fn destroy(which: Destruction, args: &Destroy, common: &Common, screen: &Screen) -> Outcome {
    let name = &args.name;
    let (command, what, done) = match which {
        Destruction::Snapshot => ("pool destroy-snapshot", "the snapshot", "destroyed"),
        Destruction::Volume => ("pool destroy-volume", "the volume", "destroyed"),
        Destruction::Rollback => (
            "pool rollback",
            "all that was written since",
            "what it was is there again",
        ),
    };
    let change = Change {
        command,
        what: name.clone(),
        done: format!("{name}: {done}"),
        members: &args.members,
        destroys: vec![Found {
            member: name.clone(),
            what: what.to_owned(),
        }],
        details: json!({"format": "zfs"}),
    };
    let asked = Asked {
        force: args.force.into(),
        ..asked(common, screen)
    };
    carry_out(change, &asked, async |_, pool, now| {
        let result = match which {
            Destruction::Snapshot => pool.destroy_snapshot(name, now.wall_s).await,
            Destruction::Volume => pool.destroy_volume(name, now.wall_s).await,
            Destruction::Rollback => pool.rollback(name, now.wall_s).await,
        };
        problem(result)?;
        Ok(json!({}))
    })
}

/// A word that gives something a name.
#[derive(Clone, Copy)]
pub enum Naming {
    /// A volume is made of a snapshot.
    Clone,
    /// A volume or a snapshot gets another name.
    Rename,
}

/// Runs `pool clone` and `pool rename`.
///
/// # Errors
/// Of opening the pool; why it cannot be done.
pub fn name(which: Naming, args: &NewName, common: &Common, screen: &Screen) -> Outcome {
    let (old, new) = (&args.old, &args.new);
    let (command, done) = match which {
        Naming::Clone => ("pool clone", format!("{new}: volume made of {old}")),
        Naming::Rename => ("pool rename", format!("{old} is called {new} now")),
    };
    let change = Change {
        command,
        what: new.clone(),
        done,
        members: &args.members,
        destroys: Vec::new(),
        details: json!({"format": "zfs", "from": old}),
    };
    carry_out(change, &asked(common, screen), async |_, pool, now| {
        let result = match which {
            Naming::Clone => pool.clone_snapshot(old, new, now).await,
            Naming::Rename => pool.rename(old, new, now.wall_s).await,
        };
        problem(result)?;
        Ok(json!({}))
    })
}

/// Runs `pool resize`.
///
/// # Errors
/// Of opening the pool; why the volume cannot have this size.
pub fn resize(args: &Resize, common: &Common, screen: &Screen) -> Outcome {
    let (name, size) = (&args.name, args.size);
    let destroys = args.shrink.then(|| Found {
        member: name.clone(),
        what: format!("what is behind {}, if it is larger", show_bytes(size)),
    });
    let change = Change {
        command: "pool resize",
        what: name.clone(),
        done: format!("{name}: {} now", show_bytes(size)),
        members: &args.members,
        destroys: destroys.into_iter().collect(),
        details: json!({"format": "zfs", "size_bytes": size}),
    };
    let asked = Asked {
        force: args.shrink.into(),
        ..asked(common, screen)
    };
    let shrink = match args.shrink {
        true => Shrink::Accepted,
        false => Shrink::Refused,
    };
    carry_out(change, &asked, async |_, pool, now| {
        problem(pool.resize(name, size, shrink, now.wall_s).await)?;
        Ok(json!({}))
    })
}

/// A word about a member.
#[derive(Clone, Copy)]
pub enum MemberWord {
    /// It is not written from now on.
    Offline,
    /// It is written again, and given what it missed.
    Online,
}

/// Runs `pool offline` and `pool online`.
///
/// # Errors
/// Of opening the pool; why it cannot be done.
pub fn member(which: MemberWord, args: &MemberChange, common: &Common, screen: &Screen) -> Outcome {
    let word = &args.member;
    let (command, done) = match which {
        MemberWord::Offline => ("pool offline", "not written from now on"),
        MemberWord::Online => ("pool online", "written again, with all that it missed"),
    };
    let change = Change {
        command,
        what: word.clone(),
        done: format!("{word}: {done}"),
        members: &args.members,
        destroys: Vec::new(),
        details: json!({"format": "zfs"}),
    };
    let is_dry = common.dry_run;
    carry_out(
        change,
        &asked(common, screen),
        async |_, pool, now| match which {
            MemberWord::Offline => {
                problem(pool.offline(word, now.wall_s).await)?;
                Ok(json!({}))
            }
            MemberWord::Online => {
                problem(pool.online(word, now.wall_s).await)?;
                if is_dry {
                    return Ok(json!({}));
                }
                let report = problem(pool.walk_all(Task::Rebuild, &mut |_| {}).await)?;
                Ok(tell_lost(&report, screen))
            }
        },
    )
}

pub(super) fn tell_lost(report: &UpkeepReport, screen: &Screen) -> Value {
    for lost in &report.lost {
        screen.note(lost);
    }
    json!({"blocks": report.blocks, "checked_bytes": report.bytes, "repaired_bytes": report.repaired_bytes,
        "lost": report.lost_count})
}

/// What was seen of members that are to come.
pub(super) struct Seen {
    /// What is on them, and would be lost.
    pub(super) destroys: Vec<Found>,
    /// How large they are together.
    pub(super) size_bytes: u64,
}

/// Looks at members that are to come, without writing to them.
///
/// # Errors
/// Of opening and reading them.
pub(super) fn look(words: &[String], size: Option<u64>) -> Result<Seen, Problem> {
    let mut looking = runtime()?;
    let handle = looking.handle();
    handle.rehearse();
    let mut seen = Seen {
        destroys: Vec::new(),
        size_bytes: 0,
    };
    for word in words {
        let planned = looking.block_on(PlannedMember::prepare(&handle, word, size))?;
        seen.size_bytes += planned.size_bytes;
        seen.destroys
            .extend(planned.found.iter().map(|found| Found {
                member: word.clone(),
                what: found.what.clone(),
            }));
    }
    Ok(seen)
}

/// Runs `pool replace`.
///
/// # Errors
/// `WouldDestroy` when something is on the new member; of opening; why it cannot be done.
pub fn replace(args: &Replace, common: &Common, screen: &Screen) -> Outcome {
    let (old, coming) = (&args.old, &args.coming);
    let new = &coming.new;
    let seen = look(std::slice::from_ref(new), coming.member_size)?;
    let change = Change {
        command: "pool replace",
        what: new.clone(),
        done: format!("{new} is a member in the place of {old}"),
        members: &coming.members,
        destroys: seen.destroys,
        details: json!({"format": "zfs", "from": old, "size_bytes": seen.size_bytes}),
    };
    let asked = Asked {
        force: coming.force.into(),
        ..asked(common, screen)
    };
    let (size, is_dry) = (coming.member_size, common.dry_run);
    carry_out(change, &asked, async |handle, pool, _| {
        let planned = PlannedMember::prepare(handle, new, size).await?;
        if is_dry {
            problem(pool.check_replace(old, new, planned.size_bytes))?;
            return Ok(json!({}));
        }
        let mut quiet = |_: &UpkeepReport| {};
        let report = replace_member(handle, pool, old, planned, &mut quiet).await?;
        Ok(tell_lost(&report, screen))
    })
}

/// Runs `pool scrub --repair`. Exit code 1 when something could not be repaired.
///
/// # Errors
/// Of opening the pool, and of writing to it.
pub fn scrub(args: &Scrub, common: &Common, screen: &Screen) -> Outcome {
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let members = &args.source.members;
    if common.dry_run {
        handle.rehearse();
    }
    let (name, report) = runtime.block_on(async {
        let mut pool = open_writable(&handle, members, Foreign::Refused, true.into()).await?;
        let name = pool.name().to_owned();
        if common.dry_run {
            return Ok::<_, Problem>((name, None));
        }
        let wall_s = wall_seconds()?;
        problem(pool.begin(wall_s).await)?;
        if !pool.members_behind().is_empty() {
            let report = problem(pool.walk_all(Task::Rebuild, &mut |_| {}).await)?;
            tell_lost(&report, screen);
        }
        let report = problem(pool.walk_all(Task::Scrub, &mut |_| {}).await)?;
        problem(pool.export(wall_seconds()?).await)?;
        Ok((name, Some(report)))
    })?;
    let Some(report) = report else {
        screen.line(format!("would check {name}, and repair what is wrong"));
        let mut plan = object("plan", Some(&name), json!({"format": "zfs"}));
        plan["command"] = "pool scrub".into();
        screen.object(&plan);
        return Ok(0);
    };
    let details = tell_lost(&report, screen);
    screen.object(&object("pool_scrub", Some(&name), details));
    screen.line(format!(
        "{name}: checked {} in {} blocks, repaired {}, lost {} blocks",
        show_bytes(report.bytes),
        report.blocks,
        show_bytes(report.repaired_bytes),
        report.lost_count
    ));
    Ok(u8::from(report.lost_count > 0))
}
