//! Crash after crash of one volume: load, end, start, look, mend, again.
//!
//! Invariants:
//! - a refusal to start is right only for parity that is dirty and lacks a member, and never with a stripe log;
//! - after a forced start what can be read is right, and what cannot be is answered with an error;
//! - every round ends with all members in sync, and with a scrub that finds nothing.

use std::path::PathBuf;
use std::sync::Mutex;

use super::array::{Array, Organisation};
use super::book::{Book, Keeps};
use super::dice::{Dice, mix};
use super::load::{Load, open, overwrite, sweep};

/// Requests before the crash, at most and at least.
const REQUESTS: (u64, u64) = (40, 400);

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

/// Which members are lost, and when.
#[derive(Clone, Debug)]
struct Loss {
    members: Vec<usize>,
    /// Failed while the volume is served; otherwise they do not come back from the crash.
    is_before: bool,
}

/// One volume on its course.
pub struct Course {
    plan: Plan,
    array: Array,
    book: Mutex<Book>,
    dice: Dice,
    counts: Counts,
    has_log: bool,
}

impl Course {
    /// Creates the volume and serves it.
    pub fn start(plan: Plan) -> Result<Self, String> {
        let is_volatile = plan.end == End::Cut;
        let name = format!("kill-{}", plan.name());
        let mut dice = Dice::new(
            plan.seed,
            name.bytes().fold(0, |key, b| mix(key ^ u64::from(b))),
        );
        let mut array = Array::create(&name, plan.organisation, is_volatile);
        array.is_lying = plan.is_sabotaged;
        array.power_on(dice.number())?;
        array
            .serve(&[], "")?
            .map_err(|slug| format!("refused: {slug}"))?;
        let status = array.status()?;
        let size = status["size_bytes"].as_u64().unwrap_or(0);
        Ok(Self {
            book: Mutex::new(Book::new(dice.number(), size)),
            has_log: status["consistency"] == "log",
            plan,
            array,
            dice,
            counts: Counts::default(),
        })
    }

    /// All rounds; `tell` hears of each. The members, for other judges, and what came of it.
    pub fn run(mut self, tell: &mut dyn FnMut(u64)) -> Result<(Array, Counts), String> {
        for round in 0..self.plan.rounds {
            self.round()
                .map_err(|text| format!("round {round}: {text}"))?;
            tell(round + 1);
        }
        self.array.done("stop nas")?;
        self.array.kill_server();
        self.array.cut_power();
        Ok((self.array, self.counts))
    }

    /// Files of the members.
    pub fn files(array: &Array) -> Vec<PathBuf> {
        let numbers = 0..array.organisation.members;
        numbers
            .map(|n| array.place.file(&format!("m{n}")))
            .collect()
    }

    fn round(&mut self) -> Result<(), String> {
        let loss = self.choose_loss();
        if let Some(Loss {
            members,
            is_before: true,
        }) = &loss
        {
            for &number in members {
                self.array
                    .done(&format!("fail nas {}", self.array.member(number)))?;
            }
        }
        self.crash()?;
        let without = self.without(loss.as_ref());
        let is_degraded = loss.is_some();
        match self.array.serve(&without, "--run-degraded")? {
            Ok(()) => {}
            Err(slug) => self.refused(loss.as_ref(), &slug)?,
        }
        // Once in a while everything ends again before anything is well.
        if !is_degraded && self.dice.once_in(3) {
            self.counts.nested += 1;
            self.crash()?;
            self.array
                .serve(&[], "")?
                .map_err(|slug| format!("refused: {slug}"))?;
        }
        self.look()?;
        self.array.settle()?;
        self.look()?;
        for number in loss.map(|loss| loss.members).unwrap_or_default() {
            self.take_back(number)?;
        }
        let verdict = self.array.status()?["verdict"].clone();
        if verdict != "ok" {
            return Err(format!("with all members back the verdict is {verdict}"));
        }
        self.array.scrub()?;
        self.look()
    }

    fn choose_loss(&mut self) -> Option<Loss> {
        let organisation = self.plan.organisation;
        if !self.plan.loses {
            return None;
        }
        let first = self.dice.below(organisation.members as u64) as usize;
        let mut members = vec![first];
        if organisation.spare_failures > 1 && self.dice.once_in(2) {
            members.push((first + 1) % organisation.members);
        }
        self.counts.losses += members.len() as u64;
        Some(Loss {
            members,
            is_before: self.dice.once_in(2),
        })
    }

    /// Members that are not named at the start. One that is stale may be named: it must not be used.
    fn without(&mut self, loss: Option<&Loss>) -> Vec<usize> {
        match loss {
            Some(loss) if !loss.is_before || self.dice.once_in(2) => loss.members.clone(),
            _ => Vec::new(),
        }
    }

    /// Load until the crash; then nothing runs any more, and volatile members have their power back.
    fn crash(&mut self) -> Result<(), String> {
        let (least, most) = REQUESTS;
        let requests = least + self.dice.below(most - least);
        let seed = self.dice.number();
        let socket = self.array.socket();
        let load = Load::new(&self.book);
        let (array, end) = (&mut self.array, self.plan.end);
        let answered = load.run_until(&socket, seed, requests, || match end {
            End::Kill => array.kill_server(),
            End::Cut => array.cut_power(),
        })?;
        self.counts.crashes += 1;
        self.counts.requests += answered;
        let keeps = match end {
            End::Kill => Keeps::Answered,
            End::Cut => {
                let verdict = self.array.status()?["verdict"].clone();
                if verdict != "failed" {
                    return Err(format!("without any member the verdict is {verdict}"));
                }
                self.array.kill_server();
                Keeps::Durable
            }
        };
        open(&self.book).crash(keeps);
        let power = self.dice.number();
        self.array.power_on(power)
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
        self.counts.refused += 1;
        if !loss.is_before {
            // The members were only away for a while.
            let start = self.array.serve(&[], "")?;
            return start.map_err(|slug| format!("refused with all members: {slug}"));
        }
        self.counts.forced += 1;
        let start = self.array.serve(&loss.members, "--run-degraded --force")?;
        start.map_err(|slug| format!("refused although forced: {slug}"))?;
        let socket = self.array.socket();
        self.counts.in_doubt_bytes += sweep(&socket, &self.book, true)?;
        overwrite(&socket, &self.book, self.plan.organisation.whole_rows_bytes)?;
        open(&self.book).crash(Keeps::Answered);
        Ok(())
    }

    /// Reads and judges everything.
    fn look(&mut self) -> Result<(), String> {
        sweep(&self.array.socket(), &self.book, false)?;
        self.counts.sectors += open(&self.book).len() as u64;
        Ok(())
    }

    /// A member that was lost comes back, unless it never left.
    fn take_back(&mut self, number: usize) -> Result<(), String> {
        let name = self.array.member(number);
        let status = self.array.status()?;
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let is_active = members.iter().any(|member| {
            let path = member["path"].as_str().unwrap_or_default();
            path.ends_with(&name) && member["state"] == "active"
        });
        if is_active {
            return Ok(());
        }
        let words = format!("re-add nas {name} --wait");
        let run = self.array.place.plexum(&words);
        // 1: well done, but another member is still missing.
        if run.exit > 1 {
            return Err(format!("plexum {words}: {}{}", run.out, run.err));
        }
        self.look()
    }
}
