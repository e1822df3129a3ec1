//! An array between two geometries, to be written to: opened where a reshape stands, or where it begins.
//!
//! Invariants:
//! - nothing is written here: that a reshape has begun becomes durable with the first commit, before the first row
//!   moves (R1);
//! - where the superblocks say that it stands is checked before anything is read by it;
//! - both volumes use the same members: a member that is complete in one alone takes part in that one alone (R12).

use std::cell::Cell;
use std::rc::Rc;

use plexum_format::SECTOR_BYTES;
use plexum_format::md::{Role, Superblock};

use super::alter::not_as_planned;
use super::fields::{self, reshaped_offset_sectors};
use super::ledger::{Moving, Progress, Superblocks};
use super::plan::{Move, Plan};
use super::serve::Reshaping;
use super::shape::{Relabel, Shape};
use crate::adapter::{Due, MdMetadata};
use crate::assemble::{
    AssembledMember, AssembledReshape, AssembledStanding, Assembly, Examined, assemble_with,
};
use crate::open::{
    Found, OpenError, OpenRequest, examine_as, goal_of, is_uneven, load_regions, options_of,
    read_bad, volume_name,
};
use plexum_block::buf::BufPool;
use plexum_block::clock::Clock;
use plexum_block::device::{Device, IoError};
use plexum_block::ranges::RangeSet;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::migrate::{
    Bond, Direction, Migration, MigrationParts, Position, Window, WindowSpec,
};
use plexum_engine::state::{MemberId, MemberRecord, Standing};
use plexum_engine::volume::{DrivePart, Volume, VolumeOptions, VolumeParts};
use plexum_layout::Geometry;

/// Volume bytes that are moved before the position follows: about what members on disk do in a tenth of a second, for
/// so long may a request to them have to wait.
const STEP_BYTES: u64 = 16 << 20;

/// A reshape that is to begin.
#[derive(Clone, Debug)]
pub struct Beginning {
    /// At once, before anything moves.
    pub relabel: Option<Relabel>,
    /// What moves.
    pub movement: Move,
}

impl Beginning {
    /// Of a plan; `None` where nothing moves.
    #[must_use]
    pub fn of(plan: &Plan) -> Option<Self> {
        Some(Self {
            relabel: plan.first.clone(),
            movement: plan.movement.clone()?,
        })
    }

    /// Whether an array is what it begins with.
    fn fits(&self, superblock: &Superblock) -> bool {
        let first = self.relabel.as_ref().map(|relabel| relabel.before);
        let before = first.unwrap_or(self.movement.before);
        superblock.reshape.is_none() && Shape::of(superblock) == Some(before)
    }

    /// What the superblocks are to say.
    fn put(&self, examined: &mut [Examined]) {
        for member in &mut *examined {
            if let Some(relabel) = &self.relabel {
                fields::relabel(&mut member.superblock, relabel);
            }
            fields::begin(&mut member.superblock, &self.movement);
        }
        let newest = examined
            .iter()
            .max_by_key(|member| member.superblock.events.0);
        let Some(newest) = newest.map(|member| member.superblock.clone()) else {
            return;
        };
        let is_spare =
            |member: &&Examined| newest.role_of(member.superblock.dev_number) == Role::Spare;
        let mut spares: Vec<u32> = examined
            .iter()
            .filter(is_spare)
            .map(|member| member.superblock.dev_number)
            .collect();
        spares.sort_unstable();
        let (old, new) = (
            self.movement.before.member_count,
            self.movement.after.member_count,
        );
        let is_free = |slot: &u16| {
            !newest
                .roles
                .iter()
                .any(|role| matches!(role, Role::Active(other) if other.0 == *slot))
        };
        let given: Vec<(u32, u16)> = spares.into_iter().zip((0..new).filter(is_free)).collect();
        let mut superblocks: Vec<Superblock> = examined
            .iter()
            .map(|member| member.superblock.clone())
            .collect();
        fields::give_slots(&mut superblocks, &given);
        for (member, mut superblock) in examined.iter_mut().zip(superblocks) {
            let number = superblock.dev_number;
            let is_filled = given
                .iter()
                .any(|(dev_number, slot)| *dev_number == number && *slot < old);
            superblock.rebuild_offset_sectors = is_filled.then_some(0); // R12
            if given.iter().any(|(dev_number, _)| *dev_number == number) {
                member.bitmap = None; // as it was when it joined: it gets the others' bits
            }
            member.superblock = superblock;
        }
    }
}

/// Opens an array that is being reshaped, or begins to be. `devices` are shared handles of all members.
///
/// # Errors
/// `OpenError`; nothing was written.
pub async fn open_reshaping<D: Device + Clone, C: Clock + Clone>(
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    mut request: OpenRequest,
    beginning: Option<&Beginning>,
) -> Result<(Reshaping<D, C>, Assembly), OpenError> {
    let mut examined = Vec::new();
    for (index, (name, device)) in devices.iter().enumerate() {
        examined.push(examine_as(device, &pool, index, name, request.version).await?);
    }
    let mut found = Found::of(examined);
    if let Some(alteration) = &request.alteration {
        found.alter(alteration)?;
    }
    if let Some(beginning) = beginning
        && !found.newest().is_some_and(|newest| beginning.fits(newest))
    {
        return Err(not_as_planned());
    }
    let (mut examined, due) = match beginning {
        Some(_) => (found.examined, Due::Yes),
        None => (found.examined, found.due),
    };
    if let Some(beginning) = beginning {
        beginning.put(&mut examined);
    }
    request.assemble.goes_on_reshaping = true;
    let assembly = assemble_with(&examined, &request.assemble, request.volume.bug)
        .map_err(|error| OpenError::Assemble(Box::new(error)))?;
    let Some(reshape) = assembly.reshape.clone() else {
        return Err(OpenError::NotSupported(
            "no reshape is under way".to_owned(),
        ));
    };
    if beginning.is_some() && (is_uneven(&assembly) || assembly.is_dirty()) {
        return Err(OpenError::NotSupported(
            "a reshape begins on an array that was stopped cleanly, and is in sync".to_owned(),
        ));
    }
    let opening = Opening {
        devices,
        clock,
        pool,
        request,
        examined,
        assembly,
        reshape,
        due,
        is_beginning: beginning.is_some(),
    };
    let reshaping = opening.open().await?;
    Ok((reshaping, opening.assembly))
}

/// What both volumes are made of.
struct Opening<D, C> {
    devices: Vec<(String, D)>,
    clock: C,
    pool: BufPool,
    request: OpenRequest,
    examined: Vec<Examined>,
    assembly: Assembly,
    reshape: AssembledReshape,
    due: Due,
    is_beginning: bool,
}

/// Members of one volume.
struct Members<D> {
    parts: Vec<DrivePart<D>>,
    /// The caller's numbers.
    indices: Vec<usize>,
    /// Those that had nothing in the old geometry.
    filled: Vec<MemberId>,
}

impl<D: Device + Clone, C: Clock + Clone> Opening<D, C> {
    async fn open(&self) -> Result<Reshaping<D, C>, OpenError> {
        let (old, new) = (self.assembly.geometry.clone(), self.reshape.after.clone());
        let window = self.window(&old, &new)?;
        let before = self.members(Which::Before, &old).await?;
        let after = self.members(Which::After, &new).await?;
        let who = |index: &usize| {
            let found = after.indices.iter().position(|other| other == index);
            let found = found.ok_or_else(|| {
                OpenError::NotSupported(format!(
                    "{} is not in the new array",
                    self.devices[*index].0
                ))
            });
            found.map(|at| MemberId(at as u16)) // members are few
        };
        let who = before
            .indices
            .iter()
            .map(who)
            .collect::<Result<Vec<_>, _>>()?;
        let border_bytes = self.reshape.position_bytes;
        let progress = Rc::new(Cell::new(Progress::At(border_bytes / SECTOR_BYTES)));
        let options = options_of(self.request.volume.clone(), &self.assembly);
        let (after, is_doubtful, doubt) = self.after(after, &new, &progress, &options).await;
        let before = self.before(before, &old, doubt, options);
        let after = Rc::new(after);
        let migration = Migration::new(MigrationParts {
            before,
            after: Rc::clone(&after),
            bond: Bond::Lent(who),
            window,
            ledger: Superblocks { after, progress },
            position: Position {
                border_bytes,
                kept_bytes: 0,
            },
            is_doubtful,
        });
        let unfit = |error: plexum_engine::migrate::Unfit| {
            OpenError::NotSupported(format!("a reshape is under way, and {error}"))
        };
        Ok(Reshaping {
            migration: migration.map_err(unfit)?,
        })
    }

    /// How the rows lie over each other, with the smallest gap that any member has.
    fn window(&self, old: &Geometry, new: &Geometry) -> Result<Window, OpenError> {
        let refuse =
            |text: String| OpenError::NotSupported(format!("a reshape is under way, and {text}"));
        let used = self
            .assembly
            .members
            .iter()
            .filter(|member| member.slot.is_some());
        let shifts = used
            .map(|member| member.reshaped_offset_bytes as i64 - member.data_offset_bytes as i64);
        let shifts: Vec<i64> = shifts.collect();
        let direction = match self.reshape.is_backwards {
            true => Direction::Down,
            false => Direction::Up,
        };
        let is_wrong = |shift: &i64| match direction {
            Direction::Up => *shift > 0,
            Direction::Down => *shift < 0,
        };
        if shifts.iter().any(is_wrong) {
            return Err(refuse("the data of a member move the wrong way".to_owned()));
        }
        Window::new(&WindowSpec {
            before: old,
            after: new,
            direction,
            gap_bytes: shifts
                .iter()
                .map(|shift| shift.unsigned_abs())
                .min()
                .unwrap_or(0),
            step_bytes: self.step_bytes(),
        })
        .map_err(|unfit| refuse(unfit.to_string()))
    }

    fn step_bytes(&self) -> u64 {
        let asked = self.request.volume.thresholds.migration_step_bytes;
        let usual = plexum_engine::threshold::Thresholds::default().migration_step_bytes;
        if asked == usual { STEP_BYTES } else { asked }
    }

    /// Who takes part in one of the volumes, and with what.
    async fn members(&self, which: Which, geometry: &Geometry) -> Result<Members<D>, OpenError> {
        let mut members = Members {
            parts: Vec::new(),
            indices: Vec::new(),
            filled: Vec::new(),
        };
        for member in &self.assembly.members {
            let Some((record, is_filled)) = self.record(member, which, geometry) else {
                continue;
            };
            let (name, device) = &self.devices[member.index];
            let superblock = &self.examined[member.index].superblock;
            let bad = match read_bad(device, &self.pool, superblock).await {
                Err(_) if record.slot.is_none() => RangeSet::new(), // a spare holds nothing: its list begins anew
                read => read.map_err(|error| error.of_member(member.index))?,
            };
            let (start, bad) = match which {
                Which::Before => (superblock.data_offset_sectors, bad),
                Which::After => {
                    let start = reshaped_offset_sectors(superblock);
                    (start, moved(&bad, [superblock.data_offset_sectors, start]))
                }
            };
            let start = start * SECTOR_BYTES;
            let end = member
                .data_offset_bytes
                .saturating_add(member.data_size_bytes);
            let needed = start.saturating_add(geometry.component_bytes());
            let is_outside = end > device.info().size_bytes || start > end;
            if is_outside || record.slot.is_some() && needed > end {
                return Err(OpenError::Io {
                    index: member.index,
                    error: IoError::OutOfRange,
                });
            }
            if is_filled {
                members.filled.push(MemberId(members.parts.len() as u16)); // members are few
            }
            members.indices.push(member.index);
            members.parts.push(DrivePart {
                name: name.clone(),
                device: Some(device.clone()),
                record,
                data: start..end,
                bad,
            });
        }
        Ok(members)
    }

    /// What a member is in one of the volumes, and whether it had nothing in the old geometry.
    fn record(
        &self,
        member: &AssembledMember,
        which: Which,
        geometry: &Geometry,
    ) -> Option<(MemberRecord, bool)> {
        let record = |slot, standing| MemberRecord {
            slot,
            standing,
            is_replacement: false,
            is_write_mostly: member.is_write_mostly,
        };
        let is_filled = matches!(member.standing, AssembledStanding::Rebuilding { .. });
        match (which, &member.standing) {
            (Which::Before, AssembledStanding::Active) => {
                let slot = member
                    .slot
                    .filter(|slot| usize::from(*slot) < geometry.member_count())?;
                Some((record(Some(slot), Standing::Active), false))
            }
            (Which::Before, AssembledStanding::Rebuilding { .. }) => {
                let is_filled = self.has_filled_before(member);
                let slot = member.slot.filter(|_| is_filled)?;
                Some((record(Some(slot), Standing::Active), false))
            }
            (Which::Before, _) => None,
            (Which::After, AssembledStanding::Active) => {
                Some((record(member.slot, Standing::Active), false))
            }
            (
                Which::After,
                AssembledStanding::Rebuilding {
                    valid_below_bytes, ..
                },
            ) if self.has_filled_before(member) => {
                let standing = Standing::Rebuilding {
                    valid_below_bytes: *valid_below_bytes,
                    by_bitmap: false,
                };
                Some((record(member.slot, standing), false))
            }
            (Which::After, AssembledStanding::Rebuilding { .. }) => {
                // Where nothing has moved yet nobody lacks anything.
                match self.is_beginning || self.reshape.has_filled(member) {
                    true => Some((record(member.slot, Standing::Active), is_filled)),
                    false => Some((record(None, Standing::Spare), false)), // rebuilt when all has moved
                }
            }
            (Which::After, AssembledStanding::Spare) => {
                Some((record(None, Standing::Spare), false))
            }
            (Which::After, _) => None,
        }
    }

    /// Whether a member was filled before the reshape was turned round.
    fn has_filled_before(&self, member: &AssembledMember) -> bool {
        let reshape = &self.reshape;
        !self.is_beginning && reshape.has_filled_before(member, &self.assembly.geometry)
    }

    async fn after(
        &self,
        members: Members<D>,
        geometry: &Geometry,
        progress: &Rc<Cell<Progress>>,
        options: &VolumeOptions,
    ) -> (Volume<D, C>, bool, Regions) {
        let (bitmap, regions) = load_regions(
            &self.devices,
            &self.pool,
            &self.examined,
            &self.assembly,
            geometry,
        )
        .await;
        let doubt = without_bits(&regions, self.sector_bytes());
        let is_doubtful = doubt.doubtful_count() > 0;
        let superblock = |index: &usize| Some(self.examined[*index].superblock.clone());
        let superblocks = members.indices.iter().map(superblock).collect();
        let goals = members
            .indices
            .iter()
            .map(|index| self.examined[*index].goal.clone());
        let goal = self.request.goal.clone();
        let goal = goal.or_else(|| goal_of(&self.examined, &self.assembly));
        let metadata = MdMetadata::new(superblocks, bitmap).leading(goals.collect(), goal);
        let moving = Moving {
            progress: Rc::clone(progress),
            data_count: geometry.data_count() as u64,
            filled: members.filled,
            is_down: self.reshape.is_backwards,
        };
        let volume = Volume::new(VolumeParts {
            name: self.name(),
            geometry: geometry.clone(),
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            members: members.parts,
            metadata: Box::new(metadata.reshaping(moving, self.due)),
            regions,
            event_count: self.assembly.array.events.0,
            is_uneven: is_uneven(&self.assembly),
            log: None,
            resync_start_bytes: self.assembly.resync_start_bytes,
            options: options.clone(),
        });
        (volume, is_doubtful, doubt)
    }

    fn before(
        &self,
        members: Members<D>,
        geometry: &Geometry,
        doubt: Regions,
        options: VolumeOptions,
    ) -> Volume<D, C> {
        Volume::new(VolumeParts {
            name: self.name(),
            geometry: geometry.clone(),
            clock: self.clock.clone(),
            pool: self.pool.clone(),
            members: members.parts,
            metadata: Box::new(PlainMetadata::new("md")),
            regions: doubt,
            event_count: 0,
            is_uneven: false,
            log: None,
            resync_start_bytes: None, // the new volume says so to whoever starts it
            options,
        })
    }

    fn name(&self) -> String {
        let asked = self.request.name.clone();
        asked.unwrap_or_else(|| volume_name(&self.assembly))
    }

    fn sector_bytes(&self) -> u32 {
        let sectors = self
            .devices
            .iter()
            .map(|(_, device)| device.info().sector_bytes);
        sectors.max().unwrap_or(512)
    }
}

/// One of the two volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Before,
    After,
}

/// Bad ranges counted from another beginning of the data.
fn moved(bad: &RangeSet, [from_sectors, to_sectors]: [u64; 2]) -> RangeSet {
    let mut moved = RangeSet::new();
    let at = |bytes: u64| {
        (bytes + from_sectors * SECTOR_BYTES).saturating_sub(to_sectors * SECTOR_BYTES)
    };
    for range in bad.iter() {
        let range = at(range.start)..at(range.end);
        if !range.is_empty() {
            moved.insert(range);
        }
    }
    moved
}

/// The same doubt, without bits that anybody would write.
fn without_bits(regions: &Regions, sector_bytes: u32) -> Regions {
    let mut copy = Regions::new(
        regions.sync_bytes(),
        regions.region_bytes(),
        sector_bytes,
        false,
    );
    let mut next = regions.next_doubtful(0);
    while let Some(index) = next {
        copy.doubt(index);
        next = match index + 1 < regions.count() {
            true => regions.next_doubtful(index + 1),
            false => None,
        };
    }
    copy
}
