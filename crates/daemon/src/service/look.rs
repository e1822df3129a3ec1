//! Looking at paths, folders and disks, on threads of their own: a disk or a file system that hangs keeps its own
//! thread and nobody else.
//!
//! Invariants:
//! - the engine's thread opens, reads and asks for nothing here;
//! - what has not answered is not asked again until it has: there is a thread for each at most; while none answers, one
//!   more thread goes on with the others;
//! - a disk is read once, when it comes or changes, so that one that sleeps is left asleep; nothing is written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{Either, select};
use plexum_block::clock::Clock;
use plexum_block::wait::join_all;
use plexum_exec::mailbox::{self, Reply, Sender, reply};
use plexum_runtime::Handle;
use plexum_runtime::uevent::{Action, Heard, Listener};

use super::find::{Identity, Sight, Stranger, View};
use crate::marks::{Marks, read_marks};
use crate::open::MemberWord;

/// How long an answer is waited for. A disk that is woken up for it takes longer: its answer is remembered, and found
/// by one of the next looks.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Threads that look at the same time, those that hang included.
const THREADS_MAX: usize = 256;
/// Threads that begin a look. Most of what is asked answers within a fraction of what it takes to start one.
const THREADS_AT_ONCE: usize = 2;
/// After so long there is one more, while something has not been asked yet.
const PATIENCE: Duration = Duration::from_millis(5);
/// Files of one folder that are looked at: a folder of members has fewer.
const FILES_MAX: usize = 1000;
/// Marks that are remembered; all are read anew when there are more.
const REMEMBERED_MAX: usize = 4096;

/// What is looked at together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    /// What is at a member's path.
    Word(String),
    /// The files of a folder.
    Folder(PathBuf),
    /// The list of block devices; those that are remembered are told with it.
    Disks,
    /// A block device, by its name in sysfs.
    Disk(String),
}

/// What was seen there.
enum Answer {
    Sight(String, Sight),
    Strangers(Vec<Stranger>),
    /// Those that are remembered, and the names of the others.
    Disks(Vec<Stranger>, Vec<String>),
}

/// How far members are looked for that are not at their paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Nowhere else.
    Paths,
    /// On all disks when one of them was a disk, and in the folders of those that were files.
    Everywhere,
}

/// What the marks of something were when it was as `stamp` says.
type Remembered = BTreeMap<Identity, (Stamp, Marks)>;

/// What is still to be asked, and who waits for each answer.
type Questions = Arc<Mutex<VecDeque<(Target, Reply<Option<Answer>>)>>>;
/// Where one of them is answered.
type Answered = mailbox::Answer<Option<Answer>>;

/// Equal while nothing has changed: of a file its size and times, of a disk its size, the kernel's count of disks that
/// it came as, and how often it was told that it has changed.
type Stamp = (u64, u64, u64, u64);

/// What the threads share.
#[derive(Default)]
struct Common {
    /// Who has not answered yet.
    asked: Mutex<BTreeSet<Target>>,
    remembered: Mutex<Remembered>,
    /// How often each device was told to have changed.
    changes: Mutex<BTreeMap<String, u64>>,
    /// Messages about devices were lost so often.
    losses: Mutex<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing below panics between two changes, so a poisoned state is still whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks. Clones share what is remembered.
#[derive(Clone, Default)]
pub(super) struct Looker {
    common: Arc<Common>,
}

impl Looker {
    /// Hears of disks from now on; `told` gets a message for each that is to be looked at. Where the system tells
    /// nothing (a container), disks are found by looking again and again.
    pub(super) fn listen(&self, told: Sender<()>) {
        let Ok(mut listener) = Listener::open() else {
            return;
        };
        let common = Arc::clone(&self.common);
        let thread = std::thread::Builder::new().name("uevents".into());
        // It ends with the process: it waits for messages, and holds nothing.
        let _ = thread.spawn(move || {
            while let Ok(heard) = listener.hear() {
                match heard {
                    Heard::Lost => *lock(&common.losses) += 1,
                    Heard::Told(event) if event.subsystem != "block" => continue,
                    Heard::Told(event) => {
                        if let (Some(name), true) = (event.name, event.action != Action::Remove) {
                            *lock(&common.changes).entry(name).or_default() += 1;
                        }
                    }
                }
                // A message that waits already says the same.
                let _ = told.send(());
            }
        });
    }

    /// What is at the paths of members, and who is elsewhere.
    pub(super) async fn look(&self, handle: &Handle, words: &[String], reach: Reach) -> View {
        let mut view = View::default();
        let mut targets = BTreeSet::new();
        for word in words {
            if is_address(word) {
                view.words.insert(word.clone(), Sight::Unread);
            } else {
                view.words.insert(word.clone(), Sight::Silent);
                targets.insert(Target::Word(word.clone()));
            }
        }
        self.ask(handle, targets, &mut view).await;
        if reach == Reach::Everywhere {
            let targets = further(&view);
            let unread = self.ask(handle, targets, &mut view).await;
            let unread = unread.into_iter().map(Target::Disk).collect();
            self.ask(handle, unread, &mut view).await;
        }
        view
    }

    /// Asks all at once, and waits for those that answer. Gives the disks that are to be asked themselves.
    async fn ask(
        &self,
        handle: &Handle,
        targets: BTreeSet<Target>,
        view: &mut View,
    ) -> Vec<String> {
        let mut unread = Vec::new();
        let (questions, answers) = self.questions(targets);
        let clock = handle.clock();
        let answers = join_all(answers.into_iter().map(async |answer| {
            match select(pin!(answer), pin!(clock.sleep(ANSWER_WAIT))).await {
                Either::Left((seen, _)) => seen.unwrap_or(None),
                Either::Right(_) => None,
            }
        }));
        let asking = async {
            for _ in 0..THREADS_AT_ONCE {
                self.start(&questions);
            }
            while !lock(&questions).is_empty() {
                clock.sleep(PATIENCE).await;
                self.start(&questions);
            }
            std::future::pending().await
        };
        let answers = match select(pin!(answers), pin!(asking)).await {
            Either::Left((answers, _)) => answers,
            Either::Right((never, _)) => never,
        };
        for (target, _) in lock(&questions).drain(..) {
            lock(&self.common.asked).remove(&target); // no thread has come to it
        }
        for answer in answers.into_iter().flatten() {
            match answer {
                Answer::Sight(word, sight) => {
                    view.words.insert(word, sight);
                }
                Answer::Strangers(strangers) => view.strangers.extend(strangers),
                Answer::Disks(strangers, names) => {
                    view.strangers.extend(strangers);
                    unread.extend(names);
                }
            }
        }
        unread
    }

    /// Those that are not asked already, and where each is answered.
    fn questions(&self, targets: BTreeSet<Target>) -> (Questions, Vec<Answered>) {
        let mut asked = lock(&self.common.asked);
        let mut questions = VecDeque::new();
        let mut answers = Vec::new();
        for target in targets {
            if asked.len() < THREADS_MAX && asked.insert(target.clone()) {
                let (told, answer) = reply();
                questions.push_back((target, told));
                answers.push(answer);
            }
        }
        (Arc::new(Mutex::new(questions)), answers)
    }

    /// One more thread, which answers questions until there are none. Without it, those that run do.
    fn start(&self, questions: &Questions) {
        if lock(questions).is_empty() {
            return;
        }
        let (common, questions) = (Arc::clone(&self.common), Arc::clone(questions));
        let thread = std::thread::Builder::new().name("look".into());
        let _ = thread.spawn(move || {
            loop {
                let next = lock(&questions).pop_front();
                let Some((target, told)) = next else {
                    return;
                };
                let seen = common.see(&target);
                lock(&common.asked).remove(&target);
                told.send(seen);
            }
        });
    }
}

/// Whether a member's word is no path.
fn is_address(word: &str) -> bool {
    word.contains("://") || word.starts_with("volume:")
}

/// Where members may be that are not at their paths.
fn further(view: &View) -> BTreeSet<Target> {
    let mut targets = BTreeSet::new();
    let gone = view.words.iter().filter(|(_, sight)| match sight {
        Sight::Absent => true,
        // What is there may be another disk now; who knows the volume says whether.
        Sight::There(identity, _) => matches!(identity, Identity::Device(_)),
        Sight::Silent | Sight::Unread => false,
    });
    for (word, sight) in gone {
        match (Path::new(word).parent(), sight) {
            (Some(folder), Sight::Absent) if !is_of_devices(folder) => {
                targets.insert(Target::Folder(folder.to_owned()));
            }
            _ => {
                targets.insert(Target::Disks);
            }
        }
    }
    targets
}

/// Whether a folder holds names of devices. Memory for files is below `/dev` as well.
fn is_of_devices(folder: &Path) -> bool {
    folder.starts_with("/dev") && !folder.starts_with("/dev/shm")
}

/// Names of all block devices that may be members. What something else stands on is that one's.
fn disks() -> Vec<String> {
    let entries = fs::read_dir("/sys/class/block")
        .into_iter()
        .flatten()
        .flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let may_be = |name: &String| {
        let folder = Path::new("/sys/class/block").join(name);
        let is_memory = name.starts_with("ram") || name.starts_with("zram");
        let has_size = number_in(&folder.join("size")) > 0;
        let holders = fs::read_dir(folder.join("holders"));
        let is_below = holders.is_ok_and(|mut holders| holders.next().is_some());
        has_size && !is_memory && !is_below
    };
    names.filter(may_be).collect()
}

/// The device file of a name in sysfs.
fn device_file(name: &str) -> PathBuf {
    Path::new("/dev").join(name.replace('!', "/"))
}

/// A device's number as sysfs has it, `8:16`.
fn number_of(name: &str) -> Option<u64> {
    let text = fs::read_to_string(Path::new("/sys/class/block").join(name).join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

fn number_in(path: &Path) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

impl Common {
    fn see(&self, target: &Target) -> Option<Answer> {
        match target {
            Target::Word(word) => Some(Answer::Sight(word.clone(), self.see_word(word))),
            Target::Folder(folder) => Some(Answer::Strangers(self.see_folder(folder))),
            Target::Disks => Some(self.see_disks()),
            Target::Disk(name) => {
                let stranger = self.see_stranger(device_file(name));
                Some(Answer::Strangers(stranger.into_iter().collect()))
            }
        }
    }

    fn see_word(&self, word: &str) -> Sight {
        let path = Path::new(word);
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return match MemberWord::parse(word) {
                    MemberWord::Partition(..) => Sight::Unread,
                    _ => Sight::Absent,
                };
            }
            Err(_) => return Sight::Unread, // whoever opens it says why
        };
        match identity_of(&meta) {
            None => Sight::Unread,
            Some(identity) => match self.marks(path, identity, &meta) {
                Some(marks) => Sight::There(identity, marks),
                None => Sight::Unread,
            },
        }
    }

    fn see_folder(&self, folder: &Path) -> Vec<Stranger> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        let mut paths: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
        paths.sort();
        paths.truncate(FILES_MAX);
        paths
            .into_iter()
            .filter_map(|path| self.see_stranger(path))
            .collect()
    }

    /// A disk that is remembered is not touched: it may be asleep.
    fn see_disks(&self) -> Answer {
        let (mut known, mut unread) = (Vec::new(), Vec::new());
        for name in disks() {
            let number = number_of(&name);
            let remembered = number.and_then(|number| {
                let identity = Identity::Device(number);
                let marks = self.remembered(identity, self.stamp_of_device(number))?;
                Some(Stranger {
                    path: device_file(&name).to_string_lossy().into_owned(),
                    identity,
                    marks,
                })
            });
            match remembered {
                Some(stranger) if stranger.marks.marks.is_empty() => {}
                Some(stranger) => known.push(stranger),
                None => unread.push(name),
            }
        }
        Answer::Disks(known, unread)
    }

    fn remembered(&self, identity: Identity, stamp: Stamp) -> Option<Marks> {
        let remembered = lock(&self.remembered);
        let (then, marks) = remembered.get(&identity)?;
        (*then == stamp).then(|| marks.clone())
    }

    fn see_stranger(&self, path: PathBuf) -> Option<Stranger> {
        let meta = fs::metadata(&path).ok()?;
        let identity = identity_of(&meta)?;
        let marks = self.marks(&path, identity, &meta)?;
        (!marks.marks.is_empty()).then(|| Stranger {
            path: path.to_string_lossy().into_owned(),
            identity,
            marks,
        })
    }

    /// The marks, remembered or read.
    fn marks(&self, path: &Path, identity: Identity, meta: &Metadata) -> Option<Marks> {
        let stamp = match identity {
            Identity::File(..) => {
                let time = |seconds: i64, ns: i64| (seconds as u64) ^ ((ns as u64) << 32);
                (
                    meta.len(),
                    time(meta.mtime(), meta.mtime_nsec()),
                    time(meta.ctime(), meta.ctime_nsec()),
                    0,
                )
            }
            Identity::Device(number) => self.stamp_of_device(number),
        };
        if let Some(marks) = self.remembered(identity, stamp) {
            return Some(marks);
        }
        let marks = read_marks(path).ok()?;
        let mut remembered = lock(&self.remembered);
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(identity, (stamp, marks.clone()));
        Some(marks)
    }

    fn stamp_of_device(&self, number: u64) -> Stamp {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let folder = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let name = fs::canonicalize(&folder).unwrap_or_default();
        let name = name.file_name().unwrap_or_default().to_string_lossy();
        let changes = lock(&self.changes).get(&*name.replace('!', "/")).copied();
        // A partition came with its disk.
        let counts = [folder.join("diskseq"), folder.join("../diskseq")];
        let count = counts
            .iter()
            .map(|path| number_in(path))
            .find(|count| *count > 0);
        (
            number_in(&folder.join("size")),
            count.unwrap_or(0),
            changes.unwrap_or(0),
            *lock(&self.losses),
        )
    }
}

/// None of what can be no member.
fn identity_of(meta: &Metadata) -> Option<Identity> {
    if meta.is_file() {
        Some(Identity::File(meta.dev(), meta.ino()))
    } else if meta.file_type().is_block_device() {
        Some(Identity::Device(meta.rdev()))
    } else {
        None
    }
}
