//! The bare server: one file served with as little as possible between socket and file. It is the yardstick of what a
//! server that keeps nothing, checks nothing and knows no members would reach, never something to serve with.
//!
//! Every request that one receive brings is done by a plain read or write of the file; all answers go out in one send.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use plexum_nbd::wire::{
    MAGIC_GREETING, MAGIC_OPTION, MAGIC_OPTION_REPLY, MAGIC_REQUEST, MAGIC_SIMPLE_REPLY,
};

/// Options of the handshake: go (the size, then requests), information (the size).
const OPTION_GO: u32 = 7;
const OPTION_INFO: u32 = 6;
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
const REPLY_UNSUPPORTED: u32 = (1 << 31) + 1;
/// Transmission flags: has flags, takes flushes.
const FLAGS: u16 = 1 | 4;
/// Request types.
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const REQUEST_BYTES: usize = 28;
/// Longest request, and longest option: a client that asks for more is sent away.
const PAYLOAD_BYTES_MAX: usize = 1 << 25;
/// What one receive may bring.
const RECEIVE_BYTES: usize = 2 << 20;

/// Serves `file` at `socket` until the process is ended.
///
/// # Errors
/// The file or the socket cannot be opened.
pub fn serve(socket: &Path, file: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(file)?;
    let listener = UnixListener::bind(socket)?;
    for client in listener.incoming() {
        let (client, file) = (client?, file.try_clone()?);
        std::thread::spawn(move || serve_client(client, &file));
    }
    Ok(())
}

/// One client to its end; whatever it does wrong ends it.
fn serve_client(mut client: UnixStream, file: &File) -> io::Result<()> {
    negotiate(&mut client, file.metadata()?.len())?;
    let mut taken = vec![0u8; RECEIVE_BYTES];
    let (mut start, mut end) = (0, 0);
    let mut answers = Vec::with_capacity(RECEIVE_BYTES);
    loop {
        while let Some(used) = serve_one(&taken[start..end], file, &mut answers)? {
            if used == 0 {
                return Ok(());
            }
            start += used;
        }
        if !answers.is_empty() {
            client.write_all(&answers)?;
            answers.clear();
        }
        taken.copy_within(start..end, 0);
        (start, end) = (0, end - start);
        if taken.len() < end + RECEIVE_BYTES / 2 {
            taken.resize(end + RECEIVE_BYTES, 0);
        }
        let got = client.read(&mut taken[end..])?;
        if got == 0 {
            return Ok(());
        }
        end += got;
    }
}

fn number(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

/// Does the first request in `taken` if it is there in full: the bytes it used, 0 for a farewell.
fn serve_one(taken: &[u8], file: &File, answers: &mut Vec<u8>) -> io::Result<Option<usize>> {
    let Some(head) = taken.get(..REQUEST_BYTES) else {
        return Ok(None);
    };
    let kind = u16::from_be_bytes([head[6], head[7]]);
    let (offset, length) = (number(&head[16..24]), number(&head[24..28]) as usize);
    if number(&head[..4]) != u64::from(MAGIC_REQUEST) || length > PAYLOAD_BYTES_MAX {
        return Err(io::Error::other("no request"));
    }
    let mut used = REQUEST_BYTES;
    if kind == WRITE {
        let Some(data) = taken.get(REQUEST_BYTES..REQUEST_BYTES + length) else {
            return Ok(None);
        };
        file.write_all_at(data, offset)?;
        used += length;
    }
    answers.extend(MAGIC_SIMPLE_REPLY.to_be_bytes());
    answers.extend([0; 4]);
    answers.extend(&head[8..16]);
    match kind {
        WRITE => {}
        READ => {
            let at = answers.len();
            answers.resize(at + length, 0);
            file.read_exact_at(&mut answers[at..], offset)?;
        }
        FLUSH => file.sync_data()?,
        DISCONNECT => return Ok(Some(0)),
        _ => return Err(io::Error::other("a request that was not offered")),
    }
    Ok(Some(used))
}

fn negotiate(client: &mut UnixStream, size_bytes: u64) -> io::Result<()> {
    let mut greeting = Vec::new();
    greeting.extend(MAGIC_GREETING.to_be_bytes());
    greeting.extend(MAGIC_OPTION.to_be_bytes());
    greeting.extend(3u16.to_be_bytes()); // fixed newstyle, no zeroes
    client.write_all(&greeting)?;
    client.read_exact(&mut [0; 4])?;
    loop {
        let mut head = [0; 16];
        client.read_exact(&mut head)?;
        let (option, length) = (number(&head[8..12]) as u32, number(&head[12..]) as usize);
        if number(&head[..8]) != MAGIC_OPTION || length > PAYLOAD_BYTES_MAX {
            return Err(io::Error::other("no option"));
        }
        client.read_exact(&mut vec![0; length])?;
        let mut reply = |kind: u32, payload: &[u8]| {
            let mut bytes = Vec::new();
            bytes.extend(MAGIC_OPTION_REPLY.to_be_bytes());
            bytes.extend(option.to_be_bytes());
            bytes.extend(kind.to_be_bytes());
            bytes.extend((payload.len() as u32).to_be_bytes());
            bytes.extend(payload);
            client.write_all(&bytes)
        };
        if option == OPTION_GO || option == OPTION_INFO {
            let mut info = vec![0, 0];
            info.extend(size_bytes.to_be_bytes());
            info.extend(FLAGS.to_be_bytes());
            reply(REPLY_INFO, &info)?;
            reply(REPLY_ACK, &[])?;
        } else {
            reply(REPLY_UNSUPPORTED, &[])?;
        }
        if option == OPTION_GO {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Plain, fill};

    #[test]
    fn what_is_written_through_the_bare_server_is_in_the_file_and_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let (socket, path) = (folder.path().join("s"), folder.path().join("f"));
        std::fs::write(&path, vec![0; 4 << 20]).unwrap();
        let listener = UnixListener::bind(&socket).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .unwrap();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let _ = serve_client(client.unwrap(), &file);
            }
        });
        fill(&socket, "x", 4 << 20).unwrap();
        let mut plain = Plain::connect(&socket, "x").unwrap();
        let read = plain.read(3 << 20, 1 << 20).unwrap().to_vec();
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(read, bytes[3 << 20..]);
        assert_ne!(read[..4096], read[4096..8192]);
    }
}
