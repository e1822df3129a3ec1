//! Volumes on the page: verdict, what it means, what runs, members with their disks. Pure.

use jiff::tz::TimeZone;
use serde_json::json;

use super::html::{Html, button, cell};
use super::state::State;
use super::verdict::{badness, ends};
use super::words::{bytes, milliseconds, moment, seconds};
use crate::expected::Wanted;
use crate::volume::meaning::meaning;
use crate::volume::status::{
    JobKind, JobStatus, MemberState, MemberStatus, ScrubPlanStatus, ScrubStatus, VolumeStatus,
};

/// All volumes, those that are not served too.
pub(super) fn all(state: &State, zone: &TimeZone) -> String {
    Html::of(|html| {
        html.element("section", &[], |html| {
            html.say("h2", &[], "Volumes");
            if state.volumes.is_empty() && state.waiting.is_empty() {
                html.say("p", &[("class", "quiet")], "None is served.");
            }
            for status in &state.volumes {
                one(html, status, state.now_s, zone);
            }
            for waiting in &state.waiting {
                absent(html, waiting);
            }
        });
    })
}

fn absent(html: &mut Html, waiting: &crate::service::Waiting) {
    let (class, word) = match waiting.wanted {
        Wanted::Served => ("volume critical", "NOT SERVED"),
        Wanted::Stopped => ("volume", "stopped"),
    };
    html.element("article", &[("class", class)], |html| {
        html.element("h3", &[], |html| {
            html.text(&waiting.volume);
            html.text(" ");
            html.say("span", &[("class", "word")], word);
        });
        let why = waiting.problem.as_ref();
        let why = why.and_then(|problem| problem["error"]["message"].as_str());
        if let Some(why) = why {
            html.say("p", &[], why);
        }
        if !waiting.missing_disks.is_empty() {
            let text = format!("missing: {}", waiting.missing_disks.join(", "));
            html.say("p", &[], &text);
        }
        html.element("p", &[("class", "actions needs-operate")], |html| {
            let wish = json!({"action": "start", "volume": waiting.volume});
            let name = format!("serve {} again", waiting.volume);
            button(html, &wish, "serve it again", &name);
        });
    });
}

fn one(html: &mut Html, status: &VolumeStatus, now_s: u64, zone: &TimeZone) {
    let class = format!("volume {}", badness(status).word());
    html.element("article", &[("class", &class)], |html| {
        html.element("h3", &[], |html| {
            html.text(&status.volume);
            html.text(" ");
            html.say("span", &[("class", "word")], status.verdict.word());
        });
        html.say("p", &[("class", "quiet")], &facts(status));
        if let Some(meaning) = meaning(status) {
            html.say("p", &[("class", "meaning")], &meaning);
        }
        html.say("p", &[], &survived(status));
        for job in &status.jobs {
            running(html, job, now_s, zone);
        }
        for finding in &status.findings {
            html.say("p", &[("class", "finding")], &finding.message);
            for command in &finding.commands {
                html.element("p", &[], |html| html.say("code", &[], command));
            }
        }
        members(html, status);
        for line in checks(status, now_s, zone) {
            html.say("p", &[("class", "quiet")], &line);
        }
        for export in &status.exports {
            let text = format!("{}, {} clients", export.uri, export.clients);
            html.say("p", &[("class", "quiet")], &text);
        }
        if let Some(next) = &status.next {
            html.element("p", &[], |html| {
                html.text("Next: ");
                html.say("code", &[], next);
            });
        }
        actions(html, status);
    });
}

fn facts(status: &VolumeStatus) -> String {
    let strip = status.strip_bytes;
    let strip = strip.map_or(String::new(), |strip| {
        format!(", strips of {}", bytes(strip))
    });
    let layout = status.layout.as_ref();
    let layout = layout.map_or(String::new(), |layout| format!(" {layout}"));
    let read_only = if status.is_read_only {
        ", read-only"
    } else {
        ""
    };
    format!(
        "{}{layout} of {} members{strip}, {}, {}{read_only}",
        status.level,
        status.slots,
        status.format,
        bytes(status.size_bytes)
    )
}

/// How many losses are survived now, beside how many by design.
fn survived(status: &VolumeStatus) -> String {
    let left = status.spare_failures;
    match status.designed_spare_failures {
        Some(0) => "Losses survived: none, by design.".to_owned(),
        Some(designed) => format!("Losses survived: {left} of {designed}."),
        None => format!("Losses survived: {left}."),
    }
}

fn running(html: &mut Html, job: &JobStatus, now_s: u64, zone: &TimeZone) {
    let percent = u128::from(job.done_bytes) * 100 / u128::from(job.total_bytes.max(1));
    let rate = bytes(job.rate_bytes_per_s);
    let ends = ends(job, now_s, zone).unwrap_or_else(|| "its end is not known yet".to_owned());
    let word = job.kind.word();
    let slots: Vec<String> = job.slots.iter().map(ToString::to_string).collect();
    let slots = match slots.is_empty() {
        true => String::new(),
        false => format!(" of slot {}", slots.join(", ")),
    };
    html.element("p", &[("class", "job")], |html| {
        let (value, label) = (percent.to_string(), format!("{word}{slots}"));
        html.element(
            "progress",
            &[("max", "100"), ("value", &value), ("aria-label", &label)],
            |_| {},
        );
        html.text(&format!(" {label}: {percent} %, {rate}/s, {ends}"));
    });
}

/// Columns of the table of members.
const COLUMNS: [&str; 8] = [
    "Slot",
    "Bay",
    "Disk",
    "State",
    "Errors r/w/mended",
    "Read p50/p99 ms",
    "Beside peers",
    "",
];

fn members(html: &mut Html, status: &VolumeStatus) {
    html.element("table", &[], |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                for title in COLUMNS {
                    html.say("th", &[("scope", "col")], title);
                }
            });
        });
        html.element("tbody", &[], |html| {
            for member in &status.members {
                row(html, status, member);
            }
        });
    });
    for former in &status.former_disks {
        let text = format!(
            "slot {} was on the {}: it can be pulled",
            former.slot,
            former.disk.words()
        );
        html.say("p", &[], &text);
    }
}

fn row(html: &mut Html, status: &VolumeStatus, member: &MemberStatus) {
    let is_ill = !matches!(member.state, MemberState::Active | MemberState::Spare);
    let class = if is_ill { "ill" } else { "" };
    html.element("tr", &[("class", class)], |html| {
        let slot = member.slot.map_or("-".to_owned(), |slot| slot.to_string());
        cell(html, "Slot", &slot);
        let disk = member.disk.as_ref();
        let bay = disk.and_then(|disk| disk.bay.as_ref());
        cell(html, "Bay", &bay.map_or("-".to_owned(), |bay| bay.short()));
        html.element("td", &[("data-title", "Disk")], |html| {
            disk_cell(html, member)
        });
        html.element("td", &[("data-title", "State")], |html| {
            html.say("strong", &[], member.state.word());
            if let Some(why) = &member.failed_because {
                html.text(&format!(": {why}"));
            }
            if let Some(health) = disk.and_then(|disk| disk.health.as_ref()) {
                html.say("div", &[("class", "quiet")], &health.words);
            }
        });
        let errors = format!(
            "{}/{}/{}",
            member.read_errors, member.write_errors, member.corrected_errors
        );
        cell(html, "Errors r/w/mended", &errors);
        let latency = member.read_latency.map_or("-".to_owned(), |latency| {
            format!(
                "{} / {}",
                milliseconds(latency.p50_us),
                milliseconds(latency.p99_us)
            )
        });
        cell(html, "Read p50/p99 ms", &latency);
        let peers = member.latency_vs_peers_percent;
        let peers = peers.map_or("-".to_owned(), |percent| {
            let slow = if member.is_slow { " SLOW" } else { "" };
            format!("{}.{}x{slow}", percent / 100, percent / 10 % 10)
        });
        cell(html, "Beside peers", &peers);
        html.element("td", &[("class", "actions")], |html| {
            member_actions(html, status, member);
        });
    });
}

fn disk_cell(html: &mut Html, member: &MemberStatus) {
    let disk = member.disk.as_ref();
    let model = disk.and_then(|disk| disk.model.clone());
    let serial = disk.and_then(|disk| disk.serial.clone());
    let serial = serial.or_else(|| member.serial.clone());
    let serial = serial.map(|serial| format!("serial {serial}"));
    let words: Vec<String> = [model, serial].into_iter().flatten().collect();
    if !words.is_empty() {
        html.say("div", &[], &words.join(", "));
    }
    let path = member.path.as_ref().or(member.was.as_ref());
    let path = path.map_or("-", String::as_str);
    let gone = match member.path {
        Some(_) => String::new(),
        None => ", gone".to_owned(),
    };
    html.say("div", &[("class", "quiet")], &format!("{path}{gone}"));
}

fn member_actions(html: &mut Html, status: &VolumeStatus, member: &MemberStatus) {
    let Some(path) = &member.path else {
        return;
    };
    let mut offer = |role: &'static str, action: &str, wish: serde_json::Value| {
        html.element("span", &[("class", role)], |html| {
            let name = format!("{action} {path} of {}", status.volume);
            button(html, &wish, action, &name);
        });
    };
    let volume = &status.volume;
    match member.state {
        MemberState::Active => {
            let wish = json!({"action": "replace", "volume": volume, "member": path});
            offer("needs-administer", "replace", wish);
            let wish = json!({"action": "fail", "volume": volume, "member": path});
            offer("needs-administer", "fail", wish);
        }
        MemberState::Faulty => {
            let wish = json!({"action": "re-add", "volume": volume, "member": path});
            offer("needs-operate", "re-add", wish);
            let wish = json!({"action": "remove", "volume": volume, "member": path});
            offer("needs-administer", "remove", wish);
        }
        MemberState::Spare => {
            let wish = json!({"action": "remove", "volume": volume, "member": path});
            offer("needs-administer", "remove", wish);
        }
        MemberState::Rebuilding | MemberState::Stale | MemberState::Missing => {}
    }
}

fn checks(status: &VolumeStatus, now_s: u64, zone: &TimeZone) -> Vec<String> {
    let last = status.last_scrub.as_ref().map(|scrub| last(scrub, zone));
    let plan = status.scrub_plan.as_ref();
    let plan = plan.map(|plan| planned(plan, now_s, zone));
    last.into_iter().chain(plan).collect()
}

fn last(scrub: &ScrubStatus, zone: &TimeZone) -> String {
    let when = scrub
        .finished_s
        .map_or(String::new(), |at| moment(at, zone) + ", ");
    let differ = bytes(scrub.mismatch_bytes);
    match scrub.is_complete {
        true => format!("Last check: {when}{differ} bytes differ."),
        false => format!(
            "Last check: {when}stopped at {} %, {differ} bytes differ up to there.",
            scrub.percent()
        ),
    }
}

fn planned(plan: &ScrubPlanStatus, now_s: u64, zone: &TimeZone) -> String {
    let age = seconds(now_s.saturating_sub(plan.oldest_byte_s));
    let known = match plan.is_partly_unknown {
        true => "not all is compared yet".to_owned(),
        false => format!("the oldest byte was compared {age} ago"),
    };
    let next = match (&plan.waits_because, plan.next_s) {
        (None, _) => "runs now".to_owned(),
        (Some(_), Some(next)) => format!("next {}", moment(next, zone)),
        (Some(why), None) => format!("waits: {why}"),
    };
    format!("Checked every {}: {known}, {next}.", seconds(plan.every_s))
}

fn actions(html: &mut Html, status: &VolumeStatus) {
    let volume = &status.volume;
    let is_scrubbing = |job: &JobStatus| matches!(job.kind, JobKind::Scrub | JobKind::Repair);
    html.element("p", &[("class", "actions")], |html| {
        html.element("span", &[("class", "needs-operate")], |html| {
            match status.jobs.iter().any(is_scrubbing) {
                true => {
                    let wish = json!({"action": "scrub", "volume": volume, "stop": true});
                    button(
                        html,
                        &wish,
                        "stop the check",
                        &format!("stop the check of {volume}"),
                    );
                }
                false => {
                    let wish = json!({"action": "scrub", "volume": volume});
                    button(
                        html,
                        &wish,
                        "check every byte",
                        &format!("check every byte of {volume}"),
                    );
                }
            }
        });
        html.element("span", &[("class", "needs-administer")], |html| {
            let wish = json!({"action": "stop", "volume": volume});
            button(
                html,
                &wish,
                "stop serving",
                &format!("stop serving {volume}"),
            );
        });
    });
}
