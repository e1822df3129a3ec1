//! What lies on a volume, as far as its first bytes say how large it is. Pure.
//!
//! Sources: the on-disk formats of ext4 (superblock at 1024), XFS (superblock at 0), btrfs (superblock at 64 KiB), and
//! the GUID partition table (header in the second sector).

/// Bytes from the beginning of a volume that are looked at.
pub const CONTENT_BYTES: usize = 68 << 10;

/// Something that knows its own size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// What it is, for messages.
    pub what: &'static str,
    /// Bytes that it needs.
    pub size_bytes: u64,
}

/// What the first bytes of a volume say. `None`: nothing that is known here.
#[must_use]
pub fn recognise(head: &[u8]) -> Option<Content> {
    ext(head)
        .or_else(|| xfs(head))
        .or_else(|| btrfs(head))
        .or_else(|| gpt(head))
}

fn bytes<const N: usize>(head: &[u8], at: usize) -> Option<[u8; N]> {
    head.get(at..at + N)?.try_into().ok()
}

fn ext(head: &[u8]) -> Option<Content> {
    const START: usize = 1024;
    if bytes::<2>(head, START + 56)? != [0x53, 0xef] {
        return None;
    }
    let low = u32::from_le_bytes(bytes(head, START + 4)?);
    let is_64_bit = u32::from_le_bytes(bytes(head, START + 96)?) & 0x80 != 0;
    let high = match is_64_bit {
        true => u32::from_le_bytes(bytes(head, START + 0x150)?),
        false => 0,
    };
    let shift = u32::from_le_bytes(bytes(head, START + 24)?);
    let block = 1024_u64.checked_shl(shift).filter(|_| shift <= 6)?;
    Some(Content {
        what: "ext file system",
        size_bytes: (u64::from(high) << 32 | u64::from(low)).checked_mul(block)?,
    })
}

fn xfs(head: &[u8]) -> Option<Content> {
    if &bytes::<4>(head, 0)? != b"XFSB" {
        return None;
    }
    let block = u64::from(u32::from_be_bytes(bytes(head, 4)?));
    let count = u64::from_be_bytes(bytes(head, 8)?);
    Some(Content {
        what: "XFS file system",
        size_bytes: count.checked_mul(block)?,
    })
}

fn btrfs(head: &[u8]) -> Option<Content> {
    const START: usize = 65_536;
    if &bytes::<8>(head, START + 64)? != b"_BHRfS_M" {
        return None;
    }
    // The item of this very device: of several it is the part that lies here.
    let size_bytes = u64::from_le_bytes(bytes(head, START + 201 + 8)?);
    Some(Content {
        what: "btrfs file system",
        size_bytes,
    })
}

fn gpt(head: &[u8]) -> Option<Content> {
    if &bytes::<8>(head, 512)? != b"EFI PART" {
        return None;
    }
    let last = u64::from_le_bytes(bytes(head, 512 + 32)?);
    Some(Content {
        what: "partition table",
        size_bytes: last.checked_add(1)?.checked_mul(512)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_known_is_nothing_and_short_heads_are_no_harm() {
        assert_eq!(recognise(&[0; CONTENT_BYTES]), None);
        for length in 0..2048 {
            assert_eq!(recognise(&vec![0x53; length]), None);
        }
    }

    #[test]
    fn a_file_system_says_how_large_it_is() {
        let mut head = vec![0; CONTENT_BYTES];
        head[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
        head[1024 + 4..1024 + 8].copy_from_slice(&5000_u32.to_le_bytes());
        head[1024 + 24] = 2;
        let size_bytes = 5000 * 4096;
        let what = "ext file system";
        assert_eq!(recognise(&head), Some(Content { what, size_bytes }));
        let mut head = vec![0; CONTENT_BYTES];
        head[..4].copy_from_slice(b"XFSB");
        head[4..8].copy_from_slice(&4096_u32.to_be_bytes());
        head[8..16].copy_from_slice(&7000_u64.to_be_bytes());
        assert_eq!(
            recognise(&head).map(|found| found.size_bytes),
            Some(7000 * 4096)
        );
        let mut head = vec![0; CONTENT_BYTES];
        head[512..520].copy_from_slice(b"EFI PART");
        head[512 + 32..512 + 40].copy_from_slice(&2047_u64.to_le_bytes());
        assert_eq!(
            recognise(&head).map(|found| found.size_bytes),
            Some(1 << 20)
        );
    }
}
