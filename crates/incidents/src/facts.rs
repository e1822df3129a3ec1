//! What is the case now: plain data, given by whoever owns the volumes.
//!
//! Nothing here is a word for a state. Texts are for messages alone and decide nothing.

use serde::{Deserialize, Serialize};

use crate::time::UnixTime;

/// Everything that is judged at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Name of this machine, for messages.
    pub host: String,
    /// How far east of UTC its clock is shown, in seconds.
    pub utc_offset_s: i32,
    /// All volumes that are served.
    pub volumes: Vec<VolumeFacts>,
    /// All disks that are known.
    pub disks: Vec<DiskFacts>,
    /// The process that serves them.
    pub daemon: DaemonFacts,
}

/// What makes copies of a volume's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RedundancyKind {
    /// Nothing: linear, RAID-0.
    #[default]
    Plain,
    /// Copies: RAID-1, RAID-10.
    Copies,
    /// Parity: RAID-4, RAID-5, RAID-6.
    Parity,
}

/// A slot whose data nobody holds completely.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MissingSlot {
    /// Which one.
    pub slot: u16,
    /// Bytes that are valid on whoever is being filled for it; none while nobody is.
    pub valid_bytes: Option<u64>,
    /// Who was there last, such as `disk in bay 4 (WD40EFRX, serial WCC4E17)`.
    pub member: Option<String>,
    /// What happened, such as `the device is gone (3 write errors before)`.
    pub reason: Option<String>,
    /// Since when.
    pub since: Option<UnixTime>,
    /// A disk that is there again can take its slot back, and this is its path.
    pub returned: Option<String>,
}

/// A member that is slow beside its peers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowMember {
    /// Its slot.
    pub slot: u16,
    /// Which disk it is.
    pub member: Option<String>,
    /// How long it takes beside its peers: 460 is 4.6 times as long.
    pub peer_ratio_percent: u32,
}

/// What is known of checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubFacts {
    /// The end of the last check that went over everything. One that was interrupted does not count.
    pub last_success: Option<UnixTime>,
    /// When the byte that was checked longest ago was; for a new volume, when it was made.
    pub oldest_checked: Option<UnixTime>,
    /// How old that may become, in seconds; none where nobody asked for checks.
    pub due_after_s: Option<u64>,
    /// Bytes that differed in the last check and still do.
    pub mismatch_bytes: u64,
    /// Bytes that the last check mended.
    pub mended_bytes: u64,
}

/// Room on what lies under a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SpaceFacts {
    /// Bytes in use.
    pub used_bytes: u64,
    /// All bytes.
    pub size_bytes: u64,
}

/// When redundancy will be back, as it looks now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SafeAgain {
    /// Most likely.
    pub likely: UnixTime,
    /// At the earliest.
    pub earliest: UnixTime,
    /// At the latest.
    pub latest: UnixTime,
}

/// One volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeFacts {
    /// Its name, for messages.
    pub name: String,
    /// What it is known by: it stays the same under another name.
    pub uuid: String,
    /// What makes copies.
    pub kind: RedundancyKind,
    /// Further members that may be lost, any of them, without losing data: where it is worst.
    pub losses_left: usize,
    /// The same everywhere but where blocks are bad or something is in doubt.
    pub losses_left_elsewhere: usize,
    /// What the organisation survives when nothing is missing.
    pub losses_designed: usize,
    /// Slots without a complete member.
    pub missing: Vec<MissingSlot>,
    /// Slots that are meant to be without one.
    pub expected_missing: usize,
    /// Data are lost, or cannot be reached.
    pub is_lost: bool,
    /// It is being made: it never had its redundancy yet.
    pub is_first_sync: bool,
    /// Regions where copies or parity may differ.
    pub doubtful_regions: u64,
    /// Bytes that are bad on members that are complete otherwise.
    pub bad_bytes: u64,
    /// Members that are ready to take a slot.
    pub spares: usize,
    /// When redundancy will be back.
    pub safe_again: Option<SafeAgain>,
    /// Checks.
    pub scrub: ScrubFacts,
    /// Members that are slow.
    pub slow: Vec<SlowMember>,
    /// A write was refused for want of room and still would be.
    pub is_full: bool,
    /// Room, where it can run out.
    pub space: Option<SpaceFacts>,
    /// Why nothing of the above is known now. Then none of it is believed.
    pub cannot_judge: Option<String>,
    /// What was seen before, for messages, newest last.
    pub before: Vec<String>,
}

/// What a disk says of itself, held against what it said when it joined.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is")]
pub enum Health {
    /// Nothing grows.
    #[default]
    Fine,
    /// It says nothing of itself, and never did.
    NotOffered,
    /// It sleeps and was not woken: it is as it was.
    Asleep,
    /// Faults grow.
    Growing {
        /// Which, and how fast.
        what: String,
    },
    /// It says that it fails.
    Failing {
        /// In which words.
        what: String,
    },
    /// Errors on the way to it: cable or bay, not the disk.
    Connection {
        /// Which, and how fast.
        what: String,
    },
    /// It is hotter than it is made for.
    Hot {
        /// How hot.
        what: String,
    },
    /// It should have answered and did not.
    CannotJudge {
        /// Why.
        reason: String,
    },
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DiskFacts {
    /// What it is known by; never a name that changes at the next start.
    pub identity: String,
    /// Which disk it is, such as `disk in bay 4 (WD40EFRX, serial WCC4E17)`.
    pub member: String,
    /// The volume that it is in, by `uuid`, and its slot.
    pub used_by: Option<(String, u16)>,
    /// What it says of itself.
    pub health: Health,
}

/// A volume that should be there and is not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AbsentVolume {
    /// Its name, for messages.
    pub name: String,
    /// What it is known by.
    pub uuid: String,
    /// Why it is not there, such as `2 of 5 members found, 4 are needed`.
    pub reason: String,
    /// What was there last, each member with its identity.
    pub members: Vec<String>,
}

/// A channel that does not deliver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeliveryFailure {
    /// Its name in the configuration.
    pub channel: String,
    /// Since when.
    pub since: UnixTime,
    /// Attempts in a row that failed.
    pub attempts: u32,
    /// Messages that were given up.
    pub given_up: u64,
    /// What the transport said last.
    pub error: String,
}

/// The process that serves the volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DaemonFacts {
    /// Why what is decided cannot be kept.
    pub journal_not_writable: Option<String>,
    /// What is wrong with the configuration; what it says there does not count.
    pub configuration: Option<String>,
    /// Channels that do not deliver.
    pub delivery_failures: Vec<DeliveryFailure>,
    /// Volumes that should be there and are not.
    pub absent: Vec<AbsentVolume>,
    /// Volumes, by `uuid`, whose members are still waited for. They are neither there nor absent: what was known of
    /// them stays as it was.
    pub starting: Vec<String>,
}
