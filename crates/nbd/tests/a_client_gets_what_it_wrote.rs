//! Client against server, every framing, every command.
#![allow(clippy::unwrap_used)]

mod common;

use common::{FRAMINGS, World, memory, pattern};
use plexum_block::device::Fua;
use plexum_nbd::session::Ended;

#[test]
fn what_was_written_is_read_back_and_the_session_ends_in_order() {
    for framing in FRAMINGS {
        let export = memory("vol0", 1 << 20);
        let mut world = World::new(vec![export.clone()]);
        let (client, end) = world.client_of("vol0", framing);
        assert_eq!(client.remote().size_bytes, 1 << 20);
        let data = pattern(1, 100 * 512);
        let piece = world.buf(&data);
        let buf = world.pool.take(data.len() + 512);
        let c = client.clone();
        let read = world.run(async move {
            c.write(512, piece, Fua::No).await.unwrap();
            c.flush().await.unwrap();
            c.read(512, buf).await.unwrap()
        });
        assert_eq!(read[..data.len()], data);
        assert_eq!(read[data.len()..], [0; 512]);
        assert_eq!(export.durable_bytes(512, data.len()), data);
        client.disconnect();
        world.settle();
        let (how, counts) = end.borrow_mut().take().unwrap();
        assert_eq!(how, Ok(Ended::Disconnected));
        assert_eq!(counts.requests, 3);
        assert_eq!(world.server.used_bytes(), 0);
    }
}
