//! Plans: every way that md can express, and what is refused with the number that is missing.

use super::*;
use plexum_engine::migrate::Direction;
use plexum_layout::{Level, Organisation, Raid0Layout, Raid5Layout, Raid6Layout, Raid10Layout};

const LEFT_SYMMETRIC: Organisation = Organisation::Raid5(Raid5Layout::LeftSymmetric);
const ROOM: Room = Room {
    front_sectors: 4000,
    back_sectors: 0,
};

fn situation(organisation: Organisation, members: u16, spares: u16, room: Room) -> Situation {
    Situation {
        shape: Shape {
            organisation,
            member_count: members,
            strip_sectors: 128,
        },
        component_sectors: 128 * 1024,
        rooms: vec![room; usize::from(members + spares)],
        member_count: members + spares,
        missing_slots: Vec::new(),
        says_data_size: true,
        has_log: false,
    }
}

fn wish(member_count: Option<u16>, level: Option<Level>) -> Wish {
    Wish {
        member_count,
        level,
        ..Wish::default()
    }
}

fn moved(plan: &Plan) -> &Move {
    plan.movement.as_ref().unwrap()
}

fn refusal(now: &Situation, wish: &Wish) -> String {
    plan(now, wish).unwrap_err().message
}

#[test]
fn one_member_more_moves_rows_upwards_by_one_strip_and_leaves_the_rest_of_the_room() {
    let plan = plan(&situation(LEFT_SYMMETRIC, 4, 1, ROOM), &wish(Some(5), None)).unwrap();
    let movement = moved(&plan);
    assert_eq!(movement.direction, Direction::Up);
    assert_eq!((movement.start_sectors, movement.shift_sectors), (0, -128));
    assert_eq!(plan.after_bytes * 3, plan.before_bytes * 4);
    assert_eq!(
        (plan.first, plan.last, plan.lacking_members),
        (None, None, 0)
    );
}

#[test]
fn one_member_less_moves_rows_downwards_where_there_is_room_behind_the_data() {
    let room = Room {
        front_sectors: 0,
        back_sectors: 128,
    };
    let plan = plan(&situation(LEFT_SYMMETRIC, 5, 0, room), &wish(Some(4), None)).unwrap();
    let movement = moved(&plan);
    assert_eq!(movement.direction, Direction::Down);
    assert_eq!(movement.shift_sectors, 128);
    assert_eq!(movement.start_sectors * 512, plan.after_bytes);
}

#[test]
fn rows_of_the_same_length_take_most_of_the_larger_room_and_leave_some_for_a_log() {
    let layout = Wish {
        layout: Some("right-symmetric".to_owned()),
        ..Wish::default()
    };
    let mut now = situation(LEFT_SYMMETRIC, 4, 0, ROOM);
    let shift = |now: &Situation| moved(&plan(now, &layout).unwrap()).shift_sectors;
    assert_eq!(shift(&now), -3968, "31 strips");
    now.has_log = true;
    assert_eq!(shift(&now), -3328, "26 strips");
    for room in &mut now.rooms {
        room.back_sectors = 8000;
    }
    assert_eq!(shift(&now), 7936, "behind the data there is more");
}

#[test]
fn a_level_more_is_a_relabel_and_a_move_and_a_level_less_the_other_way_round() {
    let up = plan(
        &situation(LEFT_SYMMETRIC, 4, 1, ROOM),
        &wish(None, Some(Level::Raid6)),
    )
    .unwrap();
    let first = up.first.clone().unwrap();
    let with_q = Organisation::Raid6(Raid6Layout::LeftSymmetric6);
    assert_eq!(
        (first.after.organisation, first.after.member_count),
        (with_q, 5)
    );
    assert_eq!(
        moved(&up).after.organisation,
        Organisation::Raid6(Raid6Layout::LeftSymmetric)
    );
    assert_eq!(up.last, None);
    assert_eq!(up.after_bytes, up.before_bytes);

    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let down = plan(
        &situation(raid6, 5, 0, ROOM),
        &wish(None, Some(Level::Raid5)),
    )
    .unwrap();
    assert_eq!(down.first, None);
    assert_eq!(moved(&down).after.organisation, with_q);
    let last = down.last.unwrap();
    assert_eq!(
        (last.after.organisation, last.after.member_count),
        (LEFT_SYMMETRIC, 4)
    );
}

#[test]
fn the_last_relabel_is_due_for_what_has_moved_and_for_nothing_else() {
    let raid6 = Organisation::Raid6(Raid6Layout::LeftSymmetric);
    let now = situation(raid6, 5, 0, ROOM);
    let plan = plan(&now, &wish(None, Some(Level::Raid5))).unwrap();
    let last = plan.last.clone().unwrap();
    let is_due = |shape: &Shape| last.is_due(&shape.geometry(now.component_sectors).unwrap());
    assert!(is_due(&moved(&plan).after));
    assert!(!is_due(&now.shape), "it has not moved");
    assert!(!is_due(&plan.after), "it is labelled already");
    let another_strip = Shape {
        strip_sectors: 64,
        ..moved(&plan).after
    };
    assert!(!is_due(&another_strip));
}

#[test]
fn what_is_added_for_q_is_filled_upwards_wherever_there_is_more_room() {
    let room = Room {
        front_sectors: 128,
        back_sectors: 9000,
    };
    let now = situation(LEFT_SYMMETRIC, 4, 1, room);
    let plan = plan(&now, &wish(None, Some(Level::Raid6))).unwrap();
    assert_eq!(moved(&plan).direction, Direction::Up);
}

#[test]
fn where_only_the_name_changes_nothing_moves() {
    let plan = plan(
        &situation(Organisation::Raid4, 4, 0, ROOM),
        &Wish {
            level: Some(Level::Raid5),
            ..Wish::default()
        },
    )
    .unwrap();
    assert_eq!(plan.movement, None);
    let after = plan.first.unwrap().after.organisation;
    assert_eq!(after, Organisation::Raid5(Raid5Layout::ParityLast));
}

#[test]
fn what_cannot_be_is_refused_with_the_number_that_is_missing() {
    let now = situation(LEFT_SYMMETRIC, 4, 0, ROOM);
    assert_eq!(plan(&now, &wish(Some(6), None)).unwrap().lacking_members, 2);
    assert!(refusal(&now, &wish(Some(4), None)).contains("already"));
    assert!(refusal(&now, &wish(Some(1), None)).contains("2 members at least"));
    assert!(refusal(&now, &wish(None, Some(Level::Raid10))).contains("raid10"));
    let tight = Room {
        front_sectors: 64,
        back_sectors: 0,
    };
    let text = refusal(
        &situation(LEFT_SYMMETRIC, 4, 1, tight),
        &wish(Some(5), None),
    );
    assert!(
        text.contains("needs 64 KiB") && text.contains("has 32 KiB"),
        "{text}"
    );
    let strip = |strip_bytes| Wish {
        strip_bytes: Some(strip_bytes),
        ..Wish::default()
    };
    assert!(refusal(&now, &strip(5000)).contains("power of two"));
    let mut odd = situation(LEFT_SYMMETRIC, 4, 0, ROOM);
    odd.component_sectors = 128 * 3;
    assert!(refusal(&odd, &strip(128 << 10)).contains("64 KiB are left over"));
}

const RAID0: Organisation = Organisation::Raid0(Raid0Layout::Original);
const PARITY_LAST: Organisation = Organisation::Raid5(Raid5Layout::ParityLast);

fn to(level: Level) -> Wish {
    wish(None, Some(level))
}

#[test]
fn a_raid0_is_the_data_of_a_level_with_parity_or_copies_that_is_called_so_at_once() {
    let near = Organisation::Raid10(Raid10Layout::near(2));
    for (level, organisation, members) in [
        (Level::Raid4, Organisation::Raid4, 4),
        (Level::Raid5, PARITY_LAST, 4),
        (Level::Raid10, near, 6),
    ] {
        let plan = plan(&situation(RAID0, 3, 0, ROOM), &to(level)).unwrap();
        assert_eq!((&plan.movement, &plan.last), (&None, &None), "{level}");
        assert_eq!(plan.after.organisation, organisation);
        assert_eq!(plan.after.member_count, members);
        assert_eq!(plan.first.clone().unwrap().after, plan.after);
        assert_eq!(plan.lacking_members, members - 3, "{level}");
        assert_eq!(plan.before_bytes, plan.after_bytes, "{level}");
    }
}

#[test]
fn what_else_is_wished_of_a_raid0_comes_when_its_parity_is_there() {
    let now = situation(RAID0, 3, 2, ROOM);
    let first = "at first, where nothing moves";
    assert!(refusal(&now, &wish(Some(5), Some(Level::Raid5))).contains(first));
    let layout = Wish {
        layout: Some("left-symmetric".to_owned()),
        ..to(Level::Raid5)
    };
    assert!(refusal(&now, &layout).contains(first));
    let strip = Wish {
        strip_bytes: Some(128 << 10),
        ..to(Level::Raid10)
    };
    assert!(refusal(&now, &strip).contains(first));
    assert!(refusal(&now, &to(Level::Raid6)).contains("by way of a raid5"));
    assert!(refusal(&now, &to(Level::Raid1)).contains("does not become raid1"));
}

#[test]
fn whoever_has_redundancy_alone_is_let_go_of_before_an_array_is_called_raid0() {
    let near = Organisation::Raid10(Raid10Layout::near(2));
    for (organisation, members, let_go) in [
        (PARITY_LAST, 4, vec![3]),
        (Organisation::Raid4, 3, vec![2]),
        (near, 4, vec![1, 3]),
    ] {
        let plan = plan(
            &situation(organisation, members, 0, ROOM),
            &to(Level::Raid0),
        )
        .unwrap();
        assert_eq!((&plan.first, &plan.movement), (&None, &None));
        assert_eq!(plan.before_bytes, plan.after_bytes);
        let last = plan.last.unwrap();
        assert_eq!(last.let_go(&[]), Some(let_go), "{organisation:?}");
        assert_eq!(last.let_go(&[0, 1]), None, "a slot of its data is missing");
    }
    let change = |now: &Situation| plan(now, &to(Level::Raid0)).unwrap().last.unwrap();
    let pairs = change(&situation(near, 4, 0, ROOM));
    assert_eq!(
        pairs.let_go(&[2]),
        Some(vec![1, 2]),
        "the copy that is there stays"
    );
}

#[test]
fn rows_of_another_layout_move_before_an_array_is_called_raid0() {
    let plan = plan(&situation(LEFT_SYMMETRIC, 4, 0, ROOM), &to(Level::Raid0)).unwrap();
    assert_eq!(moved(&plan).after.organisation, PARITY_LAST);
    assert_eq!(moved(&plan).after.member_count, 4);
    let last = plan.last.clone().unwrap();
    assert_eq!(last.before, moved(&plan).after);
    assert_eq!(
        (last.after.organisation, last.after.member_count),
        (RAID0, 3)
    );
}

#[test]
fn who_is_let_go_of_may_be_missing_and_nobody_else() {
    let mut now = situation(PARITY_LAST, 4, 0, ROOM);
    (now.missing_slots, now.member_count) = (vec![3], 3);
    assert_eq!(plan(&now, &to(Level::Raid0)).unwrap().lacking_members, 0);
    now.has_log = true;
    let text = refusal(&now, &to(Level::Raid0));
    assert!(text.contains("missing"), "its log stays as long: {text}");
    now.has_log = false;
    now.missing_slots = vec![1];
    assert!(refusal(&now, &to(Level::Raid0)).contains("missing"));
    now = situation(LEFT_SYMMETRIC, 4, 0, ROOM);
    (now.missing_slots, now.member_count) = (vec![3], 3);
    assert!(
        refusal(&now, &to(Level::Raid0)).contains("missing"),
        "rows move first"
    );
}

#[test]
fn a_raid0_has_no_spares_and_says_how_much_it_uses_of_each_member() {
    let now = situation(PARITY_LAST, 4, 1, ROOM);
    assert!(refusal(&now, &to(Level::Raid0)).contains("no spares"));
    let mut old = situation(PARITY_LAST, 4, 0, ROOM);
    old.says_data_size = false;
    assert!(refusal(&old, &to(Level::Raid0)).contains("0.90"));
    let six = situation(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5, 0, ROOM);
    assert!(refusal(&six, &to(Level::Raid0)).contains("by way of a raid5"));
}

#[test]
fn two_copies_are_a_raid1_and_a_raid10() {
    let near = Organisation::Raid10(Raid10Layout::near(2));
    let mut mirror = situation(Organisation::Raid1, 2, 0, ROOM);
    mirror.shape.strip_sectors = 0;
    let up = plan(&mirror, &to(Level::Raid10)).unwrap();
    assert_eq!((up.after.organisation, up.after.member_count), (near, 2));
    assert_eq!((&up.movement, up.before_bytes), (&None, up.after_bytes));
    let down = plan(&situation(near, 2, 0, ROOM), &to(Level::Raid1)).unwrap();
    assert_eq!(down.after, mirror.shape);
    for count in [3, 4] {
        let text = refusal(&situation(near, count, 0, ROOM), &to(Level::Raid1));
        assert!(text.contains("two members"), "{text}");
    }
    let odd = refusal(&situation(near, 5, 0, ROOM), &to(Level::Raid0));
    assert!(odd.contains("even number"), "{odd}");
}
