//! The control socket from the command's side: HTTP/1 over a Unix socket, blocking, one request per connection.
//!
//! Invariants:
//! - an answer larger than `ANSWER_BYTES_MAX` is refused: the server is this user's own, but a file in its place may be
//!   anything;
//! - a refusal by the server comes back as the same `Problem` that the server made.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::{RuntimeDir, Surroundings};
use serde_json::Value;

/// Largest answer taken, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Longest header line taken, in bytes.
pub(crate) const LINE_BYTES_MAX: u64 = 16 * 1024;

/// The runtime folder of this user.
#[must_use]
pub fn runtime_dir() -> RuntimeDir {
    RuntimeDir::locate(&Surroundings::of_this_process())
}

/// Percent-encodes a name for the path of a URL.
pub(crate) fn encode(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(byte as char);
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

fn no_server(socket: &Path, detail: &str) -> Problem {
    Problem::new(
        Code::NoServer,
        format!("no server answers on {}: {detail}", socket.display()),
    )
    .hint("to see what runs:   plexum status")
}

pub(crate) fn garbled(socket: &Path, detail: &str) -> Problem {
    no_server(socket, &format!("the answer is not understood ({detail})"))
}

pub(crate) fn open(
    socket: &Path,
    method: &str,
    route: &str,
    body: Option<&Value>,
) -> Result<BufReader<UnixStream>, Problem> {
    let tell = |error: std::io::Error| no_server(socket, &error.to_string());
    let mut stream = UnixStream::connect(socket).map_err(tell)?;
    let body = body.map(Value::to_string).unwrap_or_default();
    write!(
        stream,
        "{method} {route} HTTP/1.1\r\nHost: plexum\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .map_err(tell)?;
    Ok(BufReader::new(stream))
}

/// One request and its answer.
///
/// # Errors
/// Of the server, or `NoServer`.
pub(crate) fn call(
    socket: &Path,
    method: &str,
    route: &str,
    body: Option<&Value>,
) -> Result<Value, Problem> {
    let mut reader = open(socket, method, route, body)?;
    let head = read_head(&mut reader, socket)?;
    let mut bytes = Vec::new();
    Body::new(reader, &head)
        .take(ANSWER_BYTES_MAX)
        .read_to_end(&mut bytes)
        .map_err(|error| no_server(socket, &error.to_string()))?;
    let value: Value =
        serde_json::from_slice(&bytes).map_err(|error| garbled(socket, &error.to_string()))?;
    if head.status == 200 {
        return Ok(value);
    }
    Err(Problem::from_json(&value)
        .unwrap_or_else(|| garbled(socket, &format!("HTTP status {}", head.status))))
}

/// An answer that is text.
///
/// # Errors
/// `NoServer`.
pub(crate) fn call_text(socket: &Path, route: &str) -> Result<String, Problem> {
    let mut reader = open(socket, "GET", route, None)?;
    let head = read_head(&mut reader, socket)?;
    let mut text = String::new();
    Body::new(reader, &head)
        .take(ANSWER_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| no_server(socket, &error.to_string()))?;
    match head.status {
        200 => Ok(text),
        status => Err(garbled(socket, &format!("HTTP status {status}"))),
    }
}

/// What matters of an answer's head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    status: u16,
    is_chunked: bool,
    length_bytes: Option<u64>,
}

pub(crate) fn read_head(reader: &mut impl BufRead, socket: &Path) -> Result<Head, Problem> {
    let mut next = || -> Result<String, Problem> {
        let mut line = String::new();
        let count = reader
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_line(&mut line)
            .map_err(|error| no_server(socket, &error.to_string()))?;
        if count == 0 {
            return Err(no_server(socket, "the connection was closed"));
        }
        Ok(line.trim_end().to_owned())
    };
    let first = next()?;
    let status = first
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| garbled(socket, &format!("{first:?}")))?;
    let mut head = Head {
        status,
        is_chunked: false,
        length_bytes: None,
    };
    loop {
        let line = next()?;
        if line.is_empty() {
            return Ok(head);
        }
        let Some((name, value)) = line.split_once(':') else {
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length_bytes = value.trim().parse().ok(),
            "transfer-encoding" => head.is_chunked = value.trim().eq_ignore_ascii_case("chunked"),
            _ => {}
        }
    }
}

/// The body of an answer, with the transfer encoding undone.
pub(crate) struct Body<R> {
    inner: R,
    is_chunked: bool,
    /// Bytes left of the present piece; of everything when not in pieces.
    left: u64,
    is_first: bool,
    is_done: bool,
}

impl<R: BufRead> Body<R> {
    pub(crate) fn new(inner: R, head: &Head) -> Self {
        Self {
            inner,
            is_chunked: head.is_chunked,
            left: if head.is_chunked {
                0
            } else {
                head.length_bytes.unwrap_or(u64::MAX)
            },
            is_first: true,
            is_done: false,
        }
    }

    /// Reads the size line of the next piece; the line end of the piece before it comes first.
    fn next_piece(&mut self) -> std::io::Result<()> {
        let mut line = String::new();
        if !self.is_first {
            self.inner.by_ref().take(2).read_line(&mut line)?;
            line.clear();
        }
        self.is_first = false;
        self.inner.by_ref().take(64).read_line(&mut line)?;
        let digits = line.trim().split(';').next().unwrap_or("");
        self.left = u64::from_str_radix(digits, 16)
            .map_err(|_| std::io::Error::other("a piece of the answer has no size"))?;
        self.is_done = self.left == 0;
        Ok(())
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        if self.is_chunked && self.left == 0 && !self.is_done {
            self.next_piece()?;
        }
        if self.is_done || self.left == 0 {
            return Ok(0);
        }
        let most = usize::try_from(self.left).map_or(buf.len(), |left| left.min(buf.len()));
        let count = self.inner.read(&mut buf[..most])?;
        self.left -= count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Head, String) {
        let mut reader = BufReader::new(text.as_bytes());
        let head = read_head(&mut reader, Path::new("/s")).unwrap();
        let mut body = String::new();
        Body::new(reader, &head).read_to_string(&mut body).unwrap();
        (head, body)
    }

    #[test]
    fn bodies_of_known_length_in_pieces_and_until_the_end_are_read() {
        let (head, body) = read("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef");
        assert_eq!((head.status, body.as_str()), (200, "abc"));
        let (_, body) = read(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
        );
        assert_eq!(body, "abc0123456789");
        let (head, body) = read("HTTP/1.0 404 Not Found\r\n\r\nrest");
        assert_eq!((head.status, body.as_str()), (404, "rest"));
    }

    #[test]
    fn an_answer_that_is_no_http_is_no_server() {
        for text in ["", "hello\r\n\r\n", "HTTP/1.1\r\n\r\n"] {
            let mut reader = BufReader::new(text.as_bytes());
            let problem = read_head(&mut reader, Path::new("/s")).unwrap_err();
            assert_eq!(problem.code, Code::NoServer);
        }
    }

    #[test]
    fn names_are_made_safe_for_a_url() {
        assert_eq!(encode("a b/ü"), "a%20b%2F%C3%BC");
    }
}
