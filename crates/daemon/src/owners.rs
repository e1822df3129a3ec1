//! Who owns the bytes of a member (W15): which sets claim them, which lie in its partitions, and which one is meant.
//!
//! Invariants:
//! - what lies in a partition of a disk is the partition's, never the disk's;
//! - where several sets claim the same bytes, nothing is opened to be served until the user has said which is meant;
//! - nothing is written here.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_block::wait::join_all;
use plexum_format::md::{MdVersion, level_name};
use plexum_format::partition::{Partition, TABLE_BYTES, look_at, within};
use plexum_format::zfs::label::{PoolState, roots};
use plexum_format::{Container, Detection, Found, SECTOR_BYTES, detect};

use crate::date::show_time;
use crate::foreign::Kind;
use crate::inspect::read_unaligned;
use crate::open::{AnyDevice, MemberWord, find_partition};
use crate::problem::{Code, Problem};
use crate::zfs::member_at;

/// A format that a set can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Linux md with this version of superblock.
    Md(MdVersion),
    /// One of FreeBSD's.
    Foreign(Kind),
    /// A ZFS pool.
    Zfs,
}

impl Format {
    /// Whether its metadata stand at the end of a member alone.
    fn is_at_end(self) -> bool {
        match self {
            Format::Md(version) => matches!(version, MdVersion::V10 | MdVersion::V090),
            Format::Foreign(kind) => kind != Kind::Gvinum,
            Format::Zfs => false,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Format::Md(version) => write!(f, "md-{version}"),
            Format::Foreign(kind) => f.write_str(kind.name()),
            Format::Zfs => f.write_str("zfs"),
        }
    }
}

impl std::str::FromStr for Format {
    type Err = Problem;

    fn from_str(word: &str) -> Result<Self, Problem> {
        let kinds = [Kind::Gmirror, Kind::Gstripe, Kind::Gconcat, Kind::Gvinum];
        let version = word.strip_prefix("md-").unwrap_or(word);
        let version = MdVersion::ALL.into_iter().find(|one| one.name() == version);
        let kind = kinds.into_iter().find(|kind| kind.name() == word);
        match (version, kind) {
            (Some(version), _) => Ok(Format::Md(version)),
            (_, Some(kind)) => Ok(Format::Foreign(kind)),
            _ if word == "zfs" => Ok(Format::Zfs),
            _ => Err(Problem::new(
                Code::Usage,
                format!("--format {word}: there is no such format"),
            )
            .hint("formats are:   md-1.2 md-1.1 md-1.0 md-0.90 gmirror gstripe gconcat gvinum")),
        }
    }
}

/// Which set is meant where a member may be of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Choice {
    /// The only one; several are refused.
    #[default]
    Only,
    /// The newest one, whatever else is there: for conversions, which leave two forms of one set for a moment.
    Newest,
    /// The one of this format, whatever else is there, and whichever partition covers it.
    Format(Format),
}

impl Choice {
    /// The superblocks that are meant, when those of md were named.
    #[must_use]
    pub fn version(self) -> Option<MdVersion> {
        match self {
            Choice::Format(Format::Md(version)) => Some(version),
            _ => None,
        }
    }
}

/// A set that claims the bytes of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its format.
    pub format: Format,
    /// Its name and level for people.
    pub set: String,
    /// Equal for members of one set.
    pub id: String,
    /// When its metadata on this member were written last, in seconds since 1970, where the format keeps that.
    pub written_s: Option<u64>,
    /// What else tells how new it is: `event count 7`.
    pub count: String,
    /// The partition that it lies in, when that is not where it was looked for.
    pub partition: Option<Partition>,
}

impl Claim {
    fn of_found(found: &Found) -> Option<Self> {
        let (format, set, id, written_s, count) = match found {
            Found::Md(superblock) => {
                let uuid = plexum_format::uuid::md_uuid_text(&superblock.array_uuid);
                let name = match superblock.name.as_str() {
                    "" => format!("md-{}", &uuid[..8]),
                    name => name.to_owned(),
                };
                let set = format!("{name} ({})", level_name(superblock.level));
                let count = format!("event count {}", superblock.events.0);
                let format = Format::Md(superblock.version);
                (format, set, uuid, Some(superblock.utime.seconds), count)
            }
            Found::Gmirror(label) => {
                let id = format!("gmirror {} {}", label.name, label.mirror_id);
                let (generation, sync) = (label.generation_id, label.sync_id);
                let count = format!("generation {generation}, sync id {sync}");
                (
                    Format::Foreign(Kind::Gmirror),
                    label.name.clone(),
                    id,
                    None,
                    count,
                )
            }
            Found::Gstripe(label) => {
                let id = format!("gstripe {} {}", label.name, label.volume_id);
                let format = Format::Foreign(Kind::Gstripe);
                (format, label.name.clone(), id, None, String::new())
            }
            Found::Gconcat(label) => {
                let id = format!("gconcat {} {}", label.name, label.volume_id);
                let format = Format::Foreign(Kind::Gconcat);
                (format, label.name.clone(), id, None, String::new())
            }
            Found::Vinum(header) if !header.is_removed => {
                let set = format!("drive {} of {}", header.name, header.host);
                let id = format!("gvinum {}", header.host);
                let written_s = Some(header.updated.0);
                (
                    Format::Foreign(Kind::Gvinum),
                    set,
                    id,
                    written_s,
                    String::new(),
                )
            }
            _ => return None,
        };
        Some(Self {
            format,
            set,
            id,
            written_s,
            count,
            partition: None,
        })
    }

    /// `md-1.2 nest (raid0): updated 2026-11-26 06:46, event count 0`.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut words = vec![match self.written_s {
            Some(seconds) => format!("updated {}", show_time(seconds)),
            None => "keeps no time".to_owned(),
        }];
        words.extend(Some(self.count.clone()).filter(|count| !count.is_empty()));
        format!("{}: {}", self.name(), words.join(", "))
    }

    /// `md-1.2 nest (raid0)`, with the partition that it lies in.
    #[must_use]
    pub fn name(&self) -> String {
        let place = self.partition.as_ref();
        let place = place.map_or(String::new(), |part| format!(" in partition {}", part.name));
        format!("{} {}{place}", self.format, self.set)
    }
}

/// What was found on a member: by whom its bytes are claimed.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// Its partitions.
    pub partitions: Vec<Partition>,
    /// Sets that the whole of it is a member of.
    pub own: Vec<Claim>,
    /// Sets that it looks like a member of, but a partition covers the metadata.
    pub covered: Vec<Claim>,
    /// Sets in its partitions.
    pub inner: Vec<Claim>,
    /// The container that the whole of it is a member of, which other programs read. It claims nothing: what
    /// controllers leave on disks that are used otherwise since is common.
    pub container: Option<Container>,
}

/// Reads a range of a member whole.
type ReadAt<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> std::io::Result<()>;

/// Looks at a member. What cannot be read claims nothing.
#[must_use]
pub fn survey_with(size_bytes: u64, read: ReadAt<'_>) -> Survey {
    let mut reader = |offset: u64, buffer: &mut [u8]| read(offset, buffer);
    let partitions = look_at(size_bytes, &mut reader);
    let whole = claims_at(read, &(0..size_bytes), &partitions);
    let mut inner = Vec::new();
    for part in &partitions {
        let claims = claims_at(read, &part.place, &partitions);
        inner.extend(claims.own.into_iter().map(|claim| Claim {
            partition: Some(part.clone()),
            ..claim
        }));
    }
    Survey {
        partitions,
        inner,
        ..whole
    }
}

/// Who claims one part of a disk, without what is in partitions inside of it.
fn claims_at(read: ReadAt<'_>, place: &Range<u64>, partitions: &[Partition]) -> Survey {
    let length = place.end - place.start;
    let mut reader = |offset: u64, buffer: &mut [u8]| read(place.start + offset, buffer);
    let sectors = length / SECTOR_BYTES;
    let mut detection = detect(sectors, &mut reader).unwrap_or_default();
    detection.leave_to(&within(partitions, place), sectors);
    let mut claims = claims_of(&detection);
    claims.extend(claim_of_pool(read, place));
    let covered = detection.covered.iter().filter_map(|covered| {
        Some(Claim {
            partition: Some(covered.partition.clone()),
            ..Claim::of_found(&covered.found)?
        })
    });
    Survey {
        own: claims,
        covered: covered.collect(),
        container: detection.found.iter().find_map(|found| match found {
            Found::Container(container) => Some(*container),
            _ => None,
        }),
        ..Survey::default()
    }
}

fn claims_of(detection: &Detection) -> Vec<Claim> {
    detection.found.iter().filter_map(Claim::of_found).collect()
}

/// A living ZFS pool; one that was destroyed claims nothing any more.
fn claim_of_pool(read: ReadAt<'_>, place: &Range<u64>) -> Option<Claim> {
    let length = place.end - place.start;
    let member = member_at(read, place.start, length, String::new())?;
    let label = member.label()?;
    if label.state == PoolState::Destroyed {
        return None;
    }
    let roots = roots(&member.areas);
    let newest = roots.first();
    let txg = newest.map_or(label.txg, |root| root.txg);
    Some(Claim {
        format: Format::Zfs,
        set: format!("pool {}", label.pool_name),
        id: format!("zfs {}", label.pool_guid),
        written_s: newest.map(|root| root.written_s),
        count: format!("transaction group {txg}"),
        partition: None,
    })
}

/// Looks at a file or device by its path; `None` when it cannot be read: whoever opens it says why.
#[must_use]
pub fn survey_path(path: &Path) -> Option<Survey> {
    let mut file = File::open(path).ok()?;
    let size_bytes = file.seek(SeekFrom::End(0)).ok()?;
    let mut read = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, offset);
    Some(survey_with(size_bytes, &mut read))
}

/// The same by the word of a user; `None` also for what is no file, device or partition.
#[must_use]
pub fn survey_word(word: &str) -> Option<Survey> {
    match MemberWord::parse(word) {
        MemberWord::Path(path) => survey_path(&path),
        MemberWord::Partition(disk, part) => {
            let place = find_partition(&disk, &part, word).ok()?.place;
            let file = File::open(disk).ok()?;
            let mut read =
                |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, place.start + offset);
            Some(survey_with(place.end - place.start, &mut read))
        }
        _ => None,
    }
}

/// Where nothing was found on a member, why that may be: the set of another one keeps its metadata at the end, and this
/// one ends earlier.
#[must_use]
pub fn with_lost_end(problem: Problem, words: &[String]) -> Problem {
    let is_meant = matches!(problem.code, Code::NoMetadata | Code::ForeignMember);
    let Some(word) = problem.member.clone().filter(|_| is_meant) else {
        return problem;
    };
    if survey_word(&word).is_none_or(|survey| !survey.own.is_empty()) {
        return problem;
    }
    let is_shorter = |other: &&String| size_of(&word).is_some_and(|own| size_of(other) > Some(own));
    let others = words.iter().filter(|other| **other != word);
    let longer = others.filter(is_shorter).find_map(|other| {
        let claims = survey_word(other)?.own.into_iter();
        let mut at_end = claims.filter(|claim| claim.format.is_at_end());
        at_end.next_back().map(|claim| (other, claim))
    });
    match longer {
        None => problem,
        Some((other, claim)) => problem
            .why(format!(
                "the metadata of {} stand at the end of its members, and {word} is shorter than {other}",
                claim.name()
            ))
            .why("if it was cut (a hidden area, an image that is not whole), they went with its end; give it its full size back")
            .hint("to read what the others hold, without it:   --read-only --run-degraded"),
    }
}

/// Size of a file, a device or a partition.
fn size_of(word: &str) -> Option<u64> {
    match MemberWord::parse(word) {
        MemberWord::Path(path) => File::open(path).ok()?.seek(SeekFrom::End(0)).ok(),
        MemberWord::Partition(disk, part) => {
            let place = find_partition(&disk, &part, word).ok()?.place;
            Some(place.end - place.start)
        }
        _ => None,
    }
}

/// What was read of a member, by where it begins; none of what could not be read.
#[derive(Default)]
struct Known(Vec<(Range<u64>, Option<Vec<u8>>)>);

impl Known {
    /// Reads those ranges at once.
    async fn read(&mut self, device: &AnyDevice, pool: &BufPool, ranges: Vec<Range<u64>>) {
        let read = ranges.iter().map(|range| {
            let length_bytes = range.end - range.start;
            read_unaligned(device, pool, range.start, length_bytes)
        });
        let bytes = join_all(read).await.into_iter().map(Result::ok);
        self.0.extend(ranges.into_iter().zip(bytes));
    }

    /// The bytes of a range; none when nobody has read it yet.
    fn find(&self, range: &Range<u64>) -> Option<std::io::Result<&[u8]>> {
        let covers = |known: &&(Range<u64>, Option<Vec<u8>>)| {
            known.0.start <= range.start && range.end <= known.0.end
        };
        let covering = self.0.iter().filter(covers);
        // What could not be read as a part of more may be read alone.
        let mut covering = covering.filter(|(known, bytes)| bytes.is_some() || known == range);
        let (known, bytes) = covering.next()?;
        let from = (range.start - known.start) as usize;
        let to = (range.end - known.start) as usize;
        let part = bytes.as_deref().map(|bytes| &bytes[from..to]);
        Some(part.ok_or_else(|| std::io::ErrorKind::Other.into()))
    }
}

/// Bytes at the end of a member where most formats keep what is theirs.
const TAIL_BYTES: u64 = 8192;

/// Looks at an open member of any kind: both ends are read at once, then whatever else the survey asks for, and it is
/// made anew with that.
async fn survey_on(device: &AnyDevice, pool: &BufPool) -> Survey {
    let size_bytes = device.info().size_bytes;
    let mut known = Known::default();
    let mut wanted = vec![
        0..TABLE_BYTES.min(size_bytes),
        size_bytes.saturating_sub(TAIL_BYTES)..size_bytes,
    ];
    wanted.retain(|end| !end.is_empty());
    loop {
        known.read(device, pool, wanted).await;
        let mut lacking: Vec<Range<u64>> = Vec::new();
        let mut read = |offset: u64, buffer: &mut [u8]| -> std::io::Result<()> {
            let range = offset..offset.saturating_add(buffer.len() as u64);
            let Some(bytes) = known.find(&range) else {
                lacking.push(range);
                return Err(std::io::ErrorKind::WouldBlock.into());
            };
            buffer.copy_from_slice(bytes?);
            Ok(())
        };
        let survey = survey_with(size_bytes, &mut read);
        if lacking.is_empty() {
            return survey;
        }
        lacking.sort_unstable_by_key(|range| (range.start, range.end));
        lacking.dedup();
        wanted = lacking;
    }
}

/// Refuses a member whose bytes several sets claim, as long as nobody has said which is meant, and one whose metadata
/// belong to a partition of it.
///
/// # Errors
/// `SeveralOwners`, `NoMetadata`.
pub async fn check(
    device: &AnyDevice,
    pool: &BufPool,
    word: &str,
    choice: Choice,
) -> Result<(), Problem> {
    if choice == Choice::Newest {
        return Ok(());
    }
    judge(word, &survey_on(device, pool).await, choice)
}

/// Before a member that was one of an array comes back to it: another set may have claimed its bytes meanwhile.
/// `choice` is what was said when the array was started.
///
/// # Errors
/// As `check`.
pub fn check_return(word: &str, choice: Choice, volume: &str) -> Result<(), Problem> {
    let Some(survey) = survey_word(word) else {
        return Ok(());
    };
    judge(word, &survey, choice).map_err(|mut problem| {
        problem.hints.retain(|hint| hint.contains("plexum examine"));
        problem.hint(format!(
            "to take it all the same, and fill it as a whole:   plexum add {volume} {word} --force"
        ))
    })
}

/// Before a conversion in place: two forms of RAID metadata are what it makes, but no pool may be beside them, and no
/// partition may cover them.
///
/// # Errors
/// As `check`.
pub async fn check_conversion(
    device: &AnyDevice,
    pool: &BufPool,
    word: &str,
) -> Result<(), Problem> {
    let survey = survey_on(device, pool).await;
    let has_pool = survey.own.iter().any(|claim| claim.format == Format::Zfs);
    match has_pool || survey.own.is_empty() {
        true => judge(word, &survey, Choice::Only),
        false => Ok(()),
    }
}

/// The same for a member that was looked at.
///
/// # Errors
/// As `check`.
pub fn judge(word: &str, survey: &Survey, choice: Choice) -> Result<(), Problem> {
    let claims = || survey.own.iter().chain(&survey.covered);
    if let Choice::Format(format) = choice {
        if claims().any(|claim| claim.format == format) || claims().next().is_none() {
            return Ok(());
        }
        let text = format!("{word} is no member of a set in the format {format}");
        return Err(Problem::new(Code::ForeignMember, text)
            .member(word)
            .hint(format!("to see what is on it:   plexum examine {word}")));
    }
    if let (true, Some(covered)) = (survey.own.is_empty(), survey.covered.first()) {
        return Err(covered_problem(word, covered));
    }
    if let (true, Some(container)) = (survey.own.is_empty(), survey.container) {
        let text = format!("{word} is {container}, which plexum does not read");
        return Err(Problem::new(Code::UnsupportedFeature, text)
            .member(word)
            .why(format!(
                "mdadm reads such members: to it the format is {}",
                container.word()
            ))
            .hint(format!(
                "to see what mdadm makes of it:   mdadm --examine {word}"
            )));
    }
    let rivals = rivals(survey);
    if rivals.len() < 2 {
        return Ok(());
    }
    let names: Vec<String> = rivals.iter().map(|claim| claim.name()).collect();
    let text = format!(
        "{word}: {} sets claim its bytes: {}",
        rivals.len(),
        names.join(", ")
    );
    let mut problem = Problem::new(Code::SeveralOwners, text)
        .member(word)
        .why("one of them lies inside of the other, or is left over: writing to it would destroy the other");
    for line in described(&rivals) {
        problem = problem.why(line);
    }
    for claim in rivals.iter().filter(|claim| claim.partition.is_none()) {
        problem = match claim.format {
            Format::Zfs => problem
                .hint("to look into the pool, which writes nothing:   plexum pool list MEMBER..."),
            format => problem.hint(format!("to serve {}, add:   --format {format}", claim.set)),
        };
    }
    Err(problem.hint(format!("for all that is on it:   plexum examine {word}")))
}

/// How new each of several sets is, and which was written last.
#[must_use]
pub fn described(rivals: &[&Claim]) -> Vec<String> {
    let mut lines: Vec<String> = rivals.iter().map(|claim| claim.describe()).collect();
    let times: Option<Vec<u64>> = rivals.iter().map(|claim| claim.written_s).collect();
    let newest = times.and_then(|times| times.into_iter().max());
    let last = rivals
        .iter()
        .find(|claim| newest.is_some() && claim.written_s == newest);
    lines.push(match last {
        Some(claim) => format!("written last: {}", claim.name()),
        None => "which was written last is not recorded".to_owned(),
    });
    lines
}

/// The different sets that claim the whole of a member or bytes of it; the whole has to be claimed at all.
#[must_use]
pub fn rivals(survey: &Survey) -> Vec<&Claim> {
    let mut rivals: Vec<&Claim> = Vec::new();
    if survey.own.is_empty() {
        return rivals;
    }
    for claim in survey.own.iter().chain(&survey.inner) {
        if rivals.iter().all(|other| other.id != claim.id) {
            rivals.push(claim);
        }
    }
    rivals
}

fn covered_problem(word: &str, covered: &Claim) -> Problem {
    let part = covered
        .partition
        .as_ref()
        .map_or("", |part| part.name.as_str());
    Problem::new(
        Code::NoMetadata,
        format!("{word}: nothing was found that plexum knows"),
    )
    .member(word)
    .why(format!(
        "the metadata of {} {} lie in partition {part}, and belong to that",
        covered.format, covered.set
    ))
    .why("read as the whole disk's, they would give shifted data")
    .hint(format!(
        "to see what is in the partition:   plexum examine {word}:{part}"
    ))
    .hint(format!(
        "if the table of partitions is what is left over, add:   --format {}",
        covered.format
    ))
}

/// Words of members after the partitions of disks were looked at, and a note for each that was replaced: a disk that
/// holds nothing itself stands for those of its partitions that do, when all of them are of one set.
///
/// # Errors
/// `NoMetadata` when the partitions hold several sets: which is meant?
pub fn expand(words: &[String], choice: Choice) -> Result<(Vec<String>, Vec<String>), Problem> {
    let mut inner: Vec<(usize, Claim)> = Vec::new();
    for (index, word) in words.iter().enumerate() {
        let MemberWord::Path(path) = MemberWord::parse(word) else {
            continue;
        };
        let Some(survey) = survey_path(&path) else {
            continue;
        };
        let is_meant = |claim: &Claim| choice == Choice::Format(claim.format);
        let itself = survey
            .own
            .iter()
            .chain(survey.covered.iter().filter(|one| is_meant(one)));
        if itself.count() > 0 {
            continue;
        }
        let claims = survey.inner.into_iter().filter(|claim| match choice {
            Choice::Format(format) => claim.format == format,
            _ => claim.format != Format::Zfs, // `pool` and `--dataset` find those themselves
        });
        inner.extend(claims.map(|claim| (index, claim)));
    }
    let Some((first, claim)) = inner.first() else {
        return Ok((words.to_vec(), Vec::new()));
    };
    if inner.iter().any(|(_, other)| other.id != claim.id) {
        return Err(several_in_partitions(words, *first, &inner));
    }
    let (mut expanded, mut notes) = (Vec::new(), Vec::new());
    for (index, word) in words.iter().enumerate() {
        let parts = inner.iter().filter(|(of, _)| *of == index);
        let parts: Vec<String> = parts.map(|(_, claim)| part_word(word, claim)).collect();
        if parts.is_empty() {
            expanded.push(word.clone());
            continue;
        }
        notes.push(format!(
            "{word} is a disk with partitions: {} is meant",
            parts.join(" ")
        ));
        expanded.extend(parts);
    }
    Ok((expanded, notes))
}

fn part_word(word: &str, claim: &Claim) -> String {
    let part = claim
        .partition
        .as_ref()
        .map_or("", |part| part.name.as_str());
    format!("{word}:{part}")
}

fn several_in_partitions(words: &[String], first: usize, inner: &[(usize, Claim)]) -> Problem {
    let word = &words[first];
    let mut problem = Problem::new(
        Code::NoMetadata,
        format!("{word}: nothing was found that plexum knows"),
    )
    .member(word)
    .why("its partitions hold several sets");
    let mut told: Vec<&str> = Vec::new();
    for (_, claim) in inner {
        if told.contains(&claim.id.as_str()) {
            continue;
        }
        told.push(&claim.id);
        let members = inner.iter().filter(|(_, other)| other.id == claim.id);
        let members = members.map(|(index, claim)| part_word(&words[*index], claim));
        let members: Vec<String> = members.collect();
        let set = format!("{} {}", claim.format, claim.set);
        problem = problem.hint(format!(
            "to serve {set}:   plexum serve {}",
            members.join(" ")
        ));
    }
    problem
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(format: &str, id: &str, written_s: Option<u64>) -> Claim {
        Claim {
            format: format.parse().unwrap(),
            set: id.to_owned(),
            id: id.to_owned(),
            written_s,
            count: String::new(),
            partition: None,
        }
    }

    #[test]
    fn formats_are_named_as_create_names_them() {
        for word in ["md-1.2", "md-0.90", "gmirror", "gvinum", "zfs"] {
            assert_eq!(word.parse::<Format>().unwrap().to_string(), word);
        }
        assert_eq!("1.0".parse::<Format>().unwrap(), Format::Md(MdVersion::V10));
        assert_eq!("ext4".parse::<Format>().unwrap_err().code, Code::Usage);
    }

    #[test]
    fn two_sets_on_the_same_bytes_are_refused_until_one_is_named() {
        let survey = Survey {
            own: vec![claim("md-1.2", "a", Some(5)), claim("zfs", "b", Some(7))],
            ..Survey::default()
        };
        let problem = judge("d", &survey, Choice::Only).unwrap_err();
        assert_eq!(problem.code, Code::SeveralOwners);
        assert!(problem.why.iter().any(|line| line == "written last: zfs b"));
        let named = |word: &str| judge("d", &survey, Choice::Format(word.parse().unwrap()));
        assert!(named("md-1.2").is_ok());
        assert_eq!(named("md-1.0").unwrap_err().code, Code::ForeignMember);
    }

    #[test]
    fn two_copies_of_the_metadata_of_one_set_are_no_rivals() {
        let survey = Survey {
            own: vec![claim("md-1.0", "a", None), claim("md-0.90", "a", None)],
            ..Survey::default()
        };
        assert!(judge("d", &survey, Choice::Only).is_ok());
    }
}
