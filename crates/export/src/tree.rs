//! A read-only tree of files as a FUSE file system. What is in it is asked of its owner, over `TreeRequest`s.
//!
//! Invariants:
//! - nothing waits on the threads of the session: every question leaves them at once and brings its answer back itself;
//! - a question that is dropped is answered with EIO;
//! - nothing can be changed: the file system is mounted read-only, and no call that writes is there.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackgroundSession, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, LockOwner, MountOption, OpenAccMode, OpenFlags, ReplyAttr, ReplyData,
    ReplyDirectory, ReplyEntry, ReplyOpen, Session, SessionACL,
};

/// How long the kernel may believe names and attributes: they never change.
const VALID: Duration = Duration::from_secs(3600);
/// Threads that take requests from the kernel. They do no I/O, so few are enough.
const THREADS: usize = 2;
/// Number of the root directory.
pub const ROOT: u64 = 1;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plain file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A named pipe, a socket or a device: shown, without a use.
    Special,
}

impl Kind {
    fn file_type(self) -> FileType {
        match self {
            Kind::File => FileType::RegularFile,
            Kind::Directory => FileType::Directory,
            Kind::Link => FileType::Symlink,
            Kind::Special => FileType::NamedPipe,
        }
    }
}

/// Attributes of an entry.
#[derive(Clone, Copy, Debug)]
pub struct Attributes {
    /// Its number; [`ROOT`] for the root directory.
    pub number: u64,
    /// What it is.
    pub kind: Kind,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Space that it takes.
    pub used_bytes: u64,
    /// Permission bits.
    pub mode: u16,
    /// Owner.
    pub user_id: u32,
    /// Group.
    pub group_id: u32,
    /// Number of names.
    pub link_count: u32,
    /// Bytes of its blocks.
    pub block_bytes: u32,
    /// Access, contents, attributes: seconds since 1970 and nanoseconds.
    pub times: [(i64, u32); 3],
}

/// A name in a directory.
#[derive(Clone, Debug)]
pub struct Name {
    /// The name.
    pub name: Vec<u8>,
    /// Number of what it names.
    pub number: u64,
    /// What that is.
    pub kind: Kind,
}

/// What the kernel wants to know.
#[derive(Clone, Debug)]
pub enum Question {
    /// Attributes of a name in a directory.
    Lookup {
        /// Number of the directory.
        parent: u64,
        /// The name.
        name: Vec<u8>,
    },
    /// Attributes.
    Attributes {
        /// Of this number.
        number: u64,
    },
    /// All names.
    Names {
        /// Number of the directory.
        number: u64,
    },
    /// Target of a link.
    Target {
        /// Number of the link.
        number: u64,
    },
    /// Bytes; fewer at the end of the file.
    Read {
        /// Number of the file.
        number: u64,
        /// Where they begin.
        offset_bytes: u64,
        /// How many.
        length_bytes: u32,
    },
}

/// An answer.
#[derive(Clone, Debug)]
pub enum Answer {
    /// To `Lookup` and `Attributes`.
    Attributes(Attributes),
    /// To `Names`.
    Names(Vec<Name>),
    /// To `Target` and `Read`.
    Bytes(Vec<u8>),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No such name.
    NotFound,
    /// It cannot be read.
    Io,
}

type Reply = Box<dyn FnOnce(Result<Answer, Refusal>) + Send>;

/// A question and the way its answer takes. Dropping it answers EIO.
pub struct TreeRequest {
    /// The question.
    pub question: Question,
    reply: Option<Reply>,
}

impl TreeRequest {
    fn new(
        question: Question,
        reply: impl FnOnce(Result<Answer, Refusal>) + Send + 'static,
    ) -> Self {
        Self {
            question,
            reply: Some(Box::new(reply)),
        }
    }

    /// Answers it.
    pub fn answer(mut self, answer: Result<Answer, Refusal>) {
        if let Some(reply) = self.reply.take() {
            reply(answer);
        }
    }
}

impl Drop for TreeRequest {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            reply(Err(Refusal::Io));
        }
    }
}

/// A mounted tree. It ends when somebody unmounts it; dropping this unmounts it too.
pub struct MountedTree {
    _session: BackgroundSession,
}

/// Mounts a tree on `folder`, read-only. `send` is called on threads of the session with every question; it must not
/// wait. It is dropped when the tree is unmounted.
///
/// # Errors
/// No `/dev/fuse`, not allowed, or (for others than root) no `fusermount3`.
pub fn mount_tree(
    folder: &Path,
    name: &str,
    send: impl Fn(TreeRequest) + Send + Sync + 'static,
) -> io::Result<MountedTree> {
    let mut config = Config::default();
    config.mount_options = vec![
        MountOption::FSName(name.to_owned()),
        MountOption::Subtype("plexum".to_owned()),
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        MountOption::RO,
    ];
    config.acl = SessionACL::Owner;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let tree = Tree {
        send: Box::new(send),
    };
    let session = Session::new(tree, folder, &config)?.spawn()?;
    Ok(MountedTree { _session: session })
}

struct Tree {
    send: Box<dyn Fn(TreeRequest) + Send + Sync>,
}

impl Tree {
    fn ask(
        &self,
        question: Question,
        reply: impl FnOnce(Result<Answer, Refusal>) + Send + 'static,
    ) {
        (self.send)(TreeRequest::new(question, reply));
    }
}

fn errno(refusal: Refusal) -> Errno {
    match refusal {
        Refusal::NotFound => Errno::ENOENT,
        Refusal::Io => Errno::EIO,
    }
}

fn time((seconds, nanoseconds): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        UNIX_EPOCH.checked_sub(whole)
    } else {
        UNIX_EPOCH.checked_add(whole)
    };
    let exact = base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())));
    exact.unwrap_or(UNIX_EPOCH)
}

fn attr(attributes: &Attributes) -> FileAttr {
    let [accessed, modified, changed] = attributes.times.map(time);
    FileAttr {
        ino: INodeNo(attributes.number),
        size: attributes.size_bytes,
        blocks: attributes.used_bytes / 512,
        atime: accessed,
        mtime: modified,
        ctime: changed,
        crtime: changed,
        kind: attributes.kind.file_type(),
        perm: attributes.mode & 0o7777,
        nlink: attributes.link_count,
        uid: attributes.user_id,
        gid: attributes.group_id,
        rdev: 0,
        blksize: attributes.block_bytes.clamp(512, 1 << 20),
        flags: 0,
    }
}

impl Filesystem for Tree {
    fn lookup(&self, _: &fuser::Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let question = Question::Lookup {
            parent: parent.0,
            name: name.as_bytes().to_vec(),
        };
        self.ask(question, move |answer| match answer {
            Ok(Answer::Attributes(found)) => reply.entry(&VALID, &attr(&found), Generation(0)),
            Ok(_) => reply.error(Errno::EIO),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn getattr(&self, _: &fuser::Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let question = Question::Attributes { number: ino.0 };
        self.ask(question, move |answer| match answer {
            Ok(Answer::Attributes(found)) => reply.attr(&VALID, &attr(&found)),
            Ok(_) => reply.error(Errno::EIO),
            Err(refusal) => reply.error(errno(refusal)),
        });
    }

    fn readlink(&self, _: &fuser::Request, ino: INodeNo, reply: ReplyData) {
        let question = Question::Target { number: ino.0 };
        self.ask(question, move |answer| data(reply, answer));
    }

    fn open(&self, _: &fuser::Request, _ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        if flags.acc_mode() != OpenAccMode::O_RDONLY {
            return reply.error(Errno::EROFS);
        }
        // Nothing ever changes, so what the kernel has cached stays right.
        reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE);
    }

    fn read(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let question = Question::Read {
            number: ino.0,
            offset_bytes: offset,
            length_bytes: size,
        };
        self.ask(question, move |answer| data(reply, answer));
    }

    fn readdir(
        &self,
        _: &fuser::Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let question = Question::Names { number: ino.0 };
        self.ask(question, move |answer| {
            let names = match answer {
                Ok(Answer::Names(names)) => names,
                Ok(_) => return reply.error(Errno::EIO),
                Err(refusal) => return reply.error(errno(refusal)),
            };
            let dots = [b".".as_slice(), b".."].map(|name| Name {
                name: name.to_vec(),
                number: ino.0,
                kind: Kind::Directory,
            });
            for (name, next) in dots.into_iter().chain(names).zip(1_u64..) {
                let kind = name.kind.file_type();
                let shown = OsStr::from_bytes(&name.name);
                if next > offset && reply.add(INodeNo(name.number), next, kind, shown) {
                    break;
                }
            }
            reply.ok();
        });
    }
}

fn data(reply: ReplyData, answer: Result<Answer, Refusal>) {
    match answer {
        Ok(Answer::Bytes(bytes)) => reply.data(&bytes),
        Ok(_) => reply.error(Errno::EIO),
        Err(refusal) => reply.error(errno(refusal)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_question_that_is_dropped_is_answered() {
        let (sender, answers) = mpsc::channel();
        let question = Question::Attributes { number: ROOT };
        drop(TreeRequest::new(question, move |answer| {
            sender.send(answer.is_err()).unwrap()
        }));
        assert!(answers.recv().unwrap());
    }

    #[test]
    fn times_before_1970_and_beyond_all_bounds_are_times() {
        assert_eq!(time((-1, 0)), UNIX_EPOCH - Duration::from_secs(1));
        assert_eq!(
            time((i64::MIN, 0)).duration_since(UNIX_EPOCH).is_ok(),
            time((i64::MIN, 0)) == UNIX_EPOCH
        );
        let _ = time((i64::MAX, 999_999_999));
    }
}
