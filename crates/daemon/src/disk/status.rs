//! A disk as status tells it.

use plexum_inventory::health::Verdict;
use plexum_inventory::{BayAddress, Identity};
use serde::{Deserialize, Serialize};

use crate::memory::KnownDisk;

/// The disk of a member, or of the member that a slot had last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskStatus {
    /// The kernel's name now; none of one that is gone. It is another disk's after the next boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whether it is gone: all else is what was known of it.
    #[serde(default)]
    pub is_gone: bool,
    /// Model as on the sticker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Serial as on the sticker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// World-wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<String>,
    /// Where it sits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bay: Option<DiskBay>,
    /// As in `/dev/disk/by-path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Size of the whole disk.
    pub size_bytes: u64,
    /// When it was first seen in this volume, in seconds since 1970; none of one that had no slot yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_seen_s: Option<u64>,
    /// When it was last seen in use here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen_s: Option<u64>,
    /// How it is; none while it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<DiskHealth>,
}

/// A disk that had a slot before the one that has it now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormerDisk {
    /// The slot.
    pub slot: u32,
    /// The path of the member that it was.
    pub member: String,
    /// What was known of it.
    pub disk: DiskStatus,
}

/// Where a disk sits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskBay {
    /// The enclosure's logical id, where one speaks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enclosure: Option<String>,
    /// What a person calls it: mostly a number.
    pub number: String,
    /// The same in words.
    pub words: String,
    /// What its lights are found by.
    pub address: BayAddress,
}

/// How a disk is, and when it said so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskHealth {
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// The same in words.
    pub words: String,
    /// When it was asked last, in seconds since 1970.
    pub read_s: u64,
}

impl DiskStatus {
    /// A disk that is there.
    #[must_use]
    pub fn of(identity: &Identity) -> Self {
        Self {
            name: Some(identity.name.clone()),
            is_gone: false,
            model: identity.model.clone(),
            serial: identity.serial.clone(),
            wwn: identity.wwn.clone(),
            bay: identity.bay.as_ref().map(DiskBay::of),
            path: identity.path.clone(),
            size_bytes: identity.size_bytes,
            first_seen_s: None,
            last_seen_s: None,
            health: None,
        }
    }

    /// A disk that is gone, from what is known of it.
    #[must_use]
    pub fn of_gone(known: &KnownDisk) -> Self {
        let gone = Self {
            name: None,
            is_gone: true,
            ..Self::of(&known.complete())
        };
        gone.with(known)
    }

    /// With what was seen of it before.
    #[must_use]
    pub fn with(self, known: &KnownDisk) -> Self {
        let complete = known.complete();
        Self {
            first_seen_s: Some(known.first_seen_s),
            last_seen_s: Some(known.last_seen_s),
            model: complete.model.or(self.model),
            serial: complete.serial.or(self.serial),
            wwn: complete.wwn.or(self.wwn),
            health: known.health(),
            ..self
        }
    }
}

impl DiskBay {
    /// A bay by its address.
    #[must_use]
    pub fn of(address: &BayAddress) -> Self {
        Self {
            enclosure: match address {
                BayAddress::Enclosure { enclosure, .. } => Some(enclosure.clone()),
                _ => None,
            },
            number: address.label(),
            words: address.to_string(),
            address: address.clone(),
        }
    }
}

impl DiskStatus {
    /// Which disk it is, in a few words: `disk in bay 4 (WD40EFRX, serial WCC4E17)`.
    #[must_use]
    pub fn words(&self) -> String {
        let serial = self
            .serial
            .as_ref()
            .map(|serial| format!("serial {serial}"));
        let wwn = || self.wwn.as_ref().map(|wwn| format!("wwn {wwn}"));
        let known: Vec<String> = [self.model.clone(), serial.or_else(wwn)]
            .into_iter()
            .flatten()
            .collect();
        let who = match known.is_empty() {
            true => String::new(),
            false => format!(" ({})", known.join(", ")),
        };
        match &self.bay {
            Some(bay) => format!("disk in {}{who}", bay.short()),
            None => format!("disk{who}"),
        }
    }
}

impl DiskBay {
    /// What it is called in a sentence: `bay 4`, `port ata-1`.
    #[must_use]
    pub fn short(&self) -> String {
        let number = &self.number;
        match &self.address {
            BayAddress::Enclosure { .. } => format!("bay {number}"),
            BayAddress::AtaPort { .. } => format!("port {number}"),
            BayAddress::PciSlot { .. } => format!("PCI slot {number}"),
            BayAddress::Path { .. } => format!("path {number}"),
        }
    }
}
