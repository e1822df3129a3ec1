//! Where a disk sits: a bay of an enclosure, a port of a SATA controller, a slot of PCI Express, or its path.
//!
//! Invariants:
//! - An address names the bay and not the disk, so it is good while the bay is empty.
//! - An address says nothing that changes at the next boot, as far as the hardware has something better: an enclosure
//!   is its logical id, a controller its PCI address.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::roots::{Roots, link_name, names_in, read_number, read_text};
use crate::syspath::{SysPath, follow, is_pci_address};

/// Components of one enclosure that are looked at.
const COMPONENTS_MAX: usize = 1024;

/// The address of a bay. It stays good when the disk is gone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum BayAddress {
    /// A bay of an enclosure that speaks SES.
    Enclosure {
        /// The enclosure's logical id, `0x500304801f0a24bd`; its place in sysfs where it has none.
        enclosure: String,
        /// The kernel's name of the bay's element, `Slot 04`.
        component: String,
        /// The number that the enclosure gives it.
        slot: Option<u64>,
    },
    /// A port of a SATA controller.
    AtaPort {
        /// The controller's PCI address.
        controller: String,
        /// The port, counted from 1 as the kernel does.
        port: u64,
    },
    /// A slot of PCI Express.
    PciSlot {
        /// The slot's name, mostly the number printed beside it.
        slot: String,
        /// Domain, bus and device that are in it, `0000:01:00`.
        pci: String,
    },
    /// Nobody says where it is; the way to it has to do.
    Path {
        /// As in `/dev/disk/by-path`.
        path: String,
    },
}

impl BayAddress {
    /// What a person calls the bay: its number or name.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            BayAddress::Enclosure {
                slot: Some(slot), ..
            } => slot.to_string(),
            BayAddress::Enclosure { component, .. } => component.clone(),
            BayAddress::AtaPort { port, .. } => format!("ata-{port}"),
            BayAddress::PciSlot { slot, .. } => slot.clone(),
            BayAddress::Path { path } => path.clone(),
        }
    }
}

impl fmt::Display for BayAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BayAddress::Enclosure {
                enclosure,
                component,
                slot,
            } => match slot {
                Some(slot) => write!(f, "bay {slot} ({component}) of enclosure {enclosure}"),
                None => write!(f, "bay {component} of enclosure {enclosure}"),
            },
            BayAddress::AtaPort { controller, port } => {
                write!(f, "port {port} of the SATA controller {controller}")
            }
            BayAddress::PciSlot { slot, pci } => write!(f, "PCI slot {slot} ({pci})"),
            BayAddress::Path { path } => write!(f, "path {path}"),
        }
    }
}

/// What an enclosure says of a bay's element. Source: SES-3, 7.2.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BayStatus {
    /// Nothing is wrong.
    Ok,
    /// A condition that needs attention.
    Critical,
    /// A condition that does not need attention now.
    NonCritical,
    /// The element has failed.
    Unrecoverable,
    /// The bay is empty.
    NotInstalled,
    /// The enclosure does not know, or a word that is not known here.
    Unknown,
}

/// A bay, with or without a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bay {
    /// Where it is.
    pub address: BayAddress,
    /// The kernel's name of the disk that is in it now.
    pub disk: Option<String>,
    /// What the enclosure says of it, if one speaks.
    pub status: Option<BayStatus>,
    /// Vendor and product of the enclosure.
    pub enclosure_model: Option<String>,
}

/// One bay's element in sysfs.
pub(crate) struct Component {
    pub(crate) folder: PathBuf,
    pub(crate) bay: Bay,
}

/// All elements of all enclosures that are bays.
pub(crate) fn components(roots: &Roots) -> Vec<Component> {
    let class = roots.sys().join("class/enclosure");
    let mut found = Vec::new();
    for name in names_in(&class) {
        let Some(folder) = follow(roots, &class.join(&name)) else {
            continue;
        };
        let enclosure = read_text(&folder.join("id")).unwrap_or(name);
        let text = |attribute: &str| read_text(&folder.join("device").join(attribute));
        let model = match (text("vendor"), text("model")) {
            (Some(vendor), Some(model)) => Some(format!("{vendor} {model}")),
            (vendor, model) => vendor.or(model),
        };
        for component in names_in(&folder).into_iter().take(COMPONENTS_MAX) {
            let folder = folder.join(&component);
            let Some(kind) = read_text(&folder.join("type")) else {
                continue;
            };
            // Fans, power supplies and sensors are elements too; only these two kinds hold disks.
            if !matches!(kind.as_str(), "device" | "array device") {
                continue;
            }
            let slot = read_number(&folder.join("slot"));
            let address = BayAddress::Enclosure {
                enclosure: enclosure.clone(),
                component,
                slot,
            };
            found.push(Component {
                bay: Bay {
                    address,
                    disk: names_in(&folder.join("device/block")).into_iter().next(),
                    status: read_text(&folder.join("status")).map(|word| status(&word)),
                    enclosure_model: model.clone(),
                },
                folder,
            });
        }
    }
    found
}

fn status(word: &str) -> BayStatus {
    match word.to_ascii_lowercase().as_str() {
        "ok" => BayStatus::Ok,
        "critical" => BayStatus::Critical,
        "non-critical" => BayStatus::NonCritical,
        "unrecoverable" => BayStatus::Unrecoverable,
        "not installed" => BayStatus::NotInstalled,
        _ => BayStatus::Unknown,
    }
}

/// The ports of all SATA controllers, empty ones too.
pub(crate) fn ata_ports(roots: &Roots) -> Vec<Bay> {
    let class = roots.sys().join("class/ata_port");
    let port = |name: &String| {
        let folder = follow(roots, &class.join(name))?;
        let port = read_number(&folder.join("port_no"))?;
        // ata_port/ataN lies in the folder ataN of the controller.
        let controller = folder.parent()?.parent()?.parent()?.file_name()?.to_str()?;
        is_pci_address(controller).then(|| Bay {
            address: BayAddress::AtaPort {
                controller: controller.to_owned(),
                port,
            },
            disk: None,
            status: None,
            enclosure_model: None,
        })
    };
    names_in(&class).iter().filter_map(port).collect()
}

/// The slots of PCI Express that a disk could be in: those with a number and an address.
pub(crate) fn pci_slots(roots: &Roots) -> Vec<(String, String)> {
    let folder = roots.sys().join("bus/pci/slots");
    let slot = |name: String| Some((read_text(&folder.join(&name).join("address"))?, name));
    let slots = names_in(&folder).into_iter().filter_map(slot);
    slots.map(|(pci, name)| (name, pci)).collect()
}

/// The bay that a disk is in, best answer first: enclosure, SATA port, PCI slot, path.
pub(crate) fn bay_of(
    roots: &Roots,
    components: &[Component],
    path: &SysPath,
    by_path: Option<&str>,
) -> Option<BayAddress> {
    let in_enclosure = components.iter().find(|component| {
        component.bay.disk.as_deref() == Some(&path.name)
            || path.device().is_some_and(|device| {
                follow(roots, &component.folder.join("device")).as_ref() == Some(&device)
            })
    });
    in_enclosure
        .map(|component| component.bay.address.clone())
        .or_else(|| ata_port_of(path))
        .or_else(|| pci_slot_of(roots, path))
        .or_else(|| {
            Some(BayAddress::Path {
                path: by_path?.to_owned(),
            })
        })
}

fn ata_port_of(path: &SysPath) -> Option<BayAddress> {
    let (index, number) = path.numbered("ata")?;
    let folder = path.folder_of(index);
    let port = read_number(&folder.join(format!("ata_port/ata{number}/port_no")))?;
    let (_, controller) = path.pci()?;
    Some(BayAddress::AtaPort {
        controller: controller.to_owned(),
        port,
    })
}

/// The innermost PCI device above the disk that sits in a slot: an NVMe disk itself, or a card.
fn pci_slot_of(roots: &Roots, path: &SysPath) -> Option<BayAddress> {
    path.beginning("nvme")?;
    let controller = link_name(&path.nvme_controller()?.join("device"));
    let controller = controller.filter(|name| is_pci_address(name));
    let pci = controller.or_else(|| Some(path.pci()?.1.to_owned()))?;
    let (bare, _) = pci.rsplit_once('.')?;
    let slots = pci_slots(roots);
    let (slot, pci) = slots.into_iter().find(|(_, at)| at == bare)?;
    Some(BayAddress::PciSlot { slot, pci })
}
