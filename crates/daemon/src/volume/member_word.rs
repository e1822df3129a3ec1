//! A member as people name it, a device that is to become one, and what keeps it from that in words.

use std::path::Path;
use std::time::Duration;

use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::IoError;
use plexum_engine::detect::detect_on;
use plexum_engine::state::Standing;
use plexum_engine::volume::{AddOutcome, ControlError, MemberStatus, NewMember};
use plexum_format::md::Superblock;
use plexum_md::open::former_member;
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;
use serde_json::json;

use super::served::Served;
use crate::assembly::RealDevice;
use crate::control::request::Answer;
use crate::create::random_uuid;
use crate::inspect::{inspect, not_empty};
use crate::open::{AnyDevice, MISSING_HINT, MemberWord, check_writers, full_path, problem_of_io};
use crate::owners::check_return;
use crate::problem::{Code, Problem};

/// How often, and how many times, a member that was just let go of is tried to be opened again.
const REOPEN_EVERY: Duration = Duration::from_millis(20);

const REOPEN_TRIES: u32 = 150;

pub(crate) fn done(message: String) -> Answer {
    Ok(json!({"message": message}))
}

pub(crate) fn added(served: &Served, word: &str, outcome: AddOutcome) -> String {
    match outcome {
        AddOutcome::ReAdded(_) => {
            format!(
                "{}: {word} is back, what it missed is being copied",
                served.name()
            )
        }
        AddOutcome::Spare(_) => format!("{}: {word} is added", served.name()),
    }
}

/// The member that `word` names: by path, slot number or serial.
pub(crate) fn find(served: &Served, word: &str) -> Result<MemberStatus, Problem> {
    let members = served.known_members();
    let wanted = full_path(Path::new(word));
    let slot: Option<u16> = word.parse().ok();
    let is_it = |member: &&MemberStatus| {
        let Some(name) = &member.name else {
            return false;
        };
        name == word || full_path(Path::new(name)) == wanted
    };
    let has_disk = |member: &&MemberStatus| served.is_disk(member, word);
    let in_slot =
        |member: &&MemberStatus| slot.is_some() && member.slot == slot && !member.is_replacement;
    let was_in_slot = |member: &&MemberStatus| {
        slot.is_some() && member.standing == Standing::Faulty && served.last_slot(member) == slot
    };
    let mut by_disk = members.iter().filter(has_disk);
    let (one, another) = (by_disk.next(), by_disk.next());
    let is_path = members.iter().any(|member| is_it(&member));
    if let (Some(one), Some(another), false) = (one, another, is_path) {
        let names = [one, another].map(|member| member.name.clone().unwrap_or_default());
        let text = format!("{word} is the serial of {} and of {}", names[0], names[1]);
        return Err(Problem::new(Code::Usage, text)
            .hint("name the one that is meant by its path, its slot or its world-wide name"));
    }
    let found = members
        .iter()
        .find(is_it)
        .or(one)
        .or_else(|| members.iter().find(in_slot))
        .or_else(|| members.iter().rfind(was_in_slot));
    found.cloned().ok_or_else(|| {
        let known: Vec<String> = members.iter().filter_map(|m| m.name.clone()).collect();
        Problem::new(
            Code::NoSuchMember,
            format!("{} has no member {word}", served.name()),
        )
        .member(word)
        .hint(format!("its members are:   {}", known.join(" ")))
    })
}

/// The standing of a member in a word.
fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Active => "active",
        Standing::Rebuilding { .. } => "rebuilding",
        Standing::Spare => "spare",
        Standing::Faulty => "failed",
        Standing::Removed => "removed",
    }
}

/// Opens a member-to-be. One that was a member of this very array needs no `--force`.
pub(crate) async fn open_new(
    served: &Served,
    handle: &Handle,
    word: &str,
    force: bool,
) -> Result<NewMember<RealDevice>, Problem> {
    let parsed = MemberWord::parse(word);
    if let MemberWord::Path(path) = &parsed
        && let Ok(member) = find(served, word)
        && member.standing != Standing::Removed
    {
        let state = standing_word(member.standing);
        return Err(Problem::new(
            Code::DuplicateMember,
            format!(
                "{} is a member of {} already ({state})",
                path.display(),
                served.name()
            ),
        )
        .member(word)
        .hint(match check_bitmap_kept(served) {
            Ok(()) => format!("if it has failed:   plexum re-add {} {word}", served.name()),
            Err(_) => format!(
                "if it has failed, first:   plexum remove {} {word}",
                served.name()
            ),
        }));
    }
    let device = open_again(served, handle, word).await?;
    check_writers(&parsed, word)?;
    let own = own_superblock(&device, word).await?;
    let own = own.filter(|superblock| uuid_of(superblock) == served.facts.uuid);
    if own.is_some() && !force {
        check_return(word, served.facts.choice, served.name())?;
    }
    if own.is_none() && !force {
        let found = inspect(&device, word).await?;
        if let Some(first) = found.first() {
            return Err(not_empty(word, first));
        }
    }
    let former = match own.as_ref().filter(|_| !force) {
        Some(superblock) => former_member(&device, &BufPool::new(0), superblock).await,
        None => None,
    };
    Ok(NewMember {
        name: shown(word),
        device,
        identity: random_uuid()?,
        is_write_mostly: own
            .as_ref()
            .is_some_and(|superblock| superblock.is_write_mostly),
        former,
    })
}

/// Opens a member; one that this process is just letting go of is waited for.
pub(crate) async fn open_again(
    served: &Served,
    handle: &Handle,
    word: &str,
) -> Result<AnyDevice, Problem> {
    let parsed = MemberWord::parse(word);
    let clock = handle.clock();
    let mut tries = 0;
    loop {
        match AnyDevice::open(handle, &parsed, &OpenOptions::read_write()).await {
            Err(problem) if problem.code == Code::DuplicateMember && tries < REOPEN_TRIES => {
                tries += 1;
                clock.sleep(REOPEN_EVERY).await;
            }
            Err(problem) if problem.code == Code::DuplicateMember => {
                return Err(Problem::new(
                    Code::Busy,
                    format!(
                        "{word} is still held by {}: a request on it does not end",
                        served.name()
                    ),
                )
                .member(word));
            }
            Err(mut problem) => {
                problem.hints.retain(|hint| hint != MISSING_HINT); // no slot is meant
                return Err(problem);
            }
            device => return device,
        }
    }
}

/// The md superblock on a device, when there is a valid one.
pub(crate) async fn own_superblock(
    device: &AnyDevice,
    word: &str,
) -> Result<Option<Superblock>, Problem> {
    let detection = detect_on(device, &BufPool::new(0))
        .await
        .map_err(|error| problem_of_io(error, "reading its metadata", word))?;
    Ok(match detection.md() {
        Some(Ok(superblock)) => Some(superblock.clone()),
        _ => None,
    })
}

pub(crate) fn uuid_of(superblock: &Superblock) -> String {
    plexum_format::uuid::md_uuid_text(&superblock.array_uuid)
}

pub(crate) fn foreign(served: &Served, word: &str, superblock: &Superblock) -> Problem {
    Problem::new(
        Code::ForeignMember,
        format!(
            "{word} belongs to array {}, {} is {}",
            uuid_of(superblock),
            served.name(),
            served.facts.uuid
        ),
    )
    .member(word)
    .why("its content would be overwritten")
    .hint(format!("to look at it:   plexum examine {word}"))
}

/// Name of a member in status: absolute, links kept.
pub(crate) fn shown(word: &str) -> String {
    crate::assembly::shown(&MemberWord::parse(word))
}

/// A refusal of the volume in words.
pub(crate) fn refused(served: &Served, error: ControlError, member: &str) -> Problem {
    let volume = served.name();
    match error {
        ControlError::NoSuchMember => Problem::new(
            Code::NoSuchMember,
            format!("{volume} has no member {member}"),
        )
        .member(member),
        ControlError::NotRedundant => Problem::new(
            Code::WouldLoseData,
            format!("{volume} would lose data without {member}"),
        )
        .member(member)
        .why("too few other members are in sync")
        .hint(format!("to see what is missing:   plexum status {volume}")),
        ControlError::InUse => Problem::new(Code::WrongState, format!("{member} is in use"))
            .member(member)
            .hint(format!(
                "to take it out of use first:   plexum fail {volume} {member}"
            ))
            .hint(format!(
                "to replace it while it serves:   plexum replace {volume} {member} NEW"
            )),
        ControlError::WrongState => Problem::new(
            Code::WrongState,
            format!("{member} is in a state that does not allow this"),
        )
        .member(member)
        .hint(format!("to see its state:   plexum status {volume}")),
        ControlError::Busy(reason) => {
            Problem::new(Code::Busy, format!("{member}: {reason}")).member(member)
        }
        ControlError::Unfit(reason) => Problem::new(Code::MemberTooSmall, reason).member(member),
        ControlError::NoRedundancy => Problem::new(
            Code::WouldLoseData,
            format!("{volume} has no redundancy, so its members cannot be exchanged"),
        ),
        ControlError::ReadOnly => {
            Problem::new(Code::ReadOnly, format!("{volume} is served read-only"))
                .hint("stop it and serve it again without --read-only")
        }
        ControlError::Io(IoError::Failed) => Problem::new(
            Code::TooFewMembers,
            format!("{volume} has lost more members than it survives"),
        )
        .hint(format!(
            "bring them back, then:   plexum stop {volume}   and   plexum serve MEMBER..."
        )),
        ControlError::Io(error) => {
            Problem::new(Code::IoError, format!("{volume}: {error}")).member(member)
        }
        other => Problem::new(Code::WrongState, other.to_string()).member(member),
    }
}

/// Whether the volume's format has a bitmap at all, in which what a member missed is kept.
///
/// # Errors
/// `WrongState`.
pub(crate) fn check_bitmap_kept(served: &Served) -> Result<(), Problem> {
    if served.facts.is_md() {
        return Ok(());
    }
    let format = &served.facts.format;
    let text = format!("{} is of {format}, which has no bitmap", served.name());
    Err(Problem::new(Code::WrongState, text))
}
