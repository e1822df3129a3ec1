//! Guests and front ends that do what they must not.

use std::time::Duration;

use plexum_front::testing::Operation;
use plexum_vhost::config::feature;
use plexum_vhost::peer::{Kick, Peer};
use plexum_vhost::session::{Ended, SessionError};
use plexum_vhost::wire::{Message, RingFile, RingPlace, RingValue};

use crate::ground::{DISK_BYTES, on_ground};
use crate::guest::{
    DATA, Descriptor, GUEST, Guest, INDIRECT, NEXT, ORDINARY, Queue, USER, WRITE, event,
};

/// A generator of made-up bytes (xorshift), the same for the same seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// What a guest does with a ring that must not be.
type Crime = fn(&Guest, &Queue);

fn of_one(guest: &Guest, queue: &Queue, descriptor: Descriptor) {
    guest.put(queue, 0, &descriptor);
    guest.offer(queue, 0);
}

const CRIMES: [(&str, &str, Crime); 12] = [
    ("goes round", "it goes round", |guest, queue| {
        for (index, next) in [(0, 1), (1, 2), (2, 0)] {
            let descriptor = Descriptor {
                flags: NEXT,
                next,
                ..Descriptor::readable(DATA, 16)
            };
            guest.put(queue, index, &descriptor);
        }
        guest.offer(queue, 0);
    }),
    ("follows itself", "it goes round", |guest, queue| {
        let descriptor = Descriptor {
            flags: NEXT,
            ..Descriptor::readable(DATA, 16)
        };
        of_one(guest, queue, descriptor);
    }),
    (
        "leads out of the ring",
        "descriptor 64 is not",
        |guest, queue| {
            let descriptor = Descriptor {
                flags: NEXT,
                next: 64,
                ..Descriptor::readable(DATA, 16)
            };
            of_one(guest, queue, descriptor);
        },
    ),
    (
        "a head out of the ring",
        "descriptor 64 is not",
        |guest, queue| guest.offer(queue, 64),
    ),
    (
        "the last of all heads",
        "descriptor 65535 is not",
        |guest, queue| guest.offer(queue, u16::MAX),
    ),
    ("more than the ring has", "65 entries", |guest, queue| {
        guest.jump(queue, 65)
    }),
    ("backwards", "65535 entries", |guest, queue| {
        guest.jump(queue, u16::MAX)
    }),
    ("no room for an answer", "no room", |guest, queue| {
        of_one(guest, queue, Descriptor::readable(DATA, 16));
    }),
    ("no request", "shorter than a request", |guest, queue| {
        of_one(guest, queue, Descriptor::writable(DATA, 1));
    }),
    (
        "read behind what is written",
        "behind what is written",
        |guest, queue| {
            let chain = [
                Descriptor::writable(DATA, 1),
                Descriptor::readable(DATA, 16),
            ];
            guest.chain(queue, 0, &chain);
            guest.offer(queue, 0);
        },
    ),
    ("a table in itself", "lies in a table", |guest, queue| {
        let table = Descriptor {
            flags: INDIRECT,
            ..Descriptor::readable(GUEST, 16) // where the ring's descriptors are
        };
        of_one(guest, queue, table);
    }),
    (
        "a table larger than all memory",
        "longer than a ring",
        |guest, queue| {
            let table = Descriptor {
                flags: INDIRECT,
                ..Descriptor::readable(GUEST, u32::MAX - 15)
            };
            of_one(guest, queue, table);
        },
    ),
];

#[test]
fn a_ring_that_breaks_the_rules_is_left_alone_and_its_neighbours_go_on() {
    for (name, reason, crime) in CRIMES {
        on_ground(
            |_| {},
            |ground| async move {
                let (mut guest, _served) = ground.connect();
                let (mut other, _other_served) = ground.connect();
                guest.greet(ORDINARY).await;
                other.greet(ORDINARY).await;
                let broken = guest.set_up(0, 64, 0).await;
                let sound = guest.set_up(1, 64, 0).await;
                let others = other.set_up(0, 64, 0).await;
                crime(&guest, &broken);
                broken.error.wait().await.unwrap();
                assert_eq!(guest.given_back(&broken), 0, "{name}");
                let told = ground.told.take();
                assert!(
                    told.len() == 1 && told[0].contains(reason),
                    "{name}: {told:?}"
                );
                guest.submit_write(&broken, 1, 3, &[1; 512]);
                assert_eq!(guest.write(&sound, 0, &[1; 512]).await, 0, "{name}");
                assert_eq!(other.write(&others, 1, &[2; 512]).await, 0, "{name}");
                ground.settle().await;
                assert_eq!(
                    ground.export.take_log().len(),
                    2,
                    "{name}: it is left alone"
                );
                // A driver that was reset sets it up anew.
                let base = guest.stop(&broken).await.unwrap();
                assert!(base <= 1, "{name}: {base}");
                guest.store(GUEST, &[0; 0xb000]);
                let again = guest.set_up(0, 64, 0).await;
                assert_eq!(guest.write(&again, 0, &[3; 512]).await, 0, "{name}");
            },
        );
    }
}

#[test]
fn a_head_that_is_offered_while_it_is_under_way_breaks_its_ring() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            ground.export.hold(true);
            guest.submit_write(&queue, 0, 0, &[1; 512]);
            ground.until_held(1).await;
            guest.offer(&queue, 0);
            queue.error.wait().await.unwrap();
            ground.export.release(0);
            assert_eq!(guest.stop(&queue).await, Some(1));
            drop(guest);
            assert_eq!(served.await.unwrap(), Ok(Ended::HungUp));
            ground.assert_empty();
        },
    );
}

#[test]
fn addresses_that_lead_nowhere_are_errors_of_their_requests() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            for address in [
                0,
                GUEST - 512,
                GUEST + (16 << 20) - 511,
                u64::MAX - 100,
                u64::MAX,
            ] {
                guest.submit(&queue, 0, 1, 0, Descriptor::readable(address, 512));
                assert_eq!(guest.finish(&queue).await, (0, 1));
                assert_eq!(guest.status(0), 1, "a write from {address:#x}");
                guest.submit(&queue, 0, 0, 0, Descriptor::writable(address, 512));
                assert_eq!(guest.finish(&queue).await, (0, 1));
                assert_eq!(guest.status(0), 1, "a read to {address:#x}");
            }
            for count in [u32::MAX, 1 << 25 | 512, 0x8000_0000] {
                guest.submit(&queue, 0, 1, 0, Descriptor::readable(DATA, count));
                assert_eq!(guest.finish(&queue).await, (0, 1));
                assert_eq!(guest.status(0), 1, "{count} bytes");
            }
            assert!(
                ground
                    .export
                    .take_log()
                    .iter()
                    .all(|call| matches!(call, Operation::Read(0, 512)))
            );
        },
    );
}

#[test]
fn a_ring_that_lies_nowhere_or_is_changed_while_it_is_worked_on_is_not() {
    on_ground(
        |_| {},
        |ground| async move {
            for place in [0, USER - 8, USER + 1, USER + (16 << 20) - 8, u64::MAX - 3] {
                let (mut guest, served) = ground.connect();
                guest.greet(ORDINARY).await;
                let wrong = RingPlace {
                    ring: 0,
                    flags: 0,
                    descriptors: USER,
                    used: place,
                    available: USER + 0x8000,
                    log: 0,
                };
                let queue = guest.set_up(3, 64, 0).await;
                for message in [
                    Message::SetRingSize(RingValue { ring: 0, value: 64 }),
                    Message::SetRingPlace(wrong),
                ] {
                    guest.send(&message, None).await;
                }
                let file = RingFile {
                    ring: 0,
                    has_file: true,
                };
                let ((_kick, kicked), (error, broken)) = (event(), event());
                guest.send(&Message::SetError(file), Some(&broken)).await;
                guest.send(&Message::SetKick(file), Some(&kicked)).await;
                guest
                    .send(
                        &Message::SetRingEnabled(RingValue { ring: 0, value: 1 }),
                        None,
                    )
                    .await;
                guest.socket.kick(error).unwrap().wait().await.unwrap();
                assert_eq!(guest.write(&queue, 0, &[1; 512]).await, 0);
                // A ring that is worked on stays as it is.
                guest
                    .send(
                        &Message::SetRingSize(RingValue { ring: 3, value: 32 }),
                        None,
                    )
                    .await;
                assert!(guest.answer().await.is_none());
                assert!(served.await.unwrap().is_err());
            }
            ground.assert_empty();
        },
    );
}

#[test]
fn random_bytes_on_the_socket_end_it_and_nothing_else() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut other, _served) = ground.connect();
            other.greet(ORDINARY).await;
            let queue = other.set_up(0, 64, 0).await;
            let mut dice = Dice(0x1234_5678);
            for round in 0..300 {
                let (mut guest, served) = ground.connect();
                if round % 2 == 0 {
                    guest.greet(ORDINARY).await;
                    guest.set_up(0, 64, 0).await;
                }
                for _ in 0..20 {
                    // A head that could be one, of a request that there may be, with a payload of any bytes.
                    let count = dice.next() as usize % 60;
                    let payload = dice.bytes(count);
                    let mut bytes = (dice.next() as u32 % 45).to_ne_bytes().to_vec();
                    bytes.extend_from_slice(&[1 | dice.next() as u8 & 8, 0, 0, 0]);
                    bytes.extend_from_slice(&(count as u32).to_ne_bytes());
                    bytes.extend(payload);
                    if round % 3 == 0 {
                        bytes = dice.bytes(count);
                    }
                    let (file, _) = event();
                    let with = [None, Some(&file), Some(&guest.file)][dice.next() as usize % 3];
                    if guest.socket.send(&bytes, with).await.is_err() {
                        break;
                    }
                }
                drop(guest);
                let _ = served.await.expect("a session does not panic");
                assert_eq!(ground.budget.used_bytes(), 0);
            }
            assert_eq!(other.write(&queue, 0, &[1; 512]).await, 0);
        },
    );
}

#[test]
fn random_bytes_in_rings_never_reach_beyond_the_disk_or_the_memory() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut dice, mut calls) = (Dice(99), 0);
            for round in 0..300_u64 {
                let (mut guest, served) = ground.connect();
                let index = if round % 2 == 0 {
                    feature::EVENT_INDEX
                } else {
                    0
                };
                guest.greet(ORDINARY & !feature::EVENT_INDEX | index).await;
                guest.keep_record(1, 32).await;
                let queue = guest.set_up(0, 32, 0).await;
                for _ in 0..10 {
                    for slot in 0..8 {
                        let kind = [0, 1, 4, 8, 11, 13][dice.next() as usize % 6];
                        let head = guest.head(slot, kind, dice.next() % 20_000);
                        // Mostly a request that could be, of which some of the descriptors are any.
                        let count = [0, 16, 20, 512, 4096][dice.next() as usize % 5];
                        let written = if dice.next().is_multiple_of(2) {
                            WRITE
                        } else {
                            0
                        };
                        let mut chain = [
                            Descriptor::readable(head, 16),
                            Descriptor {
                                flags: written,
                                ..Descriptor::readable(head + 0x1000, count)
                            },
                            Descriptor::writable(head + 0x1_f000, 1),
                        ];
                        for descriptor in &mut chain {
                            if dice.next().is_multiple_of(40) {
                                descriptor.address = dice.next() >> (dice.next() % 64);
                                descriptor.count = dice.next() as u32 >> (dice.next() % 32);
                                descriptor.flags = dice.next() as u16 % 8;
                            }
                        }
                        guest.chain(&queue, slot as u16 * 4, &chain);
                    }
                    for slot in 0..8 {
                        if dice.next().is_multiple_of(2) {
                            guest.offer(&queue, slot * 4);
                        }
                    }
                    ground.settle().await;
                    if dice.next().is_multiple_of(64) {
                        guest.store(GUEST, &dice.bytes(0xb000)); // all of the ring
                    }
                }
                drop((guest, queue));
                let _ = served.await.expect("a session does not panic");
                for call in ground.export.take_log() {
                    calls += 1;
                    let (Operation::Read(at, count)
                    | Operation::Write(at, count, _)
                    | Operation::Trim(at, count, _)
                    | Operation::Zero(at, count, _)) = call
                    else {
                        continue;
                    };
                    assert!(
                        at + count <= DISK_BYTES && (at | count) % 512 == 0,
                        "{call:?}"
                    );
                }
                ground.assert_empty();
            }
            assert!(calls > 1000, "some of it was right: {calls}");
        },
    );
}

#[test]
fn memory_that_is_cut_under_the_server_ends_what_uses_it_and_nothing_else() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, served) = ground.connect();
            let (mut other, _served) = ground.connect();
            other.greet(ORDINARY).await;
            let others = other.set_up(0, 64, 0).await;
            // A file that can be cut, unlike that of a front end that means well.
            let file = rustix::fs::memfd_create("cut", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::fs::ftruncate(&file, crate::guest::MEMORY_BYTES).unwrap();
            guest.file = file;
            let part = plexum_vhost::peer::FilePart {
                offset_bytes: 0,
                size_bytes: crate::guest::MEMORY_BYTES,
            };
            guest.memory = guest.socket.map(&guest.file, part).unwrap().into();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            assert_eq!(guest.write(&queue, 0, &[1; 512]).await, 0);
            ground.export.hold(true);
            guest.submit(&queue, 1, 0, 0, Descriptor::writable(DATA + 0x1000, 4096));
            ground.until_held(1).await;
            rustix::fs::ftruncate(&guest.file, 4096).unwrap();
            ground.export.hold(false);
            ground.export.release(0);
            ground.settle().await;
            queue.error.wait().await.unwrap();
            assert_eq!(other.write(&others, 0, &[1; 512]).await, 0);
            drop((guest, queue));
            assert_eq!(served.await.unwrap(), Ok(Ended::HungUp));
        },
    );
}

#[test]
fn a_connection_that_says_nothing_loses_its_place_and_one_that_has_spoken_may_be_silent() {
    on_ground(
        |_| {},
        |ground| async move {
            let (silent, served) = ground.connect();
            let (spoken, spoken_served) = ground.connect();
            spoken.number(&Message::GetFeatures).await;
            // Half a message is none.
            silent.socket.send(&[1, 0, 0], None).await.unwrap();
            ground.settle().await;
            ground.clock.advance(Duration::from_secs(11));
            assert_eq!(served.await.unwrap(), Err(SessionError::Silent));
            assert!(silent.answer().await.is_none());
            ground.clock.advance(Duration::from_secs(100_000));
            spoken.number(&Message::GetFeatures).await;
            drop(spoken);
            assert_eq!(spoken_served.await.unwrap(), Ok(Ended::HungUp));
            ground.assert_empty();
        },
    );
}

#[test]
fn requests_wait_for_memory_and_all_of_them_are_done() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, _served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 512, 0).await;
            // 100 reads of 1 MiB, of which the budget has room for some.
            ground.export.hold(true);
            for slot in 0..100 {
                guest.submit(
                    &queue,
                    slot,
                    0,
                    slot,
                    Descriptor::writable(DATA + (8 << 10), 1 << 20),
                );
            }
            ground.until_held(60).await;
            ground.settle().await;
            let held = ground.export.held().len();
            assert!(held < 80, "{held} at once");
            assert!(ground.budget.used_bytes() <= 73 << 20);
            ground.export.hold(false);
            for _ in 0..held {
                ground.export.release(0);
            }
            for _ in 0..100 {
                assert_eq!(guest.finish(&queue).await.1, (1 << 20) + 1);
            }
        },
    );
}
