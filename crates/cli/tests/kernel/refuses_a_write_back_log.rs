//! Answered writes that are only in the log: the kernel refuses every member, `--force` included; Plexum replays them,
//! without a member too; after a clean stop the kernel takes the array.

use crate::common::Place;
use crate::common::served::{
    Server, check_sectors, content, done, fill, kill_under_load, status, wait_until_clean,
};
use plexum_oracle::{Batch, Expected, Job, Judge, sha256};

/// Seed of what all members have.
const SEED: u64 = 0x5eed_000d;

const MEMBERS: usize = 4;

fn words(without: Option<usize>) -> String {
    let all = (0..MEMBERS).filter(|n| Some(*n) != without);
    all.map(|n| format!("m{n}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn the_kernel_refuses_what_is_only_in_the_log_and_takes_what_was_stopped() {
    let place = Place::new("wb");
    let files = (0..MEMBERS).map(|n| place.sparse(&format!("m{n}"), 8 << 20));
    let files: Vec<_> = files.collect();
    let create = "create nas --level 5 --strip 16K --log write-back";
    done(&place, &format!("{create} {}", words(None)));
    let server = Server::start(&place, &words(None));
    assert_eq!(status(&place)["log"]["is_write_back"], true);
    fill(&place, SEED);
    wait_until_clean(&place);
    let area = kill_under_load(&place, server);

    // Every way in that mdadm has.
    let script = "for how in '' --force '--run --force' --readonly; do\n\
                  mdadm --assemble $MD --config=none $how $DEVS </dev/null && exit 4\n\
                  mdadm --stop $MD; done\n\
                  mdadm --assemble $MD --config=none --run --force $D0 $D1 $D2 </dev/null && exit 4\n\
                  put refused yes";
    let mut batch = Batch::new();
    batch.add(Job::script("wb", &files, script).on_copies());
    let reports = batch.run_faultless();
    assert_eq!(reports[0].value("refused"), "yes");

    let server = Server::start(&place, &format!("--run-degraded {}", words(Some(1))));
    let found = content(&place);
    check_sectors(&place, &found, &area, SEED);
    done(&place, "re-add nas m1 --wait");
    wait_until_clean(&place);
    assert!(found == content(&place), "it changed");
    server.stop(&place);
    let mut judge = Judge::new(Expected::Sha256(sha256(&found)));
    judge.without.push(vec![2]);
    let mut batch = Batch::new();
    batch.add(Job::judge("wb", &files, &judge));
    batch.run_faultless();
}
