//! A volume without metadata, for strips that no format we write can express.
//!
//! Invariant: only organisations without redundancy, so there is nothing to be recorded.

use std::rc::Rc;

use plexum_engine::device::{Device, DeviceInfo};
use plexum_engine::intent::regions::Regions;
use plexum_engine::meta::adapter::{
    BitmapPlan, CommitView, Metadata, MetadataWrite, NewMemberPlace,
};
use plexum_engine::plex::layout::{Geometry, GeometrySpec};
use plexum_engine::ranges::RangeSet;
use plexum_engine::state::{MemberId, MemberRecord, Standing};
use plexum_engine::volume::{DrivePart, Volume, VolumeOptions, VolumeParts};

use super::{ArraySpec, Surroundings};
use crate::error::LabError;
use crate::member::{Member, SimVolume};

/// Region size of a volume that has no regions.
const REGION_BYTES: u64 = 64 << 10;

struct NoMetadata;

impl Metadata for NoMetadata {
    fn format_name(&self) -> String {
        "none".to_owned()
    }
    fn superblock(
        &mut self,
        _member: MemberId,
        _view: &CommitView<'_>,
        _bad: &RangeSet,
        _info: &DeviceInfo,
    ) -> Vec<MetadataWrite> {
        Vec::new()
    }
    fn has_commits(&self) -> bool {
        false
    }
    fn has_room_for_bad(&self, _member: MemberId, _bad: &RangeSet) -> bool {
        false
    }
    fn bitmap_offset_bytes(&self, _member: MemberId) -> Option<u64> {
        None
    }
    fn bitmap_header(&self, _event_count: u64) -> Vec<u8> {
        Vec::new()
    }
    fn note_whole(&mut self, _event_count: u64) -> bool {
        false
    }
    fn events_cleared(&self) -> u64 {
        0
    }
    fn plan_bitmap(
        &self,
        _sync_bytes: u64,
        _region_bytes: Option<u64>,
        _event_count: u64,
    ) -> Result<BitmapPlan, String> {
        Err("a volume without metadata has no bitmap".to_owned())
    }
    fn set_bitmap(&mut self, _plan: Option<&BitmapPlan>) {}
    fn superblock_hash(&self, _member: MemberId) -> [u8; 16] {
        [0; 16]
    }
    fn add_member(
        &mut self,
        _member: MemberId,
        _identity: [u8; 16],
        _info: &DeviceInfo,
    ) -> Result<NewMemberPlace, String> {
        Err("a volume without metadata takes no members".to_owned())
    }
    fn forget_member(&mut self, _member: MemberId) {}
}

/// Puts the volume together.
///
/// # Errors
/// `Usage` when members and strip size do not fit together.
pub(super) fn build(
    around: Surroundings,
    members: Vec<Option<Member>>,
    spec: &ArraySpec,
) -> Result<Rc<SimVolume>, LabError> {
    let refused = |error: &dyn std::fmt::Display| LabError::Usage(error.to_string());
    let devices: Vec<Member> = members.into_iter().flatten().collect();
    let smallest = devices.iter().map(|device| device.info().size_bytes).min();
    let member_bytes = smallest.unwrap_or(0) / spec.strip_bytes.max(1) * spec.strip_bytes;
    let geometry = Geometry::new(&GeometrySpec {
        organisation: spec.organisation,
        member_count: u16::try_from(devices.len()).map_err(|error| refused(&error))?,
        strip_bytes: spec.strip_bytes,
        component_bytes: member_bytes,
        member_sizes_bytes: Vec::new(),
    })
    .map_err(|error| refused(&error))?;
    let parts = devices
        .into_iter()
        .zip(0u16..)
        .map(|(device, slot)| DrivePart {
            name: format!("disk{slot}"),
            device: Some(device),
            record: MemberRecord {
                slot: Some(slot),
                standing: Standing::Active,
                is_write_mostly: false,
                is_replacement: false,
                is_replacing: false,
            },
            data: 0..member_bytes,
            bad: RangeSet::new(),
        })
        .collect();
    let volume = Rc::new(Volume::new(VolumeParts {
        name: "lab".to_owned(),
        geometry,
        clock: around.clock,
        pool: around.pool,
        members: parts,
        metadata: Box::new(NoMetadata),
        regions: Regions::new(0, REGION_BYTES, 512, false),
        event_count: 1,
        is_uneven: false,
        log: None,
        resync_start_bytes: None,
        options: VolumeOptions {
            balance: spec.balance,
            ..VolumeOptions::default()
        },
    }));
    let served = Rc::clone(&volume);
    drop(
        around
            .spawner
            .spawn(async move { served.run_background().await }),
    );
    Ok(volume)
}
