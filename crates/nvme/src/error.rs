//! How a connection ended.

use plexum_front::transport::TransportError;

use crate::wire::pdu::Fault;

/// How a connection came to its regular end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The host said so.
    Disconnected,
    /// The stream ended between two PDUs.
    HungUp,
    /// The host was told why it cannot connect.
    Refused,
    /// The server is stopping, the volume was closed, or another queue of the controller has ended.
    Stopped,
}

/// Why a connection ended before its time. One line for the log; contains nothing unescaped from the wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeError {
    /// The stream ended or failed in the middle of something.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The host broke the protocol, and was told so.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The host found something wrong with what it was sent.
    #[error("the host ended the connection: its fatal error status is {0}")]
    HostTerm(u16),
    /// More commands at the same time than the queue has entries.
    #[error("the host sent more commands than its queue of {0} entries has room for")]
    QueueOverrun(u16),
    /// The connection was not made in time.
    #[error("the connection was not made a queue in time; it is closed")]
    HandshakeTimedOut,
    /// The server has as many connections as it may.
    #[error("the server has {0} connections already, its limit; connection refused")]
    TooManyConnections(usize),
    /// No sign of life for longer than the host itself has allowed.
    #[error("the host gave no sign of life for {0} ms, its own limit; its controller is ended")]
    KeepAlive(u32),
    /// The host neither took its answers nor sent its data, while others waited for the memory it held.
    #[error(
        "the host stopped reading or sending while others waited for memory; its controller is ended"
    )]
    Stalled,
}
