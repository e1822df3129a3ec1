//! What an arrangement is worth besides its speed: the bytes it holds, and how many members may be lost.
//!
//! Invariant: the engine's own address map says it; nothing is reckoned a second time here.

use plexum_layout::{Geometry, GeometrySpec, Organisation};

use crate::setup::Setup;

/// Bytes in a gigabyte, as disks are sold.
const GB: f64 = 1e9;

/// What an arrangement of simulated disks holds and survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Worth {
    /// Bytes for data.
    pub usable_bytes: u64,
    /// Bytes of the disks that nothing uses, because the others are smaller.
    pub unused_bytes: u64,
    /// So many members may be lost, whichever they are.
    pub losses: usize,
}

impl Worth {
    /// Of an arrangement; `None` where it is not simulated, or volumes are members. Of volumes side by side it is what
    /// all hold together, and the losses that the weakest survives.
    #[must_use]
    pub fn of(setup: &Setup) -> Option<Self> {
        if !setup.is_simulated() || setup.inner_volumes > 0 {
            return None;
        }
        if !setup.volumes.is_empty() {
            let each: Option<Vec<Self>> = Self::of_each(setup).map(|(_, worth)| worth).collect();
            let each = each?;
            let sizes = setup.capacities().ok()?;
            let is_used = |disk: &usize| setup.volumes.iter().any(|one| one.disks.contains(disk));
            let free = (0..sizes.len()).filter(|disk| !is_used(disk));
            let free: u64 = free.map(|disk| sizes[disk]).sum();
            return Some(Self {
                usable_bytes: each.iter().map(|one| one.usable_bytes).sum(),
                unused_bytes: free + each.iter().map(|one| one.unused_bytes).sum::<u64>(),
                losses: each.iter().map(|one| one.losses).min()?,
            });
        }
        let sizes = setup.capacities().ok()?;
        if setup.level == "single" {
            let usable_bytes = *sizes.first()?;
            return Some(Self {
                usable_bytes,
                unused_bytes: 0,
                losses: 0,
            });
        }
        let organisation = setup.organisation().ok()?;
        let least = sizes.iter().copied().min()?;
        let component = match setup.member_bytes {
            0 => least,
            bytes => bytes.min(least),
        };
        let takes_all = matches!(organisation, Organisation::Linear | Organisation::Raid0(_))
            && setup.member_bytes == 0;
        let strip = match organisation {
            Organisation::Raid1 | Organisation::Linear => 0,
            _ => setup.strip_bytes,
        };
        let whole = |bytes: u64| bytes / strip.max(512) * strip.max(512);
        let geometry = Geometry::new(&GeometrySpec {
            organisation,
            member_count: u16::try_from(sizes.len()).ok()?,
            strip_bytes: strip,
            component_bytes: whole(component),
            member_sizes_bytes: match takes_all {
                true => sizes.iter().map(|size| whole(*size)).collect(),
                false => Vec::new(),
            },
        })
        .ok()?;
        let used: u64 = (0..sizes.len()).map(|slot| geometry.used_bytes(slot)).sum();
        Some(Self {
            usable_bytes: geometry.volume_bytes(),
            unused_bytes: sizes
                .iter()
                .sum::<u64>()
                .saturating_sub(used.max(component)),
            losses: geometry.losses_left(&vec![false; sizes.len()]),
        })
    }

    /// The volumes that are side by side, by name, and what each is worth.
    fn of_each(setup: &Setup) -> impl Iterator<Item = (&str, Option<Self>)> {
        let each = setup.volumes.iter();
        each.map(|one| (one.name.as_str(), Self::of(&setup.alone(one))))
    }

    /// What the volume of this name is worth, of several, or the only one.
    #[must_use]
    pub fn of_volume(setup: &Setup, name: &str) -> Option<Self> {
        if setup.volumes.is_empty() {
            return Self::of(setup);
        }
        Self::of_each(setup).find(|(own, _)| *own == name)?.1
    }

    /// What an arrangement holds and survives, in words; of volumes side by side each by its name.
    #[must_use]
    pub fn words_of(setup: &Setup) -> Option<String> {
        let whole = Self::of(setup)?;
        if setup.volumes.is_empty() {
            return Some(whole.words());
        }
        let each = Self::of_each(setup);
        let each: Vec<String> = each
            .filter_map(|(name, worth)| Some(format!("{name} {}", worth?.words())))
            .collect();
        Some(format!("has {} volumes: {}", each.len(), each.join("; ")))
    }

    /// What it holds, in gigabytes.
    #[must_use]
    pub fn usable_gb(&self) -> f64 {
        self.usable_bytes as f64 / GB
    }

    /// What nothing uses, in gigabytes.
    #[must_use]
    pub fn unused_gb(&self) -> f64 {
        self.unused_bytes as f64 / GB
    }

    /// In words, with what is unused when it is more than a hundredth.
    #[must_use]
    pub fn words(&self) -> String {
        let survives = match self.losses {
            0 => "survives the loss of no disk".to_owned(),
            1 => "survives the loss of any disk".to_owned(),
            count => format!("survives the loss of any {count} disks"),
        };
        let unused = match self.unused_bytes > self.usable_bytes / 100 {
            true => format!(" and leaves {:.0} GB of the disks unused", self.unused_gb()),
            false => String::new(),
        };
        format!("holds {:.0} GB{unused}, {survives}", self.usable_gb())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::setup::beside::VolumeBeside;

    fn worth(level: &str, disks: &[&str]) -> Worth {
        let setup = Setup {
            level: level.to_owned(),
            members: disks.len(),
            disks: disks.iter().map(|disk| (*disk).to_owned()).collect(),
            ..Setup::default()
        };
        Worth::of(&setup).unwrap()
    }

    #[test]
    fn of_volumes_side_by_side_each_is_told_and_the_weakest_says_what_is_survived() {
        let volume = |name: &str, disks: &[usize], level: &str| VolumeBeside {
            name: name.to_owned(),
            disks: disks.to_vec(),
            level: Some(level.to_owned()),
            ..VolumeBeside::default()
        };
        let mut setup = Setup {
            disks: ["nas-12t", "nas-12t", "nas-12t", "sata-7200-750"]
                .map(str::to_owned)
                .to_vec(),
            members: 6,
            volumes: vec![
                volume("large", &[0, 1, 2], "5"),
                volume("small", &[3, 4], "1"),
            ],
            ..Setup::default()
        };
        let (large, small) = (
            worth("5", &["nas-12t"; 3]),
            worth("1", &["sata-7200-750"; 2]),
        );
        let both = Worth::of(&setup).unwrap();
        assert_eq!(both.usable_bytes, large.usable_bytes + small.usable_bytes);
        assert_eq!(both.losses, 1);
        // The sixth disk is in none.
        let free = worth("single", &["sata-7200-750"]).usable_bytes;
        assert_eq!(
            both.unused_bytes,
            free + large.unused_bytes + small.unused_bytes
        );
        let told = Worth::words_of(&setup).unwrap();
        assert!(told.contains("has 2 volumes: large holds 24"), "{told}");
        assert!(told.contains("small holds 750 GB"), "{told}");
        setup.volumes[1].level = Some("0".to_owned());
        assert_eq!(Worth::of(&setup).unwrap().losses, 0);
    }

    #[test]
    fn what_is_held_survived_and_left_unused_follows_from_the_disks() {
        let big = "nas-12t";
        let (small, large) = (
            worth("single", &["sata-7200-750"]).usable_bytes,
            worth("single", &[big]).usable_bytes,
        );
        let five = worth("5", &[big; 4]);
        assert_eq!((five.losses, five.unused_gb().round()), (1, 0.0));
        assert!((five.usable_gb() - 3.0 * large as f64 / 1e9).abs() < 1.0);
        assert_eq!(worth("6", &[big; 4]).losses, 2);
        assert_eq!(worth("1", &[big; 3]).losses, 2);
        assert_eq!(worth("0", &[big; 2]).losses, 0);
        let odd = worth("1", &["sata-7200-750", big]);
        assert!((odd.usable_gb() - small as f64 / 1e9).abs() < 1.0);
        assert!((odd.unused_gb() - (large - small) as f64 / 1e9).abs() < 1.0);
        let told = odd.words();
        assert!(
            told.contains("unused") && told.contains("any disk"),
            "{told}"
        );
    }
}
