//! Arrays that this version can read and must not write: metadata that is not known, or that somebody else has to mend.
//!
//! Invariant: whatever is said to be unknown here keeps the array from being written, whatever options are given.

use plexum_format::md::{BitmapKind, Superblock};
use plexum_format::{FormatError, Problem};

use super::problem::{AssembleCode, AssembleError};
use super::{AssembledMember, Examined, Options};

/// Said of an array whose bitmap does not prove its redundancy.
const UNPROVEN: &str = "its bitmap does not say that parity is right everywhere: what would have to be made from it \
     is answered with errors (with --force --force-data: with what comes out)";

const READ_ONLY: &str = "add --read-only to read it";

/// Refuses to write what is not known or not whole.
///
/// # Errors
/// `UnsupportedFeature` unless nothing is to be written; then whether redundancy is unproven, and notes.
pub(super) fn check(
    name: &str,
    newest: &Superblock,
    examined: &[Examined],
    members: &[AssembledMember],
    options: &Options,
) -> Result<(bool, Vec<String>), AssembleError> {
    let mut teller = Teller {
        name,
        is_reading: options.read_only,
        notes: Vec::new(),
    };
    if let Some((member, error)) = unknown_bitmap(newest, examined) {
        teller.tell(
            format!("{}: {error}", member.name),
            "writing past a bitmap that is not kept up would leave members that differ, and nobody would know where",
            None,
        )?;
    }
    if newest.bitmap_offset_sectors.is_some()
        && sources(newest, examined).any(|member| kind(member) == Some(BitmapKind::Lockless))
    {
        teller.tell(
            "its bitmap is a lockless one (version 6)".to_owned(),
            "parity of regions that were never written does not exist yet, and this version cannot keep such a bitmap",
            Some("to write it: Linux 6.18 or newer"),
        )?;
    }
    for member in members.iter().filter(|member| member.slot.is_some()) {
        check_member(&mut teller, newest, examined, member)?;
    }
    let mut notes = teller.notes;
    let is_unproven = is_unproven(newest, examined);
    if is_unproven && matches!(newest.level, 4..=6) {
        notes.push(UNPROVEN.to_owned());
    }
    Ok((is_unproven, notes))
}

/// What is said of one member: NAS flags, and whether it was cut.
fn check_member(
    teller: &mut Teller<'_>,
    newest: &Superblock,
    examined: &[Examined],
    member: &AssembledMember,
) -> Result<(), AssembleError> {
    if newest
        .flagged_dev_numbers()
        .any(|number| number == member.dev_number)
    {
        teller.tell(
                format!(
                    "{} carries the disk error flag of a NAS (0x8000 in its role)",
                    member.name
                ),
                "the NAS saw an error on that disk; Linux and mdadm do not know the flag, and would not take what is written",
                None,
            )?;
    }
    let own = examined.iter().find(|one| one.index == member.index);
    if own.is_some_and(|one| one.superblock.is_clipped) {
        teller.tell(
                format!(
                    "{} is shorter than its superblock says: {} sectors are left for data",
                    member.name,
                    member.data_size_bytes / plexum_format::units::SECTOR_BYTES
                ),
                "all that the array uses of it is there; but somebody has cut it (a hidden area, an image that is not whole)",
                Some(
                    "to write it, give the disk its full size back, or: mdadm --assemble --update=devicesize",
                ),
            )?;
    }
    Ok(())
}

/// Collects what may be read and not written, or refuses.
struct Teller<'a> {
    name: &'a str,
    is_reading: bool,
    notes: Vec<String>,
}

impl Teller<'_> {
    fn tell(&mut self, what: String, why: &str, hint: Option<&str>) -> Result<(), AssembleError> {
        if self.is_reading {
            self.notes.push(what);
            return Ok(());
        }
        let message = format!("array {}: {what}", self.name);
        let error = AssembleError::new(AssembleCode::UnsupportedFeature, message);
        let error = error.why(why).hint(READ_ONLY);
        Err(match hint {
            Some(hint) => error.hint(hint),
            None => error,
        })
    }
}

/// Whether a bitmap that is not known, or one that tells of regions without parity, leaves redundancy unproven.
///
/// The versions before 4 and the clustered one mark what was being written: on a clean array nothing.
fn is_unproven(newest: &Superblock, examined: &[Examined]) -> bool {
    let is_later = |error: &FormatError| {
        let known = ["3 ", "5 "];
        error.field == "version" && !known.iter().any(|start| error.found.starts_with(start))
    };
    let is_unproven = |member: &Examined| {
        kind(member) == Some(BitmapKind::Lockless)
            || refused_as_unknown(member).is_some_and(is_later)
    };
    newest.bitmap_offset_sectors.is_some() && sources(newest, examined).any(is_unproven)
}

fn unknown_bitmap<'a>(
    newest: &'a Superblock,
    examined: &'a [Examined],
) -> Option<(&'a Examined, &'a FormatError)> {
    newest.bitmap_offset_sectors?;
    sources(newest, examined).find_map(|member| Some((member, refused_as_unknown(member)?)))
}

fn refused_as_unknown(member: &Examined) -> Option<&FormatError> {
    let refused = member.refused.bitmap.as_ref();
    refused.filter(|error| error.problem == Problem::Unsupported)
}

fn kind(member: &Examined) -> Option<BitmapKind> {
    member.bitmap.as_ref().map(|header| header.kind)
}

/// Members that are fresh and have a slot: whose bitmaps the array goes by.
fn sources<'a>(
    newest: &'a Superblock,
    examined: &'a [Examined],
) -> impl Iterator<Item = &'a Examined> {
    examined.iter().filter(|member| {
        let superblock = &member.superblock;
        superblock.events.is_fresh_beside(newest.events)
            && newest.role_of(superblock.dev_number).slot().is_some()
    })
}
