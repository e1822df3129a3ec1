//! Who is let go of before an array becomes a RAID-0 by another name.
//!
//! Invariants:
//! - that is durable on those that stay before the array has that name: no kernel and no later start takes who has left
//!   for a member;
//! - nobody leaves before everybody else who is needed is known to be there.

use std::rc::Rc;

use plexum_engine::state::Standing;
use plexum_engine::volume::MemberStatus;
use plexum_layout::Level;
use plexum_md::reshape::{Alteration, Plan, Relabel};

use super::hosted::Hosted;
use super::registry::Host;
use crate::assembly::{Body, Change};
use crate::problem::{Code, Problem};
use crate::volume::member_word::refused;
use crate::volume::served::Served;

/// Whether this is the name that ends redundancy.
pub(super) fn ends_redundancy(change: &Relabel) -> bool {
    change.after.organisation.level() == Level::Raid0
}

/// The name that a change gives, where it gives but that.
pub(super) fn relabel_of(change: &Change) -> Option<&Relabel> {
    match change {
        Change::Alter(alteration) => match &**alteration {
            Alteration::Relabel(relabel) => Some(relabel),
            _ => None,
        },
        Change::None | Change::Begin(_) => None,
    }
}

/// Whom a plan lets go of, as people call them; of one whose rows move before, its last slots.
pub(super) fn names_let_go(served: &Served, plan: &Plan) -> Vec<String> {
    let Some(last) = plan.last.as_ref().filter(|last| ends_redundancy(last)) else {
        return Vec::new();
    };
    let status = served.volume.status();
    let slots = last.let_go(&status.lost_slots).unwrap_or_default();
    let names = slots.into_iter().map(|slot| {
        let has_it = |member: &&MemberStatus| member.slot == Some(slot);
        let holder = status.members.iter().find(has_it);
        let name = holder.and_then(|member| member.name.clone());
        name.unwrap_or_else(|| format!("slot {slot}"))
    });
    names.collect()
}

impl Host {
    /// Who has to leave before a volume gets a name leaves: spares, and who has redundancy alone. The bitmap goes with
    /// the name.
    ///
    /// # Errors
    /// What is missing; or what could not be taken away: the volume is served, and may lack redundancy already.
    pub(super) async fn make_way(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        change: &Relabel,
    ) -> Result<(), Problem> {
        if !ends_redundancy(change) {
            return Ok(());
        }
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        if let Body::Reshaping(_) = *served.volume {
            // All has moved: members leave the array that it is now.
            drop(served);
            self.check_reopen(hosted)?;
            self.reopen(hosted, Change::None, None).await?;
        }
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let status = served.volume.status();
        let Some(slots) = change.let_go(&status.lost_slots) else {
            let name = served.name();
            let text = format!("{name} lacks a member that a raid0 needs");
            return Err(Problem::new(Code::TooFewMembers, text)
                .hint(format!("replace it first:   plexum status {name}")));
        };
        let volume = &served.volume;
        let tell = |member: &MemberStatus| {
            let name = member.name.clone().unwrap_or_else(|| "a member".to_owned());
            let served = &served;
            move |error| refused(served, error, &name)
        };
        // Spares first, or one would take the place of who leaves.
        for member in volume.status().members {
            if matches!(member.standing, Standing::Spare | Standing::Faulty) {
                volume.remove(member.id).await.map_err(tell(&member))?;
            }
        }
        for member in volume.status().members {
            if member.slot.is_some_and(|slot| slots.contains(&slot)) {
                volume.fail(member.id).await.map_err(tell(&member))?;
                volume.remove(member.id).await.map_err(tell(&member))?;
            }
        }
        Ok(())
    }
}
