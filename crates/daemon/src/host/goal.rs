//! Where a change of an array leads: kept until it is there, and what is due then.
//!
//! Invariants:
//! - it is durable before anything changes, in the members; where these have no room (md 0.90 and 1.0) or are never
//!   written while they are served (RAID-0), in the folder of the server;
//! - the stripe log and the bitmap that a change takes away are there again when it has ended, and when it has failed.

use plexum_engine::volume::BitmapWish;
use plexum_layout::Geometry;
use plexum_md::MdMetadata;
use plexum_md::reshape::{Goal, Shape, Stand};

use crate::problem::{Code, Problem};
use crate::volume::served::Served;

/// Where a goal is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeping {
    /// In every member.
    Members,
    /// In the folder of the server.
    Server,
}

impl Keeping {
    /// Where a goal of this volume is kept.
    pub(super) fn of(served: &Served) -> Self {
        let has_room = served.volume.ask_metadata(MdMetadata::has_room_for_goal);
        match served.volume.has_redundancy() && has_room == Some(true) {
            true => Self::Members,
            false => Self::Server,
        }
    }

    /// The word for it in a plan.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Members => "members",
            Self::Server => "server",
        }
    }
}

/// The goal of a change that is under way.
pub(super) fn goal_of(served: &Served) -> Option<Goal> {
    let told = |metadata: &MdMetadata| metadata.goal().cloned();
    let of_members = served.volume.ask_metadata(told).flatten();
    of_members.or_else(|| served.memory.goal())
}

/// Makes a goal durable.
///
/// # Errors
/// `IoError`.
pub(super) async fn keep_goal(served: &Served, goal: &Goal) -> Result<(), Problem> {
    match Keeping::of(served) {
        Keeping::Server => served.memory.note_goal(Some(goal)),
        Keeping::Members => note(served, Some(goal)).await.map_err(|error| {
            let text = format!(
                "saying on the members of {} where it leads: {error}",
                served.name()
            );
            Problem::new(Code::IoError, text)
        })?,
    }
    Ok(())
}

/// What a volume was just opened with is durable: whoever is told that it has begun can rely on it.
///
/// # Errors
/// `IoError`.
pub(super) async fn settle_change(served: &Served) -> Result<(), Problem> {
    let committed = served.volume.commit_metadata().await;
    committed.map_err(|error| {
        let text = format!(
            "saying on the members of {} what it becomes: {error}",
            served.name()
        );
        Problem::new(Code::IoError, text)
    })
}

async fn note(served: &Served, goal: Option<&Goal>) -> Result<(), plexum_block::device::IoError> {
    let change = |metadata: &mut MdMetadata| metadata.note_goal(goal.cloned());
    match served.volume.change_metadata(change) {
        Some(()) => served.volume.commit_metadata().await,
        None => Ok(()),
    }
}

/// The change has ended, or was given up: bitmap and stripe log that there were are back, and nothing is left to do.
/// What to add to the message where there is none now.
pub(super) async fn end_goal(served: &Served) -> String {
    let Some(goal) = goal_of(served) else {
        return String::new();
    };
    let mut lost = String::new();
    let has_redundancy = served.volume.has_redundancy(); // nothing is kept of what has none
    if goal.bitmap_region_bytes > 0 && has_redundancy {
        let internal = |region_bytes| BitmapWish::Internal { region_bytes };
        let region = u64::from(goal.bitmap_region_bytes);
        let as_before = served.volume.set_bitmap(internal(Some(region))).await;
        let made = match as_before {
            Ok(made) => Ok(made),
            // More does not fit with regions of that size.
            Err(_) => served.volume.set_bitmap(internal(None)).await,
        };
        if let Err(error) = made {
            lost.push_str(&format!("; it has no bitmap now: {error}"));
        }
    }
    if goal.has_log
        && has_redundancy
        && let Err(error) = served.volume.set_log(true).await
    {
        lost.push_str(&format!("; it has a bitmap and no stripe log now: {error}"));
    }
    served.memory.note_goal(None);
    let _ = note(served, None).await; // it is compared with the array when it is found again
    lost
}

/// What an array is, as a goal names it.
pub(super) fn stand_of(geometry: &Geometry) -> Stand {
    Stand {
        shape: Shape {
            organisation: geometry.organisation(),
            member_count: geometry.member_count() as u16, // members are few
            strip_sectors: (geometry.strip_bytes() / 512) as u32, // of 32 bits in md
        },
        component_sectors: geometry.component_bytes() / 512,
    }
}
