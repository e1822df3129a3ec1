//! Members with a volatile cache, in a process of their own that is killed to cut their power.
//!
//! Invariants:
//! - a sector that is written is, by coin toss, put into the file at once or kept in memory: SIGKILL is the power cut;
//! - a flush, or a write with FUA, has put its sectors into the file before it is answered;
//! - all members of a volume are in one process, so that they lose power in the same instant.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::rc::Rc;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_runtime::socket::Listener;
use plexum_runtime::{IoChoice, Runtime};

use super::book::SECTOR_BYTES;
use super::dice::Dice;

/// Name of the only export on each socket.
pub const EXPORT: &str = "member";

struct Member {
    file: File,
    size_bytes: u64,
    pool: BufPool,
    cache: RefCell<BTreeMap<u64, Box<[u8]>>>,
    coin: RefCell<Dice>,
    /// Answers flushes and keeps nothing: a fault that the run must find.
    is_lying: bool,
}

impl Member {
    fn open(path: &Path, seed: u64, is_lying: bool) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Self {
            size_bytes: file.metadata()?.len(),
            file,
            pool: BufPool::new(1 << 20),
            cache: RefCell::default(),
            coin: RefCell::new(Dice::new(seed, 0)),
            is_lying,
        })
    }

    fn put(&self, offset_bytes: u64, data: &[u8], fua: Fua) -> Result<(), IoError> {
        let first = offset_bytes / SECTOR_BYTES as u64;
        for (sector, bytes) in (first..).zip(data.chunks(SECTOR_BYTES)) {
            if fua == Fua::Yes || self.coin.borrow_mut().once_in(2) {
                self.keep(sector, bytes)?;
                self.cache.borrow_mut().remove(&sector);
            } else {
                self.cache.borrow_mut().insert(sector, bytes.into());
            }
        }
        Ok(())
    }

    fn keep(&self, sector: u64, bytes: &[u8]) -> Result<(), IoError> {
        let kept = self.file.write_all_at(bytes, sector * SECTOR_BYTES as u64);
        kept.map_err(|_| IoError::Medium)
    }
}

impl Export for Member {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            name: EXPORT.to_owned(),
            description: String::new(),
            size_bytes: self.size_bytes,
            block_bytes_min: SECTOR_BYTES as u32,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        }
    }

    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        let mut data = self.pool.take(length_bytes as usize);
        self.file
            .read_exact_at(&mut data, offset_bytes)
            .map_err(|_| IoError::Medium)?;
        let first = offset_bytes / SECTOR_BYTES as u64;
        let end = first + u64::from(length_bytes) / SECTOR_BYTES as u64;
        for (sector, bytes) in self.cache.borrow().range(first..end) {
            let at = (sector - first) as usize * SECTOR_BYTES;
            data[at..at + SECTOR_BYTES].copy_from_slice(bytes);
        }
        Ok(data.freeze().into())
    }

    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.put(offset_bytes, &data, fua)
    }

    async fn flush(&self) -> Result<(), IoError> {
        if self.is_lying {
            return Ok(());
        }
        let cache = std::mem::take(&mut *self.cache.borrow_mut());
        for (sector, bytes) in cache {
            self.keep(sector, &bytes)?;
        }
        Ok(())
    }

    async fn trim(&self, _: u64, _: u64, _: Fua) -> Result<(), IoError> {
        Ok(())
    }

    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        if how.only_if_fast {
            return Err(IoError::Unsupported);
        }
        let step = 1 << 20;
        for at in (0..length_bytes).step_by(step) {
            let length = (length_bytes - at).min(step as u64) as usize;
            self.put(offset_bytes + at, &vec![0; length], how.fua)?;
        }
        Ok(())
    }

    async fn cache(&self, _: u64, _: u64) -> Result<(), IoError> {
        Ok(())
    }

    async fn status(&self, _: u64, length_bytes: u64, _: usize) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        }])
    }
}

/// Serves pairs of socket and file until killed. Says `ready` when clients can come. `words`: seed, whether flushes
/// lie, the pairs.
pub fn serve(words: &[String]) -> Result<(), String> {
    let [seed, is_lying, pairs @ ..] = words else {
        return Err("SEED true|false SOCKET FILE ...".to_owned());
    };
    let seed: u64 = seed.parse().map_err(|error| format!("{seed}: {error}"))?;
    let is_lying = is_lying == "true";
    let mut runtime = Runtime::new(IoChoice::Threads).map_err(|error| error.to_string())?;
    let handle = runtime.handle();
    for (number, pair) in pairs.chunks_exact(2).enumerate() {
        let tell = |error: std::io::Error| format!("{}, {}: {error}", pair[0], pair[1]);
        let seed = seed ^ number as u64;
        let member = Member::open(Path::new(&pair[1]), seed, is_lying).map_err(tell)?;
        let listener = Listener::bind_unix(&handle, Path::new(&pair[0])).map_err(tell)?;
        let server = Server::new(
            handle.clock(),
            BufPool::new(1 << 20),
            ServerLimits::default(),
        );
        server
            .exports()
            .open(Rc::new(member))
            .map_err(|error| error.to_string())?;
        let (server, spawner) = (Rc::new(server), handle.clone());
        let _acceptor = handle.spawn(async move {
            while let Ok(socket) = listener.accept().await {
                let server = Rc::clone(&server);
                let _session = spawner.spawn(async move { server.serve(socket).await });
            }
        });
    }
    println!("ready");
    runtime.block_on(std::future::pending::<()>());
    Ok(())
}
