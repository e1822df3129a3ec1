//! Whether the joined members may be started: features, geometry, enough members, clean or dirty.

use std::ops::Range;

use plexum_format::md::{Raid0Layout as RecordedRaid0, Reshape, Superblock};

use super::problem::{AssembleCode, AssembleError};
use super::{AssembledMember, AssembledReshape, AssembledStanding, BitmapUse, Doubt, Options};
use plexum_layout::{Geometry, GeometryError, GeometrySpec, Organisation, Raid0Layout, RowRole};

const SECTOR_BYTES: u64 = 512;

/// A header of a partial parity log and a page of parity.
pub(super) const PPL_SECTORS_MIN: u16 = 16;

/// Refuses what cannot be written yet; reading is allowed where the members alone hold everything.
pub(super) fn check_features(
    name: &str,
    newest: &Superblock,
    options: &Options,
) -> Result<(), AssembleError> {
    let refuse = |what: &str, why: &str, hint: &str| {
        Err(AssembleError::new(
            AssembleCode::UnsupportedFeature,
            format!("array {name}: {what}"),
        )
        .why(why)
        .hint(hint))
    };
    let read_only = "add --read-only to read it";
    if newest.has_journal && newest.resync_offset_sectors.is_some() {
        let why =
            "the journal may hold writes that the members lack, and this version cannot replay it";
        return refuse(
            "it has a write journal and was not stopped cleanly",
            why,
            "let the Linux kernel assemble and stop it once",
        );
    }
    if newest
        .reshape
        .is_some_and(|reshape| reshape.new_level != newest.level)
    {
        return refuse(
            "a change of level is in progress",
            "this version cannot read such an array",
            "let the Linux kernel finish it",
        );
    }
    if options.read_only {
        return Ok(());
    }
    if newest.has_journal {
        return refuse(
            "it has a write journal",
            "this version cannot write it, and writing past it would corrupt the array",
            read_only,
        );
    }
    if newest.ppl.is_some() && newest.level != 5 {
        return refuse(
            "it has a partial parity log (PPL) without being a RAID-5",
            "nobody knows what such a log would mean",
            read_only,
        );
    }
    if newest
        .ppl
        .is_some_and(|area| area.size_sectors < PPL_SECTORS_MIN)
    {
        return refuse(
            "its partial parity log (PPL) has no room for a header and a page",
            "nothing could be written to it",
            read_only,
        );
    }
    if newest.reshape.is_some() && !options.goes_on_reshaping {
        return refuse(
            "a reshape is in progress",
            "this version can read it where it stands, but not go on with it",
            read_only,
        );
    }
    Ok(())
}

/// Where redundancy may be wrong from on; `None`: clean, or none there.
pub(super) fn resync_start_bytes(newest: &Superblock, geometry: &Geometry) -> Option<u64> {
    let has_redundancy = geometry.organisation().level().has_redundancy();
    let start_sectors = newest.resync_offset_sectors.filter(|_| has_redundancy);
    start_sectors.map(|sectors| sectors.saturating_mul(SECTOR_BYTES))
}

/// Slots that can have a member: during a reshape the larger of both numbers.
///
/// # Errors
/// `DamagedMetadata` when there are more than roles.
pub(super) fn slot_count(name: &str, newest: &Superblock) -> Result<u16, AssembleError> {
    let (before, after) = member_counts(newest);
    u16::try_from(before.max(after)).map_err(|_| {
        let message = format!(
            "array {name}: {} members are more than md can have",
            before.max(after)
        );
        AssembleError::new(AssembleCode::DamagedMetadata, message)
    })
}

/// Number of members before and after the reshape in progress; equal without one.
fn member_counts(newest: &Superblock) -> (i64, i64) {
    let after = i64::from(newest.member_count);
    (
        after
            - newest
                .reshape
                .map_or(0, |reshape| i64::from(reshape.member_count_change)),
        after,
    )
}

/// The geometry that the freshest superblock describes (during a reshape: the old one).
///
/// # Errors
/// `DamagedMetadata` when it cannot be, `UnsupportedFeature` for RAID-0 that could be read in two ways, `TooFewMembers`
/// for linear and RAID-0 with a member missing.
pub(super) fn geometry(
    name: &str,
    newest: &Superblock,
    members: &[AssembledMember],
    options: &Options,
) -> Result<(GeometrySpec, Geometry), AssembleError> {
    let recorded = newest.raid0_layout().map(|layout| match layout {
        RecordedRaid0::Original => Raid0Layout::Original,
        RecordedRaid0::Alternate => Raid0Layout::Alternate,
    });
    let recorded = recorded.or(options.raid0_layout);
    let organisation = match newest.level {
        0 => Organisation::Raid0(recorded.unwrap_or(Raid0Layout::Original)),
        level => {
            Organisation::from_md(level, newest.layout).map_err(|error| damaged(name, &error))?
        }
    };
    let (member_count, _) = member_counts(newest);
    let member_count = u16::try_from(member_count).map_err(|_| {
        AssembleError::new(
            AssembleCode::DamagedMetadata,
            format!("array {name}: {member_count} members before the reshape"),
        )
    })?;
    let spec = GeometrySpec {
        organisation,
        member_count,
        strip_bytes: u64::from(newest.strip_sectors) * SECTOR_BYTES,
        component_bytes: newest.component_sectors.saturating_mul(SECTOR_BYTES),
        member_sizes_bytes: if organisation.level().has_redundancy() {
            Vec::new()
        } else {
            all_sizes(name, member_count, members)?
        },
    };
    let geometry = Geometry::new(&spec).map_err(|error| damaged(name, &error))?;
    if recorded.is_none() && geometry.raid0_layout_matters() {
        let message = format!("array {name}: {}", GeometryError::Raid0LayoutUnknown);
        return Err(AssembleError::new(AssembleCode::UnsupportedFeature, message)
            .why("read the wrong way, the data behind the smallest member's end are scrambled")
            .hint("written by Linux before 3.14: add --read-only --raid0-layout original and look at the data")
            .hint("written by Linux 3.14 to 5.3: add --read-only --raid0-layout alternate and look at the data")
            .hint("record the layout with \"mdadm --assemble --update=layout-original\" (or layout-alternate) once"));
    }
    Ok((spec, geometry))
}

fn damaged(name: &str, error: &GeometryError) -> AssembleError {
    let message =
        format!("array {name}: its superblock describes an array that cannot be: {error}");
    AssembleError::new(AssembleCode::DamagedMetadata, message)
}

/// Linear and RAID-0 need every member's size.
fn all_sizes(
    name: &str,
    member_count: u16,
    members: &[AssembledMember],
) -> Result<Vec<u64>, AssembleError> {
    let size_of = |slot| {
        members
            .iter()
            .find(|m| m.slot == Some(slot))
            .map(|m| m.data_size_bytes)
    };
    (0..member_count)
        .map(size_of)
        .collect::<Option<Vec<u64>>>()
        .ok_or_else(|| {
            let present = (0..member_count)
                .filter(|slot| size_of(*slot).is_some())
                .count();
            too_few(
                format!(
                    "array {name}: {present} of {member_count} members are usable, all are needed"
                ),
                members,
            )
        })
}

/// The other side of a reshape in progress.
pub(super) fn reshape(
    name: &str,
    newest: &Superblock,
    before: &GeometrySpec,
    old: &Geometry,
) -> Result<Option<AssembledReshape>, AssembleError> {
    let Some(Reshape {
        position_sectors,
        new_level,
        new_layout,
        new_strip_sectors,
        ..
    }) = newest.reshape
    else {
        return Ok(None);
    };
    let organisation =
        Organisation::from_md(new_level, new_layout).map_err(|error| damaged(name, &error))?;
    let spec = GeometrySpec {
        organisation,
        member_count: u16::try_from(newest.member_count).unwrap_or(u16::MAX),
        strip_bytes: u64::from(new_strip_sectors) * SECTOR_BYTES,
        ..before.clone()
    };
    let after = Geometry::new(&spec).map_err(|error| damaged(name, &error))?;
    let recorded = newest.reshape;
    let mut reshape = AssembledReshape {
        after,
        position_bytes: position_sectors.saturating_mul(SECTOR_BYTES),
        is_backwards: recorded.is_some_and(|reshape| reshape.is_backwards()),
        torn: None,
    };
    // All members are shifted, or none.
    let shift = recorded.and_then(|reshape| reshape.new_offset_sectors);
    if shift.unwrap_or(0) == 0 && organisation.level().has_parity() {
        reshape.torn = torn(old, &reshape);
    }
    Ok(Some(reshape))
}

/// What a reshape in place may have overwritten of the data that are read in the old geometry: nothing, when even the
/// next row to be written lies on what is done (R3 without a gap).
fn torn(old: &Geometry, reshape: &AssembledReshape) -> Option<Range<u64>> {
    let position = reshape.position_bytes;
    let end = old.volume_bytes().min(reshape.after.volume_bytes());
    let (old_data, new_data) = (old.data_count() as u64, reshape.after.data_count() as u64);
    let unit = old.strip_bytes().max(reshape.after.strip_bytes());
    let old_row = old_data.saturating_mul(old.strip_bytes()).max(1);
    let (is_safe, range) = if reshape.is_backwards {
        let next = (position / new_data).saturating_sub(unit);
        let needed = position.div_ceil(old_row).saturating_mul(old.strip_bytes());
        (
            position > unit.saturating_mul(new_data) && next >= needed,
            0..position.min(end),
        )
    } else {
        let next = (position / new_data).saturating_add(unit);
        let needed = (position / old_row).saturating_mul(old.strip_bytes());
        // With more data members the kernel records its position at the latest when it was this far.
        let bound = unit.saturating_mul(2 * old_data).saturating_mul(new_data);
        let last = if new_data > old_data {
            bound.max(position).min(end)
        } else {
            end
        };
        (next <= needed, position..last)
    };
    (!is_safe && !range.is_empty()).then_some(range)
}

/// Slots without a complete member in what a reshape has done.
pub(super) fn missing_after(
    reshape: &AssembledReshape,
    slot_count: u16,
    members: &[AssembledMember],
) -> Vec<bool> {
    let is_complete = |member: &AssembledMember| {
        member.standing == AssembledStanding::Active || reshape.has_filled(member)
    };
    let has = |slot| {
        members
            .iter()
            .any(|m| m.slot == Some(slot) && is_complete(m))
    };
    (0..slot_count).map(|slot| !has(slot)).collect()
}

/// Slots without a complete member in the one geometry that there is, or the one that a reshape leaves.
pub(super) fn missing_before(
    geometry: &Geometry,
    reshape: Option<&AssembledReshape>,
    slot_count: u16,
    members: &[AssembledMember],
) -> Vec<bool> {
    let is_complete = |member: &AssembledMember| {
        let is_filled = |reshape: &AssembledReshape| reshape.has_filled_before(member, geometry);
        member.standing == AssembledStanding::Active || reshape.is_some_and(is_filled)
    };
    let has = |slot| {
        let mut members = members.iter();
        members.any(|m| m.slot == Some(slot) && is_complete(m))
    };
    (0..slot_count).map(|slot| !has(slot)).collect()
}

/// Whether both halves of a reshape, or the one geometry that there is, can do with the members.
pub(super) fn check_halves(
    name: &str,
    (geometry, reshape, slot_count): (&Geometry, Option<&AssembledReshape>, u16),
    members: &[AssembledMember],
) -> Result<(), AssembleError> {
    let missing = missing_before(geometry, reshape, slot_count, members);
    check_enough(name, geometry, &missing, members)?;
    reshape.map_or(Ok(()), |reshape| {
        let missing = missing_after(reshape, slot_count, members);
        check_enough(name, &reshape.after, &missing, members)
    })
}

/// R16: what a reshape in place was moving may be on the members neither in the old geometry nor in the new one.
pub(super) fn check_torn(
    name: &str,
    reshape: Option<&AssembledReshape>,
    options: &Options,
) -> Result<(), AssembleError> {
    let torn = reshape.and_then(|reshape| reshape.torn.as_ref());
    let Some(torn) = torn.filter(|_| !options.force && !options.has_backup) else {
        return Ok(());
    };
    let message = format!(
        "array {name}: it was being reshaped in place, and bytes {} to {} may be half moved",
        torn.start, torn.end
    );
    Err(AssembleError::new(AssembleCode::ReshapeTorn, message)
        .why("what was being moved is whole only in the backup file that mdadm --grow was given")
        .hint("with that file add:   --read-only --backup-file FILE")
        .hint("or add --read-only --force: those bytes then answer with errors (with --force-data: with what is there)"))
}

/// Rule 5 of linux-md.md section 9.
fn check_enough(
    name: &str,
    geometry: &Geometry,
    missing: &[bool],
    members: &[AssembledMember],
) -> Result<(), AssembleError> {
    let missing = &missing[..geometry.member_count()];
    if geometry.tolerates(missing) {
        return Ok(());
    }
    let lost: Vec<String> = (0..missing.len())
        .filter(|slot| missing[*slot])
        .map(|slot| slot.to_string())
        .collect();
    let message = format!(
        "array {name}: {} of {} members are usable, too few for {}; slots without one: {}",
        missing.len() - lost.len(),
        missing.len(),
        geometry.organisation(),
        lost.join(", ")
    );
    Err(too_few(message, members))
}

fn too_few(message: String, members: &[AssembledMember]) -> AssembleError {
    let mut error = AssembleError::new(AssembleCode::TooFewMembers, message);
    for member in members.iter().filter(|m| !m.standing.is_used()) {
        error = error.why(format!(
            "{} is left out: {}",
            member.name,
            member.reason.as_deref().unwrap_or("no reason recorded")
        ));
    }
    error.hint("find and name the missing members; nothing was written to the others")
}

/// As `check_dirty`, in every geometry that the array is written to in: the first doubt counts.
pub(super) fn check_dirty_in<'a>(
    name: &str,
    geometries: impl Iterator<Item = (&'a Geometry, Vec<bool>)>,
    resync_start_bytes: Option<u64>,
    bitmap: &BitmapUse,
    options: &Options,
) -> Result<Doubt, AssembleError> {
    for (geometry, missing) in geometries {
        let doubt = check_dirty(
            name,
            geometry,
            &missing,
            resync_start_bytes,
            bitmap,
            options,
        )?;
        if doubt != Doubt::None {
            return Ok(doubt);
        }
    }
    Ok(Doubt::None)
}

/// Rule 6 of linux-md.md section 9, and W8: what is in doubt when it is overridden.
///
/// A missing member that holds nothing but parity loses nothing.
fn check_dirty(
    name: &str,
    geometry: &Geometry,
    missing: &[bool],
    resync_start_bytes: Option<u64>,
    bitmap: &BitmapUse,
    options: &Options,
) -> Result<Doubt, AssembleError> {
    let Some(start_bytes) =
        resync_start_bytes.filter(|_| geometry.organisation().level().has_parity())
    else {
        return Ok(Doubt::None);
    };
    let lost: Vec<usize> = (0..geometry.member_count())
        .filter(|slot| missing[*slot] && !holds_only_parity(geometry, *slot))
        .collect();
    if lost.is_empty() {
        return Ok(Doubt::None);
    }
    if options.force {
        return Ok(match bitmap {
            BitmapUse::Usable { .. } => Doubt::MarkedRegions,
            _ => Doubt::From { start_bytes },
        });
    }
    let lost: Vec<String> = lost.iter().map(usize::to_string).collect();
    let message = format!(
        "array {name} was not stopped cleanly and lacks the member of slot {}",
        lost.join(", ")
    );
    Err(AssembleError::new(AssembleCode::DirtyDegraded, message)
        .why("rows that were being written then may give wrong data for the missing member")
        .hint("add the missing member if it still exists")
        .hint("or add --force: rows in doubt then answer with errors (with --force-data: with what is there)"))
}

/// Whether no row has data on this slot.
fn holds_only_parity(geometry: &Geometry, slot: usize) -> bool {
    let rows = geometry
        .row_count()
        .min(geometry.member_count() as u64 * (geometry.member_count() as u64 - 1));
    (0..rows).all(|row| !matches!(geometry.row_map(row).role_of(slot), RowRole::Data(_)))
}

/// Rule 8 of linux-md.md section 9: whoever took part at the last commit has to be there, unless the user insists.
pub(super) fn check_expected(
    name: &str,
    newest: &Superblock,
    slot_count: u16,
    members: &[AssembledMember],
    options: &Options,
) -> Result<(), AssembleError> {
    if options.force || options.run_degraded {
        return Ok(());
    }
    let mut lost = Vec::new();
    for slot in 0..slot_count {
        let entries = newest
            .roles
            .iter()
            .filter(|role| role.slot().is_some_and(|s| s.0 == slot))
            .count();
        let holds = |standing: fn(&AssembledStanding) -> bool| {
            members
                .iter()
                .any(|m| m.slot == Some(slot) && standing(&m.standing))
        };
        let is_complete = holds(|s| *s == AssembledStanding::Active);
        let is_filled = holds(|s| matches!(s, AssembledStanding::Rebuilding { .. }));
        if entries > 0 && !is_complete && !(entries == 1 && is_filled) {
            lost.push(slot.to_string());
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let message = format!(
        "array {name}: the member of slot {} took part when the array was last written, and is not here",
        lost.join(", ")
    );
    let mut error = AssembleError::new(AssembleCode::DegradedStart, message);
    for member in members.iter().filter(|m| !m.standing.is_used()) {
        error = error.why(format!(
            "{} is left out: {}",
            member.name,
            member.reason.as_deref().unwrap_or("no reason recorded")
        ));
    }
    Err(error
        .why("started without it, the array goes on degraded and the absent member becomes stale")
        .hint("name the missing member as well, or add --run-degraded"))
}
