//! The control device: each command is one call, over a small ring of its own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use io_uring::types::Fd;
use io_uring::{IoUring, cqueue, opcode, squeue};
use plexum_ublk::params::Params;
use plexum_ublk::wire::{ANY_DEVICE, Control, ControlArgument, DeviceInfo, Features, SECTOR_BYTES};
use rustix::io::Errno;

const PATH: &str = "/dev/ublk-control";
/// Devices that there are, those whose server has died included.
const DEVICES: &str = "/sys/class/ublk-char";

/// Why the driver does not do what is wanted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UblkError {
    /// The driver is not there.
    #[error(
        "the kernel has no ublk here: {PATH} is missing (as root: modprobe ublk_drv; it came with Linux 6.0)"
    )]
    NoDriver,
    /// It may not be used.
    #[error("{PATH} cannot be opened: {0} (a block device through ublk needs root)")]
    NotPermitted(Errno),
    /// Its commands need a ring.
    #[error("ublk needs io_uring, which cannot be used here: {0}")]
    NoRing(io::Error),
    /// It is too old.
    #[error("the kernel's ublk lacks {} (all came with Linux 6.5)", .0.join(" and "))]
    Lacks(Vec<&'static str>),
    /// A command was refused.
    #[error("ublk refuses {command} of device {device}: {errno}")]
    Refused {
        /// Which command.
        command: Control,
        /// Of which device.
        device: u32,
        /// The kernel's word.
        errno: Errno,
    },
    /// The file of a device cannot be used.
    #[error("{path} cannot be used: {errno}")]
    Device {
        /// Which file.
        path: String,
        /// The kernel's word.
        errno: Errno,
    },
}

impl UblkError {
    /// What the kernel has refused a command with.
    fn refusal(&self) -> Option<Errno> {
        match self {
            Self::Refused { errno, .. } | Self::Device { errno, .. } => Some(*errno),
            _ => None,
        }
    }

    /// The same as a number.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        Some(self.refusal()?.raw_os_error())
    }
}

/// The control device, open.
#[derive(Debug)]
pub struct ControlDevice {
    file: File,
    features: Features,
}

impl ControlDevice {
    /// Opens it, and looks whether the driver can do all that is needed here.
    ///
    /// # Errors
    /// `NoDriver`, `NotPermitted`, `NoRing`, `Lacks`.
    pub fn open() -> Result<Self, UblkError> {
        let opened = OpenOptions::new().read(true).write(true).open(PATH);
        let file = opened.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::NXIO | Errno::NODEV) | None => UblkError::NoDriver,
            Some(errno) => UblkError::NotPermitted(errno),
        })?;
        let mut control = Self {
            file,
            features: Features::default(),
        };
        let mut answer = vec![0; 8];
        control.features = match control.call(Control::GetFeatures, ANY_DEVICE, 0, &mut answer) {
            Ok(()) => {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&answer);
                Features(u64::from_ne_bytes(bytes))
            }
            Err(error @ UblkError::NoRing(_)) => return Err(error),
            // A driver that does not know the question is older than all that is wanted.
            Err(error) => match error.refusal() {
                Some(Errno::PERM | Errno::ACCESS) => {
                    return Err(UblkError::NotPermitted(Errno::PERM));
                }
                _ => Features::default(),
            },
        };
        match control.features.missing() {
            missing if missing.is_empty() => Ok(control),
            missing => Err(UblkError::Lacks(missing)),
        }
    }

    /// What the driver can do.
    #[must_use]
    pub fn features(&self) -> Features {
        self.features
    }

    /// Makes a device; gives what it has become.
    ///
    /// # Errors
    /// What the driver says.
    pub fn add(&self, info: &DeviceInfo) -> Result<DeviceInfo, UblkError> {
        self.ask_info(Control::Add, info.device, info.encode())
    }

    /// What a device is.
    ///
    /// # Errors
    /// There is no such device.
    pub fn info(&self, device: u32) -> Result<DeviceInfo, UblkError> {
        self.ask_info(Control::GetInfo, device, [0; DeviceInfo::BYTES])
    }

    fn ask_info(
        &self,
        command: Control,
        device: u32,
        bytes: [u8; DeviceInfo::BYTES],
    ) -> Result<DeviceInfo, UblkError> {
        let mut buffer = bytes.to_vec();
        self.call(command, device, 0, &mut buffer)?;
        let mut answer = [0; DeviceInfo::BYTES];
        answer.copy_from_slice(&buffer);
        Ok(DeviceInfo::decode(&answer))
    }

    /// Sets what a device that was just made can do.
    ///
    /// # Errors
    /// The driver takes no such sizes.
    pub fn set_params(&self, device: u32, params: &Params) -> Result<(), UblkError> {
        let mut buffer = params.encode().to_vec();
        self.call(Control::SetParams, device, 0, &mut buffer)
    }

    /// What a device can do; `None` when it was not set.
    ///
    /// # Errors
    /// There is no such device.
    pub fn params(&self, device: u32) -> Result<Option<Params>, UblkError> {
        let mut buffer = Params::question().to_vec();
        self.call(Control::GetParams, device, 0, &mut buffer)?;
        let mut answer = [0; Params::ANSWER_BYTES];
        answer.copy_from_slice(&buffer);
        Ok(Params::decode(&answer))
    }

    /// The device appears, served by this process. Returns after its partitions were looked for.
    ///
    /// # Errors
    /// What the driver says.
    pub fn start(&self, device: u32) -> Result<(), UblkError> {
        let pid = u64::from(std::process::id());
        self.call(Control::Start, device, pid, &mut Vec::new())
    }

    /// The device disappears, once what its users have not written out was written.
    ///
    /// # Errors
    /// There is no such device.
    pub fn stop(&self, device: u32) -> Result<(), UblkError> {
        self.call(Control::Stop, device, 0, &mut Vec::new())
    }

    /// Removes a device that was stopped. Returns when nobody holds its files any more.
    ///
    /// # Errors
    /// There is no such device.
    pub fn delete(&self, device: u32) -> Result<(), UblkError> {
        self.call(Control::Delete, device, 0, &mut Vec::new())
    }

    /// Begins to take a device over whose server has died.
    ///
    /// # Errors
    /// `BUSY` as long as the kernel has not noticed that, or the dead one's files are not closed.
    pub fn start_take_over(&self, device: u32) -> Result<(), UblkError> {
        self.call(Control::StartTakeOver, device, 0, &mut Vec::new())
    }

    /// This process serves the device from now on: each tag has asked for a request.
    ///
    /// # Errors
    /// What the driver says.
    pub fn end_take_over(&self, device: u32) -> Result<(), UblkError> {
        let pid = u64::from(std::process::id());
        self.call(Control::EndTakeOver, device, pid, &mut Vec::new())
    }

    /// A device that has appeared, which nobody else serves, has another size. Its users are told. A driver without
    /// [`Features::UPDATE_SIZE`] must not be asked.
    ///
    /// # Errors
    /// What the driver says.
    pub fn set_size(&self, device: u32, size_bytes: u64) -> Result<(), UblkError> {
        let sectors = size_bytes / SECTOR_BYTES;
        self.call(Control::UpdateSize, device, sectors, &mut Vec::new())
    }

    /// One command: waits for its answer. `buffer` is lent to the driver meanwhile.
    fn call(
        &self,
        command: Control,
        device: u32,
        number: u64,
        buffer: &mut Vec<u8>,
    ) -> Result<(), UblkError> {
        let mut ring: IoUring<squeue::Entry128, cqueue::Entry> =
            IoUring::builder().build(1).map_err(UblkError::NoRing)?;
        let argument = ControlArgument {
            device,
            buffer_bytes: u16::try_from(buffer.len()).expect("buffers here are small"),
            buffer: match buffer.is_empty() {
                true => 0,
                false => buffer.as_mut_ptr() as u64,
            },
            number,
        };
        let mut bytes = [0; 80];
        bytes[..ControlArgument::BYTES].copy_from_slice(&argument.encode());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), command.code())
            .cmd(bytes)
            .build();
        // SAFETY: the file is open as long as `self`, and the buffer is neither used nor freed until the completion was
        // seen below: whatever the waiting comes to, this function does not return before it, or gives the buffer up.
        let pushed = unsafe { ring.submission().push(&entry) };
        pushed.expect("a new ring has room for one entry");
        let refused = |errno| UblkError::Refused {
            command,
            device,
            errno,
        };
        loop {
            if let Some(answer) = ring.completion().next() {
                return match answer.result() {
                    result if result < 0 => Err(refused(Errno::from_raw_os_error(-result))),
                    _ => Ok(()),
                };
            }
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The driver may still have the buffer.
                    std::mem::forget(std::mem::take(buffer));
                    return Err(UblkError::NoRing(error));
                }
            }
        }
    }
}

/// Numbers of all devices that there are, those whose server has died included.
#[must_use]
pub fn devices() -> Vec<u32> {
    devices_in(Path::new(DEVICES))
}

fn devices_in(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("ublkc")?.parse().ok()
    };
    let mut found: Vec<u32> = entries.filter_map(number).collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_their_names_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in [
            "ublkc10",
            "ublkc2",
            "ublk-control",
            "ublkc",
            "ublkcx",
            "ublkb3",
        ] {
            std::fs::write(folder.path().join(name), "").expect("made");
        }
        assert_eq!(devices_in(folder.path()), [2, 10]);
        assert_eq!(
            devices_in(&folder.path().join("nowhere")),
            Vec::<u32>::new()
        );
    }

    #[test]
    fn a_kernel_without_ublk_is_told_in_one_line_with_the_way_out() {
        if Path::new(PATH).exists() {
            return; // the test in a guest has one
        }
        let error = ControlDevice::open()
            .expect_err("there is none")
            .to_string();
        assert!(
            error.contains("modprobe ublk_drv") && !error.contains('\n'),
            "{error}"
        );
    }
}
