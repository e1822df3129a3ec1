//! More of the members is used, and less: the real md driver finds the array that Plexum has made of it.

use crate::common::Place;
use crate::common::served::{Server, content, done, fill, size_bytes, wait_until};
use plexum_oracle::{Batch, Expected, Job, Judge, pattern_bytes, sha256};

const SEED: u64 = 0x5eed_0031;

/// Name, words for `create`, members.
const KINDS: [(&str, &str, usize); 7] = [
    ("raid1", "--level 1", 2),
    ("raid4", "--level 4 --strip 16K", 3),
    ("raid5", "--level 5 --strip 16K", 4),
    ("raid6", "--level 6 --strip 64K", 5),
    ("raid10", "--level 10 --strip 16K", 4),
    ("v10", "--level 5 --strip 16K --metadata 1.0", 3),
    ("v090", "--level 5 --strip 64K --metadata 0.90", 3),
];

/// Made, filled and changed; the content at the end.
fn changed(
    name: &str,
    create: &str,
    count: usize,
    size: &str,
    grow: &str,
) -> (Place, String, Vec<u8>) {
    let place = Place::new(&format!("sz-{name}"));
    let members: Vec<String> = (0..count).map(|number| format!("m{number}")).collect();
    for (number, member) in (0..).zip(&members) {
        // What is not used yet was never made to agree.
        let path = place.sparse(member, 12 << 20);
        std::fs::write(path, vec![number; 12 << 20]).unwrap();
    }
    let members = members.join(" ");
    done(
        &place,
        &format!("create nas {create} --size {size} --consistency bitmap {members} -y --force"),
    );
    let server = Server::start(&place, &members);
    fill(&place, SEED);
    wait_until(&place, "it is in sync", || {
        place
            .plexum(&format!("grow nas --size {grow} --dry-run"))
            .exit
            == 0
    });
    let before = usize::try_from(size_bytes(&place)).unwrap();
    done(&place, &format!("grow nas --size {grow} --wait"));
    let there = content(&place);
    let kept = before.min(there.len());
    assert!(there[..kept] == pattern_bytes(SEED, 0, kept), "{name}");
    assert_ne!(there.len(), before, "{name}");
    server.stop(&place);
    (place, members, there)
}

fn judged(what: &str, size: &str, grow: &str) {
    let mut batch = Batch::new();
    let mut places = Vec::new();
    for (name, create, count) in KINDS {
        let name = format!("{name}-{what}");
        let (place, _, there) = changed(&name, create, count, size, grow);
        let mut judge = Judge::new(Expected::Sha256(sha256(&there)));
        judge.without = vec![vec![], vec![0], vec![count - 1]];
        let files: Vec<_> = (0..count)
            .map(|number| place.file(&format!("m{number}")))
            .collect();
        batch.add(Job::judge(&name, &files, &judge));
        places.push(place);
    }
    batch.run_faultless();
}

#[test]
fn the_kernel_finds_what_is_new_of_the_members_in_agreement() {
    judged("more", "4M", "max");
}

#[test]
#[ignore = "half a minute: cargo xtask nightly kernel"]
fn the_kernel_finds_an_array_that_uses_less_of_its_members() {
    judged("less", "8M", "4M --force");
}
