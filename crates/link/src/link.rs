//! The link: scheduling of destinations, timers, and received frames.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Core, Peer, Rng, Time, Transmit};
use remora_wire::link::{ACK_MIN, Frame};

use crate::destination::{AckRequest, Destination, NextPacket};
use crate::handoff::OverdueHandoff;
use crate::pacing::outage_probe::ProbeAirtimes;
use crate::pacing::pacer::{Gate, Pacer};
use crate::queueing::airtime_scheduler::AirtimeScheduler;
use crate::queueing::queue;
use crate::{HandOffPhase, LinkConfig, LinkEvent, LinkSnapshot, Packet, PeerState, PeerStats, PeerView};

/// Largest share of the medium for the replies to one peer: 1/8, or its fair share if that is less.
const ANSWERS_PART: u32 = 8;
/// Interval of replies to probes while the rate is unknown.
const ANSWER_GAP: Duration = Duration::from_millis(1);
/// Length of the handoff signal in bytes.
const SIGNAL_LEN: usize = 9;
/// How long an acknowledgement to be piggybacked waits after the expected departure of the DATA.
const RIDE_GRACE: Duration = Duration::from_micros(100);

/// One end of the link protocol: a base station with its mobiles, or a mobile with its base station.
///
/// A destination is identified by [`Peer::datagram`] of its address in the tunnel. Waiting packets are bounded by
/// [`LinkConfig::queue_packets_max`] and [`LinkConfig::queue_bytes_max`], unacknowledged ones by [`LinkConfig::window_frames`],
/// and received ones held for order by the window and 4 MiB.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    rng: Rng,
    peers: BTreeMap<Peer, Destination>,
    airtime_scheduler: AirtimeScheduler,
    pacer: Pacer,
    events: VecDeque<LinkEvent>,
    /// The time until which there is nothing to do unless an event happens; the inner `None` is forever. Calls for
    /// each datagram, forged ones included, so need not scan every destination.
    settled: Option<Option<Time>>,
    bad_frames: u64,
    no_such_peer: u64,
}

impl Link {
    /// A link without destinations. The seed determines the epochs: an end that restarts needs another seed, or its
    /// peers cannot detect the restart.
    pub fn new(config: LinkConfig, seed: u64, now: Time) -> Link {
        Link {
            rng: Rng::stream(seed, "link epochs"),
            peers: BTreeMap::new(),
            airtime_scheduler: AirtimeScheduler::new(config.scheduler, config.cost_max()),
            pacer: Pacer::new(&config, now),
            config,
            events: VecDeque::new(),
            settled: None,
            bad_frames: 0,
            no_such_peer: 0,
        }
    }

    /// The configuration passed to [`Link::new`].
    pub fn config(&self) -> &LinkConfig {
        &self.config
    }

    /// Adds a destination; does nothing if it exists.
    pub fn add_peer(&mut self, now: Time, peer: Peer) {
        self.settled = None;
        let draw = self.rng.next_u32();
        self.peers.entry(peer).or_insert_with(|| {
            self.airtime_scheduler.add(peer);
            Destination::new(now, (draw >> 16) as u16, draw as u16)
        });
    }

    /// Removes a destination and its queued packets, and ends a handoff that it announced. Complete packets from it
    /// are delivered. If it is added again, it starts a new epoch.
    pub fn remove_peer(&mut self, now: Time, peer: Peer) {
        self.with(now, peer, |gone, _, _, _| gone.receiver.restarted());
        self.settled = None;
        if let Some(mut gone) = self.peers.remove(&peer) {
            self.airtime_scheduler.remove(peer);
            if gone.handoffs.peer_epoch_is(None) {
                self.events.push_back(LinkEvent::HandOff { peer, phase: HandOffPhase::End });
            }
            if let Some(departure) = gone.latest() {
                self.pacer.passed(&departure);
            }
        }
    }

    /// The destinations, in order of address.
    pub fn peers(&self) -> impl Iterator<Item = Peer> + '_ {
        self.peers.keys().copied()
    }

    /// Queues a packet for `to`. A packet for an unknown destination is counted and dropped.
    pub fn enqueue(&mut self, now: Time, to: Peer, packet: Packet) {
        self.settled = None;
        match self.peers.get_mut(&to) {
            Some(destination) => destination.push(now, packet, &self.config),
            None => self.no_such_peer += 1,
        }
    }

    /// Announces a handoff to every peer; the signal is repeated until it is acknowledged. Until the end of the
    /// handoff, or until twice the expected time and a second have passed, both ends hold their frames for one
    /// another.
    pub fn announce_handoff(&mut self, now: Time, phase: HandOffPhase) {
        for peer in self.peers().collect::<Vec<_>>() {
            self.with(now, peer, |destination, _, _, _| {
                let epoch = destination.epoch();
                destination.handoffs.announce(now, epoch, phase);
                // A probe after the handoff decides the fate of the frames in flight at its start.
                destination.suspect(now);
            });
        }
    }

    /// Handles a restart of `peer` that the layer below has detected; it must drop the peer's earlier frames. (A new
    /// epoch shows the same, but is equal to the old one in 1 of 65,536 restarts, and needs a frame.)
    pub fn restarted(&mut self, now: Time, peer: Peer) {
        let mut phase = None;
        self.with(now, peer, |destination, _, config, _| phase = destination.restarted(now, config));
        self.events.extend(phase.map(|phase| LinkEvent::HandOff { peer, phase }));
    }

    /// The counters of a destination.
    pub fn stats(&self, peer: Peer) -> Option<&PeerStats> {
        self.peers.get(&peer).map(|d| &d.stats)
    }

    /// The current state of a destination.
    pub fn view(&self, peer: Peer) -> Option<PeerView> {
        let d = self.peers.get(&peer)?;
        Some(PeerView {
            peer,
            state: d.state(),
            queue_packets: d.queue.packets(),
            queue_bytes: d.queue.bytes(),
            unacknowledged: d.unacknowledged(),
            held: d.receiver.held(),
            round_trip: d.round_trip(),
            stats: d.stats,
        })
    }

    /// The current state of the link.
    pub fn snapshot(&self) -> LinkSnapshot {
        let peers = self.peers().filter_map(|peer| self.view(peer)).collect();
        LinkSnapshot { rate: self.pacer.rate(), bad_frames: self.bad_frames, no_such_peer: self.no_such_peer, peers }
    }

    /// Calls `act` for a destination, then reports the packets released and the change of its state.
    fn with(
        &mut self,
        now: Time,
        peer: Peer,
        act: impl FnOnce(&mut Destination, &mut Pacer, &LinkConfig, &mut Vec<Bytes>),
    ) {
        self.settled = None;
        let Some(destination) = self.peers.get_mut(&peer) else { return };
        let before = destination.state();
        let mut released = Vec::new();
        act(destination, &mut self.pacer, &self.config, &mut released);
        released.extend(std::iter::from_fn(|| destination.receiver.pop(now)));
        for packet in released {
            destination.stats.delivered += 1;
            destination.stats.delivered_bytes += packet.len() as u64;
            self.events.push_back(LinkEvent::Deliver { from: peer, packet });
        }
        destination.count();
        let state = destination.state();
        if state != before {
            destination.queue.set_running(now, state == PeerState::Good);
            // The peer sends no acknowledgements during the handoff. Frames in flight to it must not fill the window
            // of the others.
            if state == PeerState::HandOff
                && let Some(departure) = destination.latest()
            {
                self.pacer.passed(&departure);
            }
            self.events.push_back(LinkEvent::State { peer, state });
        }
    }

    /// The next control frame. Control frames are short and bypass the pacer.
    fn control(&mut self, now: Time) -> Option<Transmit> {
        let ready = self.ready().count();
        let (alone, gap) = (ready <= 1, self.answer_gap(ready));
        let (must_ask, signals) = (self.pacer.must_ask(&self.config), self.signals_airtime());
        for peer in self.peers().collect::<Vec<_>>() {
            let ack_at = self.peers.get(&peer).and_then(|d| self.ack_at(d, gap, alone));
            let Some(destination) = self.peers.get_mut(&peer) else { continue };
            let ack_due = ack_at.is_some_and(|at| at <= now);
            if must_ask {
                destination.ask_if_unasked();
            }
            let Some(frame) = destination.speak(now, gap, ack_due, signals, &self.config) else { continue };
            let (transmit, departure) = self.transmit(now, peer, &frame);
            let cost = self.answer_cost(self.config.cost(transmit.payload.len()), ready).max(gap);
            let destination = self.peers.get_mut(&peer)?;
            match frame {
                Frame::Rts(_) => {
                    destination.probed(departure);
                    self.pacer.asked();
                }
                Frame::Ack(_) if self.config.rate.is_none() => {}
                Frame::Ack(_) | Frame::Cts(_) | Frame::HandOffAck(_) => destination.answered(now, cost),
                _ => {}
            }
            return Some(transmit);
        }
        None
    }

    /// Airtime of the handoff signals to all peers that have not acknowledged one, if the rate is known.
    fn signals_airtime(&self) -> Option<Duration> {
        let peers = self.peers.values().filter(|d| d.handoffs.is_signal_pending()).count() as u64;
        self.pacer.rate().map(|rate| rate.airtime(self.config.cost(SIGNAL_LEN) * peers))
    }

    /// Average interval of short replies to one peer, with `ready` destinations that have DATA to send.
    fn answer_gap(&self, ready: usize) -> Duration {
        let gap = self.answer_cost(self.config.cost(1 + ACK_MIN), ready);
        if gap.is_zero() { ANSWER_GAP } else { gap }
    }

    /// Charge against a peer's reply budget for a reply of `cost` bytes of airtime; zero while the rate is unknown.
    fn answer_cost(&self, cost: u64, ready: usize) -> Duration {
        let parts = u32::try_from(ready).unwrap_or(u32::MAX).saturating_add(1).max(ANSWERS_PART);
        self.config.rate.map_or(Duration::ZERO, |rate| rate.airtime(cost).saturating_mul(parts))
    }

    /// When a destination's acknowledgement goes in its own frame: when it is due, unless DATA departs within a
    /// frame's airtime.
    fn ack_at(&self, destination: &Destination, gap: Duration, alone: bool) -> Option<Time> {
        let due = destination.ack_at(gap, &self.config)?;
        if !alone || !destination.is_ready(&self.config) || self.pacer.is_shut(&self.config) {
            return Some(due);
        }
        let rides_at = self.pacer.opens_at(&self.config).map_or(due, |opens| opens.max(due));
        if rides_at <= due + self.frame_time() { Some(rides_at + RIDE_GRACE) } else { Some(due) }
    }

    /// The probe that is most overdue.
    fn probe(&mut self, now: Time) -> Option<Transmit> {
        let silent: Vec<(Time, Peer)> =
            self.peers.iter().filter_map(|(peer, d)| Some((d.probe_at()?, *peer))).collect();
        let (_, peer) = silent.iter().copied().min().filter(|(at, _)| *at <= now)?;
        let busy = self.ready().any(|other| other != peer);
        let frame_time = self.frame_time();
        let probes = if busy { silent.len() as u64 } else { 1 };
        let airtimes = self
            .pacer
            .rate()
            .map(|rate| ProbeAirtimes { probe: rate.airtime(self.config.cost(8) * probes), frame: frame_time });
        let is_passed = self.passes(peer);
        let mut probe = None;
        self.with(now, peer, |destination, pacer, config, _| {
            probe = destination.probe(now, airtimes, busy, config);
            if is_passed && let Some(departure) = destination.overdue(now, frame_time) {
                pacer.passed(&departure);
            }
        });
        let (transmit, departure) = self.transmit(now, peer, &probe?);
        self.peers.get_mut(&peer)?.probed(departure);
        Some(transmit)
    }

    /// The next DATA frame, for the destination that the scheduler picks.
    fn data(&mut self, now: Time) -> Option<Transmit> {
        loop {
            let ready: Vec<Peer> = self.ready().collect();
            let peer = self.airtime_scheduler.pick(|p| ready.binary_search(&p).is_ok())?;
            let contended = ready.len() > 1;
            let frame_time = self.frame_time();
            let destination = self.peers.get_mut(&peer)?;
            let round_trip = destination.round_trip().unwrap_or_default();
            let params = queue::codel_params(&self.config, frame_time, ready.len(), round_trip);
            // If everything in its queue was dropped, the scheduler picks another.
            match destination.choose(now, &params, &self.config) {
                None => {}
                Some(NextPacket::Plain(packet)) => {
                    destination.stats.data_frames += 1;
                    destination.stats.data_bytes += packet.len() as u64;
                    return Some(self.transmit(now, peer, &Frame::Plain(packet)).0);
                }
                Some(NextPacket::Numbered(seq)) => {
                    let request = AckRequest {
                        now: self.pacer.wants_poll(self.config.cost_max(), contended, &self.config),
                        every: self.pacer.poll_every(&self.config),
                        contended,
                    };
                    let Some(data) = destination.frame(now, seq, request, &self.config) else { continue };
                    let frame = Frame::Data(data);
                    let (transmit, departure) = self.transmit(now, peer, &frame);
                    if let (Frame::Data(data), Some(destination)) = (frame, self.peers.get_mut(&peer)) {
                        destination.sent(seq, &data, departure);
                        if data.poll {
                            self.pacer.asked();
                        }
                    }
                    return Some(transmit);
                }
            }
        }
    }

    /// Encodes a frame, charges its airtime and records its departure.
    fn transmit(&mut self, now: Time, peer: Peer, frame: &Frame) -> (Transmit, crate::pacing::pacer::Departure) {
        let payload = frame.to_bytes();
        let cost = self.config.cost(payload.len());
        self.airtime_scheduler.charge(peer, cost);
        if let Some(destination) = self.peers.get_mut(&peer) {
            destination.stats.airtime_bytes += cost;
            let airtime = self.pacer.rate().map_or(Duration::ZERO, |rate| rate.airtime(cost));
            destination.stats.airtime = destination.stats.airtime.saturating_add(airtime);
        }
        let departure = self.pacer.send(now, cost, matches!(frame, Frame::Data(_)), &self.config);
        (Transmit { to: peer, payload }, departure)
    }

    /// The destinations with DATA to send, in order.
    fn ready(&self) -> impl Iterator<Item = Peer> + '_ {
        self.peers.iter().filter(|(_, d)| d.is_ready(&self.config)).map(|(peer, _)| *peer)
    }

    /// Whether frames to `peer` with an overdue acknowledgement count as departed, so that they do not occupy the
    /// pacer's window, which all destinations share. If no other destination waits and the rate is learned, they
    /// continue to occupy it: the acknowledgements may only be late, and the frames still in a queue of the device.
    fn passes(&self, peer: Peer) -> bool {
        self.config.rate.is_some() || self.ready().any(|other| other != peer)
    }

    /// Airtime of a full frame.
    fn frame_time(&self) -> Duration {
        self.pacer.airtime(self.config.cost_max())
    }

    fn take_frame(&mut self, now: Time, from: Peer, frame: Frame) {
        let mut phase = None;
        self.with(now, from, |destination, pacer, config, released| {
            match frame {
                Frame::Data(mut data) => {
                    if let Some(ack) = data.ack.take() {
                        destination.take_acknowledgement(now, &ack, pacer, config);
                    }
                    phase = destination.take_data(now, data, config);
                }
                Frame::Ack(ack) | Frame::Cts(ack) => destination.take_acknowledgement(now, &ack, pacer, config),
                Frame::Rts(rts) => phase = destination.take_rts(now, rts, config),
                Frame::Plain(packet) => released.push(packet),
                Frame::HandOffAck(name) => destination.handoffs.acknowledged(name),
                Frame::HandOff(signal) => phase = destination.take_handoff(now, signal),
            }
            destination.heard(now);
            if phase.is_some() {
                destination.suspect(now);
            }
        });
        self.events.extend(phase.map(|phase| LinkEvent::HandOff { peer: from, phase }));
    }

    fn time_out(&mut self, now: Time, peer: Peer) {
        let frame_time = self.frame_time();
        let is_passed = self.passes(peer);
        let mut overdue = Vec::new();
        self.with(now, peer, |destination, pacer, config, _| {
            destination.receiver.handle_timeout(now, config);
            while let Some(change) = destination.handoffs.handle_timeout(now) {
                destination.suspect(now);
                overdue.extend(
                    (change == OverdueHandoff::PeerOverdue)
                        .then_some(LinkEvent::HandOff { peer, phase: HandOffPhase::End }),
                );
            }
            if destination.suspect_if_missed(now, frame_time, pacer.more_time(config), !is_passed, config)
                && is_passed
                && let Some(departure) = destination.overdue(now, frame_time)
            {
                pacer.passed(&departure);
            }
        });
        self.events.extend(overdue);
    }
}

impl Core for Link {
    type Event = LinkEvent;

    fn handle_input(&mut self, now: Time, from: Peer, bytes: Bytes) {
        let cost = self.config.cost(bytes.len());
        match Frame::decode(bytes) {
            Ok(frame) if let Some(destination) = self.peers.get_mut(&from) => {
                let [airtime, full] = [cost, self.config.cost_max()].map(|cost| self.pacer.airtime(cost));
                let believed = destination.disturbs(now, airtime, full, &frame);
                self.pacer.heard(now, cost, believed, &self.config);
                self.take_frame(now, from, frame);
            }
            _ => self.bad_frames += 1,
        }
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.is_settled(now) {
            return;
        }
        for peer in self.peers().collect::<Vec<_>>() {
            self.time_out(now, peer);
        }
    }

    fn poll_transmit(&mut self, now: Time) -> Option<Transmit> {
        if self.is_settled(now) {
            return None;
        }
        self.settled = None;
        let transmit = self.control(now).or_else(|| match self.pacer.gate(now, &self.config) {
            // If all DATA turns out to be expired, an acknowledgement to be piggybacked goes in its own frame.
            Gate::Open => self.probe(now).or_else(|| self.data(now)).or_else(|| self.control(now)),
            Gate::Shut if self.pacer.opens_at(&self.config).is_none_or(|at| at <= now) => self.probe(now),
            Gate::Shut | Gate::At(_) => None,
        });
        if transmit.is_none() {
            self.settled = Some(self.next_timeout());
        }
        transmit
    }

    fn poll_event(&mut self) -> Option<LinkEvent> {
        self.events.pop_front().or_else(|| {
            let (peer, destination) = self.peers.iter_mut().find(|(_, d)| d.untold.total() > 0)?;
            Some(LinkEvent::GaveUp { peer: *peer, counts: std::mem::take(&mut destination.untold) })
        })
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.settled.unwrap_or_else(|| self.next_timeout())
    }
}

impl Link {
    /// Whether there is nothing to do at `now`.
    fn is_settled(&self, now: Time) -> bool {
        self.settled.is_some_and(|until| until.is_none_or(|at| at > now))
    }

    /// The next time at which there is something to do.
    fn next_timeout(&self) -> Option<Time> {
        let opens = self.pacer.opens_at(&self.config).unwrap_or(Time::ZERO);
        let ready = self.ready().count();
        let (alone, gap) = (ready <= 1, self.answer_gap(ready));
        let may_send = !self.pacer.is_shut(&self.config);
        let (frame_time, more) = (self.frame_time(), self.pacer.more_time(&self.config));
        let timers = self.peers.values().flat_map(|d| {
            [
                d.handoffs.timeout(),
                d.receiver.hold_until(&self.config),
                d.receiver.leaves_at(),
                d.answer_at(gap),
                if d.handoffs.holds() { None } else { self.ack_at(d, gap, alone) },
                d.probe_at().map(|at| at.max(opens)),
                d.missed_at(frame_time, more, &self.config),
                (may_send && d.is_ready(&self.config)).then_some(opens),
            ]
        });
        timers.flatten().min()
    }
}
