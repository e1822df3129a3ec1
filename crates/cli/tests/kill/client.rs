//! A client of the wire's simplest kind, on a thread that waits for each answer. It shares no code with the server.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
const REQUEST: u32 = 0x2560_9513;
const ANSWER: u32 = 0x6744_6698;

/// Command numbers.
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const ZERO: u16 = 6;

/// Longest wait for an answer: a server that is silent for longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Why a request failed.
#[derive(Debug)]
#[expect(dead_code, reason = "the reasons are read by people")]
pub enum Failure {
    /// The server answered with this errno.
    Errno(u32),
    /// The connection ended, or nothing was answered in time.
    Gone(io::Error),
}

/// One connection, one request at a time.
pub struct Client {
    stream: UnixStream,
    cookie: u64,
}

impl Client {
    /// Connects and asks for the export `name`.
    pub fn open(socket: &Path, name: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        // Fixed newstyle without the 124 zeroes; then the option EXPORT_NAME.
        let mut hello = 3_u32.to_be_bytes().to_vec();
        hello.extend_from_slice(&IHAVEOPT.to_be_bytes());
        hello.extend_from_slice(&1_u32.to_be_bytes());
        hello.extend_from_slice(&(name.len() as u32).to_be_bytes());
        hello.extend_from_slice(name.as_bytes());
        stream.write_all(&hello)?;
        let mut export = [0; 10];
        stream.read_exact(&mut export)?;
        Ok(Self { stream, cookie: 0 })
    }

    /// Reads `data.len()` bytes.
    pub fn read(&mut self, offset_bytes: u64, data: &mut [u8]) -> Result<(), Failure> {
        self.ask(READ, 0, offset_bytes, data.len(), &[])?;
        self.stream.read_exact(data).map_err(Failure::Gone)
    }

    /// Writes `data`, durably with `is_fua`.
    pub fn write(&mut self, offset_bytes: u64, data: &[u8], is_fua: bool) -> Result<(), Failure> {
        self.ask(WRITE, u16::from(is_fua), offset_bytes, data.len(), data)
    }

    /// Makes what was answered durable.
    pub fn flush(&mut self) -> Result<(), Failure> {
        self.ask(FLUSH, 0, 0, 0, &[])
    }

    /// Makes a range read as zeroes.
    pub fn zero(&mut self, offset_bytes: u64, length_bytes: usize) -> Result<(), Failure> {
        self.ask(ZERO, 0, offset_bytes, length_bytes, &[])
    }

    /// Says that a range is unused.
    pub fn trim(&mut self, offset_bytes: u64, length_bytes: usize) -> Result<(), Failure> {
        self.ask(TRIM, 0, offset_bytes, length_bytes, &[])
    }

    fn ask(
        &mut self,
        command: u16,
        flags: u16,
        offset_bytes: u64,
        length_bytes: usize,
        payload: &[u8],
    ) -> Result<(), Failure> {
        self.cookie += 1;
        let mut request = REQUEST.to_be_bytes().to_vec();
        request.extend_from_slice(&flags.to_be_bytes());
        request.extend_from_slice(&command.to_be_bytes());
        request.extend_from_slice(&self.cookie.to_be_bytes());
        request.extend_from_slice(&offset_bytes.to_be_bytes());
        request.extend_from_slice(&(length_bytes as u32).to_be_bytes());
        request.extend_from_slice(payload);
        let mut answer = [0; 16];
        self.stream
            .write_all(&request)
            .and_then(|()| self.stream.read_exact(&mut answer))
            .map_err(Failure::Gone)?;
        let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().expect("4 bytes"));
        let is_mine = word(0) == ANSWER && answer[8..] == self.cookie.to_be_bytes();
        match word(4) {
            _ if !is_mine => Err(Failure::Gone(io::Error::other("an answer to nothing"))),
            0 => Ok(()),
            errno => Err(Failure::Errno(errno)),
        }
    }
}
