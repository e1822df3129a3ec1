//! Simulated disks as "other threads" read them. There is one thread in the simulator, but what goes to another one has to be
//! fit for that: a ticket, by which the disk is found in a list of this thread's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use plexum_engine::device::{IoError, Reader};

use super::SimDisk;

thread_local! {
    static DISKS: RefCell<BTreeMap<u64, SimDisk>> = const { RefCell::new(BTreeMap::new()) };
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

struct Ticket(u64);

impl Drop for Ticket {
    fn drop(&mut self) {
        // On another thread, or when this one ends, there is nothing to give back.
        let given_back = DISKS.try_with(|disks| {
            let mut disks = disks.borrow_mut();
            let disk = disks.remove(&self.0);
            // An empty map keeps memory, which would outlive the world.
            let old = disks.is_empty().then(|| std::mem::take(&mut *disks));
            (disk, old)
        });
        drop(given_back); // outside of the borrow
    }
}

impl Reader for Ticket {
    fn read(&self, offset_bytes: u64, buf: &mut [u8]) -> Result<(), IoError> {
        let disk = DISKS.with(|disks| disks.borrow().get(&self.0).cloned());
        disk.ok_or(IoError::Gone)?.read_elsewhere(offset_bytes, buf)
    }
}

/// What reads `disk`, through the handle that it is.
pub(super) fn reader(disk: &SimDisk) -> Arc<dyn Reader> {
    let number = NEXT.replace(NEXT.get() + 1);
    DISKS.with(|disks| disks.borrow_mut().insert(number, disk.clone()));
    Arc::new(Ticket(number))
}
