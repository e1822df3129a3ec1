//! A member misses writes with one of the two, the real md driver or Plexum, and comes back by bitmap with the other.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{
    Server, content, differing_bytes, done, examined, fill, fill_part, stats, wait_until_clean,
};
use plexum_oracle::{Batch, Create, Expected, Job, Judge, pattern_bytes, sha256};

/// Seed of what all members have.
const SEED: u64 = 0x5eed_0004;

/// Seed of what one member misses.
const MISSED_SEED: u64 = 0x5eed_0005;

/// Where the member misses it.
const MISSED_AT_BYTES: usize = 192 << 10;

const MISSED_BYTES: usize = 256 << 10;

/// Superblocks and bitmap blocks that a re-add writes besides.
const METADATA_BYTES: u64 = 128 << 10;

/// Level, options for Plexum, options for mdadm, members.
const ARRAYS: [(&str, &str, &str, usize); 4] = [
    ("1", "", "", 2),
    ("5", "--strip 16K", "--chunk=16", 3),
    ("6", "--strip 16K", "--chunk=16", 5),
    ("10", "--strip 16K --layout n2", "--chunk=16 --layout=n2", 4),
];

struct Array {
    place: Place,
    name: String,
    files: Vec<PathBuf>,
    members: String,
}

impl Array {
    fn new(maker: &str, level: &str, count: usize) -> Self {
        let name = format!("re-{maker}-{level}");
        let place = Place::new(&name);
        let names: Vec<_> = (0..count).map(|n| format!("m{n}")).collect();
        let files = names.iter().map(|n| place.sparse(n, 8 << 20)).collect();
        Self {
            place,
            name,
            files,
            members: names.join(" "),
        }
    }

    /// Bytes that the bitmap of the members in use allows to copy; part of a member at most.
    fn limit_bytes(&self) -> u64 {
        let number = |field| {
            let value = examined(&self.place, "m0", "bitmap", field);
            value.as_u64().unwrap()
        };
        let (set, regions) = (number("region_count_set"), number("region_count"));
        assert!(
            set > 0 && set < regions / 2,
            "{}: {set} of {regions}",
            self.name
        );
        let bytes = set * number("region_bytes");
        bytes + bytes / 100
    }

    /// The member that was away, from its data on.
    fn member(&self) -> Vec<u8> {
        let start = examined(&self.place, "m1", "superblock", "data_offset_sectors");
        let start = usize::try_from(start.as_u64().unwrap() * 512).unwrap();
        std::fs::read(&self.files[1]).unwrap().split_off(start)
    }

    /// The kernel reads with and without the first member, so that the one that was away is used, and checks.
    fn judge(&self, size: usize) -> Job {
        let mut bytes = pattern_bytes(SEED, 0, size);
        let missed = pattern_bytes(MISSED_SEED, MISSED_AT_BYTES as u64, MISSED_BYTES);
        bytes[MISSED_AT_BYTES..MISSED_AT_BYTES + MISSED_BYTES].copy_from_slice(&missed);
        let mut judge = Judge::new(Expected::Sha256(sha256(&bytes)));
        judge.without.push(vec![0]);
        Job::judge(&self.name, &self.files, &judge)
    }
}

#[test]
fn plexum_copies_to_the_member_that_the_kernel_left_out_only_what_it_missed() {
    let mut batch = Batch::new();
    let mut arrays = Vec::new();
    for (level, _, options, count) in ARRAYS {
        let array = Array::new("plexum", level, count);
        let mut options: Vec<_> = options.split_whitespace().collect();
        options.extend(["--bitmap=internal", "--bitmap-chunk=64K"]);
        let mut create = Create::new(level, &options, SEED);
        create.then = format!(
            "mdadm $MD --fail $D1\nn=0\nuntil mdadm $MD --remove $D1; do n=$((n+1)); [ $n -lt 50 ] || return 1; sleep 0.1; done\n\
             fill {MISSED_SEED} {MISSED_AT_BYTES} {MISSED_BYTES}"
        );
        batch.add(Job::create(&array.name, &array.files, &create).with_seeds(&[MISSED_SEED]));
        arrays.push(array);
    }
    batch.run_faultless();

    let mut judges = Batch::new();
    for array in &arrays {
        let place = &array.place;
        let (limit, before) = (array.limit_bytes(), array.member());
        let server = Server::start(place, &array.members);
        done(place, "re-add nas m1 --wait");
        let stats = stats(place);
        let mut members = stats["members"].as_array().unwrap().iter();
        let away = members.find(|m| m["member"].as_str().unwrap().ends_with("/m1"));
        let written = away.unwrap()["written_bytes"].as_u64().unwrap();
        assert!(
            written > 0 && written <= limit,
            "{}: {written} bytes written, the bitmap allows {limit}",
            array.name
        );
        wait_until_clean(place);
        let size = content(place).len();
        server.stop(place);
        assert_ne!(differing_bytes(&before, &array.member(), 0), 0);
        judges.add(array.judge(size));
    }
    judges.run_faultless();
}

#[test]
fn the_kernel_copies_to_the_member_that_plexum_left_out_only_what_it_missed() {
    let mut batch = Batch::new();
    let mut arrays = Vec::new();
    for (level, options, _, count) in ARRAYS {
        let array = Array::new("kernel", level, count);
        let place = &array.place;
        let members = &array.members;
        done(
            place,
            &format!("create nas --level {level} {options} --bitmap-region 64K {members}"),
        );
        let server = Server::start(place, members);
        fill(place, SEED);
        server.stop(place);
        let server = Server::start(place, members);
        done(place, "fail nas m1");
        fill_part(place, MISSED_SEED, MISSED_AT_BYTES as u64, MISSED_BYTES);
        let size = content(place).len();
        server.stop(place);
        let (limit, before) = (array.limit_bytes(), array.member());
        let script = "written() { local f; read -r -a f <\"/sys/block/${D1#/dev/}/stat\"; put \"$1\" \"${f[6]}\"; }\n\
             start ${DEVS/ $D1/} || exit 3\n\
             written before\nmdadm \"$MD\" --re-add \"$D1\" || exit 3\n\
             mdadm --readwrite \"$MD\"; md_wait \"$MD\" || exit 3\n\
             written after\nput_sys degraded degraded\nstop";
        batch.add(Job::script(&array.name, &array.files, script));
        arrays.push((array, limit, before, size));
    }
    let reports = batch.run_faultless();

    let mut judges = Batch::new();
    for ((array, limit, before, size), report) in arrays.iter().zip(&reports) {
        let number = |key: &str| report.value(key).parse::<u64>().unwrap();
        assert_eq!(number("degraded"), 0, "{}", report.mdadm);
        let written = (number("after") - number("before")) * 512;
        assert!(
            written <= limit + METADATA_BYTES,
            "{}: {written} bytes written, the bitmap allows {limit}",
            array.name
        );
        assert_ne!(differing_bytes(before, &array.member(), 0), 0);
        judges.add(array.judge(*size));
    }
    judges.run_faultless();
}
