//! Starts that take members which missed writes, because the user has named them and insists (W7, forced).

use super::*;

const READ: Options = Options {
    stale: StaleUse::Read,
    ..FORCED
};
const WRITE: Options = Options {
    stale: StaleUse::Write,
    ..FORCED
};

/// Slots that members were taken for although they missed writes.
fn taken(assembly: &Assembly) -> Vec<u16> {
    let taken = assembly.members.iter().filter(|m| m.caution.is_some());
    taken.filter_map(|member| member.slot).collect()
}

#[test]
fn of_stale_members_that_were_named_the_newest_are_taken_and_as_few_as_needed() {
    let mut members = raid5(4);
    set_events(&mut members, &[EVENTS, 20, EVENTS - 2, 30]);
    let assembly = started(&members, READ);
    assert_eq!(
        (taken(&assembly), &assembly.missing_slots[..]),
        (vec![2, 3], &[1][..])
    );
    assert!(assembly.is_read_only && assembly.mixes_two_times());
    assert_eq!(assembly.array.events.0, EVENTS);
    assert!(is_stale(&assembly, 1));
    assert!(!started(&members, WRITE).is_read_only);
    set_events(&mut members, &[EVENTS, EVENTS, EVENTS, 30]);
    let assembly = started(&members, WRITE);
    assert!(taken(&assembly).is_empty() && is_stale(&assembly, 3) && !assembly.is_read_only);
}

#[test]
fn a_member_recorded_as_faulty_is_taken_before_one_that_was_lost_earlier() {
    let mut members = raid5(4);
    set_events(&mut members, &[EVENTS, 2, EVENTS - 1, EVENTS]);
    record(&mut members, &[0, 2, 3], 1, Role::Faulty);
    record(&mut members, &[0, 3], 2, Role::Faulty);
    assert_eq!(refused(&members, FORCED), ("too_few_members", 4));
    assert_eq!(taken(&started(&members, READ)), [2]);
}

#[test]
fn whoever_is_not_needed_to_have_all_data_is_left_out() {
    // Near copies: 0 and 1 hold the same, 2 and 3 hold the same.
    let mut members = array(10, 0x102, 4);
    set_events(&mut members, &[EVENTS, 38, 36, 37]);
    let assembly = started(&members, READ);
    assert_eq!(taken(&assembly), [3]);
    assert_eq!(assembly.missing_slots, [1, 2]);
    assert!(
        !started(&members, WRITE).is_read_only,
        "nobody else holds what it holds"
    );
}

#[test]
fn a_fresh_copy_is_read_before_a_stale_one_and_then_nothing_is_written() {
    // Offset copies: neighbours share.
    let mut members = array(10, 0x1_0201, 4);
    set_events(&mut members, &[EVENTS, EVENTS, 37, 37]);
    let assembly = started(&members, WRITE);
    assert_eq!(taken(&assembly).len(), 1);
    let member = assembly.members.iter().find(|m| m.caution.is_some());
    assert!(member.unwrap().is_write_mostly && assembly.is_read_only);
}

#[test]
fn members_that_went_on_alone_or_were_being_filled_are_never_taken() {
    let mut members = raid5(3);
    set_events(&mut members, &[EVENTS, 30, 30]);
    members[1].superblock.rebuild_offset_sectors = Some(8);
    record(&mut members, &[2], 0, Role::Faulty);
    for options in [READ, WRITE] {
        assert_eq!(refused(&members, options), ("too_few_members", 4));
    }
}

#[test]
fn without_redundancy_event_counts_say_nothing_about_data() {
    for level in [-1, 0] {
        let mut members = array(level, u32::from(level == 0), 3);
        set_events(&mut members, &[5, 0, 3]);
        let error = assemble(&members, &PLAIN).unwrap_err();
        assert_eq!(error.code.slug(), "too_few_members");
        let hint = error.hints.last().unwrap();
        assert!(
            hint.ends_with("plexum serve --force --read-only m0 m1 m2"),
            "{hint}"
        );
        let assembly = started(&members, FORCED);
        assert_eq!(taken(&assembly), [1, 2]);
        assert!(!assembly.is_read_only && !assembly.mixes_two_times());
    }
}

#[test]
fn a_refusal_names_the_way_out_only_where_it_leads_out() {
    let mut members = raid5(3);
    set_events(&mut members, &[EVENTS, 7, 9]);
    let error = assemble(&members, &DEGRADED).unwrap_err();
    assert_eq!(error.hints.len(), 2, "{error}");
    let error = assemble(&members[..1], &DEGRADED).unwrap_err();
    assert_eq!(error.hints.len(), 1, "{error}");
}
