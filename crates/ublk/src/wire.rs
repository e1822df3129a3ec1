//! The kernel's commands and structures of ublk, as bytes.
//!
//! Source: `linux/ublk_cmd.h` of the kernel's user interface, and `Documentation/block/ublk.rst`. Numbers are in the
//! machine's own byte order. What a kernel can do is asked of it ([`Features`]), never concluded from its version.

use std::fmt;

/// Commands of the control device. Their argument is a [`ControlArgument`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Tells what a device is ([`DeviceInfo`]).
    GetInfo,
    /// Makes a device; it cannot be used yet.
    Add,
    /// Removes a device; waits until nobody holds it.
    Delete,
    /// The device appears; returns after its partitions were looked for, whose reads come to the server.
    Start,
    /// The device disappears; what its users have not written out comes to the server first.
    Stop,
    /// Sets sizes and abilities, before the start.
    SetParams,
    /// Tells sizes and abilities.
    GetParams,
    /// A new server takes a device over whose old one has died.
    StartTakeOver,
    /// The new server has fetched all tags.
    EndTakeOver,
    /// Tells what the driver can do ([`Features`]).
    GetFeatures,
    /// Gives a device that has appeared another size, in sectors.
    UpdateSize,
}

/// Commands of a queue. Their argument is an [`IoArgument`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Waits for the first request of a tag.
    Fetch,
    /// Answers the request of a tag, and waits for its next one.
    CommitAndFetch,
}

/// Directions of an encoded command: what the kernel does with the argument.
#[derive(Clone, Copy)]
enum Direction {
    Reads = 2,
    ReadsAndWrites = 3,
}

/// An ioctl number: direction, size of the argument, type 'u', number. Source: `asm-generic/ioctl.h`.
const fn encode<const ARGUMENT_BYTES: usize>(direction: Direction, number: u32) -> u32 {
    (direction as u32) << 30 | (ARGUMENT_BYTES as u32) << 16 | (b'u' as u32) << 8 | number
}

impl Control {
    /// The command's code.
    #[must_use]
    pub fn code(self) -> u32 {
        let (direction, number) = match self {
            Self::GetInfo => (Direction::Reads, 0x02),
            Self::Add => (Direction::ReadsAndWrites, 0x04),
            Self::Delete => (Direction::ReadsAndWrites, 0x05),
            Self::Start => (Direction::ReadsAndWrites, 0x06),
            Self::Stop => (Direction::ReadsAndWrites, 0x07),
            Self::SetParams => (Direction::ReadsAndWrites, 0x08),
            Self::GetParams => (Direction::Reads, 0x09),
            Self::StartTakeOver => (Direction::ReadsAndWrites, 0x10),
            Self::EndTakeOver => (Direction::ReadsAndWrites, 0x11),
            Self::GetFeatures => (Direction::Reads, 0x13),
            Self::UpdateSize => (Direction::ReadsAndWrites, 0x15),
        };
        encode::<{ ControlArgument::BYTES }>(direction, number)
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GetInfo => "GET_DEV_INFO",
            Self::Add => "ADD_DEV",
            Self::Delete => "DEL_DEV",
            Self::Start => "START_DEV",
            Self::Stop => "STOP_DEV",
            Self::SetParams => "SET_PARAMS",
            Self::GetParams => "GET_PARAMS",
            Self::StartTakeOver => "START_USER_RECOVERY",
            Self::EndTakeOver => "END_USER_RECOVERY",
            Self::GetFeatures => "GET_FEATURES",
            Self::UpdateSize => "UPDATE_SIZE",
        })
    }
}

impl Io {
    /// The command's code.
    #[must_use]
    pub fn code(self) -> u32 {
        let number = match self {
            Self::Fetch => 0x20,
            Self::CommitAndFetch => 0x21,
        };
        encode::<{ IoArgument::BYTES }>(Direction::ReadsAndWrites, number)
    }
}

/// Number of a device that stands for any: the kernel chooses.
pub const ANY_DEVICE: u32 = u32::MAX;
/// Number of a queue that stands for none.
const NO_QUEUE: u16 = u16::MAX;

/// Argument of a control command: `struct ublksrv_ctrl_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlArgument {
    /// Which device.
    pub device: u32,
    /// Length of the buffer in bytes; 0 without one.
    pub buffer_bytes: u16,
    /// Its address; 0 without one.
    pub buffer: u64,
    /// One number, of the commands that take one.
    pub number: u64,
}

impl ControlArgument {
    /// Size in bytes.
    pub const BYTES: usize = 32;

    /// As the kernel takes it.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.device.to_ne_bytes());
        put(&mut bytes, 4, &NO_QUEUE.to_ne_bytes());
        put(&mut bytes, 6, &self.buffer_bytes.to_ne_bytes());
        put(&mut bytes, 8, &self.buffer.to_ne_bytes());
        put(&mut bytes, 16, &self.number.to_ne_bytes());
        bytes
    }
}

/// Which request of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId {
    /// Which queue.
    pub queue: u16,
    /// Which request of it.
    pub tag: u16,
}

/// Argument of a queue's command: `struct ublksrv_io_cmd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoArgument {
    /// Which request.
    pub id: RequestId,
    /// What the last request of the tag came to: bytes moved, or a negative errno.
    pub result: i32,
}

impl IoArgument {
    /// Size in bytes.
    pub const BYTES: usize = 16;

    /// As the kernel takes it. The address of a buffer stays 0: the server copies by itself (`USER_COPY`).
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.id.queue.to_ne_bytes());
        put(&mut bytes, 2, &self.id.tag.to_ne_bytes());
        put(&mut bytes, 4, &self.result.to_ne_bytes());
        bytes
    }
}

/// What a driver can do, and a device is made with: bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// A device stays when its server dies.
    pub const USER_RECOVERY: Self = Self(1 << 3);
    /// What the dead server had is given to the new one.
    pub const USER_RECOVERY_REISSUE: Self = Self(1 << 4);
    /// Commands have the codes of this module.
    pub const CMD_IOCTL_ENCODE: Self = Self(1 << 6);
    /// The server copies data by itself, where and when it wants.
    pub const USER_COPY: Self = Self(1 << 7);

    /// A device that has appeared can get another size (Linux 6.16).
    pub const UPDATE_SIZE: Self = Self(1 << 10);

    /// What a device here is made with.
    pub const WANTED: Self = Self(
        Self::USER_RECOVERY.0
            | Self::USER_RECOVERY_REISSUE.0
            | Self::CMD_IOCTL_ENCODE.0
            | Self::USER_COPY.0,
    );

    /// Whether all of `other` are among them.
    #[must_use]
    pub fn have(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The names of those of [`Features::WANTED`] that are not among them.
    #[must_use]
    pub fn missing(self) -> Vec<&'static str> {
        let all = [
            (Self::USER_RECOVERY, "USER_RECOVERY"),
            (Self::USER_RECOVERY_REISSUE, "USER_RECOVERY_REISSUE"),
            (Self::CMD_IOCTL_ENCODE, "CMD_IOCTL_ENCODE"),
            (Self::USER_COPY, "USER_COPY"),
        ];
        let missing = all.iter().filter(|(bit, _)| !self.have(*bit));
        missing.map(|(_, name)| *name).collect()
    }
}

/// In which state a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It was made, or stopped: it does not appear.
    Dead,
    /// A server serves it.
    Live,
    /// Its server has died: requests wait.
    Quiesced,
    /// Its server has died, and requests fail.
    FailsIo,
    /// One that this module does not know.
    Other(u16),
}

impl DeviceState {
    fn from_raw(raw: u16) -> Self {
        match raw {
            0 => Self::Dead,
            1 => Self::Live,
            2 => Self::Quiesced,
            3 => Self::FailsIo,
            other => Self::Other(other),
        }
    }

    fn to_raw(self) -> u16 {
        match self {
            Self::Dead => 0,
            Self::Live => 1,
            Self::Quiesced => 2,
            Self::FailsIo => 3,
            Self::Other(other) => other,
        }
    }
}

/// What a device is: `struct ublksrv_ctrl_dev_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Hardware queues.
    pub queues: u16,
    /// Requests that each may have under way.
    pub depth: u16,
    /// Its state.
    pub state: DeviceState,
    /// Longest request in bytes.
    pub io_bytes_max: u32,
    /// Its number.
    pub device: u32,
    /// Process that serves it, or did; less than 1 when none has.
    pub pid: i32,
    /// What it was made with.
    pub features: Features,
    /// A number of the server's own, which the driver keeps and does not read.
    pub server_word: u64,
}

impl DeviceInfo {
    /// Size in bytes.
    pub const BYTES: usize = 64;

    /// As the kernel takes it.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &self.queues.to_ne_bytes());
        put(&mut bytes, 2, &self.depth.to_ne_bytes());
        put(&mut bytes, 4, &self.state.to_raw().to_ne_bytes());
        put(&mut bytes, 8, &self.io_bytes_max.to_ne_bytes());
        put(&mut bytes, 12, &self.device.to_ne_bytes());
        put(&mut bytes, 16, &self.pid.to_ne_bytes());
        put(&mut bytes, 24, &self.features.0.to_ne_bytes());
        put(&mut bytes, 32, &self.server_word.to_ne_bytes());
        bytes
    }

    /// What the kernel has answered.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        Self {
            queues: u16::from_ne_bytes(get(bytes, 0)),
            depth: u16::from_ne_bytes(get(bytes, 2)),
            state: DeviceState::from_raw(u16::from_ne_bytes(get(bytes, 4))),
            io_bytes_max: u32::from_ne_bytes(get(bytes, 8)),
            device: u32::from_ne_bytes(get(bytes, 12)),
            pid: i32::from_ne_bytes(get(bytes, 16)),
            features: Features(u64::from_ne_bytes(get(bytes, 24))),
            server_word: u64::from_ne_bytes(get(bytes, 32)),
        }
    }
}

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Make durable what was answered.
    Flush,
    /// The range is unused.
    Discard,
    /// Write zeroes.
    WriteZeroes,
    /// One that was never offered, such as those of zones.
    Other(u8),
}

/// A request: `struct ublksrv_io_desc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// What is wanted.
    pub operation: Operation,
    /// Durable when answered.
    pub is_fua: bool,
    /// Zeroes keep their space.
    pub keeps_space: bool,
    /// First sector of 512 bytes.
    pub start_sector: u64,
    /// How many.
    pub sectors: u32,
}

/// Bytes of a sector, whatever the device's blocks are.
pub const SECTOR_BYTES: u64 = 512;
/// Flags of a request, above the 8 bits of its operation.
const FLAG_FUA: u32 = 1 << 13;
const FLAG_NOUNMAP: u32 = 1 << 15;

impl Descriptor {
    /// Size in bytes.
    pub const BYTES: usize = 24;

    /// What the kernel has written for a tag.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let word = u32::from_ne_bytes(get(bytes, 0));
        Self {
            operation: match word & 0xff {
                0 => Operation::Read,
                1 => Operation::Write,
                2 => Operation::Flush,
                3 => Operation::Discard,
                5 => Operation::WriteZeroes,
                other => Operation::Other((other & 0xff) as u8),
            },
            is_fua: word & FLAG_FUA != 0,
            keeps_space: word & FLAG_NOUNMAP != 0,
            sectors: u32::from_ne_bytes(get(bytes, 4)),
            start_sector: u64::from_ne_bytes(get(bytes, 8)),
        }
    }

    /// As the kernel writes it; for tests.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let operation = match self.operation {
            Operation::Read => 0,
            Operation::Write => 1,
            Operation::Flush => 2,
            Operation::Discard => 3,
            Operation::WriteZeroes => 5,
            Operation::Other(other) => u32::from(other),
        };
        let fua = if self.is_fua { FLAG_FUA } else { 0 };
        let keeps = if self.keeps_space { FLAG_NOUNMAP } else { 0 };
        let mut bytes = [0; Self::BYTES];
        put(&mut bytes, 0, &(operation | fua | keeps).to_ne_bytes());
        put(&mut bytes, 4, &self.sectors.to_ne_bytes());
        put(&mut bytes, 8, &self.start_sector.to_ne_bytes());
        bytes
    }

    /// Its range in bytes: where, and how long; `None` when that is beyond any device.
    #[must_use]
    pub fn range(&self) -> Option<(u64, u64)> {
        let length_bytes = u64::from(self.sectors) * SECTOR_BYTES; // at most 2^41
        let offset_bytes = self.start_sector.checked_mul(SECTOR_BYTES)?;
        offset_bytes.checked_add(length_bytes)?;
        Some((offset_bytes, length_bytes))
    }
}

/// Largest depth of a queue that the driver takes; the descriptors of queues lie so far apart.
pub const DEPTH_MAX: u16 = 4096;
/// Longest request in bytes that the driver takes.
pub const IO_BYTES_MAX: u32 = 32 << 20;

/// Where the descriptors of a queue begin, in the device's memory: those of each queue fill whole pages.
#[must_use]
pub fn descriptors_at(queue: u16, page_bytes: u64) -> u64 {
    let bytes = u64::from(DEPTH_MAX) * Descriptor::BYTES as u64;
    u64::from(queue) * bytes.next_multiple_of(page_bytes)
}

/// Where the data of a request are, in the device's file.
#[must_use]
pub fn data_at(id: RequestId, byte: u32) -> u64 {
    const START: u64 = 0x8000_0000;
    START + (u64::from(id.queue) << 41 | u64::from(id.tag) << 25 | u64::from(byte))
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

pub(crate) fn get<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut value = [0; N];
    value.copy_from_slice(&bytes[at..at + N]);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers one after another, in the machine's byte order.
    macro_rules! bytes_of {
        ($($number:expr),* $(,)?) => {{
            let mut all: Vec<u8> = Vec::new();
            $(all.extend_from_slice(&$number.to_ne_bytes());)*
            all
        }};
    }

    #[test]
    fn commands_have_the_codes_of_the_kernels_header() {
        // _IOR('u', n, 32 bytes), _IOWR('u', n, 32 bytes), _IOWR('u', n, 16 bytes)
        let table = [
            (Control::GetInfo, 0x8020_7502),
            (Control::Add, 0xc020_7504),
            (Control::Delete, 0xc020_7505),
            (Control::Start, 0xc020_7506),
            (Control::Stop, 0xc020_7507),
            (Control::SetParams, 0xc020_7508),
            (Control::GetParams, 0x8020_7509),
            (Control::StartTakeOver, 0xc020_7510),
            (Control::EndTakeOver, 0xc020_7511),
            (Control::GetFeatures, 0x8020_7513),
            (Control::UpdateSize, 0xc020_7515),
        ];
        for (command, code) in table {
            assert_eq!(command.code(), code, "{command}");
        }
        assert_eq!(Io::Fetch.code(), 0xc010_7520);
        assert_eq!(Io::CommitAndFetch.code(), 0xc010_7521);
    }

    #[test]
    fn arguments_are_laid_out_as_the_kernels_header_says() {
        let control = ControlArgument {
            device: 7,
            buffer_bytes: 64,
            buffer: 0x1122_3344_5566_7788,
            number: 42,
        };
        let expected = bytes_of![
            7u32,
            0xffffu16,
            64u16,
            0x1122_3344_5566_7788u64,
            42u64,
            0u16,
            0u16,
            0u32
        ];
        assert_eq!(control.encode().as_slice(), expected);
        let io = IoArgument {
            id: RequestId { queue: 1, tag: 127 },
            result: -5,
        };
        assert_eq!(io.encode().as_slice(), bytes_of![1u16, 127u16, -5i32, 0u64]);
    }

    #[test]
    fn what_a_device_is_survives_its_way_through_the_kernels_structure() {
        let info = DeviceInfo {
            queues: 1,
            depth: 128,
            state: DeviceState::Quiesced,
            io_bytes_max: 1 << 20,
            device: 3,
            pid: 4711,
            features: Features::WANTED,
            server_word: 0xfeed_0000_0000_0001,
        };
        let expected = bytes_of![
            1u16,
            128u16,
            2u16,
            0u16,
            0x10_0000u32,
            3u32,
            4711i32,
            0u32,
            0xd8u64,
            0xfeed_0000_0000_0001u64,
            0u32,
            0u32,
            0u64,
            0u64
        ];
        assert_eq!(info.encode().as_slice(), expected);
        assert_eq!(DeviceInfo::decode(&info.encode()), info);
        for state in 0..6 {
            assert_eq!(DeviceState::from_raw(state).to_raw(), state);
        }
    }

    #[test]
    fn a_descriptor_says_what_is_wanted_and_where() {
        let bytes = bytes_of![(1u32 | 1 << 13 | 1 << 11), 8u32, 0x1000u64, 0u64];
        let found = Descriptor::decode(&bytes.try_into().expect("24 bytes"));
        let expected = Descriptor {
            operation: Operation::Write,
            is_fua: true,
            keeps_space: false,
            start_sector: 0x1000,
            sectors: 8,
        };
        assert_eq!(found, expected);
        assert_eq!(found.range(), Some((0x20_0000, 4096)));
        let zeroes = bytes_of![(5u32 | 1 << 15), 1u32, 0u64, 0u64];
        let zeroes = Descriptor::decode(&zeroes.try_into().expect("24 bytes"));
        assert_eq!(zeroes.operation, Operation::WriteZeroes);
        assert!(zeroes.keeps_space && !zeroes.is_fua);
    }

    #[test]
    fn a_range_beyond_any_device_is_no_range() {
        for start_sector in [u64::MAX, u64::MAX / 512, 1 << 55] {
            let descriptor = Descriptor {
                operation: Operation::Read,
                is_fua: false,
                keeps_space: false,
                start_sector,
                sectors: u32::MAX,
            };
            assert_eq!(descriptor.range(), None, "{start_sector}");
        }
    }

    #[test]
    fn data_and_descriptors_lie_where_the_kernel_looks() {
        let data_at = |queue, tag, byte| data_at(RequestId { queue, tag }, byte);
        assert_eq!(data_at(0, 0, 0), 0x8000_0000);
        assert_eq!(data_at(0, 1, 5), 0x8200_0005);
        assert_eq!(data_at(1, 2, 0), 0x200_8400_0000);
        assert_eq!(descriptors_at(0, 4096), 0);
        assert_eq!(descriptors_at(1, 4096), 98_304);
        assert_eq!(descriptors_at(1, 65_536), 131_072);
    }

    #[test]
    fn what_a_driver_lacks_is_named() {
        assert_eq!(Features(0x1fe).missing(), Vec::<&str>::new());
        assert_eq!(
            Features(0x5a).missing(),
            ["USER_RECOVERY_REISSUE", "USER_COPY"][1..]
        );
        assert_eq!(Features(0).missing().len(), 4);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_some_request_and_no_reason_to_end(bytes: [u8; Descriptor::BYTES]) {
            let descriptor = Descriptor::decode(&bytes);
            let _ = descriptor.range();
            assert_eq!(Descriptor::decode(&descriptor.encode()), descriptor);
        }
    }
}
