//! The command's side of the control socket: HTTP/1 over a Unix socket, blocking, one request per connection.
//!
//! Invariants:
//! - an answer larger than `ANSWER_BYTES_MAX` is refused: the server is this user's own, but a file in its place may be
//!   anything;
//! - a refusal by the server comes back as the same `Problem` that the server made.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use plexum_daemon::control::Action;
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::runtime_dir::{Kind, RuntimeDir, Surroundings};
use plexum_daemon::status::VolumeStatus;
use serde_json::{Value, json};

use crate::traces::Traces;

/// Largest answer taken, in bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// Longest header line taken, in bytes.
const LINE_BYTES_MAX: u64 = 16 * 1024;

/// A volume whose server answers.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// Name of the volume.
    pub volume: String,
}

/// The runtime folder of this user.
#[must_use]
pub fn runtime_dir() -> RuntimeDir {
    RuntimeDir::locate(&Surroundings::of_this_process())
}

/// Status of every volume that is served by this user, sorted by name. Sockets nobody answers on are passed over.
#[must_use]
pub fn running_volumes() -> Vec<(Client, VolumeStatus)> {
    let mut found: Vec<(Client, VolumeStatus)> = Vec::new();
    for socket in runtime_dir().control_sockets() {
        let Ok(answer) = call(&socket, "GET", "/v1/volumes", None) else {
            continue;
        };
        let volumes = answer["volumes"].as_array().cloned().unwrap_or_default();
        for value in volumes {
            let Ok(status) = serde_json::from_value::<VolumeStatus>(value) else {
                continue;
            };
            // One server with several volumes answers on a socket for each.
            if found.iter().any(|(_, known)| known.volume == status.volume) {
                continue;
            }
            let own = runtime_dir().file(&status.volume, Kind::Control);
            let client = Client {
                socket: if own.exists() { own } else { socket.clone() },
                volume: status.volume.clone(),
            };
            found.push((client, status));
        }
    }
    found.sort_by(|a, b| a.1.volume.cmp(&b.1.volume));
    found
}

impl Client {
    /// The client of a volume whose control socket is known.
    #[must_use]
    pub fn at(socket: PathBuf, volume: &str) -> Self {
        Self {
            socket,
            volume: volume.to_owned(),
        }
    }

    /// The client of the volume `name`, or of the only one that runs.
    ///
    /// # Errors
    /// `NoSuchVolume` when none of that name runs, `AmbiguousVolume` when no name was given and several run.
    pub fn find(name: Option<&str>) -> Result<Self, Problem> {
        if let Some(name) = name {
            let socket = runtime_dir().file(name, Kind::Control);
            if UnixStream::connect(&socket).is_ok() {
                return Ok(Self {
                    socket,
                    volume: name.to_owned(),
                });
            }
        }
        let running = running_volumes();
        let names = || -> Vec<String> { running.iter().map(|(c, _)| c.volume.clone()).collect() };
        match name {
            Some(name) => running
                .iter()
                .find(|(client, _)| client.volume == name)
                .map(|(client, _)| client.clone())
                .ok_or_else(|| no_such_volume(name, &names())),
            None => match running.as_slice() {
                [(client, _)] => Ok(client.clone()),
                [] => {
                    let problem = Problem::new(Code::NoSuchVolume, "no volume is served");
                    Err(Traces::look()
                        .explain(problem, None)
                        .hint("to serve one:   plexum serve MEMBER...")
                        .hint("to find sets:   plexum scan DIR"))
                }
                _ => Err(Problem::new(
                    Code::AmbiguousVolume,
                    format!("{} volumes are served, name one of them", running.len()),
                )
                .hint(format!("they are:   {}", names().join(" ")))),
            },
        }
    }

    /// Whether nobody listens on the volume's control socket any more: its members are free.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        UnixStream::connect(&self.socket).is_err()
    }

    /// Status of the volume.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn status(&self) -> Result<VolumeStatus, Problem> {
        let value = call(&self.socket, "GET", &self.route(""), None)?;
        serde_json::from_value(value).map_err(|error| garbled(&self.socket, &error.to_string()))
    }

    /// Counters of the volume as JSON.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn stats(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", &self.route("/stats"), None)
    }

    /// The same; from then on they count anew.
    ///
    /// # Errors
    /// As `stats`.
    pub fn take_stats(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", &self.route("/stats?reset=true"), None)
    }

    /// Requests in flight as JSON.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn requests(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", &self.route("/requests"), None)
    }

    /// Asks for a change.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn act(&self, action: &Action) -> Result<Value, Problem> {
        let route = self.route(&format!("/{}", action.route()));
        let body = serde_json::to_value(action).unwrap_or_else(|_| json!({}));
        call(&self.socket, "POST", &route, Some(&body))
    }

    /// Tells the server that a block device of the kernel stands on the volume.
    ///
    /// # Errors
    /// Of a server that is older than this, or `NoServer`.
    pub fn tell_attached(&self) -> Result<(), Problem> {
        call(&self.socket, "POST", &self.route("/attached"), None).map(drop)
    }

    /// Asks what a change would be refused for; nothing is changed. The server knows more than the command: who is
    /// needed, what fits.
    ///
    /// # Errors
    /// Of the server, as of `act`, or `NoServer`; `NotYet` from a server that is older than this.
    pub fn rehearse(&self, action: &Action) -> Result<Value, Problem> {
        let route = self.route(&format!("/{}/dry-run", action.route()));
        let body = serde_json::to_value(action).unwrap_or_else(|_| json!({}));
        call(&self.socket, "POST", &route, Some(&body)).map_err(|problem| {
            if problem.message == "no such route" {
                let text = format!("the server of {} knows no dry run", self.volume);
                return Problem::new(Code::NotYet, text).why("it was started by an older plexum");
            }
            problem
        })
    }

    /// All events kept by the server.
    ///
    /// # Errors
    /// Of the server, or `NoServer`.
    pub fn events(&self) -> Result<Value, Problem> {
        call(&self.socket, "GET", "/v1/events?follow=false", None)
    }

    /// Calls `each` with every event after number `after`, until it says false or the server ends.
    ///
    /// # Errors
    /// `NoServer` when the connection cannot be made.
    pub fn follow(&self, after: u64, mut each: impl FnMut(Value) -> bool) -> Result<(), Problem> {
        let route = format!("/v1/events?after={after}");
        let mut reader = open(&self.socket, "GET", &route, None)?;
        let head = read_head(&mut reader, &self.socket)?;
        let mut body = Body::new(reader, &head);
        let mut line = String::new();
        let mut buffered = BufReader::new(&mut body);
        loop {
            line.clear();
            match (&mut buffered).take(LINE_BYTES_MAX).read_line(&mut line) {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => {}
            }
            if let Some(data) = line.strip_prefix("data:")
                && let Ok(event) = serde_json::from_str::<Value>(data.trim())
                && !each(event)
            {
                return Ok(());
            }
        }
    }

    fn route(&self, rest: &str) -> String {
        format!("/v1/volumes/{}{rest}", encode(&self.volume))
    }
}

/// The refusal for a name that is not served.
#[must_use]
pub fn no_such_volume(name: &str, running: &[String]) -> Problem {
    let problem = Problem::new(Code::NoSuchVolume, format!("no volume {name} is served"));
    let problem = Traces::look().explain(problem, Some(name));
    if running.is_empty() {
        problem.hint("to serve one:   plexum serve MEMBER...")
    } else {
        problem.hint(format!("these are:   {}", running.join(" ")))
    }
}

/// Percent-encodes a name for the path of a URL.
fn encode(name: &str) -> String {
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

fn garbled(socket: &Path, detail: &str) -> Problem {
    no_server(socket, &format!("the answer is not understood ({detail})"))
}

fn open(
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

fn call(socket: &Path, method: &str, route: &str, body: Option<&Value>) -> Result<Value, Problem> {
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

/// What matters of an answer's head.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    is_chunked: bool,
    length_bytes: Option<u64>,
}

fn read_head(reader: &mut impl BufRead, socket: &Path) -> Result<Head, Problem> {
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
struct Body<R> {
    inner: R,
    is_chunked: bool,
    /// Bytes left of the present piece; of everything when not in pieces.
    left: u64,
    is_first: bool,
    is_done: bool,
}

impl<R: BufRead> Body<R> {
    fn new(inner: R, head: &Head) -> Self {
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
