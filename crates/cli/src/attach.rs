//! `plexum attach`: a served volume as a block device, mounted when asked.
//!
//! Three layers, each on the one before: a process that is an NBD client of the server and shows the volume as a FUSE
//! file; for root a loop device on that file; a mounted file system. `attachment.rs` undoes them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use plexum_daemon::problem::{Code, Problem};
use plexum_export::fuse::{self, FileInfo};
use plexum_export::process;
use plexum_nbd::uri::{Address, NbdUri};
use plexum_runtime::mailbox::mailbox;
use plexum_runtime::process::join_write_out_path;
use plexum_runtime::{Handle, IoChoice, Runtime};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::{Attach, AttachProcess, Common};
use crate::attach_tree;
use crate::attachment::{Attachment, Process, tool};
use crate::bridge::{Bridge, Goal, identity};
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, object};

/// Requests that wait for the volume's thread; the kernel has far fewer in flight.
const REQUESTS_MAX: usize = 1 << 16;

/// What is to be attached, and where.
struct Plan {
    uri: NbdUri,
    identity: Option<String>,
    /// How long requests wait for a server that is away.
    reconnect_s: u64,
    mountpoint: Option<PathBuf>,
}

/// What the process says when the file is there.
#[derive(Debug, Serialize, Deserialize)]
struct Ready {
    size_bytes: u64,
    block_bytes: u32,
    is_read_only: bool,
}

/// Runs the command: returns when the device is there.
///
/// # Errors
/// No such volume, attached already, no FUSE, or what a tool of the system says.
pub fn run(args: &Attach, common: &Common, screen: &Screen) -> Outcome {
    if args.dataset.is_some() {
        return attach_tree::run(args, common, screen);
    }
    let (volume, mountpoint) = words(args)?;
    let client = Client::find(volume)?;
    let name = client.volume.clone();
    let mountpoint = mountpoint.map(check_mountpoint).transpose()?;
    check_fuse(&client)?;
    if common.dry_run {
        uri(&client)?;
        Attachment::check(&name)?;
        screen.line(format!("would attach {name}"));
        let fields = json!({"command": "attach", "mountpoint": mountpoint});
        screen.object(&object("plan", Some(&name), fields));
        return Ok(0);
    }
    let plan = Plan {
        uri: uri(&client)?,
        identity: identity(&client),
        reconnect_s: args.reconnect,
        mountpoint,
    };
    let mut attachment = Attachment::begin(&name)?;
    let _ = client.tell_attached(); // an older server knows nothing of it
    let result = set_up(&mut attachment, plan, common.json);
    let ready = match result {
        Ok(Ok(ready)) => ready,
        Ok(Err(exit)) => {
            attachment.undo()?;
            return Ok(exit);
        }
        Err(problem) => {
            if let Err(left) = attachment.undo() {
                screen.note(format!("not all was undone: {left}"));
            }
            return Err(problem);
        }
    };
    tell(&attachment, &ready, screen);
    Ok(0)
}

fn tell(attachment: &Attachment, ready: &Ready, screen: &Screen) {
    let file = attachment.file();
    let device = attachment.device.as_ref().unwrap_or(&file);
    screen.line(device.display().to_string());
    if let Some(mountpoint) = &attachment.mountpoint {
        screen.note(format!("mounted at {}", mountpoint.display()));
    } else if attachment.device.is_none() {
        screen.note("this is a file; a block device needs root");
    }
    screen.object(&object(
        "attached",
        Some(&attachment.volume),
        json!({"device": attachment.device, "file": file, "mountpoint": attachment.mountpoint,
            "pid": attachment.process.as_ref().map(|process| process.pid),
            "size_bytes": ready.size_bytes, "block_bytes": ready.block_bytes,
            "is_read_only": ready.is_read_only}),
    ));
}

/// Volume and mount point. One word alone is a mount point when it looks like a path.
fn words(args: &Attach) -> Result<(Option<&str>, Option<&str>), Problem> {
    let is_path = |word: &str| word.contains('/') || Path::new(word).exists();
    match (args.volume.as_deref(), args.mountpoint.as_deref()) {
        (Some(word), None) if is_path(word) => Ok((None, Some(word))),
        (Some(word), Some(_)) if word.contains('/') => Err(Problem::new(
            Code::Usage,
            format!("{word} is no name of a volume"),
        )
        .hint("plexum attach VOLUME MOUNTPOINT")),
        both => Ok(both),
    }
}

fn check_mountpoint(word: &str) -> Result<PathBuf, Problem> {
    if !process::is_root() {
        let text = format!("mounting at {word} needs root");
        return Err(Problem::new(Code::NotPermitted, text)
            .hint("without a mount point the volume becomes a file:   plexum attach"));
    }
    let path = std::fs::canonicalize(word)
        .map_err(|error| Problem::from_io(&error, "looking at the mount point", word));
    match path {
        Ok(path) if path.is_dir() => Ok(path),
        Ok(_) => Err(Problem::new(
            Code::Usage,
            format!("mount point {word} is not a folder"),
        )),
        Err(mut problem) => {
            problem.hints = vec![format!("to make it:   mkdir -p {word}")];
            Err(problem)
        }
    }
}

/// The kernel's own NBD client needs no FUSE, but also nothing of ours: it is left to its own tool.
fn check_fuse(client: &Client) -> Result<(), Problem> {
    if Path::new("/dev/fuse").exists() {
        return Ok(());
    }
    let problem = Problem::new(Code::NotPermitted, "there is no /dev/fuse here")
        .hint("to load FUSE, as root:   modprobe fuse");
    if !Path::new("/sys/module/nbd").exists() {
        return Err(problem);
    }
    let uri = uri(client)?;
    let Address::Unix(path) = &uri.address else {
        return Err(problem);
    };
    Err(problem.hint(format!(
        "or use the kernel's nbd:   nbd-client -unix {path} -name {} /dev/nbd0",
        uri.export
    )))
}

/// The URI of the volume's Unix socket.
fn uri(client: &Client) -> Result<NbdUri, Problem> {
    let status = client.status()?;
    let found = status.exports.iter().find_map(|export| {
        let uri: NbdUri = export.uri.parse().ok()?;
        matches!(uri.address, Address::Unix(_)).then_some(uri)
    });
    let mut uri = found.ok_or_else(|| {
        let text = format!("the server of {} has no Unix socket", client.volume);
        Problem::new(Code::NoServer, text)
    })?;
    if let Address::Unix(path) = &mut uri.address {
        *path = std::path::absolute(&*path)
            .map_err(|error| Problem::from_io(&error, "looking at socket", path))?
            .to_string_lossy()
            .into_owned();
    }
    Ok(uri)
}

/// All layers, lowest first. The inner error is the exit code of the process, whose words were printed.
fn set_up(
    attachment: &mut Attachment,
    plan: Plan,
    as_json: bool,
) -> Result<Result<Ready, u8>, Problem> {
    let ready = match start(attachment, &plan, as_json)? {
        Ok(ready) => ready,
        Err(exit) => return Ok(Err(exit)),
    };
    attachment.is_read_only = ready.is_read_only;
    if process::is_root() {
        attachment.device = Some(make_device(attachment, &ready)?);
        attachment.save()?;
    }
    if let (Some(device), Some(mountpoint)) = (attachment.device.clone(), plan.mountpoint) {
        attachment.mountpoint = Some(mountpoint.clone());
        attachment.save()?;
        mount(&device, &mountpoint, ready.is_read_only)?;
    }
    Ok(Ok(ready))
}

/// Starts the process and waits for its line.
fn start(
    attachment: &mut Attachment,
    plan: &Plan,
    as_json: bool,
) -> Result<Result<Ready, u8>, Problem> {
    let failed = |error: std::io::Error| {
        Problem::from_io(&error, "starting", "the process of the attachment")
    };
    let log = attachment.log();
    let errors = std::fs::File::create(&log).map_err(failed)?;
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.arg("attach-process");
    if as_json {
        command.arg("--json");
    }
    if let Some(identity) = &plan.identity {
        command.arg("--identity").arg(identity);
    }
    let mut child = command
        .arg("--uri")
        .arg(plan.uri.to_string())
        .arg("--file")
        .arg(attachment.file())
        .arg("--reconnect")
        .arg(plan.reconnect_s.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors)
        .spawn()
        .map_err(failed)?;
    attachment.process = Process::find(child.id());
    attachment.save()?;
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        BufReader::new(out).read_line(&mut line).map_err(failed)?;
    }
    if let Ok(ready) = serde_json::from_str(&line) {
        return Ok(Ok(ready));
    }
    let status = child.wait().map_err(failed)?;
    attachment.process = None;
    crate::output::tell_part!("{}", std::fs::read_to_string(&log).unwrap_or_default());
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(Err(code.unwrap_or(Code::Bug.exit())))
}

fn make_device(attachment: &Attachment, ready: &Ready) -> Result<PathBuf, Problem> {
    let mut command = Command::new("losetup");
    command
        .args(["--find", "--show", "--direct-io=on", "--sector-size"])
        .arg(ready.block_bytes.to_string());
    if ready.is_read_only {
        command.arg("--read-only");
    }
    tool(command.arg(attachment.file()))
        .map(PathBuf::from)
        .map_err(|words| {
            Problem::new(
                Code::IoError,
                format!("no loop device for the volume: {words}"),
            )
            .hint("losetup comes with util-linux; loop devices with:   modprobe loop")
        })
}

fn mount(device: &Path, mountpoint: &Path, is_read_only: bool) -> Result<(), Problem> {
    let mut command = Command::new("mount");
    if is_read_only {
        command.args(["-o", "ro"]);
    }
    tool(command.arg(device).arg(mountpoint)).map_err(|words| {
        Problem::new(Code::IoError, format!("the volume cannot be mounted: {words}")).hint(
            "if it has no file system yet:   plexum attach, mkfs on the device it names, plexum detach",
        )
    })?;
    Ok(())
}

/// The process itself: serves the file until it is unmounted.
///
/// # Errors
/// The server does not answer, or FUSE is not allowed.
pub fn serve_file(args: &AttachProcess) -> Outcome {
    process::leave_session();
    // Before any thread is started: they inherit it. Without it the device works, only less surely when memory is short.
    let _ = join_write_out_path();
    // A folder that this process stands in could not be unmounted.
    let _ = std::env::set_current_dir("/");
    let mut runtime = Runtime::new(IoChoice::Auto)
        .map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    runtime.block_on(serve(&handle, args))
}

async fn serve(handle: &Handle, args: &AttachProcess) -> Outcome {
    let uri: NbdUri = args
        .uri
        .parse()
        .map_err(|error| Problem::new(Code::Usage, format!("{}: {error}", args.uri)))?;
    let goal = Goal {
        uri,
        identity: args.identity.clone(),
        limit: Duration::from_secs(args.reconnect),
    };
    let bridge = Bridge::connect(handle, goal).await?;
    let info = bridge.info().clone();
    let ready = Ready {
        size_bytes: info.size_bytes,
        block_bytes: info.block_bytes_min,
        is_read_only: info.is_read_only,
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
    say(&ready)?;
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

pub(crate) fn no_fuse(error: &std::io::Error, folder: &Path) -> Problem {
    let mut problem = Problem::from_io(error, "mounting FUSE at", &folder.display().to_string());
    problem.message.truncate(problem.message.trim_end().len()); // fusermount3's words end a line
    problem.hints = vec!["FUSE as an ordinary user needs fusermount3 (package fuse3)".to_owned()];
    problem
}

/// The line that the command waits for.
fn say(ready: &Ready) -> Result<(), Problem> {
    use std::io::Write;
    let text = serde_json::to_string(ready).unwrap_or_default();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Problem::from_io(&error, "answering", "the command"))
}
