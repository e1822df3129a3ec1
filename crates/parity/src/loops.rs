//! The loops of every kernel, written once: a macro that each instruction set's file completes with its vector type.
//!
//! A file that uses [`kernels!`] has in scope
//! - `Vector`, `VECTOR` (its bytes), and the vectors of each block per step: `STEP_P` to generate P, `STEP` to check P
//!   and to solve, `STEP_PQ` to generate P with Q in the caches, `STEP_Q` to do so past them, to generate Q alone and
//!   to check it, `STEP_R` for all that has R,
//! - `zero`, `load`, `store`, `xor`, `double_add(x, d)` = 2 x + d, `quadruple_add(x, d)` = 4 x + d, `is_zero`,
//! - `stream`: as `store`, to an address that is a multiple of `VECTOR`, past the caches where the processor can do
//!   that; what was stored so is in order with other stores after `fence`,
//! - `biased(x)`: x plus the constant that the running sums of Q have in this kernel, where `double_add` is cheaper on
//!   sums that have one (gf.rs, `BIAS`); elsewhere x itself. Additions of data keep it, products do not.
//! - `Coefficient`, `coefficient(c)` and `multiply(x, &coefficient)`.
//!
//! The loops go once over all blocks, one step of each block at a time, so that a stripe of any size passes the cache
//! once; the sums of a step stay in registers. What remains after the last whole step goes to the next simpler kernel.
//! `USE` only tells the callers of `sums` apart: a function with one caller is inlined, and its result never leaves the
//! registers (`inline(always)` is not to be had together with a target feature).

/// Completes an instruction set's file with `generate`, `check` and `solve`, for use in a `Kernels` table.
///
/// The arguments are the module that does the rest after the last whole step, and the attributes of each function: the
/// target features.
macro_rules! kernels {
    ($rest:path, $(#[$feature:meta])*) => {
        use crate::cache::is_past_cache;
        use crate::gf;
        use crate::terms::{Found, Outputs, P, Q, R, Row, Store, Terms};
        use $rest as rest;

        const PQ: u8 = P | Q;
        const PR: u8 = P | R;
        const QR: u8 = Q | R;
        const PQR: u8 = P | Q | R;

        /// Adds one vector-sized part of each of `N` neighbours at `block` to the sums, after one doubling.
        ///
        /// # Safety
        /// `block` points to `N` vectors that may be read.
        $(#[$feature])*
        #[inline]
        unsafe fn add_block<const SET: u8, const N: usize>(sums: &mut [[Vector; N]; 3], block: *const u8) {
            for v in 0..N {
                // SAFETY: v < N, and the caller promises N vectors.
                let data = unsafe { load(block.add(v * VECTOR)) };
                if SET & P != 0 {
                    sums[0][v] = xor(sums[0][v], data);
                }
                if SET & Q != 0 {
                    sums[1][v] = double_add(sums[1][v], data);
                }
                if SET & R != 0 {
                    sums[2][v] = quadruple_add(sums[2][v], data);
                }
            }
        }

        /// The same without the doubling.
        ///
        /// # Safety
        /// `block` points to `N` vectors that may be read.
        $(#[$feature])*
        #[inline]
        unsafe fn add_plain<const SET: u8, const N: usize>(sums: &mut [[Vector; N]; 3], block: *const u8) {
            for v in 0..N {
                // SAFETY: v < N, and the caller promises N vectors.
                let data = unsafe { load(block.add(v * VECTOR)) };
                for i in 0..3 {
                    if SET & 1 << i != 0 {
                        sums[i][v] = xor(sums[i][v], data);
                    }
                }
            }
        }

        /// Multiplies the sums of Q by 2^`gap`, those of R by 4^`gap`.
        $(#[$feature])*
        #[inline]
        fn raise<const SET: u8, const N: usize>(sums: &mut [[Vector; N]; 3], gap: u8) {
            if gap == 0 {
                return;
            }
            if SET & Q != 0 {
                let power = coefficient(gf::EXP[usize::from(gap)]);
                sums[1] = sums[1].map(|sum| biased(multiply(biased(sum), &power)));
            }
            if SET & R != 0 {
                let power = coefficient(gf::EXP[2 * usize::from(gap)]);
                sums[2] = sums[2].map(|sum| multiply(sum, &power));
            }
        }

        /// The sums P, Q, R (those in `SET`, zero else) of `N` vectors of all blocks.
        ///
        /// # Safety
        /// `offset` + `N` vectors is at most the blocks' length.
        $(#[$feature])*
        #[inline]
        unsafe fn sums<const SET: u8, const N: usize, const USE: u8>(terms: &Terms<'_>, offset: usize) -> [[Vector; N]; 3] {
            let blocks = terms.blocks();
            let mut sums = [[zero(); N]; 3];
            if SET & Q != 0 {
                sums[1] = sums[1].map(|sum| biased(sum));
            }
            match terms.order() {
                None => {
                    let Some((last, rest)) = blocks.split_last() else { return [[zero(); N]; 3] };
                    // SAFETY: the block has the terms' length, and the caller promises that the step is inside it.
                    unsafe { add_plain::<SET, N>(&mut sums, last.as_ptr().add(offset)) };
                    for block in rest.iter().rev() {
                        // SAFETY: as above.
                        unsafe { add_block::<SET, N>(&mut sums, block.as_ptr().add(offset)) };
                    }
                }
                Some(order) => {
                    for step in order.steps() {
                        let block = blocks[usize::from(step.index)];
                        if step.gap == 1 {
                            // SAFETY: as above.
                            unsafe { add_block::<SET, N>(&mut sums, block.as_ptr().add(offset)) };
                        } else {
                            raise::<SET, N>(&mut sums, step.gap);
                            // SAFETY: as above.
                            unsafe { add_plain::<SET, N>(&mut sums, block.as_ptr().add(offset)) };
                        }
                    }
                    raise::<SET, N>(&mut sums, order.tail());
                }
            }
            if SET & Q != 0 {
                sums[1] = sums[1].map(|sum| biased(sum));
            }
            sums
        }

        /// Stores the sums of one step, past the caches or not, or adds them to what the outputs hold.
        ///
        /// # Safety
        /// `offset` + `N` vectors is at most the length behind each pointer of the set; past the caches, each place is
        /// a multiple of a vector.
        $(#[$feature])*
        #[inline]
        unsafe fn put<const SET: u8, const N: usize, const IS_PAST: bool>(
            sums: &[[Vector; N]; 3], outputs: &[*mut u8; 3], offset: usize, how: Store,
        ) {
            for i in 0..3 {
                if SET & 1 << i == 0 {
                    continue;
                }
                for v in 0..N {
                    // SAFETY: v < N, and the caller promises N vectors at this offset, and where they are.
                    unsafe {
                        let output = outputs[i].add(offset).add(v * VECTOR);
                        let sum = if how == Store::Add { xor(sums[i][v], load(output)) } else { sums[i][v] };
                        if IS_PAST { stream(output, sum) } else { store(output, sum) }
                    }
                }
            }
        }

        /// Where the outputs of the set are, each of `length` bytes; null for others.
        #[inline]
        fn pointers<const SET: u8>(outputs: &mut Outputs<'_>, length: usize) -> [*mut u8; 3] {
            let mut pointers = [std::ptr::null_mut(); 3];
            for (i, output) in outputs.iter_mut().enumerate() {
                if SET & 1 << i != 0 {
                    let output = output.as_mut().expect("an output for each parity of the set");
                    assert!(output.len() == length, "outputs have the blocks' length");
                    pointers[i] = output.as_mut_ptr();
                }
            }
            pointers
        }

        /// Whether what is stored past the caches may go there. Pointers of no output are null: aligned.
        #[inline]
        fn is_aligned(outputs: &[*mut u8; 3]) -> bool {
            outputs.iter().all(|output| output.addr() % VECTOR == 0)
        }

        $(#[$feature])*
        fn generate_set<const SET: u8, const N: usize>(
            terms: &Terms<'_>, from: usize, outputs: &mut Outputs<'_>, how: Store,
        ) {
            let length = terms.length();
            let pointers = pointers::<SET>(outputs, length);
            let mut offset = from;
            let is_aligned = from == 0 && is_aligned(&pointers);
            if is_aligned && how == Store::Set && is_past_cache(terms.blocks().len(), length) {
                while length - offset >= N * VECTOR {
                    // SAFETY: the loop's condition; blocks and outputs were checked to have this length, and outputs to
                    // be aligned.
                    unsafe { put::<SET, N, true>(&sums::<SET, N, 3>(terms, offset), &pointers, offset, Store::Set) };
                    offset += N * VECTOR;
                }
                fence();
            }
            while length - offset >= N * VECTOR {
                // SAFETY: the loop's condition; blocks and outputs were checked to have this length.
                unsafe { put::<SET, N, false>(&sums::<SET, N, 0>(terms, offset), &pointers, offset, how) };
                offset += N * VECTOR;
            }
            // What long steps leave is gone through in shorter ones.
            while N > STEP && length - offset >= STEP * VECTOR {
                // SAFETY: as above.
                unsafe { put::<SET, STEP, false>(&sums::<SET, STEP, 4>(terms, offset), &pointers, offset, how) };
                offset += STEP * VECTOR;
            }
            if offset < length {
                rest::generate(SET, terms, offset, outputs, how);
            }
        }

        /// One step of `generate_few`.
        ///
        /// # Safety
        /// `offset` + `N` vectors is at most the length behind each pointer of the blocks and of the set; past the
        /// caches, each output's place is a multiple of a vector.
        $(#[$feature])*
        #[inline]
        unsafe fn step_of_few<const SET: u8, const N: usize, const K: usize, const IS_PAST: bool, const USE: u8>(
            blocks: &[*const u8; K], outputs: &[*mut u8; 3], offset: usize,
        ) {
            let mut sums = [[zero(); N]; 3];
            if SET & Q != 0 {
                sums[1] = sums[1].map(|sum| biased(sum));
            }
            // SAFETY: the caller's promise.
            unsafe {
                add_plain::<SET, N>(&mut sums, blocks[K - 1].add(offset));
                for index in (0..K - 1).rev() {
                    add_block::<SET, N>(&mut sums, blocks[index].add(offset));
                }
                if SET & Q != 0 {
                    sums[1] = sums[1].map(|sum| biased(sum));
                }
                put::<SET, N, IS_PAST>(&sums, outputs, offset, Store::Set);
            }
        }

        /// How much of `length` bytes goes through in steps of `N` vectors: one less than there could be, if steps of
        /// `STEP` then end where the blocks do.
        const fn in_long_steps<const N: usize>(length: usize) -> usize {
            let vectors = length / VECTOR;
            let most = vectors / N;
            let is_one_less = most > 0 && (vectors - most * N) % STEP != 0 && (vectors - (most - 1) * N) % STEP == 0;
            let steps = if is_one_less { most - 1 } else { most };
            steps * N * VECTOR
        }

        /// The parities of `K` blocks with exponents 0, 1, 2, ... from their beginning, stored past the caches or not;
        /// how far it came: what is less than a step is left, and everything where what goes past the caches is not
        /// aligned.
        ///
        /// Their addresses stay in registers, and no step asks how many they are: of what the first-level cache gives,
        /// a sixth went into fetching addresses, and of rows whose blocks all begin at a page's border a quarter. More
        /// than eight do not fit.
        $(#[$feature])*
        fn generate_few<const SET: u8, const N: usize, const K: usize, const IS_PAST: bool>(
            terms: &Terms<'_>, outputs: &mut Outputs<'_>,
        ) -> usize {
            let length = terms.length();
            let blocks: [*const u8; K] = std::array::from_fn(|index| terms.blocks()[index].as_ptr());
            let pointers = pointers::<SET>(outputs, length);
            if IS_PAST && !is_aligned(&pointers) {
                return 0;
            }
            let long = if N > STEP { in_long_steps::<N>(length) } else { length };
            let mut offset = 0;
            while long - offset >= N * VECTOR {
                // SAFETY: the loop's condition; blocks and outputs were checked to have this length, and outputs to be
                // aligned.
                unsafe { step_of_few::<SET, N, K, IS_PAST, 0>(&blocks, &pointers, offset) };
                offset += N * VECTOR;
            }
            while N > STEP && length - offset >= STEP * VECTOR {
                // SAFETY: as above.
                unsafe { step_of_few::<SET, STEP, K, IS_PAST, 1>(&blocks, &pointers, offset) };
                offset += STEP * VECTOR;
            }
            if IS_PAST {
                fence();
            }
            offset
        }

        /// `generate_few` for as many blocks as there are; 0 where they are too many.
        $(#[$feature])*
        fn generate_count<const SET: u8, const N: usize, const IS_PAST: bool>(terms: &Terms<'_>, outputs: &mut Outputs<'_>) -> usize {
            match terms.blocks().len() {
                2 => generate_few::<SET, N, 2, IS_PAST>(terms, outputs),
                3 => generate_few::<SET, N, 3, IS_PAST>(terms, outputs),
                4 => generate_few::<SET, N, 4, IS_PAST>(terms, outputs),
                5 => generate_few::<SET, N, 5, IS_PAST>(terms, outputs),
                6 => generate_few::<SET, N, 6, IS_PAST>(terms, outputs),
                7 => generate_few::<SET, N, 7, IS_PAST>(terms, outputs),
                8 => generate_few::<SET, N, 8, IS_PAST>(terms, outputs),
                _ => 0,
            }
        }

        /// `generate_set`, faster for few blocks; `N` vectors in a step in the caches, `PAST` in one past them.
        $(#[$feature])*
        fn generate_any<const SET: u8, const N: usize, const PAST: usize>(
            terms: &Terms<'_>, from: usize, outputs: &mut Outputs<'_>, how: Store,
        ) {
            let is_plain = from == 0 && how == Store::Set && terms.order().is_none();
            let done = if !is_plain {
                from
            } else if is_past_cache(terms.blocks().len(), terms.length()) {
                generate_count::<SET, PAST, true>(terms, outputs)
            } else {
                generate_count::<SET, N, false>(terms, outputs)
            };
            if done < terms.length() {
                generate_set::<SET, PAST>(terms, done, outputs, how);
            }
        }

        /// Computes the parities of `set` into the outputs from offset `from` on, or adds to them.
        $(#[$feature])*
        pub(crate) fn generate(set: u8, terms: &Terms<'_>, from: usize, outputs: &mut Outputs<'_>, how: Store) {
            match set {
                P => generate_any::<P, STEP_P, STEP_P>(terms, from, outputs, how),
                Q => generate_set::<Q, STEP_Q>(terms, from, outputs, how),
                // Products with tables, as other orders and updates need them, like longer steps better.
                PQ if terms.order().is_some() => generate_set::<PQ, STEP>(terms, from, outputs, how),
                PQ => generate_any::<PQ, STEP_PQ, STEP_Q>(terms, from, outputs, how),
                _ => generate_any::<PQR, STEP_R, STEP_R>(terms, from, outputs, how),
            }
        }

        /// Whether all parities of the set agree with the sums of one step.
        ///
        /// # Safety
        /// `offset` + `N` vectors is at most the length of each parity of the set.
        $(#[$feature])*
        #[inline]
        unsafe fn agrees<const SET: u8, const N: usize>(
            sums: &[[Vector; N]; 3], found: &Found<'_>, offset: usize,
        ) -> bool {
            let mut difference = zero();
            for i in 0..3 {
                if let (true, Some(found)) = (SET & 1 << i != 0, found[i]) {
                    for v in 0..N {
                        // SAFETY: v < N, and the caller promises N vectors at this offset.
                        let found = unsafe { load(found.as_ptr().add(offset).add(v * VECTOR)) };
                        difference = or(difference, xor(sums[i][v], found));
                    }
                }
            }
            is_zero(difference)
        }

        $(#[$feature])*
        fn check_set<const SET: u8, const N: usize>(terms: &Terms<'_>, from: usize, found: &Found<'_>) -> Option<usize> {
            let length = terms.length();
            let mut offset = from;
            while length - offset >= N * VECTOR {
                // SAFETY: the loop's condition; blocks and parities were checked to have this length.
                if !unsafe { agrees::<SET, N>(&sums::<SET, N, 1>(terms, offset), found, offset) } {
                    return crate::tail::check(terms, offset, found);
                }
                offset += N * VECTOR;
            }
            rest::check(terms, offset, found)
        }

        /// The first byte from offset `from` on at which a parity that is there is not the sum of the blocks.
        $(#[$feature])*
        pub(crate) fn check(terms: &Terms<'_>, from: usize, found: &Found<'_>) -> Option<usize> {
            let length = terms.length();
            assert!(found.iter().flatten().all(|found| found.len() == length), "parities have the blocks' length");
            match found {
                [_, None, None] => check_set::<P, STEP>(terms, from, found),
                [_, _, None] => check_set::<PQ, STEP_Q>(terms, from, found),
                _ => check_set::<PQR, STEP_R>(terms, from, found),
            }
        }

        /// Computes the targets of one step from its sums.
        ///
        /// `values` holds the sums and the results while rows are computed; it is the caller's, so as not to be cleared
        /// for every step.
        ///
        /// # Safety
        /// `offset` + `N` vectors is at most the length of each parity found and of each target.
        $(#[$feature])*
        #[inline]
        unsafe fn finish<const SET: u8, const N: usize>(
            sums: &[[Vector; N]; 3], values: &mut [[Vector; N]; 6], offset: usize, found: &Found<'_>, rows: &[Row],
            targets: &mut [&mut [u8]],
        ) {
            for i in 0..3 {
                if SET & 1 << i == 0 {
                    continue;
                }
                values[i] = sums[i];
                if let Some(found) = found[i] {
                    for v in 0..N {
                        // SAFETY: v < N, and the caller promises N vectors at this offset.
                        let found = unsafe { load(found.as_ptr().add(offset).add(v * VECTOR)) };
                        values[i][v] = xor(values[i][v], found);
                    }
                }
            }
            for (number, row) in rows.iter().enumerate() {
                let mut result = [zero(); N];
                for share in row.shares() {
                    let value = &values[usize::from(share.value)];
                    if share.coefficient == 1 {
                        for v in 0..N {
                            result[v] = xor(result[v], value[v]);
                        }
                    } else {
                        let factor = coefficient(share.coefficient);
                        for v in 0..N {
                            result[v] = xor(result[v], multiply(value[v], &factor));
                        }
                    }
                }
                values[3 + number] = result;
                let target = targets[usize::from(row.target)].as_mut_ptr();
                for v in 0..N {
                    // SAFETY: v < N, and the caller promises N vectors at this offset.
                    unsafe { store(target.add(offset).add(v * VECTOR), result[v]) };
                }
            }
        }

        $(#[$feature])*
        fn solve_set<const SET: u8, const N: usize>(
            terms: &Terms<'_>, from: usize, found: &Found<'_>, rows: &[Row], targets: &mut [&mut [u8]],
        ) {
            let length = terms.length();
            let mut values = [[zero(); N]; 6];
            let mut offset = from;
            while length - offset >= N * VECTOR {
                // SAFETY: the loop's condition; blocks, parities and targets were checked to have this length.
                unsafe {
                    let sums = sums::<SET, N, 2>(terms, offset);
                    finish::<SET, N>(&sums, &mut values, offset, found, rows, targets);
                }
                offset += N * VECTOR;
            }
            rest::solve(SET, terms, offset, found, rows, targets);
        }

        /// Computes each row's target, from offset `from` on, from the sums of `set`, to which the parities that were
        /// found are added first.
        $(#[$feature])*
        pub(crate) fn solve(
            set: u8, terms: &Terms<'_>, from: usize, found: &Found<'_>, rows: &[Row], targets: &mut [&mut [u8]],
        ) {
            let length = terms.length();
            assert!(found.iter().flatten().all(|found| found.len() == length), "parities have the blocks' length");
            assert!(targets.iter().all(|target| target.len() == length), "targets have the blocks' length");
            assert!(rows.len() <= 3, "three parities restore at most three blocks");
            match set {
                Q => solve_set::<Q, STEP>(terms, from, found, rows, targets),
                R => solve_set::<R, STEP_R>(terms, from, found, rows, targets),
                PQ => solve_set::<PQ, STEP>(terms, from, found, rows, targets),
                PR => solve_set::<PR, STEP_R>(terms, from, found, rows, targets),
                QR => solve_set::<QR, STEP_R>(terms, from, found, rows, targets),
                _ => solve_set::<PQR, STEP_R>(terms, from, found, rows, targets),
            }
        }
    };
}

pub(crate) use kernels;
