//! One volume under its load: how its service ends, and how it is looked at afterwards.

use std::sync::Mutex;

use serde_json::Value;

use super::array::{Array, Kind};
use super::book::{Book, Keeps};
use super::course::{Counts, End, Plan};
use super::dice::{Dice, mix};
use super::load::{Load, open, sweep};

/// Requests before the crash, at most and at least.
const REQUESTS: (u64, u64) = (40, 400);

/// Which members are lost, and when.
#[derive(Clone, Debug)]
pub struct Loss {
    /// Their numbers.
    pub members: Vec<usize>,
    /// Failed, or taken offline, while the volume is served; otherwise they do not come back from the crash.
    pub is_before: bool,
}

/// A volume that is served, and what is known of it.
pub struct Service {
    /// How it ends.
    pub end: End,
    /// The volume.
    pub array: Array,
    /// What its sectors may hold.
    pub book: Mutex<Book>,
    /// All choices.
    pub dice: Dice,
    /// What came of it.
    pub counts: Counts,
}

impl Service {
    /// Creates the volume of a plan and serves it.
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
        let spares = plan.organisation.members - plan.organisation.spares;
        let spares: Vec<usize> = (spares..plan.organisation.members).collect();
        array
            .serve(&spares, "")?
            .map_err(|slug| format!("refused: {slug}"))?;
        for number in spares {
            array.done(&format!("add nas {}", array.member(number)))?;
        }
        let size = array.status()?["size_bytes"].as_u64().unwrap_or(0);
        Ok(Self {
            end: plan.end,
            book: Mutex::new(Book::new(dice.number(), size)),
            array,
            dice,
            counts: Counts::default(),
        })
    }

    /// Load until the crash; then nothing runs any more, and volatile members have their power back.
    pub fn crash(&mut self) -> Result<(), String> {
        let (least, most) = REQUESTS;
        let requests = least + self.dice.below(most - least);
        let seed = self.dice.number();
        let socket = self.array.socket();
        let load = Load::new(&self.book);
        let (array, end) = (&mut self.array, self.end);
        let answered = load.run_until(&socket, seed, requests, || match end {
            End::Kill => array.kill_server(),
            End::Cut => array.cut_power(),
        })?;
        self.counts.crashes += 1;
        self.counts.requests += answered;
        let keeps = match end {
            End::Kill => match self.array.organisation.kind {
                Kind::Array => Keeps::Answered,
                // What nobody has flushed is in the group that would have been the next root.
                Kind::Pool => Keeps::Durable,
            },
            End::Cut => {
                self.check_failed()?;
                self.array.kill_server();
                Keeps::Durable
            }
        };
        open(&self.book).crash(keeps);
        let power = self.dice.number();
        self.array.power_on(power)
    }

    /// The volume says that it has no members. One that is just being opened in another shape is closed instead. One of
    /// a pool learns of it with its next root, or with the next flush: it has what was written in memory.
    fn check_failed(&self) -> Result<(), String> {
        if self.array.organisation.kind == Kind::Pool {
            let has_failed = |status: &Value| status["verdict"] == "failed";
            return self
                .array
                .wait_until("a pool that knows that its members are gone", has_failed);
        }
        let is_moving = !self.array.organisation.changes.is_empty();
        let verdict = match self.array.status() {
            Err(text) if is_moving && text.contains("no_such_volume") => return Ok(()),
            status => status?["verdict"].clone(),
        };
        match verdict == "failed" {
            true => Ok(()),
            false => Err(format!("without any member the verdict is {verdict}")),
        }
    }

    /// Reads and judges everything.
    pub fn look(&mut self) -> Result<(), String> {
        sweep(&self.array.socket(), &self.book, false)?;
        self.counts.sectors += open(&self.book).len() as u64;
        Ok(())
    }

    /// A member that was lost comes back, unless it never left.
    pub fn take_back(&mut self, number: usize) -> Result<(), String> {
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

    /// As many members as the organisation can do without, when the plan says that some are lost.
    pub fn choose_loss(&mut self, plan: &Plan) -> Option<Loss> {
        let organisation = plan.organisation;
        if !plan.loses {
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

    /// Members that are not named at the start. One that is stale or offline may be named: it must not be used.
    pub fn without(&mut self, loss: Option<&Loss>) -> Vec<usize> {
        match loss {
            Some(loss) if !loss.is_before || self.dice.once_in(2) => loss.members.clone(),
            _ => Vec::new(),
        }
    }
}
