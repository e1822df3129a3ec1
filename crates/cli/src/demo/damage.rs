//! Damage behind the engine's back: where it may be, and doing it.
//!
//! Invariants:
//! - where redundancy cannot tell which member is wrong, only redundancy is damaged, never data: a repair makes parity
//!   or later copies follow the data, and would otherwise make wrong data look right;
//! - places are a row or more apart, so that a report names each by itself.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{Mismatch, ScrubStatus};
use plexum_layout::{Geometry, Level};
use plexum_md::assemble::Assembly;

use super::load::{BLOCK_BYTES, Dice};

/// One damaged block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Slot of the member.
    pub slot: usize,
    /// Byte offset in the member's data area.
    pub member_offset_bytes: u64,
    /// Byte offset in the volume; for mirrors the place that a report names.
    pub volume_offset_bytes: u64,
    /// Whether redundancy can tell that this member is the wrong one.
    pub is_locatable: bool,
}

/// Whether this organisation can name a wrong member: two parities, or three copies.
#[must_use]
pub fn can_locate(geometry: &Geometry) -> bool {
    match geometry.organisation().level() {
        Level::Raid6 => true,
        Level::Raid1 | Level::Raid10 => geometry.copy_count() >= 3,
        _ => false,
    }
}

/// Chooses `count` places.
#[must_use]
pub fn choose(geometry: &Geometry, dice: &mut Dice, count: u64) -> Vec<Damage> {
    let is_locatable = can_locate(geometry);
    let block = BLOCK_BYTES as u64;
    let mut places = Vec::new();
    for number in 0..count {
        let damage = if geometry.organisation().level().has_parity() {
            // Every second row of an equal share, so that no two are neighbours.
            let share = (geometry.row_count() / count).max(2);
            let row = number * share + dice.below(share - 1);
            let map = geometry.row_map(row);
            let slot = if is_locatable {
                dice.below(geometry.member_count() as u64) as usize
            } else {
                map.p
            };
            let within = dice.below(geometry.strip_bytes() / block) * block;
            let member_offset_bytes = row * geometry.strip_bytes() + within;
            Damage {
                slot,
                member_offset_bytes,
                volume_offset_bytes: row * geometry.row_data_bytes(),
                is_locatable,
            }
        } else {
            let share = (geometry.volume_bytes() / block / count).max(2);
            let volume_offset_bytes = (number * share + dice.below(share - 1)) * block;
            let copies = geometry.copies_of(volume_offset_bytes);
            let copy = if is_locatable {
                dice.below(copies.len() as u64) as usize
            } else {
                copies.len() - 1
            };
            let place = copies.get(copy);
            Damage {
                slot: place.slot,
                member_offset_bytes: place.member_offset_bytes,
                volume_offset_bytes,
                is_locatable,
            }
        };
        places.push(damage);
    }
    places
}

/// Turns every bit of a block of a member's file around. `data_offset_bytes`: where its data area begins.
///
/// # Errors
/// `IoError` when the file cannot be changed.
pub fn inflict(
    path: &Path,
    data_offset_bytes: u64,
    member_offset_bytes: u64,
) -> Result<(), Problem> {
    let shown = path.display().to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "damaging", &shown);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(tell)?;
    let at = data_offset_bytes
        .checked_add(member_offset_bytes)
        .ok_or_else(|| Problem::new(Code::Bug, "a damage beyond the end of files"))?;
    let mut block = [0; BLOCK_BYTES];
    file.read_exact_at(&mut block, at).map_err(tell)?;
    block.iter_mut().for_each(|byte| *byte = !*byte);
    file.write_all_at(&block, at).map_err(tell)?;
    file.sync_data().map_err(tell)
}

/// The place that a report gives for a damage: mirrors are named by the volume, parity by the member.
pub(super) fn place_of(damage: &Damage, assembly: &Assembly) -> u64 {
    if assembly.geometry.organisation().level().has_parity() {
        damage.member_offset_bytes
    } else {
        damage.volume_offset_bytes
    }
}

/// The place that a report gives for what it found, in the same terms.
pub(super) fn found_at(range: &Mismatch, assembly: &Assembly) -> u64 {
    if assembly.geometry.organisation().level().has_parity() {
        range.member_offset_bytes
    } else {
        range.volume_offset_bytes
    }
}

/// What a report has too much or too little, as sentences.
pub(super) fn compare(damages: &[Damage], found: &ScrubStatus, assembly: &Assembly) -> Vec<String> {
    let mut differences = Vec::new();
    for damage in damages {
        let place = place_of(damage, assembly);
        let is_found = found.ranges.iter().any(|range| {
            found_at(range, assembly) == place && range.length_bytes == BLOCK_BYTES as u64
        });
        if !is_found {
            differences.push(format!("the damage at byte {place} was not found"));
        }
    }
    for range in &found.ranges {
        let place = found_at(range, assembly);
        if !damages
            .iter()
            .any(|damage| place_of(damage, assembly) == place)
        {
            differences.push(format!(
                "{} bytes at byte {place} differ, which nobody damaged",
                range.length_bytes
            ));
        }
    }
    differences
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_layout::{GeometrySpec, Organisation, RowRole};

    fn geometry(level: Level, members: u16) -> Geometry {
        Geometry::new(&GeometrySpec {
            organisation: Organisation::from_words(level, None).unwrap(),
            member_count: members,
            strip_bytes: if level == Level::Raid1 { 0 } else { 65536 },
            component_bytes: 8 << 20,
            member_sizes_bytes: Vec::new(),
        })
        .unwrap()
    }

    #[test]
    fn data_are_only_damaged_where_redundancy_can_tell() {
        for (level, members) in [
            (Level::Raid1, 2),
            (Level::Raid1, 3),
            (Level::Raid4, 3),
            (Level::Raid5, 4),
            (Level::Raid6, 6),
            (Level::Raid10, 4),
            (Level::Raid10, 5),
        ] {
            let geometry = geometry(level, members);
            for seed in 0..50 {
                let places = choose(&geometry, &mut Dice::new(seed, 0), 5);
                assert_eq!(places.len(), 5);
                for place in &places {
                    assert!(place.slot < usize::from(members));
                    if place.is_locatable {
                        continue;
                    }
                    if level.has_parity() {
                        let row = place.member_offset_bytes / geometry.strip_bytes();
                        assert_eq!(geometry.row_map(row).role_of(place.slot), RowRole::P);
                    } else {
                        let first = geometry.copies_of(place.volume_offset_bytes).get(0);
                        assert_ne!(first.slot, place.slot);
                    }
                }
            }
        }
    }

    #[test]
    fn places_are_never_neighbours() {
        for (level, members) in [(Level::Raid1, 2), (Level::Raid6, 4)] {
            let geometry = geometry(level, members);
            for seed in 0..50 {
                let places = choose(&geometry, &mut Dice::new(seed, 1), 5);
                for pair in places.windows(2) {
                    let gap = pair[1].member_offset_bytes - pair[0].member_offset_bytes;
                    assert!(gap > BLOCK_BYTES as u64, "{pair:?}");
                }
            }
        }
    }
}
