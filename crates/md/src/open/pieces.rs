//! Arrays that can only be read, put together from pieces: the two halves of an interrupted reshape, what mdadm's
//! backup file holds of it, and what is only in a write journal.
//!
//! Invariants:
//! - nothing is written;
//! - bytes that nobody can vouch for answer with an error, unless the user asked for what is there.
//!
//! Source: linux-md.md sections 6 and 12; md-reshape.md section 5 and R16.

use std::collections::BTreeMap;
use std::ops::Range;

use plexum_format::md::backup::{BACKUP_HEADER_BYTES, BackupHeader};

use super::{Found, OpenError, OpenRequest, build, examine_as};
use crate::assemble::{AssembledReshape, Assembly, Examined, assemble};
use crate::journal::{Source, read_journal};
use plexum_block::buf::{BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError, read_range};
use plexum_engine::volume::{Volume, VolumeStatus};

/// Unit of what is patched, in bytes.
pub(crate) const PATCH_BYTES: u64 = 4096;

/// How far the clock of an array may be ahead of its backup file's (mdadm's rule), in seconds.
const BACKUP_EARLIER_SECONDS_MAX: u64 = 600;
/// How far it may be behind.
const BACKUP_LATER_SECONDS_MAX: u64 = 7200;

/// Which part of an array in the middle of a reshape; every other array is all `Before`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Before,
    After,
}

/// An array that is read from several places. Read-only.
pub struct Pieces<D: Device, C: Clock> {
    before: Volume<D, C>,
    after: Option<(Volume<D, C>, AssembledReshape)>,
    /// By volume offset, a block each.
    patches: BTreeMap<u64, Source<D>>,
    /// Bytes that answer with an error.
    lost: Vec<Range<u64>>,
    pool: BufPool,
    /// Size as clients see it: the smaller of both halves.
    pub volume_bytes: u64,
    /// Bytes that come from a backup file or a write journal.
    pub patched_bytes: u64,
    /// Bytes that may be half moved.
    pub lost_bytes: u64,
}

impl<D: Device, C: Clock> Pieces<D, C> {
    /// Reads `length_bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// As `Volume::read`; `Medium` for bytes that nobody can vouch for.
    pub async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<Rope, IoError> {
        let end = offset_bytes
            .checked_add(length_bytes as u64)
            .ok_or(IoError::OutOfRange)?;
        if end > self.volume_bytes {
            return Err(IoError::OutOfRange);
        }
        let mut rope = Rope::default();
        let mut at = offset_bytes;
        while at < end {
            let block = at / PATCH_BYTES * PATCH_BYTES;
            let part_end = if let Some(source) = self.patches.get(&block) {
                let part_end = end.min(block + PATCH_BYTES);
                let bytes = source
                    .read(&self.pool, at - block..part_end - block)
                    .await?;
                rope.pieces.push(self.pool.copy_of(&bytes).freeze());
                part_end
            } else {
                let next = self.patches.range(block..).next();
                let part_end = next.map_or(end, |(start, _)| end.min(*start));
                self.read_halves(at..part_end, &mut rope).await?;
                part_end
            };
            at = part_end;
        }
        Ok(rope)
    }

    async fn read_halves(&self, range: Range<u64>, rope: &mut Rope) -> Result<(), IoError> {
        let is_lost = |lost: &Range<u64>| lost.start < range.end && range.start < lost.end;
        if self.lost.iter().any(is_lost) {
            return Err(IoError::Medium);
        }
        let parts = match &self.after {
            None => [(&self.before, range.clone()), (&self.before, 0..0)],
            Some((after, reshape)) => {
                let border = reshape.position_bytes.clamp(range.start, range.end);
                let (low, high) = if reshape.is_backwards {
                    (&self.before, after)
                } else {
                    (after, &self.before)
                };
                [(low, range.start..border), (high, border..range.end)]
            }
        };
        for (volume, part) in parts {
            if !part.is_empty() {
                let length =
                    usize::try_from(part.end - part.start).map_err(|_| IoError::OutOfRange)?;
                rope.pieces
                    .extend(volume.read(part.start, length).await?.pieces);
            }
        }
        Ok(())
    }

    /// Whether it has two geometries; otherwise it is read from a journal beside its members.
    #[must_use]
    pub fn is_half_reshaped(&self) -> bool {
        self.after.is_some()
    }

    /// The part in the old geometry.
    pub fn before(&self) -> &Volume<D, C> {
        &self.before
    }

    /// What both halves say together: the slots that either lacks, and the redundancy of the worse one.
    pub fn status(&self) -> VolumeStatus {
        let mut status = self.before.status();
        let Some((after, _)) = &self.after else {
            return status;
        };
        let other = after.status();
        status.lost_slots.extend(other.lost_slots);
        status.lost_slots.sort_unstable();
        status.lost_slots.dedup();
        status.losses_left = status.losses_left.min(other.losses_left);
        status.is_frozen |= other.is_frozen;
        for mut member in other.members {
            match status
                .members
                .iter_mut()
                .find(|own| own.name == member.name)
            {
                Some(own) => own.counters.add(&member.counters),
                None => {
                    member.id = plexum_engine::state::MemberId(status.members.len() as u16); // few
                    status.members.push(member);
                }
            }
        }
        status
    }
}

/// Opens an array for reading from pieces. `devices` are shared handles; `backup` is mdadm's backup file of a reshape
/// in place, with its name.
///
/// # Errors
/// `OpenError`; `NotSupported` unless `request` is read-only.
pub async fn open_pieces<D: Device + Clone, C: Clock + Clone>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    mut request: OpenRequest,
    backup: Option<(String, D)>,
) -> Result<(Pieces<D, C>, Assembly), OpenError> {
    let mut examined = Vec::new();
    for (index, (name, device)) in devices.iter().enumerate() {
        examined.push(examine_as(device, &pool, index, name, request.version).await?);
    }
    let all = Found::of(examined);
    request.assemble.has_backup = backup.is_some();
    let mut assembly = assemble(&all.examined, &request.assemble)
        .map_err(|error| OpenError::Assemble(Box::new(error)))?;
    if !assembly.is_read_only {
        return Err(OpenError::NotSupported(
            "an array in pieces can only be read".to_owned(),
        ));
    }
    if let (Some((name, _)), None) = (&backup, &assembly.reshape) {
        let text = format!("{name}: no reshape is under way that a backup file could help with");
        return Err(OpenError::Backup(text));
    }
    let mut found = read_journal(&devices, &pool, &all.examined, &assembly).await?;
    if let (Some((name, device)), Some(reshape)) = (backup, assembly.reshape.as_mut()) {
        let newest = &all.examined[assembly.freshest];
        let force = request.assemble.force;
        let header = read_backup(&device, &pool, &name, newest, force).await?;
        restore(&header, &device, reshape, &mut found.patches);
    }
    if let Some(torn) = assembly
        .reshape
        .as_ref()
        .and_then(|reshape| reshape.torn.clone())
    {
        found.lost.push(torn);
    }
    let lost_bytes = length_of(&found.lost);
    if request.assemble.force_data {
        found.lost.clear();
    }
    let build_side = async |side, geometry| {
        let (devices, clock, pool) = (devices.clone(), clock.clone(), pool.clone());
        let request = request.clone();
        build(
            devices, clock, pool, request, &all, &assembly, side, geometry,
        )
        .await
    };
    let before = build_side(Side::Before, assembly.geometry.clone()).await?;
    let after = match assembly.reshape.clone() {
        Some(reshape) => Some((
            build_side(Side::After, reshape.after.clone()).await?,
            reshape,
        )),
        None => None,
    };
    let pieces = Pieces {
        before,
        after,
        patched_bytes: found.patches.len() as u64 * PATCH_BYTES,
        patches: found.patches,
        lost: found.lost,
        pool,
        volume_bytes: assembly.volume_bytes,
        lost_bytes,
    };
    Ok((pieces, assembly))
}

/// Bytes of all ranges together.
fn length_of(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Reads the header of a backup file and compares it with the array.
async fn read_backup<D: Device>(
    device: &D,
    pool: &BufPool,
    name: &str,
    newest: &Examined,
    force: bool,
) -> Result<BackupHeader, OpenError> {
    let refuse = |text: String| OpenError::Backup(format!("{name}: {text}"));
    let head = read_range(device, pool, 0..BACKUP_HEADER_BYTES as u64)
        .await
        .map_err(|error| refuse(format!("reading mdadm's backup file: {error}")))?;
    let header = BackupHeader::parse(&head, device.info().size_bytes)
        .map_err(|error| refuse(error.to_string()))?;
    if !header.is_of(&newest.superblock.array_uuid) {
        return Err(refuse(
            "this backup file belongs to another array".to_owned(),
        ));
    }
    if header.sections.is_empty() {
        return Err(refuse("this backup file holds no section".to_owned()));
    }
    let (array, file) = (newest.superblock.utime.seconds, header.mtime_seconds);
    let is_of_then = array.saturating_add(BACKUP_EARLIER_SECONDS_MAX) >= file
        && array <= file.saturating_add(BACKUP_LATER_SECONDS_MAX);
    if !is_of_then && !force {
        return Err(refuse(format!(
            "this backup file is of another time: it was written at {file}, the array last at {array} (seconds since 1970)"
        )));
    }
    Ok(header)
}

/// What mdadm does before the kernel starts: the sections count, and the position moves to their far end when it lies
/// in them. Sections that lie behind the position were moved long ago.
fn restore<D: Device + Clone>(
    header: &BackupHeader,
    device: &D,
    reshape: &mut AssembledReshape,
    patches: &mut BTreeMap<u64, Source<D>>,
) {
    let position = reshape.position_bytes;
    let is_done = |range: &Range<u64>| {
        if reshape.is_backwards {
            range.start >= position
        } else {
            range.end <= position
        }
    };
    let sections = header.sections.iter();
    for section in sections.filter(|section| !is_done(&section.array_bytes)) {
        let range = section.array_bytes.clone();
        for at in range.clone().step_by(PATCH_BYTES as usize) {
            let at_bytes = section.file_bytes + (at - range.start);
            patches.insert(at, Source::Device(device.clone(), at_bytes));
        }
    }
    // mdadm let the kernel go no further than what was copied.
    let left = header.sections.iter().map(|section| &section.array_bytes);
    let left = left.filter(|range| !is_done(range));
    reshape.torn = if reshape.is_backwards {
        let end = left.map(|range| range.end).max();
        end.filter(|end| *end < position).map(|end| end..position)
    } else {
        let start = left.map(|range| range.start).min();
        start
            .filter(|start| *start > position)
            .map(|start| position..start)
    };
}
