//! Dry runs of changes of a served volume: everything that the real change looks at, up to its first write and no
//! further.
//!
//! Invariants:
//! - nothing is written, and no member's standing changes;
//! - a refusal is the very one of the real change: the same functions find it.

use std::rc::Rc;

use plexum_block::buf::BufPool;
use plexum_engine::meta::open::former_member;
use plexum_engine::stacked::Stacked;
use plexum_engine::volume::{BitmapWish, ControlError, NewMember};
use plexum_runtime::Handle;
use plexum_runtime::file::FileDevice;

use crate::catch_up::{cannot_catch_up, check_can_catch_up, check_in_use, check_own};
use crate::control::{Action, Answer};
use crate::member_word::{done, find, open_again, open_new, own_superblock, refused};
use crate::open::{AnyDevice, MemberWord, problem_of};
use crate::ops::{Settings, bitmap_refused, check_scrub, log_refused, settings};
use crate::owners::check_return;
use crate::problem::{Code, Problem};
use crate::served::Served;

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
        Action::ReAdd { member } => re_add(served, handle, &member).await?,
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
        Action::Stop => {
            return Err(Problem::new(Code::Bug, "stop is not an action of a volume"));
        }
    }
    done(format!("{}: it would be done", served.name()))
}

async fn re_add(served: &Served, handle: &Handle, word: &str) -> Result<(), Problem> {
    let mut path = word.to_owned();
    let held = find(served, word).ok();
    if let Some(member) = &held {
        path = member.name.clone().unwrap_or(path);
        check_in_use(member, &path)?;
    }
    check_can_catch_up(served, handle, &path, held.as_ref()).await?;
    if let Some(member) = &held {
        let result = served.volume.check_remove(member.id);
        result.map_err(|error| refused(served, error, &path))?;
    }
    let device = match MemberWord::parse(&path) {
        // The volume still has it locked.
        MemberWord::Path(file) if held.is_some() => {
            let opened = FileDevice::look_at(handle, &file);
            AnyDevice::File(opened.map_err(|error| problem_of(error, &path))?)
        }
        _ => open_again(served, handle, &path).await?,
    };
    check_return(&path, served.facts.choice, served.name())?;
    let superblock = own_superblock(&device, &path).await?;
    let superblock = check_own(served, &path, superblock)?;
    let former = former_member(&device, &BufPool::new(0), &superblock).await;
    let new = NewMember {
        name: path.clone(),
        device: Stacked::Device(Rc::new(device)),
        identity: superblock.device_uuid,
        is_write_mostly: superblock.is_write_mostly,
        former,
    };
    let result = served.volume.check_add(&new, true).await;
    result.map_err(|error| cannot_catch_up(served, error, &path))
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
