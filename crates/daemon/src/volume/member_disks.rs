//! What is known of the disks of a volume's members while it is served.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::Duration;

use plexum_block::clock::Moment;
use plexum_exec::mailbox::Answer;
use plexum_inventory::health::Report;

use crate::disk::FoundDisk;

/// How often a disk is asked at most: counters of wear move in days, and each question is work for the disk.
const ASK_EVERY: Duration = Duration::from_secs(90 * 60);

/// The disks of a volume's members, by the members' ids.
#[derive(Default)]
pub(super) struct MemberDisks(pub(super) RefCell<BTreeMap<u16, Seen>>);

/// What was seen of one member.
pub(super) struct Seen {
    /// Its disk; none of what is no disk.
    pub(super) disk: Option<FoundDisk>,
    /// The slot in which it was noted.
    pub(super) noted: Option<u32>,
    /// It was lost: what comes back under its name is looked for anew.
    pub(super) is_lost: bool,
    /// Reads and writes that it had done at the last look.
    pub(super) io: u64,
    /// It has done some since the look before.
    pub(super) is_busy: bool,
    /// When it was asked last, in this life.
    pub(super) asked: Option<Moment>,
    /// A question that did not end in time.
    pub(super) hangs: Option<Answer<Report>>,
}

/// When a disk was asked last.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// How long ago, in this life.
    pub(super) ago: Option<Duration>,
    /// When, by the clock on the wall, in this life or an earlier one.
    pub(super) read_s: Option<u64>,
}

impl Asked {
    /// Whether it is so long ago that the disk may be asked again. The clock on the wall may have been set.
    pub(super) fn is_old(self, now_s: u64) -> bool {
        let is_old = |read_s: u64| now_s.abs_diff(read_s) >= ASK_EVERY.as_secs();
        self.ago.is_none_or(|ago| ago >= ASK_EVERY) && self.read_s.is_none_or(is_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_asked_every_ninety_minutes_whatever_the_clock_on_the_wall_does() {
        let minutes = |count: u64| Duration::from_secs(count * 60);
        let asked = |ago, read_s| Asked { ago, read_s };
        assert!(asked(None, None).is_old(0), "it never was");
        let now_s = 1_000_000;
        let of_an_earlier_life = |ago: u64| asked(None, Some(now_s - ago * 60)).is_old(now_s);
        assert!(!of_an_earlier_life(89) && of_an_earlier_life(90));
        // The clock was set back by a year: it is asked once, and then not at each look.
        assert!(asked(None, Some(now_s + 31_536_000)).is_old(now_s));
        assert!(!asked(Some(minutes(1)), Some(now_s + 31_536_000)).is_old(now_s));
        assert!(asked(Some(minutes(90)), Some(now_s + 31_536_000)).is_old(now_s));
        // Nobody could be asked, so nothing is kept: not at each look either.
        assert!(!asked(Some(minutes(1)), None).is_old(now_s));
    }
}
