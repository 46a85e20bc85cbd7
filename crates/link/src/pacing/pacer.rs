//! When the next frame may go to the device below, so that no queue builds up there: a queue
//! below would hide the state of the channel and delay what is urgent.
//!
//! With a known rate a frame is let go when those before it have had their airtime. The rate
//! is never all ours on a shared medium, so the acknowledgements correct this: one that comes
//! late says how far the device is behind. Without a known rate the rate is learned, as BBR
//! does (delivery rate over a window, twice that at first), and only the bytes under way are
//! limited; when the shortest round trip was last seen long ago, they are cut to one frame
//! until it is seen again, for a standing queue would pass for a long way.

use std::time::Duration;

use remora_base::{Rate, Time};

use crate::arq::ack_delay::{Lag, RecentMin};
use crate::pacing::bdp_probe::Span;
use crate::pacing::delivery_rate::{Learned, Measure, Told};
use crate::pacing::standing_queue::Standing;
use crate::{Config, Duplex, Mode};

/// Room in the device beyond what is in the air, at least: timers are not exact.
const SLACK_MIN: Duration = Duration::from_millis(1);
/// The most frames for each acknowledgement asked for while answers come late.
const POLL_EVERY_LATE: u32 = 10;
/// Frames under way beyond what rate and round trip call for.
const SPARE_FRAMES: u64 = 3;
/// and all but one of them only if it is carried within this time, where the rate is learned.
const SPARE_TIME: Duration = Duration::from_millis(24);
/// Frames under way before anything is known.
const FIRST_FRAMES: u64 = 4;
/// Frames in a train whose rate is measured, at least.
const TRAIN_FRAMES: u64 = 8;
/// and for how long, at most, but for two round trips: a rate that has fallen must show soon.
const TRAIN_LONGEST: Duration = Duration::from_secs(1);
/// So many late answers in a row make us ask whether the path has become longer,
const LATE_MAX: u32 = 3;
/// and so much later again, if it has not.
const DOUBT_AGAIN: Duration = Duration::from_secs(5);
/// Frames before an answer that are taken to have delayed it. With more the device may well be behind.
const TURNS_MAX: u64 = 2;
/// It is doubled each time, but for the last of so many.
const DOUBTS_VAIN_MAX: u32 = 6;

/// What stands in the device is too much if it is more than this part of a frame's time.
const STANDING_PART: u32 = 8;

/// Where a transmission stood in the sequence of all.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Departure {
    /// When it was handed to the device.
    pub(crate) sent: Time,
    /// When it will have left, if the medium is ours.
    pub(crate) at: Time,
    /// Bytes of DATA sent up to and with it.
    total: u64,
    /// Whether nothing else was under way.
    clear: bool,
    /// Bytes and frames heard before.
    heard: u64,
    heard_frames: u64,
}

/// Whether a frame may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gate {
    /// It may.
    Open,
    /// From then on.
    At(Time),
    /// Not before an acknowledgement comes, or is missed.
    Shut,
}

/// The one way to the device, for all destinations.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    rate: Option<Rate>,
    /// When the device will have nothing to send.
    free_at: Time,
    /// When it will have sent the last DATA.
    data_until: Time,
    /// When all that was sent has had its airtime at the rate we were told: answers that come early tell
    /// of a faster hop, and the rate may be a limit that somebody further on holds us to.
    due_at: Time,
    /// How much longer what was sent may have had to wait for frames of others: on a shared
    /// medium stations take turns, so for one frame for each of ours.
    waits: Duration,
    /// Bytes of DATA sent, and known to have left.
    sent: u64,
    confirmed: u64,
    /// Bytes sent when `free_at` was last corrected: what was sent before knows nothing new.
    corrected: u64,
    /// Bytes sent when an acknowledgement was last asked for.
    asked: u64,
    /// Bytes and frames heard.
    heard: u64,
    heard_frames: u64,
    standing: Standing,
    round_trip: RecentMin,
    doubt: Doubt,
    learned: Learned,
    span: Span,
}

/// Whether the path has become longer, which late answers alone do not tell: they may have waited
/// in the device. So a few of them make us wait until nothing is under way, and send two frames
/// by themselves.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    /// Late answers in a row.
    late: u32,
    /// Whether we find out now.
    is_open: bool,
    /// When we may do so again.
    again_at: Time,
    /// How many times in a row it was not.
    vain: u32,
}

impl Pacer {
    pub(crate) fn new(config: &Config, now: Time) -> Pacer {
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
            standing: Standing::default(),
            round_trip: RecentMin::default(),
            doubt: Doubt::default(),
            learned: Learned::new(now),
            span: Span::default(),
        }
    }

    /// The rate as configured or learned.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate.or_else(|| Rate::from_bits(self.learned.best()))
    }

    /// What `bytes` bytes take; nothing while no rate is known.
    pub(crate) fn airtime(&self, bytes: u64) -> Duration {
        self.rate().map_or(Duration::ZERO, |rate| rate.airtime(bytes))
    }

    /// Whether DATA or a probe may go now.
    pub(crate) fn gate(&self, now: Time, config: &Config) -> Gate {
        if self.is_shut(config) {
            return Gate::Shut;
        }
        let Some(opens) = self.opens_at(config) else { return Gate::Open };
        if opens <= now { Gate::Open } else { Gate::At(opens) }
    }

    /// How much later answers may come than those before, for more is sent to try whether more arrives.
    pub(crate) fn more_time(&self, config: &Config) -> Duration {
        if self.span.is_up() { self.airtime(self.limit(config) / 3) } else { Duration::ZERO }
    }

    /// Whether as much is under way as may be.
    pub(crate) fn is_shut(&self, config: &Config) -> bool {
        config.mode == Mode::Arq && self.under_way() >= self.most(config)
    }

    /// Whether that will still be so when all has been answered that was asked for: less may be under way now
    /// than when it was sent, and nobody asked about the last of it.
    pub(crate) fn must_ask(&self, config: &Config) -> bool {
        config.mode == Mode::Arq && self.unasked() >= self.most(config)
    }

    /// Whether so much has been sent since an acknowledgement was asked for that the next
    /// frame should ask for one; `contended` if other destinations wait.
    pub(crate) fn wants_poll(&self, next: u64, contended: bool, config: &Config) -> bool {
        // The answer is to be back before all that may be is under way. Where the rate is learned
        // there is less of that, where answers are late the device may hold more than it should, and
        // where several destinations wait it matters to know of a bad channel soon.
        let unasked = self.unasked() + next;
        let (part, of) = if !contended && self.rate.is_some() && self.is_in_time() { (3, 4) } else { (1, 2) };
        self.doubt.is_open || unasked * of >= self.limit(config) * part
    }

    /// The most frames for each acknowledgement asked for: they are watched more closely where the device
    /// may hold more than it should.
    pub(crate) fn poll_every(&self, config: &Config) -> u32 {
        if self.is_in_time() { config.poll_every() } else { config.poll_every().min(POLL_EVERY_LATE) }
    }

    /// Whether answers come, and the latest when it was to be expected.
    fn is_in_time(&self) -> bool {
        self.round_trip.get().is_some() && self.doubt.late == 0
    }

    /// The frame or probe just sent asks for an acknowledgement.
    pub(crate) fn asked(&mut self) {
        self.asked = self.sent;
    }

    /// A frame came in that took `cost` bytes of the medium. On a shared medium what the
    /// device has to send had to wait for it, if that is believed.
    pub(crate) fn heard(&mut self, now: Time, cost: u64, believed: bool, config: &Config) {
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

    /// A frame goes that takes `cost` bytes of the medium; `is_data` if an acknowledgement of
    /// it can be missed.
    pub(crate) fn send(&mut self, now: Time, cost: u64, is_data: bool, config: &Config) -> Departure {
        let clear = self.sent == self.confirmed;
        if clear {
            self.learned.end_train();
            // All that was sent has left, as far as it is acknowledged at all.
            if config.mode == Mode::Arq {
                self.free_at = self.free_at.min(now);
            }
        }
        if let Some(rate) = self.rate {
            let frame = rate.airtime(config.cost_max());
            // Probes go in a pause, too.
            if is_data && now > self.data_until + frame {
                self.learned.on_pause(self.sent);
            }
            self.free_at = self.free_at.max(now);
            self.free_at += rate.airtime(cost);
            if is_data {
                self.data_until = self.free_at;
            }
            // What is no DATA goes in any case, and must not shut DATA out for longer than a frame takes.
            if is_data || self.due_at <= now + frame {
                self.due_at = self.due_at.max(now) + rate.airtime(cost);
            }
            // For a short answer no more than it takes itself, or who makes us answer without end
            // would hold us up as long.
            let waits = if is_data { frame } else { rate.airtime(cost) };
            self.waits = (self.waits + waits).min(frame * 2);
        } else {
            self.free_at = now;
        }
        if is_data {
            self.sent += cost;
            // With a rate that is told a pause shows that there was no more to send.
            if self.rate.is_some() || self.is_shut(config) {
                self.learned.on_full();
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

    /// An acknowledgement told that `departure` has arrived, and all before it have left;
    /// `at_once` if it was answered without delay. `lost` frames before it were lost.
    pub(crate) fn confirm(
        &mut self,
        now: Time,
        departure: &Departure,
        at_once: bool,
        lost: u64,
        lag: &Lag,
        config: &Config,
    ) {
        if at_once {
            self.measure(now, departure, config);
            self.correct(now, departure, lag, config);
        }
        if let Some(rate) = self.rate {
            // What it answers has left: the device holds at most what was sent after that,
            // each such frame with one of another station before it. Another's answer may have told
            // of more: an answer that is late itself, or a lie, must not hold everybody up.
            let held = rate.airtime(self.sent - self.confirmed.max(departure.total)) * stations(config);
            self.free_at = self.free_at.min(now + held);
        }
        self.confirmed = self.confirmed.max(departure.total);
        self.learn(now, departure, lost, config);
    }

    /// Learns from the answer to `departure` at which rate frames leave, and how much under way that takes.
    fn learn(&mut self, now: Time, departure: &Departure, lost: u64, config: &Config) {
        if self.rate.is_none() && self.round_trip.is_stale() {
            // Nothing but a few frames are to be under way.
            self.learned.end_train();
            self.span.disturbed();
        }
        let frame = config.cost_max();
        let longest = (self.round_trip.get().unwrap_or_default() * 2).max(TRAIN_LONGEST);
        let measure = Measure { length: self.product().max(TRAIN_FRAMES * frame), longest, frame };
        let told = Told { confirmed: self.confirmed, sent: departure.sent, lost };
        let run = self.learned.take(now, told, measure);
        self.learned.round(self.confirmed, self.sent);
        if let Some(run) = run
            && self.rate.is_none()
            && self.learned.is_level()
        {
            let (least, frame) = (self.round_trip.get().unwrap_or_default(), self.airtime(frame));
            self.span.take(run, least, frame);
        }
    }

    /// By how much an answer may exceed the shortest round trip and still be no sign of a longer
    /// path: `None` if it may have waited behind other frames of ours.
    pub(crate) fn slack(&self, departure: &Departure, config: &Config) -> Option<Duration> {
        self.is_clear(departure, config).then(|| self.late_by(config))
    }

    /// Whether nothing of ours can have delayed the answer to `departure`, and nothing of the
    /// other end's: two ends that take each other's queues for a longer path would add to them
    /// without end.
    fn is_clear(&self, departure: &Departure, config: &Config) -> bool {
        departure.clear && self.heard - departure.heard <= config.cost_max() * 2
    }

    fn late_by(&self, config: &Config) -> Duration {
        let frames = self.airtime(config.cost_max()) * (stations(config) + 1);
        self.round_trip.get().unwrap_or_default() / 4 + frames + SLACK_MIN
    }

    /// Takes the round trip of `departure`, and finds out whether the path is longer than it was.
    fn measure(&mut self, now: Time, departure: &Departure, config: &Config) {
        let (value, slack) = (now.since(departure.sent), self.late_by(config));
        let is_late = self.round_trip.get().is_some_and(|least| value > least + slack);
        if self.rate.is_some() && self.is_clear(departure, config) {
            let is_longer = self.round_trip.sample_clear(now, value, slack);
            if is_longer {
                self.learned.restart();
                self.doubt = Doubt::default();
            }
            self.doubt.is_open &= is_late && !is_longer;
            return;
        }
        self.round_trip.sample(now, value);
        // It was sent by itself, and still others were in its way: this is not the time to find out.
        self.doubt.is_open &= !departure.clear;
        // Who still looks for the rate keeps a queue. An answer to something sent before what another
        // has answered waited elsewhere: its sender's path is not everybody's.
        let counts = is_late && self.rate.is_some();
        self.doubt.late = match counts {
            true if departure.total <= self.confirmed => self.doubt.late,
            true => self.doubt.late + 1,
            false => 0,
        };
        if self.doubt.late >= LATE_MAX && now >= self.doubt.again_at {
            // Several destinations with bad channels have many late answers, and it costs airtime.
            let vain = (self.doubt.vain + 1).min(DOUBTS_VAIN_MAX);
            let again_at = now + DOUBT_AGAIN * (1 << (vain - 1));
            self.doubt = Doubt { late: 0, is_open: true, again_at, vain };
        }
    }

    /// `departure` must have left by now, whether or not it arrived.
    pub(crate) fn passed(&mut self, departure: &Departure) {
        let before = self.confirmed;
        self.confirmed = before.max(departure.total);
        self.learned.on_passed(self.confirmed - before);
        self.span.disturbed();
    }

    /// When the device has room; `None` if that is not told by time.
    pub(crate) fn opens_at(&self, config: &Config) -> Option<Time> {
        let slack = self.rate?.airtime(config.cost_max() / 2).max(SLACK_MIN);
        Some(self.free_at.max(self.due_at) - slack)
    }

    /// If the answer came later than the shortest way and the frames that any answer may have
    /// to wait for account for, the device may be behind: let it catch up wholly, so that the
    /// shortest way stays known.
    ///
    /// May, for the answer may also have waited at the other end, or for the end of a cell
    /// switch: [`confirm`](Pacer::confirm) sees to it that this does no harm.
    fn correct(&mut self, now: Time, departure: &Departure, lag: &Lag, config: &Config) {
        let (Some(rate), Some(least)) = (self.rate, lag.least()) else { return };
        if departure.total <= self.corrected {
            return;
        }
        let behind = now.since(departure.at).saturating_sub(least);
        let frame = rate.airtime(config.cost_max());
        let standing = self.standing.take(behind).filter(|standing| *standing > SLACK_MIN.max(frame / STANDING_PART));
        if behind > frame * (stations(config) + self.turns(departure, config)) {
            self.free_at = self.free_at.max(now) + behind;
        } else if let Some(standing) = standing {
            self.free_at += standing;
        } else {
            return;
        }
        self.data_until = self.free_at;
        self.corrected = self.sent;
        self.standing = Standing::default();
    }

    /// How many frames of ours may have been between the answer to `departure` and what the other end had to send
    /// before it: they take turns.
    fn turns(&self, departure: &Departure, config: &Config) -> u32 {
        let heard = self.heard_frames.saturating_sub(departure.heard_frames);
        // One is the answer.
        let before = heard.saturating_sub(1).min(TURNS_MAX);
        if config.duplex == Duplex::Half { before as u32 } else { 0 }
    }

    fn under_way(&self) -> u64 {
        self.sent - self.confirmed
    }

    /// Bytes sent since an acknowledgement was asked for.
    fn unasked(&self) -> u64 {
        self.sent - self.asked.max(self.confirmed)
    }

    /// The most bytes that may be under way now.
    fn most(&self, config: &Config) -> u64 {
        if self.doubt.is_open { 1 } else { self.limit(config) }
    }

    /// The same, while the shortest round trip is not in doubt.
    fn limit(&self, config: &Config) -> u64 {
        let frame = config.cost_max();
        let product = self.product();
        match self.rate {
            Some(_) => {
                let more = (product / 8).saturating_sub(2 * frame);
                product + more + (u64::from(self.poll_every(config)) + SPARE_FRAMES) * frame
            }
            None if self.round_trip.is_stale() => 1,
            None if self.learned.is_level() => {
                let span = self.round_trip.get().unwrap_or_default() + self.span.extra();
                let product = bytes_in(self.learned.best(), span);
                let spare = bytes_in(self.learned.best(), SPARE_TIME);
                let spare = frame + spare.min((SPARE_FRAMES - 1) * frame);
                self.span.tried(product + product / 8 + spare)
            }
            None => product * 2 + FIRST_FRAMES * frame,
        }
    }

    /// Bytes under way when nothing waits: rate times the shortest round trip. Of a shared
    /// medium, or of one slower than we were told, less than the rate is ours.
    fn product(&self) -> u64 {
        let learned = self.learned.best();
        let bits = self.rate.map_or(learned, |rate| if learned > 0 { rate.bits().min(learned) } else { rate.bits() });
        bytes_in(bits, self.round_trip.get().unwrap_or_default())
    }
}

/// Stations that take turns with frames on the medium.
fn stations(config: &Config) -> u32 {
    match config.duplex {
        Duplex::Half => 2,
        Duplex::Full => 1,
    }
}

fn bytes_in(bits: u64, time: Duration) -> u64 {
    let bytes = u128::from(bits) * time.as_nanos() / 8_000_000_000;
    // Far more than any window, and still far from overflow when it is doubled.
    u64::try_from(bytes).unwrap_or(u64::MAX).min(1 << 40)
}

#[cfg(test)]
mod tests;
