//! Changes of a pool that is served, by the words of `plexum pool`.
//!
//! Invariants:
//! - what was answered as done is in a root; what takes long is begun before the answer, and an event tells its end;
//! - new members are opened and looked at before clients have to wait.

use std::path::Path;
use std::rc::Rc;

use plexum_block::clock::Clock;
use plexum_pool::{Task, UpkeepReport};
use plexum_zfs::NamedDevice;
use serde_json::{Value, json};

use super::served::{Live, PoolServed};
use crate::control::request::{Answer, Ask, Request};
use crate::create::or_removed;
use crate::open::{AnyDevice, full_path};
use crate::pool_change::{PoolChange, Writable, now};
use crate::pool_write::{PlannedMember, of_pool, pool_json, rehearsing};
use crate::problem::{Code, Problem};
use crate::volume::status::JSON_VERSION;

impl PoolServed {
    /// Whether a word means it: its name, or its identity.
    pub(crate) fn is_called(&self, word: &str) -> bool {
        self.report.name == word || self.report.guid.to_string() == word
    }

    /// Answers what is asked of the pool itself, in a task of its own. `done` is called behind a change.
    pub(crate) fn answer_of_pool(self: &Rc<Self>, ask: Ask, done: impl FnOnce() + 'static) {
        let pool = Rc::clone(self);
        let _task = self.handle.spawn(async move {
            let answer = match &ask.request {
                Request::ChangePool { change, asked, .. } => {
                    let answer = Box::pin(pool.change(change)).await;
                    if answer.is_ok() {
                        pool.tell("asked", asked);
                    }
                    done();
                    answer
                }
                Request::RehearsePool { change, .. } => Box::pin(pool.rehearse(change)).await,
                _ => Box::pin(pool.show()).await,
            };
            ask.answer(answer);
        });
    }

    /// What it is made of.
    ///
    /// # Errors
    /// What of it cannot be read.
    async fn show(&self) -> Answer {
        let volumes = self.volumes();
        let volumes = volumes
            .iter()
            .map(|one| json!({"volume": one.name(), "dataset": one.dataset}));
        let mut told = json!({"version": JSON_VERSION, "kind": "pool", "pool": self.report.name,
            "guid": self.report.guid.to_string(), "is_written": self.live().is_some(),
            "volumes": volumes.collect::<Vec<_>>()});
        if let Some(live) = self.live() {
            let more = live.change(async |pool| pool_json(pool).await).await?;
            extend(&mut told, more);
        }
        Ok(told)
    }

    /// Whether a change would be made. The pool is opened once more for that as its last root has it, while clients
    /// wait, so that nothing of it is overwritten meanwhile.
    ///
    /// # Errors
    /// `ReadOnly`: it is only read; why the change could not be made.
    async fn rehearse(&self, change: &PoolChange) -> Answer {
        let live = self.written()?;
        let change = self.with_meant(change);
        let handle = &self.handle;
        let rehearse = async |pool: &mut Writable| {
            let named = pool.devices().into_iter();
            let named = named.map(|(name, device)| NamedDevice {
                name,
                device: AnyDevice::clone(&device),
            });
            let mut trial = rehearsing(named.collect()).await?;
            change.rehearse(handle, &mut trial).await
        };
        let made = self.change_live(&live, &change, rehearse).await?;
        let mut told = json!({"message": sentence(&change, "possible")});
        extend(&mut told, made);
        Ok(told)
    }

    /// The pool, which is to be written.
    fn written(&self) -> Result<Rc<Live>, Problem> {
        let live = self.live().cloned();
        live.ok_or_else(|| {
            let name = &self.report.name;
            let text = format!("pool {name} is open for reading only");
            Problem::new(Code::ReadOnly, text)
                .hint("stop its volumes first, then serve them with --write")
        })
    }

    /// The change, with the member by its identity that a path means.
    fn with_meant(&self, change: &PoolChange) -> PoolChange {
        let mut change = change.clone();
        if let Some(member) = change.member_mut() {
            *member = self.meant(member);
        }
        change
    }

    /// Changes it. What takes long goes on behind the answer.
    ///
    /// # Errors
    /// `ReadOnly`: it is only read; why the change cannot be made.
    async fn change(self: &Rc<Self>, change: &PoolChange) -> Answer {
        let live = self.written()?;
        let change = &self.with_meant(change);
        let new = change.prepare(&self.handle).await?;
        if let PoolChange::Replace { old, .. } = change {
            return Box::pin(self.replace(change, old, new)).await;
        }
        let handle = &self.handle;
        // A future of its own each: together they are too deep for the compiler.
        let commit = async |pool: &mut _| Box::pin(change.commit(handle, pool, new)).await;
        let made = match change {
            PoolChange::Scrub => json!({}),
            _ => self.change_live(&live, change, commit).await?,
        };
        let mut text = sentence(change, "done");
        if let Some(task) = change.walk() {
            text = sentence(change, "begun");
            let pool = Rc::clone(self);
            let _walk = handle.spawn(async move {
                let walked = match task {
                    Task::Scrub => live.scrub().await.map(Some),
                    _ => live.make_good().await,
                };
                match walked {
                    // Another walk has given it everything.
                    Ok(None) => {}
                    Ok(Some(report)) => pool.tell("walked", &walked_text(task, &report)),
                    Err(error) => pool.tell("walk-ended", &error.to_string()),
                }
            });
        }
        let mut answer = json!({"message": text, "goes_on": change.walk().is_some()});
        extend(&mut answer, made);
        Ok(answer)
    }

    /// Runs `work`, which makes or tries a change, on the pool that is served.
    ///
    /// # Errors
    /// A volume that is served is in the way; those of the work.
    async fn change_live(
        &self,
        live: &Rc<Live>,
        change: &PoolChange,
        work: impl AsyncFnOnce(&mut Writable) -> Answer,
    ) -> Answer {
        let (volume, made) = match (change, change.changed_volume()) {
            (
                PoolChange::Resize {
                    name, size_bytes, ..
                },
                _,
            ) => (
                name.as_str(),
                live.change_size(name, *size_bytes, work).await,
            ),
            (_, Some(volume)) => (volume, live.change_volume(volume, work).await),
            (_, None) => return live.change(work).await,
        };
        made.map_err(|problem| self.with_stop(problem, volume))
    }

    /// The member that a word means. A disk has several paths.
    fn meant(&self, word: &str) -> String {
        let canonical = |path: &str| std::fs::canonicalize(path).ok();
        let members = self.live().map(|live| live.members()).unwrap_or_default();
        let is_known = members.iter().any(|one| one.name == word);
        let path = canonical(word).filter(|_| !is_known);
        let mut same = members
            .iter()
            .filter(|one| path.is_some() && canonical(&one.name) == path);
        same.next()
            .map_or_else(|| word.to_owned(), |one| one.guid.to_string())
    }

    /// Begins to put a new member in the place of another. A file that was made for it is removed again when it does
    /// not become one.
    async fn replace(
        self: &Rc<Self>,
        change: &PoolChange,
        old: &str,
        mut new: Vec<PlannedMember>,
    ) -> Answer {
        let live = self.written()?;
        let planned = new.pop();
        let planned =
            planned.ok_or_else(|| Problem::new(Code::Bug, "a replacement was not prepared"))?;
        let word = planned.member.clone();
        let is_new = planned.is_new;
        let begun = or_removed(async |made| {
            let new = planned.make(&self.handle, made).await?;
            let begun = live.begin_replace(old, new, now()?).await;
            begun.map_err(|error| of_pool(&error))
        });
        let begun = begun.await?;
        let (pool, gone) = (Rc::clone(self), old.to_owned());
        let _walk = self.handle.spawn(async move {
            match live.end_replace(&begun).await {
                Ok(report) => {
                    let text = walked_text(begun.task(), &report);
                    let text = format!("{word} is a member in the place of {gone}: {text}");
                    pool.tell("replaced", &text);
                }
                Err(error) => {
                    // Of a commit that failed nobody knows how far it got: the new member may be one.
                    if is_new && live.why_frozen().is_none() {
                        let _ = std::fs::remove_file(full_path(Path::new(&word)));
                    }
                    pool.tell("not-replaced", &error.to_string());
                }
            }
        });
        Ok(json!({"message": sentence(change, "begun"), "goes_on": true}))
    }

    /// How a volume that is in the way is stopped.
    fn with_stop(&self, problem: Problem, dataset: &str) -> Problem {
        let volumes = self.volumes();
        let dataset = dataset.split('@').next().unwrap_or(dataset);
        let served = volumes.iter().find(|volume| volume.dataset == dataset);
        match served {
            Some(volume) => {
                problem.hint(format!("to stop it first:   plexum stop {}", volume.name()))
            }
            None => problem,
        }
    }

    /// Tells what happened with the pool, as an event of each of its volumes.
    fn tell(&self, event: &str, text: &str) {
        let time_s = self.handle.clock().wall_seconds();
        for volume in self.volumes() {
            let text = text.to_owned();
            self.events
                .publish(time_s, volume.name(), event, text, None);
        }
    }
}

/// `replace /dev/sdb /dev/sdx: begun`.
fn sentence(change: &PoolChange, state: &str) -> String {
    let words = format!("{} {}", change.route(), change.words());
    format!("{}: {state}", words.trim_end())
}

fn extend(told: &mut Value, more: Value) {
    if let (Some(told), Value::Object(more)) = (told.as_object_mut(), more) {
        told.extend(more);
    }
}

fn walked_text(task: Task, report: &UpkeepReport) -> String {
    let what = match task {
        Task::Scrub => "scrubbed",
        _ => "made good",
    };
    format!(
        "{what}: {} blocks looked at, {} bytes written, {} blocks lost",
        report.blocks, report.repaired_bytes, report.lost_count
    )
}
