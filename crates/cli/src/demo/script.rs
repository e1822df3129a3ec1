//! The play of the demo: what happens to the volume, one act after another.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use plexum_block::clock::Clock;
use plexum_daemon::control::Action;
use plexum_daemon::create::{CreateRequest, Creation};
use plexum_daemon::examine::{Examination, examine_path, judge};
use plexum_daemon::problem::{Code, Problem};
use plexum_daemon::status::{MemberState, ScrubStatus, Verdict, VolumeStatus};
use plexum_format::md::MdVersion;
use plexum_layout::{Level, Organisation};
use plexum_md::assemble::{Assembly, Options};
use plexum_runtime::Handle;
use plexum_runtime::file::Access;

use super::damage::{Damage, can_locate, choose, compare, found_at, inflict, place_of};
use super::load::{BLOCK_BYTES, Book, Connection, Dice, Work, Workers, join, start};
use super::server::{NAME, Server};
use super::view::{Check, View};
use super::{MEMBER_BYTES, Scratch};
use crate::progress::percent;
use crate::units::show_bytes;

/// Strip size.
const STRIP_BYTES: u64 = 64 << 10;
/// Rate of a rebuild that has to be caught in the middle.
const SLOW_RATE: &str = "8M";
/// Blocks damaged behind the engine's back.
const DAMAGES: u64 = 5;
/// Time between two looks at the server.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Longest time that anything may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time that the mixed load runs before something happens.
const LOAD_TIME: Duration = Duration::from_millis(700);

/// The play: who and what is on the stage.
pub(super) struct Script<'a> {
    pub(super) handle: Handle,
    pub(super) view: &'a View,
    pub(super) scratch: &'a Scratch,
    pub(super) organisation: Organisation,
    pub(super) seed: u64,
    pub(super) dice: Dice,
    pub(super) is_sabotaged: bool,
    pub(super) book: Rc<Book>,
    pub(super) server: Option<Server>,
    /// When throughput was last looked at, and what had been moved by then.
    pub(super) last: (Instant, u64),
}

impl Script<'_> {
    /// All of it.
    ///
    /// # Errors
    /// What keeps it from going on.
    pub(super) async fn play(&mut self, count: usize) -> Result<(), Problem> {
        self.create(count).await?;
        let all: Vec<PathBuf> = (0..count + 2)
            .map(|number| self.scratch.disk(number))
            .collect();
        self.serve(&all)?;
        let connection = self.connect().await?;
        self.book = Rc::new(Book::new(self.seed, connection.size_bytes));
        join(start(&self.handle, &connection, &self.book, Work::Fill, 0)).await?;
        connection.flush().await?;
        self.view.step(&format!(
            "filled {} through NBD",
            show_bytes(connection.size_bytes)
        ));
        self.lose_two(&connection).await?;
        self.damage_and_repair(&connection).await?;
        join(start(
            &self.handle,
            &connection,
            &self.book,
            Work::Verify,
            0,
        ))
        .await?;
        self.check_content("every byte of the volume is what was written");
        let connection = self.kill_and_return(&connection).await?;
        connection.close();
        self.stop()
    }

    async fn create(&mut self, count: usize) -> Result<(), Problem> {
        let word = |number: usize| self.scratch.disk(number).display().to_string();
        let request = CreateRequest {
            name: NAME.into(),
            homehost: String::new(),
            organisation: self.organisation,
            members: (0..count).map(word).collect(),
            spares: (count..count + 2).map(word).collect(),
            strip_bytes: (self.organisation.level() != Level::Raid1).then_some(STRIP_BYTES),
            size_bytes: None,
            member_size_bytes: Some(MEMBER_BYTES),
            data_offset_bytes: None,
            version: MdVersion::V12,
            has_bitmap: true,
            region_bytes: None,
            has_log: true,
            has_ppl: false,
            is_write_back: false,
            write_mostly: Vec::new(),
            is_assume_clean: false,
            is_forced: false,
        };
        let creation = Creation::prepare(&self.handle, &request, Access::ReadWrite).await?;
        let text = format!(
            "created {} over {count} sparse files of {} and two spares: {} usable",
            creation.organisation,
            show_bytes(MEMBER_BYTES),
            show_bytes(creation.volume_bytes)
        );
        creation.carry_out(&self.handle, None).await?;
        self.view.step(&text);
        Ok(())
    }

    fn serve(&mut self, members: &[PathBuf]) -> Result<(), Problem> {
        let there: Vec<PathBuf> = members
            .iter()
            .filter(|path| path.exists())
            .cloned()
            .collect();
        self.server = Some(Server::start(&self.scratch.runtime, &there)?);
        self.view.step("served over NBD on a Unix socket");
        Ok(())
    }

    fn server(&self) -> Result<&Server, Problem> {
        self.server
            .as_ref()
            .ok_or_else(|| Problem::new(Code::Bug, "the demo's server is not running"))
    }

    async fn connect(&self) -> Result<Rc<Connection>, Problem> {
        let socket = self.server()?.socket.clone();
        Ok(Rc::new(
            Connection::open(&self.handle, &socket, NAME).await?,
        ))
    }

    /// Two losses under load, and the rebuilds onto the spares.
    async fn lose_two(&mut self, connection: &Rc<Connection>) -> Result<(), Problem> {
        let workers = start(&self.handle, connection, &self.book, Work::Mixed, 1);
        self.pause().await?;
        let survives_two = self.server()?.client.status()?.spare_failures >= 2;
        self.set_rate(SLOW_RATE)?;
        let first = self.lose_one(&[]).await?;
        let is_filling = |status: &VolumeStatus| {
            let job = status.jobs.first();
            job.is_some_and(|job| job.done_bytes * 4 >= job.total_bytes && job.done_bytes > 0)
                || status.verdict == Verdict::Ok
        };
        let seen = self.wait("a rebuild onto a spare", is_filling).await?;
        self.view.check(&Check {
            text: "a spare took its place by itself, clients go on",
            is_good: seen.verdict != Verdict::Failed,
            details: &[],
        });
        if survives_two {
            let done = seen.jobs.first().map(percent);
            self.view.check(&Check {
                text: &format!(
                    "the second disk dies in the middle of the rebuild (at {} %)",
                    done.unwrap_or(100)
                ),
                is_good: seen.verdict == Verdict::Degraded && done.is_some_and(|done| done < 100),
                details: &["the rebuild was over already".to_owned()],
            });
        } else {
            self.set_rate("0")?;
            self.wait("the first rebuild", |status| status.verdict == Verdict::Ok)
                .await?;
            self.view.step("rebuilt; now a second disk dies");
        }
        let second = self.lose_one(&[first]).await?;
        self.set_rate("0")?;
        let healthy = self
            .wait("both rebuilds", |status| {
                status.verdict == Verdict::Ok && status.jobs.is_empty()
            })
            .await?;
        let spares_in = healthy
            .members
            .iter()
            .filter(|member| member.slot.is_some() && member.state == MemberState::Active)
            .count();
        self.view.check(&Check {
            text: &format!("rebuilt: all {spares_in} slots are complete again"),
            is_good: spares_in == healthy.slots as usize,
            details: &[],
        });
        for path in [first_name(&healthy), second].into_iter().flatten() {
            // The dead ones are told goodbye, so that status is clean.
            let _ = self.act(&Action::Remove { member: path });
        }
        self.end(workers).await?;
        connection.flush().await?;
        self.check_content("no client saw an error or a wrong byte meanwhile");
        Ok(())
    }

    /// Takes a disk away: its file is deleted. The path of the member.
    async fn lose_one(&mut self, but: &[Option<String>]) -> Result<Option<String>, Problem> {
        let status = self.server()?.client.status()?;
        let active: Vec<(u32, String)> = status
            .members
            .iter()
            .filter(|member| member.state == MemberState::Active)
            .filter_map(|member| Some((member.slot?, member.path.clone()?)))
            .filter(|(_, path)| !but.contains(&Some(path.clone())))
            .collect();
        let (slot, path) = active[self.dice.below(active.len() as u64) as usize].clone();
        std::fs::remove_file(&path).map_err(|error| Problem::from_io(&error, "killing", &path))?;
        let short = path.rsplit('/').next().unwrap_or(&path).to_owned();
        self.view.step(&format!(
            "{short} (slot {slot}) is gone: its file was deleted under load"
        ));
        let is_noticed = |status: &VolumeStatus| {
            let own = status
                .members
                .iter()
                .find(|member| member.path.as_ref() == Some(&path));
            own.is_none_or(|member| member.state == MemberState::Faulty)
        };
        self.wait("the loss to be noticed", is_noticed).await?;
        Ok(Some(path))
    }

    async fn damage_and_repair(&mut self, connection: &Rc<Connection>) -> Result<(), Problem> {
        connection.flush().await?;
        let (assembly, paths) = self.stage()?;
        let damages = choose(&assembly.geometry, &mut self.dice, DAMAGES);
        for damage in &damages {
            let (path, data_offset) = &paths[&damage.slot];
            inflict(path, *data_offset, damage.member_offset_bytes)?;
        }
        self.view.step(&format!(
            "damaged {} blocks of {} behind the engine's back",
            damages.len(),
            show_bytes(BLOCK_BYTES as u64)
        ));
        if !can_locate(&assembly.geometry) {
            self.view.step(
                "  (in parity or later copies only: with one redundancy nobody can tell which side is wrong,\n  \
                 so a repair trusts the data)",
            );
        }
        if self.is_sabotaged {
            self.sabotage(&assembly, &paths)?;
        }
        let found = self.scrub(false).await?;
        let differences = compare(&damages, &found, &assembly);
        self.view.check(&Check {
            text: "the scrub finds exactly these blocks",
            is_good: differences.is_empty(),
            details: &differences,
        });
        if can_locate(&assembly.geometry) {
            let is_named = |damage: &Damage| {
                found.ranges.iter().any(|range| {
                    place_of(damage, &assembly) == found_at(range, &assembly)
                        && range.slot == Some(damage.slot as u32)
                })
            };
            self.view.check(&Check {
                text: "and names the wrong member of each",
                is_good: damages.iter().all(is_named),
                details: &[],
            });
        }
        self.scrub(true).await?;
        let again = self.scrub(false).await?;
        self.view.check(&Check {
            text: "after the repair nothing differs",
            is_good: again.mismatch_bytes == 0,
            details: &[format!("{} bytes still differ", again.mismatch_bytes)],
        });
        Ok(())
    }

    /// `--sabotage`: a block is destroyed on more members than redundancy can mend. The demo must notice.
    fn sabotage(&self, assembly: &Assembly, paths: &Paths) -> Result<(), Problem> {
        let offset = assembly.geometry.component_bytes() / 2 / STRIP_BYTES * STRIP_BYTES;
        for (path, data_offset) in paths.values() {
            inflict(path, *data_offset, offset)?;
        }
        self.view
            .step("sabotage: one more block was destroyed on every member");
        Ok(())
    }

    /// The members as they are now: geometry, and for each slot the file and where its data begin.
    fn stage(&self) -> Result<(Assembly, Paths), Problem> {
        let status = self.server()?.client.status()?;
        let mut examined: Vec<Examination> = Vec::new();
        let mut paths = BTreeMap::new();
        for member in &status.members {
            let (Some(slot), Some(path)) = (member.slot, &member.path) else {
                continue;
            };
            let path = PathBuf::from(path);
            let examination = examine_path(&path, &path.display().to_string())?;
            let offset = examination
                .superblock
                .as_ref()
                .map_or(0, |superblock| superblock.data_offset_sectors * 512);
            paths.insert(slot as usize, (path, offset));
            examined.push(examination);
        }
        let options = Options {
            read_only: true,
            run_degraded: true,
            ..Options::default()
        };
        Ok((judge(&examined, &options)?, paths))
    }

    async fn scrub(&mut self, repair: bool) -> Result<ScrubStatus, Problem> {
        self.act(&Action::Scrub {
            repair,
            stop: false,
        })?;
        let status = self
            .wait("the scrub", |status| status.jobs.is_empty())
            .await?;
        status
            .last_scrub
            .ok_or_else(|| Problem::new(Code::Bug, "the scrub left no report"))
    }

    /// SIGKILL in the middle of writes, and a start on what is left.
    async fn kill_and_return(
        &mut self,
        connection: &Rc<Connection>,
    ) -> Result<Rc<Connection>, Problem> {
        let members: Vec<PathBuf> = self
            .server()?
            .client
            .status()?
            .members
            .iter()
            .filter_map(|member| member.path.clone().map(PathBuf::from))
            .collect();
        let workers = start(&self.handle, connection, &self.book, Work::Mixed, 2);
        self.pause().await?;
        self.book.expects_kill.set(true);
        if let Some(server) = self.server.take() {
            server.kill();
        }
        self.view
            .step("the server was killed (SIGKILL) in the middle of writes");
        join(workers).await?;
        self.book.expects_kill.set(false);
        self.serve(&members)?;
        let connection = self.connect().await?;
        self.wait("the resync", |status| {
            status.verdict == Verdict::Ok && status.jobs.is_empty()
        })
        .await?;
        join(start(
            &self.handle,
            &connection,
            &self.book,
            Work::Verify,
            0,
        ))
        .await?;
        self.check_content("after the start every answered write is there");
        let after = self.scrub(false).await?;
        self.view.check(&Check {
            text: "and copies and parity agree",
            is_good: after.mismatch_bytes == 0 && after.skipped_bytes == 0,
            details: &[format!(
                "{} bytes differ, {} could not be compared",
                after.mismatch_bytes, after.skipped_bytes
            )],
        });
        Ok(connection)
    }

    fn stop(&mut self) -> Result<(), Problem> {
        self.act(&Action::Stop)?;
        let exit = self.server.take().and_then(Server::wait);
        self.view.check(&Check {
            text: "a clean stop",
            is_good: exit == Some(0),
            details: &[exit.map_or("it was killed".to_owned(), |exit| {
                format!("exit code {exit}")
            })],
        });
        Ok(())
    }

    fn check_content(&self, text: &str) {
        let (count, details) = self.book.wrong();
        let text = format!(
            "{text} ({} blocks compared so far)",
            self.book.compared_blocks.get()
        );
        self.view.check(&Check {
            text: &text,
            is_good: count == 0,
            details: &details,
        });
    }

    fn act(&self, action: &Action) -> Result<(), Problem> {
        self.server()?.client.act(action).map(|_| ())
    }

    fn set_rate(&self, rate: &str) -> Result<(), Problem> {
        self.act(&Action::Set {
            settings: BTreeMap::from([("rebuild-max".to_owned(), rate.to_owned())]),
        })
    }

    /// Lets the load run for a while.
    async fn pause(&mut self) -> Result<(), Problem> {
        let until = Instant::now() + LOAD_TIME;
        self.wait_until("the load", |_| Instant::now() >= until)
            .await
            .map(|_| ())
    }

    async fn wait(
        &mut self,
        what: &str,
        is_done: impl Fn(&VolumeStatus) -> bool,
    ) -> Result<VolumeStatus, Problem> {
        self.wait_until(what, is_done).await
    }

    /// Looks at the server again and again, with the live picture, until `is_done`.
    async fn wait_until(
        &mut self,
        what: &str,
        is_done: impl Fn(&VolumeStatus) -> bool,
    ) -> Result<VolumeStatus, Problem> {
        let begun = Instant::now();
        let clock = self.handle.clock();
        loop {
            let status = self.server()?.client.status()?;
            if is_done(&status) {
                return Ok(status);
            }
            if begun.elapsed() > PATIENCE {
                return Err(Problem::new(
                    Code::IoError,
                    format!("waited {} s for {what} in vain", PATIENCE.as_secs()),
                ));
            }
            let rate = self.rate();
            self.view.live(&status, rate);
            clock.sleep(LOOK_EVERY).await;
        }
    }

    /// Bytes per second that the load moved since the last look.
    fn rate(&mut self) -> u64 {
        let (at, moved) = self.last;
        let now = (Instant::now(), self.book.moved_bytes.get());
        self.last = now;
        let spent = now.0.duration_since(at).as_millis().max(1);
        let bytes = u128::from(now.1.saturating_sub(moved)) * 1000 / spent;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    async fn end(&self, workers: Workers) -> Result<(), Problem> {
        self.book.is_ending.set(true);
        join(workers).await
    }
}

/// File and first byte of the data of each slot.
type Paths = BTreeMap<usize, (PathBuf, u64)>;

/// A faulty member that is still listed.
fn first_name(status: &VolumeStatus) -> Option<String> {
    let faulty = status
        .members
        .iter()
        .find(|member| member.state == MemberState::Faulty);
    faulty.and_then(|member| member.path.clone())
}
