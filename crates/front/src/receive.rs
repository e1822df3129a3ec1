//! Receiving from a stream: small things by a buffer, a batch at once; long payloads straight to where they belong.

use plexum_block::buf::{BufMut, BufPool};

use crate::peer::Peer;
use crate::transport::{Transport, TransportError};

/// A rest of a payload that is shorter goes through the receive buffer, so that what is behind it comes with the same
/// receive.
const REST_BYTES: usize = 32 << 10;

/// A stream with the bytes that were received and not yet used.
pub struct Receiver<'a, T> {
    transport: &'a T,
    peer: &'a Peer,
    inbox: BufMut,
    start: usize,
    end: usize,
}

impl<'a, T: Transport> Receiver<'a, T> {
    /// A receiver with a buffer of `inbox_bytes`. `leftover` are bytes that were received before.
    #[must_use]
    pub fn new(
        transport: &'a T,
        peer: &'a Peer,
        pool: &BufPool,
        inbox_bytes: usize,
        leftover: &[u8],
    ) -> Self {
        let mut inbox = pool.take(inbox_bytes.max(leftover.len()));
        inbox[..leftover.len()].copy_from_slice(leftover);
        Self {
            transport,
            peer,
            inbox,
            start: 0,
            end: leftover.len(),
        }
    }

    /// Bytes that were received and not yet used.
    #[must_use]
    pub fn held(&self) -> usize {
        self.end - self.start
    }

    /// The bytes that are held.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.inbox[self.start..self.end]
    }

    /// Takes the first `length` of the bytes that are held.
    pub fn use_up(&mut self, length: usize) -> &[u8] {
        let bytes = &self.inbox[self.start..self.start + length];
        self.start += length;
        bytes
    }

    /// Receives until `length` bytes are held, at most the buffer's; `false` when the stream ended before the first of
    /// them.
    ///
    /// # Errors
    /// The stream ended behind the first one, or failed.
    pub async fn fill(&mut self, length: usize) -> Result<bool, TransportError> {
        while self.held() < length {
            let transport = self.transport;
            let got = transport.read(self.room()).await?;
            self.peer.moved();
            if got == 0 {
                if self.held() == 0 {
                    return Ok(false);
                }
                return Err(TransportError::Closed);
            }
            self.end += got;
        }
        Ok(true)
    }

    /// Receives a payload: first what is held, then straight from the stream.
    ///
    /// # Errors
    /// The stream ended or failed; a part may be filled.
    pub async fn payload(&mut self, into: &mut [u8]) -> Result<(), TransportError> {
        let length = into.len();
        let (transport, peer) = (self.transport, self.peer);
        let held = self.held().min(length);
        into[..held].copy_from_slice(self.use_up(held));
        let mut filled = held;
        while filled < length {
            if length - filled < REST_BYTES {
                let got = peer.waited_for(transport.read(self.room())).await?;
                if got == 0 {
                    return Err(TransportError::Closed);
                }
                self.end += got;
                let part = self.held().min(length - filled);
                into[filled..filled + part].copy_from_slice(self.use_up(part));
                filled += part;
                continue;
            }
            let got = peer.waited_for(transport.read(&mut into[filled..])).await?;
            if got == 0 {
                return Err(TransportError::Closed);
            }
            filled += got;
        }
        Ok(())
    }

    /// Receives and drops `left_bytes`; takes no memory for them.
    ///
    /// # Errors
    /// The stream ended or failed.
    pub async fn drain(&mut self, mut left_bytes: u64) -> Result<(), TransportError> {
        loop {
            let part =
                usize::try_from(left_bytes).map_or(self.held(), |left| left.min(self.held()));
            self.use_up(part);
            left_bytes -= part as u64;
            if left_bytes == 0 {
                return Ok(());
            }
            if !self.fill(1).await? {
                return Err(TransportError::Closed);
            }
        }
    }

    /// Room behind the bytes held, which move to the front.
    fn room(&mut self) -> &mut [u8] {
        self.inbox.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        &mut self.inbox[self.end..]
    }
}
