//! All disks and all bays of a machine, and who shares a name with whom.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bay::{Bay, BayAddress, ata_ports, components, pci_slots};
use crate::error::InventoryError;
use crate::identity::{Identity, Sameness};
use crate::roots::{Roots, names_in};

/// All disks and all bays, as they are now.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Inventory {
    /// Every disk, by the kernel's name.
    pub disks: Vec<Identity>,
    /// Every bay, empty ones too: a shelf is drawn from these and not from the disks.
    pub bays: Vec<Bay>,
}

/// What several devices have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Repeated {
    /// A serial.
    Serial(String),
    /// A world-wide name.
    Wwn(String),
}

/// How devices with a name in common are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Apart {
    /// They are not: it is one disk, reached in several ways.
    OneDisk,
    /// By world-wide name.
    ByWwn,
    /// By serial.
    BySerial,
    /// By where they hang; exchanging their cables exchanges them.
    ByPath,
    /// Not at all.
    NotAtAll,
}

/// A name that several devices give.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Duplicate {
    /// The name.
    pub repeated: Repeated,
    /// The devices, by the kernel's names.
    pub disks: Vec<String>,
    /// How they are told apart.
    pub apart: Apart,
}

impl std::fmt::Display for Duplicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (what, name) = match &self.repeated {
            Repeated::Serial(name) => ("serial", name),
            Repeated::Wwn(name) => ("world-wide name", name),
        };
        let disks = self.disks.join(", ");
        match self.apart {
            Apart::OneDisk => write!(
                f,
                "{disks}: one disk, {what} {name}, reached in several ways"
            ),
            Apart::ByWwn => write!(
                f,
                "{disks}: {what} {name} is not unique here; the world-wide name tells them apart"
            ),
            Apart::BySerial => write!(
                f,
                "{disks}: {what} {name} is not unique here; the serial tells them apart"
            ),
            Apart::ByPath => write!(
                f,
                "{disks}: {what} {name} is not unique here; only the port tells them apart, so do not exchange cables"
            ),
            Apart::NotAtAll => write!(
                f,
                "{disks}: {what} {name} is not unique here, and nothing tells them apart"
            ),
        }
    }
}

impl Inventory {
    /// Looks at every disk and every bay. What is no disk (loop, memory, arrays, partitions) is left out.
    ///
    /// # Errors
    /// `Unreadable` if the folder of block devices cannot be read. A disk that leaves meanwhile is left out.
    pub fn read(roots: &Roots) -> Result<Inventory, InventoryError> {
        let class = roots.sys().join("class/block");
        if let Err(error) = std::fs::read_dir(&class) {
            let place = class.display().to_string();
            return Err(InventoryError::Unreadable {
                place,
                reason: error.to_string(),
            });
        }
        let components = components(roots);
        let is_whole = |name: &String| !class.join(name).join("partition").exists();
        // A path of an NVMe disk with native multipath is hidden; the disk is shown beside it.
        let is_hidden = |name: &String| {
            let folder = class.join(name);
            crate::roots::read_number(&folder.join("hidden")) == Some(1)
        };
        let disks: Vec<Identity> = names_in(&class)
            .iter()
            .filter(|name| is_whole(name) && !is_hidden(name))
            .filter_map(|name| Identity::read_with(roots, &components, name).ok())
            .collect();
        let mut bays: Vec<Bay> = components
            .into_iter()
            .map(|component| component.bay)
            .collect();
        bays.extend(ata_ports(roots));
        bays.extend(pci_slots(roots).into_iter().map(|(slot, pci)| Bay {
            address: BayAddress::PciSlot { slot, pci },
            disk: None,
            status: None,
            enclosure_model: None,
        }));
        for disk in &disks {
            let mut places = bays
                .iter_mut()
                .filter(|bay| Some(&bay.address) == disk.bay.as_ref());
            if let Some(bay) = places.next() {
                bay.disk = Some(disk.name.clone());
            }
        }
        Ok(Inventory { disks, bays })
    }

    /// The disk of this name.
    #[must_use]
    pub fn disk(&self, name: &str) -> Option<&Identity> {
        self.disks.iter().find(|disk| disk.name == name)
    }

    /// The disk that `known` is the identity of, if exactly one is: under whatever name it is now.
    #[must_use]
    pub fn find(&self, known: &Identity) -> Option<&Identity> {
        let mut same = self
            .disks
            .iter()
            .filter(|disk| disk.compare(known) == Sameness::Same);
        let found = same.next()?;
        same.next().is_none().then_some(found)
    }

    /// The bays that a person may mean by `word`: a number, a component's name. More than one: ask which.
    #[must_use]
    pub fn bays_called(&self, word: &str) -> Vec<&Bay> {
        let is_it = |bay: &&Bay| match &bay.address {
            BayAddress::Enclosure { component, .. } if component == word => true,
            address => address.label() == word,
        };
        self.bays.iter().filter(is_it).collect()
    }

    /// Names that several devices give, and how they are told apart all the same.
    #[must_use]
    pub fn duplicates(&self) -> Vec<Duplicate> {
        let mut groups: BTreeMap<Repeated, Vec<&Identity>> = BTreeMap::new();
        for disk in &self.disks {
            if let Some(serial) = &disk.serial {
                groups
                    .entry(Repeated::Serial(serial.clone()))
                    .or_default()
                    .push(disk);
            }
            if let Some(wwn) = &disk.wwn {
                groups
                    .entry(Repeated::Wwn(wwn.clone()))
                    .or_default()
                    .push(disk);
            }
        }
        let is_shared = |(repeated, disks): (Repeated, Vec<&Identity>)| {
            (disks.len() > 1).then(|| Duplicate {
                apart: apart(&repeated, &disks),
                disks: disks.iter().map(|disk| disk.name.clone()).collect(),
                repeated,
            })
        };
        groups.into_iter().filter_map(is_shared).collect()
    }
}

/// How disks that share `repeated` are told apart.
fn apart(repeated: &Repeated, disks: &[&Identity]) -> Apart {
    let mut pairs = disks
        .iter()
        .enumerate()
        .flat_map(|(index, one)| disks.iter().skip(index + 1).map(move |other| (one, other)));
    if pairs.all(|(one, other)| one.compare(other) == Sameness::Same) {
        return Apart::OneDisk;
    }
    let (names, way): (Vec<Option<&String>>, Apart) = match repeated {
        Repeated::Serial(_) => (
            disks.iter().map(|disk| disk.wwn.as_ref()).collect(),
            Apart::ByWwn,
        ),
        Repeated::Wwn(_) => (
            disks.iter().map(|disk| disk.serial.as_ref()).collect(),
            Apart::BySerial,
        ),
    };
    if are_distinct(names) {
        return way;
    }
    match are_distinct(disks.iter().map(|disk| disk.path.as_ref()).collect()) {
        true => Apart::ByPath,
        false => Apart::NotAtAll,
    }
}

/// Whether everybody has a name, and nobody has another's.
fn are_distinct(names: Vec<Option<&String>>) -> bool {
    let mut known: Vec<&String> = names.iter().flatten().copied().collect();
    known.sort();
    known.dedup();
    known.len() == names.len()
}
