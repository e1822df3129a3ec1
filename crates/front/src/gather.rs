//! What is to be sent, put together: heads share one buffer, data are not copied.

use std::ops::Range;

use plexum_block::buf::{Buf, BufPool, Rope};

use crate::peer::Peer;
use crate::transport::{Transport, TransportError};

/// Data in one call of the transport: also the unit in which a slow client's progress is seen.
const SEND_BYTES_MAX: usize = 4 << 20;

/// A piece of a batch: a part of the heads, or data.
enum Piece {
    Heads(Range<usize>),
    Data(Buf),
}

/// Answers being put together; kept from batch to batch for its memory.
#[derive(Default)]
pub struct Gather {
    heads: Vec<u8>,
    pieces: Vec<Piece>,
    bufs: Vec<Buf>,
}

impl Gather {
    /// Appends what `write` appends to the heads.
    pub fn head(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.heads.len();
        write(&mut self.heads);
        let end = self.heads.len();
        match self.pieces.last_mut() {
            Some(Piece::Heads(range)) => range.end = end,
            _ => self.pieces.push(Piece::Heads(start..end)),
        }
    }

    /// Appends data.
    pub fn data(&mut self, rope: Rope) {
        self.pieces.extend(rope.pieces.into_iter().map(Piece::Data));
    }

    /// Forgets what was put together.
    pub fn clear(&mut self) {
        self.heads.clear();
        self.pieces.clear();
        self.bufs.clear();
    }

    /// Sends everything in order, in calls of a limited size.
    ///
    /// # Errors
    /// The stream failed; a part may have been sent.
    pub async fn send<T: Transport>(
        &mut self,
        transport: &T,
        peer: &Peer,
        pool: &BufPool,
    ) -> Result<(), TransportError> {
        let heads = pool.copy_of(&self.heads).freeze();
        for piece in self.pieces.drain(..) {
            self.bufs.push(match piece {
                Piece::Heads(range) => heads.slice(range),
                Piece::Data(data) => data,
            });
        }
        let mut rest = &self.bufs[..];
        while !rest.is_empty() {
            let mut sum = 0;
            let count = rest
                .iter()
                .take_while(|buf| {
                    let fits = sum == 0 || sum + buf.len() <= SEND_BYTES_MAX;
                    sum += buf.len();
                    fits
                })
                .count();
            let (now, later) = rest.split_at(count);
            peer.waited_for(transport.write_all(now)).await?;
            rest = later;
        }
        Ok(())
    }
}
