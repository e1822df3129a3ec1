//! Bugs that the simulator has found, each as a script of its own: seeds change their meaning with the generator, these
//! do not. Where the bug can be switched on again, the script must see it.

use crate::common::{Bench, spec};
use plexum_disks::disk::CrashKind;
use plexum_disks::fault::Fault;
use plexum_engine::mutant::Mutant;
use plexum_format::Slot;
use plexum_sim::md::checker;
use plexum_sim::md::drill::Drill;
use plexum_sim::md::scenario::{Options, Scenario};
use plexum_sim::md::{Level, Spec};
use plexum_sim::seeds::Seeded;
use plexum_sim::subject::{Force, Operation, Subject};
use plexum_sim::world::Tracing;

/// Whether a script goes wrong with some of these seeds.
fn goes_wrong(script: impl Fn(u64, Option<Mutant>) -> bool, mutant: Option<Mutant>) -> bool {
    (0..24).any(|seed| script(seed, mutant))
}

/// A script goes well with the engine as it is, and wrong with each of these deliberate bugs.
fn goes_wrong_only_with(script: impl Fn(u64, Option<Mutant>) -> bool, mutants: &[Mutant]) {
    assert!(!goes_wrong(&script, None), "without a bug");
    for mutant in mutants {
        assert!(goes_wrong(&script, Some(*mutant)), "{mutant:?}");
    }
}

/// A RAID-5 that was forced to start dirty and degraded, with its rows in doubt on the bad-block list of the disk that
/// took the empty slot; one of them is written again, power is cut, and the old content must not come back as if it
/// were good.
fn a_bad_block_written_again(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid5, 2, 4, 4096), 120, mutant);
    bench.write(0, 12_288, 1).unwrap();
    bench.flush();
    let slot = bench
        .status()
        .slots
        .iter()
        .position(|disk| *disk == Some(0))
        .unwrap();
    bench.operate(Operation::Fail { slot }).unwrap();
    bench.write(4096, 4096, 2).unwrap();
    bench.crash(CrashKind::PowerCut);
    assert!(bench.start(Force::No).is_err(), "dirty and degraded");
    bench.start(Force::Yes).unwrap();
    // A disk that was never a member: its content has nothing to do with the array.
    bench.operate(Operation::Add { disk: 6 }).unwrap();
    bench.settle_rebuild();
    if bench.read(0, 4096).is_ok() {
        return true; // in doubt: only an error is right
    }
    bench.write(0, 4096, 3).unwrap();
    bench.rest(150);
    bench.crash(CrashKind::PowerCut);
    if bench.start(Force::No).is_err() {
        return false;
    }
    // Each sector: the new content, or an error.
    (0..8).any(|sector| {
        bench
            .read(sector * 512, 512)
            .is_ok_and(|bytes| bytes != [3; 512])
    })
}

#[test]
fn a_bad_block_written_again_stays_listed_until_a_flush() {
    goes_wrong_only_with(
        a_bad_block_written_again,
        &[
            Mutant::BadEntryClearedWithoutFlush,
            Mutant::LostRangeNotRecorded,
            Mutant::ForcedStartForgetsDoubt,
        ],
    );
}

/// A copy could not write a block and says so; when the bits are gone it is taken out, and comes back by the bitmap
/// (seed 1303147 of the time when it was found).
fn a_scarred_member_comes_back(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid1, 0, 2, 0), 120, mutant);
    let slots = bench.status().slots;
    let (kept, scarred) = (slots[0].unwrap(), slots[1].unwrap());
    bench.write(0, 4096, 1).unwrap();
    let at = bench.data_start(scarred);
    bench.disks[scarred as usize].put_fault(&Fault::WriteError(at..at + 4096));
    bench.write(0, 4096, 2).unwrap();
    bench.rest(12_000); // the bit goes: the list is durable
    bench.operate(Operation::Fail { slot: 1 }).unwrap();
    bench.operate(Operation::Add { disk: scarred }).unwrap();
    bench.settle_rebuild();
    bench.disks[kept as usize].put_fault(&Fault::Vanish);
    bench.read(0, 4096).is_ok_and(|bytes| bytes != [2; 4096])
}

#[test]
fn what_a_member_says_it_never_wrote_is_not_read_after_a_re_add() {
    goes_wrong_only_with(
        a_scarred_member_comes_back,
        &[Mutant::ReAddForgetsBadBlocks],
    );
}

/// A row is written while a member is being replaced, power is cut: the resync must make the replacement equal as well.
fn a_replacement_in_a_crash(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid5, 2, 5, 4096), 120, mutant);
    bench.write(0, 65_536, 1).unwrap();
    bench.flush();
    bench
        .operate(Operation::Replace { slot: 1, disk: 6 })
        .unwrap();
    bench.rest(2 + seed % 8);
    bench.stop(); // how far it got is durable now
    bench.start(Force::No).unwrap();
    for round in 0..8 {
        bench.write(round * 8192, 8192, 2).unwrap();
    }
    bench.crash(CrashKind::PowerCut);
    bench.start(Force::No).unwrap();
    bench.settle();
    bench.rest(500);
    bench.settle();
    !bench.mismatches().is_empty()
}

#[test]
fn a_resync_makes_a_member_and_its_replacement_equal() {
    goes_wrong_only_with(
        a_replacement_in_a_crash,
        &[Mutant::ResyncForgetsReplacement],
    );
}

/// Two commits in a row are cut: nobody may be left two events behind.
fn two_interrupted_commits(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid1, 0, 3, 0), 120, mutant);
    for cut in 0..30 {
        for _ in 0..2 {
            let writing = bench.writing(0, 4096, 1);
            let _ = bench.run_for(cut, writing);
            bench.crash(CrashKind::PowerCut);
            bench.start(Force::No).unwrap();
            if bench.status().slots.contains(&None) {
                return true;
            }
        }
        bench.stop();
        bench.start(Force::No).unwrap();
    }
    false
}

#[test]
fn interrupted_commits_in_a_row_leave_nobody_two_events_behind() {
    goes_wrong_only_with(
        two_interrupted_commits,
        &[Mutant::CountsNotLevelled, Mutant::OneBehindRefused],
    );
}

#[test]
fn a_rebuild_on_old_metadata_keeps_no_progress_and_ends_well() {
    let mut bench = Bench::new(1, spec(Level::Raid1, 0, 2, 0), 90, None);
    bench.write(0, 65_536, 7).unwrap();
    bench.operate(Operation::Fail { slot: 1 }).unwrap();
    bench.operate(Operation::Add { disk: 4 }).unwrap();
    bench.crash(CrashKind::PowerCut);
    bench.start(Force::No).unwrap();
    bench.settle_rebuild();
    assert!(bench.mismatches().is_empty());
    bench.stop();
    bench.start(Force::No).unwrap();
    assert!(!bench.status().slots.contains(&None));
}

/// Slot and byte of the disk of a volume offset, for parity organisations with strips of 4 KiB.
fn place(bench: &Bench, at: u64) -> (u32, u64) {
    let reference = plexum_sim::md::reference::Reference::new(&bench.spec);
    let (slot, offset) = reference.places(at)[0];
    let disk = bench.status().slots[slot].unwrap();
    (disk, bench.data_start(disk) + offset)
}

#[test]
fn a_degraded_small_write_that_meets_a_latent_error_is_within_the_promise_of_raid6() {
    let mut bench = Bench::new(2, spec(Level::Raid6, 2, 7, 4096), 120, None);
    bench.write(0, 20_480, 5).unwrap();
    let slot_of = |bench: &Bench, at| {
        let (disk, _) = place(bench, at);
        let slots = bench.status().slots;
        slots.iter().position(|other| *other == Some(disk)).unwrap()
    };
    let slot = slot_of(&bench, 0);
    let (sick, at) = place(&bench, 4096);
    bench.operate(Operation::Fail { slot }).unwrap();
    bench.disks[sick as usize].put_fault(&Fault::ReadError(at..at + 4096));
    bench.write(8192, 512, 6).unwrap();
    assert_eq!(bench.read(0, 4096).unwrap(), [5; 4096]);
    assert_eq!(bench.read(4096, 4096).unwrap(), [5; 4096]);
    assert_eq!(bench.read(8192, 512).unwrap(), [6; 512]);
}

/// More of a row is lost than parity can replace; another block of it is written, then the lost ones could be had
/// again.
fn a_row_written_without_its_parity(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid5, 2, 5, 4096), 120, mutant);
    bench.write(0, 16_384, 5).unwrap();
    let (_, first) = place(&bench, 0);
    let slots = bench.status().slots;
    let (gone, _) = place(&bench, 0);
    let slot = slots.iter().position(|disk| *disk == Some(gone)).unwrap();
    let (sick, at) = place(&bench, 4096);
    bench.operate(Operation::Fail { slot }).unwrap();
    bench.disks[sick as usize].put_fault(&Fault::ReadError(at..at + 4096));
    let _ = first;
    if bench.write(8192, 4096, 6).is_err() || bench.write(4096, 4096, 7).is_err() {
        return false;
    }
    bench.read(0, 4096).is_ok_and(|bytes| bytes != [5; 4096])
}

#[test]
fn a_row_written_without_its_parity_answers_errors_and_no_guesses() {
    goes_wrong_only_with(
        a_row_written_without_its_parity,
        &[Mutant::TrustDoubtfulParity],
    );
}

/// What a read of unequal copies has returned stays, whichever copy is lost next.
fn a_read_of_unequal_copies(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid1, 0, 2, 0), 120, mutant);
    bench.write(0, 4096, 1).unwrap();
    bench.flush();
    bench.write(0, 4096, 2).unwrap();
    bench.crash(CrashKind::PowerCut);
    bench.start(Force::No).unwrap();
    let Ok(seen) = bench.read(0, 4096) else {
        return true;
    };
    bench.crash(CrashKind::PowerCut);
    bench.disks[0].put_fault(&Fault::Vanish);
    bench.start(Force::No).unwrap();
    bench.read(0, 4096).is_ok_and(|bytes| bytes != seen)
}

#[test]
fn what_a_read_of_unequal_copies_returned_stays_after_the_loss_of_its_source() {
    let bugs = [Mutant::EqualWithoutFlush, Mutant::ReadUnequalCopies];
    goes_wrong_only_with(a_read_of_unequal_copies, &bugs);
}

#[test]
fn two_members_added_at_once_both_stay() {
    for seed in 0..12 {
        let mut bench = Bench::new(seed, spec(Level::Raid1, 0, 3, 0), 120, None);
        bench.write(0, 65_536, 3).unwrap();
        bench.operate(Operation::Fail { slot: 1 }).unwrap();
        bench.operate(Operation::Fail { slot: 2 }).unwrap();
        let (one, other) = (bench.subject(), bench.subject());
        let disks = bench.disks.clone();
        let more = bench.disks.clone();
        let adding = async move {
            plexum_block::wait::join(
                one.operate(Operation::Add { disk: 4 }, &disks),
                other.operate(Operation::Add { disk: 5 }, &more),
            )
            .await
        };
        let (first, second) = bench.run(adding);
        assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
        bench.settle_rebuild();
        bench.stop();
        bench.start(Force::No).unwrap();
        let mut slots = bench.status().slots;
        slots.sort_unstable();
        assert_eq!(slots, [Some(0), Some(4), Some(5)], "seed {seed}");
    }
}

#[test]
fn a_parity_member_that_comes_back_by_bitmap_gets_its_stale_regions_only() {
    let mut bench = Bench::new(3, spec(Level::Raid5, 2, 3, 65_536), 120, None);
    bench.write(0, 262_144, 1).unwrap();
    bench.flush();
    bench.rest(12_000);
    bench.operate(Operation::Fail { slot: 0 }).unwrap();
    bench.write(8192, 4096, 2).unwrap();
    bench.rest(500);
    let before = bench.disks[0].counters().written_bytes;
    bench.operate(Operation::Add { disk: 0 }).unwrap();
    bench.settle_rebuild();
    let written = bench.disks[0].counters().written_bytes - before;
    assert!(bench.mismatches().is_empty());
    // One region of data; the rest are superblocks and the bitmap.
    assert!(
        written < 32_768,
        "{written} bytes were written for one stale region of 4096"
    );
}

/// A flush fails on one copy while another copy takes long over it; a second flush begins after that and ends first.
fn a_flush_after_a_failed_one(seed: u64, mutant: Option<Mutant>) -> bool {
    let mut bench = Bench::new(seed, spec(Level::Raid1, 0, 3, 0), 120, mutant);
    bench.write(0, 65_536, 1).unwrap();
    bench.flush();
    bench.write(0, 65_536, 2).unwrap();
    bench.disks[0].put_fault(&Fault::FlushError { count: 1 });
    bench.disks[2].put_fault(&Fault::Slow { factor: 4000 });
    let first = bench.subject();
    let _ = bench.run_for(1, async move { first.flush(0).await });
    bench.rest(100 + seed % 5);
    bench.disks[2].put_fault(&Fault::Slow { factor: 1 });
    let second = bench.subject();
    if bench.run(async move { second.flush(0).await }).is_err() {
        return false;
    }
    bench.crash(CrashKind::PowerCut);
    bench.start(Force::No).unwrap();
    bench.read(0, 65_536).unwrap() != [2; 65_536]
}

#[test]
fn a_flush_that_follows_a_failed_one_does_not_hide_it() {
    goes_wrong_only_with(a_flush_after_a_failed_one, &[Mutant::IgnoreFlushError]);
}

/// A write that is in the log finds no space on one member and is refused; another write to the same row follows, and
/// with the power goes a third member of it (seed 4613 of the time when it was found).
fn a_refused_write_in_the_log(seed: u64, mutant: Option<Mutant>) -> bool {
    let logged = Spec {
        log_bytes: Some(131_072),
        ..spec(Level::Raid4, 0, 4, 4096)
    };
    let mut bench = Bench::new(seed, logged, 120, mutant);
    bench.write(0, 12_288, 1).unwrap();
    bench.flush();
    let (full, at) = place(&bench, 0);
    let (lost, _) = place(&bench, 8192);
    bench.disks[full as usize].put_fault(&Fault::NoSpace(at..at + 4096));
    assert!(bench.write(0, 4096, 2).is_err(), "there is no space");
    bench.write(4096 + 1024, 1024, 3).unwrap();
    bench.crash(CrashKind::PowerCut);
    bench.disks[full as usize].put_fault(&Fault::Return);
    bench.disks[lost as usize].put_fault(&Fault::Vanish);
    if bench.start(Force::No).is_err() {
        return false; // the row is in doubt: a refusal is right
    }
    bench.read(8192, 4096).is_ok_and(|bytes| bytes != [1; 4096])
}

#[test]
fn a_write_refused_for_want_of_space_is_not_replayed_under_later_ones() {
    goes_wrong_only_with(a_refused_write_in_the_log, &[Mutant::RefusedRecordStays]);
}

/// A long write meets few bad sectors of one member: only these are lost to it, so the loss of another member costs no
/// more (seed 75 of the time when it was found).
#[test]
fn only_the_sectors_that_fail_are_recorded_as_bad() {
    let mut bench = Bench::new(5, spec(Level::Raid5, 2, 4, 65_536), 120, None);
    bench.write(0, 196_608, 1).unwrap();
    let (sick, at) = place(&bench, 0);
    bench.disks[sick as usize].put_fault(&Fault::WriteError(at + 9216..at + 9216 + 1024));
    bench.write(0, 32_768, 2).unwrap();
    let slots = bench.status().slots;
    let slot = slots.iter().position(|disk| *disk == Some(sick)).unwrap();
    assert_eq!(bench.status().bad_ranges, [(slot, 9216..10_240)]);
    let (gone, _) = place(&bench, 65_536);
    let gone = slots.iter().position(|disk| *disk == Some(gone)).unwrap();
    bench.operate(Operation::Fail { slot: gone }).unwrap();
    for at in [0, 10_240, 65_536, 65_536 + 10_240] {
        let length = if at % 65_536 == 0 { 9216 } else { 16_384 };
        let expected = if at < 65_536 { 2 } else { 1 };
        assert_eq!(
            bench.read(at, length).unwrap(),
            vec![expected; length as usize]
        );
    }
    assert!(bench.read(9216, 512).is_err() && bench.read(65_536 + 9216, 512).is_err());
}

#[test]
fn a_member_that_takes_no_write_at_all_is_not_asked_for_every_sector() {
    let mut bench = Bench::new(6, spec(Level::Raid5, 2, 4, 65_536), 120, None);
    bench.write(0, 196_608, 1).unwrap();
    let (sick, at) = place(&bench, 0);
    let before = bench.disks[sick as usize].counters().writes;
    bench.disks[sick as usize].put_fault(&Fault::WriteError(at..at + 65_536));
    bench.write(0, 65_536, 2).unwrap();
    let asked = bench.disks[sick as usize].counters().writes - before;
    assert!(asked < 100, "{asked} writes for one of 128 sectors");
    assert_eq!(bench.read(0, 65_536).unwrap(), vec![2; 65_536]);
    let (_, bad) = &bench.status().bad_ranges[0];
    assert_eq!(*bad, 0..65_536);
}

/// A strip without a member is written, and its parity cannot be: nobody holds it, so the write is no success.
#[test]
fn a_write_that_nobody_could_keep_is_answered_with_an_error() {
    let mut bench = Bench::new(7, spec(Level::Raid5, 2, 4, 4096), 120, None);
    bench.write(0, 12_288, 1).unwrap();
    let slots = bench.status().slots;
    let holders: Vec<u32> = (0..3).map(|index| place(&bench, index * 4096).0).collect();
    let parity = slots.iter().flatten().find(|disk| !holders.contains(disk));
    let parity = *parity.unwrap();
    let (gone, at) = place(&bench, 0);
    let slot = slots.iter().position(|disk| *disk == Some(gone)).unwrap();
    bench.operate(Operation::Fail { slot }).unwrap();
    bench.disks[parity as usize].put_fault(&Fault::WriteError(at..at + 4096));
    assert!(bench.write(0, 4096, 2).is_err());
}

/// A member falls out while a row is being written, the power goes before that is durable, and the member is back at
/// the next start (seed 60245 of the time when it was found).
fn a_member_lost_just_before_a_crash(seed: u64, mutant: Option<Mutant>) -> bool {
    (0..40).any(|polls| {
        let logged = Spec {
            log_bytes: Some(131_072),
            ..spec(Level::Raid5, 2, 5, 4096)
        };
        let mut bench = Bench::new(seed, logged, 120, mutant);
        bench.write(0, 65_536, 1).unwrap();
        bench.flush();
        let (gone, _) = place(&bench, 0);
        bench.disks[gone as usize].put_fault(&Fault::Vanish);
        // The commit takes long on one member, the record on the member of the parity does not.
        let (slow, _) = place(&bench, 4096);
        bench.disks[slow as usize].put_fault(&Fault::Slow { factor: 100 });
        let writing = bench.writing(0, 4096, 2);
        let _ = bench.run_for(polls, writing);
        bench.crash(CrashKind::PowerCut);
        bench.disks[gone as usize].put_fault(&Fault::Return);
        bench.start(Force::No).unwrap();
        bench.settle();
        bench.rest(500);
        bench.settle();
        !bench.mismatches().is_empty()
    })
}

#[test]
fn a_record_waits_until_the_loss_of_a_member_is_durable() {
    assert!(!a_member_lost_just_before_a_crash(1, None));
    let bug = Mutant::RecordBeforeFailureCommit;
    assert!(a_member_lost_just_before_a_crash(1, Some(bug)));
}

/// Seeds that have found something, under the options under which they did. The scripts above do not change with the
/// generator; these may, and cost little. How many superblocks say that the slot has another member than the one that
/// was created with it.
fn successors_known(bench: &Bench, slot: u16) -> usize {
    let members = bench.disks.iter().filter_map(checker::inspect);
    let says_so = members.filter(|member| {
        let first = u32::from(slot);
        let numbers = first + 1..bench.disks.len() as u32 + 3;
        let holds = |number| member.superblock.role_of(number).slot() == Some(Slot(slot));
        !holds(first) && numbers.into_iter().any(holds)
    });
    says_so.count()
}

#[test]
fn a_crash_while_a_replacement_takes_over_leaves_its_slot_filled() {
    for (seed, metadata) in (0..6).flat_map(|seed| [(seed, 90), (seed, 120)]) {
        let mut bench = Bench::new(seed, spec(Level::Raid5, 2, 3, 4096), metadata, None);
        bench.write(0, 65_536, 1).unwrap();
        bench.flush();
        bench.disks[4].put_fault(&Fault::Slow { factor: 200 });
        let replaced = Operation::Replace { slot: 1, disk: 4 };
        bench.operate(replaced).unwrap();
        // A clean array would start without the member.
        bench.keep_writing();
        while successors_known(&bench, 1) == 0 {
            bench.step();
        }
        bench.crash(CrashKind::PowerCut);
        bench.disks[4].put_fault(&Fault::Slow { factor: 1 });
        bench.start(Force::No).unwrap();
        assert!(
            !bench.status().slots.contains(&None),
            "seed {seed}, metadata {metadata}"
        );
    }
}

#[test]
fn seeds_of_the_past_have_no_finding_any_more() {
    let parity = [Level::Raid4, Level::Raid5, Level::Raid6];
    let options = |levels: &[Level]| Options {
        levels: levels.to_vec(),
        shards_of_256: 0, // they are older than shards
        small_of_256: 0,
        ..Options::default()
    };
    let logs = |levels: &[Level]| Options {
        logs_of_256: 256,
        ..options(levels)
    };
    let write_backs = Options {
        write_backs_of_256: 256,
        ..logs(&parity)
    };
    let has_redundancy = |level: &Level| !matches!(level, Level::Linear | Level::Raid0);
    let redundant: Vec<Level> = Level::ALL.into_iter().filter(has_redundancy).collect();
    let unplugged = Options {
        drill: Some(Drill::Unplugged),
        ..options(&redundant)
    };
    let ppls = Options {
        logs_of_256: 0,
        ppls_of_256: 256,
        ..options(&[Level::Raid5])
    };
    let beyond = Options {
        beyond_of_256: 256,
        ..options(&Level::ALL)
    };
    let as_ever = Options {
        small_of_256: 0,
        ..Options::default()
    };
    let all = [
        (
            options(&Level::ALL),
            vec![
                2,
                30,
                75,
                87,
                473,
                846,
                900_827,
                1_301_038,
                1_303_147,
                3_607_563,
                4_011_726,
                4_107_499,
                5_105_406,
                1_795_355_152_000_005_507,
                1_795_355_152_010_000_490,
                1_795_370_000_000_005_824,
                1_795_370_000_000_022_934,
                1_795_373_000_000_010_796,
                1_795_373_000_000_015_904,
                1_795_367_916_010_011_900,
                1_795_371_363_004_570,
                1_795_371_363_008_289,
                1_795_371_363_046_275,
                1_795_373_893_004_541,
            ],
        ),
        (options(&[Level::Raid1, Level::Raid10]), vec![920_122]),
        (options(&[Level::Raid4]), vec![4613]),
        (logs(&parity), vec![75, 910_224]),
        (unplugged, vec![380, 408]),
        (ppls, vec![1416, 1714]),
        (write_backs, vec![60_245]),
        (beyond, vec![50_291, 50_387]),
        (
            as_ever,
            vec![
                1_795_635_497_010_005_195,
                1_795_418_305_010_001_370,
                1_795_420_990_010_000_150,
                1_795_434_146_010_009_962,
                1_796_000_000_000_022_460,
                1_795_443_041_000_010_270,
                1_795_443_041_000_006_198,
                1_796_300_020_000_001_598,
                1_795_582_810_000_004_467,
            ],
        ),
    ];
    for (options, seeds) in all {
        for seed in seeds {
            let outcome = Scenario::new(seed, &options).run(Tracing::Hash, None);
            assert!(
                outcome.findings.is_empty(),
                "seed {seed}: {:?}",
                outcome.findings
            );
        }
    }
}
