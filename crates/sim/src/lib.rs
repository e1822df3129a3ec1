//! The made-up world: simulated disks, faults, crashes, oracle, mutants
#![forbid(unsafe_code)]
