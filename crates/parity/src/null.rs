//! A kernel that computes nothing: for simulations that keep no bytes, where parity would be computed for nobody.
//!
//! - It is in force only on the thread and only as long as a [`NullKernel`] lives there: everybody else computes.
//! - It is no choice: no name, no list and no `set_kernel` leads to it. `cargo xtask tidy` keeps it inside the
//!   laboratory.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::dispatch::{Kernel, Kernels};
use crate::terms::{Found, Outputs, Row, Store, Terms};

thread_local! {
    /// How many guards live on this thread.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
}

/// As long as it lives, the parity functions of its thread compute nothing: outputs and targets keep what was in them,
/// and checks find nothing wrong.
#[derive(Debug)]
#[must_use = "parity is computed again as soon as it is dropped"]
pub struct NullKernel {
    /// It stays on its thread.
    thread: PhantomData<*const ()>,
}

impl NullKernel {
    /// Begins on this thread.
    pub fn on_this_thread() -> Self {
        GUARDS.set(GUARDS.get() + 1);
        NullKernel {
            thread: PhantomData,
        }
    }
}

impl Drop for NullKernel {
    fn drop(&mut self) {
        GUARDS.set(GUARDS.get() - 1);
    }
}

/// The table that computes nothing, if it is in force here.
#[inline]
pub(crate) fn in_force() -> Option<&'static Kernels> {
    static TABLE: Kernels = Kernels::new(Kernel::Null, generate, check, solve);
    (GUARDS.get() > 0).then_some(&TABLE)
}

fn generate(_set: u8, _terms: &Terms<'_>, _from: usize, _outputs: &mut Outputs<'_>, _how: Store) {}

fn check(_terms: &Terms<'_>, _from: usize, _found: &Found<'_>) -> Option<usize> {
    None
}

fn solve(
    _set: u8,
    _terms: &Terms<'_>,
    _from: usize,
    _found: &Found<'_>,
    _rows: &[Row],
    _targets: &mut [&mut [u8]],
) {
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, RecoverPlan, chosen, kernels, self_test, set_kernel};

    /// P of two blocks by the function at the root, in a buffer that held 9.
    fn p_of_two() -> [u8; 4] {
        let mut p = [9; 4];
        crate::gen_p(&[&[1; 4], &[2; 4]], &mut p);
        p
    }

    #[test]
    fn nothing_is_computed_while_the_last_guard_lives_and_everything_before_and_after() {
        assert_eq!(p_of_two(), [3; 4]);
        let outer = NullKernel::on_this_thread();
        drop(NullKernel::on_this_thread());
        assert_eq!(p_of_two(), [9; 4]);
        assert_eq!(chosen().kernel(), Kernel::Null);
        drop(outer);
        assert_eq!(p_of_two(), [3; 4]);
        assert_ne!(chosen().kernel(), Kernel::Null);
    }

    #[test]
    fn every_function_leaves_its_outputs_alone() {
        let (a, b) = ([1; 64], [2; 64]);
        let all: [&[u8]; 2] = [&a, &b];
        let (mut p, mut q, mut r) = ([9; 64], [9; 64], [9; 64]);
        let _guard = NullKernel::on_this_thread();
        crate::gen_q(&all, &[3, 7], &mut q);
        crate::gen_pq(&all, &[0, 1], &mut p, &mut q);
        crate::gen_pqr(&all, &[0, 1], &mut p, &mut q, &mut r);
        crate::add_p(&all, &mut p);
        crate::add_pq(&all, &[0, 1], &mut p, &mut q);
        crate::add_pqr(&all, &[0, 1], &mut p, &mut q, &mut r);
        crate::update_p(&a, &b, &mut p);
        crate::update_pq(&a, &b, 1, &mut p, &mut q);
        crate::update_pqr(&a, &b, 1, &mut p, &mut q, &mut r);
        crate::mul_add(5, &a, &mut q);
        crate::xor_into(&mut p, &a);
        for missing in [&[Block::Data(0)][..], &[Block::Data(0), Block::Data(1)]] {
            let plan = RecoverPlan::new(&[0, 1], missing, &[Block::P, Block::Q]).unwrap();
            let sources: Vec<&[u8]> = plan.sources().iter().map(|_| &a[..]).collect();
            let (mut first, mut second) = ([9; 64], [9; 64]);
            let mut targets: Vec<&mut [u8]> = vec![&mut first, &mut second];
            targets.truncate(missing.len());
            plan.recover(&sources, &mut targets);
            assert_eq!((first, second), ([9; 64], [9; 64]));
        }
        assert_eq!((p, q, r), ([9; 64], [9; 64], [9; 64]));
        assert_eq!(crate::check_p(&all, &p), None);
        assert_eq!(crate::check_pq(&all, &[0, 1], &p, &q), None);
        assert_eq!(crate::check_pqr(&all, &[0, 1], &p, &q, &r), None);
    }

    #[test]
    fn other_threads_compute() {
        let _guard = NullKernel::on_this_thread();
        assert_eq!(std::thread::spawn(p_of_two).join().unwrap(), [3; 4]);
    }

    #[test]
    fn a_panic_ends_the_guard() {
        let panicked = std::panic::catch_unwind(|| {
            let _guard = NullKernel::on_this_thread();
            panic!("in between");
        });
        assert!(panicked.is_err());
        assert_eq!(p_of_two(), [3; 4]);
    }

    #[test]
    fn it_is_no_choice_and_passes_no_self_test() {
        let _guard = NullKernel::on_this_thread();
        assert!(kernels().all(|table| table.kernel() != Kernel::Null));
        assert!(kernels().all(|table| self_test(table).is_ok()));
        assert_eq!(Kernel::from_name("null"), None);
        assert!(!Kernel::Null.is_available());
        assert!(set_kernel(Kernel::Null).is_err());
        let error = self_test(chosen()).unwrap_err();
        assert_eq!(error.kernel, Kernel::Null);
    }
}
