//! bonnie: putc write, rewrite, block write, getc read, block read, seeks, on one file.
//!
//! Invariants:
//! - no phase of bonnie syncs: the clock stops at close; those of bonnie++ do;
//! - rewrite reads each piece and writes it back where it was;
//! - seeks: so many tickets shared by three processes; each reads one piece anywhere, its 1st, 11th, 21st ... is
//!   written back.
//!
//! Source: lab.md section 5. K = 1024 bytes. Pieces are of 8192 bytes, in other copies of the program of 16384.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plexum_disks::rng::Rng;
use plexum_exec::Spawner;

use crate::error::LabError;
use crate::host::HostFile;
use crate::workload::{IoRequest, Operation, Process, Stream};

/// Processes of the seek phase.
const SEEKERS: u64 = 3;
/// The same of bonnie++ 2.00a, and its number of seeks.
const PLUS_SEEKERS: u64 = 5;
const PLUS_SEEKS: u64 = 8192;
/// Tickets are random numbers below this; the piece is the rest of a division.
const TICKETS: u64 = 1 << 31;
/// CPU time of one putc or getc, in microseconds: what the C library of the time took.
const CHARACTER_US: f64 = 0.3;

/// Options.
#[derive(Clone, Copy, Debug)]
pub struct Bonnie {
    /// Bytes read or written at once.
    pub piece_bytes: u64,
    /// Seeks, all processes together.
    pub seek_count: u64,
    /// Whether the phases with one character at a time run too.
    pub has_characters: bool,
    /// bonnie++ instead: block write before rewrite, five seekers, written back when the ticket is divisible by 10.
    pub is_plus: bool,
    /// Seed of the seeks.
    pub seed: u64,
}

impl Bonnie {
    /// The data phases of bonnie++ 2.00a; its phases with many files, which need a file system, are in
    /// `place/files.rs`.
    #[must_use]
    pub fn plus() -> Self {
        Self {
            seek_count: PLUS_SEEKS,
            is_plus: true,
            ..Self::default()
        }
    }
}

impl Default for Bonnie {
    fn default() -> Self {
        Self {
            piece_bytes: 8192,
            seek_count: 4000,
            has_characters: true,
            is_plus: false,
            seed: 1,
        }
    }
}

/// The figures of one line. `None` where a phase was left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct BonnieFigures {
    /// File size in units of 2^20 bytes.
    pub file_mib: u64,
    /// Writing characters.
    pub putc_kib_per_s: Option<f64>,
    /// Writing pieces.
    pub block_write_kib_per_s: f64,
    /// Reading and writing back.
    pub rewrite_kib_per_s: f64,
    /// Reading characters.
    pub getc_kib_per_s: Option<f64>,
    /// Reading pieces.
    pub block_read_kib_per_s: f64,
    /// Seeks a second.
    pub seeks_per_s: f64,
}

impl Bonnie {
    /// Runs all phases on the file.
    ///
    /// # Errors
    /// `Usage` for a file that is not a whole number of pieces; a request that failed.
    pub async fn run(&self, spawner: &Spawner, file: &HostFile) -> Result<BonnieFigures, LabError> {
        let size = file.size_bytes();
        if self.piece_bytes == 0
            || size < self.piece_bytes
            || !size.is_multiple_of(self.piece_bytes)
        {
            return Err(not_whole(size, self.piece_bytes));
        }
        let mut figures = BonnieFigures {
            file_mib: size >> 20,
            ..BonnieFigures::default()
        };
        if self.has_characters {
            figures.putc_kib_per_s = Some(self.pass(file, true, CHARACTER_US).await?);
        } else {
            self.pass(file, true, 0.0).await?;
        }
        if self.is_plus {
            figures.block_write_kib_per_s = self.pass(file, true, 0.0).await?;
            figures.rewrite_kib_per_s = self.rewrite(file).await?;
        } else {
            figures.rewrite_kib_per_s = self.rewrite(file).await?;
            figures.block_write_kib_per_s = self.pass(file, true, 0.0).await?;
        }
        if self.has_characters {
            figures.getc_kib_per_s = Some(self.pass(file, false, CHARACTER_US).await?);
        }
        figures.block_read_kib_per_s = self.pass(file, false, 0.0).await?;
        figures.seeks_per_s = self.seeks(spawner, file).await?;
        Ok(figures)
    }

    /// One pass over the file; K/s.
    async fn pass(&self, file: &HostFile, is_write: bool, us: f64) -> Result<f64, LabError> {
        file.drop_cache();
        let started = file.now_ns();
        let mut at = 0;
        while at < file.size_bytes() {
            if is_write {
                file.write(at, self.piece_bytes).await?;
            } else {
                file.read(at, self.piece_bytes).await?;
            }
            file.compute(us * self.piece_bytes as f64).await;
            at += self.piece_bytes;
        }
        if is_write {
            self.end(file).await?;
        }
        Ok(rate(file, started))
    }

    async fn rewrite(&self, file: &HostFile) -> Result<f64, LabError> {
        file.drop_cache();
        let started = file.now_ns();
        let mut at = 0;
        while at < file.size_bytes() {
            file.read(at, self.piece_bytes).await?;
            file.write(at, self.piece_bytes).await?;
            at += self.piece_bytes;
        }
        self.end(file).await?;
        Ok(rate(file, started))
    }

    /// Ends a phase that wrote: bonnie++ waits until it is durable.
    async fn end(&self, file: &HostFile) -> Result<(), LabError> {
        if self.is_plus {
            file.sync().await
        } else {
            file.close().await
        }
    }

    async fn seeks(&self, spawner: &Spawner, file: &HostFile) -> Result<f64, LabError> {
        file.drop_cache();
        let started = file.now_ns();
        let tickets = Rc::new(Cell::new(self.seek_count));
        let base = Rng::new(self.seed);
        let mut seekers = Vec::new();
        let is_plus = self.is_plus;
        for process in 0..if is_plus { PLUS_SEEKERS } else { SEEKERS } {
            let (file, tickets, mut rng) = (file.clone(), Rc::clone(&tickets), base.fork(process));
            let piece = self.piece_bytes;
            seekers.push(spawner.spawn(async move {
                let pieces = file.size_bytes() / piece;
                let mut count = 0u64;
                while tickets.get() > 0 {
                    tickets.set(tickets.get() - 1);
                    let ticket = rng.below(TICKETS);
                    let at = ticket % pieces * piece;
                    file.read_random(at, piece).await?;
                    let deciding = if is_plus { ticket } else { count };
                    if deciding.is_multiple_of(10) {
                        file.write(at, piece).await?;
                    }
                    count += 1;
                }
                Ok::<(), LabError>(())
            }));
        }
        for seeker in seekers {
            seeker
                .await
                .map_err(|_| LabError::Bug("a seeker ended early".to_owned()))??;
        }
        let seconds = (file.now_ns() - started) as f64 / 1e9;
        file.close().await?;
        Ok(self.seek_count as f64 / seconds.max(1e-9))
    }
}

const FLUSH: IoRequest = IoRequest {
    operation: Operation::Flush,
    offset_bytes: 0,
    length_bytes: 0,
    think_ns: 0,
};

/// The phases with data as requests of processes, for a file without a host model: name and processes. The phases with
/// one character at a time are left out: they measure the C library.
///
/// # Errors
/// `Usage` for a file that is not a whole number of pieces.
pub fn requests(
    options: &Bonnie,
    file_bytes: u64,
) -> Result<Vec<(&'static str, Vec<Process>)>, LabError> {
    let piece = options.piece_bytes;
    if piece == 0 || file_bytes < piece || !file_bytes.is_multiple_of(piece) {
        return Err(not_whole(file_bytes, piece));
    }
    let at = move |number: u64| number * piece;
    let pieces = file_bytes / piece;
    // bonnie++ makes each phase durable before it closes the file; bonnie does not.
    let flushes = usize::from(options.is_plus);
    let phase = |name, requests: Stream| {
        let end = std::iter::repeat_n(FLUSH, flushes);
        (name, vec![Process::single(requests.chain(end))])
    };
    let writes = move || (0..pieces).map(move |number| IoRequest::write(at(number), piece));
    let reads = (0..pieces).map(move |number| IoRequest::read(at(number), piece));
    let both = (0..pieces).flat_map(move |number| {
        [
            IoRequest::read(at(number), piece),
            IoRequest::write(at(number), piece),
        ]
    });
    let write = phase("block write", Box::new(writes()));
    let rewrite = phase("rewrite", Box::new(both));
    let read = phase("block read", Box::new(reads));
    let seeks = ("seeks", seekers(options, pieces));
    Ok(if options.is_plus {
        vec![write, rewrite, read, seeks]
    } else {
        // What is rewritten must be there: the phase with characters wrote it.
        let laid_out = phase("", Box::new(writes()));
        vec![laid_out, rewrite, write, read, seeks]
    })
}

fn seekers(options: &Bonnie, pieces: u64) -> Vec<Process> {
    let (piece, is_plus) = (options.piece_bytes, options.is_plus);
    let tickets = Arc::new(AtomicU64::new(options.seek_count));
    let base = Rng::new(options.seed);
    let count = if is_plus { PLUS_SEEKERS } else { SEEKERS };
    let seeker = |process| {
        let (mut rng, tickets) = (base.fork(process), Arc::clone(&tickets));
        let (mut taken, mut owed, mut owes_flush) = (0u64, None, is_plus);
        Process::single(std::iter::from_fn(move || {
            if let Some(write) = owed.take() {
                return Some(write);
            }
            let take = |left: u64| left.checked_sub(1);
            let taking = tickets.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
            if taking.is_err() {
                return std::mem::take(&mut owes_flush).then_some(FLUSH);
            }
            let ticket = rng.below(TICKETS);
            let deciding = if is_plus { ticket } else { taken };
            taken += 1;
            let at = ticket % pieces * piece;
            owed = deciding
                .is_multiple_of(10)
                .then(|| IoRequest::write(at, piece));
            Some(IoRequest::read(at, piece))
        }))
    };
    (0..count).map(seeker).collect()
}

fn not_whole(file_bytes: u64, piece_bytes: u64) -> LabError {
    LabError::Usage(format!(
        "bonnie: a file of {file_bytes} bytes is not a whole number of pieces of {piece_bytes}"
    ))
}

fn rate(file: &HostFile, started_ns: u64) -> f64 {
    let seconds = ((file.now_ns() - started_ns) as f64 / 1e9).max(1e-9);
    file.size_bytes() as f64 / 1024.0 / seconds
}

/// The classic look.
#[must_use]
pub fn classic(rows: &[(String, BonnieFigures)]) -> String {
    let mut text = String::from(
        "              -------Sequential Output-------- ---Sequential Input-- --Random--\n\
         \x20             -Per Char- --Block--- -Rewrite-- -Per Char- --Block--- --Seeks---\n\
         Machine    MB K/sec      K/sec      K/sec      K/sec      K/sec      /sec\n",
    );
    for (name, figures) in rows {
        let optional = |value: Option<f64>| value.map_or("-".to_owned(), |v| format!("{v:.0}"));
        text += &format!(
            "{:<8} {:>4} {:>5} {:>10.0} {:>10.0} {:>10} {:>10.0} {:>9.1}\n",
            name,
            figures.file_mib,
            optional(figures.putc_kib_per_s),
            figures.block_write_kib_per_s,
            figures.rewrite_kib_per_s,
            optional(figures.getc_kib_per_s),
            figures.block_read_kib_per_s,
            figures.seeks_per_s
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 8192 * 50;

    fn phases(options: &Bonnie) -> Vec<(&'static str, Vec<Vec<IoRequest>>)> {
        let all = requests(options, SIZE).unwrap();
        let listed = |processes: Vec<Process>| {
            processes
                .into_iter()
                .map(|one| one.requests.collect())
                .collect()
        };
        all.into_iter()
            .map(|(name, processes)| (name, listed(processes)))
            .collect()
    }

    #[test]
    fn bonnie_rewrites_before_it_writes_and_bonnie_plus_after() {
        let names = |options: &Bonnie| -> Vec<&str> {
            let named = phases(options).into_iter().map(|(name, _)| name);
            named.filter(|name| !name.is_empty()).collect()
        };
        assert_eq!(
            names(&Bonnie::default()),
            ["rewrite", "block write", "block read", "seeks"]
        );
        assert_eq!(
            names(&Bonnie::plus()),
            ["block write", "rewrite", "block read", "seeks"]
        );
        let (_, rewrite) = &phases(&Bonnie::plus())[1];
        assert_eq!(rewrite[0].len(), 101, "a flush at the end");
        assert_eq!(
            rewrite[0][2..4],
            [IoRequest::read(8192, 8192), IoRequest::write(8192, 8192)]
        );
        assert!(requests(&Bonnie::default(), 8192 * 3 + 1).is_err());
    }

    #[test]
    fn seekers_share_their_tickets_and_write_back_what_the_program_does() {
        let options = Bonnie {
            seek_count: 400,
            ..Bonnie::default()
        };
        let (_, seekers) = phases(&options).remove(4);
        assert_eq!(seekers.len(), 3);
        let reads = seekers.iter().flatten();
        let reads = reads.filter(|one| one.operation == Operation::Read);
        assert_eq!(reads.count(), 400, "all processes together");
        // One process alone takes all tickets here: its 1st, 11th, 21st ... read is written back.
        assert_eq!(
            seekers[0][1],
            IoRequest::write(seekers[0][0].offset_bytes, 8192)
        );
        assert_eq!(seekers[0].len(), 440);
        assert_eq!(seekers[0][2].operation, Operation::Read);
        assert_eq!(
            seekers[0][12],
            IoRequest::write(seekers[0][11].offset_bytes, 8192)
        );
        let (_, plus) = phases(&Bonnie::plus()).remove(3);
        assert_eq!(plus.len(), 5);
        let backs: usize = plus.iter().map(|list| written_back(list)).sum();
        assert!((700..940).contains(&backs), "one ticket in ten: {backs}");
    }

    /// Writes, each of which must be of the piece read just before.
    fn written_back(list: &[IoRequest]) -> usize {
        let writes = list
            .windows(2)
            .filter(|pair| pair[1].operation == Operation::Write);
        writes
            .inspect(|pair| assert_eq!(pair[1], IoRequest::write(pair[0].offset_bytes, 8192)))
            .count()
    }
}
