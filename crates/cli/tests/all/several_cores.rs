//! Volumes that several threads serve (`--cores`), with real clients over several connections: content, losses,
//! crashes, counters.

use crate::common::Place;
use crate::common::served::{
    Server, check_sectors, content, done, fill, kill_under_load, stats, status, uri, wait_until,
};
use plexum_oracle::pattern_bytes;

const CORES: &str = "--cores 3";

/// Arrays that lend their writes, and one with a stripe log, whose writes all go to the main thread.
const ARRAYS: [(&str, &str); 4] = [
    ("--level 1 a b", "a b"),
    ("--level 10 a b c d --strip 64K", "a b c d"),
    (
        "--level 5 a b c d --strip 64K --consistency bitmap",
        "a b c d",
    ),
    ("--level 6 a b c d --strip 64K", "a b c d"),
];

fn serve(place: &Place, array: &str, members: &str) -> Server {
    serve_of(place, array, members, "64M")
}

fn serve_of(place: &Place, array: &str, members: &str, size: &str) -> Server {
    done(place, &format!("create nas --member-size {size} {array}"));
    Server::start(place, &format!("{CORES} {members}"))
}

/// All of the volume, over `connections` at once, with many requests under way.
fn fill_by_many(place: &Place, seed: u64) {
    let size = status(place)["size_bytes"].as_u64().unwrap();
    let bytes = pattern_bytes(seed, 0, usize::try_from(size).unwrap());
    std::fs::write(place.file("many"), bytes).unwrap();
    let copy = format!(
        "--flush --connections=4 --request-size=4096 many {}",
        uri(place)
    );
    let run = place.tool("nbdcopy", &copy);
    assert_eq!(run.exit, 0, "{}", run.err);
}

fn is_pattern(found: &[u8], seed: u64) -> bool {
    found == pattern_bytes(seed, 0, found.len())
}

#[test]
fn what_one_connection_wrote_every_other_one_reads_and_the_members_agree() {
    for (array, members) in ARRAYS {
        let place = Place::new("cores-content");
        let server = serve_of(&place, array, members, "20M");
        fill_by_many(&place, 1);
        for _ in 0..4 {
            assert!(is_pattern(&content(&place), 1), "{array}"); // each time by another thread
        }
        fill_by_many(&place, 2);
        assert!(is_pattern(&content(&place), 2), "{array}");
        done(&place, "scrub nas --wait");
        assert_eq!(status(&place)["last_scrub"]["mismatch_bytes"], 0, "{array}");
        server.stop(&place);
        let again = Server::start(&place, members);
        assert!(is_pattern(&content(&place), 2), "{array}");
        again.stop(&place);
    }
}

#[test]
fn clients_and_members_are_counted_whichever_thread_serves_them() {
    let place = Place::new("cores-counted");
    let server = serve(&place, "--level 1 a b", "a b");
    let size = status(&place)["size_bytes"].as_u64().unwrap();
    fill_by_many(&place, 1);
    for _ in 0..3 {
        content(&place);
    }
    let counted = stats(&place);
    let of = |value: &serde_json::Value, field: &str| value[field].as_u64().unwrap();
    assert_eq!(of(&counted["total"], "written_bytes"), size);
    assert_eq!(of(&counted["total"], "read_bytes"), 3 * size);
    for member in counted["members"].as_array().unwrap() {
        assert!(of(member, "written_bytes") >= size, "{member}");
    }
    let read: u64 = counted["members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| of(m, "read_bytes"))
        .sum();
    assert!(read >= 3 * size);
    server.stop(&place);
}

#[test]
fn a_member_that_fails_under_load_is_rebuilt_and_nothing_is_lost() {
    for (array, members) in &ARRAYS[..3] {
        let place = Place::new("cores-loss");
        let server = serve(&place, array, members);
        fill(&place, 1);
        let mut load = place
            .command("fio")
            .args([
                "--name=load",
                "--ioengine=nbd",
                "--rw=randwrite",
                "--bs=4k",
                "--iodepth=8",
            ])
            .args([
                "--numjobs=3",
                "--thread",
                "--time_based",
                "--runtime=600",
                "--size=32M",
            ])
            .args(["--verify=crc32c", "--do_verify=0", "--group_reporting"])
            .arg(format!("--uri={}", uri(&place)))
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("fio must be installed");
        let writes = || stats(&place)["total"]["writes"].as_u64().unwrap();
        wait_until(&place, "the load has begun", || writes() > 1000);
        done(&place, "fail nas b");
        let seen = writes();
        wait_until(&place, "it goes on without b", || writes() > seen + 1000);
        done(&place, "remove nas b");
        done(&place, "add nas b");
        let is_whole = || status(&place)["verdict"] == "ok";
        wait_until(&place, "b is filled again", is_whole);
        let seen = writes();
        wait_until(&place, "it goes on with b", || writes() > seen + 1000);
        load.kill().unwrap();
        load.wait().unwrap();
        done(&place, "scrub nas --wait");
        assert_eq!(status(&place)["last_scrub"]["mismatch_bytes"], 0, "{array}");
        let found = content(&place);
        let (start, rest) = (32 << 20, pattern_bytes(1, 0, found.len()));
        assert!(
            found[start..] == rest[start..],
            "{array}: what nobody wrote"
        );
        server.stop(&place);
    }
}

#[test]
fn after_a_crash_each_sector_is_old_or_new_and_the_members_agree() {
    for (array, members) in &ARRAYS[..3] {
        let place = Place::new("cores-crash");
        let server = serve(&place, array, members);
        fill(&place, 7);
        let area = kill_under_load(&place, server);
        let again = Server::start(&place, &format!("{CORES} {members}"));
        wait_until(&place, "it is resynced", || {
            let status = status(&place);
            status["jobs"].as_array().unwrap().is_empty()
                && status["bitmap"]["doubtful_regions"] == 0
        });
        check_sectors(&place, &content(&place), &area, 7);
        done(&place, "scrub nas --wait");
        assert_eq!(status(&place)["last_scrub"]["mismatch_bytes"], 0, "{array}");
        again.stop(&place);
    }
}

#[test]
fn a_number_of_cores_that_cannot_be_is_refused() {
    let place = Place::new("cores-refused");
    done(&place, "create nas --level 1 a b --member-size 16M");
    for cores in ["0", "65"] {
        let run = place.plexum(&format!("serve --cores {cores} a b"));
        assert_eq!(run.exit, 2, "{}", run.err);
        assert!(
            run.err.contains(&format!("--cores {cores}: it is 1 to 64")),
            "{}",
            run.err
        );
    }
}
