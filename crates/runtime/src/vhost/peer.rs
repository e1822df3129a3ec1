//! A connection of a front end.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;

use plexum_vhost::peer::{Backend, FilePart, Peer, PeerError};
use plexum_vhost::wire::REGIONS_MAX;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown,
};

use super::event::{Doorbell, Signal};
use super::memory::SharedMemory;
use crate::Core;
use crate::lock::OpenFile;
use crate::socket::Socket;

/// A connection of a front end.
pub struct FrontEnd {
    core: Rc<Core>,
    file: Arc<OpenFile>,
}

impl FrontEnd {
    /// Takes over a connection of a Unix socket.
    #[must_use]
    pub fn new(socket: Socket) -> Self {
        let (core, file) = socket.into_parts();
        Self { core, file }
    }

    /// Whether the other end is closed, though there may be bytes yet that were not read.
    #[must_use]
    pub fn has_hung_up(&self) -> bool {
        let mut look = [PollFd::new(&*self.file, PollFlags::RDHUP)];
        let at_once = Timespec::default();
        let looked = rustix::event::poll(&mut look, Some(&at_once));
        let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        looked.is_ok() && look[0].revents().intersects(ended)
    }
}

impl Peer for FrontEnd {
    type File = OwnedFd;
    type Mapping = SharedMemory;
    type Kick = Doorbell;
    type Call = Signal;
    type Backend = BackendSocket;

    async fn receive(&self, buf: &mut [u8], files: &mut Vec<OwnedFd>) -> Result<usize, PeerError> {
        self.core.charge(buf.len()).await;
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(REGIONS_MAX))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(buf)];
            let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
            let received = rustix::net::recvmsg(&self.file, &mut slices, &mut control, flags);
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(came) = message {
                    files.extend(came);
                }
            }
            match received {
                Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {
                    return Err(PeerError::File(
                        "more files came than any message has".to_owned(),
                    ));
                }
                Ok(_) if files.len() > REGIONS_MAX => {
                    return Err(PeerError::File(
                        "more files came than any message has".to_owned(),
                    ));
                }
                Ok(message) => return Ok(message.bytes),
                Err(Errno::AGAIN | Errno::NOMEM) => {
                    self.core.ready(&self.file, PollFlags::IN).await;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(PeerError::Closed),
            }
        }
    }

    async fn send(&self, bytes: &[u8], file: Option<&OwnedFd>) -> Result<(), PeerError> {
        let mut sent = 0;
        while sent < bytes.len() {
            let with = file.filter(|_| sent == 0);
            match send_some(&self.file, &bytes[sent..], with) {
                Ok(count) => sent += count,
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM) => {
                    self.core.ready(&self.file, PollFlags::OUT).await;
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(PeerError::Closed),
            }
        }
        Ok(())
    }

    fn close(&self) {
        // Fails only when the peer has ended it.
        let _ = rustix::net::shutdown(&self.file, Shutdown::Both);
    }

    fn map(&self, file: &OwnedFd, part: FilePart) -> Result<SharedMemory, PeerError> {
        SharedMemory::map(file, part)
    }

    fn share(&self, size_bytes: u64) -> Result<(OwnedFd, SharedMemory), PeerError> {
        SharedMemory::share(size_bytes)
    }

    fn kick(&self, file: OwnedFd) -> Result<Doorbell, PeerError> {
        Doorbell::new(&self.core, file)
    }

    fn call(&self, file: OwnedFd) -> Result<Signal, PeerError> {
        Signal::new(file)
    }

    fn backend(&self, file: OwnedFd) -> Result<BackendSocket, PeerError> {
        BackendSocket::new(file)
    }

    async fn charge(&self, length_bytes: usize) {
        self.core.charge(length_bytes).await;
    }
}

fn send_some(socket: impl AsFd, bytes: &[u8], file: Option<&OwnedFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let borrowed = file.map(|file| [file.as_fd()]);
    if let Some(files) = &borrowed {
        let has_room = control.push(SendAncillaryMessage::ScmRights(files));
        assert!(has_room, "there is room for one file");
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)
}

/// A socket for messages to the front end that it has not asked for.
pub struct BackendSocket(OwnedFd);

impl BackendSocket {
    fn new(file: OwnedFd) -> Result<Self, PeerError> {
        let stat = rustix::fs::fstat(&file).map_err(|errno| PeerError::File(errno.to_string()))?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => Ok(Self(file)),
            _ => Err(PeerError::File("messages go by a socket".to_owned())),
        }
    }
}

impl Backend for BackendSocket {
    fn send(&self, message: &[u8]) {
        // A front end that reads nothing is told nothing; a part of a message never fits where nothing else does.
        let _ = send_some(&self.0, message, None);
    }
}
