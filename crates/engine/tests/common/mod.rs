//! A device in memory, a clock that stands still, and an executor of one future: nothing here ever waits.
#![allow(dead_code, clippy::unwrap_used)] // each test file uses a part; tests

pub mod small_array;
pub mod vinum;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use plexum_block::buf::{Buf, BufMut};
use plexum_block::clock::{Clock, Moment};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};

/// A device in memory; clones share it.
#[derive(Clone)]
pub struct Memory {
    pub bytes: Rc<RefCell<Vec<u8>>>,
    pub is_gone: Rc<Cell<bool>>,
    pub reads: Rc<Cell<u64>>,
    pub writes: Rc<Cell<u64>>,
    pub flushes: Rc<Cell<u64>>,
}

impl Memory {
    pub fn new(bytes: Vec<u8>) -> Self {
        Self {
            bytes: Rc::new(RefCell::new(bytes)),
            is_gone: Rc::default(),
            reads: Rc::default(),
            writes: Rc::default(),
            flushes: Rc::default(),
        }
    }
}

impl Device for Memory {
    fn info(&self) -> DeviceInfo {
        let size_bytes = self.bytes.borrow().len() as u64 / 512 * 512;
        DeviceInfo::plain(size_bytes)
    }
    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        if self.is_gone.get() {
            return Err(IoError::Gone);
        }
        self.reads.set(self.reads.get() + 1);
        let start = usize::try_from(offset_bytes).unwrap();
        let length = buf.len();
        buf.copy_from_slice(&self.bytes.borrow()[start..start + length]);
        Ok(buf)
    }
    async fn write(&self, offset_bytes: u64, data: Buf, _fua: Fua) -> Result<(), IoError> {
        check_range(&self.info(), offset_bytes, data.len() as u64)?;
        if self.is_gone.get() {
            return Err(IoError::Gone);
        }
        let start = usize::try_from(offset_bytes).unwrap();
        self.bytes.borrow_mut()[start..start + data.len()].copy_from_slice(&data);
        self.writes.set(self.writes.get() + 1);
        Ok(())
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.flushes.set(self.flushes.get() + 1);
        if self.is_gone.get() {
            Err(IoError::Gone)
        } else {
            Ok(())
        }
    }
}

/// Time that passes only by sleeping: up to the end of the shortest sleep, when everybody has had some turns.
#[derive(Clone, Default)]
pub struct Still(pub Rc<Cell<u64>>, Rc<RefCell<Sleepers>>);

/// Ends of the sleeps under way, by their number.
#[derive(Default)]
struct Sleepers {
    ends: BTreeMap<u64, u64>,
    next: u64,
}

/// Turns of the one who wakes first that the others have before time passes.
const TURNS: u32 = 4;

struct Sleep<'a> {
    clock: &'a Still,
    number: u64,
    end: u64,
    turns: u32,
}

impl Future for Sleep<'_> {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let now = self.clock.0.get();
        let first = self.clock.1.borrow().ends.values().min().copied();
        if now < self.end && first == Some(self.end) {
            self.turns += 1;
            if self.turns > TURNS {
                self.clock.0.set(self.end);
            }
        }
        if self.clock.0.get() >= self.end {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Sleep<'_> {
    fn drop(&mut self) {
        self.clock.1.borrow_mut().ends.remove(&self.number);
    }
}

impl Still {
    /// How often anybody has begun to sleep.
    pub fn sleeps(&self) -> u64 {
        self.1.borrow().next
    }
}

impl Clock for Still {
    fn now(&self) -> Moment {
        Moment(self.0.get())
    }
    fn wall_seconds(&self) -> u64 {
        1_700_000_000
    }
    async fn sleep(&self, duration: Duration) {
        let end = self.0.get() + u64::try_from(duration.as_nanos()).unwrap();
        let number = {
            let mut sleepers = self.1.borrow_mut();
            let number = sleepers.next;
            sleepers.next += 1;
            sleepers.ends.insert(number, end);
            number
        };
        let (clock, turns) = (self, 0);
        Sleep {
            clock,
            number,
            end,
            turns,
        }
        .await;
    }
}

/// Gives the other futures of the task a turn.
pub async fn yield_once() {
    let mut is_second = false;
    std::future::poll_fn(|cx| {
        if is_second {
            return Poll::Ready(());
        }
        is_second = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

struct Nothing;
impl Wake for Nothing {
    fn wake(self: Arc<Self>) {}
}

/// Devices with the names m0, m1, ... in their order, as an array is opened from them.
pub fn named<D>(devices: impl IntoIterator<Item = D>) -> Vec<(String, D)> {
    let numbered = devices.into_iter().enumerate();
    numbered
        .map(|(index, device)| (format!("m{index}"), device))
        .collect()
}

/// Polls until ready; gives up after a million polls.
pub fn run<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Nothing));
    let mut future = pin!(future);
    for _ in 0..1_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
    }
    panic!("the future waits for something that does not come");
}
