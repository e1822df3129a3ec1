//! From what smartctl printed, and how it ended, to what is known of the disk.
//!
//! Invariants:
//! - Sleep and a device that cannot be opened share one bit of the exit status. Only a document that names the mode is
//!   sleep; everything else with that bit is silence.
//! - A document without a single counter is silence, whatever else it says: a bridge that answers "passed" knows
//!   nothing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::counters::Counters;
use super::exit::ExitStatus;
use super::nvme::CriticalWarning;
use super::self_test::SelfTest;
use super::value::{at, count, elements, temperature, temperature_limit, text, truth, whole};
use super::verdict::Silence;
use super::{ata, nvme, scsi};
use crate::vpd::normal_wwn;

/// A document of smartctl has 30 to 150 KiB; the longest logs make it some times longer.
pub const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Messages of smartctl that are looked at.
const MESSAGES_MAX: usize = 64;

/// How the call of smartctl ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// It exited with this status.
    Exited(ExitStatus),
    /// It was still running after this time, and was left alone: a disk that hangs cannot be killed free.
    TimedOut {
        /// The time, in milliseconds.
        after_ms: u64,
    },
    /// A signal ended it.
    Killed {
        /// The signal's number.
        signal: i32,
    },
    /// There is no such program.
    NotInstalled,
}

/// The language a disk speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protocol {
    /// SATA, also behind a bridge or a SAS controller.
    Ata,
    /// SAS.
    Scsi,
    /// NVMe.
    Nvme,
}

/// What one document says of a disk that is awake.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The disk's language.
    pub protocol: Protocol,
    /// Model, as the disk gives it.
    pub model: Option<String>,
    /// Serial, as the disk gives it.
    pub serial: Option<String>,
    /// World-wide name, `naa.` or `eui.` and digits.
    pub wwn: Option<String>,
    /// Firmware.
    pub firmware: Option<String>,
    /// Turns per minute; 0 for a disk without platters.
    pub rotation_per_min: Option<u64>,
    /// The disk's own verdict.
    pub is_passed: Option<bool>,
    /// Attributes that foretell failure and are at their threshold now.
    pub at_threshold: Vec<String>,
    /// Critical warnings of an NVMe disk.
    pub critical_warning: Option<CriticalWarning>,
    /// Spare blocks that are left, percent.
    pub available_spare_percent: Option<u64>,
    /// Where the disk begins to warn of them, percent.
    pub spare_threshold_percent: Option<u64>,
    /// The counters.
    pub counters: Counters,
    /// Hours under power.
    pub power_on_hours: Option<u64>,
    /// Temperature now, degrees Celsius.
    pub temperature_c: Option<i64>,
    /// The highest temperature of its life, degrees Celsius.
    pub temperature_max_c: Option<i64>,
    /// The highest temperature that it is made for, degrees Celsius.
    pub temperature_limit_c: Option<i64>,
    /// Whether it tests itself.
    pub self_test: SelfTest,
    /// How smartctl ended.
    pub exit_status: ExitStatus,
}

/// What came of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The disk is awake and has answered.
    Awake(Box<Health>),
    /// The disk sleeps, and was left asleep.
    Asleep {
        /// What smartctl calls the mode.
        mode: String,
    },
    /// Nothing was learned.
    Silent(Silence),
}

/// A report, and when it was made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Seconds since 1970.
    pub read_unix_s: u64,
    /// What came of it.
    pub report: Report,
}

/// Reads what smartctl printed.
#[must_use]
pub fn read(document: &[u8], ended: Ended) -> Report {
    let status = match ended {
        Ended::Exited(status) => status,
        Ended::TimedOut { after_ms } => return Report::Silent(Silence::TimedOut { after_ms }),
        Ended::Killed { signal } => return Report::Silent(Silence::Killed { signal }),
        Ended::NotInstalled => return Report::Silent(Silence::NotInstalled),
    };
    if document.len() > DOCUMENT_BYTES_MAX {
        return Report::Silent(Silence::TooLong {
            bytes_max: DOCUMENT_BYTES_MAX as u64,
        });
    }
    match serde_json::from_slice::<Value>(document) {
        Ok(document) if document.is_object() => report(&document, status),
        Ok(_) => Report::Silent(Silence::NotJson { line: 1 }),
        // smartctl before 7.0 does not know -j and says so in plain text.
        Err(_) if status.is_usage_error() => Report::Silent(Silence::Usage { message: None }),
        Err(error) => Report::Silent(Silence::NotJson {
            line: error.line() as u64,
        }),
    }
}

fn report(document: &Value, status: ExitStatus) -> Report {
    if let Some(mode) = sleeping(document, status) {
        return Report::Asleep { mode };
    }
    if status.is_usage_error() {
        return Report::Silent(Silence::Usage {
            message: message(document),
        });
    }
    if status.is_open_failure_or_sleep() {
        return Report::Silent(Silence::CannotOpen {
            message: message(document),
        });
    }
    let Some(protocol) = protocol(document) else {
        return Report::Silent(Silence::NoHealth);
    };
    let health = health(document, status, protocol);
    let says_nothing =
        health.counters.known().next().is_none() && health.critical_warning.is_none();
    let is_blank = match protocol {
        Protocol::Ata => ata::is_blank(document),
        Protocol::Nvme => nvme::is_blank(document),
        Protocol::Scsi => false,
    };
    // "Failing" is worth telling even if nothing else came through, or if everything else is made up.
    let speaks = health.is_passed == Some(false) || status.is_failing();
    match (says_nothing, is_blank) {
        (true, _) if !speaks => Report::Silent(Silence::NoHealth),
        (_, true) if !speaks => Report::Silent(Silence::Blank),
        _ => Report::Awake(Box::new(health)),
    }
}

/// The mode, if the document says that the disk was left asleep.
fn sleeping(document: &Value, status: ExitStatus) -> Option<String> {
    if !status.is_open_failure_or_sleep() {
        return None;
    }
    let named = text(document, "power_mode/name");
    let named = named.filter(|name| name.starts_with("STANDBY") || name == "SLEEP");
    // Versions before 7.4, and SAS disks, have the mode in a message alone: "Device is in STANDBY mode, exit(2)".
    named.or_else(|| {
        let mut messages = messages(document);
        messages.find_map(|message| {
            let (mode, _) = message.strip_prefix("Device is in ")?.split_once(" mode")?;
            Some(mode.to_owned())
        })
    })
}

fn messages(document: &Value) -> impl Iterator<Item = String> + '_ {
    let messages = elements(document, "smartctl/messages")
        .iter()
        .take(MESSAGES_MAX);
    messages.filter_map(|message| text(message, "string"))
}

/// What smartctl said went wrong.
fn message(document: &Value) -> Option<String> {
    messages(document).next()
}

fn protocol(document: &Value) -> Option<Protocol> {
    match text(document, "device/protocol").as_deref() {
        Some("ATA") => Some(Protocol::Ata),
        Some("SCSI") => Some(Protocol::Scsi),
        Some("NVMe") => Some(Protocol::Nvme),
        _ => None,
    }
}

fn health(document: &Value, exit_status: ExitStatus, protocol: Protocol) -> Health {
    let (counters, self_test) = match protocol {
        Protocol::Ata => (ata::counters(document), ata::self_test(document)),
        Protocol::Scsi => (scsi::counters(document), scsi::self_test(document)),
        Protocol::Nvme => (nvme::counters(document), nvme::self_test(document)),
    };
    let (available_spare_percent, spare_threshold_percent) = nvme::spare(document);
    let limits = [
        "temperature/op_limit_max",
        "nvme_composite_temperature_threshold/warning",
        "temperature/drive_trip",
        "temperature/limit_max",
    ];
    let limit = limits
        .iter()
        .find_map(|place| temperature_limit(document, place));
    let names = ["model_name", "scsi_model_name", "product", "scsi_product"];
    Health {
        protocol,
        model: names.iter().find_map(|name| text(document, name)),
        serial: text(document, "serial_number"),
        wwn: wwn(document),
        firmware: text(document, "firmware_version").or_else(|| text(document, "scsi_revision")),
        rotation_per_min: count(document, "rotation_rate"),
        is_passed: truth(document, "smart_status/passed"),
        at_threshold: match protocol {
            Protocol::Ata => ata::at_threshold(document),
            Protocol::Scsi | Protocol::Nvme => Vec::new(),
        },
        critical_warning: nvme::critical_warning(document),
        available_spare_percent,
        spare_threshold_percent,
        counters,
        power_on_hours: count(document, "power_on_time/hours"),
        temperature_c: temperature(document, "temperature/current"),
        temperature_max_c: temperature(document, "temperature/lifetime_max"),
        temperature_limit_c: limit,
        self_test,
        exit_status,
    }
}

/// The world-wide name: of an ATA disk in three numbers, of a SAS disk as its unit's id, of an NVMe disk its EUI-64.
fn wwn(document: &Value) -> Option<String> {
    let ata = || {
        let wwn = at(document, "wwn")?;
        let (naa, oui, id) = (whole(wwn, "naa")?, whole(wwn, "oui")?, whole(wwn, "id")?);
        normal_wwn(&format!("naa.{naa:x}{oui:06x}{id:09x}"))
    };
    let scsi = || normal_wwn(&text(document, "logical_unit_id")?);
    let nvme = || {
        let eui = at(elements(document, "nvme_namespaces").first()?, "eui64")?;
        let (oui, id) = (whole(eui, "oui")?, whole(eui, "ext_id")?);
        normal_wwn(&format!("eui.{oui:06x}{id:010x}"))
    };
    ata().or_else(scsi).or_else(nvme)
}
