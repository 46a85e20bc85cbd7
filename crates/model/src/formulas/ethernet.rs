//! Shared Ethernet: 1-persistent CSMA/CD with truncated binary exponential back-off (IEEE 802.3,
//! clause 4).
//!
//! The usual closed forms (Metcalfe & Boggs 1976; Lam 1980; the load-dependent server of Almes &
//! Lazowska 1979) assume that an optimal back-off resolves each contention. They predict the
//! throughput well and the delay badly: a frame that collided a few times sits out a back-off while
//! the medium is idle, so the wait is not that of a work-conserving queue. This model follows the
//! frame at the head of a station's queue through its attempts:
//!
//! * the first attempt collides if others arrive during the same transmission and wait for its end
//!   (all then start together): probability `first`;
//! * each later attempt collides with probability `retry`, which grows with the utilisation, since
//!   stations that collided once wait for the same ends again;
//! * each collision costs a back-off of mean `(2^min(k,10) - 1) / 2` slots, the collision itself
//!   and, with the probability that the medium is then busy, the rest of a frame; after 16 the
//!   frame is given up;
//! * the station's own queue is an M/G/1 queue with this service time; a frame that finds others at
//!   its station is served faster, for a station that just sent is ahead of those in back-off (an
//!   exceptional first service, Welch 1964).
//!
//! Eight constants (`fitted`) have no derivation. They were fitted to an event simulation of the
//! protocol other than that in `tests/ethernet.rs`; both hold the formula to its bands. One of the
//! bands must hold: light traffic, moderate traffic of any stations, heavy traffic of many equal
//! stations with long frames.

use crate::formula::{Band, Estimate, Formula, Quantity};
use crate::quantity::{Moments, Traffic};

/// Slot time in bits (802.3, 4.4.2).
pub const SLOT_BITS: f64 = 512.0;
/// Gap between frames in bits.
pub const GAP_BITS: f64 = 96.0;
/// Shortest transmission in a collision: preamble and jam, in bits.
pub const FRAGMENT_BITS: f64 = 96.0;
pub const JAM_BITS: f64 = 32.0;
/// Attempts before a frame is given up.
pub const ATTEMPTS_MAX: u32 = 16;
/// The back-off window stops doubling after this many collisions.
pub const DOUBLINGS_MAX: u32 = 10;
/// Upper limit of the utilisation: there is always a gap.
pub const BUSY_MAX: f64 = 0.98;
/// Upper limit of the retry collision probability, reached where propagation far exceeds that of
/// cables.
pub const RETRY_MAX: f64 = 0.97;
/// Maximum of fixed-point iterations; a dozen suffice at moderate load.
pub const ROUNDS: usize = 200;

/// Eight constants fitted to simulation; all are shares or multiples, without units.
pub mod fitted {
    /// Others that join the wait for the same end, for each colliding first attempt, relative to
    /// new frames alone.
    pub const JOINING: f64 = 1.742;
    /// Probability that a retry collides on an idle medium, with the partner of the last collision.
    pub const RETRY_IDLE: f64 = 0.0152;
    /// Increase of it for each slot time of propagation.
    pub const RETRY_UNHEARD: f64 = 0.0725;
    /// Increase of it on a busy medium.
    pub const RETRY_BUSY: f64 = 0.8229;
    /// Share of a station's own traffic that does not count as busy for its retries.
    pub const RETRY_OWN: f64 = 0.1746;
    /// Residual frame that a first attempt waits for, relative to half a frame.
    pub const FIRST_REST: f64 = 1.1532;
    /// Residual frame that a retry waits for, relative to half a frame: frames follow one another
    /// then.
    pub const RETRY_REST: f64 = 2.4546;
    /// Share of the contention spared to frames that waited at their own station.
    pub const SPARED: f64 = 0.3201;
}

/// A station on a shared Ethernet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sender {
    /// Bits a second of the medium.
    pub bits_per_s: f64,
    pub propagation_s: f64,
    pub stations: f64,
    pub all: Traffic,
    pub own: Traffic,
    /// Traffic of the busiest station over that of the average one.
    pub imbalance: f64,
}

/// The attempts of a frame at the head of its station's queue.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Access {
    /// Time until its arrival, in seconds.
    pub time: Moments,
    /// Time until arrival of a frame that waited at its own station, in seconds.
    pub next: Moments,
    /// Collision probability of its first attempt.
    pub first: f64,
    /// Collision probability of a later attempt.
    pub retry: f64,
    /// Share of time that frames, gaps and collisions occupy the medium.
    pub busy: f64,
    /// Probability that it is given up.
    pub given_up: f64,
}

/// The band of the delay formula: upper limits of variation, propagation, collisions and the
/// station's own utilisation.
struct Reach {
    busy: f64,
    queue: f64,
    stations: f64,
    busy_stations: f64,
    imbalance: f64,
    slots: f64,
    short: f64,
    met: f64,
    variation: f64,
    propagation: f64,
}

impl Reach {
    const fn bands(self) -> [Band<Sender>; 12] {
        const fn to(quantity: Quantity, of: fn(&Sender) -> f64, high: f64) -> Band<Sender> {
            Band { quantity, of, low: 0.0, high }
        }
        [
            Band { quantity: Quantity::Stations, of: |s| s.stations, low: self.stations, high: 200.0 },
            Band { quantity: Quantity::BusyStations, of: Sender::busy_stations, low: self.busy_stations, high: 200.0 },
            Band { quantity: Quantity::PacketSlots, of: Sender::slots, low: self.slots, high: 24.0 },
            Band { quantity: Quantity::ShortSlots, of: Sender::short_slots, low: self.short, high: 24.0 },
            to(Quantity::Utilisation, Sender::busy, self.busy),
            to(Quantity::StationUtilisation, Sender::queue_utilisation, self.queue),
            to(Quantity::OwnQueue, Sender::own_queue, 0.085),
            to(Quantity::Imbalance, |s| s.imbalance, self.imbalance),
            to(Quantity::Variation, |s| s.frame().scv(), self.variation),
            to(Quantity::PropagationSlots, Sender::propagation_slots, self.propagation),
            to(Quantity::MetSlots, Sender::met_slots, self.met),
            to(Quantity::GivenUp, Sender::given_up, 0.003),
        ]
    }
}

/// The band of moderate traffic.
const MODERATE: &[Band<Sender>] = &Reach {
    busy: 0.48,
    queue: 0.2,
    stations: 10.0,
    busy_stations: 7.0,
    imbalance: 1e6,
    slots: 3.2,
    short: 0.0,
    met: 28.0,
    variation: 0.8,
    propagation: 0.15,
}
.bands();

/// The band of light traffic, of frames of any length.
const LITTLE: &[Band<Sender>] = &Reach {
    busy: 0.25,
    queue: 0.25,
    stations: 1.0,
    busy_stations: 1.0,
    imbalance: 1e6,
    slots: 1.0,
    short: 0.5,
    met: 28.0,
    variation: 1.3,
    propagation: 0.13,
}
.bands();

/// The band of heavy traffic, where all stations are equal.
const MUCH: &[Band<Sender>] = &Reach {
    busy: 0.665,
    queue: 0.3,
    stations: 16.0,
    busy_stations: 15.0,
    imbalance: 1.05,
    slots: 5.0,
    short: 0.0,
    met: 28.0,
    variation: 0.4,
    propagation: 0.1,
}
.bands();

/// The band of heavier traffic of long frames.
const MUCH_LONG: &[Band<Sender>] = &Reach {
    busy: 0.825,
    queue: 0.3,
    stations: 16.0,
    busy_stations: 15.0,
    imbalance: 1.05,
    slots: 9.5,
    short: 9.0,
    met: 31.0,
    variation: 0.25,
    propagation: 0.1,
}
.bands();

/// The band for copies: the others' traffic counts, not the copy's own.
const ACCESS_BANDS: &[Band<Sender>] = &[
    Band { quantity: Quantity::Stations, of: |s| s.stations, low: 1.0, high: 200.0 },
    Band { quantity: Quantity::PacketSlots, of: Sender::slots, low: 2.5, high: 24.0 },
    Band { quantity: Quantity::Utilisation, of: Sender::busy_others, low: 0.0, high: 0.4 },
    Band { quantity: Quantity::Variation, of: |s| s.frame().scv(), low: 0.0, high: 2.0 },
    Band { quantity: Quantity::PropagationSlots, of: Sender::propagation_slots, low: 0.0, high: 0.2 },
    Band { quantity: Quantity::GivenUp, of: Sender::given_up, low: 0.0, high: 0.003 },
];

/// The attempts of a frame at the head of its queue.
pub static ACCESS: Formula<Sender, Access> = Formula {
    name: "CSMA/CD access",
    source: "attempt by attempt through truncated binary exponential back-off, fitted to simulation; \
             the band is what tests/ethernet.rs holds it to",
    compute: Sender::settle,
    bands: ACCESS_BANDS,
};

/// Mean time from a frame's arrival at its station to its arrival at the far end, in seconds, in
/// moderate traffic. See [`delay`].
pub static DELAY: Formula<Sender, f64> = over(MODERATE);
static DELAY_LITTLE: Formula<Sender, f64> = over(LITTLE);
static DELAY_MUCH: Formula<Sender, f64> = over(MUCH);
static DELAY_MUCH_LONG: Formula<Sender, f64> = over(MUCH_LONG);

const fn over(bands: &'static [Band<Sender>]) -> Formula<Sender, f64> {
    Formula {
        name: "CSMA/CD delay",
        source: "the station's queue with CSMA/CD access as its service: M/G/1 with an exceptional first service \
                 (Welch 1964)",
        compute: Sender::delay,
        bands,
    }
}

/// The delay if any of the bands holds: moderate traffic, light traffic of frames of any length,
/// heavy traffic of many equal stations. If none does, the reasons are those of moderate traffic.
pub fn delay(sender: &Sender) -> Estimate<f64> {
    let moderate = DELAY.at(sender);
    let holds = |delay: &Estimate<f64>| delay.outside().is_empty();
    if holds(&moderate) {
        return moderate;
    }
    let others = [&DELAY_LITTLE, &DELAY_MUCH, &DELAY_MUCH_LONG].map(|formula| formula.at(sender));
    others.into_iter().find(holds).unwrap_or(moderate)
}

/// Frames a second under saturation of all stations.
pub static CAPACITY: Formula<Sender, f64> = Formula {
    name: "CSMA/CD capacity",
    source: "Metcalfe & Boggs 1976: a slot succeeds with A = (1 - 1/n)^(n-1), so a frame costs (1 - A)/A slots; \
             Boggs, Mogul & Kent 1988 measured more with few stations, for one that has won goes on",
    compute: capacity,
    bands: &[Band { quantity: Quantity::PacketSlots, of: Sender::slots, low: 4.0, high: 24.0 }],
};

impl Sender {
    fn frame(&self) -> Moments {
        self.all.service(self.bits_per_s, 0.0)
    }

    fn slots(&self) -> f64 {
        self.all.mean_bits() / SLOT_BITS
    }

    /// Length in slots of the shorter frames among varied ones: half of the variation below the
    /// mean.
    fn short_slots(&self) -> f64 {
        self.slots() * (1.0 - self.frame().scv() / 2.0).max(0.0)
    }

    /// Mean length of the frame in transmission at an arrival, in slots.
    fn met_slots(&self) -> f64 {
        self.slots() * (1.0 + self.frame().scv())
    }

    /// The number of contending stations: those that would produce the traffic if all were as busy
    /// as the busiest, or sent as many frames as this one.
    fn busy_stations(&self) -> f64 {
        let all = self.all.packets_per_s();
        let frames = if all > 0.0 { self.own.packets_per_s() / all * self.stations } else { 1.0 };
        self.stations / self.imbalance.max(frames).max(1.0)
    }

    /// Share of time that the medium is busy, including collisions.
    fn busy(&self) -> f64 {
        self.settle().map_or(f64::INFINITY, |a| a.busy)
    }

    /// Share of time that others keep it busy.
    fn busy_others(&self) -> f64 {
        self.busy() * (1.0 - self.own_share())
    }

    fn propagation_slots(&self) -> f64 {
        self.propagation_s * self.bits_per_s / SLOT_BITS
    }

    fn given_up(&self) -> f64 {
        self.settle().map_or(1.0, |a| a.given_up)
    }

    /// Seconds that a frame occupies the medium beyond its bits.
    fn gap_s(&self) -> f64 {
        self.propagation_s + GAP_BITS / self.bits_per_s
    }

    /// Seconds that a collision occupies the medium.
    fn collision_s(&self) -> f64 {
        let seen = self.propagation_s + JAM_BITS / self.bits_per_s;
        self.gap_s() + (FRAGMENT_BITS / self.bits_per_s).max(seen)
    }

    fn own_share(&self) -> f64 {
        let all = self.all.bits_per_s();
        if all > 0.0 { (self.own.bits_per_s() / all).clamp(0.0, 1.0) } else { 0.0 }
    }

    fn queue_utilisation(&self) -> f64 {
        self.settle().map_or(f64::INFINITY, |a| a.time.mean * self.own.packets_per_s())
    }

    /// Utilisation of the own queue, as far as this station and the others send equally much: each
    /// is often ahead of the other.
    fn own_queue(&self) -> f64 {
        let own = self.own_share();
        self.queue_utilisation() * 4.0 * own * (1.0 - own)
    }

    /// The fixed point of the collision probabilities, which depend on the collisions. From 0 each
    /// iteration only increases, so this finds the smallest one.
    fn settle(&self) -> Option<Access> {
        let lambda = self.all.packets_per_s();
        let frame = self.frame();
        let others = 1.0 - self.own_share();
        // The frame in transmission at an arrival is longer than the average one.
        let held = self.all.service(self.bits_per_s, self.gap_s());
        let met = if frame.mean > 0.0 { held.second / held.mean } else { 0.0 };
        let (mut first, mut retry, mut busy) = (0.0f64, fitted::RETRY_IDLE, 0.0);
        for _ in 0..ROUNDS {
            let collisions = first / (1.0 - retry) / 2.0;
            busy = lambda * (frame.mean + self.gap_s() + collisions * self.collision_s());
            let busy_others = (others * busy).min(BUSY_MAX);
            let busy_retry = ((1.0 - fitted::RETRY_OWN * self.own_share()) * busy).min(BUSY_MAX);
            let joining = others * lambda * (met * (1.0 + fitted::JOINING * first) + self.gap_s());
            let unheard = others * lambda * 2.0 * self.propagation_s;
            let next = busy_others * -(-joining).exp_m1() + (1.0 - busy_others) * -(-unheard).exp_m1();
            let unheard_again = fitted::RETRY_UNHEARD * self.propagation_slots() * (1.0 - busy_retry);
            retry = (fitted::RETRY_IDLE + unheard_again + fitted::RETRY_BUSY * busy_retry).min(RETRY_MAX);
            if (next - first).abs() < 1e-9 {
                break;
            }
            first = next;
        }
        if busy >= 1.0 {
            return None;
        }
        let given_up = first * retry.powi(ATTEMPTS_MAX as i32 - 1);
        let time = self.attempts(first, retry, others * busy, met);
        Some(Access { time, next: self.spared(time), first, retry, busy, given_up })
    }

    /// The time through all attempts of a frame that waited at its station: the gap behind the
    /// frame before, and a part of the contention.
    fn spared(&self, time: Moments) -> Moments {
        let own = self.own_frame();
        let alone = (own.second - own.mean * own.mean).max(0.0);
        let contention = (time.second - time.mean * time.mean - alone).max(0.0);
        let left = 1.0 - fitted::SPARED;
        let mean = own.mean + self.gap_s() + left * (time.mean - own.mean);
        Moments { mean, second: mean * mean + alone + left * left * contention }
    }

    /// The station's own frame until its arrival.
    fn own_frame(&self) -> Moments {
        let of = if self.own.packets_per_s() > 0.0 { self.own } else { self.all };
        of.service(self.bits_per_s, self.propagation_s)
    }

    /// Mean and second moment of the time through all attempts.
    fn attempts(&self, first: f64, retry: f64, busy: f64, met: f64) -> Moments {
        let slot = SLOT_BITS / self.bits_per_s;
        // The uniform residual of the transmission: mean and second moment.
        let rest = |factor: f64| (factor * busy * met / 2.0, factor * busy * met * met / 3.0);
        let own = self.own_frame();
        let (wait, wait2) = rest(fitted::FIRST_REST);
        let mut mean = own.mean + wait;
        let mut variance = (own.second - own.mean * own.mean).max(0.0) + (wait2 - wait * wait).max(0.0);
        let mut total = Moments { mean: 0.0, second: 0.0 };
        let mut add = |chance: f64, mean: f64, variance: f64| {
            total.mean += chance * mean;
            total.second += chance * (mean * mean + variance);
        };
        add(1.0 - first, mean, variance);
        let mut collided = first;
        for k in 1..ATTEMPTS_MAX {
            let window = f64::from(1u32 << k.min(DOUBLINGS_MAX));
            let (wait, wait2) = rest(fitted::RETRY_REST);
            mean += slot * (window - 1.0) / 2.0 + self.collision_s() + wait;
            variance += slot * slot * (window * window - 1.0) / 12.0 + (wait2 - wait * wait).max(0.0);
            // Frames given up count with the time spent until then.
            let over = if k + 1 < ATTEMPTS_MAX { 1.0 - retry } else { 1.0 };
            add(collided * over, mean, variance);
            collided *= retry;
        }
        total
    }

    fn delay(&self) -> Option<f64> {
        let Access { time: first, next, .. } = self.settle()?;
        let rate = self.own.packets_per_s();
        let (busy_first, busy_next) = (rate * first.mean, rate * next.mean);
        if busy_next >= 1.0 {
            return None;
        }
        let often = 1.0 - busy_next + busy_first;
        let wait = rate * next.second / (2.0 * (1.0 - busy_next)) + rate * (first.second - next.second) / (2.0 * often);
        let idle = (1.0 - busy_next) / often;
        Some(wait.max(0.0) + idle * first.mean + (1.0 - idle) * next.mean)
    }
}

fn capacity(s: &Sender) -> Option<f64> {
    let n = s.stations.max(1.0);
    let success = (1.0 - 1.0 / n).powf(n - 1.0);
    let contention = (1.0 - success) / success * SLOT_BITS / s.bits_per_s;
    Some(1.0 / (s.frame().mean + s.gap_s() + contention))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantity::{Bits, PacketRate, Size};
    use proptest::prelude::*;

    fn sender(load: f64, bits: f64, stations: f64) -> Sender {
        let size = Size::constant(Bits::new(bits).unwrap());
        let all = Traffic::new(PacketRate::new(load * 1e7 / bits).unwrap(), size);
        Sender { bits_per_s: 1e7, propagation_s: 5e-6, stations, all, own: all.times(1.0 / stations), imbalance: 1.0 }
    }

    #[test]
    fn frame_without_load_takes_its_transmission_time() {
        let got = DELAY.at(&sender(1e-9, 12_000.0, 20.0));
        assert!((got.value().unwrap() - 1.205e-3).abs() < 1e-8, "{got:?}");
        assert!(got.outside().is_empty());
    }

    #[test]
    fn sender_outside_band_is_doubted() {
        for (load, bits, stations, quantity) in [
            (0.4, 12_000.0, 9.0, Quantity::Stations),
            (0.85, 12_000.0, 50.0, Quantity::Utilisation),
            (0.3, 1_200.0, 50.0, Quantity::PacketSlots),
            (0.8, 2_600.0, 200.0, Quantity::GivenUp),
        ] {
            let got = delay(&sender(load, bits, stations));
            let found =
                got.outside().iter().any(|r| matches!(r, crate::Reason::Outside { quantity: q, .. } if *q == quantity));
            assert!(found, "{quantity}: {got:?}");
        }
        // Light traffic of any stations, and heavy traffic of many equal ones.
        for (load, bits, stations) in [(0.12, 600.0, 2.0), (0.45, 3_000.0, 12.0), (0.7, 12_000.0, 20.0)] {
            let got = delay(&sender(load, bits, stations));
            assert!(got.outside().is_empty(), "{load}: {got:?}");
        }
        let mut uneven = sender(0.7, 12_000.0, 20.0);
        uneven.imbalance = 2.0;
        assert!(!delay(&uneven).outside().is_empty());
        assert_eq!(DELAY.at(&sender(1.1, 12_000.0, 20.0)).value(), None);
    }

    #[test]
    fn capacity_is_that_of_metcalfe_and_boggs() {
        // One station alone pays the gap only; 256 pay about e - 1 slots.
        let alone = CAPACITY.at(&sender(0.5, 12_000.0, 1.0));
        assert!((alone.value().unwrap() - 1.0 / 1.2146e-3).abs() < 1e-6, "{alone:?}");
        let many = CAPACITY.at(&sender(0.5, 12_000.0, 256.0));
        let expected = 1.0 / (1.2146e-3 + 1.713 * 51.2e-6);
        assert!((many.value().unwrap() / expected - 1.0).abs() < 1e-3, "{many:?}");
    }

    proptest! {
        #[test]
        fn delay_grows_with_load(
            load in 0.01f64..0.75, more in 0.001f64..0.05, bits in 2048f64..12208.0, n in 10f64..200.0,
        ) {
            let (a, b) = (DELAY.at(&sender(load, bits, n)), DELAY.at(&sender(load + more, bits, n)));
            if let Some(b) = b.value() {
                prop_assert!(*a.value().unwrap() <= b * (1.0 + 1e-9));
            }
        }
    }
}
