//! Data on their way from members to a client that never come into our memory.
//!
//! A member in memory (tmpfs) is read by copying, and the copy is copied once more into the client's stream. Where both ends know
//! of each other, the kernel can pass the member's own pages on instead. Streams make a place for them (`Parked`), devices put
//! ranges of theirs into it one behind the other, and the stream sends what is there. The engine only chooses the ranges.
//!
//! Invariants:
//! - who parks says at once whether everything is in its place; whoever cannot, for whatever reason, says no, and the ordinary
//!   read is done, which knows how to recover. So no error can come when a part of the answer has left already;
//! - what is parked was read then, by the rules of a read: same checks, same choice of the copy, same counters.
//!
//! What is parked is not copied: until the client has fetched it, it is the member's pages themselves. What that means:
//! - a write that begins before the client has its answer may show in it, whole or in parts. That is as good as before: a read is
//!   under way until its payload has arrived, and requests that are under way together have no order. After a flush, or the
//!   answer of another request, an answer can only be newer than it was;
//! - a hole, a truncation or the end of a file take pages from the file, not from whoever holds them: what was read stays;
//! - a member that fails is not written to any more, so what was read of it stays. Mending, resync and rebuild write only what
//!   the volume holds at that address, as long as the member keeps its slot. Where the engine itself moves data or gives space
//!   to somebody else (a plex that grows, subdisks on drives shared by several volumes) nothing is parked (`Stacked`);
//! - a member that comes back in another slot would be filled with something else: nothing is parked where slots differ and
//!   members may change them (parity, RAID-10);
//! - what is left: somebody takes a member out (or stops the server), and gives it another use, in place, while a client has not
//!   fetched an answer from before: that client gets the new bytes. No session can take an answer back. Clients fetch within
//!   milliseconds, and every server with `sendfile` has this too; whoever writes anew over a member of a volume in use should do
//!   so in a new file.

use std::any::Any;

/// A place for data of members outside of our memory: a stream makes it, devices fill it, the stream sends it. Dropping it throws
/// away what is in it.
pub trait Parked {
    /// Bytes in it.
    fn length_bytes(&self) -> usize;

    /// Itself: for devices and streams that know its kind.
    fn as_any(&mut self) -> &mut dyn Any;
}
