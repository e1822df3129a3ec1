//! Calling smartctl. The command line and what its answer means are the inventory's.

use std::io::{ErrorKind, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

use plexum_inventory::health::{
    DOCUMENT_BYTES_MAX, DeviceType, Ended, ExitStatus as Bits, Report, Silence, command_line, read,
};

/// Asks the disk of this kernel's name how it is. Returns when smartctl has ended, which a disk that hangs can keep
/// from it for ever: for a thread of its own.
#[must_use]
pub fn ask(name: &str) -> Report {
    // In names of the kernel a `!` stands for the slash of the node.
    let device = format!("/dev/{}", name.replace('!', "/"));
    let line = match command_line(&device, DeviceType::Detected) {
        Ok(line) => line,
        Err(bad) => return cannot_open(bad.to_string()),
    };
    let Some((program, words)) = line.split_first() else {
        return Report::Silent(Silence::NotInstalled);
    };
    let mut command = Command::new(program);
    command
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return read(&[], Ended::NotInstalled);
        }
        Err(error) => return cannot_open(format!("{program}: {error}")),
    };
    let mut document = Vec::new();
    if let Some(out) = child.stdout.take() {
        // What cannot be read is no document, and is told as that.
        let _ = out
            .take(DOCUMENT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut document);
    }
    match child.wait() {
        Ok(status) => read(&document, ended(status)),
        Err(error) => cannot_open(format!("{program}: {error}")),
    }
}

fn cannot_open(message: String) -> Report {
    Report::Silent(Silence::CannotOpen {
        message: Some(message),
    })
}

fn ended(status: ExitStatus) -> Ended {
    match (status.code(), status.signal()) {
        (Some(code), _) => Ended::Exited(Bits(u8::try_from(code & 0xff).unwrap_or(u8::MAX))),
        (None, signal) => Ended::Killed {
            signal: signal.unwrap_or(0),
        },
    }
}
