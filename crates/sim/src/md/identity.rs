//! Who a disk is in an md array: made-up identities, superblocks of the array's own, and what joins it.

use std::cell::Cell;

use plexum_block::clock::Clock;
use plexum_block::wait::first;
use plexum_engine::volume::{MEMBER_TIMEOUT, NewMember, Volume};
use plexum_format::md::{MdVersion, Superblock};
use plexum_md::open::{examine, former_member};

use crate::members::{device_name, remove_former};
use crate::subject::Context;
use plexum_disks::clock::SimClock;
use plexum_disks::disk::SimDisk;
use plexum_disks::rng::mix;

/// A UUID: number 0 is the array's, those of members follow.
pub(crate) fn uuid(seed: u64, number: u32) -> [u8; 16] {
    let number = u64::from(number);
    let (a, b) = (
        mix(seed ^ mix(number)),
        mix(seed.wrapping_add(mix(number + 77))),
    );
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&a.to_le_bytes());
    bytes[8..].copy_from_slice(&b.to_le_bytes());
    bytes
}

/// The version that a plan calls by its number.
pub(crate) fn version(metadata: u32) -> MdVersion {
    match metadata {
        90 => MdVersion::V090,
        100 => MdVersion::V10,
        110 => MdVersion::V11,
        _ => MdVersion::V12,
    }
}

/// Superblock of a disk when it belongs to this array.
pub(crate) async fn own_superblock(
    context: &Context,
    array: [u8; 16],
    disk: &SimDisk,
) -> Option<Superblock> {
    let examined = examine(disk, &context.pool, 0, &device_name(disk))
        .await
        .ok()?;
    (examined.superblock.array_uuid == array).then_some(examined.superblock)
}

/// Identities of disks that join an array, in turn.
#[derive(Default)]
pub(crate) struct Identities(Cell<u32>);

impl Identities {
    /// What the volume is given when a disk is added. Nobody waits for ever for a disk that does not answer.
    pub(crate) async fn new_member(
        &self,
        context: &Context,
        volume: &Volume<SimDisk, SimClock>,
        disk: SimDisk,
    ) -> Result<NewMember<SimDisk>, String> {
        remove_former(volume, disk.number()).await?;
        let new = Cell::new(None);
        let looking = async { new.set(Some(self.look_at(context, &disk).await)) };
        first(looking, context.clock.sleep(MEMBER_TIMEOUT)).await;
        new.into_inner().ok_or("the disk does not answer".into())
    }

    async fn look_at(&self, context: &Context, disk: &SimDisk) -> NewMember<SimDisk> {
        let superblock = own_superblock(context, uuid(context.seed, 0), disk).await;
        let former = match superblock {
            Some(superblock) => former_member(disk, &context.pool, &superblock).await,
            None => None,
        };
        self.0.set(self.0.get() + 1);
        let now = context.clock.now_ns();
        NewMember {
            name: device_name(disk),
            device: disk.clone(),
            identity: uuid(context.seed ^ now, 1000 + self.0.get()),
            is_write_mostly: false,
            former,
        }
    }
}
