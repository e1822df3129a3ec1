//! A reshape begun by one of the two, the real md driver or Plexum, is carried to its end by the other.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{
    Server, content, done, examined, fill, size_bytes, status, wait_until,
};
use plexum_oracle::{Batch, Create, Expected, Job, Judge, pattern_bytes, sha256};

pub(super) const SEED: u64 = 0x5eed_0011;

/// In the guest, for the job's array: to the end, from where it stands.
pub(super) const GO_ON: &str = "start $DEVS || exit 3\nmdadm --readwrite \"$MD\"\nmd_wait \"$MD\" || exit 3\n\
     put_sys position reshape_position\nput size \"$(blockdev --getsize64 \"$MD\")\"\nstop\n";

/// In the guest: a reshape that has begun stops when it has got somewhere, and before its end.
pub(super) const HALF: &str = "n=0\nuntil [[ $(cat $MD_SYS/reshape_position) =~ ^[1-9] ]]; do \
     n=$((n+1)); [ $n -lt 400 ] || return 1; sleep 0.05; done\nstop || return 3\nexit 0";

/// How an array is made, and what it becomes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) ours: &'static str,
    pub(super) theirs: &'static str,
    pub(super) slots: usize,
    pub(super) added: usize,
    /// Words for `plexum grow`; the new members are added.
    pub(super) grow: &'static str,
    /// Words for `mdadm --grow`; none: it is not begun by it here.
    pub(super) mdadm: &'static str,
    /// Members that can be missing at the end.
    pub(super) losses: usize,
}

pub(super) const KINDS: [Kind; 6] = [
    Kind {
        name: "wider",
        ours: "5 --strip 16K",
        theirs: "5 --chunk=16",
        slots: 4,
        added: 1,
        grow: "",
        mdadm: "--raid-devices=5",
        losses: 1,
    },
    Kind {
        name: "layout",
        ours: "5 --strip 16K",
        theirs: "5 --chunk=16",
        slots: 4,
        added: 0,
        grow: "--layout right-asymmetric",
        // Of rows of the same length the kernel itself loses some when it is stopped in a reshape that it has begun
        // live: md-reshape.md section 4.
        mdadm: "",
        losses: 1,
    },
    Kind {
        name: "level",
        ours: "5 --strip 16K",
        theirs: "5 --chunk=16",
        slots: 3,
        added: 2,
        grow: "--level 6",
        mdadm: "--level=6 --raid-devices=5",
        losses: 2,
    },
    Kind {
        name: "six",
        ours: "6 --strip 16K",
        theirs: "6 --chunk=16",
        slots: 5,
        added: 1,
        grow: "",
        mdadm: "--raid-devices=6",
        losses: 2,
    },
    Kind {
        name: "fewer",
        ours: "5 --strip 16K --size 6M",
        theirs: "5 --chunk=16",
        slots: 5,
        added: 0,
        grow: "--members 4 --force",
        mdadm: "",
        losses: 1,
    },
    Kind {
        name: "mirror",
        ours: "1",
        theirs: "1",
        slots: 2,
        added: 1,
        grow: "--level 5 --members 3",
        mdadm: "",
        losses: 1,
    },
];

pub(super) struct Array {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) files: Vec<PathBuf>,
    pub(super) kind: Kind,
    /// Bytes that have content all the way.
    pub(super) kept: usize,
}

impl Array {
    pub(super) fn new(who: &str, kind: Kind) -> Self {
        let name = format!("rs-{who}-{}", kind.name);
        let place = Place::new(&name);
        let count = kind.slots + kind.added;
        Self {
            files: (0..count)
                .map(|number| place.sparse(&format!("m{number}"), 12 << 20))
                .collect(),
            place,
            name,
            kind,
            kept: 0,
        }
    }

    fn members(&self, range: std::ops::Range<usize>) -> String {
        let names: Vec<String> = range.map(|number| format!("m{number}")).collect();
        names.join(" ")
    }

    pub(super) fn all(&self) -> String {
        self.members(0..self.files.len())
    }

    /// As `judge`, of one that is what it was. What a smaller volume had cut off reads as zeroes again.
    pub(super) fn judge_kept(&self, size: usize) -> Job {
        let cut = match self.kind.name {
            "fewer" => self.kept / (self.kind.slots - 1) * (self.kind.slots - 2),
            _ => self.kept,
        };
        let kind = Kind {
            losses: 1,
            ..self.kind
        };
        let kept = Self {
            place: Place::new(&format!("{}-kept", self.name)),
            name: self.name.clone(),
            files: self.files.clone(),
            kind,
            kept: cut,
        };
        kept.judge(size)
    }

    /// The kernel reads all of it, and without members, and its check finds nothing.
    pub(super) fn judge(&self, size: usize) -> Job {
        let mut expected = pattern_bytes(SEED, 0, self.kept.min(size));
        expected.resize(size, 0); // what is new reads as zeroes
        let mut judge = Judge::new(Expected::Sha256(sha256(&expected)));
        judge.without.push(vec![0]);
        if self.kind.losses > 1 {
            judge.without.push(vec![1, 2]);
        }
        Job::judge(&self.name, &self.files, &judge)
    }
}

pub(super) fn job(place: &Place) -> Option<(u64, u64)> {
    let jobs = status(place)["jobs"].clone();
    let job = jobs
        .as_array()?
        .iter()
        .find(|job| job["kind"] == "reshape")?
        .clone();
    Some((job["done_bytes"].as_u64()?, job["total_bytes"].as_u64()?))
}

/// Plexum makes, fills and begins; then it is killed in the middle.
pub(super) fn plexum_begins(who: &str, kind: Kind) -> Array {
    let mut array = Array::new(who, kind);
    let place = &array.place;
    let slots = array.members(0..kind.slots);
    done(
        place,
        &format!(
            "create nas --level {} --consistency bitmap {slots}",
            kind.ours
        ),
    );
    let server = Server::start(place, &slots);
    fill(place, SEED);
    let before = size_bytes(place);
    done(place, "set nas rebuild-min=1M rebuild-max=1M");
    let add = match kind.added {
        0 => String::new(),
        _ => format!("--add {}", array.members(kind.slots..array.files.len())),
    };
    done(place, &format!("grow nas {} {add}", kind.grow));
    wait_until(place, "some of it has moved", || {
        job(place).is_some_and(|(moved, all)| moved > all / 8)
    });
    let (moved, all) = job(place).unwrap();
    assert!(moved < all, "{}: {moved} of {all}", array.name);
    server.kill();
    array.kept = usize::try_from(before).unwrap();
    array
}

#[test]
fn a_reshape_of_plexum_is_carried_to_its_end_by_the_kernel() {
    let begun = KINDS.map(|kind| plexum_begins("ours", kind));
    let mut ending = Batch::new();
    for array in &begun {
        ending.add(Job::script(&array.name, &array.files, GO_ON));
    }
    let mut batch = Batch::new();
    for (array, report) in begun.iter().zip(ending.run_faultless()) {
        let position = report.value("position");
        assert_eq!(position, "none", "{}: {}", array.name, report.mdadm);
        batch.add(array.judge(report.value("size").parse().unwrap()));
    }
    batch.run_faultless();
}

/// The kernel makes, fills and begins; it is stopped in the middle.
pub(super) fn kernel_begins(who: &str) -> Vec<Array> {
    let mut batch = Batch::new();
    let mut begun: Vec<Array> = Vec::new();
    for kind in KINDS.into_iter().filter(|kind| !kind.mdadm.is_empty()) {
        let array = Array::new(who, kind);
        let mut words: Vec<&str> = kind.theirs.split(' ').collect();
        words.push("--bitmap=internal");
        let mut create = Create::new(words[0], &words[1..], SEED);
        create.spares = kind.added;
        create.then = format!(
            "md_set $MD sync_speed_min 200\nmd_set $MD sync_speed_max 400\nput size \"$(blockdev --getsize64 $MD)\"\n\
             mdadm --grow $MD {} || return 1\n{HALF}",
            kind.mdadm
        );
        batch.add(Job::create(&array.name, &array.files, &create));
        begun.push(array);
    }
    let reports = batch.run_faultless();
    for (array, report) in begun.iter_mut().zip(&reports) {
        array.kept = report.value("size").parse().unwrap();
    }
    begun
}

#[test]
fn a_reshape_of_the_kernel_is_carried_to_its_end_by_plexum() {
    let begun = kernel_begins("theirs");
    let mut batch = Batch::new();
    for array in &begun {
        let place = &array.place;
        let features = examined(place, "m0", "superblock", "features");
        let features = features
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("0x")
            .to_owned();
        let is_half = u32::from_str_radix(&features, 16).unwrap() & 4 != 0;
        assert!(is_half, "{}: it is half way", array.name);
        let server = Server::start(place, &array.all());
        let there = content(place);
        let same = there == pattern_bytes(SEED, 0, there.len());
        assert!(same, "{}: what is read meanwhile", array.name);
        wait_until(place, "all has moved", || {
            let status = status(place);
            status["jobs"].as_array().unwrap().is_empty()
        });
        wait_until(place, "it has its new size", || {
            content(place).len() == usize::try_from(size_bytes(place)).unwrap()
        });
        let size = content(place).len();
        server.stop(place);
        batch.add(array.judge(size));
    }
    batch.run_faultless();
}
