//! The default retransmission policy: it infers losses instead of waiting for timeouts.
//!
//! A link delivers in order, so a reply proves the fate of all that was sent before its
//! request: what is still unanswered was lost and is sent again at once (RACK, RFC 8985,
//! carried over from segments to requests). When a whole window is lost there is no such
//! reply. Then, as soon as the next reply is overdue, the client probes with NULL calls, a
//! millisecond of airtime each at 1 Mbit/s, close together at first and never more than
//! [`PROBE_MAX`](super::probes::PROBE_MAX) apart. A probe's reply is evidence like any other, and the first that gets
//! through after a burst releases everything. Nothing backs off because of the burst itself;
//! what is answered late rather than never widens the tolerance for reordering.
//!
//! Below a link that holds things and delivers them late, silence means nothing of the kind;
//! what silences mean here is learned in `probes.rs`.
//!
//! Evidence from probes says nothing about a server that is slow at the request itself, so
//! each fruitless retransmission of a request doubles how long it is left alone.

use std::time::Duration;

use remora_base::Time;

use super::disk_latency::DiskLatency;
use super::evidence::Evidence;
use super::path_snapshot::PathSnapshot;
use super::reordering_window::ReorderingWindow;
use super::spurious_timeout::SpuriousTimeouts;
use crate::call::{PendingCall, Transmission};
use crate::config::Config;
use crate::congestion::delivery_rate::{DeliveryRate, Jitter};
use crate::congestion::duty_cycle::PAUSE;
use crate::congestion::rtt::{BaseRtt, MeanDuration, Rtt};
use crate::congestion::window::ReplySample;
use crate::loss::loss_rate::LossMeter;
use crate::loss::probes::{Arrival, Probes};
use crate::request::CallClass;
use crate::transport::Transport;
use crate::transport::block_size::{PathView, Shared, fragments, frames, is_cut};

/// Samples of the time a frame takes before it is believed.
const SPACINGS_MIN: u32 = 3;
/// So many times what a frame was seen to take is no slower hop, at first, if it lasted so long.
const SILENCE: u32 = 4;
const SILENCE_MIN: Duration = Duration::from_millis(200);
/// The time from one burst to the next that is reckoned with before two were seen.
const INTERVAL_UNKNOWN: Duration = Duration::from_secs(1);
/// How much later than its queue explains an answer over a stream comes once a segment of it, or
/// before it, had to be sent again.
const REPAIR: Duration = Duration::from_millis(60);
/// How long after that the stream is expected to do so again.
const REPAIRS_LAST: Duration = Duration::from_secs(10);
/// The longest that a link below is expected to take for sending something again.
const LINK_REPAIR_MAX: Duration = Duration::from_millis(300);
/// How long after somebody waited for something small blocks are kept short.
const FOREGROUND_LASTS: Duration = Duration::from_secs(1);
/// How long after that they are at least not longer than usual.
const FOREGROUND_FORGOTTEN: Duration = Duration::from_secs(5);

/// What the client has learned of the link.
#[derive(Debug, Default)]
pub(crate) struct LossDetector {
    pub(crate) began: Time,
    /// False over a stream, and with policies that have timeouts: silences are theirs then.
    pub(crate) infers: bool,
    /// Answers come in order, late rather than never.
    pub(crate) is_stream: bool,
    pub(crate) rtt: [Rtt; CallClass::ALL.len()],
    /// What round trips of file data come to beside the time the slowest hop works on them.
    pub(crate) base: BaseRtt,
    pub(crate) null_rtt: Rtt,
    pub(crate) behind: DiskLatency,
    /// When something other than a change was last found lost.
    pub(crate) lost_other: Option<Time>,
    /// Time a full frame takes, from the spacing of replies in a busy pipe.
    pub(crate) frame_time: MeanDuration,
    /// The same as a first guess: what a round trip is longer for a frame of file data.
    pub(crate) frame_guess: Option<Duration>,
    /// Time from one burst of losses to the next.
    pub(crate) burst_interval: MeanDuration,
    pub(crate) last_burst: Option<Time>,
    pub(crate) jitter: Jitter,
    pub(crate) delivery: DeliveryRate,
    pub(crate) reorder: ReorderingWindow,
    pub(crate) loss: LossMeter,
    /// When a stream was last seen to repair itself.
    pub(crate) last_repair: Option<Time>,
    pub(crate) last_foreground: Option<Time>,
    pub(crate) evidence: Evidence,
    pub(crate) last_reply: Option<Time>,
    pub(crate) last_bulk: Option<Time>,
    /// Which transmission of file data that answered.
    pub(crate) last_nth: u64,
    /// Something was lost since `last_bulk`, so the spacing to the next reply says nothing.
    pub(crate) disturbed: bool,
    pub(crate) probes: Probes,
    pub(crate) always: SpuriousTimeouts,
    pub(crate) aside: Option<PathSnapshot>,
}

/// What a reply says about its request.
pub(crate) struct Observed {
    /// What the window wants to know, but for `bytes` and `full`.
    pub(crate) seen: ReplySample,
    /// It answers a transmission that had been given up for lost.
    pub(crate) spurious: bool,
}

impl LossDetector {
    /// At `now`, for a client like this.
    pub(crate) fn new(now: Time, config: &Config) -> LossDetector {
        let is_stream = config.transport == Transport::Tcp;
        let probes = Probes::new(is_cut(config.path_mtu));
        LossDetector { began: now, infers: config.infers_losses(), is_stream, probes, ..LossDetector::default() }
    }

    /// Takes the reply to `call`, last sent as `sent`, with these requests unanswered beside it. Whether that `is_telling`
    /// how long such calls take.
    pub(crate) fn on_reply<'a>(
        &mut self,
        now: Time,
        call: &'a PendingCall,
        sent: Transmission,
        is_telling: bool,
        flying: impl Iterator<Item = (&'a PendingCall, Transmission)> + Clone,
    ) -> Observed {
        self.note_repair(now, call, sent, flying.clone().map(|(c, _)| c));
        let oldest = self.oldest(flying.chain([(call, sent)]));
        self.on_heard(now, sent.at, oldest.is_none_or(|(_, s)| s.seq >= sent.seq), oldest);
        let age = now.since(sent.at);
        let shortest = self.shortest(call);
        // A reply sooner than the link allows answers an earlier transmission; so does one sooner than
        // the queue does.
        let queued = self.rtt(call.class).smoothed().map_or(Duration::ZERO, |(mean, _)| mean / 4);
        let spurious = sent.retries > 0 && shortest.is_some_and(|s| age < (s * 7 / 8).max(queued));
        // What a silence held back says nothing of the path without one.
        let is_held = self.probes.held_until(sent.at).is_some() || self.probes.kept(sent.at) > sent.at;
        let rtt = if sent.retries == 0 && !is_held && is_telling { Some(age) } else { None };
        if let Some(rtt) = rtt {
            self.sample(now, call, rtt, sent.alone);
        }
        if sent.retries == 0 {
            self.always.end(call.class);
        } else if call.class.is_bulk() && is_telling && !is_held && !spurious {
            self.on_again(now, call, sent);
        }
        if call.class == CallClass::Change {
            let loses = self.lost_other.is_some_and(|t| t >= call.submitted);
            self.behind.sample(now, call, sent, loses);
        }
        let pause = self.pause(now, call, sent);
        self.loss.on_fate(sent.seq, false);
        if spurious {
            if !call.is_commit() {
                self.reorder.on_spurious();
            }
        } else if sent.retries == 0 || !self.reorder.is_known() {
            self.evidence.add(sent.seq, !call.class.is_bulk() && self.has_waited(age));
            self.loss.on_passed(sent.seq);
        }
        if call.class.is_bulk() {
            self.sample_delivery(now, call, sent, rtt);
            if let Some(rtt) = rtt {
                self.sample_spacing(now, call, sent, rtt);
                let more = rtt.saturating_sub(self.small_trip().unwrap_or_default()).div_f64(frames(call.bytes()));
                self.frame_guess = Some(self.frame_guess.map_or(more, |g| g.min(more)));
            }
            self.last_bulk = Some(now);
            self.last_nth = sent.nth;
            self.disturbed = false;
        }
        self.last_reply = Some(now);
        self.probes.on_real_reply();
        let spacing = self.pace().map(|frame| frame.mul_f64(frames(call.bytes())));
        let repaired = self.is_repairing(now) && self.shared(now) != Shared::Now;
        let shortest = self.shortest(call);
        let repair = self.link_repair();
        let jitter = self.tolerance(now, spacing);
        let noise = self.noise(call);
        let seen = ReplySample {
            bytes: 0,
            sent: sent.at,
            rtt,
            shortest,
            spacing,
            pause,
            jitter,
            repair,
            noise,
            full: false,
            repaired,
        };
        Observed { seen, spurious }
    }

    /// A stream that answers `call` later than the queue explains had to send something again.
    pub(crate) fn note_repair<'a>(
        &mut self,
        now: Time,
        call: &PendingCall,
        sent: Transmission,
        beside: impl Iterator<Item = &'a PendingCall>,
    ) {
        let Some(shortest) = self.shortest(call).filter(|_| self.is_stream && call.class.is_bulk()) else { return };
        let ahead = beside.filter(|c| c.class.is_bulk()).map(PendingCall::bytes).fold(0, u32::saturating_add);
        let queue = self.airtime(ahead).unwrap_or_default();
        if now.since(sent.at) > shortest + queue + REPAIR {
            self.last_repair = Some(now);
        }
    }

    /// How long nothing came before the answer to `call`, which waited already, if that is too long to have been
    /// the slowest hop's work.
    pub(crate) fn pause(&self, now: Time, call: &PendingCall, sent: Transmission) -> Duration {
        // What a stream holds back, or a loss does, is another matter.
        let is_clear = call.class.is_bulk() && !self.is_stream && !self.disturbed;
        let since = self.last_bulk.filter(|last| is_clear && sent.at <= *last);
        let gap = since.map_or(Duration::ZERO, |last| now.since(last));
        match self.pace() {
            Some(frame) if gap > frame.mul_f64(frames(call.bytes())) * PAUSE => gap,
            _ => Duration::ZERO,
        }
    }

    /// How long a link that sends again what was lost keeps what came after it: a round trip, of which this
    /// one is the most.
    pub(crate) fn link_repair(&self) -> Duration {
        let frame = self.pace().filter(|_| self.probes.is_patient());
        let trip = frame.and_then(|frame| self.base.trip(0.0, frame));
        trip.map_or(Duration::ZERO, |trip| trip.min(LINK_REPAIR_MAX))
    }

    /// Whether a stream is expected to send things again.
    pub(crate) fn is_repairing(&self, now: Time) -> bool {
        self.last_repair.is_some_and(|t| now.since(t) < REPAIRS_LAST)
    }

    /// Whether people wait for small requests.
    pub(crate) fn shared(&self, now: Time) -> Shared {
        match self.last_foreground.map(|t| now.since(t)) {
            Some(ago) if ago < FOREGROUND_LASTS => Shared::Now,
            Some(ago) if ago < FOREGROUND_FORGOTTEN => Shared::Lately,
            _ => Shared::No,
        }
    }

    pub(crate) fn rtt(&self, class: CallClass) -> &Rtt {
        &self.rtt[class as usize]
    }

    pub(crate) fn sample(&mut self, now: Time, call: &PendingCall, rtt: Duration, alone: bool) {
        // A request that had the pipe to itself sets the minimum afresh if it is much longer
        // than the one on record: the path has changed.
        let long = alone && self.shortest(call).is_some_and(|s| rtt > s * 2);
        let frame = self.frame_time().unwrap_or_default();
        let r = &mut self.rtt[call.class as usize];
        if long {
            r.forget_min();
            self.base.forget();
        }
        r.sample(now, rtt);
        if call.class.is_bulk() {
            self.base.sample(now, rtt, frames(call.bytes()), frame);
        }
    }

    /// The least time that a call like this takes.
    pub(crate) fn shortest(&self, call: &PendingCall) -> Option<Duration> {
        let seen = self.rtt(call.class).min()?;
        let frame = self.frame_time().filter(|_| call.class.is_bulk());
        frame.and_then(|frame| self.base.trip(frames(call.bytes()), frame)).or(Some(seen))
    }

    /// The time between two replies is what the slowest hop needs for the second, if that had
    /// to wait there for about as long, and right behind the first.
    pub(crate) fn sample_spacing(&mut self, now: Time, call: &PendingCall, sent: Transmission, rtt: Duration) {
        let (Some(last), Some(shortest)) = (self.last_bulk, self.rtt(call.class).min()) else { return };
        let gap = now.since(last);
        let spacing = gap.div_f64(frames(call.bytes()));
        // Before the path is known nobody can tell a silence from a slow one, but that a frame took less already.
        let is_silence = |guess: Duration| self.pace().is_none() && gap > SILENCE_MIN && spacing > guess * SILENCE;
        if self.frame_guess.is_some_and(is_silence) {
            return;
        }
        // What a stream held back until it was whole comes all at once.
        let is_whole = self.last_repair.is_none_or(|t| sent.at > t);
        if is_whole && !self.disturbed && sent.nth == self.last_nth + 1 && rtt >= shortest + gap / 2 {
            self.frame_time.sample(spacing);
        }
    }

    /// Takes note of a transmission.
    pub(crate) fn on_sent(&mut self, call: &PendingCall, sent: Transmission) {
        // It waits for as much of a disk as there is to be written, which no loss explains.
        if call.is_commit() {
            return;
        }
        // What is sent again and again may only be slow to be answered, and something small needs no more than once for that.
        if sent.retries == 0 || (call.class.is_bulk() && self.in_vain(call, sent) == 0) {
            self.loss.on_sent(sent.seq, fragments(call.bytes()) + 1);
        }
    }

    /// Something that people wait for was asked.
    pub(crate) fn on_foreground(&mut self, now: Time) {
        self.last_foreground = Some(now);
    }

    /// A silence by agreement is over. What was on its way when it began is sent again, for
    /// nobody knows its fate; or the link has `kept` it, and it is as if it were sent now.
    pub(crate) fn on_resume(&mut self, now: Time, kept: bool) {
        self.probes.on_resume(now, kept);
        self.disturbed = true;
        if !kept {
            self.loss.forget_flying();
        }
    }

    /// Whether requests were found lost of late that were answered after all.
    pub(crate) fn answers_late(&self) -> bool {
        self.reorder.is_known()
    }

    /// The share of frames lost one by one.
    pub(crate) fn loss(&self) -> Option<f64> {
        self.loss.independent()
    }

    /// How many calls like this are lost for each that is answered, where frames are lost one by one.
    pub(crate) fn noise(&self, call: &PendingCall) -> f64 {
        let arrives = (1.0 - self.loss().unwrap_or_default()).powf(f64::from(fragments(call.bytes()) + 1));
        1.0 / arrives.max(1e-3) - 1.0
    }

    /// The shortest round trip of something small.
    pub(crate) fn small_trip(&self) -> Option<Duration> {
        [self.null_rtt.min(), self.rtt(CallClass::Ask).min(), self.rtt(CallClass::Change).min()]
            .into_iter()
            .flatten()
            .min()
    }

    /// The longest of the usual round trips.
    pub(crate) fn usual_trip(&self) -> Option<Duration> {
        self.rtt.iter().filter_map(Rtt::smoothed).map(|(mean, _)| mean).max()
    }

    /// How long the slowest hop needs for messages of `bytes` bytes.
    pub(crate) fn airtime(&self, bytes: u32) -> Option<Duration> {
        self.frame_time().map(|frame| frame.mul_f64(frames(bytes)))
    }

    /// How long the slowest hop was seen to need for a full frame.
    pub(crate) fn pace(&self) -> Option<Duration> {
        let spaced = self.frame_time.mean().filter(|_| self.frame_time.samples() >= SPACINGS_MIN)?;
        let delivered = self.delivery.frame().filter(|_| !self.jitter(spaced).is_zero());
        Some(delivered.map_or(spaced, |frame| frame.min(spaced)))
    }

    /// The same, or a first guess.
    pub(crate) fn frame_time(&self) -> Option<Duration> {
        // What is answered in a round trip went by in that time: a server that is slow at each request is no slow hop.
        let guess = || self.frame_guess.map(|guess| self.delivery.frame().map_or(guess, |frame| frame.min(guess)));
        self.pace().or_else(guess)
    }

    /// The first of these to have been sent, of those whose fate is unknown.
    pub(crate) fn oldest<'a>(
        &self,
        flying: impl Iterator<Item = (&'a PendingCall, Transmission)>,
    ) -> Option<(&'a PendingCall, Transmission)> {
        let unknown = |s: &Transmission| !s.resending && !self.evidence.is_after(s.seq);
        flying.filter(|(_, s)| unknown(s)).min_by_key(|(_, s)| s.seq)
    }

    /// An answer has come, and until now that to `oldest` was awaited first.
    pub(crate) fn on_heard(
        &mut self,
        now: Time,
        sent: Time,
        is_oldest: bool,
        oldest: Option<(&PendingCall, Transmission)>,
    ) {
        if !self.infers {
            return;
        }
        // Before the path is known nobody can tell what is late.
        let is_known =
            |call: &PendingCall| self.frame_time.samples() >= SPACINGS_MIN && self.rtt(call.class).min().is_some();
        let known = oldest.filter(|(call, _)| is_known(call));
        let overdue = known.map_or(Duration::ZERO, |(call, s)| now.since(self.overdue_at(call, s)));
        let ended = self.probes.on_heard(now, Arrival { sent, is_oldest, overdue }, self.probe_pace());
        self.disturbed |= ended;
    }

    /// Takes the reply to a probe, with these requests unanswered; false if there was none with
    /// this xid.
    pub(crate) fn on_probe_reply<'a>(
        &mut self,
        now: Time,
        xid: u32,
        flying: impl Iterator<Item = (&'a PendingCall, Transmission)>,
    ) -> bool {
        let trip = self.small_trip().unwrap_or_default();
        let Some((sent, seq, is_first)) = self.probes.on_reply(now, xid, trip) else { return false };
        if !is_first {
            self.lost_other = Some(now);
            self.always.on_probe_lost(now);
        }
        let oldest = self.oldest(flying);
        // One that was held back shows that those before it were, too: a server may answer it
        // before requests that arrived with it.
        let usual = self.usual_trip().unwrap_or_default() + self.probe_pace() * 3;
        let was_held = is_first && now.since(sent) > usual;
        self.on_heard(now, sent, was_held || oldest.is_none_or(|(_, s)| s.seq > seq), oldest);
        if !was_held {
            self.null_rtt.sample(now, now.since(sent));
        }
        self.evidence.add(seq, false);
        self.loss.on_fate(seq, false);
        self.loss.on_passed(seq);
        true
    }

    /// A request that had been sent again was answered twice: nothing of it had been lost.
    pub(crate) fn on_second_reply(&mut self) {
        self.reorder.on_spurious();
        self.loss.take_back();
    }

    /// Remembers that a probe was sent.
    pub(crate) fn on_probe_sent(&mut self, now: Time, xid: u32, seq: u64) {
        self.probes.on_sent(now, xid, seq);
        self.loss.on_probe_sent(seq);
    }

    /// Takes note that these transmissions were found lost at `now`.
    pub(crate) fn on_losses(&mut self, now: Time, lost: impl Iterator<Item = (u64, CallClass)>) {
        self.disturbed = true;
        self.probes.on_loss();
        self.reorder.on_loss();
        for (seq, class) in lost {
            self.loss.on_fate(seq, true);
            if class != CallClass::Change {
                self.lost_other = Some(now);
            }
        }
        // Losses close together are one burst.
        let apart = self.last_burst.map(|t| now.since(t));
        if apart.is_none_or(|d| d > Duration::from_millis(60)) {
            if let Some(d) = apart {
                self.burst_interval.sample(d.min(Duration::from_secs(20)));
            }
            self.last_burst = Some(now);
        }
    }

    /// What the block size is chosen from.
    pub(crate) fn link(&self, now: Time, mtu: u32) -> PathView {
        let known = self.burst_interval.mean().filter(|_| self.burst_interval.samples() >= 2);
        // A burst that has not come yet counts as soon as it is overdue.
        let quiet = now.since(self.last_burst.unwrap_or(self.began)).min(Duration::from_secs(20));
        let interval = known.unwrap_or(INTERVAL_UNKNOWN);
        let bursts = interval.max(if known.is_some() { quiet / 4 } else { quiet });
        // Who sends little hears of few losses, but those that come one by one come with what is sent.
        let scattered = self.loss().filter(|p| *p > 0.0);
        let one_by_one = self.frame_time().zip(scattered).map(|(frame, p)| frame.div_f64(p));
        PathView {
            frame_time: self.frame_time(),
            trip: self.small_trip(),
            is_bad: self.last_burst.is_some(),
            burst_interval: one_by_one.map_or(bursts, |t| t.min(bursts)),
            shared: self.shared(now),
            mtu,
        }
    }

    /// Whether anything but probes was answered.
    pub(crate) fn has_replied(&self) -> bool {
        self.last_reply.is_some()
    }

    /// Smoothed round trip of this class, for people.
    pub(crate) fn round_trip(&self, class: CallClass) -> Option<Duration> {
        self.rtt(class).smoothed().map(|s| s.0)
    }
}
