//! Our estimator: it measures the bottleneck with every burst that goes through it.
//!
//! * The rate comes from the receiver's timestamps ([`dispersal`](super::dispersal)), and follows
//!   steps at once and noise slowly ([`slowness`](super::slowness)). Because every quantum is a
//!   packet pair, a link that became faster shows without filling its queue first.
//! * No standing queue: no more is under way than the rate times the shortest round trip and a
//!   little, and what waits all the same is drained by sending a little less.
//! * Silence of about a round trip is a blackout ([`stall`](super::stall)): the estimate is frozen.
//!   After it the link may be another one. So the old rate is only a pace until the first burst has
//!   been measured; not more than that burst is under way, and admission does not count on it.
//! * When the link is idle but somebody waits for a better estimate, packet pairs renew it
//!   ([`pairs`](super::pairs)).

use std::time::Duration;

use remora_base::Time;

use super::dispersal::{Dispersal, Sample};
use super::flight::Flight;
use super::pacer::{Pacer, quantum};
use super::pairs::{Known, Pairs};
use super::slowness::Slowness;
use super::stall::Stall;
use super::{Arrival, Config, Demand, Forecast, Gate, Knowledge, Probe, Stats, Way, byte_rate};

/// Room for what is under way beyond rate times round trip, at least.
const SLACK: Duration = Duration::from_millis(10);
/// A queue is drained in about this time,
const DRAIN: Duration = Duration::from_millis(250);
/// by sending at no less than this share of the rate.
const GAIN_MIN: f64 = 0.5;
/// Packets without a measurement of the rate after which we send faster, to be able to make one.
const BLIND_PACKETS: u32 = 32;
const GAIN_BLIND: f64 = 1.25;
/// Packets that may be under way before anything is known, at most.
const FIRST_PACKETS_MAX: u64 = 64;
/// A quantum leaves in so many calls.
const BURSTS: u64 = 2;
/// After a blackout the old rate counts again if nothing was measured in this and two round trips.
const RECOVERY: Duration = Duration::from_millis(200);

/// A link is slow on which a full packet takes so long: 58 KB/s.
const SLOW: Duration = Duration::from_millis(25);

/// How the window grows while no rate is known of the link.
#[derive(Clone, Copy, Debug)]
struct Opening {
    /// Since when it is this link.
    since: Time,
    /// The most bytes that were under way at once.
    most: u64,
    /// By how much the window is larger than the first.
    grown: u64,
}

/// The estimator.
#[derive(Clone, Debug)]
pub(super) struct Rate {
    config: Config,
    flight: Flight,
    opening: Opening,
    stall: Stall,
    pacer: Pacer,
    dispersal: Dispersal,
    slowness: Slowness,
    /// Packets reported since the rate was last measured.
    blind: u32,
    /// After a blackout: until when the old rate is not to be counted on.
    recovers_until: Option<Time>,
    pairs: Pairs,
    /// The time that the peer's full packets take.
    comes: Duration,
}

impl Opening {
    fn new(now: Time) -> Opening {
        Opening { since: now, most: 0, grown: 0 }
    }

    /// A packet that left at `sent` was acknowledged; the first window was of `first` bytes. The window
    /// doubles each round, for each acknowledged packet makes room for two; but only where it is used: that
    /// small packets came through one at a time, however many, says little of more (RFC 9002, section 7.8).
    fn acknowledged(&mut self, sent: Time, bytes: u64, first: u64) {
        let shown = self.most.saturating_add(self.most.max(first));
        if sent >= self.since && first.saturating_add(self.grown) < shown {
            self.grown = self.grown.saturating_add(bytes);
        }
    }
}

impl Rate {
    pub(super) fn new(config: Config, now: Time) -> Rate {
        Rate {
            config,
            flight: Flight::new(now),
            opening: Opening::new(now),
            stall: Stall::new(),
            pacer: Pacer::default(),
            dispersal: Dispersal::default(),
            slowness: Slowness::default(),
            blind: 0,
            recovers_until: None,
            pairs: Pairs::new(now),
            comes: Duration::ZERO,
        }
    }

    pub(super) fn sent(&mut self, now: Time, bytes: u64) {
        self.flight.sent(now, bytes);
        self.opening.most = self.opening.most.max(self.flight.bytes());
        let slowness = self.slowness.get().unwrap_or(0.0);
        let quantum = match self.recovers_until {
            Some(_) => self.first_burst(),
            None => quantum(slowness, self.config.mtu),
        };
        self.pacer.sent(now, bytes, quantum, slowness / self.gain());
    }

    pub(super) fn acknowledged(&mut self, now: Time, sent: Time, bytes: u64) {
        self.heard(now);
        self.flight.acknowledged(now, sent, bytes);
        self.opening.acknowledged(sent, bytes, self.first_burst());
    }

    pub(super) fn lost(&mut self, _now: Time, bytes: u64) {
        self.flight.lost(bytes);
    }

    pub(super) fn arrivals(&mut self, now: Time, arrivals: &[Arrival]) {
        if arrivals.is_empty() {
            return;
        }
        self.heard(now);
        self.flight.heard(now);
        for (i, a) in arrivals.iter().enumerate() {
            self.blind = self.blind.saturating_add(1);
            let together = arrivals.get(i + 1).is_some_and(|next| next.received == a.received);
            let samples = self.dispersal.arrival(now, *a, together, self.slowness.get(), self.config.mtu);
            samples.into_iter().flatten().for_each(|s| self.measured(now, s));
        }
        self.dispersal.conclude();
    }

    fn measured(&mut self, now: Time, sample: Sample) {
        let before = self.slowness.get();
        match sample {
            Sample::Takes(z) => {
                self.slowness.takes(now, z);
                self.blind = 0;
                self.recovers_until = None;
            }
            Sample::AtMost(z) => self.slowness.takes_at_most(now, z),
        }
        if let (Some(before), Some(new)) = (before, self.slowness.get()) {
            // A slower one shows in the queue, and is drained by less than the rate.
            self.pacer.rescale(now, (new / before).min(1.0));
        }
        self.flight.stats_mut().samples += 1;
    }

    /// The peer has got something of ours.
    fn heard(&mut self, now: Time) {
        if self.stall.heard() {
            self.resume(now);
        }
    }

    /// The peer is there; in a blackout that is most likely the end of it.
    pub(super) fn asked(&mut self, now: Time) {
        if self.stall.asked(now) {
            self.resume(now);
            self.flight.heard(now);
        }
    }

    pub(super) fn comes(&mut self, takes: Duration) {
        self.comes = takes;
    }

    pub(super) fn patient_until(&self) -> Option<Time> {
        let airtime = self.slower_way();
        if airtime < SLOW { None } else { self.stall.patient_until(&self.flight, airtime) }
    }

    pub(super) fn moved(&mut self, now: Time, way: Way) {
        self.stall.moved(now, way);
    }

    /// A blackout is over.
    fn resume(&mut self, now: Time) {
        if self.flight.resume(now) {
            // What left before has not made the link busy.
            self.pacer = Pacer::default();
        }
        self.dispersal.restart();
        self.slowness.doubt();
        // What waits measures the rate better than a pair in front of it.
        self.pairs.put_off(now);
        self.recovers_until = Some(now + RECOVERY + self.flight.smoothed().unwrap_or_default() * 2);
    }

    pub(super) fn demand(&mut self, now: Time, demand: Demand) {
        self.pairs.demand(now, demand);
    }

    pub(super) fn path_changed(&mut self, now: Time) {
        self.flight.path_changed();
        if self.stall.heard() {
            self.flight.resume(now);
        }
        self.opening = Opening::new(now);
        (self.dispersal, self.slowness, self.pacer) = Default::default();
        (self.blind, self.recovers_until, self.comes) = (0, None, Duration::ZERO);
        self.pairs.put_off(now);
    }

    pub(super) fn handle_timeout(&mut self, now: Time) {
        let airtime = self.slower_way();
        if self.stall.handle_timeout(now, &self.flight, airtime, self.config.mtu) {
            self.flight.stats_mut().blackouts += 1;
            self.flight.went_dark(now);
        }
        if self.recovers_until.is_some_and(|until| until <= now) {
            self.recovers_until = None;
        }
        if let Some(known) = self.known() {
            self.pairs.handle_timeout(now, known);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        let stall = self.stall.poll_timeout(&self.flight, self.slower_way());
        let pair = self.known().and_then(|known| self.pairs.due(known));
        [stall, self.recovers_until, pair].into_iter().flatten().min()
    }

    /// What packet pairs would renew, if there is anything: not in a blackout.
    fn known(&self) -> Option<Known> {
        let measured = self.slowness.measured().filter(|_| self.stall.gone_since().is_none())?;
        let (contradicted, airtime) = (self.slowness.is_contradicted(), self.airtime(2 * self.config.mtu));
        Some(Known { measured, contradicted, airtime })
    }

    pub(super) fn poll_probe(&mut self, _now: Time) -> Option<Probe> {
        let small = self.stall.take_wish().then_some(Probe::Small);
        let probe = small.or_else(|| self.pairs.take_wish())?;
        self.flight.stats_mut().probes += 1;
        Some(probe)
    }

    pub(super) fn forecast(&self) -> Forecast {
        let rate = self.slowness.get().map(|s| 1e9 / s);
        let state = match (self.stall.gone_since(), rate) {
            (Some(since), _) => Knowledge::Blackout { since },
            (None, Some(_)) if self.recovers_until.is_none() => Knowledge::Known,
            _ => Knowledge::Unknown,
        };
        let is_gone = matches!(state, Knowledge::Blackout { .. });
        let at_most = self.dispersal.takes_at_least().map(|s| 1e9 / s);
        Forecast {
            rate: rate.and_then(byte_rate),
            available: if is_gone { None } else { rate.and_then(|r| byte_rate(r * self.gain())) },
            at_most: at_most.and_then(|most| byte_rate(rate.map_or(most, |r| r.max(most)))),
            state,
            measured: self.slowness.measured(),
        }
    }

    pub(super) fn gate(&self, now: Time) -> Gate {
        if self.stall.gone_since().is_some() || self.flight.bytes() + self.config.mtu > self.fresh_window() {
            return Gate::Shut;
        }
        self.pacer.wait(now, self.config.mtu).map_or(Gate::Open, Gate::At)
    }

    /// A part of the quantum, so that each still shows the link in several gaps, and what comes next
    /// waits for no longer than that takes.
    pub(super) fn burst(&self, now: Time) -> u64 {
        let mtu = self.config.mtu;
        let Some(slowness) = self.slowness.get().filter(|_| self.recovers_until.is_none()) else { return mtu };
        let quantum = quantum(slowness, mtu);
        let room = self.fresh_window().saturating_sub(self.flight.bytes());
        (quantum / BURSTS).min(self.pacer.left(now, quantum)).min(room).max(mtu)
    }

    pub(super) fn window(&self) -> u64 {
        // Probes pass, whatever is under way.
        let probes = if self.stall.is_hoping() { self.flight.bytes().saturating_add(2 * self.config.mtu) } else { 0 };
        self.fresh_window().max(probes).saturating_add(self.flight.stale())
    }

    /// The window for what is not stale.
    fn fresh_window(&self) -> u64 {
        let mtu = self.config.mtu;
        if self.stall.gone_since().is_some() {
            return self.flight.bytes().saturating_add(2 * mtu); // probes pass
        }
        if self.recovers_until.is_some() {
            return self.first_burst();
        }
        let (Some(slowness), Some(trip)) = (self.slowness.get(), self.flight.round_trip_min()) else {
            return self.first_burst().saturating_add(self.opening.grown).min(FIRST_PACKETS_MAX * mtu);
        };
        let on_the_way = (trip.as_nanos() as f64 / slowness) as u64;
        let slack = ((SLACK.as_nanos() as f64 / slowness) as u64).max(2 * mtu);
        // And one that has arrived and whose acknowledgement waits for the second of its pair.
        on_the_way.saturating_add(slack).saturating_add(mtu)
    }

    fn first_burst(&self) -> u64 {
        self.config.initial_packets * self.config.mtu
    }

    /// The share of the rate to send at.
    fn gain(&self) -> f64 {
        let slowness = self.slowness.get().unwrap_or(0.0);
        // The first packet of a burst may still meet the last one of the burst before.
        let tolerated = quantum(slowness, self.config.mtu) as f64 * slowness / 4.0 + 1e6;
        let excess = self.dispersal.standing().as_nanos() as f64 - tolerated;
        if excess > 0.0 {
            (1.0 - excess / DRAIN.as_nanos() as f64).max(GAIN_MIN)
        } else if self.blind >= BLIND_PACKETS {
            GAIN_BLIND
        } else {
            1.0
        }
    }

    /// The time that `bytes` take.
    fn airtime(&self, bytes: u64) -> Duration {
        Duration::from_nanos((bytes as f64 * self.slowness.get().unwrap_or(0.0)) as u64)
    }

    /// The time that a full packet takes on the slower of the two ways.
    fn slower_way(&self) -> Duration {
        self.airtime(self.config.mtu).max(self.comes)
    }

    pub(super) fn queueing(&self) -> Duration {
        self.dispersal.standing()
    }

    pub(super) fn flight(&self) -> &Flight {
        &self.flight
    }

    pub(super) fn stats(&self) -> Stats {
        *self.flight.stats()
    }
}
