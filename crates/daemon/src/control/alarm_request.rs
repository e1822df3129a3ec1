//! What is asked of the daemon's alarms.

use serde::Deserialize;

/// What is asked of the daemon's alarms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlarmRequest {
    /// All incidents that are open, or were not long ago, and how it goes with each channel.
    List,
    /// One incident, with its messages and what became of them.
    Show {
        /// Its number, as it is written.
        id: String,
    },
    /// Somebody knows of an incident; answered when that is durable.
    Acknowledge {
        /// Its number, as it is written.
        id: String,
        /// Who, and why that is enough.
        by: Acknowledge,
    },
    /// Send a message to a channel, to try it; answered when the transport has answered.
    Test {
        /// Its name.
        channel: String,
    },
}

/// Who knows of an incident, and why that is enough: the body of the request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Acknowledge {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
}
