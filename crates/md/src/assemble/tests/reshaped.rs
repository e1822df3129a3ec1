//! Arrays in the middle of a reshape: what may be read of them.

use super::*;
use crate::open::Found;
use crate::reshape::{Alteration, Relabel, Shape};

const READ: Options = Options {
    read_only: true,
    ..PLAIN
};

/// Strips of 16 sectors; `before` members become `after`, without a shift where `shift_sectors` is `None`.
fn reshaping(
    before: u16,
    after: u16,
    position_sectors: u64,
    shift_sectors: Option<i32>,
) -> Vec<Examined> {
    let mut members = raid5(before.max(after));
    for member in &mut members {
        member.superblock.member_count = after.into();
        member.superblock.reshape = Some(Reshape {
            position_sectors,
            member_count_change: i32::from(after) - i32::from(before),
            new_level: 5,
            new_layout: 0,
            new_strip_sectors: 16,
            new_offset_sectors: shift_sectors,
            is_marked_backwards: false,
        });
    }
    members
}

#[test]
fn in_place_everything_after_the_position_is_in_doubt_unless_the_next_row_lies_on_what_is_done() {
    let torn = |members: &[Examined]| match assemble(members, &READ) {
        Ok(assembly) => {
            assert!(assembly.reshape.unwrap().torn.is_none());
            None
        }
        Err(error) => {
            assert_eq!((error.code.slug(), error.code.exit()), ("reshape_torn", 3));
            let forced = Options {
                force: true,
                ..READ
            };
            let torn = started(members, forced).reshape.unwrap().torn.unwrap();
            Some((torn.start / 512, torn.end / 512))
        }
    };
    // As many data members as before: never, until the end.
    let whole = 2 * COMPONENT_SECTORS;
    assert_eq!(torn(&reshaping(3, 3, 640, None)), Some((640, whole)));
    assert_eq!(torn(&reshaping(3, 3, whole, None)), None);
    assert_eq!(
        torn(&reshaping(3, 3, 640, Some(16))),
        None,
        "with a shift the position decides"
    );
    // More: only the beginning.
    assert_eq!(torn(&reshaping(3, 4, 0, None)), Some((0, 192)));
    assert_eq!(torn(&reshaping(3, 4, 96, None)), None);
    // Fewer: only what comes last, at the beginning.
    assert_eq!(torn(&reshaping(4, 3, 960, None)), None);
    assert_eq!(torn(&reshaping(4, 3, 64, None)), Some((0, 64)));
}

#[test]
fn with_a_backup_file_a_reshape_in_place_starts() {
    let options = Options {
        has_backup: true,
        ..READ
    };
    assert!(
        started(&reshaping(3, 3, 64, None), options)
            .reshape
            .is_some()
    );
}

#[test]
fn what_a_reshape_fills_is_there_in_what_is_done_and_missing_in_the_rest() {
    let mut members = reshaping(3, 4, 96, Some(-16));
    members[2].superblock.rebuild_offset_sectors = Some(32);
    let assembly = started(&members, READ);
    let reshape = assembly.reshape.as_ref().unwrap();
    assert!(reshape.has_filled(&assembly.members[2]));
    assert_eq!(assembly.missing_slots, [2]);
    // One more may be lost of the half that is done, none of the other one.
    assert_eq!(
        refused(
            &members[1..],
            Options {
                run_degraded: true,
                ..READ
            }
        ),
        ("too_few_members", 4)
    );
    members[2].superblock.rebuild_offset_sectors = Some(16);
    let assembly = started(&members, READ);
    assert!(
        !assembly
            .reshape
            .as_ref()
            .unwrap()
            .has_filled(&assembly.members[2])
    );
}

#[test]
fn an_array_that_loses_the_slot_of_its_freshest_member_goes_on_counting_from_that_one() {
    let mut members = array(6, 16, 4);
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS, EVENTS + 1]);
    let shape = Shape::of(&members[0].superblock).unwrap();
    let relabel = Relabel::without_q(&shape).unwrap();
    let mut found = Found::of(members);
    found.alter(&Alteration::Relabel(relabel)).unwrap();
    let assembly = started(&found.examined, PLAIN);
    assert_eq!(assembly.array.spec.member_count, 3);
    assert_eq!(assembly.array.events, EventCount(EVENTS + 1));
}
