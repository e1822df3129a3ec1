//! A rebuild begun by one of the two, the real md driver or Plexum, is ended by the other; a spare of one serves the
//! other.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{
    Server, content, done, examined, fill, stats, status, wait_until, wait_until_clean,
};
use plexum_oracle::{Batch, Create, Expected, Job, Judge};

const SEED: u64 = 0x5eed_0006;

/// Superblocks and bitmap blocks that are written besides.
const METADATA_BYTES: u64 = 128 << 10;

/// Where the kernel is stopped: sectors of each member.
const HELD_SECTORS: u64 = 2048;

/// In the guest, for the job's array: rebuilds to the end, and counts what is written to the last member.
const GO_ON: &str = "LAST=${DEVS##* }\n\
     written() { local f; read -r -a f <\"/sys/block/${LAST#/dev/}/stat\"; put \"$1\" \"${f[6]}\"; }\n\
     go_on() { written before; mdadm --readwrite \"$MD\"; md_wait \"$MD\" || exit 3\n\
     written after; put_sys degraded degraded; stop; }\n";

/// An organisation: words for Plexum and for mdadm, and members that it needs.
#[derive(Clone, Copy)]
struct Kind {
    ours: &'static str,
    theirs: &'static str,
    slots: usize,
}

const KINDS: [Kind; 4] = [
    Kind {
        ours: "1",
        theirs: "1",
        slots: 2,
    },
    Kind {
        ours: "10 --strip 16K --layout n2",
        theirs: "10 --chunk=16 --layout=n2",
        slots: 4,
    },
    RAID5,
    Kind {
        ours: "6 --strip 16K",
        theirs: "6 --chunk=16",
        slots: 4,
    },
];

const RAID5: Kind = Kind {
    ours: "5 --strip 16K",
    theirs: "5 --chunk=16",
    slots: 3,
};

/// The member with number 1 fails, and the last one, a spare, takes its slot.
struct Array {
    place: Place,
    name: String,
    files: Vec<PathBuf>,
    kind: Kind,
}

impl Array {
    fn new(who: &str, kind: Kind) -> Self {
        let level = kind.ours.split(' ').next().unwrap();
        let name = format!("go-{who}-{level}");
        let place = Place::new(&name);
        let files = (0..=kind.slots)
            .map(|n| place.sparse(&format!("m{n}"), 8 << 20))
            .collect();
        Self {
            place,
            name,
            files,
            kind,
        }
    }

    /// The spare's name.
    fn last(&self) -> String {
        format!("m{}", self.kind.slots)
    }

    /// Names of all members but `without`, in words.
    fn members(&self, without: &[usize]) -> String {
        let all = (0..=self.kind.slots).filter(|n| !without.contains(n));
        all.map(|n| format!("m{n}")).collect::<Vec<_>>().join(" ")
    }

    fn number(&self, field: &str) -> u64 {
        let value = examined(&self.place, &self.last(), "superblock", field);
        value.as_u64().unwrap_or(0)
    }

    /// Bytes still to be rebuilt on the last member, which has some and lacks some.
    fn left_bytes(&self) -> u64 {
        let done = self.number("rebuild_offset_sectors");
        let all = self.number("component_sectors");
        assert!(done > 0 && done < all, "{}: {done} of {all}", self.name);
        (all - done) * 512
    }

    /// The kernel reads with and without the first member, and checks; the member that failed is left out.
    fn judge(&self) -> Job {
        let mut judge = Judge::new(Expected::Seed(SEED));
        judge.without.push(vec![0]);
        let mut files = self.files.clone();
        files.remove(1);
        Job::judge(&self.name, &files, &judge)
    }

    fn is_whole(&self) -> bool {
        let status = status(&self.place);
        status["verdict"] == "ok" && status["jobs"].as_array().unwrap().is_empty()
    }
}

/// Creates and fills with Plexum.
fn plexum_fills(who: &str, kind: Kind) -> Array {
    let array = Array::new(who, kind);
    let place = &array.place;
    let (slots, last) = (array.members(&[kind.slots]), array.last());
    done(
        place,
        &format!("create nas --level {} {slots} --spare {last}", kind.ours),
    );
    let server = Server::start(place, &array.members(&[]));
    fill(place, SEED);
    server.stop(place);
    array
}

/// Stops in the middle of a rebuild.
fn plexum_begins(kind: Kind) -> Array {
    let array = plexum_fills("plexum-begins", kind);
    let place = &array.place;
    let server = Server::start(place, &array.members(&[]));
    done(place, "set nas rebuild-min=0 rebuild-max=512K");
    done(place, "fail nas m1");
    wait_until(place, "a part is rebuilt", || {
        let jobs = status(place)["jobs"].clone();
        jobs[0]["done_bytes"].as_u64().unwrap_or(0) > 0
    });
    server.stop(place);
    array
}

/// An array that the kernel makes with the last member as spare; then `then` runs.
fn kernel_makes(batch: &mut Batch, who: &str, kind: Kind, then: &str) -> Array {
    let array = Array::new(who, kind);
    let mut words: Vec<&str> = kind.theirs.split(' ').collect();
    words.push("--bitmap=internal");
    let mut create = Create::new(words[0], &words[1..], SEED);
    create.spares = 1;
    create.then = then.to_owned();
    batch.add(Job::create(&array.name, &array.files, &create));
    array
}

#[test]
fn a_rebuild_of_plexum_is_ended_by_the_kernel() {
    let begun = KINDS.map(plexum_begins);
    let left: Vec<u64> = begun.iter().map(Array::left_bytes).collect();
    let go_on = format!("{GO_ON}start ${{DEVS/ $D1/}} || exit 3\ngo_on");
    let mut batch = Batch::new();
    for array in &begun {
        batch.add(Job::script(&array.name, &array.files, &go_on));
    }
    let reports = batch.run_faultless();
    for ((array, left), report) in begun.iter().zip(left).zip(&reports) {
        assert_eq!(report.value("degraded"), "0", "{}", report.mdadm);
        let number = |key: &str| report.value(key).parse::<u64>().unwrap();
        let written = (number("after") - number("before")) * 512;
        assert!(
            written <= left + METADATA_BYTES,
            "{}: the kernel wrote {written} bytes, {left} were left",
            array.name
        );
    }
    are_judged(&begun);
}

#[test]
fn a_rebuild_of_the_kernel_is_ended_by_plexum() {
    let hold = format!(
        "md_set $MD sync_max {HELD_SECTORS}\nmdadm $MD --fail $D1\nn=0\n\
         until [[ $(cat $MD_SYS/sync_completed) == \"{HELD_SECTORS} \"* ]]; do n=$((n+1)); [ $n -lt 100 ] || return 1; sleep 0.1; done"
    );
    let mut batch = Batch::new();
    let held = KINDS.map(|kind| kernel_makes(&mut batch, "kernel-begins", kind, &hold));
    batch.run_faultless();
    for array in &held {
        plexum_goes_on(array);
    }
    are_judged(&held);
}

#[test]
fn a_spare_changes_hands() {
    let theirs = plexum_fills("plexum-spares", RAID5);
    let mut batch = Batch::new();
    let fail =
        format!("{GO_ON}start $DEVS || exit 3\nmdadm \"$MD\" --fail \"$D1\" || exit 3\ngo_on");
    batch.add(Job::script("plexum-spares", &theirs.files, &fail));
    let ours = kernel_makes(&mut batch, "kernel-spares", RAID5, "");
    let reports = batch.run_faultless();
    assert_eq!(reports[0].value("degraded"), "0", "{}", reports[0].mdadm);

    let place = &ours.place;
    let server = Server::start(place, &ours.members(&[]));
    done(place, "fail nas m1");
    wait_until(place, "the spare has taken over", || ours.is_whole());
    wait_until_clean(place);
    server.stop(place);
    are_judged(&[theirs, ours]);
}

fn are_judged(arrays: &[Array]) {
    let mut batch = Batch::new();
    for array in arrays {
        batch.add(array.judge());
    }
    batch.run_faultless();
}

/// Serves without the member that failed until all is rebuilt; no more than what was left is written.
fn plexum_goes_on(array: &Array) {
    let place = &array.place;
    let left = array.left_bytes();
    assert_eq!(array.number("rebuild_offset_sectors"), HELD_SECTORS);
    let server = Server::start(place, &array.members(&[1]));
    wait_until(place, "the rebuild has ended", || array.is_whole());
    let stats = stats(place);
    let mut members = stats["members"].as_array().unwrap().iter();
    let last = format!("/{}", array.last());
    let filled = members.find(|m| m["member"].as_str().unwrap().ends_with(&last));
    let written = filled.unwrap()["written_bytes"].as_u64().unwrap();
    assert!(
        written <= left,
        "{}: Plexum wrote {written} bytes, {left} were left",
        array.name
    );
    wait_until_clean(place);
    assert!(!content(place).is_empty());
    server.stop(place);
}
