//! A reshape that is under way goes back to where it came from.
//!
//! Invariants:
//! - it moves on to where no row is cut in either geometry, and turns there: one update of the superblocks says so;
//! - where a level was changed before anything moved, that name is given back at the end.

use std::rc::Rc;

use plexum_md::reshape::{Alteration, Goal, Relabel};
use serde_json::json;

use super::goal::{Keeping, end_goal, goal_of, settle_change, stand_of};
use super::grow::{Doing, GrowWish};
use super::hosted::Hosted;
use super::plan_told::{Beside, of_return};
use super::registry::Host;
use crate::assembly::{Body, Change};
use crate::control::request::Answer;
use crate::problem::{Code, Problem};
use crate::volume::served::Served;

/// The way back, as it was found.
struct Return {
    goal: Goal,
    moved_bytes: u64,
    bytes: [u64; 2],
}

impl Host {
    /// `plexum grow --revert`.
    ///
    /// # Errors
    /// Why it cannot go back; then it goes on.
    pub(super) async fn turn_round(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        wish: &GrowWish,
        doing: Doing,
    ) -> Answer {
        let others = GrowWish {
            revert: true,
            force: wish.force,
            ..GrowWish::default()
        };
        if *wish != others {
            return Err(Problem::new(
                Code::Usage,
                "--revert goes alone: it leads to what there was before",
            ));
        }
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let way = way_back(&served)?;
        let beside = Beside {
            has_log: way.goal.has_log,
            gets_log_again: true,
            content: None,
            keeping: Keeping::of(&served),
            let_go: Vec::new(),
        };
        let shapes = [&way.goal.from.shape, &way.goal.to.shape];
        let last = way.goal.last.as_ref();
        let told = of_return(shapes, last, way.moved_bytes, way.bytes, &beside);
        let name = served.name().to_owned();
        if doing == Doing::Rehearsal {
            let message = format!("{name}: it would go back");
            return Ok(json!({"message": message, "plan": told}));
        }
        let volume = Rc::clone(&served.volume);
        drop(served);
        let has_turned = match &*volume {
            Body::Reshaping(moving) => moving.turn().await,
            _ => false,
        };
        drop(volume);
        if !has_turned {
            let text = format!("{name}: all has moved before it could turn, or it has stopped");
            return Err(Problem::new(Code::WrongState, text)
                .hint(format!("to see where it is:   plexum status {name}")));
        }
        let to = way.goal.to.shape;
        let change = Change::Alter(Box::new(Alteration::TurnRound));
        self.reopen(hosted, change, Some(way.goal.clone())).await?;
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        settle_change(&served).await?;
        if let Body::Reshaping(_) = *served.volume {
            let message = format!("{name}: it goes back to {to}");
            return Ok(json!({"message": message, "plan": told}));
        }
        // Nothing had moved.
        drop(served);
        self.give_last_relabel(hosted, way.goal.last).await?;
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let has_lost = end_goal(&served).await;
        let message = format!("{name}: nothing had moved, it is {to} again{has_lost}");
        Ok(json!({"message": message, "plan": told}))
    }
}

fn way_back(served: &Served) -> Result<Return, Problem> {
    let name = served.name();
    let wrong = |text: String| Problem::new(Code::WrongState, text);
    let Body::Reshaping(moving) = &*served.volume else {
        return Err(wrong(format!("{name} is not being reshaped")).hint(format!(
            "to change it from what it is now:   plexum grow {name} --help"
        )));
    };
    let Some(before) = moving.before_geometry().filter(|_| moving.can_turn()) else {
        return Err(wrong(format!("{name} cannot go back"))
            .why("its rows move in place, or have moved: they would be written over themselves")
            .hint(format!("wait for its end:   plexum status {name}")));
    };
    let after = moving.after().geometry();
    let found = goal_of(served).map(|goal| goal.reversed());
    // One that the kernel has begun: a level that was changed before is known by its layout and by who is missing.
    let goal = found.unwrap_or_else(|| {
        let (from, mut to) = (stand_of(after), stand_of(&before));
        let last = moving
            .lacks_q()
            .then(|| Relabel::without_q(&to.shape))
            .flatten();
        if let Some(last) = &last {
            to.shape = last.after;
        }
        Goal {
            from,
            to,
            first: None,
            last,
            has_log: false,
            bitmap_region_bytes: 0,
        }
    });
    Ok(Return {
        goal,
        moved_bytes: moving.progress().0,
        bytes: [moving.size_bytes(), before.volume_bytes()],
    })
}
