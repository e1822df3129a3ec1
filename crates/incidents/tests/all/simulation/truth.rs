//! What is the case, as the oracle knows it: slots and numbers.

use plexum_incidents::facts::{AbsentVolume, Facts, MissingSlot, RedundancyKind, VolumeFacts};
use plexum_incidents::finding::Severity;

/// Numbers from a seed.
pub struct Rng(pub u64);

impl Rng {
    /// Source: splitmix64.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }
}

/// A slot, as it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    Full,
    Filling,
    Empty,
}

/// A volume, as it is: it survives as many lost slots as it is designed for.
#[derive(Clone)]
pub struct Truth {
    pub designed: usize,
    pub slots: Vec<Slot>,
    pub expected_missing: usize,
    pub is_first_sync: bool,
    pub has_bad_blocks: bool,
    pub is_silent: bool,
    pub is_absent: bool,
    pub is_starting: bool,
}

/// What the truth comes to, in numbers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Fine,
    Bad(Severity),
    Unknown,
}

impl Truth {
    pub fn new(rng: &mut Rng) -> Self {
        let designed = rng.below(4) as usize;
        let count = designed + 2 + rng.below(3) as usize;
        Self {
            designed,
            slots: vec![Slot::Full; count],
            expected_missing: if designed > 0 && rng.one_in(4) { 1 } else { 0 },
            is_first_sync: rng.one_in(6),
            has_bad_blocks: false,
            is_silent: false,
            is_absent: false,
            is_starting: false,
        }
    }

    pub fn missing(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| **slot != Slot::Full)
            .count()
    }

    pub fn empty(&self) -> usize {
        self.slots
            .iter()
            .filter(|slot| **slot == Slot::Empty)
            .count()
    }

    /// Losses that are survived; none when data are lost.
    pub fn left(&self) -> Option<usize> {
        self.designed
            .checked_sub(self.missing() + usize::from(self.has_bad_blocks))
    }

    pub fn verdict(&self) -> Verdict {
        if self.is_silent || self.is_absent || self.is_starting {
            return Verdict::Unknown;
        }
        let Some(left) = self.left() else {
            return Verdict::Bad(Severity::Emergency);
        };
        let meant = self.designed.saturating_sub(self.expected_missing);
        match left {
            _ if self.is_first_sync && self.empty() <= self.expected_missing => Verdict::Fine,
            left if left >= meant && self.missing() <= self.expected_missing => Verdict::Fine,
            0 => Verdict::Bad(Severity::Critical),
            _ => Verdict::Bad(Severity::Warning),
        }
    }

    pub fn change(&mut self, rng: &mut Rng) {
        match rng.below(12) {
            0..=4 => {
                let index = rng.below(self.slots.len() as u64) as usize;
                self.slots[index] = [Slot::Empty, Slot::Filling, Slot::Full][rng.below(3) as usize];
            }
            5 | 6 => self.slots.fill(Slot::Full),
            7 => self.is_silent ^= true,
            8 => self.is_absent ^= true,
            9 => self.has_bad_blocks ^= true,
            10 => self.is_first_sync = false,
            _ => self.is_starting ^= true,
        }
    }

    pub fn mend(&mut self) {
        *self = Self {
            slots: vec![Slot::Full; self.slots.len()],
            is_first_sync: false,
            has_bad_blocks: false,
            is_silent: false,
            is_absent: false,
            is_starting: false,
            ..self.clone()
        };
    }

    pub fn tell(&self, number: usize, facts: &mut Facts) {
        let (name, uuid) = (format!("volume{number}"), number.to_string());
        if self.is_absent {
            facts.daemon.absent.push(AbsentVolume {
                name,
                uuid,
                ..AbsentVolume::default()
            });
            return;
        }
        if self.is_starting {
            facts.daemon.starting.push(uuid);
            return;
        }
        let left = self.left();
        let missing = (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| **slot != Slot::Full);
        facts.volumes.push(VolumeFacts {
            name,
            uuid,
            kind: RedundancyKind::Parity,
            losses_left: left.unwrap_or(0),
            losses_left_elsewhere: self.designed.saturating_sub(self.missing()),
            losses_designed: self.designed,
            missing: missing
                .map(|(slot, state)| MissingSlot {
                    slot,
                    valid_bytes: (*state == Slot::Filling).then_some(4096),
                    ..MissingSlot::default()
                })
                .collect(),
            expected_missing: self.expected_missing,
            is_lost: left.is_none(),
            is_first_sync: self.is_first_sync,
            bad_bytes: u64::from(self.has_bad_blocks) * 512,
            cannot_judge: self.is_silent.then(|| "no answer".to_owned()),
            ..VolumeFacts::default()
        });
    }
}
