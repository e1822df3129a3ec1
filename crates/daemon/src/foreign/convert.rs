//! `plexum convert`: a volume becomes one of another format, in place or onto new members.
//!
//! Invariant: in place, new metadata are written everywhere, then both forms are compared byte by byte, then the old
//! ones are erased.

mod copy;
mod end;

pub use copy::{Journal, Listener, Phase, Step, copy};
pub use end::{Source, VolumeOnMembers, source_of};

use copy::{KEEP_BYTES, compare};
use end::End;
use plexum_block::buf::BufPool;
use plexum_block::device::IoError;
use plexum_format::md::MdVersion;
use plexum_freebsd::in_place::{self, InPlace, look};
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;

use super::{Kind, problem_of};
use crate::changes::{ChangeState, Noted, Writes, Written};
use crate::create::now_seconds;
use crate::open::{AnyDevice, MemberWord, problem_of_io};
use crate::owners::check_conversion;
use crate::problem::{Code, Problem};

/// What a volume shall become in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// A Linux array.
    Md(MdVersion),
    /// A gmirror.
    Gmirror,
    /// A volume of gvinum.
    Gvinum,
}

fn forms(goal: Goal) -> impl Fn(&[in_place::Seen], u64) -> Result<InPlace, String> {
    move |seen, now| match goal {
        Goal::Md(version) => in_place::to_md(seen, version, now),
        Goal::Gmirror => in_place::to_mirror(seen),
        Goal::Gvinum => in_place::to_system(seen),
    }
}

async fn open_devices(
    handle: &Handle,
    members: &[String],
    options: &OpenOptions,
) -> Result<Vec<AnyDevice>, Problem> {
    let mut devices = Vec::new();
    for member in members {
        devices.push(AnyDevice::open(handle, &MemberWord::parse(member), options).await?);
    }
    Ok(devices)
}

/// Plans a conversion in place; nothing is written.
///
/// # Errors
/// Of opening; `WrongState` with the reason why the data cannot stay where they are.
pub async fn plan_in_place(
    handle: &Handle,
    members: &[String],
    goal: Goal,
) -> Result<InPlace, Problem> {
    let devices = open_devices(handle, members, &OpenOptions::read_only()).await?;
    plan_on(&devices, members, goal).await
}

async fn plan_on(
    devices: &[AnyDevice],
    members: &[String],
    goal: Goal,
) -> Result<InPlace, Problem> {
    let pool = BufPool::new(0);
    let mut seen = Vec::new();
    for (index, (device, member)) in devices.iter().zip(members).enumerate() {
        check_conversion(device, &pool, member).await?;
        let looked = look(device, &pool, index, member).await;
        seen.push(looked.map_err(|error| problem_of(error, Kind::Gmirror, members))?);
    }
    forms(goal)(&seen, now_seconds()?).map_err(|reason| Problem::new(Code::WrongState, reason))
}

/// Carries a conversion in place out: make, compare, erase. A second call after a kill goes on. `noted`: where the
/// change is kept.
///
/// # Errors
/// As `plan_in_place`; of writing; `Bug` when both forms do not read the same (the old one stays then).
pub async fn run_in_place(
    handle: &Handle,
    members: &[String],
    goal: Goal,
    noted: Option<&Noted>,
    listener: Listener<'_>,
) -> Result<(InPlace, Written), Problem> {
    let pool = BufPool::new(KEEP_BYTES);
    let tell = |(index, error): (usize, IoError)| {
        problem_of_io(error, "writing metadata", &members[index])
    };
    let (plan, begun) = {
        let devices = open_devices(handle, members, &OpenOptions::read_write()).await?;
        let plan = plan_on(&devices, members, goal).await?;
        let writes = Writes {
            members: members.iter().map(String::as_str).zip(&devices).collect(),
            phases: vec![plan.make.clone(), plan.erase.clone()],
        };
        let (_, begun) = writes.begin(&pool, noted).await?;
        let written = in_place::carry_out(&plan.make, &devices, &pool).await;
        written.map_err(tell)?;
        (plan, begun)
    };
    // Without anything to make the comparison was made before the first old metadata were erased.
    if !plan.make.is_empty() {
        let (old, new) = match goal {
            Goal::Gmirror => (None, Some(Kind::Gmirror)),
            Goal::Gvinum => (None, Some(Kind::Gvinum)),
            Goal::Md(_) if plan.from == "gmirror" => (Some(Kind::Gmirror), None),
            Goal::Md(_) => (Some(Kind::Gvinum), None),
        };
        let old = End::in_place(handle, &pool, members, old).await?;
        let new = End::in_place(handle, &pool, members, new).await?;
        compare(&old, &new, &plan.name, listener).await?;
    }
    let devices = open_devices(handle, members, &OpenOptions::read_write()).await?;
    let rest = plan_on(&devices, members, goal).await?;
    let erased = in_place::carry_out(&rest.erase, &devices, &pool).await;
    erased.map_err(tell)?;
    Ok((plan, begun.end(ChangeState::Done)))
}
