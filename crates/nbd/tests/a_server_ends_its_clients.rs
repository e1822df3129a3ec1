//! A server tells one client to leave, in either way, and the others stay; an export whose size changes.
#![allow(clippy::unwrap_used)]

mod common;

use std::net::IpAddr;
use std::rc::Rc;

use common::{World, head, memory, pattern, raw};
use plexum_block::device::Fua;
use plexum_front::client::{ClientId, Leave};
use plexum_nbd::client::{ClientError, ConnectOptions};
use plexum_nbd::session::Ended;
use plexum_nbd::testing::{Operation, pipe};
use plexum_nbd::wire::request::command;
use plexum_nbd::wire::{Errno, Framing};

/// Ids of the clients of `vol0`, in the order in which they came.
fn ids(world: &World) -> Vec<ClientId> {
    let clients = world.server.exports().clients("vol0");
    clients.iter().map(|client| client.id).collect()
}

/// Tells a client to leave; the cell is filled when it has.
fn leave(world: &mut World, id: ClientId, how: Leave) -> Rc<std::cell::RefCell<Option<()>>> {
    let client = world.server.exports().client("vol0", id).unwrap();
    let left = world.start(async move { client.leave(how).await });
    world.settle();
    left
}

#[test]
fn a_client_that_drains_is_answered_and_its_neighbour_stays() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (client, end) = world.client_of("vol0", Framing::Extended);
    let (neighbour, neighbour_end) = world.client_of("vol0", Framing::Simple);
    export.hold(true);
    let (c, piece) = (client.clone(), world.buf(&pattern(1, 512)));
    let written = world.start(async move { c.write(0, piece, Fua::No).await });
    world.settle();
    let id = ids(&world)[0];
    let left = leave(&mut world, id, Leave::Drain);
    assert!(left.borrow().is_none(), "a write is under way");
    let c = client.clone();
    let late = world.run(async move { c.flush().await });
    assert_eq!(late, Err(ClientError::Remote(Errno::Eshutdown)));
    export.release(0);
    world.settle();
    assert_eq!(written.borrow_mut().take(), Some(Ok(())));
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    assert!(left.borrow().is_some());
    export.hold(false);
    world.run(async move { neighbour.flush().await }).unwrap();
    assert!(neighbour_end.borrow().is_none());
    assert_eq!(ids(&world).len(), 1);
}

#[test]
fn a_client_that_is_fenced_is_cut_off_and_nothing_of_it_comes_later() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (stream, end) = raw(&mut world);
    export.hold(true);
    world.send(&stream, &head(command::FLUSH, 1, 0, 0));
    // A write whose payload is on its way: the export was told to expect it.
    world.send(&stream, &head(command::WRITE, 2, 4096, 65_536));
    world.send(&stream, &[1; 1000]);
    assert_eq!(export.expected(), [(4096, 65_536)]);
    let id = ids(&world)[0];
    let left = leave(&mut world, id, Leave::Fence);
    assert_eq!(export.expected(), [], "the write will not come");
    assert!(left.borrow().is_none(), "a flush is with the export");
    assert_eq!(world.receive(&stream), [], "its stream is closed");
    export.release(0);
    world.settle();
    assert!(left.borrow().is_some());
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    world.send(&stream, &[1; 64_536]);
    assert_eq!(export.take_log(), [Operation::Flush]);
}

#[test]
fn a_fence_ends_a_client_that_reads_no_answers() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    world.room_bytes = 4096;
    let (stream, end) = raw(&mut world);
    for cookie in 0..4 {
        world.send(&stream, &head(command::READ, cookie, 0, 65_536));
    }
    let id = ids(&world)[0];
    let drained = leave(&mut world, id, Leave::Drain);
    assert!(drained.borrow().is_none(), "answers wait for the client");
    let fenced = leave(&mut world, id, Leave::Fence);
    assert!(drained.borrow().is_some() && fenced.borrow().is_some());
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
    assert_eq!(world.server.used_bytes(), 0);
}

#[test]
fn a_server_says_who_its_clients_are_and_what_they_have_under_way() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (_local, _end) = world.client_of("vol0", Framing::Simple);
    let (ours, theirs) = pipe(world.room_bytes);
    let server = Rc::clone(&world.server);
    let address: IpAddr = "192.0.2.7".parse().unwrap();
    world.start(async move { server.serve_from(theirs, address).await });
    let pool = world.pool.clone();
    let options = ConnectOptions::new("vol0");
    let connected =
        world.run(async move { plexum_nbd::client::connect(ours, pool, &options).await });
    let (remote, driver) = connected.unwrap();
    world.start(driver.run());
    export.hold(true);
    world.start(async move { remote.flush().await });
    world.settle();
    let clients = world.server.exports().clients("vol0");
    let told: Vec<(&str, usize)> = clients
        .iter()
        .map(|client| (client.peer.as_str(), client.under_way))
        .collect();
    assert_eq!(told, [("", 0), ("192.0.2.7", 1)]);
    assert_ne!(clients[0].id, clients[1].id);
}

#[test]
fn a_server_that_stops_with_a_fence_waits_for_no_answer() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (client, end) = world.client_of("vol0", Framing::Simple);
    export.hold(true);
    let both = [client.clone(), client.clone()];
    let flushed = both.map(|c| world.start(async move { c.flush().await }));
    world.settle();
    world.server.stop(Leave::Fence);
    world.settle();
    for flushed in flushed {
        assert_eq!(flushed.borrow_mut().take(), Some(Err(ClientError::Gone)));
    }
    assert!(end.borrow().is_none(), "no request outlives its session");
    export.release(0);
    export.release(0);
    world.settle();
    assert_eq!(end.borrow_mut().take().unwrap().0, Ok(Ended::Stopped));
}

#[test]
fn who_connects_after_a_volume_has_grown_sees_all_of_it() {
    let export = memory("vol0", 1 << 20);
    let mut world = World::new(vec![export.clone()]);
    let (before, end) = world.client_of("vol0", Framing::Simple);
    export.resize(2 << 20);
    let (after, _) = world.client_of("vol0", Framing::Simple);
    assert_eq!(before.remote().size_bytes, 1 << 20);
    assert_eq!(after.remote().size_bytes, 2 << 20);
    let buf = world.pool.take(512);
    let read = world.run(async move { after.read((2 << 20) - 512, buf).await });
    assert!(read.is_ok());
    world.run(async move { before.flush().await }).unwrap();
    assert!(end.borrow().is_none(), "it stays, with the size it knows");
}
