//! Where everything of a new array goes, and whether it starts clean. Nothing is read or written here but holes looked up.
//!
//! Invariants: a region size that nobody asked for grows until the bitmap fits; one that was asked for is kept or refused.

use plexum_engine::plex::layout::{Geometry, GeometrySpec, Level};
use plexum_format::SECTOR_BYTES;
use plexum_format::md::{PlacementRequest, bitmap, component_sectors, place_member};

use super::{CreateRequest, NAME_BYTES_MAX, PlannedMember, Start, Target, usage};
use crate::inspect::is_hole;
use crate::problem::{Code, Problem};

/// Largest bitmap region: md keeps the size in 32 bits.
const REGION_BYTES_MAX: u64 = 1 << 31;

/// What the sizes of all members together decide.
pub(super) struct Placed {
    pub(super) spec: GeometrySpec,
    pub(super) component_sectors: u64,
    pub(super) region_bytes: Option<u64>,
}

pub(super) fn place(
    request: &CreateRequest,
    strip_bytes: u64,
    members: &mut [PlannedMember],
) -> Result<Placed, Problem> {
    let level = request.organisation.level();
    let sizes = || {
        members
            .iter()
            .filter(|m| !m.is_missing)
            .map(|m| m.size_bytes)
    };
    let Some(smallest) = sizes().min() else {
        return Err(Problem::new(Code::TooFewMembers, "every member is missing"));
    };
    let wants_bitmap = request.has_bitmap && level.has_redundancy();
    // An upper bound of what the bitmap covers; what it really covers is known only after the placement.
    let cover_bytes = request
        .size_bytes
        .map_or(smallest, |size| size.min(smallest));
    let cover_bytes = match level {
        Level::Raid10 => cover_bytes.saturating_mul(request.members.len() as u64),
        _ => cover_bytes,
    };
    let mut region_bytes = first_region_bytes(request, cover_bytes)?;
    loop {
        let count = cover_bytes.div_ceil(region_bytes);
        let bitmap_bytes = wants_bitmap.then(|| bitmap::area_bytes(count));
        match place_all(request, strip_bytes, smallest, bitmap_bytes, members) {
            Ok(()) => break,
            // Regions that nobody asked for grow until the bitmap fits the version.
            Err(_) if wants_bitmap && request.region_bytes.is_none() && region_bytes < 64 << 20 => {
                region_bytes *= 2;
            }
            Err(problem) => return Err(problem),
        }
    }
    let data_sizes: Vec<u64> = members
        .iter()
        .filter_map(|member| {
            member
                .placement
                .map(|placement| placement.data_size_sectors)
        })
        .collect();
    let strip_sectors = (strip_bytes / SECTOR_BYTES) as u32; // at most 1 GiB
    let component = component_sectors(level.md_number(), strip_sectors, &data_sizes);
    let spec = GeometrySpec {
        organisation: request.organisation,
        member_count: request.members.len() as u16, // at most MEMBERS_MAX
        strip_bytes,
        component_bytes: component * SECTOR_BYTES,
        member_sizes_bytes: match level {
            Level::Linear | Level::Raid0 => members
                .iter()
                .map(|m| {
                    m.placement
                        .map_or(0, |p| p.data_size_sectors * SECTOR_BYTES)
                })
                .collect(),
            _ => Vec::new(),
        },
    };
    Ok(Placed {
        spec,
        component_sectors: component,
        region_bytes: wants_bitmap.then_some(region_bytes),
    })
}

/// The region size to begin with: as asked for, or by the size that the bitmap covers.
fn first_region_bytes(request: &CreateRequest, cover_bytes: u64) -> Result<u64, Problem> {
    match request.region_bytes {
        Some(bytes) if !bytes.is_power_of_two() || !(4096..=REGION_BYTES_MAX).contains(&bytes) => {
            Err(usage(format!(
                "--bitmap-region {bytes}: it must be a power of two from 4K to 2G"
            )))
        }
        Some(bytes) => Ok(bytes),
        None => Ok(u64::from(bitmap::default_region_bytes(
            cover_bytes / SECTOR_BYTES,
        ))),
    }
}

fn place_all(
    request: &CreateRequest,
    strip_bytes: u64,
    smallest_bytes: u64,
    bitmap_bytes: Option<u64>,
    members: &mut [PlannedMember],
) -> Result<(), Problem> {
    for member in members.iter_mut().filter(|member| !member.is_missing) {
        let mut placement = place_member(&PlacementRequest {
            version: request.version,
            device_sectors: member.size_bytes / SECTOR_BYTES,
            smallest_device_sectors: smallest_bytes / SECTOR_BYTES,
            strip_sectors: (strip_bytes / SECTOR_BYTES) as u32, // at most 1 GiB
            bitmap_bytes,
        })
        .map_err(|error| {
            Problem::new(
                match error.field {
                    "device size" => Code::MemberTooSmall,
                    _ => Code::Usage,
                },
                format!("{}: {error}", member.member),
            )
            .member(member.member.clone())
        })?;
        if let Some(size_bytes) = request.size_bytes {
            let wanted = size_bytes / SECTOR_BYTES;
            if wanted == 0 || wanted > placement.data_size_sectors {
                return Err(Problem::new(
                    Code::MemberTooSmall,
                    format!(
                        "{} has room for {} bytes of data, --size asks for {size_bytes}",
                        member.member,
                        placement.data_size_sectors * SECTOR_BYTES
                    ),
                )
                .member(member.member.clone()));
            }
            placement.data_size_sectors = wanted;
        }
        member.data_offset_bytes = placement.data_offset_sectors * SECTOR_BYTES;
        member.placement = Some(placement);
    }
    Ok(())
}

pub(super) fn check_missing(
    request: &CreateRequest,
    geometry: &Geometry,
    missing: &[bool],
) -> Result<(), Problem> {
    if geometry.tolerates(missing) {
        return Ok(());
    }
    let lost = missing.iter().filter(|missing| **missing).count();
    Err(Problem::new(
        Code::TooFewMembers,
        format!(
            "{} on {} members cannot do without {lost} of them",
            request.organisation,
            missing.len()
        ),
    )
    .hint("name more members, or choose a level with more redundancy"))
}

pub(super) fn note_unused(members: &[PlannedMember], placed: &Placed, notes: &mut Vec<String>) {
    if placed.component_sectors == 0 {
        return;
    }
    for member in members {
        let Some(placement) = &member.placement else {
            continue;
        };
        let unused = (placement.data_size_sectors - placed.component_sectors) * SECTOR_BYTES;
        // A strip or a MiB lost to rounding is nobody's concern.
        if unused > placed.spec.strip_bytes.max(1 << 20) {
            notes.push(format!("{}: {unused} bytes stay unused", member.member));
        }
    }
}

/// Whether a first resync is needed, and whether it may be left out (W5).
pub(super) fn decide_start(
    request: &CreateRequest,
    geometry: &Geometry,
    missing: &[bool],
    members: &[PlannedMember],
    placed: &Placed,
) -> Result<Start, Problem> {
    let level = request.organisation.level();
    let is_single_mirror = level == Level::Raid1 && missing.iter().filter(|m| !**m).count() == 1;
    let has_no_parity_left = level.has_parity() && geometry.losses_left(missing) == 0;
    if !level.has_redundancy() || is_single_mirror || has_no_parity_left {
        return Ok(Start::NothingToCompare);
    }
    let used_bytes = placed.component_sectors * SECTOR_BYTES;
    let not_zero = members.iter().find(|member| {
        member.slot.is_some()
            && match &member.target {
                Target::Missing | Target::NewFile(_) => false,
                Target::Open(device) => !is_hole(device, member.data_offset_bytes, used_bytes),
            }
    });
    let Some(not_zero) = not_zero else {
        return Ok(Start::AllZero);
    };
    if request.is_assume_clean {
        if level.has_parity() && !request.is_forced {
            return Err(Problem::new(
                Code::NotProvenZero,
                format!("{} is not known to be all zero", not_zero.member),
            )
            .member(not_zero.member.clone())
            .why("if parity does not agree with the data, the loss of a member brings back wrong data")
            .hint("leave out --assume-clean: parity is made right in the background")
            .hint("if the members held this very array before, add:   --force"));
        }
        return Ok(Start::AssumedClean);
    }
    if level.has_parity() && missing.contains(&true) {
        return Err(Problem::new(
            Code::NotYet,
            format!(
                "{} with some but not all redundancy missing cannot make its parity right",
                request.organisation
            ),
        )
        .why("a resync needs all members, and the volume would not start after an unclean stop")
        .hint(format!(
            "leave {} slots empty instead, then:   plexum add {} MEMBER",
            geometry.parity_count(),
            request.name
        )));
    }
    Ok(Start::Resync)
}

/// What the bitmap covers: member sectors, for RAID-10 array sectors. Source: linux-md.md section 3.
pub(super) fn sync_size_sectors(geometry: &Geometry) -> u64 {
    match geometry.organisation().level() {
        Level::Raid10 => geometry.volume_bytes() / SECTOR_BYTES,
        _ => geometry.component_bytes() / SECTOR_BYTES,
    }
}

/// `host:name`, or the name alone where both do not fit.
pub(super) fn stored_name(request: &CreateRequest) -> String {
    let long = format!("{}:{}", request.homehost, request.name);
    if request.homehost.is_empty() || long.len() > NAME_BYTES_MAX {
        return request.name.clone();
    }
    long
}
