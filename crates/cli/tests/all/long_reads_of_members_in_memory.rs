//! Long reads of volumes whose members are in memory, with a real client: content, counters, and members that are lost
//! meanwhile.

use crate::common::Place;
use crate::common::served::{Server, content, done, fill, stats, status};
use plexum_oracle::pattern_bytes;

/// Reads the whole volume, in long requests: it is what was written.
fn reads_well(place: &Place, seed: u64) {
    let found = content(place);
    assert!(found == pattern_bytes(seed, 0, found.len()));
}

#[test]
fn every_kind_of_volume_reads_as_it_was_written_and_counts_what_was_read() {
    for (array, members, options) in [
        ("--level linear a b", "a b", ""),
        ("--level 0 a b c --strip 64K", "a b c", ""),
        ("--level 0 a b c --strip 4K", "a b c", ""),
        ("--level 1 a b", "a b", ""),
        ("--level 1 a b", "a b", "--cores 2"),
        ("--level 10 a b c --strip 64K", "a b c", ""),
        ("--level 5 a b c --strip 64K", "a b c", ""),
    ] {
        let place = Place::in_memory("long-reads");
        if !place.folder.starts_with("/dev/shm") {
            return;
        }
        done(&place, &format!("create nas --member-size 24M {array}"));
        let server = Server::start(&place, &format!("{options} {members}"));
        fill(&place, 1);
        let before = stats(&place);
        reads_well(&place, 1);
        let after = stats(&place);
        let size = status(&place)["size_bytes"].as_u64().unwrap();
        let read = |of: &serde_json::Value| of["read_bytes"].as_u64().unwrap();
        let grown = read(&after["total"]) - read(&before["total"]);
        assert_eq!(grown, size, "{array} {options}");
        let of_members = |stats: &serde_json::Value| -> u64 {
            stats["members"].as_array().unwrap().iter().map(read).sum()
        };
        let grown = of_members(&after) - of_members(&before);
        assert_eq!(grown, size, "{array} {options}");
        assert_eq!(after["total"]["errors"], before["total"]["errors"]);
        server.stop(&place);
    }
}

#[test]
fn a_volume_that_has_lost_a_member_reads_on() {
    // The mirror takes turns: by load, every read may be for the copy that is whole.
    for (array, members) in [
        ("--level 1 a b c", "--balance round-robin a b c"),
        ("--level 5 a b c --strip 64K", "a b c"),
        ("--level 6 a b c d --strip 64K", "a b c d"),
    ] {
        let place = Place::in_memory("long-reads-degraded");
        if !place.folder.starts_with("/dev/shm") {
            return;
        }
        done(&place, &format!("create nas --member-size 24M {array}"));
        let server = Server::start(&place, members);
        fill(&place, 2);
        done(&place, "fail nas a");
        reads_well(&place, 2);
        // Cut off while it is served: what the file lost is found by the read that needs it.
        let file = std::fs::File::options().write(true).open(place.file("b"));
        if !array.contains("level 5") {
            file.unwrap().set_len(4 << 20).unwrap();
            reads_well(&place, 2);
            let status = place.plexum("status nas").out;
            assert!(status.contains("DEGRADED"), "{array}: {status}");
            assert!(status.contains("b has failed"), "{array}: {status}");
        }
        server.stop(&place);
    }
}
