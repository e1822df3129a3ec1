//! Members that were being filled: rebuilt, or put in the place of another one.

use super::*;

#[test]
fn a_half_rebuilt_member_is_valid_below_its_offset_only() {
    let mut members = raid5(3);
    members[2].superblock.rebuild_offset_sectors = Some(128);
    members[2].superblock.is_bitmap_rebuild = true;
    let by = |members: &[Examined]| match standing(&started(members, PLAIN), 2) {
        AssembledStanding::Rebuilding {
            valid_below_bytes,
            by_bitmap,
        } => (*valid_below_bytes, *by_bitmap),
        other => panic!("{other:?}"),
    };
    assert_eq!(by(&members), (65536, false), "there is no bitmap to go by");
    add_bitmaps(&mut members, 3);
    assert_eq!(by(&members), (65536, true));
    members[2].superblock.rebuild_offset_sectors = Some(u64::MAX);
    assert_eq!(by(&members).0, COMPONENT_SECTORS * 512);
    // It does not stand in for another one.
    assert_eq!(refused(&members[1..], FORCED), ("too_few_members", 4));
    members
        .iter_mut()
        .for_each(|m| m.superblock.resync_offset_sectors = Some(0));
    assert_eq!(refused(&members, PLAIN), ("dirty_degraded", 3));
}

/// RAID-1 of two, and a third member that replaces the second.
fn replacing(rebuilt_sectors: Option<u64>) -> Vec<Examined> {
    let mut members = array(1, 0, 2);
    let mut new = member(1, 0, 2, 2);
    new.superblock.is_replacement = true;
    new.superblock.rebuild_offset_sectors = rebuilt_sectors;
    members.push(new);
    for position in 0..3 {
        record(&mut members, &[position], 2, active(1));
    }
    members
}

#[test]
fn a_replacement_copies_the_old_member_and_carries_on_without_it() {
    let mut members = replacing(Some(64));
    members.rotate_right(1);
    let assembly = started(&members, PLAIN);
    assert!(!assembly.is_degraded && assembly.members[0].is_replacement);
    assert_eq!(
        *standing(&assembly, 0),
        AssembledStanding::Rebuilding {
            valid_below_bytes: 32768,
            by_bitmap: false
        }
    );
    assert_eq!(*standing(&assembly, 2), AssembledStanding::Active);

    let members = replacing(Some(64));
    let without_old = [members[0].clone(), members[2].clone()];
    assert_eq!(refused(&without_old, PLAIN), ("degraded_start", 3));
    let assembly = started(&without_old, DEGRADED);
    assert!(assembly.is_degraded && !assembly.members[1].is_replacement);
    // Without the new one nothing is lost.
    assert!(!started(&members[..2], PLAIN).is_degraded);
}

#[test]
fn a_complete_replacement_serves_when_the_old_member_is_gone() {
    let members = replacing(None);
    let whole = COMPONENT_SECTORS * 512;
    let expected = AssembledStanding::Rebuilding {
        valid_below_bytes: whole,
        by_bitmap: false,
    };
    assert_eq!(*standing(&started(&members, PLAIN), 2), expected);
    let assembly = started(&[members[0].clone(), members[2].clone()], PLAIN);
    assert!(
        !assembly.is_degraded
            && *standing(&assembly, 1) == AssembledStanding::Active
            && !assembly.members[1].is_replacement
    );
}
