//! What a server's session with a client that connects speaks over: a byte stream, without sockets.

use plexum_block::buf::Buf;

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportError {
    /// The peer closed the stream, or it was reset.
    Closed,
    /// The time limit of the handshake or of the transport passed.
    TimedOut,
    /// TLS failed.
    Tls,
}

impl std::fmt::Display for TransportError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            TransportError::Closed => "the peer closed the connection",
            TransportError::TimedOut => "the peer did not answer in time",
            TransportError::Tls => "the TLS session failed",
        })
    }
}

impl std::error::Error for TransportError {}

/// A reliable byte stream. Reading and writing may go on at the same time from two tasks (`&self`).
#[allow(async_fn_in_trait)] // sessions live on one thread
pub trait Transport {
    /// Reads at least one byte into `buf` and says how many; 0 only at the end of the stream (or for an empty `buf`).
    /// # Errors
    /// Any error ends the stream.
    async fn read(&self, buf: &mut [u8]) -> Result<usize, TransportError>;

    /// Sends all `pieces` in order; returns when the stream has taken them.
    /// # Errors
    /// Any error ends the stream; a part may have been sent.
    async fn write_all(&self, pieces: &[Buf]) -> Result<(), TransportError>;

    /// The peer is about to speak: its only request was just answered. A hint, for streams that can wait in more than
    /// one way.
    fn expect_soon(&self) {}

    /// Sends what is buffered and ends the stream in both directions. Idempotent.
    ///
    /// Calls of `read` and `write_all` that are pending end: `read` with 0 or an error, `write_all` with an error.
    /// Sessions rely on this for their time limits; they drop no call that is pending.
    fn close(&self);
}

impl<T: Transport + ?Sized> Transport for &T {
    async fn read(&self, buf: &mut [u8]) -> Result<usize, TransportError> {
        (**self).read(buf).await
    }
    async fn write_all(&self, pieces: &[Buf]) -> Result<(), TransportError> {
        (**self).write_all(pieces).await
    }
    fn expect_soon(&self) {
        (**self).expect_soon();
    }
    fn close(&self) {
        (**self).close();
    }
}
