//! The real engine on FreeBSD's formats: labels and configurations as `create` writes them, opened as the daemon opens
//! them.
//!
//! Invariant: nothing here decides for the engine; refusals and errors are passed on.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use plexum_block::boxed::BoxedDevice;
use plexum_block::buf::Buf;
use plexum_block::device::{Fua, IoError, ZeroMode};
use plexum_block::wait::{join, join_all};
use plexum_engine::state::Standing;
use plexum_engine::upkeep::scrub::ScrubMode;
use plexum_engine::volume::{MemberStatus, NewMember, Volume, VolumeStatus};
use plexum_exec::Spawner;
use plexum_format::vinum::{Config, Subdisk};
use plexum_freebsd::gmirror::{MirrorRequest, Refusal, open_mirror};
use plexum_freebsd::gvinum::{Growing, OpenedVolume, SystemRequest, open_system};
use plexum_freebsd::labels::ForeignError;
use plexum_freebsd::stacked::PlexMember;

use super::labels;
use super::plan::{Format, Plan};
use crate::members::{
    self, active_on, device_name, disk_of, is_active, is_filled, is_live, volume_options,
};
use crate::subject::{Context, Force, Operation, Refusal as StartRefusal, Subject};
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;

type Device = BoxedDevice;
type Plex = Rc<PlexMember<Device, SimClock>>;

/// A volume that is served.
struct Served {
    volume: Volume<Device, SimClock>,
    plexes: Vec<Plex>,
    growing: Option<Rc<Growing<Device, SimClock>>>,
    /// Drives under it.
    drives: BTreeSet<u32>,
}

/// What the rules of these sets remember.
#[derive(Default)]
pub struct SetMemory {
    /// How new the newest disk is.
    pub(super) newest: Cell<Option<(u64, u64)>>,
}

/// Everything that one set of disks serves.
pub struct Array {
    volumes: Vec<Served>,
    /// Components that were offered and are not used.
    pub(super) refused: Vec<u32>,
    seed: u64,
    identities: Cell<u32>,
}

impl Array {
    /// Opens what is on these disks: those that carry a label of the array.
    pub(super) async fn open(
        context: &Context,
        plan: &Plan,
        disks: &[SimDisk],
        force: Force,
    ) -> Result<Self, StartRefusal> {
        match plan.format {
            Format::Gmirror => Self::open_mirror(context, disks).await,
            Format::Gvinum => Self::open_system(context, disks, force).await,
        }
    }

    async fn open_mirror(context: &Context, disks: &[SimDisk]) -> Result<Self, StartRefusal> {
        let labelled: Vec<&SimDisk> = disks
            .iter()
            .filter(|disk| labels::mirror_label(disk).is_some())
            .collect();
        let devices = labelled
            .iter()
            .map(|disk| (device_name(disk), device(disk)));
        let request = MirrorRequest {
            run_degraded: true,
            ignores_names: false,
            volume: volume_options(context),
            balance: None,
            name: None,
        };
        let (clock, pool) = (context.clock.clone(), context.pool.clone());
        let opened = open_mirror(devices.collect(), clock, pool, request).await;
        let (volume, assembled) = opened.map_err(|error| StartRefusal::Other(error.to_string()))?;
        let wrongly = assembled
            .refused
            .iter()
            .filter(|(_, reason)| !matches!(reason, Refusal::Inactive));
        let refused = wrongly.map(|(key, _)| labelled[key.0].number()).collect();
        let served = Served {
            volume,
            plexes: Vec::new(),
            growing: None,
            drives: disks.iter().map(SimDisk::number).collect(),
        };
        Ok(Self {
            volumes: vec![served],
            refused,
            seed: context.seed,
            identities: Cell::new(0),
        })
    }

    async fn open_system(
        context: &Context,
        disks: &[SimDisk],
        force: Force,
    ) -> Result<Self, StartRefusal> {
        let labelled = disks
            .iter()
            .filter(|disk| labels::drive_header(disk).is_some());
        let devices: Vec<(String, Device)> = labelled
            .map(|disk| (device_name(disk), device(disk)))
            .collect();
        let request = SystemRequest {
            force: force == Force::Yes,
            run_degraded: true,
            volume: volume_options(context),
            balance: None,
        };
        let (clock, pool) = (context.clock.clone(), context.pool.clone());
        let opened = open_system(devices, clock, pool, request).await;
        let opened = opened.map_err(|error| StartRefusal::Other(error.to_string()))?;
        if let Some((volume, error)) = opened.refused.into_iter().next() {
            let text = format!("{volume}: {error}");
            return Err(match error {
                ForeignError::DirtyDegraded(_) => StartRefusal::DirtyDegraded(text),
                _ => StartRefusal::Other(text),
            });
        }
        let config = opened.system.config;
        let volumes = opened.volumes.into_iter();
        let mut volumes: Vec<Served> = volumes
            .map(|opened| {
                let drives = drives_of(&config, opened.volume.name());
                Served::new(opened, drives)
            })
            .collect();
        volumes.sort_by(|a, b| a.volume.name().cmp(b.volume.name()));
        Ok(Self {
            volumes,
            refused: Vec::new(),
            seed: context.seed,
            identities: Cell::new(0),
        })
    }

    /// Whether every volume has all its data without the disks in `bad`.
    pub(super) fn survives(&self, bad: &BTreeSet<u32>) -> bool {
        self.volumes.iter().all(|served| served.survives(bad))
    }

    /// Whether the component on this disk is incomplete.
    pub(super) fn is_filled(&self, disk: u32) -> bool {
        self.volumes.iter().flat_map(Served::all).any(|volume| {
            let status = volume.status();
            let mut filled = status.members.iter().filter(|member| is_filled(member));
            filled.any(|member| disk_of(member) == Some(disk))
        })
    }

    /// Whether a mirror lacks a component that nobody is about to become.
    pub(super) fn lacks_a_disk(&self) -> bool {
        let mut mirrors = self.volumes.iter().filter(|served| served.is_mirror());
        mirrors.any(|served| {
            let status = served.volume.status();
            let comes = |member: &&MemberStatus| {
                is_filled(member) && !member.is_replacement || member.standing == Standing::Spare
            };
            status.lost_slots.len() > status.members.iter().filter(comes).count()
        })
    }

    /// Whether some parity is not proven, or some row lacks a block.
    pub(super) fn has_hole(&self) -> bool {
        self.volumes.iter().any(Served::has_hole)
    }

    /// Whether some data are there only by parity without the disks in `bad`.
    pub(super) fn needs_parity(&self, bad: &BTreeSet<u32>) -> bool {
        let alone = self
            .volumes
            .iter()
            .filter(|served| served.plexes.is_empty());
        let mut alone = alone.filter(|served| served.volume.geometry().parity_count() > 0);
        alone.any(|served| !served.drives.is_disjoint(bad))
    }

    fn has_growing(&self) -> bool {
        self.volumes.iter().any(|served| served.growing.is_some())
    }

    /// Disks that belong to it in any live role.
    pub(super) fn live(&self) -> BTreeSet<u32> {
        let mut live = BTreeSet::new();
        for served in &self.volumes {
            if served.is_mirror() {
                let status = served.volume.status();
                let members = status.members.iter().filter(|member| is_live(member));
                live.extend(members.filter_map(disk_of));
            } else {
                live.extend(&served.drives);
            }
        }
        live
    }

    /// Takes the member on this disk out. Of a system: from the first volume that lets it go.
    async fn fail(&self, disk: u32) -> Result<(), String> {
        let mut last = Err("it is no member".to_owned());
        for served in &self.volumes {
            for volume in served.all() {
                let Some(member) = active_on(&volume.status(), disk) else {
                    continue;
                };
                last = volume.fail(member).await.map_err(|error| error.to_string());
                if last.is_ok() {
                    return last;
                }
            }
        }
        last
    }

    /// Gives a mirror a component; `old`: to take over from the one on this disk.
    async fn add(&self, disk: &SimDisk, old: Option<u32>) -> Result<(), String> {
        let volume = &self.volumes[0].volume;
        let status = volume.status();
        members::remove_former(volume, disk.number()).await?;
        self.identities.set(self.identities.get() + 1);
        let mut identity = [0; 16];
        let low = plexum_disks::rng::mix(self.seed ^ u64::from(self.identities.get()));
        identity[..8].copy_from_slice(&low.to_le_bytes());
        let new = NewMember {
            name: device_name(disk),
            device: device(disk),
            identity,
            is_write_mostly: false,
            former: None,
        };
        let done = match old.and_then(|old| active_on(&status, old)) {
            Some(old) => volume.replace_with(old, new).await.map(|_| ()),
            None if old.is_some() => return Err("it is no member".to_owned()),
            None => volume.add(new, false).await.map(|_| ()),
        };
        done.map_err(|error| error.to_string())
    }

    /// Compares copies and parity of everything; gives the bytes that do not agree.
    pub(super) async fn scrub(&self) -> u64 {
        let mut bytes = 0;
        for served in &self.volumes {
            for volume in served.all() {
                if volume.start_scrub(ScrubMode::Check) {
                    volume.scrub_ended().await;
                    let report = volume.scrub_report().unwrap_or_default();
                    bytes += report.mismatch_bytes;
                }
            }
        }
        bytes
    }
}

impl Subject for Array {
    type Plan = Plan;
    type Memory = SetMemory;

    async fn read(&self, volume: usize, bytes: Range<u64>) -> Result<Vec<u8>, IoError> {
        let length = (bytes.end - bytes.start) as usize;
        let read = self.volumes[volume].volume.read(bytes.start, length);
        Ok(read.await?.to_vec())
    }

    async fn write(
        &self,
        volume: usize,
        offset_bytes: u64,
        data: Buf,
        fua: Fua,
    ) -> Result<(), IoError> {
        let volume = &self.volumes[volume].volume;
        volume.write(offset_bytes, data, fua).await
    }

    async fn flush(&self, volume: usize) -> Result<(), IoError> {
        self.volumes[volume].volume.flush().await
    }

    async fn zero(
        &self,
        volume: usize,
        bytes: Range<u64>,
        mode: ZeroMode,
        fua: Fua,
    ) -> Result<(), IoError> {
        let (volume, length) = (&self.volumes[volume].volume, bytes.end - bytes.start);
        volume.zero(bytes.start, length, mode, fua).await
    }

    async fn background(self: Rc<Self>, _spawner: Spawner) {
        join_all(self.volumes.iter().map(Served::background)).await;
    }

    async fn operate(&self, operation: Operation, disks: &[SimDisk]) -> Result<(), String> {
        let handle = |disk: u32| disks[disk as usize].reopen();
        match operation {
            Operation::Fail { slot } => self.fail(slot as u32).await,
            Operation::Add { disk } => self.add(&handle(disk), None).await,
            Operation::Replace { slot, disk } => self.add(&handle(disk), Some(slot as u32)).await,
            Operation::Scrub => {
                self.scrub().await;
                Ok(())
            }
        }
    }

    async fn stop(&self) -> Result<(), IoError> {
        let mut result = Ok(());
        for served in &self.volumes {
            result = result.and(served.stop().await);
        }
        result
    }

    fn is_whole(&self) -> bool {
        self.volumes.iter().all(Served::is_whole)
    }

    fn describe(&self) -> String {
        let mut texts = Vec::new();
        for volume in self.volumes.iter().flat_map(Served::all) {
            let status = volume.status();
            let members = status.members.iter();
            let members: Vec<String> = members
                .map(|member| {
                    let name = member.name.as_deref().unwrap_or("nobody");
                    format!("{name} {:?}", member.standing)
                })
                .collect();
            texts.push(format!(
                "{}: lost {:?}, {} regions in doubt, job {:?}, {}",
                status.name,
                status.lost_slots,
                status.doubtful_regions.0,
                status.job.map(|job| job.kind),
                members.join(", ")
            ));
        }
        texts.join("; ")
    }

    fn condition(&self) -> Option<&'static str> {
        let served = self.volumes.iter();
        let all: Vec<VolumeStatus> = served.map(|served| served.volume.status()).collect();
        let has_any = |is_it: fn(&VolumeStatus) -> bool| all.iter().any(is_it);
        if self.has_growing() {
            Some("growth")
        } else if has_any(|status| status.members.iter().any(is_filled)) {
            Some("rebuild")
        } else if has_any(|status| status.doubtful_regions.0 > 0) {
            Some("resync")
        } else if has_any(|status| !status.lost_slots.is_empty()) {
            Some("degraded")
        } else {
            None
        }
    }

    /// Until no plex grows any more.
    async fn settled(&self) {
        for growing in self
            .volumes
            .iter()
            .filter_map(|served| served.growing.as_ref())
        {
            growing.ended().await;
        }
    }

    fn leaks(&self) -> Option<String> {
        let volumes = self.volumes.iter();
        let held: usize = volumes
            .map(|served| served.volume.requests().len() + served.volume.lock_count())
            .sum();
        (held > 0).then(|| format!("{held} requests and locks"))
    }
}

impl Served {
    fn new(opened: OpenedVolume<Device, SimClock>, drives: BTreeSet<u32>) -> Self {
        Self {
            volume: opened.volume,
            plexes: opened.plexes,
            growing: opened.growing,
            drives,
        }
    }

    fn is_mirror(&self) -> bool {
        self.volume.status().format == "gmirror"
    }

    async fn background(&self) {
        let plexes = self.plexes.iter().map(|plex| plex.volume.run_background());
        let growing = async {
            if let Some(growing) = &self.growing {
                growing.run().await;
            }
        };
        let plexes = join(join_all(plexes), growing);
        join(self.volume.run_background(), plexes).await;
    }

    async fn stop(&self) -> Result<(), IoError> {
        let mut result = self.volume.stop().await;
        for plex in &self.plexes {
            let ended = plex.volume.stop().await;
            if !plex.volume.is_frozen() {
                result = result.and(ended);
            }
        }
        if let Some(growing) = &self.growing {
            result = result.and(growing.stop().await);
        }
        result
    }

    fn survives(&self, bad: &BTreeSet<u32>) -> bool {
        if self.growing.is_some() {
            return self.drives.is_disjoint(bad);
        }
        if self.is_unsure() {
            return false;
        }
        let status = self.volume.status();
        let active = status.members.iter().filter(|member| is_active(member));
        if self.is_mirror() {
            // Who is being replaced goes when the new one is complete, which may meet its fault only then.
            let is_good = |member: &MemberStatus| {
                let mut both = status.members.iter().filter(|other| {
                    other.id == member.id || other.is_replacement && other.slot == member.slot
                });
                both.all(|other| disk_of(other).is_some_and(|disk| !bad.contains(&disk)))
            };
            return active.into_iter().any(is_good);
        }
        if self.plexes.is_empty() {
            return holds(&self.volume, bad);
        }
        // Copies: one of them whole, whatever its own redundancy is good for after a crash.
        let mut names = active.filter_map(|member| member.name.as_deref());
        names.any(|name| {
            let plex = self.plexes.iter().find(|plex| plex.name == name);
            plex.is_some_and(|plex| is_untouched(&plex.volume, bad))
        })
    }

    fn all(&self) -> impl Iterator<Item = &Volume<Device, SimClock>> {
        let plexes = self.plexes.iter().map(|plex| &plex.volume);
        std::iter::once(&self.volume).chain(plexes)
    }

    /// Whether somebody is complete and the disks do not say so yet: a crash takes it back.
    fn is_unsure(&self) -> bool {
        self.all().any(|volume| {
            let status = volume.status();
            let mut active = status.members.iter().filter(|member| is_active(member));
            active.any(|member| !volume.is_durably_active(member.id))
        })
    }

    fn is_whole(&self) -> bool {
        self.all().all(|volume| {
            let status = volume.status();
            let is_settled = status.doubtful_regions.0 == 0 && status.job.is_none();
            is_settled
                && status.lost_slots.is_empty()
                && !status.members.iter().any(is_filled)
                && volume.is_committed()
        })
    }

    fn has_hole(&self) -> bool {
        let volume = &self.volume;
        let has_parity = volume.geometry().parity_count() > 0;
        has_parity && !volume.status().lost_slots.is_empty()
    }
}

/// Whether a volume with parity or none has all its data without `bad`.
fn holds(volume: &Volume<Device, SimClock>, bad: &BTreeSet<u32>) -> bool {
    let status = volume.status();
    let slots = volume.geometry().member_count();
    let mut lost = vec![true; slots];
    for member in status.members.iter().filter(|member| is_active(member)) {
        let is_good = disk_of(member).is_some_and(|disk| !bad.contains(&disk));
        if let (true, Some(slot)) = (is_good, member.slot) {
            lost[usize::from(slot)] = false;
        }
    }
    // Parity that is not proven gives nothing back.
    let is_doubtful = status.doubtful_regions.0 > 0;
    volume.geometry().tolerates(&lost) && !(is_doubtful && lost.contains(&true))
}

fn is_untouched(volume: &Volume<Device, SimClock>, bad: &BTreeSet<u32>) -> bool {
    let status = volume.status();
    status.lost_slots.is_empty()
        && status
            .members
            .iter()
            .filter_map(disk_of)
            .all(|disk| !bad.contains(&disk))
}

/// A disk as a member.
fn device(disk: &SimDisk) -> Device {
    BoxedDevice::new(Rc::new(disk.clone()))
}

/// Numbers of the disks under a volume.
fn drives_of(config: &Config, volume: &str) -> BTreeSet<u32> {
    let is_of = |subdisk: &&Subdisk| {
        let plex = subdisk.plex.as_ref().map(|(plex, _)| plex);
        let mut plexes = config.plexes.iter();
        plexes.any(|other| Some(&other.name) == plex && other.volume.as_deref() == Some(volume))
    };
    let subdisks = config.subdisks.iter().filter(is_of);
    subdisks
        .filter_map(|subdisk| labels::drive_number(&subdisk.drive))
        .collect()
}
