//! Words that give a pool more members, or take a side of a mirror away: `attach`, `detach`, `add`.

use plexum_daemon::pool_change::{PoolChange, word_of};
use serde_json::json;

use super::args::{Add, Attach, MemberChange};
use super::change::{Asked, carry_out};
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
    let change = PoolChange::Attach {
        side: old.clone(),
        coming: coming.change(),
    };
    let asked = Asked {
        done: format!("{new} is a side of the mirror of {old}"),
        force: coming.force.into(),
        new: (vec![new.clone()], coming.member_size),
        details: json!({"format": "zfs", "beside": old}),
        ..Asked::of(change, ("pool attach", new), &coming.members)
    };
    carry_out(asked, common, screen)
}

/// Runs `pool detach`.
///
/// # Errors
/// Of opening the pool; why it cannot be done.
pub fn detach(args: &MemberChange, common: &Common, screen: &Screen) -> Outcome {
    let word = &args.member;
    let change = PoolChange::Detach {
        member: word.clone(),
    };
    let asked = Asked {
        done: format!("{word}: no member any more, its labels are cleared"),
        ..Asked::of(change, ("pool detach", word), &args.members)
    };
    carry_out(asked, common, screen)
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
    let change = PoolChange::Add {
        group: word_of(kind).to_owned(),
        members: words.clone(),
        member_size_bytes: args.member_size,
        mixed: args.mixed,
        force: args.force,
    };
    let what = words.join(" ");
    let asked = Asked {
        done: format!("{what}: another group of the pool"),
        force: args.force.into(),
        details: json!({"format": "zfs", "members": words}),
        new: (words, args.member_size),
        ..Asked::of(change, ("pool add", &what), &args.to)
    };
    carry_out(asked, common, screen)
}
