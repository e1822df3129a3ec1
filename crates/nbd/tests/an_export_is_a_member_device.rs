//! The client as a member device of the engine.
#![allow(clippy::unwrap_used)]

mod common;

use std::rc::Rc;

use common::played::{Played, SIZE, export};
use common::{World, memory};
use plexum_block::device::{Device, Fua, IoError, ZeroMode};
use plexum_nbd::client::ClientDevice;
use plexum_nbd::testing::{Operation, PipeEnd};
use plexum_nbd::transport::Transport;
use plexum_nbd::wire::Framing;
use plexum_nbd::wire::option::{InfoFact, tflag};
use plexum_nbd::wire::reply::encode_simple;
use plexum_nbd::wire::request::{Request, command, flag};

fn device_over(played: &Played) -> ClientDevice<PipeEnd> {
    ClientDevice::new(played.client.clone(), played.world.pool.clone()).unwrap()
}

#[test]
fn a_member_device_splits_what_is_too_long_and_flushes_where_fua_is_missing() {
    let sizes = InfoFact::BlockSize {
        minimum: 1,
        preferred: 4096,
        payload_max: 4096,
    };
    let flags = tflag::HAS_FLAGS | tflag::SEND_FLUSH;
    let mut played = Played::with(Framing::Simple, &[export(SIZE + 5, flags), sizes]);
    let device = Rc::new(device_over(&played));
    assert_eq!(device.info().size_bytes, SIZE);
    assert_eq!(device.info().sector_bytes, 512);
    let piece = played.world.buf(&[7; 8704]);
    let d = Rc::clone(&device);
    let written = played
        .world
        .start(async move { d.write(512, piece, Fua::Yes).await });
    let mut seen = Vec::new();
    while written.borrow().is_none() {
        let bytes = played.world.receive(&played.server);
        let request = Request::decode(Framing::Simple, &bytes[..28]).unwrap();
        assert_eq!(bytes.len() - 28, request.length_bytes as usize);
        seen.push((
            request.command,
            request.flags & flag::FUA,
            request.offset_bytes,
            request.length_bytes,
        ));
        played
            .world
            .send(&played.server, &encode_simple(None, request.cookie));
    }
    let expected = [
        (command::WRITE, 0, 512, 4096),
        (command::WRITE, 0, 4608, 4096),
        (command::WRITE, 0, 8704, 512),
        (command::FLUSH, 0, 0, 0),
    ];
    assert_eq!(seen, expected);
    let d = Rc::clone(&device);
    let zeroed = played
        .world
        .run(async move { d.zero(0, 512, ZeroMode::Unmap).await });
    assert_eq!(zeroed, Err(IoError::Unsupported));
    let (d, buf) = (Rc::clone(&device), played.world.pool.take(512));
    let outside = played
        .world
        .run(async move { d.read(SIZE, buf).await.map(|_| ()) });
    assert_eq!(outside, Err(IoError::OutOfRange));
    played.server.close();
    let d = Rc::clone(&device);
    played.world.settle();
    assert_eq!(
        played.world.run(async move { d.check().await }),
        Err(IoError::Gone)
    );
}

#[test]
fn a_member_device_says_not_fast_only_before_anything_has_changed() {
    let export = memory("vol0", 4 << 30);
    let mut world = World::new(vec![export.clone()]);
    let (client, _) = world.client_of("vol0", Framing::Structured);
    let device = Rc::new(ClientDevice::new(client, world.pool.clone()).unwrap());
    let d = Rc::clone(&device);
    world
        .run(async move { d.zero(0, 3 << 30, ZeroMode::Allocate).await })
        .unwrap();
    let fast = export
        .take_log()
        .iter()
        .filter(|operation| matches!(operation, Operation::Zero(_, _, how) if how.only_if_fast))
        .count();
    assert_eq!(fast, 1);
    export.zero_fast(false);
    let d = Rc::clone(&device);
    let refused = world.run(async move { d.zero(0, 512, ZeroMode::Unmap).await });
    assert_eq!(refused, Err(IoError::Unsupported));
}
