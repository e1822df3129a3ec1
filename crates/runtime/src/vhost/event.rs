//! Events as files of somebody else: mostly eventfds; a pipe does as well.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;

use plexum_vhost::peer::{Call, Kick, PeerError};
use rustix::event::PollFlags;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Core;
use crate::lock::OpenFile;

/// Checks that a file can be an event, and makes it non-blocking for all who have it.
///
/// An eventfd is of no type that has a name; what is always ready (a file, a device) would keep the thread.
fn prepare(file: &OwnedFd) -> Result<(), PeerError> {
    let refuse = |what: &str| Err(PeerError::File(format!("an event cannot be {what}")));
    let stat = rustix::fs::fstat(file).map_err(|errno| PeerError::File(errno.to_string()))?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Fifo | FileType::Socket | FileType::Unknown => {}
        FileType::RegularFile => return refuse("a file of bytes"),
        FileType::Directory => return refuse("a folder"),
        _ => return refuse("a device"),
    }
    rustix::io::ioctl_fionbio(file, true).map_err(|errno| PeerError::File(errno.to_string()))
}

/// An event that is waited for.
pub struct Doorbell {
    core: Rc<Core>,
    file: Arc<OpenFile>,
}

impl Doorbell {
    pub(super) fn new(core: &Rc<Core>, file: OwnedFd) -> Result<Self, PeerError> {
        prepare(&file)?;
        Ok(Self {
            core: Rc::clone(core),
            file: Arc::new(file.into()),
        })
    }
}

impl Kick for Doorbell {
    async fn wait(&self) -> Result<(), PeerError> {
        loop {
            self.core.ready(&self.file, PollFlags::IN).await;
            match rustix::io::read(&self.file, &mut [0_u8; 8]) {
                Ok(0) => return Err(PeerError::Closed),
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(PeerError::File(errno.to_string())),
            }
        }
    }
}

/// An event that is signalled.
pub struct Signal(OwnedFd);

impl Signal {
    pub(super) fn new(file: OwnedFd) -> Result<Self, PeerError> {
        prepare(&file)?;
        Ok(Self(file))
    }
}

impl Call for Signal {
    fn signal(&self) {
        // Fails when it is full, which says the same, or when nobody has the other end.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }
}
