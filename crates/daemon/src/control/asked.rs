//! Changes of volumes that are served, each told as an event: who asked for it, in which way, and why.
//!
//! Invariants:
//! - what was refused is no event; a stop is told before it is begun, since nobody may be there afterwards;
//! - who it was says the kernel or a token, never a request.

use std::time::{SystemTime, UNIX_EPOCH};

use super::access::Caller;
use super::reach::{Reach, answer_of};
use super::request::{Action, Answer, Request};
use crate::pool_change::PoolChange;

/// Longest reason that is kept, in characters.
const WHY_CHARS_MAX: usize = 500;

/// A change, and why it is asked for.
pub(crate) struct Asked {
    pub(crate) volume: String,
    pub(crate) action: Action,
    pub(crate) why: Option<String>,
}

/// Carries out a change for `caller`, and tells it.
///
/// # Errors
/// What the volume refuses.
pub(crate) async fn change(reach: &Reach, caller: &Caller, asked: Asked) -> Answer {
    let Asked {
        volume,
        action,
        why,
    } = asked;
    let text = sentence(caller, &words(&action), why.as_deref());
    let is_end = action == Action::Stop;
    let request = Request::Act {
        volume: volume.clone(),
        action,
    };
    let tell = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_s = now.map_or(0, |now| now.as_secs());
        reach
            .events
            .publish(time_s, &volume, "asked", text.clone(), None);
    };
    if is_end {
        tell();
    }
    let answer = answer_of(reach, request).await;
    if answer.is_ok() && !is_end {
        tell();
    }
    answer
}

/// Carries out a change of a pool for `caller`, which the pool tells.
///
/// # Errors
/// What the pool refuses.
pub(crate) async fn change_pool(
    reach: &Reach,
    caller: &Caller,
    (pool, change): (String, PoolChange),
    why: Option<&str>,
) -> Answer {
    let words = format!("pool {} {}", change.route(), change.words());
    let request = Request::ChangePool {
        pool,
        change,
        asked: sentence(caller, words.trim_end(), why),
    };
    answer_of(reach, request).await
}

/// `user 1000 asked: add /dev/sdd (why: ordered)`.
fn sentence(caller: &Caller, words: &str, why: Option<&str>) -> String {
    let why = why.map(clean).filter(|why| !why.is_empty());
    let why = why.map_or_else(String::new, |why| format!(" (why: {why})"));
    format!("{} asked: {words}{why}", caller.who)
}

/// What somebody typed, on one line.
fn clean(why: &str) -> String {
    let kept = why
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one });
    let kept: String = kept.take(WHY_CHARS_MAX).collect();
    kept.trim().to_owned()
}

/// The change as the command has it.
fn words(action: &Action) -> String {
    let route = action.route();
    let forced = |force: bool| if force { " --force" } else { "" };
    match action {
        Action::Fail { member } | Action::Remove { member } | Action::ReAdd { member } => {
            format!("{route} {member}")
        }
        Action::Add { member, force } => format!("{route} {member}{}", forced(*force)),
        Action::Replace { old, new, force } => format!("{route} {old} {new}{}", forced(*force)),
        Action::Scrub { stop: true, .. } => format!("{route} --stop"),
        Action::Scrub { repair: true, .. } => format!("{route} --repair"),
        Action::Device { remove: true } => format!("{route} --remove"),
        Action::Set { settings } => {
            let settings = settings
                .iter()
                .map(|(name, value)| format!(" {name}={value}"));
            format!("{route}{}", settings.collect::<String>())
        }
        Action::Scrub { .. } | Action::Grow { .. } | Action::Stop | Action::Device { .. } => {
            route.to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::access::{Role, Way};
    use super::*;

    #[test]
    fn who_asked_for_what_and_why_is_one_line() {
        let caller = Caller {
            who: "token ute".into(),
            role: Some(Role::Administer),
            way: Way::Network,
        };
        let replace = Action::Replace {
            old: "1".into(),
            new: "/dev/sdd".into(),
            force: true,
        };
        let told = sentence(
            &caller,
            &words(&replace),
            Some(" it is slow\n\u{1b}[31mreally "),
        );
        let expected = "token ute asked: replace 1 /dev/sdd --force (why: it is slow  [31mreally)";
        assert_eq!(told, expected);
        let settings = [("balance", "load"), ("rebuild-max", "1000")];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let set = Action::Set {
            settings: settings.into(),
        };
        let told = sentence(&caller, &words(&set), Some("  "));
        assert_eq!(told, "token ute asked: set balance=load rebuild-max=1000");
        let long = "x".repeat(9000);
        assert!(sentence(&caller, &words(&Action::Stop), Some(&long)).len() < 600);
    }
}
