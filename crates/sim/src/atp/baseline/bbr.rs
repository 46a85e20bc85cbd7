//! BBR, version 1 (draft-cardwell-iccrg-bbr-congestion-control-00), as in Linux's `bbr`.
//!
//! The QUIC library has version 3 only, whose random numbers cannot be seeded. Left out: the
//! estimator of token-bucket policers, and packet conservation in the first round after a loss.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

/// Gains of section 4.2: 2 / ln 2, and its inverse.
const STARTUP_GAIN: f64 = 2.885;
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
const WINDOW_GAIN: f64 = 2.0;
/// Pacing gains of PROBE_BW, each for a minimum round-trip time.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Window of the bandwidth filter in round trips, and of the round-trip filter.
const BANDWIDTH_ROUNDS: u64 = 10;
const RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT: Duration = Duration::from_millis(200);
/// Minimum window, and bytes allowed beyond the gain for delayed acknowledgements, in packets.
const WINDOW_MIN: u64 = 4;
const WINDOW_EXTRA: u64 = 3;
const WINDOW_FIRST: u64 = 10;
/// The pipe is full after this many rounds without this growth.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;

/// Makes controllers, with the phase of PROBE_BW in which each begins (0 to 6).
#[derive(Clone, Copy, Debug)]
pub(super) struct BbrConfig {
    pub(super) phase: usize,
}

impl BbrConfig {
    /// All phases but the one that drains.
    pub(super) const PHASES: u64 = CYCLE.len() as u64 - 1;
}

impl ControllerFactory for BbrConfig {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Bbr::new(self.phase, now, mtu.into()))
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Startup,
    Drain,
    ProbeBandwidth { step: usize, since: Instant },
    ProbeRtt { until: Option<Instant> },
}

/// What a rate sample needs of the moment at which a packet was sent.
#[derive(Clone, Copy, Debug)]
struct SentPacket {
    sent: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
}

/// Growth of the bandwidth in STARTUP.
#[derive(Clone, Copy, Debug, Default)]
struct FullPipe {
    bandwidth: f64,
    rounds: u32,
}

#[derive(Clone, Debug)]
struct Bbr {
    mtu: u64,
    first_step: usize,
    phase: Phase,
    packets: BTreeMap<u64, SentPacket>,
    /// The latest packet of the acknowledgements being handled.
    newest: Option<SentPacket>,
    delivered: u64,
    delivered_at: Instant,
    first_sent: Instant,
    in_flight: u64,
    round: u64,
    round_end: u64,
    /// Bandwidth samples in bytes a second with their rounds; falling.
    bandwidth: VecDeque<(u64, f64)>,
    rtt: Option<(Instant, Duration)>,
    full: FullPipe,
    window: u64,
}

impl Bbr {
    fn new(phase: usize, now: Instant, mtu: u64) -> Bbr {
        Bbr {
            mtu,
            first_step: if phase == 0 { 0 } else { (phase + 1) % CYCLE.len() },
            phase: Phase::Startup,
            packets: BTreeMap::new(),
            newest: None,
            delivered: 0,
            delivered_at: now,
            first_sent: now,
            in_flight: 0,
            round: 0,
            round_end: 0,
            bandwidth: VecDeque::new(),
            rtt: None,
            full: FullPipe::default(),
            window: WINDOW_FIRST * mtu,
        }
    }

    fn bottleneck(&self) -> Option<f64> {
        self.bandwidth.front().map(|(_, rate)| *rate)
    }

    /// Bandwidth-delay product in bytes.
    fn bdp(&self) -> Option<f64> {
        Some(self.bottleneck()? * self.rtt?.1.as_secs_f64())
    }

    fn is_full(&self) -> bool {
        self.full.rounds >= FULL_ROUNDS
    }

    fn pacing_gain(&self) -> f64 {
        match self.phase {
            Phase::Startup => STARTUP_GAIN,
            Phase::Drain => DRAIN_GAIN,
            Phase::ProbeBandwidth { step, .. } => CYCLE.get(step).copied().unwrap_or(1.0),
            Phase::ProbeRtt { .. } => 1.0,
        }
    }

    fn target(&self) -> u64 {
        let gain = if matches!(self.phase, Phase::Startup | Phase::Drain) { STARTUP_GAIN } else { WINDOW_GAIN };
        let target = self.bdp().map_or(WINDOW_FIRST * self.mtu, |bdp| (gain * bdp) as u64 + WINDOW_EXTRA * self.mtu);
        target.max(WINDOW_MIN * self.mtu)
    }

    /// Records the bandwidth that the newest acknowledged packet shows.
    fn sample(&mut self, packet: SentPacket, is_app_limited: bool) {
        if packet.delivered >= self.round_end {
            self.round_end = self.delivered;
            self.round += 1;
        }
        let took = (packet.sent - packet.first_sent).max(self.delivered_at - packet.delivered_at);
        let rate = (self.delivered - packet.delivered) as f64 / took.as_secs_f64();
        // A shorter interval than the round trip is an artefact of compressed acknowledgements.
        let is_valid = rate.is_finite() && self.rtt.is_none_or(|(_, least)| took >= least);
        if is_valid && (!is_app_limited || self.bottleneck().is_none_or(|most| rate > most)) {
            while self.bandwidth.back().is_some_and(|(_, last)| *last <= rate) {
                self.bandwidth.pop_back();
            }
            self.bandwidth.push_back((self.round, rate));
        }
        let oldest = self.round.saturating_sub(BANDWIDTH_ROUNDS);
        while self.bandwidth.len() > 1 && self.bandwidth.front().is_some_and(|(round, _)| *round < oldest) {
            self.bandwidth.pop_front();
        }
    }

    /// Counts rounds without growth of the bandwidth, once a round.
    fn check_full(&mut self, is_app_limited: bool) {
        let Some(bandwidth) = self.bottleneck().filter(|_| !self.is_full() && !is_app_limited) else { return };
        if bandwidth >= self.full.bandwidth * FULL_GROWTH {
            self.full = FullPipe { bandwidth, rounds: 0 };
        } else {
            self.full.rounds += 1;
        }
    }

    fn advance(&mut self, now: Instant, is_rtt_old: bool) {
        let in_flight = self.in_flight as f64;
        let bdp = self.bdp().unwrap_or(f64::MAX);
        let cruise = |step| Phase::ProbeBandwidth { step, since: now };
        if is_rtt_old && !matches!(self.phase, Phase::ProbeRtt { .. }) {
            self.phase = Phase::ProbeRtt { until: None };
        }
        match self.phase {
            Phase::Startup if self.is_full() => self.phase = Phase::Drain,
            Phase::Drain if in_flight <= bdp => self.phase = cruise(self.first_step),
            Phase::ProbeBandwidth { step, since } => {
                let is_long = self.rtt.is_some_and(|(_, least)| now - since > least);
                let gain = self.pacing_gain();
                let is_over = if gain > 1.0 {
                    is_long && in_flight >= gain * bdp
                } else {
                    is_long || (gain < 1.0 && in_flight <= bdp)
                };
                // A full queue drops packets before the probe fills it: a probe ends with four round trips.
                let is_stuck = self.rtt.is_some_and(|(_, least)| now - since > least * 4);
                if is_over || is_stuck {
                    self.phase = cruise((step + 1) % CYCLE.len());
                }
            }
            Phase::ProbeRtt { until: None } if self.in_flight <= WINDOW_MIN * self.mtu => {
                self.phase = Phase::ProbeRtt { until: Some(now + PROBE_RTT) };
            }
            Phase::ProbeRtt { until: Some(until) } if now >= until => {
                self.rtt = self.rtt.map(|(_, least)| (now, least));
                self.phase = if self.is_full() { cruise(self.first_step) } else { Phase::Startup };
                self.window = self.window.max(self.target());
            }
            _ => {}
        }
    }
}

impl Controller for Bbr {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, number: u64) {
        if self.in_flight == 0 {
            (self.first_sent, self.delivered_at) = (now, now);
        }
        self.in_flight += u64::from(bytes);
        let (delivered, delivered_at, first_sent) = (self.delivered, self.delivered_at, self.first_sent);
        self.packets.insert(number, SentPacket { sent: now, delivered, delivered_at, first_sent });
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, number: u64, _: bool, _: &RttEstimator) {
        self.delivered += bytes;
        self.delivered_at = now;
        if let Some(packet) = self.packets.remove(&number)
            && self.newest.is_none_or(|newest| newest.sent <= sent)
        {
            self.newest = Some(packet);
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, is_app_limited: bool, largest: Option<u64>) {
        let acknowledged = self.in_flight.saturating_sub(in_flight);
        self.in_flight = in_flight;
        if let Some(largest) = largest {
            // Much older packets were lost.
            self.packets = self.packets.split_off(&largest.saturating_sub(1000));
        }
        let Some(packet) = self.newest.take() else { return };
        self.first_sent = packet.sent;
        let trip = now - packet.sent;
        let is_rtt_old = self.rtt.is_some_and(|(at, _)| now - at > RTT_WINDOW);
        if self.rtt.is_none_or(|(_, least)| trip <= least || is_rtt_old) {
            self.rtt = Some((now, trip));
        }
        let round = self.round;
        self.sample(packet, is_app_limited);
        if self.round > round {
            self.check_full(is_app_limited);
        }
        self.advance(now, is_rtt_old);
        let target = self.target();
        let grown = self.window + acknowledged;
        self.window = if self.is_full() { grown.min(target) } else { self.window.max(grown.min(target)) };
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}

    fn on_packet_lost(&mut self, bytes: u16, number: u64, _: Instant) {
        self.packets.remove(&number);
        self.in_flight = self.in_flight.saturating_sub(bytes.into());
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.mtu = mtu.into();
    }

    fn window(&self) -> u64 {
        let least = WINDOW_MIN * self.mtu;
        if matches!(self.phase, Phase::ProbeRtt { .. }) { least } else { self.window.max(least) }
    }

    fn metrics(&self) -> ControllerMetrics {
        // The struct is non-exhaustive.
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = self.bottleneck().map(|rate| (self.pacing_gain() * rate).max(1.0) as u64);
        metrics.send_quantum = Some(2 * self.mtu);
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW_FIRST * self.mtu
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
