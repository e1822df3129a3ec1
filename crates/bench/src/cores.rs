//! Group `cores`: one volume on two cores beside the same volume on one (W12), a load generator inside each shard.
//!
//! A client would be a program of its own and take the second core away, so nobody connects here. What the machine and
//! the members allow is measured in the same round: two volumes that share nothing, each on a core of its own; of
//! members in files they share the files, because the kernel locks a file for each write to it.

use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool};
use plexum_block::device::{Fua, IoError};
use plexum_engine::shard::{Opener, Satellite, ShardSeed, Spawn};
use plexum_engine::volume::Volume;
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};
use plexum_runtime::mailbox::{Mailbox, Reply, Sender, mailbox, reply};
use plexum_runtime::{Handle, IoChoice, Runtime};

use crate::compare::{Probe, Role, Samples, take_turns};
use crate::device::BenchDevice;
use crate::folder::TemporaryFolder;
use crate::load::Figures;
use crate::load::{PATTERNS, Pattern, Target, run_where};
use crate::setup::{Case, Consistency, MemberKind, Path, Running};
use crate::{BenchError, BenchOptions, Progress};

/// Shards that are measured.
const SHARDS: usize = 2;

/// What a volume does before it is measured: slabs and marks are lent by then.
const WARM_UP: Duration = Duration::from_millis(30);

/// A volume that is not shared is asked for every other of so many parts, as each shard is: the caches hold as much.
const PARTS: u64 = 32;

/// Measures all rows by turns.
///
/// # Errors
/// No folder can be made for members in files.
pub(crate) fn measure(
    options: &BenchOptions,
    samples: &mut Samples,
    progress: &mut Progress<'_>,
) -> Result<(), BenchError> {
    let is_small = std::thread::available_parallelism().map_or(true, |cores| cores.get() < SHARDS);
    if is_small {
        samples.skip("plexum", "cores", "there is one processor");
        return Ok(());
    }
    let place = TemporaryFolder::make(options)?;
    let mut own = Samples::default();
    let probes = rows().into_iter().map(|(metric, case)| Probe {
        name: "plexum".to_owned(),
        role: Role::Plexum,
        task: metric.to_owned(),
        measure: Box::new({
            let place = &place;
            move || {
                let Rates { one, shared, apart } = once(options, &case, place)?;
                Ok(vec![
                    (metric.to_owned(), "x one core", shared / one),
                    (format!("{APART}{metric}"), "x one core", apart / one),
                    (format!("{metric}, one core"), "kIOPS", one / 1e3),
                    (format!("{metric}, two cores"), "kIOPS", shared / 1e3),
                ])
            }
        }),
    });
    take_turns(
        "cores",
        probes.collect(),
        options.rounds,
        &mut own,
        progress,
    );
    own.split_limits(samples, APART, |metric| vec![metric.replacen(APART, "", 1)]);
    Ok(())
}

/// In front of a metric while it is that of two volumes which share nothing.
const APART: &str = "apart ";

fn rows() -> Vec<(&'static str, Case)> {
    let [read, write, ..] = PATTERNS;
    let stripe = Organisation::Raid0(Raid0Layout::Original);
    let raid5 = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let case = |organisation, member_count, members, pattern| Case {
        label: "two cores",
        organisation,
        member_count,
        members,
        path: Path::Direct,
        pattern,
        consistency: Consistency::Bitmap,
    };
    let (null, file) = (MemberKind::Null, MemberKind::File);
    let mirror = Organisation::Raid1;
    vec![
        ("stripe of 4, null: 4K read", case(stripe, 4, null, read)),
        ("mirror of 2, null: 4K read", case(mirror, 2, null, read)),
        ("mirror of 2, null: 4K write", case(mirror, 2, null, write)),
        ("RAID-5 of 4, null: 4K write", case(raid5, 4, null, write)),
        ("mirror of 2, files: 4K read", case(mirror, 2, file, read)),
        ("mirror of 2, files: 4K write", case(mirror, 2, file, write)),
        ("RAID-5 of 4, files: 4K write", case(raid5, 4, file, write)),
    ]
}

/// Requests a second.
#[derive(Debug)]
struct Rates {
    /// One volume on one core.
    one: f64,
    /// The same volume on two.
    shared: f64,
    /// Two volumes, each on a core of its own.
    apart: f64,
}

fn once(options: &BenchOptions, case: &Case, place: &TemporaryFolder) -> Result<Rates, BenchError> {
    let folder = |name: &str| {
        let folder = Some(place.folder(name)?);
        Ok::<_, BenchError>(BenchOptions {
            folder,
            ..options.clone()
        })
    };
    let here = folder("here")?;
    let one = alone(&here, case, &Seat::only())?;
    let apart = apart(&here, case)?;
    let mut runtime = Runtime::new(options.io).map_err(|error| BenchError(error.to_string()))?;
    let handle = runtime.handle();
    let shared = runtime.block_on(async {
        let running = Running::start(&handle, case, &here).await?;
        shared(&handle, running, case, options).await
    })?;
    Ok(Rates { one, shared, apart })
}

/// One of the volumes that are measured at the same time.
struct Seat {
    number: u64,
    /// Its members are those of the first one, once that has made them.
    is_guest: bool,
    made: Arc<Barrier>,
    /// Where all wait for the measurement to begin.
    start: Arc<Barrier>,
}

impl Seat {
    fn only() -> Self {
        let nobody_else = Arc::new(Barrier::new(1));
        Self {
            number: 0,
            is_guest: false,
            made: Arc::clone(&nobody_else),
            start: nobody_else,
        }
    }

    /// Two of them.
    fn pair(are_members_shared: bool) -> [Self; 2] {
        let made = Arc::new(Barrier::new(if are_members_shared { 2 } else { 1 }));
        let start = Arc::new(Barrier::new(2));
        [0, 1].map(|number| Self {
            number,
            is_guest: are_members_shared && number > 0,
            made: Arc::clone(&made),
            start: Arc::clone(&start),
        })
    }

    /// Its volume; waited for by its guest whether it could be made or not.
    async fn open(
        &self,
        handle: &Handle,
        case: &Case,
        options: &BenchOptions,
    ) -> Result<Running, BenchError> {
        if self.is_guest {
            self.made.wait();
            return Running::start_again(handle, case, options).await;
        }
        let running = Running::start(handle, case, options).await;
        self.made.wait();
        running
    }
}

/// Two volumes at the same time.
fn apart(options: &BenchOptions, case: &Case) -> Result<f64, BenchError> {
    let [first, second] = Seat::pair(case.members == MemberKind::File);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| alone(options, case, &second));
        let own = alone(options, case, &first);
        let other = other.join();
        let ended = |_| BenchError("a thread of the load ended early".to_owned());
        Ok(own? + other.map_err(ended)??)
    })
}

/// A volume on the calling thread: requests a second. All seats are measured from the same moment on.
fn alone(options: &BenchOptions, case: &Case, seat: &Seat) -> Result<f64, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", case.label));
    let mut runtime = Runtime::new(options.io).map_err(|error| told(&error))?;
    let handle = runtime.handle();
    runtime.block_on(async {
        let running = seat.open(&handle, case, options).await;
        if running.is_err() {
            seat.start.wait(); // the others are not to wait for ever
        }
        let running = running?;
        let volume = &running.volume;
        let part_bytes = (volume.size_bytes() / PARTS) >> 20 << 20;
        let parts = (seat.number..PARTS).step_by(SHARDS);
        let parts: Vec<_> = parts
            .map(|n| n * part_bytes..(n + 1) * part_bytes)
            .collect();
        let run = |time| run_where(&handle, volume, parts.clone(), case.pattern, time);
        let warm = run(WARM_UP).await;
        seat.start.wait();
        warm.map_err(|error| told(&error))?;
        let figures = run(Duration::from_millis(options.millis)).await;
        running.stop().await?;
        Ok(figures.map_err(|error| told(&error))?.iops)
    })
}

/// The same load by two shards at the same time: requests a second together.
async fn shared(
    handle: &Handle,
    running: Running,
    case: &Case,
    options: &BenchOptions,
) -> Result<f64, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", case.label));
    let volume = &running.volume;
    let hands: Vec<Hand> = volume
        .share(SHARDS)
        .into_iter()
        .map(|seed| Hand::start(seed, options.io))
        .collect();
    let sharing = handle.spawn(Volume::run_sharing(Rc::clone(volume), spawn_on(handle)));
    let mut both = 0.0;
    for time in [WARM_UP, Duration::from_millis(options.millis)] {
        let answers: Vec<_> = hands
            .iter()
            .map(|hand| hand.begin(case.pattern, time))
            .collect();
        let own = run_where(handle, volume, volume.own_ranges(), case.pattern, time);
        both = own.await.map_err(|error| told(&error))?.iops;
        for answer in answers {
            let figures = answer.await.map_err(|error| told(&error))?;
            both += figures.map_err(|error| told(&error))?.iops;
        }
    }
    running.stop().await?;
    let ended = |_| BenchError("the shards' task ended early".to_owned());
    sharing.await.map_err(ended)?;
    let served: Vec<u64> = hands.into_iter().map(Hand::end).collect();
    if served.contains(&0) {
        return Err(BenchError(format!(
            "{}: a shard has served nothing",
            case.label
        )));
    }
    Ok(both)
}

/// Starts tasks on the thread of `handle`.
fn spawn_on(handle: &Handle) -> Spawn {
    let handle = handle.clone();
    Rc::new(move |task| {
        let _detached = handle.spawn(task);
    })
}

/// What a satellite's thread is asked to do.
struct Job {
    pattern: Pattern,
    time: Duration,
    reply: Reply<Result<Figures, IoError>>,
}

/// A satellite on a thread of its own.
struct Hand {
    jobs: Sender<Job>,
    thread: JoinHandle<u64>,
}

impl Hand {
    fn start(seed: ShardSeed, io: IoChoice) -> Self {
        let (jobs, inbox) = mailbox(1);
        let thread = std::thread::spawn(move || serve(seed, inbox, io));
        Self { jobs, thread }
    }

    fn begin(
        &self,
        pattern: Pattern,
        time: Duration,
    ) -> plexum_runtime::mailbox::Answer<Result<Figures, IoError>> {
        let (reply, answer) = reply();
        // A thread that is gone drops the reply, and the answer says so.
        let _ = self.jobs.send(Job {
            pattern,
            time,
            reply,
        });
        answer
    }

    /// How many requests it has served by itself.
    fn end(self) -> u64 {
        drop(self.jobs);
        self.thread.join().unwrap_or(0)
    }
}

/// The thread of a satellite; ends with the last sender of jobs.
fn serve(seed: ShardSeed, mut inbox: Mailbox<Job>, io: IoChoice) -> u64 {
    let Ok(mut runtime) = Runtime::new(io) else {
        return 0;
    };
    let handle = runtime.handle();
    runtime.block_on(async {
        let opener = Members(handle.clone());
        let satellite = Satellite::new(seed, handle.clock(), BufPool::new(64 << 20), opener);
        let satellite = Rc::new(satellite);
        let _serving = handle.spawn(Rc::clone(&satellite).run(spawn_on(&handle)));
        while let Some(job) = inbox.receive().await {
            let target = Shard(Rc::clone(&satellite));
            let own = satellite.own_ranges();
            let figures = run_where(&handle, &target, own, job.pattern, job.time).await;
            job.reply.send(figures);
        }
        satellite.end();
        satellite.counters().served
    })
}

/// Opens bench members once more.
struct Members(Handle);

impl Opener<BenchDevice> for Members {
    async fn open(&self, name: &str, handle: u64) -> Option<BenchDevice> {
        if let Some(size_bytes) = BenchDevice::null_size_bytes(handle) {
            return Some(BenchDevice::null(0, size_bytes));
        }
        let options = OpenOptions::read_write();
        let file = FileDevice::open_again(&self.0, handle, name.as_ref(), &options);
        file.ok().map(BenchDevice::File)
    }
}

/// A satellite as a target of the load.
#[derive(Clone)]
struct Shard(Rc<Satellite<BenchDevice, RealClock, Members>>);

impl Target for Shard {
    async fn read(&self, offset_bytes: u64, length_bytes: usize) -> Result<(), IoError> {
        self.0.read(offset_bytes, length_bytes).await.map(drop)
    }
    async fn write(&self, offset_bytes: u64, data: Buf) -> Result<(), IoError> {
        self.0.write(offset_bytes, data, Fua::No).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_of_this_group_name_what_is_measured_here() {
        let rows = rows();
        let goals = crate::goals::GOALS
            .iter()
            .filter(|goal| goal.group == "cores");
        let mut count = 0;
        for goal in goals {
            assert!(
                rows.iter().any(|(metric, _)| *metric == goal.metric),
                "{}",
                goal.metric
            );
            count += 1;
        }
        assert_eq!(count, rows.len());
    }

    #[test]
    fn both_shards_of_a_volume_on_two_cores_serve_by_themselves() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("memory as a file system");
        let options = BenchOptions {
            groups: Vec::new(),
            rounds: 1,
            millis: 20,
            io: IoChoice::Auto,
            folder: Some(folder.path().to_owned()),
            disk_folder: None,
            program: "plexum".into(),
        };
        let place = TemporaryFolder::make(&options).expect("a folder for files");
        for (metric, case) in rows() {
            let Rates { one, shared, apart } = once(&options, &case, &place).expect(metric);
            assert!(one > 0.0 && shared > 0.0 && apart > 0.0, "{metric}");
        }
    }
}
