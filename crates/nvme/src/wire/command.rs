//! Commands and completions: the 64 and 16 bytes of the submission and completion queues.
//!
//! Source: Base Specification, "Submission Queue Entry", "Completion Queue Entry", "Scatter Gather List (SGL)";
//! NVM Command Set, "NVM Commands".

use super::status::Status;
use super::{array_at, put, u16_at, u32_at, u64_at};

/// Size of a command.
pub const COMMAND_BYTES: usize = 64;
/// Size of a completion.
pub const COMPLETION_BYTES: usize = 16;

/// Opcodes of the admin queue.
pub mod admin {
    #![allow(missing_docs)] // named as the specification names them
    pub const GET_LOG_PAGE: u8 = 0x02;
    pub const IDENTIFY: u8 = 0x06;
    pub const ABORT: u8 = 0x08;
    pub const SET_FEATURES: u8 = 0x09;
    pub const GET_FEATURES: u8 = 0x0a;
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    pub const KEEP_ALIVE: u8 = 0x18;
}

/// Opcodes of I/O queues.
pub mod io {
    #![allow(missing_docs)] // named as the specification names them
    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
}

/// The opcode of Fabrics commands on any queue.
pub const FABRICS: u8 = 0x7f;

/// Where a command's data are: the SGL descriptor of its capsule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sgl {
    /// Address, or offset in the capsule's data.
    pub address: u64,
    /// Length of the data.
    pub length_bytes: u32,
    /// Type and sub type.
    pub identifier: u8,
}

impl Sgl {
    /// Data Block with an offset: the data are in the capsule.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Transport Data Block: the transport brings or takes the data.
    pub const TRANSPORT: u8 = 0x5a;

    /// Data that the transport moves.
    #[must_use]
    pub fn transport(length_bytes: u32) -> Self {
        Self {
            address: 0,
            length_bytes,
            identifier: Self::TRANSPORT,
        }
    }

    /// Data in the capsule.
    #[must_use]
    pub fn in_capsule(length_bytes: u32) -> Self {
        Self {
            address: 0,
            length_bytes,
            identifier: Self::IN_CAPSULE,
        }
    }
}

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Byte 0.
    pub opcode: u8,
    /// Byte 1: whether it is fused with another one, and how its data are described.
    pub flags: u8,
    /// CID: what the host calls it until it was answered.
    pub id: u16,
    /// NSID; of Fabrics commands the first byte is their type.
    pub namespace: u32,
    /// Where its data are.
    pub sgl: Sgl,
    /// Dwords 10 to 15.
    pub dwords: [u32; 6],
}

impl Command {
    /// Fused with the next or the last command.
    const FUSED: u8 = 3;

    /// From its bytes; nothing of it was judged.
    #[must_use]
    pub fn decode(bytes: &[u8; COMMAND_BYTES]) -> Self {
        let mut dwords = [0; 6];
        for (number, dword) in dwords.iter_mut().enumerate() {
            *dword = u32_at(bytes, 40 + 4 * number);
        }
        Self {
            opcode: bytes[0],
            flags: bytes[1],
            id: u16_at(bytes, 2),
            namespace: u32_at(bytes, 4),
            sgl: Sgl {
                address: u64_at(bytes, 24),
                length_bytes: u32_at(bytes, 32),
                identifier: bytes[39],
            },
            dwords,
        }
    }

    /// As bytes, for hosts. Dwords 2 and 3, the metadata pointer and what is reserved are 0.
    #[must_use]
    pub fn encode(&self) -> [u8; COMMAND_BYTES] {
        let mut bytes = [0; COMMAND_BYTES];
        bytes[0] = self.opcode;
        bytes[1] = self.flags;
        put(&mut bytes, 2, &self.id.to_le_bytes());
        put(&mut bytes, 4, &self.namespace.to_le_bytes());
        put(&mut bytes, 24, &self.sgl.address.to_le_bytes());
        put(&mut bytes, 32, &self.sgl.length_bytes.to_le_bytes());
        bytes[39] = self.sgl.identifier;
        for (number, dword) in self.dwords.iter().enumerate() {
            put(&mut bytes, 40 + 4 * number, &dword.to_le_bytes());
        }
        bytes
    }

    /// Whether it is one half of a fused operation.
    #[must_use]
    pub fn is_fused(&self) -> bool {
        self.flags & Self::FUSED != 0
    }

    /// SLBA of commands on a range: dwords 10 and 11.
    #[must_use]
    pub fn first_block(&self) -> u64 {
        u64::from(self.dwords[0]) | u64::from(self.dwords[1]) << 32
    }

    /// NLB of commands on a range, which counts from 0.
    #[must_use]
    pub fn block_count(&self) -> u64 {
        u64::from(self.dwords[2] & 0xffff) + 1
    }

    /// FUA: durable when answered.
    #[must_use]
    pub fn is_fua(&self) -> bool {
        self.dwords[2] & 1 << 30 != 0
    }

    /// DEAC of Write Zeroes: space may be given back.
    #[must_use]
    pub fn may_deallocate(&self) -> bool {
        self.dwords[2] & 1 << 25 != 0
    }

    /// AD of Dataset Management: its ranges are to be deallocated.
    #[must_use]
    pub fn deallocates(&self) -> bool {
        self.dwords[1] & 1 << 2 != 0
    }

    /// NR of Dataset Management, which counts from 0.
    #[must_use]
    pub fn range_count(&self) -> usize {
        (self.dwords[0] & 0xff) as usize + 1
    }
}

/// Size of a range of Dataset Management.
pub const RANGE_BYTES: usize = 16;

/// Most ranges of a command.
pub const RANGES_MAX: usize = 256;

/// A range of Dataset Management.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// The first block.
    pub first_block: u64,
    /// How many blocks.
    pub block_count: u32,
}

impl BlockRange {
    /// From its bytes; the attributes of its contents are hints that nobody takes here.
    #[must_use]
    pub fn decode(bytes: &[u8; RANGE_BYTES]) -> Self {
        Self {
            first_block: u64_at(bytes, 8),
            block_count: u32_at(bytes, 4),
        }
    }

    /// As bytes, for hosts.
    #[must_use]
    pub fn encode(&self) -> [u8; RANGE_BYTES] {
        let mut bytes = [0; RANGE_BYTES];
        put(&mut bytes, 4, &self.block_count.to_le_bytes());
        put(&mut bytes, 8, &self.first_block.to_le_bytes());
        bytes
    }
}

/// A completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Dwords 0 and 1: what the command gives besides data.
    pub result: u64,
    /// SQHD: how far the submission queue was consumed.
    pub queue_head: u16,
    /// CID of the command.
    pub id: u16,
    /// What it came to.
    pub status: Status,
}

impl Completion {
    /// From its bytes, for hosts.
    #[must_use]
    pub fn decode(bytes: &[u8; COMPLETION_BYTES]) -> Self {
        Self {
            result: u64::from_le_bytes(array_at(bytes, 0)),
            queue_head: u16_at(bytes, 8),
            id: u16_at(bytes, 12),
            status: Status::decode(u16_at(bytes, 14)),
        }
    }

    /// As bytes. SQID means nothing on a queue that is a connection, and is 0.
    #[must_use]
    pub fn encode(&self) -> [u8; COMPLETION_BYTES] {
        let mut bytes = [0; COMPLETION_BYTES];
        put(&mut bytes, 0, &self.result.to_le_bytes());
        put(&mut bytes, 8, &self.queue_head.to_le_bytes());
        put(&mut bytes, 12, &self.id.to_le_bytes());
        put(&mut bytes, 14, &self.status.encode().to_le_bytes());
        bytes
    }
}
