//! Commands that only fabrics have: Connect, properties, Disconnect.
//!
//! Source: NVMe over Fabrics, "Connect Command", "Property Get", "Property Set", "Disconnect Command"; Base
//! Specification, "Controller Registers", whose offsets properties have.

use super::command::{COMMAND_BYTES, Command, FABRICS, Sgl};
use super::{array_at, put, put_text, text_of, u16_at, u32_at, u64_at};

/// Size of the data of Connect.
pub const CONNECT_DATA_BYTES: usize = 1024;
/// Most bytes of a name (NQN), with its NUL.
pub const NAME_FIELD_BYTES: usize = 256;
/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 223;
/// Where everybody finds the list of subsystems.
pub const DISCOVERY_NAME: &str = "nqn.2014-08.org.nvmexpress.discovery";
/// The controller that stands for a new one.
pub const ANY_CONTROLLER: u16 = 0xffff;

/// A Fabrics command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fabrics {
    /// Makes the connection a queue of a controller.
    Connect(Connect),
    /// Asks for a property.
    Get {
        /// OFST: which.
        offset_bytes: u32,
        /// Whether it has 8 bytes, and not 4.
        is_long: bool,
    },
    /// Sets a property.
    Set {
        /// OFST: which.
        offset_bytes: u32,
        /// What it is to be.
        value: u64,
    },
    /// Ends an I/O queue.
    Disconnect,
    /// One that is not known here.
    Other(u8),
}

/// What Connect says in its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// RECFMT: 0.
    pub record_format: u16,
    /// QID: 0 for the admin queue.
    pub queue: u16,
    /// SQSIZE: entries of the queue, less one.
    pub size_less_one: u16,
    /// CATTR bit 2: the host does not look at SQHD.
    pub has_no_flow_control: bool,
    /// KATO: after so many milliseconds without a sign of life the controller ends; 0: never.
    pub keep_alive_ms: u32,
}

/// What Connect says in its data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectData {
    /// HOSTID.
    pub host_id: [u8; 16],
    /// CNTLID: which controller; `ANY_CONTROLLER` for a new one.
    pub controller: u16,
    /// SUBNQN: the subsystem.
    pub subsystem: String,
    /// HOSTNQN: the host.
    pub host: String,
}

/// Types of Fabrics commands.
mod kind {
    pub const PROPERTY_SET: u8 = 0x00;
    pub const CONNECT: u8 = 0x01;
    pub const PROPERTY_GET: u8 = 0x04;
    pub const DISCONNECT: u8 = 0x08;
}

impl Fabrics {
    /// Of a command's bytes, whose opcode is `FABRICS`.
    #[must_use]
    pub fn decode(bytes: &[u8; COMMAND_BYTES]) -> Self {
        match bytes[4] {
            kind::CONNECT => Self::Connect(Connect {
                record_format: u16_at(bytes, 40),
                queue: u16_at(bytes, 42),
                size_less_one: u16_at(bytes, 44),
                has_no_flow_control: bytes[46] & 1 << 2 != 0,
                keep_alive_ms: u32_at(bytes, 48),
            }),
            kind::PROPERTY_GET => Self::Get {
                offset_bytes: u32_at(bytes, 44),
                is_long: bytes[40] & 7 == 1,
            },
            kind::PROPERTY_SET => Self::Set {
                offset_bytes: u32_at(bytes, 44),
                value: match bytes[40] & 7 {
                    1 => u64_at(bytes, 48),
                    _ => u64::from(u32_at(bytes, 48)),
                },
            },
            kind::DISCONNECT => Self::Disconnect,
            other => Self::Other(other),
        }
    }

    /// As the bytes of a command called `id`, for hosts.
    #[must_use]
    pub fn encode(&self, id: u16) -> [u8; COMMAND_BYTES] {
        let sgl = match self {
            Self::Connect(_) => Sgl::in_capsule(CONNECT_DATA_BYTES as u32),
            _ => Sgl::transport(0),
        };
        let kind = match self {
            Self::Connect(_) => kind::CONNECT,
            Self::Get { .. } => kind::PROPERTY_GET,
            Self::Set { .. } => kind::PROPERTY_SET,
            Self::Disconnect => kind::DISCONNECT,
            Self::Other(other) => *other,
        };
        let command = Command {
            opcode: FABRICS,
            flags: 1 << 6,
            id,
            namespace: u32::from(kind),
            sgl,
            dwords: [0; 6],
        };
        let mut bytes = command.encode();
        match self {
            Self::Connect(connect) => {
                put(&mut bytes, 40, &connect.record_format.to_le_bytes());
                put(&mut bytes, 42, &connect.queue.to_le_bytes());
                put(&mut bytes, 44, &connect.size_less_one.to_le_bytes());
                bytes[46] = u8::from(connect.has_no_flow_control) << 2;
                put(&mut bytes, 48, &connect.keep_alive_ms.to_le_bytes());
            }
            Self::Get {
                offset_bytes,
                is_long,
            } => {
                bytes[40] = u8::from(*is_long);
                put(&mut bytes, 44, &offset_bytes.to_le_bytes());
            }
            Self::Set {
                offset_bytes,
                value,
            } => {
                bytes[40] = u8::from(*value > u64::from(u32::MAX));
                put(&mut bytes, 44, &offset_bytes.to_le_bytes());
                put(&mut bytes, 48, &value.to_le_bytes());
            }
            Self::Disconnect | Self::Other(_) => {}
        }
        bytes
    }
}

impl ConnectData {
    /// Offsets of the names.
    const SUBSYSTEM: usize = 256;
    const HOST: usize = 512;

    /// From its bytes; the error is the offset of the field that is no name.
    ///
    /// # Errors
    /// A name without an end, too long, empty, or no UTF-8.
    pub fn decode(bytes: &[u8; CONNECT_DATA_BYTES]) -> Result<Self, usize> {
        let name_at = |at: usize| {
            let field = &bytes[at..at + NAME_FIELD_BYTES];
            text_of(field)
                .filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX)
                .ok_or(at)
        };
        Ok(Self {
            host_id: array_at(bytes, 0),
            controller: u16_at(bytes, 16),
            subsystem: name_at(Self::SUBSYSTEM)?,
            host: name_at(Self::HOST)?,
        })
    }

    /// As bytes, for hosts.
    #[must_use]
    pub fn encode(&self) -> [u8; CONNECT_DATA_BYTES] {
        let mut bytes = [0; CONNECT_DATA_BYTES];
        put(&mut bytes, 0, &self.host_id);
        put(&mut bytes, 16, &self.controller.to_le_bytes());
        for (at, name) in [(Self::SUBSYSTEM, &self.subsystem), (Self::HOST, &self.host)] {
            put_text(&mut bytes[at..at + NAME_FIELD_BYTES], name);
        }
        bytes
    }
}

/// The result of a Connect with a parameter that is wrong: where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A byte of the command.
    OfCommand(u16),
    /// A byte of the data.
    OfData(u16),
}

impl Parameter {
    /// IPO and IATTR as a result.
    #[must_use]
    pub fn encode(self) -> u64 {
        match self {
            Self::OfCommand(at) => u64::from(at),
            Self::OfData(at) => u64::from(at) | 1 << 16,
        }
    }
}

/// Offsets of properties, in bytes.
pub mod property {
    /// What the controller can: CAP, 8 bytes.
    pub const CAPABILITIES: u32 = 0x00;
    /// Version: VS.
    pub const VERSION: u32 = 0x08;
    /// Configuration: CC.
    pub const CONFIGURATION: u32 = 0x14;
    /// Status: CSTS.
    pub const STATUS: u32 = 0x1c;
}

/// The version of the Base Specification that is spoken: 1.3, as the field VS.
pub const VERSION: u32 = 0x0001_0300;

/// CAP of queues of `entries`: contiguous, the NVM command set, pages of 4 KiB, ready within 7.5 seconds.
#[must_use]
pub fn capabilities(entries: u16) -> u64 {
    let ready_in_half_seconds = 15;
    u64::from(entries - 1) | 1 << 16 | ready_in_half_seconds << 24 | 1 << 37
}

/// CC and CSTS: how a host turns a controller on and off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    configuration: u32,
    status: u32,
}

impl Registers {
    const ENABLE: u32 = 1;
    const READY: u32 = 1;
    const FATAL: u32 = 1 << 1;
    const SHUT_DOWN: u32 = 2 << 2;

    /// CC.
    #[must_use]
    pub fn configuration(&self) -> u32 {
        self.configuration
    }

    /// CSTS.
    #[must_use]
    pub fn status(&self) -> u32 {
        self.status
    }

    /// Whether commands are taken.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.status & Self::READY != 0
    }

    /// The host sets CC. Entries have sizes of 64 and 16 bytes, pages 4 KiB, and the command set is NVM's: anything
    /// else is a fatal status.
    pub fn configure(&mut self, value: u32) {
        let field = |shift: u32, bits: u32| value >> shift & ((1 << bits) - 1);
        let (command_set, page, arbitration) = (field(4, 3), field(7, 4), field(11, 3));
        let (shutdown, submission, completion) = (field(14, 2), field(16, 4), field(20, 4));
        let is_known = (command_set, page, arbitration, submission, completion) == (0, 0, 0, 6, 4);
        let is_on = value & Self::ENABLE != 0;
        let was_on = self.configuration & Self::ENABLE != 0;
        self.configuration = value;
        self.status = match (is_on, was_on) {
            (true, false) if is_known => Self::READY,
            (true, false) => Self::FATAL,
            (true, true) => self.status,
            (false, _) => 0,
        };
        if shutdown != 0 {
            self.status |= Self::SHUT_DOWN;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_turned_on_as_linux_does_it_and_shut_down() {
        let mut registers = Registers::default();
        registers.configure(0x0046_0000);
        assert_eq!(registers.status(), 0);
        registers.configure(0x0046_0001);
        assert!(registers.is_ready());
        registers.configure(0x0046_4001);
        assert_eq!(registers.status(), 0b1001);
        registers.configure(0x0046_0000);
        assert_eq!(registers.status(), 0);
        registers.configure(0x0045_0001);
        assert_eq!(registers.status(), 0b10, "entries of another size");
        assert!(!registers.is_ready());
    }
}
