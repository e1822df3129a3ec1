//! Members that come back: what one must be that only what it missed is copied to it.
//!
//! Invariants:
//! - a refusal says what the member is, where, and the commands that bring it back another way;
//! - who cannot catch up is refused before anything is let go of.

use plexum_block::buf::BufPool;
use plexum_engine::detect::detect_on;
use plexum_engine::state::Standing;
use plexum_engine::volume::{ControlError, MemberStatus, NewMember};
use plexum_format::md::Superblock;
use plexum_format::{Detection, Found};
use plexum_md::open::former_member;
use plexum_runtime::Handle;
use plexum_runtime::file::{FileDevice, OpenOptions};

use super::advice::shell_word;
use super::member_word::{
    added, check_bitmap_kept, done, find, foreign, open_again, own_superblock, refused, shown,
    uuid_of,
};
use super::served::Served;
use crate::control::request::Answer;
use crate::open::{AnyDevice, MemberWord, problem_of, problem_of_io};
use crate::owners::check_return;
use crate::problem::{Code, Problem};

/// Whether a member could be taken back; nothing is changed.
///
/// # Errors
/// As `re_add`.
pub(crate) async fn check_re_add(
    served: &Served,
    handle: &Handle,
    word: &str,
) -> Result<(), Problem> {
    let Held {
        path,
        member: held,
        is_renamed,
    } = held_as(served, handle, word).await;
    if let Some(member) = &held {
        check_in_use(member, &path)?;
    }
    check_can_catch_up(served, handle, &path, held.as_ref()).await?;
    if let Some(member) = &held {
        let result = served.volume.check_remove(member.id);
        result.map_err(|error| refused(served, error, &path))?;
    }
    let device = match MemberWord::parse(&path) {
        // The volume still has it locked.
        MemberWord::Path(file) if held.is_some() && !is_renamed => {
            let opened = FileDevice::look_at(handle, &file);
            AnyDevice::from(opened.map_err(|error| problem_of(error, &path))?)
        }
        _ => open_again(served, handle, &path).await?,
    };
    check_return(&path, served.facts.choice, served.name())?;
    let superblock = own_superblock(&device, &path).await?;
    let superblock = check_own(served, &path, superblock)?;
    let former = former_member(&device, &BufPool::new(0), &superblock).await;
    let new = NewMember {
        name: path.clone(),
        device,
        identity: superblock.device_uuid,
        is_write_mostly: superblock.is_write_mostly,
        former,
    };
    let result = served.volume.check_add(&new, true).await;
    result.map_err(|error| cannot_catch_up(served, error, &path))
}

/// Takes a member back that has missed writes.
///
/// # Errors
/// What keeps it from catching up; the volume is as it was then.
pub(crate) async fn re_add(served: &Served, handle: &Handle, word: &str) -> Answer {
    let Held {
        path, member: held, ..
    } = held_as(served, handle, word).await;
    // A failed member is still held open: it is let go of, once nothing else is in the way.
    check_re_add(served, handle, word).await?;
    if let Some(member) = held {
        let result = served.volume.remove(member.id).await;
        result.map_err(|error| refused(served, error, &path))?;
    }
    let device = open_again(served, handle, &path).await?;
    check_return(&path, served.facts.choice, served.name())?;
    let superblock = check_own(served, &path, own_superblock(&device, &path).await?)?;
    let former = former_member(&device, &BufPool::new(0), &superblock).await;
    let new = NewMember {
        name: shown(&path),
        device,
        identity: superblock.device_uuid,
        is_write_mostly: superblock.is_write_mostly,
        former,
    };
    let result = served.volume.add(new, true).await;
    let outcome = result.map_err(|error| cannot_catch_up(served, error, &path))?;
    done(added(served, &path, outcome))
}

/// Who a word is among the members that the volume still holds.
struct Held {
    /// Where it is now.
    path: String,
    member: Option<MemberStatus>,
    /// It was lost with its device, and is back by another name.
    is_renamed: bool,
}

/// The member that is named, or the failed one that it was before its disk got another name, by what is on it.
async fn held_as(served: &Served, handle: &Handle, word: &str) -> Held {
    if let Ok(member) = find(served, word) {
        return Held {
            path: member.name.clone().unwrap_or_else(|| word.to_owned()),
            member: Some(member),
            is_renamed: false,
        };
    }
    let was = async {
        let detection = look(handle, word).await.ok()?;
        let superblock = detection.md()?.ok()?;
        let slot = superblock.role().slot().map(|slot| slot.0);
        let is_own = uuid_of(superblock) == served.facts.uuid && slot.is_some();
        let members = served.known_members();
        let is_it = |member: &MemberStatus| {
            member.standing == Standing::Faulty && served.last_slot(member) == slot
        };
        members.into_iter().filter(|_| is_own).rfind(is_it)
    };
    let member = was.await;
    Held {
        path: word.to_owned(),
        is_renamed: member.is_some(),
        member,
    }
}

/// A member that is in use cannot come back.
pub(crate) fn check_in_use(member: &MemberStatus, path: &str) -> Result<(), Problem> {
    let state = match member.standing {
        Standing::Faulty => return Ok(()),
        Standing::Rebuilding { .. } => "is being filled already",
        Standing::Spare => "is a spare of this volume",
        _ => "is in use, it missed nothing",
    };
    let text = format!("{path} {state}");
    Err(Problem::new(Code::WrongState, text).member(path))
}

/// The superblock of a member of this very array.
pub(crate) fn check_own(
    served: &Served,
    path: &str,
    superblock: Option<Superblock>,
) -> Result<Superblock, Problem> {
    let Some(superblock) = superblock else {
        return Err(Problem::new(
            Code::NoMetadata,
            format!("{path} was never a member of an array"),
        )
        .member(path)
        .hint(format!(
            "to add it as a new member:   plexum add {} {}",
            shell_word(served.name()),
            shell_word(path)
        )));
    };
    if uuid_of(&superblock) != served.facts.uuid {
        return Err(foreign(served, path, &superblock));
    }
    Ok(superblock)
}

/// Why a member is not taken back.
pub(crate) fn cannot_catch_up(served: &Served, error: ControlError, path: &str) -> Problem {
    match error {
        ControlError::WrongState => Problem::new(
            Code::WrongState,
            format!("{path} cannot be brought up to date by the bitmap"),
        )
        .member(path)
        .why(
            "it was away for longer than the bitmap remembers, there is none, or its slot is taken",
        )
        .why("or the array has another shape since: level, members, or where their data begin")
        .hint(format!(
            "to fill it as a whole:   plexum add {} {} --force",
            shell_word(served.name()),
            shell_word(path)
        )),
        error => refused(served, error, path),
    }
}

/// Whether a member can catch up by what the volume's format keeps. `held`: the failed member that it still is.
///
/// # Errors
/// `WrongState` for a member of a format without a bitmap, `NoMetadata` for what was never one; of reading.
pub(crate) async fn check_can_catch_up(
    served: &Served,
    handle: &Handle,
    path: &str,
    held: Option<&MemberStatus>,
) -> Result<(), Problem> {
    let Err(problem) = check_bitmap_kept(served) else {
        return Ok(());
    };
    let detection = look(handle, path).await?;
    let is_own = held.is_some() || detection.found.iter().any(|found| is_of(served, found));
    let format = &served.facts.format;
    let (volume, member) = (shell_word(served.name()), shell_word(path));
    if is_own {
        let mut problem = Problem {
            message: format!(
                "{path} was a member of {}, and cannot catch up",
                served.name()
            ),
            ..problem
        };
        problem.member = Some(path.to_owned());
        let mut problem = problem.why(format!(
            "{format} has no bitmap of what a member missed: it is filled as a whole"
        ));
        if held.is_some() {
            problem = problem.hint(format!(
                "to let go of it first:   plexum remove {volume} {member}"
            ));
        }
        return Err(problem.hint(format!(
            "to fill it as a whole:   plexum add {volume} {member} --force"
        )));
    }
    let text = format!(
        "{path} carries no metadata of {format} that names {}",
        served.name()
    );
    let problem = Problem::new(Code::NoMetadata, text).member(path);
    Err(match detection.is_blank() {
        true => problem.hint(format!(
            "to add it as a new member:   plexum add {volume} {member}"
        )),
        false => problem.hint(format!("to see what is on it:   plexum examine {member}")),
    })
}

/// Reads what a member carries, beside whoever holds it.
async fn look(handle: &Handle, path: &str) -> Result<Detection, Problem> {
    let word = MemberWord::parse(path);
    let device = match &word {
        MemberWord::Path(file) => {
            let opened = FileDevice::look_at(handle, file);
            AnyDevice::from(opened.map_err(|error| problem_of(error, path))?)
        }
        _ => AnyDevice::open(handle, &word, &OpenOptions::read_only()).await?,
    };
    let detection = detect_on(&device, &BufPool::new(0)).await;
    detection.map_err(|error| problem_of_io(error, "reading its metadata", path))
}

/// Whether a label is one of the set that is served.
fn is_of(served: &Served, found: &Found) -> bool {
    let id = match found {
        Found::Gmirror(label) => label.mirror_id,
        Found::Gstripe(label) => label.volume_id,
        Found::Gconcat(label) => label.volume_id,
        _ => return false,
    };
    served.facts.uuid == format!("{id:08x}")
}
