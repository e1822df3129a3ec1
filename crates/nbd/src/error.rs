//! Why a session, or the attempt to start one, ended.

use crate::transport::TransportError;
use crate::wire::WireError;

/// Why a session ended before its time. One line for the log; contains nothing unescaped from the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// The stream ended or failed in the middle of something.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The peer broke the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The handshake was not finished in time.
    #[error("the handshake was not finished in time; connection closed")]
    HandshakeTimedOut,
    /// The server has as many sessions as it may.
    #[error("the server has {0} sessions already, its limit; connection refused")]
    TooManySessions(usize),
    /// The peer neither took its answers nor sent its payload, while others waited for the memory it held.
    #[error(
        "the client stopped reading or sending while others waited for memory; connection closed"
    )]
    Stalled,
    /// The server said no (client side).
    #[error("the server refused: {0}")]
    Refused(String),
}
