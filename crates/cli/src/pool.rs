//! Several small jobs at once, because each waits for round trips most of its time.

use std::future::Future;

use tokio::task::JoinSet;

use crate::exit::{Error, Result};

/// How many jobs run at once.
const JOBS_MAX: usize = 8;

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
        match self.0.join_next().await {
            None => Ok(()),
            Some(Ok(result)) => result,
            Some(Err(e)) => Err(Error::refused("remora", e.to_string())),
        }
    }
}
