//! Which device is whose: a number that the driver keeps for a server, made of what the volume is.
//!
//! Invariants: the same volume has the same number for ever, whatever serves it and wherever its members are; the
//! number of another server's device is ours by an accident of one in 2^64 alone.

/// The number of the volume that `key` names: FNV-1a of 64 bits. Never 0, which devices of others have.
///
/// Source: the parameters of FNV-1a are those that its authors publish.
#[must_use]
pub fn server_word(key: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in b"plexum ublk ".iter().chain(key.as_bytes()) {
        hash ^= u64::from(*byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_number_and_others_have_others() {
        // Kept by drivers across versions of this program: these numbers never change.
        assert_eq!(server_word("md 1"), server_word("md 1"));
        assert_ne!(server_word("md 1"), server_word("md 2"));
        assert_ne!(server_word(""), 0);
    }
}
