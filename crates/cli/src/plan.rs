//! Plans: what a changing command would do, shown before it is done, and the question whether it shall be done.
//!
//! Invariants:
//! - a plan with something to destroy is never carried out without `--force`, nor without an answer or `--yes`;
//! - `--dry-run` ends after the plan, before anything was written, and is refused for all that the real thing would be
//!   refused for;
//! - the question is only asked when standard input and standard error are terminals.

use std::io::{BufRead, IsTerminal, Write};

use plexum_daemon::problem::{Code, Problem};
use serde_json::{Value, json};

use crate::args::{Common, Create};
use crate::output::{Screen, object};

/// Something found on a member that would be overwritten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Member's path.
    pub member: String,
    /// What it is: `ext4 file system "home"`, `md superblock of array nas`.
    pub what: String,
}

/// What a command would do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Command: `create`, `add`.
    pub command: &'static str,
    /// Volume concerned.
    pub volume: String,
    /// Lines for people.
    pub lines: Vec<String>,
    /// The same for programs; an object.
    pub details: Value,
    /// What would be destroyed.
    pub destroys: Vec<Found>,
}

/// What to do after a plan was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Carry it out.
    Go,
    /// Only the plan was wanted.
    OnlyShown,
}

/// Whether the user agrees that what was found is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// He does, by `--force` or `-f`.
    Yes,
    /// It is not to be lost.
    No,
}

impl From<bool> for Force {
    fn from(is_forced: bool) -> Self {
        match is_forced {
            true => Self::Yes,
            false => Self::No,
        }
    }
}

impl Plan {
    /// Shows the plan where needed and asks where needed.
    ///
    /// # Errors
    /// `WouldDestroy` without `--force`, `NotConfirmed` when nobody agreed.
    pub fn confirm(
        &self,
        common: &Common,
        force: Force,
        screen: &Screen,
    ) -> Result<Verdict, Problem> {
        if common.dry_run {
            self.show(screen);
            if !self.destroys.is_empty() && force == Force::No {
                return Err(self.refusal());
            }
            return Ok(Verdict::OnlyShown);
        }
        if self.destroys.is_empty() {
            return Ok(Verdict::Go);
        }
        if force == Force::No {
            return Err(self.refusal());
        }
        if common.yes {
            return Ok(Verdict::Go);
        }
        if common.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
            return Err(Problem::new(
                Code::NotConfirmed,
                format!(
                    "{} would destroy data, and nobody can be asked",
                    self.command
                ),
            )
            .why("standard input is no terminal")
            .hint("to agree beforehand, add:   --yes")
            .hint("to see the plan, add:   --dry-run"));
        }
        self.show(screen);
        crate::output::tell_part!(
            "Go on? What is listed as destroyed cannot be brought back. [y/N] "
        );
        let _ = std::io::stderr().flush();
        let mut answer = String::new();
        let _ = std::io::stdin().lock().read_line(&mut answer);
        match answer.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => Ok(Verdict::Go),
            _ => Err(Problem::new(Code::NotConfirmed, "nothing was done")),
        }
    }

    /// Prints the plan.
    pub fn show(&self, screen: &Screen) {
        for line in &self.lines {
            screen.line(line);
        }
        for found in &self.destroys {
            screen.line(format!("  DESTROYS {}: {}", found.member, found.what));
        }
        let mut value = object("plan", Some(&self.volume), self.details.clone());
        value["command"] = self.command.into();
        value["destroys"] = self
            .destroys
            .iter()
            .map(|found| json!({"member": found.member, "what": found.what}))
            .collect();
        screen.object(&value);
    }

    fn refusal(&self) -> Problem {
        let first = &self.destroys[0];
        let mut problem = Problem::new(
            Code::WouldDestroy,
            format!("{} is not empty: {} found", first.member, first.what),
        )
        .member(first.member.clone());
        for found in &self.destroys[1..] {
            problem = problem.why(format!("also on {}: {}", found.member, found.what));
        }
        problem
            .why("it would be overwritten")
            .hint(format!("to look at it:   plexum examine {}", first.member))
            .hint("to overwrite it all the same, add:   --force")
    }
}

/// Whether what is made can take what shall be copied to it.
///
/// # Errors
/// `MemberTooSmall`.
pub fn check_size(args: &Create, volume_bytes: u64) -> Result<(), Problem> {
    match args.size_min_bytes {
        Some(needed) if volume_bytes < needed => Err(Problem::new(
            Code::MemberTooSmall,
            format!("the new volume would have {volume_bytes} bytes, the old one has {needed}"),
        )
        .hint("give more or larger members")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(destroys: Vec<Found>) -> Plan {
        Plan {
            command: "create",
            volume: "v".into(),
            lines: vec![],
            details: json!({}),
            destroys,
        }
    }

    fn screen() -> Screen {
        Screen {
            is_json: false,
            is_quiet: true,
            verbosity: 0,
            has_color: false,
            is_terminal: false,
        }
    }

    #[test]
    fn blank_members_need_no_agreement_and_found_data_need_force_and_yes() {
        let found = vec![Found {
            member: "a.img".into(),
            what: "ext4 file system".into(),
        }];
        let ask = |destroys: &Vec<Found>, dry_run, force: bool, yes| {
            let common = Common {
                dry_run,
                yes,
                json: true,
                ..Common::default()
            };
            plan(destroys.clone())
                .confirm(&common, force.into(), &screen())
                .map_err(|problem| problem.code)
        };
        let none = Vec::new();
        assert_eq!(ask(&none, false, false, false), Ok(Verdict::Go));
        assert_eq!(ask(&none, true, false, false), Ok(Verdict::OnlyShown));
        assert_eq!(ask(&found, true, false, false), Err(Code::WouldDestroy));
        assert_eq!(ask(&found, true, true, false), Ok(Verdict::OnlyShown));
        assert_eq!(ask(&found, false, false, false), Err(Code::WouldDestroy));
        assert_eq!(ask(&found, false, false, true), Err(Code::WouldDestroy));
        assert_eq!(ask(&found, false, true, false), Err(Code::NotConfirmed));
        assert_eq!(ask(&found, false, true, true), Ok(Verdict::Go));
    }

    mod dry_runs {
        include!("../tests/field/dry_run_cases.rs");
    }

    /// The commands without subcommands of their own, with those above them.
    fn leaves(command: &clap::Command, above: &str, found: &mut Vec<String>) {
        for sub in command.get_subcommands() {
            let name = format!("{above}{}", sub.get_name());
            match sub.has_subcommands() {
                true => leaves(sub, &format!("{name} "), found),
                false => found.push(name),
            }
        }
    }

    #[test]
    fn every_command_has_its_dry_runs() {
        let mut declared = Vec::new();
        leaves(
            &<crate::args::Cli as clap::CommandFactory>::command(),
            "",
            &mut declared,
        );
        declared.retain(|name| !dry_runs::INTERNAL.contains(&name.as_str()));
        declared.sort();
        let mut known: Vec<&str> = dry_runs::CASES.iter().map(|case| case.command).collect();
        known.sort_unstable();
        assert_eq!(declared, known);
        for case in dry_runs::CASES {
            assert!(!case.refused.is_empty(), "{}: a refusal", case.command);
            // Without a daemon there is nothing to forget and nobody to ask for alarms, and what can be undone is made
            // there: tests/all/daemon.rs, tests/all/alarms.rs, tests/field/changes.rs.
            let elsewhere = ["forget", "undo", "incident", "ack", "alert test"];
            let is_elsewhere = elsewhere.contains(&case.command);
            let only_computes = case.command.starts_with("lab ");
            let has_done = !case.done.is_empty() || only_computes || is_elsewhere;
            assert!(has_done, "{}: something that is done", case.command);
        }
    }
}
