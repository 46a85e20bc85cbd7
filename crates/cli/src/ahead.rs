//! Answers in the order of the questions, the next few of which are on their way: one after the other each would
//! cost a round trip.

use std::collections::VecDeque;
use std::future::Future;

use tokio::task::JoinHandle;

use crate::exit::{Error, Result};

/// Asks what is put in, and gives the answers out in the same order. Dropping it stops what is on its way.
pub(crate) struct Ahead<Q, A, F> {
    ask: F,
    /// How many may be on their way, or answered and not taken.
    max: usize,
    asked: VecDeque<Asked<A>>,
    waiting: VecDeque<Q>,
}

/// Ends with its owner.
struct Asked<A>(JoinHandle<A>);

impl<A> Drop for Asked<A> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<Q, A: Send + 'static, F, Fut> Ahead<Q, A, F>
where
    F: Fn(Q) -> Fut,
    Fut: Future<Output = A> + Send + 'static,
{
    /// With `ask`, `max` at a time.
    pub(crate) fn new(max: usize, ask: F) -> Ahead<Q, A, F> {
        Ahead { ask, max: max.max(1), asked: VecDeque::new(), waiting: VecDeque::new() }
    }

    /// One more, behind all others.
    pub(crate) fn push(&mut self, question: Q) {
        self.waiting.push_back(question);
        self.go_on();
    }

    /// Whether there is no question left.
    pub(crate) fn is_empty(&self) -> bool {
        self.asked.is_empty() && self.waiting.is_empty()
    }

    /// The next answer; `None` if there is no question left.
    pub(crate) async fn next(&mut self) -> Result<Option<A>> {
        self.go_on();
        let Some(Asked(task)) = self.asked.front_mut() else { return Ok(None) };
        let answer = task.await.map_err(|e| Error::refused("remora", e.to_string()));
        self.asked.pop_front();
        self.go_on();
        answer.map(Some)
    }

    fn go_on(&mut self) {
        while self.asked.len() < self.max
            && let Some(question) = self.waiting.pop_front()
        {
            self.asked.push_back(Asked(tokio::spawn((self.ask)(question))));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn answers_come_in_order_and_the_next_few_are_asked_for() {
        let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counter, waits) = (begun.clone(), gate.clone());
        let mut ahead = Ahead::new(3, move |n: usize| {
            let (counter, waits) = (counter.clone(), waits.clone());
            async move {
                counter.fetch_add(1, Ordering::Relaxed);
                drop(waits.acquire().await);
                n
            }
        });
        (0..9).for_each(|n| ahead.push(n));
        while begun.load(Ordering::Relaxed) < 3 {
            tokio::task::yield_now().await;
        }
        // However long nobody takes what is answered.
        gate.add_permits(9);
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begun.load(Ordering::Relaxed), 3);
        for n in 0..9 {
            assert_eq!(ahead.next().await.unwrap(), Some(n));
        }
        assert_eq!(ahead.next().await.unwrap(), None);
    }
}
