//! Members that do not fit together: foreign, double, split, contradicting, impossible; and whatever a disk may say.

use super::*;

#[test]
fn members_of_different_arrays_are_refused_by_name() {
    let mut members = raid5(3);
    members[0].superblock.array_uuid = uuid_of(0xbb);
    let error = assemble(&members, &FORCED).unwrap_err();
    assert_eq!(
        (error.code.slug(), error.code.exit(), error.member),
        ("foreign_member", 4, Some(100))
    );
    assert!(
        error
            .message
            .starts_with("m0 belongs to another array: array UUID bbbbbbbb:"),
        "{}",
        error.message
    );
}

#[test]
fn a_member_given_twice_is_refused_even_when_one_is_an_older_copy() {
    for events in [EVENTS, 7] {
        let mut members = raid5(3);
        let mut copy = members[1].clone();
        (copy.index, copy.name) = (107, "copy".into());
        copy.superblock.events = EventCount(events);
        members.push(copy);
        let error = assemble(&members, &FORCED).unwrap_err();
        assert_eq!(
            (error.code.slug(), error.code.exit(), error.member),
            ("duplicate_member", 4, Some(107))
        );
    }
}

#[test]
fn of_two_members_with_one_slot_the_one_with_more_events_is_meant() {
    let mut members = raid5(3);
    let mut other = member(5, 2, 3, 2);
    (other.name, other.superblock.device_uuid) = ("other".into(), uuid_of(9));
    members.push(other);
    assert_eq!(refused(&members, FORCED), ("duplicate_member", 4));
    for old in [EVENTS - 1, 3] {
        set_events(&mut members, &[EVENTS, EVENTS, EVENTS, old]);
        let assembly = started(&members, PLAIN);
        assert!(is_stale(&assembly, 3) && assembly.members[2].slot == Some(2));
        assert!(!assembly.is_degraded);
    }
    // The same with a number of its own.
    members[3].superblock.dev_number = 5;
    for position in 0..4 {
        record(&mut members, &[position], 5, active(2));
    }
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 1, EVENTS]);
    assert!(is_stale(&started(&members, PLAIN), 2));
    set_events(&mut members, &[EVENTS; 4]);
    assert_eq!(refused(&members, FORCED), ("duplicate_member", 4));
}

/// RAID-1 whose halves each ran alone.
fn split_mirror(events: [u64; 2], role: Role) -> Vec<Examined> {
    let mut members = array(1, 0, 2);
    record(&mut members, &[0], 1, role);
    record(&mut members, &[1], 0, role);
    set_events(&mut members, &events);
    members
}

#[test]
fn split_brain_is_refused_and_force_keeps_the_half_named_first() {
    for role in [Role::Faulty, Role::Spare] {
        for events in [
            [EVENTS, EVENTS],
            [EVENTS, EVENTS - 1],
            [EVENTS - 1, EVENTS],
            [EVENTS, 11],
            [11, EVENTS],
        ] {
            let mut members = split_mirror(events, role);
            add_bitmaps(&mut members, 5);
            for options in [PLAIN, DEGRADED] {
                assert_eq!(refused(&members, options), ("split_brain", 4), "{events:?}");
            }
            let assembly = started(&members, FORCED);
            assert_eq!(
                (assembly.freshest, assembly.array.events.0),
                (100, events[0])
            );
            assert_eq!(*standing(&assembly, 0), AssembledStanding::Active);
            assert!(matches!(
                standing(&assembly, 1),
                AssembledStanding::Stale {
                    fits_bitmap: false,
                    ..
                }
            ));
            members.reverse();
            let assembly = started(&members, FORCED);
            assert_eq!(
                (assembly.freshest, assembly.array.events.0),
                (101, events[1])
            );
            // Either half alone is an array that already was degraded.
            for half in &members {
                assert!(started(std::slice::from_ref(half), PLAIN).is_degraded);
            }
        }
    }
}

#[test]
fn halves_of_four_copies_that_went_apart_are_never_mixed() {
    let mut members = array(1, 0, 4);
    for gone in [2, 3] {
        record(&mut members, &[0, 1], gone, Role::Faulty);
    }
    for gone in [0, 1] {
        record(&mut members, &[2, 3], gone, Role::Faulty);
    }
    set_events(&mut members, &[50, 51, 60, 60]);
    assert_eq!(refused(&members, DEGRADED), ("split_brain", 4));
    let assembly = started(&members, FORCED);
    assert_eq!(assembly.missing_slots, [2, 3]);
    assert_eq!(assembly.array.events, EventCount(51));
    members.rotate_left(2);
    assert_eq!(started(&members, FORCED).missing_slots, [0, 1]);
}

#[test]
fn an_old_member_beside_a_repaired_array_is_stale_and_no_split_brain() {
    // RAID-6: 1 failed, then 2 failed; a new member took slot 1. Member 2 still counts slot 1 as empty.
    let mut members = array(6, 2, 5);
    record(&mut members, &[2], 1, Role::Faulty);
    record(&mut members, &[0, 3, 4], 1, Role::Faulty);
    record(&mut members, &[0, 3, 4], 2, Role::Faulty);
    members.remove(1);
    let mut new = member(6, 2, 5, 5);
    new.superblock.roles = members[0].superblock.roles.clone();
    members.push(new);
    record(&mut members, &[0, 2, 3, 4], 5, active(1));
    set_events(&mut members, &[60, 30, 60, 60, 60]);
    let assembly = started(&members, PLAIN);
    assert!(is_stale(&assembly, 1));
    assert_eq!(assembly.missing_slots, [2]);
}

#[test]
fn who_was_last_together_with_one_that_went_on_is_stale_and_no_split_brain() {
    // RAID-1: 0 was lost, then 2; a new member took slot 0 beside 1, then 1 was lost as well.
    let mut members = array(1, 0, 3);
    record(&mut members, &[1, 2], 0, Role::Faulty);
    record(&mut members, &[1], 2, Role::Faulty);
    let mut new = member(1, 0, 3, 3);
    new.superblock.roles = members[1].superblock.roles.clone();
    members[0] = new;
    record(&mut members, &[0, 1], 3, active(0));
    record(&mut members, &[0], 1, Role::Faulty);
    set_events(&mut members, &[70, 60, 20]);
    let assembly = started(&members, PLAIN);
    assert!(is_stale(&assembly, 1) && is_stale(&assembly, 2));
    assert_eq!(
        (assembly.freshest, assembly.missing_slots),
        (103, vec![1, 2])
    );
    // Without the one between them nobody can tell it from a half that went its own way: he is asked for.
    members.remove(1);
    let error = assemble(&members, &PLAIN).unwrap_err();
    assert_eq!(error.code, AssembleCode::SplitBrain);
    assert_eq!(error.hints[0], asked_for(1, "m2"));
}

/// The hint of a refusal that somebody who is not there would settle.
fn asked_for(number: u32, stale: &str) -> String {
    format!(
        "name device number {number} of the array as well: {stale} was last together with it, and may only be stale; if that disk \
         has been added anew since, leave {stale} out"
    )
}

#[test]
fn a_disk_that_was_added_anew_no_longer_tells_who_was_stale_when_it_was_a_member_before() {
    // Four copies: 0 and 3 were lost, then 2; a new member was filled from 1 and took slot 0, 1 was lost, and its disk
    // was added anew: it took slot 3. Whoever was last together with it is left.
    let mut members = array(1, 0, 4);
    record(&mut members, &[1, 2], 0, Role::Faulty);
    record(&mut members, &[1, 2], 3, Role::Faulty);
    record(&mut members, &[1], 2, Role::Faulty);
    for (place, number, slot) in [(0, 4, 0), (3, 5, 3)] {
        let mut new = member(1, 0, 4, number);
        new.superblock.roles = members[1].superblock.roles.clone();
        members[place] = new;
        record(&mut members, &[0, 1, 3], u32::from(number), active(slot));
    }
    record(&mut members, &[0, 3], 4, active(0));
    record(&mut members, &[0, 3], 1, Role::Faulty);
    set_events(&mut members, &[80, 60, 20, 80]);
    members.remove(1);
    let error = assemble(&members, &PLAIN).unwrap_err();
    assert_eq!(error.code, AssembleCode::SplitBrain);
    assert_eq!(error.hints[0], asked_for(1, "m2"));
    // Without it the array starts.
    members.remove(1);
    assert_eq!(started(&members, PLAIN).missing_slots, [1, 2]);
}

#[test]
fn a_member_that_was_replaced_is_stale_and_no_split_brain_when_its_replacement_is_lost_as_well() {
    // RAID-1: 0 was lost; 1 was replaced by a new member, which it knows as a spare only; a third was filled from that,
    // which then was lost too.
    let mut members = array(1, 0, 2);
    record(&mut members, &[1], 0, Role::Faulty);
    for number in [2, 3] {
        let mut new = member(1, 0, 2, number);
        new.superblock.roles = members[1].superblock.roles.clone();
        members.push(new);
    }
    members.remove(0);
    record(&mut members, &[1, 2], 1, Role::Faulty);
    record(&mut members, &[1, 2], 2, active(1));
    record(&mut members, &[1, 2], 3, active(0));
    record(&mut members, &[2], 2, Role::Faulty);
    set_events(&mut members, &[20, 60, 70]);
    let assembly = started(&members, PLAIN);
    assert!(is_stale(&assembly, 0) && is_stale(&assembly, 1));
    assert_eq!((assembly.freshest, assembly.missing_slots), (103, vec![1]));
    // Without the one that took its place nobody can tell it from a half that went its own way.
    members.remove(1);
    assert_eq!(refused(&members, PLAIN), ("split_brain", 4));
}

#[test]
fn a_lost_event_does_not_make_a_failed_member_the_freshest() {
    // Both have the same count, but only one knows that the other failed.
    let mut members = array(1, 0, 2);
    record(&mut members, &[1], 0, Role::Faulty);
    let assembly = started(&members, PLAIN);
    assert_eq!(
        (assembly.freshest, standing(&assembly, 0)),
        (101, &AssembledStanding::Faulty)
    );
}

#[test]
fn members_that_contradict_the_freshest_superblock_are_not_used() {
    type Change = fn(&mut Examined);
    let changes: [Change; 8] = [
        |m| m.superblock.version = MdVersion::V11,
        |m| m.superblock.level = 4,
        |m| m.superblock.layout = 3,
        |m| m.superblock.strip_sectors = 32,
        |m| m.superblock.data_size_sectors = COMPONENT_SECTORS - 8,
        |m| m.device_bytes = (2048 + COMPONENT_SECTORS - 1) * 512,
        |m| m.superblock.data_offset_sectors = u64::MAX,
        |m| m.superblock.set_role(2, active(1)).unwrap(),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut members = raid5(3);
        change(&mut members[2]);
        let assembly = started(&members, DEGRADED);
        assert_eq!(
            *standing(&assembly, 2),
            AssembledStanding::Unusable,
            "change {number}"
        );
        assert_eq!(
            (assembly.missing_slots.as_slice(), assembly.freshest),
            ([2].as_slice(), 100)
        );
    }
    // A slot that cannot be, in every table.
    let mut members = raid5(3);
    for position in 0..3 {
        record(&mut members, &[position], 2, active(7));
    }
    assert_eq!(
        *standing(&started(&members, DEGRADED), 2),
        AssembledStanding::Unusable
    );
}

#[test]
fn an_array_that_cannot_be_is_refused() {
    type Change = fn(&mut Superblock);
    let changes: [Change; 6] = [
        |s| s.layout = 99,
        |s| s.strip_sectors = 24,
        |s| s.strip_sectors = 4096,
        |s| s.member_count = 1,
        |s| s.member_count = 300,
        |s| s.component_sectors = 3,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut members = raid5(3);
        members.iter_mut().for_each(|m| change(&mut m.superblock));
        assert_eq!(
            refused(&members, FORCED),
            ("damaged_metadata", 4),
            "change {number}"
        );
    }
    let mut members = raid5(3);
    members
        .iter_mut()
        .for_each(|m| m.superblock.member_count = u32::MAX);
    assert_eq!(refused(&members, FORCED), ("damaged_metadata", 4));
}

/// A small generator, so that a failure can be repeated.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn spoil(&mut self, member: &mut Examined) {
        let superblock = &mut member.superblock;
        let odd = [
            0,
            1,
            2,
            7,
            1 << 20,
            u64::from(u32::MAX),
            u64::MAX / 2,
            u64::MAX,
        ][usize::try_from(self.below(8)).unwrap()];
        let role = [
            Role::Faulty,
            Role::Spare,
            Role::Journal,
            active(0),
            active(1),
            active(9),
            active(0xfeff),
        ][usize::try_from(self.below(7)).unwrap()];
        match self.below(14) {
            0 => superblock.events = EventCount(EVENTS - self.below(4)),
            1 | 2 => superblock
                .set_role(u32::try_from(self.below(6)).unwrap(), role)
                .unwrap(),
            3 => superblock.rebuild_offset_sectors = Some(odd),
            4 => superblock.resync_offset_sectors = Some(odd),
            5 => superblock.component_sectors = odd,
            6 => superblock.data_size_sectors = odd,
            7 => superblock.data_offset_sectors = odd,
            8 => superblock.strip_sectors = odd as u32,
            9 => superblock.member_count = odd as u32,
            10 => superblock.dev_number = odd as u32,
            11 => superblock.is_replacement = true,
            12 => superblock.layout = odd as u32,
            _ => {
                superblock.reshape = Some(Reshape {
                    position_sectors: odd,
                    member_count_change: odd as i32,
                    new_level: superblock.level,
                    new_layout: superblock.layout,
                    new_strip_sectors: odd as u32,
                    new_offset_sectors: Some(odd as i32),
                    is_marked_backwards: self.below(2) == 1,
                });
            }
        }
    }
}

#[test]
fn whatever_superblocks_say_nothing_panics_and_the_invariants_hold() {
    let mut numbers = Numbers(1);
    let mut starts = 0;
    for _ in 0..20_000 {
        let (level, layout) = [(-1, 0), (0, 1), (1, 0), (4, 0), (5, 2), (6, 2), (10, 0x102)]
            [usize::try_from(numbers.below(7)).unwrap()];
        let mut members = array(level, layout, 4);
        for _ in 0..1 + numbers.below(4) {
            let position = usize::try_from(numbers.below(4)).unwrap();
            numbers.spoil(&mut members[position]);
        }
        let options = Options {
            force: numbers.below(2) == 1,
            run_degraded: numbers.below(2) == 1,
            read_only: numbers.below(2) == 1,
            force_data: false,
            goes_on_reshaping: false,
            has_backup: false,
            stale: [StaleUse::Never, StaleUse::Read, StaleUse::Write]
                [usize::try_from(numbers.below(3)).unwrap()],
            raid0_layout: None,
        };
        let Ok(assembly) = assemble(&members, &options) else {
            continue;
        };
        starts += 1;
        let newest = assembly.array.events;
        for member in &assembly.members {
            assert_eq!(
                member.slot.is_some(),
                matches!(
                    member.standing,
                    AssembledStanding::Active | AssembledStanding::Rebuilding { .. }
                )
            );
            assert_eq!(
                member.reason.is_some(),
                !member.standing.is_used(),
                "{member:?}"
            );
            if member.caution.is_some() {
                assert!(options.force && member.slot.is_some());
            } else if member.slot.is_some() {
                assert!(
                    member.events.is_fresh_beside(newest) && member.events <= newest,
                    "{member:?} beside {newest}"
                );
            }
        }
        for slot in 0..4 {
            let count = |is: fn(&AssembledStanding) -> bool| {
                assembly
                    .members
                    .iter()
                    .filter(|m| m.slot == Some(slot) && is(&m.standing))
                    .count()
            };
            let complete = count(|s| *s == AssembledStanding::Active);
            assert!(
                complete <= 1 && count(|s| matches!(s, AssembledStanding::Rebuilding { .. })) <= 1
            );
        }
        let missing = assembly.missing();
        assert!(
            assembly
                .geometry
                .tolerates(&missing[..assembly.geometry.member_count()])
        );
        let is_parity = assembly.geometry.organisation().level().has_parity();
        if is_parity && assembly.is_dirty() && assembly.doubt == Doubt::None && !options.force {
            let fixed = [4].contains(&level);
            assert!(!assembly.is_degraded || fixed);
        }
    }
    assert!(starts > 4000, "{starts} of 20000 start");
}

#[test]
fn an_old_member_that_never_met_its_successor_is_stale_and_no_split_brain() {
    // RAID-1: 1 was taken out, a new member took its slot, then 0 failed. Member 1 knows of no empty slot.
    let mut members = array(1, 0, 2);
    let mut new = member(1, 0, 2, 2);
    new.superblock.roles = vec![Role::Faulty, Role::Spare, active(1)];
    members.push(new);
    set_events(&mut members, &[50, 20, 70]);
    let assembly = started(&members[1..], PLAIN);
    assert!(is_stale(&assembly, 0));
    assert_eq!((assembly.freshest, assembly.missing_slots), (102, vec![0]));
}

#[test]
fn a_member_that_records_the_freshest_as_missing_is_left_out_unless_that_one_was_just_added() {
    let mut members = array(1, 0, 3);
    record(&mut members, &[1], 0, Role::Faulty);
    set_events(&mut members, &[EVENTS, EVENTS - 1, EVENTS]);
    let assembly = started(&members, DEGRADED);
    assert_eq!(
        assembly.members[1].reason.as_deref(),
        Some("it records the freshest member as missing")
    );
    assert_eq!(assembly.missing_slots, [1]);
    // The commit that added member 0 did not reach member 1.
    members[0].superblock.rebuild_offset_sectors = Some(0);
    let assembly = started(&members, PLAIN);
    assert_eq!(*standing(&assembly, 1), AssembledStanding::Active);
    assert_eq!(assembly.missing_slots, [0]);
}

#[test]
fn a_spare_that_is_the_first_to_know_that_it_is_complete_leaves_nobody_out() {
    // Its superblock was written before the others', in a format whose table does not show who is being filled.
    let mut members = array(1, 0, 3);
    record(&mut members, &[1, 2], 0, Role::Spare);
    set_events(&mut members, &[EVENTS, EVENTS - 1, EVENTS - 1]);
    let assembly = started(&members, PLAIN);
    assert!(assembly.missing_slots.is_empty());
    // Two commits behind, they would have heard of it.
    set_events(&mut members, &[EVENTS, EVENTS - 2, EVENTS - 2]);
    let assembly = started(&members, DEGRADED);
    assert_eq!(assembly.missing_slots, [1, 2]);
}
