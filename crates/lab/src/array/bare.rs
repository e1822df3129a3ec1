//! A volume without metadata, for strips that no format we write can express.
//!
//! Invariant: only organisations without redundancy, so there is nothing to be recorded.

use std::rc::Rc;

use plexum_block::device::Device;
use plexum_block::ranges::RangeSet;
use plexum_engine::intent::regions::Regions;
use plexum_engine::metadata::PlainMetadata;
use plexum_engine::state::{MemberRecord, Standing};
use plexum_engine::volume::{DrivePart, Volume, VolumeOptions, VolumeParts};
use plexum_layout::{Geometry, GeometrySpec};

use super::{ArraySpec, Surroundings};
use crate::error::LabError;
use crate::member::{Member, SimVolume};

/// Region size of a volume that has no regions.
const REGION_BYTES: u64 = 64 << 10;

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
            name: spec.name_of(usize::from(slot)),
            device: Some(device),
            record: MemberRecord {
                slot: Some(slot),
                standing: Standing::Active,
                is_write_mostly: false,
                is_replacement: false,
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
        metadata: Box::new(PlainMetadata::new("none")),
        regions: Regions::new(0, REGION_BYTES, 512, false),
        event_count: 1,
        is_uneven: false,
        log: None,
        resync_start_bytes: None,
        options: VolumeOptions {
            balance: spec.balance,
            member_timeout: super::MEMBER_TIMEOUT,
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
