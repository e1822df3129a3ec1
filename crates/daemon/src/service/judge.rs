//! What the daemon sees of its volumes each second, for its alarms.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::{Clock, Moment};
use plexum_incidents::facts::AbsentVolume;

use super::Service;
use super::alarms::Surroundings;
use super::names::{judged_as, key_of_status};
use super::waiting::Entry;
use crate::expected::Wanted;
use crate::host::Hosted;
use crate::serve_dataset::pool_of;

/// How long the first try of a volume may take: one that hangs in it is absent then.
const FIRST_TRY_MAX: Duration = Duration::from_secs(60);

impl Service {
    /// Judges everything now and each second, for ever; the daemon's only timer.
    pub(super) async fn keep_judging(self: Rc<Self>) {
        loop {
            self.judge();
            let clock = self.host.handle().clock();
            // On the whole second, as volumes look after their members: one wake-up does for all of it.
            let second_ns = 1_000_000_000;
            let rest_ns = second_ns - clock.now().0 % second_ns;
            clock.sleep(Duration::from_nanos(rest_ns)).await;
            self.tick.pass();
        }
    }

    fn judge(&self) {
        let mut around = self.absent();
        let (mut volumes, mut disks) = (Vec::new(), Vec::new());
        for hosted in self.host.list() {
            let Some(identity) = self.identity_of(&hosted) else {
                continue; // it is being let go of, and nobody expects it
            };
            match self.alarms.volume(identity.clone(), &hosted) {
                Some((facts, of_disks)) => {
                    volumes.push(facts);
                    disks.extend(of_disks);
                }
                None => around.starting.push(identity),
            }
        }
        for pool in self.pools.all() {
            if let Some((facts, of_disks)) = self.alarms.pool(&pool) {
                volumes.push(facts);
                disks.extend(of_disks);
            }
        }
        self.alarms.judge(volumes, disks, around);
    }

    /// What a volume is known by, whatever it is called.
    fn identity_of(&self, hosted: &Hosted) -> Option<String> {
        hosted
            .status()
            .map(|status| key_of_status(&status).to_string())
    }

    /// Volumes that should be there and are not.
    fn absent(&self) -> Surroundings {
        let now = self.host.handle().clock().now();
        let entries = self.entries.borrow();
        let mut around = Surroundings::default();
        let mut pools = BTreeSet::new();
        for (key, entry) in entries.iter() {
            let (mut key, mut name) = (key.clone(), entry.expected.volume.clone());
            if entry.expected.wanted == Wanted::Stopped || self.is_served(&key) {
                continue;
            }
            // A pool that is not there is one thing that is missing, however many volumes it has.
            let uuid = &entry.expected.uuid;
            if let Some(dataset) = entry.expected.open.datasets.first()
                && !self.pools.is_open(uuid)
            {
                if !pools.insert(uuid.clone()) {
                    continue;
                }
                key = judged_as(&entry.expected);
                name = pool_of(dataset).to_owned();
            }
            match self.is_waited_for(entry, now) {
                true => around.starting.push(key.to_string()),
                false => around.absent.push(AbsentVolume {
                    name,
                    uuid: key.to_string(),
                    reason: reason(entry),
                    members: entry.expected.members(),
                }),
            }
        }
        around
    }

    /// Whether the time that its members are given is not over yet, or it is being tried for the first time.
    fn is_waited_for(&self, entry: &Entry, now: Moment) -> bool {
        let arrived = entry.waits_since.as_ref().map(|(_, last)| *last);
        let since = arrived.unwrap_or(self.started);
        let wait = match entry.problem.is_some() {
            true => self.start.wait,
            false => self.start.wait.max(FIRST_TRY_MAX),
        };
        Duration::from_nanos(now.ns_since(since)) < wait
    }
}

fn reason(entry: &Entry) -> String {
    let problem = entry.problem.as_ref();
    problem.map_or_else(
        || "its members are waited for".to_owned(),
        |problem| problem.message.clone(),
    )
}
