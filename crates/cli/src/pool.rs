//! Several small jobs at once, because each waits for round trips most of its time: the longer those are, the
//! more.

use std::future::Future;
use std::time::Duration;

use remora_host::client::Session;
use tokio::task::JoinSet;

use crate::exit::{Error, Result};

/// How many jobs run at once where round trips are short.
pub(crate) const NEAR_MAX: usize = 8;
/// The most: a request of each is fewer frames than a device queue of 50 holds.
const FAR_MAX: usize = 48;
/// The round trip from which on so many run.
const FAR: Duration = Duration::from_millis(50);
/// More than [`NEAR_MAX`] run at once only if they move no more bytes than this together. The others keep a link
/// busy by themselves: more of them at once would be ready no sooner, and more of them cut short.
const BYTES_MAX: u64 = 1 << 20;
/// How long the others may take to end when a job has failed: to fail, too, and tidy up.
const TIDY_MAX: Duration = Duration::from_secs(5);

/// How many small jobs run at once with a server that is as far away as this one.
pub(crate) fn jobs_max(session: &Session) -> usize {
    jobs_for(session.small_trip().unwrap_or_default())
}

fn jobs_for(trip: Duration) -> usize {
    let jobs = FAR_MAX as u128 * trip.as_micros() / FAR.as_micros();
    usize::try_from(jobs).unwrap_or(FAR_MAX).clamp(NEAR_MAX, FAR_MAX)
}

/// Runs jobs, a bounded number of them at a time. Dropping it stops them.
pub(crate) struct Pool {
    session: Session,
    jobs: JoinSet<(u64, Result)>,
    /// What those that run move.
    bytes: u64,
}

impl Pool {
    /// For jobs that ask this server.
    pub(crate) fn new(session: &Session) -> Pool {
        Pool { session: session.clone(), jobs: JoinSet::new(), bytes: 0 }
    }

    /// Starts a job that moves so many bytes, as soon as there is room; fails if an earlier one did.
    pub(crate) async fn spawn(&mut self, bytes: u64, job: impl Future<Output = Result> + Send + 'static) -> Result {
        while !has_room((self.jobs.len(), self.bytes), bytes, jobs_max(&self.session)) {
            self.next().await?;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.jobs.spawn(async move { (bytes, job.await) });
        Ok(())
    }

    /// Waits until all jobs are done, or one fails.
    pub(crate) async fn finish(&mut self) -> Result {
        while !self.jobs.is_empty() {
            self.next().await?;
        }
        Ok(())
    }

    async fn next(&mut self) -> Result {
        let result = match self.jobs.join_next().await {
            None => Ok(()),
            Some(Ok((bytes, result))) => {
                self.bytes = self.bytes.saturating_sub(bytes);
                result
            }
            Some(Err(e)) => Err(Error::refused("remora", e.to_string())),
        };
        if result.is_err() {
            // Those that take longer are stopped.
            let rest = async { while self.jobs.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(TIDY_MAX, rest).await;
        }
        result
    }
}

/// Whether a job of so many bytes may run beside these.
fn has_room((jobs, moving): (usize, u64), bytes: u64, jobs_max: usize) -> bool {
    jobs < NEAR_MAX || (jobs < jobs_max && moving.saturating_add(bytes) <= BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_the_way_the_more_small_jobs() {
        for (trip_ms, jobs) in [(0, 8), (5, 8), (25, 24), (50, 48), (600, 48), (u64::MAX, 48)] {
            assert_eq!(jobs_for(Duration::from_millis(trip_ms)), jobs, "{trip_ms} ms");
        }
        let (few, many) = ((NEAR_MAX - 1, u64::MAX), (NEAR_MAX, BYTES_MAX - 4096));
        assert!(has_room(few, u64::MAX, NEAR_MAX), "so many always");
        assert!(has_room(many, 4096, FAR_MAX) && !has_room(many, 4097, FAR_MAX), "further ones are small");
        assert!(!has_room(many, 0, NEAR_MAX) && !has_room((FAR_MAX, 0), 0, FAR_MAX));
    }
}
