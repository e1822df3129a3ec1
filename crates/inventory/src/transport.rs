//! How a disk is attached, told by the names of what it hangs on in sysfs.

use serde::{Deserialize, Serialize};

use crate::roots::read_text;
use crate::syspath::SysPath;

/// How a disk is attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// A port of a SATA controller.
    Sata,
    /// A SAS disk at a SAS controller or expander.
    Sas,
    /// A SATA disk at a SAS controller or expander.
    SataBehindSas,
    /// An NVMe disk on PCI Express.
    Nvme,
    /// An NVMe disk over a network.
    NvmeOverFabrics,
    /// Behind a USB bridge.
    Usb,
    /// A disk of a virtual machine.
    Virtio,
    /// A memory card or soldered flash.
    Mmc,
    /// A network block device of the SCSI kind.
    Iscsi,
    /// Fibre Channel.
    FibreChannel,
    /// A RAID controller's volume, a test device, and whatever comes.
    #[default]
    Other,
}

/// The transport of the device at `path`, whose SCSI vendor is `vendor`.
pub(crate) fn transport_of(path: &SysPath, vendor: Option<&str>) -> Transport {
    let has = |prefix| path.numbered(prefix).is_some();
    if has("usb") {
        Transport::Usb
    } else if path.beginning("nvme").is_some() {
        let controller = path.nvme_controller();
        let kind = controller.and_then(|folder| read_text(&folder.join("transport")));
        match kind.as_deref() {
            None | Some("pcie") => Transport::Nvme,
            Some(_) => Transport::NvmeOverFabrics,
        }
    } else if has("virtio") {
        Transport::Virtio
    } else if path.beginning("end_device-").is_some() {
        match vendor {
            Some("ATA") => Transport::SataBehindSas,
            _ => Transport::Sas,
        }
    } else if has("ata") {
        Transport::Sata
    } else if has("session") {
        Transport::Iscsi
    } else if path.beginning("rport-").is_some() {
        Transport::FibreChannel
    } else if has("mmc") {
        Transport::Mmc
    } else {
        Transport::Other
    }
}
