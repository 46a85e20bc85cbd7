//! One destination: its queue, both ARQ halves, and its channel state.
//!
//! Channel-state-dependent scheduling (NFS/W 95, section 5): a missed acknowledgement makes the destination suspect.
//! Then only short probes go to it, at growing intervals, until a frame arrives from it.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{Ack, Data, Frame, HandOff, Rts};

use crate::arq::ack_delay::AckDelay;
use crate::arq::ack_frequency::AckFrequency;
use crate::arq::receiver::{Arrival, Receiver};
use crate::arq::reply_budget::{AirtimeCredit, ReplyBudget};
use crate::arq::sender::{AckOutcome, Sender};
use crate::handoff::HandOffs;
use crate::pacing::outage_probe::{Outage, ProbeAirtimes};
use crate::pacing::pacer::{Departure, Pacer};
use crate::queueing::codel::CodelParams;
use crate::queueing::queue::Queue;
use crate::{ArqMode, GaveUp, HandOffPhase, LinkConfig, Packet, PeerState, PeerStats};

/// A mean acknowledgement delay above this many frames counts as a long RTT.
const LONG_WAY_FRAMES: u32 = 8;
/// Longest acknowledgement delay (unless [`LONG_WAY_FRAMES`] take longer) up to which packets of unresponsive senders
/// are kept in order; 802.11 holds frames for 100 ms. Their senders do not take reordering for loss.
const ORDER_WITHIN: Duration = Duration::from_millis(100);
/// Received frames after which DATA carries an acknowledgement that is not due,
const RIDE_AFTER: u32 = 2;
/// and the same where requested acknowledgements measure the rate.
const RIDE_AFTER_LEARNING: u32 = 4;

/// The channel state.
#[derive(Clone, Copy, Debug)]
enum OutageState {
    Good,
    Suspect {
        since: Time,
        /// When the next probe is due.
        probe_at: Time,
        probes: u32,
    },
}

/// The link's reasons to request an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckRequest {
    /// The window is nearly full.
    pub(crate) now: bool,
    /// At least one frame in this many requests one.
    pub(crate) every: u32,
    /// Whether other destinations have DATA to send.
    pub(crate) contended: bool,
}

/// The state of one destination.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) queue: Queue,
    pub(crate) receiver: Receiver,
    pub(crate) handoffs: HandOffs,
    pub(crate) stats: PeerStats,
    sender: Sender,
    channel: OutageState,
    ack_delay: AckDelay,
    ack_frequency: AckFrequency,
    /// The destination is heard again after an outage. The fate of earlier frames must be asked immediately, because
    /// there may be no other frame to send.
    must_ask: bool,
    /// When it was heard again after an outage. The acknowledgement timeout restarts there.
    heard_at: Time,
    /// When a probe was sent because of a missed acknowledgement. A second timeout makes the destination suspect.
    doubted_at: Option<Time>,
    /// A probe awaits its reply.
    owes_cts: bool,
    /// Budget of replies that bypass the pacer.
    replies: ReplyBudget,
    /// Airtime credited to its frames.
    airtime_credit: AirtimeCredit,
    /// Packets abandoned and not yet reported by an event.
    pub(crate) untold: GaveUp,
}

impl Destination {
    pub(crate) fn new(now: Time, epoch: u16, first: u16) -> Destination {
        Destination {
            queue: Queue::new(now),
            receiver: Receiver::default(),
            handoffs: HandOffs::default(),
            stats: PeerStats::default(),
            sender: Sender::new(epoch, first),
            channel: OutageState::Good,
            ack_delay: AckDelay::default(),
            ack_frequency: AckFrequency::new(),
            must_ask: false,
            heard_at: now,
            doubted_at: None,
            owes_cts: false,
            replies: ReplyBudget::default(),
            airtime_credit: AirtimeCredit::default(),
            untold: GaveUp::default(),
        }
    }

    pub(crate) fn epoch(&self) -> u16 {
        self.sender.epoch()
    }

    pub(crate) fn state(&self) -> PeerState {
        match self.channel {
            _ if self.handoffs.holds() => PeerState::HandOff,
            OutageState::Good => PeerState::Good,
            OutageState::Suspect { .. } => PeerState::Suspect,
        }
    }

    /// The smoothed acknowledgement delay, from a frame's departure.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.ack_delay.smoothed()
    }

    /// Packets sent, at least in part, and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.sender.unacknowledged()
    }

    pub(crate) fn latest(&self) -> Option<Departure> {
        self.sender.flight().latest().map(|tx| tx.departure)
    }

    /// The latest transmission with an overdue acknowledgement: it has left the device, whether or not it arrived.
    pub(crate) fn overdue(&self, now: Time, frame: Duration) -> Option<Departure> {
        self.sender.flight().latest_by(now - self.ack_delay.timeout(frame)).map(|tx| tx.departure)
    }

    pub(crate) fn push(&mut self, now: Time, packet: Packet, config: &LinkConfig) {
        self.stats.offered += 1;
        if packet.bytes.len() > config.packet_max() {
            self.stats.too_long += 1;
            return;
        }
        self.queue.push(now, packet, config);
        self.count();
    }

    /// Whether it has DATA to send now.
    pub(crate) fn is_ready(&self, config: &LinkConfig) -> bool {
        self.state() == PeerState::Good
            && (self.sender.has_due() || (self.queue.packets() > 0 && self.sender.has_room(config)))
    }

    /// When a probe is due.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        let in_need = self.queue.packets() > 0 || self.sender.is_at_work() || self.sender.owes_floor();
        match self.channel {
            OutageState::Suspect { probe_at, .. } if in_need && self.state() == PeerState::Suspect => Some(probe_at),
            _ => None,
        }
    }

    /// Probes if no acknowledgement of the latest DATA was requested. The pacer's window is full, and the peer's
    /// delayed acknowledgement would block all destinations.
    pub(crate) fn ask_if_unasked(&mut self) {
        self.must_ask |= self.state() == PeerState::Good && self.sender.flight().unasked() > 0;
    }

    /// When the outstanding acknowledgement counts as missed. `more` is extra delay caused by this end's larger
    /// window.
    pub(crate) fn missed_at(&self, frame: Duration, more: Duration, config: &LinkConfig) -> Option<Time> {
        if self.state() != PeerState::Good {
            return None;
        }
        let flight = self.sender.flight();
        // Without a request, the receiver delays its acknowledgement.
        let unasked = || flight.latest().map(|tx| tx.departure.at + config.ack_delay);
        // Over a long RTT, one lost acknowledgement is no sign of an outage, and a pause would cost a large part of an
        // RTT.
        let is_long = self.ack_delay.smoothed().is_some_and(|mean| mean > frame * LONG_WAY_FRAMES);
        let since = flight.awaited_since(is_long).or_else(unasked)?;
        let since = since.max(self.heard_at).max(self.doubted_at.unwrap_or(since));
        Some(since + self.ack_delay.timeout(frame) + more)
    }

    /// Handles a missed acknowledgement; true if the destination becomes suspect.
    ///
    /// The acknowledgement itself may be lost. With `may_ask`, when no other destination waits, a probe is sent first
    /// and DATA continues.
    pub(crate) fn suspect_if_missed(
        &mut self,
        now: Time,
        frame: Duration,
        more: Duration,
        may_ask: bool,
        config: &LinkConfig,
    ) -> bool {
        let missed = self.missed_at(frame, more, config).is_some_and(|at| at <= now);
        if missed && may_ask && self.doubted_at.is_none() {
            self.doubted_at = Some(now);
            self.must_ask = true;
            return false;
        }
        if missed {
            self.suspect(now);
        }
        missed
    }

    /// Marks the destination suspect: only probes go to it, the first one immediately.
    pub(crate) fn suspect(&mut self, now: Time) {
        if let OutageState::Good = self.channel {
            self.stats.suspicions += 1;
            self.channel = OutageState::Suspect { since: now, probe_at: now, probes: 0 };
        } else if let OutageState::Suspect { probe_at, .. } = &mut self.channel {
            *probe_at = now;
        }
    }

    /// The probe to send now. `busy` means that other destinations have DATA to send. `airtimes` is known with the
    /// rate. The caller sends the probe, then calls [`probed`](Destination::probed).
    pub(crate) fn probe(
        &mut self,
        now: Time,
        airtimes: Option<ProbeAirtimes>,
        busy: bool,
        config: &LinkConfig,
    ) -> Option<Frame> {
        if self.probe_at().is_none_or(|at| at > now) {
            return None;
        }
        self.sender.expire(now);
        self.queue.expire(now, airtimes.map(|a| a.frame).unwrap_or_default(), config);
        self.count();
        self.probe_at()?;
        let round_trip = self.ack_delay.smoothed();
        let OutageState::Suspect { since, probe_at, probes } = &mut self.channel else { return None };
        let outage = Outage { silence: now.since(*since), probes: *probes, round_trip, busy };
        *probe_at = now + outage.gap(airtimes.map(|a| a.probe), config);
        *probes = probes.saturating_add(1);
        self.stats.rts += 1;
        Some(Frame::Rts(self.sender.rts()))
    }

    /// Records that a probe was sent.
    pub(crate) fn probed(&mut self, departure: Departure) {
        self.sender.probed(departure);
    }

    /// The next packet: from fresh flows first, then retransmissions, then from other flows.
    pub(crate) fn choose(&mut self, now: Time, params: &CodelParams, config: &LinkConfig) -> Option<NextPacket> {
        if config.mode == ArqMode::None {
            let waiting = self.queue.pop(now, params, config);
            self.count();
            return waiting.map(|w| NextPacket::Plain(w.packet.bytes));
        }
        // A packet behind a lost one of its own flow would only wait at the receiver.
        let urgent = self.sender.has_room(config) && self.queue.fresh().is_some_and(|flow| !self.sender.lacks(flow));
        let due = if urgent { None } else { self.sender.take_due(now) };
        let chosen = due.or_else(|| {
            let waiting = if self.sender.has_room(config) { self.queue.pop(now, params, config) } else { None };
            let first = self.sender.next_number();
            let waiting = waiting?;
            let near = ORDER_WITHIN.max(params.frame * LONG_WAY_FRAMES);
            let is_near = self.ack_delay.smoothed().is_none_or(|mean| mean <= near);
            let ordered = waiting.packet.responsive || is_near;
            self.sender.admit(waiting, ordered, params.lifetime_min, config);
            self.sender.take(first)
        });
        self.count();
        chosen.map(NextPacket::Numbered)
    }

    /// The frame that carries chunk `seq` now. The caller sends it, then calls [`sent`](Destination::sent).
    pub(crate) fn frame(&mut self, now: Time, seq: u64, request: AckRequest, config: &LinkConfig) -> Option<Data> {
        let ack_cost = config.cost(1 + remora_wire::link::ACK_MIN);
        let every = self.ack_frequency.every(ack_cost, config.cost_max(), request.contended, request.every);
        let last = !self.is_ready(config);
        // An unsolicited acknowledgement replaces a request.
        let poll = last || request.now || self.sender.flight().unasked() + 1 >= every as usize;
        let mut data = self.sender.frame(now, seq, poll, config)?;
        data.ack = self.rider(now, &data, config);
        Some(data)
    }

    /// Records that chunk `seq` was sent in a frame.
    pub(crate) fn sent(&mut self, seq: u64, data: &Data, departure: Departure) {
        self.stats.data_frames += 1;
        self.stats.data_bytes += data.packet.as_ref().map_or(0, Bytes::len) as u64;
        self.stats.riding_acks += u64::from(data.ack.is_some());
        self.stats.retransmitted += u64::from(self.sender.sent(seq, data.poll, departure));
    }

    /// The next control frame: a reply, of which one in each `gap` is allowed on average, a handoff signal, or a probe
    /// about earlier frames. `ack_due` means that an acknowledgement goes in its own frame. `signals` is the `airtime`
    /// of [`HandOffs::take_due`].
    ///
    /// One reply covers all requests before it. After sending, the caller calls [`answered`](Destination::answered) or
    /// [`probed`](Destination::probed).
    pub(crate) fn speak(
        &mut self,
        now: Time,
        gap: Duration,
        ack_due: bool,
        signals: Option<Duration>,
        config: &LinkConfig,
    ) -> Option<Frame> {
        let may_answer = self.replies.opens_at(gap) <= now;
        let owed = if may_answer { self.handoffs.take_owed() } else { None };
        let said = owed.map(Frame::HandOffAck).or_else(|| self.handoffs.take_due(now, signals).map(Frame::HandOff));
        if said.is_some() || self.handoffs.holds() {
            return said;
        }
        let cts = if may_answer { self.take_cts(config) } else { None };
        cts.or_else(|| self.take_question(config)).or_else(|| if ack_due { self.take_ack(config) } else { None })
    }

    /// Charges a reply of duration `cost`.
    pub(crate) fn answered(&mut self, now: Time, cost: Duration) {
        self.replies.charge(now, cost);
    }

    /// When the next pending reply is allowed, apart from acknowledgements of DATA.
    pub(crate) fn answer_at(&self, gap: Duration) -> Option<Time> {
        let owes = self.handoffs.owes() || (self.owes_cts && !self.handoffs.holds());
        owes.then(|| self.replies.opens_at(gap))
    }

    /// When the acknowledgement of DATA is due in its own frame. While the peer learns the rate from acknowledgements,
    /// they are not limited.
    pub(crate) fn ack_at(&self, gap: Duration, config: &LinkConfig) -> Option<Time> {
        let due = self.receiver.ack_at()?;
        Some(if config.rate.is_some() { due.max(self.replies.opens_at(gap)) } else { due })
    }

    /// Whether a frame from the peer is believed to have delayed own frames by `airtime`.
    pub(crate) fn disturbs(&mut self, now: Time, airtime: Duration, full: Duration, frame: &Frame) -> bool {
        let is_short = !matches!(frame, Frame::Data(_) | Frame::Plain(_));
        self.airtime_credit.is_believed(now, airtime, full, is_short)
    }

    /// The reply to a probe, if one is pending.
    fn take_cts(&mut self, config: &LinkConfig) -> Option<Frame> {
        if !std::mem::take(&mut self.owes_cts) {
            return None;
        }
        let ack = self.receiver.take_ack(config)?;
        self.stats.cts += 1;
        Some(Frame::Cts(ack))
    }

    /// A probe about the fate of earlier frames, if it is needed. It also announces the floor. The caller sends it,
    /// then calls [`probed`](Destination::probed).
    fn take_question(&mut self, config: &LinkConfig) -> Option<Frame> {
        // DATA announces abandoned packets. Without DATA the receiver would hold the packets behind them for the
        // longest lifetime.
        let must_tell = self.state() == PeerState::Good && self.sender.must_announce_floor() && !self.is_ready(config);
        if !std::mem::take(&mut self.must_ask) && !must_tell {
            return None;
        }
        self.stats.rts += 1;
        Some(Frame::Rts(self.sender.rts()))
    }

    /// The acknowledgement in its own frame.
    fn take_ack(&mut self, config: &LinkConfig) -> Option<Frame> {
        let ack = self.receiver.take_ack(config)?;
        self.stats.acks += 1;
        Some(Frame::Ack(ack))
    }

    pub(crate) fn take_data(&mut self, now: Time, data: Data, config: &LinkConfig) -> Option<HandOffPhase> {
        let epoch = self.receiver.epoch();
        match self.receiver.data(now, data, config) {
            Arrival::New => {}
            Arrival::Duplicate => self.stats.duplicates += 1,
            Arrival::Refused => self.stats.refused += 1,
        }
        self.check_epoch(now, epoch, config)
    }

    pub(crate) fn take_rts(&mut self, now: Time, rts: Rts, config: &LinkConfig) -> Option<HandOffPhase> {
        let epoch = self.receiver.epoch();
        match self.receiver.rts(now, rts, config) {
            Arrival::Refused => self.stats.refused += 1,
            _ => self.owes_cts = true,
        }
        self.check_epoch(now, epoch, config)
    }

    pub(crate) fn take_handoff(&mut self, now: Time, signal: HandOff) -> Option<HandOffPhase> {
        if self.receiver.is_past(now, signal.announcement.epoch) {
            self.stats.refused += 1;
            return None;
        }
        self.handoffs.heard(now, signal)
    }

    /// Handles the peer's first frame of an epoch other than `before`: ends a handoff that the earlier epoch
    /// announced.
    fn check_epoch(&mut self, now: Time, before: Option<u16>, config: &LinkConfig) -> Option<HandOffPhase> {
        let epoch = self.receiver.epoch().filter(|epoch| before != Some(*epoch))?;
        if before.is_some() {
            self.queue.peer_restarted(now, config);
            self.sender.peer_restarted();
        }
        self.handoffs.peer_epoch_is(Some(epoch)).then_some(HandOffPhase::End)
    }

    /// Handles a restart of the peer that the layer below has detected: frames in flight are lost, and its handoff
    /// ends.
    pub(crate) fn restarted(&mut self, now: Time, config: &LinkConfig) -> Option<HandOffPhase> {
        let ended = self.handoffs.peer_epoch_is(None);
        self.queue.peer_restarted(now, config);
        self.receiver.restarted();
        let was_under_way = self.sender.is_at_work();
        self.sender.peer_restarted();
        self.owes_cts = false;
        if ended || was_under_way {
            self.suspect(now);
        }
        ended.then_some(HandOffPhase::End)
    }

    pub(crate) fn take_acknowledgement(&mut self, now: Time, ack: &Ack, pacer: &mut Pacer, config: &LinkConfig) {
        let AckOutcome { packets, bytes, fates, echoed, .. } = self.sender.acknowledged(ack);
        self.stats.acknowledged += packets;
        self.stats.acknowledged_bytes += bytes;
        self.stats.long_lost = self.sender.long_lost();
        let outlived = matches!(self.channel, OutageState::Suspect { probes: 2.., .. });
        self.ack_frequency.learn(&fates, outlived);
        if let Some(tx) = echoed {
            // An acknowledgement before the estimated departure, or delayed by a handoff, is no sample of the delay.
            if now >= tx.departure.at && !self.handoffs.has_changed_since(tx.departure.sent) {
                let ack_delay = now.since(tx.departure.at);
                match tx.polled {
                    true => self.ack_delay.sample(now, ack_delay, pacer.slack(&tx.departure, config)),
                    false => self.ack_delay.bound(ack_delay),
                }
            }
            let lost = fates.iter().filter(|lost| **lost).count() as u64;
            pacer.confirm(now, &tx.departure, tx.polled, lost, &self.ack_delay, config);
        }
    }

    /// Marks the channel good: a frame arrived from the peer.
    pub(crate) fn heard(&mut self, now: Time) {
        self.doubted_at = None;
        if let OutageState::Suspect { since, .. } = self.channel {
            self.stats.suspect_time += now.since(since);
            self.channel = OutageState::Good;
            self.heard_at = now;
            self.must_ask = self.sender.flight().has_data();
        }
    }

    /// Adds the losses of queue, sender and receiver to the counters.
    pub(crate) fn count(&mut self) {
        let dropped = self.queue.take_dropped();
        self.stats.overflow += dropped.overflow;
        self.stats.codel_drops += dropped.codel;
        let gave_up = GaveUp { unsent: dropped.expired, ..self.sender.take_gave_up() };
        for sum in [&mut self.stats.gave_up, &mut self.untold] {
            sum.attempts += gave_up.attempts;
            sum.lifetime += gave_up.lifetime;
            sum.unsent += gave_up.unsent;
            sum.restart += gave_up.restart;
        }
        self.stats.hold_timeouts = self.receiver.hold_timeouts();
    }

    /// The acknowledgement that `data` carries, if one is useful and fits.
    fn rider(&mut self, now: Time, data: &Data, config: &LinkConfig) -> Option<Ack> {
        let due = self.receiver.ack_at().is_some_and(|at| at <= now);
        let after = if config.rate.is_some() { RIDE_AFTER } else { RIDE_AFTER_LEARNING };
        if !due && self.receiver.unacknowledged() < after {
            return None;
        }
        let ack = self.receiver.ack(config)?;
        let len = data.header_len() + ack.len() + data.packet.as_ref().map_or(0, Bytes::len);
        if len > config.mtu {
            return None;
        }
        self.receiver.take_ack(config)
    }
}

/// The next packet to send.
#[derive(Clone, Debug)]
pub(crate) enum NextPacket {
    /// The chunk with this number.
    Numbered(u64),
    /// A packet without a number.
    Plain(Bytes),
}
