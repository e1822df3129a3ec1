//! Who asks the served volumes: fio's nbd engine, or a plain client of our own where fio has none. The same for all
//! servers.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use plexum_nbd::wire::{
    MAGIC_GREETING, MAGIC_OPTION, MAGIC_OPTION_REPLY, MAGIC_REQUEST, MAGIC_SIMPLE_REPLY,
};

use crate::BenchError;
use crate::load::Pattern;
use crate::process::{find_program, output};

/// Option "go": the export's size, then requests.
const OPTION_GO: u32 = 7;
/// Replies to options: done; information.
const REPLY_ACK: u32 = 1;
const REPLY_INFO: u32 = 3;
/// Request types.
const READ: u16 = 0;
const WRITE: u16 = 1;
/// A read's answer is no longer than the longest request.
const OPTION_REPLY_BYTES_MAX: u32 = 1 << 16;

/// What came out of one load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Served {
    pub requests: f64,
    pub iops: f64,
    pub bytes_per_s: f64,
}

/// Which program asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    Fio(PathBuf),
    Plain,
}

impl Client {
    /// fio where it knows nbd.
    pub fn find() -> Self {
        let fio = find_program("fio");
        let knows = fio.filter(|fio| {
            let engines = output(Command::new(fio).arg("--enghelp"));
            engines.is_ok_and(|text| text.lines().any(|line| line.trim() == "nbd"))
        });
        knows.map_or(Client::Plain, Client::Fio)
    }

    /// The client in words.
    pub fn words(&self) -> &'static str {
        match self {
            Client::Fio(_) => "fio, nbd engine",
            Client::Plain => "a plain client of our own (fio knows no nbd here)",
        }
    }

    /// Asks for `time`, inside the first `span_bytes`.
    pub fn load(
        &self,
        socket: &Path,
        export: &str,
        span_bytes: u64,
        pattern: Pattern,
        time: Duration,
    ) -> Result<Served, BenchError> {
        match self {
            Client::Fio(fio) => {
                let mut command = fio_command(fio, socket, export, span_bytes, pattern);
                let time = format!("--runtime={}ms", time.as_millis());
                command.args(["--time_based", &time]);
                read_fio(&output(&mut command)?, pattern.is_write)
            }
            Client::Plain => Plain::connect(socket, export)
                .and_then(|mut plain| plain.load(span_bytes, pattern, time))
                .map_err(|error| BenchError(format!("{}: {error}", socket.display()))),
        }
    }
}

/// Writes all of the span once, so that no measurement pays for memory that was never touched.
pub(crate) fn fill(socket: &Path, export: &str, span_bytes: u64) -> Result<(), BenchError> {
    let mut filled = fill_by_turns(&[(socket, export)], span_bytes);
    filled.pop().expect("one was asked for")
}

/// As `fill`, for many servers, piece by piece in turn: all get the same mixture of memory. Who is filled first gets
/// the pages that were in use before, which lie scattered, and is up to a fifth slower in large transfers than the same
/// program filled last.
pub(crate) fn fill_by_turns(
    servers: &[(&Path, &str)],
    span_bytes: u64,
) -> Vec<Result<(), BenchError>> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut clients: Vec<io::Result<Plain>> = servers
        .iter()
        .map(|(socket, export)| Plain::connect(socket, export))
        .collect();
    // No two blocks alike: who finds equal ones or zeroes gets nothing from it.
    let mut data = vec![0u8; PIECE_BYTES];
    let mut random = 88_172_645_463_325_252u64;
    for offset in (0..span_bytes).step_by(PIECE_BYTES) {
        for word in data.chunks_exact_mut(8) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            word.copy_from_slice(&random.to_le_bytes());
        }
        for client in &mut clients {
            if let Ok(plain) = client
                && let Err(error) = plain.write(offset, &data)
            {
                *client = Err(error);
            }
        }
    }
    let told = |(client, (_, export)): (io::Result<Plain>, &(&Path, &str))| match client {
        Ok(_) => Ok(()),
        Err(error) => Err(BenchError(format!("filling {export}: {error}"))),
    };
    clients.into_iter().zip(servers).map(told).collect()
}

fn fio_command(
    fio: &Path,
    socket: &Path,
    export: &str,
    span_bytes: u64,
    pattern: Pattern,
) -> Command {
    let direction = match (pattern.is_sequential, pattern.is_write) {
        (true, false) => "read",
        (true, true) => "write",
        (false, false) => "randread",
        (false, true) => "randwrite",
    };
    let mut command = Command::new(fio);
    command.args(["--name=load", "--ioengine=nbd", "--output-format=json"]);
    command.args([
        format!("--uri=nbd+unix:///{export}?socket={}", socket.display()),
        format!("--rw={direction}"),
        format!("--bs={}", pattern.request_bytes),
        format!("--iodepth={}", pattern.depth),
        format!("--size={span_bytes}"),
    ]);
    command
}

/// The figures of fio's report, which may stand behind notes.
fn read_fio(text: &str, is_write: bool) -> Result<Served, BenchError> {
    let report = text.find('{').map_or("", |at| &text[at..]);
    let report: serde_json::Value = serde_json::from_str(report)
        .map_err(|error| BenchError(format!("fio's report: {error}")))?;
    let direction = if is_write { "write" } else { "read" };
    let figures = &report["jobs"][0][direction];
    let number = |name: &str| {
        figures[name]
            .as_f64()
            .ok_or_else(|| BenchError(format!("fio's report has no {direction}.{name}")))
    };
    let served = Served {
        requests: number("total_ios")?,
        iops: number("iops")?,
        bytes_per_s: number("bw_bytes")?,
    };
    if served.requests < 1.0 {
        return Err(BenchError("fio did nothing".to_owned()));
    }
    Ok(served)
}

/// A client that asks and waits, with as many requests under way as told.
pub(crate) struct Plain {
    socket: UnixStream,
    data: Vec<u8>,
}

impl Plain {
    pub fn connect(socket: &Path, export: &str) -> std::io::Result<Self> {
        let mut socket = UnixStream::connect(socket)?;
        let mut greeting = [0; 18];
        socket.read_exact(&mut greeting)?;
        if greeting[..8] != MAGIC_GREETING.to_be_bytes() {
            return Err(std::io::Error::other("no NBD server"));
        }
        let name_bytes = u32::try_from(export.len()).map_err(std::io::Error::other)?;
        let mut hello = Vec::new();
        hello.extend(3u32.to_be_bytes()); // fixed newstyle, no zeroes
        hello.extend(MAGIC_OPTION.to_be_bytes());
        hello.extend(OPTION_GO.to_be_bytes());
        hello.extend((name_bytes + 6).to_be_bytes());
        hello.extend(name_bytes.to_be_bytes());
        hello.extend(export.as_bytes());
        hello.extend(0u16.to_be_bytes()); // no information is asked for: the size comes anyway
        socket.write_all(&hello)?;
        loop {
            let mut head = [0; 20];
            socket.read_exact(&mut head)?;
            let number = |at: usize| {
                u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]])
            };
            let (kind, length) = (number(12), number(16));
            if head[..8] != MAGIC_OPTION_REPLY.to_be_bytes() || length > OPTION_REPLY_BYTES_MAX {
                return Err(std::io::Error::other("no reply to an option"));
            }
            let mut rest = vec![0; length as usize];
            socket.read_exact(&mut rest)?;
            match kind {
                REPLY_ACK => break,
                REPLY_INFO => {}
                _ => return Err(std::io::Error::other(format!("no export {export}"))),
            }
        }
        let data = Vec::new();
        Ok(Self { socket, data })
    }

    /// Reads once.
    pub fn read(&mut self, offset_bytes: u64, length_bytes: usize) -> std::io::Result<&[u8]> {
        self.data.resize(length_bytes, 0);
        self.ask(READ, offset_bytes, length_bytes)?;
        self.answer(length_bytes)?;
        Ok(&self.data)
    }

    fn write(&mut self, offset_bytes: u64, data: &[u8]) -> std::io::Result<()> {
        self.ask(WRITE, offset_bytes, data.len())?;
        self.socket.write_all(data)?;
        self.answer(0)
    }

    fn ask(&mut self, kind: u16, offset_bytes: u64, length_bytes: usize) -> std::io::Result<()> {
        let length = u32::try_from(length_bytes).map_err(std::io::Error::other)?;
        let mut request = [0; 28];
        request[..4].copy_from_slice(&MAGIC_REQUEST.to_be_bytes());
        request[6..8].copy_from_slice(&kind.to_be_bytes());
        request[16..24].copy_from_slice(&offset_bytes.to_be_bytes());
        request[24..].copy_from_slice(&length.to_be_bytes());
        self.socket.write_all(&request)
    }

    fn answer(&mut self, payload_bytes: usize) -> std::io::Result<()> {
        let mut reply = [0; 16];
        self.socket.read_exact(&mut reply)?;
        if reply[..4] != MAGIC_SIMPLE_REPLY.to_be_bytes() || reply[4..8] != [0; 4] {
            return Err(std::io::Error::other("a request failed"));
        }
        self.socket.read_exact(&mut self.data[..payload_bytes])
    }

    fn load(
        &mut self,
        span_bytes: u64,
        pattern: Pattern,
        time: Duration,
    ) -> std::io::Result<Served> {
        let length = pattern.request_bytes;
        self.data.resize(length, 0);
        let data = vec![0x5a; length];
        let slots = span_bytes / length as u64;
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut next = 0u64;
        let mut send = |plain: &mut Self| {
            let slot = if pattern.is_sequential {
                next
            } else {
                random >> 20
            };
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            next += 1;
            let kind = if pattern.is_write { WRITE } else { READ };
            plain.ask(kind, slot % slots * length as u64, length)?;
            if pattern.is_write {
                plain.socket.write_all(&data)?;
            }
            Ok::<(), std::io::Error>(())
        };
        let started = Instant::now();
        for _ in 0..pattern.depth {
            send(self)?;
        }
        let (mut under_way, mut done) = (pattern.depth, 0u64);
        while under_way > 0 {
            self.answer(if pattern.is_write { 0 } else { length })?;
            done += 1;
            if started.elapsed() < time {
                send(self)?;
            } else {
                under_way -= 1;
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        Ok(Served {
            requests: done as f64,
            iops: done as f64 / seconds,
            bytes_per_s: (done * length as u64) as f64 / seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_fio_is_read_behind_its_notes() {
        let text = r#"fio: connected to NBD server
            { "jobs": [ { "read": { "total_ios": 80, "iops": 160.5, "bw_bytes": 657408 } } ] }"#;
        let served = read_fio(text, false).unwrap();
        assert_eq!((served.requests, served.iops), (80.0, 160.5));
        assert!(
            read_fio(text, true)
                .unwrap_err()
                .0
                .contains("write.total_ios")
        );
    }

    #[test]
    fn a_load_that_did_nothing_is_no_figure() {
        let text = r#"{ "jobs": [ { "read": { "total_ios": 0, "iops": 0, "bw_bytes": 0 } } ] }"#;
        assert_eq!(read_fio(text, false).unwrap_err().0, "fio did nothing");
    }
}
