//! The end of a run, looked at on the disks alone: labels that say complete and clean, copies that are equal, parity
//! that is right, contents that clients may read.
//!
//! Invariant: addresses and parity are worked out here, by the text of the format's description, with nothing of the
//! engine's geometry.
//!
//! Source: freebsd-geom.md sections 1.6 and 2.8.

use plexum_format::vinum::{Config, Mark, Organisation, Plex, PlexState, Subdisk, SubdiskState};

use super::array::Array;
use super::labels;
use super::plan::{Plan, Shape};
use crate::finding::Finding;
use crate::md::reference::Mismatch;
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
    let first = &copies[0].1;
    for (slot, (_, copy)) in copies.iter().enumerate() {
        if let Some(mismatch) = difference(slot, first, copy) {
            return Some(Finding::Disagree(vec![mismatch]));
        }
    }
    judge(first, oracle)
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
        let subdisks = contents(config, plex, disks);
        let mut content = match content(plex.organisation, &subdisks) {
            Ok(content) => content,
            Err(mismatches) => return Some(Finding::Disagree(mismatches)),
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

/// What a plex holds, or where its parity is wrong.
fn content(organisation: Organisation, subdisks: &[Vec<u8>]) -> Result<Vec<u8>, Vec<Mismatch>> {
    let count = subdisks.len();
    let strip = organisation.strip_bytes().unwrap_or(0) as usize;
    let length = subdisks.iter().map(Vec::len).min().unwrap_or(0);
    match organisation {
        Organisation::Concat => Ok(subdisks.concat()),
        Organisation::Striped { .. } => {
            let strips = length / strip * count;
            let piece = |k: usize| &subdisks[k % count][k / count * strip..][..strip];
            Ok((0..strips).flat_map(|k| piece(k).to_vec()).collect())
        }
        Organisation::Raid5 { .. } | Organisation::Raid4 { .. } => {
            let mut content = Vec::new();
            let mut wrong = Vec::new();
            for row in 0..length / strip {
                let parity = match organisation {
                    Organisation::Raid5 { .. } => count - 1 - row % count,
                    _ => count - 1,
                };
                let piece = |subdisk: usize| &subdisks[subdisk][row * strip..][..strip];
                for at in 0..strip {
                    let sum = (0..count).fold(0, |sum, subdisk| sum ^ piece(subdisk)[at]);
                    if sum != 0 {
                        let offset_bytes = (row * strip + at) as u64;
                        wrong.push(Mismatch {
                            member: parity,
                            offset_bytes,
                            sync_bytes: offset_bytes,
                        });
                        break;
                    }
                }
                for subdisk in (0..count).filter(|subdisk| *subdisk != parity) {
                    content.extend_from_slice(piece(subdisk));
                }
            }
            if wrong.is_empty() {
                Ok(content)
            } else {
                Err(wrong)
            }
        }
    }
}
