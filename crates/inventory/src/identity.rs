//! Who a disk is: what is on its sticker, and where it hangs.
//!
//! Invariants:
//! - Nothing here is needed to be there: whatever is missing is none, and the identity is what is left.
//! - An identity that was written down once can be read by a later version; fields are added, never changed.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bay::{BayAddress, Component, bay_of, components};
use crate::below::Below;
use crate::bottom::below_of;
use crate::error::InventoryError;
use crate::health::Health;
use crate::roots::{ATTRIBUTE_BYTES_MAX, Roots, read_bytes, read_number, read_text};
use crate::serial::{SerialClaim, SerialSource, choose};
use crate::syspath::SysPath;
use crate::transport::{Transport, transport_of};
use crate::udev::UdevEntry;
use crate::vpd::{self, Designators};

/// The kernel counts sizes in these, whatever the disk's own sectors are.
const SECTOR_BYTES: u64 = 512;

/// Whether a disk turns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Medium {
    /// It has platters, and can be asleep.
    Rotating,
    /// It has none.
    Solid,
}

/// The USB bridge that a disk is behind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Bridge {
    /// What the bridge calls its maker and itself.
    pub name: Option<String>,
    /// Vendor and product number, `152d:0567`.
    pub usb_id: Option<String>,
}

/// Who a disk is. Serialisable, so that it outlives the disk.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Identity {
    /// The kernel's name when it was looked at. It is another disk's after the next boot: never compare by it.
    pub name: String,
    /// Vendor, where it is a name of its own (SAS, USB).
    pub vendor: Option<String>,
    /// Model as on the sticker.
    pub model: Option<String>,
    /// Serial as on the sticker.
    pub serial: Option<String>,
    /// Who gave the serial.
    pub serial_source: Option<SerialSource>,
    /// What others give as the serial, most trusted first.
    pub other_serials: Vec<SerialClaim>,
    /// World-wide name, `naa.` or `eui.` and digits.
    pub wwn: Option<String>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Whether it turns.
    pub medium: Option<Medium>,
    /// How it is attached.
    pub transport: Transport,
    /// The USB bridge in front of it.
    pub bridge: Option<Bridge>,
    /// As in `/dev/disk/by-path`.
    pub path: Option<String>,
    /// The enclosure's logical id, where one speaks.
    pub enclosure: Option<String>,
    /// Where it sits.
    pub bay: Option<BayAddress>,
}

/// Whether two identities are one disk's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sameness {
    /// They are one disk's.
    Same,
    /// They are not.
    Other,
    /// What is known is not enough, or contradicts itself: ask a person, or the superblock.
    Unsure,
}

impl Identity {
    /// The identity of the disk `name`, or of the disk that the partition `name` is on.
    ///
    /// # Errors
    /// `NotAName`, `NoSuchDevice`; `NotADisk` for loop devices, mapped devices and arrays, with what is below them.
    pub fn read(roots: &Roots, name: &str) -> Result<Identity, InventoryError> {
        Identity::read_with(roots, &components(roots), name)
    }

    /// The same, for somebody who has read the enclosures already.
    pub(crate) fn read_with(
        roots: &Roots,
        components: &[Component],
        name: &str,
    ) -> Result<Identity, InventoryError> {
        let path = SysPath::find(roots, name)?;
        match below_of(roots, &path) {
            Below::Itself => Ok(identify(roots, components, &path)),
            Below::Partition { disk, .. } => {
                Ok(identify(roots, components, &SysPath::find(roots, &disk)?))
            }
            below => Err(InventoryError::NotADisk {
                name: name.to_owned(),
                below,
            }),
        }
    }

    /// Takes in what smartctl read: behind a bridge it hears the disk itself, when nobody else does.
    pub fn complete_from(&mut self, health: &Health) {
        let serial = health.serial.clone().map(|serial| SerialClaim {
            source: SerialSource::Smartctl,
            serial,
        });
        // A bridge that answers for the disk gives what it gave the kernel.
        let known = self.claims();
        let is_bridges = |claim: &SerialClaim| {
            let mut bridges = known
                .iter()
                .filter(|known| !known.source.is_the_disks_own());
            bridges.any(|known| known.serial == claim.serial)
        };
        self.wwn = self.wwn.take().or_else(|| health.wwn.clone());
        let mut claims = known.clone();
        claims.extend(serial.filter(|claim| !is_bridges(claim)));
        self.take_serials(claims);
        let speaks_for_the_disk = self.serial_source == Some(SerialSource::Smartctl);
        if speaks_for_the_disk && health.model.is_some() {
            self.model.clone_from(&health.model);
        }
    }

    /// Whether this and `other` are one disk's.
    ///
    /// World-wide names decide, unless the serials speak against them, or both disks are behind a USB bridge and
    /// nothing but the bridge speaks: bridges give one name to all their disks. Without one the disks' own serials
    /// decide, with the sizes. A bridge's serial proves nothing.
    #[must_use]
    pub fn compare(&self, other: &Identity) -> Sameness {
        let serials = self.serial.as_ref().zip(other.serial.as_ref());
        let is_own = |identity: &Identity| {
            identity
                .serial_source
                .is_some_and(SerialSource::is_the_disks_own)
        };
        let both_own = is_own(self) && is_own(other);
        let serials_agree = serials.map(|(a, b)| a == b);
        let sizes_agree = self.size_bytes == other.size_bytes;
        let only_bridges_speak =
            self.transport == Transport::Usb && other.transport == Transport::Usb && !both_own;
        match (self.wwn.as_ref().zip(other.wwn.as_ref()), serials_agree) {
            (Some((a, b)), agree) if a == b => match agree {
                Some(false) if both_own => Sameness::Unsure,
                _ if only_bridges_speak => Sameness::Unsure,
                _ if sizes_agree => Sameness::Same,
                _ => Sameness::Unsure,
            },
            (Some(_), _) => Sameness::Other,
            (None, Some(true)) if both_own && sizes_agree => Sameness::Same,
            (None, Some(false)) if both_own => Sameness::Other,
            _ => Sameness::Unsure,
        }
    }

    fn claims(&self) -> Vec<SerialClaim> {
        let own = self.serial.clone().zip(self.serial_source);
        let own = own.map(|(serial, source)| SerialClaim { source, serial });
        own.into_iter()
            .chain(self.other_serials.iter().cloned())
            .collect()
    }

    fn take_serials(&mut self, claims: Vec<SerialClaim>) {
        let (chosen, others) = choose(claims, self.wwn.as_deref());
        self.serial_source = chosen.as_ref().map(|claim| claim.source);
        self.serial = chosen.map(|claim| claim.serial);
        self.other_serials = others;
    }
}

/// Everything that is known of a disk.
fn identify(roots: &Roots, components: &[Component], path: &SysPath) -> Identity {
    let device = path.device().unwrap_or_else(|| path.folder.join("device"));
    let attribute = |name: &str| read_text(&device.join(name));
    let page = |name: &str| read_bytes(&device.join(name), ATTRIBUTE_BYTES_MAX).unwrap_or_default();
    let number = path.text("dev").unwrap_or_default();
    let udev = UdevEntry::read(roots, &number);
    let designators = vpd::designators(&page("vpd_pg83"));
    // The vendor of a PCI or virtio device is a number, and no name.
    let vendor = attribute("vendor").filter(|vendor| !vendor.starts_with("0x"));
    let transport = transport_of(path, vendor.as_deref());
    let bridge = (transport == Transport::Usb)
        .then(|| bridge(path))
        .flatten();
    let claims = claims(path, &device, &udev, &designators, transport);
    let by_path = udev
        .get("ID_PATH")
        .map(str::to_owned)
        .or_else(|| made_path(path));
    let bay = bay_of(roots, components, path, by_path.as_deref());
    let mut identity = Identity {
        name: path.name.clone(),
        model: model(&designators, &udev, attribute("model"), transport),
        vendor: vendor.filter(|vendor| vendor != "ATA"),
        wwn: wwn(path, &device, &udev, &designators),
        size_bytes: read_number(&path.folder.join("size"))
            .unwrap_or(0)
            .saturating_mul(SECTOR_BYTES),
        medium: medium(path),
        transport,
        bridge,
        path: by_path,
        enclosure: match &bay {
            Some(BayAddress::Enclosure { enclosure, .. }) => Some(enclosure.clone()),
            _ => None,
        },
        bay,
        ..Identity::default()
    };
    identity.take_serials(claims);
    identity
}

fn medium(path: &SysPath) -> Option<Medium> {
    match path.text("queue/rotational").as_deref() {
        Some("1") => Some(Medium::Rotating),
        Some("0") => Some(Medium::Solid),
        _ => None,
    }
}

/// The longest name counts: the kernel cuts a SATA disk's model to 16 characters.
fn model(
    designators: &Designators,
    udev: &UdevEntry,
    attribute: Option<String>,
    transport: Transport,
) -> Option<String> {
    let identified = designators.ata.as_ref().and_then(|ata| ata.model.clone());
    // Behind a bridge udev's model is the bridge's, unless it asked the disk.
    let of_udev = match transport {
        Transport::Usb if udev.get("ID_ATA").is_none() => None,
        _ => udev.model(),
    };
    identified.or(match (of_udev, attribute) {
        (Some(udev), Some(kernel)) if kernel.len() > udev.len() => Some(kernel),
        (Some(udev), _) => Some(udev),
        (None, kernel) => kernel,
    })
}

fn wwn(
    path: &SysPath,
    device: &Path,
    udev: &UdevEntry,
    designators: &Designators,
) -> Option<String> {
    let found = designators.wwn.clone();
    let files = [path.folder.join("wwid"), device.join("wwid")];
    let of_file = || {
        files
            .iter()
            .find_map(|file| vpd::normal_wwn(&read_text(file)?))
    };
    let keys = ["ID_WWN_WITH_EXTENSION", "ID_WWN"];
    let of_udev = || keys.iter().find_map(|key| vpd::normal_wwn(udev.get(key)?));
    found.or_else(of_file).or_else(of_udev)
}

/// All that anybody says of the serial.
fn claims(
    path: &SysPath,
    device: &Path,
    udev: &UdevEntry,
    designators: &Designators,
    transport: Transport,
) -> Vec<SerialClaim> {
    let is_usb = transport == Transport::Usb;
    let is_nvme = matches!(transport, Transport::Nvme | Transport::NvmeOverFabrics);
    let page = read_bytes(&device.join("vpd_pg80"), ATTRIBUTE_BYTES_MAX).unwrap_or_default();
    let page_source = match is_usb {
        true => SerialSource::BridgeUnitSerial,
        false => SerialSource::UnitSerialPage,
    };
    let device_source = match is_nvme {
        true => SerialSource::Nvme,
        false => SerialSource::Attribute,
    };
    let block_source = match transport {
        Transport::Virtio => SerialSource::Virtio,
        _ => SerialSource::Attribute,
    };
    let unit = udev
        .get("ID_SCSI_SERIAL")
        .or_else(|| udev.get("SCSI_IDENT_SERIAL"));
    let unit_source = match is_usb {
        true => SerialSource::BridgeUnitSerial,
        false => SerialSource::UdevUnitSerial,
    };
    // udev asked the disk itself only where it says so; else the short serial of a USB disk is the bridge's.
    let short_source = match (udev.get("ID_ATA"), is_usb, is_nvme) {
        (Some(_), _, _) => SerialSource::AtaIdentify,
        (None, true, _) => SerialSource::UsbDescriptor,
        (None, false, true) => SerialSource::Nvme,
        (None, false, false) => SerialSource::Udev,
    };
    let usb = is_usb.then(|| usb_text(path, "serial")).flatten();
    let owned = |key: &str| udev.get(key).map(str::to_owned);
    let claims = [
        (
            SerialSource::AtaIdentify,
            designators.ata.as_ref().and_then(|ata| ata.serial.clone()),
        ),
        (page_source, vpd::unit_serial(&page)),
        (device_source, read_text(&device.join("serial"))),
        (block_source, path.text("serial")),
        (unit_source, unit.map(str::to_owned)),
        (short_source, owned("ID_SERIAL_SHORT")),
        (SerialSource::UsbDescriptor, owned("ID_USB_SERIAL_SHORT")),
        (SerialSource::UsbDescriptor, usb),
    ];
    let said = claims.into_iter().filter_map(|(source, serial)| {
        Some(SerialClaim {
            source,
            serial: serial?,
        })
    });
    said.collect()
}

/// An attribute of the USB device above: the innermost folder that has a vendor number.
fn usb_text(path: &SysPath, attribute: &str) -> Option<String> {
    let (first, _) = path.numbered("usb")?;
    let (last, _) = path.numbered("host").unwrap_or((first, 0));
    let mut folders = (first..=last).rev().map(|index| path.folder_of(index));
    let device = folders.find(|folder| folder.join("idVendor").is_file())?;
    read_text(&device.join(attribute))
}

fn bridge(path: &SysPath) -> Option<Bridge> {
    let text = |attribute: &str| usb_text(path, attribute);
    let name = match (text("manufacturer"), text("product")) {
        (Some(maker), Some(product)) => Some(format!("{maker} {product}")),
        (maker, product) => maker.or(product),
    };
    let usb_id = text("idVendor").zip(text("idProduct"));
    let usb_id = usb_id.map(|(vendor, product)| format!("{vendor}:{product}"));
    (name.is_some() || usb_id.is_some()).then_some(Bridge { name, usb_id })
}

/// A path where there is no udev: the PCI device, and the way from there. Not udev's words in every case, but as
/// lasting.
fn made_path(path: &SysPath) -> Option<String> {
    let (_, pci) = path.pci()?;
    if let Some((index, number)) = path.numbered("ata") {
        let port = path
            .folder_of(index)
            .join(format!("ata_port/ata{number}/port_no"));
        return Some(format!("pci-{pci}-ata-{}", read_number(&port)?));
    }
    if path.beginning("nvme").is_some() {
        return Some(format!("pci-{pci}-nvme-{}", path.text("nsid")?));
    }
    let address = path.device()?;
    let address = address.file_name()?.to_str()?;
    if path.numbered("usb").is_some() {
        let (host, _) = path.numbered("host")?;
        let interface = path.folder_of(host.checked_sub(1)?);
        let interface = interface
            .file_name()?
            .to_str()?
            .split_once('-')?
            .1
            .to_owned();
        let (_, rest) = address.split_once(':')?;
        return Some(format!("pci-{pci}-usb-0:{interface}-scsi-0:{rest}"));
    }
    if path.numbered("virtio").is_some() {
        return Some(format!("pci-{pci}"));
    }
    // The number of a SCSI host is given at boot; what follows it is the disk's place.
    let (_, rest) = address.split_once(':')?;
    (path.numbered("host").is_some()).then(|| format!("pci-{pci}-scsi-0:{rest}"))
}
