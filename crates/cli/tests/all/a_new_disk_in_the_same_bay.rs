//! What becomes of a new disk that is put into the bay of one that is gone: nothing, unless it is blank and the policy
//! says so. The members are loop devices, and a built tree of sysfs says in which bay each of them is.

use std::fs;

use super::alarms::configure;
use super::common::served::{content, done, fill, status, wait_until};
use super::daemon::Daemon;
use super::disks_are_known_by_bay_and_serial::{Case, disk};

const BAY: &str = "Slot 04";
const DISK_BYTES: usize = 24 << 20;

/// The mirror `nas`, served; its slot 1 is empty, and the disk of that is gone from bay 4.
fn without_slot_1(name: &str, policy: &str) -> (Case, Daemon) {
    let mut case = Case::new(name, "ses-shelf", &["sda", "sdb"]).mirror();
    configure(&case.place, policy);
    let daemon = Daemon::start(&case.place, "");
    done(&case.place, &format!("serve {}", case.devices().join(" ")));
    case.wait_until_known();
    fill(&case.place, 1);
    done(&case.place, "fail nas 1");
    done(&case.place, &format!("remove nas {}", case.device(1)));
    case.unplug(1, "sdb", BAY);
    case.detach(1);
    assert_eq!(status(&case.place)["verdict"], "degraded");
    (case, daemon)
}

/// Waits until the daemon has looked who is there, once from its start to its end: it looks for volumes that wait
/// first, so it has when such a one was found twice.
fn looked(case: &Case) {
    let place = &case.place;
    if !place.file("attic-a").exists() {
        let members = "--member-size 16M attic-a attic-b";
        let words = format!("create attic --level 1 {members} --assume-clean -y");
        done(place, &words);
        done(place, "serve attic-a attic-b");
    }
    for _ in 0..2 {
        done(place, "stop attic");
        fs::rename(place.file("attic-b"), place.away("attic-b")).unwrap();
        assert_ne!(place.plexum("serve attic").exit, 0, "it lacks one");
        fs::rename(place.away("attic-b"), place.file("attic-b")).unwrap();
        wait_until(place, "it is served", || {
            place.plexum("status attic").exit == 0
        });
    }
}

fn said(case: &Case, code: &str) -> Vec<String> {
    let told = done(&case.place, "events nas --json").objects();
    let of_code = told.iter().filter(|event| event["name"] == code);
    of_code
        .map(|event| event["message"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_new_disk_in_the_bay_of_a_missing_one_is_left_alone_unless_the_policy_says_otherwise() {
    let (mut case, _daemon) = without_slot_1("same-bay-ask", "");
    case.put_in("sdc", "NEW-1", BAY, &vec![0; DISK_BYTES]);
    looked(&case);
    assert_eq!(status(&case.place)["verdict"], "degraded");
    let now = fs::read(case.place.away("sdc")).unwrap();
    assert!(now.iter().all(|byte| *byte == 0), "it was written to");
    let no_word = case.place.plexum("config check");
    assert_eq!(no_word.exit, 0, "{}", no_word.out);
    configure(&case.place, "[replace]\nsame-bay = \"yes\"\n");
    let told = case.place.plexum("config check");
    assert_eq!(told.exit, 1);
    let line = "line 2: same-bay: it is \"ask\" or \"replace\"";
    assert!(told.out.contains(line), "{}{}", told.out, told.err);
}

#[test]
fn by_policy_a_blank_disk_in_the_bay_of_a_missing_one_takes_its_slot_and_one_that_holds_something_never()
 {
    let policy = "[replace]\nsame-bay = \"replace\"\n";
    let (mut case, _daemon) = without_slot_1("same-bay-takes", policy);
    let before = content(&case.place);
    // Somebody's data without any mark, 30 KiB before the end.
    let mut used = vec![0; DISK_BYTES];
    used[DISK_BYTES - 30_000] = 7;
    case.put_in("sdc", "USED-1", BAY, &used);
    wait_until(&case.place, "it is told that it is left alone", || {
        !said(&case, "new_disk_left").is_empty()
    });
    looked(&case);
    let told = said(&case, "new_disk_left");
    assert_eq!(told.len(), 1, "it is looked at once: {told:?}");
    for words in ["bay 4", "serial USED-1", "not blank", "plexum add"] {
        assert!(told[0].contains(words), "no {words} in {}", told[0]);
    }
    assert!(
        fs::read(case.place.away("sdc")).unwrap() == used,
        "it was written to"
    );
    case.unplug(2, "sdc", BAY);
    case.detach(2);

    // A blank one in another bay is nobody's.
    case.put_in("sdd", "NEW-2", "Slot 01", &vec![0; DISK_BYTES]);
    looked(&case);
    assert_eq!(status(&case.place)["verdict"], "degraded");
    case.unplug(3, "sdd", "Slot 01");
    case.detach(3);

    case.put_in("sde", "NEW-3", BAY, &vec![0; DISK_BYTES]);
    wait_until(&case.place, "it takes the slot", || {
        let now = status(&case.place);
        now["verdict"] == "ok" && disk(&now, 1)["serial"] == "NEW-3"
    });
    let told = said(&case, "new_disk_taken");
    assert_eq!(told.len(), 1, "{told:?}");
    for words in ["bay 4", "serial NEW-3", "slot 1", "same-bay"] {
        assert!(told[0].contains(words), "no {words} in {}", told[0]);
    }
    done(&case.place, "fail nas 0");
    assert!(content(&case.place) == before, "what it was filled with");
}
