//! Arrays of Linux md that are called something else from now on: data stay where they are, after a crash at any write.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, named, run};
use crate::reshapes::{
    Case, Cut, LEFT_SYMMETRIC, check, copies, examined, filled, grown, images, plain, planned,
    pool, request, stopped,
};
use plexum_block::wait::join;
use plexum_engine::volume::Volume;
use plexum_layout::{Level, Organisation, Raid5Layout, Raid10Layout};
use plexum_md::open::{OpenError, open_volume};
use plexum_md::reshape::{Alteration, LogNow, Plan, Wish, plan, situation};

fn relabelled<D: plexum_block::device::Device>(
    devices: Vec<D>,
    plan: &Plan,
) -> Result<Volume<D, Still>, OpenError> {
    assert_eq!(plan.movement, None, "nothing moves");
    let relabel = plan.first.clone().or(plan.last.clone()).unwrap();
    let mut asked = request(true);
    asked.alteration = Some(Alteration::Relabel(relabel));
    let opened = open_volume(named(devices), Still::default(), pool(), asked);
    run(opened).map(|(volume, _)| volume)
}

/// Mirrors with members that come and go, RAID-5 of two by all of its names.
fn cases() -> Vec<Case> {
    let named = |organisation, members, added, wish| Case {
        wish,
        ..grown(organisation, members, added, true)
    };
    let layout = Some("right-asymmetric");
    let pairs = Organisation::Raid10(Raid10Layout::near(2));
    vec![
        grown(Organisation::Raid1, 2, 1, true),
        named(Organisation::Raid1, 3, 0, (Some(2), None, None, None)),
        named(
            Organisation::Raid1,
            2,
            0,
            (None, Some(Level::Raid5), None, None),
        ),
        named(LEFT_SYMMETRIC, 2, 0, (None, Some(Level::Raid1), None, None)),
        named(
            LEFT_SYMMETRIC,
            2,
            1,
            (Some(3), Some(Level::Raid1), None, None),
        ),
        named(LEFT_SYMMETRIC, 2, 0, (None, None, layout, Some(8192))),
        named(LEFT_SYMMETRIC, 2, 0, (None, Some(Level::Raid4), None, None)),
        named(
            Organisation::Raid1,
            2,
            0,
            (None, Some(Level::Raid10), None, Some(8192)),
        ),
        named(pairs, 2, 0, (None, Some(Level::Raid1), None, None)),
    ]
}

#[test]
fn an_array_with_another_name_has_all_of_its_content_after_a_crash_at_any_write() {
    for case in cases() {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        assert_eq!(plan.before_bytes, plan.after_bytes, "{case:?}");
        let first = images(&devices);
        let mut sectors = 1;
        loop {
            let devices = copies(&first);
            let place = format!("{case:?}, cut after {sectors} sectors");
            let left = Rc::new(Cell::new(sectors));
            let cut = |memory: &Memory| Cut {
                memory: memory.clone(),
                left: Rc::clone(&left),
                goes_at: 0,
            };
            let has_ended = match relabelled(devices.iter().map(cut).collect(), &plan) {
                Ok(volume) => {
                    let (_, has_ended) = run(join(
                        Box::pin(volume.run_background()),
                        Box::pin(async {
                            volume.rebuilt().await;
                            volume.stop().await.is_ok()
                        }),
                    ));
                    has_ended && left.get() > 0
                }
                Err(OpenError::Io { .. }) => false,
                Err(error) => panic!("{place}: {error}"),
            };
            let whole = plain(&devices, true).unwrap_or_else(|error| panic!("{place}: {error}"));
            let is_new = whole.geometry().member_count() == usize::from(plan.after.member_count)
                && whole.geometry().organisation() == plan.after.organisation
                && whole.geometry().strip_bytes() == u64::from(plan.after.strip_sectors) * 512;
            assert!(is_new || !has_ended, "{place}");
            run(join(whole.run_background(), async {
                whole.resynced().await;
                whole.rebuilt().await;
                whole.commit_metadata().await.unwrap();
                whole.stop().await.unwrap();
            }));
            drop(whole);
            let there = match is_new {
                true => plan.clone(),
                false => Plan {
                    after: plan.before,
                    ..plan.clone()
                },
            };
            check(&devices, &there, &content, &place);
            if has_ended {
                break;
            }
            sectors += 1 + sectors / 4;
        }
    }
}

#[test]
fn a_mirror_that_has_lost_a_member_does_without_its_slot() {
    for missing in 0..3 {
        let (mut devices, content) = filled(&grown(Organisation::Raid1, 3, 0, true));
        devices.remove(missing);
        stopped(&plain(&devices, true).unwrap()); // told to those that are left
        let volume = plain(&devices, true).unwrap();
        run(volume.write(
            0,
            pool().copy_of(&content[..512]).freeze(),
            plexum_block::device::Fua::Yes,
        ))
        .unwrap();
        stopped(&volume);
        let found = examined(&devices);
        let superblocks: Vec<_> = found.iter().map(|member| &member.superblock).collect();
        let now = situation(&superblocks, 0, LogNow::Off).unwrap();
        let wish = |member_count| Wish {
            member_count: Some(member_count),
            ..Wish::default()
        };
        assert!(plan(&now, &wish(4)).is_err(), "what is missing comes first");
        let plan = plan(&now, &wish(2)).unwrap();
        stopped(&relabelled(devices.clone(), &plan).unwrap());
        let whole = plain(&devices, false).unwrap();
        assert!(whole.status().lost_slots.is_empty(), "without {missing}");
        drop(whole);
        check(&devices, &plan, &content, &format!("without {missing}"));
    }
}

#[test]
fn a_pair_has_every_layout_of_raid5() {
    for (layout, name, _) in Raid5Layout::ALL {
        let mut case = grown(LEFT_SYMMETRIC, 2, 0, false);
        if Organisation::Raid5(layout) == LEFT_SYMMETRIC {
            continue;
        }
        case.wish = (None, None, Some(name), None);
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        stopped(&relabelled(devices.clone(), &plan).unwrap());
        check(&devices, &plan, &content, name);
    }
}
