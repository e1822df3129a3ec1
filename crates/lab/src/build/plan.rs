//! What a real volume is to be: words checked, sizes and the options of programs computed (pure).
//!
//! Invariant: nothing here touches the system; what cannot be at all is `Usage`, what only this system cannot is
//! `Skipped`.

use plexum_engine::balance::Policy;
use plexum_layout::{Geometry, GeometrySpec, Level, Organisation};

use crate::error::LabError;
use crate::setup::{KERNEL_NBD, Setup, check_consistency_word, one_of};

/// Who builds volumes.
pub const SYSTEMS: [&str; 5] = ["plexum", "md", "btrfs", "zfs", "gmirror"];
/// File systems on a volume.
const FILE_SYSTEMS: [&str; 4] = ["", "ext4", "xfs", "btrfs"];
/// Ways to a volume of Plexum; with a file system it is a device in any case.
const THROUGH: [&str; 4] = ["", "nbd", "device", KERNEL_NBD];

/// Member files when nothing is said.
const MEMBER_BYTES: u64 = 512 << 20;
/// A file system's block.
const BLOCK_BYTES: u64 = 4096;
/// What is kept back of each member for metadata, when it is asked whether a workload fits.
const RESERVE_BYTES: u64 = 16 << 20;
/// mkfs.xfs makes nothing smaller.
const XFS_BYTES_MIN: u64 = 300 << 20;
/// The same of mkfs.btrfs, for each device.
const BTRFS_MEMBER_BYTES_MIN: u64 = 128 << 20;

fn usage(text: String) -> LabError {
    LabError::Usage(text)
}

/// A volume that is to be built.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan<'a> {
    pub(super) setup: &'a Setup,
    pub(super) level: Level,
    organisation: Organisation,
    /// Size of each member.
    pub(super) member_bytes: u64,
}

impl<'a> Plan<'a> {
    /// Checks the words and the topology.
    ///
    /// # Errors
    /// `Usage` with what cannot be.
    pub(super) fn of(setup: &'a Setup) -> Result<Self, LabError> {
        one_of("system", &setup.system, &SYSTEMS)?;
        one_of("file_system", &setup.file_system, &FILE_SYSTEMS)?;
        one_of("through", &setup.through, &THROUGH)?;
        check_consistency_word(&setup.consistency)?;
        let told = |error: &dyn std::fmt::Display| usage(format!("{}: {error}", setup.label()));
        let level: Level = setup.level.parse().map_err(|error| told(&error))?;
        let layout = (!setup.layout.is_empty()).then_some(setup.layout.as_str());
        let organisation = Organisation::from_words(level, layout).map_err(|error| told(&error))?;
        setup
            .balance
            .parse::<Policy>()
            .map_err(|error| told(&error))?;
        let plan = Self {
            setup,
            level,
            organisation,
            member_bytes: match setup.member_bytes {
                0 => MEMBER_BYTES,
                bytes => bytes,
            },
        };
        if level.has_parity() && setup.members < 3 {
            return Err(told(&"parity needs at least 3 members"));
        }
        if setup.inner_volumes > 0 {
            return Err(told(&"volumes as members are for simulated disks"));
        }
        Geometry::new(&plan.geometry(plan.member_bytes)).map_err(|error| told(&error))?;
        plan.check_sizes().map_err(|error| told(&error))?;
        Ok(plan)
    }

    fn geometry(&self, member_bytes: u64) -> GeometrySpec {
        let strip_bytes = self.setup.strip_bytes;
        let unit = strip_bytes.max(BLOCK_BYTES);
        GeometrySpec {
            organisation: self.organisation,
            member_count: u16::try_from(self.setup.members).unwrap_or(u16::MAX),
            strip_bytes: if self.has_strips() { strip_bytes } else { 0 },
            component_bytes: member_bytes / unit * unit,
            member_sizes_bytes: Vec::new(),
        }
    }

    fn check_sizes(&self) -> Result<(), LabError> {
        if self.setup.system == "btrfs" && self.member_bytes < BTRFS_MEMBER_BYTES_MIN {
            return Err(usage(format!(
                "members of btrfs have at least {BTRFS_MEMBER_BYTES_MIN} bytes"
            )));
        }
        if self.setup.file_system == "xfs" && self.volume_bytes() < XFS_BYTES_MIN {
            return Err(usage(format!("XFS has at least {XFS_BYTES_MIN} bytes")));
        }
        Ok(())
    }

    fn has_strips(&self) -> bool {
        !matches!(self.level, Level::Raid1 | Level::Linear)
    }

    /// Bytes that a workload may count on.
    pub(super) fn volume_bytes(&self) -> u64 {
        let component = self.member_bytes.saturating_sub(RESERVE_BYTES);
        Geometry::new(&self.geometry(component)).map_or(0, |geometry| geometry.volume_bytes())
    }

    /// Bytes to use of each member, its metadata apart.
    pub(super) fn component_bytes(&self) -> u64 {
        let component = self.member_bytes.saturating_sub(RESERVE_BYTES);
        self.geometry(component).component_bytes
    }

    /// Whether reads can be balanced between copies.
    pub(super) fn has_copies(&self) -> bool {
        matches!(self.level, Level::Raid1 | Level::Raid10)
    }

    /// Members' worth of data in a stripe, when it is a whole number.
    fn data_members(&self) -> Option<u64> {
        let spec = self.geometry(self.member_bytes);
        let geometry = Geometry::new(&spec).ok()?;
        let (volume, component) = (geometry.volume_bytes(), spec.component_bytes);
        volume
            .is_multiple_of(component)
            .then(|| volume / component)
            .filter(|count| self.has_strips() && *count > 0)
    }

    /// Whether what is measured is a mounted file system.
    pub(super) fn is_mounted(&self) -> bool {
        matches!(self.setup.system.as_str(), "btrfs" | "zfs") || !self.setup.file_system.is_empty()
    }

    /// Whether the volume has to be a block device of the kernel.
    pub(super) fn is_device(&self) -> bool {
        self.setup.system != "plexum"
            || self.is_mounted()
            || matches!(self.setup.through.as_str(), "device" | KERNEL_NBD)
    }
}

impl Plan<'_> {
    /// Words for `plexum create` after its name.
    ///
    /// # Errors
    /// `Skipped` for what this level has not.
    pub(super) fn create_words(&self) -> Result<Vec<String>, LabError> {
        let mut words = vec![format!("--level={}", self.setup.level)];
        if !self.setup.layout.is_empty() {
            words.push(format!("--layout={}", self.setup.layout));
        }
        if self.has_strips() {
            words.push(format!("--strip={}", self.setup.strip_bytes));
        }
        if !self.level.has_redundancy() {
            return Ok(words);
        }
        words.push("--assume-clean".to_owned());
        let skipped = |text: &str| {
            let label = self.setup.label();
            Err(LabError::Skipped(format!("{label}: {text}")))
        };
        match self.setup.consistency.as_str() {
            "" => {}
            "log" | "write-back" if !self.level.has_parity() => {
                return skipped("the stripe log is for levels with parity");
            }
            "ppl" if self.level != Level::Raid5 => return skipped("ppl is for level 5"),
            "write-back" => {
                words.push("--consistency=log".to_owned());
                words.push("--log=write-back".to_owned());
            }
            other => words.push(format!("--consistency={other}")),
        }
        if self.setup.lacks_bitmap() {
            words.push("--bitmap=none".to_owned());
        }
        Ok(words)
    }

    /// Words for `mdadm --create DEVICE` before the members.
    ///
    /// # Errors
    /// `Skipped` for what md has not.
    pub(super) fn mdadm_words(&self) -> Result<Vec<String>, LabError> {
        let mut words = vec![
            "--quiet".to_owned(),
            "--run".to_owned(),
            "--metadata=1.2".to_owned(),
            format!("--level={}", self.level.md_number()),
            format!("--raid-devices={}", self.setup.members),
        ];
        if self.level == Level::Linear {
            words[3] = "--level=linear".to_owned();
        }
        if !self.setup.layout.is_empty() {
            words.push(format!("--layout={}", self.setup.layout));
        }
        if self.has_strips() {
            words.push("-c".to_owned());
            words.push((self.setup.strip_bytes >> 10).to_string());
        }
        if !self.level.has_redundancy() {
            return Ok(words);
        }
        words.push("--assume-clean".to_owned());
        let bitmap = match self.setup.consistency.as_str() {
            "" if self.setup.has_bitmap => "internal",
            "bitmap" => "internal",
            "" | "resync" => "none",
            "ppl" if self.level == Level::Raid5 => {
                words.push("--consistency-policy=ppl".to_owned());
                return Ok(words);
            }
            other => {
                let label = self.setup.label();
                return Err(LabError::Skipped(format!(
                    "{label}: md has no {other} here"
                )));
            }
        };
        words.push(format!("--bitmap={bitmap}"));
        Ok(words)
    }

    /// btrfs' profiles of data and metadata.
    ///
    /// # Errors
    /// `Skipped` for a level that btrfs has not.
    pub(super) fn btrfs_profiles(&self) -> Result<(&'static str, &'static str), LabError> {
        Ok(match (self.level, self.setup.members) {
            (Level::Linear, 1) => ("single", "dup"),
            (Level::Linear, _) => ("single", "raid1"),
            (Level::Raid0, 2..) => ("raid0", "raid1"),
            (Level::Raid1, 2) => ("raid1", "raid1"),
            (Level::Raid1, 3) => ("raid1c3", "raid1c3"),
            (Level::Raid1, 4) => ("raid1c4", "raid1c4"),
            (Level::Raid10, 2..) if self.data_copies() == 2 => ("raid10", "raid10"),
            (Level::Raid5, 2..) => ("raid5", "raid1"),
            (Level::Raid6, 3..) => ("raid6", "raid1c3"),
            _ => return Err(self.foreign("btrfs")),
        })
    }

    /// The words for a pool's members: `members` in the groups that ZFS has for the level.
    ///
    /// # Errors
    /// `Skipped` for a level that ZFS has not.
    pub(super) fn zpool_words(&self, members: &[String]) -> Result<Vec<String>, LabError> {
        let group = |word: &str| {
            let first = std::iter::once(word.to_owned());
            first.chain(members.iter().cloned()).collect()
        };
        Ok(match self.level {
            Level::Linear | Level::Raid0 => members.to_vec(),
            Level::Raid1 => group("mirror"),
            Level::Raid5 => group("raidz1"),
            Level::Raid6 => group("raidz2"),
            Level::Raid10 if self.data_copies() == 2 && members.len().is_multiple_of(2) => members
                .chunks(2)
                .flat_map(|pair| [vec!["mirror".to_owned()], pair.to_vec()].concat())
                .collect(),
            _ => return Err(self.foreign("ZFS")),
        })
    }

    fn foreign(&self, system: &str) -> LabError {
        let (level, count) = (self.level, self.setup.members);
        LabError::Skipped(format!(
            "{}: {system} has no {level} of {count}",
            self.setup.label()
        ))
    }

    fn data_copies(&self) -> usize {
        let spec = self.geometry(self.member_bytes);
        Geometry::new(&spec).map_or(0, |geometry| geometry.copy_count())
    }

    /// Words for mkfs that make the file system fit the stripes.
    pub(super) fn mkfs_words(&self) -> Vec<String> {
        let strip = self.setup.strip_bytes;
        let data = self
            .data_members()
            .filter(|_| strip.is_multiple_of(BLOCK_BYTES));
        let words = |list: &[&str]| list.iter().map(|word| (*word).to_owned()).collect();
        let mut all: Vec<String> = match self.setup.file_system.as_str() {
            // What is initialised later would be measured.
            "ext4" => words(&["-q", "-F", "-b", "4096", "-E"]),
            "xfs" => words(&["-q", "-f", "-K"]),
            _ => words(&["--quiet", "--force", "--nodiscard"]),
        };
        match (self.setup.file_system.as_str(), data) {
            ("ext4", data) => {
                let mut extended = "nodiscard,lazy_itable_init=0,lazy_journal_init=0".to_owned();
                if let Some(data) = data {
                    let stride = strip / BLOCK_BYTES;
                    extended += &format!(",stride={stride},stripe-width={}", stride * data);
                }
                all.push(extended);
            }
            ("xfs", Some(data)) => {
                all.push("-d".to_owned());
                all.push(format!("su={strip},sw={data}"));
            }
            _ => {}
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(system: &str, level: &str, members: usize) -> Setup {
        Setup {
            system: system.to_owned(),
            level: level.to_owned(),
            members,
            strip_bytes: 64 << 10,
            member_bytes: 512 << 20,
            ..Setup::default()
        }
    }

    fn mkfs(level: &str, members: usize, strip_bytes: u64, file_system: &str) -> String {
        let setup = Setup {
            strip_bytes,
            file_system: file_system.to_owned(),
            ..setup("plexum", level, members)
        };
        Plan::of(&setup).unwrap().mkfs_words().join(" ")
    }

    #[test]
    fn file_systems_are_made_for_the_strip_and_the_members_with_data() {
        for (level, members, strip, stride, width, data) in [
            ("0", 4, 64 << 10, 16, 64, 4),
            ("5", 3, 64 << 10, 16, 32, 2),
            ("5", 5, 512 << 10, 128, 512, 4),
            ("6", 6, 128 << 10, 32, 128, 4),
            ("4", 3, 4 << 10, 1, 2, 2),
            ("10", 4, 64 << 10, 16, 32, 2),
        ] {
            let words = mkfs(level, members, strip, "ext4");
            let end = format!(",stride={stride},stripe-width={width}");
            assert!(words.ends_with(&end), "{level} of {members}: {words}");
            let words = mkfs(level, members, strip, "xfs");
            let end = format!(" -d su={strip},sw={data}");
            assert!(words.ends_with(&end), "{level} of {members}: {words}");
            assert!(!mkfs(level, members, strip, "btrfs").contains("su="));
        }
        // Without stripes, or where their width is no whole number of strips.
        for (level, members) in [("1", 2), ("linear", 3), ("10", 3)] {
            assert!(!mkfs(level, members, 64 << 10, "ext4").contains("stride"));
            assert!(!mkfs(level, members, 64 << 10, "xfs").contains("su="));
        }
    }

    #[test]
    fn what_cannot_be_is_refused_and_what_a_peer_has_not_is_skipped() {
        let refused = |setup: &Setup, word: &str| {
            let error = Plan::of(setup).unwrap_err();
            assert!(matches!(error, LabError::Usage(_)), "{error:?}");
            assert!(error.to_string().contains(word), "{error}");
        };
        refused(&setup("plexmu", "5", 3), "plexum, md, btrfs");
        refused(&setup("plexum", "5", 1), "members");
        refused(&setup("md", "6", 3), "members");
        refused(&setup("plexum", "7", 3), "7");
        refused(&setup("btrfs", "5", 2), "at least 3");
        let with = |change: fn(&mut Setup)| {
            let mut setup = setup("plexum", "5", 3);
            change(&mut setup);
            setup
        };
        refused(&with(|s| s.file_system = "ntfs".into()), "ext4, xfs");
        refused(&with(|s| s.through = "usb".into()), "nbd, device");
        refused(&with(|s| s.consistency = "hope".into()), "log, write-back");
        refused(&with(|s| s.strip_bytes = 5000), "strip");
        refused(&with(|s| s.balance = "fair".into()), "fair");
        refused(&with(|s| s.inner_volumes = 2), "simulated");
        let small = with(|s| {
            s.file_system = "xfs".into();
            s.member_bytes = 64 << 20;
        });
        refused(&small, "XFS");
        let small = Setup {
            member_bytes: 64 << 20,
            ..setup("btrfs", "1", 2)
        };
        refused(&small, "btrfs");

        for (level, members) in [("4", 3), ("1", 5)] {
            let setup = setup("btrfs", level, members);
            let error = Plan::of(&setup).unwrap().btrfs_profiles().unwrap_err();
            assert!(matches!(error, LabError::Skipped(_)), "{error:?}");
        }
        let mirror = Setup {
            consistency: "log".into(),
            ..setup("plexum", "1", 2)
        };
        let error = Plan::of(&mirror).unwrap().create_words().unwrap_err();
        assert!(matches!(error, LabError::Skipped(_)), "{error:?}");
    }

    #[test]
    fn every_system_is_told_the_arrangement_in_its_own_words() {
        let with = |system: &str, level: &str, members, consistency: &str, has_bitmap| Setup {
            consistency: consistency.to_owned(),
            has_bitmap,
            ..setup(system, level, members)
        };
        let create = |setup: &Setup| Plan::of(setup).unwrap().create_words().unwrap().join(" ");
        assert_eq!(
            create(&with("plexum", "5", 3, "", true)),
            "--level=5 --strip=65536 --assume-clean"
        );
        assert_eq!(
            create(&with("plexum", "6", 4, "write-back", false)),
            "--level=6 --strip=65536 --assume-clean --consistency=log --log=write-back --bitmap=none"
        );
        assert_eq!(
            create(&with("plexum", "0", 3, "log", true)),
            "--level=0 --strip=65536"
        );
        let mdadm = |setup: &Setup| Plan::of(setup).unwrap().mdadm_words().unwrap().join(" ");
        assert!(
            mdadm(&with("md", "5", 3, "", true))
                .ends_with("--level=5 --raid-devices=3 -c 64 --assume-clean --bitmap=internal")
        );
        assert!(mdadm(&with("md", "5", 3, "ppl", true)).ends_with("--consistency-policy=ppl"));
        assert!(mdadm(&with("md", "1", 2, "resync", true)).ends_with("--bitmap=none"));
        let names: Vec<String> = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        for (level, words) in [
            ("0", "a b c d"),
            ("1", "mirror a b c d"),
            ("5", "raidz1 a b c d"),
            ("6", "raidz2 a b c d"),
            ("10", "mirror a b mirror c d"),
        ] {
            let setup = setup("zfs", level, 4);
            let plan = Plan::of(&setup).unwrap();
            assert_eq!(plan.zpool_words(&names).unwrap().join(" "), words);
        }
    }

    #[test]
    fn a_label_says_what_counts_for_the_system_and_nothing_else() {
        let of = |system: &str, level: &str, change: fn(&mut Setup)| {
            let mut setup = setup(system, level, 4);
            change(&mut setup);
            setup.label()
        };
        assert_eq!(
            of("plexum", "5", |s| {
                s.consistency = "ppl".into();
                s.file_system = "ext4".into();
            }),
            "plexum RAID-5 of 4 strip 64K ppl, ext4"
        );
        assert_eq!(of("plexum", "1", |_| {}), "plexum RAID-1 of 4 load");
        assert_eq!(
            of("plexum", "10", |s| s.through = "device".into()),
            "plexum RAID-10 of 4 strip 64K load, device"
        );
        assert_eq!(
            of("plexum", "0", |s| {
                s.through = "kernel-nbd".into();
                s.file_system = "xfs".into();
            }),
            "plexum RAID-0 of 4 strip 64K, xfs, kernel NBD"
        );
        assert_eq!(
            of("md", "10", |s| s.has_bitmap = false),
            "md RAID-10 of 4 strip 64K no bitmap"
        );
        for (system, level) in [("btrfs", "10"), ("zfs", "5"), ("gmirror", "1")] {
            let plain = of(system, level, |_| {});
            assert_eq!(plain, format!("{system} RAID-{level} of 4"));
            let other = of(system, level, |s| {
                s.file_system = "xfs".into();
                s.strip_bytes = 4096;
                s.has_bitmap = false;
            });
            assert_eq!(plain, other, "what it has not makes no other row");
        }
    }
}
