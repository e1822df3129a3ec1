//! The disks of a served volume's members: who they are, also of those that have left, and how they are.
//!
//! Invariants:
//! - a disk is looked for when its member joins, and beside the thread that serves;
//! - a disk is asked how it is only when its member was in use just now, so that it is awake anyway, and seldom;
//! - an empty slot and a member that failed keep the disk that they had.

use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, select};
use plexum_block::clock::Clock;
use plexum_engine::state::{FailCause, Standing};
use plexum_engine::volume::MemberStatus as EngineMember;
use plexum_inventory::Transport;
use plexum_inventory::health::{Reading, Report, Silence, Verdict};

use super::advice::shell_word;
use super::member_disks::{Asked, Seen};
use super::served::Served;
use super::status::{Finding, MemberStatus};
use crate::control::event::cause_words;
use crate::control::events::EventHub;
use crate::disk::{DiskSettings, DiskStatus, FormerDisk, ask, beside, find_disks};

/// How often it is looked who does I/O.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How long an answer is waited for: the logs of a big disk take ten seconds.
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// A disk that is to be asked how it is.
struct Due {
    id: u16,
    slot: u32,
    name: String,
    member: String,
}

fn is_in_use(member: &EngineMember) -> bool {
    let standing = member.standing;
    let is_there = matches!(
        standing,
        Standing::Active | Standing::Rebuilding { .. } | Standing::Spare
    );
    is_there && !member.is_lost && member.name.is_some()
}

fn io_of(member: &EngineMember) -> u64 {
    member.counters.reads.wrapping_add(member.counters.writes)
}

impl Served {
    /// Looks for the disks of members that join, notes who has which, and asks them how they are, until `end`; a task
    /// of its own.
    pub async fn know_disks(self: Rc<Self>, settings: DiskSettings, events: EventHub) {
        while !self.has_ended.get() {
            let change = self.volume.changes();
            self.find_new(&settings).await;
            self.note_pulled(&settings, &events).await;
            let is_any = self.note_disks();
            self.ask_due(&settings, &events).await;
            if self.has_ended.get() {
                break;
            }
            let (change, ended) = (pin!(change), pin!(self.ended.changed()));
            let woken = select(change, ended);
            if is_any {
                select(woken, pin!(self.clock.sleep(LOOK_EVERY))).await;
            } else {
                woken.await; // files have nothing to be asked
            }
        }
        self.memory.end_in_use(self.clock.wall_seconds());
    }

    /// Looks for the disks of members that were not there at the last look.
    async fn find_new(&self, settings: &DiskSettings) {
        let members = self.known_members();
        let new: Vec<&EngineMember> = {
            let mut seen = self.disks.0.borrow_mut();
            seen.retain(|id, _| members.iter().any(|member| member.id.0 == *id));
            for member in members.iter().filter(|member| !is_in_use(member)) {
                if let Some(seen) = seen.get_mut(&member.id.0) {
                    seen.is_lost = true;
                }
            }
            let is_new = |id: u16| seen.get(&id).is_none_or(|seen| seen.is_lost);
            let joined = members
                .iter()
                .filter(|member| is_in_use(member) && is_new(member.id.0));
            joined.collect()
        };
        if new.is_empty() {
            return;
        }
        let names = new.iter().filter_map(|member| member.name.clone());
        let (names, roots): (Vec<String>, _) = (names.collect(), settings.roots.clone());
        let looking = beside("disks", move || find_disks(&roots, &names));
        let Either::Left((found, _)) = select(looking, pin!(self.ended.changed())).await else {
            return;
        };
        let mut found = found.unwrap_or_default().into_iter();
        let mut seen = self.disks.0.borrow_mut();
        for member in new {
            let entry = Seen {
                disk: found.next().flatten(),
                noted: None,
                is_lost: false,
                io: io_of(member),
                is_busy: false,
                asked: None,
                hangs: None,
            };
            seen.insert(member.id.0, entry);
        }
    }

    /// A member that failed, and whose disk has left the machine since, was pulled: requests that are under way then
    /// end in many ways. That is why it has failed, and it may come back like any other that was unplugged.
    async fn note_pulled(&self, settings: &DiskSettings, events: &EventHub) {
        let failed = self.failed_disks();
        if failed.is_empty() {
            return;
        }
        // The kernel gives the name to nobody else while the member is open here.
        let class = settings.roots.sys().join("class/block");
        let is_gone = move |disk: &str| matches!(class.join(disk).try_exists(), Ok(false));
        let looking = beside("disks", move || {
            let gone = failed.into_iter().filter(|(_, disk)| is_gone(disk));
            gone.map(|(member, _)| member).collect::<Vec<_>>()
        });
        let Either::Left((Ok(gone), _)) = select(looking, pin!(self.ended.changed())).await else {
            return;
        };
        for member in gone {
            self.note_cause(&member, FailCause::Gone);
            let text = format!("the disk of {member}, which has failed, has left the machine");
            let time_s = self.clock.wall_seconds();
            events.publish(time_s, self.name(), "disk_left", text, Some(member));
        }
    }

    /// Members that failed in a request, each with the kernel's name of its disk.
    fn failed_disks(&self) -> Vec<(String, String)> {
        let members = self.known_members();
        let all = self.disks.0.borrow();
        let failed = members.iter().filter(|member| !is_in_use(member));
        let failed = failed.filter_map(|member| {
            let name = member.name.clone()?;
            let cause = self.memory.cause(&name)?;
            let is_settled = [FailCause::Gone, FailCause::Asked].map(cause_words);
            let disk = all.get(&member.id.0)?.disk.as_ref()?;
            (!is_settled.contains(&&*cause)).then(|| (name, disk.identity.name.clone()))
        });
        failed.collect()
    }

    /// Notes which slots have which disk in use, and who does I/O. Says whether there is any disk.
    fn note_disks(&self) -> bool {
        let (members, now_s) = (self.known_members(), self.clock.wall_seconds());
        let mut all = self.disks.0.borrow_mut();
        let mut in_use = BTreeSet::new();
        for member in members.iter().filter(|member| is_in_use(member)) {
            let Some(seen) = all.get_mut(&member.id.0) else {
                continue;
            };
            let io = io_of(member);
            seen.is_busy = io != seen.io;
            seen.io = io;
            let (Some(slot), false, Some(name)) =
                (member.slot, member.is_replacement, &member.name)
            else {
                continue;
            };
            let slot = u32::from(slot);
            let identity = seen.disk.as_ref().map(|disk| &disk.identity);
            if seen.noted != Some(slot) {
                self.memory.note_disk(slot, name, identity, now_s);
                seen.noted = Some(slot);
            }
            if identity.is_some() {
                in_use.insert(slot);
            }
        }
        self.memory.note_in_use(&in_use, now_s);
        all.values().any(|seen| seen.disk.is_some())
    }

    /// Asks the disks whose time has come, one after the other.
    async fn ask_due(&self, settings: &DiskSettings, events: &EventHub) {
        for due in self.due() {
            if self.has_ended.get() {
                return;
            }
            let name = due.name.clone();
            let answer = beside("smartctl", move || ask(&name));
            let (limit, ended) = (
                pin!(self.clock.sleep(ASK_LIMIT)),
                pin!(self.ended.changed()),
            );
            let late = select(limit, ended);
            let (report, hangs) = match select(answer, late).await {
                Either::Left((Ok(report), _)) => (report, None),
                Either::Left((Err(_), _)) => return, // no thread could be had
                Either::Right((Either::Left(_), answer)) => {
                    let after_ms = u64::try_from(ASK_LIMIT.as_millis()).unwrap_or(u64::MAX);
                    (Report::Silent(Silence::TimedOut { after_ms }), Some(answer))
                }
                Either::Right((Either::Right(_), _)) => return, // it ends
            };
            if let Some(seen) = self.disks.0.borrow_mut().get_mut(&due.id) {
                seen.asked = Some(self.clock.now());
                seen.hangs = hangs;
            }
            self.take_report(&due, report, settings, events);
        }
    }

    /// Who is to be asked now.
    fn due(&self) -> Vec<Due> {
        let (now, now_s) = (self.clock.now(), self.clock.wall_seconds());
        let members = self.known_members();
        let mut all = self.disks.0.borrow_mut();
        let due = |member: &EngineMember| {
            let seen = all.get_mut(&member.id.0)?;
            if let Some(question) = &mut seen.hangs {
                let _ = question.now_or_never()?; // the last one has not ended
                seen.hangs = None;
            }
            let (slot, disk) = (seen.noted?, seen.disk.as_ref()?);
            let known = self.memory.disk_in(slot)?;
            let asked = Asked {
                ago: seen.asked.map(|at| now.since(at)),
                read_s: known.read_s(),
            };
            // A disk of a virtual machine has nothing to say; who does not answer would be told as one that ails.
            let can_tell = disk.identity.transport != Transport::Virtio;
            let is_due = can_tell && seen.is_busy && asked.is_old(now_s);
            is_due.then(|| Due {
                id: member.id.0,
                slot,
                name: disk.identity.name.clone(),
                member: member.name.clone().unwrap_or_default(),
            })
        };
        let in_use = members.iter().filter(|member| is_in_use(member));
        in_use.filter_map(due).collect()
    }

    fn take_report(&self, due: &Due, report: Report, settings: &DiskSettings, events: &EventHub) {
        let time_s = self.clock.wall_seconds();
        if report == Report::Silent(Silence::NotInstalled) {
            if settings.tells_no_smartctl() {
                let text =
                    "how disks are is not known: there is no smartctl; install smartmontools";
                events.publish(time_s, self.name(), "no_smartctl", text, None);
            }
            return;
        }
        let had_none = |slot| {
            self.memory
                .disk_in(slot)
                .is_some_and(|disk| disk.verdict.is_none())
        };
        let is_first = had_none(due.slot);
        let reading = Reading {
            read_unix_s: time_s,
            report,
        };
        let news = self.memory.note_reading(due.slot, &reading);
        let is_told = |verdict: &Verdict| match verdict {
            Verdict::Asleep { .. } | Verdict::CannotTell { .. } => false,
            Verdict::Fine => !is_first,
            _ => true,
        };
        if let Some(verdict) = news.filter(is_told) {
            let (slot, member) = (due.slot, &due.member);
            let text = format!("the disk of slot {slot} ({member}) is {verdict}");
            events.publish(
                time_s,
                self.name(),
                "disk_health",
                text,
                Some(member.clone()),
            );
        }
    }

    /// The disk of a member; of one that has failed or left, the one that it had.
    pub(super) fn disk_of(&self, member: &EngineMember) -> Option<DiskStatus> {
        let slot = self.last_slot(member).filter(|_| !member.is_replacement);
        let known = slot.and_then(|slot| self.memory.disk_in(u32::from(slot)));
        let known = known.filter(|known| Some(&known.member) == member.name.as_ref());
        let all = self.disks.0.borrow();
        let found = all.get(&member.id.0).and_then(|seen| seen.disk.as_ref());
        let here = found.map(|found| DiskStatus::of(&found.identity));
        match (is_in_use(member), here, known) {
            (true, Some(here), Some(known)) => Some(here.with(&known)),
            (true, here, _) => here,
            (false, _, Some(known)) => Some(DiskStatus::of_gone(&known)),
            (false, here, None) => here.map(|here| DiskStatus {
                name: None,
                is_gone: true,
                ..here
            }),
        }
    }

    /// The disk that an empty slot had last.
    pub(super) fn last_disk_of(&self, slot: u32) -> Option<DiskStatus> {
        let known = self.memory.disk_in(slot)?;
        Some(DiskStatus::of_gone(&known))
    }

    /// Serials that do not say which disk is meant.
    pub(super) fn twins(&self) -> Vec<Finding> {
        let all = self.disks.0.borrow();
        let in_use = all.values().filter(|seen| !seen.is_lost);
        let twins = in_use.filter_map(|seen| seen.disk.as_ref()?.twins.clone());
        let twins: BTreeSet<String> = twins.collect();
        let finding = |message| Finding {
            code: "serial_not_unique".into(),
            message,
            commands: Vec::new(),
        };
        twins.into_iter().map(finding).collect()
    }

    /// What members' disks say that is not good.
    pub(super) fn ailing(&self, members: &[MemberStatus]) -> Vec<Finding> {
        let ailing = |member: &MemberStatus| {
            let disk = member.disk.as_ref().filter(|disk| !disk.is_gone)?;
            let health = disk.health.as_ref()?;
            let bad = health.verdict.underlying()?;
            (*bad != Verdict::Fine).then(|| Finding {
                code: "disk_health".into(),
                message: format!(
                    "{}: the {} is {}",
                    member.path.as_deref().unwrap_or_default(),
                    disk.words(),
                    health.words
                ),
                commands: vec![format!("plexum disks {}", shell_word(self.name()))],
            })
        };
        members.iter().filter_map(ailing).collect()
    }

    /// Disks that had a slot lately, and that another has now.
    pub(super) fn former_disks(&self) -> Vec<FormerDisk> {
        let former = self.memory.former(self.clock.wall_seconds());
        let told = former.into_iter().map(|former| FormerDisk {
            slot: former.slot,
            member: former.disk.member.clone(),
            disk: DiskStatus::of_gone(&former.disk),
        });
        told.collect()
    }

    /// Whether a member's disk has this serial or world-wide name.
    pub(super) fn is_disk(&self, member: &EngineMember, word: &str) -> bool {
        let disk = self.disk_of(member);
        disk.is_some_and(|disk| {
            [disk.serial, disk.wwn]
                .iter()
                .flatten()
                .any(|name| name == word)
        })
    }
}
