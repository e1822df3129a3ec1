//! Changes of a volume that is being served: members, scrub, settings.
//!
//! Invariants:
//! - a member that comes in is locked and looked at before the volume hears of it;
//! - a refusal says what would have been lost or what to do first, and nothing was changed.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::select;
use plexum_block::clock::Clock;
use plexum_engine::balance::Policy;
use plexum_engine::state::FailCause;
use plexum_engine::upkeep::Pace;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::{BitmapWish, ControlError};
use plexum_runtime::Handle;
use serde_json::{Value, json};

use super::catch_up::re_add;
use super::member_word::{added, done, find, open_new, refused};
use super::served::Served;
use super::status::ScrubStatus;
use crate::assembly::Body;
use crate::control::request::{Action, Answer};
use crate::problem::{Code, Problem};

/// A scrub by schedule that somebody has stopped goes on after so many seconds.
const HOLD_S: u64 = 86_400;

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
        Action::Scrub { repair, .. } => {
            served.volume.switched().await; // a reshape that has just ended gives the log back
            served.by_hand(|| scrub(served, repair)).await
        }
        Action::Set { settings } => set(served, &settings).await,
        Action::Grow { .. } | Action::Stop | Action::Device { .. } => Err(not_of_a_volume()),
    }
}

/// Some actions are the registry's.
pub(super) fn not_of_a_volume() -> Problem {
    Problem::new(Code::Bug, "this is not an action of a volume")
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
    if served.has_scrub_part.get() {
        served.held_until_s.set(clock.wall_seconds() + HOLD_S);
        let message = format!("{name}: the scrub by schedule is stopped, and goes on in a day");
        return Ok(json!({"message": message, "state": "stopping"}));
    }
    select(
        pin!(volume.scrub_ended()),
        pin!(clock.sleep(SCRUB_END_WAIT)),
    )
    .await;
    if volume.is_scrubbing() {
        let message = format!("{name}: the scrub ends after its present step");
        return Ok(json!({"message": message, "state": "stopping"}));
    }
    let status = served.last_scrub();
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
    served.note_scrub(mode);
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
    if volume.is_being_reshaped() {
        let text = format!("{} is in the middle of a reshape", served.name());
        return Err(Problem::new(Code::WrongState, text)
            .why("only a part of it is in either geometry, so it is not compared"));
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
    if volume.is_scrubbing() && !served.has_scrub_part.get() {
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
    served.memory.note_settings(words);
    Ok(settings_json(&wanted.pace, &served.volume.status().balance))
}

/// Takes up what was set in an earlier life of the server, before anything is done; `balance` where nobody says another
/// one now.
///
/// # Errors
/// One sentence about what cannot be taken up.
pub(crate) fn take_up_settings(
    served: &Served,
    asked_balance: Option<Policy>,
) -> Result<(), String> {
    let mut words = served.memory.settings();
    if asked_balance.is_some() {
        words.remove("balance");
    }
    if words.is_empty() {
        return Ok(());
    }
    let wanted = settings(served, &words)
        .map_err(|problem| format!("what was set before is not taken up: {}", problem.message))?;
    if let Some(policy) = wanted.policy {
        served.volume.set_balance(policy);
    }
    served.pace.set(wanted.pace);
    served.volume.set_pace(wanted.pace);
    Ok(())
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
                if !served.facts.has_copies() {
                    let level = served.facts.level;
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
