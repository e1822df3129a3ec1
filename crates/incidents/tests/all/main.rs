//! Tests of alarms: what is found, how an incident lives, what people read, what arrives.

#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

mod common;
mod configuration;
mod delivery;
mod found;
mod life;
mod messages;
mod simulation;
mod told_too_little;
mod told_too_much;
