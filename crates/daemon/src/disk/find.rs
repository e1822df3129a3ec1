//! From the path of a member to its disk.

use std::os::unix::fs::{FileTypeExt, MetadataExt};

use plexum_inventory::{
    Apart, DeviceNumber, Duplicate, Identity, Inventory, Repeated, Roots, device_name,
};

/// The disk of a member, as it is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundDisk {
    /// Who it is.
    pub identity: Identity,
    /// Who else has its serial, in one sentence; none while nobody does.
    pub twins: Option<String>,
}

/// The disks of members, in their order; none for files, addresses, and devices that are no disk. Reads sysfs, which
/// may take its time.
#[must_use]
pub fn find_disks(roots: &Roots, members: &[String]) -> Vec<Option<FoundDisk>> {
    let found: Vec<Option<Identity>> = members.iter().map(|one| find(roots, one)).collect();
    let is_any = found.iter().any(Option::is_some);
    let all = is_any.then(|| Inventory::read(roots).ok()).flatten();
    let duplicates = all.map(|all| all.duplicates()).unwrap_or_default();
    let with_twins = |identity: Identity| FoundDisk {
        twins: duplicates
            .iter()
            .find(|duplicate| confuses(duplicate, &identity))
            .map(ToString::to_string),
        identity,
    };
    found
        .into_iter()
        .map(|identity| identity.map(with_twins))
        .collect()
}

/// Whether somebody who looks for the disk by its serial would find another one.
fn confuses(duplicate: &Duplicate, identity: &Identity) -> bool {
    matches!(duplicate.repeated, Repeated::Serial(_))
        && duplicate.apart != Apart::OneDisk
        && duplicate.disks.contains(&identity.name)
}

fn find(roots: &Roots, member: &str) -> Option<Identity> {
    let meta = std::fs::metadata(member).ok()?;
    if !meta.file_type().is_block_device() {
        return None;
    }
    let number = DeviceNumber {
        major: rustix::fs::major(meta.rdev()),
        minor: rustix::fs::minor(meta.rdev()),
    };
    Identity::read(roots, &device_name(roots, number)?).ok()
}
