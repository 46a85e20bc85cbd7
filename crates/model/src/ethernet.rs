//! Shared Ethernet: 1-persistent CSMA/CD with truncated binary exponential back-off (IEEE 802.3,
//! clause 4).
//!
//! The usual closed forms (Metcalfe & Boggs 1976; Lam 1980; the load-dependent server of Almes &
//! Lazowska 1979) let the best of all back-offs settle each contention. They are right about what
//! the medium carries and wrong about how long a frame waits: a frame that has collided a few
//! times sits out a back-off while the medium is idle, so the wait is not that of a
//! work-conserving queue. Here the frame at the head of a station's queue is followed through its
//! attempts instead:
//!
//! * the first attempt collides if it comes while others hold the medium, and another one waits
//!   for the same end (all of them then start together): chance `first`;
//! * each later attempt collides with chance `retry`, higher the busier the medium is: those who
//!   collided once wait for the same ends again;
//! * each collision costs a back-off of mean `(2^min(k,10) - 1) / 2` slots, the collision itself
//!   and, with the chance that the medium is busy then, the rest of a frame; after 16 the frame is
//!   given up;
//! * the station's own queue is an M/G/1 queue whose service is all this.
//!
//! The two chances need six numbers that no derivation gave (`fitted`). They were fitted to an
//! event simulation of the protocol, a copy of which is in `tests/ethernet.rs` and holds the
//! formula to its band.

use crate::formula::{Band, Formula, Quantity};
use crate::quantity::{Moments, Traffic};
use crate::queue::{MG1_WAIT, Queue};

/// Slot time in bits (802.3, 4.4.2).
pub(crate) const SLOT_BITS: f64 = 512.0;
/// Gap between frames in bits.
const GAP_BITS: f64 = 96.0;
/// Shortest transmission that collides: preamble and jam, in bits.
const FRAGMENT_BITS: f64 = 96.0;
/// Jam in bits.
const JAM_BITS: f64 = 32.0;
/// Attempts before a frame is given up.
const ATTEMPTS_MAX: u32 = 16;
/// The back-off's window stops growing after so many collisions.
const DOUBLINGS_MAX: u32 = 10;
/// More the medium is never counted as busy: there is always a gap.
const BUSY_MAX: f64 = 0.98;
/// Rounds of the fixed point at most; a dozen do at moderate load.
const ROUNDS: usize = 200;

/// Six numbers fitted to simulation; all are shares or multiples, without units.
mod fitted {
    /// How much more often than new frames alone others join the wait for the same end, for each
    /// first attempt that collides.
    pub(super) const JOINING: f64 = 1.84;
    /// Chance that a retry collides on an idle medium, with the partner of the last collision.
    pub(super) const RETRY_IDLE: f64 = 0.054;
    /// What a busy medium adds to that.
    pub(super) const RETRY_BUSY: f64 = 0.767;
    /// Share of a station's own traffic that does not count as busy for its retries.
    pub(super) const RETRY_OWN: f64 = 0.232;
    /// Rest of a frame that the first attempt waits for, over half a frame.
    pub(super) const FIRST_REST: f64 = 1.230;
    /// The same for a retry: frames follow one another just then.
    pub(super) const RETRY_REST: f64 = 2.243;
}

/// A station on a shared Ethernet.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sender {
    /// Bits a second of the medium.
    pub bits_per_s: f64,
    /// From one station to another, in seconds.
    pub propagation_s: f64,
    /// Stations that send.
    pub stations: f64,
    /// What all of them send together.
    pub all: Traffic,
    /// What this one sends.
    pub own: Traffic,
}

/// What a frame at the head of its station's queue goes through.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Access {
    /// Time until it has arrived, in seconds.
    pub time: Moments,
    /// Chance that its first attempt collides.
    pub first: f64,
    /// Chance that a later one does.
    pub retry: f64,
    /// Share of the time that the medium is held by frames, gaps and collisions.
    pub busy: f64,
    /// Chance that it is given up.
    pub given_up: f64,
}

/// The first is about the station's queue, the others about the medium.
const BANDS: &[Band<Sender>] = &[
    Band { quantity: Quantity::StationUtilisation, of: Sender::queue_utilisation, low: 0.0, high: 0.6 },
    Band { quantity: Quantity::Stations, of: |s| s.stations, low: 16.0, high: 200.0 },
    Band { quantity: Quantity::Load, of: Sender::load, low: 0.0, high: 0.8 },
    Band { quantity: Quantity::PacketSlots, of: |s| s.all.mean_bits() / SLOT_BITS, low: 5.0, high: 24.0 },
    Band { quantity: Quantity::Variation, of: |s| s.frame().scv(), low: 0.0, high: 1.0 },
    Band { quantity: Quantity::PropagationSlots, of: Sender::propagation_slots, low: 0.0, high: 0.1 },
    Band { quantity: Quantity::GivenUp, of: Sender::given_up, low: 0.0, high: 0.003 },
];

/// What a copy meets.
const ACCESS_BANDS: &[Band<Sender>] = &[
    Band { quantity: Quantity::Stations, of: |s| s.stations, low: 10.0, high: 200.0 },
    Band { quantity: Quantity::Load, of: Sender::load, low: 0.0, high: 0.7 },
    Band { quantity: Quantity::PacketSlots, of: |s| s.all.mean_bits() / SLOT_BITS, low: 4.0, high: 24.0 },
    Band { quantity: Quantity::Variation, of: |s| s.frame().scv(), low: 0.0, high: 1.0 },
    Band { quantity: Quantity::PropagationSlots, of: Sender::propagation_slots, low: 0.0, high: 0.1 },
    Band { quantity: Quantity::GivenUp, of: Sender::given_up, low: 0.0, high: 0.003 },
];

/// What a frame at the head of its queue goes through.
pub static ACCESS: Formula<Sender, Access> = Formula {
    name: "CSMA/CD access",
    source: "attempt by attempt through truncated binary exponential back-off, fitted to simulation; \
             the band is what tests/ethernet.rs holds it to",
    compute: Sender::settle,
    bands: ACCESS_BANDS,
};

/// Mean time from a frame's arrival at its station to its arrival at the other end, in seconds.
pub static DELAY: Formula<Sender, f64> = Formula {
    name: "CSMA/CD delay",
    source: "the station's M/G/1 queue with CSMA/CD access as its service",
    compute: Sender::delay,
    bands: BANDS,
};

/// Frames a second that the medium carries when every station always has one.
pub static CAPACITY: Formula<Sender, f64> = Formula {
    name: "CSMA/CD capacity",
    source: "Metcalfe & Boggs 1976: a slot succeeds with A = (1 - 1/n)^(n-1), so a frame costs (1 - A)/A slots; \
             Boggs, Mogul & Kent 1988 measured more with few stations, for one that has won goes on",
    compute: capacity,
    bands: &[Band { quantity: Quantity::PacketSlots, of: |s| s.all.mean_bits() / SLOT_BITS, low: 4.0, high: 24.0 }],
};

impl Sender {
    fn frame(&self) -> Moments {
        self.all.service(self.bits_per_s, 0.0)
    }

    /// Bits asked for over bits that leave.
    fn load(&self) -> f64 {
        self.all.bits_per_s() / self.bits_per_s
    }

    fn propagation_slots(&self) -> f64 {
        self.propagation_s * self.bits_per_s / SLOT_BITS
    }

    fn given_up(&self) -> f64 {
        self.settle().map_or(1.0, |a| a.given_up)
    }

    /// Seconds that a frame holds the medium beside its bits.
    fn gap_s(&self) -> f64 {
        self.propagation_s + GAP_BITS / self.bits_per_s
    }

    /// Seconds that a collision holds it.
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

    /// The fixed point of the collision chances: they depend on the collisions. From no collision
    /// upwards each round only adds, so this finds the smallest one.
    fn settle(&self) -> Option<Access> {
        let lambda = self.all.packets_per_s();
        let frame = self.frame();
        let others = 1.0 - self.own_share();
        // A frame under way when something arrives is longer than the average one.
        let met = if frame.mean > 0.0 { frame.second / frame.mean } else { 0.0 };
        let (mut first, mut retry, mut busy) = (0.0f64, fitted::RETRY_IDLE, 0.0);
        for _ in 0..ROUNDS {
            let collisions = first / (1.0 - retry) / 2.0;
            busy = lambda * (frame.mean + self.gap_s() + collisions * self.collision_s());
            let busy_others = (others * busy).min(BUSY_MAX);
            let busy_retry = ((1.0 - fitted::RETRY_OWN * self.own_share()) * busy).min(BUSY_MAX);
            let joining = others * lambda * (met * (1.0 + fitted::JOINING * first) + self.gap_s());
            let unheard = others * lambda * 2.0 * self.propagation_s;
            let next = busy_others * -(-joining).exp_m1() + (1.0 - busy_others) * -(-unheard).exp_m1();
            retry = fitted::RETRY_IDLE + fitted::RETRY_BUSY * busy_retry;
            if (next - first).abs() < 1e-9 {
                break;
            }
            first = next;
        }
        if busy >= 1.0 {
            return None;
        }
        let given_up = first * retry.powi(ATTEMPTS_MAX as i32 - 1);
        Some(Access { time: self.attempts(first, retry, others * busy, met), first, retry, busy, given_up })
    }

    /// Mean and second moment of the time through all attempts.
    fn attempts(&self, first: f64, retry: f64, busy: f64, met: f64) -> Moments {
        let slot = SLOT_BITS / self.bits_per_s;
        // Of a uniform part of what is under way: mean and second moment.
        let rest = |factor: f64| (factor * busy * met / 2.0, factor * busy * met * met / 3.0);
        let own = self.own.service(self.bits_per_s, self.propagation_s);
        let own =
            if self.own.packets_per_s() > 0.0 { own } else { self.all.service(self.bits_per_s, self.propagation_s) };
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
            // What fails at last is counted with what it has cost until then.
            let over = if k + 1 < ATTEMPTS_MAX { 1.0 - retry } else { 1.0 };
            add(collided * over, mean, variance);
            collided *= retry;
        }
        total
    }

    fn delay(&self) -> Option<f64> {
        let access = self.settle()?;
        let queue = Queue { arrivals_per_s: self.own.packets_per_s(), service: access.time };
        Some(MG1_WAIT.at(&queue).value()? + access.time.mean)
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
        Sender { bits_per_s: 1e7, propagation_s: 5e-6, stations, all, own: all.times(1.0 / stations) }
    }

    #[test]
    fn without_load_a_frame_takes_its_own_time() {
        let got = DELAY.at(&sender(1e-9, 12_000.0, 20.0));
        assert!((got.value().unwrap() - 1.205e-3).abs() < 1e-8, "{got:?}");
        assert!(got.outside().is_empty());
    }

    #[test]
    fn what_is_outside_the_band_says_so() {
        for (load, bits, stations, quantity) in [
            (0.3, 12_000.0, 15.0, Quantity::Stations),
            (0.85, 12_000.0, 50.0, Quantity::Load),
            (0.3, 2_400.0, 50.0, Quantity::PacketSlots),
            (0.8, 2_600.0, 200.0, Quantity::GivenUp),
        ] {
            let got = DELAY.at(&sender(load, bits, stations));
            let found =
                got.outside().iter().any(|r| matches!(r, crate::Reason::Outside { quantity: q, .. } if *q == quantity));
            assert!(found, "{quantity}: {got:?}");
        }
        assert_eq!(DELAY.at(&sender(1.1, 12_000.0, 20.0)).value(), None);
    }

    #[test]
    fn capacity_is_metcalfe_and_boggs() {
        // One station alone pays the gap only; 256 pay about e - 1 slots.
        let alone = CAPACITY.at(&sender(0.5, 12_000.0, 1.0));
        assert!((alone.value().unwrap() - 1.0 / 1.2146e-3).abs() < 1e-6, "{alone:?}");
        let many = CAPACITY.at(&sender(0.5, 12_000.0, 256.0));
        let expected = 1.0 / (1.2146e-3 + 1.713 * 51.2e-6);
        assert!((many.value().unwrap() / expected - 1.0).abs() < 1e-3, "{many:?}");
    }

    proptest! {
        #[test]
        fn more_load_is_never_less_delay(
            load in 0.01f64..0.75, more in 0.001f64..0.05, bits in 2048f64..12208.0, n in 10f64..200.0,
        ) {
            let (a, b) = (DELAY.at(&sender(load, bits, n)), DELAY.at(&sender(load + more, bits, n)));
            if let Some(b) = b.value() {
                prop_assert!(*a.value().unwrap() <= b * (1.0 + 1e-9));
            }
        }
    }
}
