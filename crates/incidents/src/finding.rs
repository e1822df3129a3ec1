//! One thing that is wrong now.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How bad it is. It comes from how many more losses are survived, never from a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Fewer losses are survived than by design, or something asks for attention.
    Warning,
    /// Nothing more may go wrong, or nobody knows.
    Critical,
    /// Data are lost, or cannot be reached.
    Emergency,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
            Self::Emergency => "emergency",
        })
    }
}

/// What is wrong. With its object it names an incident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Code {
    /// A volume survives fewer losses than by design, or has lost data.
    Redundancy,
    /// Nobody knows how it is: it cannot be asked, or is not there.
    NotJudged,
    /// Blocks are bad, and redundancy is as designed nevertheless.
    BadBlocks,
    /// A check found parity that does not fit its data.
    ParityMismatch,
    /// A check found damage and mended it.
    Mended,
    /// No whole check for longer than was asked for.
    ScrubOverdue,
    /// A member takes longer than its peers.
    SlowMember,
    /// Room runs out, or has.
    Space,
    /// A disk says that it gets worse.
    DiskHealth,
    /// What is decided cannot be kept.
    JournalNotWritable,
    /// What is configured cannot be read, and does not count.
    Configuration,
    /// A channel does not deliver.
    DeliveryFails,
    /// Nothing is wrong: somebody tries the way of a message.
    Test,
}

impl Code {
    /// Its name, as in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Redundancy => "redundancy",
            Self::NotJudged => "not_judged",
            Self::BadBlocks => "bad_blocks",
            Self::ParityMismatch => "parity_mismatch",
            Self::Mended => "mended",
            Self::ScrubOverdue => "scrub_overdue",
            Self::SlowMember => "slow_member",
            Self::Space => "space",
            Self::DiskHealth => "disk_health",
            Self::JournalNotWritable => "journal_not_writable",
            Self::Configuration => "configuration",
            Self::DeliveryFails => "delivery_fails",
            Self::Test => "test",
        }
    }

    /// What is said when it is over.
    #[must_use]
    pub fn over(self) -> &'static str {
        match self {
            Self::Redundancy => "redundancy is as designed again",
            Self::NotJudged => "it can be judged again",
            Self::BadBlocks => "no bad blocks any more",
            Self::ParityMismatch => "parity fits its data again",
            Self::Mended => "the last check mended nothing",
            Self::ScrubOverdue => "checked in time again",
            Self::SlowMember => "as fast as its peers again",
            Self::Space => "there is room again",
            Self::DiskHealth => "nothing grows any more",
            Self::JournalNotWritable => "the journal is written again",
            Self::Configuration => "the configuration is read again",
            Self::DeliveryFails => "messages are delivered again",
            Self::Test => "the test is over",
        }
    }
}

/// What it is wrong with, by what it is known by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// A volume, by `uuid`.
    Volume(String),
    /// A member of it, by `uuid` and slot.
    Member(String, u16),
    /// A disk, by identity.
    Disk(String),
    /// A channel, by name.
    Channel(String),
    /// The process that serves the volumes.
    Daemon,
}

impl Object {
    /// Whether nothing can be known of it while `other` cannot be judged.
    #[must_use]
    pub fn is_part_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Member(volume, _), Self::Volume(whole)) => volume == whole,
            _ => self == other,
        }
    }
}

/// What is said of it. The order is that of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lines {
    /// The first line everywhere, behind the name of host and object.
    pub headline: String,
    /// What happened.
    pub what: Vec<String>,
    /// What it means for the data.
    pub data: Vec<String>,
    /// What to do, with commands.
    pub advice: Vec<String>,
    /// What was seen before.
    pub before: Vec<String>,
}

/// One thing that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What is wrong.
    pub code: Code,
    /// With what.
    pub object: Object,
    /// What that is called now, for messages.
    pub name: String,
    /// How bad it is.
    pub severity: Severity,
    /// What is said of it.
    pub lines: Lines,
}
