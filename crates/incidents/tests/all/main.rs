//! Tests of alarms: what is found, how an incident lives, what people read, what arrives.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;
mod simulation;
