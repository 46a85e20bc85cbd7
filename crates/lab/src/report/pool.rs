//! Independent jobs on several threads.

use std::num::NonZeroUsize;

use rayon::ThreadPoolBuilder;
use rayon::iter::{ParallelBridge, ParallelIterator};

/// Calls `work` for each of `0..count` and returns the results in that order. Jobs start in order; `done` is called
/// after each, from any thread.
pub(crate) fn map<T: Send>(
    count: usize,
    threads: NonZeroUsize,
    work: impl Fn(usize) -> T + Sync,
    done: impl Fn() + Sync,
) -> Vec<T> {
    let job = |index| {
        let result = work(index);
        done();
        (index, result)
    };
    let mut results: Vec<(usize, T)> = match ThreadPoolBuilder::new().num_threads(threads.get().min(count)).build() {
        // A bridge hands jobs out one by one, so that a long one delays no other.
        Ok(pool) if count > 0 => pool.install(|| (0..count).par_bridge().map(job).collect()),
        _ => (0..count).map(job).collect(),
    };
    results.sort_unstable_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn results_keep_their_order_on_any_number_of_threads() {
        for threads in 1..5 {
            let calls = AtomicUsize::new(0);
            let threads = NonZeroUsize::new(threads).unwrap();
            let squares = map(100, threads, |i| i * i, || _ = calls.fetch_add(1, Ordering::Relaxed));
            assert_eq!(squares, (0..100).map(|i| i * i).collect::<Vec<_>>());
            assert_eq!(calls.into_inner(), 100);
        }
        assert_eq!(map(0, NonZeroUsize::MIN, |i| i, || ()), Vec::<usize>::new());
    }
}
