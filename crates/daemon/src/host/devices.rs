//! Block devices of volumes: made, taken over from a server that has died, and removed again.
//!
//! A device is a volume's by a number that the driver keeps for its server, made of what the volume is: nothing has to
//! be written down for the next server to find it.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::clock::Clock;
use plexum_front::client::Leave;
use plexum_front::export::Export;
use plexum_runtime::Handle;
use plexum_runtime::process::start_ticks;
use plexum_runtime::ublk::{ControlDevice, aside, devices, users};
use plexum_ublk::identity::server_word;
use plexum_ublk::params::Shape;
use plexum_ublk::wire::DeviceState;

use super::device::{DELETE_WAIT, Device, unlink};
use super::hosted::{Hosted, Stage};
use super::making::{LOOK_EVERY, Making, tell_no_device, told};
use super::registry::Host;
use crate::assembly::DeviceWish;
use crate::memory::Key;
use crate::problem::{Code, Problem};
use crate::volume::export::VolumeExport;
use crate::volume::served::Served;

/// Looks at who uses a device before that counts.
const USER_LOOKS_MAX: u32 = 50;

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
        self.making(hosted, &served).give(wish, &hosted.tasks).await
    }

    fn making(&self, hosted: &Rc<Hosted>, served: &Served) -> Making<VolumeExport> {
        let geometry = served.volume.geometry();
        let strip_bytes = geometry.strip_bytes();
        let owner = Rc::clone(hosted);
        Making {
            handle: self.handle.clone(),
            name: hosted.name().to_owned(),
            export: Rc::clone(&served.export),
            shape: Shape {
                io_min_bytes: strip_bytes,
                io_opt_bytes: strip_bytes * geometry.data_count() as u64,
            },
            word: word_of(served),
            room: self.room(),
            events: self.events().clone(),
            ways: Rc::clone(&hosted.ways),
            check_open: Box::new(move || match owner.stage() {
                Stage::Closing => Err(owner.is_closing().problem()),
                Stage::Admitted | Stage::Open => Ok(()),
            }),
        }
    }

    /// Removes the block device of a volume.
    ///
    /// # Errors
    /// `Busy` when somebody uses it; there is none.
    pub async fn take_device(&self, hosted: &Rc<Hosted>) -> Result<(), Problem> {
        remove_device(&self.handle, hosted.name(), hosted.device()).await
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
        tell_no_device(&self.handle, self.events(), hosted.name(), problem);
    }
}

/// Removes the block device of the volume `name`.
///
/// # Errors
/// `Busy` when somebody uses it; there is none.
pub(crate) async fn remove_device<E: Export + 'static>(
    handle: &Handle,
    name: &str,
    device: Option<Rc<Device<E>>>,
) -> Result<(), Problem> {
    let Some(device) = device else {
        let text = format!("{name} has no block device");
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
        handle.clock().sleep(LOOK_EVERY).await;
    }
    if let Some(user) = user {
        let text = format!("{} is in use: {user}", device.link().display());
        return Err(Problem::new(Code::Busy, text));
    }
    device.exports.close(name, Leave::Drain).await;
    device.ended.wait().await;
    Ok(())
}

fn word_of(served: &Served) -> u64 {
    let facts = &served.facts;
    let key = Key::of(&facts.format.to_string(), &facts.uuid, served.name());
    server_word(&key.to_string())
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
