//! Words that give a pool more members, or take a side of a mirror away: `attach`, `detach`, `add`.

use plexum_daemon::pool_write::{PlannedMember, add_group, attach_member};
use plexum_pool::{Mixed, Task};
use serde_json::json;

use super::args::{Add, Attach, MemberChange};
use super::change::{Asked, Change, asked, carry_out, look, problem, tell_lost};
use super::make::groups;
use crate::args::Common;
use crate::errors::Outcome;
use crate::output::Screen;
use plexum_daemon::problem::{Code, Problem};

/// Runs `pool attach`. Exit code 1 when the new side could not be given everything.
///
/// # Errors
/// `WouldDestroy` when something is on the new member; of opening; why it cannot be done.
pub fn attach(args: &Attach, common: &Common, screen: &Screen) -> Outcome {
    let (old, coming) = (&args.old, &args.coming);
    let new = &coming.new;
    let change = Change {
        command: "pool attach",
        what: new.clone(),
        done: format!("{new} is a side of the mirror of {old}"),
        members: &coming.members,
        destroys: look(std::slice::from_ref(new), coming.member_size)?.destroys,
        details: json!({"format": "zfs", "beside": old}),
    };
    let asked = Asked {
        force: coming.force.into(),
        ..asked(common, screen)
    };
    let (size, is_dry) = (coming.member_size, common.dry_run);
    carry_out(change, &asked, async |handle, pool, now| {
        let planned = PlannedMember::prepare(handle, new, size).await?;
        problem(pool.check_attach(old, new, planned.size_bytes))?;
        if is_dry {
            return Ok(json!({}));
        }
        attach_member(handle, pool, old, planned, now).await?;
        let report = problem(pool.walk_all(Task::Rebuild, &mut |_| {}).await)?;
        Ok(tell_lost(&report, screen))
    })
}

/// Runs `pool detach`.
///
/// # Errors
/// Of opening the pool; why it cannot be done.
pub fn detach(args: &MemberChange, common: &Common, screen: &Screen) -> Outcome {
    let word = &args.member;
    let change = Change {
        command: "pool detach",
        what: word.clone(),
        done: format!("{word}: no member any more, its labels are cleared"),
        members: &args.members,
        destroys: Vec::new(),
        details: json!({"format": "zfs"}),
    };
    carry_out(change, &asked(common, screen), async |_, pool, now| {
        problem(pool.detach(word, now.wall_s).await)?;
        Ok(json!({}))
    })
}

/// Runs `pool add`.
///
/// # Errors
/// `Usage` for other than one group; `WouldDestroy` when something is on new members; of opening; why it cannot be
/// done.
pub fn add(args: &Add, common: &Common, screen: &Screen) -> Outcome {
    let mut groups = groups(&args.group);
    let (Some((kind, words)), true) = (groups.pop(), groups.is_empty()) else {
        let text = "one group is added at a time: a word and its members, or one member";
        return Err(Problem::new(Code::Usage, text));
    };
    let change = Change {
        command: "pool add",
        what: words.join(" "),
        done: format!("{}: another group of the pool", words.join(" ")),
        members: &args.to,
        destroys: look(&words, args.member_size)?.destroys,
        details: json!({"format": "zfs", "members": words}),
    };
    let asked = Asked {
        force: args.force.into(),
        ..asked(common, screen)
    };
    let (size, is_dry) = (args.member_size, common.dry_run);
    let mixed = match args.mixed {
        true => Mixed::Accepted,
        false => Mixed::Refused,
    };
    carry_out(change, &asked, async |handle, pool, now| {
        let mut planned = Vec::new();
        for word in &words {
            planned.push(PlannedMember::prepare(handle, word, size).await?);
        }
        let members = planned.iter();
        let members: Vec<(&str, u64)> = members
            .map(|one| (one.member.as_str(), one.size_bytes))
            .collect();
        let checked = pool.check_add(kind, &members, mixed);
        problem(checked).map_err(|problem| match mixed {
            Mixed::Refused => problem.hint("another kind of group is added with:   --mixed"),
            Mixed::Accepted => problem,
        })?;
        if is_dry {
            return Ok(json!({}));
        }
        add_group(handle, pool, (kind, planned), mixed, now).await?;
        Ok(json!({}))
    })
}
