//! Where helpers of a runtime's thread run: threads of the kernel or of ours that copy for it.
//!
//! A scheduler puts a thread that is woken where it ran last or where its waker runs, and looks for a processor that is
//! idle. To Linux a virtual processor that has gone to sleep is not: its host may have taken it away
//! (`vcpu_is_preempted`). So a helper is put behind the very thread that woke it to have both work at once, and the
//! other processor sleeps on. With one processor fewer to choose from that cannot be where there are two, and is seldom
//! where there are more. Measured: docs/notes/served.md.

use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Runtimes of this process so far: each one's helpers leave another processor alone.
static RUNTIMES: AtomicUsize = AtomicUsize::new(0);

/// The processors for the helpers of one more runtime: all that the calling thread may use but one. `None` where there
/// is no choice.
pub(crate) fn for_helpers() -> Option<CpuSet> {
    let own = sched_getaffinity(None).ok()?;
    all_but_one(own, RUNTIMES.fetch_add(1, Ordering::Relaxed))
}

/// `own` without one: the first of it for the first runtime, and so on around.
fn all_but_one(mut own: CpuSet, runtime: usize) -> Option<CpuSet> {
    let processors: Vec<usize> = of(&own).collect();
    if processors.len() < 2 {
        return None;
    }
    own.unset(processors[runtime % processors.len()]);
    Some(own)
}

/// Keeps the calling thread, a helper, on the processors that `for_helpers` gave.
pub(crate) fn keep_to(helpers: Option<&CpuSet>) {
    if let Some(processors) = helpers {
        // Where that is forbidden it runs anywhere, as before.
        let _ = sched_setaffinity(None, processors);
    }
}

/// The numbers of the processors in `set`.
pub(crate) fn of(set: &CpuSet) -> impl Iterator<Item = usize> + '_ {
    (0..CpuSet::MAX_CPU).filter(|processor| set.is_set(*processor))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn set(processors: &[usize]) -> CpuSet {
        let mut set = CpuSet::new();
        processors.iter().for_each(|processor| set.set(*processor));
        set
    }

    #[test]
    fn each_runtime_leaves_its_helpers_all_processors_but_another_one() {
        for (own, runtime, expected) in [
            (vec![0, 1], 0, vec![1]),
            (vec![0, 1], 1, vec![0]),
            (vec![0, 1], 2, vec![1]),
            (vec![3, 5, 9], 1, vec![3, 9]),
            (vec![3, 5, 9], 2, vec![3, 5]),
        ] {
            let left = all_but_one(set(&own), runtime).unwrap();
            assert_eq!(of(&left).collect::<Vec<_>>(), expected, "{own:?} {runtime}");
        }
        assert!(all_but_one(set(&[7]), 0).is_none(), "there is no choice");
    }

    #[test]
    fn a_helper_is_kept_to_its_processors() {
        let own = sched_getaffinity(None).unwrap();
        let last = of(&own).last().unwrap();
        let helper = std::thread::spawn(move || {
            keep_to(Some(&set(&[last])));
            sched_getaffinity(None).unwrap()
        });
        assert!(helper.join().unwrap() == set(&[last]));
    }
}
