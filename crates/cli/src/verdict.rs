//! The first lines of `plexum examine`: of each set what it is, whether it can be used, and what to do.
//!
//! Invariant: one line each, whatever the reason is.

use plexum_daemon::foreign::offline::Judged;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::zfs::PoolView;
use serde_json::{Map, Value};

use crate::output::Screen;
use crate::units::show_bytes;

/// One set in one line.
pub(crate) struct SetVerdict {
    /// Name, organisation, format, size, state.
    what: String,
    /// Why it cannot be used as it is.
    obstacle: Option<String>,
    /// What to do: words, then a command.
    next: String,
}

/// The last lines about a set: what serves it, or why nothing does.
pub(crate) fn show_start(problem: Option<&Problem>, command: &str, screen: &Screen) {
    let Some(problem) = problem else {
        screen.line(format!("to serve it:   {command}"));
        return;
    };
    screen.line(format!("cannot start as it is: {}", problem.message));
    for line in problem.why.iter().chain(&problem.hints) {
        screen.line(format!("  {line}"));
    }
}

impl SetVerdict {
    /// `next`: what to do when there is no problem.
    pub(super) fn new(what: String, problem: Option<&Problem>, next: String) -> Self {
        match problem {
            None => Self {
                what,
                obstacle: None,
                next,
            },
            Some(problem) => Self {
                obstacle: Some(problem.message.clone()),
                next: way_out(problem),
                what,
            },
        }
    }

    /// Of a volume of one of FreeBSD's formats; `words` and `option` are what `serve` is given.
    pub(crate) fn of_judged(judged: &Judged, words: &str, option: &str) -> Self {
        let parts = [
            judged.level.clone(),
            judged.kind.name().to_owned(),
            show_bytes(judged.size_bytes),
            judged.state.clone(),
        ];
        let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        let name = match judged.name.is_empty() {
            true => "drives",
            false => &judged.name,
        };
        Self::new(
            format!("{name}: {}", parts.join(", ")),
            judged.problem.as_ref(),
            format!("to serve it:   plexum serve {words}{option}"),
        )
    }

    /// Of a ZFS pool; `words` are what `plexum pool` is given.
    pub(crate) fn of_pool(pool: &PoolView, words: &str) -> Self {
        let missing = pool.slots.iter().filter(|slot| slot.name.is_none()).count();
        let state = match missing {
            0 => String::new(),
            count => format!(", {count} of {} members not here", pool.slots.len()),
        };
        let what = format!(
            "{}: ZFS pool, version {}, {}{state}",
            pool.label.pool_name, pool.label.version, pool.label.state
        );
        let plexes = match pool.unknown_plexes.len() {
            0 => None,
            1 => Some("a whole plex of it is not here".to_owned()),
            count => Some(format!("{count} whole plexes of it are not here")),
        };
        match pool.refusals.first().cloned().or(plexes) {
            Some(obstacle) => Self {
                what,
                obstacle: Some(obstacle),
                next: "name its other members too; to look for them:   plexum scan".to_owned(),
            },
            None => Self {
                what,
                obstacle: None,
                next: format!("to see what is in it:   plexum pool list {words}"),
            },
        }
    }

    /// `WHAT; usable; NEXT`.
    pub(crate) fn line(&self) -> String {
        let Self { what, next, .. } = self;
        let line = match &self.obstacle {
            None => format!("{what}; usable; {next}"),
            Some(obstacle) => format!("{what}; not usable as it is: {obstacle}; {next}"),
        };
        line.replace('\n', " ")
    }

    /// `object` with the verdict in it.
    pub(crate) fn put_into(&self, object: Value) -> Value {
        let word = match self.obstacle {
            None => "usable",
            Some(_) => "refused",
        };
        let mut map: Map<String, Value> = match object {
            Value::Object(map) => map,
            _ => Map::new(),
        };
        map.insert("verdict".into(), word.into());
        map.insert("verdict_text".into(), self.line().into());
        map.insert("next".into(), self.next.clone().into());
        Value::Object(map)
    }
}

/// The first way out of a problem; where it names none, what its kind has in common.
fn way_out(problem: &Problem) -> String {
    if let Some(hint) = problem.hints.first() {
        return hint.clone();
    }
    let word = match problem.code {
        Code::TooFewMembers | Code::StaleMember => {
            "name its other members too; to look for them:   plexum scan"
        }
        Code::ForeignMember | Code::DuplicateMember | Code::SplitBrain => {
            "name the members of one set alone, each once; to see what belongs together:   plexum scan"
        }
        _ => "what speaks against it is below",
    };
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_verdict_is_one_line_with_the_first_way_out() {
        let whole = SetVerdict::new(
            "v: raid1".into(),
            None,
            "to serve it:   plexum serve a".into(),
        );
        assert_eq!(
            whole.line(),
            "v: raid1; usable; to serve it:   plexum serve a"
        );
        let problem = Problem::new(Code::DegradedStart, "one\nis missing")
            .hint("to start it, add:   --run-degraded")
            .hint("or wait");
        let refused = SetVerdict::new("v: raid1".into(), Some(&problem), "never said".into());
        assert_eq!(
            refused.line(),
            "v: raid1; not usable as it is: one is missing; to start it, add:   --run-degraded"
        );
        let object = refused.put_into(json!({"kind": "set"}));
        assert_eq!(object["verdict"], "refused");
        assert_eq!(object["next"], "to start it, add:   --run-degraded");
        assert_eq!(object["kind"], "set");
    }

    #[test]
    fn every_problem_has_a_way_out_in_words() {
        for code in Code::ALL {
            assert!(!way_out(&Problem::new(*code, "x")).is_empty(), "{code:?}");
        }
    }
}
