//! Crash after crash of a volume of a ZFS pool.
//!
//! Invariants:
//! - the pool opens after each crash, with its members or without as many as it may lose; what was flushed is there;
//! - a member that was away, or was taken offline, is believed for nothing that it has missed;
//! - every round ends with all members whole, and with a check and a scrub that find nothing; at last OpenZFS looks.

use std::path::Path;
use std::process::Command;

use super::array::{Array, is_idle};
use super::course::{Counts, Plan};
use super::load::Load;
use super::service::{Loss, Service};

/// Requests while members are away.
const REQUESTS: u64 = 60;

/// A volume on its course.
pub struct Pooled {
    plan: Plan,
    service: Service,
}

impl Pooled {
    /// Creates the pool and serves its volume.
    pub fn start(plan: Plan) -> Result<Self, String> {
        let service = Service::start(plan)?;
        Ok(Self { plan, service })
    }

    /// All rounds; `tell` hears of each. The members, and what came of it.
    pub fn run(mut self, tell: &mut dyn FnMut(u64)) -> Result<(Array, Counts), String> {
        for round in 0..self.plan.rounds {
            let loss = self.service.choose_loss(&self.plan);
            self.round(loss.as_ref())
                .map_err(|text| format!("round {round}, {loss:?}: {text}"))?;
            tell(round + 1);
        }
        let mut array = self.service.array;
        array.done("stop nas")?;
        array.kill_server();
        array.cut_power();
        judge(&array)?;
        Ok((array, self.service.counts))
    }

    fn round(&mut self, loss: Option<&Loss>) -> Result<(), String> {
        if let Some(loss) = loss
            && loss.is_before
        {
            for &number in &loss.members {
                let member = self.service.array.member(number);
                self.service
                    .array
                    .done(&format!("pool offline {member} tank"))?;
            }
        }
        self.service.crash()?;
        let without = self.service.without(loss);
        self.serve(&without)?;
        if self.service.dice.once_in(3) {
            self.service.counts.nested += 1;
            self.service.crash()?;
            self.serve(&without)?;
        }
        self.service.look()?;
        if let Some(loss) = loss {
            self.take_back(loss)?;
        }
        self.settle()?;
        self.service.look()?;
        self.check()
    }

    fn serve(&mut self, without: &[usize]) -> Result<(), String> {
        let started = self.service.array.serve(without, "")?;
        started.map_err(|slug| format!("refused without {without:?}: {slug}"))
    }

    /// More is written without them; then they come back, and now and then a crash comes while they are given what they
    /// missed.
    fn take_back(&mut self, loss: &Loss) -> Result<(), String> {
        let (seed, socket) = (self.service.dice.number(), self.service.array.socket());
        let load = Load::new(&self.service.book);
        self.service.counts.requests += load.run(&socket, seed, REQUESTS)?;
        self.service.look()?;
        self.stop()?;
        self.serve(&[])?;
        if loss.is_before {
            for &number in &loss.members {
                let member = self.service.array.member(number);
                let words = format!("pool online {member} tank");
                self.service.array.done(&words)?;
            }
        }
        if self.service.dice.once_in(2) {
            self.service.counts.nested += 1;
            self.service.crash()?;
            self.serve(&[])?;
        }
        self.service.look()
    }

    fn stop(&mut self) -> Result<(), String> {
        self.service.array.done("stop nas")?;
        self.service.array.kill_server();
        Ok(())
    }

    /// Waits until all members have everything.
    fn settle(&self) -> Result<(), String> {
        let array = &self.service.array;
        array.wait_until("whole members", |status| {
            let mut members = status["members"].as_array().into_iter().flatten();
            let is_whole = members.all(|member| member["state"] == "active");
            is_idle(status) && is_whole && status["verdict"] == "ok"
        })
    }

    /// Everything that the pool says about itself, and every block.
    fn check(&mut self) -> Result<(), String> {
        self.stop()?;
        let members =
            (0..self.plan.organisation.members).map(|number| self.service.array.member(number));
        let members = members.collect::<Vec<_>>().join(" ");
        for word in ["check", "scrub"] {
            self.service.array.done(&format!("pool {word} {members}"))?;
        }
        self.serve(&[])
    }
}

/// zdb of OpenZFS reads everything, and finds no leak and no error.
fn judge(array: &Array) -> Result<(), String> {
    let folder = array.place.file("judged");
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    for path in super::Course::files(array) {
        let name = path.file_name().unwrap_or_default();
        std::fs::rename(&path, folder.join(name)).map_err(|error| error.to_string())?;
    }
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../oracle/zfs-oracle");
    let output = Command::new("python3")
        .arg(program)
        .arg("check")
        .arg(&folder)
        .args(["tank", "--version", "both", "--complete"])
        .output()
        .map_err(|error| format!("python3: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "OpenZFS finds faults: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )),
    }
}
