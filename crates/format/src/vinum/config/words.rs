//! One line of a configuration, word by word.

use std::fmt;

use crate::error::{FormatError, Problem, StructurePlace};
use crate::units::SECTOR_BYTES;

use super::super::script::unit_bytes;
use super::super::{DATA_OFFSET_BYTES, Growth};

use super::{
    MAX_NAME, MAX_SIZE_BYTES, Organisation, Plex, PlexState, Subdisk, SubdiskState, Volume,
    VolumeState,
};

/// The note of a growth in the comment of a line.
pub(super) fn growth(
    comment: &[&str],
    place: StructurePlace,
) -> Result<Option<Growth>, FormatError> {
    let text = comment.join(" ");
    let words: Vec<&str> = text.trim_start_matches('#').split_whitespace().collect();
    let parsed = Growth::parse(&words).transpose();
    parsed.map_err(|()| {
        let expected = "grows from N at Ns backup Ns";
        place.error(Problem::Invalid, 0, "growth", text, expected)
    })
}

/// The note of where the places of a plex end, in the comment of a line.
pub(super) fn end(comment: &[&str], place: StructurePlace) -> Result<Option<u64>, FormatError> {
    let text = comment.join(" ");
    let words: Vec<&str> = text.trim_start_matches('#').split_whitespace().collect();
    let ["ends", rest @ ..] = words.as_slice() else {
        return Ok(None);
    };
    let sectors = match rest {
        ["at", number] => number
            .strip_suffix('s')
            .and_then(|digits| digits.parse::<u64>().ok()),
        _ => None,
    };
    let bytes = sectors.and_then(|number| number.checked_mul(SECTOR_BYTES));
    let bytes = bytes.filter(|bytes| *bytes <= MAX_SIZE_BYTES);
    let wrong = || place.error(Problem::Invalid, 0, "end", text.clone(), "ends at Ns");
    bytes.map(Some).ok_or_else(wrong)
}

/// The words of a line behind its first.
pub(super) struct Words<'a> {
    pub(super) words: std::vec::IntoIter<&'a str>,
    pub(super) place: StructurePlace,
}

impl<'a> Words<'a> {
    fn wrong(&self, field: &'static str, found: impl fmt::Debug, expected: &str) -> FormatError {
        self.place
            .error(Problem::Invalid, 0, field, format!("{found:?}"), expected)
    }

    fn value(&mut self, field: &'static str) -> Result<&'a str, FormatError> {
        self.words
            .next()
            .ok_or_else(|| self.wrong(field, "nothing", "a value"))
    }

    pub(super) fn name(&mut self, field: &'static str) -> Result<String, FormatError> {
        let name = self.value(field)?;
        let fits = name.len() <= MAX_NAME && name.bytes().all(|byte| byte.is_ascii_graphic());
        if fits {
            Ok(name.to_owned())
        } else {
            Err(self.wrong(field, name, "at most 63 printable letters"))
        }
    }

    /// A size in bytes: digits with s or b (sectors), k, m, g, or none of them.
    fn size(&mut self, field: &'static str) -> Result<u64, FormatError> {
        let text = self.value(field)?;
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = unit_bytes(&text[digits.len()..]);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse::<u64>().ok().filter(|_| is_number);
        let size = number
            .zip(unit)
            .and_then(|(number, unit)| number.checked_mul(unit));
        let is_right = |size: &u64| size.is_multiple_of(SECTOR_BYTES) && *size <= MAX_SIZE_BYTES;
        let expected = "whole sectors, such as 32s";
        size.filter(is_right)
            .ok_or_else(|| self.wrong(field, text, expected))
    }

    /// Takes the values of words that nobody needs any more; says whether `word` was one.
    fn skip_old(&mut self, word: &str) -> Result<bool, FormatError> {
        match word {
            "detached" | "retryerrors" | "preferred" | "setupstate" | "hotspare" => Ok(true),
            "readpol" => {
                if self.value("readpol")? == "prefer" {
                    self.value("readpol prefer")?;
                }
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    pub(super) fn volume(mut self) -> Result<Volume, FormatError> {
        let name = self.name("volume")?;
        let mut state = VolumeState::Down;
        while let Some(word) = self.words.next() {
            match word {
                "state" => {
                    state = VolumeState::known(self.value("state")?).unwrap_or(VolumeState::Down);
                }
                _ if self.skip_old(word)? => {}
                _ => return Err(self.wrong("volume", word, "state")),
            }
        }
        Ok(Volume { name, state })
    }

    pub(super) fn plex(mut self) -> Result<Plex, FormatError> {
        let (mut name, mut organisation, mut volume) = (None, None, None);
        let mut state = PlexState::Down;
        while let Some(word) = self.words.next() {
            match word {
                "name" => name = Some(self.name("name")?),
                "org" => organisation = Some(self.organisation()?),
                "vol" | "volume" => volume = Some(self.name("vol")?),
                "state" => {
                    state = PlexState::known(self.value("state")?).unwrap_or(PlexState::Down);
                }
                _ if self.skip_old(word)? => {}
                _ => return Err(self.wrong("plex", word, "name, org, vol or state")),
            }
        }
        let name = name.ok_or_else(|| self.wrong("plex", "no name", "a name"))?;
        let organisation =
            organisation.ok_or_else(|| self.wrong("org", "nothing", "concat, striped or raid5"))?;
        Ok(Plex {
            name,
            organisation,
            volume,
            state,
            growth: None,
            end_bytes: None,
        })
    }

    fn organisation(&mut self) -> Result<Organisation, FormatError> {
        let word = self.value("org")?;
        if word == "concat" {
            return Ok(Organisation::Concat);
        }
        let is_known = matches!(word, "striped" | "raid5" | "raid4");
        if !is_known {
            return Err(self.wrong("org", word, "concat, striped or raid5"));
        }
        let strip_bytes = self.size("stripe size")?;
        if strip_bytes == 0 {
            return Err(self.wrong("stripe size", 0, "at least one sector"));
        }
        Ok(match word {
            "striped" => Organisation::Striped { strip_bytes },
            "raid5" => Organisation::Raid5 { strip_bytes },
            _ => Organisation::Raid4 { strip_bytes },
        })
    }

    pub(super) fn subdisk(mut self) -> Result<Subdisk, FormatError> {
        let (mut name, mut drive, mut length) = (None, None, None);
        let (mut drive_offset, mut plex, mut plex_offset) = (None, None, None);
        let mut state = SubdiskState::Down;
        while let Some(word) = self.words.next() {
            match word {
                "name" => name = Some(self.name("name")?),
                "drive" => drive = Some(self.name("drive")?),
                "plex" => plex = Some(self.name("plex")?),
                "len" | "length" => length = Some(self.size("len")?),
                "driveoffset" => drive_offset = Some(self.size("driveoffset")?),
                "plexoffset" => plex_offset = Some(self.size("plexoffset")?),
                "state" => state = SubdiskState::of(self.value("state")?),
                _ if self.skip_old(word)? => {}
                _ => return Err(self.wrong("sd", word, "a keyword of a subdisk")),
            }
        }
        let name = name.ok_or_else(|| self.wrong("sd", "no name", "a name"))?;
        let drive = drive.ok_or_else(|| self.wrong("drive", "nothing", "a drive"))?;
        let length = length.filter(|length| *length > 0);
        let length_bytes =
            length.ok_or_else(|| self.wrong("len", "nothing", "a length above 0"))?;
        let offset = drive_offset.filter(|offset| *offset >= DATA_OFFSET_BYTES);
        let drive_offset_bytes = offset.ok_or_else(|| {
            self.wrong(
                "driveoffset",
                drive_offset,
                "at least 265s, behind the configuration",
            )
        })?;
        let plex = match (plex, plex_offset) {
            (None, _) => None,
            (Some(plex), Some(offset)) => Some((plex, offset)),
            (Some(_), None) => return Err(self.wrong("plexoffset", "nothing", "an offset")),
        };
        Ok(Subdisk {
            name,
            drive,
            length_bytes,
            drive_offset_bytes,
            plex,
            state,
        })
    }
}
