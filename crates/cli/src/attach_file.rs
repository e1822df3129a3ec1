//! The process below an attachment by FUSE: an NBD client of the server that shows the volume as a file. And what every
//! process of an attachment says to the command that started it.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use plexum_daemon::problem::{Code, Problem};
use plexum_export::fuse::{self, FileInfo};
use plexum_export::process;
use plexum_nbd::uri::NbdUri;
use plexum_runtime::mailbox::mailbox;
use plexum_runtime::process::join_write_out_path;
use plexum_runtime::{Handle, IoChoice, Runtime};
use serde::{Deserialize, Serialize};

use crate::args::AttachProcess;
use crate::bridge::{Bridge, Goal};
use crate::errors::Outcome;

/// Requests that wait for the volume's thread; the kernel has far fewer in flight.
const REQUESTS_MAX: usize = 1 << 16;

/// What the process says first.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The file or the device is there.
    Ready(Ready),
    /// The kernel's nbd cannot be used for it, in words; nothing was made.
    Unfit(String),
}

/// What there is to use.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ready {
    /// Its size in bytes.
    pub size_bytes: u64,
    /// Unit of requests in bytes.
    pub block_bytes: u32,
    /// Whether it can only be read.
    pub is_read_only: bool,
    /// By nbd: the device.
    pub device: Option<PathBuf>,
    /// By nbd: its connections to the server.
    pub connections: Option<usize>,
}

/// The process itself: serves the file until it is unmounted.
///
/// # Errors
/// The server does not answer, or FUSE is not allowed.
pub fn serve_file(args: &AttachProcess) -> Outcome {
    stay(async |handle| serve(handle, args).await)
}

/// Runs a process of an attachment until its work has ended. The kernel's write-out may wait for it.
///
/// # Errors
/// Of the work; the system does not let it do I/O.
pub fn stay(work: impl AsyncFnOnce(&Handle) -> Outcome) -> Outcome {
    process::leave_session();
    // Before any thread is started: they inherit it. Without it the device works, only less surely when memory is
    // short.
    let _ = join_write_out_path();
    // A folder that this process stands in could not be unmounted.
    let _ = std::env::set_current_dir("/");
    let mut runtime = Runtime::new(IoChoice::Auto)
        .map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    runtime.block_on(work(&handle))
}

/// The URI in an argument of such a process.
///
/// # Errors
/// `Usage`.
pub fn uri_of(text: &str) -> Result<NbdUri, Problem> {
    text.parse()
        .map_err(|error| Problem::new(Code::Usage, format!("{text}: {error}")))
}

async fn serve(handle: &Handle, args: &AttachProcess) -> Outcome {
    let goal = Goal {
        uri: uri_of(&args.uri)?,
        identity: args.identity.clone(),
        limit: Duration::from_secs(args.reconnect),
    };
    let bridge = Bridge::connect(handle, goal).await?;
    let info = bridge.info().clone();
    let ready = Ready {
        size_bytes: info.size_bytes,
        block_bytes: info.block_bytes_min,
        is_read_only: info.is_read_only,
        device: None,
        connections: None,
    };
    let (sender, mut requests) = mailbox(REQUESTS_MAX);
    let file = FileInfo {
        name: file_name(&args.file)?,
        size_bytes: ready.size_bytes,
        block_bytes: ready.block_bytes,
        is_read_only: ready.is_read_only,
    };
    let folder = args.file.parent().unwrap_or(Path::new("/"));
    let _mounted = fuse::mount(folder, file, move |request| {
        // A request that is not taken is dropped, which answers EIO.
        let _ = sender.send(request);
    })
    .map_err(|error| no_fuse(&error, folder))?;
    say(&Answer::Ready(ready))?;
    while let Some(request) = requests.receive().await {
        let _detached = handle.spawn(Rc::clone(&bridge).run(request));
    }
    Ok(0)
}

fn file_name(path: &Path) -> Result<String, Problem> {
    path.file_name()
        .and_then(|name| name.to_str())
        .map(str::to_owned)
        .ok_or_else(|| Problem::new(Code::Usage, "--file needs a name"))
}

/// Why FUSE is not to be had.
#[must_use]
pub fn no_fuse(error: &std::io::Error, folder: &Path) -> Problem {
    let mut problem = Problem::from_io(error, "mounting FUSE at", &folder.display().to_string());
    problem.message.truncate(problem.message.trim_end().len()); // fusermount3's words end a line
    problem.hints = vec!["FUSE as an ordinary user needs fusermount3 (package fuse3)".to_owned()];
    problem
}

/// The line that the command waits for.
///
/// # Errors
/// Nobody reads it.
pub fn say(answer: &Answer) -> Result<(), Problem> {
    use std::io::Write;
    let text = serde_json::to_string(answer).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Problem::from_io(&error, "answering", "the command"))
}
