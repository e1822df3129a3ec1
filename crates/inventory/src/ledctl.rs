//! Whether `ledctl` would reach the light of a bay that sysfs has no file for.
//!
//! It speaks to AHCI controllers of Intel and AMD by their enclosure-management messages, to isci controllers, and to
//! NVMe slots behind Intel's VMD through the slot's attention file. Source: manual page of ledctl (ledmon 0.97).

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::bay::BayAddress;
use crate::roots::{Roots, link_name, names_in, read_text};
use crate::syspath::follow;

/// PCI vendors whose AHCI controllers ledctl knows.
const AHCI_VENDORS: [&str; 2] = ["0x8086", "0x1022"];

/// Whether `ledctl` would light a bay, and by which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ledctl {
    /// By messages of the AHCI controller.
    ThroughAhci,
    /// By the controller of the board's own SAS ports.
    ThroughIsci,
    /// By the attention file of a slot behind VMD.
    ThroughVmd,
    /// It would not: neither does it know a way.
    WouldNot,
}

/// Whether `ledctl` would light this bay.
pub(crate) fn would_ledctl(roots: &Roots, address: &BayAddress) -> Ledctl {
    match address {
        BayAddress::AtaPort { controller, .. } => ahci(roots, controller),
        BayAddress::PciSlot { slot, pci } => vmd(roots, slot, pci),
        BayAddress::Path { path } => {
            let mut words = path.split("pci-").skip(1);
            let driver = words.next().and_then(|rest| {
                let controller = rest.split('-').next()?;
                driver_of(roots, controller)
            });
            match driver.as_deref() {
                Some("isci") => Ledctl::ThroughIsci,
                _ => Ledctl::WouldNot,
            }
        }
        BayAddress::Enclosure { .. } => Ledctl::WouldNot,
    }
}

fn driver_of(roots: &Roots, controller: &str) -> Option<String> {
    link_name(&pci_device(roots, controller)?.join("driver"))
}

fn pci_device(roots: &Roots, address: &str) -> Option<std::path::PathBuf> {
    let devices = roots.sys().join("bus/pci/devices");
    let name = names_in(&devices)
        .into_iter()
        .find(|name| name == address)?;
    follow(roots, &devices.join(name))
}

/// The controller is a known vendor's, and one of its ports has messages.
fn ahci(roots: &Roots, controller: &str) -> Ledctl {
    let Some(folder) = pci_device(roots, controller) else {
        return Ledctl::WouldNot;
    };
    let is_ahci = link_name(&folder.join("driver")).as_deref() == Some("ahci");
    let vendor = read_text(&folder.join("vendor")).unwrap_or_default();
    let has_messages = |host: &Path| read_text(&host.join("em_message_supported")).is_some();
    let class = roots.sys().join("class/scsi_host");
    let mut hosts = names_in(&class)
        .into_iter()
        .filter_map(|name| follow(roots, &class.join(name)));
    let speaks = hosts.any(|host| host.starts_with(&folder) && has_messages(&host));
    match is_ahci && speaks && AHCI_VENDORS.contains(&vendor.as_str()) {
        true => Ledctl::ThroughAhci,
        false => Ledctl::WouldNot,
    }
}

/// Whether a PCI address is behind Intel's VMD, which puts its disks into domains above the 16 bits that real ones
/// have.
pub(crate) fn is_behind_vmd(pci: &str) -> bool {
    let domain = pci.split(':').next().unwrap_or_default();
    u32::from_str_radix(domain, 16).is_ok_and(|domain| domain > 0xffff)
}

/// The slot is behind VMD and has the file that takes ledctl's codes.
fn vmd(roots: &Roots, slot: &str, pci: &str) -> Ledctl {
    let slots = roots.sys().join("bus/pci/slots");
    let mut names = names_in(&slots).into_iter();
    let has_file = names.any(|name| name == slot && slots.join(&name).join("attention").is_file());
    match is_behind_vmd(pci) && has_file {
        true => Ledctl::ThroughVmd,
        false => Ledctl::WouldNot,
    }
}
