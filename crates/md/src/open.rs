//! From devices to a running volume: read what is on them, decide, load bitmap and bad blocks.
//!
//! Invariants:
//! - nothing is written here but what the stripe log holds (L7);
//! - every count that comes from a device was bounded by the format's parser before memory is taken for it;
//! - a bitmap counts only from members that are fresh (W7); the bits of all of them count together.

mod examine;
mod logs;
mod pieces;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::{Bitmap, BitmapHeader, MdVersion, Superblock};
use plexum_format::stripe_log::superblock_hash;

use crate::adapter::{Due, MdMetadata};
use crate::assemble::{
    AssembledMember, AssembledStanding, Assembly, BitmapUse, Examined, LogUse, Options,
    assemble_with,
};
use crate::journal::is_in_journal;
use crate::reshape::{Alteration, Goal, levelled};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::ranges::RangeSet;
use plexum_engine::intent::regions::Regions;
use plexum_engine::mutant::{DeliberateBug, Mutant};
use plexum_engine::state::{MemberRecord, Standing};
use plexum_engine::volume::{DrivePart, Volume, VolumeParts};
use plexum_engine::volume::{Force, VolumeOptions};
use plexum_layout::Geometry;

pub use crate::error::OpenError;
pub(crate) use examine::read_bad;
use examine::{as_planned, read_bitmap};
pub use examine::{examine, examine_as, former_member, judge_log_page, log_header_place};
use logs::{log_headers, start_log, start_ppl};
use pieces::Side;
pub use pieces::{Pieces, open_pieces};

/// What opening a volume asks for besides the devices.
#[derive(Clone, Debug, Default)]
pub struct OpenRequest {
    /// What assembly may do.
    pub assemble: Options,
    /// Settings of the volume; `is_read_only` is set when the assembly demands it.
    pub volume: VolumeOptions,
    /// Name instead of the one in the superblocks.
    pub name: Option<String>,
    /// The superblocks to believe, where a member has several; `None`: the newest.
    pub version: Option<MdVersion>,
    /// Superblocks by device in place of what is on them: an array that is tried before it is made. Empty: what is
    /// there counts.
    pub planned: Vec<Superblock>,
    /// What the array becomes, at the first commit.
    pub alteration: Option<Alteration>,
    /// Where that leads, as the members are to say from that commit on; `None`: what they say stays.
    pub goal: Option<Goal>,
}

/// What is on the members, and what the superblocks are to say.
pub(crate) struct Found {
    pub(crate) examined: Vec<Examined>,
    /// Whether they have yet to say so.
    pub(crate) due: Due,
}

impl Found {
    /// What is on them, those brought up to the freshest that an interrupted update left behind.
    pub(crate) fn of(examined: Vec<Examined>) -> Self {
        match levelled(&examined) {
            Some(examined) => Self {
                examined,
                due: Due::Yes,
            },
            None => Self {
                examined,
                due: Due::No,
            },
        }
    }
}

/// Puts a volume together from devices; those that are not used (stale, faulty) are dropped.
///
/// # Errors
/// `OpenError`; nothing was written.
pub async fn open_volume<D: Device, C: Clock>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    request: OpenRequest,
) -> Result<(Volume<D, C>, Assembly), OpenError> {
    let mut examined = Vec::new();
    for (index, (name, device)) in devices.iter().enumerate() {
        examined.push(match request.planned.get(index) {
            Some(superblock) => as_planned(device, index, name, superblock),
            None => examine_as(device, &pool, index, name, request.version).await?,
        });
    }
    if request.volume.bug.is(Mutant::ReplayUnbound) {
        believe_any_log(&mut examined);
    }
    let mut found = Found::of(examined);
    if let Some(alteration) = &request.alteration {
        found.alter(alteration)?;
    }
    let examined = &found.examined;
    let mut assembly = assemble_with(examined, &request.assemble, request.volume.bug)
        .map_err(|error| OpenError::Assemble(Box::new(error)))?;
    misjudge(&mut assembly, examined, request.volume.bug);
    if assembly.reshape.is_some() || is_in_journal(&devices, &pool, examined, &assembly).await? {
        return Err(OpenError::InPieces);
    }
    let geometry = assembly.geometry.clone();
    let force = match request.assemble.force {
        true => Force::Yes,
        false => Force::No,
    };
    let volume = build(
        devices,
        clock,
        pool,
        request,
        &found,
        &assembly,
        Side::Before,
        geometry,
    )
    .await?;
    let headers = log_headers(&found.examined, &assembly).unwrap_or_default();
    start_log(&volume, &assembly, &headers, force).await?;
    start_ppl(&volume, &assembly, force).await?;
    Ok((volume, assembly))
}

/// The deliberate bugs that take all rows as right.
fn forget_doubt(regions: &mut Regions, bug: DeliberateBug, is_forced: bool) {
    if bug.is(Mutant::ResyncSkipped) || is_forced && bug.is(Mutant::ForcedStartForgetsDoubt) {
        (0..regions.count()).for_each(|region| regions.settle_region(region));
    }
}

/// The volume's settings with what the assembly demands.
pub(crate) fn options_of(asked: VolumeOptions, assembly: &Assembly) -> VolumeOptions {
    VolumeOptions {
        is_read_only: asked.is_read_only || assembly.is_read_only,
        trust_unproven: asked.trust_unproven || assembly.serves_doubtful_data,
        block_bytes_min: assembly.logical_block_bytes,
        ..asked
    }
}

#[allow(clippy::too_many_arguments)] // one call of two public functions, which have them all
async fn build<D: Device, C: Clock>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    request: OpenRequest,
    found: &Found,
    assembly: &Assembly,
    side: Side,
    geometry: Geometry,
) -> Result<Volume<D, C>, OpenError> {
    let examined = &found.examined;
    let (bitmap, mut regions) = load_regions(&devices, &pool, examined, assembly, &geometry).await;
    let options = options_of(request.volume, assembly);
    forget_doubt(&mut regions, options.bug, request.assemble.force);
    let mut superblocks = Vec::new();
    let mut members = Vec::new();
    let mut goals = Vec::new();
    for (index, (name, device)) in devices.into_iter().enumerate() {
        let Some((member, record)) = used(assembly, index, side) else {
            continue;
        };
        let has_slot = |slot| usize::from(slot) < geometry.member_count();
        if !record.slot.is_none_or(has_slot) {
            continue; // a slot that this side of a reshape does not have
        }
        let superblock = examined[index].superblock.clone();
        let bad = bad_of(&device, &pool, &superblock, &record).await;
        let bad = bad.map_err(|error| error.of_member(index))?;
        let start = match side {
            Side::After => member.reshaped_offset_bytes,
            Side::Before => member.data_offset_bytes,
        };
        let end = member
            .data_offset_bytes
            .saturating_add(member.data_size_bytes);
        if end > device.info().size_bytes || start > end {
            return Err(OpenError::Io {
                index,
                error: IoError::OutOfRange,
            });
        }
        members.push(DrivePart {
            name,
            device: Some(device),
            record,
            data: start..end,
            bad,
        });
        superblocks.push(Some(superblock));
        goals.push(examined[index].goal.clone());
    }
    let goal = request.goal.or_else(|| goal_of(examined, assembly));
    let metadata = MdMetadata::new(superblocks, bitmap).changed(found.due);
    let metadata = metadata.leading(goals, goal);
    let parts = VolumeParts {
        name: request.name.unwrap_or_else(|| volume_name(assembly)),
        geometry,
        clock,
        pool,
        members,
        metadata: Box::new(metadata),
        regions,
        log: log_headers(examined, assembly).filter(|_| !options.is_read_only),
        event_count: assembly.array.events.0,
        is_uneven: is_uneven(assembly),
        resync_start_bytes: assembly.resync_start_bytes,
        options,
    };
    Ok(Volume::new(parts))
}

/// Bad ranges of a member. A spare holds nothing: its list begins anew where it cannot be read.
async fn bad_of<D: Device>(
    device: &D,
    pool: &BufPool,
    superblock: &Superblock,
    record: &MemberRecord,
) -> Result<RangeSet, OpenError> {
    match read_bad(device, pool, superblock).await {
        Err(_) if record.slot.is_none() => Ok(RangeSet::new()),
        read => read,
    }
}

/// Where a change leads: what the freshest member says counts (W7). What has become a RAID-0 has come to its end: its
/// members are not written any more.
pub(crate) fn goal_of(examined: &[Examined], assembly: &Assembly) -> Option<Goal> {
    if !assembly.geometry.organisation().level().has_redundancy() {
        return None;
    }
    let freshest = examined
        .iter()
        .find(|member| member.index == assembly.freshest);
    freshest.and_then(|member| member.goal.clone())
}

/// Whether a used member is one event behind: the last commit was interrupted.
pub(crate) fn is_uneven(assembly: &Assembly) -> bool {
    let mut used = assembly
        .members
        .iter()
        .filter(|member| member.standing.is_used());
    used.any(|member| member.events != assembly.array.events)
}

/// The name after the host in `host:name`; an array without a name is called by its UUID.
#[must_use]
pub fn volume_name(assembly: &Assembly) -> String {
    let stored = &assembly.array.name;
    let name = stored
        .split_once(':')
        .map_or(stored.as_str(), |(_, name)| name);
    if name.is_empty() {
        let uuid = assembly.array.uuid;
        return format!(
            "md-{:02x}{:02x}{:02x}{:02x}",
            uuid[0], uuid[1], uuid[2], uuid[3]
        );
    }
    name.to_owned()
}

fn used(assembly: &Assembly, index: usize, side: Side) -> Option<(&AssembledMember, MemberRecord)> {
    let member = assembly
        .members
        .iter()
        .find(|member| member.index == index)?;
    let standing = match member.standing {
        AssembledStanding::Active => Standing::Active,
        // What a reshape fills is complete in what the reshape has done, and holds nothing of what it has not.
        AssembledStanding::Rebuilding { .. } if assembly.reshape.is_some() => {
            let is_filled = assembly
                .reshape
                .as_ref()
                .is_some_and(|r| r.has_filled(member));
            if side == Side::Before || !is_filled {
                return None;
            }
            Standing::Active
        }
        AssembledStanding::Rebuilding {
            valid_below_bytes,
            by_bitmap,
        } => Standing::Rebuilding {
            valid_below_bytes,
            by_bitmap,
        },
        AssembledStanding::Spare => Standing::Spare,
        _ => return None,
    };
    let record = MemberRecord {
        slot: member.slot,
        standing,
        is_replacement: member.is_replacement,
        is_write_mostly: member.is_write_mostly,
    };
    Some((member, record))
}

/// The deliberate bugs of assembly: stale members, or roles of their own, are believed; members one behind are refused.
fn misjudge(assembly: &mut Assembly, examined: &[Examined], bug: DeliberateBug) {
    let taken: Vec<Option<u16>> = assembly.members.iter().map(|member| member.slot).collect();
    let newest = assembly.array.events;
    for member in &mut assembly.members {
        let own = examined[member.index]
            .superblock
            .role()
            .slot()
            .map(|slot| slot.0);
        let is_free = own.is_some() && !taken.contains(&own);
        let is_fresh = member.events.is_fresh_beside(newest);
        let standing = &member.standing;
        let is_stale = matches!(standing, AssembledStanding::Stale { .. });
        let is_faulty = is_fresh && *standing == AssembledStanding::Faulty;
        let is_behind = standing.is_used() && member.events != newest;
        if is_free && is_stale && bug.is(Mutant::BelieveStaleMember)
            || is_free && is_faulty && bug.is(Mutant::OwnRoleBelieved)
        {
            (member.standing, member.slot) = (AssembledStanding::Active, own);
        }
        if is_behind && bug.is(Mutant::OneBehindRefused) {
            (member.standing, member.slot) = (AssembledStanding::Unusable, None);
        }
    }
}

/// The deliberate bug of `Mutant::ReplayUnbound`: a log counts whoever has had the array meanwhile.
fn believe_any_log(examined: &mut [Examined]) {
    for member in examined {
        if let Some((header, _)) = &mut member.log {
            header.superblock = superblock_hash(&member.superblock);
        }
    }
}

/// Regions as the superblocks and the bitmap have them, with the bitmap's header when there is one.
pub(crate) async fn load_regions<D: Device>(
    devices: &[(String, D)],
    pool: &BufPool,
    examined: &[Examined],
    assembly: &Assembly,
    geometry: &Geometry,
) -> (Option<BitmapHeader>, Regions) {
    let sync = geometry.sync_bytes();
    let block_bytes = devices
        .iter()
        .map(|(_, device)| device.info().sector_bytes)
        .max()
        .unwrap_or(512);
    // The freshest member's copy, or where that is damaged another one's.
    let sources = match &assembly.bitmap {
        BitmapUse::Usable { sources, .. } => sources.as_slice(),
        _ => &[],
    };
    let header = std::iter::once(&assembly.freshest)
        .chain(sources)
        .find_map(|index| examined[*index].bitmap.clone());
    let fits = |header: &BitmapHeader| header.sync_size_sectors == sync / SECTOR_BYTES && sync > 0;
    let header = header.filter(|header| fits(header) && assembly.bitmap != BitmapUse::None);
    // What the log makes right is not in doubt (L7); what it leaves, it names.
    let doubt_from = match (&assembly.log, assembly.resync_start_bytes) {
        _ if assembly.is_unproven => Some(0),
        (LogUse::Replay { doubt_from_bytes }, Some(_)) => *doubt_from_bytes,
        (_, Some(0)) if assembly.has_ppl => None,
        (_, start) => start,
    };
    let Some(header) = header else {
        let regions = Regions::without_bitmap(geometry, block_bytes, doubt_from);
        return (None, regions);
    };
    let mut regions = Regions::new(sync, u64::from(header.region_bytes), block_bytes, true);
    let bits = if sources.is_empty() {
        None
    } else {
        read_bits(devices, pool, examined, sources).await
    };
    match bits {
        Some(bits) => {
            for region in bits.set_regions() {
                let index =
                    usize::try_from(region).expect("the parser bounds the number of regions");
                regions.load_bit(index);
                let is_doubtful = doubt_from.is_some_and(|start| regions.range(index).end > start);
                if is_doubtful {
                    regions.doubt(index);
                }
            }
        }
        None => {
            regions.want_all();
            if let Some(start) = doubt_from {
                regions.doubt_from(start);
            }
        }
    }
    // Copies of the bitmap may differ after a crash: all say the same before anything is written.
    regions.rewrite_all();
    (Some(header), regions)
}

async fn read_bits<D: Device>(
    devices: &[(String, D)],
    pool: &BufPool,
    examined: &[Examined],
    sources: &[usize],
) -> Option<Bitmap> {
    let mut all: Option<Bitmap> = None;
    for source in sources {
        let bits = read_bitmap(&devices[*source].1, pool, &examined[*source].superblock).await;
        match (all.as_mut(), bits) {
            (None, bits) => all = bits,
            (Some(all), Some(bits)) => {
                if !all.merge(&bits) {
                    return None;
                }
            }
            (Some(_), None) => {}
        }
    }
    all
}
