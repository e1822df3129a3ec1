//! New arrays: what a request means for each member, and writing it.
//!
//! Invariants:
//! - everything is checked before the first byte is written, and members are locked from the check to the end;
//! - superblocks come last: until then no member is one of the new array;
//! - when a write fails (no space, medium), every range that was written gets its old bytes back and new files are removed.
//!
//! Source: linux-md.md section 1; cli.md "Defaults"; write-order.md W5.

mod check;
mod place;

use std::path::{Path, PathBuf};

use plexum_engine::buf::BufPool;
use plexum_engine::device::{Device, Fua, IoError};
use plexum_engine::plex::layout::{Geometry, GeometryError, Organisation};
use plexum_format::md::{
    BadBlocks, Bitmap, MdTime, MdVersion, NewBitmap, NewMember, Placement, Role, Superblock,
};
use plexum_format::{EventCount, FormatError, SECTOR_BYTES, Slot, probe_places};
use plexum_runtime::Handle;
use plexum_runtime::file::{Access, OpenOptions};
use serde::Serialize;

use crate::inspect::{Finding, read_unaligned};
use crate::open::{AnyDevice, MemberWord, problem_of_io};
use crate::problem::{Code, Problem};
use check::{check_duplicates, check_request, open_member, strip_bytes};
use place::{check_missing, decide_start, note_unused, place, stored_name, sync_size_sectors};

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
    /// Version of the superblock.
    pub version: MdVersion,
    /// Whether there shall be an internal bitmap.
    pub has_bitmap: bool,
    /// Bytes of a region.
    pub region_bytes: Option<u64>,
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
    #[serde(skip)]
    placement: Option<Placement>,
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
    version: MdVersion,
    #[serde(skip)]
    array_uuid: [u8; 16],
    #[serde(skip)]
    md_level: i32,
    #[serde(skip)]
    md_layout: u32,
    #[serde(skip)]
    sync_size_sectors: u64,
    #[serde(skip)]
    keeps_data: bool,
}

fn usage(text: impl Into<String>) -> Problem {
    Problem::new(Code::Usage, text)
}

/// The problem that a refusal of a format at creation means.
fn of_format(error: &FormatError) -> Problem {
    usage(error.to_string())
}

fn of_geometry(error: &GeometryError) -> Problem {
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
        let placed = place(request, strip_bytes, &mut members)?;
        let geometry = Geometry::new(&placed.spec).map_err(|error| of_geometry(&error))?;
        check_missing(request, &geometry, &missing)?;
        if request.version == MdVersion::V090 && geometry.raid0_layout_matters() {
            return Err(usage(
                "md-0.90 has no place for the layout of a RAID-0 with members of different sizes",
            )
            .hint("use the default format, or members of one size"));
        }
        note_unused(&members, &placed, &mut notes);
        let start = decide_start(request, &geometry, &missing, &members, &placed)?;
        let array_uuid = random_uuid()?;
        let level = request.organisation.level();
        Ok(Self {
            name: request.name.clone(),
            stored_name: stored_name(request),
            organisation: request.organisation.to_string(),
            level: level.to_string(),
            layout: request.organisation.layout_name(),
            format: format!("md-{}", request.version),
            version: request.version,
            uuid: plexum_format::uuid::md_uuid_text(&array_uuid),
            volume_bytes: geometry.volume_bytes(),
            strip_bytes,
            component_bytes: placed.component_sectors * SECTOR_BYTES,
            region_bytes: placed.region_bytes,
            start,
            members,
            notes,
            array_uuid,
            md_level: request.organisation.md_level(),
            md_layout: request.organisation.md_layout(),
            sync_size_sectors: sync_size_sectors(&geometry),
            keeps_data: request.is_assume_clean,
        })
    }

    /// Everything that would be overwritten, with the member's name.
    pub fn destroys(&self) -> impl Iterator<Item = (&str, &Finding)> {
        self.members.iter().flat_map(|member| {
            let name = member.member.as_str();
            member.found.iter().map(move |found| (name, found))
        })
    }

    /// Writes the metadata. On an error all members are as they were before.
    ///
    /// # Errors
    /// `NoSpace`, `IoError`; a member that could not be put back is named in the problem.
    pub async fn carry_out(mut self, handle: &Handle) -> Result<(), Problem> {
        let mut undo = Undo::default();
        match self.write_all(handle, &mut undo).await {
            Ok(()) => Ok(()),
            Err(problem) => Err(undo.run(&self.members, problem).await),
        }
    }

    async fn write_all(&mut self, handle: &Handle, undo: &mut Undo) -> Result<(), Problem> {
        for member in &mut self.members {
            if let Target::NewFile(path) = &member.target {
                make_file(path, member.size_bytes)?;
                undo.files.push(path.clone());
                let word = MemberWord::Path(path.clone());
                let device = AnyDevice::open(handle, &word, &OpenOptions::read_write()).await?;
                member.target = Target::Open(Box::new(device));
            }
        }
        let superblocks = self.superblocks()?;
        let pool = BufPool::new(1 << 20);
        // First everything that a superblock points to, on every member, then the superblocks.
        for (at, superblock) in &superblocks {
            for (offset, bytes) in self.surroundings(superblock)? {
                self.write_range(*at, offset, &bytes, undo, &pool).await?;
            }
        }
        self.flush_all().await?;
        for (at, superblock) in &superblocks {
            let offset = superblock.super_offset_sectors * SECTOR_BYTES;
            self.write_range(*at, offset, &superblock.encode(), undo, &pool)
                .await?;
        }
        self.flush_all().await
    }

    /// The superblock of each member that is there, with its index in `members`.
    fn superblocks(&self) -> Result<Vec<(usize, Superblock)>, Problem> {
        let mut roles = Vec::new();
        for member in &self.members {
            roles.push(match member.slot {
                Some(slot) if !member.is_missing => Role::Active(Slot(slot as u16)),
                _ => Role::Spare,
            });
        }
        let ctime = now()?;
        let slots = self.members.iter().filter(|m| m.slot.is_some()).count();
        let mut made = Vec::new();
        for (at, member) in self.members.iter().enumerate() {
            let Some(placement) = &member.placement else {
                continue;
            };
            let resync = (self.start == Start::Resync).then_some(0);
            let superblock = Superblock::create(&NewMember {
                version: self.version,
                array_uuid: self.array_uuid,
                name: &self.stored_name,
                ctime,
                level: self.md_level,
                layout: self.md_layout,
                component_sectors: self.component_bytes / SECTOR_BYTES,
                strip_sectors: (self.strip_bytes / SECTOR_BYTES) as u32, // bounded by the geometry's check
                member_count: slots as u32,
                data_offset_sectors: placement.data_offset_sectors,
                data_size_sectors: placement.data_size_sectors,
                device_sectors: member.size_bytes / SECTOR_BYTES,
                dev_number: at as u32,
                device_uuid: random_uuid()?,
                roles: &roles,
                events: EventCount(0),
                resync_offset_sectors: resync,
                bitmap_offset_sectors: placement
                    .bitmap_offset_sectors
                    .filter(|_| self.region_bytes.is_some()),
                bad_block_log: placement.bad_block_log,
                is_write_mostly: member.is_write_mostly,
            })
            .map_err(|error| of_format(&error).member(member.member.clone()))?;
            made.push((at, superblock));
        }
        Ok(made)
    }

    /// What else is written on a member: bitmap, empty bad block log, zeroes over older superblocks elsewhere.
    fn surroundings(&self, superblock: &Superblock) -> Result<Vec<(u64, Vec<u8>)>, Problem> {
        let mut ranges = Vec::new();
        let device_sectors = self.members[superblock.dev_number as usize].size_bytes / SECTOR_BYTES;
        let own_place = superblock.super_offset_sectors * SECTOR_BYTES;
        let data = superblock.data_offset_sectors * SECTOR_BYTES
            ..(superblock.data_offset_sectors + superblock.data_size_sectors) * SECTOR_BYTES;
        let mut wipes: Vec<u64> = probe_places(device_sectors)
            .into_iter()
            .map(|place| place.start)
            .collect();
        // The first block holds what boot sectors, partition tables and most file systems are known by.
        wipes.push(0);
        for place in wipes {
            let is_data = data.contains(&place);
            // A repair by `create --assume-clean` must not touch data; a blank member needs no zeroes.
            if place == own_place || (is_data && self.keeps_data) || self.is_blank(superblock) {
                continue;
            }
            ranges.push((place, vec![0; 4096]));
        }
        if let Some(area) = superblock.bad_block_log {
            let list =
                BadBlocks::new(area.size_sectors, area.shift).map_err(|error| of_format(&error))?;
            let sector = superblock
                .bad_block_log_sector()
                .ok_or_else(|| Problem::new(Code::Bug, "a bad block log without a place"))?;
            ranges.push((sector * SECTOR_BYTES, list.encode()));
        }
        if let (Some(sector), Some(region_bytes)) = (superblock.bitmap_sector(), self.region_bytes)
        {
            let member = &self.members[superblock.dev_number as usize];
            let reserved = member
                .placement
                .as_ref()
                .map_or(0, |placement| placement.bitmap_reserved_sectors);
            let map = Bitmap::create(&NewBitmap {
                uuid: superblock.bitmap_uuid(),
                events: superblock.events,
                sync_size_sectors: self.sync_size_sectors,
                region_bytes: region_bytes as u32, // at most REGION_BYTES_MAX
                reserved_sectors: reserved,
                is_all_set: self.start == Start::Resync,
            })
            .map_err(|error| of_format(&error))?;
            let mut bytes = map.encode();
            bytes.resize(bytes.len().next_multiple_of(4096), 0); // the reserve is whole pages
            ranges.push((sector * SECTOR_BYTES, bytes));
        }
        Ok(ranges)
    }

    /// Whether nothing was found on the member, so that there is nothing to wipe.
    fn is_blank(&self, superblock: &Superblock) -> bool {
        self.members[superblock.dev_number as usize]
            .found
            .is_empty()
    }

    async fn write_range(
        &self,
        at: usize,
        offset_bytes: u64,
        bytes: &[u8],
        undo: &mut Undo,
        pool: &BufPool,
    ) -> Result<(), Problem> {
        let member = &self.members[at];
        let Target::Open(device) = &member.target else {
            return Err(Problem::new(Code::Bug, "a member to write is not open"));
        };
        let tell = |error: IoError| problem_of_io(error, "writing metadata", &member.member);
        let old = read_unaligned(device, pool, offset_bytes, bytes.len() as u64)
            .await
            .map_err(tell)?;
        undo.ranges.push((at, offset_bytes, old));
        let data = pool.copy_of(bytes).freeze();
        device
            .write(offset_bytes, data, Fua::No)
            .await
            .map_err(tell)
    }

    async fn flush_all(&self) -> Result<(), Problem> {
        for member in &self.members {
            if let Target::Open(device) = &member.target {
                device
                    .flush()
                    .await
                    .map_err(|error| problem_of_io(error, "flushing metadata", &member.member))?;
            }
        }
        Ok(())
    }
}

/// What has to be put back when something fails.
#[derive(Default)]
struct Undo {
    files: Vec<PathBuf>,
    ranges: Vec<(usize, u64, Vec<u8>)>,
}

impl Undo {
    /// Puts old bytes back, newest first, and removes files that were made. Says where that failed.
    async fn run(self, members: &[PlannedMember], mut problem: Problem) -> Problem {
        let pool = BufPool::new(0);
        for (at, offset, old) in self.ranges.into_iter().rev() {
            let Target::Open(device) = &members[at].target else {
                continue;
            };
            let data = pool.copy_of(&old).freeze();
            if device.write(offset, data, Fua::Yes).await.is_err() {
                problem = problem.why(format!(
                    "{}: {} bytes at byte {offset} could not be put back",
                    members[at].member,
                    old.len()
                ));
            }
        }
        for path in self.files {
            let _ = std::fs::remove_file(path);
        }
        problem.why("nothing else was changed")
    }
}

/// Makes a sparse file and makes its name durable.
fn make_file(path: &Path, size_bytes: u64) -> Result<(), Problem> {
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

fn now() -> Result<MdTime, Problem> {
    let since = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_err(|_| Problem::new(Code::Usage, "the clock says a time before 1970"))?;
    Ok(MdTime {
        seconds: since.as_secs(),
        microseconds: since.subsec_micros(),
    })
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
