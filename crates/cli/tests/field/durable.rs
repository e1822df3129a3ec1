//! Members on file systems whose word is not to be taken: a write that is answered as durable is.

use std::path::PathBuf;

use super::common::Place;
use super::common::served::done;
use super::serving::Server;

#[allow(dead_code)] // one request of it is used
#[path = "../kill/client.rs"]
pub mod client;

/// Durable writes that are tried.
const WRITES: u64 = 20;
const BLOCK_BYTES: usize = 4096;

/// A volume `under` that is served and attached; its file lies on FUSE.
struct Under {
    _server: Server,
    place: Place,
}

impl Under {
    fn new(name: &str) -> Self {
        let place = Place::in_memory(name);
        done(
            &place,
            "create under --level 1 --member-size 24M u.img v.img",
        );
        let server = Server::start(&place, "u.img v.img");
        done(&place, "attach under --by fuse");
        // Root's attachment has a loop device on the file: a user of its own, in whose place the volume comes here.
        let file = place.file("plexum/attach/under/under");
        let devices = place.tool("losetup", &format!("-nO NAME -j {}", file.display()));
        for device in devices.out.split_whitespace() {
            assert_eq!(place.tool("losetup", &format!("-d {device}")).exit, 0);
        }
        Self {
            _server: server,
            place,
        }
    }

    fn file(&self) -> PathBuf {
        self.place.file("plexum/attach/under/under")
    }

    /// Flushes that have reached it.
    fn flushes(&self) -> u64 {
        let stats = self.place.plexum("stats under --json").objects().remove(0);
        stats["total"]["flushes"].as_u64().unwrap()
    }
}

impl Drop for Under {
    fn drop(&mut self) {
        let _ = self.place.plexum("stop over");
        let _ = self.place.plexum("detach under");
    }
}

#[test]
fn a_durable_write_on_a_fuse_member_is_synced_before_its_answer_whatever_does_the_io() {
    for io in ["uring", "threads"] {
        let under = Under::new(&format!("fua-on-fuse-{io}"));
        let place = &under.place;
        let words = format!(
            "create over --level 1 --bitmap none --assume-clean {} missing",
            under.file().display()
        );
        done(place, &words);
        let words = format!("--run-degraded --io {io} {}", under.file().display());
        let over = Server::start(place, &words);
        let socket = place.file("plexum/over.nbd");
        let mut client = client::Client::open(&socket, "over").unwrap();
        for at in 0..WRITES {
            let before = under.flushes();
            let data = vec![at as u8 + 1; BLOCK_BYTES];
            client.write(at * BLOCK_BYTES as u64, &data, true).unwrap();
            assert!(under.flushes() > before, "{io}: write {at} was not synced");
        }
        let member = &place.plexum("status over --json").objects()[0]["members"][0];
        assert_eq!(member["fua_way"], "fsync", "{member}");
        let member = &place.plexum("status under --json").objects()[0]["members"][0];
        assert_eq!(member["fua_way"], "write", "{member}");
        let shown = place.plexum("status over -v").out;
        assert!(
            shown.contains("DURABLE BY") && shown.contains("fsync"),
            "{shown}"
        );
        drop((client, over));
    }
}
