//! Which way a durable write takes (W14): the write itself where that is proven for the file system, otherwise a write
//! and an fsync.
//!
//! A flag of one write (`RWF_DSYNC`) is a promise of the kernel's interface that each file system has to keep by
//! itself. FUSE does not when io_uring goes past the page cache (Linux 6.18): of 20 such writes none was in the store
//! when it was answered.

use plexum_block::device::FuaWay;

/// File systems on which a durable write was seen to flush the disk before it was answered, by all ways that are used
/// here; those in memory have no disk. The number is `f_type` of statfs. Kept by `tests/durable_writes_are_proven.rs`:
/// none is added without a proof.
pub const PROVEN: [(u32, &str); 5] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// The way for a file on the file system `f_type`. Everything that is not on the list is not believed: FUSE, NFS, CIFS,
/// 9p, overlay.
pub(crate) fn way_on(f_type: u32) -> FuaWay {
    if PROVEN.iter().any(|(proven, _)| *proven == f_type) {
        FuaWay::InWrite
    } else {
        FuaWay::ByFsync
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_on_the_list_is_not_believed() {
        assert_eq!(way_on(0xef53), FuaWay::InWrite);
        for (f_type, name) in [
            (0x6573_5546, "FUSE"),
            (0x6969, "NFS"),
            (0xff53_4d42, "CIFS"),
            (0xfe53_4d42, "SMB2"),
            (0x0102_1997, "9p"),
            (0x794c_7630, "overlay"),
            (0x2fc1_2fc1, "ZFS"),
            (0, "none"),
        ] {
            assert_eq!(way_on(f_type), FuaWay::ByFsync, "{name}");
        }
    }
}
