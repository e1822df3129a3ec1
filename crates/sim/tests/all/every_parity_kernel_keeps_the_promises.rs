//! The simulator with each parity kernel that this machine can run: no finding, and the same worlds to the last byte.

use std::ops::ControlFlow;

use plexum_parity::{kernels, set_kernel};
use plexum_sim::md::Level;
use plexum_sim::md::scenario::Options;
use plexum_sim::seeds::run_seeds;

/// Seeds for each kernel.
const SEEDS: u64 = 20;

#[test]
fn the_same_seeds_end_alike_and_without_a_finding_whatever_computes_parity() {
    let options = Options {
        levels: vec![Level::Raid4, Level::Raid5, Level::Raid6],
        ..Options::default()
    };
    let mut hashes = Vec::new();
    for kernel in kernels().map(|table| table.kernel()) {
        set_kernel(kernel).unwrap();
        let report = run_seeds(0..SEEDS, &options, None, &mut |_| ControlFlow::Continue(()));
        assert!(report.is_good(), "{kernel}: {report}");
        hashes.push((kernel, report.hash));
    }
    assert!(hashes.len() > 1, "only the portable kernel runs here");
    let (_, first) = &hashes[0];
    assert!(hashes.iter().all(|(_, hash)| hash == first), "{hashes:?}");
}
