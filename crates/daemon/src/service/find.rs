//! Which of the devices and files that are there serve a volume: a decision, without I/O.
//!
//! Invariants:
//! - a member is known by what is on it; its old path counts for nothing once something else is there;
//! - who is at its old path is taken before anybody else, so that a copy beside it is never taken for it;
//! - of two that say they are the same member none is taken: one of them is a copy, and nobody knows which.

use std::collections::{BTreeMap, BTreeSet};

use crate::expected::Expected;
use crate::marks::{Mark, Marks, are_members_marked};

/// Which file or device something is, independent of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Identity {
    /// Numbers of a file's file system and inode.
    File(u64, u64),
    /// A block device's number.
    Device(u64),
}

/// What is at the path or address of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// Nothing.
    Absent,
    /// It does not answer: a disk or a file system that hangs.
    Silent,
    /// Something whose content is not looked at before it is opened: an address, a part of a disk, what cannot be read.
    Unread,
    /// A file or a device.
    There(Identity, Marks),
}

/// A file or a device that nobody has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stranger {
    pub(super) path: String,
    pub(super) identity: Identity,
    pub(super) marks: Marks,
}

/// What was seen in one look.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    /// At the paths of members, by their words.
    pub(super) words: BTreeMap<String, Sight>,
    /// Elsewhere.
    pub(super) strangers: Vec<Stranger>,
}

/// Who of a volume is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Present {
    /// Whom to open: words, or paths where members have moved to.
    pub(super) members: Vec<String>,
    /// Their slots, as far as their own marks say them.
    pub(super) slots: BTreeSet<u32>,
    /// Words of members that were found nowhere.
    pub(super) missing: Vec<String>,
    /// Those of them that do not answer.
    pub(super) silent: Vec<String>,
    /// Paths that say they are the same member, for each that several say they are.
    pub(super) copies: Vec<Vec<String>>,
}

/// The mark of a volume on a member.
fn mark_of<'a>(expected: &Expected, marks: &'a Marks) -> Option<&'a Mark> {
    marks.marks.iter().find(|mark| mark.is_of(expected))
}

/// Who of `expected` is there.
pub(super) fn find(expected: &Expected, view: &View) -> Present {
    let mut present = Present::default();
    let (mut taken, mut known) = (BTreeSet::new(), Vec::new());
    let mut lacking = Vec::new();
    for word in expected.members() {
        match view.words.get(&word) {
            Some(Sight::Unread) => present.members.push(word),
            Some(Sight::There(identity, marks)) => {
                let mark = mark_of(expected, marks);
                let is_meant = mark.is_some()
                    || marks.is_damaged // whoever opens it says what is wrong with it
                    || !are_members_marked(expected);
                if !is_meant {
                    lacking.push(word);
                } else if taken.insert(*identity) {
                    known.extend(mark.cloned());
                    present.slots.extend(mark.and_then(|mark| mark.slot));
                    present.members.push(word);
                }
            }
            Some(Sight::Silent) => {
                present.silent.push(word.clone());
                lacking.push(word);
            }
            Some(Sight::Absent) | None => lacking.push(word),
        }
    }
    if !lacking.is_empty() {
        take_strangers(expected, view, &taken, &known, &mut present);
    }
    present.missing = missing(expected, lacking, &present);
    present
}

/// Members that have moved.
fn take_strangers(
    expected: &Expected,
    view: &View,
    taken: &BTreeSet<Identity>,
    known: &[Mark],
    present: &mut Present,
) {
    let is_same = |one: &Mark, other: &Mark| match (one.slot, other.slot) {
        (None, None) => one.member == other.member,
        (one, other) => one == other,
    };
    // The newest that says so, and who else is as new.
    let mut newest: Vec<(&Mark, Vec<&Stranger>)> = Vec::new();
    for stranger in &view.strangers {
        let Some(mark) = mark_of(expected, &stranger.marks) else {
            continue;
        };
        if taken.contains(&stranger.identity) || known.iter().any(|one| is_same(one, mark)) {
            continue;
        }
        match newest.iter_mut().find(|(other, _)| is_same(other, mark)) {
            None => newest.push((mark, vec![stranger])),
            Some(found) if mark.age > found.0.age => *found = (mark, vec![stranger]),
            Some((other, all)) if mark.age == other.age => all.push(stranger),
            Some(_) => {} // an old member of that slot
        }
    }
    for (mark, mut all) in newest {
        all.dedup_by_key(|stranger| stranger.identity);
        if all.len() > 1 {
            present
                .copies
                .push(all.iter().map(|one| one.path.clone()).collect());
            continue;
        }
        present.members.push(all[0].path.clone());
        present.slots.extend(mark.slot);
    }
}

/// Words whose members are nowhere. Who was named once and has no slot is not missed once the slots are known.
fn missing(expected: &Expected, mut lacking: Vec<String>, present: &Present) -> Vec<String> {
    let slot_of = |word: &String| {
        let mut slots = expected.slots.iter();
        slots
            .find(|(_, slot)| slot.member == *word)
            .map(|(number, _)| *number)
    };
    if !expected.slots.is_empty() {
        lacking.retain(|word| slot_of(word).is_some() || expected.spares.contains(word));
    }
    lacking.retain(|word| slot_of(word).is_none_or(|slot| !present.slots.contains(&slot)));
    lacking
}

/// Where the member of a slot is that a running volume lacks; none while it is not there. `in_use` are the words of the
/// members that the volume has.
pub(super) fn find_returned(
    expected: &Expected,
    view: &View,
    slot: u32,
    in_use: &[String],
) -> Option<String> {
    let word = &expected.slots.get(&slot)?.member;
    let is_its_slot = |mark: &Mark| mark.slot.is_none_or(|own| own == slot);
    match view.words.get(word) {
        Some(Sight::Unread) => return Some(word.clone()),
        Some(Sight::There(_, marks)) => match mark_of(expected, marks) {
            Some(mark) if is_its_slot(mark) => return Some(word.clone()),
            None if !are_members_marked(expected) => return Some(word.clone()),
            _ => {} // something else is there now
        },
        _ => {}
    }
    let used: BTreeSet<Identity> = in_use
        .iter()
        .filter_map(|word| match view.words.get(word) {
            Some(Sight::There(identity, _)) => Some(*identity),
            _ => None,
        })
        .collect();
    let here = |stranger: &&Stranger| {
        !used.contains(&stranger.identity)
            && mark_of(expected, &stranger.marks).is_some_and(|mark| mark.slot == Some(slot))
    };
    let mut here: Vec<&Stranger> = view.strangers.iter().filter(here).collect();
    here.dedup_by_key(|stranger| stranger.identity);
    let age = |stranger: &&Stranger| mark_of(expected, &stranger.marks).map(|mark| mark.age);
    let newest = here.iter().map(age).max()?;
    here.retain(|stranger| age(stranger) == newest);
    match here[..] {
        [only] => Some(only.path.clone()),
        _ => None, // one of them is a copy
    }
}

/// Members of a pool that its running volume lacks, and where they are: their own marks say which of them they are, and
/// nothing says their slots. `in_use` are the words of the members that it has.
pub(super) fn find_returned_of_pool(
    expected: &Expected,
    view: &View,
    in_use: &[String],
) -> Vec<String> {
    let at_words = view.words.iter().filter_map(|(word, sight)| match sight {
        Sight::There(identity, marks) => Some((word, *identity, mark_of(expected, marks)?)),
        _ => None,
    });
    let elsewhere = view.strangers.iter().filter_map(|stranger| {
        let mark = mark_of(expected, &stranger.marks)?;
        Some((&stranger.path, stranger.identity, mark))
    });
    let (used, others): (Vec<_>, Vec<_>) = at_words
        .chain(elsewhere)
        .partition(|(word, ..)| in_use.contains(word));
    let is_used = |identity: &Identity, mark: &Mark| {
        let mut used = used.iter();
        used.any(|(_, own, of)| own == identity || of.member == mark.member)
    };
    let mut returned: BTreeMap<&str, BTreeMap<Identity, &String>> = BTreeMap::new();
    for (word, identity, mark) in others {
        if !is_used(&identity, mark) {
            let places = returned.entry(&mark.member).or_default();
            places.entry(identity).or_insert(word);
        }
    }
    let only = returned.values().filter(|places| places.len() == 1); // of several all but one are copies
    only.flat_map(BTreeMap::values)
        .map(|word| (*word).clone())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expected::ExpectedSlot;

    const SET: &str = "00000000:00000000:00000000:00000001";

    /// A mirror of `/dev/sda` and `/dev/sdb`.
    fn mirror() -> Expected {
        let slot = |member: &str| ExpectedSlot {
            member: member.into(),
            ..ExpectedSlot::default()
        };
        Expected {
            volume: "nas".into(),
            format: "md-1.2".into(),
            uuid: SET.into(),
            slots: BTreeMap::from([(0, slot("/dev/sda")), (1, slot("/dev/sdb"))]),
            ..Expected::default()
        }
    }

    fn marks(set: &str, slot: Option<u32>, age: u64) -> Marks {
        let mark = Mark {
            format: "md-1.2".into(),
            set: set.into(),
            member: format!("member {slot:?}"),
            slot,
            age,
        };
        Marks {
            marks: vec![mark],
            is_damaged: false,
        }
    }

    fn there(number: u64, marks: Marks) -> Sight {
        Sight::There(Identity::Device(number), marks)
    }

    fn stranger(path: &str, number: u64, marks: Marks) -> Stranger {
        Stranger {
            path: path.into(),
            identity: Identity::Device(number),
            marks,
        }
    }

    fn view(words: &[(&str, Sight)], strangers: Vec<Stranger>) -> View {
        let words = words
            .iter()
            .map(|(word, sight)| ((*word).to_owned(), sight.clone()));
        View {
            words: words.collect(),
            strangers,
        }
    }

    #[test]
    fn disks_that_changed_their_names_are_all_found() {
        let other = marks("another", Some(0), 9);
        let seen = view(
            &[
                ("/dev/sda", there(1, other)),
                ("/dev/sdb", there(2, marks(SET, Some(0), 5))),
            ],
            vec![
                stranger("/dev/sdb", 2, marks(SET, Some(0), 5)),
                stranger("/dev/sdc", 3, marks(SET, Some(1), 5)),
            ],
        );
        let present = find(&mirror(), &seen);
        assert_eq!(present.members, ["/dev/sdb", "/dev/sdc"]);
        assert_eq!(present.missing, [""; 0]);
        assert_eq!(present.slots, BTreeSet::from([0, 1]));
    }

    #[test]
    fn whoever_is_at_its_path_is_taken_and_a_copy_elsewhere_is_not() {
        let seen = view(
            &[
                ("/dev/sda", there(1, marks(SET, Some(0), 5))),
                ("/dev/sdb", Sight::Absent),
            ],
            vec![stranger("/dev/sdx", 7, marks(SET, Some(0), 99))],
        );
        let present = find(&mirror(), &seen);
        assert_eq!(present.members, ["/dev/sda"]);
        assert_eq!(present.missing, ["/dev/sdb"]);
    }

    #[test]
    fn of_two_that_are_equally_new_none_is_taken_and_of_others_the_newer() {
        let words = [
            ("/dev/sda", there(1, marks(SET, Some(0), 5))),
            ("/dev/sdb", Sight::Absent),
        ];
        let old = stranger("/dev/sdc", 3, marks(SET, Some(1), 4));
        let new = stranger("/dev/sdd", 4, marks(SET, Some(1), 5));
        let copy = stranger("/dev/sde", 5, marks(SET, Some(1), 5));
        let present = find(&mirror(), &view(&words, vec![old.clone(), new.clone()]));
        assert_eq!(present.members, ["/dev/sda", "/dev/sdd"]);
        let seen = view(&words, vec![old, new, copy]);
        let present = find(&mirror(), &seen);
        assert_eq!(present.members, ["/dev/sda"]);
        assert_eq!(present.copies, [["/dev/sdd", "/dev/sde"]]);
        assert_eq!(find_returned(&mirror(), &seen, 1, &[]), None);
    }

    #[test]
    fn a_disk_that_was_emptied_or_hangs_is_missed_and_keeps_nobody_from_starting() {
        for sight in [there(2, Marks::default()), Sight::Silent] {
            let seen = view(
                &[
                    ("/dev/sda", there(1, marks(SET, Some(0), 5))),
                    ("/dev/sdb", sight.clone()),
                ],
                vec![],
            );
            let present = find(&mirror(), &seen);
            assert_eq!(present.members, ["/dev/sda"]);
            assert_eq!(present.missing, ["/dev/sdb"]);
            assert_eq!(present.silent.len(), usize::from(sight == Sight::Silent));
        }
    }

    #[test]
    fn a_damaged_member_is_opened_so_that_it_is_told_what_is_wrong_with_it() {
        let damaged = Marks {
            marks: vec![],
            is_damaged: true,
        };
        let seen = view(
            &[
                ("/dev/sda", there(1, marks(SET, Some(0), 5))),
                ("/dev/sdb", there(2, damaged)),
            ],
            vec![],
        );
        assert_eq!(find(&mirror(), &seen).members, ["/dev/sda", "/dev/sdb"]);
    }

    #[test]
    fn members_of_a_format_without_marks_are_known_by_their_paths() {
        let expected = Expected {
            format: "gvinum".into(),
            uuid: String::new(),
            ..mirror()
        };
        let seen = view(
            &[
                ("/dev/sda", there(1, Marks::default())),
                ("/dev/sdb", Sight::Absent),
            ],
            vec![stranger("/dev/sdc", 3, marks(SET, Some(1), 5))],
        );
        let present = find(&expected, &seen);
        assert_eq!(
            (present.members, present.missing),
            (vec!["/dev/sda".into()], vec!["/dev/sdb".into()])
        );
        assert_eq!(
            find_returned(&expected, &seen, 0, &[]),
            Some("/dev/sda".into())
        );
    }

    #[test]
    fn an_address_is_asked_when_it_is_opened() {
        let mut expected = mirror();
        expected.slots.get_mut(&1).unwrap().member = "nbd://there/x".into();
        let seen = view(
            &[
                ("/dev/sda", Sight::Absent),
                ("nbd://there/x", Sight::Unread),
            ],
            vec![],
        );
        let present = find(&expected, &seen);
        assert_eq!(present.members, ["nbd://there/x"]);
        assert_eq!(present.missing, ["/dev/sda"]);
    }

    #[test]
    fn members_of_a_pool_return_by_what_is_on_them_and_copies_do_not() {
        let pool = Expected {
            format: "zfs".into(),
            ..mirror()
        };
        let mark = |member: &str| {
            let mut marks = marks(SET, None, 5);
            marks.marks[0].format = "zfs".into();
            marks.marks[0].member = member.into();
            marks
        };
        let in_use = ["/dev/sda".to_owned()];
        let here = ("/dev/sda", there(1, mark("first")));
        let returned = |seen: View| find_returned_of_pool(&pool, &seen, &in_use);
        let seen = |second: Sight, others: Vec<Stranger>| {
            view(&[here.clone(), ("/dev/sdb", second)], others)
        };
        let back = there(2, mark("second"));
        assert_eq!(returned(seen(back.clone(), vec![])), ["/dev/sdb"]);
        let moved = stranger("/dev/sdc", 3, mark("second"));
        assert_eq!(
            returned(seen(Sight::Absent, vec![moved.clone()])),
            ["/dev/sdc"]
        );
        let same = stranger("/dev/by-id/x", 2, mark("second"));
        assert_eq!(returned(seen(back.clone(), vec![same])).len(), 1);
        assert_eq!(returned(seen(back, vec![moved])), [""; 0], "a copy");
        let copy_of_first = stranger("/dev/sdd", 4, mark("first"));
        assert_eq!(
            returned(seen(Sight::Absent, vec![copy_of_first])),
            [""; 0],
            "it is there"
        );
        let other = stranger("/dev/sdc", 3, marks("another", None, 5));
        assert_eq!(returned(seen(Sight::Absent, vec![other])), [""; 0]);
    }

    #[test]
    fn a_member_returns_by_another_name_and_nobody_else_returns_for_it() {
        let in_use = ["/dev/sda".to_owned()];
        let gone = [
            ("/dev/sda", there(1, marks(SET, Some(0), 9))),
            ("/dev/sdb", Sight::Absent),
        ];
        let returned = stranger("/dev/sdc", 3, marks(SET, Some(1), 5));
        let seen = view(&gone, vec![returned.clone()]);
        assert_eq!(
            find_returned(&mirror(), &seen, 1, &in_use),
            Some("/dev/sdc".into())
        );
        let used = ["/dev/sda".to_owned(), "/dev/sdc".to_owned()];
        let mut seen = view(&gone, vec![returned]);
        seen.words
            .insert("/dev/sdc".into(), there(3, marks(SET, Some(1), 5)));
        assert_eq!(
            find_returned(&mirror(), &seen, 1, &used),
            None,
            "it is in use"
        );
        let blank = [
            ("/dev/sda", gone[0].1.clone()),
            ("/dev/sdb", there(2, Marks::default())),
        ];
        assert_eq!(
            find_returned(&mirror(), &view(&blank, vec![]), 1, &in_use),
            None
        );
        let other = vec![stranger("/dev/sdc", 3, marks("another", Some(1), 5))];
        assert_eq!(
            find_returned(&mirror(), &view(&gone, other), 1, &in_use),
            None
        );
    }
}
