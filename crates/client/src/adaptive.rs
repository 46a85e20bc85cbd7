//! The default retransmission policy: it infers losses instead of waiting for timeouts.
//!
//! A link delivers in order, so a reply proves the fate of all that was sent before its
//! request: what is still unanswered was lost and is sent again at once (RACK, RFC 8985,
//! carried over from segments to requests). When a whole window is lost there is no such
//! reply. Then, as soon as the next reply is overdue, the client probes with NULL calls, a
//! millisecond of airtime each at 1 Mbit/s, close together at first and never more than
//! [`PROBE_MAX`] apart. A probe's reply is evidence like any other, and the first that gets
//! through after a burst releases everything. Nothing backs off because of the burst itself;
//! what is answered late rather than never widens the tolerance for reordering.
//!
//! Evidence from probes says nothing about a server that is slow at the request itself, so
//! each fruitless retransmission of a request doubles how long it is left alone.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use crate::block::{FRAME_PAYLOAD, LinkView, fragments};
use crate::pending::{Pending, Sent};
use crate::request::Class;
use crate::rtt::{Mean, Rtt};

/// The time between probes at first.
pub const PROBE_MIN: Duration = Duration::from_millis(12);
/// The longest time between probes: what is lost after the end of an outage.
pub const PROBE_MAX: Duration = Duration::from_millis(250);
/// The time between probes to a server that answers them, but not the request.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How many probes go out at the first pace: longer than a burst lasts.
const PROBES_AT_FIRST_PACE: u32 = 24;
/// How long a reply is waited for before anything was measured.
const INITIAL_TIMEOUT: Duration = Duration::from_millis(250);
/// The longest a request is left alone.
const PATIENCE_MAX: Duration = Duration::from_secs(8);
/// Probes remembered: more than can be on their way.
const PROBES_KEPT: usize = 64;

/// What the client has learned of the link.
#[derive(Debug, Default)]
pub(crate) struct Adaptive {
    began: Time,
    rtt: [Rtt; Class::ALL.len()],
    null_rtt: Rtt,
    /// Time a full frame takes, from the spacing of replies in a busy pipe.
    frame_time: Mean,
    /// Time from one burst of losses to the next.
    burst_interval: Mean,
    last_burst: Option<Time>,
    reorder: Reorder,
    /// The latest transmission known to have been answered.
    evidence: Option<u64>,
    last_reply: Option<Time>,
    last_bulk: Option<Time>,
    /// Something was lost since `last_bulk`, so the spacing to the next reply says nothing.
    disturbed: bool,
    probes: VecDeque<(u32, Time, u64)>,
    last_probe: Option<Time>,
    /// Probes since the last real reply.
    fruitless: u32,
}

/// How much later than its successors a reply may come.
#[derive(Debug, Default)]
struct Reorder {
    steps: u32,
    calm: u32,
}

impl Reorder {
    fn window(&self, shortest: Duration) -> Duration {
        Duration::from_millis(1) + shortest * self.steps / 4
    }

    fn on_spurious(&mut self) {
        self.steps = (self.steps + 1).min(16);
        self.calm = 0;
    }

    fn on_loss(&mut self) {
        self.calm += 1;
        if self.calm >= 16 {
            self.steps = self.steps.saturating_sub(1);
            self.calm = 0;
        }
    }
}

/// What a reply says about its request.
pub(crate) struct Observed {
    /// Its round trip, if it is certain which transmission was answered.
    pub(crate) rtt: Option<Duration>,
    /// The shortest round trip of its kind.
    pub(crate) shortest: Option<Duration>,
    /// It answers a transmission that had been given up for lost.
    pub(crate) spurious: bool,
}

impl Adaptive {
    pub(crate) fn new(now: Time) -> Adaptive {
        Adaptive { began: now, ..Adaptive::default() }
    }

    /// Takes the reply to `call`, last sent as `sent`.
    pub(crate) fn on_reply(&mut self, now: Time, call: &Pending, sent: Sent) -> Observed {
        let age = now.since(sent.at);
        let shortest = self.rtt(call.class).min();
        // A reply sooner than the link allows answers an earlier transmission.
        let spurious = sent.retries > 0 && shortest.is_some_and(|s| age < s * 7 / 8);
        let rtt = if sent.retries == 0 { Some(age) } else { None };
        if let Some(rtt) = rtt {
            self.sample(now, call.class, rtt, sent.alone);
        }
        if spurious {
            self.reorder.on_spurious();
        } else {
            self.evidence = self.evidence.max(Some(sent.seq));
        }
        if call.class.is_bulk() {
            self.sample_spacing(now, call, sent);
            self.last_bulk = Some(now);
            self.disturbed = false;
        }
        self.last_reply = Some(now);
        self.fruitless = 0;
        Observed { rtt, shortest: self.rtt(call.class).min(), spurious }
    }

    fn rtt(&self, class: Class) -> &Rtt {
        &self.rtt[class as usize]
    }

    fn sample(&mut self, now: Time, class: Class, rtt: Duration, alone: bool) {
        // A request that had the pipe to itself sets the minimum afresh if it is much longer
        // than the one on record: the path, or the block size, has changed.
        let r = &mut self.rtt[class as usize];
        if alone && r.min().is_some_and(|m| rtt > m * 2) {
            r.forget_min();
        }
        r.sample(now, rtt);
    }

    /// In a busy pipe the time between two replies is what the slowest hop needs for one.
    fn sample_spacing(&mut self, now: Time, call: &Pending, sent: Sent) {
        let Some(last) = self.last_bulk else { return };
        if self.disturbed || sent.retries > 0 || sent.at > last {
            return;
        }
        let bytes = call.message.len() as u32 + call.reply_data;
        let wire = bytes + 20 * (fragments(bytes) + 1);
        self.frame_time.sample(now.since(last).mul_f64(f64::from(FRAME_PAYLOAD + 20) / f64::from(wire)));
    }

    /// Takes the reply to a probe; false if there was none with this xid.
    pub(crate) fn on_probe_reply(&mut self, now: Time, xid: u32) -> bool {
        let Some(i) = self.probes.iter().position(|p| p.0 == xid) else { return false };
        let (_, sent, seq) = self.probes[i];
        self.probes.drain(..=i);
        self.null_rtt.sample(now, now.since(sent));
        self.evidence = self.evidence.max(Some(seq));
        true
    }

    /// Remembers that a probe was sent.
    pub(crate) fn on_probe_sent(&mut self, now: Time, xid: u32, seq: u64) {
        if self.probes.len() == PROBES_KEPT {
            self.probes.pop_front();
        }
        self.probes.push_back((xid, now, seq));
        self.last_probe = Some(now);
        self.fruitless = self.fruitless.saturating_add(1);
    }

    /// Takes note that requests were found lost at `now`.
    pub(crate) fn on_losses(&mut self, now: Time) {
        self.disturbed = true;
        self.reorder.on_loss();
        // Losses close together are one burst.
        let apart = self.last_burst.map(|t| now.since(t));
        if apart.is_none_or(|d| d > Duration::from_millis(60)) {
            if let Some(d) = apart {
                self.burst_interval.sample(d.min(Duration::from_secs(20)));
            }
            self.last_burst = Some(now);
        }
    }

    /// How many strikes a request has against it when it is sent again.
    pub(crate) fn strikes(&self, sent: Sent) -> u32 {
        if self.last_reply.is_some_and(|t| t > sent.at) { 0 } else { sent.strikes + 1 }
    }

    /// When a request becomes lost on the present evidence; `None` if it has not been passed.
    pub(crate) fn lost_at(&self, class: Class, sent: Sent) -> Option<Time> {
        if sent.resending || self.evidence.is_none_or(|e| e <= sent.seq) {
            return None;
        }
        Some(sent.at + self.patience(class, sent.strikes))
    }

    /// How long a request is left alone although others have passed it.
    fn patience(&self, class: Class, strikes: u32) -> Duration {
        let rtt = self.rtt(class);
        let shortest = rtt.min().unwrap_or_default();
        let base = match class {
            Class::Read | Class::Write => rtt.min().unwrap_or(INITIAL_TIMEOUT / 2) + self.reorder.window(shortest),
            Class::Ask => self.null_rtt.min().unwrap_or_default() * 2 + Duration::from_millis(20),
            Class::Change => {
                let usual = rtt.smoothed().map_or(Duration::ZERO, |(mean, dev)| mean + dev * 4);
                (self.null_rtt.min().unwrap_or_default() * 2 + Duration::from_millis(60)).max(usual)
            }
        };
        base.saturating_mul(1 << strikes.min(16)).min(PATIENCE_MAX)
    }

    /// When the next probe is due, with these requests unanswered.
    ///
    /// A probe tells nothing about what is known to have been passed already: that is either
    /// lost or being worked on, and waits for its own patience to end. While there is nothing
    /// else, probes only show that the server lives.
    pub(crate) fn probe_at<'a>(&self, flying: impl Iterator<Item = (&'a Pending, Sent)>) -> Option<Time> {
        let due = |(call, sent): (&Pending, Sent)| match self.evidence {
            Some(e) if sent.seq <= e => self.last_probe.max(Some(sent.at)).map(|t| t + HEARTBEAT),
            _ => Some(self.overdue_at(call, sent)),
        };
        let overdue = flying.filter_map(due).min()?;
        Some(match self.last_probe {
            Some(last) => overdue.max(last + self.probe_interval()),
            None => overdue,
        })
    }

    /// When the reply to `call` is so late that something must have happened to it.
    fn overdue_at(&self, call: &Pending, sent: Sent) -> Time {
        let rtt = self.rtt(call.class);
        if !call.class.is_bulk() {
            let bulk = [Class::Read, Class::Write].into_iter().filter_map(|c| self.rtt(c).smoothed());
            let queue = bulk.map(|(mean, _)| mean).max().unwrap_or_default();
            let usual = rtt.smoothed().map_or(INITIAL_TIMEOUT / 2, |(mean, dev)| mean + dev * 2 + PROBE_MIN);
            return sent.at + usual.max(self.queue_ahead(queue));
        }
        let Some(shortest) = rtt.min() else { return sent.at + INITIAL_TIMEOUT };
        let spacing = self.spacing(call).unwrap_or(shortest / 2);
        let jitter = self.frame_time.deviation().unwrap_or_default() * 2;
        let margin = Duration::from_millis(3) + spacing / 8 + jitter;
        let next = self.last_bulk.map_or(Time::ZERO, |t| t + spacing);
        (sent.at + shortest).max(next) + margin
    }

    /// What a small request may have to wait behind, when file data is moving.
    fn queue_ahead(&self, queue: Duration) -> Duration {
        match (self.last_bulk, self.last_reply) {
            (Some(bulk), Some(reply)) if reply.since(bulk) < queue => queue,
            _ => Duration::ZERO,
        }
    }

    /// How long the slowest hop needs for a call like this.
    fn spacing(&self, call: &Pending) -> Option<Duration> {
        let bytes = call.message.len() as u32 + call.reply_data;
        self.frame_time.mean().map(|frame| frame * (fragments(bytes) + 1))
    }

    fn probe_interval(&self) -> Duration {
        let trip = self.null_rtt.min().unwrap_or_default();
        let first = PROBE_MIN.max(trip / 4).min(PROBE_MAX);
        let growth = 1.25f64.powi(self.fruitless.saturating_sub(PROBES_AT_FIRST_PACE).min(64) as i32);
        first.mul_f64(growth).min(PROBE_MAX)
    }

    /// What the block size is chosen from.
    pub(crate) fn link(&self, now: Time) -> LinkView {
        let known = self.burst_interval.mean().filter(|_| self.burst_interval.samples() >= 2);
        // A burst that has not come yet counts as soon as it is overdue.
        let quiet = now.since(self.last_burst.unwrap_or(self.began)).min(Duration::from_secs(20));
        let interval = known.unwrap_or(Duration::from_secs(1));
        LinkView {
            frame_time: self.frame_time.mean().filter(|_| self.frame_time.samples() >= 4),
            burst_interval: interval.max(quiet / 4),
        }
    }

    /// Smoothed round trip of this class, for people.
    pub(crate) fn round_trip(&self, class: Class) -> Option<Duration> {
        self.rtt(class).smoothed().map(|s| s.0)
    }
}
