//! The end of a run, looked at on the disks alone: labels that say complete and clean, copies that are equal, parity
//! that is right, contents that clients may read.
//!
//! Invariant: addresses and parity are worked out by the reference model, with nothing of the engine's geometry; what
//! organisation of it a plex is follows from the text of the format's description.
//!
//! Source: freebsd-geom.md sections 1.6 and 2.8.

use plexum_format::vinum::{Config, Mark, Organisation, Plex, PlexState, Subdisk, SubdiskState};

use super::array::Array;
use super::labels;
use super::plan::{Plan, Shape};
use crate::finding::Finding;
use crate::md::reference::{Mismatch, Reference};
use crate::md::{Level, Spec};
use crate::oracle::Oracle;
use crate::world::Scene;
use plexum_disks::disk::SimDisk;

/// Looks at everything; the first thing that is wrong.
pub(super) fn compare(scene: &Scene<Array>) -> Option<Finding> {
    let (plan, disks) = (&scene.plan, &scene.disks);
    let oracles = &mut scene.oracles.borrow_mut();
    match &plan.shape {
        Shape::Mirror { .. } => compare_mirror(plan, disks, &mut oracles[0]),
        Shape::System { volumes, .. } => {
            let config = match check_drives(disks) {
                Ok(config) => config,
                Err(finding) => return Some(finding),
            };
            (0..volumes.len()).find_map(|number| {
                compare_volume(plan, number, &config, disks, &mut oracles[number])
            })
        }
    }
}

fn wrong(text: String) -> Finding {
    Finding::NotWhole(text)
}

/// A replacement that was cut off leaves one component more.
fn compare_mirror(plan: &Plan, disks: &[SimDisk], oracle: &mut Oracle) -> Option<Finding> {
    let newest = labels::newest(disks)?;
    let mut counts: Vec<u8> = Vec::new();
    let mut copies: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut incomplete: Vec<(u32, u8)> = Vec::new();
    for disk in disks {
        let Some(label) = labels::mirror_label(disk) else {
            continue;
        };
        let age = (u64::from(label.generation_id), u64::from(label.sync_id));
        if age != newest || label.is_inactive {
            continue; // a former component
        }
        if label.is_rebuilding || label.is_dirty {
            incomplete.push((disk.number(), label.component_count));
            continue;
        }
        counts.push(label.component_count);
        copies.push((disk.number(), labels::bytes(disk, 0, plan.volume_bytes)));
    }
    // The label of a component that is inserted is written first: one that was cut off there expects more components
    // than the complete ones do, and is none of theirs.
    let is_theirs = |count: &u8| counts.is_empty() || counts.contains(count);
    if let Some((disk, _)) = incomplete.iter().find(|(_, count)| is_theirs(count)) {
        let text = format!("{disk}: its label says incomplete or dirty");
        return Some(wrong(text));
    }
    let Shape::Mirror { components, .. } = plan.shape else {
        return None;
    };
    if copies.len() < components
        || counts
            .iter()
            .any(|count| usize::from(*count) != copies.len())
    {
        let numbers: Vec<u32> = copies.iter().map(|(number, _)| *number).collect();
        return Some(wrong(format!(
            "the newest labels ask for {counts:?} components, complete are those on {numbers:?}"
        )));
    }
    let copies: Vec<Vec<u8>> = copies.into_iter().map(|(_, copy)| copy).collect();
    match content(Level::Raid1, 0, copies) {
        Ok(content) => judge(&content, oracle),
        Err(finding) => Some(finding),
    }
}

fn difference(slot: usize, one: &[u8], other: &[u8]) -> Option<Mismatch> {
    let at = one
        .iter()
        .zip(other)
        .position(|(one, other)| one != other)?;
    Some(Mismatch {
        member: slot,
        offset_bytes: at as u64 / 512 * 512,
        sync_bytes: at as u64 / 512 * 512,
    })
}

/// Whether clients may read this.
fn judge(content: &[u8], oracle: &mut Oracle) -> Option<Finding> {
    let sectors = (content.len() as u64 / 512).min(oracle.sector_count());
    let token = oracle.begin_read(0..sectors);
    let seen = oracle.end_read(&token, &content[..sectors as usize * 512]);
    seen.err().map(|violation| Finding::LostOnMembers {
        missing: Vec::new(),
        violation: Some(violation),
    })
}

/// The newest drives say the same, and that everything is up and settled.
fn check_drives(disks: &[SimDisk]) -> Result<Config, Finding> {
    let mut first: Option<Config> = None;
    let newest = labels::newest(disks);
    for disk in disks {
        let Some(header) = labels::drive_header(disk) else {
            continue;
        };
        let number = disk.number();
        if Some(header.updated) != newest {
            continue; // no volume with redundancy is on it, or only one that had nothing more to say
        }
        let config = labels::drive_config(disk)
            .ok_or_else(|| wrong(format!("drive {number}: no configuration that can be read")))?;
        if header.mark != Mark::Settled {
            let mark = header.mark;
            return Err(wrong(format!("drive {number} is marked {mark:?}")));
        }
        match &first {
            None => first = Some(config),
            Some(known) if *known != config => {
                return Err(wrong(format!("drive {number} says something else")));
            }
            Some(_) => {}
        }
    }
    let Some(config) = first else {
        return Err(wrong("no drive is left".to_owned()));
    };
    if let Some(text) = labels::overlap(&config) {
        return Err(wrong(text));
    }
    let not_up = |subdisk: &&Subdisk| subdisk.state != SubdiskState::Up;
    if let Some(subdisk) = config.subdisks.iter().find(not_up) {
        let (name, state) = (&subdisk.name, subdisk.state);
        return Err(wrong(format!("{name} is {}", state.name())));
    }
    if let Some(plex) = config
        .plexes
        .iter()
        .find(|plex| plex.state != PlexState::Up)
    {
        return Err(wrong(format!("{} is {}", plex.name, plex.state.name())));
    }
    Ok(config)
}

fn compare_volume(
    plan: &Plan,
    number: usize,
    config: &Config,
    disks: &[SimDisk],
    oracle: &mut Oracle,
) -> Option<Finding> {
    let name = format!("v{number}");
    let of = |plex: &&Plex| plex.volume.as_deref() == Some(&*name);
    let mut first: Option<Vec<u8>> = None;
    for (slot, plex) in config.plexes.iter().filter(of).enumerate() {
        let level = match plex.organisation {
            Organisation::Concat => Level::Linear,
            Organisation::Striped { .. } => Level::Raid0,
            Organisation::Raid4 { .. } => Level::Raid4,
            Organisation::Raid5 { .. } => Level::Raid5,
        };
        let strip_bytes = plex.organisation.strip_bytes().unwrap_or(0);
        let mut content = match content(level, strip_bytes, contents(config, plex, disks)) {
            Ok(content) => content,
            Err(finding) => return Some(finding),
        };
        content.truncate(plan.volume_bytes as usize);
        match &first {
            None => first = Some(content),
            Some(known) => {
                if let Some(mismatch) = difference(slot, known, &content) {
                    return Some(Finding::Disagree(vec![mismatch]));
                }
            }
        }
    }
    judge(&first?, oracle)
}

/// Bytes of each subdisk of a plex, in its order.
fn contents(config: &Config, plex: &Plex, disks: &[SimDisk]) -> Vec<Vec<u8>> {
    let mut placed: Vec<(u64, Vec<u8>)> = Vec::new();
    for subdisk in &config.subdisks {
        let Some((_, at)) = subdisk.plex.as_ref().filter(|(name, _)| *name == plex.name) else {
            continue;
        };
        let disk = labels::drive_number(&subdisk.drive);
        if let Some(disk) = disk.and_then(|number| disks.get(number as usize)) {
            let bytes = labels::bytes(disk, subdisk.drive_offset_bytes, subdisk.length_bytes);
            placed.push((*at, bytes));
        }
    }
    placed.sort_by_key(|(at, _)| *at);
    placed.into_iter().map(|(_, bytes)| bytes).collect()
}

/// What a mirror or a plex holds, or where its copies or parity are wrong. Parity goes round from the last subdisk to
/// the first, data are in the order of the subdisks: md's layout 0.
fn content(level: Level, strip_bytes: u64, members: Vec<Vec<u8>>) -> Result<Vec<u8>, Finding> {
    let sizes: Vec<u64> = members.iter().map(|bytes| bytes.len() as u64).collect();
    let spec = Spec {
        level,
        layout: 0,
        member_count: members.len(),
        strip_bytes,
        component_bytes: sizes.iter().copied().min().unwrap_or(0),
        region_bytes: None,
        log_bytes: None,
        is_write_back: false,
        has_ppl: false,
    };
    let reference = Reference::with_sizes(&spec, &sizes);
    let members = members.into_iter().map(Some).collect();
    let mismatches = reference.mismatches(&members);
    if !mismatches.is_empty() {
        return Err(Finding::Disagree(mismatches));
    }
    let content = reference.content(&members);
    content.ok_or_else(|| wrong("a plex has no whole row".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rows over three subdisks: parity on the last one, then on the middle one.
    fn subdisks() -> Vec<Vec<u8>> {
        let strip = |value: u8| vec![value; 512];
        vec![
            [strip(1), strip(3)].concat(),
            [strip(2), strip(3 ^ 4)].concat(),
            [strip(1 ^ 2), strip(4)].concat(),
        ]
    }

    #[test]
    fn a_plex_with_parity_gives_its_data_in_the_order_of_its_subdisks() {
        let found = content(Level::Raid5, 512, subdisks()).unwrap();
        let expected: Vec<u8> = (1..=4).flat_map(|value| [value; 512]).collect();
        assert!(found == expected);
    }

    #[test]
    fn a_block_that_does_not_agree_with_its_parity_is_named() {
        let mut subdisks = subdisks();
        subdisks[2][600] ^= 1;
        let found = content(Level::Raid5, 512, subdisks);
        assert!(matches!(found, Err(Finding::Disagree(_))), "{found:?}");
    }

    #[test]
    fn copies_of_a_mirror_that_differ_are_named() {
        let found = content(Level::Raid1, 0, vec![vec![7; 4096], vec![8; 4096]]);
        assert!(matches!(found, Err(Finding::Disagree(_))), "{found:?}");
    }
}
