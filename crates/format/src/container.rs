//! Containers of RAID controllers and of mainboards: named, so that users know who can read them; not read here.
//!
//! Sources: SNIA, Common RAID Disk Data Format 1.2, section 5 (the anchor header); mdadm, `super-intel.c` (the
//! metadata's first sector is the last but one of the disk, of 512 bytes).

use std::fmt;

/// A container that a disk is a member of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Container {
    /// SNIA's format, of many controllers.
    Ddf,
    /// Intel's, of mainboards (Matrix, Rapid Storage, VROC).
    Intel,
}

impl Container {
    /// The container that the end of a disk names; `tail` are its last bytes, one page at least.
    #[must_use]
    pub fn find(tail: &[u8]) -> Option<Self> {
        let from_end = |distance: usize| {
            let at = tail.len().checked_sub(distance)?;
            tail.get(at..)
        };
        let is_ddf = [512, 4096].into_iter().any(|sector| {
            let magic = from_end(sector).and_then(|bytes| bytes.get(..4));
            magic == Some(&[0xde, 0x11, 0xde, 0x11]) || magic == Some(&[0x11, 0xde, 0x11, 0xde])
        });
        if is_ddf {
            return Some(Self::Ddf);
        }
        let last_but_one = from_end(1024)?;
        let is_intel = last_but_one.starts_with(b"Intel Raid ISM Cfg Sig. ");
        is_intel.then_some(Self::Intel)
    }

    /// The word that other programs have for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Ddf => "ddf",
            Self::Intel => "imsm",
        }
    }
}

impl fmt::Display for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ddf => "a member of a DDF container (of a RAID controller)",
            Self::Intel => "a member of an Intel container (imsm, of a mainboard)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_the_end_of_the_disk_alone() {
        let mut tail = [0; 4096];
        assert_eq!(Container::find(&tail), None);
        tail[4096 - 1024..][..24].copy_from_slice(b"Intel Raid ISM Cfg Sig. ");
        assert_eq!(Container::find(&tail), Some(Container::Intel));
        tail[4096 - 512..][..4].copy_from_slice(&[0xde, 0x11, 0xde, 0x11]);
        assert_eq!(Container::find(&tail), Some(Container::Ddf));
        assert_eq!(Container::find(&[0xde]), None);
    }
}
