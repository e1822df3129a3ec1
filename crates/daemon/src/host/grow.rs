//! An array of md gets other members, another level, layout or strip while it is served.
//!
//! Invariants:
//! - everything that can be refused is refused before a member is added, and before a row moves;
//! - new members are spares first, durably: whoever assembles the array after a crash finds them as such;
//! - a volume gets smaller only when what is on it is known to fit, or when the user insists.

use std::rc::Rc;

use plexum_layout::Level;
use plexum_md::MdMetadata;
use plexum_md::reshape::{Beginning, LogNow, Plan, PlanError, Room, Situation, Wish, plan};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::hosted::Hosted;
use super::registry::Host;
use super::reopen::end_goal;
use crate::assembly::{Body, Change, RealDevice};
use crate::control::request::Answer;
use crate::memory::Goal;
use crate::problem::{Code, Problem};
use crate::volume::contents::{CONTENT_BYTES, Content, recognise};
use crate::volume::member_word::{open_new, refused};
use crate::volume::served::Served;
use plexum_engine::volume::NewMember;

/// What is asked for; what is left out stays, or follows from the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrowWish {
    /// New members, by path or URI.
    #[serde(default)]
    pub add: Vec<String>,
    /// Slots.
    #[serde(default)]
    pub members: Option<u16>,
    /// Level, by a word for it.
    #[serde(default)]
    pub level: Option<String>,
    /// Layout, by a word for it.
    #[serde(default)]
    pub layout: Option<String>,
    /// Bytes of a strip.
    #[serde(default)]
    pub strip_bytes: Option<u64>,
    /// New members are overwritten, and what does not fit a smaller volume is given up.
    #[serde(default)]
    pub force: bool,
}

/// Whether it is done, or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It is done.
    Now,
    /// Nothing is written.
    Rehearsal,
}

/// What would be done, with the devices that would become members.
struct Prepared {
    plan: Plan,
    new: Vec<(String, NewMember<RealDevice>)>,
    has_log: bool,
    content: Option<Content>,
}

impl Prepared {
    fn told(&self) -> Value {
        let mut told = plan_json(&self.plan, self.has_log);
        told["content"] = self.content.map(|content| content.what).into();
        told
    }
}

impl Host {
    /// Plans a change of shape, and begins it.
    ///
    /// # Errors
    /// Why it is refused; nothing was changed, but for members that are spares now where that is said.
    pub(crate) async fn grow(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        wish: &GrowWish,
        doing: Doing,
    ) -> Answer {
        self.check_reopen(hosted)?;
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let prepared = self.prepare_growth(&served, wish).await?;
        let plan = prepared.plan.clone();
        if doing == Doing::Rehearsal {
            let message = format!("{}: it would be done", served.name());
            return Ok(json!({"message": message, "plan": prepared.told()}));
        }
        let told = prepared.told();
        self.add_members(&served, hosted, prepared.new).await?;
        if prepared.has_log {
            let result = served.volume.set_log(false).await;
            result.map_err(|error| refused(&served, error, ""))?;
        }
        let goal = Goal {
            has_log: prepared.has_log,
            ..Goal::of(plan.last.as_ref())
        };
        served.memory.note_goal(Some(goal));
        let name = served.name().to_owned();
        let has_log = prepared.has_log;
        drop(served);
        let change = match Beginning::of(&plan) {
            Some(beginning) => Change::Begin(Box::new(beginning)),
            None => {
                let relabel = plan.first.clone().or_else(|| plan.last.clone());
                Change::Relabel(Box::new(relabel.expect("what changes has a station")))
            }
        };
        if let Err(problem) = self.reopen(hosted, change).await {
            if let Ok(served) = hosted.served() {
                served.memory.note_goal(None);
                if has_log {
                    let _ = served.volume.set_log(true).await; // as it was
                }
            }
            return Err(problem);
        }
        let message = match plan.movement {
            Some(_) => format!("{name}: it is being reshaped to {}", plan.after),
            None => {
                let served = hosted.served().map_err(|refusal| refusal.problem())?;
                let has_lost = end_goal(&served).await;
                format!("{name}: it is {} now{has_lost}", plan.after)
            }
        };
        Ok(json!({"message": message, "plan": told}))
    }

    async fn prepare_growth(
        &self,
        served: &Rc<Served>,
        wish: &GrowWish,
    ) -> Result<Prepared, Problem> {
        let name = served.name();
        let wrong = |text: String| Problem::new(Code::WrongState, text);
        if let Body::Reshaping(_) = *served.volume {
            return Err(wrong(format!("{name} is being reshaped"))
                .hint(format!("wait for its end:   plexum status {name}")));
        }
        let Body::Whole(volume) = &*served.volume else {
            return Err(wrong(format!("{name} cannot change its shape")));
        };
        if volume.status().is_read_only {
            return Err(refused(
                served,
                plexum_engine::volume::ControlError::ReadOnly,
                "",
            ));
        }
        let has_log = volume.status().log.is_some();
        let log = match has_log {
            true => LogNow::On,
            false => LogNow::Off,
        };
        let asked = volume.ask_metadata(|metadata: &MdMetadata| metadata.situation(log));
        let Some(situation) = asked else {
            return Err(wrong(format!(
                "{name} is of {}: only arrays of md change their shape so",
                served.facts.format
            ))
            .hint("a plex of Vinum gets one more subdisk by:   plexum gvinum grow"));
        };
        let mut situation = situation.map_err(|error| unfit(served, &error))?;
        if volume.status().doubtful_regions.0 > 0 {
            return Err(wrong(format!("{name} is not in sync yet"))
                .hint(format!("wait for the resync:   plexum status {name}")));
        }
        let new = self.newcomers(served, wish, &mut situation).await?;
        let wish_for = self.wish(served, wish, situation.member_count)?;
        let plan = plan(&situation, &wish_for).map_err(|error| unfit(served, &error))?;
        if plan.lacking_members > 0 {
            let text = format!(
                "{} needs {} more members than there are",
                plan.after, plan.lacking_members
            );
            return Err(Problem::new(Code::TooFewMembers, text)
                .hint(format!("name them:   plexum grow {name} --add MEMBER...")));
        }
        let content = content(served).await?;
        check_smaller(served, &plan, wish, content)?;
        Ok(Prepared {
            plan,
            new,
            has_log,
            content,
        })
    }

    /// The devices that would become members, each looked at; `situation` has them from then on.
    async fn newcomers(
        &self,
        served: &Rc<Served>,
        wish: &GrowWish,
        situation: &mut Situation,
    ) -> Result<Vec<(String, NewMember<RealDevice>)>, Problem> {
        let mut new = Vec::new();
        for word in &wish.add {
            let member = open_new(served, &self.handle, word, wish.force).await?;
            let checked = served.volume.check_add(&member, false).await;
            checked.map_err(|error| refused(served, error, word))?;
            // It is laid out like the others, and has more room behind its data where it is larger.
            let like = situation.rooms.first().copied();
            situation.rooms.extend(like.map(|room| {
                Room {
                    back_sectors: situation
                        .rooms
                        .iter()
                        .map(|room| room.back_sectors)
                        .min()
                        .unwrap_or(0),
                    ..room
                }
            }));
            situation.member_count += 1;
            new.push((word.clone(), member));
        }
        Ok(new)
    }

    /// What follows from the number of new members where nobody says it.
    fn wish(&self, served: &Served, wish: &GrowWish, all: u16) -> Result<Wish, Problem> {
        let level = wish.level.as_deref().map(str::parse::<Level>).transpose();
        let level = level.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        let follows = match (wish.members, wish.add.is_empty(), level) {
            (Some(members), ..) => Some(members),
            (None, false, None) => Some(served.facts.slots as u16 + wish.add.len() as u16), // few
            (None, false, Some(_)) if wish.add.len() > 1 => Some(all),
            _ => None,
        };
        Ok(Wish {
            member_count: follows,
            level,
            layout: wish.layout.clone(),
            strip_bytes: wish.strip_bytes,
        })
    }

    async fn add_members(
        &self,
        served: &Served,
        hosted: &Hosted,
        new: Vec<(String, NewMember<RealDevice>)>,
    ) -> Result<(), Problem> {
        for (word, member) in new {
            let added = served.volume.add(member, false).await;
            added.map_err(|error| refused(served, error, &word))?;
            hosted.note_member(&word);
        }
        Ok(())
    }
}

/// What lies on the volume, as far as it says so.
async fn content(served: &Served) -> Result<Option<Content>, Problem> {
    let size_bytes = served.volume.volume_bytes();
    let sector_bytes = u64::from(served.volume.sector_bytes());
    let length = (CONTENT_BYTES as u64).min(size_bytes) / sector_bytes * sector_bytes;
    let read = served.volume.read_bytes(0, length as usize).await; // a few pages
    let head = read.map_err(|error| {
        Problem::new(Code::IoError, format!("reading {}: {error}", served.name()))
    })?;
    Ok(recognise(&head.to_vec()))
}

/// A smaller volume has to hold what is on it.
fn check_smaller(
    served: &Served,
    plan: &Plan,
    wish: &GrowWish,
    content: Option<Content>,
) -> Result<(), Problem> {
    if plan.after_bytes >= plan.before_bytes || wish.force {
        return Ok(());
    }
    let (name, lost) = (served.name(), plan.before_bytes - plan.after_bytes);
    let (text, why) = match content {
        Some(content) if content.size_bytes <= plan.after_bytes => return Ok(()),
        Some(Content { what, size_bytes }) => (
            format!(
                "{name} would have {} bytes, and its {what} has {size_bytes}",
                plan.after_bytes
            ),
            "make that smaller first, with its own tools",
        ),
        None => (
            format!("{name} would lose its last {lost} bytes"),
            "what is on it is not known, so nobody can say whether it fits",
        ),
    };
    Err(Problem::new(Code::WouldLoseData, text)
        .why(why)
        .hint("to give them up, add:   --force"))
}

fn unfit(served: &Served, error: &PlanError) -> Problem {
    let text = format!("{}: {}", served.name(), error.message);
    let problem = Problem::new(Code::WrongState, text);
    match &error.hint {
        Some(hint) => problem.hint(hint.replace("VOLUME", served.name())),
        None => problem,
    }
}

/// A plan for programs, and for whoever shows it.
fn plan_json(plan: &Plan, has_log: bool) -> Value {
    let mut stations = Vec::new();
    if let Some(first) = &plan.first {
        stations.push(json!({"kind": "relabel", "from": first.before.to_string(), "to": first.after.to_string()}));
    }
    if let Some(movement) = &plan.movement {
        stations.push(json!({
            "kind": "move",
            "from": movement.before.to_string(),
            "to": movement.after.to_string(),
            "direction": match movement.direction {
                plexum_engine::migrate::Direction::Up => "up",
                plexum_engine::migrate::Direction::Down => "down",
            },
            "shift_bytes": i64::from(movement.shift_sectors) * 512,
            "moved_bytes": plan.before_bytes.min(plan.after_bytes),
            "data_members": movement.after.data_count(),
        }));
    }
    if let Some(last) = &plan.last {
        stations.push(json!({"kind": "relabel", "from": last.before.to_string(), "to": last.after.to_string()}));
    }
    json!({
        "from": plan.before.to_string(),
        "to": plan.after.to_string(),
        "before_bytes": plan.before_bytes,
        "after_bytes": plan.after_bytes,
        "stations": stations,
        "has_log": has_log,
        "gets_log_again": has_log && plan.has_room_for_log,
    })
}
