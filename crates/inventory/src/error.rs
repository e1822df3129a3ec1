//! What can go wrong when a device is asked who it is.

use crate::below::Below;

/// Why a device has no identity. Each message names the device, what was found and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InventoryError {
    /// The name is no name of a block device: empty, with a slash, or a step upwards.
    #[error(
        "`{name}` is no name of a block device; give it as below /sys/class/block, such as `sda`"
    )]
    NotAName {
        /// What was given.
        name: String,
    },
    /// There is no such device now.
    #[error(
        "{name}: no such block device under {place}; if it was unplugged, its last identity is in the registry"
    )]
    NoSuchDevice {
        /// What was asked for.
        name: String,
        /// The folder that was looked in.
        place: String,
    },
    /// The device is made of other things, so it has no sticker.
    #[error("{name} is not a disk: {below}")]
    NotADisk {
        /// What was asked for.
        name: String,
        /// What it stands on.
        below: Below,
    },
    /// The folder of all devices cannot be read.
    #[error("{place}: {reason}; is sysfs mounted there?")]
    Unreadable {
        /// The folder.
        place: String,
        /// What the system said.
        reason: String,
    },
}
