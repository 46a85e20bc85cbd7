//! The loss timer: when a request is lost, and when the next probe is due.

use std::time::Duration;

use remora_base::Time;

use super::path_model::{PROBE_PACE_MIN, PathModel};
use super::probes::{PROBE_MAX, Probes};
use super::reordering::Evidence;
use super::slow_server::usual;
use crate::call::{PendingCall, Transmission};
use crate::request::CallClass;

/// Time between probes to a server that answers them, but not the request.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Initial timeout, before an RTT was measured.
const INITIAL_TIMEOUT: Duration = Duration::from_millis(250);
/// Initial timeout of file data after a loss.
const INITIAL_TIMEOUT_LOSSY: Duration = Duration::from_millis(60);
/// The longest timeout of a request that was passed.
const TIMEOUT_MAX: Duration = Duration::from_secs(8);
/// A request with more than this many times the retransmissions that independent losses explain is taken for one that
/// the server executes slowly.
const RETRIES_FACTOR: f64 = 8.0;
/// Time of a synchronous write on the server's disk. Requests that need no disk pass it meanwhile.
const SYNC: Duration = Duration::from_millis(20);

/// The estimators that the loss timer reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LossTimer<'a> {
    pub(crate) path: &'a PathModel,
    pub(crate) probes: &'a Probes,
    pub(crate) evidence: &'a Evidence,
    /// When the last request was answered.
    pub(crate) last_reply: Option<Time>,
    /// When the last request for file data was answered.
    pub(crate) last_bulk: Option<Time>,
}

/// Doubles `timeout` for each retransmission without a reply to anything else.
fn backed_off(timeout: Duration, strikes: u32) -> Duration {
    timeout.saturating_mul(1 << strikes.min(16)).min(TIMEOUT_MAX)
}

/// Timeout of a small request that changes nothing.
fn small_timeout(rtt: Option<Duration>) -> Duration {
    rtt.unwrap_or_default() * 2 + Duration::from_millis(20)
}

impl LossTimer<'_> {
    /// Strikes of a request that is retransmitted: losses in a row while nothing else was answered.
    pub(crate) fn strikes(&self, sent: Transmission) -> u32 {
        if self.last_reply.is_some_and(|t| t > sent.at) { 0 } else { sent.strikes + 1 }
    }

    /// Retransmissions of a request beyond those that losses explain.
    pub(crate) fn excess_retries(&self, call: &PendingCall, sent: Transmission) -> u32 {
        sent.retries.saturating_sub((RETRIES_FACTOR * (1.0 + self.path.losses_per_reply(call))) as u32)
    }

    /// When a request is lost by the present evidence; `None` if no later transmission was answered.
    pub(crate) fn lost_at(&self, call: &PendingCall, sent: Transmission) -> Option<Time> {
        if sent.resending || !self.evidence.is_after(sent.seq) {
            return None;
        }
        match self.probes.held_until(sent.at) {
            Some(end) => Some(self.missed_at(call, sent, end)).filter(|t| self.probes.has_heard(*t, sent.at)),
            None => {
                let passed = sent.passed.map_or(Time::ZERO, |t| t + self.grace(call, sent));
                Some(passed.max(self.probes.kept(sent.at) + self.timeout(call, sent)))
            }
        }
    }

    /// How long after it was first passed a request may still be answered, for it arrived with what passed it.
    fn grace(&self, call: &PendingCall, sent: Transmission) -> Duration {
        match call.class.is_bulk() {
            true => self.evidence.grace(sent.seq, self.path.frame_time().unwrap_or_default()),
            false => Duration::ZERO,
        }
    }

    /// When a request that was sent before a silence which ended at `end` is lost, if a later transmission is answered
    /// from then on. Its reply comes in order once there is no silence, or right after some probes that arrived with it.
    fn missed_at(&self, call: &PendingCall, sent: Transmission, end: Time) -> Time {
        let passed = sent.passed.unwrap_or(end) + self.path.probe_pace() * 4;
        // The reply to a block was in flight before theirs, however long it takes.
        let timeout = match call.class.is_bulk() {
            true => small_timeout(self.path.min_rtt()),
            false => self.timeout(call, sent),
        };
        passed.max(end + timeout)
    }

    /// Time after its transmission at which a request is lost, if it was passed.
    fn timeout(&self, call: &PendingCall, sent: Transmission) -> Duration {
        // While others are answered a slow request gets no strikes.
        let strikes = sent.strikes.max(self.excess_retries(call, sent));
        match call.class {
            CallClass::Read | CallClass::Write => self.bulk_timeout(call, sent, strikes),
            CallClass::Ask => backed_off(small_timeout(self.path.null_rtt.min()), strikes),
            CallClass::Change => self.change_timeout(call, sent, strikes),
        }
    }

    fn bulk_timeout(&self, call: &PendingCall, sent: Transmission, strikes: u32) -> Duration {
        let rtt = self.path.rtt(call.class);
        let shortest = rtt.min();
        let usual = rtt.smoothed().map(|(mean, _)| mean).unwrap_or_default();
        // With independent losses it is likelier lost than slow.
        let waits = call.syncs && !self.path.is_lossy();
        let synced = sent.passed.filter(|_| waits).map(|t| t.since(sent.at) + backed_off(SYNC, strikes));
        let window = self.path.reordering.window(shortest.unwrap_or_default(), usual);
        let timeout = shortest.unwrap_or(INITIAL_TIMEOUT / 2) + window;
        backed_off(timeout, strikes).max(synced.unwrap_or_default())
    }

    fn change_timeout(&self, call: &PendingCall, sent: Transmission, strikes: u32) -> Duration {
        let least = self.path.null_rtt.min().unwrap_or_default() * 2 + Duration::from_millis(60);
        let passed = sent.passed.map_or(Duration::ZERO, |t| t.since(sent.at));
        let disk = self.path.disk_latency.usual(call) * 5 / 4;
        if !call.is_commit() {
            return backed_off(least, strikes).max(passed + backed_off(disk, strikes));
        }
        // COMMIT takes long and WRITEs pass it. Where nothing else is lost it is not lost either.
        let strikes = if self.path.is_lossy() { strikes } else { sent.retries };
        let usual = usual(self.path.rtt(call.class));
        backed_off(least.max(usual), strikes).max(passed + backed_off(disk, strikes))
    }

    /// When the next probe is due, with these requests unanswered.
    ///
    /// A probe says nothing of a request that was passed: it is lost or being executed, and has its own timeout. While
    /// there are no others, probes only show that the server lives.
    pub(crate) fn probe_at<'a>(
        &self,
        in_flight: impl Iterator<Item = (&'a PendingCall, Transmission)>,
    ) -> Option<Time> {
        let pace = self.path.probe_pace();
        let due = |(call, sent): (&PendingCall, Transmission)| {
            if !self.evidence.is_after(sent.seq) {
                return self.probes.due_at(self.suspect_at(call, sent), pace);
            }
            match self.probes.held_until(sent.at) {
                // Only a later reply shows whether it is lost.
                Some(end) => self.probes.due_once_at(self.missed_at(call, sent, end), pace),
                None => {
                    let since = self.probes.last().map_or(sent.at, |t| t.max(sent.at));
                    self.probes.due_at(since + HEARTBEAT, pace)
                }
            }
        };
        in_flight.map(due).min()
    }

    /// When a reply is so late that its request or the reply itself may be lost.
    pub(crate) fn overdue_at(&self, call: &PendingCall, sent: Transmission) -> Time {
        let (rtt, since) = (self.path.rtt(call.class), self.probes.kept(sent.at));
        if !call.class.is_bulk() {
            let bulk = [CallClass::Read, CallClass::Write].into_iter().filter_map(|c| self.path.rtt(c).smoothed());
            // Before the first loss a long RTT is a queue's.
            let deviations = if self.path.last_burst.is_none() { 2 } else { 0 };
            let queue = bulk.map(|(mean, dev)| mean + dev * deviations).max().unwrap_or_default();
            let usual = rtt.smoothed().map_or(INITIAL_TIMEOUT / 2, |(mean, dev)| mean + dev * 2 + PROBE_PACE_MIN);
            return since + usual.max(self.queue_ahead(queue));
        }
        let Some(shortest) = self.path.shortest(call) else {
            let rtt = self.path.min_rtt().unwrap_or_default();
            // After a loss a needless probe costs less than waiting.
            let least = if self.path.last_burst.is_some() { INITIAL_TIMEOUT_LOSSY } else { INITIAL_TIMEOUT };
            return since + least.max(rtt * 3 / 2);
        };
        let spacing = self.path.airtime(call.bytes()).unwrap_or(shortest / 2);
        let next = self.last_bulk.map_or(Time::ZERO, |t| t + spacing);
        (since + shortest).max(next) + self.margin(spacing)
    }

    /// When to send a probe because of `call`. A user waits for a small request, so after a loss that is early, at the
    /// price of needless probes while the request waits in a queue.
    fn suspect_at(&self, call: &PendingCall, sent: Transmission) -> Time {
        let overdue = self.overdue_at(call, sent);
        let is_alone = sent.alone || self.queue_ahead(PROBE_MAX) == Duration::ZERO;
        match self.path.min_rtt() {
            Some(rtt) if !call.class.is_bulk() && is_alone && self.path.last_burst.is_some() => {
                overdue.min(self.probes.kept(sent.at) + rtt + PROBE_PACE_MIN * 2)
            }
            _ => overdue,
        }
    }

    /// Allowed lateness of a reply for which the slowest hop works for `airtime`.
    fn margin(&self, airtime: Duration) -> Duration {
        let jitter = self.path.frame_time.deviation().unwrap_or_default() * 2;
        // With independent losses a needless probe costs less than waiting.
        let jitter = if self.path.is_lossy() { jitter.min(airtime) } else { jitter };
        let least = self.path.frame_time().unwrap_or_default() / 4;
        least.max(Duration::from_millis(3)) + airtime / 8 + jitter
    }

    /// `queue` if file data is moving, else zero.
    fn queue_ahead(&self, queue: Duration) -> Duration {
        match (self.last_bulk, self.last_reply) {
            (Some(bulk), Some(reply)) if reply.since(bulk) < queue => queue,
            _ => Duration::ZERO,
        }
    }
}
