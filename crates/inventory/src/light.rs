//! The lights of a bay: locate and fault.
//!
//! Invariants:
//! - A light is addressed by its bay, so it can be switched off when the disk is gone.
//! - Of an address only whole names are compared with what sysfs lists; nothing of it becomes part of a path.
//! - After setting, the light is read again: an enclosure may take the command and do nothing.

use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::bay::{BayAddress, components};
use crate::ledctl::{Ledctl, is_behind_vmd, would_ledctl};
use crate::roots::{Roots, names_in, read_number, read_text};

/// Which light of a bay.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Light {
    /// "This one": mostly blinking, blue or amber.
    Locate,
    /// "This one is broken": mostly steady, amber or red.
    Fault,
}

/// Whether a light is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lit {
    /// It shines or blinks.
    On,
    /// It is dark.
    Off,
}

impl fmt::Display for Light {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Light::Locate => "locate",
            Light::Fault => "fault",
        })
    }
}

impl fmt::Display for Lit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lit::On => "on",
            Lit::Off => "off",
        })
    }
}

/// Why a light cannot be read or set.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LightError {
    /// No enclosure, and no slot with lights: nobody can be asked.
    #[error("{bay}: no light can be reached here; {}", hint(*.ledctl, .enclosures_without_driver))]
    NobodySpeaks {
        /// The bay.
        bay: BayAddress,
        /// Whether ledctl would reach one.
        ledctl: Ledctl,
        /// SES devices that are there, but whose driver is not loaded.
        enclosures_without_driver: usize,
    },
    /// The enclosure or its bay is not there (any more).
    #[error("{bay}: no such bay now; is the enclosure switched on and connected?")]
    NoSuchBay {
        /// The bay.
        bay: BayAddress,
    },
    /// The bay has no light of this kind.
    #[error("{bay}: it has no {light} light")]
    NoSuchLight {
        /// The bay.
        bay: BayAddress,
        /// The light.
        light: Light,
    },
    /// The system refused.
    #[error("{bay}: the {light} light cannot be switched {lit}: {reason}")]
    Refused {
        /// The bay.
        bay: BayAddress,
        /// The light.
        light: Light,
        /// What it was to become.
        lit: Lit,
        /// What the system said.
        reason: String,
    },
    /// The enclosure took the command, and the light is as before.
    #[error(
        "{bay}: the enclosure took the command, but its {light} light is not {lit}; look at the bay itself"
    )]
    NotTaken {
        /// The bay.
        bay: BayAddress,
        /// The light.
        light: Light,
        /// What it was to become.
        lit: Lit,
    },
}

fn hint(ledctl: Ledctl, enclosures_without_driver: &usize) -> String {
    if *enclosures_without_driver > 0 {
        return format!(
            "{enclosures_without_driver} enclosure(s) answer, but the kernel's driver is not loaded: try `modprobe ses`"
        );
    }
    match ledctl {
        Ledctl::ThroughAhci | Ledctl::ThroughIsci | Ledctl::ThroughVmd => {
            "`ledctl` (package ledmon) would reach it".into()
        }
        Ledctl::WouldNot => "nor would `ledctl`; read the serial on the sticker".into(),
    }
}

/// A file that is a light, and what its numbers mean.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Switch {
    file: PathBuf,
    way: Way,
}

/// What the numbers in a light's file mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Zero is off, all else is on: enclosures report a fault as bits.
    Flag,
    /// One lamp for both: 0 is off, 1 steady ("look here"), 2 blinking ("this one"). Only this number is this light.
    Attention(u64),
}

impl Switch {
    fn read(&self) -> Option<Lit> {
        let value = read_number(&self.file)?;
        let is_on = match self.way {
            Way::Flag => value != 0,
            Way::Attention(on) => value == on,
        };
        Some(if is_on { Lit::On } else { Lit::Off })
    }

    fn write(&self, lit: Lit) -> std::io::Result<()> {
        let value = match (lit, self.way) {
            // The lamp shows the other light: that is not ours to switch off.
            (Lit::Off, Way::Attention(_)) if self.read() == Some(Lit::Off) => return Ok(()),
            (Lit::Off, _) => 0,
            (Lit::On, Way::Flag) => 1,
            (Lit::On, Way::Attention(on)) => on,
        };
        // One write: the kernel takes each as a command of its own. Nothing is created.
        let mut file = OpenOptions::new().write(true).open(&self.file)?;
        file.write_all(format!("{value}\n").as_bytes())
    }
}

/// Whether a light is on.
///
/// # Errors
/// `NobodySpeaks`, `NoSuchBay`, `NoSuchLight`.
pub fn read_light(roots: &Roots, bay: &BayAddress, light: Light) -> Result<Lit, LightError> {
    let missing = || LightError::NoSuchLight {
        bay: bay.clone(),
        light,
    };
    let switches = switches_of(roots, bay, light)?;
    switches.first().and_then(Switch::read).ok_or_else(missing)
}

/// Switches a light on or off. Answers what it was before.
///
/// # Errors
/// `NobodySpeaks`, `NoSuchBay`, `NoSuchLight`, `Refused`, `NotTaken`.
pub fn set_light(
    roots: &Roots,
    bay: &BayAddress,
    light: Light,
    lit: Lit,
) -> Result<Lit, LightError> {
    let before = read_light(roots, bay, light)?;
    let mut refusal = LightError::NoSuchLight {
        bay: bay.clone(),
        light,
    };
    // A shelf with two ways has the bay twice; either way does.
    for switch in switches_of(roots, bay, light)? {
        match switch.write(lit) {
            Ok(()) if switch.read() == Some(lit) => return Ok(before),
            Ok(()) => {
                refusal = LightError::NotTaken {
                    bay: bay.clone(),
                    light,
                    lit,
                }
            }
            Err(error) => {
                let reason = error.to_string();
                refusal = LightError::Refused {
                    bay: bay.clone(),
                    light,
                    lit,
                    reason,
                };
            }
        }
    }
    Err(refusal)
}

/// The switches of a bay's light; there is at least one.
fn switches_of(roots: &Roots, bay: &BayAddress, light: Light) -> Result<Vec<Switch>, LightError> {
    let flag = |file| Switch {
        file,
        way: Way::Flag,
    };
    let switches: Vec<Switch> = match bay {
        BayAddress::Enclosure {
            enclosure,
            component,
            ..
        } => {
            let files = enclosure_files(roots, bay, (enclosure, component), light)?;
            files.into_iter().map(flag).collect()
        }
        BayAddress::PciSlot { slot, pci } => {
            let own = npem_files(roots, pci, light).into_iter().map(flag);
            own.chain(attention(roots, (slot, pci), light)).collect()
        }
        BayAddress::AtaPort { .. } | BayAddress::Path { .. } => Vec::new(),
    };
    if !switches.is_empty() {
        return Ok(switches);
    }
    Err(match bay {
        BayAddress::Enclosure { .. } => LightError::NoSuchLight {
            bay: bay.clone(),
            light,
        },
        _ => LightError::NobodySpeaks {
            bay: bay.clone(),
            ledctl: would_ledctl(roots, bay),
            enclosures_without_driver: enclosures_without_driver(roots),
        },
    })
}

/// The attention lamp of a hot-plug slot. Behind VMD the same file has codes of its own, which are ledctl's business.
/// Source: kernel.org, PCI hot plug, `attention` of a slot.
fn attention(roots: &Roots, (slot, pci): (&str, &str), light: Light) -> Option<Switch> {
    let slots = roots.sys().join("bus/pci/slots");
    let name = names_in(&slots).into_iter().find(|name| name == slot)?;
    let file = slots.join(name).join("attention");
    let on = match light {
        Light::Fault => 1,
        Light::Locate => 2,
    };
    let is_usable = file.is_file() && !is_behind_vmd(pci);
    is_usable.then_some(Switch {
        file,
        way: Way::Attention(on),
    })
}

fn enclosure_files(
    roots: &Roots,
    bay: &BayAddress,
    (enclosure, component): (&str, &str),
    light: Light,
) -> Result<Vec<PathBuf>, LightError> {
    let is_it = |address: &BayAddress| {
        matches!(address, BayAddress::Enclosure { enclosure: e, component: c, .. }
            if e == enclosure && c == component)
    };
    let found: Vec<PathBuf> = components(roots)
        .into_iter()
        .filter(|component| is_it(&component.bay.address))
        .map(|component| component.folder.join(light.to_string()))
        .collect();
    if found.is_empty() {
        return Err(LightError::NoSuchBay { bay: bay.clone() });
    }
    Ok(found.into_iter().filter(|file| file.is_file()).collect())
}

/// Lights of native PCIe enclosure management: `/sys/class/leds/ADDRESS:enclosure:WHICH/brightness`, of the disk's
/// function or of the port above it. Source: `drivers/pci/npem.c` of Linux 6.13.
fn npem_files(roots: &Roots, pci: &str, light: Light) -> Vec<PathBuf> {
    let which = match light {
        Light::Locate => "locate",
        Light::Fault => "fail",
    };
    let leds = roots.sys().join("class/leds");
    let is_the_slots = |name: &String| {
        let Some((address, rest)) = name.split_once(":enclosure:") else {
            return false;
        };
        let is_disk = address
            .rsplit_once('.')
            .is_some_and(|(bare, _)| bare == pci);
        rest == which && (is_disk || leads_to(roots, address, pci))
    };
    let names = names_in(&leds).into_iter().filter(is_the_slots);
    names
        .map(|name| leds.join(name).join("brightness"))
        .filter(|file| file.is_file())
        .collect()
}

/// Whether the bridge at `address` is the port of the slot `pci`: the bus behind it is the slot's.
fn leads_to(roots: &Roots, address: &str, pci: &str) -> bool {
    let devices = roots.sys().join("bus/pci/devices");
    let Some(bridge) = names_in(&devices).into_iter().find(|name| name == address) else {
        return false;
    };
    let bus = read_number(&devices.join(&bridge).join("secondary_bus_number"));
    let mut parts = pci.split(':');
    let (domain, wanted) = (parts.next(), parts.next());
    let wanted = wanted.and_then(|bus| u64::from_str_radix(bus, 16).ok());
    bus.is_some() && bus == wanted && domain == bridge.split(':').next()
}

/// SCSI devices of type 13 while no enclosure is shown: the driver that would show them is missing.
fn enclosures_without_driver(roots: &Roots) -> usize {
    if !names_in(&roots.sys().join("class/enclosure")).is_empty() {
        return 0;
    }
    let devices = roots.sys().join("bus/scsi/devices");
    let is_enclosure =
        |name: &String| read_text(&devices.join(name).join("type")).as_deref() == Some("13");
    names_in(&devices)
        .iter()
        .filter(|name| is_enclosure(name))
        .count()
}
