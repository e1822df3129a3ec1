//! Counters of a served volume: what clients asked for, what members did, and what drives, subdisks, plexes and volumes
//! of Vinum's model did in its terms.
//!
//! Invariants: reading changes nothing; a reset starts everything of the volume anew, and says what was there before.

use plexum_engine::latency::Histogram;
use plexum_freebsd::gvinum::counters::{PlexCounters, Transfers};
use plexum_freebsd::gvinum::tally::VolumeTally;
use plexum_front::counted::Counters;
use serde_json::{Value, json};

use super::served::Served;
use super::status::JSON_VERSION;

impl Served {
    /// Counters of clients and members. With `reset` they start anew afterwards.
    pub fn stats(&self, reset: bool) -> Value {
        let status = self.volume.status();
        let total = self.export.clients().counters();
        let tally = self.export.tally();
        let members: Vec<Value> = status
            .members
            .iter()
            .map(|member| {
                let baseline = self.baseline.borrow();
                let before = baseline
                    .iter()
                    .find(|(id, _)| *id == member.id.0)
                    .map_or_else(Default::default, |(_, counters)| *counters);
                let now = &member.counters;
                json!({
                    "member": member.name, "slot": member.slot,
                    "reads": now.reads - before.reads,
                    "writes": now.writes - before.writes,
                    "read_bytes": now.read_bytes - before.read_bytes,
                    "written_bytes": now.written_bytes - before.written_bytes,
                    "flushes": now.flushes - before.flushes,
                    "read_ns": now.read_ns - before.read_ns,
                    "write_ns": now.write_ns - before.write_ns,
                    "sequential_reads": now.sequential_reads - before.sequential_reads,
                    "sequential_writes": now.sequential_writes - before.sequential_writes,
                    "busy_ns": now.busy_ns - before.busy_ns,
                    "outstanding": now.outstanding,
                    "in_flight": member.in_flight,
                    "hedged_reads": now.hedged_reads - before.hedged_reads,
                    "read_histogram": histogram_json(&member.histograms.0),
                    "write_histogram": histogram_json(&member.histograms.1),
                })
            })
            .collect();
        let mut answer = json!({"version": JSON_VERSION, "kind": "stats", "volume": status.name,
            "moment_ns": status.moment.0, "counting_since_ns": self.counting_since.get().0,
            "total": total_json(&total), "members": members});
        let sum = tally.map(VolumeTally::done).unwrap_or_default();
        answer["plex"] = plex_json("", sum);
        if let Some(tally) = tally {
            answer["vinum"] = vinum_json(tally);
        }
        if reset {
            self.export.clients().reset();
            self.counting_since.set(status.moment);
            tally.into_iter().for_each(VolumeTally::reset);
            *self.baseline.borrow_mut() = status
                .members
                .iter()
                .map(|member| (member.id.0, member.counters))
                .collect();
        }
        answer
    }
}

/// Answers of the last minutes by the time they took: `[at most so many microseconds, how many]`, empty ones left out.
fn histogram_json(histogram: &Histogram) -> Value {
    histogram
        .buckets()
        .map(|(end_ns, count)| json!([end_ns.div_ceil(1000), count]))
        .collect()
}

fn total_json(total: &Counters) -> Value {
    json!({"reads": total.reads, "writes": total.writes, "read_bytes": total.read_bytes,
        "written_bytes": total.written_bytes, "flushes": total.flushes, "errors": total.errors,
        "read_ns": total.read_ns, "write_ns": total.write_ns,
        "sequential_reads": total.sequential_reads, "sequential_writes": total.sequential_writes,
        "busy_ns": total.busy_ns, "outstanding": total.outstanding})
}

/// The counters of classic Vinum, object by object.
fn vinum_json(tally: &VolumeTally) -> Value {
    let drives = tally.drives();
    let drives = drives
        .iter()
        .map(|drive| transfers_json(&drive.name, drive.done()));
    let subdisks = tally.plexes.iter().flat_map(|plex| &plex.subdisks);
    let subdisks = subdisks.map(|subdisk| {
        let mut line = transfers_json(&subdisk.name, subdisk.done());
        line["drive"] = subdisk.drive().name.clone().into();
        line
    });
    let plexes = tally.plexes.iter();
    let plexes = plexes.map(|plex| plex_json(&plex.name, plex.done()));
    let sum = tally.done();
    let mut volume = transfers_json("", sum.transfers);
    volume["recovered_reads"] = sum.recovered_reads.into();
    json!({"volume": volume, "plexes": plexes.collect::<Vec<_>>(),
        "subdisks": subdisks.collect::<Vec<_>>(), "drives": drives.collect::<Vec<_>>()})
}

fn transfers_json(name: &str, done: Transfers) -> Value {
    let mut line = json!({"reads": done.reads, "writes": done.writes,
        "read_bytes": done.read_bytes, "written_bytes": done.written_bytes});
    if !name.is_empty() {
        line["name"] = name.into();
    }
    line
}

fn plex_json(name: &str, done: PlexCounters) -> Value {
    let mut line = transfers_json(name, done.transfers);
    for (field, count) in [
        ("multiblock", done.multiblock),
        ("multistripe", done.multistripe),
        ("recovered_reads", done.recovered_reads),
        ("degraded_writes", done.degraded_writes),
        ("parityless_writes", done.parityless_writes),
    ] {
        line[field] = count.into();
    }
    line
}
