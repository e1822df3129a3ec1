//! Members: where on a device the pool's bytes are, and reads of them.
//!
//! Invariants: a read never leaves the member (a partition, or the whole device); nothing is written.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use crate::partitions::partitions_on;
use plexum_block::buf::BufPool;
use plexum_block::device::{Device, IoError};
use plexum_block::wait::join_all;
use plexum_format::zfs::label::{best_label, roots};
use plexum_format::zfs::{
    DATA_OFFSET_BYTES, LABEL_BYTES, Label, LabelArea, USUAL_STARTS_BYTES, Uberblock, label_offsets,
};

use crate::parts::Bytes;

/// A device and what messages call it.
pub struct NamedDevice<D> {
    /// As the user wrote it.
    pub name: String,
    /// The device, opened for reading.
    pub device: D,
}

/// A member that was found on a device: its labels are parsed, nothing is judged yet. Clones share the device.
pub struct MemberState<D> {
    /// What messages call it: `disk:p1` in a partition, `disk+1048576` where no table says that there is one.
    pub name: String,
    /// The best of its labels: the last one that was written, until a root says which of them it follows.
    pub label: Label,
    /// All its roots, the newest first.
    pub roots: Vec<Uberblock>,
    /// How many of its four labels are good.
    pub good_labels: usize,
    /// All its good labels, with their numbers: 0 to 3.
    pub(crate) labels: Vec<(usize, Label)>,
    pub(crate) device: Rc<D>,
    pub(crate) place: Range<u64>,
    pub(crate) missed: Missed,
    pub(crate) pool: BufPool,
}

/// Transaction groups whose blocks a member may not have: they are read from others. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Missed(Rc<RefCell<Vec<Range<u64>>>>);

impl Missed {
    /// Replaces the ranges.
    pub fn set(&self, ranges: Vec<Range<u64>>) {
        *self.0.borrow_mut() = ranges;
    }

    /// Adds a range.
    pub fn add(&self, range: Range<u64>) {
        self.0.borrow_mut().push(range);
    }

    /// Whether a block of this transaction group was missed.
    #[must_use]
    pub fn has(&self, birth_txg: u64) -> bool {
        self.0
            .borrow()
            .iter()
            .any(|range| range.contains(&birth_txg))
    }
}

// Derived, it would ask the device to be cloned as well.
impl<D> MemberState<D> {
    /// Whether one of the two labels that are written behind a root is good and not newer than the root of `txg`. While
    /// the two in front of the next root are written, a member has no other.
    #[must_use]
    pub fn has_label_behind(&self, txg: u64) -> bool {
        let mut behind = self.labels.iter().filter(|(number, _)| number % 2 == 1);
        behind.any(|(_, label)| label.txg <= txg)
    }
}

impl<D> Clone for MemberState<D> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            label: self.label.clone(),
            roots: self.roots.clone(),
            good_labels: self.good_labels,
            labels: self.labels.clone(),
            device: Rc::clone(&self.device),
            place: self.place.clone(),
            missed: self.missed.clone(),
            pool: self.pool.clone(),
        }
    }
}

/// Looks for members on devices: in their partitions, then on the whole device, then where partitions usually begin: a
/// label's checksum is right at its own place alone. The second part of the answer says of which devices nothing can be
/// used, and why.
pub async fn find_members<D: Device>(
    devices: Vec<NamedDevice<D>>,
    pool: &BufPool,
) -> (Vec<MemberState<D>>, Vec<String>) {
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for NamedDevice { name, device } in devices {
        let device = Rc::new(device);
        let size_bytes = device.info().size_bytes;
        let parts = partitions_on(&*device, pool).await.into_iter();
        let parts = parts.map(|part| (format!("{name}:{}", part.name), part.place));
        let whole = [(name.clone(), 0..size_bytes)];
        let usual = USUAL_STARTS_BYTES.map(|start| (format!("{name}+{start}"), start..size_bytes));
        let before = found.len();
        let mut why = format!("{name}: no label of a pool was found");
        for places in [parts.collect(), whole.to_vec(), usual.to_vec()] {
            let places: Vec<(String, Range<u64>)> = places;
            for (name, place) in places.into_iter().filter(|(_, place)| is_large(place)) {
                match member_at(&device, &name, place, pool).await {
                    Ok(Some(member)) => add(&mut found, before, member),
                    Ok(None) => {}
                    Err(reason) => why = reason,
                }
            }
            if found.len() > before {
                break;
            }
        }
        if found.len() == before {
            notes.push(why);
        }
    }
    (found, notes)
}

/// Whether a member fits there.
fn is_large(place: &Range<u64>) -> bool {
    place.end.saturating_sub(place.start) >= 8 << 18
}

/// Adds a member to those of one device, which begin with number `first`. A slice and the partition of its BSD label
/// may begin in the same place: the one with more good labels counts.
fn add<D>(found: &mut Vec<MemberState<D>>, first: usize, member: MemberState<D>) {
    let same = found[first..]
        .iter_mut()
        .find(|other| other.place.start == member.place.start);
    match same {
        Some(other) if other.good_labels < member.good_labels => *other = member,
        Some(_) => {}
        None => found.push(member),
    }
}

/// The member in that part of a device; `None` when there is no label at all.
async fn member_at<D: Device>(
    device: &Rc<D>,
    name: &str,
    place: Range<u64>,
    pool: &BufPool,
) -> Result<Option<MemberState<D>>, String> {
    let mut areas = Vec::new();
    let mut refusal = None;
    for offset in label_offsets(place.end - place.start) {
        match read_unaligned(&**device, pool, place.start + offset, LABEL_BYTES).await {
            Ok(bytes) => {
                let area = LabelArea::parse(&bytes, offset);
                if let Err(error) = &area.label
                    && error.problem != plexum_format::Problem::NoMagic
                {
                    refusal.get_or_insert(format!("{name}: {error}"));
                }
                areas.push(area);
            }
            Err(error) => {
                refusal.get_or_insert(format!("{name}: label at byte {offset}: {error}"));
            }
        }
    }
    let Some(label) = best_label(&areas) else {
        return refusal.map_or(Ok(None), Err);
    };
    Ok(Some(MemberState {
        name: name.to_owned(),
        label: label.clone(),
        roots: roots(&areas),
        good_labels: areas.iter().filter(|area| area.label.is_ok()).count(),
        labels: numbered_labels(&areas, &label_offsets(place.end - place.start)),
        device: Rc::clone(device),
        place,
        missed: Missed::default(),
        pool: pool.clone(),
    }))
}

/// The good labels, with their numbers.
fn numbered_labels(areas: &[LabelArea], offsets: &[u64]) -> Vec<(usize, Label)> {
    let numbered = areas.iter().filter_map(|area| {
        let number = offsets.iter().position(|at| *at == area.offset_bytes)?;
        Some((number, area.label.clone().ok()?))
    });
    numbered.collect()
}

/// Reads a range whose borders need not fit the device's sectors.
async fn read_unaligned<D: Device>(
    device: &D,
    pool: &BufPool,
    offset_bytes: u64,
    length_bytes: usize,
) -> Result<Bytes, IoError> {
    let sector = u64::from(device.info().sector_bytes);
    let start = offset_bytes / sector * sector;
    let end = offset_bytes
        .checked_add(length_bytes as u64)
        .ok_or(IoError::OutOfRange)?
        .next_multiple_of(sector);
    let length = usize::try_from(end - start).map_err(|_| IoError::OutOfRange)?;
    let buf = device.read(start, pool.take(length)).await?;
    let skip = (offset_bytes - start) as usize;
    Ok(Bytes::part_of(buf, skip..skip + length_bytes))
}

impl<D: Device> MemberState<D> {
    /// Reads `length_bytes` at `offset_bytes` of the data area.
    pub(crate) async fn read(
        &self,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> Result<Bytes, IoError> {
        let start = offset_bytes
            .checked_add(DATA_OFFSET_BYTES)
            .and_then(|at| at.checked_add(self.place.start))
            .ok_or(IoError::OutOfRange)?;
        let end = start
            .checked_add(length_bytes as u64)
            .ok_or(IoError::OutOfRange)?;
        if end > self.place.end {
            return Err(IoError::OutOfRange);
        }
        read_unaligned(&*self.device, &self.pool, start, length_bytes).await
    }

    /// Byte offset on the device of an offset in the data area; for messages.
    pub(crate) fn device_offset_bytes(&self, offset_bytes: u64) -> u64 {
        offset_bytes.saturating_add(DATA_OFFSET_BYTES + self.place.start)
    }

    /// Where its buffers come from.
    pub(crate) fn buffers(&self) -> &BufPool {
        &self.pool
    }

    /// Where on its device the member begins.
    #[must_use]
    pub fn start_bytes(&self) -> u64 {
        self.place.start
    }
}

/// Reads from several members at once.
pub(crate) async fn read_all<D: Device>(
    wanted: impl Iterator<Item = (Option<Rc<MemberState<D>>>, u64, usize)>,
) -> Vec<Option<Result<Bytes, IoError>>> {
    let reads = wanted.map(|(member, offset_bytes, length_bytes)| async move {
        Some(member?.read(offset_bytes, length_bytes).await)
    });
    join_all(reads).await
}
