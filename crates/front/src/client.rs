//! One client of an export, and how it is told to leave.
//!
//! Invariants:
//! - a client that drains is admitted nothing new; what it has under way ends and is answered, then it leaves;
//! - of a client that is fenced nothing reaches the export any more; what the export works on already ends there, and
//!   need not be answered;
//! - a client has left when none of its requests is with the export and its session is over: `leave` returns then, and
//!   not before.

use std::rc::Rc;

use crate::budget::Budget;
use crate::flag::{Flag, Wait};
use crate::requests::{RequestLimits, Requests};

/// Number of a client among all that an `Exports` has had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(pub u64);

/// How a client is to leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// No new requests; those under way end and are answered.
    Drain,
    /// Nothing more reaches the export.
    Fence,
}

/// A client as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientStatus {
    /// Which one.
    pub id: ClientId,
    /// Where it is: an address, a queue; empty when its server knows no more.
    pub peer: String,
    /// Requests that were admitted and not yet answered.
    pub under_way: usize,
    /// How it was told to leave, if it was.
    pub leaves: Option<Leave>,
}

/// One client of an export, in one session.
pub struct Client {
    id: ClientId,
    peer: String,
    requests: Rc<Requests>,
    /// Set for both ways of leaving.
    leaving: Flag,
    fenced: Flag,
    left: Flag,
}

impl Client {
    /// A client that has just come. `Exports::enter` makes them.
    pub(crate) fn new(id: ClientId, peer: String, limits: RequestLimits, budget: Budget) -> Self {
        Self {
            id,
            peer,
            requests: Rc::new(Requests::new(limits, budget)),
            leaving: Flag::default(),
            fenced: Flag::default(),
            left: Flag::default(),
        }
    }

    /// Which one it is.
    #[must_use]
    pub fn id(&self) -> ClientId {
        self.id
    }

    /// Its requests under way.
    #[must_use]
    pub fn requests(&self) -> &Rc<Requests> {
        &self.requests
    }

    /// What others are told of it.
    #[must_use]
    pub fn status(&self) -> ClientStatus {
        ClientStatus {
            id: self.id,
            peer: self.peer.clone(),
            under_way: self.requests.under_way(),
            leaves: match (self.leaving.is_set(), self.fenced.is_set()) {
                (_, true) => Some(Leave::Fence),
                (true, false) => Some(Leave::Drain),
                (false, false) => None,
            },
        }
    }

    /// Tells it to leave, and returns at once. Who drains may be fenced later; a fence is for ever.
    pub fn tell(&self, how: Leave) {
        if how == Leave::Fence {
            self.fenced.set();
        }
        self.leaving.set();
    }

    /// Tells it to leave, and returns when it has.
    pub async fn leave(&self, how: Leave) {
        self.tell(how);
        self.left.wait().await;
    }

    /// Whether it is to leave in whatever way: nothing new is admitted.
    #[must_use]
    pub fn is_leaving(&self) -> bool {
        self.leaving.is_set()
    }

    /// Whether nothing of it may reach the export any more.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced.is_set()
    }

    /// Returns when it is to leave in whatever way.
    pub fn leaving(&self) -> Wait<'_> {
        self.leaving.wait()
    }

    /// Returns when it is fenced.
    pub fn fenced(&self) -> Wait<'_> {
        self.fenced.wait()
    }

    /// Its session is over.
    pub(crate) fn has_left(&self) {
        assert_eq!(
            self.requests.with_export(),
            0,
            "no request outlives its session"
        );
        self.left.set();
    }
}
