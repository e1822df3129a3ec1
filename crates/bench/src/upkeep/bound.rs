//! What one core allows: the members' files read, their parity computed, and compared or the lost member written; no
//! locks, no metadata, nobody served.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Array, Keeper, Made, Work, write_noise};
use crate::BenchError;

/// Bytes of each member at a time: what fits the cache with its neighbours.
const COLUMN_BYTES: usize = 128 << 10;

struct Loop {
    array: Array,
    members: Vec<File>,
    columns: Vec<Vec<u8>>,
}

pub(super) fn make(folder: &Path, array: Array) -> Made {
    let told = |error: std::io::Error| BenchError(format!("{}: {error}", folder.display()));
    let mut members = Vec::new();
    for index in 0..array.data_members + array.parities {
        let path = folder.join(format!("m{index}"));
        write_noise(&path, array.share_bytes())?;
        members.push(
            OpenOptions::new()
                .read(true)
                .write(true)
                .open(path)
                .map_err(told)?,
        );
    }
    let columns = vec![vec![0; COLUMN_BYTES]; members.len()];
    Ok(Box::new(Loop {
        array,
        members,
        columns,
    }))
}

impl Loop {
    /// One column over all members.
    fn step(
        &mut self,
        work: Work,
        offset_bytes: u64,
        parities: &mut [Vec<u8>; 2],
    ) -> std::io::Result<()> {
        let first = usize::from(work == Work::Rebuild); // the first member is the lost one
        for (member, column) in self.members.iter().zip(&mut self.columns).skip(first) {
            member.read_exact_at(column, offset_bytes)?;
        }
        let read: Vec<&[u8]> = self.columns[first..].iter().map(Vec::as_slice).collect();
        let data = &read[..self.array.data_members.min(read.len())];
        let exponents: Vec<u8> = (0u8..).take(data.len()).collect();
        let [p, q] = parities;
        if self.array.level == "1" && work == Work::Scrub {
            std::hint::black_box(self.columns[0] == self.columns[1]);
            return Ok(());
        }
        if self.array.parities == 2 && work == Work::Scrub {
            plexum_parity::gen_pq(data, &exponents, p, q);
            std::hint::black_box(q == &self.columns[self.array.data_members + 1]);
        } else {
            plexum_parity::gen_p(data, p);
        }
        if work == Work::Rebuild {
            self.members[0].write_all_at(p, offset_bytes)?;
        } else {
            std::hint::black_box(p == &self.columns[self.array.data_members]);
        }
        Ok(())
    }
}

impl Keeper for Loop {
    fn work(&mut self, work: Work) -> Result<Duration, BenchError> {
        let started = Instant::now();
        let mut parities = [vec![0; COLUMN_BYTES], vec![0; COLUMN_BYTES]];
        for offset in (0..self.array.share_bytes()).step_by(COLUMN_BYTES) {
            self.step(work, offset, &mut parities)
                .map_err(|error| BenchError(format!("the plain loop: {error}")))?;
        }
        Ok(started.elapsed())
    }
}
