//! Generation, addition, update and check, by every kernel of this machine, against the reference.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Guarded, Random, exponent_lists, parities, slices};
use plexum_parity::{Block, Kernels, RecoverPlan, kernels, reference};

/// Lengths around every vector and step, and odd ones that take many steps.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=257).chain([511, 512, 513, 1023, 4095, 4096, 4097, 10_007])
}

fn assert_equal(kernels: &Kernels, found: &Guarded, expected: &[u8], what: &str) {
    let first = found.get().iter().zip(expected).position(|(a, b)| a != b);
    assert_eq!(
        first,
        None,
        "{what} by {} at length {}",
        kernels.kernel(),
        expected.len()
    );
    found.check_guards();
}

/// All generating functions over these blocks.
fn check_generation(
    kernels: &Kernels,
    sources: &[&[u8]],
    exponents: &[u8],
    length: usize,
    random: &mut Random,
) {
    let expected = parities(sources, exponents, length);
    let mut alignment = || random.below(64);
    let [mut p, mut q, mut r] = std::array::from_fn(|_| Guarded::new(length, alignment()));
    kernels.gen_p(sources, p.get_mut());
    assert_equal(kernels, &p, &expected[0], "gen_p");
    kernels.gen_q(sources, exponents, q.get_mut());
    assert_equal(kernels, &q, &expected[1], "gen_q");
    [&mut p, &mut q]
        .into_iter()
        .for_each(|block| block.get_mut().fill(1));
    kernels.gen_pq(sources, exponents, p.get_mut(), q.get_mut());
    assert_equal(kernels, &p, &expected[0], "P of gen_pq");
    assert_equal(kernels, &q, &expected[1], "Q of gen_pq");
    [&mut p, &mut q]
        .into_iter()
        .for_each(|block| block.get_mut().fill(2));
    kernels.gen_pqr(sources, exponents, p.get_mut(), q.get_mut(), r.get_mut());
    for (block, expected) in [&p, &q, &r].into_iter().zip(&expected) {
        assert_equal(kernels, block, expected, "gen_pqr");
    }
    assert_eq!(kernels.check_p(sources, p.get()), None);
    assert_eq!(kernels.check_pq(sources, exponents, p.get(), q.get()), None);
    assert_eq!(
        kernels.check_pqr(sources, exponents, p.get(), q.get(), r.get()),
        None
    );
    check_addition(kernels, sources, exponents, length, &expected);
}

/// Added to ones, every parity is the complement of the generated one.
fn check_addition(
    kernels: &Kernels,
    sources: &[&[u8]],
    exponents: &[u8],
    length: usize,
    expected: &[Vec<u8>; 3],
) {
    let ones = |_| {
        let mut block = Guarded::new(length, length + 1);
        block.get_mut().fill(0xff);
        block
    };
    let inverted = [0, 1, 2].map(|i| expected[i].iter().map(|byte| !byte).collect::<Vec<_>>());
    let [mut p, mut q, mut r] = [0, 1, 2].map(ones);
    kernels.add_pqr(sources, exponents, p.get_mut(), q.get_mut(), r.get_mut());
    for (block, expected) in [&p, &q, &r].into_iter().zip(&inverted) {
        assert_equal(kernels, block, expected, "add_pqr");
    }
    let [mut p, mut q, mut only_p] = [0, 1, 2].map(ones);
    kernels.add_pq(sources, exponents, p.get_mut(), q.get_mut());
    kernels.add_p(sources, only_p.get_mut());
    for (block, i) in [(&p, 0), (&q, 1), (&only_p, 0)] {
        assert_equal(kernels, block, &inverted[i], "add_p or add_pq");
    }
}

#[test]
fn at_every_length_up_to_257_and_some_long_ones() {
    let mut random = Random(0x1234_5678_9abc_def1);
    for length in lengths() {
        for count in [0, 1, 2, 3, 5] {
            let blocks = random.blocks(count, length);
            let lists = exponent_lists(count, &mut random);
            let which = random.below(lists.len());
            for exponents in [&lists[0], &lists[which]] {
                for kernels in kernels() {
                    check_generation(kernels, &slices(&blocks), exponents, length, &mut random);
                }
            }
        }
    }
}

/// Rows of 2 MiB and more are stored past the caches, where outputs are aligned; those of two to eight blocks by loops
/// of their own. XOR of rows of 256 KiB and more, of five blocks and more, may go by shorter vectors than the kernel
/// has.
#[test]
fn of_rows_that_fit_few_caches_or_none_at_any_alignment_of_the_outputs() {
    let mut random = Random(7);
    let past = [2, 5, 8, 9].map(|count| (count, (2 << 20) / count + 77));
    let short = [5, 8, 9].map(|count| (count, (320 << 10) / count + 77));
    for (count, length) in past.into_iter().chain(short) {
        let blocks = random.blocks(count, length);
        let sources = slices(&blocks);
        let exponents: Vec<u8> = (0u8..).take(count).collect();
        let expected = parities(&sources, &exponents, length);
        for kernels in kernels() {
            for alignments in [[0, 0, 0], [0, 32, 0], [16, 16, 16], [0, 0, 8], [1, 0, 63]] {
                let [mut p, mut q, mut r] = alignments.map(|at| Guarded::new(length, at));
                kernels.gen_p(&sources, p.get_mut());
                assert_equal(kernels, &p, &expected[0], "gen_p");
                p.get_mut().fill(1);
                let (into_p, into_q, into_r) = (p.get_mut(), q.get_mut(), r.get_mut());
                kernels.gen_pq(&sources, &exponents, into_p, into_q);
                assert_equal(kernels, &p, &expected[0], "gen_pq, P");
                assert_equal(kernels, &q, &expected[1], "gen_pq, Q");
                let (into_p, into_q) = (p.get_mut(), q.get_mut());
                into_p.fill(2);
                into_q.fill(2);
                kernels.gen_pqr(&sources, &exponents, into_p, into_q, into_r);
                for (block, expected) in [&p, &q, &r].into_iter().zip(&expected) {
                    assert_equal(kernels, block, expected, "gen_pqr");
                }
            }
        }
    }
}

#[test]
fn at_every_alignment_of_sources_and_targets() {
    let mut random = Random(99);
    for alignment in 0..64 {
        let length = 300 + alignment;
        let mut blocks: Vec<_> = (0..4).map(|_| Guarded::new(length, alignment)).collect();
        blocks
            .iter_mut()
            .for_each(|block| random.fill(block.get_mut()));
        let sources = slices(&blocks);
        let expected = parities(&sources, &[0, 1, 2, 3], length);
        for kernels in kernels() {
            for target in 0..64 {
                let [mut p, mut q, mut r] = [0; 3].map(|_| Guarded::new(length, target));
                kernels.gen_pqr(
                    &sources,
                    &[0, 1, 2, 3],
                    p.get_mut(),
                    q.get_mut(),
                    r.get_mut(),
                );
                for (block, expected) in [&p, &q, &r].into_iter().zip(&expected) {
                    assert_equal(kernels, block, expected, "gen_pqr");
                }
            }
        }
    }
}

#[test]
fn for_every_number_of_blocks_and_every_kind_of_exponents() {
    let mut random = Random(7);
    for count in (1..=40).chain([63, 64, 65, 127, 128, 200, 252, 253, 254, 255]) {
        let length = 64 + random.below(200);
        let blocks = random.blocks(count, length);
        for exponents in exponent_lists(count, &mut random) {
            for kernels in kernels() {
                check_generation(kernels, &slices(&blocks), &exponents, length, &mut random);
            }
        }
    }
}

#[test]
fn for_every_coefficient_and_every_byte() {
    let length = 256 + 77;
    let mut source = Guarded::new(length, 3);
    (source.get_mut().iter_mut().enumerate()).for_each(|(i, byte)| *byte = i as u8);
    for kernels in kernels() {
        for coefficient in 0..=255 {
            let mut target = Guarded::new(length, usize::from(coefficient));
            kernels.mul_add(coefficient, source.get(), target.get_mut());
            let expected: Vec<_> = source
                .get()
                .iter()
                .map(|&x| 0x3c ^ reference::mul(coefficient, x))
                .collect();
            assert_equal(kernels, &target, &expected, "mul_add");
        }
    }
}

#[test]
fn a_doubling_and_a_quadrupling_of_every_byte_is_right() {
    // One block of zeros with exponent 0 over one of all byte values with exponent 1.
    let length = 256 + 33;
    let zeros = vec![0; length];
    let values: Vec<u8> = (0..length).map(|i| i as u8).collect();
    let sources = [&zeros[..], &values[..]];
    let expected = parities(&sources, &[0, 1], length);
    for kernels in kernels() {
        let [mut p, mut q, mut r] = [0; 3].map(|_| Guarded::new(length, 1));
        kernels.gen_pqr(&sources, &[0, 1], p.get_mut(), q.get_mut(), r.get_mut());
        for (block, expected) in [&p, &q, &r].into_iter().zip(&expected) {
            assert_equal(kernels, block, expected, "gen_pqr");
        }
    }
}

#[test]
fn an_update_by_difference_gives_what_generation_gives() {
    let mut random = Random(5);
    for kernels in kernels() {
        for exponent in 0..255 {
            let length = 1 + random.below(400);
            let blocks = random.blocks(3, length);
            let [other, old, new] = [&blocks[0], &blocks[1], &blocks[2]].map(Guarded::get);
            let exponents = [if exponent == 9 { 10 } else { 9 }, exponent];
            let [p, q, r] = parities(&[other, old], &exponents, length);
            let expected = parities(&[other, new], &exponents, length);
            let mut found = [(); 5].map(|()| Guarded::new(length, random.below(64)));
            let [p1, p2, q2, p3, q3] = &mut found;
            [&mut *p1, &mut *p2, &mut *p3]
                .into_iter()
                .for_each(|block| block.get_mut().copy_from_slice(&p));
            [&mut *q2, &mut *q3]
                .into_iter()
                .for_each(|block| block.get_mut().copy_from_slice(&q));
            let mut r3 = r.clone();
            kernels.update_p(old, new, p1.get_mut());
            kernels.update_pq(old, new, exponent, p2.get_mut(), q2.get_mut());
            kernels.update_pqr(old, new, exponent, p3.get_mut(), q3.get_mut(), &mut r3);
            for (block, i) in [(&*p1, 0), (&*p2, 0), (&*q2, 1), (&*p3, 0), (&*q3, 1)] {
                assert_equal(kernels, block, &expected[i], "update");
            }
            assert_eq!(r3, expected[2]);
        }
    }
}

/// Blocks here end where their allocation ends: AddressSanitizer stops at the first byte read or written beside them.
#[test]
fn blocks_without_a_byte_to_spare_are_enough() {
    let mut random = Random(21);
    for length in lengths() {
        let blocks: Vec<Box<[u8]>> = (0..3)
            .map(|_| (0..length).map(|_| random.next() as u8).collect())
            .collect();
        let sources: Vec<&[u8]> = blocks.iter().map(|block| &block[..]).collect();
        for exponents in [[0, 1, 2], [0, 3, 7]] {
            let expected = parities(&sources, &exponents, length);
            for kernels in kernels() {
                let [mut p, mut q, mut r] = [0; 3].map(|_| vec![0; length].into_boxed_slice());
                kernels.gen_pqr(&sources, &exponents, &mut p, &mut q, &mut r);
                assert!(
                    [&p, &q, &r]
                        .into_iter()
                        .zip(&expected)
                        .all(|(found, expected)| **found == **expected)
                );
                kernels.gen_pq(&sources, &exponents, &mut p, &mut q);
                kernels.gen_p(&sources, &mut p);
                assert_eq!(kernels.check_p(&sources, &p), None);
                assert_eq!(kernels.check_pq(&sources, &exponents, &p, &q), None);
                assert_eq!(kernels.check_pqr(&sources, &exponents, &p, &q, &r), None);
                let plan = RecoverPlan::new(
                    &exponents,
                    &[Block::Data(1), Block::Data(2)],
                    &[Block::P, Block::R],
                )
                .unwrap();
                let [mut first, mut second] = [0; 2].map(|_| vec![0; length].into_boxed_slice());
                plan.recover_with(
                    kernels,
                    &[sources[0], &p, &r],
                    &mut [&mut first, &mut second],
                );
                assert!(*first == *sources[1] && *second == *sources[2]);
            }
        }
    }
}

#[test]
fn xor_into_is_undone_by_itself() {
    let mut random = Random(11);
    for kernels in kernels() {
        for length in lengths() {
            let mut blocks = random.blocks(2, length);
            let before = blocks[1].clone();
            let source = blocks[0].get().to_vec();
            let expected: Vec<_> = source
                .iter()
                .zip(before.get())
                .map(|(a, b)| a ^ b)
                .collect();
            kernels.xor_into(blocks[1].get_mut(), &source);
            assert_equal(kernels, &blocks[1], &expected, "xor_into");
            kernels.xor_into(blocks[1].get_mut(), &source);
            assert_equal(kernels, &blocks[1], before.get(), "xor_into");
        }
    }
}

#[test]
fn a_check_names_the_first_wrong_byte_wherever_it_is() {
    let mut random = Random(3);
    for kernels in kernels() {
        for length in [1, 7, 64, 100, 256, 257, 700] {
            let blocks = random.blocks(4, length);
            let (sources, exponents) = (slices(&blocks), [4, 0, 1, 2]);
            let expected = parities(&sources, &exponents, length);
            for at in 0..length {
                for which in 0..3 {
                    let [mut p, mut q, mut r] = expected.clone();
                    // A second wrong byte behind the first must not hide it.
                    let wrong = [&mut p, &mut q, &mut r].into_iter().nth(which).unwrap();
                    wrong[at] ^= 1 << random.below(8);
                    wrong[length - 1] ^= if at == length - 1 { 0 } else { 0x80 };
                    let found = (which == 0).then_some(at);
                    assert_eq!(
                        kernels.check_p(&sources, &p),
                        found,
                        "{} {length} {at}",
                        kernels.kernel()
                    );
                    let found = (which < 2).then_some(at);
                    assert_eq!(kernels.check_pq(&sources, &exponents, &p, &q), found);
                    assert_eq!(
                        kernels.check_pqr(&sources, &exponents, &p, &q, &r),
                        Some(at)
                    );
                }
            }
        }
    }
}

#[test]
fn the_functions_at_the_root_use_the_chosen_kernel() {
    let (old, new) = ([1u8, 2, 3], [7u8, 7, 7]);
    let [mut p, mut q, mut r] = [[0u8; 3]; 3];
    plexum_parity::gen_pqr(&[&old, &new], &[0, 1], &mut p, &mut q, &mut r);
    assert_eq!((p, q, r), ([6, 5, 4], [15, 12, 13], [29, 30, 31]));
    plexum_parity::update_pqr(&new, &old, 1, &mut p, &mut q, &mut r);
    assert_eq!((p, q), ([0; 3], [3, 6, 5]));
    assert_eq!(
        plexum_parity::check_pqr(&[&old, &old], &[0, 1], &p, &q, &r),
        None
    );
    assert_eq!(
        plexum_parity::check_pq(&[&old, &new], &[0, 1], &p, &q),
        Some(0)
    );
    plexum_parity::update_pq(&old, &new, 0, &mut p, &mut q);
    plexum_parity::update_p(&old, &new, &mut p);
    assert_eq!(plexum_parity::check_p(&[&[0; 3]], &p), None);
    plexum_parity::add_pqr(&[&new], &[3], &mut p, &mut q, &mut r);
    plexum_parity::add_pq(&[&new], &[3], &mut p, &mut q);
    plexum_parity::add_p(&[&new], &mut p);
    assert_eq!(p, new);
    plexum_parity::gen_pq(&[&old], &[0], &mut p, &mut q);
    assert_eq!(p, q);
    plexum_parity::gen_q(&[&old], &[1], &mut q);
    plexum_parity::mul_add(2, &old, &mut q);
    plexum_parity::gen_p(&[&old], &mut p);
    plexum_parity::xor_into(&mut p, &old);
    assert_eq!((p, q), ([0; 3], [0; 3]));
}

#[test]
#[should_panic(expected = "one length")]
fn a_source_of_another_length_is_refused() {
    plexum_parity::gen_p(&[&[0; 3]], &mut [0; 4]);
}

#[test]
#[should_panic(expected = "outputs have the blocks' length")]
fn parities_of_different_lengths_are_refused() {
    plexum_parity::gen_pq(&[&[0; 3]], &[0], &mut [0; 3], &mut [0; 2]);
}

#[test]
#[should_panic(expected = "parities have the blocks' length")]
fn a_check_of_parities_of_different_lengths_is_refused() {
    plexum_parity::check_pq(&[&[0; 3]], &[0], &[0; 3], &[0; 2]);
}

#[test]
#[should_panic(expected = "one exponent for each block")]
fn a_block_without_exponent_is_refused() {
    plexum_parity::gen_pq(&[&[0; 3]], &[], &mut [0; 3], &mut [0; 3]);
}
