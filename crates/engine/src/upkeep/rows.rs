//! Several rows in one step: each member on disk is asked for one long piece instead of many of the length of a strip.
//!
//! A disk behind a queue takes requests one after the other, and a short one costs it as much as a long one: with
//! strips of 64 KiB a rebuild had less than half of what the members give (docs/notes/upkeep.md). What is not ordinary
//! in a row (an error, content that is elsewhere) is given back, and the step goes row by row.
//!
//! Invariants:
//! - the step holds the locks of all its rows until it has done with them;
//! - nothing is written here.

use std::ops::Range;
use std::rc::Rc;

use plexum_parity::{Block, check_p, check_pq};

use crate::drive::Drive;
use crate::mutant::Mutant;
use crate::row::{PerBlock, Row};
use crate::upkeep::Upkeep;

use plexum_block::buf::BufMut;
use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_block::lock::RangeGuard;
use plexum_block::wait::join_few;

/// Bytes of each member that a step of several rows covers; of rows that are longer it takes one.
const STEP_BYTES: u64 = 512 << 10;

/// Steps that a job has at least: of a short one everything would be under way, and locked, at once.
const STEPS_MIN: u64 = 16;

/// Blocks of several rows, as they were read.
pub(super) struct RowsRead {
    pieces: Vec<BufMut>,
    /// Of each block of each row the piece it is in, and where there.
    places: Vec<PerBlock<(usize, usize)>>,
    strip_bytes: usize,
}

impl RowsRead {
    /// The blocks of the row at this index, in the order in which they were asked for.
    pub fn row(&self, index: usize) -> PerBlock<&[u8]> {
        let block = |&(piece, at): &(usize, usize)| &self.pieces[piece][at..at + self.strip_bytes];
        self.places[index].iter().map(block).collect()
    }
}

/// A range of a member that several rows lie in, one behind the other.
struct Piece<D> {
    drive: Rc<Drive<D>>,
    range: Range<u64>,
}

/// Members' ranges that are to be read: who and from which byte of the data area.
type Sources<D> = PerBlock<(Rc<Drive<D>>, u64)>;

impl<D: Device, C: Clock> Upkeep<D, C> {
    /// Rows that a step of a job over `job_bytes` of each member covers. Where clients wait for the members it is one,
    /// whose lock they may have to wait for; members in memory gain nothing by more.
    pub(super) fn rows_at_once(&self, job_bytes: u64) -> u64 {
        if self.array.is_in_memory() || self.is_in_foreground() {
            return 1;
        }
        let step_bytes = STEP_BYTES.min(job_bytes / STEPS_MIN);
        (step_bytes / self.base.geometry().strip_bytes()).max(1)
    }

    /// End of the step of `rows` rows that member byte `at` belongs to.
    pub(super) fn rows_end(&self, at: u64, rows: u64) -> u64 {
        let step_bytes = rows * self.base.geometry().strip_bytes();
        (at / step_bytes + 1) * step_bytes
    }

    /// Locks all rows that a member range touches.
    pub(super) async fn lock_rows(&self, member: &Range<u64>) -> RangeGuard<'_> {
        let strip = self.base.geometry().strip_bytes();
        let rows = member.start / strip..member.end.div_ceil(strip);
        if self.base.has(Mutant::FirstRowLocked) {
            return self.base.locks().row(rows.start).await;
        }
        self.base.locks().lock(rows).await
    }

    /// The rows that a member range touches, by number, each with the part of its strips that lies in it.
    pub(super) fn row_parts(
        &self,
        member: &Range<u64>,
    ) -> impl Iterator<Item = (u64, Range<u64>)> + use<D, C> {
        let (strip, member) = (self.base.geometry().strip_bytes(), member.clone());
        (member.start / strip..member.end.div_ceil(strip)).map(move |number| {
            let row = number * strip..(number + 1) * strip;
            let part = member.start.max(row.start)..member.end.min(row.end);
            (number, part.start - row.start..part.end - row.start)
        })
    }

    /// Numbers of the rows that a member range consists of. `None`: it is one or less, one of them is cut, or the last
    /// of the array lies before.
    pub(super) fn whole_rows(&self, member: &Range<u64>) -> Option<Range<u64>> {
        let strip = self.base.geometry().strip_bytes();
        let is_whole = member.start.is_multiple_of(strip) && member.end.is_multiple_of(strip);
        let rows = member.start / strip..member.end / strip;
        let is_several = rows.end > rows.start + 1 && rows.end <= self.base.geometry().row_count();
        (is_whole && is_several).then_some(rows)
    }

    /// Reads everything of whole rows, the parities of each behind its data. The caller holds their locks. `None`: it
    /// is not as simple as that.
    pub(super) async fn read_whole_rows(
        &self,
        numbers: Range<u64>,
    ) -> Option<(Vec<Row>, RowsRead)> {
        let wanted: Vec<(Row, PerBlock<Block>)> = numbers
            .map(|number| self.base.row(number))
            .map(|row| (row, row.blocks().collect()))
            .collect();
        let read = self.read_rows(&wanted).await?;
        Some((wanted.into_iter().map(|(row, _)| row).collect(), read))
    }

    /// Whether the parity of a row is what its data make it; all its blocks are given, the parities behind the data.
    pub(super) fn is_row_right(&self, row: &Row, blocks: &[&[u8]]) -> bool {
        let exponents = row.map.q.map(|_| self.base.q_exponents(row));
        is_parity(exponents.as_deref(), blocks)
    }

    /// The plain content of blocks of a row, where each is on its member and nowhere else.
    fn row_sources(&self, row: &Row, blocks: &[Block], part: &Range<u64>) -> Option<Sources<D>> {
        let set = self.array.members();
        let member = row.member_range(part);
        let source = |block: &Block| {
            let slot = row.slot(*block);
            let drive = self.array.readable_drive(&set, slot, &member, &member)?;
            let is_plain = self.intent.logged_blocks(slot, &member).is_empty();
            is_plain.then(|| (Rc::clone(drive), member.start))
        };
        blocks.iter().map(source).collect()
    }

    /// Reads the blocks that are named of each row, whole ones; the rows are neighbours, in ascending order. The caller
    /// holds their locks. `None`: it is not as simple as that.
    pub(super) async fn read_rows(&self, wanted: &[(Row, PerBlock<Block>)]) -> Option<RowsRead> {
        let strip = wanted.first()?.0.strip_bytes;
        let strip_bytes = usize::try_from(strip).expect("a strip fits memory");
        let mut pieces: Vec<Piece<D>> = Vec::new();
        let mut places = Vec::with_capacity(wanted.len());
        for (row, blocks) in wanted {
            let sources = self.row_sources(row, blocks, &(0..strip))?;
            let place = |(drive, at)| place_of(&mut pieces, drive, at, strip);
            places.push(sources.into_iter().map(place).collect());
        }
        let read = |index: usize| {
            let Piece { drive, range } = &pieces[index];
            let length = usize::try_from(range.end - range.start).expect("a step fits memory");
            drive.read(self.base.pool(), self.base.clock(), range.start, length)
        };
        let read = join_few(pieces.len(), read).await;
        Some(RowsRead {
            pieces: read.into_iter().collect::<Result<_, _>>().ok()?,
            places,
            strip_bytes,
        })
    }
}

/// Where a strip that begins at `at` of a member will be: behind the one before it, where there is one.
fn place_of<D>(
    pieces: &mut Vec<Piece<D>>,
    drive: Rc<Drive<D>>,
    at: u64,
    strip_bytes: u64,
) -> (usize, usize) {
    let end = at + strip_bytes;
    let follows = |piece: &Piece<D>| Rc::ptr_eq(&piece.drive, &drive) && piece.range.end == at;
    if let Some(index) = pieces.iter().rposition(follows) {
        let range = &mut pieces[index].range;
        range.end = end;
        let inside = usize::try_from(at - range.start).expect("a step fits memory");
        return (index, inside);
    }
    let range = at..end;
    pieces.push(Piece { drive, range });
    (pieces.len() - 1, 0)
}

/// Whether the last of the columns is P of those before it; with `exponents` the last two are P and Q.
fn is_parity(exponents: Option<&[u8]>, columns: &[&[u8]]) -> bool {
    let wrong = match (exponents, columns) {
        (None, [data @ .., p]) => check_p(data, p),
        (Some(exponents), [data @ .., p, q]) => check_pq(data, exponents, p, q),
        _ => Some(0),
    };
    wrong.is_none()
}
