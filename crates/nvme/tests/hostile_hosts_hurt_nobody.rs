//! Hosts that break the rules, or vanish: their controller ends, nobody else notices.
#![allow(clippy::unwrap_used)]

mod common;

use std::rc::Rc;
use std::time::Duration;

use common::{
    Heard, World, capsule, command, connect_data, connect_of, host_data, ic_request, memory, read,
    write,
};
use plexum_front::testing::Operation;
use plexum_front::transport::Transport;
use plexum_nvme::error::{Ended, NvmeError};
use plexum_nvme::wire::command::{Command, Sgl, admin, io};
use plexum_nvme::wire::digest::Digests;
use plexum_nvme::wire::fabrics::{ANY_CONTROLLER, Fabrics};
use plexum_nvme::wire::pdu::{Head, IN_CAPSULE_BYTES_MAX, Kind, Transfer};
use plexum_nvme::wire::status::Status;
use proptest::prelude::*;

const PLAIN: Digests = Digests {
    header: false,
    data: false,
};
const BOTH: Digests = Digests {
    header: true,
    data: true,
};

/// The fatal error status of the last words of a target.
fn term(heard: &[Heard]) -> (u16, u32) {
    match heard.last() {
        Some(Heard::Term(status, at)) => (*status, *at),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_header_ends_the_controller_and_is_told() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, admin) = world.disk_with("vol0", BOTH);
    let (mut other, _other_admin) = world.disk("vol0");
    let mut bytes = capsule(&read(1, 0, 512).encode(), &[], BOTH);
    bytes[30] ^= 1;
    disk.send(&mut world, &bytes);
    assert_eq!(term(&disk.hear(&mut world)).0, 3);
    let how = disk.end.borrow_mut().take().unwrap();
    assert!(matches!(how, Err(NvmeError::Fault(_))), "{how:?}");
    assert_eq!(admin.end.borrow_mut().take(), Some(Ok(Ended::Stopped)));
    assert_eq!(export.take_log(), []);
    assert!(other.flush(&mut world).status.is_success());
}

#[test]
fn damaged_data_are_not_written_and_may_be_sent_again() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk_with("vol0", BOTH);
    let mut bytes = capsule(&write(1, 0, 512, Sgl::IN_CAPSULE).encode(), &[5; 512], BOTH);
    let last = bytes.len() - 100;
    bytes[last] ^= 1;
    disk.send(&mut world, &bytes);
    assert_eq!(disk.done(&mut world).0.status, Status::TRANSIENT_TRANSPORT);
    disk.tell(&mut world, write(2, 0, 16384, Sgl::TRANSPORT), &[]);
    let [Heard::Ask(ask)] = disk.hear(&mut world)[..] else {
        panic!();
    };
    let half = Transfer {
        count_bytes: 8192,
        ..ask
    };
    let mut bytes = host_data(half, &[6; 8192], false, BOTH);
    bytes[500] ^= 1;
    disk.send(&mut world, &bytes);
    let rest = Transfer {
        offset_bytes: 8192,
        ..half
    };
    disk.send(&mut world, &host_data(rest, &[6; 8192], true, BOTH));
    assert_eq!(disk.done(&mut world).0.status, Status::TRANSIENT_TRANSPORT);
    assert_eq!(export.take_log(), []);
    assert_eq!(export.expected(), []);
    assert!(
        disk.write_long(&mut world, 0, &[6; 16384])
            .status
            .is_success()
    );
}

#[test]
fn every_wrong_field_of_a_head_is_refused_with_its_place() {
    let good = capsule(
        &write(1, 0, 512, Sgl::IN_CAPSULE).encode(),
        &[5; 512],
        PLAIN,
    );
    let huge = u32::MAX.to_le_bytes();
    let above = (72 + IN_CAPSULE_BYTES_MAX + 1).to_le_bytes();
    for (at, value, expected) in [
        (0, &[8_u8][..], (1, 0)),
        (0, &[5], (1, 0)),
        (0, &[0], (1, 2)),
        (1, &[1], (1, 1)),
        (1, &[2], (1, 1)),
        (2, &[71], (1, 2)),
        (3, &[68], (1, 3)),
        (3, &[74], (1, 3)),
        (3, &[0], (1, 3)),
        (4, &huge, (5, 4)),
        (4, &above, (5, 4)),
        (4, &[0, 0, 0, 0], (1, 4)),
        (4, &[71, 0, 0, 0], (1, 4)),
    ] {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(&[&export]);
        let (mut disk, admin) = world.disk("vol0");
        let mut bytes = good.clone();
        bytes[at..at + value.len()].copy_from_slice(value);
        disk.send(&mut world, &bytes);
        assert_eq!(term(&disk.hear(&mut world)), expected, "{at}: {value:?}");
        assert!(admin.end.borrow().is_some());
        assert_eq!(export.take_log(), []);
    }
}

#[test]
fn data_that_nobody_has_asked_for_end_the_controller() {
    let right = Transfer {
        command: 1,
        tag: 0,
        offset_bytes: 0,
        count_bytes: 8192,
    };
    let cases = [
        (Transfer { tag: 1, ..right }, 8192, (4, 10)),
        (
            Transfer {
                command: 2,
                ..right
            },
            8192,
            (1, 8),
        ),
        (
            Transfer {
                offset_bytes: 4,
                ..right
            },
            8192,
            (4, 12),
        ),
        (
            Transfer {
                count_bytes: 8196,
                ..right
            },
            8192,
            (4, 12),
        ),
        (
            Transfer {
                count_bytes: 20480,
                ..right
            },
            20480,
            (4, 12),
        ),
    ];
    for (transfer, length, expected) in cases {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(&[&export]);
        let (mut disk, _admin) = world.disk("vol0");
        disk.tell(&mut world, write(1, 0, 16384, Sgl::TRANSPORT), &[]);
        assert!(matches!(disk.hear(&mut world)[..], [Heard::Ask(_)]));
        disk.send(
            &mut world,
            &host_data(transfer, &vec![1; length], false, PLAIN),
        );
        assert_eq!(term(&disk.hear(&mut world)), expected, "{transfer:?}");
        assert_eq!(export.take_log(), []);
        assert_eq!(export.expected(), [], "the write will not come");
    }
}

#[test]
fn commands_that_fit_nothing_are_refused_and_the_next_one_is_understood() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk("vol0");
    let with = |command: Command, sgl: Sgl| Command { sgl, ..command };
    let long = |command: Command, first: u64| Command {
        dwords: [
            first as u32,
            (first >> 32) as u32,
            command.dwords[2],
            0,
            0,
            0,
        ],
        ..command
    };
    let one = read(1, 0, 512);
    let none = &[][..];
    let cases: Vec<(Command, &[u8], Status)> = vec![
        (command(0x55, 1), none, Status::INVALID_OPCODE),
        (command(0x55, 1), &[1; 512], Status::INVALID_OPCODE),
        (
            Command {
                namespace: 2,
                ..one
            },
            none,
            Status::INVALID_NAMESPACE,
        ),
        (
            Command {
                namespace: u32::MAX,
                ..one
            },
            none,
            Status::INVALID_NAMESPACE,
        ),
        (Command { flags: 1, ..one }, none, Status::INVALID_FIELD),
        (long(one, 2048), none, Status::LBA_RANGE),
        (long(one, u64::MAX), none, Status::LBA_RANGE),
        (with(one, Sgl::transport(511)), none, Status::DATA_LENGTH),
        (with(one, Sgl::in_capsule(512)), &[1; 512], Status::SGL_TYPE),
        (
            with(
                one,
                Sgl {
                    identifier: 0x40,
                    ..one.sgl
                },
            ),
            none,
            Status::SGL_TYPE,
        ),
        (write(1, 0, 512, Sgl::IN_CAPSULE), none, Status::DATA_LENGTH),
        (
            write(1, 0, 512, Sgl::IN_CAPSULE),
            &[1; 1024],
            Status::DATA_LENGTH,
        ),
        (
            write(1, 0, 512, Sgl::TRANSPORT),
            &[1; 512],
            Status::DATA_LENGTH,
        ),
        (
            write(1, 2047, 1024, Sgl::TRANSPORT),
            none,
            Status::LBA_RANGE,
        ),
        (
            with(
                write(1, 0, 512, 1),
                Sgl {
                    address: 8,
                    ..Sgl::in_capsule(512)
                },
            ),
            &[1; 512],
            Status::SGL_TYPE,
        ),
    ];
    for (command, data, expected) in cases {
        disk.tell(&mut world, command, data);
        assert_eq!(disk.done(&mut world).0.status, expected, "{command:?}");
        assert!(disk.flush(&mut world).status.is_success());
    }
    let again = Fabrics::Connect(connect_of(1));
    assert_eq!(
        disk.fabrics(&mut world, again).status,
        Status::COMMAND_SEQUENCE
    );
    let log = export.take_log();
    assert!(
        log.iter().all(|operation| *operation == Operation::Flush),
        "{log:?}"
    );
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_controller() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk("vol0");
    export.hold(true);
    let bytes: Vec<u8> = (0..128)
        .flat_map(|id| capsule(&read(id, 0, 512).encode(), &[], PLAIN))
        .collect();
    disk.send(&mut world, &bytes);
    assert!(disk.end.borrow().is_none());
    assert_eq!(export.held().len(), 128);
    disk.tell(&mut world, read(999, 0, 512), &[]);
    while !export.held().is_empty() {
        export.release(0);
    }
    world.settle();
    let how = disk.end.borrow_mut().take();
    assert_eq!(how, Some(Err(NvmeError::QueueOverrun(128))));
}

#[test]
fn a_connection_that_does_not_become_a_queue_in_time_is_closed() {
    let export = memory("vol0", 1 << 20);
    let connect = Fabrics::Connect(connect_of(0)).encode(1);
    let data = connect_data("vol0", "nqn.host", ANY_CONTROLLER).encode();
    let whole = [&ic_request(PLAIN)[..], &capsule(&connect, &data, PLAIN)].concat();
    for length in [0, 1, 127, 128, 200, whole.len() - 1] {
        let mut world = World::new(&[&export]);
        let (stream, end) = world.dial();
        world.send(&stream, &whole[..length]);
        world.advance(Duration::from_secs(9));
        assert!(end.borrow().is_none());
        world.advance(Duration::from_secs(1));
        assert_eq!(
            end.borrow_mut().take(),
            Some(Err(NvmeError::HandshakeTimedOut))
        );
        assert_eq!(
            (world.server.connection_count(), world.clock.sleepers()),
            (0, 0)
        );
    }
}

#[test]
fn whoever_begins_with_something_else_is_told_so() {
    let export = memory("vol0", 1 << 20);
    let first = capsule(&read(1, 0, 512).encode(), &[], PLAIN);
    let mut version = ic_request(PLAIN);
    version[8] = 1;
    let mut alignment = ic_request(PLAIN);
    alignment[10] = 32;
    for (bytes, expected) in [
        (&first[..], (2, 0)),
        (&version, (6, 8)),
        (&alignment, (1, 10)),
    ] {
        let mut world = World::new(&[&export]);
        let (stream, end) = world.dial();
        world.send(&stream, bytes);
        let answer = world.receive(&stream);
        assert_eq!(answer[0], 3);
        assert_eq!((answer[8].into(), u32::from(answer[10])), expected);
        assert!(end.borrow().is_some());
    }
    let mut world = World::new(&[&export]);
    let (stream, end) = world.dial();
    world.send(&stream, &ic_request(PLAIN));
    world.receive(&stream);
    world.send(&stream, &first);
    let answer = world.receive(&stream);
    assert_eq!(answer[0], 5);
    assert_eq!(end.borrow_mut().take(), Some(Ok(Ended::Refused)));
}

/// A whole life of a host on one connection, as bytes: its admin queue.
fn admin_script(digests: Digests) -> Vec<u8> {
    let data = connect_data("vol0", "nqn.host", ANY_CONTROLLER).encode();
    let mut bytes = Vec::from(ic_request(digests));
    let mut add = |command: &[u8; 64], data: &[u8]| bytes.extend(capsule(command, data, digests));
    add(&Fabrics::Connect(connect_of(0)).encode(1), &data);
    let enable = Fabrics::Set {
        offset_bytes: 0x14,
        value: 0x0046_0001,
    };
    add(&enable.encode(2), &[]);
    let identify = Command {
        namespace: 1,
        sgl: Sgl::transport(4096),
        dwords: [1, 0, 0, 0, 0, 0],
        ..command(admin::IDENTIFY, 3)
    };
    add(&identify.encode(), &[]);
    add(&command(admin::ASYNC_EVENT_REQUEST, 4).encode(), &[]);
    add(&command(admin::KEEP_ALIVE, 5).encode(), &[]);
    bytes
}

#[test]
fn a_host_that_vanishes_at_any_byte_leaves_nothing_behind() {
    for digests in [PLAIN, BOTH] {
        let script = admin_script(digests);
        for cut in 0..=script.len() {
            let export = memory("vol0", 1 << 20);
            let mut world = World::new(&[&export]);
            let (stream, end) = world.dial();
            stream.cut_after(cut as u64);
            world.send(&stream, &script);
            stream.close();
            world.settle();
            assert!(end.borrow().is_some(), "cut at {cut}");
            assert_eq!(world.server.connection_count(), 0);
            assert_eq!(world.server.used_bytes(), 0);
            assert_eq!(world.clock.sleepers(), 0);
            assert_eq!(world.server.exports().clients("vol0").len(), 0);
        }
    }
}

#[test]
fn a_disk_that_vanishes_at_any_byte_leaves_nothing_behind() {
    for digests in [PLAIN, BOTH] {
        let mut script = capsule(
            &write(1, 0, 512, Sgl::IN_CAPSULE).encode(),
            &[1; 512],
            digests,
        );
        script.extend(capsule(
            &write(2, 8, 1024, Sgl::TRANSPORT).encode(),
            &[],
            digests,
        ));
        let ask = Transfer {
            command: 2,
            tag: 0,
            offset_bytes: 0,
            count_bytes: 1024,
        };
        script.extend(host_data(ask, &[2; 1024], true, digests));
        script.extend(capsule(&read(3, 0, 512).encode(), &[], digests));
        for cut in 0..=script.len() {
            let export = memory("vol0", 1 << 20);
            let mut world = World::new(&[&export]);
            let (disk, admin) = world.disk_with("vol0", digests);
            disk.stream.cut_after(disk.stream.sent_bytes() + cut as u64);
            world.send(&disk.stream, &script);
            disk.stream.close();
            world.settle();
            assert!(disk.end.borrow().is_some(), "cut at {cut}");
            admin.stream.close();
            world.settle();
            assert_eq!((world.server.used_bytes(), world.clock.sleepers()), (0, 0));
            assert_eq!(export.expected(), []);
            for operation in export.take_log() {
                let is_whole = match operation {
                    Operation::Write(offset, length, _) => {
                        [(0, 512), (4096, 1024)].contains(&(offset, length))
                    }
                    _ => true,
                };
                assert!(is_whole, "{operation:?}");
            }
        }
    }
}

#[test]
fn a_target_that_is_dropped_gives_everything_back() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    export.hold(true);
    let (mut disk, _admin) = world.disk("vol0");
    disk.tell(&mut world, command(io::FLUSH, 1), &[]);
    disk.tell(&mut world, write(2, 0, 65536, Sgl::TRANSPORT), &[]);
    assert!(world.server.used_bytes() > 1 << 20);
    let server = Rc::clone(&world.server);
    drop(disk);
    drop(world); // all tasks are dropped, as in a simulated crash
    assert_eq!((server.used_bytes(), server.connection_count()), (0, 0));
}

/// Some bytes that look like what comes on a queue, with damage.
fn streams() -> impl Strategy<Value = (Vec<u8>, usize, usize)> {
    let one = (
        0_u8..4,
        prop_oneof![0_u8..12, Just(0x7f_u8), any::<u8>()],
        prop_oneof![0_u64..4096, any::<u64>()],
        0_usize..20000,
        any::<[u32; 4]>(),
    );
    let damage = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3);
    (
        prop::collection::vec(one, 1..12),
        damage,
        1_usize..9000,
        1_usize..3000,
    )
        .prop_map(|(all, damage, room, fragment)| {
            let mut bytes = Vec::new();
            for (kind, opcode, block, length, rest) in all {
                let data = vec![0x5a; length.min(8192)];
                let blocks = (length / 512) as u32;
                let dwords = [block as u32, (block >> 32) as u32, blocks, rest[0], 0, 0];
                let base = command(opcode, rest[1] as u16 % 8);
                let sized = |sgl| {
                    Command {
                        sgl,
                        dwords,
                        ..base
                    }
                    .encode()
                };
                let total = (blocks + 1) * 512;
                match kind {
                    0 => bytes.extend(capsule(&sized(Sgl::transport(total)), &[], PLAIN)),
                    1 => bytes.extend(capsule(
                        &sized(Sgl::in_capsule(data.len() as u32)),
                        &data,
                        PLAIN,
                    )),
                    2 => {
                        let transfer = Transfer {
                            command: rest[1] as u16 % 8,
                            tag: rest[2] as u16 % 3,
                            offset_bytes: rest[3] % 3 * 512,
                            count_bytes: data.len() as u32,
                        };
                        bytes.extend(host_data(transfer, &data, rest[3] % 2 == 0, PLAIN));
                    }
                    _ => {
                        let head = Head::of(Kind::HostTerm, 0, 0, PLAIN, 4).encode();
                        bytes.extend([&head[..], &[0; 16]].concat());
                    }
                }
            }
            for (index, byte) in damage {
                let at = index.index(bytes.len());
                bytes[at] = byte;
            }
            (bytes, room, fragment)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn whatever_comes_on_a_queue_ends_its_controller_only(
        (bytes, room, fragment) in streams(), holds: bool, on_admin: bool
    ) {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(&[&export]);
        world.room_bytes = room;
        let (mut neighbour, _neighbour_admin) = world.disk("vol0");
        let used = world.server.used_bytes();
        let (disk, admin) = world.disk("vol0");
        let stream = Rc::clone(if on_admin { &admin.stream } else { &disk.stream });
        stream.fragment(fragment);
        export.hold(holds);
        world.send(&stream, &bytes);
        world.receive(&stream);
        prop_assert!(world.server.used_bytes() <= 64 << 20);
        while !export.held().is_empty() {
            export.release(export.held().len() / 2);
            world.settle();
        }
        disk.stream.close();
        admin.stream.close();
        world.settle();
        while !export.held().is_empty() {
            export.release(0);
            world.settle();
        }
        world.advance(Duration::from_secs(60));
        prop_assert!(disk.end.borrow().is_some() && admin.end.borrow().is_some());
        prop_assert_eq!(world.server.used_bytes(), used);
        prop_assert_eq!(world.server.exports().clients("vol0").len(), 1);
        export.hold(false);
        prop_assert!(neighbour.flush(&mut world).status.is_success());
    }

    #[test]
    fn whatever_comes_first_ends_its_connection_only(
        bytes in prop::collection::vec(any::<u8>(), 0..400), is_begun: bool, fragment in 1_usize..300
    ) {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(&[&export]);
        let (stream, end) = world.dial();
        stream.fragment(fragment);
        if is_begun {
            world.send(&stream, &ic_request(BOTH));
        }
        world.send(&stream, &bytes);
        world.receive(&stream);
        stream.close();
        world.advance(Duration::from_secs(10));
        prop_assert!(end.borrow().is_some());
        prop_assert_eq!((world.server.connection_count(), world.server.used_bytes()), (0, 0));
    }
}
