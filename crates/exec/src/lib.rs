//! Single-thread executor; the order of ready tasks is a parameter
#![forbid(unsafe_code)]
