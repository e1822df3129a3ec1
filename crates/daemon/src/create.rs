//! New arrays: what a request means for each member, and writing it.
//!
//! Invariants:
//! - everything is checked before the first byte is written, and members are locked from the check to the end;
//! - superblocks come last: until then no member is one of the new array;
//! - when a write fails (no space, medium), every range that was written gets its old bytes back and new files are
//!   removed.
//!
//! Source: linux-md.md section 1; cli.md "Defaults"; write-order.md W5.

mod check;
mod place;

use std::path::{Path, PathBuf};

use plexum_engine::metadata::MetadataWrite;
use plexum_format::md::{MdVersion, Superblock};
use plexum_format::{FormatError, SECTOR_BYTES, probe_places};
use plexum_layout::Organisation;
use plexum_md::create::{NewArray, Plan};
use plexum_runtime::Handle;
use plexum_runtime::file::{Access, OpenOptions};
use serde::Serialize;

use crate::changes::{Noted, Writes, Written};
use crate::inspect::Finding;
use crate::open::{AnyDevice, MemberWord};
use crate::problem::{Code, Problem};
pub(crate) use check::check_folder;
pub use check::check_name;
use check::{check_duplicates, check_request, open_member, strip_bytes};
use place::{
    check_missing, decide_start, engine_start, note_no_log, note_unused, plan_array, stored_name,
};

/// Strip size when none is asked for, in bytes.
pub const STRIP_BYTES_DEFAULT: u64 = 512 << 10;
/// Longest name that a superblock holds, in bytes.
pub const NAME_BYTES_MAX: usize = 32;

/// What a user asks for.
#[derive(Clone, Debug)]
pub struct CreateRequest {
    /// Name of the volume.
    pub name: String,
    /// Host part of the stored name; empty: none.
    pub homehost: String,
    /// Organisation with layout.
    pub organisation: Organisation,
    /// Members in slot order, as written.
    pub members: Vec<String>,
    /// Spares, as written.
    pub spares: Vec<String>,
    /// Strip size.
    pub strip_bytes: Option<u64>,
    /// Use only so much of each member.
    pub size_bytes: Option<u64>,
    /// Make members that do not exist as files of this size.
    pub member_size_bytes: Option<u64>,
    /// Where the data begin on each member, when they are there already.
    pub data_offset_bytes: Option<u64>,
    /// Version of the superblock.
    pub version: MdVersion,
    /// Whether there shall be an internal bitmap.
    pub has_bitmap: bool,
    /// Bytes of a region.
    pub region_bytes: Option<u64>,
    /// Whether parity shall have a stripe log, where the format leaves room (L1).
    pub has_log: bool,
    /// Whether writes are answered when they are durable in the stripe log (L5).
    pub is_write_back: bool,
    /// Whether a RAID-5 shall have md's partial parity log, without bitmap and stripe log.
    pub has_ppl: bool,
    /// Members that are read only when nothing else can be, as written.
    pub write_mostly: Vec<String>,
    /// Take copies or parity for equal.
    pub is_assume_clean: bool,
    /// Whether the user takes risks knowingly.
    pub is_forced: bool,
}

/// Why the members need no first resync, or that they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Without redundancy, or all of it is missing: nothing can differ.
    NothingToCompare,
    /// Every byte of every member is zero.
    AllZero,
    /// The user said so.
    AssumedClean,
    /// Copies or parity are made to agree in the background.
    Resync,
    /// One member is filled from the others in the background: some redundancy is missing, and that makes the rest
    /// right.
    Rebuild,
}

/// One member of the plan.
#[derive(Debug, Serialize)]
pub struct PlannedMember {
    /// As the user wrote it.
    pub member: String,
    /// Slot; none for spares.
    pub slot: Option<u32>,
    /// Size of the whole member; 0 for an empty slot.
    pub size_bytes: u64,
    /// Whether the slot stays empty.
    pub is_missing: bool,
    /// Whether a file will be made.
    pub is_new: bool,
    /// Whether it is read only when nothing else can be.
    pub is_write_mostly: bool,
    /// First byte of its data.
    pub data_offset_bytes: u64,
    /// What will be overwritten.
    pub found: Vec<Finding>,
    #[serde(skip)]
    target: Target,
}

/// What stands behind a member of the plan.
enum Target {
    Missing,
    Open(Box<AnyDevice>),
    NewFile(PathBuf),
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Target::Missing => "Missing",
            Target::Open(_) => "Open",
            Target::NewFile(_) => "NewFile",
        })
    }
}

/// A checked plan, ready to be carried out. Existing members are open and locked.
#[derive(Debug, Serialize)]
pub struct Creation {
    /// Name of the volume.
    pub name: String,
    /// Name in the superblocks: `host:name`.
    pub stored_name: String,
    /// `raid6 left-symmetric`.
    pub organisation: String,
    /// Level alone.
    pub level: String,
    /// Layout alone.
    pub layout: Option<String>,
    /// `md-1.2`.
    pub format: String,
    /// Identity of the array.
    pub uuid: String,
    /// Usable size.
    pub volume_bytes: u64,
    /// Strip size; 0 where there is none.
    pub strip_bytes: u64,
    /// Bytes used of each member; 0 for linear and RAID-0.
    pub component_bytes: u64,
    /// Bytes of a bitmap region, when there is a bitmap.
    pub region_bytes: Option<u64>,
    /// Whether a first resync runs.
    pub start: Start,
    /// Members by slot, then spares.
    pub members: Vec<PlannedMember>,
    /// Things worth knowing.
    pub notes: Vec<String>,
    #[serde(skip)]
    keeps_data: bool,
    /// What is written, by the index of `members`.
    #[serde(skip)]
    plan: Plan,
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

/// The problem that a refusal of a format at creation means.
fn of_format(error: &FormatError) -> Problem {
    usage(error.to_string())
}

impl Creation {
    /// Checks a request and opens its members. Nothing is changed; with `Access::ReadOnly` (dry run) nothing could be.
    ///
    /// # Errors
    /// `Usage` for what contradicts itself or does not fit, `NoSuchFile`, `Busy`, `DuplicateMember`, `TooFewMembers`,
    /// `MemberTooSmall`, `NotProvenZero`.
    pub async fn prepare(
        handle: &Handle,
        request: &CreateRequest,
        access: Access,
    ) -> Result<Self, Problem> {
        check_request(request)?;
        let mut notes = Vec::new();
        let strip_bytes = strip_bytes(request, &mut notes)?;
        let mut members = Vec::new();
        let words = request.members.iter().map(|word| (word, false));
        let spares = request.spares.iter().map(|word| (word, true));
        for (at, (word, is_spare)) in words.chain(spares).enumerate() {
            let slot = (!is_spare).then_some(at as u32); // counts were checked: far below 2^32
            members.push(open_member(handle, request, word, slot, access).await?);
        }
        check_duplicates(&members)?;
        let missing: Vec<bool> = members
            .iter()
            .filter(|member| member.slot.is_some())
            .map(|member| member.is_missing)
            .collect();
        let mut array = new_array(request, strip_bytes, &members, &mut notes)?;
        let mut plan = plan_array(&array, request, &members)?;
        check_plan(request, &plan, &missing)?;
        note_no_log(&plan, &mut notes);
        for (member, superblock) in members.iter_mut().zip(&plan.superblocks) {
            let start = superblock.as_ref().map(|sb| sb.data_offset_sectors);
            member.data_offset_bytes = start.unwrap_or(0) * SECTOR_BYTES;
        }
        if request.size_bytes.is_none() {
            note_unused(&members, &plan, &mut notes);
        }
        // Where the data begin had to be known to see whether they are zero.
        let start = decide_start(request, &missing, &members, &plan)?;
        let keeps_data = request.is_assume_clean && start != Start::AllZero;
        let is_less = keeps_data && leave_data_alone(&mut array, &mut notes);
        if is_less || engine_start(start) != array.start {
            array.start = engine_start(start);
            plan = plan_array(&array, request, &members)?;
        }
        if start == Start::Rebuild
            && let Some(last) = missing.iter().rposition(|is_missing| !is_missing)
        {
            plan.fill_slot(last as u16); // slots are at most MEMBERS_MAX
        }
        let level = request.organisation.level();
        Ok(Self {
            name: request.name.clone(),
            stored_name: array.stored_name,
            organisation: request.organisation.to_string(),
            level: level.to_string(),
            layout: request.organisation.layout_name(),
            format: format!("md-{}", request.version),
            uuid: plexum_format::uuid::md_uuid_text(&array.uuid),
            volume_bytes: plan.geometry.volume_bytes(),
            strip_bytes,
            component_bytes: if level.has_redundancy() {
                plan.geometry.component_bytes()
            } else {
                0
            },
            region_bytes: plan.region_bytes,
            start,
            members,
            notes,
            keeps_data: request.is_assume_clean,
            plan,
        })
    }

    /// What would be written as superblocks, by member; an empty slot has none.
    #[must_use]
    pub fn superblocks(&self) -> Vec<Superblock> {
        self.plan.superblocks.iter().flatten().cloned().collect()
    }

    /// Everything that would be overwritten, with the member's name.
    pub fn destroys(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.members.iter().flat_map(|member| {
            let name = member.member.as_str();
            member.found.iter().map(move |found| (name, found))
        })
    }

    /// Writes the metadata. On an error all members are as they were before. `noted`: where the change is kept.
    ///
    /// # Errors
    /// `NoSpace`, `IoError`; a member that could not be put back is named in the problem.
    pub async fn carry_out(
        mut self,
        handle: &Handle,
        noted: Option<&Noted>,
    ) -> Result<Written, Problem> {
        let result = or_removed(async |made| self.write_all(handle, noted, made).await).await;
        result.map_err(|problem| problem.why("nothing else was changed"))
    }

    async fn write_all(
        &mut self,
        handle: &Handle,
        noted: Option<&Noted>,
        made: &mut Vec<PathBuf>,
    ) -> Result<Written, Problem> {
        for member in &mut self.members {
            if let Target::NewFile(path) = &member.target {
                make_file(path, member.size_bytes)?;
                made.push(path.clone());
                let word = MemberWord::Path(path.clone());
                let device = AnyDevice::open(handle, &word, &OpenOptions::read_write()).await?;
                member.target = Target::Open(Box::new(device));
            }
        }
        // First everything that a superblock points to, on every member, then the superblocks.
        let mut phases = vec![Vec::new(), Vec::new()];
        let mut members = Vec::new();
        for (at, member) in self.members.iter().enumerate() {
            let Target::Open(device) = &member.target else {
                continue;
            };
            let number = members.len();
            members.push((member.member.as_str(), &**device));
            let around = self.surroundings(at)?.into_iter();
            phases[0].extend(around.map(|write| (number, write)));
            phases[1].extend(self.plan.superblock(at).map(|write| (number, write)));
        }
        Writes { members, phases }.carry_out(noted).await
    }

    /// What else is written on a member: zeroes over older superblocks elsewhere, and what the plan says.
    fn surroundings(&self, at: usize) -> Result<Vec<MetadataWrite>, Problem> {
        let Some(superblock) = &self.plan.superblocks[at] else {
            return Ok(Vec::new());
        };
        let mut writes = self.wipes(at, superblock);
        let planned = self.plan.surroundings(at);
        writes.extend(planned.map_err(|error| of_format(&error))?);
        Ok(writes)
    }

    /// Zeroes over everything that the member could be taken for later.
    fn wipes(&self, at: usize, superblock: &Superblock) -> Vec<MetadataWrite> {
        if self.members[at].found.is_empty() {
            return Vec::new(); // blank
        }
        let own_place = superblock.super_offset_sectors * SECTOR_BYTES;
        let data = superblock.data_offset_sectors * SECTOR_BYTES
            ..(superblock.data_offset_sectors + superblock.data_size_sectors) * SECTOR_BYTES;
        let probes = probe_places(self.members[at].size_bytes / SECTOR_BYTES);
        let places = probes.into_iter().map(|place| place.start);
        // The first block holds what boot sectors, partition tables and most file systems are known by.
        let places = places.chain([0]);
        // A repair by `create --assume-clean` must not touch data.
        let places = places
            .filter(|place| *place != own_place && !(self.keeps_data && data.contains(place)));
        places
            .map(|at_bytes| MetadataWrite {
                at_bytes,
                bytes: vec![0; 4096],
            })
            .collect()
    }
}

/// Does what makes files, and notes them as `work` does; they are removed again when it fails.
pub(crate) async fn or_removed<T>(
    work: impl AsyncFnOnce(&mut Vec<PathBuf>) -> Result<T, Problem>,
) -> Result<T, Problem> {
    let mut made = Vec::new();
    let result = work(&mut made).await;
    result.inspect_err(|_| remove_files(&made))
}

/// Files that were made for what has failed.
fn remove_files(made: &[PathBuf]) {
    for path in made {
        let _ = std::fs::remove_file(path);
    }
}

/// Makes a sparse file and makes its name durable.
pub(crate) fn make_file(path: &Path, size_bytes: u64) -> Result<(), Problem> {
    let shown = path.display().to_string();
    let tell = |error: std::io::Error| Problem::from_io(&error, "making", &shown);
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(tell)?;
    let sized = file.set_len(size_bytes).and_then(|()| file.sync_all());
    if let Err(error) = sized {
        let _ = std::fs::remove_file(path);
        return Err(tell(error));
    }
    if let Some(folder) = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        && let Ok(folder) = std::fs::File::open(folder)
    {
        let _ = folder.sync_all(); // not every file system can
    }
    Ok(())
}

fn check_plan(request: &CreateRequest, plan: &Plan, missing: &[bool]) -> Result<(), Problem> {
    check_missing(request, &plan.geometry, missing)?;
    if request.version == MdVersion::V090 && plan.geometry.raid0_layout_matters() {
        return Err(usage(
            "md-0.90 has no place for the layout of a RAID-0 with members of different sizes",
        )
        .hint("use the default format, or members of one size"));
    }
    Ok(())
}

pub(crate) fn now_seconds() -> Result<u64, Problem> {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_| Problem::new(Code::Usage, "the clock says a time before 1970"))?;
    Ok(since.as_secs())
}

/// The array for the engine's planner, as if nothing had to be made to agree.
fn new_array(
    request: &CreateRequest,
    strip_bytes: u64,
    members: &[PlannedMember],
    notes: &mut Vec<String>,
) -> Result<NewArray, Problem> {
    let slots = members.iter().filter(|member| member.slot.is_some());
    let spares = members.iter().filter(|member| member.slot.is_none());
    let mut identities = Vec::new();
    for _ in members {
        identities.push(random_uuid()?);
    }
    let write_mostly = members.iter().filter(|member| member.is_write_mostly);
    Ok(NewArray {
        version: request.version,
        organisation: request.organisation,
        strip_bytes,
        size_bytes: request.size_bytes,
        members: slots
            .map(|member| (!member.is_missing).then_some(member.size_bytes))
            .collect(),
        spares: spares.map(|member| member.size_bytes).collect(),
        write_mostly: write_mostly
            .filter_map(|member| member.slot.and_then(|slot| u16::try_from(slot).ok()))
            .collect(),
        stored_name: stored_name(request, notes),
        uuid: random_uuid()?,
        identities,
        wall_seconds: now_seconds()?,
        has_bitmap: request.has_bitmap,
        region_bytes: request.region_bytes,
        log_bytes_max: (request.has_log && request.data_offset_bytes.is_none()).then_some(u64::MAX),
        has_ppl: request.has_ppl,
        is_write_back: request.is_write_back,
        start: plexum_md::create::Start::Agreeing,
    })
}

/// Former members may hold data where a stripe log, or a bitmap behind the data, would lie.
fn leave_data_alone(array: &mut NewArray, notes: &mut Vec<String>) -> bool {
    let has_bitmap = array.has_bitmap && array.version == MdVersion::V10;
    if has_bitmap {
        array.has_bitmap = false;
        notes.push("no bitmap: it could lie on data that the members hold".into());
    }
    let has_log = array.log_bytes_max.take().is_some();
    if has_log {
        notes.push("no stripe log: it could lie on data that the members hold".into());
    }
    has_bitmap || has_log
}

/// A random UUID, version 4.
///
/// # Errors
/// When the system gives no random bytes.
pub fn random_uuid() -> Result<[u8; 16], Problem> {
    use std::io::Read;
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Problem::from_io(&error, "reading", "/dev/urandom"))?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    Ok(bytes)
}

/// This host's name without its domain; empty when unknown.
#[must_use]
pub fn this_host() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    text.trim().split('.').next().unwrap_or("").to_owned()
}
