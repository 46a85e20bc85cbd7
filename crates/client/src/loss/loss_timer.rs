//! When something is late: how long a request is left alone, whether others have passed it or not,
//! and when to ask what has become of it.

use std::time::Duration;

use remora_base::Time;

use super::disk_latency::usual;
use crate::call::{PendingCall, Transmission};
use crate::loss::detector::LossDetector;
use crate::loss::probes::PROBE_MAX;
use crate::request::CallClass;

/// The time between probes at first.
const PROBE_MIN: Duration = Duration::from_millis(12);
/// The time between probes to a server that answers them, but not the request.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long a reply is waited for before anything was measured.
const INITIAL_TIMEOUT: Duration = Duration::from_millis(250);
/// The same for file data where something was lost already.
const INITIAL_TIMEOUT_LOSSY: Duration = Duration::from_millis(60);
/// The longest a request is left alone.
const PATIENCE_MAX: Duration = Duration::from_secs(8);

/// How many times a request is sent again, for each time that losses one by one make likely, before it counts as one
/// that the server is slow at.
const LOST_AGAIN: f64 = 8.0;

/// How long a server's disk may take: what it is to have is passed by what need not wait for it.
const SYNC: Duration = Duration::from_millis(20);

/// How long a small request that changes nothing is left alone, where one takes `trip`.
fn small_patience(trip: Option<Duration>) -> Duration {
    trip.unwrap_or_default() * 2 + Duration::from_millis(20)
}

impl LossDetector {
    /// How many strikes a request has against it when it is sent again.
    pub(crate) fn strikes(&self, sent: Transmission) -> u32 {
        if self.last_reply.is_some_and(|t| t > sent.at) { 0 } else { sent.strikes + 1 }
    }

    /// How many times it was sent again beyond what losses explain.
    pub(crate) fn in_vain(&self, call: &PendingCall, sent: Transmission) -> u32 {
        sent.retries.saturating_sub((LOST_AGAIN * (1.0 + self.noise(call))) as u32)
    }

    /// When a request becomes lost on the present evidence; `None` if it has not been passed.
    pub(crate) fn lost_at(&self, call: &PendingCall, sent: Transmission) -> Option<Time> {
        if sent.resending || !self.has_passed(&sent) {
            return None;
        }
        match self.probes.held_until(sent.at) {
            Some(end) => Some(self.missed_at(call, sent, end)).filter(|t| self.probes.has_heard(*t, sent.at)),
            None => {
                let passed = sent.passed.map_or(Time::ZERO, |t| t + self.grace(call, sent));
                Some(passed.max(self.probes.kept(sent.at) + self.patience(call, sent)))
            }
        }
    }

    /// When the reply to `call`, sent before a silence that ended at `end`, is lost if anything sent later is answered
    /// then. It comes in its order once there is no silence, and there may be one again; or shortly after some probes
    /// that arrived together with it.
    pub(crate) fn missed_at(&self, call: &PendingCall, sent: Transmission, end: Time) -> Time {
        let passed = sent.passed.unwrap_or(end) + self.probe_pace() * 4;
        // A block's reply was under way before theirs, whatever time it takes.
        let patience = if call.class.is_bulk() { small_patience(self.small_trip()) } else { self.patience(call, sent) };
        passed.max(end + patience)
    }

    /// Whether much is lost one by one.
    pub(crate) fn is_lossy(&self) -> bool {
        self.loss().is_some_and(|loss| loss > 0.0)
    }

    /// How long a request is left alone although others have passed it.
    pub(crate) fn patience(&self, call: &PendingCall, sent: Transmission) -> Duration {
        let rtt = self.rtt(call.class);
        // While others are answered nothing strikes it, and all the same the server may be slow at it.
        let strikes = sent.strikes.max(self.in_vain(call, sent));
        let doubled = |d: Duration| d.saturating_mul(1 << strikes.min(16)).min(PATIENCE_MAX);
        let base = match call.class {
            CallClass::Read | CallClass::Write => {
                let shortest = rtt.min();
                let usual = rtt.smoothed().map(|(mean, _)| mean).unwrap_or_default();
                let least = shortest.unwrap_or(INITIAL_TIMEOUT / 2);
                // Where much is lost one by one it is likelier lost.
                let waits = call.syncs && !self.is_lossy();
                let synced = sent.passed.filter(|_| waits).map(|t| t.since(sent.at) + doubled(SYNC));
                let base = least + self.reorder.window(shortest.unwrap_or_default(), usual);
                return doubled(base).max(synced.unwrap_or_default());
            }
            CallClass::Ask => small_patience(self.null_rtt.min()),
            CallClass::Change => {
                let least = self.null_rtt.min().unwrap_or_default() * 2 + Duration::from_millis(60);
                let passed = sent.passed.map_or(Duration::ZERO, |t| t.since(sent.at));
                let behind = self.behind.usual(call) * 5 / 4;
                if !call.is_commit() {
                    return doubled(least).max(passed + doubled(behind));
                }
                // It is known to take long, and to be passed by WRITEs. Where nothing else is lost nor is it.
                let again = if self.is_lossy() { strikes } else { sent.retries };
                let doubled = |d: Duration| d.saturating_mul(1 << again.min(16)).min(PATIENCE_MAX);
                return doubled(least.max(usual(rtt))).max(passed + doubled(behind));
            }
        };
        doubled(base)
    }

    /// When the next probe is due, with these requests unanswered.
    ///
    /// A probe tells nothing about what is known to have been passed already: that is either
    /// lost or being worked on, and waits for its own patience to end. While there is nothing
    /// else, probes only show that the server lives.
    pub(crate) fn probe_at<'a>(&self, flying: impl Iterator<Item = (&'a PendingCall, Transmission)>) -> Option<Time> {
        let pace = self.probe_pace();
        let due = |(call, sent): (&PendingCall, Transmission)| {
            if !self.has_passed(&sent) {
                return self.probes.due_at(self.ask_at(call, sent), pace);
            }
            match self.probes.held_until(sent.at) {
                // Only something heard later tells whether it is lost.
                Some(end) => self.probes.due_once_at(self.missed_at(call, sent, end), pace),
                None => {
                    let since = self.probes.last().map_or(sent.at, |t| t.max(sent.at));
                    self.probes.due_at(since + HEARTBEAT, pace)
                }
            }
        };
        flying.map(due).min()
    }

    /// When the reply to `call` is so late that something must have happened to it.
    pub(crate) fn overdue_at(&self, call: &PendingCall, sent: Transmission) -> Time {
        let (rtt, since) = (self.rtt(call.class), self.probes.kept(sent.at));
        if !call.class.is_bulk() {
            let bulk = [CallClass::Read, CallClass::Write].into_iter().filter_map(|c| self.rtt(c).smoothed());
            // Where nothing was lost yet it is the queue that is longer now and then.
            let more = if self.last_burst.is_none() { 2 } else { 0 };
            let queue = bulk.map(|(mean, dev)| mean + dev * more).max().unwrap_or_default();
            let usual = rtt.smoothed().map_or(INITIAL_TIMEOUT / 2, |(mean, dev)| mean + dev * 2 + PROBE_MIN);
            return since + usual.max(self.queue_ahead(queue));
        }
        let Some(shortest) = self.shortest(call) else {
            let trip = self.small_trip().unwrap_or_default();
            // Where things are lost a probe or two costs less than waiting for nothing.
            let least = if self.last_burst.is_some() { INITIAL_TIMEOUT_LOSSY } else { INITIAL_TIMEOUT };
            return since + least.max(trip * 3 / 2);
        };
        let spacing = self.airtime(call.bytes()).unwrap_or(shortest / 2);
        let next = self.last_bulk.map_or(Time::ZERO, |t| t + spacing);
        (since + shortest).max(next) + self.margin(spacing)
    }

    /// When to ask what has become of `call`. Somebody waits for a small request: where things
    /// are lost that is early, at the price of a probe or two when it merely waits in a queue.
    pub(crate) fn ask_at(&self, call: &PendingCall, sent: Transmission) -> Time {
        let overdue = self.overdue_at(call, sent);
        let is_alone = sent.alone || self.queue_ahead(PROBE_MAX) == Duration::ZERO;
        match self.small_trip() {
            Some(trip) if !call.class.is_bulk() && is_alone && self.last_burst.is_some() => {
                overdue.min(self.probes.kept(sent.at) + trip + PROBE_MIN * 2)
            }
            _ => overdue,
        }
    }

    /// How much later than expected a reply may come after the slowest hop worked for `time`.
    pub(crate) fn margin(&self, time: Duration) -> Duration {
        let jitter = self.frame_time.deviation().unwrap_or_default() * 2;
        // Where much is lost one by one a probe too many costs less than waiting.
        let jitter = if self.is_lossy() { jitter.min(time) } else { jitter };
        let least = self.frame_time().unwrap_or_default() / 4;
        least.max(Duration::from_millis(3)) + time / 8 + jitter
    }

    /// What a small request may have to wait behind, when file data is moving.
    pub(crate) fn queue_ahead(&self, queue: Duration) -> Duration {
        match (self.last_bulk, self.last_reply) {
            (Some(bulk), Some(reply)) if reply.since(bulk) < queue => queue,
            _ => Duration::ZERO,
        }
    }

    /// The time between probes at first.
    pub(crate) fn probe_pace(&self) -> Duration {
        let trip = self.small_trip().unwrap_or(INITIAL_TIMEOUT / 4);
        // A probe and its reply take a tenth of a frame; on a slow link that is long, too.
        let slow = self.frame_time().map_or(trip, |frame| (frame / 2).max(trip / 4));
        slow.clamp(PROBE_MIN, PROBE_MAX)
    }
}
