//! Which disk is it, where is it, how is it.
//!
//! - [`Identity`]: model, the sticker's serial, WWN, size, path and bay of a disk, from sysfs and udev's database. It
//!   is serialisable, so that a disk that is gone keeps what was known of it.
//! - [`Inventory`]: all disks and all bays of a machine; which serials are given twice.
//! - [`read_light`], [`set_light`]: the locate and fault lights, addressed by bay.
//! - [`health`]: what smartctl says, and a pure judge of what changed.
//!
//! Invariants:
//! - Nothing here panics on what a file, a device or a program says. Each read is bounded.
//! - Everything is synchronous and read below the [`Roots`] that are given. No program is started, no clock is read.
//! - The name of a device (`sdb`) is never identity: it is another disk's after the next boot.
#![forbid(unsafe_code)]

mod bay;
mod below;
mod bottom;
mod error;
pub mod health;
mod identity;
mod inventory;
mod ledctl;
mod light;
mod roots;
mod serial;
mod syspath;
mod transport;
mod udev;
mod vpd;

pub use bay::{Bay, BayAddress, BayStatus};
pub use below::{Below, Stack};
pub use bottom::below;
pub use error::InventoryError;
pub use identity::{Bridge, Identity, Medium, Sameness};
pub use inventory::{Apart, Duplicate, Inventory, Repeated};
pub use ledctl::Ledctl;
pub use light::{Light, LightError, Lit, read_light, set_light};
pub use roots::Roots;
pub use serial::{SerialClaim, SerialSource};
pub use syspath::{DeviceNumber, device_name};
pub use transport::Transport;
