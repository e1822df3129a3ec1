//! The thread that writes what is to be kept.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plexum_exec::mailbox::{Reply, reply};

use super::{Key, Remembered, StateDir};
use crate::claims::{Claim, list_path, list_text};
use crate::control::event::Event;
use crate::expected::Expected;
use crate::problem::words_of;

/// What may wait to be written. More than this is lost, and counted: memory has an end, and a folder may hang for ever.
const WAITING_MAX: usize = 1024;

/// How long the end of the writing is waited for when the server ends.
const END_WAIT: Duration = Duration::from_secs(5);

/// Something to keep.
pub enum Kept {
    /// A line more in a volume's history.
    Event(Key, Event),
    /// What is remembered of a volume, in place of what was.
    Set(Key, Remembered),
    /// A volume that should be there, in place of what was known of it.
    Expected(Key, Expected),
    /// A volume is expected no more.
    Forgotten(Key),
    /// Which part of a volume was scrubbed when, in place of what was known.
    Scrubs(Key, plexum_schedule::State),
    /// All incidents, in place of what was kept of them.
    Incidents(String),
}

/// What is to be written, or the end of the writing and who is told of it.
enum Order {
    Keep(Box<Kept>),
    /// Somebody waits until it is durable.
    KeepAndTell(Box<Kept>, Reply<Result<(), String>>),
    End(Sender<()>),
}

/// Hands things to the thread that writes; never waits for it. Clones share the thread.
#[derive(Clone)]
pub struct Keeper {
    orders: SyncSender<Order>,
    lost: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Keeper {
    /// Starts the thread. The folder must have been ensured.
    #[must_use]
    pub fn start(dir: &StateDir) -> Self {
        let (orders, waiting) = sync_channel(WAITING_MAX);
        let failure = Arc::new(Mutex::new(None));
        let lost = Arc::default();
        let writer = Writer {
            dir: dir.clone(),
            lost: Arc::clone(&lost),
            failure: Arc::clone(&failure),
        };
        let thread = std::thread::Builder::new().name("memory".into());
        let started =
            thread.spawn(move || waiting.into_iter().for_each(|one| writer.carry_out(one)));
        if let Err(error) = started {
            note(&failure, Some(format!("no thread to write it: {error}")));
        }
        Self {
            orders,
            lost,
            failure,
        }
    }

    /// Keeps it, soon. What cannot be taken is lost and counted.
    pub fn keep(&self, what: Kept) {
        match self.orders.try_send(Order::Keep(Box::new(what))) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Keeps it; the answer comes when it is durable.
    ///
    /// # Errors
    /// It is not, and why, in one sentence.
    pub async fn keep_durably(&self, what: Kept) -> Result<(), String> {
        let (told, answer) = reply();
        let order = Order::KeepAndTell(Box::new(what), told);
        if self.orders.try_send(order).is_err() {
            return Err("what waits to be written is not written".to_owned());
        }
        match answer.await {
            Ok(result) => result,
            Err(gone) => Err(gone.to_string()),
        }
    }

    /// Why not everything is kept, in one sentence; none while everything is.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        match (failure.clone(), self.lost.load(Ordering::Relaxed)) {
            (Some(failure), _) => Some(failure),
            (None, 0) => None,
            (None, lost) => Some(format!("{lost} events or results are lost")),
        }
    }

    /// Waits until everything is written, a few seconds at most: the folder may hang.
    pub fn end(&self) {
        let (sender, written) = channel();
        if self.orders.try_send(Order::End(sender)).is_ok() {
            let _ = written.recv_timeout(END_WAIT);
        }
    }
}

fn note(failure: &Mutex<Option<String>>, what: Option<String>) {
    *failure.lock().unwrap_or_else(PoisonError::into_inner) = what;
}

/// What the thread has.
struct Writer {
    dir: StateDir,
    lost: Arc<AtomicU64>,
    failure: Arc<Mutex<Option<String>>>,
}

impl Writer {
    fn carry_out(&self, order: Order) {
        match order {
            Order::Keep(what) => drop(self.write(*what)),
            Order::KeepAndTell(what, told) => told.send(self.write(*what)),
            Order::End(told) => {
                let _ = told.send(());
            }
        }
    }

    /// Writes it; why not, in a sentence.
    fn write(&self, what: Kept) -> Result<(), String> {
        let (path, result) = match what {
            Kept::Event(key, event) => {
                let path = self.dir.history_path(&key);
                let line = serde_json::to_string(&event).map_err(io::Error::other);
                let result = line.and_then(|line| append(&path, &line));
                self.lost
                    .fetch_add(u64::from(result.is_err()), Ordering::Relaxed);
                (path, result)
            }
            Kept::Set(key, remembered) => {
                let path = self.dir.set_path(&key);
                let bytes = serde_json::to_vec_pretty(&remembered).map_err(io::Error::other);
                (path.clone(), bytes.and_then(|bytes| replace(&path, &bytes)))
            }
            Kept::Expected(key, expected) => {
                let path = self.dir.volume_path(&key);
                let bytes = serde_json::to_vec_pretty(&expected).map_err(io::Error::other);
                let result = bytes.and_then(|bytes| replace(&path, &bytes));
                (path, result.and_then(|()| self.write_claims()))
            }
            Kept::Scrubs(key, state) => {
                let path = self.dir.scrubs_path(&key);
                let bytes = serde_json::to_vec(&state).map_err(io::Error::other);
                (path.clone(), bytes.and_then(|bytes| replace(&path, &bytes)))
            }
            Kept::Forgotten(key) => {
                let path = self.dir.volume_path(&key);
                let result = remove(&path);
                (path, result.and_then(|()| self.write_claims()))
            }
            Kept::Incidents(text) => {
                let path = self.dir.incidents_path();
                (path.clone(), replace(&path, text.as_bytes()))
            }
        };
        let told = |error: io::Error| format!("{}: {}", path.display(), words_of(&error));
        let result = result.map_err(told);
        note(&self.failure, result.as_ref().err().cloned());
        result
    }
}

impl Writer {
    /// Writes the list of the sets that are Plexum's, where it has changed: an initramfs takes it along.
    fn write_claims(&self) -> io::Result<()> {
        let (expected, _) = self.dir.expected();
        let claims: Vec<Claim> = expected.iter().filter_map(Claim::of).collect();
        let (path, text) = (list_path(&self.dir), list_text(&claims));
        match fs::read_to_string(&path) {
            Ok(then) if then == text => Ok(()),
            _ => replace(&path, text.as_bytes()),
        }
    }
}

/// Appends a line, behind whatever an interrupted write left at the end.
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut options = File::options();
    let mut file = options.read(true).append(true).create(true).open(path)?;
    let mut text = format!("{line}\n");
    if file.metadata()?.len() > 0 {
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            text.insert(0, '\n');
        }
    }
    file.write_all(text.as_bytes())?;
    file.sync_data()
}

/// Puts `bytes` in place of the file: the old ones or the new ones are there at any time. Where that fails, nothing
/// half written is left to take room.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let written = File::create(&new).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    if let Err(error) = written.and_then(|()| fs::rename(&new, path)) {
        let _ = fs::remove_file(&new); // why it is there is what is told
        return Err(error);
    }
    sync_folder_of(path)
}

/// Removes a file, durably; it may be gone already.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_folder_of(path),
    }
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_all(),
        None => Ok(()),
    }
}
