//! `plexum-developer` is all of `plexum`, and has the simulator and the benchmark by itself.
#![allow(clippy::unwrap_used)] // a test

use std::process::{Command, Output};

fn run(words: &str) -> Output {
    let program = env!("CARGO_BIN_EXE_plexum-developer");
    let output = Command::new(program).args(words.split(' ')).output();
    output.unwrap()
}

#[test]
fn it_runs_seeds_and_says_what_was_met() {
    let seeds = run("sim --seeds 2");
    let told = String::from_utf8(seeds.stdout).unwrap();
    assert_eq!(seeds.status.code(), Some(0), "{told}");
    let lines = ["seeds          2 of 2", "violations     0"];
    assert!(lines.iter().all(|line| told.contains(line)), "{told}");
}

#[test]
fn it_refuses_what_the_command_refuses() {
    assert_eq!(run("sim --trace").status.code(), Some(2));
    let unknown = run("bench nothere");
    let told = String::from_utf8(unknown.stderr).unwrap();
    assert_eq!(unknown.status.code(), Some(2), "{told}");
    assert!(told.contains("nothere is no group"), "{told}");
}

#[test]
fn every_other_command_is_the_same() {
    let status = run("status nothere");
    assert_eq!(
        status.status.code(),
        Some(7),
        "no server: as of `plexum status`"
    );
}
