//! Why the host does not do what it was asked for, and who holds a volume: facts first, words for people last.

use std::fmt;

use crate::problem::{Code, Problem};
use crate::volume::status::JobKind;

/// Who holds a volume: it is not closed under them unless somebody insists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// Clients that are connected, on all cores.
    Clients {
        /// How many.
        count: u64,
    },
    /// A block device of the kernel stands on it.
    Attachment,
    /// Work that runs or is due.
    Job(JobKind),
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Hold::Clients { count: 1 } => f.write_str("one client is connected"),
            Hold::Clients { count } => write!(f, "{count} clients are connected"),
            Hold::Attachment => f.write_str("a block device of the kernel stands on it"),
            Hold::Job(kind) => write!(f, "{} is not finished", kind.word()),
        }
    }
}

/// Why something is not done. Nothing was changed, but where a variant says so.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// No such volume is served.
    NoSuchVolume {
        /// The name that was asked for.
        name: String,
        /// Names that are served.
        served: Vec<String>,
    },
    /// Another volume has the name.
    NameTaken {
        /// The name.
        name: String,
    },
    /// A member is one of a volume that is served already.
    MemberTaken {
        /// The member, as it was given.
        member: String,
        /// Whose it is.
        volume: String,
        /// What opening it said.
        problem: Box<Problem>,
    },
    /// The volume is being closed.
    IsClosing {
        /// Its name.
        name: String,
    },
    /// Somebody holds the volume.
    Held {
        /// Its name.
        name: String,
        /// Who.
        holds: Vec<Hold>,
    },
    /// The volume has no such client, or has it no more.
    NoSuchClient {
        /// Name of the volume.
        name: String,
    },
    /// The volume is closed, but its members are as a power cut would have left them.
    NotClean(Box<Problem>),
    /// A system call, a member's metadata or a rule of assembly stands against it.
    Other(Box<Problem>),
}

impl Refusal {
    /// The same in words, with the ways out.
    #[must_use]
    pub fn problem(self) -> Problem {
        match self {
            Refusal::NoSuchVolume { name, served } => {
                Problem::new(Code::NoSuchVolume, format!("no volume {name} is served"))
                    .hint(format!("these are:   {}", served.join(" ")))
            }
            Refusal::NameTaken { name } => Problem::new(
                Code::DuplicateMember,
                format!("two of the volumes are called {name}"),
            )
            .hint("serve one of them by itself with --name NAME"),
            Refusal::IsClosing { name } => Problem::new(Code::Busy, format!("{name} is stopping")),
            Refusal::Held { name, holds } => {
                let problem = Problem::new(Code::Busy, format!("{name} is in use"));
                let each = holds.iter().map(Hold::to_string);
                each.fold(problem, Problem::why)
                    .hint(format!("to stop it all the same:   plexum stop {name}"))
            }
            Refusal::NoSuchClient { name } => {
                Problem::new(Code::WrongState, format!("{name} has no such client"))
                    .why("it may have left meanwhile")
            }
            Refusal::MemberTaken { problem, .. }
            | Refusal::NotClean(problem)
            | Refusal::Other(problem) => *problem,
        }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Refusal::Other(Box::new(problem))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        refusal.problem()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_who_holds_the_volume_and_what_to_do() {
        let holds = vec![
            Hold::Clients { count: 2 },
            Hold::Attachment,
            Hold::Job(JobKind::Rebuild),
        ];
        let name = "nas".to_owned();
        let problem = Refusal::Held { name, holds }.problem();
        assert_eq!((problem.code, problem.why.len()), (Code::Busy, 3));
        assert_eq!(problem.message, "nas is in use");
        assert_eq!(problem.why[0], "2 clients are connected");
        assert_eq!(problem.why[2], "rebuild is not finished");
        assert!(problem.hints[0].ends_with("plexum stop nas"));
    }
}
