//! The default retransmission policy: infers losses instead of waiting for a fixed timeout.
//!
//! A link delivers in order, so a reply proves the fate of all that was sent before its request: what is still
//! unanswered was lost and is retransmitted at once (RACK, RFC 8985, applied to requests instead of segments). When a
//! whole window is lost there is no such reply. Then, as soon as the next reply is overdue, the client sends probes:
//! NULL calls of a millisecond of airtime each at 1 Mbit/s, close together at first and at most
//! [`PROBE_MAX`](super::probes::PROBE_MAX) apart. The reply to a probe is evidence like any other, so the first one
//! after a burst of losses starts all retransmissions. The burst itself causes no backoff; a spurious retransmission
//! widens the reordering window.
//!
//! A link that holds packets in an outage and delivers them afterwards delays instead of losing; [`probes`](super::probes)
//! learns which kind of link this is.
//!
//! Probes say nothing about a server that is slow at one request, so each retransmission of a request without any other
//! reply doubles its timeout.

use std::time::Duration;

use remora_base::Time;

use super::loss_timer::LossTimer;
use super::path_model::PathSnapshot;
use super::path_model::{PathModel, SPACINGS_MIN};
use super::probes::{Arrival, Probes};
use super::reordering::Evidence;
use super::slow_server::SpuriousTimeouts;
use crate::call::{PendingCall, Transmission};
use crate::config::ClientConfig;
use crate::congestion::delivery_rate::Delivered;
use crate::congestion::duty_cycle::PAUSE;
use crate::congestion::window::ReplySample;
use crate::request::CallClass;
use crate::transport::Transport;
use crate::transport::block_size::{Foreground, PathView, fragments, frames, is_cut};

/// Interval between bursts of losses that is assumed before two were seen.
const INTERVAL_UNKNOWN: Duration = Duration::from_secs(1);
/// The longest interval between bursts that counts.
const INTERVAL_MAX: Duration = Duration::from_secs(20);
/// Losses closer together than this are one burst.
const BURST_GAP: Duration = Duration::from_millis(60);
/// A stream's reply that comes this much later than its queue explains waited for a retransmitted segment.
const STREAM_REPAIR: Duration = Duration::from_millis(60);
/// How long after that a stream is expected to retransmit again.
const STREAM_REPAIRS_LAST: Duration = Duration::from_secs(10);
/// The longest time that a link layer is expected to take for a retransmission.
const LINK_REPAIR_MAX: Duration = Duration::from_millis(300);
/// How long after a small request of a user blocks are kept short.
const FOREGROUND_LASTS: Duration = Duration::from_secs(1);
/// How long after that blocks are not longer than usual.
const FOREGROUND_FORGOTTEN: Duration = Duration::from_secs(5);

/// Loss detection and the estimators that it feeds.
#[derive(Debug, Default)]
pub(crate) struct LossDetector {
    began: Time,
    /// False over a stream, and with policies that have fixed timeouts.
    infers: bool,
    /// Replies come in order, late rather than never.
    is_stream: bool,
    path: PathModel,
    snapshot: Option<PathSnapshot>,
    evidence: Evidence,
    probes: Probes,
    timeouts: SpuriousTimeouts,
    /// When a stream last retransmitted a segment.
    last_repair: Option<Time>,
    last_foreground: Option<Time>,
    last_reply: Option<Time>,
    /// When file data was last answered, and which transmission of it.
    last_bulk: Option<Time>,
    last_nth: u64,
    /// When something other than a change was last found lost.
    last_other_loss: Option<Time>,
    /// Something was lost since `last_bulk`, so the spacing to the next reply says nothing.
    disturbed: bool,
}

/// What a reply says about its request.
#[derive(Debug)]
pub(crate) struct Observed {
    /// For the window; the caller sets `bytes` and `full`.
    pub(crate) sample: ReplySample,
    /// The reply is to a transmission that had been declared lost.
    pub(crate) spurious: bool,
}

/// A request whose transmissions were all answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstReply {
    pub(crate) class: CallClass,
    pub(crate) bytes: u32,
    /// When the request was first sent.
    pub(crate) sent: Time,
    /// How much later the first reply came.
    pub(crate) rtt: Duration,
}

impl LossDetector {
    /// For a client with this configuration that starts at `now`.
    pub(crate) fn new(now: Time, config: &ClientConfig) -> LossDetector {
        let is_stream = config.transport == Transport::Tcp;
        let probes = Probes::new(is_cut(config.path_mtu));
        LossDetector { began: now, infers: config.infers_losses(), is_stream, probes, ..LossDetector::default() }
    }

    pub(crate) fn path(&self) -> &PathModel {
        &self.path
    }

    pub(crate) fn timer(&self) -> LossTimer<'_> {
        let LossDetector { path, probes, evidence, last_reply, last_bulk, .. } = self;
        LossTimer { path, probes, evidence, last_reply: *last_reply, last_bulk: *last_bulk }
    }

    /// Takes the reply to `call`, last sent as `sent`; `in_flight` are the other unanswered requests. `is_telling`: the
    /// reply has enough data to show how long such calls take.
    pub(crate) fn on_reply<'a>(
        &mut self,
        now: Time,
        call: &'a PendingCall,
        sent: Transmission,
        is_telling: bool,
        in_flight: impl Iterator<Item = (&'a PendingCall, Transmission)> + Clone,
    ) -> Observed {
        self.note_repair(now, call, sent, in_flight.clone().map(|(c, _)| c));
        let oldest = self.oldest(in_flight.chain([(call, sent)]));
        self.on_arrival(now, sent.at, oldest.is_none_or(|(_, s)| s.seq >= sent.seq), oldest);
        let age = now.since(sent.at);
        let spurious = self.is_spurious(call, sent, age);
        // What a silence held back says nothing of the path without one.
        let is_held = self.is_held_back(sent.at);
        let rtt = if sent.retries == 0 && !is_held && is_telling { Some(age) } else { None };
        if let Some(rtt) = rtt {
            self.path.sample_rtt(now, call, rtt, sent.alone);
        }
        if sent.retries == 0 {
            self.timeouts.on_answered_once(call.class);
        } else if call.class.is_bulk() && is_telling && !is_held && !spurious {
            let is_slow = self.timeouts.on_retransmitted(call.class, sent.first);
            if is_slow && self.path.shortest(call).is_none() {
                self.path.learn(now, call.class, call.bytes(), now.since(sent.first));
            }
        }
        if call.class == CallClass::Change {
            let loses = self.last_other_loss.is_some_and(|t| t >= call.submitted);
            self.path.disk_latency.sample(now, call, sent, loses);
        }
        let pause = self.pause(now, call, sent);
        self.note_answered(call, sent, age, spurious);
        if call.class.is_bulk() {
            self.note_bulk(now, call, sent, rtt);
        }
        self.last_reply = Some(now);
        self.probes.on_real_reply();
        Observed { sample: self.sample(now, call, sent, rtt, pause), spurious }
    }

    /// Whether a reply after `age` is to an earlier transmission: it is sooner than the link, or the queue, allows.
    fn is_spurious(&self, call: &PendingCall, sent: Transmission, age: Duration) -> bool {
        let queued = self.path.rtt(call.class).smoothed().map_or(Duration::ZERO, |(mean, _)| mean / 4);
        sent.retries > 0 && self.path.shortest(call).is_some_and(|s| age < (s * 7 / 8).max(queued))
    }

    /// Whether a silence held back a request sent at `sent`.
    fn is_held_back(&self, sent: Time) -> bool {
        self.probes.held_until(sent).is_some() || self.probes.kept(sent) > sent
    }

    fn note_answered(&mut self, call: &PendingCall, sent: Transmission, age: Duration, spurious: bool) {
        self.path.loss.on_fate(sent.seq, false);
        if spurious {
            if !call.is_commit() {
                self.path.reordering.on_spurious();
            }
        } else if sent.retries == 0 || !self.path.reordering.is_known() {
            self.evidence.add(sent.seq, !call.class.is_bulk() && self.has_waited(age));
            self.path.loss.on_passed(sent.seq);
        }
    }

    /// Whether a small request that took `rtt` waited in a queue.
    fn has_waited(&self, rtt: Duration) -> bool {
        self.path.min_rtt().is_some_and(|least| rtt > least + self.path.frame_time().unwrap_or_default())
    }

    fn note_bulk(&mut self, now: Time, call: &PendingCall, sent: Transmission, rtt: Option<Duration>) {
        if !self.is_stream {
            self.path.sample_delivery(now, call, sent, rtt);
        }
        if let Some(rtt) = rtt {
            self.sample_spacing(now, call, sent, rtt);
            self.path.guess_frame_time(call, rtt);
        }
        self.last_bulk = Some(now);
        self.last_nth = sent.nth;
        self.disturbed = false;
    }

    fn sample(
        &self,
        now: Time,
        call: &PendingCall,
        sent: Transmission,
        rtt: Option<Duration>,
        pause: Duration,
    ) -> ReplySample {
        let spacing = self.path.frame_pace().map(|frame| frame.mul_f64(frames(call.bytes())));
        ReplySample {
            bytes: 0,
            sent: sent.at,
            rtt,
            shortest: self.path.shortest(call),
            spacing,
            pause,
            jitter: self.tolerance(now, spacing),
            repair: self.link_repair(),
            noise: self.path.losses_per_reply(call),
            full: false,
            repaired: self.is_repairing(now) && self.foreground(now) != Foreground::Active,
        }
    }

    /// Jitter that the window allows for, where requests take `spacing` each. While a user waits for small requests,
    /// only jitter that is certainly no queue.
    fn tolerance(&self, now: Time, spacing: Option<Duration>) -> Duration {
        let is_sure = self.path.reorders() || self.foreground(now) != Foreground::Active;
        spacing.filter(|_| is_sure).map_or(Duration::ZERO, |spacing| self.path.path_jitter(spacing))
    }

    /// A stream that answers `call` later than its queue explains retransmitted a segment.
    fn note_repair<'a>(
        &mut self,
        now: Time,
        call: &PendingCall,
        sent: Transmission,
        others: impl Iterator<Item = &'a PendingCall>,
    ) {
        let is_stream_data = self.is_stream && call.class.is_bulk();
        let Some(shortest) = self.path.shortest(call).filter(|_| is_stream_data) else { return };
        let ahead = others.filter(|c| c.class.is_bulk()).map(PendingCall::bytes).fold(0, u32::saturating_add);
        let queue = self.path.airtime(ahead).unwrap_or_default();
        if now.since(sent.at) > shortest + queue + STREAM_REPAIR {
            self.last_repair = Some(now);
        }
    }

    /// The gap before the reply to `call`, which was in flight already, if it is too long for a busy hop.
    fn pause(&self, now: Time, call: &PendingCall, sent: Transmission) -> Duration {
        // A stream and a loss have other causes of a gap.
        let is_clear = call.class.is_bulk() && !self.is_stream && !self.disturbed;
        let since = self.last_bulk.filter(|last| is_clear && sent.at <= *last);
        let gap = since.map_or(Duration::ZERO, |last| now.since(last));
        match self.path.frame_pace() {
            Some(frame) if gap > frame.mul_f64(frames(call.bytes())) * PAUSE => gap,
            _ => Duration::ZERO,
        }
    }

    /// How long a link layer that retransmits holds back what came after a loss: a round trip on that link, at most
    /// this one.
    fn link_repair(&self) -> Duration {
        let frame = self.path.frame_pace().filter(|_| self.probes.holds_packets());
        let rtt = frame.and_then(|frame| self.path.propagation(frame));
        rtt.map_or(Duration::ZERO, |rtt| rtt.min(LINK_REPAIR_MAX))
    }

    /// Whether a stream is expected to retransmit segments.
    fn is_repairing(&self, now: Time) -> bool {
        self.last_repair.is_some_and(|t| now.since(t) < STREAM_REPAIRS_LAST)
    }

    /// Whether users wait for small requests.
    fn foreground(&self, now: Time) -> Foreground {
        match self.last_foreground.map(|t| now.since(t)) {
            Some(ago) if ago < FOREGROUND_LASTS => Foreground::Active,
            Some(ago) if ago < FOREGROUND_FORGOTTEN => Foreground::Recent,
            _ => Foreground::Idle,
        }
    }

    /// The time between two replies is the slowest hop's time for the second, if that waited there for about as long,
    /// right behind the first.
    fn sample_spacing(&mut self, now: Time, call: &PendingCall, sent: Transmission, rtt: Duration) {
        let (Some(last), Some(shortest)) = (self.last_bulk, self.path.rtt(call.class).min()) else { return };
        let gap = now.since(last);
        let spacing = gap.div_f64(frames(call.bytes()));
        if self.path.is_silence(gap, spacing) {
            return;
        }
        // What a stream held back until it was whole comes all at once.
        let is_whole = self.last_repair.is_none_or(|t| sent.at > t);
        if is_whole && !self.disturbed && sent.nth == self.last_nth + 1 && rtt >= shortest + gap / 2 {
            self.path.frame_time.sample(spacing);
        }
    }

    /// A request was sent.
    pub(crate) fn on_sent(&mut self, call: &PendingCall, sent: Transmission) {
        // COMMIT waits for the disk for an unknown time, which is no loss.
        if call.is_commit() {
            return;
        }
        // A request that is retransmitted again and again may be slow; for a small one, one retransmission is enough.
        if sent.retries == 0 || (call.class.is_bulk() && self.timer().excess_retries(call, sent) == 0) {
            self.path.loss.on_sent(sent.seq, fragments(call.bytes()) + 1);
        }
    }

    /// A user made a small request.
    pub(crate) fn on_foreground(&mut self, now: Time) {
        self.last_foreground = Some(now);
    }

    /// A hold is over. What was in flight is retransmitted, or the link `kept` it and it counts as sent now.
    pub(crate) fn on_resume(&mut self, now: Time, kept: bool) {
        self.probes.on_resume(now, kept);
        self.disturbed = true;
        if !kept {
            self.path.loss.forget_in_flight();
        }
    }

    /// Whether there were spurious retransmissions lately.
    pub(crate) fn answers_late(&self) -> bool {
        self.path.reordering.is_known()
    }

    /// Whether a later transmission than `sent` was answered.
    pub(crate) fn has_passed(&self, sent: &Transmission) -> bool {
        self.evidence.is_after(sent.seq)
    }

    /// Frames of file data answered so far.
    pub(crate) fn delivered(&self) -> Option<Delivered> {
        self.path.delivery.latest()
    }

    /// The earliest transmission of those whose fate is unknown.
    fn oldest<'a>(
        &self,
        in_flight: impl Iterator<Item = (&'a PendingCall, Transmission)>,
    ) -> Option<(&'a PendingCall, Transmission)> {
        let unknown = |s: &Transmission| !s.resending && !self.evidence.is_after(s.seq);
        in_flight.filter(|(_, s)| unknown(s)).min_by_key(|(_, s)| s.seq)
    }

    /// A reply arrived; `oldest` was the earliest unanswered transmission before it.
    fn on_arrival(&mut self, now: Time, sent: Time, is_oldest: bool, oldest: Option<(&PendingCall, Transmission)>) {
        if !self.infers {
            return;
        }
        // Before the path is known nothing is late.
        let is_known = |call: &PendingCall| {
            self.path.frame_time.samples() >= SPACINGS_MIN && self.path.rtt(call.class).min().is_some()
        };
        let known = oldest.filter(|(call, _)| is_known(call));
        let overdue = known.map_or(Duration::ZERO, |(call, s)| now.since(self.timer().overdue_at(call, s)));
        let ended = self.probes.on_heard(now, Arrival { sent, is_oldest, overdue }, self.path.probe_pace());
        self.disturbed |= ended;
    }

    /// Takes the reply to a probe, with these requests unanswered. Returns false if no probe has this xid.
    pub(crate) fn on_probe_reply<'a>(
        &mut self,
        now: Time,
        xid: u32,
        in_flight: impl Iterator<Item = (&'a PendingCall, Transmission)>,
    ) -> bool {
        let rtt = self.path.min_rtt().unwrap_or_default();
        let Some(probe) = self.probes.on_reply(now, xid, rtt) else { return false };
        if !probe.is_first {
            self.last_other_loss = Some(now);
            self.timeouts.on_probe_lost(now);
        }
        let oldest = self.oldest(in_flight);
        // A probe that was held back shows that earlier requests were, too: a server may answer the probe before
        // requests that arrived with it.
        let usual = self.path.longest_smoothed_rtt().unwrap_or_default() + self.path.probe_pace() * 3;
        let was_held = probe.is_first && now.since(probe.sent) > usual;
        let is_oldest = was_held || oldest.is_none_or(|(_, s)| s.seq > probe.seq);
        self.on_arrival(now, probe.sent, is_oldest, oldest);
        if !was_held {
            self.path.null_rtt.sample(now, now.since(probe.sent));
        }
        self.evidence.add(probe.seq, false);
        self.path.loss.on_fate(probe.seq, false);
        self.path.loss.on_passed(probe.seq);
        true
    }

    /// A retransmitted request was answered twice, so nothing of it was lost.
    pub(crate) fn on_second_reply(&mut self) {
        self.path.reordering.on_spurious();
        self.path.loss.take_back();
    }

    /// Each transmission of a request was answered.
    pub(crate) fn on_all_answered(&mut self, now: Time, reply: FirstReply) {
        if !self.is_held_back(reply.sent) && self.timeouts.on_all_answered(reply.class) {
            self.path.learn(now, reply.class, reply.bytes, reply.rtt);
        }
    }

    pub(crate) fn on_probe_sent(&mut self, now: Time, xid: u32, seq: u64) {
        self.probes.on_sent(now, xid, seq);
        self.path.loss.on_probe_sent(seq);
    }

    /// These transmissions were found lost at `now`.
    pub(crate) fn on_losses(&mut self, now: Time, lost: impl Iterator<Item = (u64, CallClass)>) {
        self.disturbed = true;
        self.probes.on_loss();
        self.path.reordering.on_loss();
        for (seq, class) in lost {
            self.path.loss.on_fate(seq, true);
            if class != CallClass::Change {
                self.last_other_loss = Some(now);
            }
        }
        let apart = self.path.last_burst.map(|t| now.since(t));
        if apart.is_none_or(|d| d > BURST_GAP) {
            if let Some(d) = apart {
                self.path.burst_interval.sample(d.min(INTERVAL_MAX));
            }
            self.path.last_burst = Some(now);
        }
    }

    /// What the block size is chosen from.
    pub(crate) fn view(&self, now: Time, mtu: u32) -> PathView {
        let known = self.path.burst_interval.mean().filter(|_| self.path.burst_interval.samples() >= 2);
        // The next burst counts as soon as it is overdue.
        let quiet = now.since(self.path.last_burst.unwrap_or(self.began)).min(INTERVAL_MAX);
        let interval = known.unwrap_or(INTERVAL_UNKNOWN);
        let bursts = interval.max(if known.is_some() { quiet / 4 } else { quiet });
        // A client that sends little sees few losses; independent ones come with what is sent.
        let loss = self.path.loss_rate().filter(|p| *p > 0.0);
        let independent = self.path.frame_time().zip(loss).map(|(frame, p)| frame.div_f64(p));
        PathView {
            frame_time: self.path.frame_time(),
            min_rtt: self.path.min_rtt(),
            is_bad: self.path.last_burst.is_some(),
            burst_interval: independent.map_or(bursts, |t| t.min(bursts)),
            foreground: self.foreground(now),
            mtu,
        }
    }

    pub(crate) fn has_replied(&self) -> bool {
        self.last_reply.is_some()
    }

    /// One more connection fills the path beside the `others` that do already.
    pub(crate) fn save_path(&mut self, now: Time, others: usize) {
        if others == 0 || self.snapshot.is_none() {
            self.snapshot = Some(PathSnapshot::take(now, &self.path));
        }
    }

    /// No other connection fills the path any more.
    pub(crate) fn restore_path(&mut self, now: Time) {
        let Some(snapshot) = self.snapshot.take() else { return };
        if snapshot.restore(now, &mut self.path) {
            // Those connections delayed replies, not the path.
            self.probes.on_loss();
        }
    }
}
