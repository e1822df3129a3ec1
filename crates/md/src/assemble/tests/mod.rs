//! Situations of assembly, made by hand. The golden images are in `tests/all/golden_md.rs`.

use plexum_format::md::{Bitmap, MdTime, NewBitmap, NewMember, Reshape, Role};
use plexum_format::units::Slot;

use super::*;

mod conflicts;
mod edges;
mod filled;
mod forced;
mod reshaped;

const DEVICE_SECTORS: u64 = 8192;
const COMPONENT_SECTORS: u64 = 1024;
const EVENTS: u64 = 40;

fn active(slot: u16) -> Role {
    Role::Active(Slot(slot))
}

fn uuid_of(number: u8) -> [u8; 16] {
    [number; 16]
}

/// Member `dev_number` of a healthy array in which dev_numbers are slots.
fn member(level: i32, layout: u32, member_count: u16, dev_number: u16) -> Examined {
    let roles: Vec<Role> = (0..member_count).map(active).collect();
    let superblock = Superblock::create(&NewMember {
        version: MdVersion::V12,
        array_uuid: uuid_of(0xaa),
        name: "host:pool1",
        ctime: MdTime::default(),
        level,
        layout,
        component_sectors: if level > 0 { COMPONENT_SECTORS } else { 0 },
        strip_sectors: if level == 1 { 0 } else { 16 },
        member_count: member_count.into(),
        data_offset_sectors: 2048,
        data_size_sectors: COMPONENT_SECTORS,
        device_sectors: DEVICE_SECTORS,
        dev_number: dev_number.into(),
        device_uuid: uuid_of(u8::try_from(dev_number + 1).unwrap()),
        roles: &roles,
        events: EventCount(EVENTS),
        resync_offset_sectors: None,
        bitmap_offset_sectors: None,
        bad_block_log: None,
        is_write_mostly: false,
    });
    Examined {
        index: 100 + usize::from(dev_number),
        name: format!("m{dev_number}"),
        device_bytes: DEVICE_SECTORS * 512,
        superblock: superblock.unwrap(),
        bitmap: None,
        refused: Refused::default(),
        log: None,
        goal: None,
    }
}

fn array(level: i32, layout: u32, member_count: u16) -> Vec<Examined> {
    (0..member_count)
        .map(|dev_number| member(level, layout, member_count, dev_number))
        .collect()
}

/// RAID-5 left-symmetric.
fn raid5(member_count: u16) -> Vec<Examined> {
    array(5, 2, member_count)
}

/// Sets the role of `dev_number` in the tables of `holders`.
fn record(members: &mut [Examined], holders: &[usize], dev_number: u32, role: Role) {
    for holder in holders {
        members[*holder]
            .superblock
            .set_role(dev_number, role)
            .unwrap();
    }
}

fn set_events(members: &mut [Examined], events: &[u64]) {
    for (member, events) in members.iter_mut().zip(events) {
        member.superblock.events = EventCount(*events);
    }
}

fn bitmap(events: u64, events_cleared: u64) -> BitmapHeader {
    let new = NewBitmap {
        uuid: uuid_of(0xaa),
        events: EventCount(events),
        sync_size_sectors: COMPONENT_SECTORS,
        region_bytes: 65536,
        reserved_sectors: 8,
        is_all_set: false,
    };
    let mut header = Bitmap::create(&new).unwrap().header;
    header.events_cleared = EventCount(events_cleared);
    header
}

fn add_bitmaps(members: &mut [Examined], events_cleared: u64) {
    for member in members {
        member.superblock.bitmap_offset_sectors = Some(8);
        member.bitmap = Some(bitmap(member.superblock.events.0, events_cleared));
    }
}

const PLAIN: Options = Options {
    force: false,
    run_degraded: false,
    read_only: false,
    force_data: false,
    stale: StaleUse::Never,
    raid0_layout: None,
    has_backup: false,
    goes_on_reshaping: false,
};
const DEGRADED: Options = Options {
    run_degraded: true,
    ..PLAIN
};
const FORCED: Options = Options {
    force: true,
    ..PLAIN
};

fn started(members: &[Examined], options: Options) -> Assembly {
    let assembly = assemble(members, &options).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(assembly.members.len(), members.len());
    assembly
}

fn refused(members: &[Examined], options: Options) -> (&'static str, u8) {
    let error = assemble(members, &options).unwrap_err();
    assert!(
        !error.message.is_empty() && !error.message.contains('\n'),
        "{error}"
    );
    (error.code.slug(), error.code.exit())
}

fn standing(assembly: &Assembly, position: usize) -> &AssembledStanding {
    &assembly.members[position].standing
}

fn is_stale(assembly: &Assembly, position: usize) -> bool {
    matches!(
        standing(assembly, position),
        AssembledStanding::Stale { .. }
    )
}

#[test]
fn a_whole_array_starts_in_any_order_of_its_members() {
    let mut members = array(6, 2, 5);
    members.rotate_left(3);
    let assembly = started(&members, PLAIN);
    assert_eq!(
        assembly
            .members
            .iter()
            .map(|m| m.slot.unwrap())
            .collect::<Vec<_>>(),
        [3, 4, 0, 1, 2]
    );
    assert_eq!(
        assembly.members.iter().map(|m| m.index).collect::<Vec<_>>(),
        [103, 104, 100, 101, 102]
    );
    assert!(!assembly.is_degraded && !assembly.is_dirty() && !assembly.is_read_only);
    assert_eq!(
        (assembly.doubt, &assembly.bitmap),
        (Doubt::None, &BitmapUse::None)
    );
    assert_eq!(assembly.volume_bytes, 3 * COMPONENT_SECTORS * 512);
    assert_eq!(assembly.members[0].data_offset_bytes, 2048 * 512);
    assert_eq!(assembly.missing(), [false; 5]);
    assert_eq!(assembly.active(4).unwrap().index, 104);
}

#[test]
fn a_member_one_event_behind_is_fresh_with_the_role_of_the_freshest_table() {
    let mut members = raid5(3);
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 1]);
    assert!(!started(&members, PLAIN).is_degraded);
    for (role, is_faulty) in [(Role::Faulty, true), (Role::Spare, false)] {
        record(&mut members, &[0, 1], 2, role);
        let assembly = started(&members, PLAIN);
        assert_eq!(assembly.missing_slots, [2]);
        assert_eq!(
            *standing(&assembly, 2) == AssembledStanding::Faulty,
            is_faulty
        );
        assert_eq!(is_stale(&assembly, 2), !is_faulty);
    }
}

#[test]
fn a_member_two_events_behind_is_stale_even_by_force() {
    let mut members = raid5(3);
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 2]);
    assert_eq!(refused(&members, PLAIN), ("degraded_start", 3));
    for options in [DEGRADED, FORCED] {
        let assembly = started(&members, options);
        assert!(is_stale(&assembly, 2) && assembly.missing_slots == [2]);
        assert_eq!(
            assembly.members[2].reason.as_deref(),
            Some("it is stale: event count 38, newest is 40")
        );
    }
    set_events(&mut members, &[EVENTS, EVENTS - 2, EVENTS - 2]);
    for options in [PLAIN, DEGRADED, FORCED] {
        assert_eq!(refused(&members, options), ("too_few_members", 4));
    }
}

#[test]
fn too_few_members_are_refused_and_every_left_out_one_is_explained() {
    let mut members = raid5(3);
    set_events(&mut members, &[EVENTS, 7, 9]);
    let error = assemble(&members, &DEGRADED).unwrap_err();
    assert_eq!(
        error.message,
        "array pool1: 1 of 3 members are usable, too few for raid5 left-symmetric; slots without one: 1, 2"
    );
    assert_eq!(
        error.why,
        [
            "m1 is left out: it is stale: event count 7, newest is 40",
            "m2 is left out: it is stale: event count 9, newest is 40"
        ]
    );
    assert!(
        error
            .to_string()
            .lines()
            .skip(1)
            .all(|line| line.starts_with("  "))
    );
    for level in [-1, 0] {
        let members = array(level, u32::from(level == 0), 3);
        started(&members, PLAIN);
        assert_eq!(refused(&members[1..], FORCED), ("too_few_members", 4));
    }
    assert_eq!(refused(&[], PLAIN), ("no_metadata", 4));
}

#[test]
fn a_spare_is_fine_with_any_event_count_and_never_the_freshest() {
    for events in [1, 100] {
        let mut members = raid5(4);
        record(&mut members, &[0, 1, 2, 3], 3, Role::Spare);
        for member in &mut members {
            member.superblock.member_count = 3;
        }
        set_events(&mut members, &[EVENTS, EVENTS, EVENTS, events]);
        let assembly = started(&members, PLAIN);
        assert_eq!(
            (standing(&assembly, 3), assembly.array.events),
            (&AssembledStanding::Spare, EventCount(EVENTS))
        );
        assert_eq!(refused(&members[3..], FORCED), ("too_few_members", 4));
        record(&mut members, &[0, 1, 2], 3, Role::Faulty);
        assert_eq!(
            *standing(&started(&members, PLAIN), 3),
            AssembledStanding::Faulty
        );
    }
}

#[test]
fn a_spare_that_missed_the_commit_which_made_it_active_is_rebuilt_from_the_start() {
    let mut members = raid5(3);
    members[2].superblock.set_role(2, Role::Spare).unwrap();
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 1]);
    let assembly = started(&members, PLAIN);
    assert_eq!(
        *standing(&assembly, 2),
        AssembledStanding::Rebuilding {
            valid_below_bytes: 0,
            by_bitmap: false
        }
    );
    assert_eq!(assembly.missing_slots, [2]);
    // Further behind it is nothing but an old spare of that number.
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS - 2]);
    assert!(is_stale(&started(&members, DEGRADED), 2));
}

#[test]
fn dirty_and_degraded_parity_is_refused_unless_only_parity_is_missing() {
    // level, layout, slots whose loss does no harm
    let table: [(i32, u32, &[u16]); 9] = [
        (4, 0, &[3]),
        (5, 2, &[]),
        (5, 0, &[]),
        (5, 4, &[0]),
        (5, 5, &[3]),
        (6, 2, &[]),
        (6, 5, &[2, 3]),
        (6, 18, &[3]),
        (6, 20, &[0, 3]),
    ];
    for (level, layout, harmless) in table {
        for lost in 0..4u16 {
            let mut members = array(level, layout, 4);
            members
                .iter_mut()
                .for_each(|m| m.superblock.resync_offset_sectors = Some(0));
            assert!(started(&members, PLAIN).is_dirty());
            members.remove(lost.into());
            if harmless.contains(&lost) {
                assert_eq!(started(&members, DEGRADED).doubt, Doubt::None);
                continue;
            }
            assert_eq!(
                refused(&members, DEGRADED),
                ("dirty_degraded", 3),
                "level {level} layout {layout} without {lost}"
            );
            let assembly = started(&members, FORCED);
            assert_eq!(assembly.doubt, Doubt::From { start_bytes: 0 });
            assert!(assembly.is_dirty() && !assembly.serves_doubtful_data);
            assert!(
                started(
                    &members,
                    Options {
                        force_data: true,
                        ..FORCED
                    }
                )
                .serves_doubtful_data
            );
        }
    }
    for (level, layout) in [(1, 0), (10, 0x102)] {
        let mut members = array(level, layout, 4);
        members
            .iter_mut()
            .for_each(|m| m.superblock.resync_offset_sectors = Some(16));
        let assembly = started(&members[1..], DEGRADED);
        assert_eq!(
            (assembly.doubt, assembly.resync_start_bytes),
            (Doubt::None, Some(8192))
        );
    }
}

#[test]
fn a_forced_start_with_a_good_bitmap_doubts_only_the_marked_regions() {
    let mut members = raid5(3);
    members
        .iter_mut()
        .for_each(|m| m.superblock.resync_offset_sectors = Some(512));
    add_bitmaps(&mut members, EVENTS - 2);
    members.remove(0);
    assert_eq!(started(&members, FORCED).doubt, Doubt::MarkedRegions);
    members
        .iter_mut()
        .for_each(|m| m.bitmap.as_mut().unwrap().events = EventCount(EVENTS - 1));
    assert_eq!(
        started(&members, FORCED).doubt,
        Doubt::From {
            start_bytes: 512 * 512
        }
    );
}

#[test]
fn linear_and_raid0_have_nothing_to_resync() {
    for (level, layout) in [(-1, 0), (0, 1)] {
        let mut members = array(level, layout, 2);
        members
            .iter_mut()
            .for_each(|m| m.superblock.resync_offset_sectors = Some(0));
        assert!(!started(&members, PLAIN).is_dirty());
    }
}

#[test]
fn a_degraded_start_needs_everybody_who_was_there_at_the_last_commit() {
    let mut members = raid5(4);
    members.remove(3);
    let error = assemble(&members, &PLAIN).unwrap_err();
    assert_eq!(
        (error.code.slug(), error.code.exit()),
        ("degraded_start", 3)
    );
    assert!(
        error
            .hints
            .iter()
            .any(|hint| hint.contains("--run-degraded"))
    );
    // Once the array knows of the loss it starts by itself.
    record(&mut members, &[0, 1, 2], 3, Role::Spare);
    assert_eq!(started(&members, PLAIN).missing_slots, [3]);
    // A member that was being filled is expected as well, but then nobody is lost while it is there.
    let mut members = raid5(4);
    members[3].superblock.rebuild_offset_sectors = Some(100);
    assert!(started(&members, PLAIN).is_degraded);
    assert_eq!(refused(&members[..3], PLAIN), ("degraded_start", 3));
}

#[test]
fn raid0_without_a_recorded_layout_starts_only_when_it_does_not_matter() {
    let mut members = array(0, 1, 3);
    members
        .iter_mut()
        .for_each(|m| (m.superblock.layout, m.superblock.has_raid0_layout) = (0, false));
    started(&members, PLAIN);
    members[0].superblock.data_size_sectors = 512;
    let error = assemble(&members, &FORCED).unwrap_err();
    assert_eq!(
        (error.code.slug(), error.code.exit()),
        ("unsupported_feature", 4)
    );
    assert!(error.message.contains("layout"), "{error}");
    members
        .iter_mut()
        .for_each(|m| (m.superblock.layout, m.superblock.has_raid0_layout) = (2, true));
    let organisation = started(&members, PLAIN).geometry.organisation();
    assert_eq!(organisation.to_string(), "raid0 alternate");
}

#[test]
fn what_cannot_be_written_yet_starts_read_only() {
    let reshape = Reshape {
        position_sectors: 64,
        member_count_change: -1,
        new_level: 5,
        new_layout: 2,
        new_strip_sectors: 16,
        new_offset_sectors: Some(-16),
        is_marked_backwards: false,
    };
    let read_only = Options {
        read_only: true,
        ..PLAIN
    };
    // The journal may hold what was answered: without its device only by force.
    let mut members = raid5(4);
    let all: Vec<Role> = (0..3).map(active).chain([Role::Journal]).collect();
    for member in &mut members {
        member.superblock.has_journal = true;
        member.superblock.member_count = 3;
        member.superblock.roles.clone_from(&all);
    }
    assert_eq!(refused(&members, FORCED), ("unsupported_feature", 4));
    assert_eq!(started(&members, read_only).journal, JournalUse::Here);
    assert_eq!(refused(&members[..3], read_only), ("log_lost", 3));
    let forced = Options {
        force: true,
        ..read_only
    };
    assert_eq!(started(&members[..3], forced).journal, JournalUse::Absent);
    members[3].superblock.events = EventCount(EVENTS - 2);
    assert_eq!(refused(&members, read_only), ("log_lost", 3));
    // A journal that was not replayed cannot even be read.
    let mut members = raid5(4);
    members.iter_mut().for_each(|m| {
        (m.superblock.has_journal, m.superblock.resync_offset_sectors) = (true, Some(0))
    });
    assert_eq!(refused(&members, read_only), ("unsupported_feature", 4));
    // Shrinking from four to three: the fourth still has its slot.
    let mut members = raid5(4);
    members
        .iter_mut()
        .for_each(|m| (m.superblock.member_count, m.superblock.reshape) = (3, Some(reshape)));
    assert_eq!(refused(&members, PLAIN), ("unsupported_feature", 4));
    let assembly = started(&members, read_only);
    let other = assembly.reshape.as_ref().unwrap();
    assert_eq!(
        (
            assembly.geometry.member_count(),
            other.after.member_count(),
            other.is_backwards
        ),
        (4, 3, true)
    );
    assert_eq!(
        (assembly.volume_bytes, other.position_bytes),
        (2 * COMPONENT_SECTORS * 512, 64 * 512)
    );
    assert_eq!(assembly.members[3].reshaped_offset_bytes, (2048 - 16) * 512);
    assert!(!assembly.is_degraded && assembly.members[3].slot == Some(3));
    members.iter_mut().for_each(|m| {
        m.superblock.reshape = Some(Reshape {
            new_level: 6,
            ..reshape
        })
    });
    assert_eq!(refused(&members, read_only), ("unsupported_feature", 4));
}

#[test]
fn a_bitmap_counts_only_when_a_complete_member_has_the_newest() {
    let usable = |members: &[Examined]| match started(members, DEGRADED).bitmap {
        BitmapUse::Usable {
            events_cleared,
            sources,
        } => Some((events_cleared.0, sources)),
        BitmapUse::Stale => None,
        BitmapUse::None => panic!("there is a bitmap"),
    };
    let mut members = array(1, 0, 3);
    set_events(&mut members, &[EVENTS, EVENTS - 1, EVENTS]);
    add_bitmaps(&mut members, 30);
    members[1].bitmap.as_mut().unwrap().events_cleared = EventCount(35);
    assert_eq!(usable(&members), Some((35, vec![100, 101, 102])));
    members[0].bitmap = None;
    assert_eq!(usable(&members), Some((35, vec![101, 102])));
    members[2].bitmap.as_mut().unwrap().uuid = uuid_of(1);
    assert_eq!(usable(&members), None, "only the one behind is left");
    members[2].bitmap = Some(bitmap(EVENTS, 30));
    members[2].bitmap.as_mut().unwrap().is_stale = true;
    assert_eq!(usable(&members), None);
    members[2].bitmap.as_mut().unwrap().is_stale = false;
    members[2].superblock.rebuild_offset_sectors = Some(5);
    assert_eq!(
        usable(&members),
        None,
        "a member that is being filled has no say"
    );
}

#[test]
fn a_stale_member_fits_the_bitmap_from_the_event_when_the_array_was_last_whole() {
    for (events, expected) in [(19, false), (20, true), (30, true)] {
        let mut members = array(1, 0, 2);
        set_events(&mut members, &[EVENTS, events]);
        record(&mut members, &[0], 1, Role::Spare);
        add_bitmaps(&mut members, 20);
        let assembly = started(&members, PLAIN);
        assert!(
            matches!(standing(&assembly, 1), AssembledStanding::Stale { fits_bitmap, .. } if *fits_bitmap == expected)
        );
        // Its own copy of the bitmap is old and has no say.
        assert!(matches!(&assembly.bitmap, BitmapUse::Usable { sources, .. } if *sources == [100]));
    }
}

#[test]
fn an_array_without_a_name_is_called_by_its_uuid() {
    let mut members = raid5(3);
    members
        .iter_mut()
        .for_each(|m| m.superblock.name = String::new());
    assert!(
        assemble(&members[..1], &PLAIN)
            .unwrap_err()
            .message
            .starts_with("array md-aaaaaaaa: ")
    );
}
