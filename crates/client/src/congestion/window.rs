//! The congestion window: bytes of READs and WRITEs that may be in flight.
//!
//! As TCP Vegas does, the adaptive window compares RTTs with the minimum that such a request can take; the rest was
//! spent in a queue. Once a round (a window's worth of replies) it takes the round's minimum, which the client's own
//! bursts disturb least, and keeps [`QUEUED_MIN`] to [`QUEUED_MAX`] requests queued in front of the slowest hop: enough
//! that the link never waits for the client, too few to overflow a base station's queue or to delay other users. If the
//! slowest hop retransmits at the link level, the window also has the bytes that this hop carries during a
//! retransmission.
//!
//! A loss alone does not shrink the window: on wireless links it means noise, and a queue shows congestion earlier.
//! Only when a round loses half as much as it delivers, or twice what independent losses explain, the window is halved.
//!
//! It begins with two requests, or on a long path with an assumed BDP. Of that, a device queue's worth goes out at once
//! and the rest paced, so that the link is not idle when the first reply comes. Once the spacing of replies shows the
//! bottleneck bandwidth, the window opens to the BDP (as in BBR), by at most [`OPENING`] requests for each reply. It
//! opens again when bursts of losses have reduced the window to less than half of the BDP and a round shows no queue.
//! The pacer decides when the admitted requests go out.

use std::time::Duration;

use remora_base::Time;

use crate::config::WindowSize;
use crate::congestion::duty_cycle::DutyCycle;
use crate::congestion::probe_rtt::ProbeRtt;

const QUEUED_MIN: f64 = 0.5;
const QUEUED_MAX: f64 = 1.7;
/// Requests that may always be in flight.
const REQUESTS_MIN: u32 = 2;
/// Bytes that may always be in flight: what the slowest hop carries in this time, at most [`LEAST_MAX`]. Otherwise the
/// link is idle while one of few small requests is retransmitted.
const LEAST: Duration = Duration::from_millis(75);
/// Six full frames in bytes.
const LEAST_MAX: f64 = 9_000.0;
/// The same over a stream that has just retransmitted. While a segment is retransmitted no reply is delivered and
/// nothing new is requested; what was requested before keeps the link busy, and its segments tell the sender what was
/// lost.
const REPAIRED_LEAST: Duration = Duration::from_millis(600);
const REPAIRED_LEAST_MAX: f64 = 524_288.0;
/// Requests by which one reply may open the window, beside its successor. Spacing may be wrong: some links carry much
/// at once after a pause.
const OPENING: u64 = 7;
/// With jitter, a round without a queue adds the window divided by this: single requests would take minutes.
const JITTER_STEPS: f64 = 8.0;
/// Loss ratio of a round from which a queue overflow is suspected.
const LOST_MIN: f64 = 0.5;
/// Largest ratio that independent losses explain: a quarter of all frames.
const NOISE_MAX: f64 = 0.8;
/// Largest window in requests: 100 Mbit/s at an RTT of 300 ms, and what servers take of one client at a time.
pub(crate) const REQUESTS_MAX: u64 = 256;
/// Largest window in bytes over ATP, where a gateway keeps each request until it is answered: half of what it keeps for
/// a client.
pub(crate) const OBJECTS_MAX: u64 = 16 << 20;
/// Assumed bandwidth of a long path in bytes per second: 1 Mbit/s.
const LONG_PATH_RATE: f64 = 125_000.0;
/// Largest initial burst in bytes: less than a device queue of 50 frames.
const INITIAL_MAX: f64 = 65_536.0;
/// Assumed extra RTT of the first blocks is a third of the small RTT, at most this: two of the longest blocks.
const FIRST_BLOCKS: Duration = Duration::from_millis(200);
/// Bytes sent before the first reply at most: an RTT of 2 s.
const UNANSWERED_MAX: f64 = 4.0 * INITIAL_MAX;

/// File data in flight, or waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
}

impl InFlight {
    pub(crate) fn and(self, other: InFlight) -> InFlight {
        let requests = self.requests.saturating_add(other.requests);
        InFlight { requests, bytes: self.bytes.saturating_add(other.bytes) }
    }

    pub(crate) fn add(&mut self, bytes: u32) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(bytes));
    }

    pub(crate) fn remove(&mut self, bytes: u32) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(bytes));
    }
}

/// A reply to file data, as the congestion control sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplySample {
    pub(crate) bytes: u32,
    /// When the request was sent.
    pub(crate) sent: Time,
    /// RTT, if it is certain.
    pub(crate) rtt: Option<Duration>,
    /// Minimum RTT of such a request.
    pub(crate) shortest: Option<Duration>,
    /// Airtime of such a request on the slowest hop, once known.
    pub(crate) spacing: Option<Duration>,
    /// Gap before the reply, although it was in flight, if that is no airtime: zero, or at least
    /// [`PAUSE`](crate::congestion::duty_cycle::PAUSE) times `spacing`.
    pub(crate) pause: Duration,
    /// Jitter of the path, if it exceeds `spacing`.
    pub(crate) jitter: Duration,
    /// Losses for each reply by independent losses; 0 where there are none, or unknown.
    pub(crate) noise: f64,
    /// The window held requests back.
    pub(crate) full: bool,
    /// How long a link layer holds replies back while it retransmits.
    pub(crate) repair: Duration,
    /// The reply comes over a stream that lately retransmitted, and no user waits for small requests.
    pub(crate) repaired: bool,
}

impl ReplySample {
    /// Bytes that may always be in flight, by the pace of the slowest hop.
    fn least(&self) -> Option<u64> {
        let (time, most) = if self.repaired { (REPAIRED_LEAST, REPAIRED_LEAST_MAX) } else { (LEAST, LEAST_MAX) };
        let share = time.as_secs_f64() / self.spacing?.as_secs_f64().max(1e-9);
        Some((share * f64::from(self.bytes.max(1))).min(most) as u64)
    }

    /// Loss ratio of a round that independent losses do not explain. Some losses of a queue overflow look independent.
    fn too_many(&self) -> f64 {
        LOST_MIN.max(2.0 * self.noise.min(NOISE_MAX))
    }

    /// BDP in such requests.
    fn pipe(&self) -> Option<f64> {
        Some(self.shortest?.as_secs_f64() / self.spacing?.as_secs_f64().max(1e-9))
    }

    /// Such requests that keep the slowest hop busy during a retransmission of the link.
    fn repairs(&self) -> f64 {
        self.spacing.map_or(0.0, |spacing| self.repair.as_secs_f64() / spacing.as_secs_f64().max(1e-9))
    }
}

/// Results of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    answered: u64,
    lost: u64,
    /// The best ratio of minimum RTT to RTT: 1 without a queue.
    best: Option<f64>,
}

/// Phase of the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No file data was answered yet.
    Fresh,
    /// Doubling each round trip, until a loss or a queue.
    Opening,
    /// Following the queue.
    Steady,
}

#[derive(Clone, Debug)]
pub(crate) struct Window {
    rule: WindowSize,
    /// Largest window in bytes, but for the least number of requests.
    bytes_max: u64,
    bytes: u64,
    least: u64,
    /// BDP in bytes, without the request on the slowest hop.
    path: u64,
    phase: Phase,
    /// What `bytes` grows to, at [`LONG_PATH_RATE`], before the first reply.
    unanswered_max: u64,
    /// When the first file data was sent.
    began: Option<Time>,
    /// The last round lost half of what it sent.
    lossy: bool,
    /// The last transmission before the window shrank. Earlier requests waited in a longer queue.
    shrunk: Option<Time>,
    /// Largest size of requests from before `shrunk`, in bytes.
    block_max: u32,
    /// When file data was last sent.
    last_sent: Time,
    pauses: DutyCycle,
    drain: ProbeRtt,
    /// The last sample came over a stream that retransmits.
    repaired: bool,
    round: Round,
}

impl Window {
    pub(crate) fn new(rule: WindowSize, bytes_max: u64) -> Window {
        Window {
            rule,
            bytes_max,
            bytes: 0,
            least: 0,
            path: 0,
            phase: Phase::Fresh,
            unanswered_max: 0,
            began: None,
            lossy: false,
            shrunk: None,
            block_max: u32::MAX,
            last_sent: Time::ZERO,
            pauses: DutyCycle::default(),
            drain: ProbeRtt::default(),
            repaired: false,
            round: Round::default(),
        }
    }

    /// When a request of `bytes` bytes may be sent: [`Time::ZERO`] for at once, `None` after the next reply at the
    /// earliest.
    pub(crate) fn opens_at(&self, flight: InFlight, bytes: u32) -> Option<Time> {
        let total = flight.bytes.saturating_add(u64::from(bytes));
        match self.rule {
            _ if flight.requests >= REQUESTS_MIN && total > self.bytes_max => None,
            WindowSize::Fixed(n) => (flight.requests < n.max(1)).then_some(Time::ZERO),
            WindowSize::Adaptive if flight.requests == 0 => Some(Time::ZERO),
            WindowSize::Adaptive if self.drain.limit().is_some_and(|limit| total > limit) => None,
            WindowSize::Adaptive if flight.requests < REQUESTS_MIN || total <= self.bytes => Some(Time::ZERO),
            WindowSize::Adaptive if total <= self.most() => {
                // Half of the initial burst has left the queue by then.
                let left = total.saturating_sub(self.bytes / 2);
                self.began.map(|t| t + Duration::from_secs_f64(left as f64 / LONG_PATH_RATE))
            }
            WindowSize::Adaptive => None,
        }
    }

    /// The window without another reply.
    fn most(&self) -> u64 {
        if self.phase == Phase::Fresh { self.bytes.max(self.unanswered_max) } else { self.bytes }
    }

    /// File data was sent.
    pub(crate) fn on_sent(&mut self, now: Time) {
        self.began.get_or_insert(now);
        self.last_sent = now;
        // A stream that retransmits is kept full.
        self.drain.on_sent(now, self.phase == Phase::Steady && !self.repaired);
    }

    /// Requests of `block` bytes that may be sent, now or paced.
    pub(crate) fn room(&self, flight: InFlight, block: u32) -> u32 {
        let drained = self.drain.limit();
        let least = if drained.is_some() { 1 } else { REQUESTS_MIN };
        let least = least.saturating_sub(flight.requests);
        let within = |bytes: u64| {
            let more = bytes.saturating_sub(flight.bytes) / u64::from(block.max(1));
            least.max(u32::try_from(more).unwrap_or(u32::MAX))
        };
        match self.rule {
            WindowSize::Fixed(n) => n.max(1).saturating_sub(flight.requests).min(within(self.bytes_max)),
            WindowSize::Adaptive => within(self.most().min(self.bytes_max).min(drained.unwrap_or(u64::MAX))),
        }
    }

    /// A small call took `trip`, and no file data was answered yet.
    pub(crate) fn prepare(&mut self, trip: Duration) {
        if self.phase == Phase::Fresh {
            let held = LONG_PATH_RATE * (trip + (trip / 3).min(FIRST_BLOCKS)).as_secs_f64();
            self.bytes = held.min(INITIAL_MAX) as u64;
            self.unanswered_max = held.min(UNANSWERED_MAX) as u64;
        }
    }

    /// File data was answered.
    pub(crate) fn on_reply(&mut self, seen: ReplySample) {
        // Where stations take turns the turns are the jitter.
        let jitter = if self.pauses.expected().is_zero() { seen.jitter } else { Duration::ZERO };
        let seen = ReplySample { jitter, ..seen };
        let is_new = self.shrunk.is_none_or(|t| seen.sent > t);
        let block = if is_new { seen.bytes } else { seen.bytes.min(self.block_max) };
        let block = u64::from(block.max(1));
        let is_draining = self.drain.on_reply(seen.sent);
        self.round.answered += block;
        if let (Some(rtt), Some(shortest), true) = (seen.rtt, seen.shortest, is_new) {
            let unqueued = shortest + self.pauses.expected() + seen.jitter;
            let stretch = (unqueued.as_secs_f64() / rtt.as_secs_f64().max(1e-9)).min(1.0);
            self.round.best = Some(self.round.best.map_or(stretch, |b| b.max(stretch)));
        }
        self.pauses.see(seen.pause);
        if let Some(least) = seen.least() {
            self.least = least;
            self.bytes = self.bytes.max(least);
        }
        if let Some(pipe) = seen.pipe() {
            self.drain.on_path(pipe, block);
            self.path = ((pipe - 1.0).max(0.0) * block as f64) as u64;
        }
        if std::mem::replace(&mut self.repaired, seen.repaired) && !seen.repaired {
            // Back to the BDP at once: a user may wait behind the rest.
            self.phase = Phase::Opening;
        }
        if self.phase != Phase::Steady && is_new {
            self.open(block, &seen);
        }
        if is_draining {
            // A drain says nothing of the window.
            self.pauses.forget_round();
            self.round = Round::default();
        }
        if self.round.answered >= self.bytes.max(block * u64::from(REQUESTS_MIN)) {
            self.pauses.end_round(self.round.lost > 0);
            self.end_round(block, &seen);
            self.round = Round::default();
        }
    }

    /// Blocks shrink from `before` to `after` bytes, for a user waits behind them: no more of them are queued than
    /// before.
    pub(crate) fn on_shorter(&mut self, before: u32, after: u32) {
        if self.rule != WindowSize::Adaptive || after >= before {
            return;
        }
        let queued = self.bytes.saturating_sub(self.path) as f64;
        let less = queued * (1.0 - f64::from(after) / f64::from(before));
        self.set(self.bytes as f64 - less, u64::from(after.max(1)));
        self.shrunk = Some(self.last_sent);
        self.block_max = after;
        self.round = Round::default();
    }

    /// Requests of `bytes` bytes in all were lost.
    pub(crate) fn on_losses(&mut self, bytes: u64) {
        self.round.lost = self.round.lost.saturating_add(bytes);
    }

    fn set(&mut self, bytes: f64, block: u64) {
        let most = block * REQUESTS_MAX;
        // The least window may exceed the largest number of small requests.
        let least = self.least.max(block * u64::from(REQUESTS_MIN)).min(most);
        self.bytes = (bytes as u64).clamp(least, most);
    }

    fn open(&mut self, block: u64, seen: &ReplySample) {
        self.bytes = self.most();
        self.phase = Phase::Opening;
        if let (Some(shortest), Some(pipe)) = (seen.shortest, seen.pipe()) {
            let is_long = seen.rtt.is_some_and(|rtt| rtt > (shortest + seen.jitter) * 2);
            let is_full = is_long || self.round.lost as f64 > self.round.answered as f64 * seen.too_many();
            let (held, more) = match seen.jitter.is_zero() {
                true => ((pipe + QUEUED_MIN).ceil() * block as f64, OPENING * block),
                // With jitter the measured pace is that of the window: grows by half each round trip, until a round
                // shows a queue.
                false => (f64::INFINITY, if seen.full { block / 2 } else { 0 }),
            };
            let next = if is_full { self.bytes } else { self.bytes + more };
            if is_full || held <= next as f64 {
                self.set(held.min(next as f64), block);
                self.phase = Phase::Steady;
                self.pauses.forget_round();
                self.round = Round::default();
            } else {
                self.bytes = self.bytes.max(next.min(block * REQUESTS_MAX));
            }
        } else if self.round.lost > 0 {
            self.phase = Phase::Steady;
        } else if seen.full {
            self.set((self.bytes + block) as f64, block);
        }
    }

    /// Whether bursts of losses have left less than half of the BDP.
    fn is_too_small(&self, seen: &ReplySample) -> bool {
        // Where stations take turns spacing is not the pace.
        let has_turns = !self.pauses.expected().is_zero();
        let half = |pipe: f64| pipe / 2.0 * f64::from(seen.bytes.max(1));
        !has_turns && seen.pipe().is_some_and(|pipe| half(pipe) > self.bytes as f64)
    }

    fn end_round(&mut self, block: u64, seen: &ReplySample) {
        let (window, one) = (self.bytes as f64, block as f64);
        if self.round.lost as f64 >= self.round.answered as f64 * seen.too_many() {
            // The first such round may be a burst that took a small window whole.
            if self.lossy {
                self.set(window / 2.0, block);
            }
            self.lossy = true;
            return;
        }
        self.lossy = false;
        let Some(stretch) = self.round.best else { return };
        let queued = window / one * (1.0 - stretch) - seen.repairs();
        if queued >= QUEUED_MIN {
            self.phase = Phase::Steady;
        }
        if queued > 2.0 * QUEUED_MAX {
            self.set((window * stretch + (QUEUED_MAX + seen.repairs()) * one).min(window), block);
            self.shrunk = Some(self.last_sent);
        } else if queued > QUEUED_MAX {
            self.set(window - one, block);
        } else if queued < QUEUED_MIN && seen.full {
            let more = if seen.jitter.is_zero() { one } else { one.max(window / JITTER_STEPS) };
            self.set(window + more, block);
            if self.is_too_small(seen) {
                self.phase = Phase::Opening;
            }
        }
    }
}

#[cfg(test)]
mod tests;
