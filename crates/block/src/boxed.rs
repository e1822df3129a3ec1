//! A device of any kind behind a box: for what stands on devices of one type and meets another one, such as a volume
//! that is a member itself. Each I/O costs an allocation.
//!
//! Invariant: every call is one call of the device.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use crate::buf::{Buf, BufMut};
use crate::device::{Device, DeviceInfo, Extent, Fua, FuaWay, IoError, ZeroMode};

type Boxed<'a, T> = Pin<Box<dyn Future<Output = Result<T, IoError>> + 'a>>;

/// Boxes what `make` makes, in the place where it stays: `Box::pin` makes it on the stack first, and copying the nine
/// kilobytes of a volume's write was a third of what a volume under a volume cost.
#[inline(always)]
fn boxed<'a, T, F: Future<Output = Result<T, IoError>> + 'a>(
    make: impl FnOnce() -> F,
) -> Boxed<'a, T> {
    let made: Box<F> = Box::write(Box::new_uninit(), make());
    Box::into_pin(made)
}

/// `Device`, with its futures in boxes.
trait AnyKind {
    fn info(&self) -> DeviceInfo;
    fn read(&self, offset_bytes: u64, buf: BufMut) -> Boxed<'_, BufMut>;
    fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Boxed<'_, ()>;
    fn flush(&self) -> Boxed<'_, ()>;
    fn zero(&self, offset_bytes: u64, length_bytes: u64, mode: ZeroMode) -> Boxed<'_, ()>;
    fn extents(&self, offset_bytes: u64, length_bytes: u64, max: usize) -> Boxed<'_, Vec<Extent>>;
    fn fua_way(&self) -> FuaWay;
    fn is_in_memory(&self) -> bool;
    fn handle(&self) -> Option<u64>;
    fn busy(&self) -> usize;
    fn check(&self) -> Boxed<'_, ()>;
}

impl<D: Device> AnyKind for D {
    fn info(&self) -> DeviceInfo {
        Device::info(self)
    }
    fn read(&self, offset_bytes: u64, buf: BufMut) -> Boxed<'_, BufMut> {
        boxed(|| Device::read(self, offset_bytes, buf))
    }
    fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Boxed<'_, ()> {
        boxed(|| Device::write(self, offset_bytes, data, fua))
    }
    fn flush(&self) -> Boxed<'_, ()> {
        boxed(|| Device::flush(self))
    }
    fn zero(&self, offset_bytes: u64, length_bytes: u64, mode: ZeroMode) -> Boxed<'_, ()> {
        boxed(|| Device::zero(self, offset_bytes, length_bytes, mode))
    }
    fn extents(&self, offset_bytes: u64, length_bytes: u64, max: usize) -> Boxed<'_, Vec<Extent>> {
        boxed(|| Device::extents(self, offset_bytes, length_bytes, max))
    }
    fn fua_way(&self) -> FuaWay {
        Device::fua_way(self)
    }
    fn is_in_memory(&self) -> bool {
        Device::is_in_memory(self)
    }
    fn handle(&self) -> Option<u64> {
        Device::handle(self)
    }
    fn busy(&self) -> usize {
        Device::busy(self)
    }
    fn check(&self) -> Boxed<'_, ()> {
        boxed(|| Device::check(self))
    }
}

/// A device of any kind; clones are the same device.
#[derive(Clone)]
pub struct BoxedDevice(Rc<dyn AnyKind>);

impl BoxedDevice {
    /// This device, behind a box.
    #[must_use]
    pub fn new(device: Rc<impl Device>) -> Self {
        Self(device)
    }
}

impl Device for BoxedDevice {
    fn info(&self) -> DeviceInfo {
        self.0.info()
    }
    async fn read(&self, offset_bytes: u64, buf: BufMut) -> Result<BufMut, IoError> {
        self.0.read(offset_bytes, buf).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.0.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.0.flush().await
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        mode: ZeroMode,
    ) -> Result<(), IoError> {
        self.0.zero(offset_bytes, length_bytes, mode).await
    }
    async fn extents(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        self.0
            .extents(offset_bytes, length_bytes, extents_max)
            .await
    }
    fn fua_way(&self) -> FuaWay {
        self.0.fua_way()
    }
    fn is_in_memory(&self) -> bool {
        self.0.is_in_memory()
    }
    fn handle(&self) -> Option<u64> {
        self.0.handle()
    }
    fn busy(&self) -> usize {
        self.0.busy()
    }
    async fn check(&self) -> Result<(), IoError> {
        self.0.check().await
    }
}
