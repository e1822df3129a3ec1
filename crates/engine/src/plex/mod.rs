//! Organisations: how a plex spreads one address space over its members.

pub mod layout;
