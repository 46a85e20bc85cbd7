//! Counts and latencies of the NFS requests that the server answered, by procedure.

use std::time::Duration;

use remora_wire::nfs3::{Proc, Status};

/// Upper bounds of a histogram's buckets. A last bucket takes the rest.
pub const LATENCY_BOUNDS: [Duration; 14] = [
    Duration::from_micros(50),
    Duration::from_micros(100),
    Duration::from_micros(250),
    Duration::from_micros(500),
    Duration::from_millis(1),
    Duration::from_micros(2500),
    Duration::from_millis(5),
    Duration::from_millis(10),
    Duration::from_millis(25),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_millis(2500),
    Duration::from_secs(10),
];

/// The requests answered since the server was made. NFSv2 counts as the procedures of NFSv3 that it stands for,
/// GETACL as GETATTR and SETACL as SETATTR.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RequestStats {
    procedures: [ProcedureStats; Proc::ALL.len()],
}

/// The requests of one procedure.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ProcedureStats {
    /// Requests by the status of their reply. A status that never came is missing.
    pub statuses: Vec<StatusCount>,
    /// Times of those that were executed, from the decoded call to the end of its job.
    pub latency: LatencyHistogram,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusCount {
    /// `None` is NFS3_OK.
    pub status: Option<Status>,
    pub requests: u64,
}

/// A histogram with the buckets of [`LATENCY_BOUNDS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LatencyHistogram {
    /// Requests by bucket, not cumulative.
    pub buckets: [u64; LATENCY_BOUNDS.len() + 1],
    pub sum: Duration,
}

impl RequestStats {
    /// The procedures that were called.
    pub fn procedures(&self) -> impl Iterator<Item = (Proc, &ProcedureStats)> {
        Proc::ALL.into_iter().zip(&self.procedures).filter(|(_, stats)| !stats.statuses.is_empty())
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &RequestStats) {
        for (mine, theirs) in self.procedures.iter_mut().zip(&other.procedures) {
            theirs.statuses.iter().for_each(|count| mine.count(count.status, count.requests));
            mine.latency.add(&theirs.latency);
        }
    }

    /// Counts a request that was answered without a job.
    pub(crate) fn answered(&mut self, proc: Proc, status: Option<Status>) {
        if let Some(stats) = self.procedures.get_mut(proc as usize) {
            stats.count(status, 1);
        }
    }

    /// Counts a request whose job took `latency`.
    pub(crate) fn executed(&mut self, proc: Proc, status: Option<Status>, latency: Duration) {
        if let Some(stats) = self.procedures.get_mut(proc as usize) {
            stats.count(status, 1);
            stats.latency.record(latency);
        }
    }
}

impl ProcedureStats {
    fn count(&mut self, status: Option<Status>, requests: u64) {
        match self.statuses.iter_mut().find(|count| count.status == status) {
            Some(count) => count.requests += requests,
            None => self.statuses.push(StatusCount { status, requests }),
        }
    }
}

impl LatencyHistogram {
    /// The requests in all buckets.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    fn record(&mut self, latency: Duration) {
        let bucket = LATENCY_BOUNDS.partition_point(|bound| *bound < latency);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.sum = self.sum.saturating_add(latency);
    }

    fn add(&mut self, other: &LatencyHistogram) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.sum = self.sum.saturating_add(other.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_falls_into_the_bucket_of_its_bound() {
        let cases = [(0, 0), (50, 0), (51, 1), (1000, 4), (1001, 5), (10_000_000, 13), (10_000_001, 14)];
        for (micros, bucket) in cases {
            let mut histogram = LatencyHistogram::default();
            histogram.record(Duration::from_micros(micros));
            assert_eq!(histogram.buckets[bucket], 1, "{micros} us");
            assert_eq!((histogram.count(), histogram.sum), (1, Duration::from_micros(micros)));
        }
        assert!(LATENCY_BOUNDS.is_sorted());
    }

    #[test]
    fn sum_of_shards_has_the_requests_of_all() {
        let ms = Duration::from_millis(1);
        let (mut all, mut other) = (RequestStats::default(), RequestStats::default());
        all.executed(Proc::Read, None, ms);
        other.executed(Proc::Read, None, 2 * ms);
        other.answered(Proc::Read, Some(Status::Access));
        other.answered(Proc::Commit, Some(Status::Jukebox));
        all.add(&other);
        let counts: Vec<_> = all
            .procedures()
            .map(|(proc, stats)| {
                let statuses: Vec<_> = stats.statuses.iter().map(|count| (count.status, count.requests)).collect();
                (proc, statuses, stats.latency.count(), stats.latency.sum)
            })
            .collect();
        let read = vec![(None, 2), (Some(Status::Access), 1)];
        let commit = vec![(Some(Status::Jukebox), 1)];
        assert_eq!(counts, [(Proc::Read, read, 2, 3 * ms), (Proc::Commit, commit, 0, Duration::ZERO)]);
    }
}
