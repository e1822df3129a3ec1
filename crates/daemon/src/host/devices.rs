//! Block devices of volumes: made, taken over from a server that has died, and removed again.
//!
//! A device is a volume's by a number that the driver keeps for its server, made of what the volume is: nothing has to
//! be written down for the next server to find it.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_block::wait::first;
use plexum_front::client::Leave;
use plexum_front::export::Export;
use plexum_runtime::process::{join_write_out_path, start_ticks};
use plexum_runtime::ublk::{
    ControlDevice, DeviceQueue, UblkError, aside, block_device, devices, users,
};
use plexum_ublk::identity::server_word;
use plexum_ublk::params::{Params, Shape};
use plexum_ublk::session::Ended;
use plexum_ublk::wire::{ANY_DEVICE, DeviceInfo, DeviceState, Features};

use super::device::{DELETE_WAIT, Device, link, unlink};
use super::hosted::{Front, Hosted, Stage, Way};
use super::registry::Host;
use crate::assembly::DeviceWish;
use crate::memory::Key;
use crate::problem::{Code, Problem};
use crate::volume::served::Served;

/// Requests of a device that may be under way at the same time.
const DEPTH: u16 = 128;
/// Longest request of a device in bytes: a stream's requests are whole rows of most volumes.
const IO_BYTES_MAX: u32 = 4 << 20;
/// How often it is looked whether the kernel has noticed the death of a server, and how long in all.
const LOOK_EVERY: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 1500;
/// Looks at who uses a device before that counts.
const USER_LOOKS_MAX: u32 = 50;

/// A device that is about to be served.
struct Ready {
    info: DeviceInfo,
    is_taken_over: bool,
}

impl Host {
    /// Gives a volume its block device: the one that its last server has left, or a new one. Returns its name when it
    /// can be used; `None` when there is none and none was to be made.
    ///
    /// # Errors
    /// The kernel has no ublk, or it may not be used, or another process serves the device.
    pub async fn give_device(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        wish: DeviceWish,
    ) -> Result<Option<PathBuf>, Problem> {
        let _one_at_a_time = self.making_devices.lock().await;
        if let Some(device) = hosted.device() {
            return Ok(Some(device.link()));
        }
        if wish == DeviceWish::TakeOver && devices().is_empty() {
            return Ok(None);
        }
        let (served, _under_way) = hosted.for_change().await?;
        let control = match aside(ControlDevice::open).await {
            None => return Err(no_thread()),
            Some(Err(_)) if wish == DeviceWish::TakeOver => return Ok(None),
            Some(Err(error)) => return Err(Problem::new(Code::NotPermitted, error.to_string())),
            Some(Ok(control)) => Arc::new(control),
        };
        let word = word_of(&served);
        let left = self.find_left(hosted.name(), &control, word).await?;
        let ready = match (left, wish) {
            (Some(info), _) => {
                self.check_left(&served, &control, info).await?;
                self.start_take_over(&control, info.device).await?;
                Ready {
                    info,
                    is_taken_over: true,
                }
            }
            (None, DeviceWish::TakeOver) => return Ok(None),
            (None, DeviceWish::Make) => Ready {
                info: make(&served, &control, word).await?,
                is_taken_over: false,
            },
        };
        let device = self.serve_device(hosted, &served, control, ready).await?;
        Ok(Some(device.link()))
    }

    /// Removes the block device of a volume.
    ///
    /// # Errors
    /// `Busy` when somebody uses it; there is none.
    pub async fn take_device(&self, hosted: &Rc<Hosted>) -> Result<(), Problem> {
        let Some(device) = hosted.device() else {
            let text = format!("{} has no block device", hosted.name());
            return Err(Problem::new(Code::NoSuchVolume, text));
        };
        let number = device.number();
        let mut user = None;
        // A program that looks at every new device, as udev's does, is through with it after a moment.
        for _ in 0..USER_LOOKS_MAX {
            user = aside(move || users::user(number)).await.flatten();
            if user.is_none() {
                break;
            }
            self.handle.clock().sleep(LOOK_EVERY).await;
        }
        if let Some(user) = user {
            let text = format!("{} is in use: {user}", device.link().display());
            return Err(Problem::new(Code::Busy, text));
        }
        device.exports.close(hosted.name(), Leave::Drain).await;
        device.ended.wait().await;
        Ok(())
    }

    /// Gives volumes that were just opened the block devices that they are to have: those that their last servers have
    /// left, and new ones where they were asked for.
    ///
    /// # Errors
    /// The first one that was asked for and cannot be; one that could only be taken over is told as an event.
    pub async fn give_devices(self: &Rc<Self>, opened: &[Rc<Hosted>]) -> Result<(), Problem> {
        for hosted in opened {
            let wish = hosted.device_wish();
            match (self.give_device(hosted, wish).await, wish) {
                (Ok(_), _) => {}
                (Err(problem), DeviceWish::Make) => return Err(problem),
                (Err(problem), DeviceWish::TakeOver) => self.tell_no_device(hosted, &problem),
            }
        }
        Ok(())
    }

    /// As `give_devices`; a volume whose device cannot be is served all the same, and an event tells of it.
    pub(crate) async fn give_devices_or_tell(self: &Rc<Self>, opened: &[Rc<Hosted>]) {
        for hosted in opened {
            if let Err(problem) = self.give_device(hosted, hosted.device_wish()).await {
                self.tell_no_device(hosted, &problem);
            }
        }
    }

    fn tell_no_device(&self, hosted: &Hosted, problem: &Problem) {
        let time_s = self.handle.clock().wall_seconds();
        let text = format!("no block device: {}", problem.message);
        self.events()
            .publish(time_s, hosted.name(), "device", text, None);
    }

    /// The device of this number that waits for a server. One that was never started, or was stopped, is removed.
    async fn find_left(
        &self,
        name: &str,
        control: &Arc<ControlDevice>,
        word: u64,
    ) -> Result<Option<DeviceInfo>, Problem> {
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
        served: &Served,
        control: &Arc<ControlDevice>,
        info: DeviceInfo,
    ) -> Result<(), Problem> {
        let asked = Arc::clone(control);
        let params = aside(move || asked.params(info.device)).await;
        let params = params.ok_or_else(no_thread)?.map_err(told)?;
        let now = shape_of(served, info.io_bytes_max)?;
        let size_bytes = params.map_or(0, |params| params.size_bytes());
        let path = block_device(info.device);
        let (path, name) = (path.display(), served.name());
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
            served.name()
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
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        served: &Rc<Served>,
        control: Arc<ControlDevice>,
        ready: Ready,
    ) -> Result<Rc<Device>, Problem> {
        let Ready {
            info,
            is_taken_over,
        } = ready;
        let clock = self.handle.clock();
        let device = Device::new(info.device, hosted.name(), Arc::clone(&control), clock);
        let device = Rc::new(device);
        let begun = self.begin(hosted, served, &device, &info).await;
        let started = match begun {
            Ok(()) => self.appear(&device, control, is_taken_over).await,
            Err(problem) => Err(problem),
        };
        if let Err(problem) = started {
            hosted.forget_way(&device);
            if !is_taken_over && !device.ended.is_set() {
                device.exports.tell_all(Leave::Drain);
                device.remove().await;
            }
            return Err(problem);
        }
        link(hosted.name(), info.device).map_err(|error| {
            Problem::from_io(&error, "making", &device.link().display().to_string())
        })?;
        let _ = join_write_out_path(); // the kernel's write-out waits for this process from now on
        Ok(device)
    }

    /// Opens the device's file, and starts its session.
    async fn begin(
        self: &Rc<Self>,
        hosted: &Rc<Hosted>,
        served: &Rc<Served>,
        device: &Rc<Device>,
        info: &DeviceInfo,
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
        if hosted.stage() == Stage::Closing {
            return Err(hosted.is_closing().problem());
        }
        let entered = device.enter(&served.export, info.depth, self.settings.memory_bytes);
        let visit = entered.map_err(|error| Problem::new(Code::Usage, error.to_string()))?;
        hosted.ways.borrow_mut().push(Way {
            uri: device.link().display().to_string(),
            server: Front::Device(Rc::clone(device)),
        });
        let serving = Rc::clone(device).serve(queue, visit, self.pool.clone());
        let (owner, ending) = (Rc::clone(hosted), Rc::clone(device));
        let (events, clock) = (self.events().clone(), self.handle.clock());
        let task = self.handle.spawn(async move {
            serving.await;
            owner.forget_way(&ending);
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
            events.publish(clock.wall_seconds(), owner.name(), "device", text, None);
        });
        hosted.tasks.borrow_mut().push(task);
        Ok(())
    }

    /// Has the device appear, or its requests go on, while it is served.
    async fn appear(
        &self,
        device: &Rc<Device>,
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

/// Makes a device, which does not appear yet.
async fn make(
    served: &Served,
    control: &Arc<ControlDevice>,
    word: u64,
) -> Result<DeviceInfo, Problem> {
    let wanted = DeviceInfo {
        queues: 1,
        depth: DEPTH,
        state: DeviceState::Dead,
        io_bytes_max: IO_BYTES_MAX,
        device: ANY_DEVICE,
        pid: -1,
        features: Features::WANTED,
        server_word: word,
    };
    let params = shape_of(served, IO_BYTES_MAX)?;
    let control = Arc::clone(control);
    let made = aside(move || {
        let info = control.add(&wanted)?;
        // A driver may take less than was asked for.
        let lacking = info.features.missing();
        let set = match lacking.is_empty() && info.queues == 1 && info.io_bytes_max == IO_BYTES_MAX
        {
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

/// The device of a server's number.
fn find(control: &ControlDevice, word: u64) -> Option<DeviceInfo> {
    let all = devices();
    let known = all.iter().filter_map(|number| control.info(*number).ok());
    known.into_iter().find(|info| info.server_word == word)
}

/// Sizes and abilities of the volume as a device.
fn shape_of(served: &Served, io_bytes_max: u32) -> Result<Params, Problem> {
    let geometry = served.volume.geometry();
    let strip_bytes = geometry.strip_bytes();
    let shape = Shape {
        io_min_bytes: strip_bytes,
        io_opt_bytes: strip_bytes * geometry.data_count() as u64,
    };
    Params::of(&served.export.info(), shape, io_bytes_max)
        .map_err(|error| Problem::new(Code::Usage, error.to_string()))
}

fn word_of(served: &Served) -> u64 {
    let facts = &served.facts;
    let key = Key::of(&facts.format.to_string(), &facts.uuid, served.name());
    server_word(&key.to_string())
}

fn is_busy(error: &UblkError) -> bool {
    // EBUSY of Linux, on all machines.
    error.errno() == Some(16)
}

fn told(error: UblkError) -> Problem {
    Problem::new(Code::IoError, error.to_string())
}

fn no_thread() -> Problem {
    Problem::new(
        Code::IoError,
        "a thread for the kernel's ublk cannot be started",
    )
}

/// What becomes of those who use a device that is to be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// It is not removed as long as somebody uses it.
    Keep,
    /// They get errors.
    CutOff,
}

/// A device whose server has died, and which nobody has taken over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftDevice {
    /// Name of its volume.
    pub volume: String,
    /// Its path.
    pub path: PathBuf,
    number: u32,
}

impl LeftDevice {
    /// Who uses it, in words.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        users::user(self.number)
    }
}

/// The device that the name of a volume leads to.
#[must_use]
pub fn named_device(volume: &str) -> Option<LeftDevice> {
    let path = std::fs::read_link(super::device::link_of(volume)).ok()?;
    let number = path
        .file_name()?
        .to_str()?
        .strip_prefix("ublkb")?
        .parse()
        .ok()?;
    let volume = volume.to_owned();
    Some(LeftDevice {
        volume,
        path,
        number,
    })
}

/// Removes a device that was stopped. Whoever still has it open, as a file system that was cut off has, is not waited
/// for longer than `limit`: the kernel removes it then, when they close it.
fn delete_within(control: ControlDevice, number: u32, limit: Duration) {
    let (done, is_done) = std::sync::mpsc::channel();
    let deleting = std::thread::Builder::new().spawn(move || {
        let _ = control.delete(number);
        let _ = done.send(());
    });
    if deleting.is_ok() {
        let _ = is_done.recv_timeout(limit);
    }
}

/// Removes what a server that has died has left of a volume's device; `None` when there is nothing.
///
/// # Errors
/// `Busy` when a server serves it, or when somebody uses it and that is not to be cut off.
pub fn remove_left(volume: &str, users_of_it: Users) -> Result<Option<PathBuf>, Problem> {
    let Some(LeftDevice {
        path: target,
        number,
        ..
    }) = named_device(volume)
    else {
        return Ok(None);
    };
    let control = ControlDevice::open().map_err(told)?;
    let Ok(info) = control.info(number) else {
        unlink(volume, number); // it is gone; its name is not
        return Ok(None);
    };
    let pid = u32::try_from(info.pid).unwrap_or(0);
    if info.state == DeviceState::Live && start_ticks(pid).is_some() {
        let text = format!("{} is served by process {pid}", target.display());
        return Err(Problem::new(Code::Busy, text));
    }
    if let Some(user) = users::user(number).filter(|_| users_of_it == Users::Keep) {
        let text = format!("{} is in use: {user}", target.display());
        return Err(Problem::new(Code::Busy, text)
            .why("its server is gone, and its requests wait for the next one")
            .hint(format!(
                "to go on with it:   plexum serve the members of {volume} again"
            )));
    }
    control.stop(number).map_err(told)?;
    unlink(volume, number);
    delete_within(control, number, DELETE_WAIT);
    Ok(Some(target))
}
