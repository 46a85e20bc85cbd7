//! How much file data is on its way: bytes of READs and WRITEs that are outstanding.
//!
//! Like TCP Vegas, the adaptive window compares each round trip with the shortest that such a
//! request can take: what is longer was spent in a queue. Once a round (as much answered as
//! the window holds) it takes the round's least, which the client's own bursts disturb least,
//! and keeps between [`QUEUED_MIN`] and [`QUEUED_MAX`] requests queued in front of the slowest
//! hop: enough that the link never waits for the client, too few to overflow a base station's
//! queue or to keep anybody waiting. Above a link that sends again what it lost there are more: what that
//! hop carries in the meantime. A loss by itself does not shrink it: on the links this is
//! for, a lost block means noise, and the queue shows congestion earlier. Only when a round
//! loses half as much as it brings, which no burst of noise does for long (or twice what noise takes, where that falls
//! on frames one by one), the window is halved.
//!
//! It begins with two requests, or on a long path with what such a path may hold; of that as much
//! as a device queue holds goes out at once and the rest at the pace of such a path, so that the
//! link is not idle when the first reply comes. It goes to what the path does hold as soon as the
//! spacing of replies tells the slowest hop's pace (as BBR does with its bandwidth-delay product), by no more than
//! [`OPENING`] requests a reply. Where bursts have left less than half of that it opens again after a round
//! without a queue, for on a long path a request more in each round takes minutes. How fast what it admits goes
//! out is the pacer's business.

use std::time::Duration;

use remora_base::Time;

use crate::config::WindowSize;
use crate::congestion::duty_cycle::DutyCycle;
use crate::congestion::probe_rtt::ProbeRtt;

const QUEUED_MIN: f64 = 0.5;
const QUEUED_MAX: f64 = 1.7;
/// This many requests may always be on their way.
const REQUESTS_MIN: u32 = 2;
/// So much may always be on its way: what the slowest hop carries in this time, but no more
/// than [`LEAST_MAX`]. Else small requests of which one is lost leave the link idle.
const LEAST: Duration = Duration::from_millis(75);
/// Bytes of six full frames.
const LEAST_MAX: f64 = 9_000.0;
/// The same over a stream that has just had to repair itself. Its answers come in order, so while
/// one segment is sent again nothing is answered and nothing more is asked for; what is asked for
/// before that keeps the link busy, and its segments tell the sender what was lost.
const REPAIRED_LEAST: Duration = Duration::from_millis(600);
const REPAIRED_LEAST_MAX: f64 = 524_288.0;
/// So many more requests, beside its successor, a reply may bring before the window is as large as the path:
/// what replies say of its pace may be wrong, for some links carry much at once after a while of nothing.
const OPENING: u64 = 7;
/// Where a queue is hard to see, this part of the window a round without one brings at once: a request more at a time
/// would take minutes there, too.
const JITTER_STEPS: f64 = 8.0;
/// Requests lost in a round for each answered, of which a queue that overflows is suspected,
const LOST_MIN: f64 = 0.5;
/// and of which noise explains so many at most: a quarter of all frames.
const NOISE_MAX: f64 = 0.8;
/// The largest window, in requests of the present size: 100 Mbit/s at a round trip of 300 ms, and as many as
/// servers take of one client at a time.
pub(crate) const REQUESTS_MAX: u64 = 256;
/// The largest in bytes where each request is an object that whoever is in between keeps until it is
/// answered: half of what a gateway keeps for a client.
pub(crate) const OBJECTS_MAX: u64 = 16 << 20;
/// Bytes a second that a path with a long round trip is taken to carry at first: 1 Mbit/s.
const LONG_PATH_RATE: f64 = 125_000.0;
/// The most bytes that are sent at once at first: fewer than a device queue of 50 frames holds.
const INITIAL_MAX: f64 = 65_536.0;
/// A block's reply comes later than something small's by a third of that round trip, or this, if
/// it is less: two of the longest blocks.
const FIRST_BLOCKS: Duration = Duration::from_millis(200);
/// The most bytes that are sent before the first reply: a round trip of 2 s.
const UNANSWERED_MAX: f64 = 4.0 * INITIAL_MAX;

/// Requests for file data that are on their way, or about to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct InFlight {
    pub(crate) requests: u32,
    pub(crate) bytes: u64,
}

impl InFlight {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.requests = self.requests.saturating_add(1);
        self.bytes = self.bytes.saturating_add(u64::from(bytes));
    }

    pub(crate) fn remove(&mut self, bytes: u32) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(u64::from(bytes));
    }
}

/// A reply, as the window sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplySample {
    /// Bytes of the request and its reply.
    pub(crate) bytes: u32,
    /// When the request was sent.
    pub(crate) sent: Time,
    /// How long it took, if that is certain.
    pub(crate) rtt: Option<Duration>,
    /// The least that one like it takes.
    pub(crate) shortest: Option<Duration>,
    /// How long the slowest hop needs for one like it, once known.
    pub(crate) spacing: Option<Duration>,
    /// How long nothing came before it although it had been asked for, if that was not the slowest hop
    /// at work: zero or [`PAUSE`](crate::congestion::duty_cycle::PAUSE) times its spacing and more.
    pub(crate) pause: Duration,
    /// What round trips differ by on this path whatever is queued, if that is more than `spacing`.
    pub(crate) jitter: Duration,
    /// Requests lost for each that is answered, where frames are lost one by one: 0 where they are not, or if nobody knows.
    pub(crate) noise: f64,
    /// The window held requests back.
    pub(crate) full: bool,
    /// How long a link below keeps an answer while it sends again what was lost before it.
    pub(crate) repair: Duration,
    /// It comes over a stream that was lately seen to repair itself, and nobody waits for anything
    /// small.
    pub(crate) repaired: bool,
}

impl ReplySample {
    /// What may always be on its way, by the pace of the slowest hop.
    fn least(&self) -> Option<u64> {
        let (time, most) = if self.repaired { (REPAIRED_LEAST, REPAIRED_LEAST_MAX) } else { (LEAST, LEAST_MAX) };
        let share = time.as_secs_f64() / self.spacing?.as_secs_f64().max(1e-9);
        Some((share * f64::from(self.bytes.max(1))).min(most) as u64)
    }

    /// Of requests in a round, as many lost for each that was answered as no noise explains. Of an overflow's losses some
    /// look like noise, too.
    fn too_many(&self) -> f64 {
        LOST_MIN.max(2.0 * self.noise.min(NOISE_MAX))
    }

    /// How many like it the path holds, by the pace of its slowest hop.
    fn pipe(&self) -> Option<f64> {
        Some(self.shortest?.as_secs_f64() / self.spacing?.as_secs_f64().max(1e-9))
    }

    /// How many more like it keep the slowest hop busy while a link sends something again.
    fn repairs(&self) -> f64 {
        self.spacing.map_or(0.0, |spacing| self.repair.as_secs_f64() / spacing.as_secs_f64().max(1e-9))
    }
}

/// What came of the requests of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    answered: u64,
    lost: u64,
    /// Shortest round trip to actual one, at its best: 1 where there was no queue at all.
    best: Option<f64>,
}

/// How much is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// No file data was answered yet.
    Fresh,
    /// Doubling each round trip, until something is lost or a queue shows.
    Opening,
    /// Following the queue.
    Steady,
}

#[derive(Clone, Debug)]
pub(crate) struct Window {
    rule: WindowSize,
    /// The most bytes on their way, but for the least number of requests.
    bytes_max: u64,
    bytes: u64,
    least: u64,
    /// What the path holds beside what the slowest hop is at, in bytes.
    path: u64,
    phase: Phase,
    /// What `bytes` grows to, at [`LONG_PATH_RATE`], before the first reply.
    unanswered_max: u64,
    /// When the first request for file data was sent.
    began: Option<Time>,
    /// The last round lost half of what it sent.
    lossy: bool,
    /// When the latest request was sent before the window was last made smaller. What was sent by then
    /// waited behind more than there is now.
    shrunk: Option<Time>,
    /// What requests from before `shrunk` count as at most, in bytes.
    block_max: u32,
    /// When the latest request was sent.
    last_sent: Time,
    pauses: DutyCycle,
    drain: ProbeRtt,
    /// What the last reply said of the stream.
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

    /// When one more of `bytes` bytes may be sent: [`Time::ZERO`] for at once, `None` for not
    /// before something is answered.
    pub(crate) fn opens_at(&self, flight: InFlight, bytes: u32) -> Option<Time> {
        let total = flight.bytes.saturating_add(u64::from(bytes));
        match self.rule {
            _ if flight.requests >= REQUESTS_MIN && total > self.bytes_max => None,
            WindowSize::Fixed(n) => (flight.requests < n.max(1)).then_some(Time::ZERO),
            WindowSize::Adaptive if flight.requests == 0 => Some(Time::ZERO),
            WindowSize::Adaptive if self.drain.limit().is_some_and(|limit| total > limit) => None,
            WindowSize::Adaptive if flight.requests < REQUESTS_MIN || total <= self.bytes => Some(Time::ZERO),
            WindowSize::Adaptive if total <= self.most() => {
                // Half of what went out at once has left the queue by then.
                let left = total.saturating_sub(self.bytes / 2);
                self.began.map(|t| t + Duration::from_secs_f64(left as f64 / LONG_PATH_RATE))
            }
            WindowSize::Adaptive => None,
        }
    }

    /// What the window comes to without another reply.
    fn most(&self) -> u64 {
        if self.phase == Phase::Fresh { self.bytes.max(self.unanswered_max) } else { self.bytes }
    }

    /// Takes note that a request for file data was sent.
    pub(crate) fn on_sent(&mut self, now: Time) {
        self.began.get_or_insert(now);
        self.last_sent = now;
        // A stream that repairs itself is kept full.
        self.drain.on_sent(now, self.phase == Phase::Steady && !self.repaired);
    }

    /// How many more of `block` bytes may be sent, now or in a moment.
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

    /// Before there was any file data: `trip` is the round trip of something small.
    pub(crate) fn prepare(&mut self, trip: Duration) {
        if self.phase == Phase::Fresh {
            let held = LONG_PATH_RATE * (trip + (trip / 3).min(FIRST_BLOCKS)).as_secs_f64();
            self.bytes = held.min(INITIAL_MAX) as u64;
            self.unanswered_max = held.min(UNANSWERED_MAX) as u64;
        }
    }

    /// A reply to a request for file data.
    pub(crate) fn on_reply(&mut self, seen: ReplySample) {
        // Where stations take turns that is what round trips differ by.
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
            // Back to what the path holds, at once: somebody may be waiting behind the rest.
            self.phase = Phase::Opening;
        }
        if self.phase != Phase::Steady && is_new {
            self.open(block, &seen);
        }
        if is_draining {
            // What is seen meanwhile says nothing of the window.
            self.pauses.forget_round();
            self.round = Round::default();
        }
        if self.round.answered >= self.bytes.max(block * u64::from(REQUESTS_MIN)) {
            self.pauses.end_round(self.round.lost > 0);
            self.end_round(block, &seen);
            self.round = Round::default();
        }
    }

    /// From now on requests have `after` bytes instead of `before`, because somebody waits behind them: no more of
    /// them are queued than there were of the longer ones.
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

    /// Requests of `bytes` bytes in all were found lost.
    pub(crate) fn on_losses(&mut self, bytes: u64) {
        self.round.lost = self.round.lost.saturating_add(bytes);
    }

    fn set(&mut self, bytes: f64, block: u64) {
        let most = block * REQUESTS_MAX;
        // What may always be on its way may be more than so many small requests.
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
                // That pace is what is on its way: half as much again each round trip, until a round shows a queue.
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

    /// Whether bursts have left less than half of what the path holds, and it has room.
    fn is_too_small(&self, seen: &ReplySample) -> bool {
        // Where much comes at once after a while of nothing the spacing is not the path's pace.
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
