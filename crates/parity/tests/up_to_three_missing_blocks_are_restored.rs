//! Recovery: every loss of small rows, samples of large ones, by every kernel; and what cannot be restored.

#![allow(clippy::unwrap_used)]

mod common;

use common::{Guarded, Random, exponent_lists, parities, slices};
use plexum_parity::Block::{Data, P, Q, R};
use plexum_parity::{Block, Kernels, RecoverError, RecoverPlan, kernels};

/// A row of data with its parities.
struct Stripe {
    data: Vec<Guarded>,
    parities: [Vec<u8>; 3],
}

impl Stripe {
    fn new(exponents: &[u8], length: usize, random: &mut Random) -> Self {
        let data = random.blocks(exponents.len(), length);
        let parities = parities(&slices(&data), exponents, length);
        Stripe { data, parities }
    }

    fn get(&self, block: Block) -> &[u8] {
        match block {
            Data(index) => self.data[index].get(),
            P => &self.parities[0],
            Q => &self.parities[1],
            R => &self.parities[2],
        }
    }
}

/// Loses and restores blocks, and compares.
fn check(kernels: &Kernels, plan: &RecoverPlan, stripe: &Stripe, length: usize) {
    let sources: Vec<_> = plan
        .sources()
        .iter()
        .map(|&block| stripe.get(block))
        .collect();
    let mut restored: Vec<_> = plan
        .missing()
        .iter()
        .map(|_| Guarded::new(length, length))
        .collect();
    let mut targets: Vec<_> = restored.iter_mut().map(Guarded::get_mut).collect();
    plan.recover_with(kernels, &sources, &mut targets);
    for (&block, found) in plan.missing().iter().zip(&restored) {
        assert!(
            found.get() == stripe.get(block),
            "{block} of {:?} by {}",
            plan.missing(),
            kernels.kernel()
        );
        found.check_guards();
    }
}

/// All ordered lists of up to `most` different ones of `blocks`.
fn losses(blocks: &[Block], most: usize) -> Vec<Vec<Block>> {
    let mut all = vec![vec![]];
    let mut from = 0;
    for _ in 0..most {
        let to = all.len();
        for list in from..to {
            for &block in blocks {
                if !all[list].contains(&block) {
                    let longer = all[list].iter().copied().chain([block]).collect();
                    all.push(longer);
                }
            }
        }
        from = to;
    }
    all
}

fn is_data(block: &Block) -> bool {
    matches!(block, Data(_))
}

#[test]
fn in_every_row_of_up_to_eight_blocks_with_every_loss_and_every_set_of_parities() {
    let mut random = Random(42);
    for count in 1..=8 {
        let lists = exponent_lists(count, &mut random);
        for exponents in [&lists[0], &lists[1 + count % (lists.len() - 1)]] {
            let length = 8 * count + random.below(150);
            let stripe = Stripe::new(exponents, length, &mut random);
            let all: Vec<_> = (0..count).map(Data).chain([P, Q, R]).collect();
            for missing in losses(&all, 3) {
                for mask in 0..8 {
                    let available: Vec<_> = (0..3)
                        .filter(|i| mask >> i & 1 == 1)
                        .map(|i| [P, Q, R][i])
                        .collect();
                    if available.iter().any(|parity| missing.contains(parity)) {
                        continue;
                    }
                    let lost = missing.iter().filter(|block| is_data(block)).count();
                    match RecoverPlan::new(exponents, &missing, &available) {
                        Ok(plan) => {
                            kernels().for_each(|kernels| check(kernels, &plan, &stripe, length))
                        }
                        Err(error) => {
                            let parities = available.len();
                            assert!(lost > parities, "{missing:?} from {available:?}: {error}");
                            assert_eq!(
                                error,
                                RecoverError::TooMany {
                                    missing: lost,
                                    parities
                                }
                            );
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn at_every_length_up_to_257() {
    let mut random = Random(17);
    let exponents = [0, 1, 2, 3, 4];
    let cases = [
        (vec![Data(1)], vec![P]),
        (vec![Data(1), P], vec![Q]),
        (vec![Data(4), Data(0)], vec![P, Q]),
        (vec![Data(2), Data(0), Q], vec![P, R]),
        (vec![Data(2), Data(3), Data(0)], vec![P, Q, R]),
        (vec![P, Q, R], vec![]),
    ];
    let plans = cases
        .map(|(missing, available)| RecoverPlan::new(&exponents, &missing, &available).unwrap());
    for length in (0..=257).chain([4096, 5003]) {
        let stripe = Stripe::new(&exponents, length, &mut random);
        for plan in &plans {
            kernels().for_each(|kernels| check(kernels, plan, &stripe, length));
        }
    }
}

#[test]
fn in_large_rows_with_samples_of_losses() {
    let mut random = Random(1000);
    for round in 0..400 {
        let count = 9 + random.below(247);
        let lists = exponent_lists(count, &mut random);
        let exponents = &lists[round % lists.len()];
        let length = 1 + random.below(300);
        let stripe = Stripe::new(exponents, length, &mut random);
        let mut missing: Vec<Block> = Vec::new();
        while missing.len() < 1 + round % 3 {
            let block = match random.below(8) {
                0 => P,
                1 => Q,
                2 => R,
                _ => Data(random.below(count)),
            };
            if !missing.contains(&block) {
                missing.push(block);
            }
        }
        let available: Vec<_> = [P, Q, R]
            .into_iter()
            .filter(|parity| !missing.contains(parity))
            .collect();
        let plan = RecoverPlan::new(exponents, &missing, &available).unwrap();
        kernels().for_each(|kernels| check(kernels, &plan, &stripe, length));
    }
}

#[test]
fn a_plan_reads_no_more_than_it_needs_and_says_what() {
    let plan = RecoverPlan::new(&[0, 1, 2], &[Data(1)], &[R, Q, P]).unwrap();
    assert_eq!(plan.sources(), [Data(0), Data(2), P]);
    let plan = RecoverPlan::new(&[0, 1, 2], &[Q, Data(2), Data(0)], &[P, R]).unwrap();
    assert_eq!(plan.sources(), [Data(1), P, R]);
    assert_eq!(plan.missing(), [Q, Data(2), Data(0)]);
    let plan = RecoverPlan::new(&[0, 1], &[P], &[Q]).unwrap();
    assert_eq!(plan.sources(), [Data(0), Data(1)]);
}

#[test]
fn a_plan_for_no_loss_does_nothing() {
    let plan = RecoverPlan::new(&[0], &[], &[P]).unwrap();
    plan.recover(&[&[1, 2]], &mut []);
}

#[test]
fn rows_that_cannot_be_are_refused_with_the_reason() {
    let refuse = |exponents: &[u8], missing: &[Block], available: &[Block]| {
        RecoverPlan::new(exponents, missing, available).unwrap_err()
    };
    assert_eq!(refuse(&[], &[], &[]), RecoverError::BlockCount { count: 0 });
    assert_eq!(
        refuse(&[0; 256], &[], &[]),
        RecoverError::BlockCount { count: 256 }
    );
    assert_eq!(
        refuse(&[1, 255], &[], &[]),
        RecoverError::Exponent {
            index: 1,
            exponent: 255
        }
    );
    assert_eq!(
        refuse(&[3, 1, 3], &[], &[]),
        RecoverError::Exponent {
            index: 2,
            exponent: 3
        }
    );
    assert_eq!(
        refuse(&[0], &[Data(1)], &[P]),
        RecoverError::Missing { block: Data(1) }
    );
    assert_eq!(
        refuse(&[0], &[Q, Q], &[P]),
        RecoverError::Missing { block: Q }
    );
    assert_eq!(refuse(&[0], &[P], &[P]), RecoverError::Missing { block: P });
    assert_eq!(
        refuse(&[0, 1], &[Data(1)], &[Data(0)]),
        RecoverError::Missing { block: Data(0) }
    );
    let error = refuse(&[0, 1, 2], &[Data(0), Data(1)], &[Q]);
    assert_eq!(
        error,
        RecoverError::TooMany {
            missing: 2,
            parities: 1
        }
    );
    assert!(
        error
            .to_string()
            .contains("2 data blocks are missing and 1 parities available")
    );
}

#[test]
#[should_panic(expected = "as many sources as the plan lists")]
fn sources_that_the_plan_does_not_list_are_refused() {
    let plan = RecoverPlan::new(&[0, 1], &[Data(0)], &[P]).unwrap();
    plan.recover(&[&[0; 4]], &mut [&mut [0; 4]]);
}

#[test]
#[should_panic(expected = "targets have the blocks' length")]
fn targets_of_different_lengths_are_refused() {
    let plan = RecoverPlan::new(&[0, 1, 2], &[Data(0), Data(1)], &[P, Q]).unwrap();
    plan.recover(
        &[&[0; 4], &[0; 4], &[0; 4]],
        &mut [&mut [0; 4], &mut [0; 3]],
    );
}
