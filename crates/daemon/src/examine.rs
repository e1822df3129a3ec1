//! What is on members, and how several of them fit together. Reads only, without locks: members in use can be examined.
//!
//! Invariants: nothing is written; damage is part of the answer, only a member that cannot be read is an error.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_format::md::journal::META_BYTES;
use plexum_format::md::{
    BadBlocks, Bitmap, BitmapHeader, Field, JournalMeta, Superblock, describe_bad_blocks,
    describe_bitmap, describe_journal, describe_superblock, level_name,
};
use plexum_format::partition::Partition;
use plexum_format::stripe_log::{LogHeader, NoLog, PAGE_BYTES, describe_log, superblock_hash};
use plexum_format::{Detection, FormatError, Found, SECTOR_BYTES, detect};
use plexum_md::assemble::{Assembly, Examined, Options, Refused, assemble};
use plexum_md::open::{judge_log_page, log_header_place};

use plexum_runtime::file::OpenOptions;
use plexum_runtime::{IoChoice, Runtime};

use crate::assembly::of_assemble;
use crate::foreign::offline::{self, Found as Foreign};
use crate::inspect::read_unaligned;
use crate::open::{AnyDevice, MemberWord, find_partition};
use crate::owners::{self, Survey, survey_with};
use crate::problem::{Code, Problem};
use crate::zfs::{Search, ZfsMember, members_on};

/// Everything found on one member.
#[derive(Debug)]
pub struct Examination {
    /// As the user wrote it.
    pub member: String,
    /// Size of the member.
    pub size_bytes: u64,
    /// All metadata found, best first.
    pub detection: Detection,
    /// The superblock to use.
    pub superblock: Option<Superblock>,
    /// Its internal bitmap.
    pub bitmap: Option<Result<Bitmap, FormatError>>,
    /// Its bad block log.
    pub bad_blocks: Option<Result<BadBlocks, FormatError>>,
    /// The header of its ring of the stripe log, and what speaks against its place.
    pub log: Option<(LogHeader, Option<NoLog>)>,
    /// On the member that holds the write journal: the block where a replay would begin.
    pub journal: Option<Result<JournalMeta, FormatError>>,
    /// What it carries of FreeBSD's formats, where that is what it is used as.
    pub foreign: Option<Foreign>,
    /// Members of ZFS pools: in its partitions, or the whole of it.
    pub zfs: Vec<ZfsMember>,
    /// Its partitions, and the sets that claim its bytes.
    pub survey: Survey,
}

impl Examination {
    /// One sentence for each superblock or label that was found and is damaged: place, field and what is wrong with it.
    #[must_use]
    pub fn damaged(&self) -> Vec<String> {
        let found = self.detection.found.iter();
        found
            .filter_map(|found| match found {
                Found::Damaged { error, .. } | Found::DamagedLabel { error } => {
                    Some(error.to_string())
                }
                _ => None,
            })
            .collect()
    }

    /// The other sets that claim its bytes, and how new each is; empty when there is one set at most.
    #[must_use]
    pub fn rivals(&self) -> Vec<String> {
        let rivals = owners::rivals(&self.survey);
        match rivals.len() {
            0 | 1 => Vec::new(),
            _ => owners::described(&rivals),
        }
    }

    /// Decoded fields of the superblock.
    #[must_use]
    pub fn superblock_fields(&self) -> Vec<Field> {
        self.superblock
            .as_ref()
            .map(describe_superblock)
            .unwrap_or_default()
    }

    /// Decoded fields of the bitmap.
    #[must_use]
    pub fn bitmap_fields(&self) -> Vec<Field> {
        match &self.bitmap {
            Some(Ok(bitmap)) => describe_bitmap(bitmap),
            _ => Vec::new(),
        }
    }

    /// Decoded fields of the bad block log.
    #[must_use]
    pub fn bad_block_fields(&self) -> Vec<Field> {
        match &self.bad_blocks {
            Some(Ok(blocks)) => describe_bad_blocks(blocks),
            _ => Vec::new(),
        }
    }

    /// Decoded fields of the stripe log's header.
    #[must_use]
    pub fn log_fields(&self) -> Vec<Field> {
        let (Some((header, _)), Some(superblock)) = (&self.log, &self.superblock) else {
            return Vec::new();
        };
        describe_log(header, header.is_bound_to(&superblock_hash(superblock)))
    }

    /// Decoded fields of the write journal's first live block.
    #[must_use]
    pub fn journal_fields(&self) -> Vec<Field> {
        match &self.journal {
            Some(Ok(block)) => describe_journal(block),
            _ => Vec::new(),
        }
    }

    /// Name of the volume it belongs to, without the host; by its UUID when it has none.
    #[must_use]
    pub fn volume_name(&self) -> String {
        let Some(superblock) = &self.superblock else {
            return String::new();
        };
        let name = superblock
            .name
            .split_once(':')
            .map_or(superblock.name.as_str(), |(_, name)| name);
        if name.is_empty() {
            let uuid = plexum_format::uuid::md_uuid_text(&superblock.array_uuid);
            return format!("md-{}", &uuid[..8]);
        }
        name.to_owned()
    }

    /// `raid5`, empty without metadata.
    #[must_use]
    pub fn level_word(&self) -> String {
        self.superblock
            .as_ref()
            .map(|sb| level_name(sb.level))
            .unwrap_or_default()
    }

    /// `md-1.2`, empty without metadata.
    #[must_use]
    pub fn format_word(&self) -> String {
        self.superblock
            .as_ref()
            .map(|sb| format!("md-{}", sb.version))
            .unwrap_or_default()
    }
}

/// Reads what is on the member at `path`, called `word` in messages; the path may name a partition of a disk.
///
/// # Errors
/// `NoSuchFile`, `NotPermitted`, `Usage` for something that cannot be a member, `IoError`.
pub fn examine_path(path: &Path, word: &str) -> Result<Examination, Problem> {
    let mut all = examine_each(path, word)?;
    Ok(all.swap_remove(0)) // the member itself comes first, whatever is on it
}

/// Reads what is on the member at `path` itself, and then each further set that claims its bytes, and each set in its
/// partitions, which are called `word:p1`.
///
/// # Errors
/// As `examine_path`.
pub fn examine_each(path: &Path, word: &str) -> Result<Vec<Examination>, Problem> {
    let (file, place) = match MemberWord::parse(&path.display().to_string()) {
        MemberWord::Partition(disk, part) => {
            let place = find_partition(&disk, &part, word)?.place;
            (open_member(&disk, word)?.0, place)
        }
        _ => {
            let (file, size_bytes) = open_member(path, word)?;
            (file, 0..size_bytes)
        }
    };
    let tell = |error: std::io::Error| Problem::from_io(&error, "reading", word);
    let whole = place.clone();
    let mut read =
        |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, whole.start + offset);
    let size_bytes = place.end - place.start;
    let first = examine_with(word, size_bytes, &mut read, None).map_err(tell)?;
    let mut all = Vec::new();
    let known = first.detection.found.iter().filter(|found| is_valid(found));
    for other in known.skip(1) {
        all.push(examine_with(word, size_bytes, &mut read, Some(other)).map_err(tell)?);
    }
    let inner = first
        .survey
        .inner
        .iter()
        .filter_map(|claim| claim.partition.clone());
    let mut inner: Vec<Partition> = inner.collect();
    inner.dedup();
    for part in inner {
        let word = format!("{word}:{}", part.name);
        let start = place.start + part.place.start;
        let mut read = |offset: u64, buffer: &mut [u8]| file.read_exact_at(buffer, start + offset);
        let length = part.place.end - part.place.start;
        let mut one = examine_with(&word, length, &mut read, None).map_err(tell)?;
        one.zfs.clear(); // the disk has named those
        if one.superblock.is_some() || one.foreign.is_some() {
            all.push(one);
        }
    }
    all.insert(0, first);
    Ok(all)
}

/// Whether it makes the member one of a set.
fn is_valid(found: &Found) -> bool {
    !matches!(
        found,
        Found::Damaged { .. } | Found::DamagedLabel { .. } | Found::Container(_)
    )
}

/// Opens a file or a block device: it and its size.
fn open_member(path: &Path, word: &str) -> Result<(File, u64), Problem> {
    let tell = |doing: &'static str| {
        move |error: std::io::Error| {
            let mut problem = Problem::from_io(&error, doing, word);
            if problem.code == Code::NoSuchFile {
                problem.message = format!("{word} does not exist");
            }
            problem
        }
    };
    let meta = std::fs::metadata(path).map_err(tell("opening"))?;
    if !(meta.is_file() || meta.file_type().is_block_device()) {
        let what = if meta.is_dir() {
            "a directory"
        } else {
            "no file and no block device"
        };
        let problem = Problem::new(Code::Usage, format!("{word} is {what}")).member(word);
        return Err(problem.hint(format!(
            "to look for sets in a folder:   plexum scan {word}"
        )));
    }
    let mut file = File::open(path).map_err(tell("opening"))?;
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(tell("measuring"))?;
    Ok((file, size_bytes))
}

/// Reads what is on a remote member: an NBD export or a volume that is served.
///
/// # Errors
/// `DeviceGone` when nobody answers, `NotYet` for what cannot be opened, `IoError`.
pub fn examine_remote(word: &MemberWord) -> Result<Examination, Problem> {
    let mut runtime = Runtime::new(IoChoice::Threads)
        .map_err(|error| Problem::new(Code::IoError, error.to_string()))?;
    let handle = runtime.handle();
    let options = OpenOptions::read_only();
    let device = runtime.block_on(AnyDevice::open(&handle, word, &options))?;
    let pool = BufPool::new(1 << 20);
    let name = word.to_string();
    let mut read = |offset: u64, buffer: &mut [u8]| {
        let wanted = read_unaligned(&device, &pool, offset, buffer.len() as u64);
        let bytes = runtime.block_on(wanted).map_err(std::io::Error::other)?;
        buffer.copy_from_slice(&bytes);
        Ok(())
    };
    examine_with(&name, device.info().size_bytes, &mut read, None)
        .map_err(|error| Problem::new(Code::IoError, format!("{name}: {error}")).member(&name))
}

/// Reads a range of a member whole.
type ReadAt<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> std::io::Result<()>;

/// `only`: of several things that are on it, the one to look at.
fn examine_with(
    word: &str,
    size_bytes: u64,
    read: ReadAt<'_>,
    only: Option<&Found>,
) -> std::io::Result<Examination> {
    let device_sectors = size_bytes / SECTOR_BYTES;
    let mut reader = |offset: u64, buffer: &mut [u8]| read(offset, buffer);
    let mut detection = detect(device_sectors, &mut reader)?;
    let survey = survey_with(size_bytes, &mut *read);
    detection.leave_to(&survey.partitions, device_sectors);
    if let Some(only) = only {
        detection.found.retain(|found| found == only);
    }
    let superblock = detection.found.iter().find_map(|found| match found {
        Found::Md(superblock) => Some((**superblock).clone()),
        _ => None,
    });
    let bitmap = superblock
        .as_ref()
        .and_then(|sb| read_bitmap(&mut *read, sb, device_sectors));
    let bad_blocks = superblock
        .as_ref()
        .and_then(|sb| read_bad_blocks(&mut *read, sb));
    let journal = superblock
        .as_ref()
        .and_then(|sb| read_journal(&mut *read, sb));
    let foreign = offline::look(read, size_bytes, &detection, word);
    let header = match &bitmap {
        Some(Ok(bitmap)) => Some(&bitmap.header),
        _ => None,
    };
    let log = superblock
        .as_ref()
        .and_then(|sb| read_log(&mut *read, sb, header));
    let search = match detection.is_blank() {
        true => Search::UsualStarts,
        false => Search::Tables,
    };
    Ok(Examination {
        member: word.to_owned(),
        size_bytes,
        detection,
        superblock,
        bitmap,
        bad_blocks,
        log,
        journal,
        foreign,
        zfs: match only {
            Some(_) => Vec::new(),
            None => members_on(&mut *read, size_bytes, word, &survey.partitions, search),
        },
        survey,
    })
}

fn read_bitmap(
    read: ReadAt<'_>,
    superblock: &Superblock,
    device_sectors: u64,
) -> Option<Result<Bitmap, FormatError>> {
    let start = superblock.bitmap_sector()? * SECTOR_BYTES;
    let room = superblock.bitmap_room_sectors(device_sectors)?;
    let mut head = vec![0; SECTOR_BYTES as usize];
    read(start, &mut head).ok()?;
    let header = match BitmapHeader::parse(&head, start, room) {
        Ok(header) => header,
        Err(error) => return Some(Err(error)),
    };
    // Bounded by the parser: at most its largest number of regions.
    let mut area = vec![0; usize::try_from(header.area_sectors() * SECTOR_BYTES).ok()?];
    read(start, &mut area).ok()?;
    Some(Bitmap::parse(&area, start, room))
}

fn read_log(
    read: ReadAt<'_>,
    superblock: &Superblock,
    bitmap: Option<&BitmapHeader>,
) -> Option<(LogHeader, Option<NoLog>)> {
    let place = log_header_place(superblock)?;
    let mut page = vec![0; PAGE_BYTES];
    read(place.start, &mut page).ok()?;
    judge_log_page(&page, superblock, bitmap)
}

fn read_journal(
    read: ReadAt<'_>,
    superblock: &Superblock,
) -> Option<Result<JournalMeta, FormatError>> {
    let tail = superblock.journal_tail_sectors?;
    let sector = superblock.data_offset_sectors.checked_add(tail)?;
    let start = sector.checked_mul(SECTOR_BYTES)?;
    let mut bytes = vec![0; META_BYTES];
    read(start, &mut bytes).ok()?;
    Some(JournalMeta::parse(&bytes, start, &superblock.array_uuid))
}

fn read_bad_blocks(
    read: ReadAt<'_>,
    superblock: &Superblock,
) -> Option<Result<BadBlocks, FormatError>> {
    let area = superblock
        .bad_block_log
        .filter(|_| superblock.has_bad_blocks)?;
    let start = superblock.bad_block_log_sector()? * SECTOR_BYTES;
    let mut bytes = vec![0; usize::from(area.size_sectors) * SECTOR_BYTES as usize];
    read(start, &mut bytes).ok()?;
    Some(BadBlocks::parse(&bytes, area.shift, start))
}

/// How the members fit together; those without a valid superblock are passed over.
///
/// # Errors
/// What keeps them from making a volume.
pub fn judge(examinations: &[Examination], options: &Options) -> Result<Assembly, Problem> {
    let examined: Vec<Examined> = examinations
        .iter()
        .enumerate()
        .filter_map(|(index, examination)| {
            Some(Examined {
                index,
                name: examination.member.clone(),
                device_bytes: examination.size_bytes,
                superblock: examination.superblock.clone()?,
                bitmap: match &examination.bitmap {
                    Some(Ok(bitmap)) => Some(bitmap.header.clone()),
                    _ => None,
                },
                refused: Refused {
                    bitmap: match &examination.bitmap {
                        Some(Err(error)) => Some(error.clone()),
                        _ => None,
                    },
                    bad_blocks: match &examination.bad_blocks {
                        Some(Err(error)) => Some(error.to_string()),
                        _ => None,
                    },
                },
                log: examination.log.clone(),
                goal: None, // nothing is decided by it here
            })
        })
        .collect();
    assemble(&examined, options).map_err(|error| {
        of_assemble(&error, |index| {
            examinations
                .get(index)
                .map(|one| one.member.clone())
                .unwrap_or_default()
        })
    })
}
