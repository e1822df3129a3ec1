//! Crash after crash of a volume whose rows move: one shape after the other, each interrupted again and again.
//!
//! Invariants:
//! - an array that is being reshaped starts with all its members, whatever was cut off;
//! - a member that is lost on the way costs nothing that one loss may not cost, and is taken back in the new shape;
//! - at its end each shape is the one that was asked for, and a scrub finds nothing.

use serde_json::Value;

use super::array::{Array, Change, is_idle};
use super::course::{Counts, Plan};
use super::load::Load;
use super::service::Service;

/// How fast rows move, so that a move outlasts several crashes.
const PACE: &str = "set nas rebuild-min=3M rebuild-max=3M";

/// Requests while a member is lost.
const REQUESTS: u64 = 150;

/// A volume on its course.
pub struct Moving {
    plan: Plan,
    service: Service,
    /// Changes that were begun.
    begun: usize,
}

impl Moving {
    /// Creates the volume and serves it.
    pub fn start(plan: Plan) -> Result<Self, String> {
        Ok(Self {
            plan,
            service: Service::start(plan)?,
            begun: 0,
        })
    }

    /// All rounds; `tell` hears of each. The members, for other judges, and what came of it.
    pub fn run(mut self, tell: &mut dyn FnMut(u64)) -> Result<(Array, Counts), String> {
        for round in 0..self.plan.rounds {
            self.round()
                .map_err(|text| format!("round {round}, change {}: {text}", self.begun))?;
            tell(round + 1);
        }
        self.end().map_err(|text| format!("at the end: {text}"))?;
        let mut array = self.service.array;
        let status = array.status()?;
        array.used.retain(|number| has_slot(&status, *number));
        array.done("stop nas")?;
        array.kill_server();
        array.cut_power();
        Ok((array, self.service.counts))
    }

    fn round(&mut self) -> Result<(), String> {
        if self.is_at_rest(&self.service.array.status()?) {
            self.begin()?;
        }
        let nested = self.service.dice.below(3);
        for _ in 0..=nested {
            self.service.crash()?;
            let started = self.service.array.serve(&[], "")?;
            started.map_err(|slug| format!("refused: {slug}"))?;
            self.service.look()?;
        }
        self.service.counts.nested += nested;
        if self.plan.loses && self.service.dice.once_in(2) {
            return self.lose_one();
        }
        match self.service.dice.once_in(3) {
            true => self.end(),
            false => Ok(()),
        }
    }

    fn change(&self) -> Option<Change> {
        let changes = self.plan.organisation.changes;
        let last = self.begun.checked_sub(1)?;
        Some(changes[last % changes.len()])
    }

    /// Whether the last change is done, all of it.
    fn is_at_rest(&self, status: &Value) -> bool {
        let is_so = |change: Change| match &status[change.field] {
            Value::String(text) => text == change.value,
            other => format!("{other}") == change.value,
        };
        is_idle(status) && self.change().is_none_or(is_so)
    }

    fn begin(&mut self) -> Result<(), String> {
        self.begun += 1;
        let change = self.change().expect("one was begun");
        self.service.array.done(PACE)?;
        let words = format!("grow nas {} -y", change.words);
        self.service.array.done(&words).map(|_| ())
    }

    /// Lets the rows move to their end.
    fn settle(&self) -> Result<(), String> {
        self.service.array.done("set nas rebuild-max=0")?;
        let what = format!("{:?}", self.change());
        let array = &self.service.array;
        array.wait_until(&what, |status| self.is_at_rest(status))
    }

    /// Waits until nothing is in doubt any more after a crash: without that a loss may cost what was being written.
    fn agree(&self) -> Result<(), String> {
        let doubt = |status: &Value| status["bitmap"]["doubtful_regions"].as_u64().unwrap_or(0);
        let array = &self.service.array;
        array.wait_until("the end of doubt", |status| doubt(status) == 0)
    }

    fn end(&mut self) -> Result<(), String> {
        self.settle()?;
        let verdict = self.service.array.status()?["verdict"].clone();
        if verdict != "ok" {
            return Err(format!("at rest the verdict is {verdict}"));
        }
        self.service.array.scrub()?;
        self.service.look()
    }

    /// A member fails while rows move. They move to their end without it, and then it comes back.
    fn lose_one(&mut self) -> Result<(), String> {
        self.agree()?;
        let slots = self.service.array.status()?["slots"].as_u64().unwrap_or(1);
        let number = self.service.dice.below(slots.min(4)) as usize;
        let name = self.service.array.member(number);
        self.service.array.done(&format!("fail nas {name}"))?;
        self.service.counts.losses += 1;
        let seed = self.service.dice.number();
        let socket = self.service.array.socket();
        let load = Load::new(&self.service.book);
        self.service.counts.requests += load.run(&socket, seed, REQUESTS)?;
        self.service.look()?;
        self.settle()?;
        self.service.look()?;
        // Its rows are those of the old shape, so it is filled as a whole.
        let status = self.service.array.status()?;
        let mut members = status["members"].as_array().into_iter().flatten();
        if members.any(|member| member["state"] == "faulty") {
            self.service.array.done(&format!("remove nas {name}"))?;
        }
        let words = format!("add nas {name} --force -y");
        self.service.array.done(&words)?;
        self.service.array.settle()?;
        self.end()
    }
}

/// Whether member `number`, a file or a socket of that number, has a slot.
fn has_slot(status: &Value, number: usize) -> bool {
    let mut members = status["members"].as_array().into_iter().flatten();
    let ending = number.to_string();
    members.any(|member| {
        let path = member["path"].as_str().unwrap_or_default();
        !member["slot"].is_null() && path.ends_with(&ending)
    })
}
