//! Decides when the next frame may enter the device below, so that no queue builds up there: it would hide the channel
//! state and delay urgent frames.
//!
//! With a configured rate a frame is released when the earlier ones have had their airtime. On a shared medium the
//! rate is never fully available, so late acknowledgements correct the schedule: they show by how much the device is
//! behind. Without a configured rate the delivery rate is learned as in BBR, and only the bytes in flight are limited.
//! While the minimum RTT is stale, the limit is one frame, as in BBR's ProbeRTT: a standing queue would look like a
//! longer path.

use std::time::Duration;

use remora_base::{Rate, Time};

use crate::arq::ack_delay::{AckDelay, RecentMin};
use crate::pacing::bdp_probe::BdpProbe;
use crate::pacing::delivery_rate::{AckSample, DeliveryRate, TrainLimits};
use crate::pacing::standing_queue::StandingQueue;
use crate::{ArqMode, Duplex, LinkConfig};

/// Shortest lead over the device: timers are not exact.
const SLACK_MIN: Duration = Duration::from_millis(1);
/// Most frames for each requested acknowledgement while acknowledgements are late.
const POLL_EVERY_LATE: u32 = 10;
/// Frames in flight beyond the BDP.
const SPARE_FRAMES: u64 = 3;
/// With a learned rate, all spare frames but one must fit in this time.
const SPARE_TIME: Duration = Duration::from_millis(24);
/// Frames in flight before the first RTT sample.
const FIRST_FRAMES: u64 = 4;
/// Fewest frames in a measured train.
const TRAIN_FRAMES: u64 = 8;
/// Longest measured train, unless two RTTs are longer: a fallen rate must show soon.
const TRAIN_LONGEST: Duration = Duration::from_secs(1);
/// Consecutive late acknowledgements after which the pacer checks for a longer path.
const LATE_MAX: u32 = 3;
/// Shortest time between two such checks, doubled after each that finds none.
const DOUBT_AGAIN: Duration = Duration::from_secs(5);
/// Most frames before an acknowledgement that explain its delay. More suggest that the device is behind.
const TURNS_MAX: u64 = 2;
/// Cap of the doubling.
const DOUBTS_VAIN_MAX: u32 = 6;

/// A standing queue is drained if it exceeds 1/8 of a frame's airtime.
const STANDING_PART: u32 = 8;

/// The state of the pacer at a transmission.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Departure {
    /// When it was handed to the device.
    pub(crate) sent: Time,
    /// Estimated end of its transmission if no other station uses the medium.
    pub(crate) at: Time,
    /// Bytes of DATA sent up to and with it.
    total: u64,
    /// Whether nothing else was in flight.
    clear: bool,
    /// Bytes and frames received before.
    heard: u64,
    heard_frames: u64,
}

/// Whether a frame may be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    Open,
    /// Not before this time.
    At(Time),
    /// Not before an acknowledgement arrives or times out.
    Shut,
}

/// The pacer of a device, shared by all destinations.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: Option<Rate>,
    /// When the device will be idle.
    free_at: Time,
    /// When it will have sent the last DATA.
    data_until: Time,
    /// When everything sent has had its airtime at the configured rate. Early acknowledgements do not raise the rate,
    /// which may be a limit enforced further along the path.
    due_at: Time,
    /// Further delay of sent frames by frames of other stations. Stations take turns on a shared medium, so one frame
    /// for each of ours.
    waits: Duration,
    /// Bytes of DATA sent, and bytes known to have left.
    sent: u64,
    confirmed: u64,
    /// Bytes sent at the latest correction of `free_at`. Earlier transmissions carry no new information.
    corrected: u64,
    /// Bytes sent at the latest request for an acknowledgement.
    asked: u64,
    /// Bytes and frames received.
    heard: u64,
    heard_frames: u64,
    standing_queue: StandingQueue,
    round_trip: RecentMin,
    path_check: PathCheck,
    delivery_rate: DeliveryRate,
    bdp_probe: BdpProbe,
}

/// Checks for a longer path. Late acknowledgements alone do not show one: they may have waited in the device. After a
/// few of them the pacer waits until nothing is in flight and sends two frames one by one.
#[derive(Clone, Copy, Debug, Default)]
struct PathCheck {
    /// Consecutive late acknowledgements.
    late: u32,
    /// Whether the check is active.
    is_open: bool,
    /// Earliest time of the next check.
    again_at: Time,
    /// Consecutive checks that found no longer path.
    vain: u32,
}

impl Pacer {
    pub(crate) fn new(config: &LinkConfig, now: Time) -> Pacer {
        Pacer {
            rate: config.rate,
            free_at: now,
            data_until: now,
            due_at: now,
            waits: Duration::ZERO,
            sent: 0,
            confirmed: 0,
            corrected: 0,
            asked: 0,
            heard: 0,
            heard_frames: 0,
            standing_queue: StandingQueue::default(),
            round_trip: RecentMin::default(),
            path_check: PathCheck::default(),
            delivery_rate: DeliveryRate::new(now),
            bdp_probe: BdpProbe::default(),
        }
    }

    /// The rate, configured or delivery_rate.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate.or_else(|| Rate::from_bits(self.delivery_rate.best()))
    }

    /// The airtime of `bytes`; zero while the rate is unknown.
    pub(crate) fn airtime(&self, bytes: u64) -> Duration {
        self.rate().map_or(Duration::ZERO, |rate| rate.airtime(bytes))
    }

    /// Whether DATA or a probe may be sent now.
    pub(crate) fn gate(&self, now: Time, config: &LinkConfig) -> Gate {
        if self.is_shut(config) {
            return Gate::Shut;
        }
        let Some(opens) = self.opens_at(config) else { return Gate::Open };
        if opens <= now { Gate::Open } else { Gate::At(opens) }
    }

    /// Extra delay of acknowledgements during a probe for more bandwidth.
    pub(crate) fn more_time(&self, config: &LinkConfig) -> Duration {
        if self.bdp_probe.is_up() { self.airtime(self.limit(config) / 3) } else { Duration::ZERO }
    }

    /// Whether the window is full.
    pub(crate) fn is_shut(&self, config: &LinkConfig) -> bool {
        config.mode == ArqMode::Arq && self.under_way() >= self.most(config)
    }

    /// Whether the window stays full after all requested acknowledgements arrive. The window may have shrunk, and no
    /// acknowledgement of the latest frames was requested.
    pub(crate) fn must_ask(&self, config: &LinkConfig) -> bool {
        config.mode == ArqMode::Arq && self.unasked() >= self.most(config)
    }

    /// Whether the next frame should request an acknowledgement. `contended` means that other destinations have data
    /// to send.
    pub(crate) fn wants_poll(&self, next: u64, contended: bool, config: &LinkConfig) -> bool {
        // The acknowledgement should return before the window is full. It is requested earlier where the rate is
        // learned, where acknowledgements are late, and where other destinations wait and a bad channel must be
        // noticed soon.
        let unasked = self.unasked() + next;
        let (part, of) = if !contended && self.rate.is_some() && self.is_in_time() { (3, 4) } else { (1, 2) };
        self.path_check.is_open || unasked * of >= self.limit(config) * part
    }

    /// Most frames for each requested acknowledgement; fewer while acknowledgements are late.
    pub(crate) fn poll_every(&self, config: &LinkConfig) -> u32 {
        if self.is_in_time() { config.poll_every() } else { config.poll_every().min(POLL_EVERY_LATE) }
    }

    /// Whether acknowledgements arrive, the latest of them in time.
    fn is_in_time(&self) -> bool {
        self.round_trip.get().is_some() && self.path_check.late == 0
    }

    /// Records that the latest frame or probe requests an acknowledgement.
    pub(crate) fn asked(&mut self) {
        self.asked = self.sent;
    }

    /// Handles a received frame that took `cost` bytes of the medium. On a shared medium it delayed the device's
    /// frames, if `believed`.
    pub(crate) fn heard(&mut self, now: Time, cost: u64, believed: bool, config: &LinkConfig) {
        self.heard += cost;
        self.heard_frames += 1;
        if let (Some(rate), Duplex::Half, true) = (self.rate, config.duplex, believed) {
            let waited = rate.airtime(cost).min(self.waits);
            if self.free_at + waited > now {
                self.waits -= waited;
                self.free_at += waited;
                self.data_until += waited;
            }
        }
    }

    /// Records a frame that takes `cost` bytes of the medium. `is_data` means that its acknowledgement can time out.
    pub(crate) fn send(&mut self, now: Time, cost: u64, is_data: bool, config: &LinkConfig) -> Departure {
        let clear = self.sent == self.confirmed;
        if clear {
            self.delivery_rate.end_train();
            // All acknowledged frames have left.
            if config.mode == ArqMode::Arq {
                self.free_at = self.free_at.min(now);
            }
        }
        if let Some(rate) = self.rate {
            let frame = rate.airtime(config.cost_max());
            // Probes go in a pause, too.
            if is_data && now > self.data_until + frame {
                self.delivery_rate.on_pause(self.sent);
            }
            self.free_at = self.free_at.max(now);
            self.free_at += rate.airtime(cost);
            if is_data {
                self.data_until = self.free_at;
            }
            // Control frames always go, and delay DATA by at most one frame's airtime.
            if is_data || self.due_at <= now + frame {
                self.due_at = self.due_at.max(now) + rate.airtime(cost);
            }
            // A short reply counts with its own airtime only, so that a peer cannot delay this end by triggering
            // replies.
            let waits = if is_data { frame } else { rate.airtime(cost) };
            self.waits = (self.waits + waits).min(frame * 2);
        } else {
            self.free_at = now;
        }
        if is_data {
            self.sent += cost;
            // With a configured rate only a lack of data causes pauses.
            if self.rate.is_some() || self.is_shut(config) {
                self.delivery_rate.on_full();
            }
        }
        Departure {
            sent: now,
            at: self.free_at,
            total: self.sent,
            clear,
            heard: self.heard,
            heard_frames: self.heard_frames,
        }
    }

    /// Handles an acknowledgement: `departure` arrived, and all earlier frames have left. `at_once` means that the
    /// peer acknowledged without delay. `lost` frames before it were lost.
    pub(crate) fn confirm(
        &mut self,
        now: Time,
        departure: &Departure,
        at_once: bool,
        lost: u64,
        ack_delay: &AckDelay,
        config: &LinkConfig,
    ) {
        if at_once {
            self.measure(now, departure, config);
            self.correct(now, departure, ack_delay, config);
        }
        if let Some(rate) = self.rate {
            // The acknowledged frame has left. The device holds at most the frames sent after it, each behind one of
            // another station. An acknowledgement of another destination may have shown more: one that is late or
            // forged must not delay all destinations.
            let held = rate.airtime(self.sent - self.confirmed.max(departure.total)) * stations(config);
            self.free_at = self.free_at.min(now + held);
        }
        self.confirmed = self.confirmed.max(departure.total);
        self.learn(now, departure, lost, config);
    }

    /// Updates the delivery rate and the BDP probe.
    fn learn(&mut self, now: Time, departure: &Departure, lost: u64, config: &LinkConfig) {
        if self.rate.is_none() && self.round_trip.is_stale() {
            // The window is one frame while the minimum RTT is stale.
            self.delivery_rate.end_train();
            self.bdp_probe.disturbed();
        }
        let frame = config.cost_max();
        let longest = (self.round_trip.get().unwrap_or_default() * 2).max(TRAIN_LONGEST);
        let limits = TrainLimits { length: self.product().max(TRAIN_FRAMES * frame), longest, frame };
        let ack = AckSample { confirmed: self.confirmed, sent: departure.sent, lost };
        let run = self.delivery_rate.take(now, ack, limits);
        self.delivery_rate.round(self.confirmed, self.sent);
        if let Some(run) = run
            && self.rate.is_none()
            && self.delivery_rate.is_level()
        {
            let (least, frame) = (self.round_trip.get().unwrap_or_default(), self.airtime(frame));
            self.bdp_probe.take(run, least, frame);
        }
    }

    /// The excess over the minimum RTT that shows no longer path; `None` if other frames may have delayed the
    /// acknowledgement.
    pub(crate) fn slack(&self, departure: &Departure, config: &LinkConfig) -> Option<Duration> {
        self.is_clear(departure, config).then(|| self.late_by(config))
    }

    /// Whether no queue of either end can have delayed the acknowledgement of `departure`. If two ends took each
    /// other's queues for a longer path, they would enlarge them without limit.
    fn is_clear(&self, departure: &Departure, config: &LinkConfig) -> bool {
        departure.clear && self.heard - departure.heard <= config.cost_max() * 2
    }

    fn late_by(&self, config: &LinkConfig) -> Duration {
        let frames = self.airtime(config.cost_max()) * (stations(config) + 1);
        self.round_trip.get().unwrap_or_default() / 4 + frames + SLACK_MIN
    }

    /// Adds an RTT sample and checks for a longer path.
    fn measure(&mut self, now: Time, departure: &Departure, config: &LinkConfig) {
        let (value, slack) = (now.since(departure.sent), self.late_by(config));
        let is_late = self.round_trip.get().is_some_and(|least| value > least + slack);
        if self.rate.is_some() && self.is_clear(departure, config) {
            let is_longer = self.round_trip.sample_clear(now, value, slack);
            if is_longer {
                self.delivery_rate.restart();
                self.path_check = PathCheck::default();
            }
            self.path_check.is_open &= is_late && !is_longer;
            return;
        }
        self.round_trip.sample(now, value);
        // A frame sent alone was still delayed by others: the check is postponed.
        self.path_check.is_open &= !departure.clear;
        // During startup this end causes a queue itself. An acknowledgement that others have overtaken was delayed on
        // its own destination's path.
        let counts = is_late && self.rate.is_some();
        self.path_check.late = match counts {
            true if departure.total <= self.confirmed => self.path_check.late,
            true => self.path_check.late + 1,
            false => 0,
        };
        if self.path_check.late >= LATE_MAX && now >= self.path_check.again_at {
            // Several destinations with bad channels have many late acknowledgements, and a check costs airtime.
            let vain = (self.path_check.vain + 1).min(DOUBTS_VAIN_MAX);
            let again_at = now + DOUBT_AGAIN * (1 << (vain - 1));
            self.path_check = PathCheck { late: 0, is_open: true, again_at, vain };
        }
    }

    /// Records that `departure` has left, whether or not it arrived.
    pub(crate) fn passed(&mut self, departure: &Departure) {
        let before = self.confirmed;
        self.confirmed = before.max(departure.total);
        self.delivery_rate.on_passed(self.confirmed - before);
        self.bdp_probe.disturbed();
    }

    /// When the device has room; `None` if the rate is delivery_rate.
    pub(crate) fn opens_at(&self, config: &LinkConfig) -> Option<Time> {
        let slack = self.rate?.airtime(config.cost_max() / 2).max(SLACK_MIN);
        Some(self.free_at.max(self.due_at) - slack)
    }

    /// Delays the next frames if the acknowledgement was later than the minimum delay and the frames before it
    /// explain. The device may be behind; it catches up fully, so that the minimum delay stays known.
    ///
    /// The acknowledgement may also have waited at the peer or in a handoff. [`confirm`](Pacer::confirm) limits the
    /// harm.
    fn correct(&mut self, now: Time, departure: &Departure, ack_delay: &AckDelay, config: &LinkConfig) {
        let (Some(rate), Some(least)) = (self.rate, ack_delay.min()) else { return };
        if departure.total <= self.corrected {
            return;
        }
        let behind = now.since(departure.at).saturating_sub(least);
        let frame = rate.airtime(config.cost_max());
        let standing =
            self.standing_queue.take(behind).filter(|standing| *standing > SLACK_MIN.max(frame / STANDING_PART));
        if behind > frame * (stations(config) + self.turns(departure, config)) {
            self.free_at = self.free_at.max(now) + behind;
        } else if let Some(standing) = standing {
            self.free_at += standing;
        } else {
            return;
        }
        self.data_until = self.free_at;
        self.corrected = self.sent;
        self.standing_queue = StandingQueue::default();
    }

    /// Frames of this end that may have gone between the peer's earlier frames and the acknowledgement of `departure`:
    /// on a half-duplex medium stations alternate.
    fn turns(&self, departure: &Departure, config: &LinkConfig) -> u32 {
        let heard = self.heard_frames.saturating_sub(departure.heard_frames);
        // One is the acknowledgement.
        let before = heard.saturating_sub(1).min(TURNS_MAX);
        if config.duplex == Duplex::Half { before as u32 } else { 0 }
    }

    fn under_way(&self) -> u64 {
        self.sent - self.confirmed
    }

    /// Bytes sent since the latest request for an acknowledgement.
    fn unasked(&self) -> u64 {
        self.sent - self.asked.max(self.confirmed)
    }

    /// The current window in bytes.
    fn most(&self, config: &LinkConfig) -> u64 {
        if self.path_check.is_open { 1 } else { self.limit(config) }
    }

    /// The window in bytes while no check for a longer path is active.
    fn limit(&self, config: &LinkConfig) -> u64 {
        let frame = config.cost_max();
        let product = self.product();
        match self.rate {
            Some(_) => {
                let more = (product / 8).saturating_sub(2 * frame);
                product + more + (u64::from(self.poll_every(config)) + SPARE_FRAMES) * frame
            }
            None if self.round_trip.is_stale() => 1,
            None if self.delivery_rate.is_level() => {
                let span = self.round_trip.get().unwrap_or_default() + self.bdp_probe.extra();
                let product = bytes_in(self.delivery_rate.best(), span);
                let spare = bytes_in(self.delivery_rate.best(), SPARE_TIME);
                let spare = frame + spare.min((SPARE_FRAMES - 1) * frame);
                self.bdp_probe.tried(product + product / 8 + spare)
            }
            None => product * 2 + FIRST_FRAMES * frame,
        }
    }

    /// The BDP: rate times minimum RTT. On a shared or overestimated medium the learned rate is lower than the
    /// configured one and applies instead.
    fn product(&self) -> u64 {
        let learned = self.delivery_rate.best();
        let bits = self.rate.map_or(learned, |rate| if learned > 0 { rate.bits().min(learned) } else { rate.bits() });
        bytes_in(bits, self.round_trip.get().unwrap_or_default())
    }
}

/// Stations that alternate on the medium.
fn stations(config: &LinkConfig) -> u32 {
    match config.duplex {
        Duplex::Half => 2,
        Duplex::Full => 1,
    }
}

fn bytes_in(bits: u64, time: Duration) -> u64 {
    let bytes = u128::from(bits) * time.as_nanos() / 8_000_000_000;
    // Larger than any window, and small enough to double without overflow.
    u64::try_from(bytes).unwrap_or(u64::MAX).min(1 << 40)
}

#[cfg(test)]
mod tests;
