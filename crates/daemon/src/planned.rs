//! A member that a plan writes as a whole: opened and looked at, or a file that is yet to be made.
//!
//! Invariant: nothing is made before `open`.

use std::path::PathBuf;

use plexum_block::device::Device;
use plexum_runtime::Handle;
use plexum_runtime::file::OpenOptions;

use crate::create::make_file;
use crate::inspect::{Finding, inspect};
use crate::open::{AnyDevice, MemberWord};
use crate::problem::Problem;

/// A member of a plan.
pub struct PlannedMember {
    /// As the user wrote it.
    pub member: String,
    /// Its size.
    pub size_bytes: u64,
    /// Whether a file will be made.
    pub is_new: bool,
    /// What is on it.
    pub found: Vec<Finding>,
    /// It, open and locked; none while it is yet to be made.
    pub(crate) device: Option<AnyDevice>,
}

impl PlannedMember {
    /// A file that will be made.
    pub(crate) fn new_file(word: &str, size_bytes: u64) -> Self {
        Self {
            member: word.to_owned(),
            size_bytes,
            is_new: true,
            found: Vec::new(),
            device: None,
        }
    }

    /// One that is there, and what is on it.
    ///
    /// # Errors
    /// Of reading it.
    pub(crate) async fn there(word: &str, device: AnyDevice) -> Result<Self, Problem> {
        Ok(Self {
            member: word.to_owned(),
            size_bytes: device.info().size_bytes,
            is_new: false,
            found: inspect(&device, word).await?,
            device: Some(device),
        })
    }

    /// Its device. A file that is made for it is added to `made`, so that it can be removed when something else fails.
    ///
    /// # Errors
    /// Of making and opening it.
    pub(crate) async fn open(
        &self,
        handle: &Handle,
        made: &mut Vec<PathBuf>,
    ) -> Result<AnyDevice, Problem> {
        if let Some(device) = &self.device {
            return Ok(device.clone());
        }
        let path = PathBuf::from(&self.member);
        make_file(&path, self.size_bytes)?;
        made.push(path.clone());
        AnyDevice::open(handle, &MemberWord::Path(path), &OpenOptions::read_write()).await
    }
}
