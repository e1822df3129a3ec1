//! What lies on a disk, as a device of its own: to look at a pool without changing it.
//!
//! Invariants: what is written to an image is forgotten; nothing ever waits, and faults of the disk do not strike.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use plexum_block::buf::{Buf, BufMut};
use plexum_block::device::{Device, DeviceInfo, Fua, IoError, check_range};

use crate::members::device_name;
use plexum_disks::disk::SimDisk;
use plexum_zfs::NamedDevice;

/// What lies on a disk now.
pub(super) struct Image(SimDisk);

impl Image {
    /// The images of these disks, named as the pool knows them.
    pub fn of<'a>(disks: impl Iterator<Item = &'a SimDisk>) -> Vec<NamedDevice<Self>> {
        let named = disks.map(|disk| NamedDevice {
            name: device_name(disk),
            device: Self(disk.clone()),
        });
        named.collect()
    }
}

impl Device for Image {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }

    async fn read(&self, offset_bytes: u64, mut buf: BufMut) -> Result<BufMut, IoError> {
        check_range(&self.info(), offset_bytes, buf.len() as u64)?;
        self.0.peek(offset_bytes, &mut buf);
        Ok(buf)
    }

    async fn write(&self, offset_bytes: u64, data: Buf, _: Fua) -> Result<(), IoError> {
        check_range(&self.info(), offset_bytes, data.len() as u64)
    }

    async fn flush(&self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Runs what never waits.
pub(super) fn at_once<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
