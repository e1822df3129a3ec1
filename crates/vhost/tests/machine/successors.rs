//! Sessions that end, and those that follow them.

use plexum_block::device::Fua;
use plexum_front::client::Leave;
use plexum_front::testing::Operation;
use plexum_runtime::vhost::{FrontEnd, SharedMemory};
use plexum_vhost::inflight::{Inflight, record_bytes};
use plexum_vhost::session::Ended;
use plexum_vhost::wire::{InflightArea, Message};

use crate::ground::on_ground;
use crate::guest::{ORDINARY, pair};

#[test]
fn who_comes_next_does_again_what_was_under_way_and_nothing_else() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, served) = ground.connect();
            guest.greet(ORDINARY).await;
            let (area, record) = guest.keep_record(1, 64).await;
            let queue = guest.set_up(0, 64, 0).await;
            ground.export.hold(true);
            for slot in 1..=4 {
                guest.submit_write(&queue, slot, slot * 10, &[slot as u8; 512]);
                ground.until_held(slot as usize).await;
            }
            ground.export.release(2); // of slot 3
            assert_eq!(guest.finish(&queue).await, (12, 1));
            ground.export.take_log();
            // The machine loses its server: the connection ends, the requests end later.
            let (server, client) = pair(&ground.handle);
            let lost = std::mem::replace(&mut guest.socket, client.into());
            plexum_vhost::peer::Peer::close(&*lost);
            ground.settle().await;
            assert_eq!(
                ground.exports.clients("a disk with a long name").len(),
                1,
                "it waits for them"
            );
            ground.export.hold(false);
            for _ in 0..3 {
                ground.export.release(0);
            }
            assert_eq!(served.await.unwrap(), Ok(Ended::HungUp));
            assert_eq!(guest.given_back(&queue), 0, "its successor answers");
            ground.assert_empty();
            let served = ground.serve(server);
            guest.greet(ORDINARY).await;
            guest.send(&Message::SetInflight(area), Some(&record)).await;
            let again = guest.set_up(0, 64, 1).await;
            for head in [4, 8, 16] {
                assert_eq!(guest.finish(&again).await, (head, 1));
            }
            let written = |sector: u64| Operation::Write(sector * 512, 512, Fua::No);
            assert_eq!(ground.export.take_log(), [10, 20, 40].map(written));
            assert_eq!(guest.write(&again, 0, &[1; 512]).await, 0);
            assert_eq!(guest.stop(&again).await, Some(5));
            drop(guest);
            assert_eq!(served.await.unwrap(), Ok(Ended::HungUp));
        },
    );
}

#[test]
fn a_record_is_right_wherever_its_writer_died() {
    let area = InflightArea {
        size_bytes: 0,
        file_offset_bytes: 0,
        queues: 2,
        descriptors: 16,
    };
    let (_file, memory) = SharedMemory::share(record_bytes(&area).unwrap()).unwrap();
    let record = Inflight::new(memory, area).unwrap();
    let left = |used| record.take_over(1, (16, used)).unwrap().heads;
    assert_eq!(left(0), []);
    for (turn, head) in [(0, 7), (1, 3), (2, 5)] {
        record.mark(1, head, turn).unwrap();
    }
    assert_eq!(left(0), [7, 3, 5], "in the order in which they were begun");
    record.announce(1, 3).unwrap();
    assert_eq!(left(0), [7, 3, 5], "the used index has not moved");
    assert_eq!(left(1), [7, 5], "it has, and the mark was still there");
    record.announce(1, 7).unwrap();
    record.unmark(1, (7, 2)).unwrap();
    assert_eq!(left(2), [5]);
    assert_eq!(
        record.take_over(0, (16, 0)).unwrap().heads,
        [],
        "queues have records of their own"
    );
    assert_eq!(record.take_over(1, (16, 2)).unwrap().next_turn, 3);
}

#[test]
fn a_server_that_is_told_to_end_answers_what_it_has_begun_and_takes_nothing_more() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            ground.export.hold(true);
            guest.submit_write(&queue, 1, 0, &[1; 512]);
            ground.until_held(1).await;
            ground.exports.tell_all(Leave::Drain);
            ground.settle().await;
            guest.submit_write(&queue, 2, 1, &[2; 512]);
            ground.settle().await;
            assert_eq!(ground.export.held().len(), 1);
            ground.export.release(0);
            assert_eq!(served.await.unwrap(), Ok(Ended::Stopped));
            assert_eq!(guest.finish(&queue).await, (4, 1));
            assert_eq!(guest.given_back(&queue), 0);
            assert!(guest.answer().await.is_none(), "the connection is closed");
        },
    );
}

#[test]
fn of_a_client_that_is_fenced_nothing_more_is_done_or_answered() {
    on_ground(
        |_| {},
        |ground| async move {
            let (mut guest, served) = ground.connect();
            guest.greet(ORDINARY).await;
            let queue = guest.set_up(0, 64, 0).await;
            ground.export.hold(true);
            guest.submit_write(&queue, 1, 0, &[1; 512]);
            ground.until_held(1).await;
            ground.exports.tell_all(Leave::Fence);
            assert!(
                guest.answer().await.is_none(),
                "the connection is closed at once"
            );
            ground.export.release(0);
            assert_eq!(served.await.unwrap(), Ok(Ended::Stopped));
            assert_eq!((guest.given_back(&queue), guest.status(1)), (0, 0xee));
            ground.assert_empty();
        },
    );
}

#[test]
fn a_connection_whose_other_end_is_closed_is_known_by_it() {
    on_ground(
        |_| {},
        |ground| async move {
            let (one, other): (FrontEnd, FrontEnd) = pair(&ground.handle);
            assert!(!one.has_hung_up());
            let sent = plexum_vhost::peer::Peer::send(&other, b"unread", None).await;
            assert_eq!(sent, Ok(()));
            drop(other);
            assert!(one.has_hung_up(), "though there is something to read");
        },
    );
}
