//! LZJB: copies of up to 66 bytes from up to 1023 back, eight items after each mask.
//!
//! Source: zfs-raidz.md 2.3.

/// Fills `out` from `input`; `false` when the input ends early or copies from before the start.
#[must_use]
pub fn decompress(input: &[u8], out: &mut [u8]) -> bool {
    let mut bytes = input.iter().copied();
    let (mut at, mut mask, mut bit) = (0, 0, 8);
    while at < out.len() {
        if bit == 8 {
            let Some(next) = bytes.next() else {
                return false;
            };
            (mask, bit) = (next, 0);
        }
        let is_copy = mask >> bit & 1 == 1;
        bit += 1;
        let Some(first) = bytes.next() else {
            return false;
        };
        if !is_copy {
            out[at] = first;
            at += 1;
            continue;
        }
        let Some(second) = bytes.next() else {
            return false;
        };
        let length = usize::from(first >> 2) + 3;
        let distance = usize::from(first & 3) << 8 | usize::from(second);
        if distance == 0 || distance > at {
            return false;
        }
        let end = (at + length).min(out.len());
        // Byte by byte: a copy may overlap what it writes.
        for target in at..end {
            out[target] = out[target - distance];
        }
        at = end;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_overlapping_copies_come_out() {
        let mut out = [0; 9];
        // "ab", then 7 bytes from 2 back.
        assert!(decompress(&[0b100, b'a', b'b', (7 - 3) << 2, 2], &mut out));
        assert_eq!(&out, b"ababababa");
    }

    #[test]
    fn bad_input_is_refused() {
        let mut out = [0; 9];
        assert!(!decompress(&[], &mut out));
        assert!(!decompress(&[0, b'a'], &mut out));
        assert!(!decompress(&[1, 0, 1], &mut out), "from before the start");
        assert!(!decompress(&[2, b'a', 0, 0], &mut out), "from nowhere");
    }
}
