//! Bounded concurrency for small calls: a job pool, and look-ahead with answers in order.

use std::collections::VecDeque;
use std::future::Future;
use std::time::{Duration, Instant};

use remora_host::client::Session;
use rustix::process::{Resource, getrlimit};
use tokio::task::{JoinHandle, JoinSet};

use crate::output::exit::{Error, Result};

/// How many jobs run at once where round trips are short.
pub(crate) const NEAR_MAX: usize = 8;
/// The most at first: a request of each is fewer frames than a device queue of 50 holds.
const FAR_MAX: usize = 48;
/// The most later, where round trips are several times longer than [`FAR`]. As many more are begun as are done, and
/// those end as the link carries them, not all at once.
const GROWN_MAX: usize = 192;
/// A job that took no more round trips than these did not wait for the link to carry what others move: there is room
/// for another one beside those that run.
const TRIPS_UNHINDERED: u32 = 5;
/// Files that a job may have open: what it copies, a journal and its lock, and one more.
const FILES_EACH: u64 = 4;
/// Files for everything else, or three quarters of them all.
const FILES_BESIDE: u64 = 64;
/// RTT from which [`FAR_MAX`] jobs run.
const FAR: Duration = Duration::from_millis(50);
/// More than [`NEAR_MAX`] run at once only if they move no more bytes than this together. The others keep a link
/// busy by themselves: more of them at once would be ready no sooner, and more of them cut short.
const BYTES_MAX: u64 = 1 << 20;
/// How long the jobs may take to end when something has failed: to fail, too, and tidy up.
const TIDY_MAX: Duration = Duration::from_secs(5);

/// How many small jobs run at once with a server that is as far away as this one.
pub(crate) fn jobs_max(session: &Session) -> usize {
    jobs_for(session.min_rtt().unwrap_or_default())
}

fn jobs_for(trip: Duration) -> usize {
    grown_for(trip).min(FAR_MAX)
}

/// How many may come to run.
fn grown_for(trip: Duration) -> usize {
    let jobs = FAR_MAX as u128 * trip.as_micros() / FAR.as_micros();
    usize::try_from(jobs).unwrap_or(GROWN_MAX).clamp(NEAR_MAX, GROWN_MAX)
}

/// How many may, by how many files this process may have open.
fn jobs_with_files(files_max: Option<u64>) -> usize {
    let jobs = files_max.map_or(u64::MAX, |max| (max - FILES_BESIDE.min(max / 4 * 3)) / FILES_EACH);
    usize::try_from(jobs).unwrap_or(usize::MAX).max(1)
}

/// Runs jobs, a bounded number of them at a time. Dropping it stops them.
pub(crate) struct Pool {
    session: Session,
    jobs: JoinSet<Done>,
    /// What those that run move.
    bytes: u64,
    /// How many more may run than at first.
    grown: usize,
    with_files: usize,
}

/// A job that has ended.
struct Done {
    bytes: u64,
    took: Duration,
    result: Result,
}

impl Pool {
    /// For jobs that ask this server.
    pub(crate) fn new(session: &Session) -> Pool {
        let with_files = jobs_with_files(getrlimit(Resource::Nofile).current);
        Pool { session: session.clone(), jobs: JoinSet::new(), bytes: 0, grown: 0, with_files }
    }

    /// Starts a job that moves so many bytes, as soon as there is room; fails if an earlier one did.
    pub(crate) async fn spawn(&mut self, bytes: u64, job: impl Future<Output = Result> + Send + 'static) -> Result {
        while !has_room(self.jobs.len(), self.bytes, bytes, self.jobs_max()) {
            let took = self.next().await?;
            let trip = self.session.min_rtt().unwrap_or_default();
            if took <= trip * TRIPS_UNHINDERED && self.jobs_max() < grown_for(trip) {
                self.grown += 1;
            }
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.jobs.spawn(async move {
            let began = Instant::now();
            let result = job.await;
            Done { bytes, took: began.elapsed(), result }
        });
        Ok(())
    }

    fn jobs_max(&self) -> usize {
        (jobs_max(&self.session) + self.grown).min(self.with_files)
    }

    /// Waits until all jobs are done, or one fails.
    pub(crate) async fn finish(&mut self) -> Result {
        while !self.jobs.is_empty() {
            self.next().await?;
        }
        Ok(())
    }

    /// Waits for one to end; how long it took.
    async fn next(&mut self) -> Result<Duration> {
        let result = match self.jobs.join_next().await {
            None => Ok(Duration::MAX),
            Some(Ok(Done { bytes, took, result })) => {
                self.bytes = self.bytes.saturating_sub(bytes);
                result.map(|()| took)
            }
            Some(Err(e)) => Err(Error::refused("remora", e.to_string())),
        };
        if result.is_err() {
            self.tidy().await;
        }
        result
    }

    /// Something has failed: the jobs may come to their ends. Those that take longer are stopped.
    pub(crate) async fn tidy(&mut self) {
        let rest = async { while self.jobs.join_next().await.is_some() {} };
        if tokio::time::timeout(TIDY_MAX, rest).await.is_err() {
            self.jobs.abort_all();
        }
    }
}

/// Whether a job of `bytes` bytes may start beside `jobs` jobs that move `moving` bytes.
fn has_room(jobs: usize, moving: u64, bytes: u64, jobs_max: usize) -> bool {
    jobs < NEAR_MAX || (jobs < jobs_max && moving.saturating_add(bytes) <= BYTES_MAX)
}

/// Runs up to `max` queries concurrently and returns the answers in order. Cancels them on drop.
pub(crate) struct Ahead<Q, A, F> {
    ask: F,
    /// Most queries in flight or answered and not taken.
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

    /// Appends a query.
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

    #[test]
    fn the_longer_the_way_the_more_small_jobs() {
        for (trip_ms, jobs) in [(0, 8), (5, 8), (25, 24), (50, 48), (600, 48), (u64::MAX, 48)] {
            assert_eq!(jobs_for(Duration::from_millis(trip_ms)), jobs, "{trip_ms} ms");
        }
        for (trip_ms, jobs) in [(5, 8), (50, 48), (100, 96), (200, 192), (u64::MAX, 192)] {
            assert_eq!(grown_for(Duration::from_millis(trip_ms)), jobs, "{trip_ms} ms");
        }
        for (files, jobs) in
            [(None, usize::MAX), (Some(1024), 240), (Some(256), 48), (Some(64), 4), (Some(20), 1), (Some(0), 1)]
        {
            assert_eq!(jobs_with_files(files), jobs, "{files:?}");
        }
        let (few, many) = ((NEAR_MAX - 1, u64::MAX), (NEAR_MAX, BYTES_MAX - 4096));
        assert!(has_room(few.0, few.1, u64::MAX, NEAR_MAX), "so many always");
        assert!(
            has_room(many.0, many.1, 4096, FAR_MAX) && !has_room(many.0, many.1, 4097, FAR_MAX),
            "further ones are small"
        );
        assert!(!has_room(many.0, many.1, 0, NEAR_MAX) && !has_room(FAR_MAX, 0, 0, FAR_MAX));
    }

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
