//! A RAID-0 of Linux md becomes an array with redundancy, and such a one a RAID-0: data stay where they are, after a
//! crash at any write.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Memory, Still, named, run};
use crate::reshapes::{
    Case, Cut, DEVICE_BYTES, check, copies, examined, filled, grown, images, plain, planned, pool,
    read_all, request, stopped,
};
use plexum_block::device::Device;
use plexum_block::wait::join;
use plexum_engine::state::Standing;
use plexum_engine::volume::{ControlError, NewMember, Volume};
use plexum_layout::{Level, Organisation, Raid0Layout, Raid5Layout, Raid10Layout};
use plexum_md::assemble::Examined;
use plexum_md::open::{OpenError, open_volume};
use plexum_md::reshape::{Alteration, Plan, Relabel};

const RAID0: Organisation = Organisation::Raid0(Raid0Layout::Original);
const PARITY_LAST: Organisation = Organisation::Raid5(Raid5Layout::ParityLast);

fn case(organisation: Organisation, members: u16, level: Level, has_bitmap: bool) -> Case {
    Case {
        wish: (None, Some(level), None, None),
        ..grown(organisation, members, 0, has_bitmap)
    }
}

fn relabel_of(plan: &Plan) -> Relabel {
    assert_eq!(plan.movement, None, "nothing moves");
    plan.first.clone().or(plan.last.clone()).unwrap()
}

fn relabelled<D: Device>(devices: Vec<D>, plan: &Plan) -> Result<Volume<D, Still>, OpenError> {
    let mut asked = request(true);
    asked.alteration = Some(Alteration::Relabel(relabel_of(plan)));
    let opened = open_volume(named(devices), Still::default(), pool(), asked);
    run(opened).map(|(volume, _)| volume)
}

/// Whether the array is what was planned; it has its content in any case.
fn is_there(devices: &[Memory], plan: &Plan, content: &[u8], place: &str) -> bool {
    let volume = plain(devices, true).unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(read_all(&volume) == content, "{place}");
    volume.geometry().organisation() == plan.after.organisation
}

/// A blank device more for each slot that has nobody.
fn complete(devices: &[Memory], place: &str) -> Vec<Memory> {
    let mut devices = devices.to_vec();
    let volume = plain(&devices, true).unwrap_or_else(|error| panic!("{place}: {error}"));
    let lacking = volume.status().lost_slots.len();
    run(join(volume.run_background(), async {
        for number in 0..lacking {
            let device = Memory::new(vec![0x5a; DEVICE_BYTES as usize]);
            devices.push(device.clone());
            let added = volume.add(
                NewMember {
                    name: format!("new{number}"),
                    device,
                    identity: [100 + number as u8; 16],
                    is_write_mostly: false,
                    former: None,
                },
                false,
            );
            added
                .await
                .unwrap_or_else(|error| panic!("{place}: {error}"));
        }
        while !volume.status().lost_slots.is_empty() {
            volume.changes().await;
        }
        volume.stop().await.unwrap();
    }));
    devices
}

/// Until the power fails; whether it has come to its end.
fn until_cut(
    opened: Result<Volume<Cut, Still>, OpenError>,
    left: &Cell<usize>,
    place: &str,
) -> bool {
    match opened {
        Ok(volume) => {
            let ended = join(volume.run_background(), volume.stop());
            run(ended).1.is_ok() && left.get() > 0
        }
        Err(OpenError::Io { .. }) => false,
        Err(error) => panic!("{place}: {error}"),
    }
}

fn cut(devices: &[Memory], left: &Rc<Cell<usize>>) -> Vec<Cut> {
    let cut = |memory: &Memory| Cut {
        memory: memory.clone(),
        left: Rc::clone(left),
        goes_at: 0,
    };
    devices.iter().map(cut).collect()
}

#[test]
fn a_raid0_gets_redundancy_after_a_crash_at_any_write() {
    for case in [
        case(RAID0, 3, Level::Raid5, false),
        case(RAID0, 2, Level::Raid4, false),
        case(RAID0, 3, Level::Raid10, false),
    ] {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        assert_eq!(plan.before_bytes, plan.after_bytes, "{case:?}");
        let first = images(&devices);
        for sectors in 1.. {
            let devices = copies(&first);
            let place = format!("{case:?}, cut after {sectors} sectors");
            let left = Rc::new(Cell::new(sectors));
            let opened = relabelled(cut(&devices, &left), &plan);
            let has_ended = until_cut(opened, &left, &place);
            let is_new = is_there(&devices, &plan, &content, &place);
            assert!(is_new || !has_ended, "{place}");
            if !is_new {
                stopped(&relabelled(devices.clone(), &plan).unwrap());
            }
            let all = complete(&devices, &place);
            assert_eq!(all.len(), usize::from(plan.after.member_count), "{place}");
            check(&all, &plan, &content, &place);
            if has_ended {
                break;
            }
        }
    }
}

/// Who has redundancy alone is failed and removed.
async fn let_go<D: Device>(
    volume: &Volume<D, Still>,
    change: &Relabel,
) -> Result<(), ControlError> {
    let status = volume.status();
    let missing: Vec<u16> = status.lost_slots.clone();
    let slots = change.let_go(&missing).expect("what is needed is there");
    for member in status.members {
        let is_let_go = member.slot.is_some_and(|slot| slots.contains(&slot));
        if is_let_go && matches!(member.standing, Standing::Active) {
            volume.fail(member.id).await?;
            volume.remove(member.id).await?;
        }
    }
    Ok(())
}

/// Those that have a slot.
fn of_now(devices: &[Memory]) -> Vec<Memory> {
    let found = examined(devices);
    let events = |member: &&Examined| member.superblock.events;
    let newest = &found.iter().max_by_key(events).unwrap().superblock;
    let has_slot = |member: &Examined| {
        let role = newest.role_of(member.superblock.dev_number);
        role.slot().is_some()
    };
    let each = devices.iter().zip(&found);
    each.filter(|(_, member)| has_slot(member))
        .map(|(device, _)| device.clone())
        .collect()
}

#[test]
fn an_array_becomes_a_raid0_after_a_crash_at_any_write() {
    let pairs = Organisation::Raid10(Raid10Layout::near(2));
    for case in [
        case(PARITY_LAST, 4, Level::Raid0, true),
        case(Organisation::Raid4, 3, Level::Raid0, false),
        case(pairs, 4, Level::Raid0, true),
    ] {
        let (devices, content) = filled(&case);
        let plan = planned(&devices, &case);
        assert_eq!(plan.before_bytes, plan.after_bytes, "{case:?}");
        let first = images(&devices);
        for sectors in 1.. {
            let devices = copies(&first);
            let place = format!("{case:?}, cut after {sectors} sectors");
            let left = Rc::new(Cell::new(sectors));
            let volume = plain(&cut(&devices, &left), true).unwrap();
            let prepared = run(join(Box::pin(volume.run_background()), async {
                let done = let_go(&volume, &relabel_of(&plan)).await;
                let stopped = volume.stop().await;
                done.is_ok() && stopped.is_ok()
            }));
            drop(volume);
            let has_ended = prepared.1 && {
                let opened = relabelled(cut(&devices, &left), &plan);
                until_cut(opened, &left, &place)
            };
            let is_new = is_there(&devices, &plan, &content, &place);
            assert!(is_new || !has_ended, "{place}");
            if !is_new {
                let volume = plain(&devices, true).unwrap();
                run(join(Box::pin(volume.run_background()), async {
                    let_go(&volume, &relabel_of(&plan)).await.unwrap();
                    volume.stop().await.unwrap();
                }));
                drop(volume);
                let again = planned(&of_now(&devices), &case);
                assert_eq!(relabel_of(&again), relabel_of(&plan), "{place}");
                stopped(&relabelled(devices.clone(), &again).unwrap());
            }
            assert!(is_there(&devices, &plan, &content, &place), "{place}");
            for member in examined(&devices) {
                let own = member.superblock;
                let is_in = own.level == 0;
                assert!(!is_in || own.component_sectors == 0, "{place}");
            }
            if has_ended {
                break;
            }
        }
    }
}
