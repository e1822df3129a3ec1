//! An array of md gets other members, another level, layout or strip, or uses another part of its members, while it is
//! served.
//!
//! Invariants:
//! - everything that can be refused is refused before a member is added, and before a row moves;
//! - one change of a volume is planned and begun at a time;
//! - new members are spares first, durably: whoever assembles the array after a crash finds them as such;
//! - a volume gets smaller only when what is on it is known to fit, or when the user insists.

use std::rc::Rc;

use plexum_engine::state::Standing;
use plexum_engine::volume::{ControlError, NewMember};
use plexum_layout::Level;
use plexum_md::MdMetadata;
use plexum_md::reshape::{
    Alteration, Beginning, Capacity, Goal, LogNow, Plan, PlanError, Resize, Room, Situation,
    SizeWish, Stand, Wish, plan, plan_size,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::goal::{Keeping, end_goal, keep_goal, settle_change};
use super::hosted::Hosted;
use super::plan_told::{self, Beside};
use super::registry::Host;
use super::take_over::{names_let_go, relabel_of};
use crate::assembly::{Body, Change, RealDevice};
use crate::control::request::Answer;
use crate::problem::{Code, Problem};
use crate::volume::contents::{CONTENT_BYTES, Content, recognise};
use crate::volume::member_word::{open_new, refused};
use crate::volume::ops::log_refused;
use crate::volume::served::Served;

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
    /// What is used of each member: `max`, or bytes.
    #[serde(default)]
    pub size: Option<String>,
    /// The reshape that is under way goes back.
    #[serde(default)]
    pub revert: bool,
    /// New members are overwritten, and what does not fit a smaller volume is given up.
    #[serde(default)]
    pub force: bool,
}

impl GrowWish {
    /// Whether another shape is asked for.
    fn has_shape(&self) -> bool {
        let has_words = self.level.is_some() || self.layout.is_some();
        !self.add.is_empty() || self.members.is_some() || has_words || self.strip_bytes.is_some()
    }

    fn size(&self) -> Result<Option<SizeWish>, Problem> {
        let Some(word) = self.size.as_deref() else {
            return Ok(None);
        };
        if self.has_shape() || self.revert {
            let text = "--size goes alone: md changes its shape or its size, one after the other";
            return Err(Problem::new(Code::Usage, text));
        }
        match (word, word.parse()) {
            ("max", _) => Ok(Some(SizeWish::Max)),
            (_, Ok(bytes)) => Ok(Some(SizeWish::Bytes(bytes))),
            _ => {
                let text = format!("--size {word}: it is max, or so many bytes of each member");
                Err(Problem::new(Code::Usage, text))
            }
        }
    }
}

/// Whether it is done, or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It is done.
    Now,
    /// Nothing is written.
    Rehearsal,
}

/// What would be done.
enum Way {
    Shape(Plan),
    Size(Resize),
}

/// What would be done, with the devices that would become members.
struct Prepared {
    way: Way,
    situation: Situation,
    new: Vec<(String, NewMember<RealDevice>)>,
    beside: Beside,
    bitmap_region_bytes: u32,
}

impl Prepared {
    fn told(&self) -> Value {
        match &self.way {
            Way::Shape(plan) => plan_told::of_plan(plan, &self.beside),
            Way::Size(change) => plan_told::of_resize(&self.situation.shape, change, &self.beside),
        }
    }

    fn goal(&self) -> Goal {
        let stand = |shape, component_sectors| Stand {
            shape,
            component_sectors,
        };
        let (from, to, first, last) = match &self.way {
            Way::Shape(plan) => (
                stand(plan.before, plan.component_sectors),
                stand(plan.after, plan.component_sectors),
                plan.first.clone(),
                plan.last.clone(),
            ),
            Way::Size(change) => (
                stand(self.situation.shape, change.before_sectors),
                stand(self.situation.shape, change.after_sectors),
                None,
                None,
            ),
        };
        Goal {
            from,
            to,
            first,
            last,
            has_log: self.beside.has_log,
            bitmap_region_bytes: match &self.way {
                Way::Shape(_) => 0,
                Way::Size(_) => self.bitmap_region_bytes,
            },
        }
    }

    /// Whether new members come when it has another name: a RAID-0 has no spares.
    fn adds_later(&self) -> bool {
        !self.situation.shape.organisation.level().has_redundancy()
    }

    /// How it is opened, one change after the other.
    fn changes(&self) -> Vec<Change> {
        let alter = |alteration| Change::Alter(Box::new(alteration));
        match &self.way {
            Way::Shape(plan) => match Beginning::of(plan) {
                Some(beginning) => vec![Change::Begin(Box::new(beginning))],
                None => {
                    let relabels = plan.first.iter().chain(&plan.last).cloned();
                    relabels
                        .map(|relabel| alter(Alteration::Relabel(relabel)))
                        .collect()
                }
            },
            Way::Size(change) => vec![
                alter(Alteration::Room),
                alter(Alteration::Resize(change.clone())),
            ],
        }
    }

    fn done(&self, name: &str, has_lost: &str) -> String {
        match &self.way {
            Way::Shape(Plan {
                movement: Some(_),
                after,
                ..
            }) => format!("{name}: it is being reshaped to {after}"),
            Way::Shape(plan) => format!("{name}: it is {} now{has_lost}", plan.after),
            Way::Size(change) => {
                let kib = change.after_sectors / 2;
                format!("{name}: {kib} KiB of each member are used now{has_lost}")
            }
        }
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
        let _turn = hosted.growing.lock().await;
        self.check_reopen(hosted)?;
        if wish.revert {
            return self.turn_round(hosted, wish, doing).await;
        }
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let mut prepared = self.prepare_growth(&served, wish).await?;
        let told = prepared.told();
        if doing == Doing::Rehearsal {
            let message = format!("{}: it would be done", served.name());
            return Ok(json!({"message": message, "plan": told}));
        }
        let mut new = std::mem::take(&mut prepared.new);
        if !prepared.adds_later() {
            let now = std::mem::take(&mut new);
            self.add_members(&served, hosted, now).await?;
        }
        let goal = prepared.goal();
        keep_goal(&served, &goal).await?;
        if goal.has_log
            && let Err(error) = served.volume.set_log(false).await
        {
            end_goal(&served).await;
            return Err(log_refused(&served, error));
        }
        let name = served.name().to_owned();
        drop(served);
        for change in prepared.changes() {
            if let Err(problem) = self.carry_out(hosted, change).await {
                if let Ok(served) = hosted.served() {
                    end_goal(&served).await; // as it was
                }
                return Err(problem);
            }
        }
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        settle_change(&served).await?;
        let added = self.add_members(&served, hosted, new).await;
        let has_lost = match &*served.volume {
            Body::Reshaping(_) => String::new(),
            _ => end_goal(&served).await,
        };
        added.map_err(|problem| {
            let text = format!("{name} has its new name, and lacks members");
            let hint = format!("to add them:   plexum add {name} MEMBER");
            problem.why(text).hint(hint)
        })?;
        Ok(json!({"message": prepared.done(&name, &has_lost), "plan": told}))
    }

    /// One change after what has to go before it.
    async fn carry_out(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        change: Change,
    ) -> Result<(), Problem> {
        if let Some(relabel) = relabel_of(&change) {
            self.make_way(hosted, relabel).await?;
        }
        self.reopen(hosted, change, None).await
    }

    async fn prepare_growth(
        &self,
        served: &Rc<Served>,
        wish: &GrowWish,
    ) -> Result<Prepared, Problem> {
        let size = wish.size()?;
        let (mut situation, has_log) = situation_of(served)?;
        let new = self.newcomers(served, wish, &mut situation).await?;
        let content = content(served).await?;
        let way = match size {
            Some(size) => Way::Size(plan_resize(served, &situation, size)?),
            None => {
                let wish_for = self.wish(served, wish, situation.member_count)?;
                Way::Shape(plan_shape(served, &situation, &wish_for)?)
            }
        };
        let (bytes, gets_log_again) = match &way {
            Way::Shape(plan) => ([plan.before_bytes, plan.after_bytes], plan.has_room_for_log),
            Way::Size(change) => ([change.before_bytes, change.after_bytes], true),
        };
        check_smaller(served, bytes, wish, content)?;
        let region_bytes = served.volume.status().bitmap_region_bytes.unwrap_or(0);
        let let_go = match &way {
            Way::Shape(plan) => names_let_go(served, plan),
            Way::Size(_) => Vec::new(),
        };
        Ok(Prepared {
            way,
            situation,
            new,
            beside: Beside {
                has_log,
                gets_log_again,
                content,
                keeping: Keeping::of(served),
                let_go,
            },
            bitmap_region_bytes: u32::try_from(region_bytes).unwrap_or(0),
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
            let checked = match served.volume.has_redundancy() {
                true => served.volume.check_add(&member, false).await,
                false => served.volume.check_later_add(&member).await,
            };
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

/// What the array is, and whether it has a stripe log.
fn situation_of(served: &Served) -> Result<(Situation, bool), Problem> {
    let name = served.name();
    let wrong = |text: String| Problem::new(Code::WrongState, text);
    if let Body::Reshaping(_) = *served.volume {
        return Err(wrong(format!("{name} is being reshaped"))
            .hint(format!("wait for its end:   plexum status {name}"))
            .hint(format!("or go back:   plexum grow {name} --revert")));
    }
    let Body::Whole(volume) = &*served.volume else {
        return Err(wrong(format!("{name} cannot change its shape")));
    };
    let status = volume.status();
    if status.is_read_only {
        return Err(refused(served, ControlError::ReadOnly, ""));
    }
    let has_log = status.log.is_some();
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
    let situation = situation.map_err(|error| unfit(served, &error))?;
    if status.doubtful_regions.0 > 0 {
        return Err(wrong(format!("{name} is not in sync yet"))
            .hint(format!("wait for the resync:   plexum status {name}")));
    }
    Ok((situation, has_log))
}

fn plan_shape(served: &Served, situation: &Situation, wish: &Wish) -> Result<Plan, Problem> {
    let plan = plan(situation, wish).map_err(|error| unfit(served, &error))?;
    if plan.lacking_members > 0 {
        let text = format!(
            "{} needs {} more members than there are",
            plan.after, plan.lacking_members
        );
        let hint = format!("name them:   plexum grow {} --add MEMBER...", served.name());
        return Err(Problem::new(Code::TooFewMembers, text).hint(hint));
    }
    Ok(plan)
}

fn plan_resize(served: &Served, situation: &Situation, wish: SizeWish) -> Result<Resize, Problem> {
    let status = served.volume.status();
    let members = status.members.iter();
    let here =
        members.filter(|member| member.device_bytes > 0 && member.standing != Standing::Faulty);
    let capacity = |member: &plexum_engine::volume::MemberStatus| {
        let (id, device_bytes) = (member.id, member.device_bytes);
        let ask = |metadata: &MdMetadata| metadata.data_room_sectors(id, device_bytes);
        Some(Capacity {
            name: member.name.clone().unwrap_or_default(),
            data_sectors: served.volume.ask_metadata(ask)??,
        })
    };
    let members: Vec<Capacity> = here.filter_map(capacity).collect();
    let change = plan_size(situation, &members, wish).map_err(|error| unfit(served, &error))?;
    if status.bitmap_region_bytes.is_some() {
        let ask = |metadata: &MdMetadata| metadata.check_bitmap(change.sync_bytes);
        if let Some(Err(reason)) = served.volume.ask_metadata(ask) {
            let text = format!(
                "{}: its bitmap would not cover so much: {reason}",
                served.name()
            );
            return Err(Problem::new(Code::WrongState, text).hint(format!(
                "take the bitmap off first:   plexum set {} bitmap=none",
                served.name()
            )));
        }
    }
    Ok(change)
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
    [before_bytes, after_bytes]: [u64; 2],
    wish: &GrowWish,
    content: Option<Content>,
) -> Result<(), Problem> {
    if after_bytes >= before_bytes || wish.force {
        return Ok(());
    }
    let (name, lost) = (served.name(), before_bytes - after_bytes);
    let (text, why) = match content {
        Some(content) if content.size_bytes <= after_bytes => return Ok(()),
        Some(Content { what, size_bytes }) => (
            format!("{name} would have {after_bytes} bytes, and its {what} has {size_bytes}"),
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
