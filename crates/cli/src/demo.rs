//! `plexum demo`: the tour. A volume on sparse files is served, loses members under load, is rebuilt, is damaged, found
//! out, repaired, killed, and comes back; every byte is checked by real NBD clients.
//!
//! Invariants:
//! - the exit code is 0 only when every check held;
//! - nothing outside of the demo's own folders is touched, and they are removed unless `--keep` asks otherwise.

mod damage;
mod load;
mod server;
mod view;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use plexum_block::clock::Clock;
use plexum_block::wait::first;
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
use plexum_runtime::signals::StopSignals;
use serde_json::json;

use crate::args::{Common, Demo};
use crate::errors::Outcome;
use crate::offline::runtime;
use crate::output::Screen;
use crate::progress::percent;
use crate::units::show_bytes;
use damage::{Damage, can_locate, choose, inflict};
use load::{BLOCK_BYTES, Book, Connection, Dice, Work, Workers, join, start};
use server::{NAME, Server};
use view::View;

/// Size of each member: small enough that all ends within half a minute.
const MEMBER_BYTES: u64 = 32 << 20;
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

/// Runs the command.
///
/// # Errors
/// `Usage` for a level without redundancy; whatever keeps the demo from running at all. A check that fails is exit code 1.
pub fn run(args: &Demo, common: &Common, screen: &Screen) -> Outcome {
    let begun = Instant::now();
    let organisation = organisation(args)?;
    let seed = args.seed.unwrap_or(1);
    let count = member_count(args, organisation.level())?;
    if common.dry_run {
        let size = show_bytes(MEMBER_BYTES);
        screen.line(format!(
            "would play the demo with {organisation} over {count} sparse files of {size} and two spares"
        ));
        return Ok(0);
    }
    let scratch = Scratch::new(args.keep.as_deref())?;
    let view = View::new(screen);
    let mut runtime = runtime()?;
    let handle = runtime.handle();
    let mut demo = Script {
        handle,
        view: &view,
        scratch: &scratch,
        organisation,
        seed,
        dice: Dice::new(seed, 0),
        is_sabotaged: args.sabotage,
        book: Rc::new(Book::new(seed, 0)),
        server: None,
        last: (Instant::now(), 0),
    };
    let count = member_count(args, organisation.level())?;
    let signals = StopSignals::new(&demo.handle)
        .map_err(|error| Problem::from_io(&error, "catching", "signals"));
    let result = runtime.block_on(unless_stopped(signals, demo.play(count)));
    demo.server = None; // it never outlives the demo
    drop(demo);
    if let Err(problem) = &result {
        view.check(
            "the demo could go on",
            false,
            std::slice::from_ref(&problem.message),
        );
    }
    let failed = view.failed();
    let seconds = begun.elapsed().as_secs();
    view.finish(
        json!({"is_good": failed.is_empty(), "failed": failed, "seed": seed, "seconds": seconds}),
    );
    screen.line(match failed.len() {
        0 => format!("Every check held ({seconds} s, seed {seed})."),
        n => format!("{n} checks FAILED (seed {seed})."),
    });
    if let Some(folder) = &args.keep {
        screen.done(format!("the members are in {}", folder.display()));
    }
    Ok(u8::from(!failed.is_empty()))
}

/// Plays until the end or until somebody wants it to stop: then the server and the folders go as well.
async fn unless_stopped(
    signals: Result<StopSignals, Problem>,
    play: impl Future<Output = Result<(), Problem>>,
) -> Result<(), Problem> {
    let signals = signals?;
    let ended = RefCell::new(None);
    let play = async {
        let result = play.await;
        ended.replace(Some(result));
    };
    let stop = async {
        signals.next().await;
    };
    first(play, stop).await;
    let stopped = || {
        Problem::new(
            Code::NotConfirmed,
            "the demo was stopped; its server and its folders are gone",
        )
    };
    ended.take().unwrap_or_else(|| Err(stopped()))
}

fn organisation(args: &Demo) -> Result<Organisation, Problem> {
    let usage = |text: String| Problem::new(Code::Usage, text);
    let level: Level = args
        .level
        .parse()
        .map_err(|error| usage(format!("{error}")))?;
    if !level.has_redundancy() {
        return Err(usage(format!(
            "{level} has no redundancy: it does not survive the demo"
        ))
        .hint("choose one of:   --level 1, 4, 5, 6, 10"));
    }
    Organisation::from_words(level, None).map_err(|error| usage(error.to_string()))
}

fn member_count(args: &Demo, level: Level) -> Result<usize, Problem> {
    let (default, least) = match level {
        Level::Raid6 => (6, 4),
        Level::Raid1 => (2, 2),
        Level::Raid10 => (4, 4),
        _ => (4, 3),
    };
    let count = args.members.map_or(default, |count| count as usize);
    if !(least..=32).contains(&count) {
        return Err(Problem::new(
            Code::Usage,
            format!("--members {count}: {level} takes {least} to 32 here"),
        ));
    }
    Ok(count)
}

/// The demo's folders.
struct Scratch {
    members: PathBuf,
    runtime: PathBuf,
    keeps_members: bool,
}

impl Scratch {
    fn new(keep: Option<&Path>) -> Result<Self, Problem> {
        let base = std::env::temp_dir().join(format!("plexum-demo-{}", std::process::id()));
        let members = keep.map_or_else(|| base.join("disks"), Path::to_owned);
        for folder in [&base, &members] {
            std::fs::create_dir_all(folder).map_err(|error| {
                Problem::from_io(&error, "making", &folder.display().to_string())
            })?;
        }
        Ok(Self {
            members: std::path::absolute(&members).unwrap_or(members),
            runtime: base,
            keeps_members: keep.is_some(),
        })
    }

    fn disk(&self, number: usize) -> PathBuf {
        self.members.join(format!("disk{number}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.runtime);
        if !self.keeps_members {
            let _ = std::fs::remove_dir_all(&self.members);
        }
    }
}

/// The play: who and what is on the stage.
struct Script<'a> {
    handle: Handle,
    view: &'a View,
    scratch: &'a Scratch,
    organisation: Organisation,
    seed: u64,
    dice: Dice,
    is_sabotaged: bool,
    book: Rc<Book>,
    server: Option<Server>,
    /// When throughput was last looked at, and what had been moved by then.
    last: (Instant, u64),
}

impl Script<'_> {
    async fn play(&mut self, count: usize) -> Result<(), Problem> {
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
        creation.carry_out(&self.handle).await?;
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
        self.view.check(
            "a spare took its place by itself, clients go on",
            seen.verdict != Verdict::Failed,
            &[],
        );
        if survives_two {
            let done = seen.jobs.first().map(percent);
            self.view.check(
                &format!(
                    "the second disk dies in the middle of the rebuild (at {} %)",
                    done.unwrap_or(100)
                ),
                seen.verdict == Verdict::Degraded && done.is_some_and(|done| done < 100),
                &["the rebuild was over already".to_owned()],
            );
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
        self.view.check(
            &format!("rebuilt: all {spares_in} slots are complete again"),
            spares_in == healthy.slots as usize,
            &[],
        );
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
        self.view.check(
            "the scrub finds exactly these blocks",
            differences.is_empty(),
            &differences,
        );
        if can_locate(&assembly.geometry) {
            let is_named = |damage: &Damage| {
                found.ranges.iter().any(|range| {
                    place_of(damage, &assembly) == found_at(range, &assembly)
                        && range.slot == Some(damage.slot as u32)
                })
            };
            self.view.check(
                "and names the wrong member of each",
                damages.iter().all(is_named),
                &[],
            );
        }
        self.scrub(true).await?;
        let again = self.scrub(false).await?;
        self.view.check(
            "after the repair nothing differs",
            again.mismatch_bytes == 0,
            &[format!("{} bytes still differ", again.mismatch_bytes)],
        );
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
        self.view.check(
            "and copies and parity agree",
            after.mismatch_bytes == 0 && after.skipped_bytes == 0,
            &[format!(
                "{} bytes differ, {} could not be compared",
                after.mismatch_bytes, after.skipped_bytes
            )],
        );
        Ok(connection)
    }

    fn stop(&mut self) -> Result<(), Problem> {
        self.act(&Action::Stop)?;
        let exit = self.server.take().and_then(Server::wait);
        self.view.check(
            "a clean stop",
            exit == Some(0),
            &[exit.map_or("it was killed".to_owned(), |exit| {
                format!("exit code {exit}")
            })],
        );
        Ok(())
    }

    fn check_content(&self, text: &str) {
        let (count, details) = self.book.wrong();
        let text = format!(
            "{text} ({} blocks compared so far)",
            self.book.compared_blocks.get()
        );
        self.view.check(&text, count == 0, &details);
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

/// The place that a report gives for a damage: mirrors are named by the volume, parity by the member.
fn place_of(damage: &Damage, assembly: &Assembly) -> u64 {
    if assembly.geometry.organisation().level().has_parity() {
        damage.member_offset_bytes
    } else {
        damage.volume_offset_bytes
    }
}

fn found_at(range: &plexum_daemon::status::Mismatch, assembly: &Assembly) -> u64 {
    if assembly.geometry.organisation().level().has_parity() {
        range.member_offset_bytes
    } else {
        range.volume_offset_bytes
    }
}

/// What a report has too much or too little, as sentences.
fn compare(damages: &[Damage], found: &ScrubStatus, assembly: &Assembly) -> Vec<String> {
    let mut differences = Vec::new();
    for damage in damages {
        let place = place_of(damage, assembly);
        let is_found = found.ranges.iter().any(|range| {
            found_at(range, assembly) == place && range.length_bytes == BLOCK_BYTES as u64
        });
        if !is_found {
            differences.push(format!("the damage at byte {place} was not found"));
        }
    }
    for range in &found.ranges {
        let place = found_at(range, assembly);
        if !damages
            .iter()
            .any(|damage| place_of(damage, assembly) == place)
        {
            differences.push(format!(
                "{} bytes at byte {place} differ, which nobody damaged",
                range.length_bytes
            ));
        }
    }
    differences
}
