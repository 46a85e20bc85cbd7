//! Carrier sense with collision detection, by IEEE 802.3 clause 4 for half duplex: what a collision
//! costs, and how long who has collided waits. Numbers alone, in any unit of time, so that the
//! emulated medium and the simulator of networks follow the same rules.
//!
//! Stations are 1-persistent and equally far apart, as on a hub's equal cables. Whoever starts within
//! one propagation time of the first start collides with it.

use remora_base::Rng;

/// In bits (802.3, 4.4.2): slot, gap between frames, preamble with start delimiter, jam.
const SLOT: f64 = 512.0;
const GAP: f64 = 96.0;
const PREAMBLE: f64 = 64.0;
const JAM: f64 = 32.0;
/// What Ethernet adds to a packet: preamble, header, check sequence, in bytes.
const FRAMING: u64 = 26;
/// A shorter packet is filled up to this, in bytes.
const PACKET_MIN: u64 = 46;
/// Attempts before a frame is given up.
const ATTEMPTS_MAX: u32 = 16;
/// The back-off's window stops growing after so many collisions.
const DOUBLINGS_MAX: u32 = 10;

/// What a packet of `bytes` is on the wire, in bytes; the gap comes on top.
pub fn frame_bytes(bytes: u64) -> u64 {
    bytes.max(PACKET_MIN).saturating_add(FRAMING)
}

/// The times of a medium, in the caller's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// The unit of back-off.
    pub slot: u64,
    /// Between frames.
    pub gap: u64,
    /// Preamble with start delimiter: sent to its end, collision or not.
    pub preamble: u64,
    /// What makes sure that everybody notices a collision.
    pub jam: u64,
    /// From one station to another.
    pub propagation: u64,
}

impl Timing {
    /// Of a medium on which a bit takes `bit` units.
    pub fn new(bit: f64, propagation: u64) -> Timing {
        // A cast saturates.
        let time = |bits: f64| (bits * bit).round() as u64;
        Timing { slot: time(SLOT), gap: time(GAP), preamble: time(PREAMBLE), jam: time(JAM), propagation }
    }

    /// Whether a station that starts at `start` collides with the first, who starts at `first`: it
    /// has not heard of it yet.
    pub fn collides(&self, first: u64, start: u64) -> bool {
        start == first || start < first.saturating_add(self.propagation)
    }

    /// When a station is done with a collision in which it started at `start`, `is_first` or not; the
    /// first and the second start come from everybody together.
    pub fn collision_end(&self, start: u64, is_first: bool, [first, second]: [u64; 2]) -> u64 {
        // The first hears the second; all others hear the first.
        let heard = (if is_first { second } else { first }).saturating_add(self.propagation);
        start.saturating_add(self.preamble).max(heard).saturating_add(self.jam)
    }

    /// When everybody sees the medium free for another frame after what ends at `end`.
    pub fn free_after(&self, end: u64) -> u64 {
        end.saturating_add(self.propagation).saturating_add(self.gap)
    }
}

/// A station's truncated binary exponential back-off.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BackOff {
    collisions: u32,
}

impl BackOff {
    /// After another collision of the frame: how many slots to wait, or `None` when it is given up.
    pub fn collided(&mut self, rng: &mut Rng) -> Option<u64> {
        self.collisions += 1;
        if self.collisions >= ATTEMPTS_MAX {
            self.collisions = 0;
            return None;
        }
        Some(rng.below(1 << self.collisions.min(DOUBLINGS_MAX)))
    }

    /// After a frame that got through.
    pub fn sent(&mut self) {
        self.collisions = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_standard() {
        // In nanoseconds at 10 Mbit/s: a slot of 51.2 us, a gap of 9.6 us.
        let t = Timing::new(100.0, 1_000);
        assert_eq!((t.slot, t.gap, t.preamble, t.jam), (51_200, 9_600, 6_400, 3_200));
        assert_eq!(t.free_after(5_000), 15_600);
        for (start, collides) in [(10, true), (1_009, true), (1_010, false), (9_000, false)] {
            assert_eq!(t.collides(10, start), collides, "{start}");
        }
        // No time apart at all: only who starts at the very moment.
        let near = Timing::new(100.0, 0);
        assert!(near.collides(10, 10) && !near.collides(10, 11));
    }

    #[test]
    fn short_packets_are_filled_up() {
        for (packet, frame) in [(20, 72), (46, 72), (52, 78), (1500, 1526)] {
            assert_eq!(frame_bytes(packet), frame);
        }
    }

    #[test]
    fn a_collision_lasts_a_preamble_and_a_jam_or_until_it_is_heard() {
        let t = Timing::new(100.0, 1_000);
        assert_eq!(t.collision_end(0, true, [0, 500]), 9_600);
        assert_eq!(t.collision_end(500, false, [0, 500]), 10_100);
        // Far apart: the first hears of it only then.
        let far = Timing::new(100.0, 20_000);
        assert_eq!(far.collision_end(0, true, [0, 15_000]), 38_200);
    }

    #[test]
    fn the_window_doubles_ten_times_and_the_sixteenth_is_the_last() {
        let mut rng = Rng::stream(1, "back-off");
        let mut most = [0; 15];
        for _ in 0..20_000 {
            let mut back_off = BackOff::default();
            for most in &mut most {
                *most = back_off.collided(&mut rng).unwrap().max(*most);
            }
            assert_eq!(back_off.collided(&mut rng), None);
            assert_eq!(back_off, BackOff::default(), "the next frame begins anew");
        }
        let expected = [1, 3, 7, 15, 31, 63, 127, 255, 511, 1023, 1023, 1023, 1023, 1023, 1023];
        for (most, expected) in most.iter().zip(expected) {
            assert!(*most <= expected && *most * 50 >= expected * 49, "{most} of {expected}");
        }
    }
}
