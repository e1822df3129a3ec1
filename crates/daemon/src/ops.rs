//! Changes of a volume that is being served: members, scrub, settings.
//!
//! Invariants:
//! - a member that comes in is locked and looked at before the volume hears of it;
//! - a refusal says what would have been lost or what to do first, and nothing was changed.

use std::collections::BTreeMap;
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::select;
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::IoError;
use plexum_engine::balance::Policy;
use plexum_engine::meta::open::{detect_on, former_member};
use plexum_engine::stacked::Stacked;
use plexum_engine::state::{FailCause, Standing};
use plexum_engine::upkeep::Pace;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::{AddOutcome, BitmapWish, ControlError, MemberStatus, NewMember};
use plexum_format::md::Superblock;
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;
use serde_json::{Value, json};

use crate::assembly::{Body, RealDevice};
use crate::catch_up::{check_bitmap_kept, re_add};
use crate::control::{Action, Answer};
use crate::create::random_uuid;
use crate::inspect::inspect;
use crate::open::{AnyDevice, MISSING_HINT, MemberWord, check_writers, full_path, problem_of_io};
use crate::owners::check_return;
use crate::problem::{Code, Problem};
use crate::served::{Served, serial_of};
use crate::status::ScrubStatus;

/// How often, and how many times, a member that was just let go of is tried to be opened again.
const REOPEN_EVERY: Duration = Duration::from_millis(20);
const REOPEN_TRIES: u32 = 150;
/// How long the end of a scrub is waited for when it is to stop.
const SCRUB_END_WAIT: Duration = Duration::from_secs(2);

/// Carries out an action other than `Stop`.
///
/// # Errors
/// What the volume refuses, in words.
pub async fn act(served: &Served, handle: &Handle, action: Action) -> Answer {
    match action {
        Action::Fail { member } => fail(served, &member).await,
        Action::Remove { member } => remove(served, &member).await,
        Action::Add { member, force } => add(served, handle, &member, force).await,
        Action::ReAdd { member } => re_add(served, handle, &member).await,
        Action::Replace { old, new, force } => replace(served, handle, &old, &new, force).await,
        Action::Scrub { stop: true, .. } => stop_scrub(served, handle).await,
        Action::Scrub { repair, .. } => scrub(served, repair),
        Action::Set { settings } => set(served, &settings).await,
        Action::Stop => Err(Problem::new(Code::Bug, "stop is not an action of a volume")),
    }
}

pub(crate) fn done(message: String) -> Answer {
    Ok(json!({"message": message}))
}

async fn fail(served: &Served, word: &str) -> Answer {
    let member = find(served, word)?;
    let name = member.name.clone().unwrap_or_default();
    let result = served.volume.fail(member.id).await;
    result.map_err(|error| refused(served, error, &name))?;
    served.note_cause(&name, FailCause::Asked);
    done(format!("{}: {name} is failed", served.name()))
}

async fn remove(served: &Served, word: &str) -> Answer {
    let member = find(served, word)?;
    let name = member.name.clone().unwrap_or_default();
    let result = served.volume.remove(member.id).await;
    result.map_err(|error| refused(served, error, &name))?;
    done(format!("{}: {name} is removed", served.name()))
}

async fn add(served: &Served, handle: &Handle, word: &str, force: bool) -> Answer {
    let new = open_new(served, handle, word, force).await?;
    let result = served.volume.add(new, false).await;
    let outcome = result.map_err(|error| refused(served, error, word))?;
    done(added(served, word, outcome))
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

async fn replace(served: &Served, handle: &Handle, old: &str, new: &str, force: bool) -> Answer {
    let old = find(served, old)?;
    let old_name = old.name.clone().unwrap_or_default();
    let device = open_new(served, handle, new, force).await?;
    let result = served.volume.replace_with(old.id, device).await;
    result.map_err(|error| refused(served, error, &old_name))?;
    done(format!(
        "{}: {old_name} is being replaced by {new}",
        served.name()
    ))
}

/// Asks the scrub that runs to end, and waits a little for it: its last step may take long, and so may a pause.
async fn stop_scrub(served: &Served, handle: &Handle) -> Answer {
    let (volume, name) = (&served.volume, served.name());
    if !volume.is_scrubbing() {
        return Ok(json!({"message": format!("no scrub of {name} runs"), "state": "idle"}));
    }
    volume.stop_scrub();
    let clock = handle.clock();
    select(
        pin!(volume.scrub_ended()),
        pin!(clock.sleep(SCRUB_END_WAIT)),
    )
    .await;
    if volume.is_scrubbing() {
        let message = format!("{name}: the scrub ends after its present step");
        return Ok(json!({"message": message, "state": "stopping"}));
    }
    let status = served.status().last_scrub;
    let percent = status.as_ref().map_or(0, ScrubStatus::percent);
    let message = match status.is_some_and(|scrub| scrub.is_complete) {
        true => format!("{name}: the scrub had got to its end"),
        false => format!("{name}: the scrub is stopped at {percent} %"),
    };
    Ok(json!({"message": message, "state": "stopped", "percent": percent}))
}

fn scrub(served: &Served, repair: bool) -> Answer {
    let volume = &served.volume;
    check_scrub(served, repair)?;
    let mode = if repair {
        ScrubMode::Repair
    } else {
        ScrubMode::Check
    };
    if !volume.start_scrub(mode) {
        return Err(scrub_runs(served));
    }
    served.note_scrub(repair);
    done(format!("{}: the scrub has begun", served.name()))
}

/// Whether a scrub can begin.
pub(crate) fn check_scrub(served: &Served, repair: bool) -> Result<(), Problem> {
    let volume = &served.volume;
    if let Body::Pieces(pieces) = &**volume {
        let (state, why) = match pieces.is_half_reshaped() {
            true => (
                "is in the middle of a reshape",
                "only a part of it is in either geometry",
            ),
            false => (
                "is read from its write journal as well",
                "what is only there is older on its members",
            ),
        };
        let text = format!("{} {state}", served.name());
        return Err(
            Problem::new(Code::WrongState, text).why(format!("{why}, so it is not compared"))
        );
    }
    if !volume.has_redundancy() {
        return Err(Problem::new(
            Code::WrongState,
            format!(
                "{} has no redundancy, so there is nothing to compare",
                served.name()
            ),
        ));
    }
    if repair && volume.status().is_read_only {
        return Err(refused(served, ControlError::ReadOnly, ""));
    }
    if volume.is_scrubbing() {
        return Err(scrub_runs(served));
    }
    Ok(())
}

fn scrub_runs(served: &Served) -> Problem {
    let name = served.name();
    Problem::new(Code::JobRunning, format!("a scrub of {name} is running"))
        .hint(format!("to stop it:   plexum scrub {name} --stop"))
}

/// What `set` asks for, understood.
pub(crate) struct Settings {
    pace: Pace,
    policy: Option<Policy>,
    /// The stripe log, on or off.
    pub(crate) log: Option<bool>,
    /// md's partial parity log, on or off.
    pub(crate) ppl: Option<bool>,
    /// The mode of the stripe log.
    pub(crate) is_write_back: Option<bool>,
    pub(crate) bitmap: Option<BitmapWish>,
}

async fn set(served: &Served, words: &BTreeMap<String, String>) -> Answer {
    let wanted = settings(served, words)?;
    // The only one that can be refused for the state of the volume comes first.
    set_consistency(served, &wanted).await?;
    if let Some(policy) = wanted.policy {
        served.volume.set_balance(policy);
    }
    served.pace.set(wanted.pace);
    served.volume.set_pace(wanted.pace);
    Ok(settings_json(&wanted.pace, &served.volume.status().balance))
}

/// Understands all settings before anything is changed.
///
/// # Errors
/// `Usage` for what is no setting or does not fit the volume.
pub(crate) fn settings(
    served: &Served,
    settings: &BTreeMap<String, String>,
) -> Result<Settings, Problem> {
    let usage = |text: String| Problem::new(Code::Usage, text);
    let mut pace = served.pace.get();
    let mut policy = None;
    let (log, bitmap) = consistency_wish(settings, bitmap_wish(settings)?)?;
    for (name, value) in settings {
        match name.as_str() {
            "balance" => {
                let parsed: Policy = value.parse().map_err(|e| usage(format!("{e}")))?;
                if !matches!(served.facts.level.as_str(), "raid1" | "raid10") {
                    let level = &served.facts.level;
                    return Err(usage(format!(
                        "{level} has no copies to balance reads between"
                    )));
                }
                policy = Some(parsed);
            }
            "rebuild-min" => pace.floor_bytes_per_s = rate(name, value)?,
            "rebuild-max" => pace.ceiling_bytes_per_s = rate(name, value)?,
            "rebuild" => {
                pace.is_paused = match value.as_str() {
                    "pause" => true,
                    "resume" => false,
                    _ => return Err(usage(format!("rebuild={value}: it is pause or resume"))),
                }
            }
            "bitmap" | "bitmap-region" => {} // together, below
            "consistency" => {}              // with the bitmap, below
            "log" if matches!(value.as_str(), "write-through" | "write-back") => {}
            "log" => {
                return Err(usage(format!(
                    "log={value}: it is write-through or write-back"
                )));
            }
            _ => {
                return Err(usage(format!("{name} is no setting")).hint(
                    "settings are:   balance=POLICY rebuild-min=RATE rebuild-max=RATE rebuild=pause bitmap=internal bitmap-region=SIZE consistency=log|ppl|bitmap|resync log=write-back",
                ));
            }
        }
    }
    let is_upside_down =
        pace.ceiling_bytes_per_s != 0 && pace.floor_bytes_per_s > pace.ceiling_bytes_per_s;
    if is_upside_down && !settings.contains_key("rebuild-min") {
        pace.floor_bytes_per_s = pace.ceiling_bytes_per_s;
    } else if is_upside_down {
        return Err(usage("rebuild-min is above rebuild-max".into()));
    }
    Ok(Settings {
        pace,
        policy,
        log,
        ppl: settings.get("consistency").map(|value| value == "ppl"),
        is_write_back: settings.get("log").map(|mode| mode == "write-back"),
        bitmap,
    })
}

/// What closes the write hole: md's log, ours, its mode, the bitmap; in an order in which none excludes the next.
async fn set_consistency(served: &Served, wanted: &Settings) -> Result<(), Problem> {
    let volume = &served.volume;
    let told = |result: Result<bool, ControlError>| match result {
        Ok(_) => Ok(()),
        Err(error) => Err(log_refused(served, error)),
    };
    let wants_ppl = wanted.ppl;
    if wants_ppl == Some(true) {
        told(volume.check_ppl().map(|()| true))?;
    } else if wants_ppl == Some(false) {
        told(volume.set_ppl(false).await)?;
    }
    if let Some(is_wanted) = wanted.log {
        told(volume.set_log(is_wanted).await)?;
    }
    let has_log = volume.status().log.is_some();
    if let Some(is_wanted) = wanted
        .is_write_back
        .filter(|is_wanted| *is_wanted || has_log)
    {
        told(volume.set_write_back(is_wanted).await)?;
    }
    if let Some(wish) = wanted.bitmap {
        let result = volume.set_bitmap(wish).await;
        result.map_err(|error| bitmap_refused(served, error))?;
    }
    if wants_ppl == Some(true) {
        told(volume.set_ppl(true).await)?;
    }
    Ok(())
}

fn settings_json(pace: &Pace, balance: &str) -> Value {
    json!({"balance": balance, "rebuild_min_bytes_per_s": pace.floor_bytes_per_s,
        "rebuild_max_bytes_per_s": pace.ceiling_bytes_per_s, "is_paused": pace.is_paused})
}

/// What `bitmap=` and `bitmap-region=` together ask for.
fn bitmap_wish(settings: &BTreeMap<String, String>) -> Result<Option<BitmapWish>, Problem> {
    let usage = |text: String| Problem::new(Code::Usage, text);
    let region = settings.get("bitmap-region");
    match (settings.get("bitmap").map(String::as_str), region) {
        (None, None) => Ok(None),
        (Some("none"), None) => Ok(Some(BitmapWish::None)),
        (Some("internal"), region) => {
            let bytes = region.map(|value| quantity("bitmap-region", value));
            let region_bytes = bytes.transpose()?;
            if let Some(bytes) = region_bytes
                && !(bytes.is_power_of_two() && (4096..=1 << 31).contains(&bytes))
            {
                return Err(usage(format!(
                    "bitmap-region={bytes}: it must be a power of two from 4K to 2G"
                )));
            }
            Ok(Some(BitmapWish::Internal { region_bytes }))
        }
        (None | Some("none"), Some(_)) => {
            Err(usage("bitmap-region= goes with bitmap=internal".to_owned()))
        }
        (Some(other), _) => Err(usage(format!("bitmap={other}: it is internal or none"))),
    }
}

/// What `consistency=` asks for: the stripe log on or off, and what it says about the bitmap.
fn consistency_wish(
    settings: &BTreeMap<String, String>,
    bitmap: Option<BitmapWish>,
) -> Result<(Option<bool>, Option<BitmapWish>), Problem> {
    let usage = |text: &str| Problem::new(Code::Usage, text);
    let with_bitmap = || bitmap.or(Some(BitmapWish::Internal { region_bytes: None }));
    match (settings.get("consistency").map(String::as_str), bitmap) {
        (None, bitmap) => Ok((None, bitmap)),
        (Some("log"), bitmap) => Ok((Some(true), bitmap)),
        (Some("bitmap"), Some(BitmapWish::None)) => Err(usage(
            "consistency=bitmap and bitmap=none contradict each other",
        )),
        (Some("bitmap"), _) => Ok((Some(false), with_bitmap())),
        (Some("resync"), Some(BitmapWish::Internal { .. })) => Err(usage(
            "consistency=resync and bitmap=internal contradict each other",
        )),
        (Some("resync"), _) => Ok((Some(false), Some(BitmapWish::None))),
        (Some("ppl"), Some(BitmapWish::Internal { .. })) => {
            Err(usage("consistency=ppl excludes the bitmap"))
        }
        (Some("ppl"), _) => Ok((Some(false), Some(BitmapWish::None))),
        (Some(other), _) => Err(usage(&format!(
            "consistency={other}: it is log, ppl, bitmap or resync"
        ))),
    }
}

/// Why the stripe log stays as it is.
pub(crate) fn log_refused(served: &Served, error: ControlError) -> Problem {
    let volume = served.name();
    match error {
        ControlError::Busy(reason) => Problem::new(
            Code::JobRunning,
            format!("the log of {volume} cannot be changed now: {reason}"),
        )
        .hint(format!("to see what runs:   plexum status {volume}")),
        ControlError::Unfit(reason) => Problem::new(Code::Usage, format!("{volume}: {reason}")),
        error => refused(served, error, volume),
    }
}

/// Why the bitmap stays as it is.
pub(crate) fn bitmap_refused(served: &Served, error: ControlError) -> Problem {
    let volume = served.name();
    match error {
        ControlError::Busy(reason) => Problem::new(
            Code::JobRunning,
            format!("the bitmap of {volume} cannot be changed now: {reason}"),
        )
        .hint(format!("to see what runs:   plexum status {volume}")),
        ControlError::NotRedundant => Problem::new(
            Code::WouldLoseData,
            format!("{volume} is degraded and needs its bitmap"),
        )
        .why("without it a member that comes back is filled as a whole")
        .hint(format!(
            "to complete it first:   plexum add {volume} MEMBER"
        )),
        ControlError::WrongState => Problem::new(
            Code::WrongState,
            format!("{volume} has a bitmap with regions of another size"),
        )
        .hint(format!(
            "to take it off first:   plexum set {volume} bitmap=none"
        )),
        ControlError::Unfit(reason) => Problem::new(Code::Usage, format!("{volume}: {reason}")),
        ControlError::NoRedundancy => Problem::new(
            Code::Usage,
            format!(
                "{} has no redundancy, so there is nothing for a bitmap to say",
                served.facts.level
            ),
        ),
        error => refused(served, error, volume),
    }
}

/// A rate as the command sends it: bytes per second. Words with units are understood as well.
fn rate(name: &str, value: &str) -> Result<u64, Problem> {
    quantity(name, value.trim_end_matches("/s"))
}

/// A number of bytes, with or without a unit.
fn quantity(name: &str, text: &str) -> Result<u64, Problem> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => 0,
    };
    let number: Option<u64> = digits.parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .filter(|_| unit > 0)
        .ok_or_else(|| {
            Problem::new(
                Code::Usage,
                format!("{name}={text}: a number of bytes is expected, such as 100M"),
            )
        })
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
        name == word
            || full_path(Path::new(name)) == wanted
            || serial_of(name).as_deref() == Some(word)
    };
    let in_slot =
        |member: &&MemberStatus| slot.is_some() && member.slot == slot && !member.is_replacement;
    let was_in_slot = |member: &&MemberStatus| {
        slot.is_some() && member.standing == Standing::Faulty && served.last_slot(member) == slot
    };
    let found = members
        .iter()
        .find(is_it)
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
            return Err(Problem::new(
                Code::WouldDestroy,
                format!("{word} is not empty: {} found", first.what),
            )
            .member(word)
            .why("it would be overwritten")
            .hint(format!("to look at it:   plexum examine {word}"))
            .hint("to overwrite it all the same, add:   --force"));
        }
    }
    let former = match own.as_ref().filter(|_| !force) {
        Some(superblock) => former_member(&device, &BufPool::new(0), superblock).await,
        None => None,
    };
    Ok(NewMember {
        name: shown(word),
        device: Stacked::Device(Rc::new(device)),
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
