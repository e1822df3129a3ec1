//! How a volume, of whatever kind, gets its block device: the one that its last server has left, or a new one.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::wait::first;
use plexum_front::client::Leave;
use plexum_front::export::Export;
use plexum_runtime::process::{join_write_out_path, start_ticks};
use plexum_runtime::ublk::{ControlDevice, DeviceQueue, UblkError, aside, block_device, devices};
use plexum_runtime::{Handle, JoinHandle};
use plexum_ublk::params::{Params, Shape};
use plexum_ublk::session::Ended;
use plexum_ublk::wire::{ANY_DEVICE, DeviceInfo, DeviceState, Features};

use super::device::{Device, link};
use super::ways::{Front, Room, Ways};
use crate::assembly::DeviceWish;
use crate::control::events::EventHub;
use crate::problem::{Code, Problem};

/// Requests of a device that may be under way at the same time.
const DEPTH: u16 = 128;
/// Longest request of a device in bytes: a stream's requests are whole rows of most volumes.
const IO_BYTES_MAX: u32 = 4 << 20;
/// How often it is looked whether the kernel has noticed the death of a server, and how long in all.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 1500;

/// What runs for a volume.
pub(crate) type Tasks = RefCell<Vec<JoinHandle<()>>>;

/// A device that is about to be served.
struct Ready {
    info: DeviceInfo,
    is_taken_over: bool,
}

/// A volume that is to have a block device.
pub(crate) struct Making<E> {
    pub(crate) handle: Handle,
    /// Its name, and so the device's.
    pub(crate) name: String,
    pub(crate) export: Rc<E>,
    /// How it likes its requests.
    pub(crate) shape: Shape,
    /// By what the driver knows whose device one is.
    pub(crate) word: u64,
    pub(crate) room: Room,
    pub(crate) events: EventHub,
    pub(crate) ways: Rc<Ways<E>>,
    /// Refuses when it is being closed.
    pub(crate) check_open: Box<dyn Fn() -> Result<(), Problem>>,
}

impl<E: Export + 'static> Making<E> {
    /// Gives it its device; what serves it becomes one of the tasks. Returns its name when it can be used; `None` when
    /// there is none and none was to be made.
    ///
    /// # Errors
    /// The kernel has no ublk, or it may not be used, or another process serves the device.
    pub(crate) async fn give(
        &self,
        wish: DeviceWish,
        tasks: &Tasks,
    ) -> Result<Option<PathBuf>, Problem> {
        if wish == DeviceWish::TakeOver && devices().is_empty() {
            return Ok(None);
        }
        let control = match aside(ControlDevice::open).await {
            None => return Err(no_thread()),
            Some(Err(_)) if wish == DeviceWish::TakeOver => return Ok(None),
            Some(Err(error)) => return Err(Problem::new(Code::NotPermitted, error.to_string())),
            Some(Ok(control)) => Arc::new(control),
        };
        let ready = match (self.find_left(&control).await?, wish) {
            (Some(info), _) => {
                self.check_left(&control, info).await?;
                self.start_take_over(&control, info.device).await?;
                Ready {
                    info,
                    is_taken_over: true,
                }
            }
            (None, DeviceWish::TakeOver) => return Ok(None),
            (None, DeviceWish::Make) => Ready {
                info: self.make(&control).await?,
                is_taken_over: false,
            },
        };
        let device = self.serve_device(control, ready, tasks).await?;
        Ok(Some(device.link()))
    }

    /// Makes a device, which does not appear yet.
    async fn make(&self, control: &Arc<ControlDevice>) -> Result<DeviceInfo, Problem> {
        let wanted = DeviceInfo {
            queues: 1,
            depth: DEPTH,
            state: DeviceState::Dead,
            io_bytes_max: IO_BYTES_MAX,
            device: ANY_DEVICE,
            pid: -1,
            features: Features::WANTED,
            server_word: self.word,
        };
        let params = self.params(IO_BYTES_MAX)?;
        let control = Arc::clone(control);
        let made = aside(move || {
            let info = control.add(&wanted)?;
            // A driver may take less than was asked for.
            let lacking = info.features.missing();
            let set =
                match lacking.is_empty() && info.queues == 1 && info.io_bytes_max == IO_BYTES_MAX {
                    true => control.set_params(info.device, &params),
                    false => Err(UblkError::Lacks(lacking)),
                };
            if set.is_err() {
                let _ = control.delete(info.device);
            }
            set.map(|()| info)
        });
        made.await.ok_or_else(no_thread)?.map_err(told)
    }

    /// Sizes and abilities of the volume as a device.
    fn params(&self, io_bytes_max: u32) -> Result<Params, Problem> {
        Params::of(&self.export.info(), self.shape, io_bytes_max)
            .map_err(|error| Problem::new(Code::Usage, error.to_string()))
    }

    /// The device of this number that waits for a server. One that was never started, or was stopped, is removed.
    async fn find_left(&self, control: &Arc<ControlDevice>) -> Result<Option<DeviceInfo>, Problem> {
        let (name, word) = (&self.name, self.word);
        for _ in 0..LOOKS_MAX {
            let asked = Arc::clone(control);
            let found = aside(move || find(&asked, word)).await;
            let Some(info) = found.ok_or_else(no_thread)? else {
                return Ok(None);
            };
            match info.state {
                DeviceState::Quiesced | DeviceState::FailsIo => return Ok(Some(info)),
                DeviceState::Dead => {
                    let asked = Arc::clone(control);
                    let deleting = aside(move || asked.delete(info.device));
                    deleting.await.ok_or_else(no_thread)?.map_err(told)?;
                }
                DeviceState::Live | DeviceState::Other(_) => {
                    let pid = u32::try_from(info.pid).unwrap_or(0);
                    if start_ticks(pid).is_some() {
                        let path = block_device(info.device);
                        let text = format!(
                            "{name} has a block device already: {}, served by process {pid}",
                            path.display()
                        );
                        return Err(Problem::new(Code::Busy, text));
                    }
                    // The kernel has not noticed yet that its server is dead.
                    self.handle.clock().sleep(LOOK_EVERY).await;
                }
            }
        }
        let text = format!("the block device of {name} does not become free");
        Err(Problem::new(Code::Busy, text))
    }

    /// Whether a device that waits is still one of this volume's size: its users know that size.
    async fn check_left(
        &self,
        control: &Arc<ControlDevice>,
        info: DeviceInfo,
    ) -> Result<(), Problem> {
        let asked = Arc::clone(control);
        let params = aside(move || asked.params(info.device)).await;
        let params = params.ok_or_else(no_thread)?.map_err(told)?;
        let now = self.params(info.io_bytes_max)?;
        let size_bytes = params.map_or(0, |params| params.size_bytes());
        let path = block_device(info.device);
        let (path, name) = (path.display(), &self.name);
        // A volume that has grown meanwhile is fit for it: the device keeps its size.
        let text = if size_bytes > now.size_bytes() {
            format!(
                "{path} was left by an earlier server with {size_bytes} bytes, and {name} has {} bytes now",
                now.size_bytes()
            )
        } else if params.is_some_and(|params| !params.is_read_only()) && now.is_read_only() {
            format!("{path} was left by an earlier server, and {name} can only be read now")
        } else if info.queues != 1 || !info.features.have(Features::WANTED) {
            format!("{path} was left by another program's server")
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::Busy, text).hint(format!(
            "to remove it, with errors for who uses it:   plexum detach {}",
            self.name
        )))
    }

    async fn start_take_over(
        &self,
        control: &Arc<ControlDevice>,
        number: u32,
    ) -> Result<(), Problem> {
        for _ in 0..LOOKS_MAX {
            let asked = Arc::clone(control);
            let begun = aside(move || asked.start_take_over(number)).await;
            match begun.ok_or_else(no_thread)? {
                Ok(()) => return Ok(()),
                Err(error) if is_busy(&error) => self.handle.clock().sleep(LOOK_EVERY).await,
                Err(error) => return Err(told(error)),
            }
        }
        let text = format!(
            "{} is not let go of by its last server",
            block_device(number).display()
        );
        Err(Problem::new(Code::Busy, text))
    }

    /// Serves a device that was made or is being taken over, and has it appear. A new one that does not is removed.
    async fn serve_device(
        &self,
        control: Arc<ControlDevice>,
        ready: Ready,
        tasks: &Tasks,
    ) -> Result<Rc<Device<E>>, Problem> {
        let Ready {
            info,
            is_taken_over,
        } = ready;
        let clock = self.handle.clock();
        let device = Device::new(info.device, &self.name, Arc::clone(&control), clock);
        let device = Rc::new(device);
        let begun = self.begin(&device, &info, tasks).await;
        let started = match begun {
            Ok(()) => {
                self.appear(&device, Arc::clone(&control), is_taken_over)
                    .await
            }
            Err(problem) => Err(problem),
        };
        if let Err(problem) = started {
            self.ways.forget(&device);
            if !is_taken_over && !device.ended.is_set() {
                device.exports.tell_all(Leave::Drain);
                device.remove().await;
            }
            return Err(problem);
        }
        link(&self.name, info.device).map_err(|error| {
            Problem::from_io(&error, "making", &device.link().display().to_string())
        })?;
        let _ = join_write_out_path(); // the kernel's write-out waits for this process from now on
        if control.features().have(Features::UPDATE_SIZE) {
            self.follow_size(control, &device, tasks);
        }
        Ok(device)
    }

    /// Keeps the device as large as the volume from now on. One that an earlier server has left may be smaller.
    fn follow_size(&self, control: Arc<ControlDevice>, device: &Rc<Device<E>>, tasks: &Tasks) {
        let (export, ending) = (Rc::clone(&self.export), Rc::clone(device));
        let (events, clock, name) = (self.events.clone(), self.handle.clock(), self.name.clone());
        let number = device.number();
        let follow = async move {
            let asked = Arc::clone(&control);
            let params = aside(move || asked.params(number)).await;
            let params = params.and_then(Result::ok).flatten();
            let block_bytes = u64::from(export.info().block_bytes_min).max(512);
            let whole = |bytes: u64| bytes / block_bytes * block_bytes;
            let mut shown_bytes = params.map_or(0, |params| params.size_bytes());
            let mut known_bytes = export.info().size_bytes;
            loop {
                if whole(known_bytes) != shown_bytes {
                    shown_bytes = whole(known_bytes);
                    let asked = Arc::clone(&control);
                    let set = aside(move || asked.set_size(number, shown_bytes)).await;
                    let path = block_device(number);
                    let text = match set {
                        Some(Ok(())) => format!("{} has {shown_bytes} bytes now", path.display()),
                        Some(Err(error)) => format!("{} keeps its size: {error}", path.display()),
                        None => {
                            format!("{} keeps its size: {}", path.display(), no_thread().message)
                        }
                    };
                    events.publish(clock.wall_seconds(), &name, "device", text, None);
                }
                known_bytes = export.resized(known_bytes).await;
            }
        };
        let task = self.handle.spawn(async move {
            first(follow, ending.ended.wait()).await;
        });
        tasks.borrow_mut().push(task);
    }

    /// Opens the device's file, and starts its session.
    async fn begin(
        &self,
        device: &Rc<Device<E>>,
        info: &DeviceInfo,
        tasks: &Tasks,
    ) -> Result<(), Problem> {
        let mut opened = DeviceQueue::open(&self.handle, info);
        for _ in 0..LOOKS_MAX {
            if !matches!(&opened, Err(error) if is_busy(error)) {
                break;
            }
            self.handle.clock().sleep(LOOK_EVERY).await;
            opened = DeviceQueue::open(&self.handle, info);
        }
        let queue = opened.map_err(told)?;
        (self.check_open)()?;
        let entered = device.enter(&self.export, info.depth, self.room.memory_bytes);
        let visit = entered.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        let uri = device.link().display().to_string();
        self.ways.add(uri, Front::Device(Rc::clone(device)));
        let serving = Rc::clone(device).serve(queue, visit, self.room.pool.clone());
        let (ways, ending) = (Rc::clone(&self.ways), Rc::clone(device));
        let (events, clock, name) = (self.events.clone(), self.handle.clock(), self.name.clone());
        let task = self.handle.spawn(async move {
            serving.await;
            ways.forget(&ending);
            let path = block_device(ending.number());
            let text = match ending.outcome() {
                Some(Ended::Kept) => {
                    format!("{} is in use and waits for the next server", path.display())
                }
                Some(Ended::Gone) => format!("{} was removed by somebody else", path.display()),
                Some(Ended::Refused(errno)) => {
                    format!(
                        "the kernel takes no more answers for {}: errno {errno}",
                        path.display()
                    )
                }
                _ => return,
            };
            events.publish(clock.wall_seconds(), &name, "device", text, None);
        });
        tasks.borrow_mut().push(task);
        Ok(())
    }

    /// Has the device appear, or its requests go on, while it is served.
    async fn appear(
        &self,
        device: &Rc<Device<E>>,
        control: Arc<ControlDevice>,
        is_taken_over: bool,
    ) -> Result<(), Problem> {
        let (number, mut result) = (device.number(), None);
        let starting = async {
            let started = aside(move || match is_taken_over {
                true => control.end_take_over(number),
                false => control.start(number),
            });
            result = started.await;
        };
        // A session that the kernel refuses ends before its device has appeared.
        first(starting, device.ended.wait()).await;
        match (result, device.outcome()) {
            (Some(Ok(())), None) => Ok(()),
            (Some(Err(error)), _) => Err(told(error)),
            (_, Some(Ended::Refused(errno))) => {
                let error = std::io::Error::from_raw_os_error(errno);
                let text = format!(
                    "the kernel refuses the requests of {}: {error}",
                    block_device(number).display()
                );
                Err(Problem::new(Code::IoError, text))
            }
            _ => {
                let text = format!(
                    "{} was removed before it appeared",
                    block_device(number).display()
                );
                Err(Problem::new(Code::IoError, text))
            }
        }
    }
}

/// An event says why a volume has no block device.
pub(crate) fn tell_no_device(handle: &Handle, events: &EventHub, name: &str, problem: &Problem) {
    let text = format!("no block device: {}", problem.message);
    events.publish(handle.clock().wall_seconds(), name, "device", text, None);
}

/// The device of a server's number.
fn find(control: &ControlDevice, word: u64) -> Option<DeviceInfo> {
    let all = devices();
    let known = all.iter().filter_map(|number| control.info(*number).ok());
    known.into_iter().find(|info| info.server_word == word)
}

fn is_busy(error: &UblkError) -> bool {
    // EBUSY of Linux, on all machines.
    error.errno() == Some(16)
}

pub(super) fn told(error: UblkError) -> Problem {
    Problem::new(Code::IoError, error.to_string())
}

pub(super) fn no_thread() -> Problem {
    Problem::new(
        Code::IoError,
        "a thread for the kernel's ublk cannot be started",
    )
}
