//! One destination: its queue, its window, what comes from it, and the state of its channel.
//!
//! Channel-state-dependent scheduling (NFS/W 95, section 5): a missed acknowledgement makes
//! the destination suspect; then only short probes go there, ever more rarely, until anything
//! is heard from it.

use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::link::{Ack, Data, Frame, HandOff, Rts};

use crate::arq::ack_delay::Lag;
use crate::arq::ack_frequency::Polls;
use crate::arq::receiver::{Arrival, Receiver};
use crate::arq::reply_budget::{Allowance, Claim};
use crate::arq::sender::{Sender, Told};
use crate::handoff::HandOffs;
use crate::pacing::outage_probe::{Airtimes, Outage};
use crate::pacing::pacer::{Departure, Pacer};
use crate::queueing::codel::Aim;
use crate::queueing::queue::Queue;
use crate::{Config, GaveUp, HandOffPhase, Mode, Packet, PeerStats, State};

/// An answer that usually takes longer than this many frames comes a long way.
const LONG_WAY_FRAMES: u32 = 8;
/// Packets whose senders do not take them for lost when later ones arrive first need not wait for
/// what is sent again, where that takes longer than this (802.11 holds for 100 ms) and it comes a
/// long way.
const ORDER_WITHIN: Duration = Duration::from_millis(100);
/// Frames after which an acknowledgement rides on DATA though it is not due,
const RIDE_AFTER: u32 = 2;
/// and where answers that were asked for tell the rate.
const RIDE_AFTER_LEARNING: u32 = 4;

/// What is known of the channel.
#[derive(Clone, Copy, Debug)]
enum Channel {
    Good,
    Suspect {
        since: Time,
        /// When the next probe is due.
        probe_at: Time,
        probes: u32,
    },
}

/// Whether a frame is to ask for an acknowledgement, as far as it is not the destination's own affair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// It is: much is under way.
    pub(crate) now: bool,
    /// At least one frame in so many is.
    pub(crate) every: u32,
    /// Whether other destinations wait.
    pub(crate) contended: bool,
}

/// One destination.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) queue: Queue,
    pub(crate) receiver: Receiver,
    pub(crate) handoffs: HandOffs,
    pub(crate) stats: PeerStats,
    sender: Sender,
    channel: Channel,
    lag: Lag,
    polls: Polls,
    /// It is heard again but has not said what became of the frames sent before: it is to be
    /// asked at once, for there may be nothing else to send.
    must_ask: bool,
    /// When it was heard without saying what it was asked for: the answer is awaited anew.
    heard_at: Time,
    /// When it was asked what it had not answered in time: it has as long again before it is suspect.
    doubted_at: Option<Time>,
    /// A probe is to be answered.
    owes_cts: bool,
    /// Answers that may go to it out of turn.
    answers: Allowance,
    /// The airtime its frames are said to have taken.
    claim: Claim,
    /// What was given up and not yet told to the layer above.
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
            channel: Channel::Good,
            lag: Lag::default(),
            polls: Polls::new(),
            must_ask: false,
            heard_at: now,
            doubted_at: None,
            owes_cts: false,
            answers: Allowance::default(),
            claim: Claim::default(),
            untold: GaveUp::default(),
        }
    }

    /// Its life.
    pub(crate) fn epoch(&self) -> u16 {
        self.sender.epoch()
    }

    /// What is known of its channel.
    pub(crate) fn state(&self) -> State {
        match self.channel {
            _ if self.handoffs.holds() => State::HandOff,
            Channel::Good => State::Good,
            Channel::Suspect { .. } => State::Suspect,
        }
    }

    /// The smoothed time from a frame's last bit to its acknowledgement.
    pub(crate) fn round_trip(&self) -> Option<Duration> {
        self.lag.mean()
    }

    /// Packets sent, or begun, and not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.sender.unacknowledged()
    }

    /// The latest transmission to it.
    pub(crate) fn latest(&self) -> Option<Departure> {
        self.sender.flight().latest().map(|tx| tx.departure)
    }

    /// The latest transmission whose answer is overdue: it has left, arrived or not.
    pub(crate) fn overdue(&self, now: Time, frame: Duration) -> Option<Departure> {
        self.sender.flight().latest_by(now - self.lag.patience(frame)).map(|tx| tx.departure)
    }

    /// Takes a packet.
    pub(crate) fn push(&mut self, now: Time, packet: Packet, config: &Config) {
        self.stats.offered += 1;
        if packet.bytes.len() > config.packet_max() {
            self.stats.too_long += 1;
            return;
        }
        self.queue.push(now, packet, config);
        self.count();
    }

    /// Whether DATA could go now.
    pub(crate) fn is_ready(&self, config: &Config) -> bool {
        self.state() == State::Good
            && (self.sender.has_due() || (self.queue.packets() > 0 && self.sender.has_room(config)))
    }

    /// When a probe is due.
    pub(crate) fn probe_at(&self) -> Option<Time> {
        let in_need = self.queue.packets() > 0 || self.sender.is_at_work() || self.sender.owes_floor();
        match self.channel {
            Channel::Suspect { probe_at, .. } if in_need && self.state() == State::Suspect => Some(probe_at),
            _ => None,
        }
    }

    /// Nothing more may go before it is known what became of the latest DATA: if that is its and did not ask, a
    /// question does. The other end's delay would hold up everybody.
    pub(crate) fn ask_if_unasked(&mut self) {
        self.must_ask |= self.state() == State::Good && self.sender.flight().unasked() > 0;
    }

    /// When the acknowledgement awaited is missed, if one is; by `more` it may be later than those before.
    pub(crate) fn missed_at(&self, frame: Duration, more: Duration, config: &Config) -> Option<Time> {
        if self.state() != State::Good {
            return None;
        }
        let flight = self.sender.flight();
        // What nobody asked about is acknowledged after the receiver's delay.
        let unasked = || flight.latest().map(|tx| tx.departure.at + config.ack_delay);
        // On a long way one lost answer in a row of them is no sign of an outage, and to stop
        // for it would cost a good part of a round trip.
        let is_long = self.lag.mean().is_some_and(|mean| mean > frame * LONG_WAY_FRAMES);
        let since = flight.awaited_since(is_long).or_else(unasked)?;
        let since = since.max(self.heard_at).max(self.doubted_at.unwrap_or(since));
        Some(since + self.lag.patience(frame) + more)
    }

    /// Acts on a missed acknowledgement; true if the destination is suspect now.
    ///
    /// It may be the acknowledgement that was lost. If it `may_ask`, for no others wait for the medium, that is asked
    /// first, and DATA goes on meanwhile.
    pub(crate) fn suspect_if_missed(
        &mut self,
        now: Time,
        frame: Duration,
        more: Duration,
        may_ask: bool,
        config: &Config,
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

    /// Nothing but probes goes there from now on; the first one at once.
    pub(crate) fn suspect(&mut self, now: Time) {
        if let Channel::Good = self.channel {
            self.stats.suspicions += 1;
            self.channel = Channel::Suspect { since: now, probe_at: now, probes: 0 };
        } else if let Channel::Suspect { probe_at, .. } = &mut self.channel {
            *probe_at = now;
        }
    }

    /// The probe to send now; `busy` if others wait for the medium; `airtimes`: what it and others take, if that is
    /// known. The caller sends it and says so with [`probed`](Destination::probed).
    pub(crate) fn probe(
        &mut self,
        now: Time,
        airtimes: Option<Airtimes>,
        busy: bool,
        config: &Config,
    ) -> Option<Frame> {
        if self.probe_at().is_none_or(|at| at > now) {
            return None;
        }
        self.sender.expire(now);
        self.queue.expire(now, airtimes.map(|a| a.frame).unwrap_or_default(), config);
        self.count();
        self.probe_at()?;
        let round_trip = self.lag.mean();
        let Channel::Suspect { since, probe_at, probes } = &mut self.channel else { return None };
        let outage = Outage { silence: now.since(*since), probes: *probes, round_trip, busy };
        *probe_at = now + outage.gap(airtimes.map(|a| a.probe), config);
        *probes = probes.saturating_add(1);
        self.stats.rts += 1;
        Some(Frame::Rts(self.sender.rts()))
    }

    /// Notes that a probe was sent.
    pub(crate) fn probed(&mut self, departure: Departure) {
        self.sender.probed(departure);
    }

    /// The packet to send now, if there is one: urgent ones, then lost ones, then the others.
    pub(crate) fn choose(&mut self, now: Time, aim: &Aim, config: &Config) -> Option<Chosen> {
        if config.mode == Mode::None {
            let waiting = self.queue.pop(now, aim, config);
            self.count();
            return waiting.map(|w| Chosen::Plain(w.packet.bytes));
        }
        // What follows something lost of its own flow would only wait for that at the other end.
        let urgent = self.sender.has_room(config) && self.queue.fresh().is_some_and(|flow| !self.sender.lacks(flow));
        let due = if urgent { None } else { self.sender.take_due(now) };
        let chosen = due.or_else(|| {
            let waiting = if self.sender.has_room(config) { self.queue.pop(now, aim, config) } else { None };
            let first = self.sender.next_number();
            let waiting = waiting?;
            let near = ORDER_WITHIN.max(aim.frame * LONG_WAY_FRAMES);
            let is_near = self.lag.mean().is_none_or(|mean| mean <= near);
            let ordered = waiting.packet.responsive || is_near;
            self.sender.admit(waiting, ordered, aim.lifetime_min, config);
            self.sender.take(first)
        });
        self.count();
        chosen.map(Chosen::Numbered)
    }

    /// The frame that carries packet `seq` now. The caller sends it and says so with
    /// [`sent`](Destination::sent).
    pub(crate) fn frame(&mut self, now: Time, seq: u64, ask: Ask, config: &Config) -> Option<Data> {
        let ack_cost = config.cost(1 + remora_wire::link::ACK_MIN);
        let every = self.polls.every(ack_cost, config.cost_max(), ask.contended, ask.every);
        let last = !self.is_ready(config);
        // What an acknowledgement that came unasked has told need not be asked.
        let poll = last || ask.now || self.sender.flight().unasked() + 1 >= every as usize;
        let mut data = self.sender.frame(now, seq, poll, config)?;
        data.ack = self.rider(now, &data, config);
        Some(data)
    }

    /// Notes that packet `seq` was sent in a frame.
    pub(crate) fn sent(&mut self, seq: u64, data: &Data, departure: Departure) {
        self.stats.data_frames += 1;
        self.stats.data_bytes += data.packet.as_ref().map_or(0, Bytes::len) as u64;
        self.stats.riding_acks += u64::from(data.ack.is_some());
        self.stats.retransmitted += u64::from(self.sender.sent(seq, data.poll, departure));
    }

    /// What is to be said to it now, out of turn: answers, of which there may be one in each `gap`
    /// on average, the signal of a cell switch, and the question what has become of earlier frames.
    /// `ack_due` if an acknowledgement is to go alone; `signals` is what [`HandOffs::take_due`] calls airtime.
    ///
    /// Until it may go, one answer stands for all. The caller says so with [`answered`](Destination::answered) or
    /// [`probed`](Destination::probed) when it has sent it.
    pub(crate) fn speak(
        &mut self,
        now: Time,
        gap: Duration,
        ack_due: bool,
        signals: Option<Duration>,
        config: &Config,
    ) -> Option<Frame> {
        let may_answer = self.answers.opens_at(gap) <= now;
        let owed = if may_answer { self.handoffs.take_owed() } else { None };
        let said = owed.map(Frame::HandOffAck).or_else(|| self.handoffs.take_due(now, signals).map(Frame::HandOff));
        if said.is_some() || self.handoffs.holds() {
            return said;
        }
        let cts = if may_answer { self.take_cts(config) } else { None };
        cts.or_else(|| self.take_question(config)).or_else(|| if ack_due { self.take_ack(config) } else { None })
    }

    /// An answer was sent that counts for as much time as `cost`.
    pub(crate) fn answered(&mut self, now: Time, cost: Duration) {
        self.answers.charge(now, cost);
    }

    /// When the next answer may go that is waited for, but for an acknowledgement of DATA.
    pub(crate) fn answer_at(&self, gap: Duration) -> Option<Time> {
        let owes = self.handoffs.owes() || (self.owes_cts && !self.handoffs.holds());
        owes.then(|| self.answers.opens_at(gap))
    }

    /// When the acknowledgement of DATA is due by itself. Where the rate is not known, they tell it
    /// to the other end, and are as frequent as that needs.
    pub(crate) fn ack_at(&self, gap: Duration, config: &Config) -> Option<Time> {
        let due = self.receiver.ack_at()?;
        Some(if config.rate.is_some() { due.max(self.answers.opens_at(gap)) } else { due })
    }

    /// Whether a frame of its is believed to have held up our own for `airtime`.
    pub(crate) fn disturbs(&mut self, now: Time, airtime: Duration, full: Duration, frame: &Frame) -> bool {
        let is_short = !matches!(frame, Frame::Data(_) | Frame::Plain(_));
        self.claim.is_believed(now, airtime, full, is_short)
    }

    /// The answer to a probe, if one is owed.
    fn take_cts(&mut self, config: &Config) -> Option<Frame> {
        if !std::mem::take(&mut self.owes_cts) {
            return None;
        }
        let ack = self.receiver.take_ack(config)?;
        self.stats.cts += 1;
        Some(Frame::Cts(ack))
    }

    /// The question what has become of earlier frames, which tells what was given up, if it is to be
    /// asked. The caller sends it and says so with [`probed`](Destination::probed).
    fn take_question(&mut self, config: &Config) -> Option<Frame> {
        // What was given up is told by the next DATA; where there is none the other end would hold what came
        // behind it for as long as the longest lifetime.
        let must_tell = self.state() == State::Good && self.sender.must_tell_floor() && !self.is_ready(config);
        if !std::mem::take(&mut self.must_ask) && !must_tell {
            return None;
        }
        self.stats.rts += 1;
        Some(Frame::Rts(self.sender.rts()))
    }

    /// The acknowledgement that is due.
    fn take_ack(&mut self, config: &Config) -> Option<Frame> {
        let ack = self.receiver.take_ack(config)?;
        self.stats.acks += 1;
        Some(Frame::Ack(ack))
    }

    /// Takes a DATA frame.
    pub(crate) fn take_data(&mut self, now: Time, data: Data, config: &Config) -> Option<HandOffPhase> {
        let life = self.receiver.life();
        match self.receiver.data(now, data, config) {
            Arrival::New => {}
            Arrival::Duplicate => self.stats.duplicates += 1,
            Arrival::Refused => self.stats.refused += 1,
        }
        self.begun_anew(now, life, config)
    }

    /// Takes a probe.
    pub(crate) fn take_rts(&mut self, now: Time, rts: Rts, config: &Config) -> Option<HandOffPhase> {
        let life = self.receiver.life();
        match self.receiver.rts(now, rts, config) {
            Arrival::Refused => self.stats.refused += 1,
            _ => self.owes_cts = true,
        }
        self.begun_anew(now, life, config)
    }

    /// Takes the signal of a cell switch.
    pub(crate) fn take_handoff(&mut self, now: Time, signal: HandOff) -> Option<HandOffPhase> {
        if self.receiver.is_past(now, signal.announcement.epoch) {
            self.stats.refused += 1;
            return None;
        }
        self.handoffs.heard(now, signal)
    }

    /// The peer's life was `before`: with another one a cell switch it had announced is over.
    fn begun_anew(&mut self, now: Time, before: Option<u16>, config: &Config) -> Option<HandOffPhase> {
        let life = self.receiver.life().filter(|life| before != Some(*life))?;
        if before.is_some() {
            self.queue.begin_anew(now, config);
            self.sender.peer_restarted();
        }
        self.handoffs.peer_lives(Some(life)).then_some(HandOffPhase::End)
    }

    /// The layer below knows that the peer has begun anew: what was under way to it is lost, and what it was
    /// about to do is over.
    pub(crate) fn restarted(&mut self, now: Time, config: &Config) -> Option<HandOffPhase> {
        let ended = self.handoffs.peer_lives(None);
        self.queue.begin_anew(now, config);
        self.receiver.restarted();
        let was_under_way = self.sender.is_at_work();
        self.sender.peer_restarted();
        self.owes_cts = false;
        if ended || was_under_way {
            self.suspect(now);
        }
        ended.then_some(HandOffPhase::End)
    }

    /// Takes an acknowledgement.
    pub(crate) fn take_told(&mut self, now: Time, ack: &Ack, pacer: &mut Pacer, config: &Config) {
        let Told { packets, bytes, fates, echoed, .. } = self.sender.acknowledged(ack);
        self.stats.acknowledged += packets;
        self.stats.acknowledged_bytes += bytes;
        self.stats.long_lost = self.sender.long_lost();
        let outlived = matches!(self.channel, Channel::Suspect { probes: 2.., .. });
        self.polls.learn(&fates, outlived);
        if let Some(tx) = echoed {
            // An answer that comes before we thought that the frame had left tells nothing of that, nor does one that
            // was held back.
            if tx.polled && now >= tx.departure.at && !self.handoffs.has_changed_since(tx.departure.sent) {
                self.lag.sample(now, now.since(tx.departure.at), pacer.slack(&tx.departure, config));
            }
            let lost = fates.iter().filter(|lost| **lost).count() as u64;
            pacer.confirm(now, &tx.departure, tx.polled, lost, &self.lag, config);
        }
    }

    /// Anything at all came from it: the channel is good.
    pub(crate) fn heard(&mut self, now: Time) {
        self.doubted_at = None;
        if let Channel::Suspect { since, .. } = self.channel {
            self.stats.suspect_time += now.since(since);
            self.channel = Channel::Good;
            self.heard_at = now;
            self.must_ask = self.sender.flight().has_data();
        }
    }

    /// Whether what is given up, dropped and held by the parts is in the counters.
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

    /// The acknowledgement that rides on `data`, if one is to and fits.
    fn rider(&mut self, now: Time, data: &Data, config: &Config) -> Option<Ack> {
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

/// What goes next.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// The packet of this number.
    Numbered(u64),
    /// A packet without one.
    Plain(Bytes),
}
