//! Clients that write, read, flush, zero and trim at once and where others do, until the crash.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::book::{Book, Kind, SECTOR_BYTES};
use super::client::{Client, Failure};
use super::dice::Dice;

/// Clients, hence requests in flight.
pub const WORKERS: u64 = 6;

/// Longest request of the load.
const SECTORS_MAX: u64 = 128;

/// Where half of the requests go, so that they meet.
const HOT_SECTORS: u64 = 512;

/// Sectors of one request when everything is read.
const SWEEP_SECTORS: usize = 512;

/// What the clients of one volume have in common.
pub struct Load<'a> {
    /// What the sectors may hold.
    pub book: &'a Mutex<Book>,
    /// Errors are expected from now on.
    pub is_over: AtomicBool,
    /// Requests answered.
    pub answered: AtomicU64,
    /// No crash ends them.
    is_calm: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

/// The book, also after a panic of another thread: the run fails then anyway.
pub fn open<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> Load<'a> {
    /// Nothing was sent yet.
    pub fn new(book: &'a Mutex<Book>) -> Self {
        Self {
            book,
            is_over: AtomicBool::new(false),
            answered: AtomicU64::new(0),
            is_calm: AtomicBool::new(false),
            wrong: Mutex::default(),
        }
    }

    /// Runs all clients; `crash` is called in their midst, when `requests` were answered, and must end the service.
    pub fn run_until(
        &self,
        socket: &Path,
        seed: u64,
        requests: u64,
        crash: impl FnOnce(),
    ) -> Result<u64, String> {
        std::thread::scope(|scope| {
            let (reached, wait) = mpsc::channel();
            for worker in 0..WORKERS {
                let reached = reached.clone();
                scope.spawn(move || {
                    let mut dice = Dice::new(seed, worker);
                    if let Err(text) = self.work(socket, &mut dice, requests, &reached) {
                        open(&self.wrong).push(text);
                    }
                });
            }
            drop(reached);
            // An error is: all workers have ended before, and have said why.
            let _ = wait.recv();
            self.is_over.store(true, Ordering::SeqCst);
            crash();
        });
        match open(&self.wrong).first() {
            Some(text) => Err(text.clone()),
            None => Ok(self.answered.load(Ordering::SeqCst)),
        }
    }

    /// Runs all clients until `requests` were answered, and some more.
    pub fn run(&self, socket: &Path, seed: u64, requests: u64) -> Result<u64, String> {
        self.is_calm.store(true, Ordering::SeqCst);
        self.run_until(socket, seed, requests, || ())
    }

    fn work(
        &self,
        socket: &Path,
        dice: &mut Dice,
        requests: u64,
        reached: &mpsc::Sender<()>,
    ) -> Result<(), String> {
        let mut client = match Client::open(socket, "nas") {
            Ok(client) => client,
            // The others were so quick that the end came before this one was there.
            Err(_) if self.is_over.load(Ordering::SeqCst) => return Ok(()),
            Err(error) => return Err(format!("connecting: {error}")),
        };
        loop {
            match self.request(&mut client, dice) {
                Ok(()) => {}
                Err(Trouble::Wrong(text)) => return Err(text),
                Err(Trouble::Failed(_)) if self.is_over.load(Ordering::SeqCst) => return Ok(()),
                Err(Trouble::Failed(failure)) => return Err(format!("a request: {failure:?}")),
            }
            if self.answered.fetch_add(1, Ordering::SeqCst) + 1 == requests {
                let _ = reached.send(());
            }
            if self.is_calm.load(Ordering::SeqCst) && self.is_over.load(Ordering::SeqCst) {
                return Ok(());
            }
        }
    }

    fn request(&self, client: &mut Client, dice: &mut Dice) -> Result<(), Trouble> {
        let all = open(self.book).len() as u64;
        let area = if dice.once_in(2) { HOT_SECTORS } else { all };
        let most = [8, 32, SECTORS_MAX][dice.below(3) as usize];
        let count = 1 + dice.below(most);
        let first = dice.below(area.min(all) - count + 1) as usize;
        let (count, offset) = (count as usize, (first * SECTOR_BYTES) as u64);
        match dice.below(20) {
            0..4 => {
                let reading = open(self.book).send_read(first, count);
                let mut data = vec![0; count * SECTOR_BYTES];
                client.read(offset, &mut data)?;
                let judged = open(self.book).read_answered(reading, &data);
                judged.map_err(|wrong| Trouble::Wrong(format!("under load {wrong}")))
            }
            4 => {
                let sent = open(self.book).send_flush();
                client.flush()?;
                open(self.book).flush_answered(sent);
                Ok(())
            }
            kind @ (5 | 6) => {
                let kind = if kind == 5 { Kind::Zero } else { Kind::Trim };
                let writing = open(self.book).send_write(first, count, kind);
                let length = count * SECTOR_BYTES;
                if kind == Kind::Zero {
                    client.zero(offset, length)?;
                } else {
                    client.trim(offset, length)?;
                }
                open(self.book).write_answered(&writing, false);
                Ok(())
            }
            fua => {
                let is_fua = fua == 7;
                let (writing, data) = {
                    let mut book = open(self.book);
                    let writing = book.send_write(first, count, Kind::Data);
                    let data = book.content(&writing);
                    (writing, data)
                };
                client.write(offset, &data, is_fua)?;
                open(self.book).write_answered(&writing, is_fua);
                Ok(())
            }
        }
    }
}

enum Trouble {
    Wrong(String),
    Failed(Failure),
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Trouble::Failed(failure)
    }
}

/// Reads everything after a crash and binds it. The answer is how many bytes could not be read, which is an error
/// unless `may_fail`.
pub fn sweep(socket: &Path, book: &Mutex<Book>, may_fail: bool) -> Result<u64, String> {
    let mut client = Client::open(socket, "nas").map_err(|error| format!("connecting: {error}"))?;
    let mut book = open(book);
    let mut unread = 0;
    for first in (0..book.len()).step_by(SWEEP_SECTORS) {
        let count = SWEEP_SECTORS.min(book.len() - first);
        unread += read_and_bind(&mut client, &mut book, first, count, may_fail)?;
    }
    Ok(unread)
}

/// Halves a range that cannot be read, down to single sectors.
fn read_and_bind(
    client: &mut Client,
    book: &mut Book,
    first: usize,
    count: usize,
    may_fail: bool,
) -> Result<u64, String> {
    let mut data = vec![0; count * SECTOR_BYTES];
    match client.read((first * SECTOR_BYTES) as u64, &mut data) {
        Ok(()) => {
            book.bind(first, &data)
                .map_err(|wrong| format!("after a crash {wrong}"))?;
            Ok(0)
        }
        Err(Failure::Errno(_)) if may_fail && count > 8 => {
            let half = count / 2;
            Ok(read_and_bind(client, book, first, half, true)?
                + read_and_bind(client, book, first + half, count - half, true)?)
        }
        Err(Failure::Errno(_)) if may_fail => Ok((count * SECTOR_BYTES) as u64),
        Err(failure) => Err(format!("reading sector {first}: {failure:?}")),
    }
}

/// Writes everything anew in pieces of `piece_bytes`, durably.
pub fn overwrite(socket: &Path, book: &Mutex<Book>, piece_bytes: usize) -> Result<(), String> {
    let mut client = Client::open(socket, "nas").map_err(|error| format!("connecting: {error}"))?;
    let mut book = open(book);
    let step = piece_bytes / SECTOR_BYTES;
    for first in (0..book.len()).step_by(step) {
        let count = step.min(book.len() - first);
        let writing = book.send_write(first, count, Kind::Data);
        let data = book.content(&writing);
        client
            .write((first * SECTOR_BYTES) as u64, &data, false)
            .map_err(|failure| format!("writing anew at sector {first}: {failure:?}"))?;
        book.write_answered(&writing, false);
    }
    let sent = book.send_flush();
    client
        .flush()
        .map_err(|failure| format!("flush: {failure:?}"))?;
    book.flush_answered(sent);
    Ok(())
}
