//! The estimator of ATP 02, section 3.1 and Figure 3. Once a second it reads the bandwidth used and the backlog of
//! the send queue.
//!
//! The paper reads both from the mobile host's network interface, the bottleneck. Here *used* is the bytes
//! acknowledged in the last second. The *backlog*, unless the session reports it, is the bytes in flight beyond the
//! bandwidth-delay product.
//!
//! Interpretations where the figure is unclear:
//! * `pp_period - maximum(pp_period-1, 0)` is read as an assignment, like the other branch. The timer restarts with
//!   each packet pair; a period of 0 means every second.
//! * `MAXIMUM_PACKET_PAIR_PERIOD` is not given: 10 s.
//! * The probe size "is reduced when the bandwidth estimate is very small": to the estimate, and to at least one
//!   packet.
//! * The first estimate is not described: a packet pair, at once and then every second until one is answered. The
//!   bytes of the first seconds would underestimate the link and reject objects, so they are used only after
//!   [`FIRST_PAIRS`] unanswered pairs. Until then the state is unknown, and `Config::initial_packets` are in
//!   flight.

use std::collections::VecDeque;
use std::time::Duration;

use remora_base::Time;

use super::forecast::{Forecast, Knowledge};
use super::in_flight::InFlight;
use super::interface::{Arrival, Config, Demand, Gate, Probe, Stats, byte_rate};

/// Interval of the estimator.
const TICK: Duration = Duration::from_secs(1);
/// Send interval (section 3.2).
const SEND_INTERVAL: Duration = Duration::from_millis(50);
const SEND_INTERVALS: u64 = 20;
/// Packets in the send queue that count as no backlog, and the length of the queue.
const MAXIMUM_BACKLOG: u64 = 10;
const QUEUE: u64 = 50;
/// Samples of the moving average.
const FILTERED: usize = 5;
/// Age from which an unchanged estimate is stale.
const STALE: Duration = Duration::from_secs(5);
/// Maximum ticks between packet pairs.
const MAXIMUM_PACKET_PAIR_PERIOD: u32 = 10;
/// Packet pairs sent for the first estimate before it is made without them.
const FIRST_PAIRS: u64 = 5;
/// Maximum time between the packets of a pair.
const PAIR_SPACING: Duration = Duration::from_millis(1);

/// State of the algorithm of Figure 3.
#[derive(Clone, Debug)]
pub(super) struct PaperEstimator {
    config: Config,
    in_flight: InFlight,
    /// `curbw` and `available`, in bytes per second.
    curbw: Option<u64>,
    available: u64,
    used: VecDeque<u64>,
    acknowledged_before: u64,
    backlog: Option<u64>,
    /// Time of the last change of the estimate or genuine decrease.
    changed: Option<Time>,
    measured: Option<Time>,
    tick: Time,
    pp_timer: u32,
    pp_period: u32,
    rejected: u32,
    probe: bool,
    /// Departure of the outstanding pair, and the last arrival since.
    pair: Option<Time>,
    last: Option<Arrival>,
    /// Start of the send interval, and the bytes left in it.
    interval: Time,
    credit: u64,
}

impl PaperEstimator {
    pub(super) fn new(config: Config, now: Time) -> PaperEstimator {
        PaperEstimator {
            config,
            in_flight: InFlight::new(now),
            curbw: None,
            available: 0,
            used: VecDeque::new(),
            acknowledged_before: 0,
            backlog: None,
            changed: None,
            measured: None,
            tick: now + TICK,
            pp_timer: 0,
            pp_period: MAXIMUM_PACKET_PAIR_PERIOD,
            rejected: 0,
            probe: true,
            pair: None,
            last: None,
            interval: now,
            credit: config.initial_packets * config.mtu,
        }
    }

    pub(super) fn sent(&mut self, now: Time, bytes: u64) {
        self.in_flight.sent(now, bytes);
        self.credit = self.credit.saturating_sub(bytes);
    }

    pub(super) fn acknowledged(&mut self, now: Time, sent: Time, bytes: u64) {
        self.in_flight.acknowledged(now, sent, bytes);
    }

    pub(super) fn lost(&mut self, _now: Time, bytes: u64) {
        self.in_flight.lost(bytes);
    }

    /// Finds the packet pair among the arrivals and sets the estimate to bytes per gap.
    pub(super) fn arrivals(&mut self, now: Time, arrivals: &[Arrival]) {
        for a in arrivals {
            let Some(p) = self.last.replace(*a) else { continue };
            let (Some(pair), true) = (self.pair, a.total > p.total) else { continue };
            let is_pair = p.sent >= pair && a.sent >= p.sent && a.sent.since(p.sent) <= PAIR_SPACING;
            let gap = a.received.since(p.received).as_nanos();
            if is_pair && gap > 0 {
                let bytes = u128::from(a.total - p.total) * 1_000_000_000 / gap;
                self.set(now, u64::try_from(bytes).unwrap_or(u64::MAX));
                self.available = self.curbw.unwrap_or(0);
                self.pair = None;
                self.in_flight.stats_mut().samples += 1;
            }
        }
    }

    pub(super) fn demand(&mut self, _now: Time, demand: Demand) {
        self.rejected = self.rejected.saturating_add(demand.rejected);
    }

    pub(super) fn backlog(&mut self, packets: u64) {
        self.backlog = Some(packets);
    }

    pub(super) fn path_changed(&mut self, now: Time) {
        let (stats, acknowledged) = (*self.in_flight.stats(), self.acknowledged_before);
        *self = PaperEstimator::new(self.config, now);
        *self.in_flight.stats_mut() = stats;
        self.acknowledged_before = acknowledged;
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        if now >= self.tick {
            self.second(now);
            // After a long pause only the last second counts.
            self.tick = (self.tick + TICK).max(now);
        }
        if now >= self.interval + SEND_INTERVAL {
            self.send_interval(now);
        }
    }

    fn second(&mut self, now: Time) {
        let acknowledged = self.in_flight.stats().acknowledged;
        let used = acknowledged.saturating_sub(self.acknowledged_before);
        self.acknowledged_before = acknowledged;
        if self.used.len() == FILTERED {
            self.used.pop_front();
        }
        self.used.push_back(used);
        let backlog = self.backlog.take().unwrap_or_else(|| self.inferred_backlog(used));
        let genuine_decrease = backlog > MAXIMUM_BACKLOG;
        if genuine_decrease {
            self.changed = Some(now);
        }
        match self.curbw {
            None if used == 0 || self.in_flight.stats().probes < FIRST_PAIRS => {
                self.probe |= self.pair.is_none_or(|sent| now.since(sent) >= TICK)
            }
            Some(curbw) if self.changed.is_none_or(|at| now.since(at) > STALE) => self.packet_pair(curbw),
            _ => self.bandwidth_estimate(now, used, backlog),
        }
        self.rejected = 0;
    }

    /// Packets in flight beyond the bandwidth-delay product.
    fn inferred_backlog(&self, used: u64) -> u64 {
        let trip = self.in_flight.round_trip_min().unwrap_or_default().as_millis();
        let on_the_way = u64::try_from(u128::from(used) * trip / 1000).unwrap_or(u64::MAX);
        self.in_flight.bytes().saturating_sub(on_the_way) / self.config.mtu
    }

    fn packet_pair(&mut self, curbw: u64) {
        self.available = curbw;
        self.pp_timer += 1;
        if self.pp_timer >= self.pp_period {
            (self.pp_timer, self.probe) = (0, true);
            self.pp_period = if self.rejected > 0 {
                self.pp_period.saturating_sub(1)
            } else {
                (self.pp_period + 1).min(MAXIMUM_PACKET_PAIR_PERIOD)
            };
        }
    }

    fn bandwidth_estimate(&mut self, now: Time, used: u64, backlog: u64) {
        let used = used.max(self.used.iter().sum::<u64>() / FILTERED as u64);
        let mtu = self.config.mtu;
        if backlog > MAXIMUM_BACKLOG {
            self.set(now, used);
            // At least a packet a second: lost packets stay in flight until an acknowledgement declares them lost.
            self.available = used.saturating_sub(backlog.saturating_mul(mtu)).max(mtu);
        } else if let Some(curbw) = self.curbw
            && used < curbw
        {
            self.available = curbw;
        } else {
            self.set(now, used);
            self.available = used + used.clamp(mtu, QUEUE / 2 * mtu);
        }
    }

    /// Sets the estimate to `curbw`, at least a packet a second.
    fn set(&mut self, now: Time, curbw: u64) {
        let curbw = curbw.max(self.config.mtu);
        if self.curbw != Some(curbw) {
            self.changed = Some(now);
        }
        (self.curbw, self.measured) = (Some(curbw), Some(now));
    }

    /// Starts a send interval. The remainder, up to one packet, carries over.
    fn send_interval(&mut self, now: Time) {
        let kept = self.credit.min(self.config.mtu);
        let behind = now.since(self.interval + SEND_INTERVAL) >= SEND_INTERVAL;
        self.interval = if behind { now } else { self.interval + SEND_INTERVAL };
        // Without an estimate one packet an interval. Otherwise the first packet pair could wait behind
        // retransmissions forever.
        let share = self.curbw.map_or(self.config.mtu, |_| self.available / SEND_INTERVALS);
        self.credit = kept + share;
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let due = self.tick;
        Some(if self.credit < self.config.mtu { due.min(self.interval + SEND_INTERVAL) } else { due })
    }

    pub(super) fn poll_probe(&mut self, now: Time) -> Option<Probe> {
        std::mem::take(&mut self.probe).then(|| {
            (self.pair, self.last) = (Some(now), None);
            self.in_flight.stats_mut().probes += 1;
            Probe::Pair
        })
    }

    pub(super) fn forecast(&self) -> Forecast {
        let rate = self.curbw.and_then(|b| byte_rate(b as f64));
        Forecast {
            rate,
            available: self.curbw.and_then(|_| byte_rate(self.available as f64)),
            // The paper gives objects up by the estimate itself.
            at_most: rate,
            state: if self.curbw.is_some() { Knowledge::Known } else { Knowledge::Unknown },
            measured: self.measured,
        }
    }

    pub(super) fn gate(&self, now: Time) -> Gate {
        if self.in_flight.bytes() + self.config.mtu > self.window() {
            Gate::Shut
        } else if self.credit >= self.config.mtu {
            Gate::Open
        } else {
            Gate::At((self.interval + SEND_INTERVAL).max(now))
        }
    }

    /// Bytes in a full packet.
    pub(super) fn packet(&self) -> u64 {
        self.config.mtu
    }

    pub(super) fn window(&self) -> u64 {
        let trip = (self.in_flight.smoothed().unwrap_or_default() * 2).max(TICK).as_millis();
        let spent = u64::try_from(u128::from(self.available) * trip / 1000).unwrap_or(u64::MAX);
        spent.saturating_add(QUEUE * self.config.mtu)
    }

    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    pub(super) fn stats(&self) -> Stats {
        *self.in_flight.stats()
    }
}
