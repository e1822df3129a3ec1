//! The engine's plan for what was asked, its refusals in words, and whether the array starts clean. Only holes are
//! looked up.

use plexum_format::SECTOR_BYTES;
use plexum_layout::{Geometry, Level};
use plexum_md::create::{self, CreateError, NewArray, Plan, plan_at};

use super::{CreateRequest, NAME_BYTES_MAX, PlannedMember, Start, Target, usage};
use crate::inspect::is_hole;
use crate::problem::{Code, Problem};

/// The engine's plan; a refusal names the member as the user wrote it.
pub(super) fn plan_array(
    array: &NewArray,
    request: &CreateRequest,
    members: &[PlannedMember],
) -> Result<Plan, Problem> {
    let word = |index: usize| {
        members
            .get(index)
            .map(|member| member.member.clone())
            .unwrap_or_default()
    };
    plan_at(array, request.data_offset_bytes).map_err(|error| match error {
        CreateError::NoMembers => Problem::new(Code::TooFewMembers, "every member is missing"),
        CreateError::Geometry(error) => usage(error.to_string()),
        CreateError::Format { index, error } => {
            let code = match error.field {
                "device size" => Code::MemberTooSmall,
                _ => Code::Usage,
            };
            Problem::new(code, format!("{}: {error}", word(index))).member(word(index))
        }
        CreateError::SizeTooLarge { index, room_bytes } => Problem::new(
            Code::MemberTooSmall,
            format!(
                "{} has room for {room_bytes} bytes of data, --size asks for {}",
                word(index),
                request.size_bytes.unwrap_or(0)
            ),
        )
        .member(word(index)),
        other => usage(other.to_string()),
    })
}

/// What the superblocks say about the first resync.
pub(super) fn engine_start(start: Start) -> create::Start {
    match start {
        Start::Resync => create::Start::Resync,
        Start::NothingToCompare | Start::AllZero | Start::AssumedClean | Start::Rebuild => {
            create::Start::Agreeing
        }
    }
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

/// L1: no log is no error, but said.
pub(super) fn note_no_log(plan: &Plan, notes: &mut Vec<String>) {
    if let Some(reason) = &plan.no_log {
        notes.push(format!(
            "no stripe log: {reason}; after an unclean stop parity is made right by a resync"
        ));
    }
}

pub(super) fn note_unused(members: &[PlannedMember], plan: &Plan, notes: &mut Vec<String>) {
    let geometry = &plan.geometry;
    if !geometry.organisation().level().has_redundancy() {
        return;
    }
    for (member, superblock) in members.iter().zip(&plan.superblocks) {
        let Some(superblock) = superblock else {
            continue;
        };
        let size_bytes = superblock.data_size_sectors * SECTOR_BYTES;
        let unused = size_bytes.saturating_sub(geometry.component_bytes());
        // A strip or a MiB lost to rounding is nobody's concern.
        if unused > geometry.strip_bytes().max(1 << 20) {
            notes.push(format!("{}: {unused} bytes stay unused", member.member));
        }
    }
}

/// Whether a first resync is needed, and whether it may be left out (W5).
pub(super) fn decide_start(
    request: &CreateRequest,
    missing: &[bool],
    members: &[PlannedMember],
    plan: &Plan,
) -> Result<Start, Problem> {
    let geometry = &plan.geometry;
    let level = request.organisation.level();
    let is_single_mirror = level == Level::Raid1 && missing.iter().filter(|m| !**m).count() == 1;
    let has_no_parity_left = level.has_parity() && geometry.losses_left(missing) == 0;
    if !level.has_redundancy() || is_single_mirror || has_no_parity_left {
        return Ok(Start::NothingToCompare);
    }
    let used_bytes = geometry.component_bytes();
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
            .hint("if the members held this very array before, look at it first, which writes nothing:   --try --data-offset SIZE")
            .hint("when all is right, in place of --try:   --force --data-offset SIZE")
            .hint("SIZE is where its data begin on each member (mdadm: often 1M on small ones, 128M or more on large ones); only metadata is written"));
        }
        return Ok(Start::AssumedClean);
    }
    if level.has_parity() && (missing.contains(&true) || request.has_ppl) {
        // A resync would need all members; a member that is filled needs only as many as hold the data. And an array
        // with a partial parity log counts as right after a replay: no resync may be under way then.
        return Ok(Start::Rebuild);
    }
    Ok(Start::Resync)
}

/// `host:name`, cut at what a superblock holds. Source: cli.md, Names.
pub(super) fn stored_name(request: &CreateRequest, notes: &mut Vec<String>) -> String {
    let mut stored = match request.homehost.as_str() {
        "" => request.name.clone(),
        host => format!("{host}:{}", request.name),
    };
    if stored.len() > NAME_BYTES_MAX {
        let end = (0..=NAME_BYTES_MAX)
            .rev()
            .find(|end| stored.is_char_boundary(*end));
        stored.truncate(end.unwrap_or(0));
        notes.push(format!(
            "the superblocks hold {NAME_BYTES_MAX} bytes of the name: {stored:?}"
        ));
    }
    stored
}
