//! Memory, connections and ends: what hosts share, what one of them may have of it, and how they leave.
#![allow(clippy::unwrap_used)]

mod common;

use std::rc::Rc;
use std::time::Duration;

use common::{
    Heard, Host, World, capsule, command, connect_data, connect_of, host_data, ic_request, memory,
    pattern, read, write,
};
use plexum_front::client::Leave;
use plexum_front::connections::ConnectionLimits;
use plexum_front::requests::RequestLimits;
use plexum_front::testing::Operation;
use plexum_front::transport::Transport;
use plexum_nvme::error::{Ended, NvmeError};
use plexum_nvme::server::{Allowed, ServerLimits};
use plexum_nvme::wire::command::{Command, Sgl, admin, io};
use plexum_nvme::wire::digest::Digests;
use plexum_nvme::wire::fabrics::{ANY_CONTROLLER, Fabrics};
use plexum_nvme::wire::status::Status;

const PLAIN: Digests = Digests {
    header: false,
    data: false,
};

#[test]
fn connections_are_limited_in_all_and_for_each_address() {
    let export = memory("vol0", 1 << 20);
    let limits = ServerLimits {
        connections: ConnectionLimits {
            all_max: 3,
            per_address_max: 2,
        },
        ..ServerLimits::default()
    };
    let mut world = World::with(&[&export], limits, Allowed::All);
    let _open: Vec<_> = (0..2).map(|_| world.dial()).collect();
    world.settle();
    let (_, end) = world.dial();
    world.settle();
    assert_eq!(
        end.borrow_mut().take(),
        Some(Err(NvmeError::TooManyConnections(2)))
    );
    let (_third, end) = world.dial_from("192.0.2.8:1");
    world.settle();
    assert!(end.borrow().is_none());
    let (_, end) = world.dial_from("192.0.2.9:1");
    world.settle();
    assert_eq!(
        end.borrow_mut().take(),
        Some(Err(NvmeError::TooManyConnections(3)))
    );
}

#[test]
fn a_host_that_reads_no_answers_stops_only_itself() {
    let export = memory("vol0", 1 << 30);
    let mut world = World::new(&[&export]);
    world.room_bytes = 4096;
    let (mut lazy, _lazy_admin) = world.disk("vol0");
    let bytes: Vec<u8> = (0..100)
        .flat_map(|id| capsule(&read(id, 0, 4096).encode(), &[], PLAIN))
        .collect();
    lazy.send(&mut world, &bytes);
    assert!(world.server.used_bytes() <= (100 * (4096 + 512)) + (1 << 20));
    let (mut other, _other_admin) = world.disk("vol0");
    assert_eq!(other.read(&mut world, 0, 512), [0; 512]);
    let heard = lazy.hear(&mut world);
    assert_eq!(heard.len(), 200, "it gets every answer once it reads");
}

#[test]
fn an_admin_queue_that_reads_no_answers_holds_one_of_them() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (_disk, mut admin) = world.disk("vol0");
    world.receive(&admin.stream);
    let identify = Command {
        namespace: 1,
        sgl: Sgl::transport(4096),
        ..command(admin::IDENTIFY, 1)
    };
    // The stream has room for many answers in all, so that the last one shows how many were made.
    let bytes: Vec<u8> = (0..30)
        .flat_map(|id| capsule(&Command { id, ..identify }.encode(), &[], PLAIN))
        .collect();
    admin.send(&mut world, &bytes);
    assert!(admin.stream.waiting_bytes() <= 64 << 10);
    let heard = admin.hear(&mut world);
    assert_eq!(heard.len(), 60);
}

#[test]
fn a_host_may_use_all_of_its_memory_with_writes_whose_data_come_late() {
    // Every write is asked for when there is memory for it; the receiver goes on all the while.
    let export = memory("vol0", 1 << 30);
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        requests: RequestLimits {
            bytes_max: 8 << 20,
            ..RequestLimits::default()
        },
        ..ServerLimits::default()
    };
    let mut world = World::with(&[&export], limits, Allowed::All);
    let (mut disk, _admin) = world.disk("vol0");
    let long = 4 << 20;
    let mut bytes = Vec::new();
    for id in 0..20 {
        bytes.extend(capsule(
            &write(id, u64::from(id) * 8192, long, Sgl::TRANSPORT).encode(),
            &[],
            PLAIN,
        ));
        let small = write(100 + id, 0, 512, Sgl::IN_CAPSULE);
        bytes.extend(capsule(&small.encode(), &[1; 512], PLAIN));
    }
    disk.send(&mut world, &bytes);
    let (mut answered, mut asked) = (0, 0);
    let data = pattern(1, long);
    while answered < 40 {
        let heard = disk.hear(&mut world);
        assert!(
            !heard.is_empty(),
            "it goes on: {answered} answered, {asked} asked"
        );
        for one in heard {
            match one {
                Heard::Ask(ask) => {
                    asked += 1;
                    disk.send(&mut world, &host_data(ask, &data, true, PLAIN));
                }
                Heard::Done(done) => {
                    assert!(done.status.is_success());
                    answered += 1;
                }
                other => panic!("{other:?}"),
            }
            assert!(world.server.used_bytes() <= (9 << 20) + (1 << 20));
        }
    }
    assert_eq!(export.bytes(19 * (4 << 20), long), data);
}

#[test]
fn memory_of_all_hosts_stays_below_the_limit_and_who_holds_others_up_is_cut_off() {
    let export = memory("vol0", 1 << 30);
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let mut world = World::with(&[&export], limits, Allowed::All);
    let (mut lazy, lazy_admin) = world.disk("vol0");
    let bytes: Vec<u8> = (0..15)
        .flat_map(|id| capsule(&read(id, 0, 4 << 20).encode(), &[], PLAIN))
        .collect();
    lazy.send(&mut world, &bytes);
    assert!(world.server.used_bytes() <= 66 << 20);
    world.advance(Duration::from_secs(3600));
    assert!(lazy.end.borrow().is_none(), "it is in nobody's way");
    let (mut other, _other_admin) = world.disk("vol0");
    other.tell(&mut world, read(1, 0, 4 << 20), &[]);
    other.tell(&mut world, read(2, 0, 4 << 20), &[]);
    assert!(world.server.used_bytes() <= 66 << 20);
    world.advance(Duration::from_secs(30));
    assert_eq!(lazy.end.borrow_mut().take(), Some(Err(NvmeError::Stalled)));
    assert!(lazy_admin.end.borrow().is_some());
    assert_eq!(other.hear(&mut world).len(), 4);
    assert!(other.end.borrow().is_none());
}

#[test]
fn a_host_that_does_not_send_what_it_announced_is_cut_off_when_others_need_the_memory() {
    let export = memory("vol0", 1 << 30);
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let mut world = World::with(&[&export], limits, Allowed::All);
    let (mut silent, _silent_admin) = world.disk("vol0");
    let bytes: Vec<u8> = (0..15)
        .flat_map(|id| capsule(&write(id, 0, 4 << 20, Sgl::TRANSPORT).encode(), &[], PLAIN))
        .collect();
    silent.send(&mut world, &bytes);
    let (mut other, _other_admin) = world.disk("vol0");
    other.tell(&mut world, read(1, 0, 4 << 20), &[]);
    other.tell(&mut world, read(2, 0, 4 << 20), &[]);
    world.advance(Duration::from_secs(30));
    assert_eq!(
        silent.end.borrow_mut().take(),
        Some(Err(NvmeError::Stalled))
    );
    assert_eq!(other.hear(&mut world).len(), 4);
    assert_eq!(export.expected(), []);
}

#[test]
fn queues_get_memory_for_their_capsules_up_to_half_of_it() {
    let export = memory("vol0", 1 << 20);
    let limits = ServerLimits {
        bytes_max: 64 << 20,
        ..ServerLimits::default()
    };
    let mut world = World::with(&[&export], limits, Allowed::All);
    let mut open = Vec::new();
    let refused = loop {
        let admin = {
            let mut admin = Host::connect(&mut world, "vol0", PLAIN, 0);
            admin.enable(&mut world);
            admin
        };
        let data = connect_data("vol0", "nqn.host", admin.controller.get());
        let opened: Vec<_> = (1..=4)
            .map(|queue| Host::open(&mut world, PLAIN, connect_of(queue), &data))
            .collect();
        let failed = opened
            .iter()
            .filter_map(|one| one.as_ref().err().copied())
            .next();
        open.push((admin, opened));
        if let Some(failed) = failed {
            break failed;
        }
    };
    assert_eq!(open.len(), 9, "32 queues of 1 MiB");
    assert_eq!(refused.status, Status::CONNECT_BUSY);
    assert_eq!(world.server.used_bytes(), 32 << 20);
    drop(open);
    world.settle();
    assert_eq!(world.server.used_bytes(), 0);
}

#[test]
fn a_host_that_connects_again_waits_for_what_it_had_under_way() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, admin) = world.disk("vol0");
    export.hold(true);
    disk.tell(&mut world, write(1, 0, 512, Sgl::IN_CAPSULE), &[1; 512]);
    disk.stream.close();
    admin.stream.close();
    world.settle();
    assert!(admin.end.borrow().is_some() && disk.end.borrow().is_none());
    let (stream, end) = world.dial();
    let connect = Fabrics::Connect(connect_of(0)).encode(1);
    let data = connect_data("vol0", "nqn.host", ANY_CONTROLLER).encode();
    world.send(&stream, &ic_request(PLAIN));
    world.send(&stream, &capsule(&connect, &data, PLAIN));
    assert_eq!(
        world.receive(&stream).len(),
        128,
        "no answer to Connect yet"
    );
    // Another host does not wait for that.
    let other = connect_data("vol0", "nqn.another", ANY_CONTROLLER);
    assert!(Host::open(&mut world, PLAIN, connect_of(0), &other).is_ok());
    export.release(0);
    world.settle();
    assert_eq!(world.receive(&stream).len(), 24);
    assert_eq!(export.bytes(0, 512), [1; 512]);
    assert!(end.borrow().is_none());
    export.hold(true);
    drop((disk, admin));
}

#[test]
fn a_closed_volume_answers_what_is_under_way_and_does_nothing_new() {
    let (export, stays) = (memory("vol0", 1 << 20), memory("vol1", 1 << 20));
    let mut world = World::new(&[&export, &stays]);
    let (mut disk, admin) = world.disk("vol0");
    let (mut other, _other_admin) = world.disk("vol1");
    export.hold(true);
    disk.tell(&mut world, write(1, 0, 512, Sgl::IN_CAPSULE), &[1; 512]);
    disk.tell(&mut world, write(2, 8, 16384, Sgl::TRANSPORT), &[]);
    let [Heard::Ask(ask)] = disk.hear(&mut world)[..] else {
        panic!();
    };
    let server = Rc::clone(&world.server);
    let how = Leave::Drain;
    let closed = world.start(async move { server.exports().close("vol0", how).await });
    world.settle();
    // Neither done nor answered: the host does it when it has connected again.
    disk.tell(&mut world, write(3, 1, 512, Sgl::IN_CAPSULE), &[2; 512]);
    disk.send(&mut world, &host_data(ask, &[3; 16384], true, PLAIN));
    assert!(closed.borrow().is_none() && disk.hear(&mut world).is_empty());
    export.release(0);
    export.release(0);
    world.settle();
    let heard = disk.hear(&mut world);
    let ids: Vec<_> = heard
        .iter()
        .map(|one| match one {
            Heard::Done(done) => done.id,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, [1, 2]);
    assert_eq!(closed.borrow_mut().take(), Some(true));
    assert_eq!(disk.end.borrow_mut().take(), Some(Ok(Ended::Stopped)));
    assert_eq!(admin.end.borrow_mut().take(), Some(Ok(Ended::Stopped)));
    assert_eq!(export.bytes(512, 512), [0; 512]);
    assert!(other.flush(&mut world).status.is_success());
}

#[test]
fn a_fenced_host_is_cut_off_and_nothing_of_it_comes_later() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, admin) = world.disk("vol0");
    export.hold(true);
    disk.tell(&mut world, command(io::FLUSH, 1), &[]);
    disk.tell(&mut world, write(2, 8, 16384, Sgl::TRANSPORT), &[]);
    assert_eq!(export.expected(), [(4096, 16384)]);
    let id = world.server.exports().clients("vol0")[0].id;
    let client = world.server.exports().client("vol0", id).unwrap();
    let left = world.start(async move { client.leave(Leave::Fence).await });
    world.settle();
    assert!(left.borrow().is_none(), "a flush is with the export");
    assert!(admin.end.borrow().is_some());
    assert_eq!(export.expected(), []);
    export.release(0);
    world.settle();
    assert!(left.borrow().is_some() && disk.end.borrow().is_some());
    assert_eq!(export.take_log(), [Operation::Flush]);
    assert_eq!(world.server.used_bytes(), 0);
}
