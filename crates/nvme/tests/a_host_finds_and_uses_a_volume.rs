//! The way of a host: discovery, Connect, Identify, I/O, events; in the order in which Linux asks.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use common::{
    Heard, Host, World, command, connect_data, connect_of, memory, pattern, ranged, read, shape,
    write,
};
use plexum_block::device::{Fua, IoError};
use plexum_front::export::ZeroRequest;
use plexum_front::testing::{MemoryExport, Operation};
use plexum_nvme::server::{Allowed, ServerLimits};
use plexum_nvme::wire::command::{BlockRange, Command, Sgl, admin, io};
use plexum_nvme::wire::digest::Digests;
use plexum_nvme::wire::fabrics::{ANY_CONTROLLER, Connect, Fabrics, property};
use plexum_nvme::wire::identify::structure;
use plexum_nvme::wire::log::{Asked, page};
use plexum_nvme::wire::status::Status;

const ALL_DIGESTS: [Digests; 4] = [
    Digests {
        header: false,
        data: false,
    },
    Digests {
        header: true,
        data: false,
    },
    Digests {
        header: false,
        data: true,
    },
    Digests {
        header: true,
        data: true,
    },
];

fn asked(page: u8, count_bytes: u64) -> Asked {
    Asked {
        page,
        keeps_events: false,
        offset_bytes: 0,
        count_bytes,
    }
}

#[test]
fn discovery_tells_of_all_volumes_where_the_host_has_found_us() {
    let (a, b) = (memory("a", 1 << 20), memory("b", 1 << 20));
    let mut world = World::new(&[&a, &b]);
    let mut host = Host::connect(&mut world, "", Digests::default(), 0);
    host.enable(&mut world);
    let (done, head) = host.log_page(&mut world, asked(page::DISCOVERY, 1024));
    assert!(done.status.is_success());
    assert_eq!(head[8], 2);
    let (_, whole) = host.log_page(&mut world, asked(page::DISCOVERY, 3 * 1024));
    for (at, name) in [(1024, "a"), (2048, "b")] {
        let record = &whole[at..at + 1024];
        assert_eq!(record[..3], [3, 1, 2]);
        assert!(record[32..].starts_with(b"4420 "));
        let nqn = shape(name).identity.subsystem();
        assert!(record[256..].starts_with(nqn.as_bytes()));
        assert!(record[512..].starts_with(b"192.0.2.1 "));
    }
    let (done, _) = host.identify(&mut world, structure::CONTROLLER, 0);
    assert!(done.status.is_success());
    let (done, _) = host.identify(&mut world, structure::NAMESPACE, 1);
    assert_eq!(done.status, Status::INVALID_FIELD);
    let mut generation = head[..8].to_vec();
    let closing = world.server.clone();
    world.start(async move {
        closing
            .exports()
            .close("a", plexum_front::client::Leave::Drain)
            .await
    });
    world.settle();
    let (_, head) = host.log_page(&mut world, asked(page::DISCOVERY, 1024));
    assert_eq!(head[8], 1);
    assert_ne!(
        head[..8],
        generation.split_off(0),
        "another list has another number"
    );
}

#[test]
fn a_controller_says_what_it_is_and_what_it_can() {
    let export = memory("vol0", 1 << 30);
    let mut world = World::new(&[&export]);
    let mut host = Host::connect(&mut world, "vol0", Digests::default(), 0);
    let get = |offset_bytes, is_long| Fabrics::Get {
        offset_bytes,
        is_long,
    };
    let capabilities = host.fabrics(&mut world, get(property::CAPABILITIES, true));
    assert_eq!(capabilities.result & 0xffff, 127);
    let (early, _) = host.identify(&mut world, structure::CONTROLLER, 0);
    assert_eq!(
        early.status,
        Status::COMMAND_SEQUENCE,
        "it is not turned on"
    );
    host.enable(&mut world);
    let ready = host.fabrics(&mut world, get(property::STATUS, false));
    assert_eq!(ready.result, 1);
    let (_, controller) = host.identify(&mut world, structure::CONTROLLER, 0);
    let identity = shape("vol0").identity;
    assert!(controller[4..].starts_with(identity.serial().as_bytes()));
    assert!(controller[24..].starts_with(b"Plexum "));
    assert!(controller[768..].starts_with(identity.subsystem().as_bytes()));
    assert_eq!((controller[111], controller[525]), (1, 1));
    let (_, list) = host.identify(&mut world, structure::ACTIVE_NAMESPACES, 0);
    assert_eq!(list[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let (_, list) = host.identify(&mut world, structure::ACTIVE_NAMESPACES, 1);
    assert_eq!(list[..4], [0; 4]);
    let (_, namespace) = host.identify(&mut world, structure::NAMESPACE, 1);
    assert_eq!(namespace[..8], (1_u64 << 21).to_le_bytes());
    assert_eq!(
        namespace[64..66],
        127_u16.to_le_bytes(),
        "64 KiB of 512 bytes"
    );
    assert_eq!(namespace[72..74], 383_u16.to_le_bytes());
    assert_eq!(namespace[130], 9);
    assert_eq!(namespace[104..120], identity.uuid());
    let (_, names) = host.identify(&mut world, structure::NAMESPACE_DESCRIPTORS, 1);
    assert_eq!(
        (names[0], names[1], &names[4..20]),
        (3, 16, &identity.uuid()[..])
    );
    let (done, _) = host.identify(&mut world, structure::NAMESPACE, 2);
    assert_eq!(done.status, Status::INVALID_NAMESPACE);
    for (page, length) in [
        (page::EFFECTS, 4096),
        (page::HEALTH, 512),
        (page::ERRORS, 64),
    ] {
        let (done, data) = host.log_page(&mut world, asked(page, length));
        assert!(done.status.is_success() && data.len() == length as usize);
    }
    let (done, _) = host.log_page(&mut world, asked(0x0c, 4096));
    assert_eq!(done.status, Status::INVALID_LOG_PAGE);
}

#[test]
fn a_volume_of_blocks_of_4096_bytes_that_may_only_be_read_says_so() {
    let export = std::rc::Rc::new(MemoryExport::new("vol0", (1 << 20) + 512, |info| {
        info.block_bytes_min = 4096;
        info.is_read_only = true;
    }));
    let mut world = World::new(&[&export]);
    let (mut disk, mut admin) = world.disk("vol0");
    let (_, namespace) = admin.identify(&mut world, structure::NAMESPACE, 1);
    assert_eq!(
        namespace[..8],
        256_u64.to_le_bytes(),
        "the rest cannot be reached"
    );
    assert_eq!((namespace[130], namespace[99]), (12, 1));
    let refused = disk.write(&mut world, 0, &[1; 4096]);
    assert_eq!(refused.status, Status::WRITE_PROTECTED);
    assert_eq!(export.take_log(), []);
}

#[test]
fn what_is_written_is_read_again_with_every_choice_of_digests() {
    for digests in ALL_DIGESTS {
        let export = memory("vol0", 1 << 30);
        let mut world = World::new(&[&export]);
        world.room_bytes = 5000;
        let (mut disk, _admin) = world.disk_with("vol0", digests);
        for (block, length) in [(0, 512), (16, 8192), (1000, 8704), (5000, 1 << 20)] {
            let data = pattern(block, length);
            let done = match length <= 8192 {
                true => disk.write(&mut world, block, &data),
                false => disk.write_long(&mut world, block, &data),
            };
            assert_eq!(done.status, Status::SUCCESS);
            assert_eq!(disk.read(&mut world, block, length), data);
            assert_eq!(export.bytes(block * 512, length), data);
        }
    }
}

#[test]
fn data_come_in_as_many_pieces_as_the_host_likes() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk("vol0");
    let data = pattern(3, 65536);
    disk.tell(&mut world, write(1, 8, data.len(), Sgl::TRANSPORT), &[]);
    let heard = disk.hear(&mut world);
    let [Heard::Ask(ask)] = heard.as_slice() else {
        panic!("{heard:?}");
    };
    assert_eq!(export.expected(), [(4096, 65536)]);
    let mut at = 0;
    for piece in [4096, 512, 20_000, 65536 - 24_608] {
        assert_eq!(export.take_log(), []);
        let mut part = *ask;
        part.offset_bytes = at as u32;
        part.count_bytes = piece as u32;
        let is_last = at + piece == data.len();
        let bytes = common::host_data(part, &data[at..at + piece], is_last, disk.digests);
        disk.send(&mut world, &bytes);
        at += piece;
    }
    assert!(disk.done(&mut world).0.status.is_success());
    assert_eq!(export.bytes(4096, 65536), data);
}

#[test]
fn durability_zeroes_and_deallocation_reach_the_export_as_they_were_meant() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk("vol0");
    let fua = |mut command: Command| {
        command.dwords[2] |= 1 << 30;
        command
    };
    disk.tell(
        &mut world,
        fua(write(1, 0, 512, Sgl::IN_CAPSULE)),
        &[7; 512],
    );
    assert!(disk.done(&mut world).0.status.is_success());
    assert_eq!(export.durable_bytes(0, 512), [7; 512]);
    disk.write(&mut world, 1, &[8; 512]);
    assert_eq!(export.durable_bytes(512, 512), [0; 512]);
    assert!(disk.flush(&mut world).status.is_success());
    assert_eq!(export.durable_bytes(512, 512), [8; 512]);
    let mut everywhere = command(io::FLUSH, 3);
    everywhere.namespace = u32::MAX;
    assert!(disk.ask(&mut world, everywhere).0.status.is_success());
    export.take_log();
    let mut zero = fua(ranged(io::WRITE_ZEROES, 4, 2, 1024));
    zero.dwords[2] |= 1 << 25;
    assert!(disk.ask(&mut world, zero).0.status.is_success());
    let keeping = ranged(io::WRITE_ZEROES, 5, 2, 1024);
    assert!(disk.ask(&mut world, keeping).0.status.is_success());
    let how = |fua, may_unmap| ZeroRequest {
        fua,
        may_unmap,
        only_if_fast: false,
    };
    assert_eq!(
        export.take_log(),
        [
            Operation::Zero(1024, 1024, how(Fua::Yes, true)),
            Operation::Zero(1024, 1024, how(Fua::No, false))
        ]
    );
    let ranges = [(16, 8), (0, 0), (100, 1)];
    let data: Vec<u8> = ranges
        .iter()
        .flat_map(|(first_block, block_count)| {
            let (first_block, block_count) = (*first_block, *block_count);
            BlockRange {
                first_block,
                block_count,
            }
            .encode()
        })
        .collect();
    let manage = |id, bits, identifier| Command {
        sgl: Sgl {
            identifier,
            ..Sgl::transport(48)
        },
        dwords: [2, bits, 0, 0, 0, 0],
        ..command(io::DATASET_MANAGEMENT, id)
    };
    disk.tell(&mut world, manage(6, 1 << 2, Sgl::IN_CAPSULE), &data);
    assert!(disk.done(&mut world).0.status.is_success());
    let trims = [
        Operation::Trim(8192, 4096, Fua::No),
        Operation::Trim(51200, 512, Fua::No),
    ];
    assert_eq!(export.take_log(), trims);
    disk.tell(&mut world, manage(7, 1 << 0, Sgl::IN_CAPSULE), &data);
    assert!(disk.done(&mut world).0.status.is_success());
    assert_eq!(export.take_log(), [], "hints alone");
    // Linux sends as many bytes as all ranges could have.
    let mut room = data[..16].to_vec();
    room.resize(4096, 0xff);
    let one = Command {
        sgl: Sgl::in_capsule(4096),
        dwords: [0, 1 << 2, 0, 0, 0, 0],
        ..command(io::DATASET_MANAGEMENT, 9)
    };
    disk.tell(&mut world, one, &room);
    assert!(disk.done(&mut world).0.status.is_success());
    assert_eq!(export.take_log(), [Operation::Trim(8192, 4096, Fua::No)]);
    let short = Command {
        dwords: [3, 1 << 2, 0, 0, 0, 0],
        ..manage(10, 0, Sgl::IN_CAPSULE)
    };
    disk.tell(&mut world, short, &data);
    assert_eq!(disk.done(&mut world).0.status, Status::DATA_LENGTH);
    let outside = BlockRange {
        first_block: 2047,
        block_count: 2,
    }
    .encode();
    let data = [&data[..32], &outside].concat();
    disk.tell(&mut world, manage(8, 1 << 2, Sgl::IN_CAPSULE), &data);
    assert_eq!(disk.done(&mut world).0.status, Status::LBA_RANGE);
    assert_eq!(export.take_log(), [], "all or nothing");
}

#[test]
fn what_the_engine_cannot_do_is_told_in_words_of_nvme() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk("vol0");
    for (error, of_read, of_write) in [
        (IoError::Medium, Status::READ_ERROR, Status::WRITE_FAULT),
        (IoError::NoSpace, Status::CAPACITY, Status::CAPACITY),
        (
            IoError::ReadOnly,
            Status::WRITE_PROTECTED,
            Status::WRITE_PROTECTED,
        ),
        (IoError::Failed, Status::INTERNAL, Status::INTERNAL),
    ] {
        export.fail_with(Some(error));
        let (done, _) = disk.ask(&mut world, read(1, 0, 512));
        assert_eq!(done.status, of_read);
        assert_eq!(disk.write(&mut world, 0, &[0; 512]).status, of_write);
        assert!(!disk.flush(&mut world).status.is_success());
    }
}

#[test]
fn a_host_without_flow_control_is_told_of_reads_by_their_data_alone() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let mut admin = Host::connect(&mut world, "vol0", Digests::default(), 0);
    admin.enable(&mut world);
    let connect = Connect {
        has_no_flow_control: true,
        ..connect_of(2)
    };
    let data = connect_data("vol0", "nqn.host", admin.controller.get());
    let mut disk = Host::open(&mut world, Digests::default(), connect, &data).unwrap();
    disk.tell(&mut world, read(1, 0, 512), &[]);
    let heard = disk.hear(&mut world);
    assert_eq!(
        heard,
        [Heard::Data {
            id: 1,
            data: vec![0; 512],
            is_done: true
        }]
    );
    assert_eq!(disk.write(&mut world, 0, &[1; 512]).queue_head, u16::MAX);
}

#[test]
fn the_place_in_the_queue_is_told_with_each_answer() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, _admin) = world.disk("vol0");
    let heads: Vec<u16> = (0..130)
        .map(|_| disk.flush(&mut world).queue_head)
        .collect();
    let expected: Vec<u16> = (1..131).map(|count| count % 128).collect();
    assert_eq!(heads, expected);
}

#[test]
fn a_volume_that_grows_is_told_to_hosts_that_wait_for_events() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, mut admin) = world.disk("vol0");
    let event = command(admin::ASYNC_EVENT_REQUEST, 900);
    admin.tell(&mut world, event, &[]);
    export.resize(2 << 20);
    assert_eq!(
        admin.hear(&mut world),
        [],
        "this host does not want to hear of it"
    );
    let wish = Command {
        dwords: [0x0b, 0x100, 0, 0, 0, 0],
        ..command(admin::SET_FEATURES, 901)
    };
    admin.tell(&mut world, wish, &[]);
    let heard = admin.hear(&mut world);
    let [Heard::Done(set), Heard::Done(told)] = heard.as_slice() else {
        panic!("{heard:?}");
    };
    assert_eq!((set.id, told.id, told.result), (901, 900, 0x0004_0002));
    admin.tell(&mut world, Command { id: 902, ..event }, &[]);
    export.resize(3 << 20);
    let (_, changed) = match admin.hear(&mut world).as_slice() {
        [Heard::Done(told)] => (
            assert_eq!(told.id, 902),
            admin
                .log_page(&mut world, asked(page::CHANGED_NAMESPACES, 4096))
                .1,
        ),
        other => panic!("{other:?}"),
    };
    assert_eq!(changed[..8], [1, 0, 0, 0, 0, 0, 0, 0]);
    let (_, changed) = admin.log_page(&mut world, asked(page::CHANGED_NAMESPACES, 4096));
    assert_eq!(changed[..4], [0; 4], "it was read");
    let (_, namespace) = admin.identify(&mut world, structure::NAMESPACE, 1);
    assert_eq!(namespace[..8], (3_u64 << 11).to_le_bytes());
    assert_eq!(disk.read(&mut world, (2 << 11) + 1, 512), [0; 512]);
}

#[test]
fn event_requests_wait_four_at_a_time_and_abort_aborts_nothing() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (_disk, mut admin) = world.disk("vol0");
    for id in 0..4 {
        admin.tell(&mut world, command(admin::ASYNC_EVENT_REQUEST, id), &[]);
    }
    assert_eq!(admin.hear(&mut world), []);
    let (done, _) = admin.ask(&mut world, command(admin::ASYNC_EVENT_REQUEST, 4));
    assert_eq!(done.status, Status::TOO_MANY_EVENT_REQUESTS);
    let (done, _) = admin.ask(&mut world, command(admin::ABORT, 5));
    assert_eq!((done.status, done.result), (Status::SUCCESS, 1));
}

#[test]
fn a_controller_without_signs_of_life_ends_with_all_of_its_queues() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let mut admin = Host::connect(&mut world, "vol0", Digests::default(), 4500);
    admin.enable(&mut world);
    let id = admin.controller.get();
    let mut disk = Host::of_controller(&mut world, "vol0", Digests::default(), 1, id);
    let rest = Host::of_controller(&mut world, "vol0", Digests::default(), 2, id);
    for _ in 0..5 {
        world.advance(Duration::from_secs(4));
        let (done, _) = admin.ask(&mut world, command(admin::KEEP_ALIVE, 1));
        assert!(done.status.is_success());
    }
    for _ in 0..5 {
        world.advance(Duration::from_secs(5));
        assert!(
            disk.flush(&mut world).status.is_success(),
            "any command is a sign of life"
        );
    }
    assert_eq!(world.server.exports().clients("vol0").len(), 1);
    world.advance(Duration::from_secs(5));
    world.advance(Duration::from_secs(5));
    let how = admin.end.borrow_mut().take();
    assert_eq!(
        how,
        Some(Err(plexum_nvme::error::NvmeError::KeepAlive(5000)))
    );
    assert!(disk.end.borrow().is_some() && rest.end.borrow().is_some());
    assert_eq!(world.server.exports().clients("vol0").len(), 0);
    assert_eq!(world.clock.sleepers(), 0);
    assert_eq!(world.server.used_bytes(), 0);
}

#[test]
fn a_keep_alive_time_out_can_be_set_later() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (_disk, mut admin) = world.disk("vol0");
    world.advance(Duration::from_secs(100_000));
    assert!(admin.end.borrow().is_none());
    let set = Command {
        dwords: [0x0f, 2000, 0, 0, 0, 0],
        ..command(admin::SET_FEATURES, 1)
    };
    assert!(admin.ask(&mut world, set).0.status.is_success());
    let get = Command {
        dwords: [0x0f, 0, 0, 0, 0, 0],
        ..command(admin::GET_FEATURES, 2)
    };
    assert_eq!(admin.ask(&mut world, get).0.result, 2000);
    world.advance(Duration::from_secs(2));
    world.advance(Duration::from_secs(2));
    assert!(admin.end.borrow().is_some());
}

#[test]
fn only_hosts_on_the_list_are_let_in() {
    let export = memory("vol0", 1 << 20);
    let allowed = Allowed::Only(vec!["nqn.friend".to_owned()]);
    let mut world = World::with(&[&export], ServerLimits::default(), allowed);
    let connect = connect_of(0);
    for volume in ["vol0", ""] {
        let stranger = connect_data(volume, "nqn.stranger", ANY_CONTROLLER);
        let refused = Host::open(&mut world, Digests::default(), connect, &stranger).err();
        assert_eq!(refused.unwrap().status, Status::CONNECT_HOST);
        let friend = connect_data(volume, "nqn.friend", ANY_CONTROLLER);
        assert!(Host::open(&mut world, Digests::default(), connect, &friend).is_ok());
    }
}

#[test]
fn a_volume_that_is_not_there_is_asked_for_again_later() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[]);
    let data = connect_data("vol0", "nqn.host", ANY_CONTROLLER);
    let refused = Host::open(&mut world, Digests::default(), connect_of(0), &data).err();
    let refused = refused.unwrap();
    assert_eq!(refused.status, Status::CONNECT_NO_SUBSYSTEM);
    assert!(
        !refused.status.is_final(),
        "its server may have been started again just now"
    );
    world.server.open(export, shape("vol0")).unwrap();
    assert!(Host::open(&mut world, Digests::default(), connect_of(0), &data).is_ok());
}

#[test]
fn queues_are_made_by_the_rules() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (_disk, admin) = world.disk("vol0");
    let id = admin.controller.get();
    let mut refused = |connect: Connect, host: &str, controller: u16| {
        let data = connect_data("vol0", host, controller);
        let opened = Host::open(&mut world, Digests::default(), connect, &data);
        opened.err().map(|done| done.status)
    };
    let parameters = Some(Status::CONNECT_PARAMETERS);
    assert_eq!(
        refused(connect_of(1), "nqn.host", id),
        Some(Status::CONNECT_BUSY)
    );
    assert_eq!(refused(connect_of(5), "nqn.host", id), parameters);
    assert_eq!(
        refused(connect_of(2), "nqn.other", id),
        parameters,
        "not its controller"
    );
    assert_eq!(refused(connect_of(2), "nqn.host", id + 1), parameters);
    assert_eq!(refused(connect_of(0), "nqn.host", id), parameters);
    let sized = |size_less_one| Connect {
        size_less_one,
        ..connect_of(2)
    };
    assert_eq!(refused(sized(0), "nqn.host", id), parameters);
    assert_eq!(refused(sized(128), "nqn.host", id), parameters);
    let format = Connect {
        record_format: 1,
        ..connect_of(2)
    };
    assert_eq!(
        refused(format, "nqn.host", id),
        Some(Status::CONNECT_FORMAT)
    );
    assert_eq!(refused(connect_of(2), "nqn.host", id), None);
}

#[test]
fn an_io_queue_may_be_disconnected_and_made_again() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(&[&export]);
    let (mut disk, admin) = world.disk("vol0");
    assert!(
        disk.fabrics(&mut world, Fabrics::Disconnect)
            .status
            .is_success()
    );
    let how = disk.end.borrow_mut().take();
    assert_eq!(how, Some(Ok(plexum_nvme::error::Ended::Disconnected)));
    assert!(admin.end.borrow().is_none());
    let id = admin.controller.get();
    let mut again = Host::of_controller(&mut world, "vol0", Digests::default(), 1, id);
    assert!(again.flush(&mut world).status.is_success());
}
