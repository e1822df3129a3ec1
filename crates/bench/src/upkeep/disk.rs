//! Arrays whose members are files on a real file system, opened past its page cache, beside what the same files give by
//! themselves: all members at once, in requests of 1 MiB, since they may share one disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::direct::{each_request, fill};
use super::{Array, Keeper, Made, Work, probes};
use crate::compare::{Role, Samples, take_turns};
use crate::folder::TemporaryFolder;
use crate::{BenchError, BenchOptions, Progress};

/// User data of each array: so much that the beginning and the end of a job weigh little.
const DATA_BYTES: u64 = 2 << 30;

const SCRUBBED: Array = Array {
    metric: "mirror of 2, O_DIRECT on disk",
    level: "1",
    data_members: 1,
    parities: 1,
    data_bytes: DATA_BYTES,
    is_on_disk: true,
};

const REBUILT: Array = Array {
    metric: "RAID-5 of 5, O_DIRECT on disk",
    level: "5",
    data_members: 4,
    parities: 1,
    data_bytes: DATA_BYTES,
    is_on_disk: true,
};

/// Measures the array of this group; where no file takes direct I/O it is skipped by name.
pub(super) fn measure(
    group: &'static str,
    work: Work,
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let array = match work {
        Work::Scrub => SCRUBBED,
        Work::Rebuild => REBUILT,
    };
    let place = match TemporaryFolder::on_disk(options) {
        Ok(place) => place,
        Err(error) => {
            samples.skip("plexum", array.metric, error.to_string());
            return Ok(());
        }
    };
    let mut keepers: Vec<(&str, Role, Box<dyn Keeper>)> = Vec::new();
    let mut add = |name, role, made: Made| match made {
        Ok(keeper) => keepers.push((name, role, keeper)),
        Err(error) => samples.skip(name, array.metric, error.to_string()),
    };
    let made = super::plexum::make(options, &place.folder("p")?, array);
    add("plexum", Role::Plexum, made);
    let made = make(&place.folder("l")?, array, work);
    add("members alone", Role::Limit, made);
    let probes = probes(&mut keepers, array, work);
    take_turns(group, probes, options.rounds, samples, progress);
    Ok(())
}

/// Files like the members: some are read from end to end and, for a rebuild, a further one is written, all at once.
struct Alone {
    read: Vec<File>,
    folder: PathBuf,
    share_bytes: u64,
}

fn make(folder: &Path, array: Array, work: Work) -> Made {
    let share_bytes = array.share_bytes();
    let members = array.data_members + array.parities;
    let read = match work {
        Work::Scrub => members,
        Work::Rebuild => members - 1,
    };
    let read = (0..read)
        .map(|index| fill(&folder.join(format!("m{index}")), share_bytes))
        .collect::<Result<_, _>>()?;
    Ok(Box::new(Alone {
        read,
        folder: folder.to_owned(),
        share_bytes,
    }))
}

impl Keeper for Alone {
    fn work(&mut self, work: Work) -> Result<Duration, BenchError> {
        let share_bytes = self.share_bytes;
        // A disk that has just taken so much is slower for a while: the new member of the array is filled before, too.
        let path = self.folder.join("new");
        let written = match work {
            Work::Scrub => None,
            Work::Rebuild => Some(fill(&path, share_bytes)?),
        };
        let started = Instant::now();
        std::thread::scope(|scope| {
            let mut threads = Vec::new();
            for file in &self.read {
                threads.push(scope.spawn(move || {
                    each_request(share_bytes, |offset, piece| {
                        file.read_exact_at(piece, offset)
                    })
                }));
            }
            if let Some(file) = &written {
                threads.push(scope.spawn(move || {
                    each_request(share_bytes, |offset, piece| {
                        file.write_all_at(piece, offset)
                    })?;
                    file.sync_data() // as a rebuild does at its end
                }));
            }
            threads.into_iter().try_for_each(|thread| {
                let ended = thread.join();
                ended.unwrap_or_else(|_| Err(std::io::Error::other("a thread ended early")))
            })
        })
        .map_err(|error| BenchError(format!("members alone: {error}")))?;
        let time = started.elapsed();
        let _ = std::fs::remove_file(&path); // where there is one
        Ok(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_goals_on_disk_are_those_of_the_arrays_that_are_measured_there() {
        for (group, array) in [("scrub", SCRUBBED), ("rebuild", REBUILT)] {
            let mut goals = crate::goals::GOALS.iter();
            assert!(goals.any(|goal| goal.group == group && goal.metric == array.metric));
        }
    }
}
