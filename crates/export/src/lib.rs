//! A volume as a file or a device of the operating system: a FUSE file system with one file, which a loop device can
//! stand on; or a device of the kernel's own NBD client.
//!
//! By FUSE the kernel's requests arrive on threads of the FUSE session and leave them at once as
//! `request::VolumeRequest`s; whoever owns the volume carries them out where it lives, many at a time, and each takes
//! its answer back by itself.
//! The kernel's NBD client needs nobody for its requests: it is given connections to the server, and new ones.
//!
//! Invariants:
//! - nothing is cached on the way: a write that was answered is with the volume, a flush is a flush of the volume;
//! - a request that is dropped is answered with EIO: nobody hangs when the volume has gone;
//! - a punched hole reads as zeroes: a loop device turns "write zeroes" into holes.
#![forbid(unsafe_code)]

pub mod fuse;
pub mod kernel_nbd;
pub mod netlink;
pub mod process;
pub mod remote;
pub mod request;
pub mod tree;
