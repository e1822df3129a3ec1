//! New volumes in FreeBSD's formats: labels of gmirror, gstripe and gconcat, and systems of Vinum drives from a text.
//!
//! Invariants:
//! - everything is checked before the first write, and members stay open and locked until the end;
//! - when a write fails, every range that was written gets its old bytes back and new files are removed;
//! - what is on a member is shown; only a label's own place is written, and superblocks of md that would be found
//!   first.

use std::path::{Path, PathBuf};

use plexum_block::buf::BufPool;
use plexum_block::device::Device;
use plexum_engine::detect::detect_on;
use plexum_engine::metadata::MetadataWrite;
use plexum_format::Found;
use plexum_format::gconcat::ConcatLabel;
use plexum_format::gmirror::{Balance, MirrorLabel, NewMirrorLabel};
use plexum_format::gstripe::StripeLabel;
use plexum_format::vinum::{
    CONFIG_OFFSETS_BYTES, Config, DriveHeader, HEADER_OFFSET_BYTES, Mark, Script,
};
use plexum_format::{FormatError, Slot};
use plexum_freebsd::gvinum::{Room, build};
use plexum_runtime::Handle;
use plexum_runtime::file::{Access, OpenOptions};

use super::Kind;
use crate::changes::{Noted, Writes, Written};
use crate::create::{check_folder, now_seconds, or_removed, random_uuid};
use crate::open::{AnyDevice, MemberWord, check_writers, problem_of_io};
use crate::planned::PlannedMember;
use crate::problem::{Code, Problem};

/// Strip size of gstripe when none is asked for, in bytes.
pub const STRIPE_BYTES_DEFAULT: u64 = 65_536;

/// Reads of a gmirror above this are split when nothing else is asked for, in bytes.
const SLICE_BYTES_DEFAULT: u32 = 4096;

/// Labels to be made.
#[derive(Clone, Debug)]
pub struct LabelRequest {
    /// gmirror, gstripe or gconcat.
    pub kind: Kind,
    /// Name of the volume.
    pub name: String,
    /// Members in order, as written.
    pub members: Vec<String>,
    /// Make members that do not exist as files of this size.
    pub member_size_bytes: Option<u64>,
    /// Strip size of a gstripe.
    pub strip_bytes: Option<u64>,
    /// How a gmirror reads.
    pub balance: Balance,
    /// The members are equal already.
    pub is_assume_clean: bool,
    /// What `gmirror label` can set besides.
    pub mirror: MirrorOptions,
}

/// Settings of a new gmirror.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MirrorOptions {
    /// Reads above this are split.
    pub slice_bytes: u32,
    /// Stale components wait for the operator.
    pub has_no_autosync: bool,
    /// Nothing is marked dirty and nothing rebuilt after a crash.
    pub has_no_failsync: bool,
    /// Labels are bound to the names of their members.
    pub is_bound: bool,
}

impl Default for MirrorOptions {
    fn default() -> Self {
        Self {
            slice_bytes: SLICE_BYTES_DEFAULT,
            has_no_autosync: false,
            has_no_failsync: false,
            is_bound: false,
        }
    }
}

/// A volume of the plan.
#[derive(Clone, Debug)]
pub struct PlannedVolume {
    /// Its name.
    pub name: String,
    /// `mirror`, `striped`, ...
    pub level: String,
    /// Its size.
    pub size_bytes: u64,
}

/// What is written to a member: where, and the bytes.
type PlannedWrites = Vec<(u64, Vec<u8>)>;

/// A checked plan.
pub struct ForeignCreation {
    /// Format.
    pub kind: Kind,
    /// Volumes.
    pub volumes: Vec<PlannedVolume>,
    /// Members.
    pub members: Vec<PlannedMember>,
    /// What is written to each of them, in their order.
    writes: Vec<PlannedWrites>,
    /// Things worth knowing.
    pub notes: Vec<String>,
}

/// A text, or every place in it that cannot be understood. `path` names it in messages.
///
/// # Errors
/// `Usage` with line, place and expectation.
pub fn parse(text: &[u8], path: &str) -> Result<Script, Problem> {
    Script::parse(text).map_err(|errors| {
        let mut texts = errors.iter().map(ToString::to_string);
        let first = texts.next().unwrap_or_default();
        let problem = usage(format!("{path}: {first}"));
        texts.fold(problem, |problem, text| problem.why(text))
    })
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

/// These formats have no slots that could be left empty; what is not there can be made.
fn without_slots(mut problem: Problem) -> Problem {
    let count = problem.hints.len();
    problem.hints.retain(|hint| !hint.contains("`missing`"));
    if problem.hints.len() == count {
        return problem;
    }
    problem.hint("to make it as a file:   --member-size SIZE")
}

fn no_drive(path: &str) -> Problem {
    usage(format!("{path} names no drive"))
        .hint("a line for each:   drive NAME device DEVICE")
        .hint("for drives that are there already:   plexum gvinum create --in DIR FILE")
}

fn of_format(error: &FormatError) -> Problem {
    usage(error.to_string())
}

impl ForeignCreation {
    /// Plans labels.
    ///
    /// # Errors
    /// `Usage` for what the format cannot say; of opening.
    pub async fn labels(
        handle: &Handle,
        request: &LabelRequest,
        access: Access,
    ) -> Result<Self, Problem> {
        let (mut members, mut writes) = (Vec::new(), Vec::new());
        for word in &request.members {
            let size_bytes = request.member_size_bytes;
            let (member, wipes) = open_member(handle, word, size_bytes, access).await?;
            members.push(member);
            writes.push(wipes);
        }
        check_doubles(&members)?;
        let all_new = members.iter().all(|member| member.is_new);
        let sizes: Vec<u64> = members.iter().map(|member| member.size_bytes).collect();
        let id = random_number()?;
        let (level, size_bytes, labels) = match request.kind {
            Kind::Gmirror => mirror_labels(request, &sizes, id, all_new)?,
            Kind::Gstripe => stripe_labels(request, &sizes, id)?,
            _ => concat_labels(request, &sizes, id)?,
        };
        let mut notes = Vec::new();
        if request.kind == Kind::Gmirror && !all_new && !request.is_assume_clean {
            let first = &request.members[0];
            notes.push(format!(
                "the others are filled from {first} when it is served with --write"
            ));
        }
        for ((own, size_bytes), label) in writes.iter_mut().zip(sizes).zip(labels) {
            own.push((size_bytes - 512, label.to_vec()));
        }
        Ok(Self {
            kind: request.kind,
            volumes: vec![PlannedVolume {
                name: request.name.clone(),
                level: level.to_owned(),
                size_bytes,
            }],
            members,
            writes,
            notes,
        })
    }

    /// Plans a new system of Vinum drives from a text. `path` names it in messages.
    ///
    /// # Errors
    /// `Usage` with line, place and expectation; of opening.
    pub async fn system(
        handle: &Handle,
        text: &[u8],
        path: &str,
        member_size_bytes: Option<u64>,
        host: &str,
        access: Access,
    ) -> Result<Self, Problem> {
        let script = parse(text, path)?;
        if script.drives.is_empty() {
            return Err(no_drive(path));
        }
        let (mut members, mut writes, mut rooms) = (Vec::new(), Vec::new(), Vec::new());
        for drive in &script.drives {
            let opened = open_member(handle, &drive.device, member_size_bytes, access).await?;
            let (member, wipes) = opened;
            writes.push(wipes);
            rooms.push(Room {
                name: drive.name.clone(),
                size_bytes: member.size_bytes,
            });
            members.push(member);
        }
        check_doubles(&members)?;
        let names: Vec<&String> = script.drives.iter().map(|drive| &drive.name).collect();
        if let Some(double) = (1..names.len()).find(|at| names[..*at].contains(&names[*at])) {
            let line = script.drives[double].line;
            return Err(usage(format!(
                "{path}: line {line}: two drives are called {}",
                names[double]
            )));
        }
        let config = build(&script, &rooms, &Config::default())
            .map_err(|error| usage(format!("{path}: {error}")))?;
        let all_new = members.iter().all(|member| member.is_new);
        let seconds = now_seconds()?;
        let text = config.encode_sealed().map_err(|error| of_format(&error))?;
        for (own, drive) in writes.iter_mut().zip(&script.drives) {
            let header = DriveHeader::create(host, &drive.name, (seconds, 0));
            let mut header = header.map_err(|error| of_format(&error))?;
            // Holes are zero, and so is their parity; anything else is made equal first.
            header.mark = if all_new {
                Mark::Settled
            } else {
                Mark::Writing
            };
            for at in CONFIG_OFFSETS_BYTES {
                own.push((at, text.clone()));
            }
            own.push((HEADER_OFFSET_BYTES, header.encode().to_vec()));
        }
        let volumes = config.volumes.iter().rev().map(|volume| {
            let plexes = plexum_freebsd::gvinum::plexes_of(&config, &volume.name);
            let level = plexes
                .first()
                .map_or("empty", |plex| plex.organisation.name());
            PlannedVolume {
                name: volume.name.clone(),
                level: if plexes.len() > 1 { "mirror" } else { level }.to_owned(),
                size_bytes: plexum_freebsd::gvinum::volume_bytes(&config, &volume.name),
            }
        });
        Ok(Self {
            kind: Kind::Gvinum,
            volumes: volumes.collect(),
            members,
            writes,
            notes: Vec::new(),
        })
    }

    /// Writes it. On an error all members are as they were before. `noted`: where the change is kept.
    ///
    /// # Errors
    /// `NoSpace`, `IoError`.
    pub async fn carry_out(
        self,
        handle: &Handle,
        noted: Option<&Noted>,
    ) -> Result<Written, Problem> {
        let result = or_removed(async |made| self.write_all(handle, noted, made).await).await;
        result.map_err(|problem| problem.why("nothing else was changed"))
    }

    async fn write_all(
        &self,
        handle: &Handle,
        noted: Option<&Noted>,
        made: &mut Vec<PathBuf>,
    ) -> Result<Written, Problem> {
        let mut devices = Vec::new();
        for member in &self.members {
            devices.push(member.open(handle, made).await?);
        }
        let members = self.members.iter().zip(&devices);
        let members = members.map(|(member, device)| (member.member.as_str(), device));
        let phases = self.writes.iter().enumerate().map(|(member, writes)| {
            let writes = writes.iter().cloned();
            let writes = writes.map(|(at_bytes, bytes)| MetadataWrite { at_bytes, bytes });
            writes.map(|write| (member, write)).collect()
        });
        let (members, phases) = (members.collect(), phases.collect());
        Writes { members, phases }.carry_out(noted).await
    }
}

/// Opens a member, and says which superblocks of md on it are to be wiped: they would be found first.
async fn open_member(
    handle: &Handle,
    word: &str,
    member_size_bytes: Option<u64>,
    access: Access,
) -> Result<(PlannedMember, PlannedWrites), Problem> {
    let parsed = MemberWord::parse(word);
    match (&parsed, member_size_bytes) {
        (MemberWord::Missing, _) => return Err(usage("these formats have no empty slots")),
        (MemberWord::Path(path), Some(size)) if !Path::exists(path) => {
            check_folder(path, word)?;
            let member = PlannedMember::new_file(word, size / 512 * 512);
            return Ok((member, Vec::new()));
        }
        _ => {}
    }
    let options = match access {
        Access::ReadOnly => OpenOptions::read_only(),
        Access::ReadWrite => OpenOptions::read_write(),
    };
    let opened = AnyDevice::open(handle, &parsed, &options).await;
    let device = opened.map_err(without_slots)?;
    check_writers(&parsed, word)?;
    let info = device.info();
    if info.sector_bytes > 512 {
        let sector = info.sector_bytes;
        return Err(usage(format!(
            "{word} has sectors of {sector} bytes; 512 are needed"
        ))
        .member(word));
    }
    let member = PlannedMember::there(word, device.clone()).await?;
    let detection = detect_on(&device, &BufPool::new(0))
        .await
        .map_err(|error| problem_of_io(error, "reading its metadata", word))?;
    let wipes = detection.found.iter().filter_map(|found| match found {
        Found::Md(superblock) => Some((superblock.super_offset_sectors * 512, vec![0; 4096])),
        _ => None,
    });
    Ok((member, wipes.collect()))
}

fn check_doubles(members: &[PlannedMember]) -> Result<(), Problem> {
    for (at, member) in members.iter().enumerate() {
        if members[..at]
            .iter()
            .any(|other| other.member == member.member)
        {
            let text = format!("{} is given twice", member.member);
            return Err(Problem::new(Code::DuplicateMember, text).member(member.member.clone()));
        }
        if member.size_bytes < 1 << 20 && member.is_new {
            return Err(usage(format!(
                "{}: at least 1 MiB is needed",
                member.member
            )));
        }
    }
    Ok(())
}

/// Level, size of the volume, labels by member.
type Labels = (&'static str, u64, Vec<[u8; 512]>);

fn mirror_labels(
    request: &LabelRequest,
    sizes: &[u64],
    mirror_id: u32,
    all_new: bool,
) -> Result<Labels, Problem> {
    let count = u8::try_from(sizes.len()).ok().filter(|count| *count >= 1);
    let count = count.ok_or_else(|| usage("a gmirror has 1 to 255 members"))?;
    let volume_bytes = sizes.iter().copied().min().unwrap_or(0).saturating_sub(512);
    let mut labels = Vec::new();
    let options = request.mirror;
    for (number, size) in (0_u8..).zip(sizes) {
        let made = MirrorLabel::create(&NewMirrorLabel {
            name: &request.name,
            mirror_id,
            component_id: random_number()?,
            component_count: count,
            priority: number,
            slice_bytes: options.slice_bytes,
            balance: request.balance,
            volume_bytes,
            sector_bytes: 512,
            provider_bytes: *size,
        });
        let mut label = made.map_err(|error| of_format(&error))?;
        // Of clean and dirty components the dirty ones are filled: from the first member (defect 4 of upstream).
        label.is_dirty = number > 0 && !all_new && !request.is_assume_clean;
        label.has_no_autosync = options.has_no_autosync;
        label.has_no_failsync = options.has_no_failsync;
        // Without it they would wait for ever, as it is not asked for that they are filled later.
        label.is_rebuild_forced = label.is_dirty && options.has_no_autosync;
        if options.is_bound {
            label.provider = bound_name(&request.members[usize::from(number)])?;
        }
        labels.push(label.encode());
    }
    Ok(("mirror", volume_bytes, labels))
}

/// The name of a provider as a label keeps it: without folders, at most 15 letters.
fn bound_name(member: &str) -> Result<String, Problem> {
    let name = member.rsplit('/').next().unwrap_or(member);
    if name.len() > 15 {
        return Err(usage(format!(
            "{name} is too long for a label to be bound to it: at most 15 letters"
        )));
    }
    Ok(name.to_owned())
}

fn stripe_labels(request: &LabelRequest, sizes: &[u64], volume_id: u32) -> Result<Labels, Problem> {
    let count = u16::try_from(sizes.len()).map_err(|_| usage("too many members"))?;
    let strip = request.strip_bytes.unwrap_or(STRIPE_BYTES_DEFAULT);
    let strip_bytes = u32::try_from(strip).map_err(|_| usage("--strip is too large"))?;
    let mut labels = Vec::new();
    for (number, size) in (0_u16..).zip(sizes) {
        let place = (Slot(number), count);
        let label = StripeLabel::create(&request.name, volume_id, place, strip_bytes, *size);
        labels.push(label.map_err(|error| of_format(&error))?.encode());
    }
    let smallest = sizes.iter().copied().min().unwrap_or(0).saturating_sub(512);
    Ok((
        "striped",
        smallest / strip.max(1) * strip * u64::from(count),
        labels,
    ))
}

fn concat_labels(request: &LabelRequest, sizes: &[u64], volume_id: u32) -> Result<Labels, Problem> {
    let count = u16::try_from(sizes.len()).map_err(|_| usage("too many members"))?;
    let mut labels = Vec::new();
    for (number, size) in (0_u16..).zip(sizes) {
        let place = (Slot(number), count);
        let label = ConcatLabel::create(&request.name, volume_id, place, *size);
        labels.push(label.map_err(|error| of_format(&error))?.encode());
    }
    let sum = sizes.iter().map(|size| size.saturating_sub(512)).sum();
    Ok(("concat", sum, labels))
}

/// A random number that is not 0.
fn random_number() -> Result<u32, Problem> {
    let uuid = random_uuid()?;
    Ok(u32::from_le_bytes([uuid[0], uuid[1], uuid[2], uuid[3]]).max(1))
}

/// What is to be written to a member: byte offsets and whole sectors, in order.
#[derive(Clone, Debug)]
pub struct Edit {
    /// As the user wrote it.
    pub member: String,
    /// What goes where.
    pub writes: Vec<(u64, Vec<u8>)>,
}

/// Carries out edits of members that nobody serves: all are open and locked before the first write. On an error
/// everything that was written gets its old bytes back. `noted`: where the change is kept.
///
/// # Errors
/// `Busy` for a member in use; `IoError`, `NoSpace`.
pub async fn carry_out(
    handle: &Handle,
    edits: Vec<Edit>,
    noted: Option<&Noted>,
) -> Result<Written, Problem> {
    let (mut members, mut writes) = (Vec::new(), Vec::new());
    for edit in edits {
        let word = MemberWord::parse(&edit.member);
        let device = AnyDevice::open(handle, &word, &OpenOptions::read_write()).await?;
        check_writers(&word, &edit.member)?;
        members.push(PlannedMember {
            size_bytes: device.info().size_bytes,
            member: edit.member,
            is_new: false,
            found: Vec::new(),
            device: Some(device),
        });
        writes.push(edit.writes);
    }
    let plan = ForeignCreation {
        kind: Kind::Gvinum,
        volumes: Vec::new(),
        members,
        writes,
        notes: Vec::new(),
    };
    plan.carry_out(handle, noted).await
}
