//! Log pages.
//!
//! Source: Base Specification, "Get Log Page command", "SMART / Health Information", "Commands Supported and Effects",
//! "Changed Namespace List"; NVMe over Fabrics, "Discovery Log Page", "Discovery Log Page Entry".

use std::net::{IpAddr, SocketAddr};

use super::command::{admin, io};
use super::digest::digest_of;
use super::{put, put_padded, put_text};

/// LID: which log page.
pub mod page {
    #![allow(missing_docs)] // named as the specification names them
    pub const ERRORS: u8 = 0x01;
    pub const HEALTH: u8 = 0x02;
    pub const FIRMWARE: u8 = 0x03;
    pub const CHANGED_NAMESPACES: u8 = 0x04;
    pub const EFFECTS: u8 = 0x05;
    pub const DISCOVERY: u8 = 0x70;
}

/// Errors of commands: none are kept.
#[must_use]
pub fn errors() -> Vec<u8> {
    vec![0; 64]
}

/// Health: a volume has no wear of its own; that of its disks is the server's to tell.
#[must_use]
pub fn health() -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[3] = 100; // Available Spare in percent
    bytes[4] = 10; // its threshold
    bytes
}

/// Firmware slots: one, whose revision is the program's.
#[must_use]
pub fn firmware(version: &str) -> Vec<u8> {
    let mut bytes = vec![0; 512];
    bytes[0] = 1; // AFI
    put_padded(&mut bytes[8..16], version);
    bytes
}

/// Namespaces that have changed since this page was read last.
#[must_use]
pub fn changed_namespaces(changed: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    for (field, number) in bytes.chunks_exact_mut(4).zip(changed) {
        field.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Which commands there are, and what they change.
#[must_use]
pub fn effects() -> Vec<u8> {
    let (supported, changes_data) = (1_u32, 1_u32 << 1);
    let mut bytes = vec![0; 4096];
    let admin = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    for opcode in admin {
        put(
            &mut bytes,
            4 * usize::from(opcode),
            &supported.to_le_bytes(),
        );
    }
    for (opcode, effects) in [
        (io::FLUSH, supported),
        (io::READ, supported),
        (io::WRITE, supported | changes_data),
        (io::WRITE_ZEROES, supported | changes_data),
        (io::DATASET_MANAGEMENT, supported | changes_data),
    ] {
        put(
            &mut bytes,
            1024 + 4 * usize::from(opcode),
            &effects.to_le_bytes(),
        );
    }
    bytes
}

/// Size of the head, and of a record, of the discovery log.
const RECORD_BYTES: usize = 1024;

/// The discovery log: the subsystems that a host finds at an address.
#[must_use]
pub fn discovery(subsystems: &[String], address: SocketAddr, queue_entries: u16) -> Vec<u8> {
    let (tcp, ipv4, ipv6, with_io) = (3, 1, 2, 2);
    let mut records = Vec::with_capacity(subsystems.len() * RECORD_BYTES);
    for name in subsystems {
        let mut record = [0; RECORD_BYTES];
        record[0] = tcp; // TRTYPE
        record[1] = match address.ip() {
            IpAddr::V4(_) => ipv4,
            IpAddr::V6(_) => ipv6,
        }; // ADRFAM
        record[2] = with_io; // SUBTYPE
        record[3] = 1 << 1; // TREQ: no secure channel is required
        put(&mut record, 6, &u16::MAX.to_le_bytes()); // CNTLID: a new controller for each host
        put(&mut record, 8, &queue_entries.to_le_bytes()); // ASQSZ
        put_padded(&mut record[32..64], &address.port().to_string()); // TRSVCID
        put_text(&mut record[256..512], name); // SUBNQN
        put_padded(&mut record[512..768], &address.ip().to_string()); // TRADDR
        records.extend_from_slice(&record);
    }
    let mut bytes = vec![0; RECORD_BYTES];
    // GENCTR: it only has to be another one when the records are others.
    put(&mut bytes, 0, &digest_of([&records[..]]));
    put(&mut bytes, 8, &(subsystems.len() as u64).to_le_bytes()); // NUMREC
    bytes.extend_from_slice(&records);
    bytes
}

/// What of a log page is asked for: dwords 10 to 13 of Get Log Page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// LID.
    pub page: u8,
    /// RAE: events that the page tells of stay.
    pub keeps_events: bool,
    /// LPOL and LPOU: from which byte on.
    pub offset_bytes: u64,
    /// NUMDL and NUMDU, as bytes.
    pub count_bytes: u64,
}

impl Asked {
    /// From a command's dwords.
    #[must_use]
    pub fn decode(dwords: &[u32; 6]) -> Self {
        let count = u64::from(dwords[0] >> 16) | u64::from(dwords[1] & 0xffff) << 16;
        Self {
            page: dwords[0] as u8,
            keeps_events: dwords[0] & 1 << 15 != 0,
            offset_bytes: u64::from(dwords[2]) | u64::from(dwords[3]) << 32,
            count_bytes: (count + 1) * 4,
        }
    }

    /// As dwords, for hosts.
    #[must_use]
    pub fn encode(&self) -> [u32; 6] {
        let count = self.count_bytes / 4 - 1;
        [
            u32::from(self.page) | u32::from(self.keeps_events) << 15 | (count as u32) << 16,
            (count >> 16) as u32,
            self.offset_bytes as u32,
            (self.offset_bytes >> 32) as u32,
            0,
            0,
        ]
    }
}
