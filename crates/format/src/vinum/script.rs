//! The configuration that people write: drives, volumes, plexes and subdisks, one a line.
//!
//! Invariants:
//! - a file is taken as a whole or not at all, and every line that cannot be understood is reported with its place;
//! - nothing is guessed: an unknown word is an error, not a name, and garbage is no number.
//!
//! Source: freebsd-geom.md section 2.5, without the quirks it names.

use std::fmt;

use crate::units::SECTOR_BYTES;

use super::{DATA_OFFSET_BYTES, Organisation};

/// Longest text that is read.
pub const SCRIPT_BYTES_MAX: usize = 1 << 20;
/// Most errors that are reported one by one.
const ERRORS_MAX: usize = 20;
/// Letters of a drive's name.
const DRIVE_NAME_MAX: usize = 31;
/// Letters of any other name.
const NAME_MAX: usize = 63;
/// Largest size that is taken, so that sums of them cannot overflow.
const SIZE_BYTES_MAX: u64 = 1 << 60;

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptDrive {
    /// Its name.
    pub name: String,
    /// The device or file.
    pub device: String,
    /// A spare for whoever fails.
    pub is_hot_spare: bool,
    /// Line in the text, from 1.
    pub line: usize,
}

/// How a volume reads its plexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadPolicy {
    /// In turn.
    Round,
    /// This one first.
    Prefer(String),
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptVolume {
    /// Its name.
    pub name: String,
    /// All plexes of the new volume count as consistent.
    pub is_setup: bool,
    /// How its plexes are read.
    pub read_policy: ReadPolicy,
    /// Line in the text, from 1.
    pub line: usize,
}

/// A plex, with the names that were given or follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptPlex {
    /// Its name.
    pub name: String,
    /// How it lays out its addresses.
    pub organisation: Organisation,
    /// Its volume.
    pub volume: String,
    /// Line in the text, from 1.
    pub line: usize,
}

/// A subdisk, with the names that were given or follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptSubdisk {
    /// Its name.
    pub name: String,
    /// Its size; `None`: the largest free area of the drive.
    pub length_bytes: Option<u64>,
    /// The drive it is on.
    pub drive: String,
    /// Its plex.
    pub plex: String,
    /// Where it begins on the drive; `None`: the first area that is large enough.
    pub drive_offset_bytes: Option<u64>,
    /// Where it begins in the plex; `None`: behind the others.
    pub plex_offset_bytes: Option<u64>,
    /// Line in the text, from 1.
    pub line: usize,
}

/// What a text asks for, in its order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Script {
    /// Drives.
    pub drives: Vec<ScriptDrive>,
    /// Volumes.
    pub volumes: Vec<ScriptVolume>,
    /// Plexes.
    pub plexes: Vec<ScriptPlex>,
    /// Subdisks.
    pub subdisks: Vec<ScriptSubdisk>,
}

/// A place in the text that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptError {
    /// Line, from 1.
    pub line: usize,
    /// The line, printable.
    pub text: String,
    /// Letters before the place, and letters of the place (at least one is marked).
    pub place: (usize, usize),
    /// What is wrong, and what was expected.
    pub message: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, length) = self.place;
        let marks = "^".repeat(length.max(1));
        writeln!(f, "line {}: {}", self.line, self.message)?;
        writeln!(f, "  {}", self.text)?;
        write!(f, "  {}{marks}", " ".repeat(before))
    }
}

impl std::error::Error for ScriptError {}

/// A word with its place in the line, in letters.
#[derive(Clone, Copy)]
struct Word<'a> {
    text: &'a str,
    at: usize,
}

/// A line that is being read.
struct Line<'a> {
    number: usize,
    shown: String,
    words: std::vec::IntoIter<Word<'a>>,
    end: usize,
}

type Result<T> = std::result::Result<T, ScriptError>;

impl Script {
    /// Reads a text.
    ///
    /// # Errors
    /// Every line that cannot be understood, in order (of very many the first ones).
    pub fn parse(text: &[u8]) -> std::result::Result<Self, Vec<ScriptError>> {
        let whole = |message: String| {
            vec![ScriptError {
                line: 1,
                text: String::new(),
                place: (0, 1),
                message,
            }]
        };
        if text.len() > SCRIPT_BYTES_MAX {
            let size = text.len();
            return Err(whole(format!(
                "the text has {size} bytes, at most {SCRIPT_BYTES_MAX} are read"
            )));
        }
        let mut script = Self::default();
        let mut errors = Vec::new();
        let mut names = Names::default();
        for (number, bytes) in (1..).zip(text.split(|byte| *byte == b'\n')) {
            if let Err(error) = script.add_line(number, bytes, &mut names) {
                errors.push(error);
            }
            if errors.len() == ERRORS_MAX {
                break;
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(script)
    }

    fn add_line(&mut self, number: usize, bytes: &[u8], names: &mut Names) -> Result<()> {
        let Some(mut line) = Line::new(number, bytes)? else {
            return Ok(());
        };
        let Some(first) = line.words.next() else {
            return Ok(());
        };
        match first.text {
            "drive" => {
                let drive = line.drive()?;
                names.drive = Some(drive.name.clone());
                self.drives.push(drive);
            }
            "volume" => {
                let volume = line.volume()?;
                names.volume = Some(volume.name.clone());
                names.plex_count = 0;
                names.plex = None;
                self.volumes.push(volume);
            }
            "plex" => {
                let plex = line.plex(names)?;
                names.plex = Some(plex.name.clone());
                names.subdisk_count = 0;
                self.plexes.push(plex);
            }
            "sd" | "subdisk" => self.subdisks.push(line.subdisk(names)?),
            _ => {
                return Err(line.wrong(first, "expected drive, volume, plex or sd"));
            }
        }
        Ok(())
    }
}

/// What names without a name follow from.
#[derive(Default)]
struct Names {
    drive: Option<String>,
    volume: Option<String>,
    plex_count: usize,
    plex: Option<String>,
    subdisk_count: usize,
}

impl<'a> Line<'a> {
    /// The words of a line; `None` for one without any.
    fn new(number: usize, bytes: &'a [u8]) -> Result<Option<Self>> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            let start = bytes
                .utf8_chunks()
                .next()
                .map_or(0, |chunk| chunk.valid().chars().count());
            return Err(ScriptError {
                line: number,
                text: shorten(&String::from_utf8_lossy(bytes)),
                place: (start.min(SHOWN_MAX), 1),
                message: "this is no text".to_owned(),
            });
        };
        let text = text.strip_suffix('\r').unwrap_or(text);
        let mut words = Vec::new();
        let mut at = 0;
        let mut rest = text;
        while let Some(start) = rest.find(|letter: char| letter != ' ' && letter != '\t') {
            at += rest[..start].chars().count();
            rest = &rest[start..];
            if rest.starts_with('#') {
                break;
            }
            let end = rest.find([' ', '\t']).unwrap_or(rest.len());
            words.push(Word {
                text: &rest[..end],
                at,
            });
            at += rest[..end].chars().count();
            rest = &rest[end..];
        }
        if words.is_empty() {
            return Ok(None);
        }
        let end = words
            .last()
            .map_or(0, |word| word.at + word.text.chars().count());
        Ok(Some(Self {
            number,
            shown: shorten(text),
            words: words.into_iter(),
            end,
        }))
    }

    fn wrong(&self, word: Word<'_>, message: impl Into<String>) -> ScriptError {
        let shown: String = word.text.chars().take(40).collect();
        ScriptError {
            line: self.number,
            text: self.shown.clone(),
            place: (word.at.min(SHOWN_MAX), word.text.chars().count().min(40)),
            message: format!("{:?}: {}", shown, message.into()),
        }
    }

    fn lacks(&self, what: &str) -> ScriptError {
        ScriptError {
            line: self.number,
            text: self.shown.clone(),
            place: ((self.end + 1).min(SHOWN_MAX), 1),
            message: format!("expected {what} here"),
        }
    }

    fn value(&mut self, what: &str) -> Result<Word<'a>> {
        match self.words.next() {
            Some(word) => Ok(word),
            None => Err(self.lacks(what)),
        }
    }

    fn name(&mut self, what: &str, longest: usize) -> Result<String> {
        let word = self.value(what)?;
        let fits = word.text.len() <= longest
            && word
                .text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b'\\');
        if fits {
            Ok(word.text.to_owned())
        } else {
            Err(self.wrong(
                word,
                format!("expected {what}: at most {longest} letters, no slash"),
            ))
        }
    }

    /// A size with its sign: digits with s or b (sectors), k, m, g, or bytes.
    fn size(&mut self, what: &str) -> Result<(u64, bool, Word<'a>)> {
        let word = self.value(what)?;
        let (text, is_negative) = match word.text.strip_prefix('-') {
            Some(text) => (text, true),
            None => (word.text, false),
        };
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let unit = unit_bytes(&text[digits.len()..]);
        let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.parse::<u64>().ok().filter(|_| is_number);
        let bytes = number
            .zip(unit)
            .and_then(|(number, unit)| number.checked_mul(unit));
        let Some(bytes) = bytes.filter(|bytes| *bytes <= SIZE_BYTES_MAX) else {
            return Err(self.wrong(word, format!("expected {what}, such as 100m, 512k or 32s")));
        };
        if !is_negative && !bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(self.wrong(word, "expected whole sectors of 512 bytes"));
        }
        Ok((bytes, is_negative, word))
    }

    fn end(&mut self, known: &str) -> Result<()> {
        match self.words.next() {
            None => Ok(()),
            Some(word) => Err(self.wrong(word, format!("expected {known} or the end of the line"))),
        }
    }

    fn drive(mut self) -> Result<ScriptDrive> {
        let name = self.name("the name of a drive", DRIVE_NAME_MAX)?;
        let (mut device, mut is_hot_spare) = (None, false);
        while let Some(word) = self.words.next() {
            match word.text {
                "device" if device.is_none() => {
                    device = Some(self.value("a device or a file")?.text.to_owned());
                }
                "hotspare" => is_hot_spare = true,
                _ => return Err(self.wrong(word, "expected device or hotspare")),
            }
        }
        let device = device.ok_or_else(|| self.lacks("device DEVICE"))?;
        Ok(ScriptDrive {
            name,
            device,
            is_hot_spare,
            line: self.number,
        })
    }

    fn volume(mut self) -> Result<ScriptVolume> {
        let name = self.name("the name of a volume", NAME_MAX)?;
        let (mut is_setup, mut read_policy) = (false, ReadPolicy::Round);
        while let Some(word) = self.words.next() {
            match word.text {
                "setupstate" => is_setup = true,
                "readpol" => {
                    let policy = self.value("round or prefer")?;
                    read_policy = match policy.text {
                        "round" => ReadPolicy::Round,
                        "prefer" => ReadPolicy::Prefer(self.name("the name of a plex", NAME_MAX)?),
                        _ => return Err(self.wrong(policy, "expected round or prefer PLEX")),
                    };
                }
                _ => return Err(self.wrong(word, "expected setupstate or readpol")),
            }
        }
        Ok(ScriptVolume {
            name,
            is_setup,
            read_policy,
            line: self.number,
        })
    }

    fn plex(mut self, names: &mut Names) -> Result<ScriptPlex> {
        let (mut name, mut organisation, mut volume) = (None, None, None);
        while let Some(word) = self.words.next() {
            match word.text {
                "name" => name = Some(self.name("the name of a plex", NAME_MAX)?),
                "org" => organisation = Some(self.organisation()?),
                "vol" | "volume" => volume = Some(self.name("the name of a volume", NAME_MAX)?),
                _ => return Err(self.wrong(word, "expected name, org or volume")),
            }
        }
        let organisation =
            organisation.ok_or_else(|| self.lacks("org concat, striped, raid5 or raid4"))?;
        let follows = names.volume.clone();
        let volume = volume
            .or(follows)
            .ok_or_else(|| self.lacks("volume NAME (no volume line stands above)"))?;
        let name = name.unwrap_or_else(|| format!("{volume}.p{}", names.plex_count));
        names.plex_count += 1;
        Ok(ScriptPlex {
            name,
            organisation,
            volume,
            line: self.number,
        })
    }

    fn organisation(&mut self) -> Result<Organisation> {
        let known = "concat, striped, raid5 or raid4";
        let word = self.value(known)?;
        if word.text == "concat" {
            return Ok(Organisation::Concat);
        }
        if !matches!(word.text, "striped" | "raid5" | "raid4") {
            return Err(self.wrong(word, format!("expected {known}")));
        }
        let (strip_bytes, is_negative, place) = self.size("a stripe size")?;
        if strip_bytes == 0 || is_negative {
            return Err(self.wrong(place, "expected a stripe size above 0"));
        }
        Ok(match word.text {
            "striped" => Organisation::Striped { strip_bytes },
            "raid5" => Organisation::Raid5 { strip_bytes },
            _ => Organisation::Raid4 { strip_bytes },
        })
    }

    fn subdisk(mut self, names: &mut Names) -> Result<ScriptSubdisk> {
        let (mut name, mut length, mut drive, mut plex) = (None, None, None, None);
        let (mut drive_offset, mut plex_offset) = (None, None);
        while let Some(word) = self.words.next() {
            match word.text {
                "name" => name = Some(self.name("the name of a subdisk", NAME_MAX)?),
                "drive" => drive = Some(self.name("the name of a drive", DRIVE_NAME_MAX)?),
                "plex" => plex = Some(self.name("the name of a plex", NAME_MAX)?),
                "len" | "length" | "size" => {
                    let (bytes, is_negative, _) = self.size("a length")?;
                    length = Some(bytes).filter(|bytes| *bytes > 0 && !is_negative);
                }
                "driveoffset" => {
                    let (bytes, is_negative, place) = self.size("an offset on the drive")?;
                    if is_negative || (bytes > 0 && bytes < DATA_OFFSET_BYTES) {
                        return Err(self.wrong(
                            place,
                            "expected 0 or at least 265s: the configuration stands before",
                        ));
                    }
                    drive_offset = Some(bytes).filter(|bytes| *bytes > 0);
                }
                "plexoffset" => {
                    let (bytes, is_negative, place) = self.size("an offset in the plex")?;
                    if is_negative {
                        return Err(self.wrong(place, "expected an offset that is not negative"));
                    }
                    plex_offset = Some(bytes);
                }
                "retryerrors" => {}
                _ => {
                    let known = "expected name, length, drive, plex, driveoffset or plexoffset";
                    return Err(self.wrong(word, known));
                }
            }
        }
        let follows = names.drive.clone();
        let drive = drive.or(follows);
        let drive = drive.ok_or_else(|| self.lacks("drive NAME (no drive line stands above)"))?;
        self.end("nothing")?;
        let follows = names.plex.clone();
        let plex = plex.or(follows);
        let plex = plex.ok_or_else(|| self.lacks("plex NAME (no plex line stands above)"))?;
        // Named and counted after the last plex line, also for one that names another plex.
        let above = names.plex.as_ref().unwrap_or(&plex);
        let name = name.unwrap_or_else(|| format!("{above}.s{}", names.subdisk_count));
        names.subdisk_count += 1;
        Ok(ScriptSubdisk {
            name,
            length_bytes: length,
            drive,
            plex,
            drive_offset_bytes: drive_offset,
            plex_offset_bytes: plex_offset,
            line: self.number,
        })
    }
}

/// What the letters behind a number stand for: the first one counts, as in `kb`.
pub(super) fn unit_bytes(letters: &str) -> Option<u64> {
    match letters
        .chars()
        .next()
        .map(|first| first.to_ascii_lowercase())
    {
        None => Some(1),
        Some('s' | 'b') => Some(SECTOR_BYTES),
        Some('k') => Some(1 << 10),
        Some('m') => Some(1 << 20),
        Some('g') => Some(1 << 30),
        Some(_) => None,
    }
}

/// Letters of a line that are shown.
const SHOWN_MAX: usize = 160;

/// A line as it can be shown: blanks for tabs, so that marks stand below their place.
fn shorten(text: &str) -> String {
    let shown = text.chars().take(SHOWN_MAX);
    shown
        .map(|letter| if letter.is_control() { ' ' } else { letter })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Script::parse(text.as_bytes()).unwrap_err()[0].to_string()
    }

    #[test]
    fn the_place_is_marked_and_the_expectation_named() {
        assert_eq!(
            error(
                "drive d0 device /dev/da0\nvolume a\n plex org concat\n  sd length 8k drive d0 colour red\n"
            ),
            "line 4: \"colour\": expected name, length, drive, plex, driveoffset or plexoffset\n    \
             sd length 8k drive d0 colour red\n                          ^^^^^^"
        );
        assert_eq!(
            error("volume a\n plex org striped"),
            "line 2: expected a stripe size here\n   plex org striped\n                    ^"
        );
        for (text, expected) in [
            ("disk d0", "expected drive, volume, plex or sd"),
            ("drive d0", "expected device DEVICE here"),
            ("volume s64 setup", "expected setupstate or readpol"),
            ("plex org concat", "no volume line stands above"),
            (
                "volume a\nsd length 1k drive d",
                "no plex line stands above",
            ),
            (
                "volume a\nplex org raid6 8k",
                "expected concat, striped, raid5 or raid4",
            ),
            ("volume a\nplex org raid5 0", "above 0"),
            (
                "volume a\nplex org concat\nsd length 1x drive d",
                "such as 100m",
            ),
            (
                "volume a\nplex org concat\nsd length 100 drive d",
                "whole sectors",
            ),
            (
                "volume a\nplex org concat\nsd length 99999999999g drive d",
                "such as 100m",
            ),
            (
                "volume a\nplex org concat\nsd driveoffset 100s drive d",
                "at least 265s",
            ),
            ("volume a/b", "no slash"),
            (
                "drive a-name-of-more-than-thirty-one-letters device x",
                "at most 31",
            ),
        ] {
            let found = error(text);
            assert!(found.contains(expected), "{text:?}: {found}");
        }
    }

    #[test]
    fn the_first_letter_behind_a_number_is_its_unit() {
        for (text, bytes) in [
            ("1025kb", 1025 << 10),
            ("3MB", 3 << 20),
            ("2Gbytes", 2 << 30),
            ("8sectors", 4096),
            ("8b", 4096),
            ("1024", 1024),
        ] {
            for word in ["length", "len", "size"] {
                let script =
                    format!("drive a device x\nvolume v\nplex org concat\nsd {word} {text}\n");
                let script = Script::parse(script.as_bytes()).unwrap();
                assert_eq!(script.subdisks[0].length_bytes, Some(bytes), "{text}");
            }
        }
        assert!(error("volume v\nplex org concat\nsd size 1tb drive a").contains("such as 100m"));
    }

    #[test]
    fn a_subdisk_without_a_drive_is_on_the_one_of_the_last_drive_line() {
        let text = b"drive a device x\ndrive b device y\nvolume v\nplex org concat\n\
            sd length 1m\nsd length 1m drive a\nsd length 1m\n";
        let script = Script::parse(text).unwrap();
        let drives: Vec<&str> = script
            .subdisks
            .iter()
            .map(|one| one.drive.as_str())
            .collect();
        assert_eq!(drives, ["b", "a", "b"]);
        assert!(
            error("volume v\nplex org concat\nsd length 1m").contains("no drive line stands above")
        );
    }

    #[test]
    fn a_file_without_a_last_newline_keeps_its_last_letter() {
        let script = Script::parse(b"drive d0 device /dev/da0").unwrap();
        assert_eq!(script.drives[0].device, "/dev/da0");
    }

    #[test]
    fn classic_words_mean_what_they_meant() {
        let text = b"drive a device x hotspare\nvolume s64 setupstate readpol prefer s64.p1\n\
            \tplex org concat # one\r\n  sd drive a length -1\n";
        let script = Script::parse(text).unwrap();
        assert!(script.drives[0].is_hot_spare);
        let volume = &script.volumes[0];
        assert_eq!((volume.name.as_str(), volume.is_setup), ("s64", true));
        assert_eq!(volume.read_policy, ReadPolicy::Prefer("s64.p1".into()));
        assert_eq!(script.subdisks[0].length_bytes, None);
        assert_eq!(script.subdisks[0].name, "s64.p0.s0");
    }

    #[test]
    fn garbage_is_refused_with_few_words() {
        let mut state = 7_u64;
        let garbage: Vec<u8> = std::iter::repeat_with(|| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) as u8
        })
        .take(128 << 10)
        .collect();
        let errors = Script::parse(&garbage).unwrap_err();
        assert!(errors.len() <= ERRORS_MAX);
        for error in errors {
            assert!(error.to_string().len() < 1500);
        }
        let words = "sd ".repeat(50_000);
        assert_eq!(Script::parse(words.as_bytes()).unwrap_err().len(), 1);
        assert_eq!(
            Script::parse(&vec![b' '; SCRIPT_BYTES_MAX + 1])
                .unwrap_err()
                .len(),
            1
        );
    }
}
