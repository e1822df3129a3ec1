//! The bytes of a block as they were read: one piece after another, not copied together.

use std::ops::Range;

use plexum_block::buf::BufMut;
use plexum_format::zfs::{ChecksumKind, Digest};
use plexum_parity::Fletcher4;

/// One piece.
pub(crate) struct Bytes {
    store: Store,
    range: Range<usize>,
}

enum Store {
    Pooled(BufMut),
    Own(Vec<u8>),
}

impl Bytes {
    /// The part `range` of a buffer, which is inside of it.
    pub(crate) fn part_of(buf: BufMut, range: Range<usize>) -> Self {
        Self {
            store: Store::Pooled(buf),
            range,
        }
    }

    fn truncate(&mut self, length: usize) {
        self.range.end = self.range.end.min(self.range.start + length);
    }
}

impl std::ops::Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        let bytes: &[u8] = match &self.store {
            Store::Pooled(buf) => buf,
            Store::Own(bytes) => bytes,
        };
        &bytes[self.range.clone()]
    }
}

/// The bytes of a verified block, in pieces.
#[derive(Default)]
pub struct Parts(Vec<Bytes>);

impl Parts {
    pub(crate) fn of(parts: Vec<Bytes>) -> Self {
        Self(parts)
    }

    pub(crate) fn own(bytes: Vec<u8>) -> Self {
        let range = 0..bytes.len();
        let store = Store::Own(bytes);
        Self(vec![Bytes { store, range }])
    }

    pub(crate) fn pooled(buf: BufMut) -> Self {
        let range = 0..buf.len();
        Self(vec![Bytes::part_of(buf, range)])
    }

    /// The pieces in their order.
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|part| &**part)
    }

    /// Bytes of all pieces.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.slices().map(<[u8]>::len).sum()
    }

    /// Takes away what is behind the first `length_bytes`.
    pub(crate) fn truncate(&mut self, mut length_bytes: usize) {
        for part in &mut self.0 {
            part.truncate(length_bytes);
            length_bytes -= part.len();
        }
        self.0.retain(|part| !part.is_empty());
    }

    /// All pieces as one, copied only when there are several.
    pub(crate) fn whole(&self) -> std::borrow::Cow<'_, [u8]> {
        match self.0.as_slice() {
            [one] => (&**one).into(),
            _ => self.slices().collect::<Vec<_>>().concat().into(),
        }
    }

    /// As [`whole`](Self::whole), to keep.
    pub(crate) fn into_vec(mut self) -> Vec<u8> {
        if let [
            Bytes {
                store: Store::Own(bytes),
                range,
            },
        ] = self.0.as_mut_slice()
            && range.start == 0
        {
            bytes.truncate(range.end);
            return std::mem::take(bytes);
        }
        self.whole().into_owned()
    }
}

/// The first `length_bytes` of pieces.
pub(crate) fn first_of<'a>(
    parts: impl Iterator<Item = &'a [u8]>,
    length_bytes: usize,
) -> Vec<&'a [u8]> {
    let mut left = length_bytes;
    let cut = parts.map(|part| {
        let part = &part[..part.len().min(left)];
        left -= part.len();
        part
    });
    cut.filter(|part| !part.is_empty()).collect()
}

/// Whether a block has this checksum. Fletcher's sums are taken by the vectors of the machine.
pub(crate) fn has_checksum(kind: ChecksumKind, digest: Digest, parts: &[&[u8]]) -> bool {
    if kind == ChecksumKind::Fletcher4 && parts.iter().all(|part| part.len() % 4 == 0) {
        let mut sum = Fletcher4::default();
        parts.iter().for_each(|part| sum.add(part));
        return sum.sums() == digest;
    }
    kind == ChecksumKind::Off || kind.compute_parts(parts) == Some(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plexum_block::buf::BufPool;

    fn parts() -> Parts {
        let pool = BufPool::new(0);
        let piece = |bytes: &[u8]| Bytes::part_of(pool.copy_of(bytes), 1..bytes.len());
        Parts::of(vec![piece(b"-abc"), piece(b"-de"), piece(b"-f")])
    }

    #[test]
    fn pieces_are_cut_and_put_together_in_their_order() {
        for length in 0..8 {
            let expected = &b"abcdef"[..length.min(6)];
            let all = parts();
            assert_eq!(first_of(all.slices(), length).concat(), expected);
            let mut cut = parts();
            cut.truncate(length);
            assert_eq!(
                (cut.length_bytes(), &*cut.whole()),
                (expected.len(), expected)
            );
            assert_eq!(cut.into_vec(), expected);
        }
        let mut own = Parts::own(b"abc".to_vec());
        own.truncate(2);
        assert_eq!(own.into_vec(), b"ab");
    }

    #[test]
    fn every_kind_of_checksum_is_that_of_the_whole() {
        let bytes: Vec<u8> = (0..1024_u32).map(|n| (n * 5 / 4) as u8).collect();
        let pieces = [&bytes[..512], &bytes[512..]];
        for number in 0..20 {
            let kind = ChecksumKind::of(number);
            let Some(digest) = kind.compute(&bytes) else {
                assert_eq!(
                    has_checksum(kind, [0; 4], &pieces),
                    kind == ChecksumKind::Off
                );
                continue;
            };
            assert!(has_checksum(kind, digest, &pieces), "{kind:?}");
            assert!(!has_checksum(
                kind,
                [digest[0] ^ 1, digest[1], digest[2], digest[3]],
                &pieces
            ));
            assert!(!has_checksum(kind, digest, &pieces[..1]));
        }
    }
}
