//! Each parity kernel that this machine can run, with each runtime, forced by options: golden arrays are read with as
//! many members missing as they can spare, and what Plexum writes is right to the real md driver.

use crate::common::Place;
use crate::common::served::{Server, content, done, fill, wait_until_clean};
use plexum_oracle::{Batch, Expected, Job, Judge, pattern_sha256, sha256, survivable_losses};
use plexum_parity::Kernel;
use plexum_testkit::{Case, md_cases, unpack_case};

const SEED: u64 = 0x5eed_0016;

const RUNTIMES: [&str; 2] = ["uring", "threads"];

/// Whole arrays of every level and rotation with parity.
const GOLDEN: [&str; 10] = [
    "s06_raid4",
    "s07_raid5_ls",
    "s08_raid5_la_090",
    "s09_raid5_ra",
    "s10_raid5_parity_first",
    "s11_raid6_ls",
    "s12_raid6_ddf_zero_restart",
    "s13_raid6_ddf_n_continue",
    "s14_raid6_left_symmetric_6",
    "s15_raid6_ra",
];

/// The options of every pair that runs here; without a ring of the kernel the test fails, as the server would not
/// start.
fn pairs() -> impl Iterator<Item = (Kernel, &'static str)> {
    let kernels = Kernel::ALL
        .into_iter()
        .filter(|kernel| kernel.is_available());
    kernels.flat_map(|kernel| RUNTIMES.map(|io| (kernel, io)))
}

/// Reads a case without its first members, read-only; the members are left as they are.
fn read_degraded(place: &Place, case: &Case, kernel: Kernel, io: &str) {
    let unpacked = unpack_case(&case.id);
    let left = case.members.iter().skip(case.tolerates as usize);
    let left: Vec<String> = left
        .map(|member| unpacked.path(&member.file).display().to_string())
        .collect();
    let words = format!(
        "--read-only --run-degraded --parity {kernel} --io {io} {}",
        left.join(" ")
    );
    let server = Server::start(place, &words);
    assert_eq!(sha256(&content(place)), case.sha256, "{} {words}", case.id);
    server.stop(place);
}

#[test]
fn golden_arrays_that_lack_members_have_their_content() {
    let place = Place::new("kernels-golden");
    let cases = md_cases();
    let cases: Vec<_> = cases
        .iter()
        .filter(|case| GOLDEN.contains(&case.id.as_str()))
        .collect();
    assert_eq!(cases.len(), GOLDEN.len());
    for (kernel, io) in pairs() {
        for case in &cases {
            read_degraded(&place, case, kernel, io);
        }
    }
}

#[test]
fn the_real_driver_finds_right_what_was_written() {
    const MEMBERS: usize = 5;
    let mut batch = Batch::default();
    let mut places = Vec::new();
    for (kernel, io) in pairs() {
        let place = Place::new(&format!("kernels-{kernel}-{io}"));
        let files: Vec<_> = (0..MEMBERS)
            .map(|n| place.sparse(&format!("m{n}"), 4 << 20))
            .collect();
        let members = "m0 m1 m2 m3 m4";
        done(
            &place,
            &format!("create nas --level 6 --strip 16K {members}"),
        );
        let words = format!("--parity {kernel} --io {io} {members}");
        let server = Server::start(&place, &words);
        fill(&place, SEED);
        wait_until_clean(&place);
        let written = content(&place);
        server.stop(&place);
        let expected = pattern_sha256(SEED, written.len() as u64);
        assert_eq!(sha256(&written), expected, "{words}");
        let mut judge = Judge::new(Expected::Sha256(expected));
        judge.without = survivable_losses(MEMBERS, |lost| {
            lost.is_empty() || lost == [0, 1] || lost == [2, 4]
        });
        batch.add(Job::judge(&format!("{kernel}-{io}"), &files, &judge));
        places.push(place);
    }
    assert!(
        places.len() > RUNTIMES.len(),
        "only the portable kernel runs here"
    );
    assert_eq!(batch.run_faultless().len(), places.len());
}

#[test]
fn a_kernel_that_is_not_there_is_refused_with_those_that_are() {
    let place = Place::new("kernels-refused");
    let absent = Kernel::ALL
        .into_iter()
        .find(|kernel| !kernel.is_available());
    for name in absent.map(Kernel::name).into_iter().chain(["sse9"]) {
        for command in ["serve m0", "sim --seeds 1"] {
            let run = place.plexum(&format!("{command} --parity {name}"));
            assert_eq!(run.exit, 2, "{}{}", run.out, run.err);
            assert!(
                run.err.contains(name) && run.err.contains("scalar"),
                "{}",
                run.err
            );
        }
    }
}
