//! How far a plex is that gets more subdisks: a note behind its line, where gvinum sees a comment.
//!
//! Invariants: a note that is there is understood or the copy is refused; what it says decides which address is where.

use std::fmt;

use crate::units::SECTOR_BYTES;

/// The state of a growth: addresses below `moved_bytes` are where all subdisks put them, the others where the first
/// `subdisk_count` do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Growth {
    /// Subdisks that the plex had.
    pub subdisk_count: u16,
    /// Plex addresses below this have moved; a multiple of 512.
    pub moved_bytes: u64,
    /// So many bytes from address 0 on are kept at the end of the last subdisk, because the first step writes over
    /// their old place; 0: none. A multiple of 512.
    pub backup_bytes: u64,
}

impl Growth {
    /// Understands a note, its words without `#`. `None` for something else; an error for one that is damaged.
    pub(super) fn parse(words: &[&str]) -> Option<Result<Self, ()>> {
        let ["grows", rest @ ..] = words else {
            return None;
        };
        let sectors = |text: &str| {
            let number: u64 = text.strip_suffix('s')?.parse().ok()?;
            number.checked_mul(SECTOR_BYTES)
        };
        let parsed = match rest {
            ["from", count, "at", moved, "backup", backup] => count
                .parse()
                .ok()
                .zip(sectors(moved))
                .zip(sectors(backup))
                .map(|((subdisk_count, moved_bytes), backup_bytes)| Self {
                    subdisk_count,
                    moved_bytes,
                    backup_bytes,
                }),
            _ => None,
        };
        Some(parsed.ok_or(()))
    }
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (moved, backup) = (
            self.moved_bytes / SECTOR_BYTES,
            self.backup_bytes / SECTOR_BYTES,
        );
        let count = self.subdisk_count;
        write!(f, "# grows from {count} at {moved}s backup {backup}s")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    const TEXT: &str = "volume v state up\n\
        plex name v.p0 org striped 16s vol v state growable # grows from 1 at 64s backup 32s\n\
        sd name v.p0.s0 drive a len 512s driveoffset 265s plex v.p0 plexoffset 0s state up\n\
        sd name v.p0.s1 drive b len 512s driveoffset 265s plex v.p0 plexoffset 16s state up\n\
        drive c hotspare\n";

    #[test]
    fn growth_and_spares_are_read_back() {
        let config = Config::parse(TEXT.as_bytes(), 0).unwrap();
        let growth = config.plexes[0].growth.unwrap();
        assert_eq!(
            (
                growth.subdisk_count,
                growth.moved_bytes,
                growth.backup_bytes
            ),
            (1, 64 * 512, 32 * 512)
        );
        assert_eq!(config.spares, ["c"]);
        assert_eq!(config.to_string(), TEXT);
    }

    #[test]
    fn a_damaged_note_of_a_growth_is_refused() {
        for (from, to) in [
            ("from 1", "from 2"),
            ("from 1", "from 0"),
            ("at 64s", "at 64"),
            ("at 64s", "at 99999999999999999999s"),
            ("backup 32s", ""),
        ] {
            let text = TEXT.replace(from, to);
            let error = Config::parse(text.as_bytes(), 0).unwrap_err();
            assert!(error.to_string().contains("growth"), "{error}");
        }
        let other = TEXT.replace("# grows from 1 at 64s backup 32s", "# a word");
        assert_eq!(
            Config::parse(other.as_bytes(), 0).unwrap().plexes[0].growth,
            None
        );
    }
}
