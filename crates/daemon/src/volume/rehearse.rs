//! Dry runs of changes of a served volume: everything that the real change looks at, up to its first write and no
//! further.
//!
//! Invariants:
//! - nothing is written, and no member's standing changes;
//! - a refusal is the very one of the real change: the same functions find it.

use plexum_engine::volume::{BitmapWish, ControlError};
use plexum_runtime::Handle;

use super::catch_up::check_re_add;
use super::member_word::{done, find, open_new, refused};
use super::ops::{Settings, bitmap_refused, check_scrub, log_refused, not_of_a_volume, settings};
use super::served::Served;
use crate::control::request::{Action, Answer};
use crate::problem::Problem;

/// What the change would be refused for; otherwise says that it would be done.
///
/// # Errors
/// As `act`.
pub async fn rehearse(served: &Served, handle: &Handle, action: Action) -> Answer {
    let volume = &served.volume;
    match action {
        Action::Fail { member } => {
            let member = find(served, &member)?;
            let name = member.name.clone().unwrap_or_default();
            let result = volume.check_fail(member.id);
            result.map_err(|error| refused(served, error, &name))?;
        }
        Action::Remove { member } => {
            let member = find(served, &member)?;
            let name = member.name.clone().unwrap_or_default();
            let result = volume.check_remove(member.id);
            result.map_err(|error| refused(served, error, &name))?;
        }
        Action::Add { member, force } => {
            let new = open_new(served, handle, &member, force).await?;
            let result = volume.check_add(&new, false).await;
            result.map_err(|error| refused(served, error, &member))?;
        }
        Action::ReAdd { member } => check_re_add(served, handle, &member).await?,
        Action::Replace { old, new, force } => {
            let old = find(served, &old)?;
            let name = old.name.clone().unwrap_or_default();
            let device = open_new(served, handle, &new, force).await?;
            let result = volume.check_replace(old.id, &device).await;
            result.map_err(|error| refused(served, error, &name))?;
        }
        Action::Scrub { stop: true, .. } => {}
        Action::Scrub { repair, .. } => check_scrub(served, repair)?,
        Action::Set { settings: words } => check_settings(served, &settings(served, &words)?)?,
        Action::Grow { .. } | Action::Stop | Action::Device { .. } => {
            return Err(not_of_a_volume());
        }
    }
    done(format!("{}: it would be done", served.name()))
}

/// In the order in which `set` goes through them.
fn check_settings(served: &Served, wanted: &Settings) -> Result<(), Problem> {
    let volume = &served.volume;
    let told =
        |result: Result<(), ControlError>| result.map_err(|error| log_refused(served, error));
    if wanted.ppl == Some(true) {
        told(volume.check_ppl())?;
    }
    if wanted.ppl.is_some() {
        told(volume.check_log(false))?; // both are refused while something runs
    }
    if let Some(is_wanted) = wanted.log {
        told(volume.check_log(is_wanted))?;
    }
    let has_log = volume.status().log.is_some();
    if let Some(is_wanted) = wanted
        .is_write_back
        .filter(|is_wanted| *is_wanted || has_log)
    {
        told(volume.check_log(false))?;
        if is_wanted && !has_log && wanted.log != Some(true) {
            let reason = "only a volume with a stripe log can answer from it".to_owned();
            told(Err(ControlError::Unfit(reason)))?;
        }
    }
    match wanted.bitmap {
        Some(wish) => check_bitmap(served, wish),
        None => Ok(()),
    }
}

fn check_bitmap(served: &Served, wish: BitmapWish) -> Result<(), Problem> {
    let result = served.volume.check_bitmap(wish);
    result.map_err(|error| bitmap_refused(served, error))
}
