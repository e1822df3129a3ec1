//! The header of a Vinum drive: its name and when it was last written.
//!
//! Invariants:
//! - numbers of the current format are big-endian whatever the machine; legacy headers are read in the order and width
//!   of the machine that wrote them, and are written back as current ones;
//! - the drive size is not believed: gvinum leaves it 0.
//!
//! Source: freebsd-geom.md section 2.3.

use std::mem::{offset_of, size_of};

use zerocopy::byteorder::big_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::describe::{Field, List};
use crate::error::{FormatError, Problem, StructurePlace, escape_text};
use crate::geom::shown_text;
use crate::kept::Kept;

use super::CONFIG_BYTES;

/// Bytes of the sector with the header.
pub const HEADER_BYTES: usize = 512;
const STRUCTURE: &str = "vinum drive header";
const NAME_BYTES: usize = 32;

const MAGIC: [u8; 8] = *b"VINUM-1\0";
const MAGIC_REMOVED: [u8; 8] = *b"VINUM--\0";
/// What Plexum notes behind the fields that Vinum knows; Vinum writes zeroes there, so the note goes when it saves.
const MARK_WRITING: [u8; 16] = *b"PLEXUM writing\0\0";
const MARK_SETTLED: [u8; 16] = *b"PLEXUM settled\0\0";
const LEGACY: [u8; 8] = *b"IN VINO\0";
const LEGACY_REMOVED: [u8; 8] = *b"NO VINO\0";

/// Current header exactly as on disk, big-endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],         // 0
    config_length: U64,     // 8
    host: [u8; NAME_BYTES], // 16
    name: [u8; NAME_BYTES], // 48
    created_s: U64,         // 80
    created_us: U64,        // 88
    updated_s: U64,         // 96
    updated_us: U64,        // 104
    drive_size: U64,        // 112
    mark: [u8; 16],         // 120, zero unless Plexum wrote last
    rest: [u8; 376],        // 136, zero
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES && offset_of!(RawHeader, rest) == 136);

/// What the last writer left to say about copies and parity. The format itself has no place for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mark {
    /// FreeBSD wrote last: nothing is known.
    #[default]
    Unknown,
    /// Plexum was writing: copies and parity may differ.
    Writing,
    /// Plexum stopped cleanly: copies and parity agree.
    Settled,
}

/// In which of its forms a header was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum HeaderFormat {
    /// Since 2009.
    Current,
    /// The structure of the machine that wrote it.
    Legacy {
        /// Whether its words had 64 bits.
        is_64bit: bool,
        /// Whether its numbers are big-endian.
        is_big_endian: bool,
    },
}

/// The checked header of a drive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DriveHeader {
    /// The form it was found in; it is always written in the current one.
    pub format: HeaderFormat,
    /// The drive was removed from its system: nothing on it counts.
    pub is_removed: bool,
    /// Host that made it.
    pub host: String,
    /// The drive's name, by which the configuration knows it.
    pub name: String,
    /// Creation: seconds and microseconds.
    pub created: (u64, u64),
    /// Last change: seconds and microseconds. The newest drive's configuration counts.
    pub updated: (u64, u64),
    /// Size as recorded, often 0: for display only.
    pub drive_bytes: u64,
    /// What Plexum notes about the last writes.
    pub mark: Mark,
    raw: Kept<HEADER_BYTES>,
}

impl DriveHeader {
    /// Checks the 512 bytes at byte 4096 of a drive (`offset_bytes` says where they were read).
    ///
    /// # Errors
    /// [`Problem::NoMagic`] when this is no Vinum drive, [`Problem::Invalid`] for another configuration length or a
    /// name that cannot be one.
    pub fn parse(bytes: &[u8], offset_bytes: u64) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: offset_bytes,
        };
        let Some(area) = bytes.first_chunk::<HEADER_BYTES>() else {
            let found = format!("{} bytes", bytes.len());
            return Err(place.error(Problem::TooShort, 0, "header", found, "512 bytes"));
        };
        let (magic, _) = area
            .split_first_chunk::<8>()
            .expect("the area has 512 bytes");
        let mut mirrored = *magic;
        mirrored.reverse();
        let header = match (*magic, mirrored) {
            (MAGIC | MAGIC_REMOVED, _) => decode_current(area),
            (LEGACY | LEGACY_REMOVED, _) => decode_legacy(area, false),
            (_, LEGACY | LEGACY_REMOVED) => decode_legacy(area, true),
            _ => {
                let found = escape_text(magic);
                return Err(place.error(Problem::NoMagic, 0, "magic", found, "VINUM-1"));
            }
        };
        let (header, config_length) = header;
        let fits = config_length == CONFIG_BYTES;
        place.check(fits, 8, "configuration length", config_length, CONFIG_BYTES)?;
        let found = format!("{:?}", header.name);
        place.check(
            is_name(&header.name),
            48,
            "drive name",
            found,
            "a name without blanks",
        )?;
        Ok(header)
    }

    /// The 512 bytes in the current format.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = *self.raw;
        let (raw, _) = RawHeader::mut_from_prefix(&mut bytes).expect("512 bytes are a header");
        raw.magic = if self.is_removed {
            MAGIC_REMOVED
        } else {
            MAGIC
        };
        raw.config_length.set(CONFIG_BYTES);
        put_text(&mut raw.host, &self.host);
        put_text(&mut raw.name, &self.name);
        raw.created_s.set(self.created.0);
        raw.created_us.set(self.created.1);
        raw.updated_s.set(self.updated.0);
        raw.updated_us.set(self.updated.1);
        raw.drive_size.set(self.drive_bytes);
        match self.mark {
            Mark::Writing => raw.mark = MARK_WRITING,
            Mark::Settled => raw.mark = MARK_SETTLED,
            Mark::Unknown if mark_of(&raw.mark) != Mark::Unknown => raw.mark = [0; 16],
            Mark::Unknown => {}
        }
        bytes
    }

    /// The header of a new drive.
    ///
    /// # Errors
    /// [`Problem::Request`] when a name does not fit.
    pub fn create(host: &str, name: &str, created: (u64, u64)) -> Result<Self, FormatError> {
        let place = StructurePlace {
            structure: STRUCTURE,
            base_bytes: 0,
        };
        for (text, field, least) in [(host, "host name", 0), (name, "drive name", 1)] {
            let fits = (least..NAME_BYTES).contains(&text.len())
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_graphic() && byte != b'\\');
            if !fits {
                let found = format!("{text:?}");
                let expected = "at most 31 printable letters without blanks";
                return Err(place.error(Problem::Request, 0, field, found, expected));
            }
        }
        Ok(Self {
            format: HeaderFormat::Current,
            is_removed: false,
            host: host.to_owned(),
            name: name.to_owned(),
            created,
            updated: created,
            drive_bytes: 0,
            mark: Mark::Unknown,
            raw: Kept::new([0; HEADER_BYTES]),
        })
    }
}

/// Whether a text can be the name of a drive: no blanks, and nothing that had to be escaped.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains([' ', '\t', '\\'])
}

fn mark_of(bytes: &[u8; 16]) -> Mark {
    match *bytes {
        MARK_WRITING => Mark::Writing,
        MARK_SETTLED => Mark::Settled,
        _ => Mark::Unknown,
    }
}

fn decode_current(area: &[u8; HEADER_BYTES]) -> (DriveHeader, u64) {
    let (raw, _) = RawHeader::ref_from_prefix(area).expect("512 bytes are a header");
    let header = DriveHeader {
        format: HeaderFormat::Current,
        is_removed: raw.magic == MAGIC_REMOVED,
        host: shown_text(&raw.host),
        name: shown_text(&raw.name),
        created: (raw.created_s.get(), raw.created_us.get()),
        updated: (raw.updated_s.get(), raw.updated_us.get()),
        drive_bytes: raw.drive_size.get(),
        mark: mark_of(&raw.mark),
        raw: Kept::new(*area),
    };
    (header, raw.config_length.get())
}

/// Reads the structure of an old machine. The rule that tells the widths apart errs where the host has no name; the
/// drive always has one, so a reading without it gives way to the other.
fn decode_legacy(area: &[u8; HEADER_BYTES], is_big_endian: bool) -> (DriveHeader, u64) {
    let first = is_64bit(area, is_big_endian);
    let candidates = [first, !first].map(|is_64bit| decode_machine(area, is_big_endian, is_64bit));
    let [likely, other] = candidates;
    let is_right = |read: &(DriveHeader, u64)| is_name(&read.0.name) && read.1 == CONFIG_BYTES;
    if !is_right(&likely) && is_right(&other) {
        other
    } else {
        likely
    }
}

/// Source: the table of legacy offsets in freebsd-geom.md section 2.3.
fn decode_machine(
    area: &[u8; HEADER_BYTES],
    is_big_endian: bool,
    is_64bit: bool,
) -> (DriveHeader, u64) {
    let word = |offset: usize, width: usize| -> u64 {
        let bytes = area[offset..offset + width].iter();
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if is_big_endian {
            bytes.fold(0, push)
        } else {
            bytes.rev().fold(0, push)
        }
    };
    let (width, times, size) = if is_64bit { (8, 80, 112) } else { (4, 76, 92) };
    // A length of 4 bytes padded to 8 reads as 65536 << 32 in a big-endian machine: take the half that is used.
    let length = word(8, width);
    let length = if length == CONFIG_BYTES << 32 {
        CONFIG_BYTES
    } else {
        length
    };
    let names = 8 + width;
    let time = |index: usize| word(times + index * width, width);
    let is_removed = area[..8] == LEGACY_REMOVED || area[..8].iter().rev().eq(&LEGACY_REMOVED);
    let header = DriveHeader {
        format: HeaderFormat::Legacy {
            is_64bit,
            is_big_endian,
        },
        is_removed,
        host: shown_text(&area[names..names + NAME_BYTES]),
        name: shown_text(&area[names + NAME_BYTES..names + 2 * NAME_BYTES]),
        created: (time(0), time(1)),
        updated: (time(2), time(3)),
        drive_bytes: word(size, 8),
        mark: Mark::Unknown,
        raw: Kept::new([0; HEADER_BYTES]), // the current format has nothing in common with it
    };
    (header, length)
}

/// How wide the words of the machine were. Source: freebsd-geom.md section 2.3, telling 32 from 64 bits.
fn is_64bit(area: &[u8; HEADER_BYTES], is_big_endian: bool) -> bool {
    let has = |from: usize, to: usize| area[from..to].iter().any(|byte| *byte != 0);
    if is_big_endian {
        let is_short = area[8..12] == (CONFIG_BYTES as u32).to_be_bytes();
        return !is_short || (!has(12, 16) && has(16, 17));
    }
    if has(12, 16) {
        false
    } else if has(16, 17) {
        true
    } else if has(100, 120) {
        false
    } else {
        !has(84, 88)
    }
}

/// Writes a text unless it already stands there; what is behind its NUL is kept then.
fn put_text(field: &mut [u8; NAME_BYTES], text: &str) {
    if shown_text(field) == text {
        return;
    }
    let length = text.len().min(NAME_BYTES - 1);
    field.fill(0);
    field[..length].copy_from_slice(&text.as_bytes()[..length]);
}

/// Everything a header says.
#[must_use]
pub fn describe(header: &DriveHeader) -> Vec<Field> {
    let mut list = List::new(STRUCTURE);
    let variant = match header.format {
        HeaderFormat::Current => "current",
        HeaderFormat::Legacy {
            is_64bit: false, ..
        } => "legacy 32 bits",
        HeaderFormat::Legacy { is_64bit: true, .. } => "legacy 64 bits",
    };
    list.add("variant", variant);
    list.add("drive", header.name.as_str());
    list.add("host", header.host.as_str());
    list.add("is_removed", header.is_removed);
    list.add("created_s", header.created.0);
    list.add("created_us", header.created.1);
    list.add("updated_s", header.updated.0);
    list.add("updated_us", header.updated.1);
    list.add(
        "drive_bytes",
        Some(header.drive_bytes).filter(|size| *size != 0),
    );
    list.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A legacy header of a machine: width of a word, byte order.
    fn legacy(width: usize, is_big_endian: bool, host: &str) -> [u8; HEADER_BYTES] {
        let mut area = [0; HEADER_BYTES];
        area[..8].copy_from_slice(&LEGACY);
        if is_big_endian {
            area[..8].reverse();
        }
        let times = if width == 8 { 80 } else { 76 };
        let mut put = |offset: usize, value: u64| {
            let bytes = &mut area[offset..offset + width];
            if is_big_endian {
                bytes.copy_from_slice(&value.to_be_bytes()[8 - width..]);
            } else {
                bytes.copy_from_slice(&value.to_le_bytes()[..width]);
            }
        };
        put(8, CONFIG_BYTES);
        for (index, value) in [1_000_000_000, 7, 1_000_000_100, 8].into_iter().enumerate() {
            put(times + index * width, value);
        }
        area[8 + width..8 + width + host.len()].copy_from_slice(host.as_bytes());
        area[40 + width..44 + width].copy_from_slice(b"drv0");
        area
    }

    #[test]
    fn legacy_headers_of_every_machine_are_told_apart() {
        for (width, is_big_endian) in [(4, false), (8, false), (4, true), (8, true)] {
            let header = DriveHeader::parse(&legacy(width, is_big_endian, "host"), 4096).unwrap();
            let is_64bit = width == 8;
            assert_eq!(
                header.format,
                HeaderFormat::Legacy {
                    is_64bit,
                    is_big_endian
                }
            );
            assert_eq!(
                (header.host.as_str(), header.name.as_str()),
                ("host", "drv0")
            );
            assert_eq!(header.created, (1_000_000_000, 7));
            assert_eq!(header.updated, (1_000_000_100, 8));
            assert!(!header.is_removed);
            let written = DriveHeader::parse(&header.encode(), 4096).unwrap();
            assert_eq!(written.format, HeaderFormat::Current);
            assert_eq!(
                (written.name, written.updated),
                (header.name, header.updated)
            );
        }
    }

    #[test]
    fn hosts_without_a_name_do_not_confuse_little_endian_machines() {
        for (width, is_64bit) in [(4, false), (8, true)] {
            let header = DriveHeader::parse(&legacy(width, false, ""), 4096).unwrap();
            assert_eq!(
                header.format,
                HeaderFormat::Legacy {
                    is_64bit,
                    is_big_endian: false
                }
            );
        }
    }

    #[test]
    fn a_new_header_reads_back_and_removal_is_a_mark() {
        let mut header = DriveHeader::create("host", "drv7", (5, 6)).unwrap();
        let read = DriveHeader::parse(&header.encode(), 4096).unwrap();
        assert_eq!((read.name.as_str(), read.created), ("drv7", (5, 6)));
        header.is_removed = true;
        assert!(
            DriveHeader::parse(&header.encode(), 4096)
                .unwrap()
                .is_removed
        );
        for name in ["", "a b", "a name of thirty-two letters, sad"] {
            assert_eq!(
                DriveHeader::create("host", name, (0, 0)).unwrap_err().field,
                "drive name"
            );
        }
    }

    #[test]
    fn the_note_about_the_last_writes_comes_and_goes() {
        let mut header = DriveHeader::create("host", "drv7", (5, 6)).unwrap();
        let plain = header.encode();
        for mark in [Mark::Writing, Mark::Settled, Mark::Unknown] {
            header.mark = mark;
            header = DriveHeader::parse(&header.encode(), 4096).unwrap();
            assert_eq!(header.mark, mark);
        }
        assert_eq!(header.encode(), plain);
    }

    #[test]
    fn damage_is_refused_with_the_field() {
        let good = DriveHeader::create("host", "drv7", (5, 6))
            .unwrap()
            .encode();
        for (offset, byte, field) in [
            (0, b'X', "magic"),
            (13, 2, "configuration length"),
            (48, 0, "drive name"),
        ] {
            let mut bad = good;
            bad[offset] = byte;
            assert_eq!(DriveHeader::parse(&bad, 4096).unwrap_err().field, field);
        }
    }
}
