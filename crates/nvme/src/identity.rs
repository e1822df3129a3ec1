//! What a volume is called in NVMe: made of its own identity alone, so that it is the same for ever, whatever serves
//! it.

use std::fmt;

/// The identity of a subsystem and of its only namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    uuid: [u8; 16],
}

impl Identity {
    /// Of a volume whose metadata have a UUID.
    #[must_use]
    pub fn of_uuid(uuid: [u8; 16]) -> Self {
        Self { uuid }
    }

    /// Of a volume that is known by something else: a UUID of version 8 (RFC 9562, "custom"), made of two FNV-1a of 64
    /// bits.
    #[must_use]
    pub fn of_key(key: &str) -> Self {
        let (high, low) = (
            fnv1a("plexum nvme high ", key),
            fnv1a("plexum nvme low ", key),
        );
        let mut uuid = [0; 16];
        uuid[..8].copy_from_slice(&high.to_be_bytes());
        uuid[8..].copy_from_slice(&low.to_be_bytes());
        uuid[6] = uuid[6] & 0x0f | 0x80; // version
        uuid[8] = uuid[8] & 0x3f | 0x80; // variant
        Self { uuid }
    }

    /// NGUID of the namespace, and its UUID.
    #[must_use]
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// NQN of the subsystem: the form for those who have a UUID and no domain.
    #[must_use]
    pub fn subsystem(&self) -> String {
        format!("nqn.2014-08.org.nvmexpress:uuid:{self}")
    }

    /// Serial number of its controllers: a part of the UUID, since the field has 20 characters.
    #[must_use]
    pub fn serial(&self) -> String {
        let digits = self.uuid.iter().map(|byte| format!("{byte:02x}"));
        digits.take(10).collect()
    }
}

impl fmt::Display for Identity {
    /// As UUIDs are written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.uuid.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// Source: the parameters of FNV-1a are those that its authors publish.
fn fnv1a(prefix: &str, key: &str) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in prefix.bytes().chain(key.bytes()) {
        hash ^= u64::from(byte);
        hash = hash.wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_volume_has_one_name_and_others_have_others() {
        let uuid: [u8; 16] = std::array::from_fn(|at| at as u8);
        let identity = Identity::of_uuid(uuid);
        assert_eq!(
            identity.subsystem(),
            "nqn.2014-08.org.nvmexpress:uuid:00010203-0405-0607-0809-0a0b0c0d0e0f"
        );
        assert_eq!(identity.serial(), "00010203040506070809");
        // Hosts keep these: they never change.
        let known = Identity::of_key("gmirror_nas_1234");
        assert_eq!(known, Identity::of_key("gmirror_nas_1234"));
        assert_ne!(known, Identity::of_key("gmirror_nas_1235"));
        assert_eq!(known.uuid()[6] >> 4, 8);
    }
}
