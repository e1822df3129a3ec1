//! The configuration text of Vinum: volumes, plexes, subdisks and their states.
//!
//! Invariants:
//! - a [`Config`] that was read makes sense: names are unique, what is referred to exists, sizes are whole sectors,
//!   nothing overlaps on a drive; so no later step has to look again;
//! - the text of gvinum is written exactly as gvinum writes it, in the order of the lists.
//!
//! Source: freebsd-geom.md section 2.4.

mod words;

use std::collections::BTreeSet;
use std::fmt;

use crate::describe::{Field, List, Value};
use crate::error::{FormatError, Problem, StructurePlace, escape_text};
use crate::md::ppl::crc32c;
use crate::units::SECTOR_BYTES;

use super::{CONFIG_BYTES, DriveHeader, Growth};

use words::{Words, end, growth};

const STRUCTURE: &str = "vinum configuration";
/// Words on a line.
const MAX_WORDS: usize = 64;
/// Letters of a name; drives have at most 31.
const MAX_NAME: usize = 63;
/// Largest size that is taken, so that sums of them cannot overflow.
const MAX_SIZE_BYTES: u64 = 1 << 60;

macro_rules! states {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// gvinum's word for it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            fn known(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

states! {
    /// State of a volume.
    VolumeState {
        /// Not usable.
        Down = "down",
        /// Usable.
        Up = "up",
    }
}
states! {
    /// State of a plex; derived from its subdisks at every start.
    PlexState {
        /// Not usable.
        Down = "down",
        /// Being filled with zeroes.
        Initializing = "initializing",
        /// Usable without redundancy.
        Degraded = "degraded",
        /// Has a new subdisk that is not part of the geometry yet.
        Growable = "growable",
        /// Usable.
        Up = "up",
    }
}
states! {
    /// State of a subdisk.
    SubdiskState {
        /// Its drive is not there.
        Down = "down",
        /// Missed writes.
        Stale = "stale",
        /// Being filled.
        Initializing = "initializing",
        /// Being rebuilt.
        Reviving = "reviving",
        /// Good.
        Up = "up",
    }
}

impl SubdiskState {
    /// gvinum's words, and those of the original Vinum: what has missed writes or came back is stale, the rest is down.
    fn of(word: &str) -> Self {
        match word {
            "obsolete" | "reborn" => Self::Stale,
            _ => Self::known(word).unwrap_or(Self::Down),
        }
    }
}

/// How a plex lays its addresses on its subdisks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Organisation {
    /// One after another.
    Concat,
    /// Strips in turn.
    Striped {
        /// Strip size in bytes, a multiple of 512 and not always a power of two.
        strip_bytes: u64,
    },
    /// Strips with rotating parity.
    Raid5 {
        /// Strip size in bytes.
        strip_bytes: u64,
    },
    /// Strips with parity on the last subdisk (original Vinum only).
    Raid4 {
        /// Strip size in bytes.
        strip_bytes: u64,
    },
}

impl Organisation {
    /// Vinum's word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Concat => "concat",
            Self::Striped { .. } => "striped",
            Self::Raid5 { .. } => "raid5",
            Self::Raid4 { .. } => "raid4",
        }
    }

    /// Whether a block can be lost.
    #[must_use]
    pub fn has_parity(self) -> bool {
        matches!(self, Self::Raid5 { .. } | Self::Raid4 { .. })
    }

    /// Strip size; `None` for concat.
    #[must_use]
    pub fn strip_bytes(self) -> Option<u64> {
        match self {
            Self::Concat => None,
            Self::Striped { strip_bytes }
            | Self::Raid5 { strip_bytes }
            | Self::Raid4 { strip_bytes } => Some(strip_bytes),
        }
    }
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Name.
    pub name: String,
    /// Recorded state.
    pub state: VolumeState,
}

/// A plex.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plex {
    /// Name, usually `VOLUME.pN`.
    pub name: String,
    /// How it lays out its addresses.
    pub organisation: Organisation,
    /// Its volume; `None`: detached.
    pub volume: Option<String>,
    /// Recorded state.
    pub state: PlexState,
    /// How far it is on the way to more subdisks.
    pub growth: Option<Growth>,
    /// Where its last place ends, as `plexoffset` counts, when no subdisk that is listed reaches it: one was taken away
    /// there.
    pub end_bytes: Option<u64>,
}

/// A subdisk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subdisk {
    /// Name, usually `PLEX.sN`.
    pub name: String,
    /// The drive it is on.
    pub drive: String,
    /// Its size.
    pub length_bytes: u64,
    /// Where it begins on the drive.
    pub drive_offset_bytes: u64,
    /// Its plex and where it begins there (for strips only the order matters); `None`: detached.
    pub plex: Option<(String, u64)>,
    /// Recorded state.
    pub state: SubdiskState,
}

impl Subdisk {
    /// First byte behind it on the drive.
    #[must_use]
    pub fn drive_end_bytes(&self) -> u64 {
        self.drive_offset_bytes + self.length_bytes // both are at most 2^60
    }
}

/// A configuration: of the whole system, not only of the drive it was read from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Config {
    /// Volumes in the order of the text.
    pub volumes: Vec<Volume>,
    /// Plexes in the order of the text.
    pub plexes: Vec<Plex>,
    /// Subdisks in the order of the text.
    pub subdisks: Vec<Subdisk>,
    /// Drives that take over what another one loses; gvinum passes their lines over.
    pub spares: Vec<String>,
}

/// A seal begins with it: a word and the version, big-endian. The CRC-32C of everything in front of the seal follows,
/// big-endian.
const SEAL_MAGIC: [u8; 12] = *b"PLEXUMCK\0\0\0\x01";

/// What a seal vouches for: the copy without its last 16 bytes.
const SEALED_BYTES: usize = CONFIG_BYTES as usize - SEAL_MAGIC.len() - 4;

/// Whether a whole copy is what was sealed; one without a seal is somebody else's.
fn check_seal(copy: &[u8], offset_bytes: u64) -> Result<(), FormatError> {
    let Some((text, seal)) = copy.split_at_checked(SEALED_BYTES) else {
        return Ok(());
    };
    let Some(sum) = seal.strip_prefix(&SEAL_MAGIC) else {
        return Ok(());
    };
    let own = crc32c(text).to_be_bytes();
    if sum == own {
        return Ok(());
    }
    let place = StructurePlace {
        structure: STRUCTURE,
        base_bytes: offset_bytes,
    };
    let (found, expected) = (format!("{sum:02x?}"), format!("{own:02x?}"));
    let at = (SEALED_BYTES + SEAL_MAGIC.len()) as u64;
    Err(place.error(Problem::Checksum, at, "seal", found, expected))
}

impl Config {
    /// Reads one copy (up to its first NUL), found at `offset_bytes` of the drive.
    ///
    /// # Errors
    /// [`Problem::Invalid`] with the byte offset of the line that makes no sense; [`Problem::Checksum`] when the copy
    /// is sealed and not what was sealed.
    pub fn parse(text: &[u8], offset_bytes: u64) -> Result<Self, FormatError> {
        let limit = text.len().min(CONFIG_BYTES as usize);
        let text = &text[..limit];
        check_seal(text, offset_bytes)?;
        let used = text.iter().position(|byte| *byte == 0).unwrap_or(limit);
        let mut config = Self::default();
        let mut start = 0_u64;
        for line in text[..used].split(|byte| *byte == b'\n') {
            let place = StructurePlace {
                structure: STRUCTURE,
                base_bytes: offset_bytes.saturating_add(start),
            };
            start += line.len() as u64 + 1;
            config.add_line(line, place)?;
        }
        config.check(StructurePlace {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        })?;
        Ok(config)
    }

    fn add_line(&mut self, line: &[u8], place: StructurePlace) -> Result<(), FormatError> {
        let Ok(line) = std::str::from_utf8(line) else {
            let found = escape_text(line);
            return Err(place.error(Problem::Invalid, 0, "line", found, "printable text"));
        };
        let blank = |letter: char| matches!(letter, ' ' | '\t' | '\r');
        let words = line.split(blank).filter(|word| !word.is_empty());
        let mut words: Vec<&str> = words.collect();
        let comment = words.iter().position(|word| word.starts_with('#'));
        let comment = words.split_off(comment.unwrap_or(words.len()));
        let expected = format!("at most {MAX_WORDS} words");
        place.check(words.len() <= MAX_WORDS, 0, "line", words.len(), expected)?;
        let mut words = Words {
            words: words.into_iter(),
            place,
        };
        match words.words.next() {
            Some("volume") => self.volumes.push(words.volume()?),
            Some("plex") => {
                let mut plex = words.plex()?;
                plex.growth = growth(&comment, place)?;
                plex.end_bytes = end(&comment, place)?;
                self.plexes.push(plex);
            }
            Some("drive") => {
                let name = words.name("drive").ok();
                let name = name.filter(|name| !self.spares.contains(name));
                let is_spare = words.words.any(|word| word == "hotspare");
                self.spares.extend(name.filter(|_| is_spare));
            }
            Some("sd") => self.subdisks.push(words.subdisk()?),
            _ => {}
        }
        Ok(())
    }

    /// What the parts must be to each other.
    ///
    /// # Errors
    /// [`Problem::Invalid`] naming the object.
    fn check(&self, place: StructurePlace) -> Result<(), FormatError> {
        let volumes = unique(
            self.volumes.iter().map(|volume| volume.name.as_str()),
            place,
        )?;
        let plexes = unique(self.plexes.iter().map(|plex| plex.name.as_str()), place)?;
        unique(
            self.subdisks.iter().map(|subdisk| subdisk.name.as_str()),
            place,
        )?;
        for plex in &self.plexes {
            let is_known = plex
                .volume
                .as_deref()
                .is_none_or(|name| volumes.contains(name));
            let found = format!("{:?}", plex.volume);
            place.check(
                is_known,
                0,
                "volume of a plex",
                found,
                "a volume of the configuration",
            )?;
        }
        for subdisk in &self.subdisks {
            let plex = subdisk.plex.as_ref().map(|(name, _)| name.as_str());
            let is_known = plex.is_none_or(|name| plexes.contains(name));
            let found = format!("{plex:?}");
            place.check(
                is_known,
                0,
                "plex of a subdisk",
                found,
                "a plex of the configuration",
            )?;
        }
        for plex in &self.plexes {
            let on_plex = |subdisk: &&Subdisk| {
                subdisk
                    .plex
                    .as_ref()
                    .is_some_and(|(name, _)| *name == plex.name)
            };
            let count = self.subdisks.iter().filter(on_plex).count();
            let is_fine = plex
                .growth
                .is_none_or(|growth| (1..count).contains(&usize::from(growth.subdisk_count)));
            let expected = "fewer subdisks before than now";
            place.check(is_fine, 0, "growth", format!("{:?}", plex.growth), expected)?;
        }
        let mut extents: Vec<&Subdisk> = self.subdisks.iter().collect();
        extents.sort_by_key(|subdisk| (&subdisk.drive, subdisk.drive_offset_bytes));
        for pair in extents.windows(2) {
            let is_apart = pair[0].drive != pair[1].drive
                || pair[0].drive_end_bytes() <= pair[1].drive_offset_bytes;
            let found = format!("{} over the end of {}", pair[1].name, pair[0].name);
            place.check(
                is_apart,
                0,
                "driveoffset",
                found,
                "subdisks that do not overlap",
            )?;
        }
        Ok(())
    }

    /// Whether the pieces of a drive lie on its `drive_bytes`.
    ///
    /// # Errors
    /// [`Problem::Foreign`] with the subdisk that reaches beyond.
    pub fn check_drive(&self, drive: &str, drive_bytes: u64) -> Result<(), FormatError> {
        let pieces = self
            .subdisks
            .iter()
            .filter(|subdisk| subdisk.drive == drive);
        for subdisk in pieces {
            let end = subdisk.drive_end_bytes();
            if end > drive_bytes {
                let place = StructurePlace {
                    structure: STRUCTURE,
                    base_bytes: 0,
                };
                let found = format!("{} ends at byte {end}", subdisk.name);
                let expected = format!("an end within the {drive_bytes} bytes of {drive}");
                return Err(place.error(Problem::Foreign, 0, "driveoffset", found, expected));
            }
        }
        Ok(())
    }

    /// A copy's bytes as gvinum writes them: text, then zeroes to 64 KiB.
    ///
    /// # Errors
    /// [`Problem::Request`] when the text does not fit.
    pub fn encode(&self) -> Result<Vec<u8>, FormatError> {
        let mut bytes = self.to_string().into_bytes();
        let limit = CONFIG_BYTES as usize;
        if bytes.len() >= limit {
            let place = StructurePlace {
                structure: STRUCTURE,
                base_bytes: 0,
            };
            let found = format!("{} bytes", bytes.len());
            let expected = format!("below {limit}");
            return Err(place.error(Problem::Request, 0, "text", found, expected));
        }
        bytes.resize(limit, 0);
        Ok(bytes)
    }

    /// As `encode`, with a seal in the last 16 bytes, which gvinum passes over: a copy that a power cut tore can make
    /// sense, and the format has no checksum. Without one where the text reaches into them.
    ///
    /// # Errors
    /// As `encode`.
    pub fn encode_sealed(&self) -> Result<Vec<u8>, FormatError> {
        let mut bytes = self.encode()?;
        let (text, seal) = bytes.split_at_mut(SEALED_BYTES);
        if text.last() == Some(&0) {
            let (magic, sum) = seal.split_at_mut(SEAL_MAGIC.len());
            magic.copy_from_slice(&SEAL_MAGIC);
            sum.copy_from_slice(&crc32c(text).to_be_bytes());
        }
        Ok(bytes)
    }

    /// The configuration that counts among several drives, with the index of the drive it came from: that of the last
    /// update which reads and makes sense, its first copy or else its second.
    ///
    /// Source: freebsd-geom.md section 2.10, "required instead".
    #[must_use]
    pub fn newest(drives: &[(&DriveHeader, [&[u8]; 2])]) -> Option<(usize, Self)> {
        let mut order: Vec<usize> = (0..drives.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(drives[*index].0.updated));
        let in_use = order
            .into_iter()
            .filter(|index| !drives[*index].0.is_removed);
        in_use
            .flat_map(|index| drives[index].1.map(|copy| (index, copy)))
            .find_map(|(index, copy)| Self::parse(copy, 0).ok().map(|config| (index, config)))
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for volume in &self.volumes {
            writeln!(f, "volume {} state {}", volume.name, volume.state.name())?;
        }
        for plex in &self.plexes {
            write!(
                f,
                "plex name {} org {} ",
                plex.name,
                plex.organisation.name()
            )?;
            if let Some(strip) = plex.organisation.strip_bytes() {
                write!(f, "{}s ", strip / SECTOR_BYTES)?;
            }
            if let Some(volume) = &plex.volume {
                write!(f, "vol {volume}")?;
            }
            write!(f, " state {}", plex.state.name())?;
            match (plex.growth, plex.end_bytes) {
                (Some(growth), _) => writeln!(f, " {growth}")?,
                (None, Some(end)) => writeln!(f, " # ends at {}s", end / SECTOR_BYTES)?,
                (None, None) => writeln!(f)?,
            }
        }
        for subdisk in &self.subdisks {
            let length = subdisk.length_bytes / SECTOR_BYTES;
            let offset = subdisk.drive_offset_bytes / SECTOR_BYTES;
            write!(
                f,
                "sd name {} drive {} len {length}s",
                subdisk.name, subdisk.drive
            )?;
            write!(f, " driveoffset {offset}s")?;
            if let Some((plex, offset)) = &subdisk.plex {
                write!(f, " plex {plex} plexoffset {}s", offset / SECTOR_BYTES)?;
            }
            writeln!(f, " state {}", subdisk.state.name())?;
        }
        for spare in &self.spares {
            writeln!(f, "drive {spare} hotspare")?;
        }
        Ok(())
    }
}

fn unique<'a>(
    names: impl Iterator<Item = &'a str>,
    place: StructurePlace,
) -> Result<BTreeSet<&'a str>, FormatError> {
    let mut seen = BTreeSet::new();
    for name in names {
        place.check(
            seen.insert(name),
            0,
            "name",
            format!("{name:?} twice"),
            "unique names",
        )?;
    }
    Ok(seen)
}

/// The configuration's lines.
#[must_use]
pub fn describe(config: &Config) -> Vec<Field> {
    let mut list = List::new(STRUCTURE);
    let text = config.to_string();
    list.add(
        "lines",
        Value::List(text.lines().map(Value::from).collect()),
    );
    list.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "volume vr state up\n\
        plex name vr.p0 org raid5 16s vol vr state degraded\n\
        plex name old org concat  state down\n\
        sd name vr.p0.s1 drive d2 len 512s driveoffset 777s plex vr.p0 plexoffset 16s state stale\n\
        sd name lost drive d1 len 8s driveoffset 265s state down\n";

    /// A power cut leaves some sectors of the new copy among those of the old one: never taken for either of them.
    #[test]
    fn a_sealed_copy_that_was_torn_is_refused_although_its_text_makes_sense() {
        let old = Config::parse(EXAMPLE.as_bytes(), 0).unwrap();
        let mut new = old.clone();
        new.subdisks[1].length_bytes += 512 * 10;
        let (old, new) = (old.encode_sealed().unwrap(), new.encode_sealed().unwrap());
        let last = CONFIG_BYTES as usize - 512;
        let torn = [&new[..last], &old[last..]].concat();
        let error = Config::parse(&torn, 4608).unwrap_err().to_string();
        assert!(
            error.contains("seal") && error.contains("at byte 70140"),
            "{error}"
        );
        // gvinum writes over the seal with zeroes: then there is none.
        let plain = [&new[..last], &[0; 512]].concat();
        assert_eq!(Config::parse(&plain, 0).unwrap().encode().unwrap(), plain);
    }

    #[test]
    fn the_text_of_gvinum_is_written_as_it_was_read() {
        let config = Config::parse(EXAMPLE.as_bytes(), 4608).unwrap();
        assert_eq!(config.to_string(), EXAMPLE);
        assert_eq!(
            config.plexes[0].organisation,
            Organisation::Raid5 { strip_bytes: 8192 }
        );
        assert_eq!(config.plexes[1].volume, None);
        assert_eq!(config.subdisks[0].plex, Some(("vr.p0".to_owned(), 8192)));
        assert_eq!(config.subdisks[1].plex, None);
        let bytes = config.encode().unwrap();
        assert_eq!(bytes.len(), 65536);
        assert_eq!(Config::parse(&bytes, 0), Ok(config));
    }

    #[test]
    fn the_text_of_the_original_vinum_is_understood() {
        let text = "# made in 2001\n\
            drive d1 device /dev/da1\n\
            volume v state up readpol prefer v.p0\n\
            plex name v.p0 state flaky org striped 558b vol v preferred \n\
            sd name v.p0.s0 drive d1 plex v.p0 state reborn len 1116b driveoffset 265b plexoffset 0b retryerrors \n\
            sd name v.p0.s1 drive d2 len 1116s driveoffset 265s state crashed detached # gone\n";
        let config = Config::parse(text.as_bytes(), 0).unwrap();
        assert_eq!(config.subdisks[0].state, SubdiskState::Stale);
        assert_eq!(config.subdisks[1].state, SubdiskState::Down);
        assert_eq!(config.plexes[0].organisation.strip_bytes(), Some(558 * 512));
        assert_eq!(config.plexes[0].state, PlexState::Down);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_the_line() {
        for (text, field) in [
            ("volume", "volume"),
            ("volume v state", "state"),
            ("volume v colour", "volume"),
            ("plex name p", "org"),
            ("plex org concat", "plex"),
            ("plex name p org raid3", "org"),
            ("plex name p org striped", "stripe size"),
            ("plex name p org striped 0s", "stripe size"),
            ("plex name p org striped 100", "stripe size"),
            ("plex name p org concat vol v", "volume of a plex"),
            ("sd name s drive d driveoffset 265s", "len"),
            ("sd name s drive d len 0s driveoffset 265s", "len"),
            ("sd name s drive d len -8s driveoffset 265s", "len"),
            (
                "sd name s drive d len 99999999999999999999s driveoffset 265s",
                "len",
            ),
            ("sd name s drive d len 8s", "driveoffset"),
            ("sd name s drive d len 8s driveoffset 264s", "driveoffset"),
            (
                "sd name s drive d len 8s driveoffset 265s plex p",
                "plexoffset",
            ),
            (
                "sd name s drive d len 8s driveoffset 265s plex p plexoffset 0s",
                "plex of a subdisk",
            ),
            ("sd name s len 8s driveoffset 265s", "drive"),
            ("volume v\nvolume v", "name"),
            (
                "sd name a drive d len 9s driveoffset 265s\nsd name b drive d len 8s driveoffset 273s",
                "driveoffset",
            ),
            ("volume \u{1b}", "volume"),
        ] {
            let error = Config::parse(text.as_bytes(), 0).unwrap_err();
            assert_eq!(error.field, field, "{text}: {error}");
        }
        let error = Config::parse(b"volume v\nplex name", 1000).unwrap_err();
        assert_eq!(error.offset_bytes, 1009);
        assert!(Config::parse(b"volume \xff", 0).is_err());
        assert!(Config::parse(&b"drive ".repeat(65), 0).is_err());
    }

    #[test]
    fn a_piece_beyond_the_end_of_its_drive_is_refused() {
        let config = Config::parse(EXAMPLE.as_bytes(), 0).unwrap();
        assert!(config.check_drive("d2", (777 + 512) * 512).is_ok());
        assert!(config.check_drive("d2", (777 + 512) * 512 - 1).is_err());
        assert!(config.check_drive("other", 0).is_ok());
    }

    #[test]
    fn the_newest_drive_that_makes_sense_counts() {
        let header = |updated| DriveHeader::create("h", "d", (updated, 0)).unwrap();
        let (old, new, removed) = (header(1), header(2), header(3));
        let mut removed = removed;
        removed.is_removed = true;
        let (a, b, bad): (&[u8], &[u8], &[u8]) = (b"volume a", b"volume b", b"plex");
        let name = |drives: &[(&DriveHeader, [&[u8]; 2])]| {
            let newest = Config::newest(drives);
            newest.map(|(index, config)| (index, config.volumes[0].name.clone()))
        };
        assert_eq!(
            name(&[(&old, [a, a]), (&new, [b, b])]),
            Some((1, "b".to_owned()))
        );
        assert_eq!(
            name(&[(&old, [a, a]), (&new, [bad, b])]),
            Some((1, "b".to_owned()))
        );
        assert_eq!(
            name(&[(&old, [a, a]), (&new, [bad, bad])]),
            Some((0, "a".to_owned()))
        );
        assert_eq!(
            name(&[(&old, [a, a]), (&removed, [b, b])]),
            Some((0, "a".to_owned()))
        );
        assert_eq!(name(&[]), None);
    }
}
