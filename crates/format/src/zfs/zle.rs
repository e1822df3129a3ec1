//! ZLE: literals and runs of zeroes.
//!
//! Source: zfs-raidz.md 2.3.

/// Length bytes below this announce literals.
const LITERALS: usize = 64;

/// Fills `out` from `input`; `false` when the input ends early.
#[must_use]
pub fn decompress(input: &[u8], out: &mut [u8]) -> bool {
    let (mut from, mut at) = (0, 0);
    while at < out.len() {
        let Some(&count) = input.get(from) else {
            return false;
        };
        from += 1;
        let count = usize::from(count);
        if count >= LITERALS {
            let end = (at + count - LITERALS + 1).min(out.len());
            out[at..end].fill(0);
            at = end;
            continue;
        }
        let length = (count + 1).min(out.len() - at);
        let Some(literals) = input.get(from..from + length) else {
            return false;
        };
        out[at..at + length].copy_from_slice(literals);
        from += length;
        at += length;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_zeroes_come_out() {
        let mut out = [9; 6];
        assert!(decompress(&[1, b'a', b'b', 64 + 2, 0, b'c'], &mut out));
        assert_eq!(&out, b"ab\0\0\0c");
        assert!(!decompress(&[1, b'a'], &mut out));
        assert!(!decompress(&[], &mut out));
    }
}
