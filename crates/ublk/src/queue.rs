//! What a session needs of a queue of the kernel: waiting for requests, their data, answers, and the device's end.

use plexum_block::buf::BufMut;

use crate::wire::Descriptor;

/// Why a tag brings no more requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// The device stops, or is no longer this server's.
    Gone,
    /// The kernel refuses the command: its errno.
    Refused(i32),
}

/// What becomes of the device when its session is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Withdrawn {
    /// It was stopped: each tag ends with `QueueEnd::Gone`.
    Stopped,
    /// It stays, and waits for another server.
    Kept,
}

/// One queue of a device. Belongs to one thread.
#[allow(async_fn_in_trait)] // a session lives on one thread
pub trait Queue {
    /// Requests that may be under way at the same time; tags are below it.
    fn depth(&self) -> u16;

    /// Waits for the first request of `tag`. One wait for each tag at a time.
    /// # Errors
    /// Nothing will come.
    async fn fetch(&self, tag: u16) -> Result<(), QueueEnd>;

    /// Answers the request of `tag` (bytes moved, or a negative errno), and waits for its next one.
    /// # Errors
    /// Nothing will come.
    async fn commit_and_fetch(&self, tag: u16, result: i32) -> Result<(), QueueEnd>;

    /// The request that has come for `tag`.
    fn descriptor(&self, tag: u16) -> Descriptor;

    /// Fills `target` with the data of a write, all of it.
    /// # Errors
    /// The request is gone: its errno.
    async fn take_data(&self, tag: u16, target: &mut BufMut) -> Result<(), i32>;

    /// Gives data to a read, from its byte `at` on.
    /// # Errors
    /// The request is gone: its errno.
    async fn give_data(&self, tag: u16, at: u32, data: &[u8]) -> Result<(), i32>;

    /// The session is to end: stops the device, or leaves it to a successor. Requests are served meanwhile.
    async fn withdraw(&self) -> Withdrawn;
}
