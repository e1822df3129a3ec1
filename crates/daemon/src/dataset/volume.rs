//! One volume of a pool that is served: its names, its places, and the ways in to it.

use std::path::PathBuf;
use std::rc::Rc;

use plexum_front::export::ExportInfo;
use plexum_front::flag::Flag;
use plexum_runtime::Handle;
use plexum_runtime::file::Access;
use plexum_zfs::{DatasetName, PoolReport};

use super::export::DatasetExport;
use super::opened::OpenedVolume;
use super::status::status;
use crate::host::device::Device;
use crate::host::making::Tasks;
use crate::host::ways::{Room, Ways};
use crate::memory::Key;
use crate::runtime_dir::Kind;
use crate::serve_dataset::DatasetRequest;
use crate::volume::status::VolumeStatus;

/// A volume that is served.
pub(crate) struct PoolVolume {
    pub(crate) export: Rc<DatasetExport>,
    /// As it was opened.
    pub(super) status: VolumeStatus,
    /// How it likes its requests: its blocks in bytes.
    pub(super) block_bytes: u64,
    /// `POOL/VOLUME[@SNAPSHOT]`.
    pub(super) dataset: String,
    /// By what it is known from one start to the next.
    pub(super) key: Key,
    pub(super) socket: PathBuf,
    /// Where commands connect.
    pub(crate) control: PathBuf,
    pub(super) ways: Rc<Ways<DatasetExport>>,
    /// Nobody is accepted any more.
    pub(super) shut: Rc<Flag>,
    /// What runs for it until it is closed.
    pub(super) tasks: Tasks,
}

impl PoolVolume {
    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.status.volume
    }

    /// Its block device, when it has one that is served here.
    pub(crate) fn device(&self) -> Option<Rc<Device<DatasetExport>>> {
        self.ways.device()
    }
}

/// A volume with its names and places; nobody is let in yet.
pub(super) fn volume_of(
    handle: &Handle,
    request: &DatasetRequest,
    (report, volume): (&PoolReport, OpenedVolume),
    room: &Room,
) -> PoolVolume {
    let dataset = DatasetName::parse(&volume.dataset);
    let name = request.name_of(&volume.dataset);
    let socket = match &request.socket {
        Some(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()),
        None => request.runtime_dir.file(&name, Kind::Nbd),
    };
    let info = ExportInfo {
        name: name.clone(),
        description: format!("ZFS volume {dataset}"),
        size_bytes: volume.size_bytes,
        block_bytes_min: 512,
        block_bytes_preferred: u32::try_from(volume.block_bytes).unwrap_or(4096).max(4096),
        is_read_only: request.access == Access::ReadOnly,
        is_rotational: false,
    };
    PoolVolume {
        shut: Rc::default(),
        tasks: Tasks::default(),
        status: status(report, &info, handle),
        key: Key::of("zfs", &report.guid.to_string(), &volume.dataset),
        block_bytes: volume.block_bytes,
        dataset: volume.dataset,
        control: request.runtime_dir.file(&name, Kind::Control),
        export: Rc::new(DatasetExport {
            content: volume.content,
            info,
            buffers: room.pool.clone(),
        }),
        socket,
        ways: Rc::default(),
    }
}
