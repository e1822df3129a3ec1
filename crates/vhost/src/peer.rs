//! What a session needs of the operating system: a socket that carries files, memory of others, events.

use plexum_front::memory::{Memory, MemoryError};

/// Memory that somebody else has as well, and changes at any time.
pub trait Mapping: Memory {
    /// The number of 16 bits at an even place, in the byte order of the machine; what was written by others before it
    /// is seen after it.
    ///
    /// # Errors
    /// It lies outside, at an odd place, or the memory is gone.
    fn load_u16(&self, offset_bytes: usize) -> Result<u16, MemoryError>;

    /// Puts a number there; what was written here before is seen by others before it.
    ///
    /// # Errors
    /// As `load_u16`.
    fn store_u16(&self, offset_bytes: usize, value: u16) -> Result<(), MemoryError>;
}

/// Why a connection, or something that came by it, is of no use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// It has ended.
    #[error("the connection has ended")]
    Closed,
    /// A file cannot be what it is to be.
    #[error("{0}")]
    File(String),
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// Where they begin.
    pub offset_bytes: u64,
    /// How many there are.
    pub size_bytes: u64,
}

/// The event by which a ring tells of work.
#[allow(async_fn_in_trait)] // a session lives on one thread
pub trait Kick {
    /// Returns when it was signalled since it last returned.
    /// # Errors
    /// It will never be again.
    async fn wait(&self) -> Result<(), PeerError>;
}

/// The event by which a guest is told.
pub trait Call {
    /// Tells it. Never waits; who cannot be told looks by itself.
    fn signal(&self);
}

/// A socket for messages to the front end that it has not asked for.
pub trait Backend {
    /// Sends a message whole, or not at all. Never waits.
    fn send(&self, message: &[u8]);
}

/// One connection. Belongs to one thread.
#[allow(async_fn_in_trait)] // a session lives on one thread
pub trait Peer {
    /// A file that came with a message, or goes with one.
    type File;
    /// Memory in such a file.
    type Mapping: Mapping;
    /// As above.
    type Kick: Kick;
    /// As above.
    type Call: Call;
    /// As above.
    type Backend: Backend;

    /// Reads at least one byte into `buf` and says how many, 0 at the end; files that come with them are put behind
    /// `files`, of which there are never more than `REGIONS_MAX`.
    /// # Errors
    /// Any error ends the connection.
    async fn receive(
        &self,
        buf: &mut [u8],
        files: &mut Vec<Self::File>,
    ) -> Result<usize, PeerError>;

    /// Sends all of `bytes`, with a file.
    /// # Errors
    /// Any error ends the connection.
    async fn send(&self, bytes: &[u8], file: Option<&Self::File>) -> Result<(), PeerError>;

    /// Ends the connection in both directions: calls that are pending end. Idempotent.
    fn close(&self);

    /// Maps a part of a file for reading and writing.
    /// # Errors
    /// The file is shorter, or no file of bytes; there is no room.
    fn map(&self, file: &Self::File, part: FilePart) -> Result<Self::Mapping, PeerError>;

    /// Memory of zeroes that others can map as well.
    /// # Errors
    /// There is no room.
    fn share(&self, size_bytes: u64) -> Result<(Self::File, Self::Mapping), PeerError>;

    /// Takes a file as an event to wait for.
    /// # Errors
    /// It is none.
    fn kick(&self, file: Self::File) -> Result<Self::Kick, PeerError>;

    /// Takes a file as an event to signal.
    /// # Errors
    /// It is none.
    fn call(&self, file: Self::File) -> Result<Self::Call, PeerError>;

    /// Takes a file as a socket to the front end.
    /// # Errors
    /// It is none.
    fn backend(&self, file: Self::File) -> Result<Self::Backend, PeerError>;

    /// To be awaited before `length_bytes` are copied: other tasks have their turn.
    async fn charge(&self, length_bytes: usize);
}
