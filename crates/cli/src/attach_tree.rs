//! `plexum attach --dataset`: a file system of a ZFS pool as a read-only tree (FUSE).
//!
//! A process of its own reads the pool and answers the kernel; `plexum detach` (or `umount`) ends it.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;
use std::rc::Rc;

use plexum_daemon::open::{AnyDevice, MemberWord};
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::zfs::{of_zfs, open_pool};
use plexum_export::process;
use plexum_export::tree::{
    Answer, Attributes, Kind, Name, Question, ROOT, Refusal, TreeRequest, mount_tree,
};
use plexum_format::zfs::znode::FileKind;
use plexum_runtime::mailbox::mailbox;
use plexum_runtime::{Handle, IoChoice, Runtime};
use plexum_zfs::{DatasetName, DirectoryEntry, FileSystem, Node, OpenOptions, ZfsError};
use serde_json::json;

use crate::args::{Attach, Common, TreeProcess};
use crate::attach_file::no_fuse;
use crate::attachment::Attachment;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Questions that wait; the kernel has far fewer in flight.
const QUESTIONS_MAX: usize = 1 << 14;
/// Directories and attributes that are kept.
const KEPT_MAX: usize = 1024;

/// Runs the command: returns when the tree is there.
///
/// # Errors
/// Of the pool, the file system and FUSE; attached already.
pub fn run(args: &Attach, common: &Common, screen: &Screen) -> Outcome {
    let dataset = args.dataset.clone().unwrap_or_default();
    // The first two words are the folder and a member: there is no volume in this form.
    let folder = args.volume.clone().ok_or_else(|| {
        Problem::new(
            Code::Usage,
            "a folder to show it at, and members, are missing",
        )
        .hint(format!(
            "plexum attach --dataset {dataset} FOLDER MEMBER..."
        ))
    })?;
    let words = args.mountpoint.iter().chain(&args.members);
    let members: Vec<String> = words.cloned().collect();
    if members.is_empty() {
        return Err(
            Problem::new(Code::Usage, "the members of the pool are missing").hint(format!(
                "plexum attach --dataset {dataset} {folder} MEMBER..."
            )),
        );
    }
    let folder = std::fs::canonicalize(&folder).map_err(|error| {
        let mut problem = Problem::from_io(&error, "looking at the folder", &folder);
        problem.hints = vec![format!("to make it:   mkdir -p {folder}")];
        problem
    })?;
    if common.dry_run {
        rehearse(&dataset, &members, args.txg)?;
        screen.line(format!("would attach {dataset} at {}", folder.display()));
        let fields = json!({"command": "attach", "dataset": dataset, "mountpoint": folder});
        screen.object(&object("plan", None, fields));
        return Ok(0);
    }
    let mut attachment = Attachment::begin(&dataset.replace('/', "-"))?;
    // Our own folder stays empty: the tree is where the user wants it, and `undo` unmounts it there.
    let _ = std::fs::remove_dir(&attachment.folder);
    attachment.tree = Some(folder.clone());
    attachment.is_read_only = true;
    match start(
        &mut attachment,
        &dataset,
        &folder,
        &members,
        args.txg,
        common.json,
    ) {
        Ok(None) => {
            attachment.save()?;
            screen.line(folder.display().to_string());
            screen.object(&object(
                "attached",
                Some(&attachment.volume),
                json!({"dataset": dataset, "mountpoint": folder, "is_read_only": true,
                    "pid": attachment.process.as_ref().map(|process| process.pid)}),
            ));
            Ok(0)
        }
        Ok(Some(exit)) => {
            attachment.undo()?;
            Ok(exit)
        }
        Err(problem) => {
            let _ = attachment.undo();
            Err(problem)
        }
    }
}

/// Starts the process and waits for its line. An exit code: it has ended, and its words were printed.
fn start(
    attachment: &mut Attachment,
    dataset: &str,
    folder: &std::path::Path,
    members: &[String],
    txg: Option<u64>,
    as_json: bool,
) -> Result<Option<u8>, Problem> {
    let command = std::env::current_exe().map(|program| {
        let mut command = Command::new(program);
        command.arg("tree-process");
        command.args(as_json.then_some("--json"));
        command.arg("--dataset").arg(dataset);
        command.arg("--folder").arg(folder);
        if let Some(txg) = txg {
            command.arg("--txg").arg(txg.to_string());
        }
        command.arg("--");
        command.args(members.iter().map(|word| absolute(word)));
        command
    });
    let started = attachment.start(command)?;
    attachment.tell_log();
    match started.line.trim() {
        "ready" => Ok(None),
        _ => attachment.wait(started).map(Some),
    }
}

/// The process goes to another folder, so paths must not depend on this one.
fn absolute(word: &str) -> PathBuf {
    match MemberWord::parse(word) {
        MemberWord::Path(path) => std::path::absolute(&path).unwrap_or(path),
        _ => PathBuf::from(word),
    }
}

/// The process itself: answers the kernel until the tree is unmounted.
///
/// # Errors
/// Of the pool, the file system and FUSE.
pub fn serve_tree(args: &TreeProcess) -> Outcome {
    process::leave_session();
    let _ = std::env::set_current_dir("/");
    let mut runtime = Runtime::new(IoChoice::Auto)
        .map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    runtime.block_on(serve(&handle, args))
}

async fn serve(handle: &Handle, args: &TreeProcess) -> Outcome {
    let system = open_system(handle, &args.dataset, &args.members, args.txg).await?;
    let keeper = Rc::new(Keeper {
        system,
        nodes: Default::default(),
        names: Default::default(),
    });
    let (sender, mut questions) = mailbox(QUESTIONS_MAX);
    let _mounted = mount_tree(&args.folder, &args.dataset, move |request| {
        // A question that is not taken is dropped, which answers EIO.
        let _ = sender.send(request);
    })
    .map_err(|error| no_fuse(&error, &args.folder))?;
    let mut out = std::io::stdout();
    writeln!(out, "ready")
        .and_then(|()| out.flush())
        .map_err(|error| Problem::from_io(&error, "answering", "the command"))?;
    while let Some(request) = questions.receive().await {
        let keeper = Rc::clone(&keeper);
        let _detached = handle.spawn(async move { keeper.answer(request).await });
    }
    Ok(0)
}

/// What an attachment would be refused for before its first step.
fn rehearse(dataset: &str, members: &[String], txg: Option<u64>) -> Result<(), Problem> {
    Attachment::check(&dataset.replace('/', "-"))?;
    let mut runtime = Runtime::new(IoChoice::Auto)
        .map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    runtime
        .block_on(open_system(&handle, dataset, members, txg))
        .map(drop)
}

async fn open_system(
    handle: &Handle,
    dataset: &str,
    members: &[String],
    txg: Option<u64>,
) -> Result<FileSystem<AnyDevice>, Problem> {
    let pool = open_pool(handle, members, &OpenOptions { txg }).await?;
    for note in &pool.report.notes {
        crate::output::tell_line!("note: {note}");
    }
    let system = pool.file_system(&DatasetName::parse(dataset)).await;
    system.map_err(|error| {
        of_zfs(&error).hint(format!(
            "a volume is served by:   plexum serve --dataset {dataset} MEMBER..."
        ))
    })
}

/// The file system, and what was asked a moment ago.
struct Keeper {
    system: FileSystem<AnyDevice>,
    nodes: std::cell::RefCell<BTreeMap<u64, Rc<Node>>>,
    names: std::cell::RefCell<BTreeMap<u64, Rc<Vec<DirectoryEntry>>>>,
}

impl Keeper {
    async fn answer(&self, request: TreeRequest) {
        let answer = self.find(&request.question).await;
        request.answer(answer.map_err(|error| match error {
            ZfsError::NotFound(_) => Refusal::NotFound,
            error => {
                crate::output::tell_line!("error: {error}");
                Refusal::Io
            }
        }));
    }

    async fn find(&self, question: &Question) -> Result<Answer, ZfsError> {
        match question {
            Question::Lookup { parent, name } => {
                let names = self.names(*parent).await?;
                let found = names.binary_search_by(|entry| entry.name.cmp(name)).ok();
                let missing = || ZfsError::NotFound(String::new());
                let number = found.map(|at| names[at].object).ok_or_else(missing)?;
                Ok(Answer::Attributes(attributes(
                    number,
                    &*self.node(number).await?,
                )))
            }
            Question::Attributes { number } => Ok(Answer::Attributes(attributes(
                *number,
                &*self.node(*number).await?,
            ))),
            Question::Names { number } => {
                let names = self.names(*number).await?;
                let names = names.iter().map(|entry| Name {
                    name: entry.name.clone(),
                    number: entry.object,
                    kind: kind(entry.kind),
                });
                Ok(Answer::Names(names.collect()))
            }
            Question::Target { number } => {
                let node = self.node(*number).await?;
                Ok(Answer::Bytes(self.system.link_target(&node).await?))
            }
            Question::Read {
                number,
                offset_bytes,
                length_bytes,
            } => {
                let node = self.node(*number).await?;
                let bytes = self
                    .system
                    .read(&node, *offset_bytes, *length_bytes as usize)
                    .await?;
                Ok(Answer::Bytes(bytes))
            }
        }
    }

    async fn node(&self, number: u64) -> Result<Rc<Node>, ZfsError> {
        if let Some(node) = self.nodes.borrow().get(&number) {
            return Ok(Rc::clone(node));
        }
        let object = if number == ROOT {
            self.system.root()
        } else {
            number
        };
        let node = Rc::new(self.system.node(object).await?);
        keep(&mut self.nodes.borrow_mut(), number, &node);
        Ok(node)
    }

    async fn names(&self, number: u64) -> Result<Rc<Vec<DirectoryEntry>>, ZfsError> {
        if let Some(names) = self.names.borrow().get(&number) {
            return Ok(Rc::clone(names));
        }
        let node = self.node(number).await?;
        let names = Rc::new(self.system.entries(&node).await?);
        keep(&mut self.names.borrow_mut(), number, &names);
        Ok(names)
    }
}

/// Keeps a value; when there are too many, all others go: simple, and seldom.
fn keep<T>(kept: &mut BTreeMap<u64, Rc<T>>, number: u64, value: &Rc<T>) {
    if kept.len() >= KEPT_MAX {
        kept.clear();
    }
    kept.insert(number, Rc::clone(value));
}

fn kind(kind: FileKind) -> Kind {
    match kind {
        FileKind::File => Kind::File,
        FileKind::Directory => Kind::Directory,
        FileKind::Link => Kind::Link,
        FileKind::Special(_) => Kind::Special,
    }
}

fn attributes(number: u64, node: &Node) -> Attributes {
    let znode = &node.znode;
    let time = |time: plexum_format::zfs::znode::FileTime| (time.seconds, time.nanoseconds);
    Attributes {
        number,
        kind: kind(znode.kind()),
        size_bytes: znode.size_bytes,
        used_bytes: node.used_bytes(),
        mode: (znode.mode & 0o7777) as u16,
        user_id: znode.user_id,
        group_id: znode.group_id,
        link_count: u32::try_from(znode.link_count).unwrap_or(u32::MAX),
        block_bytes: u32::try_from(node.block_bytes()).unwrap_or(u32::MAX),
        times: [
            time(znode.accessed),
            time(znode.modified),
            time(znode.changed),
        ],
    }
}
