//! How disks are named to the engine, and found again in what a volume says of its members.

use plexum_block::clock::Clock;
use plexum_block::device::Device;
use plexum_engine::mutant::DeliberateBug;
use plexum_engine::state::{MemberId, Standing};
use plexum_engine::upkeep::Pace;
use plexum_engine::volume::{MemberStatus, Volume, VolumeOptions, VolumeStatus};

use crate::subject::Context;
use plexum_disks::disk::SimDisk;

/// The disk as the engine knows it.
pub(crate) fn device_name(disk: &SimDisk) -> String {
    format!("disk {}", disk.number())
}

/// Number of the disk that the engine knows by this name.
pub(crate) fn disk_named(name: &str) -> Option<u32> {
    name.strip_prefix("disk ")?.parse().ok()
}

/// Number of a member's disk.
pub(crate) fn disk_of(member: &MemberStatus) -> Option<u32> {
    member.name.as_deref().and_then(disk_named)
}

pub(crate) fn is_active(member: &MemberStatus) -> bool {
    member.standing == Standing::Active
}

pub(crate) fn is_filled(member: &MemberStatus) -> bool {
    matches!(member.standing, Standing::Rebuilding { .. })
}

/// Whether it is of use, or will be.
pub(crate) fn is_live(member: &MemberStatus) -> bool {
    is_active(member) || is_filled(member) || member.standing == Standing::Spare
}

/// The active member on a disk.
pub(crate) fn active_on(status: &VolumeStatus, disk: u32) -> Option<MemberId> {
    let mut members = status.members.iter();
    let found = members.find(|member| is_active(member) && disk_of(member) == Some(disk));
    found.map(|member| member.id)
}

/// What every volume is opened with.
pub(crate) fn volume_options(context: &Context) -> VolumeOptions {
    VolumeOptions {
        pace: Pace {
            floor_bytes_per_s: context.pace_bytes_per_s,
            ..Pace::default()
        },
        bug: DeliberateBug::new(context.mutant),
        thresholds: context.thresholds,
        ..VolumeOptions::default()
    }
}

/// An earlier record of the same disk that is of no use any more is taken out first, as an administrator would.
pub(crate) async fn remove_former<D: Device, C: Clock>(
    volume: &Volume<D, C>,
    disk: u32,
) -> Result<(), String> {
    let members = volume.status().members;
    let is_former = |member: &&MemberStatus| {
        member.standing == Standing::Faulty && disk_of(member) == Some(disk)
    };
    match members.iter().find(is_former) {
        Some(member) => {
            let removed = volume.remove(member.id).await;
            removed.map_err(|error| error.to_string())
        }
        None => Ok(()),
    }
}
