//! What has met what: stages of requests, faults and crashes, counted as they happen.

use super::rules::Rules;
use super::scene::Scene;
use crate::subject::Ended;
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::{FAULT_KINDS, kind_name};

impl<S: Rules> Scene<S> {
    /// What the end of a life interrupts.
    pub(super) fn note_crash_coverage(&self, kind: CrashKind, ended: Ended) {
        let during = match self.subject.borrow().as_ref() {
            None => "assembly",
            Some(subject) => match subject.condition() {
                Some(condition) => condition,
                None if self.outstanding.get() > 0 => "requests",
                None => "idle",
            },
        };
        let what = match ended {
            Ended::Stopped => format!("stop / {during}"),
            Ended::Cut => format!("{kind:?} / {during}"),
        };
        *self.counts.borrow_mut().coverage.entry(what).or_default() += 1;
        let crash = match kind {
            CrashKind::Kill => "kill",
            CrashKind::PowerCut => "power-cut",
        };
        let (before, now) = (self.hits_before.get(), self.hits());
        let mut faults: Vec<&'static str> = (0..FAULT_KINDS)
            .filter(|fault| now[*fault] > before[*fault])
            .map(kind_name)
            .collect();
        faults.push("none");
        for fault in faults {
            self.note_matrix(fault, crash);
        }
    }

    /// Notes which thresholds this life has crossed; asked before the volume goes.
    pub(super) fn note_thresholds(&self) {
        let crossed = match self.subject.borrow().as_ref() {
            Some(subject) => subject.crossed(),
            None => return,
        };
        let mut counts = self.counts.borrow_mut();
        for name in crossed {
            let what = format!("threshold / {name}");
            *counts.coverage.entry(what).or_default() += 1;
        }
    }

    /// Notes which stages of requests a fault and a crash have met.
    pub fn note_matrix(&self, fault: &'static str, crash: &'static str) {
        let mut stages = match self.subject.borrow().as_ref() {
            Some(subject) => subject.stages(),
            None => vec!["assembly"],
        };
        stages.sort_unstable();
        stages.dedup();
        if stages.is_empty() {
            stages.push("idle");
        }
        let mut counts = self.counts.borrow_mut();
        for stage in stages {
            *counts.matrix.entry((stage, fault, crash)).or_default() += 1;
        }
    }

    /// Notes the faults that have struck since it was asked last, with the requests that they may have met.
    pub fn note_hits(&self) {
        let now = self.hits();
        let before = self.hits_seen.replace(now);
        for kind in (0..FAULT_KINDS).filter(|kind| now[*kind] > before[*kind]) {
            self.note_matrix(kind_name(kind), "none");
        }
    }

    /// Whether the fault that the scenario aims with has struck in this life; true where it aims at nothing.
    pub(super) fn is_aim_hit(&self) -> bool {
        let Some(fault) = self.course().aim else {
            return true;
        };
        let (before, now) = (self.hits_before.get(), self.hits());
        (0..FAULT_KINDS).any(|kind| kind_name(kind) == fault && now[kind] > before[kind])
    }

    /// I/Os struck by a fault so far, by kind. Faults that strike no single I/O count when they are put in.
    pub(super) fn hits(&self) -> [u64; FAULT_KINDS] {
        let mut all = [0; FAULT_KINDS];
        for disk in &self.disks {
            let done = disk.counters();
            for (kind, sum) in all.iter_mut().enumerate() {
                *sum += done.faults_hit[kind];
                if matches!(kind_name(kind), "vanish" | "slow" | "bit-flip") {
                    *sum += done.faults_put[kind];
                }
            }
        }
        all
    }
}
