//! Arrays of Linux md get other members, levels, layouts and strips while they are served, whatever write is the last
//! one before a crash, and whoever is lost on the way.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, run};
use crate::reshapes::{
    Case, Cut, Known, LEFT_SYMMETRIC, STEP_BYTES, STRIP_BYTES, carry_on, check, copies, filled,
    grown, images, is_half, look, plain, planned, read_all, relabelled, reshaping, run_until,
    to_its_end, work,
};
use plexum_block::wait::join;
use plexum_layout::{Level, Organisation, Raid6Layout};
use plexum_md::open::OpenError;
use plexum_md::reshape::Beginning;

pub(crate) const CASES: [Case; 12] = [
    grown(LEFT_SYMMETRIC, 4, 1, true),
    grown(LEFT_SYMMETRIC, 3, 2, false),
    grown(Organisation::Raid4, 3, 1, true),
    grown(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5, 1, true),
    // Rows of the same length.
    Case {
        wish: (None, None, Some("right-asymmetric"), Some(8192)),
        ..grown(LEFT_SYMMETRIC, 4, 0, true)
    },
    // Fewer members: from the end.
    Case {
        wish: (Some(4), None, None, None),
        ..grown(LEFT_SYMMETRIC, 5, 0, true)
    },
    Case {
        wish: (Some(4), None, None, Some(8192)),
        ..grown(
            Organisation::Raid6(Raid6Layout::RightSymmetric),
            6,
            0,
            false,
        )
    },
    // Another level.
    Case {
        wish: (None, Some(Level::Raid6), None, None),
        ..grown(LEFT_SYMMETRIC, 3, 1, true)
    },
    Case {
        wish: (Some(6), Some(Level::Raid6), None, Some(8192)),
        ..grown(LEFT_SYMMETRIC, 4, 2, false)
    },
    Case {
        wish: (None, Some(Level::Raid5), None, None),
        ..grown(Organisation::Raid6(Raid6Layout::LeftSymmetric), 5, 0, true)
    },
    // Mirrors of two are RAID-5 of two by another name.
    Case {
        wish: (Some(3), Some(Level::Raid5), None, Some(STRIP_BYTES)),
        ..grown(Organisation::Raid1, 2, 1, true)
    },
    Case {
        wish: (None, Some(Level::Raid1), None, None),
        ..grown(LEFT_SYMMETRIC, 4, 0, false)
    },
];

#[test]
fn an_array_is_reshaped_while_clients_read_and_write() {
    for case in CASES {
        let (devices, mut content) = filled(&case);
        let plan = planned(&devices, &case);
        let beginning = Beginning::of(&plan);
        let left = Rc::new(Cell::new(usize::MAX));
        let slow = |memory: &Memory| Cut {
            memory: memory.clone(),
            left: Rc::clone(&left),
            goes_at: 0,
        };
        let slow: Vec<Cut> = devices.iter().map(slow).collect();
        let moving = reshaping(&slow, beginning.as_ref())
            .unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert_eq!(moving.size_bytes(), plan.before_bytes.min(plan.after_bytes));
        let kept = moving.size_bytes() as usize;
        run(join(moving.run(), async {
            work(&moving, &mut content[..kept], &mut Vec::new(), 0).await;
            moving.ended().await;
            assert!(moving.has_ended(), "{case:?}");
            moving.stop().await.unwrap();
        }));
        drop(moving);
        relabelled(&devices, &plan);
        let end = plain(&devices, false).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        assert!(
            end.status().lost_slots.is_empty(),
            "{case:?}: all are complete"
        );
        drop(end);
        check(&devices, &plan, &content[..kept], &format!("{case:?}"));
    }
}

#[test]
fn a_reshape_goes_on_after_a_crash_at_any_write() {
    for case in CASES {
        STEP_BYTES.set(1);
        crash_at_any_write(&case);
    }
}

#[test]
fn a_reshape_that_takes_all_the_room_there_is_goes_on_after_a_crash_at_any_write() {
    for case in CASES {
        STEP_BYTES.set(1 << 40);
        crash_at_any_write(&case);
    }
}

fn crash_at_any_write(case: &Case) {
    let (devices, content) = filled(case);
    let plan = planned(&devices, case);
    let beginning = Beginning::of(&plan);
    let first = images(&devices);
    let mut sectors = 1;
    loop {
        let devices = copies(&first);
        let kept = plan.before_bytes.min(plan.after_bytes) as usize;
        let mut known = Known {
            content: content[..kept].to_vec(),
            torn: Vec::new(),
        };
        let place = format!("{case:?}, cut after {sectors} sectors");
        let has_ended = run_until(&devices, beginning.as_ref(), &mut known, sectors, None);
        look(&devices, &mut known, &place);
        carry_on(&devices, &plan, &known, &place);
        if has_ended {
            break;
        }
        sectors += 1 + sectors / 8;
    }
}

/// Sectors that one whole reshape writes.
fn sectors_of(case: &Case) -> usize {
    let (devices, content) = filled(case);
    let plan = planned(&devices, case);
    let kept = plan.before_bytes.min(plan.after_bytes) as usize;
    let mut known = Known {
        content: content[..kept].to_vec(),
        torn: Vec::new(),
    };
    let beginning = Beginning::of(&plan);
    let left = usize::MAX / 2;
    assert!(run_until(
        &devices,
        beginning.as_ref(),
        &mut known,
        left,
        None
    ));
    devices
        .iter()
        .map(|device| device.writes.get() as usize)
        .sum::<usize>()
        * 8
}

#[test]
fn a_reshape_goes_on_without_a_member_that_is_lost_on_the_way_and_after_a_crash_behind_that() {
    for case in CASES {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        let beginning = Beginning::of(&plan);
        let first = images(&devices);
        let all = sectors_of(&case);
        for (round, lost_after) in (1..all).step_by(all / 9).enumerate() {
            for crash_after in [None, Some(lost_after + 40), Some(lost_after + 700)] {
                let lost = round % devices.len();
                let devices = copies(&first);
                let kept = plan.before_bytes.min(plan.after_bytes) as usize;
                let mut known = Known {
                    content: content[..kept].to_vec(),
                    torn: Vec::new(),
                };
                let total = crash_after.unwrap_or(usize::MAX / 2);
                let place = format!(
                    "{case:?}, {lost} lost after {lost_after} sectors, crash after {crash_after:?}"
                );
                let goes_at = total - lost_after;
                run_until(
                    &devices,
                    beginning.as_ref(),
                    &mut known,
                    total,
                    Some((lost, goes_at)),
                );
                let mut rest = devices.clone();
                rest.remove(lost);
                // Dirty and degraded in a crash is what the user is asked about, as ever.
                let is_refused =
                    |error: &OpenError| error.to_string().contains("not stopped cleanly");
                let refused = match is_half(&rest) {
                    true => reshaping(&rest, None).err(),
                    false => plain(&rest, true).err(),
                };
                if let Some(error) = refused {
                    assert!(
                        is_refused(&error) && crash_after.is_some(),
                        "{place}: {error}"
                    );
                    continue;
                }
                look(&rest, &mut known, &place);
                if is_half(&rest) {
                    let moving = reshaping(&rest, None).unwrap();
                    to_its_end(&moving, &place);
                }
                let end = plain(&rest, true).unwrap_or_else(|error| panic!("{place}: {error}"));
                let read = read_all(&end);
                let same = read
                    .iter()
                    .zip(&known.content)
                    .take_while(|(a, b)| a == b)
                    .count();
                assert_eq!(same, kept.min(read.len()), "{place}");
            }
        }
    }
}

/// W4: what no geometry survives is written nowhere, and with everybody back it goes on.
#[test]
fn a_reshape_that_has_lost_too_many_stops_and_goes_on_when_they_are_back() {
    for case in CASES {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        let beginning = Beginning::of(&plan);
        let first = images(&devices);
        let all = sectors_of(&case);
        for lost_after in (100..all).step_by(all / 5) {
            let devices = copies(&first);
            let kept = plan.before_bytes.min(plan.after_bytes) as usize;
            let mut known = Known {
                content: content[..kept].to_vec(),
                torn: Vec::new(),
            };
            let place = format!("{case:?}, three lost after {lost_after} sectors");
            let left = Rc::new(Cell::new(usize::MAX / 2));
            let goes_at = usize::MAX / 2 - lost_after;
            let cut = |(index, memory): (usize, &Memory)| Cut {
                memory: memory.clone(),
                left: Rc::clone(&left),
                goes_at: if index < 3 { goes_at } else { 0 },
            };
            let cut: Vec<Cut> = devices.iter().enumerate().map(cut).collect();
            let moving = reshaping(&cut, beginning.as_ref()).unwrap();
            run(join(
                Box::pin(moving.run()),
                Box::pin(async {
                    work(&moving, &mut known.content[..kept], &mut known.torn, 0).await;
                    moving.ended().await;
                    let _ = moving.stop().await;
                }),
            ));
            if moving.has_ended() {
                continue;
            }
            assert!(moving.has_failed() && moving.after().is_frozen(), "{place}");
            drop(moving);
            look(&devices, &mut known, &place);
            carry_on(&devices, &plan, &known, &place);
        }
    }
}
