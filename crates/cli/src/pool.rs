//! Several small jobs at once, because each waits for round trips most of its time.

use std::future::Future;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::exit::{Error, Result};

/// How many jobs run at once.
const JOBS_MAX: usize = 8;
/// How long the others may take to end when a job has failed: to fail, too, and tidy up.
const TIDY_MAX: Duration = Duration::from_secs(5);

/// Runs jobs, a bounded number of them at a time. Dropping it stops them.
#[derive(Default)]
pub(crate) struct Pool(JoinSet<Result>);

impl Pool {
    /// Starts a job, as soon as there is room; fails if an earlier one did.
    pub(crate) async fn spawn(&mut self, job: impl Future<Output = Result> + Send + 'static) -> Result {
        while self.0.len() >= JOBS_MAX {
            self.next().await?;
        }
        self.0.spawn(job);
        Ok(())
    }

    /// Waits until all jobs are done, or one fails.
    pub(crate) async fn finish(&mut self) -> Result {
        while !self.0.is_empty() {
            self.next().await?;
        }
        Ok(())
    }

    async fn next(&mut self) -> Result {
        let result = match self.0.join_next().await {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(e)) => Err(Error::refused("remora", e.to_string())),
        };
        if result.is_err() {
            // Those that take longer are stopped.
            let rest = async { while self.0.join_next().await.is_some() {} };
            let _ = tokio::time::timeout(TIDY_MAX, rest).await;
        }
        result
    }
}
