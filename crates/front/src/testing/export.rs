//! An export in memory: sparse, recording what it was asked, able to wait, to fail and to lose what was not flushed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::clock::Clock;
use plexum_block::device::{Fua, IoError};

use super::clock::TestClock;
use crate::counted::{Counting, Tally};
use crate::export::{Export, ExportInfo, Extent, ZeroRequest};
use crate::flag::Flag;
use crate::size::Size;

const PAGE_BYTES: u64 = 4096;
type Pages = BTreeMap<u64, Box<[u8; PAGE_BYTES as usize]>>;

/// A call that the export received; ranges are offset and length in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // named as the methods of `Export`
pub enum Operation {
    Read(u64, u64),
    Write(u64, u64, Fua),
    Flush,
    Trim(u64, u64, Fua),
    Zero(u64, u64, ZeroRequest),
    Cache(u64, u64),
    Status(u64, u64, usize),
}

/// An export in memory. Pages of 4 KiB exist once something other than zeroes was written to them.
pub struct MemoryExport {
    info: ExportInfo,
    size: Size,
    pool: BufPool,
    pages: RefCell<Pages>,
    durable: RefCell<Pages>,
    /// Pages that may differ from the durable ones.
    dirty: RefCell<BTreeSet<u64>>,
    log: RefCell<Vec<Operation>>,
    expected: RefCell<Vec<(u64, u64)>>,
    is_holding: Cell<bool>,
    held: RefCell<VecDeque<(Operation, Rc<Flag>)>>,
    error: Cell<Option<IoError>>,
    is_zeroing_fast: Cell<bool>,
    idle_polls: Cell<u32>,
    is_careless: Cell<bool>,
    counting: Option<Counting<TestClock>>,
}

impl MemoryExport {
    /// An export of zeroes; `change` adapts name, sizes and abilities.
    #[must_use]
    pub fn new(name: &str, size_bytes: u64, change: impl FnOnce(&mut ExportInfo)) -> Self {
        let mut info = ExportInfo {
            name: name.to_owned(),
            description: String::new(),
            size_bytes,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        };
        change(&mut info);
        Self {
            size: Size::new(info.size_bytes),
            info,
            pool: BufPool::new(1 << 20),
            pages: RefCell::default(),
            durable: RefCell::default(),
            dirty: RefCell::default(),
            log: RefCell::default(),
            expected: RefCell::default(),
            is_holding: Cell::new(false),
            held: RefCell::default(),
            error: Cell::new(None),
            is_zeroing_fast: Cell::new(true),
            idle_polls: Cell::new(0),
            is_careless: Cell::new(false),
            counting: None,
        }
    }

    /// The same, whose clients are counted in `tally`.
    #[must_use]
    pub fn counted(self, clock: TestClock, tally: Arc<Tally>) -> Self {
        Self {
            counting: Some(Counting::new(clock, tally)),
            ..self
        }
    }

    /// Every call so far, in order; empties the record.
    pub fn take_log(&self) -> Vec<Operation> {
        self.log.take()
    }

    /// Writes of which it was told that their data are being received, offset and length in bytes.
    #[must_use]
    pub fn expected(&self) -> Vec<(u64, u64)> {
        self.expected.borrow().clone()
    }

    /// From now on calls wait until they are released (`true`), or run at once (`false`; releases nothing).
    pub fn hold(&self, is_holding: bool) {
        self.is_holding.set(is_holding);
    }

    /// Calls that wait, in the order in which they came.
    #[must_use]
    pub fn held(&self) -> Vec<Operation> {
        self.held
            .borrow()
            .iter()
            .map(|(operation, _)| *operation)
            .collect()
    }

    /// Lets the waiting call at `index` go on.
    pub fn release(&self, index: usize) {
        let (_, signal) = self
            .held
            .borrow_mut()
            .remove(index)
            .expect("such a call waits");
        signal.set();
    }

    /// Makes every call fail with `error` until told otherwise.
    pub fn fail_with(&self, error: Option<IoError>) {
        self.error.set(error);
    }

    /// Whether FAST_ZERO is possible.
    pub fn zero_fast(&self, is_zeroing_fast: bool) {
        self.is_zeroing_fast.set(is_zeroing_fast);
    }

    /// Breaks the contract of `Export`: reads give a byte less than asked.
    pub fn read_short(&self, is_careless: bool) {
        self.is_careless.set(is_careless);
    }

    /// Wakes calls that wait without a reason, `polls` times in all.
    pub fn pester(&self, polls: u32) {
        self.idle_polls.set(polls);
    }

    /// Changes the size, while it is served.
    pub fn resize(&self, size_bytes: u64) {
        self.size.set(size_bytes);
    }

    /// What a power cut would leave: everything as of the last flush, and what was written with FUA since.
    #[must_use]
    pub fn durable_bytes(&self, offset_bytes: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        read_pages(&self.durable.borrow(), offset_bytes, &mut bytes);
        bytes
    }

    /// The contents now.
    #[must_use]
    pub fn bytes(&self, offset_bytes: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        read_pages(&self.pages.borrow(), offset_bytes, &mut bytes);
        bytes
    }

    async fn enter(&self, operation: Operation) -> Result<(), IoError> {
        self.log.borrow_mut().push(operation);
        if self.is_holding.get() {
            let signal = Rc::new(Flag::default());
            self.held
                .borrow_mut()
                .push_back((operation, Rc::clone(&signal)));
            let mut wait = pin!(signal.wait());
            poll_fn(|cx| {
                if let Some(left) = self.idle_polls.get().checked_sub(1) {
                    self.idle_polls.set(left);
                    cx.waker().wake_by_ref();
                }
                wait.as_mut().poll(cx)
            })
            .await;
        }
        self.error.get().map_or(Ok(()), Err)
    }

    fn rope(&self, offset_bytes: u64, length: usize) -> Rope {
        let mut buf = self.pool.take(length);
        read_pages(&self.pages.borrow(), offset_bytes, &mut buf);
        if self.is_careless.get() {
            buf.truncate(length - 1);
        }
        buf.freeze().into()
    }

    fn fill(&self, offset_bytes: u64, length_bytes: u64, data: Option<&[u8]>, fua: Fua) {
        let mut dirty = self.dirty.borrow_mut();
        let mut note = |page| {
            dirty.insert(page);
        };
        let pages = &mut self.pages.borrow_mut();
        write_pages(pages, offset_bytes, length_bytes, data, &mut note);
        if fua == Fua::Yes {
            let durable = &mut self.durable.borrow_mut();
            write_pages(durable, offset_bytes, length_bytes, data, &mut |_| {});
        }
    }
}

/// Calls `each` with every page that a range touches: page number, range inside of the page, place in the range.
fn each_page(
    offset_bytes: u64,
    length_bytes: u64,
    mut each: impl FnMut(u64, std::ops::Range<usize>, u64),
) {
    let mut done = 0;
    while done < length_bytes {
        let at = offset_bytes + done;
        let inside = at % PAGE_BYTES;
        let count = (PAGE_BYTES - inside).min(length_bytes - done);
        each(
            at / PAGE_BYTES,
            inside as usize..(inside + count) as usize,
            done,
        );
        done += count;
    }
}

fn read_pages(pages: &Pages, offset_bytes: u64, into: &mut [u8]) {
    into.fill(0);
    each_page(offset_bytes, into.len() as u64, |page, range, at| {
        if let Some(page) = pages.get(&page) {
            into[at as usize..][..range.len()].copy_from_slice(&page[range]);
        }
    });
}

/// Writes `data`, or zeroes, and calls `note` with every page that has changed.
fn write_pages(
    pages: &mut Pages,
    offset_bytes: u64,
    length_bytes: u64,
    data: Option<&[u8]>,
    note: &mut dyn FnMut(u64),
) {
    if let Some(data) = data {
        each_page(offset_bytes, length_bytes, |number, range, at| {
            let empty = || Box::new([0; PAGE_BYTES as usize]);
            let page = pages.entry(number).or_insert_with(empty);
            let count = range.len();
            page[range].copy_from_slice(&data[at as usize..][..count]);
            note(number);
        });
        return;
    }
    // Only pages that exist have to change: ranges of zeroes may be huge.
    let end = offset_bytes + length_bytes;
    let touched = pages.range(offset_bytes / PAGE_BYTES..end.div_ceil(PAGE_BYTES));
    for number in touched.map(|(number, _)| *number).collect::<Vec<_>>() {
        let start = (number * PAGE_BYTES).max(offset_bytes) % PAGE_BYTES;
        let stop = ((number + 1) * PAGE_BYTES).min(end) - number * PAGE_BYTES;
        let page = pages.get_mut(&number).expect("just seen");
        page[start as usize..stop as usize].fill(0);
        if page.iter().all(|byte| *byte == 0) {
            pages.remove(&number);
        }
        note(number);
    }
}

impl Export for MemoryExport {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            size_bytes: self.size.bytes(),
            ..self.info.clone()
        }
    }

    async fn resized(&self, known_bytes: u64) -> u64 {
        self.size.other_than(known_bytes).await
    }

    fn counting(&self) -> Option<&Counting<impl Clock>> {
        self.counting.as_ref()
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        self.enter(Operation::Read(offset_bytes, length_bytes.into()))
            .await?;
        Ok(self.rope(offset_bytes, length_bytes as usize))
    }

    fn expect_write(&self, offset_bytes: u64, length_bytes: u64) {
        self.expected
            .borrow_mut()
            .push((offset_bytes, length_bytes));
    }

    fn expect_no_write(&self, offset_bytes: u64, length_bytes: u64) {
        let mut expected = self.expected.borrow_mut();
        let place = expected
            .iter()
            .position(|range| *range == (offset_bytes, length_bytes));
        expected.remove(place.expect("it was expected"));
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        let length_bytes = data.len() as u64;
        self.expected
            .borrow_mut()
            .retain(|range| *range != (offset_bytes, length_bytes));
        self.enter(Operation::Write(offset_bytes, length_bytes, fua))
            .await?;
        self.fill(offset_bytes, length_bytes, Some(&data), fua);
        Ok(())
    }

    async fn flush(&self) -> Result<(), IoError> {
        self.enter(Operation::Flush).await?;
        let (pages, mut durable) = (self.pages.borrow(), self.durable.borrow_mut());
        for number in self.dirty.take() {
            match pages.get(&number) {
                Some(page) => durable.insert(number, page.clone()),
                None => durable.remove(&number),
            };
        }
        Ok(())
    }

    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        self.enter(Operation::Trim(offset_bytes, length_bytes, fua))
            .await?;
        self.fill(offset_bytes, length_bytes, None, fua);
        Ok(())
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        self.enter(Operation::Zero(offset_bytes, length_bytes, how))
            .await?;
        if how.only_if_fast && !self.is_zeroing_fast.get() {
            return Err(IoError::Unsupported);
        }
        self.fill(offset_bytes, length_bytes, None, how.fua);
        Ok(())
    }

    async fn cache(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError> {
        self.enter(Operation::Cache(offset_bytes, length_bytes))
            .await
    }

    async fn status(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.enter(Operation::Status(offset_bytes, length_bytes, extents_max))
            .await?;
        let pages = self.pages.borrow();
        let mut extents = Vec::new();
        let (mut at, end) = (offset_bytes, offset_bytes + length_bytes);
        while at < end && extents.len() < extents_max {
            let is_hole = !pages.contains_key(&(at / PAGE_BYTES));
            let start = at;
            if is_hole {
                let next = pages.range(at / PAGE_BYTES..).next();
                at = next.map_or(end, |(page, _)| (page * PAGE_BYTES).min(end));
            } else {
                while at < end && pages.contains_key(&(at / PAGE_BYTES)) {
                    at = ((at / PAGE_BYTES + 1) * PAGE_BYTES).min(end);
                }
            }
            extents.push(Extent {
                length_bytes: at - start,
                is_hole,
                is_zero: is_hole,
            });
        }
        Ok(extents)
    }
}
