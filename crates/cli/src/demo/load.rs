//! The demo's load: clients that write and read through a real NBD connection and know what every block must hold.
//!
//! Invariants:
//! - each worker has a part of the volume for itself, so what a block must hold is known at every moment;
//! - a write whose answer never came may have happened or not: the first read afterwards decides, and binds.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_block::device::Fua;
use plexum_daemon::problem::{Code, Problem};
use plexum_nbd::client::{Client, ConnectOptions, connect};
use plexum_runtime::Handle;
use plexum_runtime::socket::{Socket, connect_unix};

/// Unit of the load in bytes.
pub const BLOCK_BYTES: usize = 4096;
/// Workers, hence requests in flight.
pub const WORKERS: usize = 8;
/// Most blocks of one request of the mixed load.
const RUN_BLOCKS_MAX: u64 = 16;
/// Blocks of one request when everything is written or read.
const SWEEP_BLOCKS: usize = 256;
/// Wrong blocks that are described; more are only counted.
const WRONG_MAX: usize = 5;

/// A small generator with a seed: the demo's choices can be repeated.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// A generator of its own for each purpose.
    #[must_use]
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self {
            state: mix(seed ^ mix(purpose)),
        }
    }

    /// A number below `limit`, which is not 0.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state) % limit
    }
}

/// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// What every block must hold, and what went wrong.
pub struct Book {
    seed: u64,
    /// Version of each block.
    versions: RefCell<Vec<u32>>,
    /// Newer version of a block whose write was never answered; 0: none.
    unsure: RefCell<Vec<u32>>,
    /// Whether the mixed load shall end.
    pub is_ending: Cell<bool>,
    /// Whether a lost connection is part of the plan.
    pub expects_kill: Cell<bool>,
    /// Bytes written and read so far.
    pub moved_bytes: Cell<u64>,
    /// Requests answered so far.
    pub requests: Cell<u64>,
    /// Blocks read and compared so far.
    pub compared_blocks: Cell<u64>,
    wrong_count: Cell<u64>,
    wrong: RefCell<Vec<String>>,
}

impl Book {
    /// A volume of `size_bytes` where nothing was written yet.
    #[must_use]
    pub fn new(seed: u64, size_bytes: u64) -> Self {
        let blocks = usize::try_from(size_bytes).unwrap_or(0) / BLOCK_BYTES;
        Self {
            seed,
            versions: RefCell::new(vec![0; blocks]),
            unsure: RefCell::new(vec![0; blocks]),
            is_ending: Cell::new(false),
            expects_kill: Cell::new(false),
            moved_bytes: Cell::new(0),
            requests: Cell::new(0),
            compared_blocks: Cell::new(0),
            wrong_count: Cell::new(0),
            wrong: RefCell::default(),
        }
    }

    /// What went wrong so far: how many blocks and requests, and the first of them in words.
    #[must_use]
    pub fn wrong(&self) -> (u64, Vec<String>) {
        (self.wrong_count.get(), self.wrong.borrow().clone())
    }

    fn note_wrong(&self, text: impl FnOnce() -> String) {
        self.wrong_count.set(self.wrong_count.get() + 1);
        let mut wrong = self.wrong.borrow_mut();
        if wrong.len() < WRONG_MAX {
            wrong.push(text());
        }
    }

    fn blocks(&self) -> usize {
        self.versions.borrow().len()
    }

    /// The part of the volume that belongs to a worker.
    fn part(&self, worker: usize) -> std::ops::Range<usize> {
        let blocks = self.blocks();
        blocks * worker / WORKERS..blocks * (worker + 1) / WORKERS
    }

    /// Content of a block: each word depends on seed, block, version and place, so that a foreign or old block is seen.
    fn content(&self, block: usize, version: u32, out: &mut [u8]) {
        if version == 0 {
            out.fill(0);
            return;
        }
        let key = mix(self.seed ^ mix((block as u64) << 32 | u64::from(version)));
        for (at, word) in out.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(key.wrapping_add(at as u64)).to_le_bytes());
        }
    }

    fn compare(&self, first: usize, data: &[u8]) {
        let mut expected = [0; BLOCK_BYTES];
        for (at, found) in data.chunks_exact(BLOCK_BYTES).enumerate() {
            let block = first + at;
            let (version, unsure) = (self.versions.borrow()[block], self.unsure.borrow()[block]);
            self.content(block, version, &mut expected);
            if expected != *found && unsure != 0 {
                self.content(block, unsure, &mut expected);
                self.versions.borrow_mut()[block] = unsure;
            }
            self.unsure.borrow_mut()[block] = 0;
            if expected != *found {
                self.note_wrong(|| {
                    format!(
                        "block {block} (byte {}) does not hold what was written",
                        block * BLOCK_BYTES
                    )
                });
            }
        }
        let count = (data.len() / BLOCK_BYTES) as u64;
        self.compared_blocks.set(self.compared_blocks.get() + count);
    }

    fn count(&self, length_bytes: usize) {
        self.requests.set(self.requests.get() + 1);
        self.moved_bytes
            .set(self.moved_bytes.get() + length_bytes as u64);
    }
}

/// One NBD connection.
pub struct Connection {
    client: Client<Socket>,
    pool: BufPool,
    /// Size of the export.
    pub size_bytes: u64,
}

impl Connection {
    /// Connects to the export `name` on a Unix socket.
    ///
    /// # Errors
    /// `NoServer` when nobody answers there.
    pub async fn open(
        handle: &Handle,
        socket: &std::path::Path,
        name: &str,
    ) -> Result<Self, Problem> {
        let tell =
            |text: String| Problem::new(Code::NoServer, format!("connecting to {name}: {text}"));
        let stream = connect_unix(handle, socket)
            .await
            .map_err(|error| tell(error.to_string()))?;
        let pool = BufPool::new(16 << 20);
        let (client, driver) = connect(stream, pool.clone(), &ConnectOptions::new(name))
            .await
            .map_err(|error| tell(error.to_string()))?;
        let size_bytes = client.remote().size_bytes;
        let _driver = handle.spawn(async move { driver.run().await });
        Ok(Self {
            client,
            pool,
            size_bytes,
        })
    }

    /// Makes everything answered so far durable.
    ///
    /// # Errors
    /// `IoError` when the server says so or is gone.
    pub async fn flush(&self) -> Result<(), Problem> {
        let result = self.client.flush().await;
        result.map_err(|error| Problem::new(Code::IoError, format!("flush: {error}")))
    }

    /// Ends the connection.
    pub fn close(&self) {
        self.client.disconnect();
    }

    /// Writes a new version of a run of blocks. `false`: the connection is gone.
    async fn write(&self, book: &Book, first: usize, count: usize) -> bool {
        let mut buf = self.pool.take(count * BLOCK_BYTES);
        let mut next = Vec::new();
        for (at, out) in buf.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let version =
                book.versions.borrow()[first + at].max(book.unsure.borrow()[first + at]) + 1;
            book.content(first + at, version, out);
            next.push(version);
        }
        book.unsure.borrow_mut()[first..first + count].copy_from_slice(&next);
        let offset = (first * BLOCK_BYTES) as u64;
        match self.client.write(offset, buf.freeze(), Fua::No).await {
            Ok(()) => {
                book.versions.borrow_mut()[first..first + count].copy_from_slice(&next);
                book.unsure.borrow_mut()[first..first + count].fill(0);
                book.count(count * BLOCK_BYTES);
                true
            }
            Err(error) => {
                if !book.expects_kill.get() {
                    book.note_wrong(|| format!("a write at byte {offset} failed: {error}"));
                }
                !self.client.is_gone()
            }
        }
    }

    /// Reads a run of blocks and compares it. `false`: the connection is gone.
    async fn read(&self, book: &Book, first: usize, count: usize) -> bool {
        let offset = (first * BLOCK_BYTES) as u64;
        let buf = self.pool.take(count * BLOCK_BYTES);
        match self.client.read(offset, buf).await {
            Ok(buf) => {
                book.compare(first, &buf);
                book.count(count * BLOCK_BYTES);
                true
            }
            Err(error) => {
                if !book.expects_kill.get() {
                    book.note_wrong(|| format!("a read at byte {offset} failed: {error}"));
                }
                !self.client.is_gone()
            }
        }
    }
}

/// What workers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Write every block once.
    Fill,
    /// Read and compare every block once.
    Verify,
    /// Write and read at random until `Book::is_ending`.
    Mixed,
}

/// Tasks of the workers; await them all.
pub type Workers = Vec<plexum_runtime::JoinHandle<()>>;

/// Starts the workers.
#[must_use]
pub fn start(
    handle: &Handle,
    connection: &Rc<Connection>,
    book: &Rc<Book>,
    work: Work,
    turn: u64,
) -> Workers {
    book.is_ending.set(false);
    let start_one = |worker: usize| {
        let (connection, book) = (Rc::clone(connection), Rc::clone(book));
        handle.spawn(async move {
            match work {
                Work::Mixed => mixed(&connection, &book, worker, turn).await,
                sweep => every_block(&connection, &book, worker, sweep).await,
            }
        })
    };
    (0..WORKERS).map(start_one).collect()
}

/// Waits until all workers have ended.
///
/// # Errors
/// `Bug` when one of them panicked.
pub async fn join(workers: Workers) -> Result<(), Problem> {
    for worker in workers {
        worker
            .await
            .map_err(|_| Problem::new(Code::Bug, "a worker of the load ended by a bug"))?;
    }
    Ok(())
}

async fn every_block(connection: &Connection, book: &Book, worker: usize, work: Work) {
    let part = book.part(worker);
    let mut at = part.start;
    while at < part.end {
        let count = SWEEP_BLOCKS.min(part.end - at);
        let goes_on = match work {
            Work::Fill => connection.write(book, at, count).await,
            _ => connection.read(book, at, count).await,
        };
        if !goes_on {
            return;
        }
        at += count;
    }
}

async fn mixed(connection: &Connection, book: &Book, worker: usize, turn: u64) {
    let part = book.part(worker);
    let mut dice = Dice::new(book.seed, turn << 8 | worker as u64);
    while !book.is_ending.get() && !part.is_empty() {
        let count = 1 + dice.below(RUN_BLOCKS_MAX.min(part.len() as u64)) as usize;
        let first = part.start + dice.below((part.len() - count + 1) as u64) as usize;
        let goes_on = if dice.below(2) == 0 {
            connection.write(book, first, count).await
        } else {
            connection.read(book, first, count).await
        };
        if !goes_on {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(book: &Book, number: usize, version: u32) -> Vec<u8> {
        let mut out = vec![0; BLOCK_BYTES];
        book.content(number, version, &mut out);
        out
    }

    #[test]
    fn an_old_a_foreign_and_a_changed_block_are_seen() {
        let book = Book::new(7, 64 << 12);
        book.versions.borrow_mut()[3] = 2;
        book.compare(3, &block(&book, 3, 2));
        assert_eq!(book.wrong().0, 0);
        book.compare(3, &block(&book, 3, 1));
        book.compare(3, &block(&book, 4, 2));
        let mut flipped = block(&book, 3, 2);
        flipped[4095] ^= 1;
        book.compare(3, &flipped);
        assert_eq!(book.wrong().0, 3);
    }

    #[test]
    fn an_unanswered_write_may_be_there_or_not_but_what_was_read_binds() {
        let book = Book::new(7, 64 << 12);
        book.versions.borrow_mut()[5] = 1;
        book.unsure.borrow_mut()[5] = 2;
        book.compare(5, &block(&book, 5, 2));
        assert_eq!(book.wrong().0, 0);
        book.compare(5, &block(&book, 5, 1));
        assert_eq!(book.wrong().0, 1);
    }

    #[test]
    fn the_parts_of_the_workers_cover_the_volume_without_overlap() {
        let book = Book::new(1, 1001 << 12);
        let mut next = 0;
        for worker in 0..WORKERS {
            let part = book.part(worker);
            assert_eq!(part.start, next);
            next = part.end;
        }
        assert_eq!(next, 1001);
    }
}
