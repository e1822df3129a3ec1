//! The parity functions over one row of blocks: generate, add, check, update, for any exponents.
//!
//! - All blocks of one call have the same length (any length, any alignment); P, Q and R too.
//! - An exponent is 0 ..= 254; the fast way is 0, 1, 2, ... in turn, any other order costs a few nanoseconds more.
//! - A block that is all zeros may be left out, with its exponent.
//! - A broken contract between callers (lengths, exponents) is a panic: nothing here comes from disk or network.

use crate::dispatch::Kernels;
use crate::gf;
use crate::terms::{Found, Outputs, P, Q, R, Step, Store, Terms, sort};

/// Blocks in one call with exponents, at most: as many exponents as there are.
pub const BLOCKS_MAX: usize = 255;

/// Calls `work` with the terms of these blocks.
fn with_terms<T>(
    blocks: &[&[u8]],
    exponents: &[u8],
    length: usize,
    work: impl FnOnce(&Terms<'_>) -> T,
) -> T {
    assert_eq!(blocks.len(), exponents.len(), "one exponent for each block");
    if exponents
        .iter()
        .enumerate()
        .all(|(index, &exponent)| usize::from(exponent) == index)
    {
        return work(&Terms::contiguous(blocks, length));
    }
    assert!(
        blocks.len() <= BLOCKS_MAX,
        "at most {BLOCKS_MAX} blocks with exponents"
    );
    let mut steps = [Step::default(); BLOCKS_MAX];
    let order = sort(exponents, &mut steps[..blocks.len()]);
    work(&Terms::ordered(blocks, length, order))
}

/// # Panics
/// All functions panic if blocks differ in length, if there is not one exponent for each block, or if an exponent is
/// over 254; those with exponents also above [`BLOCKS_MAX`] blocks.
impl Kernels {
    fn run(
        &self,
        set: u8,
        blocks: &[&[u8]],
        exponents: &[u8],
        mut outputs: Outputs<'_>,
        store: Store,
    ) {
        let length = outputs
            .iter()
            .flatten()
            .next()
            .expect("at least one output")
            .len();
        with_terms(blocks, exponents, length, |terms| {
            self.generate(set, terms, &mut outputs, store)
        });
    }

    fn run_p(&self, blocks: &[&[u8]], p: &mut [u8], store: Store) {
        let length = p.len();
        self.generate(
            P,
            &Terms::contiguous(blocks, length),
            &mut [Some(p), None, None],
            store,
        );
    }

    /// Adds (XOR) `source` to `target`.
    pub fn xor_into(&self, target: &mut [u8], source: &[u8]) {
        self.run_p(&[source], target, Store::Add);
    }

    /// P = the XOR of all `sources` (any number; none gives zeros).
    pub fn gen_p(&self, sources: &[&[u8]], p: &mut [u8]) {
        self.run_p(sources, p, Store::Set);
    }

    /// Q = the sum of 2^exponent times source.
    pub fn gen_q(&self, sources: &[&[u8]], exponents: &[u8], q: &mut [u8]) {
        self.run(Q, sources, exponents, [None, Some(q), None], Store::Set);
    }

    /// P and Q in one pass.
    pub fn gen_pq(&self, sources: &[&[u8]], exponents: &[u8], p: &mut [u8], q: &mut [u8]) {
        self.run(
            P | Q,
            sources,
            exponents,
            [Some(p), Some(q), None],
            Store::Set,
        );
    }

    /// P, Q and R in one pass; R = the sum of 4^exponent times source.
    pub fn gen_pqr(
        &self,
        sources: &[&[u8]],
        exponents: &[u8],
        p: &mut [u8],
        q: &mut [u8],
        r: &mut [u8],
    ) {
        self.run(
            P | Q | R,
            sources,
            exponents,
            [Some(p), Some(q), Some(r)],
            Store::Set,
        );
    }

    /// Adds the share of all `sources` (any number) to P.
    ///
    /// Old and new contents of any blocks as sources bring P up to date.
    pub fn add_p(&self, sources: &[&[u8]], p: &mut [u8]) {
        self.run_p(sources, p, Store::Add);
    }

    /// Adds the shares of the sources to P and Q.
    ///
    /// Exponents may repeat: old and new contents of a block, both with its exponent, bring P and Q up to date.
    pub fn add_pq(&self, sources: &[&[u8]], exponents: &[u8], p: &mut [u8], q: &mut [u8]) {
        self.run(
            P | Q,
            sources,
            exponents,
            [Some(p), Some(q), None],
            Store::Add,
        );
    }

    /// Adds the shares of the sources to P, Q and R; see [`add_pq`](Kernels::add_pq).
    pub fn add_pqr(
        &self,
        sources: &[&[u8]],
        exponents: &[u8],
        p: &mut [u8],
        q: &mut [u8],
        r: &mut [u8],
    ) {
        self.run(
            P | Q | R,
            sources,
            exponents,
            [Some(p), Some(q), Some(r)],
            Store::Add,
        );
    }

    /// Brings P up to date after one block changed from `old` to `new`.
    pub fn update_p(&self, old: &[u8], new: &[u8], p: &mut [u8]) {
        self.add_p(&[old, new], p);
    }

    /// Brings P and Q up to date after the block with this exponent changed from `old` to `new`.
    pub fn update_pq(&self, old: &[u8], new: &[u8], exponent: u8, p: &mut [u8], q: &mut [u8]) {
        self.add_pq(&[old, new], &[exponent; 2], p, q);
    }

    /// Brings P, Q and R up to date after the block with this exponent changed from `old` to `new`.
    pub fn update_pqr(
        &self,
        old: &[u8],
        new: &[u8],
        exponent: u8,
        p: &mut [u8],
        q: &mut [u8],
        r: &mut [u8],
    ) {
        self.add_pqr(&[old, new], &[exponent; 2], p, q, r);
    }

    /// Adds `coefficient` times `source` to `target`.
    pub fn mul_add(&self, coefficient: u8, source: &[u8], target: &mut [u8]) {
        match gf::logarithm(coefficient) {
            Some(exponent) => self.run(
                Q,
                &[source],
                &[exponent],
                [None, Some(target), None],
                Store::Add,
            ),
            None => assert_eq!(
                source.len(),
                target.len(),
                "all blocks of a call have one length"
            ),
        }
    }

    fn find(&self, blocks: &[&[u8]], exponents: &[u8], found: Found<'_>) -> Option<usize> {
        let length = found
            .iter()
            .flatten()
            .next()
            .expect("at least one parity")
            .len();
        with_terms(blocks, exponents, length, |terms| self.check(terms, &found))
    }

    /// The first offset at which `p` is not the XOR of all `sources`; `None` if there is none.
    pub fn check_p(&self, sources: &[&[u8]], p: &[u8]) -> Option<usize> {
        self.check(&Terms::contiguous(sources, p.len()), &[Some(p), None, None])
    }

    /// The first offset at which P or Q is wrong; `None` if there is none.
    pub fn check_pq(
        &self,
        sources: &[&[u8]],
        exponents: &[u8],
        p: &[u8],
        q: &[u8],
    ) -> Option<usize> {
        self.find(sources, exponents, [Some(p), Some(q), None])
    }

    /// The first offset at which P, Q or R is wrong; `None` if there is none.
    pub fn check_pqr(
        &self,
        sources: &[&[u8]],
        exponents: &[u8],
        p: &[u8],
        q: &[u8],
        r: &[u8],
    ) -> Option<usize> {
        self.find(sources, exponents, [Some(p), Some(q), Some(r)])
    }
}
