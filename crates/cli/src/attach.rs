//! `plexum attach`: a served volume as a block device, mounted when asked.
//!
//! Where the kernel has an NBD client and it may be used, the device is its own (`attach_nbd.rs`). Otherwise three
//! layers, each on the one before: a process that shows the volume as a FUSE file (`attach_file.rs`); for root a loop
//! device on that file; a mounted file system. `attachment.rs` undoes them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use plexum_daemon::problem::{Code, Problem};
use plexum_export::process;
use plexum_nbd::uri::{Address, NbdUri};
use serde_json::json;

use crate::args::{Attach, AttachBy, Common};
use crate::attach_file::{Answer, Ready};
use crate::attachment::Attachment;
use crate::bridge::identity;
use crate::client::Client;
use crate::errors::Outcome;
use crate::output::{Screen, object};
use crate::system::{tool, wait_for};
use crate::{attach_nbd, attach_tree, attach_ublk, attach_unit};

/// What is to be attached, and where.
struct Plan {
    uri: NbdUri,
    identity: Option<String>,
    /// How long requests wait for a server that is away.
    reconnect_s: u64,
    /// By nbd: connections, and when a request is sent again.
    connections: u16,
    timeout_s: u64,
    mountpoint: Option<PathBuf>,
}

/// By what the kernel is to reach the volume.
struct Way {
    by: AttachBy,
    /// Nobody has asked for it: when it cannot be, another will do.
    is_default: bool,
    /// Why not by one that would come before it.
    why: Option<String>,
}

/// Runs the command: returns when the device is there.
///
/// # Errors
/// No such volume, attached already, neither nbd nor FUSE, or what a tool of the system says.
pub fn run(args: &Attach, common: &Common, screen: &Screen) -> Outcome {
    if args.dataset.is_some() {
        return attach_tree::run(args, common, screen);
    }
    let (volume, mountpoint) = words(args)?;
    let client = find(volume, Duration::from_secs(args.wait))?;
    let name = client.volume.clone();
    let mountpoint = mountpoint.map(check_mountpoint).transpose()?;
    let mut way = choose(args)?;
    let plan = Plan {
        uri: uri(&client)?,
        identity: identity(&client),
        reconnect_s: args.reconnect,
        connections: args.connections.unwrap_or(attach_nbd::CONNECTIONS),
        timeout_s: args.timeout_s.unwrap_or(attach_nbd::TIMEOUT_S),
        mountpoint,
    };
    if common.dry_run {
        Attachment::check(&name)?;
        screen.line(format!("would attach {name} {}", by_words(&way, None)));
        let fields = json!({"command": "attach", "mountpoint": plan.mountpoint});
        screen.object(&object("plan", Some(&name), fields));
        return Ok(0);
    }
    let mut attachment = Attachment::begin(&name)?;
    let _ = client.tell_attached(); // an older server knows nothing of it
    let result = set_up(&client, &mut attachment, &plan, &mut way, common.json);
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
    tell(&attachment, &ready, &way, screen);
    Ok(0)
}

/// The volume's server, waited for when it is not there yet.
fn find(volume: Option<&str>, limit: Duration) -> Result<Client, Problem> {
    let mut found = Client::find(volume);
    wait_for(limit, || {
        let is_late = found
            .as_ref()
            .is_err_and(|problem| matches!(problem.code, Code::NoSuchVolume | Code::NoServer));
        if is_late {
            found = Client::find(volume);
        }
        !is_late
    });
    found
}

/// By nbd where the kernel and this user's rights have it, else by FUSE; or what was asked for.
fn choose(args: &Attach) -> Result<Way, Problem> {
    let is_default = args.by.is_none();
    let is_of_nbd = args.connections.is_some() || args.timeout_s.is_some();
    if args.by == Some(AttachBy::Fuse) {
        if is_of_nbd {
            let text = "--connections and --timeout are for --by nbd";
            return Err(Problem::new(Code::Usage, text));
        }
        check_fuse(None)?;
        return Ok(Way {
            by: AttachBy::Fuse,
            is_default,
            why: None,
        });
    }
    let is_of_ublk = args.by == Some(AttachBy::Ublk);
    if is_of_ublk || is_default && !is_of_nbd {
        match attach_ublk::check() {
            Ok(()) => {
                return Ok(Way {
                    by: AttachBy::Ublk,
                    is_default,
                    why: None,
                });
            }
            Err(why) if is_default => return without_ublk(is_default, Some(why)),
            Err(why) => return Err(no_ublk(&why)),
        }
    }
    without_ublk(is_default, None)
}

/// By nbd, else by FUSE. `no_ublk`: why not by ublk, where that was tried.
fn without_ublk(is_default: bool, no_ublk: Option<String>) -> Result<Way, Problem> {
    match attach_nbd::check() {
        Ok(()) => Ok(Way {
            by: AttachBy::Nbd,
            is_default,
            why: no_ublk,
        }),
        Err(why) if is_default => {
            check_fuse(Some(&why))?;
            let why = [Some(why), no_ublk].into_iter().flatten();
            Ok(Way {
                by: AttachBy::Fuse,
                is_default,
                why: Some(why.collect::<Vec<_>>().join("; ")),
            })
        }
        Err(why) => Err(no_nbd(&why)),
    }
}

fn no_ublk(why: &str) -> Problem {
    Problem::new(Code::NotPermitted, why).hint("without it:   plexum attach")
}

fn no_nbd(why: &str) -> Problem {
    Problem::new(Code::NotPermitted, why).hint("without it:   plexum attach --by fuse")
}

/// How the volume is reached, and why not otherwise.
fn by_words(way: &Way, connections: Option<usize>) -> String {
    let by = match (way.by, connections) {
        (AttachBy::Ublk, _) => "by the kernel's ublk".to_owned(),
        (AttachBy::Nbd, Some(1)) => "by the kernel's nbd, over 1 connection".to_owned(),
        (AttachBy::Nbd, Some(count)) => format!("by the kernel's nbd, over {count} connections"),
        (AttachBy::Nbd, None) => "by the kernel's nbd".to_owned(),
        (AttachBy::Fuse, _) if process::is_root() => "by FUSE and a loop device".to_owned(),
        (AttachBy::Fuse, _) => "by FUSE".to_owned(),
    };
    let why = way.why.as_ref();
    why.map_or(by.clone(), |why| format!("{by}: {why}"))
}

fn tell(attachment: &Attachment, ready: &Ready, way: &Way, screen: &Screen) {
    let status = attachment.status();
    screen.line(status.device.as_ref().unwrap_or(&status.file));
    screen.note(by_words(way, ready.connections));
    if let Some(mountpoint) = &attachment.mountpoint {
        screen.note(format!("mounted at {}", mountpoint.display()));
    } else if attachment.device.is_none() {
        screen.note("this is a file; a block device needs root");
    }
    screen.object(&object(
        "attached",
        Some(&attachment.volume),
        json!({"by": status.by, "why": way.why, "connections": ready.connections,
            "device": status.device, "file": status.file, "mountpoint": attachment.mountpoint,
            "pid": attachment.process.as_ref().map(|process| process.pid),
            "size_bytes": ready.size_bytes, "block_bytes": ready.block_bytes,
            "is_read_only": ready.is_read_only}),
    ));
}

/// Volume and mount point. One word alone is a mount point when it looks like a path; who waits for a volume names it,
/// and a unit stands in the root folder, where there is a `home`.
fn words(args: &Attach) -> Result<(Option<&str>, Option<&str>), Problem> {
    let is_path = |word: &str| word.contains('/') || args.wait == 0 && Path::new(word).exists();
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

/// `why_not_nbd`: why it has to be FUSE.
fn check_fuse(why_not_nbd: Option<&str>) -> Result<(), Problem> {
    if Path::new("/dev/fuse").exists() {
        return Ok(());
    }
    let problem = Problem::new(Code::NotPermitted, "there is no /dev/fuse here")
        .hint("to load FUSE, as root:   modprobe fuse");
    Err(match why_not_nbd {
        Some(why) => problem.why(why.to_owned()),
        None => problem,
    })
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
    client: &Client,
    attachment: &mut Attachment,
    plan: &Plan,
    way: &mut Way,
    as_json: bool,
) -> Result<Result<Ready, u8>, Problem> {
    if way.by == AttachBy::Ublk {
        match attach_ublk::make(client) {
            Ok((ready, origin)) => {
                attachment.ublk = Some(origin);
                finish(attachment, plan, &ready)?;
                return Ok(Ok(ready));
            }
            Err(why) if way.is_default => *way = without_ublk(way.is_default, Some(why))?,
            Err(why) => return Err(no_ublk(&why)),
        }
    }
    let mut started = start(attachment, plan, way.by, as_json)?;
    if let Ok(Answer::Unfit(why)) = started {
        if !way.is_default {
            return Err(no_nbd(&why));
        }
        check_fuse(Some(&why))?;
        let why = [Some(why), way.why.take()].into_iter().flatten();
        (way.by, way.why) = (AttachBy::Fuse, Some(why.collect::<Vec<_>>().join("; ")));
        started = start(attachment, plan, way.by, as_json)?;
    }
    let ready = match started {
        Ok(Answer::Ready(ready)) => ready,
        Ok(Answer::Unfit(why)) => return Err(no_nbd(&why)),
        Err(exit) => return Ok(Err(exit)),
    };
    finish(attachment, plan, &ready)?;
    Ok(Ok(ready))
}

/// What stands on the lowest layer: device, its name, mount.
fn finish(attachment: &mut Attachment, plan: &Plan, ready: &Ready) -> Result<(), Problem> {
    attachment.is_read_only = ready.is_read_only;
    attachment.device = match &ready.device {
        Some(device) => Some(device.clone()),
        None if process::is_root() => Some(make_device(attachment, ready)?),
        None => None,
    };
    attachment.save()?;
    attachment.link()?;
    if let (Some(device), Some(mountpoint)) = (attachment.device.clone(), &plan.mountpoint) {
        attachment.mountpoint = Some(mountpoint.clone());
        attachment.save()?;
        mount(&device, mountpoint, ready.is_read_only)?;
    }
    Ok(())
}

/// The process that is to be started, with its words.
fn command(attachment: &Attachment, plan: &Plan, as_json: bool) -> std::io::Result<Command> {
    let mut command = attach_unit::command(&attachment.volume)?;
    match &attachment.nbd {
        Some(identifier) => command
            .arg("attach-nbd-process")
            .args(["--identifier", identifier])
            .args(["--connections", &plan.connections.to_string()])
            .args(["--timeout", &plan.timeout_s.to_string()]),
        None => command
            .arg("attach-process")
            .arg("--file")
            .arg(attachment.file()),
    };
    if as_json {
        command.arg("--json");
    }
    if let Some(identity) = &plan.identity {
        command.args(["--identity", identity]);
    }
    command
        .args(["--uri", &plan.uri.to_string()])
        .args(["--reconnect", &plan.reconnect_s.to_string()]);
    Ok(command)
}

/// Starts the process and waits for its line. The inner error is its exit code; its words were printed.
fn start(
    attachment: &mut Attachment,
    plan: &Plan,
    by: AttachBy,
    as_json: bool,
) -> Result<Result<Answer, u8>, Problem> {
    // Written down before there is a device: it is found by it whatever happens.
    attachment.nbd = match by {
        AttachBy::Nbd => Some(attach_nbd::new_identifier(&attachment.volume)),
        AttachBy::Fuse | AttachBy::Ublk => None,
    };
    attachment.save()?;
    let command = command(attachment, plan, as_json);
    let started = attachment.start(command)?;
    let answer = serde_json::from_str(&started.line);
    if let Ok(ready @ Answer::Ready(_)) = answer {
        return Ok(Ok(ready));
    }
    let exit = attachment.wait(started)?;
    if let Ok(unfit) = answer {
        return Ok(Ok(unfit));
    }
    attachment.tell_log();
    Ok(Err(exit))
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
