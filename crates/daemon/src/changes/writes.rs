//! Writing on members that nobody serves: what is there before is kept, and put back when a part of it fails.

use plexum_block::buf::BufPool;
use plexum_block::device::{Device, Fua, IoError};
use plexum_engine::metadata::MetadataWrite;

use super::store::{Change, ChangeState, ChangedRange, Noted, Written};
use crate::inspect::read_unaligned;
use crate::open::{AnyDevice, MemberWord, full_path, problem_of_io};
use crate::problem::Problem;

/// Buffers kept while members are read and written, in bytes.
const KEEP_BYTES: usize = 1 << 20;

/// What is written on members, in phases, each durable before the next. Numbers are those of `members`.
pub(crate) struct Writes<'a> {
    pub(crate) members: Vec<(&'a str, &'a AnyDevice)>,
    pub(crate) phases: Vec<Vec<(usize, MetadataWrite)>>,
}

/// A change that has begun.
pub(crate) struct Begun<'a> {
    noted: Option<&'a Noted>,
    change: Option<Change>,
    problem: Option<String>,
}

impl Begun<'_> {
    /// It has ended so; that is kept.
    pub(crate) fn end(self, state: ChangeState) -> Written {
        let id = self.change.as_ref().map(|change| change.id);
        let ended = self.change.zip(self.noted).map(|(change, noted)| {
            let changes = &noted.changes;
            changes.put(&Change { state, ..change })
        });
        Written {
            change: id,
            problem: self.problem.or_else(|| ended.and_then(Result::err)),
        }
    }
}

impl Writes<'_> {
    /// Carries them out. On an error everything that was written gets its old bytes back.
    ///
    /// # Errors
    /// `NoSpace`, `IoError`; a range that could not be put back is named in the problem.
    pub(crate) async fn carry_out(&self, noted: Option<&Noted>) -> Result<Written, Problem> {
        let pool = BufPool::new(KEEP_BYTES);
        let (before, begun) = self.begin(&pool, noted).await?;
        let mut count = 0;
        match self.write(&pool, &mut count).await {
            Ok(()) => Ok(begun.end(ChangeState::Done)),
            Err(problem) => {
                let problem = self.put_back(&before[..count], problem).await;
                begun.end(ChangeState::Failed);
                Err(problem)
            }
        }
    }

    /// Reads what is there before, and keeps it. Nothing is written on a member.
    ///
    /// # Errors
    /// Of reading.
    pub(crate) async fn begin<'n>(
        &self,
        pool: &BufPool,
        noted: Option<&'n Noted>,
    ) -> Result<(Vec<Vec<u8>>, Begun<'n>), Problem> {
        let before = self.look(pool).await?;
        let (change, problem) = match noted.map(|noted| self.keep(noted, &before)) {
            Some(Ok(change)) => (Some(change), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let begun = Begun {
            noted,
            change,
            problem,
        };
        Ok((before, begun))
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = (usize, &(usize, MetadataWrite))> {
        let phases = self.phases.iter().enumerate();
        phases.flat_map(|(phase, writes)| writes.iter().map(move |write| (phase, write)))
    }

    /// What is there before.
    async fn look(&self, pool: &BufPool) -> Result<Vec<Vec<u8>>, Problem> {
        let mut before = Vec::new();
        for (_, (at, write)) in self.all() {
            let (name, device) = self.members[*at];
            let length_bytes = write.bytes.len() as u64;
            let read = read_unaligned(device, pool, write.at_bytes, length_bytes).await;
            before.push(read.map_err(|error| problem_of_io(error, "writing metadata", name))?);
        }
        Ok(before)
    }

    fn keep(&self, noted: &Noted, before: &[Vec<u8>]) -> Result<Change, String> {
        let ranges = self.all().map(|(phase, (at, write))| ChangedRange {
            member: lasting_name(self.members[*at].0),
            at_bytes: write.at_bytes,
            length_bytes: write.bytes.len() as u64,
            phase,
        });
        let after = self.all().map(|(_, (_, write))| write.bytes.as_slice());
        let bytes: Vec<(&[u8], &[u8])> = before.iter().map(Vec::as_slice).zip(after).collect();
        let kept = noted.changes.begin(&noted.note, ranges.collect(), &bytes);
        kept.map_err(|reason| format!("this change cannot be undone later: {reason}"))
    }

    async fn write(&self, pool: &BufPool, begun: &mut usize) -> Result<(), Problem> {
        for writes in &self.phases {
            for (at, write) in writes {
                *begun += 1;
                let (name, device) = self.members[*at];
                let data = pool.copy_of(&write.bytes).freeze();
                let written = device.write(write.at_bytes, data, Fua::No).await;
                written.map_err(|error| problem_of_io(error, "writing metadata", name))?;
            }
            for (at, (name, device)) in self.members.iter().enumerate() {
                if writes.iter().any(|(written, _)| *written == at) {
                    let flushed = device.flush().await;
                    flushed.map_err(|error| problem_of_io(error, "flushing metadata", name))?;
                }
            }
        }
        Ok(())
    }

    /// Puts old bytes back, newest first. Says where that failed.
    async fn put_back(&self, before: &[Vec<u8>], mut problem: Problem) -> Problem {
        let pool = BufPool::new(0);
        let all: Vec<_> = self.all().zip(before).collect();
        for ((_, (at, write)), old) in all.into_iter().rev() {
            let (name, device) = self.members[*at];
            let data = pool.copy_of(old).freeze();
            let written: Result<(), IoError> = device.write(write.at_bytes, data, Fua::Yes).await;
            if written.is_err() {
                let (length, at) = (old.len(), write.at_bytes);
                problem = problem.why(format!(
                    "{name}: {length} bytes at byte {at} could not be put back"
                ));
            }
        }
        problem
    }
}

/// By what a member is found again from any folder.
fn lasting_name(member: &str) -> String {
    match MemberWord::parse(member) {
        MemberWord::Path(path) => full_path(&path).display().to_string(),
        MemberWord::Partition(disk, part) => format!("{}:{part}", full_path(&disk).display()),
        MemberWord::Missing | MemberWord::Nbd(_) | MemberWord::Volume(_) => member.to_owned(),
    }
}
