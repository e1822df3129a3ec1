//! Reads of a real device or file: one thread a process, past the page cache where the file system can.
//!
//! Invariant: the device is opened for reading; nothing is ever written to it.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use plexum_block::buf::BufPool;

use crate::error::LabError;
use crate::place::lanes::Span;
use crate::workload::{IoRequest, Operation};

/// Memory that the buffers of one process may keep, in bytes.
const POOL_BYTES: usize = 4 << 20;

/// A device or file.
pub struct RealDisk {
    file: File,
    size_bytes: u64,
    /// Whether reads go past the page cache.
    pub is_direct: bool,
}

/// What reads of all processes together gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RealRun {
    /// Requests that ended.
    pub requests: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From the first start to the last end of the processes.
    pub elapsed_s: f64,
}

impl RealRun {
    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_s(&self) -> f64 {
        self.bytes as f64 / self.elapsed_s.max(1e-9)
    }
}

impl RealDisk {
    /// Opens it for reading.
    ///
    /// # Errors
    /// `Usage` when it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, LabError> {
        use std::io::{Seek, SeekFrom};
        let told = |error: std::io::Error| LabError::Usage(format!("{}: {error}", path.display()));
        let direct = std::fs::OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path);
        let (file, is_direct) = match direct {
            Ok(file) => (file, true),
            Err(_) => (File::open(path).map_err(told)?, false),
        };
        let size_bytes = (&file).seek(SeekFrom::End(0)).map_err(told)?;
        Ok(Self {
            file,
            size_bytes,
            is_direct,
        })
    }

    /// Its size.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// One read, and how many nanoseconds it took.
    ///
    /// # Errors
    /// A read that failed.
    pub fn read_ns(&self, pool: &BufPool, request: &IoRequest) -> Result<f64, LabError> {
        let length = usize::try_from(request.length_bytes)
            .map_err(|error| LabError::Bug(error.to_string()))?;
        let mut buf = pool.take(length);
        let started = Instant::now();
        self.file
            .read_exact_at(&mut buf, request.offset_bytes)
            .map_err(|error| {
                LabError::Io(format!("read at byte {}: {error}", request.offset_bytes))
            })?;
        Ok(started.elapsed().as_nanos() as f64)
    }

    /// Runs the requests of all processes, each one after another, until they are done or `limit` is over.
    ///
    /// # Errors
    /// `Bug` for a request that is no read; a read that failed.
    pub fn run(
        &self,
        processes: &[Vec<IoRequest>],
        limit: Option<Duration>,
    ) -> Result<RealRun, LabError> {
        let requests = || processes.iter().flatten();
        if requests().any(|request| request.operation != Operation::Read) {
            return Err(LabError::Bug("a real device is only read".to_owned()));
        }
        let start = Barrier::new(processes.len() + 1);
        std::thread::scope(|scope| {
            let threads: Vec<_> = processes
                .iter()
                .map(|requests| scope.spawn(|| self.process(requests, limit, &start)))
                .collect();
            start.wait();
            let mut span = Span::default();
            let mut run = RealRun::default();
            for thread in threads {
                let died = |_| LabError::Bug("a process of the workload died".to_owned());
                let (count, bytes, started, ended) = thread.join().map_err(died)??;
                run.requests += count;
                run.bytes += bytes;
                span.add(started, ended);
            }
            run.elapsed_s = span.length().as_secs_f64();
            Ok(run)
        })
    }

    fn process(
        &self,
        requests: &[IoRequest],
        limit: Option<Duration>,
        start: &Barrier,
    ) -> Result<(u64, u64, Instant, Instant), LabError> {
        let pool = BufPool::new(POOL_BYTES);
        start.wait();
        let started = Instant::now();
        let (mut count, mut bytes) = (0, 0);
        for request in requests {
            if limit.is_some_and(|limit| started.elapsed() >= limit) {
                break;
            }
            self.read_ns(&pool, request)?;
            count += 1;
            bytes += request.length_bytes;
        }
        Ok((count, bytes, started, Instant::now()))
    }
}
