//! What an administrator can do with a pool.

use plexum_disks::rng::Rng;
use plexum_pool::GroupKind;

/// One thing that is done. Numbers choose among what is there then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A snapshot of a volume.
    Snapshot(usize),
    /// One snapshot less.
    DestroySnapshot(u64),
    /// A volume goes back to its last snapshot.
    Rollback(usize),
    /// A volume that is made of a snapshot.
    Clone(u64),
    /// One of those less.
    DestroyClone(u64),
    /// A member is taken out.
    Offline(usize),
    /// All that were taken out come back.
    Online,
    /// A disk that nobody has takes the place of a member.
    Replace(usize),
    /// Everything is read and mended.
    Scrub,
    /// A disk that nobody has becomes a side beside a member.
    Attach(usize),
    /// A side of a mirror is one no more.
    Detach(usize),
    /// Disks that nobody has become a group of this kind.
    AddGroup(GroupKind),
}

/// What a seed has an administrator do.
/// `counts`: of volumes, and of members.
pub(super) fn draw_deed(rng: &mut Rng, counts: (usize, usize)) -> Deed {
    let volume = rng.below(counts.0 as u64) as usize;
    let slot = rng.below(counts.1 as u64) as usize;
    let number = rng.below(1 << 16);
    match rng.below(16) {
        0..=4 => Deed::Snapshot(volume),
        5..=6 => Deed::DestroySnapshot(number),
        7..=8 => Deed::Rollback(volume),
        9 => Deed::Clone(number),
        10 => Deed::DestroyClone(number),
        11 => Deed::Offline(slot),
        12 => Deed::Online,
        13..=14 => Deed::Replace(slot),
        _ => Deed::Scrub,
    }
}

/// Now and then something that changes how the pool is put together, after another deed. It is drawn from a stream of
/// its own, so that everything else of a seed stays as it was.
pub(super) fn draw_change(rng: &mut Rng, members: usize) -> Option<Deed> {
    let slot = rng.below(members as u64) as usize;
    match rng.below(16) {
        0..=1 => Some(Deed::Attach(slot)),
        2 => Some(Deed::Detach(slot)),
        3 => Some(Deed::AddGroup(
            *rng.pick(&[GroupKind::Single, GroupKind::Mirror]),
        )),
        _ => None,
    }
}
