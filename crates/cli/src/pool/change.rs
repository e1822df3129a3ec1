//! Words that change a pool: snapshots, volumes, members.
//!
//! Of a pool that nobody serves each opens it for writing, does its one thing, and leaves it as exported. Else it has
//! the server do it, which goes on with what takes long.

use plexum_daemon::pool_change::{Coming, PoolChange};
use plexum_daemon::pool_write::{PlannedMember, open_writable, wall_seconds};
use plexum_daemon::problem::{Code, Problem};
use plexum_pool::{Foreign, Task, UpkeepReport};
use serde_json::{Value, json};

use super::args::{Destroy, MemberChange, Name, NewName, Replace, Resize, Scrub};
use super::whose::{Served, Whose};
use crate::args::Common;
use crate::errors::Outcome;
use crate::history::{keep, noted};
use crate::offline::runtime;
use crate::output::{Screen, object};
use crate::plan::{Force, Found, Plan};
use crate::units::show_bytes;

/// A change that is not carried out yet.
pub(super) struct Asked<'a> {
    pub(super) command: &'static str,
    /// What it is about.
    pub(super) what: String,
    /// What is done, as a line for people.
    pub(super) done: String,
    /// The words in the place of members.
    pub(super) members: &'a [String],
    /// The volume or snapshot that is named.
    pub(super) of: Option<&'a str>,
    /// What is lost by it, besides what is on new members.
    pub(super) destroys: Vec<Found>,
    pub(super) force: Force,
    /// New members, and the size of those that are made.
    pub(super) new: (Vec<String>, Option<u64>),
    pub(super) details: Value,
    pub(super) change: PoolChange,
}

impl<'a> Asked<'a> {
    /// One that loses nothing and needs nobody.
    pub(super) fn of(
        change: PoolChange,
        (command, what): (&'static str, &str),
        members: &'a [String],
    ) -> Self {
        Self {
            command,
            what: what.to_owned(),
            done: String::new(),
            members,
            of: None,
            destroys: Vec::new(),
            force: Force::No,
            new: (Vec::new(), None),
            details: json!({"format": "zfs"}),
            change,
        }
    }
}

/// Has the change made, by whoever has the pool. In a dry run what would be refused is refused, and nothing is written.
/// Exit code 1 when something could not be given or repaired.
pub(super) fn carry_out(asked: Asked<'_>, common: &Common, screen: &Screen) -> Outcome {
    if let Some(lost) = asked.destroys.first().filter(|_| asked.force == Force::No) {
        let text = format!("{}: {} would be lost", lost.member, lost.what);
        return Err(Problem::new(Code::WouldDestroy, text).hint("to agree, add:   --force"));
    }
    match Whose::find(asked.members, asked.of)? {
        Whose::Nobody(members) => alone(asked, &members, common, screen),
        Whose::Server(served) => by_server(&asked, &served, common, screen),
    }
}

fn plan_of(asked: &Asked<'_>, destroys: Vec<Found>) -> Plan {
    Plan {
        command: asked.command,
        volume: asked.what.clone(),
        lines: vec![asked.done.clone()],
        details: asked.details.clone(),
        destroys,
    }
}

/// Opens the pool, makes the change, exports the pool.
fn alone(mut asked: Asked<'_>, members: &[String], common: &Common, screen: &Screen) -> Outcome {
    let mut destroys = std::mem::take(&mut asked.destroys);
    let (new, size) = &asked.new;
    let seen = look(new, *size)?;
    destroys.extend(seen.destroys);
    if !new.is_empty() {
        asked.details["size_bytes"] = seen.size_bytes.into();
    }
    let plan = plan_of(&asked, destroys);
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let is_refused = !plan.destroys.is_empty() && asked.force == Force::No;
    if !common.dry_run || is_refused {
        plan.confirm(common, asked.force, screen)?;
    }
    if common.dry_run {
        handle.rehearse();
    }
    let (made, report) = runtime.block_on(async {
        let trust = false.into();
        let mut pool = open_writable(&handle, members, Foreign::Refused, trust).await?;
        if common.dry_run {
            let made = asked.change.rehearse(&handle, &mut pool).await?;
            return Ok::<_, Problem>((made, None));
        }
        let done = asked.change.carry_out(&handle, &mut pool).await?;
        pool.export(wall_seconds()?).await?;
        Ok(done)
    })?;
    if common.dry_run {
        plan.confirm(common, asked.force, screen)?;
        return Ok(0);
    }
    keep(
        noted(common, plexum_daemon::changes::Reverse::Refused),
        screen,
    );
    let walked = report.as_ref().map(|report| tell_lost(report, screen));
    let mut details = asked.details;
    for found in [Some(made), walked].into_iter().flatten() {
        extend(&mut details, found);
    }
    screen.object(&object(asked.command, Some(&asked.what), details));
    screen.done(asked.done);
    Ok(u8::from(report.is_some_and(|report| report.lost_count > 0)))
}

fn extend(details: &mut Value, more: Value) {
    if let (Some(details), Value::Object(more)) = (details.as_object_mut(), more) {
        details.extend(more);
    }
}

/// Has the server make it.
fn by_server(asked: &Asked<'_>, served: &Served, common: &Common, screen: &Screen) -> Outcome {
    // What is on new members the server looks at: it may see more of them.
    let plan = plan_of(asked, asked.destroys.clone());
    if common.dry_run {
        served.rehearse(&asked.change)?;
    }
    plan.confirm(common, asked.force, screen)?;
    if common.dry_run {
        return Ok(0);
    }
    let told = served.change(&asked.change, common.why.as_deref())?;
    let goes_on = told["goes_on"].as_bool() == Some(true);
    let mut details = asked.details.clone();
    extend(&mut details, told);
    screen.object(&object(asked.command, Some(&asked.what), details));
    if !goes_on {
        screen.done(&asked.done);
        return Ok(0);
    }
    screen.done(format!("{}: begun", asked.what));
    if let Some(volume) = served.a_volume() {
        screen.done(format!("how far it is:   plexum status {volume}"));
    }
    Ok(0)
}

/// Runs `pool snapshot`.
///
/// # Errors
/// Of opening the pool; why the snapshot cannot be taken.
pub fn snapshot(args: &Name, common: &Common, screen: &Screen) -> Outcome {
    let name = &args.name;
    let change = PoolChange::Snapshot { name: name.clone() };
    let asked = Asked {
        done: format!("{name}: taken"),
        of: Some(name),
        ..Asked::of(change, ("pool snapshot", name), &args.members)
    };
    carry_out(asked, common, screen)
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
    let name = args.name.clone();
    let (command, what, done) = match which {
        Destruction::Snapshot => ("pool destroy-snapshot", "the snapshot", "destroyed"),
        Destruction::Volume => ("pool destroy-volume", "the volume", "destroyed"),
        Destruction::Rollback => (
            "pool rollback",
            "all that was written since",
            "what it was is there again",
        ),
    };
    let change = match which {
        Destruction::Snapshot => PoolChange::DestroySnapshot { name },
        Destruction::Volume => PoolChange::DestroyVolume { name },
        Destruction::Rollback => PoolChange::Rollback { name },
    };
    let name = &args.name;
    let asked = Asked {
        done: format!("{name}: {done}"),
        of: Some(name),
        destroys: vec![Found {
            member: name.clone(),
            what: what.to_owned(),
        }],
        force: args.force.into(),
        ..Asked::of(change, (command, name), &args.members)
    };
    carry_out(asked, common, screen)
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
    let (old, new) = (args.old.clone(), args.new.clone());
    let (command, done, change) = match which {
        Naming::Clone => (
            "pool clone",
            format!("{new}: volume made of {old}"),
            PoolChange::Clone { old, new },
        ),
        Naming::Rename => (
            "pool rename",
            format!("{old} is called {new} now"),
            PoolChange::Rename { old, new },
        ),
    };
    let asked = Asked {
        done,
        of: Some(&args.old),
        details: json!({"format": "zfs", "from": args.old}),
        ..Asked::of(change, (command, &args.new), &args.members)
    };
    carry_out(asked, common, screen)
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
    let change = PoolChange::Resize {
        name: name.clone(),
        size_bytes: size,
        shrink: args.shrink,
    };
    let asked = Asked {
        done: format!("{name}: {} now", show_bytes(size)),
        of: Some(name),
        destroys: destroys.into_iter().collect(),
        force: args.shrink.into(),
        details: json!({"format": "zfs", "size_bytes": size}),
        ..Asked::of(change, ("pool resize", name), &args.members)
    };
    carry_out(asked, common, screen)
}

/// A word about a member.
#[derive(Clone, Copy)]
pub enum MemberWord {
    /// It is not written from now on.
    Offline,
    /// It is written again, and given what it missed.
    Online,
}

/// Runs `pool offline` and `pool online`. Exit code 1 when the member could not be given everything.
///
/// # Errors
/// Of opening the pool; why it cannot be done.
pub fn member(which: MemberWord, args: &MemberChange, common: &Common, screen: &Screen) -> Outcome {
    let member = args.member.clone();
    let (command, done, change) = match which {
        MemberWord::Offline => (
            "pool offline",
            "not written from now on",
            PoolChange::Offline { member },
        ),
        MemberWord::Online => (
            "pool online",
            "written again, with all that it missed",
            PoolChange::Online { member },
        ),
    };
    let word = &args.member;
    let asked = Asked {
        done: format!("{word}: {done}"),
        ..Asked::of(change, (command, word), &args.members)
    };
    carry_out(asked, common, screen)
}

pub(super) fn tell_lost(report: &UpkeepReport, screen: &Screen) -> Value {
    for lost in &report.lost {
        screen.note(lost);
    }
    json!({"blocks": report.blocks, "checked_bytes": report.bytes, "repaired_bytes": report.repaired_bytes,
        "lost": report.lost_count})
}

/// What was seen of members that are to come.
struct Seen {
    /// What is on them, and would be lost.
    destroys: Vec<Found>,
    /// How large they are together.
    size_bytes: u64,
}

/// Looks at members that are to come, without writing to them.
///
/// # Errors
/// Of opening and reading them.
fn look(words: &[String], size: Option<u64>) -> Result<Seen, Problem> {
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

impl super::args::Coming {
    /// As the change has it.
    pub(super) fn change(&self) -> Coming {
        Coming {
            new: self.new.clone(),
            member_size_bytes: self.member_size,
            force: self.force,
        }
    }
}

/// Runs `pool replace`. Exit code 1 when the new member could not be given everything.
///
/// # Errors
/// `WouldDestroy` when something is on the new member; of opening; why it cannot be done.
pub fn replace(args: &Replace, common: &Common, screen: &Screen) -> Outcome {
    let (old, coming) = (&args.old, &args.coming);
    let new = &coming.new;
    let change = PoolChange::Replace {
        old: old.clone(),
        coming: coming.change(),
    };
    let asked = Asked {
        done: format!("{new} is a member in the place of {old}"),
        force: coming.force.into(),
        new: (vec![new.clone()], coming.member_size),
        details: json!({"format": "zfs", "from": old}),
        ..Asked::of(change, ("pool replace", new), &coming.members)
    };
    carry_out(asked, common, screen)
}

/// Runs `pool scrub --repair`. Exit code 1 when something could not be repaired.
///
/// # Errors
/// Of opening the pool, and of writing to it.
pub fn scrub(args: &Scrub, common: &Common, screen: &Screen) -> Outcome {
    let members = match Whose::find(&args.source.members, None)? {
        Whose::Nobody(members) => members,
        Whose::Server(served) => {
            let asked = Asked {
                done: "checked, and what is wrong repaired".into(),
                ..Asked::of(PoolChange::Scrub, ("pool scrub", served.name()), &[])
            };
            return by_server(&asked, &served, common, screen);
        }
    };
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    if common.dry_run {
        handle.rehearse();
    }
    let (name, report) = runtime.block_on(async {
        let mut pool = open_writable(&handle, &members, Foreign::Refused, true.into()).await?;
        let name = pool.name().to_owned();
        if common.dry_run {
            return Ok::<_, Problem>((name, None));
        }
        let wall_s = wall_seconds()?;
        pool.begin(wall_s).await?;
        if !pool.members_behind().is_empty() {
            let report = pool.walk_all(Task::Rebuild, &mut |_| {}).await?;
            tell_lost(&report, screen);
        }
        let report = pool.walk_all(Task::Scrub, &mut |_| {}).await?;
        pool.export(wall_seconds()?).await?;
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
