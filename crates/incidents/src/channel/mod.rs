//! What each kind of channel makes of a message. Pure: sending is up to whoever has a network and may start programs.

pub mod journal;
pub mod mail;
pub mod program;
pub mod smtp;
pub mod webhook;
