//! A closed loop: so many workers, each with one request under way.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::clock::Clock;
use plexum_block::device::{Device, Fua, IoError};
use plexum_engine::volume::Volume;
use plexum_nbd::client::Client;
use plexum_nbd::transport::Transport;
use plexum_runtime::{Handle, yield_now};
use rustix::time::{ClockId, clock_gettime};

/// Figures of one measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub iops: f64,
    pub bytes_per_s: f64,
    pub cpu_us_per_io: f64,
}

/// What one row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Requests under way.
    pub depth: usize,
    /// Writes instead of reads.
    pub is_write: bool,
    /// Ascending instead of random offsets.
    pub is_sequential: bool,
}

/// The four patterns of every table.
pub(crate) const PATTERNS: [Pattern; 4] = [
    Pattern {
        request_bytes: 4096,
        depth: 32,
        is_write: false,
        is_sequential: false,
    },
    Pattern {
        request_bytes: 4096,
        depth: 32,
        is_write: true,
        is_sequential: false,
    },
    Pattern {
        request_bytes: 1 << 20,
        depth: 4,
        is_write: false,
        is_sequential: true,
    },
    Pattern {
        request_bytes: 1 << 20,
        depth: 4,
        is_write: true,
        is_sequential: true,
    },
];

/// What is written with each consistency: one small write at a time, many, and whole rows.
pub(crate) const WRITE_PATTERNS: [Pattern; 3] = [
    Pattern {
        request_bytes: 4096,
        depth: 1,
        is_write: true,
        is_sequential: false,
    },
    PATTERNS[1],
    PATTERNS[3],
];

/// What the load runs against.
pub(crate) trait Target {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError>;
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError>;
}

impl<D: Device, C: Clock> Target for Rc<Volume<D, C>> {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        Volume::read(self, offset_bytes, length_bytes)
            .await
            .map(drop)
    }
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        Volume::write(self, offset_bytes, data, Fua::No).await
    }
}

/// The same through an NBD connection.
pub(crate) struct Remote<T> {
    pub client: Rc<Client<T>>,
    pub pool: BufPool,
}

impl<T: Transport> Target for Rc<Remote<T>> {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        let buf = self.pool.take(length_bytes);
        self.client
            .read(offset_bytes, buf)
            .await
            .map(drop)
            .map_err(|_| IoError::Gone)
    }
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        self.client
            .write(offset_bytes, data, Fua::No)
            .await
            .map_err(|_| IoError::Gone)
    }
}

/// Runs `pattern` for `time` and counts.
pub(crate) async fn run<T: Target + Clone + 'static>(
    handle: &Handle,
    target: &T,
    size_bytes: u64,
    pattern: Pattern,
    time: Duration,
) -> Result<Figures, IoError> {
    run_where(
        handle,
        target,
        std::iter::once(0..size_bytes).collect(),
        pattern,
        time,
    )
    .await
}

/// Where requests begin: at multiples of their length in pieces of the target that are equally long.
struct Area {
    starts: Vec<u64>,
    /// Requests that fit in a piece.
    per_piece: u64,
    request_bytes: u64,
}

impl Area {
    /// Pieces that are shorter than the first are left out.
    fn new(pieces: &[Range<u64>], request_bytes: usize) -> Self {
        let length = |piece: &Range<u64>| piece.end - piece.start;
        let piece_bytes = pieces.first().map_or(0, length);
        let whole = pieces.iter().filter(|piece| length(piece) >= piece_bytes);
        let request_bytes = request_bytes as u64;
        Self {
            starts: whole.map(|piece| piece.start).collect(),
            per_piece: piece_bytes / request_bytes,
            request_bytes,
        }
    }

    fn in_order(&self, number: u64) -> u64 {
        let number = number % (self.starts.len() as u64 * self.per_piece);
        let start = self.starts[(number / self.per_piece) as usize]; // below their number
        start + number % self.per_piece * self.request_bytes
    }

    /// The upper half of a product is a draw below the other factor; its lower half is the next one's number.
    fn at_random(&self, random: u64) -> u64 {
        let below = |random: u64, limit: u64| {
            let product = u128::from(random) * u128::from(limit);
            ((product >> 64) as u64, product as u64)
        };
        let (piece, rest) = below(random, self.starts.len() as u64);
        let (slot, _) = below(rest, self.per_piece);
        self.starts[piece as usize] + slot * self.request_bytes
    }
}

/// The same, only in these pieces of the target.
pub(crate) async fn run_where<T: Target + Clone + 'static>(
    handle: &Handle,
    target: &T,
    pieces: Vec<Range<u64>>,
    pattern: Pattern,
    time: Duration,
) -> Result<Figures, IoError> {
    let clock = handle.clock();
    let pool = BufPool::new(64 << 20);
    let data = pool.take_zeroed(pattern.request_bytes).freeze();
    let area = Rc::new(Area::new(&pieces, pattern.request_bytes));
    let (next, done) = (Rc::new(Cell::new(0u64)), Rc::new(Cell::new(0u64)));
    let cpu_before = cpu_time();
    let started = clock.now();
    let is_over = in_time(handle, time);
    let workers: Vec<_> = (0..pattern.depth)
        .map(|worker| {
            let (target, data, is_over) = (target.clone(), data.clone(), Rc::clone(&is_over));
            let (next, done) = (Rc::clone(&next), Rc::clone(&done));
            let area = Rc::clone(&area);
            handle.spawn(async move {
                let mut random = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(worker as u64 + 1);
                while !is_over.get() {
                    let offset = if pattern.is_sequential {
                        area.in_order(next.replace(next.get() + 1))
                    } else {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        area.at_random(random)
                    };
                    if pattern.is_write {
                        target.write(offset, data.clone()).await?;
                    } else {
                        target.read(offset, pattern.request_bytes).await?;
                    }
                    done.set(done.get() + 1);
                    // Members in memory never wait: without this one worker would run alone.
                    yield_now().await;
                }
                Ok::<(), IoError>(())
            })
        })
        .collect();
    for worker in workers {
        worker.await.map_err(|_| IoError::Gone)??;
    }
    let seconds = clock.now().since(started).as_secs_f64();
    let cpu_seconds = (cpu_time() - cpu_before).as_secs_f64();
    let ios = done.get().max(1) as f64;
    Ok(Figures {
        iops: ios / seconds,
        bytes_per_s: ios * pattern.request_bytes as f64 / seconds,
        cpu_us_per_io: cpu_seconds * 1e6 / ios,
    })
}

/// Becomes true after `time`. The load reads no clock of its own: a target that reads it for each request would spare
/// the load a reading, and seem cheaper beside one that does not.
fn in_time(handle: &Handle, time: Duration) -> Rc<Cell<bool>> {
    let is_over = Rc::new(Cell::new(false));
    let (clock, flag) = (handle.clock(), Rc::clone(&is_over));
    let _detached = handle.spawn(async move {
        clock.sleep(time).await;
        flag.set(true);
    });
    is_over
}

/// CPU time of the whole process, system time included.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
