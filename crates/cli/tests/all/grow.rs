//! A volume gets another shape under its clients: by command, over a crash, and not where it would lose something.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::Value;

use super::common::Place;
use super::common::served::{Server, content, done, fill, size_bytes, status, uri, wait_until};
use plexum_oracle::pattern_bytes;

const SEED: u64 = 0x5eed_0021;

/// A folder with a RAID-5 `nas` of four members with content, served; and one more file.
fn raid5(name: &str) -> (Place, Server, usize) {
    let place = Place::in_memory(name);
    done(
        &place,
        "create nas --level 5 --strip 64K --size 12M --member-size 16M m0 m1 m2 m3 -y",
    );
    let server = Server::start(&place, "m0 m1 m2 m3");
    fill(&place, SEED);
    place.sparse("m4", 16 << 20);
    let size = usize::try_from(size_bytes(&place)).unwrap();
    (place, server, size)
}

fn is_still(place: &Place) -> bool {
    let status = status(place);
    let jobs = status["jobs"].as_array().unwrap();
    jobs.iter().all(|job| job["kind"] != "reshape")
}

/// All of the old content, and zeroes behind it.
fn check(place: &Place, size: usize) {
    let there = content(place);
    assert!(there.len() >= size);
    assert!(there[..size] == pattern_bytes(SEED, 0, size)[..]);
    assert!(there[size..].iter().all(|byte| *byte == 0));
}

/// A client that writes and reads back all the time, to the end of the volume as it was.
struct Client {
    child: Child,
}

impl Client {
    fn start(place: &Place) -> Self {
        let script = "i=0; while :; do i=$((i+1)); \
             qemu-io -f raw -c \"write -P $((i%200+1)) 1M 256k\" -c \"read -P $((i%200+1)) 1M 256k\" \"$0\" >out 2>&1 || exit 9; \
             grep -q failed out && exit 8; [ -e enough ] && exit 0; done";
        let child = Command::new("sh")
            .args(["-c", script, &uri(place)])
            .current_dir(&place.folder)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn end(mut self, place: &Place) {
        std::fs::write(place.file("enough"), "").unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn one_member_more_makes_the_volume_larger_while_a_client_writes() {
    let (place, server, size) = raid5("grow-one");
    let client = Client::start(&place);
    let shown = done(&place, "grow nas --add m4 --dry-run");
    assert!(shown.out.contains("5 members"), "{}", shown.out);
    assert_eq!(status(&place)["slots"], 4, "a dry run changes nothing");
    assert!(
        std::fs::read(place.file("m4"))
            .unwrap()
            .iter()
            .all(|byte| *byte == 0)
    );
    done(&place, "grow nas --add m4 --wait");
    wait_until(&place, "it is larger", || size_bytes(&place) > size as u64);
    client.end(&place);
    let status = status(&place);
    assert_eq!(
        (&status["slots"], &status["verdict"]),
        (&Value::from(5), &Value::from("ok"))
    );
    assert_eq!(size_bytes(&place), size as u64 / 3 * 4);
    fill(&place, SEED);
    done(&place, "fail nas m1");
    let there = content(&place);
    assert!(there == pattern_bytes(SEED, 0, there.len()));
    server.stop(&place);
}

/// Ends who asks all the time, also when the test fails.
struct Enough<'a>(&'a AtomicBool);

impl Drop for Enough<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// A volume that gets another shape is opened again twice. Who asks meanwhile waits for that, and is answered.
#[test]
fn what_is_asked_while_a_volume_is_opened_again_is_answered() {
    let (place, server, _) = raid5("grow-asked");
    let is_over = AtomicBool::new(false);
    let ask = |words: &str| {
        let mut answers = 0;
        while !is_over.load(Relaxed) {
            done(&place, words);
            answers += 1;
        }
        answers
    };
    std::thread::scope(|scope| {
        let words = [
            "status nas",
            "stats nas",
            "set nas rebuild-min=100M",
            "set nas rebuild-min=1M --dry-run",
        ];
        let enough = Enough(&is_over);
        let asking = words.map(|words| scope.spawn(move || ask(words)));
        done(&place, "grow nas --add m4 --wait");
        wait_until(&place, "it has its new shape", || {
            is_still(&place) && status(&place)["slots"] == 5
        });
        drop(enough);
        for asker in asking {
            assert!(asker.join().unwrap() > 0);
        }
    });
    server.stop(&place);
}

#[test]
fn a_reshape_goes_on_by_itself_when_its_server_was_killed() {
    let (place, server, size) = raid5("grow-killed");
    done(&place, "set nas rebuild-min=2M rebuild-max=2M");
    done(&place, "grow nas --add m4 --level 6");
    wait_until(&place, "some has moved", || {
        status(&place)["jobs"][0]["done_bytes"].as_u64() > Some(4 << 20)
    });
    server.kill();
    let examined = done(&place, "examine m0 m1 m2 m3 m4");
    assert!(examined.out.contains("usable"), "{}", examined.out);
    let server = Server::start(&place, "m0 m1 m2 m3 m4");
    check(&place, size);
    done(&place, "set nas rebuild-max=0");
    wait_until(&place, "all has moved", || is_still(&place));
    wait_until(&place, "it is what it was to become", || {
        status(&place)["layout"] == "left-symmetric"
    });
    let status = status(&place);
    assert_eq!(
        (&status["level"], &status["slots"]),
        (&Value::from("raid6"), &Value::from(5))
    );
    check(&place, size);
    assert_eq!(status["verdict"], "ok", "{status}");
    done(&place, "fail nas m0");
    done(&place, "fail nas m3");
    check(&place, size);
    server.stop(&place);
}

#[test]
fn from_raid6_to_raid5_a_member_is_a_spare_at_the_end() {
    let place = Place::in_memory("grow-down");
    done(
        &place,
        "create nas --level 6 --strip 64K --member-size 16M m0 m1 m2 m3 m4 -y",
    );
    let server = Server::start(&place, "m0 m1 m2 m3 m4");
    fill(&place, SEED);
    let size = usize::try_from(size_bytes(&place)).unwrap();
    done(&place, "grow nas --level 5 --wait");
    wait_until(&place, "it is a RAID-5", || {
        status(&place)["level"] == "raid5"
    });
    let told = status(&place);
    assert_eq!(told["slots"], 4);
    let spares = told["members"].as_array().unwrap().iter();
    assert_eq!(
        spares.filter(|member| member["state"] == "spare").count(),
        1
    );
    assert_eq!(size_bytes(&place), size as u64);
    check(&place, size);
    server.stop(&place);
}

#[test]
fn a_stripe_log_is_there_again_as_soon_as_only_the_name_has_changed() {
    let place = Place::in_memory("grow-name");
    done(
        &place,
        "create nas --level 4 --strip 64K --consistency log --member-size 32M m0 m1 m2 m3 -y",
    );
    let server = Server::start(&place, "m0 m1 m2 m3");
    fill(&place, SEED);
    let size = usize::try_from(size_bytes(&place)).unwrap();
    assert_eq!(status(&place)["consistency"], "log");
    done(&place, "grow nas --level 5");
    let told = status(&place);
    assert_eq!(told["level"], "raid5");
    assert_eq!(told["consistency"], "log");
    check(&place, size);
    server.stop(&place);
}

#[test]
fn what_would_lose_something_is_refused_before_anything_moves() {
    let (place, server, size) = raid5("grow-refused");
    let refused = |words: &str, what: &str| {
        let run = place.plexum(words);
        assert_ne!(run.exit, 0, "{words}: {}", run.err);
        assert!(run.err.contains(what), "{words}: {}", run.err);
    };
    refused("grow nas", "already");
    refused("grow nas --members 3", "would lose its last");
    refused("grow nas --members 6", "needs 2 more members");
    refused("grow nas --level 10", "raid10");
    refused("grow nas --strip 5000", "power of two");
    refused("grow nas --add m1", "is a member of nas already");
    refused("grow nothere", "no volume nothere");
    std::fs::write(place.file("used"), vec![7; 16 << 20]).unwrap();
    place.tool("mkfs.ext4", "-q -F used");
    refused("grow nas --add used", "ext4");
    place.sparse("small", 4 << 20);
    refused("grow nas --add small", "needed");
    check(&place, size);
    assert_eq!(status(&place)["slots"], 4);
    // A file system that is known to fit is no obstacle, one that does not fit is.
    let image = std::fs::File::create(place.file("image")).unwrap();
    image.set_len(20 << 20).unwrap();
    assert_eq!(place.tool("mkfs.ext4", "-q -F image").exit, 0);
    let copied = place.tool("nbdcopy", &format!("image {}", uri(&place)));
    assert_eq!(copied.exit, 0, "{}", copied.err);
    let shown = done(&place, "grow nas --members 3 --dry-run");
    assert!(shown.out.contains("3 members"), "{}", shown.out);
    server.stop(&place);
}

#[test]
fn while_rows_move_members_are_not_exchanged_and_nothing_is_scrubbed() {
    let (place, server, size) = raid5("grow-busy");
    done(&place, "set nas rebuild-min=1M rebuild-max=1M");
    done(&place, "grow nas --add m4");
    place.sparse("m5", 16 << 20);
    for words in [
        "add nas m5",
        "replace nas m0 m5",
        "scrub nas",
        "set nas bitmap=none",
        "grow nas --members 6",
    ] {
        let run = place.plexum(words);
        assert_ne!(run.exit, 0, "{words}");
        assert!(run.err.contains("reshape"), "{words}: {}", run.err);
    }
    // A member that fails meanwhile is gone, and the rest goes on.
    done(&place, "fail nas m2");
    done(&place, "set nas rebuild-max=0");
    wait_until(&place, "all has moved", || is_still(&place));
    wait_until(&place, "it is larger", || size_bytes(&place) > size as u64);
    check(&place, size);
    assert_eq!(status(&place)["verdict"], "degraded");
    server.stop(&place);
}

#[test]
fn who_missed_a_reshape_is_told_that_the_array_may_have_another_shape() {
    let (place, server, size) = raid5("grow-re-add");
    done(&place, "set nas rebuild-min=1M rebuild-max=1M");
    done(&place, "grow nas --add m4");
    done(&place, "fail nas m2");
    done(&place, "set nas rebuild-max=0");
    wait_until(&place, "it is larger", || size_bytes(&place) > size as u64);
    for words in ["re-add nas m2 --dry-run", "re-add nas m2"] {
        let run = place.plexum(words);
        assert_ne!(run.exit, 0, "{words}");
        assert!(run.err.contains("another shape"), "{words}: {}", run.err);
    }
    server.stop(&place);
}

#[test]
fn larger_members_are_used_when_all_are_and_what_is_new_is_made_to_agree() {
    let (place, server, size) = raid5("grow-size");
    for (old, new) in [("m0", "n0"), ("m1", "n1"), ("m2", "n2")] {
        place.sparse(new, 24 << 20);
        done(&place, &format!("replace nas {old} {new} --wait"));
        done(&place, &format!("remove nas {old}"));
    }
    let refused = place.plexum("grow nas --size 20M");
    assert!(refused.err.contains("m3 has"), "{}", refused.err);
    assert!(
        refused.err.contains("plexum replace nas"),
        "{}",
        refused.err
    );
    place.sparse("n3", 24 << 20);
    std::fs::write(place.file("n3"), vec![9; 24 << 20]).unwrap();
    done(&place, "replace nas m3 n3 --wait --force --yes");
    done(&place, "remove nas m3");
    let client = Client::start(&place);
    let shown = done(&place, "grow nas --size max --dry-run");
    assert!(shown.out.contains("made to agree"), "{}", shown.out);
    assert_eq!(size_bytes(&place), size as u64, "a dry run changes nothing");
    done(&place, "grow nas --size max --wait");
    client.end(&place);
    let refused = place.plexum("grow nas --size max");
    assert!(refused.err.contains("all that"), "{}", refused.err);
    let told = status(&place);
    assert_eq!(told["verdict"], "ok", "{told}");
    assert!(told["bitmap"].is_object(), "it covers all again: {told}");
    assert!(size_bytes(&place) > size as u64 / 2 * 3);
    fill(&place, SEED);
    done(&place, "scrub nas --wait");
    done(&place, "fail nas 2");
    let there = content(&place);
    assert!(there == pattern_bytes(SEED, 0, there.len()));
    server.stop(&place);
}

#[test]
fn less_of_the_members_is_used_only_where_what_is_on_the_volume_fits() {
    let (place, server, size) = raid5("grow-less");
    let refused = place.plexum("grow nas --size 8M");
    assert!(
        refused.err.contains("would lose its last"),
        "{}",
        refused.err
    );
    done(&place, "grow nas --size 8M --force");
    let there = content(&place);
    assert_eq!(there.len() as u64, 3 * (8 << 20));
    assert!(there.len() < size && there == pattern_bytes(SEED, 0, there.len()));
    assert_eq!(status(&place)["verdict"], "ok");
    server.stop(&place);
}

#[test]
fn a_reshape_is_turned_round_and_goes_back_when_its_server_was_killed() {
    let (place, server, size) = raid5("grow-back");
    let refused = place.plexum("grow nas --revert");
    assert!(
        refused.err.contains("not being reshaped"),
        "{}",
        refused.err
    );
    done(&place, "set nas rebuild-min=2M rebuild-max=2M");
    done(&place, "grow nas --add m4 --level 6");
    wait_until(&place, "some has moved", || {
        status(&place)["jobs"][0]["done_bytes"].as_u64() > Some(4 << 20)
    });
    let refused = place.plexum("grow nas --revert --members 5");
    assert_ne!(refused.exit, 0);
    let shown = done(&place, "grow nas --revert --dry-run");
    assert!(shown.out.contains("raid5 of 4 members"), "{}", shown.out);
    done(&place, "grow nas --revert");
    server.kill(); // and it goes on back
    let server = Server::start(&place, "m0 m1 m2 m3 m4");
    let client = Client::start(&place);
    done(&place, "set nas rebuild-max=0");
    wait_until(&place, "it is what it was", || {
        status(&place)["level"] == "raid5" && is_still(&place)
    });
    client.end(&place);
    let told = status(&place);
    assert_eq!(
        (&told["slots"], &told["verdict"]),
        (&Value::from(4), &Value::from("ok"))
    );
    let there = content(&place);
    assert_eq!(there.len(), size);
    let written = (1 << 20)..(1 << 20) + (256 << 10);
    let expected = pattern_bytes(SEED, 0, size);
    assert!(there[..written.start] == expected[..written.start]);
    assert!(there[written.end..] == expected[written.end..]);
    server.stop(&place);
}

#[test]
fn a_change_of_name_says_that_it_is_done_and_of_nothing_that_goes_on() {
    let place = Place::in_memory("grow-words");
    done(
        &place,
        "create nas --level 4 --strip 64K --member-size 16M m0 m1 m2 -y",
    );
    let server = Server::start(&place, "m0 m1 m2");
    let said = done(&place, "grow nas --level 5");
    assert!(said.out.contains("it is raid5"), "{}", said.out);
    assert!(!said.out.contains("how far"), "{}", said.out);
    server.stop(&place);
}

/// A folder with a mirror `nas` of two members with content, served; and two more files.
fn mirror(name: &str) -> (Place, Server, usize) {
    let place = Place::in_memory(name);
    done(&place, "create nas --level 1 --member-size 8M m0 m1 -y");
    let server = Server::start(&place, "m0 m1");
    fill(&place, SEED);
    for file in ["m2", "m3"] {
        place.sparse(file, 8 << 20);
    }
    let size = usize::try_from(size_bytes(&place)).unwrap();
    (place, server, size)
}

#[test]
fn a_mirror_gets_another_copy_and_gives_it_up_again() {
    let (place, server, size) = mirror("grow-copies");
    let shown = done(&place, "grow nas --add m2 --dry-run");
    assert!(shown.out.contains("filled"), "{}", shown.out);
    done(&place, "grow nas --add m2 --wait");
    let told = status(&place);
    assert_eq!(
        (&told["slots"], &told["verdict"]),
        (&Value::from(3), &Value::from("ok"))
    );
    done(&place, "fail nas m0");
    check(&place, size);
    let refused = place.plexum("grow nas --members 4");
    assert!(refused.err.contains("missing"), "{}", refused.err);
    done(&place, "grow nas --members 2");
    let told = status(&place);
    assert_eq!(
        (&told["slots"], &told["verdict"]),
        (&Value::from(2), &Value::from("ok"))
    );
    check(&place, size);
    server.stop(&place);
}

#[test]
fn a_mirror_of_two_becomes_a_raid5_of_three_and_a_mirror_again() {
    let (place, server, size) = mirror("grow-mirror");
    let refused = place.plexum("grow nas --level 6");
    assert!(refused.err.contains("by way of a raid5"), "{}", refused.err);
    let client = Client::start(&place);
    done(&place, "grow nas --level 5 --add m2 --members 3 --wait");
    wait_until(&place, "it is larger", || size_bytes(&place) > size as u64);
    let told = status(&place);
    assert_eq!(
        (&told["level"], &told["slots"]),
        (&Value::from("raid5"), &Value::from(3))
    );
    client.end(&place);
    fill(&place, SEED);
    let refused = place.plexum("grow nas --level 1");
    assert!(
        refused.err.contains("would lose its last"),
        "{}",
        refused.err
    );
    done(&place, "grow nas --size 2M --force");
    done(&place, "grow nas --level 1 --force --wait");
    wait_until(&place, "it is a mirror", || {
        status(&place)["level"] == "raid1"
    });
    wait_until(&place, "all is well", || status(&place)["verdict"] == "ok");
    let there = content(&place);
    assert!(there == pattern_bytes(SEED, 0, there.len()));
    done(&place, "fail nas m0");
    assert!(content(&place) == there);
    server.stop(&place);
}
