//! What controllers and namespaces are: the structures of Identify, 4 KiB each.
//!
//! Source: Base Specification, "Identify Controller Data Structure", "Identify Namespace Data Structure", "Namespace
//! Identification Descriptor"; NVMe over Fabrics, "Identify Controller Data Structure" from byte 1792 on.

use super::fabrics::{NAME_FIELD_BYTES, VERSION};
use super::pdu::IN_CAPSULE_BYTES_MAX;
use super::{put, put_padded, put_text};

/// Size of every structure of Identify.
pub const IDENTIFY_BYTES: usize = 4096;
/// A structure of Identify.
pub type Page = Box<[u8; IDENTIFY_BYTES]>;

/// MDTS: the largest data of a command are 2 to this power pages of 4 KiB, 4 MiB.
const DATA_POWER_MAX: u8 = 10;
/// The largest data of a command in bytes.
pub const DATA_BYTES_MAX: u32 = 4096 << DATA_POWER_MAX;
/// KAS: keep alive time-outs have steps of so many tenths of a second.
pub const KEEP_ALIVE_TENTHS: u16 = 10;
/// AERL: Asynchronous Event Requests that may wait, less one.
pub const EVENT_REQUESTS_LESS_ONE: u8 = 3;
/// The only namespace of a subsystem.
pub const NAMESPACE: u32 = 1;
/// Stands for all namespaces.
pub const ALL_NAMESPACES: u32 = u32::MAX;

/// CNS: what is asked for.
pub mod structure {
    #![allow(missing_docs)] // named as the specification names them
    pub const NAMESPACE: u8 = 0x00;
    pub const CONTROLLER: u8 = 0x01;
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Of a command set; all of its fields may be 0: nothing more is limited, and nothing more can be done.
    pub const COMMAND_SET_CONTROLLER: u8 = 0x06;
}

/// What a controller is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// I/O on a namespace.
    Io {
        /// The volatile cache exists: what is written is durable after a flush.
        has_cache: bool,
    },
    /// Telling which subsystems there are.
    Discovery,
}

/// What a host is told of a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerFacts {
    /// SN: at most 20 characters.
    pub serial: String,
    /// FR: at most 8 characters.
    pub version: String,
    /// CNTLID.
    pub controller: u16,
    /// SUBNQN.
    pub subsystem: String,
    /// MAXCMD: requests of a queue that may be under way.
    pub queue_entries: u16,
    /// CNTRLTYPE.
    pub purpose: Purpose,
}

/// Identify Controller.
#[must_use]
pub fn controller(facts: &ControllerFacts) -> Page {
    let mut page: Page = Box::new([0; IDENTIFY_BYTES]);
    put_padded(&mut page[4..24], &facts.serial);
    put_padded(&mut page[24..64], "Plexum"); // MN
    put_padded(&mut page[64..72], &facts.version);
    let word =
        |page: &mut Page, at: usize, value: u16| put(&mut page[..], at, &value.to_le_bytes());
    let dword =
        |page: &mut Page, at: usize, value: u32| put(&mut page[..], at, &value.to_le_bytes());
    page[77] = DATA_POWER_MAX;
    word(&mut page, 78, facts.controller);
    dword(&mut page, 80, VERSION);
    page[258] = 3; // ACL: Abort commands at the same time, less one; each is answered at once
    page[259] = EVENT_REQUESTS_LESS_ONE;
    page[260] = 3; // FRMW: one slot, which cannot be written
    page[261] = 1 << 2; // LPA: log pages are read from any offset on
    word(&mut page, 320, KEEP_ALIVE_TENTHS);
    word(&mut page, 514, facts.queue_entries); // MAXCMD
    // SGLS: as fabrics have them; the offset of data in a capsule is an address.
    dword(&mut page, 536, 1 | 1 << 20);
    put_text(&mut page[768..768 + NAME_FIELD_BYTES], &facts.subsystem);
    match facts.purpose {
        Purpose::Discovery => page[111] = 2, // CNTRLTYPE
        Purpose::Io { has_cache } => {
            page[111] = 1;
            page[76] = 1 << 1; // CMIC: a host may have several controllers of the subsystem
            dword(&mut page, 92, 1 << 8); // OAES: changes of a namespace are told
            // CTRATT: identifiers of hosts have 128 bits; any command is a sign of life.
            dword(&mut page, 96, 1 | 1 << 6);
            page[512] = 0x66; // SQES: 64 bytes
            page[513] = 0x44; // CQES: 16 bytes
            dword(&mut page, 516, NAMESPACE); // NN
            word(&mut page, 520, 1 << 2 | 1 << 3); // ONCS: Dataset Management, Write Zeroes
            page[525] = u8::from(has_cache); // VWC
            let capsule_bytes = 64 + IN_CAPSULE_BYTES_MAX;
            dword(&mut page, 1792, capsule_bytes / 16); // IOCCSZ
            dword(&mut page, 1796, 1); // IORCSZ: 16 bytes
            page[1803] = 1; // MSDBD: one descriptor of data
        }
    }
    page
}

/// What a host is told of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceFacts {
    /// Its size in blocks.
    pub block_count: u64,
    /// Size of a block in bytes, a power of two from 512.
    pub block_bytes: u32,
    /// Best unit of writes in bytes: a strip.
    pub io_min_bytes: u64,
    /// Best size of writes in bytes: all strips of a row.
    pub io_opt_bytes: u64,
    /// Best unit of deallocations in bytes.
    pub discard_bytes: u32,
    /// It may only be read.
    pub is_read_only: bool,
    /// NGUID, and the UUID of its descriptor.
    pub uuid: [u8; 16],
}

impl NamespaceFacts {
    /// A size in blocks as fields that count from 0 have it.
    fn less_one(&self, bytes: u64) -> [u8; 2] {
        let blocks = bytes / u64::from(self.block_bytes);
        u16::try_from(blocks.saturating_sub(1))
            .unwrap_or(u16::MAX)
            .to_le_bytes()
    }
}

/// Identify Namespace.
#[must_use]
pub fn namespace(facts: &NamespaceFacts) -> Page {
    let mut page: Page = Box::new([0; IDENTIFY_BYTES]);
    for at in [0, 8, 16] {
        put(&mut page[..], at, &facts.block_count.to_le_bytes()); // NSZE, NCAP, NUSE
    }
    page[24] = 1 << 4; // NSFEAT: NPWG to NOWS are there
    page[30] = 1; // NMIC: several controllers may have it
    // DLFEAT 0: what is read after a deallocation is the old data or zeroes, so nothing is promised.
    put(&mut page[..], 64, &facts.less_one(facts.io_min_bytes)); // NPWG
    put(&mut page[..], 66, &facts.less_one(facts.io_min_bytes)); // NPWA
    let discard_bytes = u64::from(facts.discard_bytes);
    put(&mut page[..], 68, &facts.less_one(discard_bytes)); // NPDG
    put(&mut page[..], 70, &facts.less_one(discard_bytes)); // NPDA
    put(&mut page[..], 72, &facts.less_one(facts.io_opt_bytes)); // NOWS
    page[99] = u8::from(facts.is_read_only); // NSATTR
    put(&mut page[..], 104, &facts.uuid); // NGUID
    page[130] = facts.block_bytes.trailing_zeros() as u8; // LBADS of the only format
    page
}

/// Active Namespace ID list: the namespaces whose number is larger than `after`.
#[must_use]
pub fn active_namespaces(after: u32) -> Page {
    let mut page: Page = Box::new([0; IDENTIFY_BYTES]);
    if after < NAMESPACE {
        put(&mut page[..], 0, &NAMESPACE.to_le_bytes());
    }
    page
}

/// Namespace Identification Descriptor list: UUID and NGUID.
#[must_use]
pub fn namespace_descriptors(uuid: &[u8; 16]) -> Page {
    let (nguid, own) = (2, 3);
    let mut page: Page = Box::new([0; IDENTIFY_BYTES]);
    for (at, kind) in [(0, own), (20, nguid)] {
        page[at] = kind; // NIDT
        page[at + 1] = 16; // NIDL
        put(&mut page[..], at + 4, uuid);
    }
    page
}
