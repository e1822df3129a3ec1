//! Sparse storage: pages of 4 KiB that exist only where something was written.
//!
//! Invariant: what was never written reads as zeroes.

use std::collections::BTreeMap;

/// Size of a page in bytes.
const PAGE_BYTES: usize = 4096;

type Page = Box<[u8; PAGE_BYTES]>;

/// Contents of a disk, cheap for large disks with little on them.
#[derive(Clone, Default)]
pub struct Sparse {
    pages: BTreeMap<u64, Page>,
}

impl Sparse {
    /// Fills `target` with the bytes at `offset_bytes`.
    pub fn read(&self, offset_bytes: u64, target: &mut [u8]) {
        for (page, inside, piece) in pieces(offset_bytes, target.len()) {
            let part = &mut target[piece.clone()];
            match self.pages.get(&page) {
                Some(bytes) => part.copy_from_slice(&bytes[inside..inside + piece.len()]),
                None => part.fill(0),
            }
        }
    }

    /// Stores `source` at `offset_bytes`.
    pub fn write(&mut self, offset_bytes: u64, source: &[u8]) {
        for (page, inside, piece) in pieces(offset_bytes, source.len()) {
            let length = piece.len();
            let bytes = self
                .pages
                .entry(page)
                .or_insert_with(|| Box::new([0; PAGE_BYTES]));
            bytes[inside..inside + length].copy_from_slice(&source[piece]);
        }
    }

    /// Makes a range read as zeroes; whole pages are given back.
    pub fn zero(&mut self, offset_bytes: u64, length_bytes: u64) {
        let length = usize::try_from(length_bytes).expect("simulated disks fit into memory");
        for (page, inside, piece) in pieces(offset_bytes, length) {
            if piece.len() == PAGE_BYTES {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[inside..inside + piece.len()].fill(0);
            }
        }
    }

    /// Copies a range from `other`, holes included.
    pub fn copy_from(&mut self, other: &Sparse, offset_bytes: u64, length_bytes: u64) {
        let length = usize::try_from(length_bytes).expect("simulated disks fit into memory");
        for (page, inside, piece) in pieces(offset_bytes, length) {
            match other.pages.get(&page) {
                Some(bytes) => {
                    let range = inside..inside + piece.len();
                    let mine = self
                        .pages
                        .entry(page)
                        .or_insert_with(|| Box::new([0; PAGE_BYTES]));
                    mine[range.clone()].copy_from_slice(&bytes[range]);
                }
                None => self.zero(page * PAGE_BYTES as u64 + inside as u64, piece.len() as u64),
            }
        }
    }

    /// Flips the bits of `mask` in the byte at `offset_bytes`.
    pub fn flip(&mut self, offset_bytes: u64, mask: u8) {
        let mut byte = [0];
        self.read(offset_bytes, &mut byte);
        self.write(offset_bytes, &[byte[0] ^ mask]);
    }

    /// Whether any byte of the range is stored (not a hole).
    #[must_use]
    pub fn is_allocated(&self, offset_bytes: u64, length_bytes: u64) -> bool {
        let page_bytes = PAGE_BYTES as u64;
        let end = offset_bytes
            .saturating_add(length_bytes)
            .div_ceil(page_bytes);
        self.pages
            .range(offset_bytes / page_bytes..end)
            .next()
            .is_some()
    }

    /// Bytes stored.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES as u64
    }
}

/// Cuts a range at page borders: (page, offset in the page, range in the caller's slice).
fn pieces(
    offset_bytes: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset_bytes + done as u64;
        let inside = (at % PAGE_BYTES as u64) as usize;
        let count = (PAGE_BYTES - inside).min(length - done);
        let piece = done..done + count;
        done += count;
        Some((at / PAGE_BYTES as u64, inside, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_behaves_like_a_plain_array() {
        let mut rng = crate::rng::Rng::new(3);
        let (mut sparse, mut plain) = (Sparse::default(), vec![0u8; 40_000]);
        for _ in 0..300 {
            let offset = rng.below(39_000) as usize;
            let length = rng.between(1, (40_000 - offset).min(9000) as u64) as usize;
            if rng.chance(1, 4) {
                sparse.zero(offset as u64, length as u64);
                plain[offset..offset + length].fill(0);
            } else {
                let bytes: Vec<u8> = (0..length).map(|_| rng.below(256) as u8).collect();
                sparse.write(offset as u64, &bytes);
                plain[offset..offset + length].copy_from_slice(&bytes);
            }
            let mut seen = vec![9; 40_000];
            sparse.read(0, &mut seen);
            assert!(seen == plain);
        }
    }

    #[test]
    fn a_hole_is_copied_as_a_hole() {
        let (mut one, other) = (Sparse::default(), Sparse::default());
        one.write(0, &[7; 8192]);
        one.copy_from(&other, 0, 4096);
        assert!(!one.is_allocated(0, 4096));
        assert!(one.is_allocated(0, 4097));
        assert_eq!(one.allocated_bytes(), 4096);
    }
}
