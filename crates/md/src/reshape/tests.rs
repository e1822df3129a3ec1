//! Plans: every way that md can express, and what is refused with the number that is missing.

use super::*;
use plexum_engine::migrate::Direction;
use plexum_layout::{Level, Organisation, Raid5Layout, Raid6Layout};

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
        complete_count: members,
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
