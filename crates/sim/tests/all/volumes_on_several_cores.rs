//! One volume on several cores (W12): satellites serve what is ordinary, and nothing else.

use crate::common::{Bench, spec};
use plexum_block::device::{Fua, ZeroMode};
use plexum_sim::md::{Level, SlotArray, Spec};
use plexum_sim::subject::{Operation, Subject};

const STRIP: u64 = 16_384;

fn specs() -> Vec<Spec> {
    vec![
        spec(Level::Raid1, 0, 2, 0),
        spec(Level::Raid10, 0x102, 4, STRIP),
        spec(Level::Raid5, 2, 4, STRIP),
        spec(Level::Raid6, 2, 5, STRIP),
    ]
}

/// Writes and reads all over the volume, by every shard in turn.
fn work(bench: &mut Bench, value: u8) {
    let size = bench.subject().size_bytes();
    let places = (0..size - 4096).step_by((size / 24) as usize / 512 * 512);
    let places: Vec<u64> = places.collect();
    for at in &places {
        bench.write(*at, 4096, value).unwrap();
    }
    for at in places {
        assert_eq!(bench.read(at, 4096).unwrap(), vec![value; 4096], "at {at}");
    }
}

#[test]
fn satellites_serve_reads_and_the_writes_of_their_slabs_by_themselves() {
    for spec in specs() {
        let mut bench = Bench::divided(1, spec, 120, None, 3);
        work(&mut bench, 1);
        let before = bench.subject().shard_counters();
        work(&mut bench, 2);
        let counters = bench.subject().shard_counters();
        let (served, sent) = (
            counters.served - before.served,
            counters.sent_home - before.sent_home,
        );
        // Two of three requests come to satellites; of the writes a third belongs to the home.
        assert!(served >= 24, "{served} served, {sent} sent home");
        assert!(sent <= 12, "{served} served, {sent} sent home");
        assert!(bench.mismatches().is_empty());
        bench.stop();
    }
}

#[test]
fn while_a_member_is_missing_everything_is_done_at_home() {
    for spec in specs() {
        let fresh = spec.member_count as u32;
        let mut bench = Bench::divided(2, spec, 120, None, 2);
        work(&mut bench, 1);
        bench.operate(Operation::Fail { slot: 0 }).unwrap();
        let before = bench.subject().shard_counters();
        work(&mut bench, 2);
        let after = bench.subject().shard_counters();
        assert_eq!(
            after.served, before.served,
            "a lost member is the home's business"
        );
        assert!(after.sent_home > before.sent_home);
        bench.operate(Operation::Add { disk: fresh }).unwrap();
        bench.settle_rebuild();
        work(&mut bench, 3);
        work(&mut bench, 4);
        assert!(
            bench.subject().shard_counters().served > after.served,
            "with the new member they serve again"
        );
        assert!(bench.mismatches().is_empty());
        bench.stop();
    }
}

#[test]
fn marks_come_back_so_that_the_array_becomes_clean() {
    for spec in specs() {
        let mut bench = Bench::divided(3, spec, 120, None, 2);
        work(&mut bench, 1);
        assert!(bench.subject().is_dirty());
        bench.rest(4000);
        assert!(!bench.subject().is_dirty(), "nobody writes any more");
        work(&mut bench, 2);
        assert!(bench.subject().is_dirty(), "and again");
        bench.stop();
    }
}

#[test]
fn a_slab_comes_back_to_whoever_wants_its_rows() {
    for spec in specs() {
        let mut bench = Bench::divided(4, spec, 120, None, 2);
        work(&mut bench, 1);
        bench.operate(Operation::Scrub).unwrap();
        let size = bench.subject().size_bytes();
        let subject = bench.subject();
        let zero = async move { subject.zero(0, 0..size, ZeroMode::Allocate, Fua::No).await };
        bench.run(zero).unwrap();
        assert!(bench.read(0, size).unwrap().iter().all(|byte| *byte == 0));
        work(&mut bench, 2);
        assert!(bench.mismatches().is_empty());
        bench.stop();
    }
}
