//! What comes over the control socket: requests and changes, and how they are answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::sync::oneshot;

use super::access::Role;
use super::alarm_request::AlarmRequest;
use super::open_request::OpenRequest;
use crate::host::GrowWish;
use crate::pool_change::PoolChange;
use crate::problem::Problem;

/// A change that a user asks for. The JSON body of the `POST` carries the fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "kebab-case")]
pub enum Action {
    /// Treat the member as failed.
    Fail {
        /// Path, slot number or serial.
        member: String,
    },
    /// Add a new member: a spare, or the filling of an empty slot.
    Add {
        /// Path or URI.
        member: String,
        /// Overwrite what was found on it.
        #[serde(default)]
        force: bool,
    },
    /// Let go of a failed member or a spare.
    Remove {
        /// Path, slot number or serial.
        member: String,
    },
    /// Take a member back; only what it missed is copied where the bitmap says so.
    ReAdd {
        /// Path or URI.
        member: String,
    },
    /// Copy a member to a new one while it still serves.
    Replace {
        /// Path, slot number or serial of the old one.
        old: String,
        /// Path or URI of the new one.
        new: String,
        /// Overwrite what was found on the new one.
        #[serde(default)]
        force: bool,
    },
    /// Compare all copies or parity.
    Scrub {
        /// Mend what differs.
        #[serde(default)]
        repair: bool,
        /// Stop the scrub that runs.
        #[serde(default)]
        stop: bool,
    },
    /// Another shape: members, level, layout, strip.
    Grow {
        /// What is asked for.
        #[serde(flatten)]
        wish: GrowWish,
    },
    /// Stop cleanly.
    Stop,
    /// Make it a block device of the kernel (ublk), or remove that.
    Device {
        /// Remove it.
        #[serde(default)]
        remove: bool,
    },
    /// Change settings while running.
    Set {
        /// Name and value as typed.
        settings: BTreeMap<String, String>,
    },
}

impl Action {
    /// Last part of the route, as in `POST /v1/volumes/NAME/re-add`.
    #[must_use]
    pub fn route(&self) -> &'static str {
        match self {
            Action::Fail { .. } => "fail",
            Action::Add { .. } => "add",
            Action::Remove { .. } => "remove",
            Action::ReAdd { .. } => "re-add",
            Action::Replace { .. } => "replace",
            Action::Scrub { .. } => "scrub",
            Action::Grow { .. } => "grow",
            Action::Stop => "stop",
            Action::Device { .. } => "device",
            Action::Set { .. } => "set",
        }
    }

    /// The role that it needs.
    #[must_use]
    pub fn role(&self) -> Role {
        match self {
            Action::ReAdd { .. } | Action::Scrub { .. } => Role::Operate,
            _ => Role::Administer,
        }
    }
}

/// What a client wants to know or to have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Status of all volumes of this server.
    List,
    /// Status of one.
    Show {
        /// Name.
        volume: String,
    },
    /// Serve volumes from now on, and at each start: of the daemon alone.
    Open {
        /// What to serve.
        open: Box<OpenRequest>,
    },
    /// Serve a volume again that the daemon knows.
    Start {
        /// Name.
        volume: String,
    },
    /// Expect a volume no more; it must have been stopped.
    Forget {
        /// Name.
        volume: String,
    },
    /// Counters and latency of one.
    Stats {
        /// Name.
        volume: String,
        /// Start counting anew afterwards.
        reset: bool,
    },
    /// Requests in flight of one, with their stage.
    Requests {
        /// Name.
        volume: String,
    },
    /// A block device of the kernel stands on the volume from now on: the server is in the way of its write-out.
    Attached {
        /// Name.
        volume: String,
    },
    /// Something of alarms: of the daemon alone.
    Alarm(AlarmRequest),
    /// What a pool is made of that is served.
    ShowPool {
        /// Its name, or its identity.
        pool: String,
    },
    /// A dry run of a change of a pool that is served.
    RehearsePool {
        /// Its name, or its identity.
        pool: String,
        /// What would be changed.
        change: PoolChange,
    },
    /// A change of a pool that is served.
    ChangePool {
        /// Its name, or its identity.
        pool: String,
        /// What to change.
        change: PoolChange,
        /// Who asks for it, in which way, and why: told with the event.
        asked: String,
    },
    /// A dry run of a change.
    Rehearse {
        /// Name.
        volume: String,
        /// What would be changed.
        action: Action,
    },
    /// A change.
    Act {
        /// Name.
        volume: String,
        /// What to change.
        action: Action,
    },
}

/// Answer of the engine's side: an object, or why not.
pub type Answer = Result<Value, Problem>;

/// A request on its way to the engine's thread.
pub struct Ask {
    /// What is wanted.
    pub request: Request,
    reply: oneshot::Sender<Answer>,
}

impl Ask {
    /// A request, and where its answer arrives.
    pub(super) fn new(request: Request) -> (Self, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        (Self { request, reply }, answer)
    }

    /// Answers. The client may be gone; that is no error.
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }
}
