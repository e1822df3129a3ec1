//! The server's handshake as a state machine: bytes in, bytes out, no waiting.
//!
//! Invariants:
//! - one `step` handles at most one option, so that its answers can be sent before the next one is looked at;
//! - nothing is allocated from a length that the client names; option data above the limit are skipped unread;
//! - the number of options is bounded; errors that cannot be answered end the session (`WireError`).
//!
//! Source: nbd.md sections 2, 3, 7, 8 and 11 (mode "none").

use plexum_front::export::ExportInfo;

use crate::tls::TlsMode;
use crate::wire::option::{
    ContextRequest, FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, InfoFact, InfoRequest, OPTION_HEAD_BYTES,
    OptionHead, code, encode_context, encode_reply, encode_server, info, reply, tflag,
};
use crate::wire::{Framing, PAYLOAD_BYTES_MAX, WireError, text};

pub mod client;

/// Largest option data in bytes that are looked at (reliability.md section 4).
pub const OPTION_DATA_BYTES_MAX: u32 = 8192;
/// Largest option in bytes that is skipped politely; above, the session ends.
const OPTION_SKIP_BYTES_MAX: u32 = 1 << 20;
/// Options per handshake: a base and so many for each export (nbdinfo --list asks twice for each).
const OPTIONS_BASE: usize = 32;
/// The metadata context that every export has.
pub const CONTEXT_ALLOCATION: &str = "base:allocation";
/// Its number on the wire.
pub const CONTEXT_ALLOCATION_ID: u32 = 1;

/// What the handshake has to know about the exports.
pub trait ExportList {
    /// The export called `name`, or the default one for "".
    fn resolve(&self, name: &str) -> Option<ExportInfo>;
    /// Names and descriptions of all exports, in a stable order.
    fn list(&self) -> Vec<(String, String)>;
    /// Whether the server takes no new sessions any more.
    fn is_stopping(&self) -> bool {
        false
    }
}

/// Result of a handshake: what both sides hold to from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// The export.
    pub export: ExportInfo,
    /// How requests and replies are framed.
    pub framing: Framing,
    /// Whether `base:allocation` was chosen for this export.
    pub has_allocation: bool,
}

impl Agreed {
    /// The transmission flags that were told to the client.
    #[must_use]
    pub fn tflags(&self) -> u16 {
        tflags(&self.export, self.framing, self.has_allocation)
    }
}

/// What a `step` came to.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// More bytes are needed.
    Needs,
    /// Something was handled; call again with the rest.
    Went,
    /// The transmission phase starts after the bytes written.
    Agreed(Box<Agreed>),
    /// Send the bytes written, start TLS and call `tls_started`. Bytes behind the ones used must not be there.
    StartTls,
    /// The client ended the handshake; send the bytes written and close.
    Ended,
}

enum Phase {
    Flags,
    Head,
    Data(OptionHead),
    Skip { option: u32, left_bytes: u32 },
}

/// A handshake under way.
pub struct Handshake {
    phase: Phase,
    is_fixed: bool,
    sends_zeroes: bool,
    framing: Framing,
    /// The export name and the choice of the last SET_META_CONTEXT.
    contexts: Option<String>,
    options: usize,
    tls: TlsMode,
    has_tls: bool,
}

impl Default for Handshake {
    fn default() -> Self {
        Self::new()
    }
}

impl Handshake {
    /// A handshake at its beginning; the caller sends `wire::option::greeting()` first.
    #[must_use]
    pub fn new() -> Self {
        Self {
            phase: Phase::Flags,
            is_fixed: false,
            sends_zeroes: true,
            framing: Framing::Simple,
            contexts: None,
            options: 0,
            tls: TlsMode::Off,
            has_tls: false,
        }
    }

    /// A handshake in which clients may or must use TLS.
    #[must_use]
    pub fn with_tls(tls: TlsMode) -> Self {
        Self { tls, ..Self::new() }
    }

    /// TLS has begun: what was agreed in the clear is forgotten.
    pub fn tls_started(&mut self) {
        self.has_tls = true;
        self.framing = Framing::Simple;
        self.contexts = None;
    }

    /// Handles the front of `input`, appends answers to `out`, and says how many bytes were used.
    ///
    /// # Errors
    /// The client broke a rule for which the protocol has no answer; close the connection.
    pub fn step(
        &mut self,
        list: &dyn ExportList,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, Outcome), WireError> {
        match self.phase {
            Phase::Flags => {
                let Some(flags) = input.first_chunk::<4>() else {
                    return Ok((0, Outcome::Needs));
                };
                self.take_flags(u32::from_be_bytes(*flags))?;
                self.phase = Phase::Head;
                Ok((4, Outcome::Went))
            }
            Phase::Head => {
                let Some(head) = input.first_chunk::<OPTION_HEAD_BYTES>() else {
                    return Ok((0, Outcome::Needs));
                };
                self.phase = self.take_head(OptionHead::decode(head)?, list)?;
                Ok((OPTION_HEAD_BYTES, Outcome::Went))
            }
            Phase::Data(head) => {
                let length = head.length_bytes as usize;
                let Some(data) = input.get(..length) else {
                    return Ok((0, Outcome::Needs));
                };
                self.phase = Phase::Head;
                let outcome = self.take_option(head.option, data, list, out)?;
                Ok((length, outcome))
            }
            Phase::Skip { option, left_bytes } => {
                let used = input.len().min(left_bytes as usize);
                let left_bytes = left_bytes - u32::try_from(used).expect("at most left_bytes");
                if left_bytes > 0 {
                    self.phase = Phase::Skip { option, left_bytes };
                    return Ok((used, Outcome::Needs));
                }
                self.phase = Phase::Head;
                refuse(out, option, reply::ERR_TOO_BIG, "the option is too long");
                Ok((used, Outcome::Went))
            }
        }
    }

    fn take_flags(&mut self, flags: u32) -> Result<(), WireError> {
        let known = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        if flags & !known != 0 {
            return Err(WireError::Broken("the client sent unknown handshake flags"));
        }
        self.is_fixed = flags & u32::from(FLAG_FIXED_NEWSTYLE) != 0;
        self.sends_zeroes = flags & u32::from(FLAG_NO_ZEROES) == 0;
        Ok(())
    }

    fn take_head(&mut self, head: OptionHead, list: &dyn ExportList) -> Result<Phase, WireError> {
        if !self.is_fixed && head.option != code::EXPORT_NAME {
            return Err(WireError::Broken(
                "the client uses options without fixed newstyle",
            ));
        }
        self.options += 1;
        let options_max = OPTIONS_BASE.saturating_mul(1 + list.list().len());
        if self.options > options_max {
            return Err(WireError::Broken("the client sent too many options"));
        }
        if head.length_bytes <= OPTION_DATA_BYTES_MAX {
            return Ok(Phase::Data(head));
        }
        if head.length_bytes > OPTION_SKIP_BYTES_MAX || head.option == code::EXPORT_NAME {
            return Err(WireError::Broken(
                "the client sent an option that is far too long",
            ));
        }
        Ok(Phase::Skip {
            option: head.option,
            left_bytes: head.length_bytes,
        })
    }

    fn take_option(
        &mut self,
        option: u32,
        data: &[u8],
        list: &dyn ExportList,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, WireError> {
        let takes_no_data = matches!(
            option,
            code::LIST | code::STARTTLS | code::STRUCTURED_REPLY | code::EXTENDED_HEADERS
        );
        if takes_no_data && !data.is_empty() {
            refuse(out, option, reply::ERR_INVALID, "the option takes no data");
            return Ok(Outcome::Went);
        }
        if let Some(outcome) = self.tls_option(option, out)? {
            return Ok(outcome);
        }
        match option {
            code::EXPORT_NAME => return self.export_name(data, list, out),
            code::ABORT => {
                encode_reply(out, option, reply::ACK, &[]);
                return Ok(Outcome::Ended);
            }
            code::INFO | code::GO => return Ok(self.info_or_go(option, data, list, out)),
            code::LIST => {
                for (name, description) in list.list() {
                    let data = encode_server(&name, &description);
                    encode_reply(out, option, reply::SERVER, &data);
                }
                encode_reply(out, option, reply::ACK, &[]);
            }
            code::STARTTLS => refuse(out, option, reply::ERR_POLICY, "TLS is not configured"),
            code::STRUCTURED_REPLY if self.framing == Framing::Extended => {
                let words = "extended headers were agreed already";
                refuse(out, option, reply::ERR_EXT_HEADER_REQD, words);
            }
            code::STRUCTURED_REPLY => {
                self.framing = Framing::Structured;
                encode_reply(out, option, reply::ACK, &[]);
            }
            code::EXTENDED_HEADERS if self.framing == Framing::Extended => {
                let words = "extended headers were agreed already";
                refuse(out, option, reply::ERR_INVALID, words);
            }
            code::EXTENDED_HEADERS => {
                self.framing = Framing::Extended;
                encode_reply(out, option, reply::ACK, &[]);
            }
            code::LIST_META_CONTEXT | code::SET_META_CONTEXT => {
                self.meta_context(option, data, list, out);
            }
            _ => refuse(out, option, reply::ERR_UNSUP, "the option is not known"),
        }
        Ok(Outcome::Went)
    }

    /// Whatever TLS decides about an option; `None`: it is an option like any other.
    fn tls_option(&mut self, option: u32, out: &mut Vec<u8>) -> Result<Option<Outcome>, WireError> {
        let is_clear = self.tls == TlsMode::Forced && !self.has_tls;
        match option {
            code::EXPORT_NAME if is_clear => {
                return Err(WireError::Broken("the client must use TLS"));
            }
            code::STARTTLS if self.has_tls => {
                refuse(out, option, reply::ERR_INVALID, "TLS has begun already");
            }
            code::STARTTLS if self.tls != TlsMode::Off => {
                encode_reply(out, option, reply::ACK, &[]);
                return Ok(Some(Outcome::StartTls));
            }
            code::ABORT => return Ok(None),
            _ if is_clear => {
                refuse(
                    out,
                    option,
                    reply::ERR_TLS_REQD,
                    "this server serves by TLS only",
                );
            }
            _ => return Ok(None),
        }
        Ok(Some(Outcome::Went))
    }

    /// Cannot report errors: whatever is wrong closes the connection.
    fn export_name(
        &mut self,
        data: &[u8],
        list: &dyn ExportList,
        out: &mut Vec<u8>,
    ) -> Result<Outcome, WireError> {
        if self.framing == Framing::Extended {
            return Err(WireError::Broken(
                "the client uses EXPORT_NAME after extended headers",
            ));
        }
        let export = text(data)
            .filter(|_| !list.is_stopping())
            .and_then(|name| Some((name, list.resolve(name)?)));
        let Some((name, export)) = export else {
            return Err(WireError::Broken(
                "the client asked for an export that does not exist, with EXPORT_NAME",
            ));
        };
        let agreed = self.agree(name, export);
        out.extend_from_slice(&agreed.export.size_bytes.to_be_bytes());
        out.extend_from_slice(&agreed.tflags().to_be_bytes());
        if self.sends_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Ok(Outcome::Agreed(Box::new(agreed)))
    }

    fn info_or_go(
        &mut self,
        option: u32,
        data: &[u8],
        list: &dyn ExportList,
        out: &mut Vec<u8>,
    ) -> Outcome {
        let Some(request) = InfoRequest::decode(data) else {
            refuse(out, option, reply::ERR_INVALID, "the lengths do not fit");
            return Outcome::Went;
        };
        if list.is_stopping() {
            refuse(out, option, reply::ERR_SHUTDOWN, "the server is stopping");
            return Outcome::Went;
        }
        let Some(export) = list.resolve(request.name) else {
            refuse(out, option, reply::ERR_UNKNOWN, "there is no such export");
            return Outcome::Went;
        };
        let agreed = self.agree(request.name, export);
        let export = &agreed.export;
        let mut tell = |fact: InfoFact<'_>| encode_reply(out, option, reply::INFO, &fact.encode());
        tell(InfoFact::Export {
            size_bytes: export.size_bytes,
            tflags: agreed.tflags(),
        });
        if request.asks(info::NAME) {
            tell(InfoFact::Name(&export.name));
        }
        if request.asks(info::DESCRIPTION) {
            tell(InfoFact::Description(&export.description));
        }
        if request.asks(info::BLOCK_SIZE) {
            tell(InfoFact::BlockSize {
                minimum: export.block_bytes_min,
                preferred: export.block_bytes_preferred,
                payload_max: PAYLOAD_BYTES_MAX,
            });
        }
        encode_reply(out, option, reply::ACK, &[]);
        if option == code::GO {
            Outcome::Agreed(Box::new(agreed))
        } else {
            Outcome::Went
        }
    }

    /// What would hold if the session started now with the export that was asked for as `name`.
    fn agree(&self, name: &str, export: ExportInfo) -> Agreed {
        Agreed {
            export,
            framing: self.framing,
            has_allocation: self.framing != Framing::Simple
                && self.contexts.as_deref() == Some(name),
        }
    }

    fn meta_context(&mut self, option: u32, data: &[u8], list: &dyn ExportList, out: &mut Vec<u8>) {
        let chooses = option == code::SET_META_CONTEXT;
        if chooses {
            self.contexts = None; // also when the call fails
        }
        if self.framing == Framing::Simple {
            let words = "structured replies or extended headers are needed first";
            refuse(out, option, reply::ERR_INVALID, words);
            return;
        }
        let Some(request) = ContextRequest::decode(data) else {
            refuse(out, option, reply::ERR_INVALID, "the lengths do not fit");
            return;
        };
        if list.resolve(request.name).is_none() {
            refuse(out, option, reply::ERR_UNKNOWN, "there is no such export");
            return;
        }
        let asks_nothing = request.queries().next().is_none();
        let matches = if chooses {
            request.queries().any(|query| query == CONTEXT_ALLOCATION)
        } else {
            asks_nothing
                || request
                    .queries()
                    .any(|query| query == CONTEXT_ALLOCATION || query == "base:")
        };
        if matches {
            let id = if chooses { CONTEXT_ALLOCATION_ID } else { 0 };
            let data = encode_context(id, CONTEXT_ALLOCATION);
            encode_reply(out, option, reply::META_CONTEXT, &data);
        }
        if chooses && matches {
            self.contexts = Some(request.name.to_owned());
        }
        encode_reply(out, option, reply::ACK, &[]);
    }
}

fn refuse(out: &mut Vec<u8>, option: u32, kind: u32, words: &str) {
    encode_reply(out, option, kind, words.as_bytes());
}

/// Transmission flags of `export` for a session. Source: nbd.md section 3.
fn tflags(export: &ExportInfo, framing: Framing, has_allocation: bool) -> u16 {
    let mut flags = tflag::HAS_FLAGS
        | tflag::SEND_FLUSH
        | tflag::SEND_FUA
        | tflag::CAN_MULTI_CONN
        | tflag::SEND_CACHE;
    flags |= if export.is_read_only {
        tflag::READ_ONLY
    } else {
        tflag::SEND_TRIM | tflag::SEND_WRITE_ZEROES | tflag::SEND_FAST_ZERO
    };
    if export.is_rotational {
        flags |= tflag::ROTATIONAL;
    }
    if framing != Framing::Simple {
        flags |= tflag::SEND_DF;
    }
    if framing == Framing::Extended && has_allocation {
        flags |= tflag::BLOCK_STATUS_PAYLOAD;
    }
    flags
}
