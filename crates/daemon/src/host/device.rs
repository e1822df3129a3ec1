//! A volume's block device of the kernel (ublk): the session that serves it, and how it ends.
//!
//! Invariants:
//! - the device's name in `/dev/plexum` leads to it as long as it stands, and is removed with it;
//! - a device that is in use outlives a server that ends to be started again: its requests wait for the next one;
//! - control commands are never given by the thread that serves.

use std::cell::Cell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::buf::{BufMut, BufPool};
use plexum_block::clock::Clock;
use plexum_block::wait::first;
use plexum_front::budget::Budget;
use plexum_front::exports::{Exports, Visit};
use plexum_front::flag::Flag;
use plexum_front::requests::RequestLimits;
use plexum_runtime::clock::RealClock;
use plexum_runtime::ublk::{ControlDevice, DeviceQueue, aside, block_device, users};
use plexum_ublk::queue::{Queue, QueueEnd, Withdrawn};
use plexum_ublk::session::{Ended, Session};
use plexum_ublk::wire::Descriptor;

use super::listen::encode;
use crate::volume::export::VolumeExport;

/// Where devices have the names of their volumes.
pub const LINKS: &str = "/dev/plexum";

/// How long the removal of a device is waited for: whoever still has it open must not keep the server.
pub(super) const DELETE_WAIT: Duration = Duration::from_secs(2);

/// A device that is served by this process.
pub(crate) struct Device {
    number: u32,
    name: String,
    control: Arc<ControlDevice>,
    clock: RealClock,
    pub(super) exports: Exports<VolumeExport>,
    /// Somebody who uses it keeps it, when its session is to end.
    is_for_successor: Cell<bool>,
    /// Every tag has asked for its first request.
    pub(super) fetched: Flag,
    /// Its session is over, and it was removed unless it is kept.
    pub(super) ended: Flag,
    outcome: Cell<Option<Ended>>,
}

impl Device {
    pub(super) fn new(
        number: u32,
        name: &str,
        control: Arc<ControlDevice>,
        clock: RealClock,
    ) -> Self {
        Self {
            number,
            name: name.to_owned(),
            control,
            clock,
            exports: Exports::default(),
            is_for_successor: Cell::new(false),
            fetched: Flag::default(),
            ended: Flag::default(),
            outcome: Cell::new(None),
        }
    }

    /// Its number.
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Its name in `/dev/plexum`.
    pub(crate) fn link(&self) -> PathBuf {
        link_of(&self.name)
    }

    /// How its session has ended, once it has.
    pub(super) fn outcome(&self) -> Option<Ended> {
        self.outcome.get()
    }

    /// From now on it stays when its session is to end while somebody uses it.
    pub(super) fn leave_to_successor(&self) {
        self.is_for_successor.set(true);
    }

    /// 1 when something of the kernel stands on it: a mount, swap, another device.
    pub(super) fn clients(&self) -> u64 {
        u64::from(users::holder(self.number).is_some())
    }

    /// The limits of its only client: all tags at once; memory is what the budget gives.
    pub(super) fn enter(
        &self,
        export: &Rc<VolumeExport>,
        depth: u16,
        memory_bytes: u64,
    ) -> Result<Visit<VolumeExport>, plexum_front::exports::OpenError> {
        self.exports.open(Rc::clone(export))?;
        let limits = RequestLimits {
            requests_max: usize::from(depth),
            bytes_max: u64::MAX / 2,
        };
        let opened = self.exports.find("").expect("it was just opened, alone");
        let peer = block_device(self.number).display().to_string();
        let budget = Budget::new(memory_bytes);
        let visit = self.exports.enter(&opened, peer, limits, &budget);
        Ok(visit.expect("nobody has closed it yet"))
    }

    /// The session of the device, and its end.
    pub(super) async fn serve(
        self: Rc<Self>,
        queue: DeviceQueue,
        visit: Visit<VolumeExport>,
        pool: BufPool,
    ) {
        let bound = Bound {
            queue,
            device: Rc::clone(&self),
        };
        let session = Session::new(&bound, &visit, &pool);
        let outcome = session.run(|| self.fetched.set()).await;
        drop(session);
        drop(bound); // the kernel removes a device only when its files are closed
        drop(visit);
        self.outcome.set(Some(outcome));
        if outcome != Ended::Kept {
            self.remove().await;
        }
        self.ended.set();
    }

    /// Stops and removes the device, whatever state it is in.
    pub(super) async fn remove(&self) {
        unlink(&self.name, self.number);
        let (control, number) = (Arc::clone(&self.control), self.number);
        let removing = aside(move || {
            let _ = control.stop(number); // it may have been stopped already
            let _ = control.delete(number);
        });
        let removing = async {
            let _ = removing.await;
        };
        first(removing, self.clock.sleep(DELETE_WAIT)).await;
    }
}

/// The queue as its session has it.
struct Bound {
    queue: DeviceQueue,
    device: Rc<Device>,
}

impl Queue for Bound {
    fn depth(&self) -> u16 {
        self.queue.depth()
    }

    async fn fetch(&self, tag: u16) -> Result<(), QueueEnd> {
        self.queue.fetch(tag).await
    }

    async fn commit_and_fetch(&self, tag: u16, result: i32) -> Result<(), QueueEnd> {
        self.queue.commit_and_fetch(tag, result).await
    }

    fn descriptor(&self, tag: u16) -> Descriptor {
        self.queue.descriptor(tag)
    }

    async fn take_data(&self, tag: u16, target: &mut BufMut) -> Result<(), i32> {
        self.queue.take_data(tag, target).await
    }

    async fn give_data(&self, tag: u16, at: u32, data: &[u8]) -> Result<(), i32> {
        self.queue.give_data(tag, at, data).await
    }

    async fn withdraw(&self) -> Withdrawn {
        let (control, number) = (Arc::clone(&self.device.control), self.device.number);
        let is_for_successor = self.device.is_for_successor.get();
        let stopped = aside(move || {
            if is_for_successor && users::user(number).is_some() {
                return Withdrawn::Kept;
            }
            match control.stop(number) {
                Ok(()) => Withdrawn::Stopped,
                // What cannot be stopped waits for somebody who can.
                Err(_) => Withdrawn::Kept,
            }
        });
        stopped.await.unwrap_or(Withdrawn::Kept)
    }
}

/// The name of a volume's device: what a file's name cannot have is encoded as in a URI.
#[must_use]
pub fn link_of(volume: &str) -> PathBuf {
    let name = match encode(volume) {
        name if name.starts_with('.') => name.replacen('.', "%2E", 1),
        name => name,
    };
    Path::new(LINKS).join(name)
}

/// Makes the name of a device, over one that another device had.
pub(super) fn link(volume: &str, device: u32) -> std::io::Result<()> {
    let path = link_of(volume);
    match std::fs::create_dir(LINKS) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let _ = std::fs::remove_file(&draft);
    std::os::unix::fs::symlink(block_device(device), &draft)?;
    std::fs::rename(&draft, &path)
}

/// Removes the name of a device, when it still leads to it.
pub fn unlink(volume: &str, device: u32) {
    let path = link_of(volume);
    if std::fs::read_link(&path).is_ok_and(|target| target == block_device(device)) {
        let _ = std::fs::remove_file(&path);
        let _ = std::fs::remove_dir(LINKS); // when it was the last one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_devices_name_stays_in_its_folder_whatever_the_volume_is_called() {
        for (volume, name) in [
            ("nas", "nas"),
            ("host:nas", "host%3Anas"),
            ("../../etc/passwd", "%2E.%2F..%2Fetc%2Fpasswd"),
            ("..", "%2E."),
        ] {
            assert_eq!(link_of(volume), Path::new(LINKS).join(name));
        }
    }
}
