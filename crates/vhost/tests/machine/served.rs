//! What a driver that keeps to the rules gets.

use plexum_block::device::{Fua, IoError};
use plexum_front::export::ZeroRequest;
use plexum_front::testing::Operation;
use plexum_vhost::config::feature;
use plexum_vhost::peer::Kick;
use plexum_vhost::wire::{ConfigPart, Message};

use crate::ground::{DISK_BYTES, on_ground};
use crate::guest::{DATA, Descriptor, INDIRECT, NEXT, ORDINARY};

fn pattern(count: usize, seed: u8) -> Vec<u8> {
    (0..count)
        .map(|at| (at as u8).wrapping_mul(31) ^ seed)
        .collect()
}

#[test]
fn what_is_written_is_read_again_with_and_without_event_indexes_and_over_several_queues() {
    for features in [
        ORDINARY,
        ORDINARY & !feature::EVENT_INDEX,
        feature::VERSION_1,
    ] {
        on_ground(
            |_| {},
            |ground| async move {
                let (mut guest, served) = ground.connect();
                guest.greet(features).await;
                let first = guest.set_up(0, 64, 0).await;
                let second = guest.set_up(1, 8, 65_530).await; // its indexes go round
                for round in 0..20_u8 {
                    let data = pattern(4096 + 512 * usize::from(round), round);
                    let sector = u64::from(round) * 100;
                    let queues = [&first, &second];
                    let (one, other) = (
                        queues[usize::from(round) % 2],
                        queues[1 - usize::from(round) % 2],
                    );
                    assert_eq!(guest.write(one, sector, &data).await, 0);
                    let (status, read) = guest.read(other, sector, data.len() as u32).await;
                    assert_eq!(status, 0);
                    assert!(read == data, "round {round}");
                    assert!(ground.export.bytes(sector * 512, data.len()) == data);
                }
                assert_eq!(guest.stop(&first).await, Some(20));
                assert_eq!(guest.stop(&second).await, Some(14));
                drop(guest);
                assert!(served.await.unwrap().is_ok());
                ground.assert_empty();
            },
        );
    }
}

#[test]
fn descriptors_may_be_cut_anywhere_and_lie_in_a_table() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            let data = pattern(1024, 7);
            // Head and data in one piece, cut at 1, 15, 16, 17 and 600 bytes.
            let head = guest.head(0, 1, 5);
            guest.store(head + 16, &data);
            let mut from = 0;
            let mut chain: Vec<Descriptor> = [1, 15, 16, 17, 600, 1040]
                .into_iter()
                .map(|to| {
                    let piece = Descriptor::readable(head + from, (to - from) as u32);
                    from = to;
                    piece
                })
                .collect();
            chain.push(Descriptor::writable(DATA + 0x1_f000, 1));
            guest.chain(&queue, 3, &chain);
            guest.offer(&queue, 3);
            assert_eq!(guest.finish(&queue).await, (3, 1));
            assert_eq!(guest.status(0), 0);
            assert!(ground.export.bytes(5 * 512, 1024) == data);
            // The same is read by a table: data and status in one piece, cut in the middle of a sector.
            let head = guest.head(0, 0, 5);
            let pieces = [
                Descriptor::readable(head, 16),
                Descriptor::writable(head + 0x1000, 700),
                Descriptor::writable(head + 0x5000, 325),
            ];
            let table = DATA + 0x8_0000;
            for (index, piece) in pieces.iter().enumerate() {
                let is_last = index + 1 == pieces.len();
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&piece.address.to_le_bytes());
                bytes[8..12].copy_from_slice(&piece.count.to_le_bytes());
                let flags = piece.flags | if is_last { 0 } else { NEXT };
                bytes[12..14].copy_from_slice(&flags.to_le_bytes());
                bytes[14..].copy_from_slice(&(index as u16 + 1).to_le_bytes());
                guest.store(table + index as u64 * 16, &bytes);
            }
            let whole = Descriptor {
                flags: INDIRECT,
                ..Descriptor::readable(table, 48)
            };
            guest.put(&queue, 9, &whole);
            guest.offer(&queue, 9);
            assert_eq!(guest.finish(&queue).await, (9, 1025));
            let mut read = guest.load(head + 0x1000, 700);
            read.extend(guest.load(head + 0x5000, 325));
            assert!(read[..1024] == data);
            assert_eq!(read[1024], 0);
        },
    );
}

fn ranges(ranges: &[(u64, u32, u32)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (sector, sectors, flags) in ranges {
        bytes.extend_from_slice(&sector.to_le_bytes());
        bytes.extend_from_slice(&sectors.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
    }
    bytes
}

#[test]
fn discards_zeroes_flushes_and_the_name_are_understood_and_nothing_else() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            let ask = async |kind: u32, bytes: &[u8]| {
                let at = DATA + 0x1000;
                guest.store(at, bytes);
                let data = Descriptor::readable(at, bytes.len() as u32);
                guest.submit(&queue, 0, kind, 0, data);
                assert_eq!(guest.finish(&queue).await, (0, 1));
                guest.status(0)
            };
            assert_eq!(guest.write(&queue, 0, &pattern(8192, 1)).await, 0);
            assert_eq!(ask(13, &ranges(&[(1, 2, 0), (8, 4, 1)])).await, 0);
            assert_eq!(
                ask(11, &ranges(&[(100, 8, 0), (200, 16, 0), (300, 1, 0)])).await,
                0
            );
            assert_eq!(guest.simple(&queue, 4).await, 0);
            let zero = |may_unmap| ZeroRequest {
                fua: Fua::No,
                may_unmap,
                only_if_fast: false,
            };
            assert_eq!(
                ground.export.take_log()[1..],
                [
                    Operation::Zero(512, 1024, zero(false)),
                    Operation::Zero(4096, 2048, zero(true)),
                    Operation::Trim(51_200, 4096, Fua::No),
                    Operation::Trim(102_400, 8192, Fua::No),
                    Operation::Trim(153_600, 512, Fua::No),
                    Operation::Flush,
                ]
            );
            assert_eq!(ground.export.bytes(512, 1024), vec![0; 1024]);
            guest.submit(&queue, 0, 8, 0, Descriptor::writable(DATA + 0x1000, 20));
            assert_eq!(guest.finish(&queue).await, (0, 21));
            assert_eq!(guest.load(DATA + 0x1000, 20), b"a disk with a long n");
            assert_eq!(guest.simple(&queue, 77).await, 2, "unknown");
            assert_eq!(
                ask(11, &ranges(&[(0, 8, 1)])).await,
                2,
                "a discard with a flag"
            );
            let last = DISK_BYTES / 512;
            for bad in [
                ranges(&[(last, 1, 0)]),
                ranges(&[(0, 1, 0), (u64::MAX, 1, 0)]),
                ranges(&[(0, 1, 0)])[..15].to_vec(),
                ranges(&[(0, 1, 0); 33]),
            ] {
                assert_eq!(ask(13, &bad).await, 1);
            }
            for (sector, count) in [(last, 512), (last - 1, 1024), (u64::MAX, 512), (0, 100)] {
                assert_eq!(guest.write(&queue, sector, &vec![1; count]).await, 1);
                assert_eq!(guest.read(&queue, sector, count as u32).await.0, 1);
            }
            assert_eq!(
                ground.export.take_log(),
                [],
                "nothing of that reached the disk"
            );
        },
    );
}

#[test]
fn an_error_of_the_disk_is_an_error_of_the_request_alone() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            ground.export.fail_with(Some(IoError::Medium));
            assert_eq!(guest.write(&queue, 0, &[1; 512]).await, 1);
            assert_eq!(guest.read(&queue, 0, 512).await.0, 1);
            assert_eq!(guest.simple(&queue, 4).await, 1);
            ground.export.fail_with(None);
            ground.export.read_short(true);
            assert_eq!(
                guest.read(&queue, 0, 512).await.0,
                1,
                "a short read is none"
            );
            ground.export.read_short(false);
            assert_eq!(guest.read(&queue, 0, 512).await.0, 0);
        },
    );
}

#[test]
fn a_disk_that_can_only_be_read_is_not_changed() {
    on_ground(
        |info| info.is_read_only = true,
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            let taken = ORDINARY & !(feature::DISCARD | feature::WRITE_ZEROES);
            guest.greet(taken | feature::READ_ONLY).await;
            let queue = guest.set_up(0, 64, 0).await;
            assert_eq!(guest.write(&queue, 0, &[1; 512]).await, 1);
            assert_eq!(guest.read(&queue, 0, 512).await.0, 0);
            for kind in [11, 13] {
                assert_eq!(guest.simple(&queue, kind).await, 1);
            }
            assert_eq!(ground.export.take_log(), [Operation::Read(0, 512)]);
        },
    );
}

#[test]
fn a_driver_that_does_not_flush_or_chooses_so_gets_durable_writes() {
    let cases = [
        (ORDINARY & !feature::FLUSH, None, Fua::Yes),
        (ORDINARY, None, Fua::No),
        (ORDINARY | feature::CONFIG_WCE, None, Fua::No),
        (ORDINARY | feature::CONFIG_WCE, Some(0), Fua::Yes),
        (ORDINARY | feature::CONFIG_WCE, Some(1), Fua::No),
    ];
    for (features, chosen, fua) in cases {
        on_ground(
            |_| {},
            |ground| async move {
                let (mut guest, _served) = ground.connect();
                guest.greet(features).await;
                if let Some(word) = chosen {
                    let part = ConfigPart {
                        offset_bytes: 32,
                        flags: 0,
                        bytes: vec![word],
                    };
                    guest.send(&Message::SetConfig(part.clone()), None).await;
                    let told = guest.ask(&Message::GetConfig(part)).await.unwrap();
                    assert_eq!(told[12..], [word]);
                }
                let queue = guest.set_up(0, 64, 0).await;
                assert_eq!(guest.write(&queue, 0, &[1; 512]).await, 0);
                assert_eq!(ground.export.take_log(), [Operation::Write(0, 512, fua)]);
            },
        );
    }
}

#[test]
fn data_that_a_guest_changes_meanwhile_are_written_as_they_were() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            ground.export.hold(true);
            guest.submit_write(&queue, 0, 0, &[1; 4096]);
            ground.until_held(1).await;
            guest.store(DATA, &[0xff; 0x5000]); // data and head
            for index in 0..3 {
                guest.put(&queue, index, &Descriptor::readable(0, 1)); // and descriptors
            }
            ground.export.release(0);
            assert_eq!(guest.finish(&queue).await, (0, 1));
            assert_eq!(guest.status(0), 0);
            assert_eq!(ground.export.bytes(0, 4096), vec![1; 4096]);
        },
    );
}

#[test]
fn a_queue_that_is_stopped_has_ended_what_it_began_and_its_guest_is_told() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            let other = guest.set_up(1, 64, 0).await;
            queue.call.wait().await.unwrap(); // a new event is signalled once
            ground.export.hold(true);
            guest.submit_write(&queue, 1, 0, &[1; 512]);
            ground.until_held(1).await;
            guest.submit_write(&queue, 2, 1, &[2; 512]);
            ground.until_held(2).await;
            let stopping = guest.stop(&queue);
            let mut stopping = std::pin::pin!(stopping);
            for _ in 0..3 {
                let polled = plexum_block::wait::poll_once(stopping.as_mut());
                assert!(polled.is_pending(), "two requests are under way");
                ground.settle().await;
            }
            guest.submit_write(&queue, 3, 2, &[3; 512]); // too late: it is for whoever begins again
            ground.settle().await;
            ground.export.hold(false);
            ground.export.release(1);
            ground.export.release(0);
            assert_eq!(stopping.await, Some(2));
            queue.call.wait().await.unwrap();
            assert_eq!(guest.finish(&queue).await, (8, 1));
            assert_eq!(guest.finish(&queue).await, (4, 1));
            assert_eq!(guest.given_back(&queue), 0);
            assert_eq!(
                guest.write(&other, 9, &[9; 512]).await,
                0,
                "its neighbour goes on"
            );
            let queue = guest.set_up(0, 64, 2).await;
            assert_eq!(guest.finish(&queue).await, (12, 1));
            assert_eq!(ground.export.bytes(1024, 512), vec![3; 512]);
        },
    );
}

#[test]
fn a_queue_that_is_switched_off_takes_nothing_until_it_is_switched_on() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            let switch =
                |value| Message::SetRingEnabled(plexum_vhost::wire::RingValue { ring: 0, value });
            guest.send(&switch(0), None).await;
            guest.number(&Message::GetQueueCount).await; // it is switched off when this is answered
            guest.submit_write(&queue, 0, 0, &[1; 512]);
            ground.settle().await;
            assert_eq!(ground.export.take_log(), []);
            guest.send(&switch(1), None).await;
            assert_eq!(guest.finish(&queue).await, (0, 1));
        },
    );
}

#[test]
fn a_disk_that_grows_tells_its_machine() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let (ours, theirs) = crate::guest::sockets();
            guest.send(&Message::SetBackendChannel, Some(&theirs)).await;
            let queue = guest.set_up(0, 64, 0).await;
            let capacity = ConfigPart {
                offset_bytes: 0,
                flags: 0,
                bytes: vec![0; 8],
            };
            let before = guest
                .ask(&Message::GetConfig(capacity.clone()))
                .await
                .unwrap();
            assert_eq!(before[12..], (DISK_BYTES / 512).to_le_bytes());
            assert_eq!(guest.read(&queue, DISK_BYTES / 512, 512).await.0, 1);
            ground.export.resize(2 * DISK_BYTES);
            let told = crate::guest::read_all(&ground.handle, ours).await;
            assert_eq!(told, plexum_vhost::wire::config_change());
            let after = guest.ask(&Message::GetConfig(capacity)).await.unwrap();
            assert_eq!(after[12..], (2 * DISK_BYTES / 512).to_le_bytes());
            assert_eq!(guest.read(&queue, DISK_BYTES / 512, 512).await.0, 0);
        },
    );
}

#[test]
fn memory_may_come_in_regions_and_a_request_may_span_them() {
    use crate::guest::{GUEST, MEMORY_BYTES, USER};
    use plexum_vhost::wire::Region;
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            assert_eq!(guest.number(&Message::GetMemorySlots).await, 32);
            guest.send(&Message::SetMemoryTable(Vec::new()), None).await;
            let cut = 0x10_0000 + 0x1000 + 300; // in the data of slot 0
            let first = Region {
                guest_address: GUEST,
                size_bytes: cut,
                user_address: USER,
                file_offset_bytes: 0,
            };
            let second = Region {
                guest_address: GUEST + cut,
                size_bytes: MEMORY_BYTES - cut,
                user_address: USER + (1 << 40),
                file_offset_bytes: cut,
            };
            for region in [first, second] {
                guest
                    .send(&Message::AddRegion(region), Some(&guest.file))
                    .await;
            }
            let queue = guest.set_up(0, 64, 0).await;
            let data = pattern(4096, 3);
            assert_eq!(guest.write(&queue, 7, &data).await, 0);
            guest.store(DATA + 0x1000, &[0; 4096]);
            let (status, read) = guest.read(&queue, 7, 4096).await;
            assert_eq!(status, 0);
            assert!(read == data);
            guest.send(&Message::RemoveRegion(second), None).await;
            guest.number(&Message::GetQueueCount).await;
            // The status cannot be told either: it was in the region that has gone.
            guest.submit_write(&queue, 0, 7, &data);
            assert_eq!(guest.finish(&queue).await, (0, 0));
            assert_eq!(guest.status(0), 0xee);
        },
    );
}
