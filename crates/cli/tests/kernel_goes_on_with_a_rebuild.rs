//! A rebuild begun by one of the two, the real md driver or Plexum, is ended by the other; a spare of one serves the other.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::PathBuf;

use common::Place;
use common::served::{
    Server, content, done, examined, fill, stats, status, wait_until, wait_until_clean,
};
use plexum_oracle::{Batch, Create, Expected, Job, Judge};

const SEED: u64 = 0x5eed_0006;

/// Superblocks and bitmap blocks that are written besides.
const METADATA_BYTES: u64 = 128 << 10;

/// Where the kernel is stopped: sectors of each member.
const HELD_SECTORS: u64 = 2048;

/// In the guest, for the job's array: rebuilds to the end, and counts what is written to the last member.
const GO_ON: &str = "written() { local f; read -r -a f <\"/sys/block/${D3#/dev/}/stat\"; put \"$1\" \"${f[6]}\"; }\n\
     go_on() { written before; mdadm --readwrite \"$MD\"; md_wait \"$MD\" || exit 3\n\
     written after; put_sys degraded degraded; stop; }\n";

/// Four members; the array needs three, the second fails and the last takes its slot.
struct Array {
    place: Place,
    name: String,
    files: Vec<PathBuf>,
}

impl Array {
    fn new(name: &str) -> Self {
        let place = Place::new(&format!("go-{name}"));
        let files = (0..4)
            .map(|n| place.sparse(&format!("m{n}"), 8 << 20))
            .collect();
        Self {
            place,
            name: name.to_owned(),
            files,
        }
    }

    fn number(&self, member: &str, field: &str) -> u64 {
        let value = examined(&self.place, member, "superblock", field);
        value.as_u64().unwrap_or(0)
    }

    /// Bytes still to be rebuilt on the last member, which has some and lacks some.
    fn left_bytes(&self) -> u64 {
        let done = self.number("m3", "rebuild_offset_sectors");
        let all = self.number("m3", "component_sectors");
        assert!(done > 0 && done < all, "{}: {done} of {all}", self.name);
        (all - done) * 512
    }

    /// The kernel reads with and without the first member, and checks; the member that failed is left out.
    fn judge(&self) -> Job {
        let mut judge = Judge::new(Expected::Seed(SEED));
        judge.without.push(vec![0]);
        Job::judge(&self.name, &self.three(), &judge)
    }

    fn three(&self) -> Vec<PathBuf> {
        [0, 2, 3].map(|n| self.files[n].clone()).to_vec()
    }

    fn is_whole(&self) -> bool {
        let status = status(&self.place);
        status["verdict"] == "ok" && status["jobs"].as_array().unwrap().is_empty()
    }
}

/// Creates and fills with Plexum.
fn plexum_fills(name: &str, words: &str) -> Array {
    let array = Array::new(name);
    let place = &array.place;
    done(place, &format!("create nas --level 5 --strip 16K {words}"));
    let server = Server::start(place, "m0 m1 m2 m3");
    fill(place, SEED);
    server.stop(place);
    array
}

/// Stops in the middle of a rebuild.
fn plexum_begins() -> Array {
    let array = plexum_fills("plexum-begins", "m0 m1 m2 --spare m3");
    let place = &array.place;
    let server = Server::start(place, "m0 m1 m2 m3");
    done(place, "set nas rebuild-min=0 rebuild-max=512K");
    done(place, "fail nas m1");
    wait_until(place, "a part is rebuilt", || {
        let jobs = status(place)["jobs"].clone();
        jobs[0]["done_bytes"].as_u64().unwrap_or(0) > 0
    });
    server.stop(place);
    array
}

/// An array that the kernel makes of three members with the last one as spare; then `then` runs.
fn kernel_makes(batch: &mut Batch, name: &str, then: &str) -> Array {
    let array = Array::new(name);
    let mut create = Create::new("5", &["--chunk=16", "--bitmap=internal"], SEED);
    create.spares = 1;
    create.then = then.to_owned();
    batch.add(Job::create(name, &array.files, &create));
    array
}

#[test]
fn a_rebuild_and_a_spare_change_hands() {
    let begun = plexum_begins();
    let spared = plexum_fills("plexum-spares", "m0 m1 m2 --spare m3");
    let left = begun.left_bytes();
    let mut batch = Batch::new();
    let go_on = format!("{GO_ON}start $D0 $D2 $D3 || exit 3\ngo_on");
    batch.add(Job::script("plexum-begins", &begun.files, &go_on));
    let fail =
        format!("{GO_ON}start $DEVS || exit 3\nmdadm \"$MD\" --fail \"$D1\" || exit 3\ngo_on");
    batch.add(Job::script("plexum-spares", &spared.files, &fail));
    let hold = format!(
        "md_set $MD sync_max {HELD_SECTORS}\nmdadm $MD --fail $D1\nn=0\n\
         until [[ $(cat $MD_SYS/sync_completed) == \"{HELD_SECTORS} \"* ]]; do n=$((n+1)); [ $n -lt 100 ] || return 1; sleep 0.1; done"
    );
    let held = kernel_makes(&mut batch, "kernel-begins", &hold);
    let ready = kernel_makes(&mut batch, "kernel-spares", "");
    let reports = batch.run_faultless();
    for report in &reports[..2] {
        assert_eq!(report.value("degraded"), "0", "{}", report.mdadm);
    }
    let number = |key: &str| reports[0].value(key).parse::<u64>().unwrap();
    let written = (number("after") - number("before")) * 512;
    assert!(
        written <= left + METADATA_BYTES,
        "the kernel wrote {written} bytes, {left} were left"
    );

    plexum_goes_on(&held);
    let place = &ready.place;
    let server = Server::start(place, "m0 m1 m2 m3");
    done(place, "fail nas m1");
    wait_until(place, "the spare has taken over", || ready.is_whole());
    wait_until_clean(place);
    server.stop(place);
    let mut judges = Batch::new();
    for array in [&begun, &spared, &held, &ready] {
        judges.add(array.judge());
    }
    judges.run_faultless();
}

/// Serves without the member that failed until all is rebuilt; no more than what was left is written.
fn plexum_goes_on(array: &Array) {
    let place = &array.place;
    let left = array.left_bytes();
    assert_eq!(array.number("m3", "rebuild_offset_sectors"), HELD_SECTORS);
    let server = Server::start(place, "m0 m2 m3");
    wait_until(place, "the rebuild has ended", || array.is_whole());
    let stats = stats(place);
    let mut members = stats["members"].as_array().unwrap().iter();
    let filled = members.find(|m| m["member"].as_str().unwrap().ends_with("/m3"));
    let written = filled.unwrap()["written_bytes"].as_u64().unwrap();
    assert!(
        written <= left,
        "Plexum wrote {written} bytes, {left} were left"
    );
    wait_until_clean(place);
    assert!(!content(place).is_empty());
    server.stop(place);
}
