//! One of the two, the real md driver or Plexum, leaves an array dirty, degraded or both; the other takes it over, or
//! refuses.

use std::path::PathBuf;

use crate::common::Place;
use crate::common::served::{
    Server, content, done, examined, fill, fill_part, size_bytes, wait_until_clean,
};
use plexum_oracle::{Batch, Create, Ending, Expected, Job, Judge, pattern_bytes, sha256};

/// Seed of what all members have.
const SEED: u64 = 0x5eed_0007;

/// Seed of what is written last.
const LAST_SEED: u64 = 0x5eed_0008;

const LAST_AT_BYTES: usize = 192 << 10;

const LAST_BYTES: usize = 256 << 10;

/// Level, options for Plexum, options for mdadm, members, whether parity makes it redundant.
type Kind = (&'static str, &'static str, &'static str, usize, bool);

const KINDS: [Kind; 4] = [
    ("1", "", "", 2, false),
    ("10", "--strip 16K --layout n2", "--chunk=16", 4, false),
    ("5", "--strip 16K", "--chunk=16", 3, true),
    ("6", "--strip 16K", "--chunk=16", 4, true),
];

/// In which state the array is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Dirty,
    Degraded,
    DirtyDegraded,
}

const STATES: [State; 3] = [State::Dirty, State::Degraded, State::DirtyDegraded];

impl State {
    fn is_dirty(self) -> bool {
        self != State::Degraded
    }

    fn is_degraded(self) -> bool {
        self != State::Dirty
    }
}

struct Array {
    place: Place,
    name: String,
    files: Vec<PathBuf>,
    members: String,
    state: State,
    has_parity: bool,
}

impl Array {
    fn new(who: &str, kind: Kind, state: State) -> Self {
        let (level, _, _, count, has_parity) = kind;
        let name = format!("st-{who}-{level}-{state:?}");
        let place = Place::new(&name);
        let names: Vec<_> = (0..count).map(|n| format!("m{n}")).collect();
        Self {
            files: names.iter().map(|n| place.sparse(n, 4 << 20)).collect(),
            place,
            name,
            members: names.join(" "),
            state,
            has_parity,
        }
    }

    /// Whether nobody may start it: a row that was being written cannot be told from one that was not.
    fn is_refused(&self) -> bool {
        self.has_parity && self.state == State::DirtyDegraded
    }

    fn judge(&self, hash: &str) -> Job {
        let mut judge = Judge::new(Expected::Sha256(hash.to_owned()));
        // The member that failed is stale; the kernel must leave it out by itself.
        judge.scrub = !self.state.is_degraded();
        judge.clean = false;
        Job::judge(&self.name, &self.files, &judge)
    }
}

/// What the array holds.
fn expected(size: usize) -> Vec<u8> {
    let mut bytes = pattern_bytes(SEED, 0, size);
    let last = pattern_bytes(LAST_SEED, LAST_AT_BYTES as u64, LAST_BYTES);
    bytes[LAST_AT_BYTES..LAST_AT_BYTES + LAST_BYTES].copy_from_slice(&last);
    bytes
}

/// Plexum makes and fills the array, loses a member, writes and stops or is killed. The size in bytes.
fn plexum_leaves(kind: Kind, state: State) -> (Array, usize) {
    let array = Array::new("ours", kind, state);
    let (place, members) = (&array.place, &array.members);
    let (level, options, ..) = kind;
    done(
        place,
        &format!(
            "create nas --level {level} {options} --consistency bitmap --bitmap-region 64K {members}"
        ),
    );
    let server = Server::start(place, members);
    fill(place, SEED);
    wait_until_clean(place);
    if state.is_degraded() {
        done(place, "fail nas m1");
    }
    let size = usize::try_from(size_bytes(place)).unwrap();
    fill_part(place, LAST_SEED, LAST_AT_BYTES as u64, LAST_BYTES);
    if state.is_dirty() {
        server.kill();
        let set = examined(place, "m0", "bitmap", "region_count_set");
        assert!(set.as_u64().unwrap() > 0, "{}: it was clean", array.name);
    } else {
        server.stop(place);
    }
    (array, size)
}

#[test]
fn what_plexum_left_dirty_or_degraded_goes_on_in_the_kernel() {
    let mut batch = Batch::new();
    let mut refused = Vec::new();
    let mut arrays = Vec::new();
    for kind in KINDS {
        for state in STATES {
            let (array, size) = plexum_leaves(kind, state);
            if array.is_refused() {
                let script = "! start $DEVS || exit 9";
                refused.push(Job::script(&array.name, &array.files, script));
            } else {
                batch.add(array.judge(&sha256(&expected(size))));
            }
            arrays.push(array);
        }
    }
    for job in refused {
        batch.add(job);
    }
    let reports = batch.run_faultless();
    assert_eq!(reports.len(), arrays.len());
}

#[test]
fn what_the_kernel_left_dirty_or_degraded_goes_on_in_plexum() {
    let mut batch = Batch::new();
    let mut arrays = Vec::new();
    for kind in KINDS {
        for state in [State::Dirty, State::DirtyDegraded] {
            let array = Array::new("theirs", kind, state);
            let (level, _, options, ..) = kind;
            let mut options: Vec<_> = options.split_whitespace().collect();
            options.extend(["--bitmap=internal", "--bitmap-chunk=64K", "--assume-clean"]);
            let mut create = Create::new(level, &options, SEED);
            create.ending = Ending::Crash;
            let fail = if state.is_degraded() {
                "mdadm $MD --fail $D1\n"
            } else {
                ""
            };
            create.then = format!(
                "{fail}md_set $MD safe_mode_delay 60\nfill {LAST_SEED} {LAST_AT_BYTES} {LAST_BYTES}"
            );
            let job = Job::create(&array.name, &array.files, &create);
            batch.add(job.with_seeds(&[LAST_SEED]));
            arrays.push(array);
        }
    }
    batch.run_faultless();

    let mut judges = Batch::new();
    for array in &arrays {
        let place = &array.place;
        if array.is_refused() {
            let run = place.plexum(&format!(
                "serve --name nas --run-degraded {}",
                array.members
            ));
            assert_eq!(run.exit, 3, "{}: {}{}", array.name, run.out, run.err);
            continue;
        }
        let server = Server::start(place, &array.members);
        let found = content(place);
        assert!(
            found == expected(found.len()),
            "{}: content differs",
            array.name
        );
        wait_until_settled(array);
        server.stop(place);
        judges.add(array.judge(&sha256(&found)));
    }
    judges.run_faultless();
}

/// Degraded volumes keep their bits.
fn wait_until_settled(array: &Array) {
    if !array.state.is_degraded() {
        wait_until_clean(&array.place);
    }
}
