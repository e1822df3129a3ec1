//! A reshape is turned round by one of the two, the real md driver or Plexum, whoever has begun it, and moved back by
//! the other.

use crate::carries_reshapes_on::{Array, GO_ON, KINDS, Kind, job, kernel_begins, plexum_begins};
use crate::common::served::{Server, content, done, status, wait_until};
use plexum_oracle::{Batch, Job};

/// In the guest, for the job's array: turned round, and to the end.
const GO_BACK: &str = "echo \"+ revert\" >>\"$OUT/mdadm\"\n\
     mdadm --assemble \"$MD\" --config=none --run --update=revert-reshape $DEVS >>\"$OUT/mdadm\" 2>&1 || exit 3\n\
     mdadm --readwrite \"$MD\"\nmd_wait \"$MD\" || exit 3\n\
     put_sys position reshape_position\nput size \"$(blockdev --getsize64 \"$MD\")\"\nstop\n";

/// Those that do not change their level: the kernel does not give the name back that a level had.
fn of_one_level() -> impl Iterator<Item = Kind> {
    let kinds = KINDS.into_iter();
    kinds.filter(|kind| !matches!(kind.name, "level" | "mirror"))
}

fn judged(arrays: &[Array], script: &str) {
    let mut ending = Batch::new();
    for array in arrays {
        ending.add(Job::script(&array.name, &array.files, script));
    }
    let mut batch = Batch::new();
    for (array, report) in arrays.iter().zip(ending.run_faultless()) {
        let position = report.value("position");
        assert_eq!(position, "none", "{}: {}", array.name, report.mdadm);
        let size: usize = report.value("size").parse().unwrap();
        assert_eq!(size, array.kept, "{}: it is what it was", array.name);
        batch.add(array.judge_kept(size));
    }
    batch.run_faultless();
}

/// Served again, turned round, and stopped in the middle or at the end.
fn plexum_turns(array: &Array, is_to_end: bool) {
    let place = &array.place;
    let server = Server::start(place, &array.all());
    if !is_to_end {
        done(place, "set nas rebuild-min=256K rebuild-max=256K");
    }
    done(place, "grow nas --revert");
    if is_to_end {
        wait_until(place, "all is back", || {
            let told = status(place);
            told["slots"] == array.kind.slots && told["jobs"].as_array().unwrap().is_empty()
        });
        server.stop(place);
    } else {
        assert!(job(place).is_some(), "{}: it goes back", array.name);
        server.kill();
    }
}

#[test]
fn a_reshape_of_plexum_is_turned_round_by_the_kernel() {
    let begun: Vec<Array> = of_one_level()
        .map(|kind| plexum_begins("turned", kind))
        .collect();
    for array in &begun {
        // A clean stop leaves it where no row is cut: mdadm asks for that.
        let server = Server::start(&array.place, &array.all());
        done(&array.place, "set nas rebuild=pause");
        server.stop(&array.place);
    }
    judged(&begun, GO_BACK);
}

#[test]
#[ignore = "a minute: cargo xtask nightly kernel"]
fn a_reshape_that_plexum_has_turned_round_is_moved_back_by_the_kernel() {
    let begun: Vec<Array> = of_one_level()
        .map(|kind| plexum_begins("back", kind))
        .collect();
    for array in &begun {
        plexum_turns(array, false);
    }
    judged(&begun, GO_ON);
}

#[test]
fn a_reshape_of_the_kernel_is_turned_round_by_plexum() {
    let begun = kernel_begins("kturned");
    let mut batch = Batch::new();
    for array in &begun {
        plexum_turns(array, true);
        let server = Server::start(&array.place, &array.all());
        let size = content(&array.place).len();
        assert_eq!(size, array.kept, "{}: it is what it was", array.name);
        let told = status(&array.place);
        assert_eq!(told["slots"], array.kind.slots, "{}: {told}", array.name);
        server.stop(&array.place);
        batch.add(array.judge_kept(size));
    }
    batch.run_faultless();
}
