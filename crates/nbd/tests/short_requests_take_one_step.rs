//! Short requests that an export carries out in one step: the client sees no difference, and nothing comes in between.
#![allow(clippy::unwrap_used)] // a test

mod common;

use common::{FRAMINGS, World, filled, head, memory, pattern, raw};
use plexum_engine::device::{Fua, InOneStep, IoError};
use plexum_nbd::client::ClientError;
use plexum_nbd::testing::Operation;
use plexum_nbd::wire::Errno;
use plexum_nbd::wire::request::command;

const LONG: u64 = 64 << 10;

#[test]
fn short_reads_and_writes_are_done_in_one_step_and_give_what_others_would() {
    for framing in FRAMINGS {
        let export = filled(64);
        export.in_one_step(InOneStep::Done);
        let mut world = World::new(vec![export.clone()]);
        let (client, end) = world.client_of("vol0", framing);
        let data = pattern(9, 4096);
        let piece = world.buf(&data);
        let c = client.clone();
        world
            .run(async move { c.write(4096, piece, Fua::No).await })
            .unwrap();
        let buf = world.pool.take(8192);
        let c = client.clone();
        let read = world.run(async move { c.read(0, buf).await }).unwrap();
        assert!(read[4096..] == data && read[..] == export.bytes(0, 8192));
        let log = export.take_log();
        assert_eq!(
            log,
            [Operation::WriteNow(4096, 4096), Operation::ReadNow(0, 8192)]
        );
        client.disconnect();
        world.settle();
        let (_, counts) = end.borrow_mut().take().unwrap();
        assert_eq!((counts.requests, counts.errors), (2, 0));
        assert_eq!((counts.read_bytes, counts.written_bytes), (8192, 4096));
    }
}

#[test]
fn what_is_long_or_must_be_durable_or_is_declined_goes_the_other_way() {
    let export = memory("vol0", 1 << 20);
    export.in_one_step(InOneStep::Done);
    let mut world = World::new(vec![export.clone()]);
    let (client, _) = world.client_of("vol0", FRAMINGS[1]);
    let (durable, long, short) = (
        world.buf(&pattern(1, 512)),
        world.buf(&pattern(2, LONG as usize)),
        world.buf(&pattern(3, 512)),
    );
    let buf = world.pool.take(LONG as usize);
    let declining = export.clone();
    world
        .run(async move {
            client.write(0, durable, Fua::Yes).await?;
            client.write(LONG, long, Fua::No).await?;
            client.read(LONG, buf).await?;
            declining.in_one_step(InOneStep::NotBegun);
            client.write(1024, short, Fua::No).await
        })
        .unwrap();
    let expected = [
        Operation::Write(0, 512, Fua::Yes),
        Operation::Write(LONG, LONG, Fua::No),
        Operation::Read(LONG, LONG),
        Operation::Write(1024, 512, Fua::No),
    ];
    assert_eq!(export.take_log(), expected);
    assert_eq!(export.bytes(1024, 512), pattern(3, 512));
}

#[test]
fn nothing_comes_between_a_write_that_was_begun_and_its_end() {
    let export = filled(64);
    export.in_one_step(InOneStep::Begun);
    let mut world = World::new(vec![export.clone()]);
    let (stream, _) = raw(&mut world);
    // A read that waits for its worker, the write, and one that overlaps it.
    let mut bytes = head(command::READ, 1, 16_384, 512);
    bytes.extend(head(command::WRITE, 2, 0, 1024));
    bytes.extend(pattern(7, 1024));
    bytes.extend(head(command::READ, 3, 0, 1024));
    export.hold(true);
    world.send(&stream, &bytes);
    let begun = [
        Operation::WriteNow(0, 1024),
        Operation::Write(0, 1024, Fua::No),
    ];
    let log = export.take_log();
    assert_eq!(log[..2], begun, "at once");
    assert_eq!(log[2..], [Operation::Read(16_384, 512)]);
    assert_eq!(export.bytes(512, 512), pattern(1, 512), "half of it");
    export.release(0);
    world.settle();
    assert_eq!(export.bytes(0, 1024), pattern(7, 1024));
    assert_eq!(
        export.take_log(),
        [Operation::Read(0, 1024)],
        "then the next"
    );
    export.hold(false);
    export.release(0);
    export.release(0);
    let answers = world.receive(&stream);
    assert_eq!(answers.len(), 3 * 16 + 512 + 1024);
}

#[test]
fn the_error_of_a_write_that_was_begun_is_told_and_an_unfinished_payload_is_not_tried() {
    let export = memory("vol0", 1 << 20);
    export.in_one_step(InOneStep::Begun);
    export.fail_with(Some(IoError::NoSpace));
    let mut world = World::new(vec![export.clone()]);
    let (client, _) = world.client_of("vol0", FRAMINGS[1]);
    let piece = world.buf(&pattern(1, 512));
    let written = world.run(async move { client.write(0, piece, Fua::No).await });
    assert_eq!(written, Err(ClientError::Remote(Errno::Enospc)));
    export.take_log();
    let (stream, _) = raw(&mut world);
    let mut bytes = head(command::WRITE, 1, 0, 1024);
    bytes.extend(pattern(7, 1023));
    world.send(&stream, &bytes);
    assert_eq!(export.take_log(), []);
}

#[test]
fn a_step_that_reads_too_little_is_an_error_and_no_short_answer() {
    let export = filled(4);
    export.in_one_step(InOneStep::Done);
    export.read_short(true);
    let mut world = World::new(vec![export]);
    let (client, _) = world.client_of("vol0", FRAMINGS[0]);
    let buf = world.pool.take(512);
    assert!(world.run(async move { client.read(0, buf).await }).is_err());
}
