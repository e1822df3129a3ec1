//! What a measurement gives: figures, latencies, what each member did.

use serde::{Deserialize, Serialize};

use super::Work;
use crate::inside::Inside;
use crate::iostat::MemberRow;
use crate::stats::LatencySummary;
use crate::workload::Outcome;
use crate::workload::bonnie::BonnieFigures;
use crate::workload::files::{self, FilePhase};
use crate::workload::jobs::VolumeRow;

/// One number that a workload gives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Name.
    pub name: String,
    /// Value; higher is better.
    pub value: f64,
    /// Unit.
    pub unit: String,
}

impl Figure {
    pub(crate) fn new(name: &str, value: f64, unit: &str) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit: unit.to_owned(),
        }
    }
}

impl BonnieFigures {
    /// As figures of a measurement.
    pub(crate) fn list(&self) -> Vec<Figure> {
        vec![
            Figure::new("block write", self.block_write_kib_per_s, "KiB/s"),
            Figure::new("rewrite", self.rewrite_kib_per_s, "KiB/s"),
            Figure::new("block read", self.block_read_kib_per_s, "KiB/s"),
            Figure::new("seeks", self.seeks_per_s, "1/s"),
        ]
    }
}

/// What a measurement gave.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Measurement {
    /// Figures, the main one first.
    pub figures: Vec<Figure>,
    /// Latencies of reads and writes.
    pub reads: LatencySummary,
    /// The same of writes.
    pub writes: LatencySummary,
    /// Members.
    pub members: Vec<MemberRow>,
    /// Jain's fairness over the processes.
    pub fairness: f64,
    /// The volumes and what each did, where jobs were shared out to them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeRow>,
    /// bonnie++'s phases with many files, where they ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<FilePhase>,
    /// The look of the classic program, where there is one.
    pub classic: String,
    /// Time it took: virtual on simulated disks.
    pub elapsed_s: f64,
    /// What a reader of the figures should know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Distributions, disks over time, and whether the books of the layers agree.
    pub inside: Inside,
}

/// What is said where bonnie++'s phases with many files were asked for and cannot be.
pub(super) fn without_files(work: &Work) -> Vec<String> {
    let is_asked = work.kind == "bonnie++" && work.files > 0;
    let text = "bonnie++'s phases with many files are left out: they need a file system, a folder after --on";
    is_asked.then(|| text.to_owned()).into_iter().collect()
}

impl Measurement {
    /// Adds bonnie++'s phases with `count` files each.
    pub(super) fn add_files(&mut self, name: &str, count: u64, phases: Vec<FilePhase>) {
        for phase in &phases {
            self.figures
                .push(Figure::new(phase.name, phase.files_per_s, "files/s"));
            self.elapsed_s += count as f64 / phase.files_per_s;
        }
        self.classic += &format!("\n{}", files::classic(name, count, &phases));
        self.files = phases;
    }
}

/// What the requests of a run say.
pub(super) fn summarise(outcome: &Outcome, members: Vec<MemberRow>) -> Measurement {
    Measurement {
        figures: vec![
            Figure::new("requests", outcome.requests_per_s(), "1/s"),
            Figure::new("rate", outcome.bytes_per_s() / 1024.0, "KiB/s"),
        ],
        reads: outcome.traffic.reads.summary(),
        writes: outcome.traffic.writes.summary(),
        members,
        fairness: outcome.fairness(),
        volumes: Vec::new(),
        files: Vec::new(),
        classic: String::new(),
        elapsed_s: outcome.seconds(),
        notes: Vec::new(),
        inside: Inside::of(&outcome.traffic, outcome.elapsed_ns),
    }
}
