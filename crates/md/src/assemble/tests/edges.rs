//! Where one more or one less would decide otherwise: numbers, sizes, tables, reasons.

use plexum_format::md::PplArea;

use super::*;

/// RAID-0.90 members have no identity: two of one device number.
fn old_twins(events: u64) -> Vec<Examined> {
    let mut members = array(1, 0, 3);
    for member in &mut members {
        member.superblock.version = MdVersion::V090;
        member.superblock.device_uuid = [0; 16];
    }
    let mut twin = members[1].clone();
    (twin.index, twin.name) = (107, "twin".into());
    twin.superblock.events = EventCount(events);
    members.push(twin);
    members
}

#[test]
fn old_members_without_an_identity_are_the_same_only_with_the_same_count_and_role() {
    let error = assemble(&old_twins(EVENTS), &FORCED).unwrap_err();
    assert!(error.message.contains("are the same member"), "{error}");
    let assembly = started(&old_twins(EVENTS - 5), PLAIN);
    assert!(is_stale(&assembly, 3) && !assembly.is_degraded);
    let mut members = old_twins(EVENTS);
    members[3].superblock.set_role(1, Role::Spare).unwrap();
    assert!(
        assemble(&members, &FORCED)
            .map_or_else(|error| error.to_string(), |_| String::new())
            .find("are the same member")
            .is_none(),
        "a spare of that number is another one"
    );
}

#[test]
fn of_two_old_spares_of_one_number_and_count_one_is_left_out() {
    let mut members = array(1, 0, 2);
    for number in [3, 4] {
        let mut spare = members[1].clone();
        (spare.index, spare.name) = (number, format!("spare {number}"));
        spare.superblock.dev_number = 2;
        members.push(spare);
    }
    for member in &mut members {
        member.superblock.version = MdVersion::V090;
        member.superblock.device_uuid = [0; 16];
        member.superblock.set_role(2, Role::Spare).unwrap();
    }
    let assembly = started(&members, PLAIN);
    assert!(!assembly.is_degraded);
    assert_eq!(*standing(&assembly, 2), AssembledStanding::Spare);
    assert!(is_stale(&assembly, 3));
}

#[test]
fn who_says_of_himself_that_he_is_faulty_is_believed_whatever_his_count() {
    for events in [EVENTS, EVENTS - 1, 3] {
        let mut members = raid5(3);
        members[2].superblock.set_role(2, Role::Faulty).unwrap();
        set_events(&mut members, &[EVENTS, EVENTS, events]);
        let assembly = started(&members, DEGRADED);
        assert_eq!(*standing(&assembly, 2), AssembledStanding::Faulty);
        let reason = assembly.members[2].reason.as_deref();
        assert_eq!(reason, Some("its own superblock calls it faulty"));
    }
}

#[test]
fn a_journal_that_the_array_does_not_know_is_of_no_use() {
    let mut members = raid5(4);
    for member in &mut members {
        member.superblock.member_count = 3;
    }
    record(&mut members, &[0, 1, 2], 3, Role::Spare);
    members[3].superblock.set_role(3, Role::Journal).unwrap();
    let assembly = started(&members, PLAIN);
    assert_eq!(*standing(&assembly, 3), AssembledStanding::Unusable);
    let reason = assembly.members[3].reason.as_deref();
    assert_eq!(reason, Some("the array has no such journal device"));
}

#[test]
fn what_a_growing_reshape_added_is_whole_as_far_as_the_reshape_got() {
    let reshape = Reshape {
        position_sectors: 64,
        member_count_change: 1,
        new_level: 5,
        new_layout: 2,
        new_strip_sectors: 16,
        new_offset_sectors: Some(-16),
        is_marked_backwards: false,
    };
    let mut members = raid5(4);
    for member in &mut members {
        member.superblock.reshape = Some(reshape);
    }
    let read_only = Options {
        read_only: true,
        ..DEGRADED
    };
    for (slot, is_whole) in [(3, true), (2, false)] {
        let mut members = members.clone();
        members[slot].superblock.rebuild_offset_sectors = Some(64);
        let assembly = started(&members, read_only);
        let is_active = *standing(&assembly, slot) == AssembledStanding::Active;
        assert_eq!(is_active, is_whole, "slot {slot}");
    }
}

#[test]
fn data_may_end_where_the_device_does_and_no_sector_later() {
    let mut members = raid5(3);
    members[2].device_bytes = (2048 + COMPONENT_SECTORS) * 512;
    assert!(!started(&members, PLAIN).is_degraded);
    members[2].device_bytes -= 512;
    let assembly = started(&members, DEGRADED);
    assert_eq!(*standing(&assembly, 2), AssembledStanding::Unusable);
}

#[test]
fn of_two_spares_with_one_number_the_one_with_more_events_is_kept() {
    let mut members = raid5(5);
    for member in &mut members {
        member.superblock.member_count = 3;
    }
    record(&mut members, &[0, 1, 2, 3, 4], 3, Role::Spare);
    record(&mut members, &[0, 1, 2, 3, 4], 4, Role::Faulty);
    members[4].superblock.dev_number = 3;
    for (events, loser) in [
        ([EVENTS, EVENTS - 3], 4),
        ([EVENTS - 3, EVENTS], 3),
        ([EVENTS; 2], 4),
    ] {
        set_events(
            &mut members,
            &[EVENTS, EVENTS, EVENTS, events[0], events[1]],
        );
        let assembly = started(&members, PLAIN);
        let winner = 7 - loser;
        assert_eq!(
            *standing(&assembly, winner),
            AssembledStanding::Spare,
            "{events:?}"
        );
        assert!(is_stale(&assembly, loser), "{events:?}");
        let reason = assembly.members[loser].reason.as_deref();
        assert_eq!(
            reason,
            Some(format!("m{winner} has its device number").as_str())
        );
    }
}

fn add_ppl(members: &mut [Examined], size_sectors: u16) {
    for member in members {
        member.superblock.ppl = Some(PplArea {
            offset_sectors: 8,
            size_sectors,
            is_multiple: false,
        });
    }
}

#[test]
fn a_partial_parity_log_with_room_for_a_header_and_a_page_mends_an_unclean_stop() {
    let mut members = raid5(3);
    add_ppl(&mut members, start::PPL_SECTORS_MIN);
    for member in &mut members {
        member.superblock.resync_offset_sectors = Some(0);
    }
    let assembly = started(&members[..2], DEGRADED);
    assert!(assembly.has_ppl && assembly.is_dirty());
    assert_eq!(assembly.doubt, Doubt::None, "its replay decides");
    // A resync that has begun is not what it mends.
    for member in &mut members {
        member.superblock.resync_offset_sectors = Some(64);
    }
    assert_eq!(refused(&members[..2], DEGRADED), ("dirty_degraded", 3));
    add_ppl(&mut members, start::PPL_SECTORS_MIN - 1);
    assert_eq!(refused(&members, PLAIN), ("unsupported_feature", 4));
}

#[test]
fn the_bitmap_of_a_spare_or_of_one_whose_role_changed_says_nothing() {
    for role in [Role::Spare, active(1)] {
        let mut members = raid5(3);
        add_bitmaps(&mut members, 3);
        // The only header that is as new as the freshest superblock is on a member that is not what it says.
        for old in &mut members[..2] {
            old.bitmap = Some(bitmap(EVENTS - 1, 3));
        }
        assert!(matches!(
            started(&members, PLAIN).bitmap,
            BitmapUse::Usable { .. }
        ));
        members[2].superblock.set_role(2, role).unwrap();
        let assembly = started(&members, DEGRADED);
        assert_eq!(assembly.bitmap, BitmapUse::Stale, "{role:?}");
    }
}

#[test]
fn a_degraded_start_names_whom_it_would_leave_out_and_why() {
    let mut members = raid5(3);
    set_events(&mut members, &[EVENTS, EVENTS, 3]);
    let error = assemble(&members, &PLAIN).unwrap_err();
    assert_eq!(
        error.why,
        [
            "m2 is left out: it is stale: event count 3, newest is 40",
            "started without it, the array goes on degraded and the absent member becomes stale"
        ]
    );
    let text = error.to_string();
    assert!(
        text.starts_with(&error.message) && text.contains("m2 is left out"),
        "{text}"
    );
}

#[test]
fn a_split_names_one_member_of_each_half() {
    let mut members = array(1, 0, 3);
    record(&mut members, &[0], 1, Role::Faulty);
    record(&mut members, &[0], 2, Role::Faulty);
    record(&mut members, &[1, 2], 0, Role::Faulty);
    set_events(&mut members, &[EVENTS, EVENTS + 3, EVENTS + 3]);
    let error = assemble(&members, &PLAIN).unwrap_err();
    assert_eq!(error.code.slug(), "split_brain");
    let text = error.to_string();
    assert!(text.contains("m1") && text.contains("m0"), "{text}");
    assert_eq!(
        started(&members, FORCED).missing_slots,
        [1, 2],
        "the first named goes on"
    );
}

/// It called everybody else failed, and nobody has heard of it: what it did alone was nothing.
#[test]
fn who_left_the_others_without_their_notice_is_stale_and_no_split_brain() {
    let mut members = array(1, 0, 3);
    record(&mut members, &[1], 0, Role::Faulty);
    record(&mut members, &[1], 2, Role::Faulty);
    set_events(&mut members, &[EVENTS, EVENTS - 5, EVENTS]);
    let assembly = started(&members, DEGRADED);
    assert!(is_stale(&assembly, 1));
    assert_eq!(assembly.missing_slots, [1]);
}

#[test]
fn the_bitmap_of_a_member_that_is_behind_says_nothing() {
    let mut members = array(1, 0, 3);
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 5]);
    add_bitmaps(&mut members, 20);
    members[2].bitmap.as_mut().unwrap().events_cleared = EventCount(33);
    let BitmapUse::Usable {
        events_cleared,
        sources,
    } = started(&members, DEGRADED).bitmap
    else {
        panic!("two of them have the newest");
    };
    assert_eq!((events_cleared.0, sources), (20, vec![100, 101]));
}

/// Two of one slot, and a third that is to replace whoever of them is meant.
#[test]
fn a_replacement_goes_on_from_the_one_that_is_meant_of_two() {
    let mut members = array(1, 0, 2);
    for (number, uuid) in [(5, 9), (6, 10)] {
        let mut other = member(1, 0, 2, 1);
        (other.index, other.name) = (usize::from(uuid), format!("m{number}"));
        other.superblock.device_uuid = uuid_of(uuid);
        other.superblock.dev_number = number;
        members.push(other);
        for position in 0..members.len() {
            record(&mut members, &[position], number, active(1));
        }
        record(&mut members, &[2], 5, active(1));
    }
    record(&mut members, &[3], 5, active(1));
    members[3].superblock.is_replacement = true;
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 1, EVENTS]);
    let assembly = started(&members, PLAIN);
    assert!(is_stale(&assembly, 2));
    assert_eq!(*standing(&assembly, 1), AssembledStanding::Active);
    let whole = AssembledStanding::Rebuilding {
        valid_below_bytes: COMPONENT_SECTORS * 512,
        by_bitmap: false,
    };
    assert_eq!(*standing(&assembly, 3), whole);
}
