//! Estimates of the path: round-trip times, the pace of its slowest hop, jitter and losses.

use std::time::Duration;

use remora_base::Time;

use super::loss_rate::LossMeter;
use super::probes::PROBE_MAX;
use super::reordering::ReorderingWindow;
use super::slow_server::DiskLatency;
use crate::call::{PendingCall, Transmission};
use crate::congestion::delivery_rate::{DeliveryRate, Jitter, RoundTrips};
use crate::congestion::rtt::{BaseRtt, MeanDuration, RttEstimator};
use crate::request::CallClass;
use crate::transport::block_size::{fragments, frames};

/// Samples of the time of a frame before it is used.
pub(crate) const SPACINGS_MIN: u32 = 3;
/// Jitter above this many times the airtime of a request is not caused by a short queue.
const QUEUE_REQUESTS: u32 = 4;
/// The shortest time between probes at the first pace.
pub(crate) const PROBE_PACE_MIN: Duration = Duration::from_millis(12);
/// The RTT that is assumed for the pace of probes before one was measured.
const RTT_UNKNOWN: Duration = Duration::from_micros(62_500);

/// Estimates of the path.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathModel {
    rtt: [RttEstimator; CallClass::ALL.len()],
    /// RTT of file data without the time on the slowest hop.
    base: BaseRtt,
    /// RTT of probes.
    pub(crate) null_rtt: RttEstimator,
    pub(crate) disk_latency: DiskLatency,
    /// Time of a full frame on the slowest hop, from the spacing of replies in a busy pipe.
    pub(crate) frame_time: MeanDuration,
    /// The first guess of it: the extra RTT of file data for each frame.
    frame_guess: Option<Duration>,
    /// Time from one burst of losses to the next.
    pub(crate) burst_interval: MeanDuration,
    pub(crate) last_burst: Option<Time>,
    jitter: Jitter,
    pub(crate) delivery: DeliveryRate,
    pub(crate) reordering: ReorderingWindow,
    pub(crate) loss: LossMeter,
}

impl PathModel {
    /// RTT of calls of this class.
    pub(crate) fn rtt(&self, class: CallClass) -> &RttEstimator {
        &self.rtt[class as usize]
    }

    /// A call was answered after `rtt`. `alone`: no other file data was in flight.
    pub(crate) fn sample_rtt(&mut self, now: Time, call: &PendingCall, rtt: Duration, alone: bool) {
        // A much longer RTT without a queue: the path has changed.
        if alone && self.shortest(call).is_some_and(|shortest| rtt > shortest * 2) {
            self.rtt[call.class as usize].forget_min();
            self.base.forget();
        }
        self.learn(now, call.class, call.bytes(), rtt);
    }

    /// A call of `bytes` bytes takes `rtt`.
    pub(crate) fn learn(&mut self, now: Time, class: CallClass, bytes: u32, rtt: Duration) {
        let frame = self.frame_time().unwrap_or_default();
        self.rtt[class as usize].sample(now, rtt);
        if class.is_bulk() {
            self.base.sample(now, rtt, frames(bytes), frame);
        }
    }

    /// A call for file data was answered after `rtt`: adjusts the first guess of a frame's time.
    pub(crate) fn guess_frame_time(&mut self, call: &PendingCall, rtt: Duration) {
        let more = rtt.saturating_sub(self.min_rtt().unwrap_or_default()).div_f64(frames(call.bytes()));
        self.frame_guess = Some(self.frame_guess.map_or(more, |guess| guess.min(more)));
    }

    /// Whether `gap` before the reply to `call`, or `spacing` for each frame, is too long for a busy hop. Once the pace
    /// is known nothing is.
    pub(crate) fn is_silence(&self, gap: Duration, spacing: Duration) -> bool {
        // So many times the guess, and at least so long.
        const GUESSES: u32 = 4;
        const LENGTH_MIN: Duration = Duration::from_millis(200);
        let guess = self.frame_guess.filter(|_| self.frame_pace().is_none() && gap > LENGTH_MIN);
        guess.is_some_and(|guess| spacing > guess * GUESSES)
    }

    /// The reply to `call`, sent as `sent`, updates delivery rate and jitter; `rtt` if it is known.
    pub(crate) fn sample_delivery(&mut self, now: Time, call: &PendingCall, sent: Transmission, rtt: Option<Duration>) {
        let usual = self.rtt(call.class).smoothed().map_or(now.since(sent.at), |(mean, _)| mean);
        let trips = RoundTrips { usual, jitter: self.path_jitter(Duration::ZERO) };
        self.delivery.sample(now, frames(call.bytes()), sent.before, trips);
        if let Some(rtt) = rtt {
            self.jitter.sample(sent.nth, rtt, self.airtime(call.bytes()).unwrap_or(rtt));
        }
    }

    /// Minimum RTT of a call of this length.
    pub(crate) fn shortest(&self, call: &PendingCall) -> Option<Duration> {
        let seen = self.rtt(call.class).min()?;
        let frame = self.frame_time().filter(|_| call.class.is_bulk());
        frame.and_then(|frame| self.base.trip(frames(call.bytes()), frame)).or(Some(seen))
    }

    /// Minimum RTT of small calls and probes.
    pub(crate) fn min_rtt(&self) -> Option<Duration> {
        let [ask, change] = [CallClass::Ask, CallClass::Change].map(|class| self.rtt(class).min());
        [self.null_rtt.min(), ask, change].into_iter().flatten().min()
    }

    /// The longest smoothed RTT of a class.
    pub(crate) fn longest_smoothed_rtt(&self) -> Option<Duration> {
        self.rtt.iter().filter_map(RttEstimator::smoothed).map(|(mean, _)| mean).max()
    }

    /// RTT without any time on the slowest hop.
    pub(crate) fn propagation(&self, frame: Duration) -> Option<Duration> {
        self.base.trip(0.0, frame)
    }

    /// Time that the slowest hop needs for messages of `bytes` bytes.
    pub(crate) fn airtime(&self, bytes: u32) -> Option<Duration> {
        self.frame_time().map(|frame| frame.mul_f64(frames(bytes)))
    }

    /// Measured time of a full frame on the slowest hop.
    pub(crate) fn frame_pace(&self) -> Option<Duration> {
        let spaced = self.frame_time.mean().filter(|_| self.frame_time.samples() >= SPACINGS_MIN)?;
        let delivered = self.delivery.frame().filter(|_| !self.path_jitter(spaced).is_zero());
        Some(delivered.map_or(spaced, |frame| frame.min(spaced)))
    }

    /// Time of a full frame on the slowest hop, measured or guessed.
    pub(crate) fn frame_time(&self) -> Option<Duration> {
        // The delivery rate bounds the guess: a server that is slow at each request is no slow hop.
        let guess = || self.frame_guess.map(|guess| self.delivery.frame().map_or(guess, |frame| frame.min(guess)));
        self.frame_pace().or_else(guess)
    }

    /// Whether answers to file data overtake one another.
    pub(crate) fn reorders(&self) -> bool {
        self.jitter.overtakes()
    }

    /// Jitter of the path, if it is more than a few messages of `airtime` each could cause by queueing.
    pub(crate) fn path_jitter(&self, airtime: Duration) -> Duration {
        let value = self.jitter.value();
        let is_path = match self.reorders() {
            true => value > airtime,
            // It may be a queue after all.
            false => value > airtime * QUEUE_REQUESTS && self.is_lossy(),
        };
        if is_path { value } else { Duration::ZERO }
    }

    /// Share of frames lost independently of one another.
    pub(crate) fn loss_rate(&self) -> Option<f64> {
        self.loss.independent()
    }

    /// Whether frames are lost independently of one another.
    pub(crate) fn is_lossy(&self) -> bool {
        self.loss_rate().is_some_and(|loss| loss > 0.0)
    }

    /// Losses for each reply to calls of this length, by independent losses alone.
    pub(crate) fn losses_per_reply(&self, call: &PendingCall) -> f64 {
        let arrives = (1.0 - self.loss_rate().unwrap_or_default()).powf(f64::from(fragments(call.bytes()) + 1));
        1.0 / arrives.max(1e-3) - 1.0
    }

    /// Time between probes at the first pace.
    pub(crate) fn probe_pace(&self) -> Duration {
        let rtt = self.min_rtt().unwrap_or(RTT_UNKNOWN);
        // A probe and its reply take a tenth of a frame's time, which is long on a slow link.
        let pace = self.frame_time().map_or(rtt, |frame| (frame / 2).max(rtt / 4));
        pace.clamp(PROBE_PACE_MIN, PROBE_MAX)
    }

    /// A queue of this client's own is gone: forgets the smoothed RTT of file data, which had it.
    pub(crate) fn forget_queue(&mut self) {
        for class in [CallClass::Read, CallClass::Write] {
            self.rtt[class as usize].forget_usual();
        }
    }

    /// Takes back what `saved` has, but for jitter, delivery rate and the last burst.
    pub(crate) fn restore(&mut self, saved: PathModel) {
        let (jitter, delivery, last_burst) = (self.jitter, self.delivery, self.last_burst);
        *self = PathModel { jitter, delivery, last_burst, ..saved };
    }
}

/// Age from which a snapshot is no longer restored.
const SNAPSHOT_AGE_MAX: Duration = Duration::from_secs(60);

/// The path model as it was before other connections filled the path.
///
/// While streams beside a client carry the file data, its own few datagrams wait behind theirs and are dropped where
/// they overflow a queue. Estimates from that time are worthless once the streams are gone.
#[derive(Clone, Debug)]
pub(crate) struct PathSnapshot {
    at: Time,
    path: PathModel,
}

impl PathSnapshot {
    pub(crate) fn take(now: Time, path: &PathModel) -> PathSnapshot {
        PathSnapshot { at: now, path: path.clone() }
    }

    /// Restores it unless it is too old. Returns whether it did.
    pub(crate) fn restore(self, now: Time, path: &mut PathModel) -> bool {
        if now.since(self.at) >= SNAPSHOT_AGE_MAX {
            return false;
        }
        path.restore(self.path);
        // Replies to what is in flight say nothing of the restored path.
        path.loss.forget_in_flight();
        path.forget_queue();
        true
    }
}
