//! A volume is opened again, in another geometry, under its clients: their requests wait meanwhile.
//!
//! Invariants:
//! - it was stopped cleanly before anything else is said of its members;
//! - where it cannot be opened as was meant it is opened as it is; where that fails as well its clients are refused,
//!   and it is closed with the reason.

use std::rc::Rc;

use plexum_block::clock::Clock;
use plexum_block::wait::join_all;
use plexum_md::reshape::{Alteration, Goal, Relabel, Stand};

use super::admit::{export_info, facts_of};
use super::goal::{Keeping, end_goal, goal_of};
use super::hosted::{Hosted, Stage};
use super::registry::Host;
use crate::assembly::{AssembleRequest, Assembled, Body, Change, open};
use crate::memory::VolumeMemory;
use crate::problem::{Code, Problem};
use crate::volume::export::VolumeExport;
use crate::volume::ops::take_up_settings;
use crate::volume::served::Served;

impl Host {
    /// Opens a volume again with `change`, which leads to `goal` where that is given. Whoever has asked holds neither
    /// the volume nor a turn to change it, and has asked `check_reopen`.
    ///
    /// # Errors
    /// Why it could not be opened so: then it goes on as it was, or, when that is said, is closed.
    pub(crate) async fn reopen(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        change: Change,
        goal: Option<Goal>,
    ) -> Result<(), Problem> {
        let _turn = hosted.reopening.lock().await;
        hosted.idle().await;
        if hosted.stage() != Stage::Open {
            return Err(hosted.is_closing().problem());
        }
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let (export, memory) = (Rc::clone(&served.export), served.memory.carried());
        hosted.keep_status(&served);
        export.hold().await;
        hosted.note_members_of(&served);
        let stopped = served.volume.stop().await;
        served.end();
        hosted.served.take();
        drop(served);
        join_all(hosted.duties.take()).await;
        let opened = match stopped {
            Ok(()) => self.open_once(hosted, change, goal.clone()).await,
            Err(error) => Err(Problem::new(
                Code::IoError,
                format!("{} could not be stopped cleanly: {error}", hosted.name()),
            )),
        };
        let (assembled, refused) = match opened {
            Ok(assembled) => (Ok(assembled), None),
            Err(problem) => {
                let as_it_is = self.open_once(hosted, Change::None, None).await;
                (as_it_is, Some(problem))
            }
        };
        match assembled {
            Ok(assembled) => {
                self.go_on(hosted, assembled, export, memory)?;
                if let (None, Some(goal), Ok(served)) = (&refused, goal, hosted.served())
                    && Keeping::of(&served) == Keeping::Server
                {
                    served.memory.note_goal(Some(&goal));
                }
            }
            Err(problem) => {
                export.go_on(None);
                hosted.forget_status();
                return Err(self.give_up(hosted, problem));
            }
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether a volume can be opened again under its clients.
    ///
    /// # Errors
    /// `WrongState`.
    pub(crate) fn check_reopen(&self, hosted: &Hosted) -> Result<(), Problem> {
        if hosted.stage() != Stage::Open {
            return Err(hosted.is_closing().problem());
        }
        if self.is_divisible(hosted) {
            let text = format!("{} is served by several cores", hosted.name());
            return Err(Problem::new(Code::WrongState, text)
                .why("its data would have to move under clients at other cores")
                .hint("serve it without --cores for as long as that takes"));
        }
        Ok(())
    }

    async fn open_once(
        &self,
        hosted: &Hosted,
        change: Change,
        goal: Option<Goal>,
    ) -> Result<Assembled, Problem> {
        let request = AssembleRequest {
            change,
            goal,
            ..hosted.request.borrow().clone()
        };
        let mut opened = open(&self.handle, &self.pool, request).await?;
        match (opened.pop(), opened.is_empty()) {
            (Some(assembled), true) => Ok(assembled),
            _ => Err(Problem::new(
                Code::Bug,
                format!("{} is no longer one volume", hosted.name()),
            )),
        }
    }

    /// Clients go on with what was opened.
    fn go_on(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        assembled: Assembled,
        export: Rc<VolumeExport>,
        memory: VolumeMemory,
    ) -> Result<(), Problem> {
        let volume = Rc::new(assembled.body);
        let facts = facts_of(&self.handle, assembled.facts);
        let mut notes = assembled.notes;
        let info = export_info(&volume, &facts, &mut notes);
        let clock = self.handle.clock();
        let served = Served::new(Rc::clone(&volume), Rc::clone(&export), facts, clock, memory);
        let _ = take_up_settings(&served, None); // they were taken up before
        *hosted.served.borrow_mut() = Some(Rc::new(served));
        hosted.forget_status();
        export.go_on(Some((volume, info.size_bytes)));
        let started = self.start_duties(hosted);
        started.map_err(|refusal| refusal.problem())?;
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        if let Body::Reshaping(_) = *served.volume {
            self.follow_reshape(hosted, &served);
        }
        Ok(())
    }

    fn give_up(self: &Rc<Self>, hosted: &Rc<Hosted>, problem: Problem) -> Problem {
        let problem = problem.why("it was being opened in another geometry, and is closed now");
        self.tell(hosted, "stopped", problem.message.clone());
        *self.failure.borrow_mut() = Some(problem.clone());
        hosted.stage.set(Stage::Closing);
        let (host, hosted) = (Rc::clone(self), Rc::clone(hosted));
        let _task = self.handle.clone().spawn(async move {
            hosted.tell_all(plexum_front::client::Leave::Fence);
            host.let_go(&hosted).await;
        });
        problem
    }

    /// What follows when a reshape has ended: the last relabel, and the log that it had. A task of its own.
    pub(super) fn follow_reshape(self: &Rc<Self>, hosted: &Rc<Hosted>, served: &Rc<Served>) {
        let volume = Rc::clone(&served.volume);
        let (host, hosted) = (Rc::clone(self), Rc::clone(hosted));
        let _task = self.handle.spawn(async move {
            if let Body::Reshaping(moving) = &*volume {
                moving.ended().await;
                if moving.has_failed() {
                    let name = hosted.name();
                    let text = format!(
                        "the reshape of {name} has stopped: it goes on when it is served again"
                    );
                    host.tell(&hosted, "reshape_stopped", text);
                }
                if !moving.has_ended() {
                    return;
                }
            }
            drop(volume); // its members are opened again
            if hosted.stage() == Stage::Open {
                match host.finish_reshape(&hosted).await {
                    Ok((event, text)) => host.tell(&hosted, event, text),
                    Err(problem) => host.tell(&hosted, "reshape_stopped", problem.message),
                }
            }
        });
    }

    fn tell(&self, hosted: &Hosted, event: &'static str, text: String) {
        let time_s = self.handle.clock().wall_seconds();
        self.events
            .publish(time_s, hosted.name(), event, text, None);
    }

    /// What is due when a change has ended. The event that says so, and its text.
    async fn finish_reshape(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
    ) -> Result<(&'static str, String), Problem> {
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let goal = goal_of(&served);
        let has_moved = matches!(*served.volume, Body::Reshaping(_));
        let stands_at = |stand: &Stand| stand.is(served.volume.geometry());
        let has_begun = has_moved || goal.as_ref().is_none_or(|goal| !stands_at(&goal.from));
        drop(served);
        // What never began is asked for again, also where the last name was all there was to it.
        let last = goal.as_ref().and_then(|goal| goal.last.clone());
        let last = last.filter(|_| has_begun);
        self.give_last_relabel(hosted, last).await?;
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let has_lost = end_goal(&served).await;
        let name = hosted.name();
        if let (false, Some(goal)) = (has_begun, goal) {
            let text = format!(
                "{name} was to become {}, and its server ended before anything had changed: ask for it again{has_lost}",
                goal.to.shape
            );
            return Ok(("reshape_stopped", text));
        }
        let text = format!(
            "{name} is reshaped: {} bytes, {} members{has_lost}",
            served.volume.volume_bytes(),
            served.facts.slots
        );
        Ok(("reshape_finished", text))
    }

    /// What has moved is opened as what it is now. The goal may be older or newer than the superblocks, since an
    /// earlier server may have died between the two: an array that has not moved is never relabelled.
    pub(super) async fn give_last_relabel(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        last: Option<Relabel>,
    ) -> Result<(), Problem> {
        let served = hosted.served().map_err(|refusal| refusal.problem())?;
        let due = last.filter(|relabel| relabel.is_due(served.volume.geometry()));
        let is_moved = matches!(*served.volume, Body::Reshaping(_));
        if due.as_ref().is_some_and(Relabel::wants_agreement) {
            // After a crash: what was being written then is made to agree as it is now.
            loop {
                let change = served.volume.changes();
                if served.volume.status().doubtful_regions.0 == 0 {
                    break;
                }
                change.await;
                if hosted.stage() != Stage::Open {
                    return Err(hosted.is_closing().problem());
                }
            }
        }
        drop(served);
        if let Some(relabel) = &due {
            self.make_way(hosted, relabel).await?;
        }
        let change = match due {
            Some(relabel) => Change::Alter(Box::new(Alteration::Relabel(relabel))),
            None if is_moved => Change::None,
            None => return Ok(()),
        };
        self.check_reopen(hosted)?;
        self.reopen(hosted, change, None).await
    }
}
