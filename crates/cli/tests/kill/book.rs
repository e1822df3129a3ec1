//! What each sector may hold: the contract of a block device as a judge.
//!
//! Invariants:
//! - a sector tells who wrote it (run, address, number) and that it is whole: its words come from a mixing function, so
//!   neither an old nor a foreign sector nor the XOR of several passes;
//! - write A is out of the question only when a later write B was sent after A's answer and, for a reader, B was
//!   answered before the read was sent; after a crash, B was durable (or only answered, where the answer must survive);
//! - what was read after a crash is from then on the only right content.

use super::dice::mix;

/// The atom of the contract.
pub const SECTOR_BYTES: usize = 512;

const NEVER: u64 = u64::MAX;

/// Number of the content "zeroes".
const ZEROES: u64 = 0;

/// What a crash may take away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// Answered writes stay: only the program ended.
    Answered,
    /// Writes stay that were answered with FUA, or before a flush was sent that was answered.
    Durable,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    /// Number of the write, or `ZEROES`.
    number: u64,
    sent: u64,
    answered: u64,
    is_fua: bool,
    /// A trim: the sector may as well keep what it has.
    is_hint: bool,
}

impl Record {
    fn base(number: u64) -> Self {
        Self {
            number,
            sent: 0,
            answered: 0,
            is_fua: true,
            is_hint: false,
        }
    }
}

/// A write on its way.
#[derive(Debug)]
pub struct Writing {
    first: usize,
    count: usize,
    sent: u64,
    number: u64,
}

/// A read on its way: for each sector the numbers that were possible when it was sent.
#[derive(Debug)]
pub struct Reading {
    first: usize,
    sent: u64,
    possible: Vec<Vec<u64>>,
}

/// What a request does to its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// New content.
    Data,
    /// Zeroes.
    Zero,
    /// Zeroes, or nothing.
    Trim,
}

/// A sector that holds what it must not.
#[derive(Debug)]
pub struct Wrong {
    sector: usize,
    found: Found,
    possible: Vec<u64>,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sector, possible) = (self.sector, &self.possible);
        match &self.found {
            Found::Write(number) => write!(f, "sector {sector} holds write {number}")?,
            Found::Elsewhere(at) => write!(f, "sector {sector} holds what sector {at} should")?,
            Found::Garbage => write!(f, "sector {sector} holds what nobody wrote")?,
        }
        write!(f, "; possible are {possible:?} (0: zeroes)")
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Found {
    Write(u64),
    Elsewhere(u64),
    Garbage,
}

/// The book of one volume.
#[derive(Debug)]
pub struct Book {
    seed: u64,
    now: u64,
    /// Writes answered before this are durable.
    flushed: u64,
    sectors: Vec<Vec<Record>>,
}

impl Book {
    /// A volume of zeroes.
    pub fn new(seed: u64, size_bytes: u64) -> Self {
        let count = size_bytes as usize / SECTOR_BYTES;
        Self {
            seed,
            now: 0,
            flushed: 0,
            sectors: vec![vec![Record::base(ZEROES)]; count],
        }
    }

    /// Sectors of the volume.
    pub fn len(&self) -> usize {
        self.sectors.len()
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// To be called before a write is sent.
    pub fn send_write(&mut self, first: usize, count: usize, kind: Kind) -> Writing {
        let sent = self.tick();
        let number = if kind == Kind::Data { sent } else { ZEROES };
        for sector in &mut self.sectors[first..first + count] {
            sector.push(Record {
                number,
                sent,
                answered: NEVER,
                is_fua: false,
                is_hint: kind == Kind::Trim,
            });
        }
        Writing {
            first,
            count,
            sent,
            number,
        }
    }

    /// To be called when a write was answered without an error.
    pub fn write_answered(&mut self, writing: &Writing, is_fua: bool) {
        let answered = self.tick();
        for sector in &mut self.sectors[writing.first..writing.first + writing.count] {
            let own = sector.iter_mut().rev().find(|r| r.sent == writing.sent);
            let own = own.expect("the record of a write stays until the next crash");
            (own.answered, own.is_fua) = (answered, is_fua);
        }
    }

    /// To be called before a flush is sent; the answer goes to `flush_answered`.
    pub fn send_flush(&mut self) -> u64 {
        self.tick()
    }

    /// To be called when a flush was answered without an error.
    pub fn flush_answered(&mut self, sent: u64) {
        self.flushed = self.flushed.max(sent);
    }

    /// To be called before a read is sent.
    pub fn send_read(&mut self, first: usize, count: usize) -> Reading {
        let sent = self.tick();
        let possible = self.sectors[first..first + count].iter();
        Reading {
            first,
            sent,
            possible: possible
                .map(|records| numbers(records, |by| by.answered < sent))
                .collect(),
        }
    }

    /// Judges what a read gave.
    pub fn read_answered(&self, reading: Reading, data: &[u8]) -> Result<(), Wrong> {
        let sectors = data.as_chunks::<SECTOR_BYTES>().0.iter();
        for ((at, bytes), mut possible) in sectors.enumerate().zip(reading.possible) {
            let sector = reading.first + at;
            let later = self.sectors[sector].iter();
            possible.extend(later.filter(|r| r.sent > reading.sent).map(|r| r.number));
            let found = self.identify(sector, bytes);
            if !matches!(&found, Found::Write(number) if possible.contains(number)) {
                return Err(Wrong {
                    sector,
                    found,
                    possible,
                });
            }
        }
        Ok(())
    }

    /// A crash: nothing is in flight any more, and each sector keeps what it may hold now.
    pub fn crash(&mut self, keeps: Keeps) {
        let flushed = self.flushed;
        let is_kept = |by: &Record| match keeps {
            Keeps::Answered => by.answered != NEVER,
            Keeps::Durable => by.answered < flushed || by.is_fua,
        };
        for records in &mut self.sectors {
            let possible = numbers(records, is_kept);
            *records = possible.into_iter().map(Record::base).collect();
        }
    }

    /// After a crash, with nothing in flight: judges what is there, and binds it.
    pub fn bind(&mut self, first: usize, data: &[u8]) -> Result<(), Wrong> {
        for (at, bytes) in data.as_chunks::<SECTOR_BYTES>().0.iter().enumerate() {
            let sector = first + at;
            let found = self.identify(sector, bytes);
            let possible: Vec<u64> = self.sectors[sector].iter().map(|r| r.number).collect();
            match found {
                Found::Write(number) if possible.contains(&number) => {
                    self.sectors[sector] = vec![Record::base(number)];
                }
                found => {
                    return Err(Wrong {
                        sector,
                        found,
                        possible,
                    });
                }
            }
        }
        Ok(())
    }

    /// The bytes that a write puts on its sectors.
    pub fn content(&self, writing: &Writing) -> Vec<u8> {
        let sectors = writing.first..writing.first + writing.count;
        let all = sectors.map(|sector| sector_bytes(self.seed, sector as u64, writing.number));
        all.collect::<Vec<_>>().concat()
    }

    fn identify(&self, sector: usize, bytes: &[u8; SECTOR_BYTES]) -> Found {
        if bytes.iter().all(|&byte| byte == 0) {
            return Found::Write(ZEROES);
        }
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let (at, number) = (word(0), word(8));
        match sector_bytes(self.seed, at, number) == *bytes {
            false => Found::Garbage,
            true if at == sector as u64 => Found::Write(number),
            true => Found::Elsewhere(at),
        }
    }
}

/// Numbers of the records that no record with `is_binding` has replaced for good.
fn numbers(records: &[Record], is_binding: impl Fn(&Record) -> bool) -> Vec<u64> {
    // A record is replaced when a binding one was sent after its answer: the latest binding one is the strictest.
    let binding = records.iter().filter(|by| !by.is_hint && is_binding(by));
    let latest = binding.map(|by| by.sent).max().unwrap_or(0);
    let left = records.iter().filter(|record| record.answered >= latest);
    left.map(|record| record.number).collect()
}

/// Address and number in the open, then words that depend on both and on the seed.
fn sector_bytes(seed: u64, sector: u64, number: u64) -> [u8; SECTOR_BYTES] {
    let mut bytes = [0; SECTOR_BYTES];
    let key = mix(seed ^ mix(sector ^ mix(number)));
    for (at, word) in bytes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        *word = match at {
            0 => sector.to_le_bytes(),
            1 => number.to_le_bytes(),
            _ => mix(key.wrapping_add(at as u64)).to_le_bytes(),
        };
    }
    bytes
}
