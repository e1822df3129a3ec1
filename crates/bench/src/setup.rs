//! Volumes to measure: organisation, members, path.

use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::time::Duration;

use plexum_block::buf::{Buf, BufPool, Rope};
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_engine::volume::Volume;
use plexum_format::SECTOR_BYTES;
use plexum_format::md::MdVersion;
use plexum_front::export::{Export, ExportInfo, Extent, ZeroRequest};
use plexum_layout::{Organisation, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};
use plexum_md::create::{NewArray, Plan, Start, plan, write_new};
use plexum_md::open::{OpenRequest, open_volume};
use plexum_nbd::client::{ConnectOptions, connect};
use plexum_nbd::server::{Server, ServerLimits};
use plexum_runtime::clock::RealClock;
use plexum_runtime::file::{FileDevice, OpenOptions};

use plexum_runtime::socket::Socket;
use plexum_runtime::{Handle, JoinHandle};

use crate::BenchOptions;
use crate::device::BenchDevice;
use crate::load::Figures;
use crate::load::{PATTERNS, Pattern, Remote, WRITE_PATTERNS, run};

/// Data bytes of each member.
const MEMBER_BYTES: u64 = 64 << 20;

/// Strip size of all striped organisations.
const STRIP_BYTES: u64 = 64 << 10;

/// Why nothing could be measured.
#[derive(Debug)]
pub struct BenchError(pub String);

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

/// What the members are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberKind {
    /// Nothing: what the engine itself costs.
    Null,
    /// Memory of this process.
    Memory,
    /// Files.
    File,
}

/// How the load reaches the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// Calls of the engine.
    Direct,
    /// An NBD connection over a Unix socket pair, both ends in this process.
    Nbd,
}

/// One row to measure.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub label: &'static str,
    pub organisation: Organisation,
    pub member_count: usize,
    pub members: MemberKind,
    pub path: Path,
    pub pattern: Pattern,
    pub consistency: Consistency,
}

/// What a parity array does about the write hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consistency {
    /// Nothing: a resync of everything.
    Resync,
    /// A bitmap: a resync of what was being written.
    Bitmap,
    /// md's partial parity log.
    Ppl,
    /// Stripe log and bitmap.
    Log,
    /// The same, answered from the log.
    WriteBack,
}

/// RAID-5 and RAID-6 on file members, written with each consistency.
pub(crate) fn consistency_cases() -> Vec<Case> {
    let raid5 = Organisation::Raid5(Raid5Layout::LeftSymmetric);
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let kinds = [
        ("RAID-5 of 4, resync", raid5, Consistency::Resync),
        ("RAID-5 of 4, bitmap", raid5, Consistency::Bitmap),
        ("RAID-5 of 4, ppl", raid5, Consistency::Ppl),
        ("RAID-5 of 4, log", raid5, Consistency::Log),
        ("RAID-5 of 4, write-back", raid5, Consistency::WriteBack),
        ("RAID-6 of 6, resync", raid6, Consistency::Resync),
        ("RAID-6 of 6, bitmap", raid6, Consistency::Bitmap),
        ("RAID-6 of 6, log", raid6, Consistency::Log),
        ("RAID-6 of 6, write-back", raid6, Consistency::WriteBack),
    ];
    let mut cases = Vec::new();
    for (label, organisation, consistency) in kinds {
        for pattern in WRITE_PATTERNS {
            cases.push(Case {
                label,
                organisation,
                member_count: if organisation == raid5 { 4 } else { 6 },
                members: MemberKind::File,
                path: Path::Direct,
                pattern,
                consistency,
            });
        }
    }
    cases
}

pub(crate) fn cases(path: Path) -> Vec<Case> {
    let organisations = [
        ("concat of 2", Organisation::Linear, 2),
        ("stripe of 4", Organisation::Raid0(Raid0Layout::Original), 4),
        ("mirror of 2", Organisation::Raid1, 2),
        (
            "RAID-10 of 4",
            Organisation::Raid10(Raid10Layout::near(2)),
            4,
        ),
        ("RAID-4 of 4", Organisation::Raid4, 4),
        (
            "RAID-5 of 4",
            Organisation::Raid5(Raid5Layout::LeftSymmetric),
            4,
        ),
        (
            "RAID-6 of 6",
            Organisation::Raid6(Raid6Layout::LeftSymmetric),
            6,
        ),
    ];
    let kinds: &[MemberKind] = match path {
        Path::Direct => &[MemberKind::Null, MemberKind::Memory, MemberKind::File],
        Path::Nbd => &[MemberKind::Memory, MemberKind::File],
    };
    let mut cases = Vec::new();
    for &members in kinds {
        for (label, organisation, member_count) in organisations {
            for pattern in PATTERNS {
                cases.push(Case {
                    label,
                    organisation,
                    member_count,
                    members,
                    path,
                    pattern,
                    consistency: Consistency::Bitmap,
                });
            }
        }
    }
    cases
}

pub(crate) fn new_array(case: &Case, device_bytes: u64) -> NewArray {
    let uuid = |number: u8| [number; 16];
    NewArray {
        version: MdVersion::V12,
        organisation: case.organisation,
        strip_bytes: if case.organisation == Organisation::Raid1 {
            0
        } else {
            STRIP_BYTES
        },
        size_bytes: None,
        members: vec![Some(device_bytes); case.member_count],
        spares: Vec::new(),
        write_mostly: Vec::new(),
        stored_name: "bench".to_owned(),
        uuid: uuid(0xbe),
        identities: (0..case.member_count)
            .map(|index| uuid(u8::try_from(index).unwrap_or(0)))
            .collect(),
        wall_seconds: 1,
        has_bitmap: !matches!(case.consistency, Consistency::Resync | Consistency::Ppl),
        region_bytes: None,
        log_bytes_max: matches!(case.consistency, Consistency::Log | Consistency::WriteBack)
            .then_some(u64::MAX),
        has_ppl: case.consistency == Consistency::Ppl,
        is_write_back: case.consistency == Consistency::WriteBack,
        start: Start::Agreeing,
    }
}

/// A volume that is being served.
pub(crate) struct Running {
    pub volume: Rc<Volume<BenchDevice, RealClock>>,
    label: &'static str,
    background: JoinHandle<()>,
}

impl Running {
    /// Makes the volume of a row and starts it.
    pub async fn start(
        handle: &Handle,
        case: &Case,
        options: &BenchOptions,
    ) -> Result<Self, BenchError> {
        let devices = make(handle, case, options).await?;
        Self::on(handle, case, devices).await
    }

    /// The volume that `start` has made of files with these options, once more: for a load of which each has places of
    /// its own.
    pub async fn start_again(
        handle: &Handle,
        case: &Case,
        options: &BenchOptions,
    ) -> Result<Self, BenchError> {
        let again = |index| file_again(handle, options, index).map(BenchDevice::File);
        let devices: Result<Vec<_>, _> = (0..case.member_count).map(again).collect();
        Self::on(handle, case, devices?).await
    }

    /// Makes the volume of a row of these devices, and starts it.
    pub async fn start_on(
        handle: &Handle,
        case: &Case,
        devices: Vec<BenchDevice>,
        device_bytes: u64,
    ) -> Result<Self, BenchError> {
        let plan = planned(case, device_bytes)?;
        let devices = written(case, &plan, devices).await?;
        Self::on(handle, case, devices).await
    }

    async fn on(
        handle: &Handle,
        case: &Case,
        devices: Vec<BenchDevice>,
    ) -> Result<Self, BenchError> {
        let volume = open(handle, case, devices).await?;
        let background = {
            let volume = Rc::clone(&volume);
            handle.spawn(async move { volume.run_background().await })
        };
        Ok(Self {
            volume,
            label: case.label,
            background,
        })
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) -> Result<(), BenchError> {
        let stopped = self.volume.stop().await;
        stopped.map_err(|error| BenchError(format!("{}: {error}", self.label)))?;
        let ended = |_| BenchError("the background task ended early".to_owned());
        self.background.await.map_err(ended)
    }
}

/// The members of a row, with their metadata.
async fn make(
    handle: &Handle,
    case: &Case,
    options: &BenchOptions,
) -> Result<Vec<BenchDevice>, BenchError> {
    let device_bytes = MEMBER_BYTES + (8 << 20);
    let plan = planned(case, device_bytes)?;
    let devices = devices(handle, case, &plan, device_bytes, options)?;
    written(case, &plan, devices).await
}

fn planned(case: &Case, device_bytes: u64) -> Result<Plan, BenchError> {
    plan(&new_array(case, device_bytes))
        .map_err(|error| BenchError(format!("{}: {error}", case.label)))
}

/// Devices with the metadata of a plan.
async fn written(
    case: &Case,
    plan: &Plan,
    devices: Vec<BenchDevice>,
) -> Result<Vec<BenchDevice>, BenchError> {
    let devices: Vec<Option<BenchDevice>> = devices.into_iter().map(Some).collect();
    write_new(plan, &devices, &BufPool::new(1 << 20))
        .await
        .map_err(|(_, error)| BenchError(format!("{}: {error}", case.label)))?;
    Ok(devices.into_iter().flatten().collect())
}

/// Puts the volume of a row together; nothing runs yet.
async fn open(
    handle: &Handle,
    case: &Case,
    devices: Vec<BenchDevice>,
) -> Result<Rc<Volume<BenchDevice, RealClock>>, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", case.label));
    let pool = BufPool::new(64 << 20);
    let named = devices
        .into_iter()
        .enumerate()
        .map(|(index, device)| (format!("member {index}"), device))
        .collect();
    let request = OpenRequest::default();
    let (volume, _) = open_volume(named, handle.clock(), pool, request)
        .await
        .map_err(|error| told(&error))?;
    Ok(Rc::new(volume))
}

/// Puts the volume of a row together, runs its load once, takes it apart.
pub(crate) async fn measure(
    handle: Handle,
    case: &Case,
    options: &BenchOptions,
) -> Result<Figures, BenchError> {
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", case.label));
    let running = Running::start(&handle, case, options).await?;
    let volume = &running.volume;
    let time = Duration::from_millis(options.millis);
    let figures = match case.path {
        Path::Direct => run(&handle, volume, volume.size_bytes(), case.pattern, time).await,
        Path::Nbd => {
            let pool = BufPool::new(64 << 20);
            over_nbd(&handle, volume, &pool, case, time).await?
        }
    };
    running.stop().await?;
    figures.map_err(|error| told(&error))
}

fn devices(
    handle: &Handle,
    case: &Case,
    plan: &Plan,
    device_bytes: u64,
    options: &BenchOptions,
) -> Result<Vec<BenchDevice>, BenchError> {
    let mut devices = Vec::new();
    for index in 0..case.member_count {
        let superblock = plan.superblocks[index]
            .as_ref()
            .expect("every slot of a bench array has a member");
        let head = usize::try_from(superblock.data_offset_sectors * SECTOR_BYTES)
            .expect("data begin within a few MiB");
        devices.push(match case.members {
            MemberKind::Null => BenchDevice::null(head, device_bytes),
            MemberKind::Memory => BenchDevice::memory(
                usize::try_from(device_bytes).expect("bench members fit memory"),
            ),
            MemberKind::File => BenchDevice::File(file(handle, options, index, device_bytes)?),
        });
    }
    Ok(devices)
}

/// Where file members of this process lie.
pub(crate) fn file_folder(options: &BenchOptions) -> std::path::PathBuf {
    let folder = options.folder.clone();
    folder.unwrap_or_else(std::env::temp_dir)
}

/// A fresh file. All of it was written once: on a virtual machine the first use of a page may cost more than a hundred
/// requests, and the first to be measured would pay for it.
fn file(
    handle: &Handle,
    options: &BenchOptions,
    index: usize,
    device_bytes: u64,
) -> Result<FileDevice, BenchError> {
    let path = file_path(options, index);
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", path.display()));
    let mut made = std::fs::File::create(&path).map_err(|error| told(&error))?;
    let zeroes = std::io::Read::take(std::io::repeat(0), device_bytes);
    std::io::copy(
        &mut std::io::BufReader::with_capacity(1 << 20, zeroes),
        &mut made,
    )
    .map_err(|error| told(&error))?;
    drop(made);
    FileDevice::open(handle, &path, &OpenOptions::read_write()).map_err(|error| told(&error))
}

/// The same file once more, without its lock.
fn file_again(
    handle: &Handle,
    options: &BenchOptions,
    index: usize,
) -> Result<FileDevice, BenchError> {
    let path = file_path(options, index);
    let told = |error: &dyn std::fmt::Display| BenchError(format!("{}: {error}", path.display()));
    let found = std::fs::File::open(&path).map_err(|error| told(&error))?;
    let number = u64::try_from(found.as_raw_fd()).map_err(|error| told(&error))?;
    FileDevice::open_again(handle, number, &path, &OpenOptions::read_write())
        .map_err(|error| told(&error))
}

fn file_path(options: &BenchOptions, index: usize) -> std::path::PathBuf {
    file_folder(options).join(format!("bench-{}-{index}.img", std::process::id()))
}

/// Removes the file members of this process.
pub(crate) fn remove_files(options: &BenchOptions) {
    for index in 0..16 {
        let _ = std::fs::remove_file(file_path(options, index)); // it may never have been made
    }
}

async fn over_nbd(
    handle: &Handle,
    volume: &Rc<Volume<BenchDevice, RealClock>>,
    pool: &BufPool,
    case: &Case,
    time: Duration,
) -> Result<Result<Figures, IoError>, BenchError> {
    let told =
        |error: &dyn std::fmt::Display| BenchError(format!("{} over NBD: {error}", case.label));
    let (near, far) = Socket::pair(handle).map_err(|error| told(&error))?;
    let server = Rc::new(Server::new(
        handle.clock(),
        pool.clone(),
        ServerLimits::default(),
    ));
    server
        .exports()
        .open(Rc::new(Served(Rc::clone(volume))))
        .map_err(|error| told(&error))?;
    let serving = {
        let server = Rc::clone(&server);
        handle.spawn(async move { server.serve(far).await.0 })
    };
    let (client, driver) = connect(near, pool.clone(), &ConnectOptions::new("bench"))
        .await
        .map_err(|error| told(&error))?;
    let driving = handle.spawn(async move { driver.run().await });
    let remote = Rc::new(Remote {
        client: Rc::new(client),
        pool: pool.clone(),
    });
    let figures = run(handle, &remote, volume.size_bytes(), case.pattern, time).await;
    remote.client.disconnect();
    let _ = driving.await;
    let _ = serving.await;
    Ok(figures)
}

/// The plainest export: one call each.
struct Served(Rc<Volume<BenchDevice, RealClock>>);

impl Export for Served {
    fn info(&self) -> ExportInfo {
        ExportInfo {
            name: "bench".to_owned(),
            description: String::new(),
            size_bytes: self.0.size_bytes(),
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            is_read_only: false,
            is_rotational: false,
        }
    }
    async fn read(&self, offset_bytes: u64, length_bytes: u32) -> Result<Rope, IoError> {
        self.0.read(offset_bytes, length_bytes as usize).await
    }
    async fn write(&self, offset_bytes: u64, data: Buf, fua: Fua) -> Result<(), IoError> {
        self.0.write(offset_bytes, data, fua).await
    }
    async fn flush(&self) -> Result<(), IoError> {
        self.0.flush().await
    }
    async fn trim(&self, offset_bytes: u64, length_bytes: u64, fua: Fua) -> Result<(), IoError> {
        self.0
            .zero(offset_bytes, length_bytes, ZeroMode::Unmap, fua)
            .await
    }
    async fn zero(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        how: ZeroRequest,
    ) -> Result<(), IoError> {
        self.0
            .zero(offset_bytes, length_bytes, ZeroMode::Allocate, how.fua)
            .await
    }
    async fn cache(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        Ok(())
    }
    async fn status(
        &self,
        _offset_bytes: u64,
        length_bytes: u64,
        _extents_max: usize,
    ) -> Result<Vec<Extent>, IoError> {
        Ok(vec![Extent {
            length_bytes,
            is_hole: false,
            is_zero: false,
        }])
    }
}
