//! Remora's estimator: measures the bottleneck with every burst.
//!
//! * The rate comes from the receiver's timestamps ([`dispersal`](super::dispersal)).
//!   [`byte_time`](super::byte_time) follows steps at once and averages noise. The packets that the
//!   [`pacer`](super::pacer) releases together (a quantum) serve as a packet pair, so a faster link shows without a
//!   full queue.
//! * The window is the bandwidth-delay product plus a small allowance. A standing queue is drained by sending below
//!   the rate.
//! * Lost packets in a long queue show that others use it too: the [`share`](super::share) of the rate falls.
//! * Silence for about a round-trip time is a [`blackout`](super::blackout); the estimate is frozen. Afterwards the
//!   old rate only paces the first burst: the window is that burst, and the forecast is unknown until that burst is
//!   measured.
//! * On an idle link, [`packet_pairs`](super::packet_pairs) renew the estimate while objects wait for an estimate.

use std::time::Duration;

use remora_base::Time;

use super::blackout::BlackoutDetector;
use super::byte_time::ByteTime;
use super::dispersal::{Dispersal, Sample};
use super::forecast::{Forecast, Knowledge};
use super::in_flight::InFlight;
use super::interface::{Arrival, Config, Demand, Direction, Gate, Probe, Stats, byte_rate};
use super::outage::PastOutages;
use super::pacer::{Pacer, quantum};
use super::packet_pairs::{LinkEstimate, PacketPairs};
use super::share::{PathState, Share};

/// Minimum allowance of the window beyond the bandwidth-delay product, as time at the rate.
const SLACK: Duration = Duration::from_millis(10);
/// Time constant for draining a standing queue.
const DRAIN: Duration = Duration::from_millis(250);
/// Lowest gain while draining.
const GAIN_MIN: f64 = 0.5;
/// Packets without a measurement after which the gain rises, to make one possible.
const UNMEASURED_PACKETS: u32 = 32;
const GAIN_UNMEASURED: f64 = 1.25;
/// Maximum window before the first measurement, in packets.
const FIRST_PACKETS_MAX: u64 = 64;
/// Calls in which a quantum is sent.
const BURSTS: u64 = 2;
/// After a blackout the old rate is used again if nothing was measured within this time plus two round-trip times.
const RECOVERY: Duration = Duration::from_millis(200);

/// Factor by which a link that slows down exceeds what a change of the share explains.
const COLLAPSE: f64 = 4.0;

/// Transmission time of a full packet from which a link counts as slow: 58 KB/s.
const SLOW: Duration = Duration::from_millis(25);

/// Growth of the window before the first measurement.
#[derive(Clone, Copy, Debug)]
struct SlowStart {
    /// When this path came into use.
    since: Time,
    /// Maximum bytes that were in flight at once.
    most: u64,
    /// Growth of the window, in bytes.
    grown: u64,
}

/// State of the algorithm.
#[derive(Clone, Debug)]
pub(super) struct RateEstimator {
    config: Config,
    in_flight: InFlight,
    slow_start: SlowStart,
    blackout: BlackoutDetector,
    pacer: Pacer,
    dispersal: Dispersal,
    byte_time: ByteTime,
    /// Packets reported since the last measurement.
    unmeasured: u32,
    /// End of the recovery after a blackout.
    recovers_until: Option<Time>,
    packet_pairs: PacketPairs,
    past_outages: PastOutages,
    share: Share,
    /// Transmission time of the peer's full packets.
    reverse_packet_time: Duration,
}

impl SlowStart {
    fn new(now: Time) -> SlowStart {
        SlowStart { since: now, most: 0, grown: 0 }
    }

    /// Grows the window after the packet sent at `sent` was acknowledged: it doubles each round trip, but only as
    /// far as it was used (RFC 9002, section 7.8). `first` is the initial window.
    fn acknowledged(&mut self, sent: Time, bytes: u64, first: u64) {
        let shown = self.most.saturating_add(self.most.max(first));
        if sent >= self.since && first.saturating_add(self.grown) < shown {
            self.grown = self.grown.saturating_add(bytes);
        }
    }
}

impl RateEstimator {
    pub(super) fn new(config: Config, now: Time) -> RateEstimator {
        RateEstimator {
            config,
            in_flight: InFlight::new(now),
            slow_start: SlowStart::new(now),
            blackout: BlackoutDetector::new(),
            pacer: Pacer::default(),
            dispersal: Dispersal::default(),
            byte_time: ByteTime::default(),
            unmeasured: 0,
            recovers_until: None,
            packet_pairs: PacketPairs::new(now),
            past_outages: PastOutages::default(),
            share: Share::new(now),
            reverse_packet_time: Duration::ZERO,
        }
    }

    pub(super) fn sent(&mut self, now: Time, bytes: u64) {
        self.in_flight.sent(now, bytes);
        self.slow_start.most = self.slow_start.most.max(self.in_flight.bytes());
        let byte_time = self.byte_time.get().unwrap_or(0.0);
        let quantum = match self.recovers_until {
            Some(_) => self.first_burst(),
            None => quantum(byte_time, self.config.mtu),
        };
        self.pacer.sent(now, bytes, quantum, byte_time / (self.gain() * self.share.get()));
    }

    pub(super) fn acknowledged(&mut self, now: Time, sent: Time, bytes: u64) {
        self.heard(now);
        self.in_flight.acknowledged(now, sent, bytes);
        self.slow_start.acknowledged(sent, bytes, self.first_burst());
        if let Some(smoothed) = self.in_flight.smoothed() {
            let mtu = self.config.mtu;
            let deviation = self.in_flight.deviation();
            let path = PathState { smoothed, deviation, airtime: self.airtime(2 * mtu), mtu };
            self.share.acknowledged(now, bytes, now.since(sent), path);
        }
    }

    pub(super) fn lost(&mut self, now: Time, bytes: u64) {
        self.share.lost(now, bytes);
        self.in_flight.lost(bytes);
    }

    pub(super) fn arrivals(&mut self, now: Time, arrivals: &[Arrival]) {
        if arrivals.is_empty() {
            return;
        }
        self.heard(now);
        self.in_flight.heard(now);
        for (i, a) in arrivals.iter().enumerate() {
            self.unmeasured = self.unmeasured.saturating_add(1);
            let together = arrivals.get(i + 1).is_some_and(|next| next.received == a.received);
            let samples = self.dispersal.arrival(now, *a, together, self.byte_time.get(), self.config.mtu);
            samples.into_iter().flatten().for_each(|s| self.measured(now, s));
        }
        self.dispersal.conclude();
    }

    fn measured(&mut self, now: Time, sample: Sample) {
        let before = self.byte_time.get();
        match sample {
            Sample::Exact(z) => {
                self.byte_time.sample(now, z);
                self.unmeasured = 0;
                self.recovers_until = None;
            }
            Sample::AtMost(z) => self.byte_time.sample_upper_bound(now, z),
        }
        if let (Some(before), Some(new)) = (before, self.byte_time.get()) {
            // A slower rate shows as a queue, which the gain drains.
            self.pacer.rescale(now, (new / before).min(1.0));
            if new > before * COLLAPSE {
                // The packets in flight were sent at the old rate.
                let drained = self.airtime(self.in_flight.bytes());
                self.share.restart(now + drained + self.in_flight.smoothed().unwrap_or_default());
            }
        }
        self.in_flight.stats_mut().samples += 1;
    }

    /// The peer has received a packet.
    fn heard(&mut self, now: Time) {
        let since = self.blackout.blackout_since();
        if self.blackout.heard() {
            self.past_outages.ended(now.since(since.unwrap_or(now)));
            self.resume(now);
        }
    }

    /// Treats a probe of the peer as the end of a blackout.
    pub(super) fn peer_probed(&mut self, now: Time) {
        if self.blackout.peer_probed(now) {
            self.resume(now);
            self.in_flight.heard(now);
        }
    }

    pub(super) fn reverse_packet_time(&mut self, takes: Duration) {
        self.reverse_packet_time = takes;
    }

    pub(super) fn answer_due(&self) -> Option<Time> {
        let airtime = self.slower_way();
        if airtime < SLOW { None } else { self.blackout.answer_due(&self.in_flight, airtime) }
    }

    pub(super) fn object_progress(&mut self, now: Time, way: Direction) {
        self.blackout.object_progress(now, way);
    }

    /// Ends a blackout.
    fn resume(&mut self, now: Time) {
        if self.in_flight.resume(now) {
            // Earlier packets do not occupy the link any more.
            self.pacer = Pacer::default();
        }
        self.share.restart(now + RECOVERY + self.in_flight.smoothed().unwrap_or_default() * 2);
        self.dispersal.restart();
        self.byte_time.forget_samples();
        // The waiting objects measure the rate better than a pair before them.
        self.packet_pairs.postpone(now);
        self.recovers_until = Some(now + RECOVERY + self.in_flight.smoothed().unwrap_or_default() * 2);
    }

    pub(super) fn demand(&mut self, now: Time, demand: Demand) {
        self.packet_pairs.demand(now, demand);
    }

    pub(super) fn path_changed(&mut self, now: Time) {
        self.in_flight.path_changed();
        if self.blackout.heard() {
            self.in_flight.resume(now);
        }
        self.slow_start = SlowStart::new(now);
        self.share = Share::new(now);
        (self.dispersal, self.byte_time, self.pacer) = Default::default();
        (self.unmeasured, self.recovers_until, self.reverse_packet_time) = (0, None, Duration::ZERO);
        self.packet_pairs.postpone(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let airtime = self.slower_way();
        if self.blackout.handle_timeout(now, &self.in_flight, airtime, self.config.mtu) {
            self.in_flight.stats_mut().blackouts += 1;
            self.in_flight.blackout_began(now);
            self.share.restart(now);
        }
        if self.recovers_until.is_some_and(|until| until <= now) {
            self.recovers_until = None;
        }
        if let Some(known) = self.known() {
            self.packet_pairs.handle_timeout(now, known);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let blackout = self.blackout.poll_timeout(&self.in_flight, self.slower_way());
        let pair = self.known().and_then(|known| self.packet_pairs.due(known));
        [blackout, self.recovers_until, pair].into_iter().flatten().min()
    }

    /// The estimate that packet pairs would renew; `None` in a blackout or without one.
    fn known(&self) -> Option<LinkEstimate> {
        let measured = self.byte_time.measured().filter(|_| self.blackout.blackout_since().is_none())?;
        let (contradicted, airtime) = (self.byte_time.is_contradicted(), self.airtime(2 * self.config.mtu));
        Some(LinkEstimate { measured, contradicted, airtime })
    }

    pub(super) fn poll_probe(&mut self, _now: Time) -> Option<Probe> {
        let small = self.blackout.take_probe().then_some(Probe::Small);
        let probe = small.or_else(|| self.packet_pairs.take_probe())?;
        self.in_flight.stats_mut().probes += 1;
        Some(probe)
    }

    pub(super) fn forecast(&self) -> Forecast {
        let rate = self.byte_time.get().map(|s| 1e9 / s * self.share.get());
        let state = match (self.blackout.blackout_since(), rate) {
            (Some(since), _) => Knowledge::Blackout { since },
            (None, Some(_)) if self.recovers_until.is_none() => Knowledge::Known,
            _ => Knowledge::Unknown,
        };
        let is_gone = matches!(state, Knowledge::Blackout { .. });
        let at_most = self.dispersal.min_byte_time().map(|s| 1e9 / s);
        Forecast {
            rate: rate.and_then(byte_rate),
            available: if is_gone { None } else { rate.and_then(|r| byte_rate(r * self.gain())) },
            at_most: at_most.and_then(|most| byte_rate(rate.map_or(most, |r| r.max(most)))),
            state,
            measured: self.byte_time.measured(),
        }
    }

    pub(super) fn gate(&self, now: Time) -> Gate {
        if self.blackout.blackout_since().is_some() || self.in_flight.bytes() + self.config.mtu > self.fresh_window() {
            return Gate::Shut;
        }
        self.pacer.wait(now, self.config.mtu).map_or(Gate::Open, Gate::At)
    }

    /// Part of the quantum, so that a quantum shows several gaps and the next object waits at most this long.
    pub(super) fn burst(&self, now: Time) -> u64 {
        let mtu = self.config.mtu;
        let Some(byte_time) = self.byte_time.get().filter(|_| self.recovers_until.is_none()) else { return mtu };
        let quantum = quantum(byte_time, mtu);
        let room = self.fresh_window().saturating_sub(self.in_flight.bytes());
        (quantum / BURSTS).min(self.pacer.left(now, quantum)).min(room).max(mtu)
    }

    pub(super) fn window(&self) -> u64 {
        // Probes are exempt from the window.
        let probes =
            if self.blackout.is_tentative() { self.in_flight.bytes().saturating_add(2 * self.config.mtu) } else { 0 };
        self.fresh_window().max(probes).saturating_add(self.in_flight.stale())
    }

    /// Window for packets that are not stale.
    fn fresh_window(&self) -> u64 {
        let mtu = self.config.mtu;
        if self.blackout.blackout_since().is_some() {
            return self.in_flight.bytes().saturating_add(2 * mtu); // probes pass
        }
        if self.recovers_until.is_some() {
            return self.first_burst();
        }
        let (Some(byte_time), Some(trip)) = (self.byte_time.get(), self.in_flight.round_trip_min()) else {
            return self.first_burst().saturating_add(self.slow_start.grown).min(FIRST_PACKETS_MAX * mtu);
        };
        let share = self.share.get();
        let on_the_way = (trip.as_nanos() as f64 / byte_time * share) as u64;
        let slack = ((SLACK.as_nanos() as f64 / byte_time * share) as u64).max(2 * mtu);
        // One packet more: it has arrived, and its acknowledgement waits for the second of a pair.
        on_the_way.saturating_add(slack).saturating_add(mtu)
    }

    fn first_burst(&self) -> u64 {
        self.config.initial_packets * self.config.mtu
    }

    /// Factor on the pacing rate.
    fn gain(&self) -> f64 {
        let byte_time = self.byte_time.get().unwrap_or(0.0);
        // The first packet of a burst may queue behind the previous burst.
        let tolerated = quantum(byte_time, self.config.mtu) as f64 * byte_time / 4.0 + 1e6;
        let excess = self.dispersal.standing().as_nanos() as f64 - tolerated;
        if excess > 0.0 {
            (1.0 - excess / DRAIN.as_nanos() as f64).max(GAIN_MIN)
        } else if self.unmeasured >= UNMEASURED_PACKETS {
            GAIN_UNMEASURED
        } else {
            1.0
        }
    }

    /// Transmission time of `bytes`.
    fn airtime(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * self.byte_time.get().unwrap_or(0.0)) as u64)
    }

    /// Transmission time of a full packet in the slower direction.
    fn slower_way(&self) -> Duration {
        self.airtime(self.config.mtu).max(self.reverse_packet_time)
    }

    pub(super) fn past_outages(&self) -> PastOutages {
        self.past_outages.clone()
    }

    pub(super) fn queueing(&self) -> Duration {
        self.dispersal.standing()
    }

    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    pub(super) fn stats(&self) -> Stats {
        *self.in_flight.stats()
    }
}
