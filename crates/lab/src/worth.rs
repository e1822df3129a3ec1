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
    /// Of an arrangement; `None` where it is not simulated, or volumes are members.
    #[must_use]
    pub fn of(setup: &Setup) -> Option<Self> {
        if !setup.is_simulated() || setup.inner_volumes > 0 {
            return None;
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
