//! What a request says, checked, and its members opened and looked at.
//!
//! Invariants: a member is locked from here on; nothing is changed.

use std::path::Path;

use plexum_block::device::Device;
use plexum_layout::Level;
use plexum_runtime::Handle;
use plexum_runtime::file::{Access, OpenOptions};

use super::{CreateRequest, NAME_BYTES_MAX, PlannedMember, STRIP_BYTES_DEFAULT, Target, usage};
use crate::inspect::inspect;
use crate::open::{AnyDevice, MemberWord, check_writers};
use crate::problem::{Code, Problem};

/// Largest bitmap region: md keeps the size in 32 bits.
const REGION_BYTES_MAX: u64 = 1 << 31;

/// Whether clients, sockets and commands can use a name for a volume.
///
/// # Errors
/// `Usage` otherwise.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let is_fine = |c: char| !(c.is_control() || c.is_whitespace() || "/:=".contains(c));
    if name.is_empty() || name.starts_with(['.', '-']) || !name.chars().all(is_fine) {
        return Err(usage(format!("{name:?} is no name for a volume"))
            .hint("letters, digits, - _ . and no blank, slash, colon or equals sign"));
    }
    Ok(())
}

pub(super) fn check_request(request: &CreateRequest) -> Result<(), Problem> {
    let name = &request.name;
    check_name(name)?;
    if name.len() > NAME_BYTES_MAX {
        return Err(usage(format!(
            "the name has {} bytes, a superblock holds {NAME_BYTES_MAX}",
            name.len()
        )));
    }
    let level = request.organisation.level();
    let count = request.members.len();
    if matches!(level, Level::Raid4 | Level::Raid5) && count < 3 {
        return Err(
            usage(format!("{level} needs at least 3 members, not {count}"))
                .why("two members with parity are a mirror that costs more")
                .hint("for a mirror:   --level 1"),
        );
    }
    if let Some(bytes) = request.region_bytes
        && !(bytes.is_power_of_two() && (4096..=REGION_BYTES_MAX).contains(&bytes))
    {
        return Err(usage(format!(
            "--bitmap-region {bytes}: it must be a power of two from 4K to 2G"
        )));
    }
    // The geometry checks the rest; this bound keeps slot numbers within their type.
    if count + request.spares.len() > usize::from(plexum_layout::MEMBERS_MAX) {
        return Err(usage(format!(
            "{count} members are more than an array can have"
        )));
    }
    if !request.spares.is_empty() && !level.has_redundancy() {
        return Err(usage(format!(
            "{level} has no redundancy, so a spare is of no use"
        )));
    }
    if request.spares.iter().any(|word| word == "missing") {
        return Err(usage("a spare cannot be missing: leave it out"));
    }
    for word in &request.write_mostly {
        if level != Level::Raid1 {
            return Err(usage("--write-mostly is for mirrors (level 1)"));
        }
        if !request.members.contains(word) {
            return Err(usage(format!(
                "--write-mostly {word}: it is not among the members"
            )));
        }
    }
    Ok(())
}

pub(super) fn strip_bytes(
    request: &CreateRequest,
    notes: &mut Vec<String>,
) -> Result<u64, Problem> {
    let level = request.organisation.level();
    match (level, request.strip_bytes) {
        (Level::Raid1, Some(_)) => {
            notes.push("a mirror has no strips: --strip is ignored".into());
            Ok(0)
        }
        (Level::Raid1 | Level::Linear, None) => Ok(0),
        (_, None) => Ok(STRIP_BYTES_DEFAULT),
        (_, Some(bytes)) if bytes < 4096 => Err(usage(format!(
            "a strip of {bytes} bytes is too small: at least 4K"
        ))
        .hint(format!(
            "sizes are in bytes; if KiB are meant:   --strip {bytes}K"
        ))),
        (_, Some(bytes)) if bytes > 1 << 30 => Err(usage(format!(
            "a strip of {bytes} bytes is too large: at most 1G"
        ))),
        (_, Some(bytes)) => Ok(bytes),
    }
}

pub(super) async fn open_member(
    handle: &Handle,
    request: &CreateRequest,
    word: &str,
    slot: Option<u32>,
    access: Access,
) -> Result<PlannedMember, Problem> {
    let parsed = MemberWord::parse(word);
    let mut member = PlannedMember {
        member: word.to_owned(),
        slot,
        size_bytes: 0,
        is_missing: parsed == MemberWord::Missing,
        is_new: false,
        is_write_mostly: request.write_mostly.iter().any(|other| other == word),
        data_offset_bytes: 0,
        found: Vec::new(),
        target: Target::Missing,
    };
    if member.is_missing {
        return Ok(member);
    }
    if let MemberWord::Path(path) = &parsed
        && std::fs::symlink_metadata(path).is_err_and(|e| e.kind() == std::io::ErrorKind::NotFound)
    {
        let Some(size_bytes) = request.member_size_bytes else {
            return Err(
                Problem::new(Code::NoSuchFile, format!("{word} does not exist"))
                    .member(word)
                    .hint("to make it as a sparse file:   --member-size 4G")
                    .hint("to leave the slot empty, write `missing` in its place"),
            );
        };
        check_folder(path, word)?;
        member.size_bytes = size_bytes / 4096 * 4096;
        member.is_new = true;
        member.target = Target::NewFile(path.clone());
        return Ok(member);
    }
    let options = match access {
        Access::ReadOnly => OpenOptions::read_only(),
        Access::ReadWrite => OpenOptions::read_write(),
    };
    let device = AnyDevice::open(handle, &parsed, &options).await?;
    check_writers(&parsed, word)?;
    member.size_bytes = device.info().size_bytes;
    member.found = inspect(&device, word).await?;
    member.target = Target::Open(Box::new(device));
    Ok(member)
}

pub(crate) fn check_folder(path: &Path, word: &str) -> Result<(), Problem> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if folder.is_dir() {
        return Ok(());
    }
    let shown = folder.display();
    Err(Problem::new(
        Code::NoSuchFile,
        format!("{word}: there is no folder {shown}"),
    )
    .member(word)
    .hint(format!("to make it:   mkdir -p {shown}")))
}

/// The same member twice: new files by path; open ones are kept apart by their locks, and in a dry run by identity.
pub(super) fn check_duplicates(members: &[PlannedMember]) -> Result<(), Problem> {
    for (at, member) in members.iter().enumerate() {
        let is_same = |other: &&PlannedMember| match (&member.target, &other.target) {
            (Target::NewFile(a), Target::NewFile(b)) => {
                std::path::absolute(a).ok() == std::path::absolute(b).ok()
            }
            (Target::Open(a), Target::Open(b)) => match (a.as_file(), b.as_file()) {
                (Some(a), Some(b)) => a.identity() == b.identity(),
                _ => false,
            },
            _ => false,
        };
        if let Some(other) = members[..at].iter().find(is_same) {
            return Err(Problem::new(
                Code::DuplicateMember,
                format!(
                    "{} is given twice (also as {})",
                    member.member, other.member
                ),
            )
            .member(member.member.clone())
            .hint("give each member once"));
        }
    }
    Ok(())
}
