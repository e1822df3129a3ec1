//! What a volume knows of its content without reading it: holes and zeroes.
//!
//! Invariants:
//! - "zero" and "hole" are only said of what in-sync members say, where copies are known to agree (W11);
//! - parity organisations say "data" everywhere: a hole in a member there means nothing to a client.

use crate::drive::Drive;
use crate::volume::Volume;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Extent, IoError};
use plexum_layout::Organisation;

/// Questions to members that one call asks at most: the answer then covers less.
const QUESTIONS_MAX: usize = 1024;

impl<D: Device, C: Clock> Volume<D, C> {
    /// Extents from `offset_bytes` on: at least one, at most `extents_max`; may cover less than asked.
    ///
    /// # Errors
    /// `OutOfRange`, `Failed`.
    pub async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.check_request(offset_bytes, length_bytes)?;
        if self.base.geometry().parity_count() > 0 || extents_max == 0 {
            return Ok(vec![data(length_bytes)]);
        }
        let end = offset_bytes + length_bytes;
        let mut all: Vec<Extent> = Vec::new();
        let mut at = offset_bytes;
        for _ in 0..QUESTIONS_MAX {
            if at >= end {
                break;
            }
            let length = self.base.contiguous_bytes(at).min(end - at);
            let piece = self.extents_of_piece(at, length, extents_max).await;
            for extent in cut(&piece, length) {
                let count = all.len();
                match all.last_mut() {
                    Some(last) if same(last, &extent) => last.length_bytes += extent.length_bytes,
                    _ if count == extents_max => return Ok(all),
                    _ => all.push(extent),
                }
                at += extent.length_bytes;
            }
        }
        Ok(all)
    }

    /// A range inside one strip; may cover less.
    async fn extents_of_piece(
        &self,
        at: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Vec<Extent> {
        let places = match self.base.geometry().organisation() {
            Organisation::Raid1 | Organisation::Raid10(_) => {
                let sync = at..at + length_bytes;
                if !self.intent.is_proven(&sync) {
                    return vec![data(length_bytes)];
                }
                let copies = self.base.geometry().copies_of(at);
                copies.iter().find_map(|place| {
                    let member =
                        place.member_offset_bytes..place.member_offset_bytes + length_bytes;
                    let set = self.array.members();
                    let drive = self.array.readable_drive(&set, place.slot, &member, &sync);
                    drive.map(|drive| (std::rc::Rc::clone(drive), member.start))
                })
            }
            _ => {
                let place = self.base.geometry().locate(at);
                let drive = self.array.members().slots[place.slot].active.clone();
                drive.map(|drive: std::rc::Rc<Drive<D>>| (drive, place.member_offset_bytes))
            }
        };
        match places {
            Some((drive, member_offset_bytes)) => {
                drive
                    .extents(member_offset_bytes, length_bytes, extents_max)
                    .await
            }
            None => vec![data(length_bytes)],
        }
    }
}

fn data(length_bytes: u64) -> Extent {
    Extent {
        length_bytes,
        is_hole: false,
        is_zero: false,
    }
}

fn same(one: &Extent, other: &Extent) -> bool {
    (one.is_hole, one.is_zero) == (other.is_hole, other.is_zero)
}

/// The extents without what a member said beyond the question; an empty extent says nothing and ends the list.
fn cut(extents: &[Extent], length_bytes: u64) -> Vec<Extent> {
    let mut left = length_bytes;
    let mut kept = Vec::new();
    for extent in extents {
        let length = extent.length_bytes.min(left);
        if length == 0 {
            break;
        }
        kept.push(Extent {
            length_bytes: length,
            ..*extent
        });
        left -= length;
    }
    if kept.is_empty() {
        kept.push(data(length_bytes));
    }
    kept
}
