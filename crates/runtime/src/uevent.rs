//! What the kernel and udev tell about devices: messages of the netlink family `NETLINK_KOBJECT_UEVENT`.
//!
//! Invariants:
//! - a message is a hint that something is to be looked at: nothing is believed because a message says so;
//! - the parser panics on nothing, and keeps nothing of what it does not know;
//! - a lost message is told as such, so that whoever hears looks at everything.
//!
//! Source: the kernel's `lib/kobject_uevent.c` for group 1 (`ACTION@DEVPATH`, then `KEY=VALUE`, each ended by a zero);
//! systemd's `sd-device` monitor for group 2 (`libudev`, a magic number, the place of the same properties).

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType};

/// What the kernel says, before udev has looked.
const GROUP_KERNEL: u32 = 1;
/// What udev says when it has: links and properties are there.
const GROUP_UDEV: u32 = 2;
/// Longest message: the kernel's buffer of properties is 2 KiB, udev adds links and identities.
const MESSAGE_BYTES_MAX: usize = 16 << 10;
/// Room for messages that nobody has read yet: a shelf of disks that is switched on sends hundreds at once.
const QUEUE_BYTES: usize = 1 << 20;

/// How a message of udev begins.
const UDEV_PREFIX: &[u8; 8] = b"libudev\0";
/// What follows in a message of udev, big-endian.
const UDEV_MAGIC: u32 = 0xfeed_cafe;
/// Bytes of udev's head up to the length of the properties.
const UDEV_HEAD_BYTES: usize = 24;

/// What happened to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is there now.
    Add,
    /// It is another than before: a medium, a size, what is on it.
    Change,
    /// It is gone.
    Remove,
    /// Something else: bound to a driver, moved, taken off line.
    Other,
}

/// A message about a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uevent {
    /// What happened.
    pub action: Action,
    /// Its subsystem: `block` for disks and partitions.
    pub subsystem: String,
    /// Its name below `/dev`, without that; none for what has no device file.
    pub name: Option<String>,
    /// Whether udev has looked at it already.
    pub is_from_udev: bool,
}

/// Understands a message; none for what is no message of these two kinds, or lacks a property that each has.
#[must_use]
pub fn parse(message: &[u8]) -> Option<Uevent> {
    let (properties, is_from_udev) = match message.strip_prefix(UDEV_PREFIX) {
        Some(_) => (udev_properties(message)?, true),
        None => {
            // The head says the same as two of the properties.
            let end = message.iter().position(|byte| *byte == 0)?;
            message[..end].contains(&b'@').then_some(())?;
            (&message[end + 1..], false)
        }
    };
    let value = |key: &str| {
        let mut lines = properties.split(|byte| *byte == 0);
        lines.find_map(|line| {
            let rest = line.strip_prefix(key.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(rest).ok()
        })
    };
    Some(Uevent {
        action: match value("ACTION")? {
            "add" => Action::Add,
            "change" => Action::Change,
            "remove" => Action::Remove,
            _ => Action::Other,
        },
        subsystem: value("SUBSYSTEM")?.to_owned(),
        // The kernel names it without the folder, udev with it.
        name: value("DEVNAME").map(|name| name.strip_prefix("/dev/").unwrap_or(name).to_owned()),
        is_from_udev,
    })
}

/// The properties in a message of udev.
fn udev_properties(message: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| -> Option<[u8; 4]> { message.get(at..at + 4)?.try_into().ok() };
    if message.len() < UDEV_HEAD_BYTES || u32::from_be_bytes(word(8)?) != UDEV_MAGIC {
        return None;
    }
    let start = usize::try_from(u32::from_ne_bytes(word(16)?)).ok()?;
    let length = usize::try_from(u32::from_ne_bytes(word(20)?)).ok()?;
    message.get(start..start.checked_add(length)?)
}

/// What a socket has heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// A message.
    Told(Uevent),
    /// Messages were lost: too many came at once.
    Lost,
}

/// A socket that hears of devices. Its messages are waited for by the thread that asks.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Listener {
    /// Hears from now on. No rights are needed.
    ///
    /// # Errors
    /// Of the system: a container may have no such sockets.
    pub fn open() -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::KOBJECT_UEVENT),
        )?;
        // Beyond the system's limit with the right to it, up to the limit without; a small one only loses messages.
        if rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, QUEUE_BYTES).is_err() {
            let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, QUEUE_BYTES);
        }
        rustix::net::bind(
            &socket,
            &SocketAddrNetlink::new(0, GROUP_KERNEL | GROUP_UDEV),
        )?;
        Ok(Self {
            socket,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        })
    }

    /// Waits for the next message that makes sense.
    ///
    /// # Errors
    /// The socket has failed: nothing more is heard.
    pub fn hear(&mut self) -> io::Result<Heard> {
        loop {
            let received =
                rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty());
            match received {
                Ok((length, _)) => {
                    if let Some(event) = parse(&self.buffer[..length]) {
                        return Ok(Heard::Told(event));
                    }
                }
                Err(Errno::NOBUFS) => return Ok(Heard::Lost),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the kernel told of a disk of scsi_debug that was pulled out.
    const KERNEL: &[u8] =
        b"remove@/devices/pseudo_0/adapter0/host0/target0:0:0/0:0:0:0/block/sdb\0\
        ACTION=remove\0DEVPATH=/devices/pseudo_0/adapter0/host0/target0:0:0/0:0:0:0/block/sdb\0\
        SUBSYSTEM=block\0MAJOR=8\0MINOR=16\0DEVNAME=sdb\0DEVTYPE=disk\0DISKSEQ=4\0SEQNUM=1204\0";

    /// The same disk, come back, as udev told of it.
    fn from_udev() -> Vec<u8> {
        let properties: &[u8] =
            b"ACTION=add\0DEVPATH=/devices/pseudo_0/adapter0/host0/target0:0:0/0:0:0:0/block/sdc\0\
            SUBSYSTEM=block\0DEVNAME=/dev/sdc\0DEVTYPE=disk\0ID_SERIAL=Linux_scsi_debug_2000\0";
        let mut message = UDEV_PREFIX.to_vec();
        message.extend(UDEV_MAGIC.to_be_bytes());
        message.extend(40_u32.to_ne_bytes());
        message.extend(40_u32.to_ne_bytes());
        message.extend(u32::try_from(properties.len()).unwrap().to_ne_bytes());
        message.extend([0; 16]); // hashes for filters
        message.extend(properties);
        message
    }

    #[test]
    fn the_kernel_and_udev_are_understood() {
        let removed = Uevent {
            action: Action::Remove,
            subsystem: "block".into(),
            name: Some("sdb".into()),
            is_from_udev: false,
        };
        assert_eq!(parse(KERNEL), Some(removed));
        let added = Uevent {
            action: Action::Add,
            subsystem: "block".into(),
            name: Some("sdc".into()),
            is_from_udev: true,
        };
        assert_eq!(parse(&from_udev()), Some(added));
    }

    #[test]
    fn a_message_that_is_cut_or_damaged_anywhere_is_understood_or_not_and_never_a_panic() {
        for whole in [KERNEL.to_vec(), from_udev()] {
            for length in 0..whole.len() {
                let cut = parse(&whole[..length]);
                assert!(cut.is_none_or(|event| event.subsystem.len() <= "block".len()));
            }
            for at in 0..whole.len() {
                for value in [0, 1, b'=', b'@', 0x7f, 0xff] {
                    let mut damaged = whole.clone();
                    damaged[at] = value;
                    let _ = parse(&damaged);
                }
            }
        }
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"libudev\0"), None);
        assert_eq!(parse(b"add@/x\0ACTION=add\0"), None, "no subsystem");
    }

    #[test]
    fn a_length_beyond_the_message_is_no_message() {
        let mut long = from_udev();
        long[20..24].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse(&long), None);
        long[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse(&long), None);
    }

    #[test]
    fn a_socket_can_be_had_without_rights() {
        Listener::open().unwrap();
    }
}
