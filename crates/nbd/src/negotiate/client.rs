//! The client's handshake.
//!
//! Invariants: nothing is allocated from a length above `REPLY_BYTES_MAX`; replies must answer the option that was
//! sent; the number of replies to one option is bounded; text of the server is escaped before anybody sees it.
//!
//! Source: nbd.md sections 2 and 12.

use plexum_block::buf::BufPool;

use super::CONTEXT_ALLOCATION;
use crate::error::NbdError;
use crate::tls::{TlsClient, TlsStart};
use crate::transport::{StartTls, TransportError};
use crate::wire::option::{
    ContextRequest, FLAG_NO_ZEROES, GREETING_BYTES, InfoFact, InfoRequest, OptionReplyHead,
    REPLY_HEAD_BYTES, code, decode_context, decode_greeting, decode_server, encode_option, info,
    reply, tflag,
};
use crate::wire::{Framing, NAME_BYTES_MAX, PAYLOAD_BYTES_MAX, WireError, escaped};

/// Largest data of an option reply in bytes: a name and a description with room to spare.
const REPLY_BYTES_MAX: u32 = 64 << 10;
/// Most replies to one option: exports of a list.
const REPLIES_MAX: usize = 100_000;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Name of the export, "" for the server's default.
    pub export: String,
    /// Best framing to ask for; the server may have less.
    pub framing_max: Framing,
    /// Whether to ask for allocation status.
    pub wants_allocation: bool,
    /// TLS, or no connection at all. The stream must be able to.
    pub tls: Option<TlsClient>,
}

impl ConnectOptions {
    /// Everything that helps, for `export`.
    #[must_use]
    pub fn new(export: &str) -> Self {
        Self {
            export: export.to_owned(),
            framing_max: Framing::Extended,
            wants_allocation: true,
            tls: None,
        }
    }
}

/// What the server said about the export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Transmission flags, see `wire::option::tflag`.
    pub tflags: u16,
    /// Framing that was agreed.
    pub framing: Framing,
    /// Unit of requests in bytes.
    pub block_bytes_min: u32,
    /// Best unit of requests in bytes.
    pub block_bytes_preferred: u32,
    /// Largest payload in bytes; at most `PAYLOAD_BYTES_MAX` is used.
    pub payload_bytes_max: u32,
    /// Canonical name, or the one asked for.
    pub name: String,
    /// Description, may be empty.
    pub description: String,
    /// Number of the allocation context, if the server has it.
    pub allocation_id: Option<u32>,
}

impl Remote {
    /// Whether all bits of `flags` (see `wire::option::tflag`) are set.
    #[must_use]
    pub fn has(&self, flags: u16) -> bool {
        self.tflags & flags == flags
    }

    /// Checks what the server announced: nobody divides by a block size of 0.
    fn check(self) -> Result<Self, NbdError> {
        let (minimum, preferred) = (self.block_bytes_min, self.block_bytes_preferred);
        let is_usable = minimum.is_power_of_two()
            && minimum <= 1 << 16
            && preferred >= minimum
            && self.payload_bytes_max >= minimum
            && self.tflags & tflag::HAS_FLAGS != 0
            && i64::try_from(self.size_bytes).is_ok();
        if is_usable {
            Ok(self)
        } else {
            let words = "the server announced sizes or flags that are not allowed";
            Err(WireError::Broken(words).into())
        }
    }
}

/// The handshake's side of a connection.
struct Talk<'a, T> {
    transport: &'a T,
    pool: &'a BufPool,
    has_zeroes: bool,
}

/// One reply that is no error.
struct Reply {
    kind: u32,
    data: Vec<u8>,
}

/// Connects to an export: afterwards the stream is in the transmission phase.
///
/// # Errors
/// The stream ended, the server broke the protocol, or it refused (unknown export, TLS required, stopping).
pub async fn connect<T: StartTls>(
    transport: &T,
    pool: &BufPool,
    options: &ConnectOptions,
) -> Result<Remote, NbdError> {
    let mut talk = Talk::start(transport, pool).await?;
    if let Some(tls) = &options.tls {
        talk.start_tls(tls).await?;
    }
    let mut framing = Framing::Simple;
    if options.framing_max == Framing::Extended && talk.agrees(code::EXTENDED_HEADERS).await? {
        framing = Framing::Extended;
    } else if options.framing_max != Framing::Simple && talk.agrees(code::STRUCTURED_REPLY).await? {
        framing = Framing::Structured;
    }
    let wants_allocation = options.wants_allocation && framing != Framing::Simple;
    let allocation_id = if wants_allocation {
        talk.choose_allocation(&options.export).await?
    } else {
        None
    };
    let remote = Remote {
        size_bytes: 0,
        tflags: 0,
        framing,
        block_bytes_min: 1,
        block_bytes_preferred: 4096,
        payload_bytes_max: PAYLOAD_BYTES_MAX,
        name: options.export.clone(),
        description: String::new(),
        allocation_id,
    };
    talk.go(remote).await?.check()
}

/// Asks a server for its exports, then ends the connection. Gives names and descriptions, unescaped.
///
/// # Errors
/// As `connect`.
pub async fn list<T: StartTls>(
    transport: &T,
    pool: &BufPool,
) -> Result<Vec<(String, String)>, NbdError> {
    let mut talk = Talk::start(transport, pool).await?;
    let mut exports = Vec::new();
    let replies = talk.ask(code::LIST, &[]).await?;
    for reply in replies.map_err(|(_, words)| NbdError::Refused(words))? {
        if reply.kind == reply::SERVER {
            let (name, description) = decode_server(&reply.data)
                .ok_or(WireError::Broken("a listed export is malformed"))?;
            exports.push((name.to_owned(), description.to_owned()));
        }
    }
    talk.send(code::ABORT, &[]).await?;
    transport.close();
    Ok(exports)
}

impl<'a, T: StartTls> Talk<'a, T> {
    async fn start(transport: &'a T, pool: &'a BufPool) -> Result<Self, NbdError> {
        let mut talk = Self {
            transport,
            pool,
            has_zeroes: false,
        };
        let mut greeting = [0; GREETING_BYTES];
        talk.receive(&mut greeting).await?;
        let flags = decode_greeting(&greeting)?;
        let answer = flags & (crate::wire::option::FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        talk.has_zeroes = answer & FLAG_NO_ZEROES == 0;
        let answer = pool.copy_of(&u32::from(answer).to_be_bytes()).freeze();
        transport.write_all(&[answer]).await?;
        Ok(talk)
    }

    /// TLS, or nothing: what a server says against it ends the connection.
    async fn start_tls(&mut self, tls: &TlsClient) -> Result<(), NbdError> {
        if !self.agrees(code::STARTTLS).await? {
            let words = "the server does not offer TLS".to_owned();
            return Err(NbdError::Refused(words));
        }
        let start = TlsStart::Client(tls.clone());
        Ok(self.transport.start_tls(&start).await?)
    }

    async fn receive(&mut self, into: &mut [u8]) -> Result<(), NbdError> {
        let mut filled = 0;
        while filled < into.len() {
            let got = self.transport.read(&mut into[filled..]).await?;
            if got == 0 {
                return Err(TransportError::Closed.into());
            }
            filled += got;
        }
        Ok(())
    }

    async fn send(&mut self, option: u32, data: &[u8]) -> Result<(), NbdError> {
        let mut bytes = Vec::new();
        encode_option(&mut bytes, option, data);
        let bytes = self.pool.copy_of(&bytes).freeze();
        Ok(self.transport.write_all(&[bytes]).await?)
    }

    /// Sends an option and collects its replies up to the ACK; the inner error is the server's refusal.
    async fn ask(
        &mut self,
        option: u32,
        data: &[u8],
    ) -> Result<Result<Vec<Reply>, (u32, String)>, NbdError> {
        self.send(option, data).await?;
        let mut replies = Vec::new();
        loop {
            let mut head = [0; REPLY_HEAD_BYTES];
            self.receive(&mut head).await?;
            let head = OptionReplyHead::decode(&head)?;
            if head.option != option {
                return Err(WireError::Broken("a reply belongs to another option").into());
            }
            if head.length_bytes > REPLY_BYTES_MAX || replies.len() == REPLIES_MAX {
                return Err(WireError::Broken("the replies to an option are too long").into());
            }
            let mut data = vec![0; head.length_bytes as usize];
            self.receive(&mut data).await?;
            if head.kind == reply::ACK {
                return Ok(Ok(replies));
            }
            if head.kind & reply::ERROR_BIT != 0 {
                return Ok(Err((head.kind, refusal(head.kind, &data))));
            }
            replies.push(Reply {
                kind: head.kind,
                data,
            });
        }
    }

    async fn agrees(&mut self, option: u32) -> Result<bool, NbdError> {
        match self.ask(option, &[]).await? {
            Ok(_) => Ok(true),
            Err((reply::ERR_TLS_REQD | reply::ERR_SHUTDOWN, words)) => {
                Err(NbdError::Refused(words))
            }
            Err(_) => Ok(false),
        }
    }

    async fn choose_allocation(&mut self, export: &str) -> Result<Option<u32>, NbdError> {
        let data = ContextRequest::encode(export, &[CONTEXT_ALLOCATION]);
        let Ok(replies) = self.ask(code::SET_META_CONTEXT, &data).await? else {
            return Ok(None); // GO will say what is wrong
        };
        for reply in replies
            .iter()
            .filter(|reply| reply.kind == reply::META_CONTEXT)
        {
            let (id, name) = decode_context(&reply.data)
                .ok_or(WireError::Broken("a metadata context is malformed"))?;
            if name == CONTEXT_ALLOCATION {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    async fn go(&mut self, mut remote: Remote) -> Result<Remote, NbdError> {
        if remote.name.len() > NAME_BYTES_MAX {
            return Err(NbdError::Refused(
                "the export name is longer than 4096 bytes".into(),
            ));
        }
        let numbers = [info::BLOCK_SIZE, info::NAME, info::DESCRIPTION];
        let data = InfoRequest::encode(&remote.name, &numbers);
        let replies = match self.ask(code::GO, &data).await? {
            Ok(replies) => replies,
            Err((reply::ERR_UNSUP, _)) if remote.framing != Framing::Extended => {
                return self.export_name(remote).await;
            }
            Err((_, words)) => return Err(NbdError::Refused(words)),
        };
        let mut has_export = false;
        for reply in replies.iter().filter(|reply| reply.kind == reply::INFO) {
            let fact = InfoFact::decode(&reply.data)
                .ok_or(WireError::Broken("a fact about the export is malformed"))?;
            match fact {
                InfoFact::Export { size_bytes, tflags } => {
                    (remote.size_bytes, remote.tflags) = (size_bytes, tflags);
                    has_export = true;
                }
                InfoFact::Name(name) => name.clone_into(&mut remote.name),
                InfoFact::Description(words) => words.clone_into(&mut remote.description),
                InfoFact::BlockSize {
                    minimum,
                    preferred,
                    payload_max,
                } => {
                    remote.block_bytes_min = minimum;
                    remote.block_bytes_preferred = preferred;
                    remote.payload_bytes_max = payload_max.min(PAYLOAD_BYTES_MAX);
                }
                InfoFact::Unknown(_) => {}
            }
        }
        if has_export {
            Ok(remote)
        } else {
            Err(WireError::Broken("the server did not tell the size of the export").into())
        }
    }

    /// The way into transmission of servers that do not know GO.
    async fn export_name(&mut self, mut remote: Remote) -> Result<Remote, NbdError> {
        let name = remote.name.clone();
        self.send(code::EXPORT_NAME, name.as_bytes()).await?;
        let mut size = [0; 8];
        self.receive(&mut size).await?;
        let mut tflags = [0; 2];
        self.receive(&mut tflags).await?;
        if self.has_zeroes {
            self.receive(&mut [0; 124]).await?;
        }
        remote.size_bytes = u64::from_be_bytes(size);
        remote.tflags = u16::from_be_bytes(tflags);
        Ok(remote)
    }
}

/// A refusal in words: ours for the number, the server's own behind it.
fn refusal(kind: u32, data: &[u8]) -> String {
    let ours = match kind {
        reply::ERR_UNSUP => "the option is not supported",
        reply::ERR_POLICY => "forbidden by the server",
        reply::ERR_INVALID => "invalid option",
        reply::ERR_PLATFORM => "not built into the server",
        reply::ERR_TLS_REQD => "the server requires TLS",
        reply::ERR_UNKNOWN => "no such export",
        reply::ERR_SHUTDOWN => "the server is stopping",
        reply::ERR_BLOCK_SIZE_REQD => "the server requires block sizes to be asked for",
        reply::ERR_TOO_BIG => "the option is too long",
        reply::ERR_EXT_HEADER_REQD => "the server requires extended headers",
        _ => "unknown error",
    };
    match std::str::from_utf8(data) {
        Ok(theirs) if !theirs.is_empty() => format!("{ours} ({})", escaped(theirs)),
        _ => ours.to_owned(),
    }
}
