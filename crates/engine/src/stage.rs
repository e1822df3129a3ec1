//! Where each client request is: for `plexum debug requests` and for the simulator's coverage.
//!
//! Invariants:
//! - an entry exists exactly while its request is being carried out; dropping the tag ends it, also when a task is
//!   dropped;
//! - nothing here decides anything: no request waits for, or depends on, what is noted.

use std::cell::RefCell;

use plexum_block::clock::Moment;

/// What a request is doing. Of a request in several pieces the stage that a piece entered last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Stage {
    /// Taken; nothing has been done for it.
    Received,
    /// Waits until the array is durably marked dirty (W1).
    DirtyMark,
    /// Waits until its regions are durably marked in the bitmap (W1).
    BitMark,
    /// Waits for the lock of its row or range.
    Lock,
    /// Reads members: for the answer, or for parity.
    Read,
    /// Waits until its log record is durable (L4).
    Log,
    /// Writes members.
    Write,
    /// Flushes members.
    Flush,
    /// Waits until the failures of members are durable (W3).
    Settle,
}

impl Stage {
    /// All stages, in the usual order.
    pub const ALL: [Stage; 9] = [
        Stage::Received,
        Stage::DirtyMark,
        Stage::BitMark,
        Stage::Lock,
        Stage::Read,
        Stage::Log,
        Stage::Write,
        Stage::Flush,
        Stage::Settle,
    ];

    /// Name for people and for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Stage::Received => "received",
            Stage::DirtyMark => "dirty-mark",
            Stage::BitMark => "bit-mark",
            Stage::Lock => "lock",
            Stage::Read => "read",
            Stage::Log => "log",
            Stage::Write => "write",
            Stage::Flush => "flush",
            Stage::Settle => "settle",
        }
    }
}

/// What a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// Zeroes or a trim.
    Zero,
    /// A flush.
    Flush,
}

impl RequestKind {
    /// Name for people and for JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Read => "read",
            RequestKind::Write => "write",
            RequestKind::Zero => "zero",
            RequestKind::Flush => "flush",
        }
    }
}

/// A request that is being carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestInfo {
    /// Counts up from 0 over the life of the volume.
    pub number: u64,
    /// What was asked for.
    pub kind: RequestKind,
    /// Offset in the volume, in bytes.
    pub offset_bytes: u64,
    /// Length in bytes.
    pub length_bytes: u64,
    /// When it came.
    pub started: Moment,
    /// Where it is.
    pub stage: Stage,
}

/// The requests of one volume that are being carried out.
#[derive(Default)]
pub struct Requests {
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    next_number: u64,
    /// Places are used again; there are never more than requests were in flight at once.
    places: Vec<Option<RequestInfo>>,
    free: Vec<usize>,
}

/// The place of one request in the list; dropping it takes the request off.
pub struct Tag<'a> {
    requests: &'a Requests,
    place: usize,
    started: Moment,
}

impl Requests {
    /// A request begins.
    #[inline]
    pub(crate) fn begin(
        &self,
        kind: RequestKind,
        offset_bytes: u64,
        length_bytes: u64,
        now: Moment,
    ) -> Tag<'_> {
        let mut inner = self.inner.borrow_mut();
        let number = inner.next_number;
        inner.next_number += 1;
        let place = match inner.free.pop() {
            Some(place) => place,
            None => {
                inner.places.push(None);
                inner.places.len() - 1
            }
        };
        inner.places[place] = Some(RequestInfo {
            number,
            kind,
            offset_bytes,
            length_bytes,
            started: now,
            stage: Stage::Received,
        });
        Tag {
            requests: self,
            place,
            started: now,
        }
    }

    /// All requests that are being carried out, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<RequestInfo> {
        let mut list: Vec<RequestInfo> = self
            .inner
            .borrow()
            .places
            .iter()
            .flatten()
            .copied()
            .collect();
        list.sort_by_key(|request| request.number);
        list
    }
}

impl Tag<'_> {
    /// When the request came.
    #[inline]
    pub(crate) fn started(&self) -> Moment {
        self.started
    }

    /// The request enters a stage.
    #[inline]
    pub(crate) fn enter(&self, stage: Stage) {
        if let Some(request) = &mut self.requests.inner.borrow_mut().places[self.place] {
            request.stage = stage;
        }
    }
}

impl Drop for Tag<'_> {
    #[inline]
    fn drop(&mut self) {
        let mut inner = self.requests.inner.borrow_mut();
        inner.places[self.place] = None;
        inner.free.push(self.place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_listed_with_its_stage_exactly_while_its_tag_lives() {
        let requests = Requests::default();
        let first = requests.begin(RequestKind::Read, 0, 512, Moment(5));
        let second = requests.begin(RequestKind::Write, 4096, 1024, Moment(6));
        second.enter(Stage::BitMark);
        let stages: Vec<Stage> = requests
            .list()
            .iter()
            .map(|request| request.stage)
            .collect();
        assert_eq!(stages, [Stage::Received, Stage::BitMark]);
        drop(first);
        assert_eq!(requests.list().len(), 1);
        let third = requests.begin(RequestKind::Flush, 0, 0, Moment(7));
        let numbers: Vec<u64> = requests
            .list()
            .iter()
            .map(|request| request.number)
            .collect();
        assert_eq!(
            numbers,
            [1, 2],
            "the place was used again, the number was not"
        );
        drop((second, third));
        assert!(requests.list().is_empty());
    }
}
