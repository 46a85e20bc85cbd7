//! Many independent runs on all processors; results in the order of the runs, whoever was
//! faster.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does `work` for each of `0..count` on so many threads and returns what it gave, in order.
/// `done` is called after each, from any thread.
pub(crate) fn map<T: Send>(
    count: usize,
    threads: NonZeroUsize,
    work: impl Fn(usize) -> T + Sync,
    done: impl Fn() + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let finished = Mutex::new(Vec::with_capacity(count));
    let worker = || loop {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= count {
            return;
        }
        let result = work(index);
        finished.lock().unwrap_or_else(PoisonError::into_inner).push((index, result));
        done();
    };
    thread::scope(|scope| {
        for _ in 0..threads.get().min(count) {
            scope.spawn(worker);
        }
    });
    let mut finished = finished.into_inner().unwrap_or_else(PoisonError::into_inner);
    finished.sort_by_key(|(index, _)| *index);
    finished.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
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
