//! What is wrong with a volume.

use super::bytes_text;
use crate::facts::{MissingSlot, RedundancyKind, ScrubFacts, SlowMember, SpaceFacts, VolumeFacts};
use crate::finding::{Code, Finding, Lines, Object, Severity};
use crate::mutant::{DeliberateBug, Mutant};
use crate::time::{UnixTime, duration_text};

/// Slots that a message names; the others are counted.
const NAMED_MAX: usize = 3;

/// Room of which a warning is due, in percent.
const NEARLY_FULL_PERCENT: u128 = 90;

/// Everything that is wrong with `volume`.
pub(super) fn judge(
    volume: &VolumeFacts,
    utc_offset_s: i32,
    now: UnixTime,
    bug: DeliberateBug,
) -> Vec<Finding> {
    if let Some(reason) = &volume.cannot_judge {
        return vec![finding(
            volume,
            Code::NotJudged,
            Severity::Critical,
            not_judged(&volume.name, reason),
        )];
    }
    let mut found = Vec::new();
    let severity = redundancy(volume, bug);
    if let Some(severity) = severity {
        let lines = redundancy_lines(volume, severity, utc_offset_s);
        found.push(finding(volume, Code::Redundancy, severity, lines));
    } else if volume.bad_bytes > 0 {
        let lines = bad_blocks(volume);
        found.push(finding(volume, Code::BadBlocks, Severity::Warning, lines));
    }
    found.extend(scrub(volume, now));
    found.extend(volume.slow.iter().map(|slow| slow_member(volume, slow)));
    found.extend(space(volume));
    found
}

/// How bad the redundancy is; none when it is as it is meant to be.
///
/// Slots that are meant to be empty take as much from the design. One more empty slot than that is a loss even where
/// the number does not show it: of pairs of copies, the weakest counts.
fn redundancy(volume: &VolumeFacts, bug: DeliberateBug) -> Option<Severity> {
    let is_overlooked = bug.is(Mutant::MissingNotCounted)
        && volume.missing.iter().all(|slot| slot.valid_bytes.is_none());
    if is_overlooked && !volume.missing.is_empty() && !volume.is_lost {
        return None;
    }
    if volume.is_lost {
        let by_word = bug.is(Mutant::SeverityByWord);
        return Some(if by_word {
            Severity::Critical
        } else {
            Severity::Emergency
        });
    }
    if is_being_made(volume) {
        return None;
    }
    let meant = volume
        .losses_designed
        .saturating_sub(volume.expected_missing);
    let is_below = volume.losses_left < meant || volume.missing.len() > volume.expected_missing;
    match volume.losses_left {
        _ if !is_below => None,
        0 if !bug.is(Mutant::SeverityByWord) => Some(Severity::Critical),
        _ => Some(Severity::Warning),
    }
}

/// Creation is not loss: what never was redundant and is on its way lacks nothing. A slot that nobody fills is lost
/// during creation as at any time.
fn is_being_made(volume: &VolumeFacts) -> bool {
    let empty = volume
        .missing
        .iter()
        .filter(|slot| slot.valid_bytes.is_none());
    volume.is_first_sync && empty.count() <= volume.expected_missing
}

fn finding(volume: &VolumeFacts, code: Code, severity: Severity, lines: Lines) -> Finding {
    Finding {
        code,
        object: Object::Volume(volume.uuid.clone()),
        name: volume.name.clone(),
        severity,
        lines,
    }
}

pub(super) fn not_judged(name: &str, reason: &str) -> Lines {
    Lines {
        headline: format!("CANNOT BE JUDGED - {reason}"),
        data: vec!["nobody knows how many more losses it survives".to_owned()],
        advice: vec![format!("look at it:   plexum status {name}")],
        ..Lines::default()
    }
}

fn redundancy_lines(volume: &VolumeFacts, severity: Severity, utc_offset_s: i32) -> Lines {
    let cause = cause(volume);
    let headline = match severity {
        Severity::Emergency => format!("DATA LOST - {cause}"),
        Severity::Critical => format!("ONE MORE FAILURE LOSES IT - {cause}"),
        Severity::Warning => format!(
            "survives {} more, not {} - {cause}",
            losses(volume.losses_left),
            volume.losses_designed
        ),
    };
    Lines {
        headline,
        what: volume
            .missing
            .iter()
            .map(|slot| what(slot, utc_offset_s))
            .collect(),
        data: data(volume, utc_offset_s),
        advice: advice(volume),
        before: volume.before.clone(),
    }
}

fn losses(count: usize) -> String {
    match count {
        1 => "1 loss".to_owned(),
        _ => format!("{count} losses"),
    }
}

/// Why, in a few words: the slots, each with its disk.
fn cause(volume: &VolumeFacts) -> String {
    let (filled, empty): (Vec<_>, Vec<_>) = volume
        .missing
        .iter()
        .partition(|slot| slot.valid_bytes.is_some());
    let mut parts: Vec<String> = empty
        .iter()
        .map(|slot| slot_text(slot, "is missing"))
        .collect();
    parts.extend(filled.iter().map(|slot| slot_text(slot, "is being filled")));
    let more = parts.len().saturating_sub(NAMED_MAX);
    parts.truncate(NAMED_MAX);
    if let (Some(last), 1..) = (parts.last_mut(), more) {
        last.push_str(&format!(" and {more} more"));
    }
    if volume.bad_bytes > 0 {
        parts.push(format!(
            "{} are bad on other members",
            bytes_text(volume.bad_bytes)
        ));
    }
    if volume.doubtful_regions > 0 && parts.is_empty() {
        parts.push(match volume.doubtful_regions {
            1 => "1 region is in doubt".to_owned(),
            regions => format!("{regions} regions are in doubt"),
        });
    }
    if parts.is_empty() {
        parts.push("see its status".to_owned());
    }
    parts.join(", ")
}

fn slot_text(slot: &MissingSlot, state: &str) -> String {
    match &slot.member {
        Some(member) => format!("slot {} {state}: {member}", slot.slot),
        None => format!("slot {} {state}", slot.slot),
    }
}

fn what(slot: &MissingSlot, utc_offset_s: i32) -> String {
    let time = match slot.since {
        Some(since) => format!("{} ", since.text(utc_offset_s)),
        None => String::new(),
    };
    let reason = match (&slot.reason, slot.valid_bytes) {
        (Some(reason), _) => reason.clone(),
        (None, Some(bytes)) => format!("{} of it are valid again", bytes_text(bytes)),
        (None, None) => "nobody is there".to_owned(),
    };
    format!("{time}slot {}: {reason}", slot.slot)
}

fn data(volume: &VolumeFacts, utc_offset_s: i32) -> Vec<String> {
    let mut lines = Vec::new();
    lines.push(match volume {
        volume if volume.is_lost => "not all readable".to_owned(),
        volume if volume.losses_left == 0 => {
            format!(
                "all readable; survives no further loss, by design {}",
                volume.losses_designed
            )
        }
        volume => format!(
            "all readable; survives {} more, by design {}",
            losses(volume.losses_left),
            volume.losses_designed
        ),
    });
    if volume.losses_left_elsewhere > volume.losses_left {
        lines.push(format!(
            "that is where blocks are bad or in doubt; elsewhere it survives {}",
            losses(volume.losses_left_elsewhere)
        ));
    }
    match volume.spares {
        0 => {}
        1 => lines.push("1 spare is ready to take a slot".to_owned()),
        spares => lines.push(format!("{spares} spares are ready to take slots")),
    }
    if let Some(again) = volume.safe_again {
        lines.push(format!(
            "redundancy is back at about {} ({} to {})",
            again.likely.clock(utc_offset_s),
            again.earliest.clock(utc_offset_s),
            again.latest.clock(utc_offset_s)
        ));
    }
    lines
}

fn advice(volume: &VolumeFacts) -> Vec<String> {
    let name = &volume.name;
    if volume.is_lost {
        return vec![
            "write nothing to the members, and pull none".to_owned(),
            format!("what is there, and what would bring it back:   plexum status {name}"),
        ];
    }
    let empty = volume
        .missing
        .iter()
        .filter(|slot| slot.valid_bytes.is_none());
    let mut lines: Vec<String> = empty
        .take(NAMED_MAX)
        .map(|slot| match &slot.returned {
            Some(path) => format!("it is there again, take it back:   plexum re-add {name} {path}"),
            None => format!(
                "put a disk into slot {}:   plexum add {name} /dev/DISK",
                slot.slot
            ),
        })
        .collect();
    if lines.is_empty() {
        lines.push(match volume.missing.is_empty() {
            true => format!("where it is worst:   plexum status {name}"),
            false => format!("nothing now, it is being filled:   plexum status {name}"),
        });
    }
    lines
}

fn bad_blocks(volume: &VolumeFacts) -> Lines {
    Lines {
        headline: format!("{} are bad on its members", bytes_text(volume.bad_bytes)),
        data: vec![format!(
            "all readable; survives {}",
            losses(volume.losses_left)
        )],
        advice: vec![format!("on which member:   plexum status {}", volume.name)],
        ..Lines::default()
    }
}

fn scrub(volume: &VolumeFacts, now: UnixTime) -> Vec<Finding> {
    let scrub = &volume.scrub;
    let mut found = Vec::new();
    // Copies differ where a client writes while it writes: normal for swap, and no sign of damage.
    if scrub.mismatch_bytes > 0 && volume.kind == RedundancyKind::Parity {
        let bytes = bytes_text(scrub.mismatch_bytes);
        let lines = Lines {
            headline: format!("PARITY DOES NOT FIT ITS DATA - {bytes} in the last check"),
            data: vec![
                "readable as written; after a loss these places may come back wrong".to_owned(),
            ],
            advice: vec![
                format!(
                    "where, and which member if it can be proven:   plexum status {}",
                    volume.name
                ),
                format!(
                    "make parity of the data as they are:   plexum scrub {} --repair",
                    volume.name
                ),
            ],
            ..Lines::default()
        };
        found.push(finding(
            volume,
            Code::ParityMismatch,
            Severity::Warning,
            lines,
        ));
    }
    if scrub.mended_bytes > 0 {
        let lines = Lines {
            headline: format!("the last check mended {}", bytes_text(scrub.mended_bytes)),
            data: vec![
                "all readable; a member gave what was not written there, or nothing".to_owned(),
            ],
            advice: vec![format!("which member:   plexum status {}", volume.name)],
            ..Lines::default()
        };
        found.push(finding(volume, Code::Mended, Severity::Warning, lines));
    }
    found.extend(overdue(scrub, now).map(|lines| {
        let lines = Lines {
            advice: vec![format!("check it now:   plexum scrub {}", volume.name)],
            ..lines
        };
        finding(volume, Code::ScrubOverdue, Severity::Warning, lines)
    }));
    found
}

fn overdue(scrub: &ScrubFacts, now: UnixTime) -> Option<Lines> {
    let due_after_s = scrub.due_after_s?;
    // Nobody knows when it was checked: never, as far as we can say.
    let age_s = scrub.oldest_checked.map(|oldest| now.since_s(oldest));
    let headline = match age_s {
        Some(age_s) if age_s <= due_after_s => return None,
        Some(age_s) => format!(
            "parts of it were last checked {} ago, {} are allowed",
            duration_text(age_s),
            duration_text(due_after_s)
        ),
        None => "was never checked".to_owned(),
    };
    Some(Lines {
        headline,
        data: vec!["what rots unread shows when it is needed, after a loss".to_owned()],
        ..Lines::default()
    })
}

fn slow_member(volume: &VolumeFacts, slow: &SlowMember) -> Finding {
    let ratio = format!(
        "{}.{}",
        slow.peer_ratio_percent / 100,
        slow.peer_ratio_percent / 10 % 10
    );
    let member = match &slow.member {
        Some(member) => format!("slot {}: {member}", slow.slot),
        None => format!("slot {}", slow.slot),
    };
    Finding {
        code: Code::SlowMember,
        object: Object::Member(volume.uuid.clone(), slow.slot),
        name: volume.name.clone(),
        severity: Severity::Warning,
        lines: Lines {
            headline: format!("a member takes {ratio} times as long as its peers - {member}"),
            data: vec![format!(
                "all readable; survives {}",
                losses(volume.losses_left)
            )],
            advice: vec![format!(
                "copy it to another while it still serves:   plexum replace {} {} /dev/DISK",
                volume.name, slow.slot
            )],
            ..Lines::default()
        },
    }
}

fn space(volume: &VolumeFacts) -> Option<Finding> {
    let percent = volume.space.as_ref().map(used_percent);
    let (severity, headline) = match percent {
        _ if volume.is_full => (
            Severity::Critical,
            "NO ROOM - writes are refused".to_owned(),
        ),
        Some(percent) if percent >= NEARLY_FULL_PERCENT => (
            Severity::Warning,
            format!("{percent} % of its room is used"),
        ),
        _ => return None,
    };
    let lines = Lines {
        headline,
        data: vec!["all readable".to_owned()],
        advice: vec![
            "make room where its members lie, or trim what clients no longer need".to_owned(),
        ],
        ..Lines::default()
    };
    Some(finding(volume, Code::Space, severity, lines))
}

fn used_percent(space: &SpaceFacts) -> u128 {
    match space.size_bytes {
        0 => 0,
        size_bytes => u128::from(space.used_bytes) * 100 / u128::from(size_bytes),
    }
}
