//! What `plexum top` shows, as plain data: made of two looks at the servers. Pure.
//!
//! Invariant: what was not seen is `-`, never 0.

use std::collections::BTreeMap;

use plexum_daemon::status::{MemberState, MemberStatus, VolumeStatus};
use plexum_daemon::web::state::State;
use plexum_daemon::web::verdict::{
    Badness, Headline, badness, clock_here, ends_here, headline_here,
};
use serde_json::Value;

use crate::units::{show_bytes, show_seconds};

/// One look: what servers say, and the counters of each volume.
#[derive(Clone, Debug, Default)]
pub struct Look {
    /// Volumes, incidents, and when that was.
    pub state: State,
    /// Of each volume, as `stats --json`.
    pub stats: BTreeMap<String, Value>,
}

/// Everything that is drawn.
#[derive(Clone, Debug)]
pub struct Model {
    /// Name of the machine, and the time by its clock.
    pub machine: String,
    /// The worst that is the case.
    pub headline: Headline,
    /// Incidents that are not over.
    pub open: usize,
    /// How old what the daemon judged is.
    pub judged: String,
    /// What rates are of.
    pub span: String,
    /// Volumes.
    pub volumes: Vec<VolumeRow>,
    /// Which of them is looked at.
    pub selected: usize,
    /// Its members.
    pub members: Vec<MemberRow>,
    /// What runs on it, a line each.
    pub jobs: Vec<Job>,
    /// Incidents that are not over, the worst first.
    pub incidents: Vec<IncidentRow>,
}

/// A line of a volume, in the words that are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VolumeRow {
    /// Name.
    pub name: String,
    /// Verdict, in a word.
    pub verdict: String,
    /// How bad that is.
    pub is_ill: bool,
    /// Losses survived, of how many.
    pub survives: String,
    /// Reads, writes, bytes read and written in a second, milliseconds of a read and of a write.
    pub rates: [String; 6],
    /// What runs.
    pub job: String,
}

/// A line of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRow {
    /// Slot, bay, disk, state.
    pub who: [String; 4],
    /// Whether it does not serve as it should.
    pub is_ill: bool,
    /// Reads and writes in a second, p50 and p99 of reads in ms, beside peers, under way, errors.
    pub rates: [String; 7],
}

/// A line of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// How far, in percent.
    pub percent: u16,
    /// What, how fast, until when.
    pub text: String,
}

/// A line of an incident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncidentRow {
    /// Its number.
    pub id: String,
    /// What is wrong, and who knows.
    pub text: String,
    /// Whether somebody knows.
    pub is_known: bool,
}

impl Model {
    /// The model of a look, with the rates since an earlier one, or since counting began.
    #[must_use]
    pub fn of(now: &Look, before: Option<&Look>, selected: usize) -> Self {
        let state = &now.state;
        let selected = selected.min(state.volumes.len().saturating_sub(1));
        let mut volumes: Vec<VolumeRow> = state
            .volumes
            .iter()
            .map(|status| volume_row(status, now, before))
            .collect();
        volumes.extend(state.missed().map(|missed| VolumeRow {
            name: missed.volume.clone(),
            verdict: "NOT SERVED".to_owned(),
            is_ill: true,
            survives: "-".to_owned(),
            rates: std::array::from_fn(|_| "-".to_owned()),
            job: String::new(),
        }));
        let chosen = state.volumes.get(selected);
        let judged = state.alarms.as_ref().and_then(|alarms| alarms.judged_s);
        Self {
            machine: format!("{}  {}", state.host, clock_here(state.now_s)),
            headline: headline_here(state),
            open: state.open_incidents().count(),
            judged: judged.map_or("not judged: no daemon".to_owned(), |judged| {
                let age = state.now_s.saturating_sub(judged);
                format!("judged {} ago", show_seconds(age))
            }),
            span: match before {
                Some(_) => "rates of the last interval".to_owned(),
                None => "rates since counting began".to_owned(),
            },
            volumes,
            selected,
            members: chosen.map_or_else(Vec::new, |status| {
                let members = status.members.iter();
                members
                    .map(|member| member_row(status, member, now, before))
                    .collect()
            }),
            jobs: chosen.map_or_else(Vec::new, |status| jobs(status, state.now_s)),
            incidents: state.open_incidents().map(incident_row).collect(),
        }
    }
}

fn jobs(status: &VolumeStatus, now_s: u64) -> Vec<Job> {
    let jobs = status.jobs.iter();
    jobs.map(|job| {
        let percent = u128::from(job.done_bytes) * 100 / u128::from(job.total_bytes.max(1));
        let ends = ends_here(job, now_s).unwrap_or_else(|| "its end is not known yet".to_owned());
        Job {
            percent: u16::try_from(percent).unwrap_or(100).min(100),
            text: format!(
                "{} {percent} %  {}/s  {ends}",
                job.kind.word(),
                show_bytes(job.rate_bytes_per_s)
            ),
        }
    })
    .collect()
}

fn incident_row(incident: &plexum_daemon::web::state::Incident) -> IncidentRow {
    let headline = incident.headline.as_deref().unwrap_or("");
    let known = incident.acknowledged.as_ref();
    let known_by = known.map_or(String::new(), |known| {
        format!("  (known to {}: {})", known.who, known.why)
    });
    IncidentRow {
        id: incident.id.clone(),
        text: format!(
            "{} {} {}: {headline}{known_by}",
            incident.severity,
            clock_here(incident.opened_s),
            incident.name
        ),
        is_known: known.is_some(),
    }
}

fn volume_row(status: &VolumeStatus, now: &Look, before: Option<&Look>) -> VolumeRow {
    let name = &status.volume;
    let stats = now.stats.get(name);
    let since = before.and_then(|before| before.stats.get(name));
    let span = Span::of(stats, since);
    let rate = |key: &str| span.rate(&["total"], key);
    let survives = match status.designed_spare_failures {
        Some(0) => "none".to_owned(),
        Some(designed) => format!("{} of {designed}", status.spare_failures),
        None => status.spare_failures.to_string(),
    };
    VolumeRow {
        name: name.clone(),
        verdict: status.verdict.word().to_owned(),
        is_ill: badness(status) > Badness::Well,
        survives,
        rates: [
            words(rate("reads")),
            words(rate("writes")),
            byte_words(rate("read_bytes")),
            byte_words(rate("written_bytes")),
            span.latency("read_ns", "reads"),
            span.latency("write_ns", "writes"),
        ],
        job: jobs(status, now.state.now_s)
            .first()
            .map_or(String::new(), |job| job.text.clone()),
    }
}

fn member_row(
    status: &VolumeStatus,
    member: &MemberStatus,
    now: &Look,
    before: Option<&Look>,
) -> MemberRow {
    let stats = now.stats.get(&status.volume);
    let since = before.and_then(|before| before.stats.get(&status.volume));
    let own = |stats: Option<&Value>| -> Option<Value> {
        let stats = stats?;
        let mut members = stats["members"].as_array()?.iter();
        let found = members.find(|one| one["member"].as_str() == member.path.as_deref())?;
        // With the moments of the whole, so that it is a span of its own.
        let mut found = serde_json::json!({"total": found});
        for key in ["moment_ns", "counting_since_ns"] {
            found[key] = stats[key].clone();
        }
        Some(found)
    };
    let (own_now, own_before) = (own(stats), own(since));
    let span = Span::of(own_now.as_ref(), own_before.as_ref());
    let disk = member.disk.as_ref();
    let bay = disk.and_then(|disk| disk.bay.as_ref());
    let serial = disk.and_then(|disk| disk.serial.clone());
    let name = serial
        .or_else(|| member.serial.clone())
        .or_else(|| member.path.clone().or_else(|| member.was.clone()));
    let in_flight = own_now
        .as_ref()
        .and_then(|own| own["total"]["in_flight"].as_u64());
    let latency = member.read_latency;
    let peers = member.latency_vs_peers_percent.map(|percent| {
        let slow = if member.is_slow { "!" } else { "" };
        format!("{}.{}x{slow}", percent / 100, percent / 10 % 10)
    });
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let milliseconds = |us: u64| format!("{}.{}", us / 1000, us / 100 % 10);
    MemberRow {
        who: [
            or_dash(member.slot.map(|slot| slot.to_string())),
            or_dash(bay.map(|bay| bay.short())),
            or_dash(name),
            match member.state {
                MemberState::Missing => "GONE".to_owned(),
                state => state.word().to_owned(),
            },
        ],
        is_ill: !matches!(member.state, MemberState::Active | MemberState::Spare) || member.is_slow,
        rates: [
            words(span.rate(&["total"], "reads")),
            words(span.rate(&["total"], "writes")),
            or_dash(latency.map(|latency| milliseconds(latency.p50_us))),
            or_dash(latency.map(|latency| milliseconds(latency.p99_us))),
            or_dash(peers),
            or_dash(in_flight.map(|count| count.to_string())),
            format!(
                "{}/{}/{}",
                member.read_errors, member.write_errors, member.corrected_errors
            ),
        ],
    }
}

/// Counters of two moments.
struct Span<'a> {
    now: Option<&'a Value>,
    /// Counters that were there before; none: they began at 0.
    before: Option<&'a Value>,
    ns: u64,
}

impl<'a> Span<'a> {
    fn of(now: Option<&'a Value>, before: Option<&'a Value>) -> Self {
        let moment = |value: Option<&Value>, key: &str| value.and_then(|value| value[key].as_u64());
        let end = moment(now, "moment_ns").unwrap_or(0);
        // Somebody counts anew: what was there before says nothing any more.
        let before =
            before.filter(|_| moment(now, "counting_since_ns") <= moment(before, "moment_ns"));
        let begin = match before {
            Some(_) => moment(before, "moment_ns"),
            None => moment(now, "counting_since_ns"),
        };
        Self {
            now,
            before,
            ns: end.saturating_sub(begin.unwrap_or(end)),
        }
    }

    fn grown(&self, path: &[&str], key: &str) -> Option<u64> {
        let value = |from: &Value| {
            let part = path.iter().fold(from, |part, step| &part[*step]);
            part[key].as_u64()
        };
        let before = self.before.and_then(value).unwrap_or(0);
        Some(value(self.now?)?.saturating_sub(before))
    }

    /// So many in a second; none without a time in which they were counted.
    fn rate(&self, path: &[&str], key: &str) -> Option<u64> {
        let grown = u128::from(self.grown(path, key)?) * 1_000_000_000;
        let rate = grown.checked_div(u128::from(self.ns))?;
        u64::try_from(rate).ok()
    }

    /// Milliseconds of one, on the average.
    fn latency(&self, ns: &str, count: &str) -> String {
        let (Some(ns), Some(count)) = (self.grown(&["total"], ns), self.grown(&["total"], count))
        else {
            return "-".to_owned();
        };
        ns.checked_div(count).map_or("-".to_owned(), |ns| {
            format!("{}.{}", ns / 1_000_000, ns / 100_000 % 10)
        })
    }
}

fn words(rate: Option<u64>) -> String {
    rate.map_or("-".to_owned(), |rate| rate.to_string())
}

fn byte_words(rate: Option<u64>) -> String {
    rate.map_or("-".to_owned(), show_bytes)
}
