//! The servers people would take instead, as their packages start them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{SPAN_BYTES, Server, Volume, btrfs};
use crate::compare::Role;
use crate::process::{Process, need_program};
use crate::{BenchError, BenchOptions};

type Start<'a> = Box<dyn FnOnce(&BenchOptions, &Path) -> Result<Server, BenchError> + 'a>;

/// Everybody who serves this shape.
pub(super) fn contestants<'a>(
    shape: &str,
    volume: &'a Volume,
) -> Vec<(&'static str, Role, Start<'a>)> {
    let plexum: Start<'a> = Box::new(|options, folder| volume.serve(options, folder));
    let mut all = vec![("plexum", Role::Plexum, plexum)];
    let mut peer = |name, start: fn(&Path) -> Result<Server, BenchError>| {
        let start: Start<'a> = Box::new(move |_, folder| start(folder));
        all.push((name, Role::Peer, start));
    };
    match shape {
        "raw" => {
            peer("nbdkit memory", nbdkit_memory);
            peer("nbdkit file", nbdkit_file);
            peer("qemu-nbd", |folder| {
                qemu_nbd(folder, &image(folder, "raw")?, &[])
            });
            peer("storage daemon", |folder| storage_daemon(folder, 1));
            peer("nbd-server", nbd_server);
            all.push(("bare server", Role::Limit, Box::new(bare)));
        }
        "mirror of 2" => {
            peer("quorum", |folder| storage_daemon(folder, 2));
            peer("btrfs", |folder| btrfs::serve(folder, "raid1", 2));
        }
        "stripe of 4" => peer("btrfs", |folder| btrfs::serve(folder, "raid0", 4)),
        "RAID-10 of 4" => peer("btrfs", |folder| btrfs::serve(folder, "raid10", 4)),
        "RAID-5 of 4" => peer("btrfs", |folder| btrfs::serve(folder, "raid5", 4)),
        "RAID-6 of 6" => peer("btrfs", |folder| btrfs::serve(folder, "raid6", 6)),
        _ => {}
    }
    all
}

/// An empty file of the span.
fn image(folder: &Path, name: &str) -> Result<PathBuf, BenchError> {
    let path = folder.join(name);
    File::create(&path)
        .and_then(|file| file.set_len(SPAN_BYTES))
        .map_err(|error| BenchError(format!("{}: {error}", path.display())))?;
    Ok(path)
}

fn server(
    name: &str,
    command: &mut Command,
    folder: &Path,
    export: &str,
) -> Result<Server, BenchError> {
    Server::start(name, command, socket(folder), export)
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("s")
}

fn bare(options: &BenchOptions, folder: &Path) -> Result<Server, BenchError> {
    let mut command = Command::new(&options.program);
    command.args(["bench", "--bare-server"]);
    command.arg(socket(folder)).arg(image(folder, "raw")?);
    server("the bare server", &mut command, folder, "")
}

fn nbdkit(folder: &Path, plugin: &[&str]) -> Result<Server, BenchError> {
    let mut command = Command::new(need_program("nbdkit")?);
    command
        .arg("--foreground")
        .arg("--unix")
        .arg(socket(folder));
    server("nbdkit", command.args(plugin), folder, "")
}

fn nbdkit_memory(folder: &Path) -> Result<Server, BenchError> {
    nbdkit(folder, &["memory", &SPAN_BYTES.to_string()])
}

fn nbdkit_file(folder: &Path) -> Result<Server, BenchError> {
    let image = image(folder, "raw")?;
    nbdkit(folder, &["file", &image.to_string_lossy()])
}

/// qemu-nbd over a raw image.
pub(super) fn qemu_nbd(
    folder: &Path,
    image: &Path,
    options: &[&str],
) -> Result<Server, BenchError> {
    let mut command = Command::new(need_program("qemu-nbd")?);
    command.args(["--persistent", "--format=raw", "--shared=4"]);
    command.args(options).arg("--socket").arg(socket(folder));
    server("qemu-nbd", command.arg(image), folder, "")
}

/// qemu's storage daemon over one file, or over a quorum of copies of which one is read.
fn storage_daemon(folder: &Path, copies: usize) -> Result<Server, BenchError> {
    let mut command = Command::new(need_program("qemu-storage-daemon")?);
    let mut quorum = "driver=quorum,node-name=q,vote-threshold=1,read-pattern=fifo".to_owned();
    for copy in 0..copies {
        let path = image(folder, &format!("copy-{copy}"))?;
        let node = format!("driver=file,node-name=f{copy},filename={}", path.display());
        command.args(["--blockdev", &node]);
        quorum += &format!(",children.{copy}=f{copy}");
    }
    if copies > 1 {
        command.args(["--blockdev", &quorum]);
    }
    let node = if copies > 1 { "q" } else { "f0" };
    let socket = socket(folder);
    command.args([
        "--nbd-server".to_owned(),
        format!("addr.type=unix,addr.path={}", socket.display()),
        "--export".to_owned(),
        format!("type=nbd,id=e,node-name={node},name=x,writable=on"),
    ]);
    server("qemu-storage-daemon", &mut command, folder, "x")
}

/// nbd-server over one file. In the foreground it serves one connection and ends, so it runs in the background, with a
/// process for each connection. It listens long before it answers: first it makes parameters for TLS, which filling the
/// export waits for.
fn nbd_server(folder: &Path) -> Result<Server, BenchError> {
    let (socket, number, settings) = (
        socket(folder),
        folder.join("number"),
        folder.join("settings"),
    );
    let text = format!(
        "[generic]\nunixsock = {}\n[x]\nexportname = {}\n",
        socket.display(),
        image(folder, "raw")?.display()
    );
    std::fs::write(&settings, text)
        .map_err(|error| BenchError(format!("{}: {error}", settings.display())))?;
    let mut command = Command::new(need_program("nbd-server")?);
    command.arg("-C").arg(settings).arg("-p").arg(&number);
    let process = Process::start_in_background("nbd-server", &mut command, &number)?;
    Server::at(process, socket, "x")
}
