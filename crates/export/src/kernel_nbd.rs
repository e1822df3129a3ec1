//! The kernel's own NBD client, over netlink: devices that the kernel serves from sockets it was given.
//!
//! Invariants:
//! - a socket that is handed over has its handshake behind it, and nobody else reads from it or writes to it
//!   afterwards;
//! - what the kernel sends is looked at by pure functions, which are tested with answers that lie;
//! - a request waits for its own acknowledgement: answers of others are passed over, and their number is bounded.
//!
//! Changes need CAP_SYS_ADMIN. Source: include/uapi/linux/nbd-netlink.h for the numbers. What the driver does was
//! looked at in Linux 6.1, by the tests in `attaches_by_nbd.rs` of the command.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::netlink::{
    Address, Body, NetlinkError, RequestDraft, attributes, find, find_u16, find_u32, messages,
};

/// The family that knows the others (GENL_ID_CTRL), its command that finds one by name, and the attributes of both.
mod controller {
    pub(super) const ID: u16 = 16;
    pub(super) const GET_FAMILY: u8 = 3;
    pub(super) const VERSION: u8 = 1;
    pub(super) const FAMILY_ID: u16 = 1;
    pub(super) const FAMILY_NAME: u16 = 2;
    pub(super) const GROUPS: u16 = 7;
    pub(super) const GROUP_NAME: u16 = 1;
    pub(super) const GROUP_ID: u16 = 2;
}

const FAMILY: &str = "nbd";
const VERSION: u8 = 1;
const GROUP: &str = "nbd_mc_group";

mod command {
    pub(super) const CONNECT: u8 = 1;
    pub(super) const DISCONNECT: u8 = 2;
    pub(super) const RECONFIGURE: u8 = 3;
    pub(super) const LINK_DEAD: u8 = 4;
    pub(super) const STATUS: u8 = 5;
}

mod attribute {
    pub(super) const INDEX: u16 = 1;
    pub(super) const SIZE_BYTES: u16 = 2;
    pub(super) const BLOCK_SIZE_BYTES: u16 = 3;
    pub(super) const TIMEOUT_S: u16 = 4;
    pub(super) const SERVER_FLAGS: u16 = 5;
    pub(super) const SOCKETS: u16 = 7;
    pub(super) const DEAD_CONNECTION_TIMEOUT_S: u16 = 8;
    pub(super) const DEVICE_LIST: u16 = 9;
    pub(super) const IDENTIFIER: u16 = 10;
    /// In a list: one of its elements, and what is in each.
    pub(super) const ITEM: u16 = 1;
    pub(super) const SOCKET_FD: u16 = 1;
    pub(super) const DEVICE_INDEX: u16 = 1;
    pub(super) const DEVICE_CONNECTED: u16 = 2;
}

/// Most sockets of one device; the kernel has one queue for each.
pub const SOCKETS_MAX: usize = 16;
/// Longest identifier in bytes.
pub const IDENTIFIER_BYTES_MAX: usize = 1024;
/// Smallest and largest block of a device in bytes: a sector, and the smallest page that Linux has.
pub const BLOCK_BYTES_MIN: u32 = 512;
/// See `BLOCK_BYTES_MIN`.
pub const BLOCK_BYTES_MAX: u32 = 4096;

/// Largest message taken in bytes: the list of all devices.
const RECEIVE_BYTES_MAX: usize = 64 << 10;
/// Messages that are passed over while one is waited for.
const MESSAGES_MAX: u32 = 64;
/// Groups that an address has a bit for.
const GROUPS_MAX: u32 = 32;
/// The kernel answers within the call that asks it: this is for one that does not answer at all.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

/// What the kernel calls its nbd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Number of the family.
    pub id: u16,
    /// Number of the group that hears of dead connections, where it has one.
    pub group: Option<u32>,
}

/// What a device is to be.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Size in bytes.
    pub size_bytes: u64,
    /// Unit of requests in bytes: a power of two from `BLOCK_BYTES_MIN` to `BLOCK_BYTES_MAX`.
    pub block_bytes: u32,
    /// The server's transmission flags.
    pub server_flags: u16,
    /// A request that was not answered for so long is sent again, over another connection; at least 1.
    pub timeout_s: u64,
    /// Requests wait so long for a connection when there is none left, then fail; 0: they fail at once.
    pub dead_connection_timeout_s: u64,
    /// By what its owner knows it: in `backend` of its folder in sysfs, and wanted for each change.
    pub identifier: &'a str,
}

/// A device that the kernel told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceState {
    /// N of /dev/nbdN.
    pub index: u32,
    /// Whether it has been connected and not disconnected since.
    pub is_connected: bool,
}

/// A command of nbd, whose family has the number `family`.
fn to_nbd(family: u16, command: u8) -> RequestDraft {
    RequestDraft::new(Address {
        family,
        command,
        version: VERSION,
    })
}

/// The request for the family's numbers.
fn ask_family() -> RequestDraft {
    RequestDraft::new(Address {
        family: controller::ID,
        command: controller::GET_FAMILY,
        version: controller::VERSION,
    })
    .put_text(controller::FAMILY_NAME, FAMILY)
}

/// The family from the attributes of the answer.
fn decode_family(bytes: &[u8]) -> Result<Family, NetlinkError> {
    let id = find_u16(bytes, controller::FAMILY_ID, "number of the family")?;
    let mut group = None;
    for item in find(bytes, controller::GROUPS, "groups")
        .into_iter()
        .flat_map(attributes)
    {
        let (_, item) = item?;
        let name = find(item, controller::GROUP_NAME, "name of a group")?;
        if name.strip_suffix(&[0]).unwrap_or(name) == GROUP.as_bytes() {
            group = Some(find_u32(item, controller::GROUP_ID, "number of a group")?);
        }
    }
    Ok(Family { id, group })
}

fn put_sockets(request: RequestDraft, fds: &[u32]) -> RequestDraft {
    request.put_nested(attribute::SOCKETS, |list| {
        fds.iter().fold(list, |list, fd| {
            list.put_nested(attribute::ITEM, |item| {
                item.put_u32(attribute::SOCKET_FD, *fd)
            })
        })
    })
}

fn ask_connect(family: u16, settings: &Settings<'_>, fds: &[u32]) -> RequestDraft {
    let request = to_nbd(family, command::CONNECT)
        .put_u64(attribute::SIZE_BYTES, settings.size_bytes)
        .put_u64(attribute::BLOCK_SIZE_BYTES, u64::from(settings.block_bytes))
        .put_u64(attribute::TIMEOUT_S, settings.timeout_s)
        .put_u64(
            attribute::DEAD_CONNECTION_TIMEOUT_S,
            settings.dead_connection_timeout_s,
        )
        .put_u64(attribute::SERVER_FLAGS, u64::from(settings.server_flags))
        .put_text(attribute::IDENTIFIER, settings.identifier);
    put_sockets(request, fds)
}

fn ask_reconfigure(family: u16, index: u32, identifier: &str, fd: u32) -> RequestDraft {
    let request = to_nbd(family, command::RECONFIGURE)
        .put_u32(attribute::INDEX, index)
        .put_text(attribute::IDENTIFIER, identifier);
    put_sockets(request, &[fd])
}

fn ask_disconnect(family: u16, index: u32) -> RequestDraft {
    to_nbd(family, command::DISCONNECT).put_u32(attribute::INDEX, index)
}

/// All devices from the attributes of the answer to STATUS.
fn decode_status(bytes: &[u8]) -> Result<Vec<DeviceState>, NetlinkError> {
    let list = find(bytes, attribute::DEVICE_LIST, "list of devices")?;
    let mut devices = Vec::new();
    for item in attributes(list) {
        let (_, item) = item?;
        let connected = find(item, attribute::DEVICE_CONNECTED, "state of a device")?;
        devices.push(DeviceState {
            index: find_u32(item, attribute::DEVICE_INDEX, "number of a device")?,
            is_connected: connected.first().is_some_and(|byte| *byte != 0),
        });
    }
    Ok(devices)
}

/// The devices that have lost a connection, as far as the messages in `datagram` are understood.
#[must_use]
pub fn dead_links(datagram: &[u8], family: Family) -> Vec<u32> {
    let dead = messages(datagram).flatten().filter_map(|message| {
        let Body::Family {
            family: id,
            command: command::LINK_DEAD,
            attributes: bytes,
        } = message.body
        else {
            return None;
        };
        let index = find_u32(bytes, attribute::INDEX, "number of a device");
        index.ok().filter(|_| id == family.id)
    });
    dead.collect()
}

/// What a datagram brings for the request `sequence`: the attributes of its answer are kept in `answer`; `Some` when
/// the request has ended.
fn take(
    datagram: &[u8],
    sequence: u32,
    answer: &mut Option<Vec<u8>>,
) -> Option<Result<(), NetlinkError>> {
    for message in messages(datagram) {
        let message = match message {
            Ok(message) => message,
            Err(error) => return Some(Err(error)),
        };
        if message.sequence != sequence {
            continue;
        }
        match message.body {
            Body::Done => return Some(Ok(())),
            Body::Refused(errno) => return Some(Err(NetlinkError::Refused(errno))),
            Body::Family { attributes, .. } => *answer = Some(attributes.to_vec()),
            Body::Other => {}
        }
    }
    None
}

/// Talks to the kernel's nbd. One request at a time.
#[derive(Debug)]
pub struct Kernel {
    socket: OwnedFd,
    family: Family,
    sequence: Cell<u32>,
}

fn open_socket(groups: u32) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        Some(netlink::GENERIC),
    )?;
    rustix::net::bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    Ok(socket)
}

impl Kernel {
    /// Opens the way to it.
    ///
    /// # Errors
    /// `Refused` with ENOENT when the kernel has no nbd: its module is not loaded, or this is another network
    /// namespace. `Socket` where netlink is not allowed.
    pub fn open() -> Result<Self, NetlinkError> {
        let socket = open_socket(0)?;
        set_socket_timeout(&socket, Timeout::Recv, Some(ANSWER_WITHIN)).map_err(io::Error::from)?;
        let mut kernel = Self {
            socket,
            family: Family { id: 0, group: None },
            sequence: Cell::new(0),
        };
        let answer = kernel.ask(ask_family())?;
        kernel.family = decode_family(&answer.ok_or(NetlinkError::Missing("family"))?)?;
        Ok(kernel)
    }

    /// Its numbers.
    #[must_use]
    pub fn family(&self) -> Family {
        self.family
    }

    /// A socket that hears of dead connections of all devices, see [`dead_links`]. `None` where the kernel's group has
    /// a number that an address has no bit for: whoever listens also looks by himself, since such news can get lost.
    ///
    /// # Errors
    /// Of making it.
    pub fn listen(&self) -> Result<Option<OwnedFd>, NetlinkError> {
        let Some(group) = self.family.group.filter(|id| (1..=GROUPS_MAX).contains(id)) else {
            return Ok(None);
        };
        Ok(Some(open_socket(1 << (group - 1))?))
    }

    /// Makes a device on a number that is free, served over `sockets`; the number.
    ///
    /// # Errors
    /// `Refused` with EPERM without CAP_SYS_ADMIN, with EINVAL for settings that the kernel does not take.
    ///
    /// # Panics
    /// With no socket, more than `SOCKETS_MAX`, or a longer identifier than `IDENTIFIER_BYTES_MAX`.
    pub fn connect(
        &self,
        settings: &Settings<'_>,
        sockets: &[OwnedFd],
    ) -> Result<u32, NetlinkError> {
        assert!((1..=SOCKETS_MAX).contains(&sockets.len()));
        assert!(settings.identifier.len() <= IDENTIFIER_BYTES_MAX);
        let fds: Vec<u32> = sockets
            .iter()
            .map(|socket| number(socket.as_fd()))
            .collect();
        let answer = self.ask(ask_connect(self.family.id, settings, &fds))?;
        let answer = answer.ok_or(NetlinkError::Missing("number of the device"))?;
        find_u32(&answer, attribute::INDEX, "number of the device")
    }

    /// Gives `socket` to the device in the place of a connection that is dead. Whether it was taken: when the kernel
    /// finds no dead connection, it says yes and takes nothing.
    ///
    /// # Errors
    /// `Refused` with EINVAL when the device has been disconnected, or is not known by this identifier.
    pub fn reconnect(
        &self,
        index: u32,
        identifier: &str,
        socket: BorrowedFd<'_>,
    ) -> Result<bool, NetlinkError> {
        self.ask(ask_reconfigure(
            self.family.id,
            index,
            identifier,
            number(socket),
        ))?;
        Ok(is_taken(socket))
    }

    /// Ends a device: its connections are closed, and what it was asked for and has not answered fails. Whoever has it
    /// open keeps a device without contents.
    ///
    /// # Errors
    /// `Refused`.
    pub fn disconnect(&self, index: u32) -> Result<(), NetlinkError> {
        self.ask(ask_disconnect(self.family.id, index)).map(drop)
    }

    /// All devices.
    ///
    /// # Errors
    /// `Refused`, or an answer that is not understood.
    pub fn devices(&self) -> Result<Vec<DeviceState>, NetlinkError> {
        let request = to_nbd(self.family.id, command::STATUS);
        let answer = self.ask(request)?;
        decode_status(&answer.ok_or(NetlinkError::Missing("list of devices"))?)
    }

    /// Sends a request and waits for its end; the attributes of its answer, where there is one.
    fn ask(&self, request: RequestDraft) -> Result<Option<Vec<u8>>, NetlinkError> {
        let sequence = self.sequence.get().wrapping_add(1).max(1); // 0 is what nobody asked for
        self.sequence.set(sequence);
        let message = request.finish(sequence);
        let flags = SendFlags::empty();
        rustix::net::send(&self.socket, &message, flags).map_err(io::Error::from)?;
        let mut buf = vec![0; RECEIVE_BYTES_MAX];
        let mut answer = None;
        for _ in 0..MESSAGES_MAX {
            let received = rustix::net::recv(&self.socket, &mut buf[..], RecvFlags::empty());
            let (length, _) = received.map_err(io::Error::from)?;
            if let Some(end) = take(&buf[..length], sequence, &mut answer) {
                return end.map(|()| answer);
            }
        }
        Err(NetlinkError::Missing("end"))
    }
}

/// The descriptor's number, as the kernel wants it.
fn number(fd: BorrowedFd<'_>) -> u32 {
    u32::try_from(fd.as_raw_fd()).expect("an open descriptor is not negative")
}

/// Whether the kernel has made `socket` a connection of a device: it gives each the device's time-out for sending,
/// which shows on every copy of it.
fn is_taken(socket: BorrowedFd<'_>) -> bool {
    socket_timeout(socket, Timeout::Send).is_ok_and(|timeout| timeout.is_some())
}

/// Whether the connection has ended, seen on a copy of what the kernel has: by the server, or by the kernel after a
/// time-out.
#[must_use]
pub fn has_ended(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(&socket, PollFlags::RDHUP)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // A poll that fails says nothing: the next one will.
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
        && fds[0]
            .revents()
            .intersects(PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::tests::{acknowledgement, from_kernel};
    use proptest::prelude::*;

    const NBD: Family = Family {
        id: 0x1d,
        group: Some(5),
    };

    /// Attributes of the only message in `bytes`.
    fn inside(bytes: &[u8]) -> Vec<u8> {
        let mut answer = None;
        assert!(take(bytes, 1, &mut answer).is_none());
        answer.expect("an answer")
    }

    fn family_answer(name: &str) -> RequestDraft {
        to_nbd(controller::ID, 1)
            .put(controller::FAMILY_ID, &0x1d_u16.to_ne_bytes())
            .put_nested(controller::GROUPS, |groups| {
                groups
                    .put_nested(1, |group| {
                        group
                            .put_text(controller::GROUP_NAME, "other")
                            .put_u32(controller::GROUP_ID, 4)
                    })
                    .put_nested(2, |group| {
                        group
                            .put_text(controller::GROUP_NAME, name)
                            .put_u32(controller::GROUP_ID, 5)
                    })
            })
    }

    #[test]
    fn the_family_and_its_group_are_found_by_their_names() {
        let bytes = inside(&from_kernel(family_answer(GROUP), 1));
        assert_eq!(decode_family(&bytes).unwrap(), NBD);
        let bytes = inside(&from_kernel(family_answer("nbd_mc"), 1));
        assert_eq!(decode_family(&bytes).unwrap().group, None);
        assert!(decode_family(&[]).is_err());
    }

    #[test]
    fn a_connect_says_all_that_a_device_is() {
        let settings = Settings {
            size_bytes: 1 << 40,
            block_bytes: 4096,
            server_flags: 0x10d,
            timeout_s: 60,
            dead_connection_timeout_s: 30,
            identifier: "plexum nas",
        };
        let bytes = inside(&from_kernel(ask_connect(NBD.id, &settings, &[7, 9]), 1));
        let number = |kind| {
            let value = find(&bytes, kind, "number").unwrap();
            u64::from_ne_bytes(value.try_into().unwrap())
        };
        assert_eq!(number(attribute::SIZE_BYTES), 1 << 40);
        assert_eq!(number(attribute::BLOCK_SIZE_BYTES), 4096);
        assert_eq!(number(attribute::SERVER_FLAGS), 0x10d);
        assert_eq!(number(attribute::TIMEOUT_S), 60);
        assert_eq!(number(attribute::DEAD_CONNECTION_TIMEOUT_S), 30);
        let identifier = find(&bytes, attribute::IDENTIFIER, "identifier").unwrap();
        assert_eq!(identifier, b"plexum nas\0");
        // The kernel takes a number that is free when none is named.
        assert!(find(&bytes, attribute::INDEX, "index").is_err());
        let sockets = find(&bytes, attribute::SOCKETS, "sockets").unwrap();
        let fds: Vec<u32> = attributes(sockets)
            .map(|item| find_u32(item.unwrap().1, attribute::SOCKET_FD, "fd").unwrap())
            .collect();
        assert_eq!(fds, [7, 9]);
    }

    #[test]
    fn changes_name_the_device_and_by_what_it_is_known() {
        let bytes = inside(&from_kernel(ask_reconfigure(NBD.id, 3, "plexum nas", 8), 1));
        assert_eq!(find_u32(&bytes, attribute::INDEX, "index").unwrap(), 3);
        let identifier = find(&bytes, attribute::IDENTIFIER, "identifier").unwrap();
        assert_eq!(identifier, b"plexum nas\0");
        let bytes = inside(&from_kernel(ask_disconnect(NBD.id, 3), 1));
        assert_eq!(find_u32(&bytes, attribute::INDEX, "index").unwrap(), 3);
    }

    #[test]
    fn a_request_ends_with_its_own_acknowledgement() {
        let answer = to_nbd(NBD.id, command::CONNECT).put_u32(attribute::INDEX, 2);
        let mut bytes = from_kernel(answer.clone().put_u32(attribute::INDEX, 9), 6);
        bytes.extend(acknowledgement(-16, 6)); // of an earlier request
        bytes.extend(from_kernel(answer, 7));
        let mut found = None;
        assert!(take(&bytes, 7, &mut found).is_none());
        assert!(take(&acknowledgement(0, 7), 7, &mut found).unwrap().is_ok());
        assert_eq!(find_u32(&found.unwrap(), attribute::INDEX, "x").unwrap(), 2);
        let refused = take(&acknowledgement(-1, 7), 7, &mut None).unwrap();
        assert!(matches!(refused, Err(NetlinkError::Refused(1))));
    }

    #[test]
    fn devices_and_dead_connections_are_understood() {
        let status = to_nbd(NBD.id, command::STATUS).put_nested(attribute::DEVICE_LIST, |list| {
            (0..3).fold(list, |list, index| {
                list.put_nested(attribute::ITEM, |item| {
                    item.put_u32(attribute::DEVICE_INDEX, index)
                        .put(attribute::DEVICE_CONNECTED, &[u8::from(index == 1)])
                })
            })
        });
        let devices = decode_status(&inside(&from_kernel(status, 1))).unwrap();
        let connected: Vec<bool> = devices.iter().map(|device| device.is_connected).collect();
        assert_eq!(connected, [false, true, false]);
        assert_eq!(devices[2].index, 2);

        let dead = |family, command| {
            let news = to_nbd(family, command).put_u32(attribute::INDEX, 4);
            dead_links(&from_kernel(news, 0), NBD)
        };
        assert_eq!(dead(NBD.id, command::LINK_DEAD), [4]);
        assert!(dead(NBD.id, command::CONNECT).is_empty());
        assert!(dead(NBD.id + 1, command::LINK_DEAD).is_empty());
    }

    #[test]
    fn a_connection_that_has_ended_is_seen_on_a_copy_of_it() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let copy = ours.try_clone().unwrap();
        assert!(!has_ended(copy.as_fd()));
        assert!(!is_taken(copy.as_fd()));
        // As the kernel does it.
        ours.set_write_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        assert!(is_taken(copy.as_fd()));
        drop(theirs);
        assert!(has_ended(copy.as_fd()));
        let (ours, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let copy = ours.try_clone().unwrap();
        ours.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(has_ended(copy.as_fd()));
    }

    proptest! {
        #[test]
        fn answers_that_lie_are_errors_and_never_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..120),
            at in any::<prop::sample::Index>(), byte: u8, cut in any::<prop::sample::Index>(),
        ) {
            let _ = decode_family(&bytes);
            let _ = decode_status(&bytes);
            let _ = dead_links(&bytes, NBD);
            let _ = take(&bytes, 0, &mut None);
            // A real answer with one wrong byte, cut anywhere.
            let mut answer = from_kernel(family_answer(GROUP), 1);
            let at = at.index(answer.len());
            answer[at] = byte;
            answer.truncate(cut.index(answer.len()) + 1);
            let mut found = None;
            let _ = take(&answer, 1, &mut found);
            let _ = decode_family(&found.unwrap_or_default());
        }
    }
}
