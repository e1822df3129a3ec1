//! An arrangement that runs: its world, its disks and the volumes over them.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use plexum_disks::disk::timed::TimedDisk;
use plexum_engine::state::{FailCause, Standing};
use plexum_engine::volume::Announcement;

use super::Setup;
use super::beside::VolumeBeside;
use crate::array::{ArraySpec, DiskSet, Mode, Surroundings, build as make};
use crate::error::LabError;
use crate::iostat::Sampler;
use crate::member::{Member, SimVolume};
use crate::target::Target;
use crate::workload::jobs::Carrier;
use crate::world::World;

/// An arrangement that runs.
pub struct Running {
    /// What it is.
    pub setup: Setup,
    /// Its world.
    pub world: World,
    /// What workloads see; of volumes side by side the first one.
    pub target: Target,
    /// The volume, unless a single disk or several volumes are measured.
    pub volume: Option<Rc<SimVolume>>,
    /// Volumes side by side; empty: there is one.
    pub beside: Vec<RunningVolume>,
    /// Volumes that are its members.
    pub inner: Vec<Rc<SimVolume>>,
    /// Disks with their names, members first.
    pub disks: Vec<(String, TimedDisk)>,
}

/// One of several volumes that run side by side.
pub struct RunningVolume {
    /// What it is.
    pub spec: VolumeBeside,
    /// What its jobs see.
    pub target: Target,
    /// The volume, unless it is a single disk.
    pub volume: Option<Rc<SimVolume>>,
}

impl Running {
    /// All volumes that clients see.
    pub fn volumes(&self) -> impl Iterator<Item = &Rc<SimVolume>> {
        let beside = self.beside.iter().filter_map(|one| one.volume.as_ref());
        self.volume.iter().chain(beside)
    }

    /// The volumes that jobs run on, as these see them.
    #[must_use]
    pub fn carriers(&self) -> Vec<Carrier> {
        let name = |disk: &usize| format!("disk{disk}");
        if self.beside.is_empty() {
            return vec![Carrier {
                name: "all".to_owned(),
                what: self.setup.short_words(),
                target: self.target.clone(),
                jobs: None,
                disks: (0..self.setup.members).map(|disk| name(&disk)).collect(),
            }];
        }
        let beside = self.beside.iter();
        let carriers = beside.map(|one| Carrier {
            name: one.spec.name.clone(),
            what: self.setup.alone(&one.spec).short_words(),
            target: one.target.clone(),
            jobs: Some(one.spec.jobs.clone()),
            disks: one.spec.disks.iter().map(name).collect(),
        });
        carriers.collect()
    }

    /// Begins to sample the disks.
    #[must_use]
    pub fn sampler(&self) -> Sampler {
        Sampler::start(&self.disks, self.world.clock().now_ns())
    }

    /// Members that have left a volume, each with the reason as far as it was announced.
    #[must_use]
    pub fn lost_members(&self) -> Vec<String> {
        let volumes = self.volumes().chain(&self.inner);
        volumes.flat_map(|volume| lost_members(volume)).collect()
    }
}

fn reason(cause: FailCause) -> &'static str {
    match cause {
        FailCause::Gone => "it was gone",
        FailCause::WriteError => "a write failed",
        FailCause::FlushError => "a flush failed",
        FailCause::SuperblockError => "its superblock could not be written",
        FailCause::TimedOut => "it did not answer in time",
        FailCause::ReadErrors => "too many read errors",
        FailCause::Asked => "as asked",
        _ => "for another reason",
    }
}

fn lost_members(volume: &SimVolume) -> Vec<String> {
    let mut lost = Vec::new();
    let mut context = Context::from_waker(Waker::noop());
    while let Poll::Ready(said) = pin!(volume.next_announcement()).poll(&mut context) {
        if let Announcement::MemberFailed { member, cause } = said {
            lost.push(format!("{member} ({})", reason(cause)));
        }
    }
    let members = volume.status().members.into_iter();
    let gone = members.filter(|member| member.standing == Standing::Faulty);
    for name in gone.filter_map(|member| member.name) {
        if !lost.iter().any(|said| said.starts_with(&name)) {
            lost.push(name);
        }
    }
    lost
}

impl Setup {
    /// Builds it, with `spare_count` further disks of the same make (named `spare0` ...).
    ///
    /// # Errors
    /// `Usage` for an impossible arrangement.
    pub fn start(&self, seed: u64, spare_count: usize, mode: Mode) -> Result<Running, LabError> {
        if !self.volumes.is_empty() {
            self.check_beside()?;
        }
        let world = World::new();
        let mode = if self.inner_volumes > 0 {
            Mode::Data
        } else {
            mode
        };
        let mut set = DiskSet::mixed(self.specs(self.members + spare_count)?);
        self.share_buses(&mut set)?;
        let disks = set.make(&world, seed, mode)?;
        let named: Vec<(String, TimedDisk)> = disks
            .iter()
            .enumerate()
            .map(|(index, disk)| match index.checked_sub(self.members) {
                None => (format!("disk{index}"), disk.clone()),
                Some(spare) => (format!("spare{spare}"), disk.clone()),
            })
            .collect();
        if !self.volumes.is_empty() {
            return self.start_beside(world, named, mode);
        }
        let members = named.iter().take(self.members).cloned().collect();
        let (target, volume, inner) = self.over(&world, members, mode)?;
        Ok(Running {
            setup: self.clone(),
            target,
            volume,
            beside: Vec::new(),
            inner,
            world,
            disks: named,
        })
    }

    /// Builds the volumes that are side by side.
    fn start_beside(
        &self,
        world: World,
        disks: Vec<(String, TimedDisk)>,
        mode: Mode,
    ) -> Result<Running, LabError> {
        let mut beside = Vec::new();
        for spec in &self.volumes {
            let own = spec.disks.iter().map(|disk| disks[*disk].clone()).collect();
            let built = self.alone(spec).over(&world, own, mode);
            let (target, volume, _) = built.map_err(|error| match error {
                LabError::Usage(text) => LabError::Usage(format!("{}: {text}", spec.name)),
                other => other,
            })?;
            beside.push(RunningVolume {
                spec: spec.clone(),
                target,
                volume,
            });
        }
        Ok(Running {
            setup: self.clone(),
            target: beside[0].target.clone(), // `check_beside` and its caller: there is one
            volume: None,
            beside,
            inner: Vec::new(),
            world,
            disks,
        })
    }

    /// One volume over these disks, or the first of them: what is seen of it, the volume, and volumes that are members.
    #[allow(clippy::type_complexity)] // three things that belong together for a line
    fn over(
        &self,
        world: &World,
        disks: Vec<(String, TimedDisk)>,
        mode: Mode,
    ) -> Result<(Target, Option<Rc<SimVolume>>, Vec<Rc<SimVolume>>), LabError> {
        let (has_bitmap, log) = self.safeguards()?;
        let (names, members): (Vec<String>, Vec<Member>) = disks
            .into_iter()
            .map(|(name, disk)| (name, Member::Disk(disk)))
            .unzip();
        if self.level == "single" {
            return Ok((Target::device(world, &members[0]), None, Vec::new()));
        }
        let members = if self.inner_volumes > 0 {
            self.nest(world, members)?
        } else {
            members
        };
        let inner = members.iter().filter_map(|member| match member {
            Member::Volume(volume) => Some(Rc::clone(volume)),
            Member::Disk(_) => None,
        });
        let inner = inner.collect();
        let array = ArraySpec {
            has_bitmap,
            log,
            names: if self.inner_volumes > 0 {
                Vec::new()
            } else {
                names
            },
            ..self.array(&self.level, &self.layout, self.strip_bytes)?
        };
        let members = members.into_iter().map(Some).collect();
        let volume = world.run(make(Surroundings::of(world), members, array, mode))??;
        Ok((Target::volume(world, &volume), Some(volume), inner))
    }

    /// Hangs the disks on the buses.
    fn share_buses(&self, set: &mut DiskSet) -> Result<(), LabError> {
        let is_rate = |rate: &f64| (1e4..1e12).contains(rate);
        if let Some(rate) = self.buses.iter().find(|rate| !is_rate(rate)) {
            return Err(LabError::Usage(format!(
                "buses: {rate} is no rate in bytes a second (10 000 to 10^12)"
            )));
        }
        if let Some(bus) = self.bus_of.iter().find(|bus| **bus >= self.buses.len()) {
            return Err(LabError::Usage(format!(
                "bus_of: there is no bus {bus}; buses has {} rates, counted from 0",
                self.buses.len()
            )));
        }
        if self.buses.is_empty() {
            return Ok(());
        }
        let last = self.bus_of.len().saturating_sub(1);
        let bus_of = |disk: usize| self.bus_of.get(disk.min(last)).copied().unwrap_or(0);
        set.buses.clone_from(&self.buses);
        set.bus_of = (0..set.disks.len())
            .map(|disk| Some(bus_of(disk)))
            .collect();
        Ok(())
    }

    /// Volumes over the disks, to be members themselves.
    fn nest(&self, world: &World, members: Vec<Member>) -> Result<Vec<Member>, LabError> {
        let each = members.len() / self.inner_volumes;
        if each == 0 || !members.len().is_multiple_of(self.inner_volumes) {
            return Err(LabError::Usage(format!(
                "{} disks cannot be shared out to {} volumes",
                members.len(),
                self.inner_volumes
            )));
        }
        let mut volumes = Vec::new();
        for (index, disks) in members.chunks(each).enumerate() {
            let last = self.inner_strip_bytes.len().saturating_sub(1);
            let strip = self.inner_strip_bytes.get(index.min(last)).copied();
            let array = self.array(&self.inner_level, "", strip.unwrap_or(64 << 10))?;
            let disks = disks.iter().cloned().map(Some).collect();
            let around = Surroundings::of(world);
            let volume = world.run(make(around, disks, array, Mode::Data))??;
            volumes.push(Member::Volume(volume));
        }
        Ok(volumes)
    }
}
