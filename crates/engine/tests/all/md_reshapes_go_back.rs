//! A reshape of Linux md is turned round, wherever it stands and whatever write is the last one before a crash: the
//! array is what it was, with all that was written meanwhile.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, named, run};
use crate::md_arrays_are_reshaped::CASES;
use crate::reshapes::{
    Case, Cut, Known, check, copies, filled, images, is_half, look, plain, planned, pool, request,
    reshaping, stopped, to_its_end, work,
};
use plexum_block::device::Fua;
use plexum_block::wait::join;
use plexum_md::open::{OpenError, open_volume};
use plexum_md::reshape::{Alteration, Beginning, Plan, Relabel, Reshaping, open_reshaping};

fn cut(devices: &[Memory], left: &Rc<Cell<usize>>) -> Vec<Cut> {
    let each = devices.iter().map(|memory| Cut {
        memory: memory.clone(),
        left: Rc::clone(left),
        goes_at: 0,
    });
    each.collect()
}

fn turned(devices: &[Cut]) -> Result<Reshaping<Cut, Still>, OpenError> {
    let mut asked = request(true);
    asked.alteration = Some(Alteration::TurnRound);
    let opened = open_reshaping(
        named(devices.to_vec()),
        Still::default(),
        pool(),
        asked,
        None,
    );
    run(opened).map(|(moving, _)| moving)
}

/// A reshape that was stopped cleanly when so many sectors had been written.
fn half(case: &Case, plan: &Plan, devices: &[Memory], content: &[u8], sectors: usize) -> Known {
    let kept = plan.before_bytes.min(plan.after_bytes) as usize;
    let known = Known {
        content: content[..kept].to_vec(),
        torn: Vec::new(),
    };
    let left = Rc::new(Cell::new(usize::MAX));
    let moving = reshaping(&cut(devices, &left), Beginning::of(plan).as_ref()).unwrap();
    let stop_at = usize::MAX - sectors;
    run(join(Box::pin(moving.run()), async {
        while left.get() >= stop_at && !moving.has_ended() {
            crate::common::yield_once().await;
        }
        moving.stop().await.unwrap();
    }));
    assert!(!moving.has_ended(), "{case:?}: it is half way");
    known
}

/// Turned round where that is possible, and moved back, until the power fails or it is back. Says whether it is.
fn back_until(devices: &[Memory], known: &mut Known, sectors: usize) -> bool {
    let left = Rc::new(Cell::new(sectors));
    let devices = cut(devices, &left);
    let moving = match reshaping(&devices, None) {
        Ok(moving) => moving,
        Err(OpenError::Io { .. }) => return false,
        Err(error) => panic!("{error}"),
    };
    let (_, has_turned) = run(join(Box::pin(moving.run()), async {
        let has_turned = moving.turn().await;
        moving.stop().await.is_ok() && has_turned && left.get() > 0
    }));
    drop(moving);
    if !has_turned {
        return false;
    }
    let moving = match turned(&devices) {
        Ok(moving) => moving,
        Err(OpenError::Io { .. }) => return false,
        Err(error) => panic!("{error}"),
    };
    let (_, has_ended) = run(join(
        Box::pin(moving.run()),
        Box::pin(async {
            let kept = moving.size_bytes() as usize;
            let kept = kept.min(known.content.len());
            work(
                &moving,
                &mut known.content[..kept],
                &mut known.torn,
                sectors as u64 % 1000,
            )
            .await;
            moving.ended().await;
            moving.stop().await.is_ok() && moving.has_ended() && left.get() > 0
        }),
    ));
    has_ended
}

fn relabelled(devices: &[Memory], relabel: Option<&Relabel>) {
    let Some(relabel) = relabel else { return };
    let whole = plain(devices, true).unwrap();
    if !relabel.is_due(whole.geometry()) {
        return;
    }
    drop(whole);
    let mut asked = request(false);
    asked.alteration = Some(Alteration::Relabel(relabel.clone()));
    let opened = run(open_volume(
        named(devices.to_vec()),
        Still::default(),
        pool(),
        asked,
    ));
    stopped(&opened.unwrap().0);
}

/// To the end, whichever way it goes, and what it is then: all is there.
fn carry_on(devices: &[Memory], plan: &Plan, known: &Known, is_back: bool, place: &str) {
    if is_half(devices) {
        let moving = reshaping(devices, None).unwrap_or_else(|error| panic!("{place}: {error}"));
        to_its_end(&moving, place);
    }
    let there = Plan {
        after: plan.before,
        after_bytes: plan.before_bytes,
        ..plan.clone()
    };
    let volume = plain(devices, true).unwrap_or_else(|error| panic!("{place}: {error}"));
    run(join(volume.run_background(), async {
        volume.resynced().await;
        volume.commit_metadata().await.unwrap(); // an update that was cut reaches everybody with the next one
        volume.stop().await.unwrap();
    }));
    drop(volume);
    relabelled(devices, plan.first.as_ref().map(Relabel::reversed).as_ref());
    let volume = plain(devices, true).unwrap();
    let has_gone_back = volume.geometry().organisation() == plan.before.organisation
        && volume.geometry().member_count() == usize::from(plan.before.member_count)
        && volume.geometry().strip_bytes() == u64::from(plan.before.strip_sectors) * 512;
    drop(volume);
    assert!(has_gone_back || !is_back, "{place}");
    if has_gone_back {
        check(devices, &there, &known.content, place);
    } else {
        relabelled(devices, plan.last.as_ref());
        check(devices, plan, &known.content, place);
    }
}

#[test]
fn a_reshape_goes_back_from_wherever_it_stands_after_a_crash_at_any_write() {
    for case in CASES {
        let width = planned(&filled(&case).0, &case).after.data_count() as usize;
        for moved in [20 * width, 200 * width] {
            crash_at_any_write(&case, moved);
        }
    }
}

fn crash_at_any_write(case: &Case, moved: usize) {
    let (devices, content) = filled(case);
    let plan = planned(&devices, case);
    let known = half(case, &plan, &devices, &content, moved);
    let first = images(&devices);
    let mut sectors = 1;
    loop {
        let devices = copies(&first);
        let place = format!("{case:?}, half way {moved}, cut after {sectors} sectors");
        let mut known = Known {
            content: known.content.clone(),
            torn: Vec::new(),
        };
        let is_back = back_until(&devices, &mut known, sectors);
        look(&devices, &mut known, &place);
        carry_on(&devices, &plan, &known, is_back, &place);
        if is_back {
            break;
        }
        sectors += 1 + sectors / 4;
    }
}

/// Turned round, written to, and stopped cleanly before it is back.
fn half_back(devices: &[Memory], known: &mut Known) {
    let left = Rc::new(Cell::new(usize::MAX));
    let devices = cut(devices, &left);
    let moving = reshaping(&devices, None).unwrap();
    run(join(Box::pin(moving.run()), async {
        assert!(moving.turn().await);
        moving.stop().await.unwrap();
    }));
    let moving = turned(&devices).unwrap();
    let (done, _) = moving.progress();
    run(join(Box::pin(moving.run()), async {
        for at in (0..moving.size_bytes()).step_by(3 * 4096) {
            let data = vec![at as u8; 512];
            let place = at as usize;
            known.content[place..place + 512].copy_from_slice(&data);
            let data = pool().copy_of(&data).freeze();
            moving.write(at, data, Fua::Yes).await.unwrap();
        }
        while moving.progress().0 == done {
            crate::common::yield_once().await;
        }
        moving.stop().await.unwrap();
    }));
}

#[test]
fn half_way_back_everything_is_there_whoever_is_missing() {
    for case in CASES {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        let moved = 200 * plan.after.data_count() as usize; // a row is as long as it is wide
        let mut known = half(&case, &plan, &devices, &content, moved);
        half_back(&devices, &mut known);
        for missing in 0..devices.len() {
            let mut rest = copies(&images(&devices));
            rest.remove(missing);
            let place = format!("{case:?}, without {missing}");
            look(&rest, &mut known, &place);
            let moving = match is_half(&rest) {
                true => reshaping(&rest, None).unwrap_or_else(|error| panic!("{place}: {error}")),
                false => continue,
            };
            to_its_end(&moving, &place);
            look(&rest, &mut known, &place);
        }
        let is_back = true;
        carry_on(&devices, &plan, &known, is_back, &format!("{case:?}"));
    }
}

#[test]
fn a_reshape_that_has_moved_nothing_is_struck_out_and_one_that_has_ended_is_not_turned() {
    for case in CASES {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        let left = Rc::new(Cell::new(usize::MAX));
        let slow = cut(&devices, &left);
        let moving = reshaping(&slow, Beginning::of(&plan).as_ref()).unwrap();
        run(moving.after().commit_metadata()).unwrap(); // R1, and the power fails
        drop(moving);
        assert!(is_half(&devices), "{case:?}");
        let mut asked = request(true);
        asked.alteration = Some(Alteration::TurnRound);
        let opened = run(open_volume(
            named(slow.clone()),
            Still::default(),
            pool(),
            asked,
        ));
        stopped(&opened.unwrap_or_else(|error| panic!("{case:?}: {error}")).0);
        let known = Known {
            content: content.clone(),
            torn: Vec::new(),
        };
        carry_on(
            &devices,
            &plan,
            &known,
            true,
            &format!("{case:?}, struck out"),
        );

        let moving = reshaping(&slow, Beginning::of(&plan).as_ref()).unwrap();
        run(join(Box::pin(moving.run()), async {
            moving.ended().await;
            assert!(!moving.turn().await, "{case:?}");
            moving.stop().await.unwrap();
        }));
    }
}
