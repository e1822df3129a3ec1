//! One event, and the words for what a volume announces.

use plexum_engine::state::FailCause;
use plexum_engine::volume::Announcement;
use serde::{Deserialize, Serialize};

/// A resync goes through what was in doubt, which a bitmap makes a small part.
const RESYNC_FINISHED: &str = "a resync has ended: what was in doubt agrees";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// `JSON_VERSION`.
    pub version: u32,
    /// `event`.
    pub kind: String,
    /// Number of the event in this server's life, from 1; 0 for one of an earlier life.
    pub sequence: u64,
    /// Seconds since 1970.
    pub time_s: u64,
    /// Volume concerned.
    pub volume: String,
    /// Name, a slug in the past tense: `member_failed`, `rebuild_done`.
    pub name: String,
    /// One sentence.
    pub message: String,
    /// Member concerned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

/// Why a member failed.
#[must_use]
pub fn cause_words(cause: FailCause) -> &'static str {
    match cause {
        FailCause::Gone => "the device is gone",
        FailCause::WriteError => "a write failed",
        FailCause::FlushError => "a flush failed",
        FailCause::SuperblockError => "its superblock could not be written",
        FailCause::TimedOut => "it did not answer in time",
        FailCause::ReadErrors => "too many read errors",
        FailCause::Asked => "as asked",
        _ => "for another reason",
    }
}

/// Name, sentence and member of an announcement.
#[must_use]
pub fn words_of(announcement: &Announcement) -> (&'static str, String, Option<String>) {
    let of_scrub = match announcement {
        Announcement::ScrubFinished { .. } | Announcement::ScrubStopped { .. } => {
            return words_of_scrub(announcement);
        }
        other => other,
    };
    let (name, text, member) = match of_scrub {
        Announcement::MemberFailed { member, cause } => {
            let text = format!("{member} failed: {}", cause_words(*cause));
            ("member_failed", text, member)
        }
        Announcement::Frozen { member, cause } => {
            let why = cause_words(*cause);
            let text = format!(
                "more is lost than the volume survives, last {member} ({why}): nothing is written any more"
            );
            ("frozen", text, member)
        }
        Announcement::RebuildStarted { member, slot } => {
            let text = format!("{member} is being filled for slot {slot}");
            ("rebuild_started", text, member)
        }
        Announcement::RebuildFinished { member, slot } => {
            let text = format!("{member} is complete in slot {slot}");
            ("rebuild_finished", text, member)
        }
        Announcement::RangesLost { member, lost_bytes } => {
            let text = format!("{lost_bytes} bytes could not be rebuilt on {member} and are lost");
            ("ranges_lost", text, member)
        }
        Announcement::ReadCorrected {
            member,
            offset_bytes,
            length_bytes,
        } => {
            let text = format!(
                "{member}: {length_bytes} bytes at byte {offset_bytes} of its data were unreadable and were mended"
            );
            ("read_corrected", text, member)
        }
        Announcement::NoSpace { member } => {
            let text = format!(
                "{member} has no space for a write: it was answered with an error, or is bad on a member that is being filled"
            );
            ("no_space", text, member)
        }
        Announcement::ResyncStarted => {
            return ("resync_started", "a resync has begun".into(), None);
        }
        Announcement::ResyncFinished => {
            return ("resync_finished", RESYNC_FINISHED.into(), None);
        }
        _ => return ("other", "something without words happened".into(), None),
    };
    (name, text, Some(member.clone()))
}

fn words_of_scrub(announcement: &Announcement) -> (&'static str, String, Option<String>) {
    match announcement {
        Announcement::ScrubFinished {
            mismatch_bytes,
            skipped_bytes,
        } => {
            let mut text = format!("a scrub has ended, {mismatch_bytes} bytes differ");
            if *skipped_bytes > 0 {
                text.push_str(&format!(", {skipped_bytes} bytes could not be compared"));
            }
            ("scrub_finished", text, None)
        }
        Announcement::ScrubStopped {
            done_bytes,
            total_bytes,
            mismatch_bytes,
        } => {
            let percent = u128::from(*done_bytes) * 100 / u128::from((*total_bytes).max(1));
            let text = format!(
                "a scrub stopped at {percent} %, {mismatch_bytes} bytes differ up to there"
            );
            ("scrub_stopped", text, None)
        }
        _ => ("other", "something without words happened".into(), None),
    }
}
