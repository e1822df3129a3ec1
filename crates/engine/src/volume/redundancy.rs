//! How many more losses the data survive, what is missing, and what is in doubt: what an alarm is to be raised by.
//!
//! Invariants:
//! - nothing is decided or changed here: the same facts give the same answer;
//! - the answer is never better than the truth: where more is not known, the worse is told;
//! - a member that is being filled counts as missing until it is complete.
//!
//! A word for a state ("degraded") says neither how near the loss is nor whether it was meant to be so: the number of
//! losses that are survived does.

use std::ops::Range;

use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_layout::{Geometry, Level};

use super::{Volume, VolumeStatus};
use crate::state::Standing;

/// What is known of the members, as far as it tells what would be lost with the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standings {
    /// By slot: nobody there is complete.
    pub lost: Vec<bool>,
    /// Slots that are being filled, and bytes that are valid there.
    pub filling: Vec<(u16, u64)>,
    /// Ranges that are bad on complete members, by slot, in bytes of their data areas.
    pub bad: Vec<(u16, Vec<Range<u64>>)>,
    /// Regions where copies or parity may differ, and all regions.
    pub doubtful_regions: (usize, usize),
    /// A log has what was being written in regions in doubt: after a loss it is still known.
    pub is_doubt_logged: bool,
    /// More was lost than the organisation survives.
    pub is_frozen: bool,
    /// Members that are ready to take a slot.
    pub spares: usize,
}

/// A slot whose data nobody holds completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingSlot {
    /// Which one.
    pub slot: u16,
    /// Bytes that are valid on whoever is being filled for it; none while nobody is.
    pub valid_bytes: Option<u64>,
}

/// What the answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Safety {
    /// Everything that the organisation is made for.
    Whole,
    /// The organisation has no redundancy.
    Never,
    /// Fewer losses are survived than it is made for.
    Reduced,
    /// The next loss may lose data, somewhere.
    LastCopy,
    /// Data are lost.
    Lost,
}

impl Safety {
    /// What it comes to when so many more losses are survived, of as many as it is made for. `None`: data are lost.
    #[must_use]
    pub fn of(losses_left: Option<usize>, losses_designed: usize) -> Self {
        match losses_left {
            None => Self::Lost,
            Some(_) if losses_designed == 0 => Self::Never,
            Some(0) => Self::LastCopy,
            Some(left) if left < losses_designed => Self::Reduced,
            Some(_) => Self::Whole,
        }
    }
}

/// How safe the data of a volume are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redundancy {
    /// Further members that may be lost, any of them, without losing data: where it is worst.
    pub losses_left: usize,
    /// The same everywhere but where blocks are bad or something is in doubt.
    pub losses_left_elsewhere: usize,
    /// What the organisation survives when nothing is missing.
    pub losses_designed: usize,
    /// Slots without a complete member.
    pub missing: Vec<MissingSlot>,
    /// Regions where copies or parity may differ, and all regions.
    pub doubtful_regions: (usize, usize),
    /// Bytes that are bad on members that are complete otherwise.
    pub bad_bytes: u64,
    /// Members that are ready to take a slot.
    pub spares: usize,
    /// What it comes to.
    pub safety: Safety,
}

impl Redundancy {
    /// How safe the data are that are laid out by `geometry`.
    ///
    /// # Panics
    /// When `standings` are of another number of slots.
    #[must_use]
    pub fn of(geometry: &Geometry, standings: &Standings) -> Self {
        let lost = &standings.lost;
        assert_eq!(
            lost.len(),
            geometry.member_count(),
            "one entry for each slot"
        );
        let losses_designed = geometry.losses_left(&vec![false; lost.len()]);
        let is_lost = standings.is_frozen || !geometry.tolerates(lost);
        let losses_left_elsewhere = match is_lost {
            true => 0,
            false => geometry.losses_left(lost),
        };
        let worst = Worst::of(geometry, standings);
        let losses_left = losses_left_elsewhere.min(worst.losses_left);
        let survived = (!is_lost && !worst.is_lost).then_some(losses_left);
        let safety = Safety::of(survived, losses_designed);
        assert!(losses_left <= losses_designed, "nothing adds redundancy");
        Self {
            losses_left,
            losses_left_elsewhere,
            losses_designed,
            missing: missing(standings),
            doubtful_regions: standings.doubtful_regions,
            bad_bytes: bad_bytes(standings),
            spares: standings.spares,
            safety,
        }
    }
}

/// The places where it is worst.
struct Worst {
    losses_left: usize,
    /// Data are lost there with nothing more going wrong.
    is_lost: bool,
}

impl Worst {
    fn of(geometry: &Geometry, standings: &Standings) -> Self {
        let mut worst = Self {
            losses_left: usize::MAX,
            is_lost: false,
        };
        // Copies in doubt are all valid, whichever is left; parity in doubt gives what nobody wrote.
        let is_doubtful = standings.doubtful_regions.0 > 0 && !standings.is_doubt_logged;
        let level = geometry.organisation().level();
        if is_doubtful && matches!(level, Level::Raid4 | Level::Raid5 | Level::Raid6) {
            worst.losses_left = 0;
        }
        for slots in together(geometry, standings) {
            let mut gone = standings.lost.clone();
            for slot in slots {
                gone[usize::from(slot)] = true;
            }
            let is_lost = !geometry.tolerates(&gone);
            let left = match is_lost {
                true => 0,
                false => geometry.losses_left(&gone),
            };
            worst.is_lost |= is_lost;
            worst.losses_left = worst.losses_left.min(left);
        }
        worst
    }
}

/// Sets of slots that are bad at one place: what is there is as if they were missing. Where data of one place lie at
/// different offsets of the members (RAID-10), each member is looked at by itself.
fn together(geometry: &Geometry, standings: &Standings) -> Vec<Vec<u16>> {
    let is_same_offset = geometry.organisation().level() != Level::Raid10;
    let each = standings
        .bad
        .iter()
        .filter(|(_, ranges)| !ranges.is_empty());
    if !is_same_offset {
        return each.map(|(slot, _)| vec![*slot]).collect();
    }
    // Which slots are bad changes only where a range begins.
    let mut starts: Vec<u64> = each
        .flat_map(|(_, ranges)| ranges.iter().map(|range| range.start))
        .collect();
    starts.sort_unstable();
    starts.dedup();
    let unit = geometry.strip_bytes().max(1);
    let touches = |range: &Range<u64>, start: u64| {
        // A row is as good as its worst strip: ranges of one strip count together.
        range.start / unit <= start / unit && start / unit <= (range.end - 1) / unit
    };
    let at = |start: u64| {
        let bad = standings.bad.iter();
        let slots = bad.filter(|(_, ranges)| ranges.iter().any(|range| touches(range, start)));
        slots.map(|(slot, _)| *slot).collect()
    };
    starts.into_iter().map(at).collect()
}

fn missing(standings: &Standings) -> Vec<MissingSlot> {
    let slots = (0..).zip(&standings.lost).filter(|(_, is_lost)| **is_lost);
    let missing = slots.map(|(slot, _)| MissingSlot {
        slot,
        valid_bytes: standings
            .filling
            .iter()
            .find(|(filled, _)| *filled == slot)
            .map(|(_, valid_bytes)| *valid_bytes),
    });
    missing.collect()
}

fn bad_bytes(standings: &Standings) -> u64 {
    let ranges = standings.bad.iter().flat_map(|(_, ranges)| ranges);
    ranges.map(|range| range.end - range.start).sum()
}

impl Standings {
    /// What a volume's status says.
    #[must_use]
    pub fn of(status: &VolumeStatus, slots: usize) -> Self {
        let mut lost = vec![false; slots];
        for slot in &status.lost_slots {
            lost[usize::from(*slot)] = true;
        }
        let members = status.members.iter();
        let filling = members.clone().filter(|member| {
            let is_filling = matches!(member.standing, Standing::Rebuilding { .. });
            is_filling && !member.is_replacement
        });
        let bad = members
            .clone()
            .filter(|member| member.standing == Standing::Active && !member.bad_ranges.is_empty());
        let spares = members.filter(|member| member.standing == Standing::Spare);
        Self {
            filling: filling
                .filter_map(|member| Some((member.slot?, member.valid_bytes.unwrap_or(0))))
                .collect(),
            bad: bad
                .filter_map(|member| Some((member.slot?, member.bad_ranges.clone())))
                .collect(),
            doubtful_regions: status.doubtful_regions,
            is_doubt_logged: status.log.as_ref().is_some_and(|log| log.is_sure),
            is_frozen: status.is_frozen,
            spares: spares.count(),
            lost,
        }
    }
}

impl<D: Device, C: Clock> Volume<D, C> {
    /// How many more losses the data survive, what is missing, and what is in doubt.
    #[must_use]
    pub fn redundancy(&self) -> Redundancy {
        let geometry = self.geometry();
        let standings = Standings::of(&self.status(), geometry.member_count());
        Redundancy::of(geometry, &standings)
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // a member with one bad range is what is meant
mod tests {
    use super::*;
    use plexum_layout::{GeometrySpec, Organisation, Raid5Layout, Raid6Layout, Raid10Layout};

    fn geometry(organisation: Organisation, member_count: u16) -> Geometry {
        let sizes = match organisation.level() {
            Level::Linear | Level::Raid0 => vec![1 << 20; usize::from(member_count)],
            _ => Vec::new(),
        };
        let spec = GeometrySpec {
            organisation,
            member_count,
            strip_bytes: 65_536,
            component_bytes: 1 << 20,
            member_sizes_bytes: sizes,
        };
        Geometry::new(&spec).expect("a usual geometry")
    }

    fn raid6() -> Geometry {
        geometry(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5)
    }

    fn standings(slots: usize, missing: &[u16]) -> Standings {
        let mut lost = vec![false; slots];
        for slot in missing {
            lost[usize::from(*slot)] = true;
        }
        Standings {
            lost,
            doubtful_regions: (0, 16),
            ..Standings::default()
        }
    }

    fn told(geometry: &Geometry, standings: &Standings) -> (usize, usize, Safety) {
        let found = Redundancy::of(geometry, standings);
        (found.losses_left, found.losses_designed, found.safety)
    }

    #[test]
    fn the_number_of_losses_that_are_survived_falls_with_each_one() {
        let volume = raid6();
        let after = |missing: &[u16]| told(&volume, &standings(5, missing));
        assert_eq!(after(&[]), (2, 2, Safety::Whole));
        assert_eq!(after(&[3]), (1, 2, Safety::Reduced));
        assert_eq!(after(&[3, 0]), (0, 2, Safety::LastCopy));
        assert_eq!(after(&[3, 0, 1]), (0, 2, Safety::Lost));
    }

    #[test]
    fn one_of_three_copies_is_reduced_and_one_of_two_is_the_last() {
        let three = geometry(Organisation::Raid1, 3);
        assert_eq!(told(&three, &standings(3, &[1])), (1, 2, Safety::Reduced));
        let two = geometry(Organisation::Raid1, 2);
        assert_eq!(told(&two, &standings(2, &[1])), (0, 1, Safety::LastCopy));
    }

    #[test]
    fn what_never_had_redundancy_does_not_lack_any() {
        let linear = geometry(Organisation::Linear, 3);
        assert_eq!(told(&linear, &standings(3, &[])), (0, 0, Safety::Never));
        assert_eq!(told(&linear, &standings(3, &[2])), (0, 0, Safety::Lost));
    }

    #[test]
    fn of_copies_in_pairs_the_weakest_pair_counts() {
        let pairs = geometry(Organisation::Raid10(Raid10Layout::near(2)), 4);
        assert_eq!(told(&pairs, &standings(4, &[0])), (0, 1, Safety::LastCopy));
        assert_eq!(
            told(&pairs, &standings(4, &[0, 2])),
            (0, 1, Safety::LastCopy)
        );
        assert_eq!(told(&pairs, &standings(4, &[0, 1])), (0, 1, Safety::Lost));
    }

    #[test]
    fn a_member_that_is_being_filled_is_missing_until_it_is_complete() {
        let mut standings = standings(5, &[2]);
        standings.filling.push((2, 900_000));
        let found = Redundancy::of(&raid6(), &standings);
        let slot = MissingSlot {
            slot: 2,
            valid_bytes: Some(900_000),
        };
        assert_eq!(found.missing, [slot]);
        assert_eq!((found.losses_left, found.safety), (1, Safety::Reduced));
    }

    #[test]
    fn parity_in_doubt_saves_nothing_unless_a_log_knows_better_and_copies_in_doubt_do() {
        let mut doubtful = standings(5, &[]);
        doubtful.doubtful_regions = (1, 16);
        let found = Redundancy::of(&raid6(), &doubtful);
        assert_eq!((found.losses_left, found.safety), (0, Safety::LastCopy));
        assert_eq!(found.losses_left_elsewhere, 2, "everywhere else");
        doubtful.is_doubt_logged = true;
        assert_eq!(told(&raid6(), &doubtful), (2, 2, Safety::Whole));
        let mirror = geometry(Organisation::Raid1, 2);
        let mut doubtful = standings(2, &[]);
        doubtful.doubtful_regions = (16, 16);
        assert_eq!(told(&mirror, &doubtful), (1, 1, Safety::Whole));
    }

    #[test]
    fn blocks_that_are_bad_at_one_place_count_together_and_elsewhere_they_do_not() {
        let mut bad = standings(5, &[]);
        bad.bad = vec![(0, vec![4096..8192]), (1, vec![600_000..604_096])];
        let found = Redundancy::of(&raid6(), &bad);
        assert_eq!((found.losses_left, found.bad_bytes), (1, 8192));
        bad.bad.push((4, vec![8192..12_288]));
        assert_eq!(
            told(&raid6(), &bad),
            (0, 2, Safety::LastCopy),
            "the same row"
        );
        bad.bad.push((3, vec![0..512]));
        assert_eq!(told(&raid6(), &bad), (0, 2, Safety::Lost));
    }

    #[test]
    fn a_long_bad_range_meets_one_that_begins_inside_of_it() {
        let raid5 = geometry(Organisation::Raid5(Raid5Layout::LeftSymmetric), 3);
        let mut bad = standings(3, &[]);
        bad.bad = vec![(0, vec![0..1 << 20]), (2, vec![700_000..700_512])];
        assert_eq!(told(&raid5, &bad), (0, 1, Safety::Lost));
    }

    #[test]
    fn a_frozen_volume_has_lost_data_whatever_its_slots_say() {
        let mut frozen = standings(5, &[]);
        frozen.is_frozen = true;
        frozen.spares = 1;
        let found = Redundancy::of(&raid6(), &frozen);
        assert_eq!((found.losses_left, found.safety), (0, Safety::Lost));
        assert_eq!(found.spares, 1);
    }
}
