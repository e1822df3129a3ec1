//! FreeBSD's formats with the program: golden images served, volumes made, the commands people know.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;

use std::collections::BTreeMap;

use common::Place;
use plexum_testkit::{freebsd_cases, unpack_freebsd_case};
use serde_json::Value;

fn uri(place: &Place, volume: &str) -> String {
    let folder = place.folder.display();
    format!("nbd+unix:///{volume}?socket={folder}/plexum/{volume}.nbd")
}

fn expect_content(place: &Place, volume: &str, sha256: &str, what: &str) {
    let copied = place.tool("nbdcopy", &format!("{} content", uri(place, volume)));
    assert_eq!(copied.exit, 0, "{what}: {}", copied.err);
    let sum = place.tool("sha256sum", "content").out;
    assert!(
        sum.starts_with(sha256),
        "{what}: {volume} has another content"
    );
}

/// Copies a case into the place, each file named after its provider.
fn lay_out(place: &Place, case: &Value, list: &str) -> Vec<String> {
    let unpacked = unpack_freebsd_case(case["id"].as_str().unwrap());
    let mut names = Vec::new();
    for member in case[list].as_array().unwrap() {
        let (file, name) = (
            member["file"].as_str().unwrap(),
            member["provider"].as_str().unwrap(),
        );
        let is_given = case["present"]
            .as_array()
            .is_none_or(|present| present.contains(&member["file"]));
        if is_given {
            std::fs::write(place.file(name), unpacked.read(file)).unwrap();
            names.push(name.to_owned());
        }
    }
    names
}

/// Volumes of a case and their sums; none when upstream does not start it.
fn volumes(case: &Value) -> BTreeMap<String, String> {
    let mut volumes = BTreeMap::new();
    if let Some(reads) = case["upstream_all_drives"]["reads"].as_object() {
        for (name, read) in reads {
            volumes.insert(name.clone(), read["sha256"].as_str().unwrap().to_owned());
        }
    } else if let Some(sum) = case["upstream_behaviour"]["volume_sha256"].as_str() {
        volumes.insert(case["volume"].as_str().unwrap().to_owned(), sum.to_owned());
    }
    volumes
}

#[test]
fn every_golden_image_is_served_read_only_and_not_touched() {
    for kind in ["gmirror", "gvinum", "gstripe", "gconcat"] {
        for case in freebsd_cases(kind) {
            let id = case["id"].as_str().unwrap();
            let place = Place::new(id);
            let list = if kind == "gvinum" {
                "drives"
            } else {
                "members"
            };
            let files = lay_out(&place, &case, list).join(" ");
            let before = place.snapshot();
            let volumes = volumes(&case);
            let run = place.plexum(&format!("serve --background --json {files}"));
            if volumes.is_empty() {
                assert_eq!(run.exit, 4, "{id}: {}{}", run.out, run.err);
                continue;
            }
            assert_eq!(run.exit, 0, "{id}: {}{}", run.out, run.err);
            assert_eq!(run.objects().len(), volumes.len(), "{id}");
            for (name, sum) in &volumes {
                expect_content(&place, name, sum, id);
            }
            for name in volumes.keys() {
                assert_eq!(place.plexum(&format!("stop {name}")).exit, 0, "{id}");
            }
            std::fs::remove_file(place.file("content")).unwrap();
            assert!(place.snapshot() == before, "{id} was changed");
        }
    }
}

#[test]
fn examine_scan_and_config_tell_what_disks_were() {
    let place = Place::new("foreign-scan");
    let mut cases = freebsd_cases("gvinum");
    cases.extend(freebsd_cases("gmirror"));
    for (id, list) in [
        ("gv07_many_volumes", "drives"),
        ("gm07_stale_syncid", "members"),
    ] {
        let case = cases.iter().find(|case| case["id"] == id).unwrap();
        std::fs::create_dir(place.file(id)).unwrap();
        for name in lay_out(&place, case, list) {
            std::fs::rename(place.file(&name), place.file(id).join(&name)).unwrap();
        }
    }
    let found = place.plexum("scan --json .").objects();
    let names: Vec<&str> = found
        .iter()
        .map(|set| set["volume"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["gm0", "vr", "vm", "vs", "vc"]);
    let mirror = place.plexum("examine gm07_stale_syncid/da0 gm07_stale_syncid/da1");
    assert_eq!(mirror.exit, 0, "{}", mirror.err);
    for words in [
        "sync id 2",
        "sync id 1",
        "SYNCHRONIZING",
        "to be filled from byte 0",
    ] {
        assert!(mirror.out.contains(words), "{words}: {}", mirror.out);
    }
    let status = place.plexum("gmirror status --in gm07_stale_syncid").out;
    assert!(
        status.contains("mirror/gm0  DEGRADED  da1 (SYNCHRONIZING, 0%)"),
        "{status}"
    );
    let config =
        place.plexum("config gv07_many_volumes/da0 gv07_many_volumes/da1 gv07_many_volumes/da2");
    assert!(
        config
            .out
            .contains("sd name vr.p0.s1 drive drv0 len 128s driveoffset 680s"),
        "{}",
        config.out
    );
    // What is printed can be read back.
    std::fs::write(place.file("text"), &config.out).unwrap();
    assert_eq!(place.plexum("config text").exit, 0);
    let list = place.plexum("gvinum list --in gv07_many_volumes").out;
    for words in [
        "3 drives:",
        "4 volumes:",
        "5 plexes:",
        "11 subdisks:",
        "D drv0                  State: up\t",
        "P vr.p0              R5 State: up\tSubdisks:     3",
    ] {
        assert!(list.contains(words), "{words}: {list}");
    }
}

fn ok(place: &Place, words: &str) -> String {
    let run = place.plexum(words);
    assert_eq!(run.exit, 0, "plexum {words}: {}{}", run.out, run.err);
    run.out
}

/// Writes a pattern and waits for its end.
fn fill(place: &Place, volume: &str, bytes: usize, byte: u8) {
    std::fs::write(place.file("pattern"), vec![byte; bytes]).unwrap();
    let run = place.tool("nbdcopy", &format!("pattern {}", uri(place, volume)));
    assert_eq!(run.exit, 0, "{}", run.err);
}

#[test]
fn a_mirror_is_made_served_degraded_and_mended_with_the_words_of_gmirror() {
    let place = Place::new("gmirror-words");
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 2M a.img b.img",
    );
    ok(&place, "serve --background --write a.img b.img");
    fill(&place, "gm0", 4096, 3);
    ok(&place, "stop gm0");
    assert!(ok(&place, "gmirror status --in .").contains("mirror/gm0  COMPLETE"));
    ok(&place, "gmirror deactivate --in . gm0 a.img");
    let alone = place.plexum("serve --background --write b.img");
    assert_eq!(alone.exit, 3, "{}", alone.err);
    assert!(alone.err.contains("--run-degraded"), "{}", alone.err);
    ok(&place, "serve --background --write --run-degraded b.img");
    fill(&place, "gm0", 4096, 4);
    ok(&place, "stop gm0");
    ok(&place, "gmirror activate --in . gm0 a.img");
    assert!(ok(&place, "gmirror status --in .").contains("a.img (SYNCHRONIZING, 0%)"));
    // Forget, clear and insert another one.
    std::fs::rename(place.file("a.img"), place.file("away")).unwrap();
    std::fs::create_dir(place.file("disks")).unwrap();
    std::fs::rename(place.file("b.img"), place.file("disks/b.img")).unwrap();
    ok(&place, "gmirror forget --in disks gm0");
    place.sparse("disks/c.img", 2 << 20);
    ok(&place, "gmirror insert --in disks gm0 disks/c.img");
    ok(&place, "serve --background --write disks/b.img disks/c.img");
    for _ in 0..2000 {
        if place.plexum("status gm0").exit == 0 {
            break;
        }
    }
    ok(&place, "stop gm0");
    let list = ok(&place, "gmirror list --in disks");
    assert!(
        list.contains("State: COMPLETE") && list.contains("SyncID: 2"),
        "{list}"
    );
    assert_eq!(
        std::fs::read(place.file("disks/c.img")).unwrap()[..4096],
        [4; 4096]
    );
    ok(&place, "gmirror configure --in disks -b prefer gm0");
    assert!(ok(&place, "gmirror list --in disks").contains("Balance: prefer"));
    let again = place.plexum("gmirror configure --in disks -b prefer gm0");
    assert!(again.err.contains("nothing has changed"), "{}", again.err);
    ok(&place, "gmirror destroy --in disks gm0");
    assert_eq!(ok(&place, "gmirror list --in disks"), "");
    // Called by that name.
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_plexum"), place.file("gmirror")).unwrap();
    let run = place.tool(place.file("gmirror").to_str().unwrap(), "status --in disks");
    assert_eq!(
        (run.exit, run.out.contains("Components")),
        (0, true),
        "{}",
        run.err
    );
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_written() {
    let place = Place::new("foreign-bad");
    let mut garbage = Vec::new();
    let mut state = 1_u64;
    for _ in 0..128 << 10 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(99);
        garbage.push((state >> 40) as u8);
    }
    std::fs::write(place.file("garbage"), &garbage).unwrap();
    let text = "drive a device a.img\nvolume v\n plex org striped\n  sd length 1m drive a\n";
    std::fs::write(place.file("text"), text).unwrap();
    std::fs::write(
        place.file("dangling"),
        "drive a device a.img\nvolume v\n plex org concat\n  sd length 1m drive b\n",
    )
    .unwrap();
    place.sparse("a.img", 4 << 20);
    let before = place.snapshot();
    for (words, exit, expected) in [
        ("create -f garbage", 2, "line 1"),
        ("create -f text", 2, "expected a stripe size here"),
        ("create -f dangling", 2, "line 4: there is no drive b"),
        ("create -f nowhere", 4, "nowhere"),
        (
            "create v --level 5 --format gvinum a.img",
            2,
            "at least 3 members",
        ),
        (
            "create v --level 5 --format gmirror a.img",
            2,
            "gmirror is raid1",
        ),
        ("create v --level 0 --format gstripe a.img", 2, "at least 2"),
        (
            "create a-name-that-is-too-long --level 1 --format gmirror a.img",
            2,
            "15 bytes",
        ),
        ("gmirror frobnicate x --in .", 4, "no mirror x"),
        ("gvinum rename x y --in .", 4, "0 systems"),
        ("config garbage", 2, "line 1"),
    ] {
        let run = place.plexum(words);
        assert_eq!(run.exit, exit, "{words}: {}{}", run.out, run.err);
        assert!(run.err.contains(expected), "{words}: {}", run.err);
        assert!(run.err.len() < 20_000, "{words}: a few words are enough");
    }
    assert!(place.snapshot() == before, "nothing was written");
    // A label with one wrong bit, a drive that ends too early, an empty configuration.
    ok(
        &place,
        "create gm0 --level 1 --format gmirror --member-size 2M m0.img m1.img",
    );
    let mut bytes = std::fs::read(place.file("m0.img")).unwrap();
    let at = bytes.len() - 512 + 50;
    bytes[at] ^= 1;
    std::fs::write(place.file("m0.img"), &bytes).unwrap();
    let run = place.plexum("examine m0.img");
    assert_eq!(run.exit, 4, "{}", run.err);
    assert!(run.out.contains("md5"), "{}", run.out);
    let run = place.plexum("serve --write m0.img m1.img");
    assert_eq!(run.exit, 3, "{}", run.err);
    assert!(run.err.contains("1 of 2 components"), "{}", run.err);
    let run = place.plexum("serve m0.img");
    assert_eq!(run.exit, 4, "{}", run.err);
    assert!(run.err.contains("md5"), "{}", run.err);
}
