//! A short run of each target, with other inputs each time; `cargo xtask fuzz` goes on for as long as one likes.

use plexum_fuzz::driver::{ACCEPTED_PERCENT_MIN, Current, Run};
use plexum_fuzz::targets::ALL;

/// Inputs for each parser.
const INPUTS: u64 = 20_000;

#[test]
fn no_input_brings_a_parser_down_and_enough_of_them_get_past_its_checks() {
    let seed = u64::from(std::process::id());
    let runs = ALL.map(|target| {
        let job = move || {
            let fail = |fault: plexum_fuzz::driver::Fault| -> ! {
                let file = fault.input.to_file();
                let hex: String = file.iter().map(|byte| format!("{byte:02x}")).collect();
                panic!("{} (seed {seed}): {}\n{hex}", target.name, fault.text)
            };
            let mut run = Run::start(target, seed, Current::default()).unwrap_or_else(|f| fail(f));
            for _ in 0..INPUTS {
                run.step().unwrap_or_else(|fault| fail(fault));
            }
            (target.name, run.counts)
        };
        std::thread::spawn(job)
    });
    let mut tired = Vec::new();
    for run in runs {
        let (name, counts) = run.join().expect("the parser stands it");
        println!("{name}: {} % accepted", counts.accepted_percent());
        if counts.accepted_percent() < ACCEPTED_PERCENT_MIN {
            tired.push(name);
        }
    }
    assert!(
        tired.is_empty(),
        "seed {seed}: hardly any input gets past the first checks of {tired:?}"
    );
}
