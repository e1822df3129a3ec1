//! Crash after crash of one volume: load, end, start, look, mend, again.
//!
//! Invariants:
//! - a refusal to start is right only for parity that is dirty and lacks a member, and never with a stripe log;
//! - after a forced start what can be read is right, and what cannot be is answered with an error;
//! - every round ends with all members in sync, and with a scrub that finds nothing.

use std::path::PathBuf;

use super::array::{Array, Organisation};
use super::book::Keeps;
use super::load::{open, overwrite, sweep};
use super::service::{Loss, Service};

/// How the service ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// SIGKILL to the server; its members are files.
    Kill,
    /// Power cut to all members at once.
    Cut,
}

/// Crashes of one kind of one organisation.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What is tested.
    pub organisation: Organisation,
    /// How it ends.
    pub end: End,
    /// Whether members are lost.
    pub loses: bool,
    /// Crashes.
    pub rounds: u64,
    /// Seed of all choices.
    pub seed: u64,
    /// Members answer flushes and keep nothing, which must be found.
    pub is_sabotaged: bool,
}

impl Plan {
    /// For people and for file names.
    pub fn name(&self) -> String {
        let end = match self.end {
            End::Kill => "kill",
            End::Cut => "cut",
        };
        let loss = if self.loses { "-lost" } else { "" };
        let lie = if self.is_sabotaged { "-sabotaged" } else { "" };
        format!("{}-{end}{loss}{lie}", self.organisation.name)
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Crashes.
    pub crashes: u64,
    /// Of these, in the midst of a resync or rebuild.
    pub nested: u64,
    /// Requests answered under load.
    pub requests: u64,
    /// Sectors read and judged after crashes.
    pub sectors: u64,
    /// Members lost.
    pub losses: u64,
    /// Starts that were refused because parity was dirty and a member was missing.
    pub refused: u64,
    /// Of these, forced.
    pub forced: u64,
    /// Bytes that answered with an error after a forced start.
    pub in_doubt_bytes: u64,
}

/// One volume on its course.
pub struct Course {
    plan: Plan,
    service: Service,
    has_log: bool,
}

impl Course {
    /// Creates the volume and serves it.
    pub fn start(plan: Plan) -> Result<Self, String> {
        let service = Service::start(plan)?;
        let status = service.array.status()?;
        Ok(Self {
            has_log: status["consistency"] == "log",
            plan,
            service,
        })
    }

    /// All rounds; `tell` hears of each. The members, for other judges, and what came of it.
    pub fn run(mut self, tell: &mut dyn FnMut(u64)) -> Result<(Array, Counts), String> {
        for round in 0..self.plan.rounds {
            self.round()
                .map_err(|text| format!("round {round}: {text}"))?;
            tell(round + 1);
        }
        self.service.array.done("stop nas")?;
        self.service.array.kill_server();
        self.service.array.cut_power();
        Ok((self.service.array, self.service.counts))
    }

    /// Files of the members that have a slot.
    pub fn files(array: &Array) -> Vec<PathBuf> {
        let numbers = array.used.iter();
        numbers
            .map(|n| array.place.file(&format!("m{n}")))
            .collect()
    }

    fn round(&mut self) -> Result<(), String> {
        let loss = self.service.choose_loss(&self.plan);
        if let Some(Loss {
            members,
            is_before: true,
        }) = &loss
        {
            for &number in members {
                self.service
                    .array
                    .done(&format!("fail nas {}", self.service.array.member(number)))?;
            }
        }
        self.service.crash()?;
        let without = self.service.without(loss.as_ref());
        let is_degraded = loss.is_some();
        match self.service.array.serve(&without, "--run-degraded")? {
            Ok(()) => {}
            Err(slug) => self.refused(loss.as_ref(), &slug)?,
        }
        // Once in a while everything ends again before anything is well.
        if !is_degraded && self.service.dice.once_in(3) {
            self.service.counts.nested += 1;
            self.service.crash()?;
            self.service
                .array
                .serve(&[], "")?
                .map_err(|slug| format!("refused: {slug}"))?;
        }
        self.service.look()?;
        self.service.array.settle()?;
        self.service.look()?;
        for number in loss.map(|loss| loss.members).unwrap_or_default() {
            self.service.take_back(number)?;
        }
        let verdict = self.service.array.status()?["verdict"].clone();
        if verdict != "ok" {
            return Err(format!("with all members back the verdict is {verdict}"));
        }
        self.service.array.scrub()?;
        self.service.look()
    }

    /// A start was refused: it must be for the one good reason, and there are two ways out.
    fn refused(&mut self, loss: Option<&Loss>, slug: &str) -> Result<(), String> {
        let Some(loss) = loss else {
            return Err(format!("refused although all members are there: {slug}"));
        };
        let has_reason = self.plan.organisation.has_parity() && !self.has_log;
        if slug != "dirty_degraded" || !has_reason {
            return Err(format!("refused: {slug} ({loss:?})"));
        }
        self.service.counts.refused += 1;
        if !loss.is_before {
            // The members were only away for a while.
            let start = self.service.array.serve(&[], "")?;
            return start.map_err(|slug| format!("refused with all members: {slug}"));
        }
        self.service.counts.forced += 1;
        let start = self
            .service
            .array
            .serve(&loss.members, "--run-degraded --force")?;
        start.map_err(|slug| format!("refused although forced: {slug}"))?;
        let socket = self.service.array.socket();
        self.service.counts.in_doubt_bytes += sweep(&socket, &self.service.book, true)?;
        overwrite(
            &socket,
            &self.service.book,
            self.plan.organisation.whole_rows_bytes,
        )?;
        open(&self.service.book).crash(Keeps::Answered);
        Ok(())
    }
}
