//! Carrier sense multiple access with collision detection (IEEE 802.3 clause 4, half duplex):
//! timing, back-off, and a bus of stations.
//!
//! [`Timing`] and [`BackOff`] are plain numbers in any unit of time, which the emulated medium and
//! the simulator of networks share. Stations are 1-persistent and equally far apart, as on equal
//! cables to a hub. A station that starts within one propagation time of the first start collides
//! with it.

use std::time::Duration;

use remora_base::{Rate, Rng, Time};

use crate::error_process::nanos;

/// Slot time, interframe gap, preamble with start delimiter, and jam in bits (802.3, 4.4.2).
const SLOT: f64 = 512.0;
const GAP: f64 = 96.0;
const PREAMBLE: f64 = 64.0;
const JAM: f64 = 32.0;
/// Ethernet's overhead of a packet: preamble, header, check sequence, in bytes.
const FRAMING: u64 = 26;
/// Packets are padded to this length, in bytes.
const PACKET_MIN: u64 = 46;
/// Attempts before a station gives up a frame.
const ATTEMPTS_MAX: u32 = 16;
/// The back-off window stops doubling after this many collisions.
const DOUBLINGS_MAX: u32 = 10;

/// Bytes that a packet of `bytes` occupies on the wire, without the interframe gap.
pub fn frame_bytes(bytes: u64) -> u64 {
    bytes.max(PACKET_MIN).saturating_add(FRAMING)
}

/// The times of a medium, in the caller's unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Timing {
    /// Slot time, the unit of back-off.
    pub slot: u64,
    pub gap: u64,
    /// Preamble with start delimiter, which a station completes despite a collision.
    pub preamble: u64,
    /// Jam, which makes every station detect a collision.
    pub jam: u64,
    /// Propagation time between any two stations.
    pub propagation: u64,
}

impl Timing {
    /// The timing of a medium on which a bit takes `bit` units.
    pub fn new(bit: f64, propagation: u64) -> Timing {
        // A cast saturates.
        let time = |bits: f64| (bits * bit).round() as u64;
        Timing { slot: time(SLOT), gap: time(GAP), preamble: time(PREAMBLE), jam: time(JAM), propagation }
    }

    /// Whether a station that starts at `start` collides with the first start `first`, which it has
    /// not heard yet.
    pub fn collides(&self, first: u64, start: u64) -> bool {
        start == first || start < first.saturating_add(self.propagation)
    }

    /// When a station that started at `start` finishes a collision. `first` and `second` are the
    /// two earliest starts; `is_first` marks the first station.
    pub fn collision_end(&self, start: u64, is_first: bool, [first, second]: [u64; 2]) -> u64 {
        // The first station hears the second; all others hear the first.
        let heard = (if is_first { second } else { first }).saturating_add(self.propagation);
        start.saturating_add(self.preamble).max(heard).saturating_add(self.jam)
    }

    /// When all stations sense the medium free after a transmission that ends at `end`.
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
    /// Counts a collision of the frame; returns the slots to wait, or `None` when the frame is
    /// given up.
    pub fn collided(&mut self, rng: &mut Rng) -> Option<u64> {
        self.collisions += 1;
        if self.collisions >= ATTEMPTS_MAX {
            self.collisions = 0;
            return None;
        }
        Some(rng.below(1 << self.collisions.min(DOUBLINGS_MAX)))
    }

    /// Resets after a frame was sent.
    pub fn sent(&mut self) {
        self.collisions = 0;
    }
}

/// The medium and its stations.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    timing: Timing,
    rng: Rng,
    stations: Vec<Station>,
    /// When all stations sense the medium free, in nanoseconds.
    free: u64,
    /// Collisions until now.
    pub(crate) collisions: u64,
    /// Time in use until now, in nanoseconds: frames, gaps, collisions, and back-off before these.
    pub(crate) used: u64,
    /// Whether a station waited when the medium became free.
    is_contended: bool,
}

#[derive(Clone, Copy, Default, Debug)]
struct Station {
    /// A frame waits.
    wants: bool,
    /// When its back-off ends, in nanoseconds.
    ready: u64,
    back_off: BackOff,
}

/// The result of a contention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Contention {
    /// A station sends its first frame at a time.
    Sends(usize, Time),
    /// Stations collided; these give up their first frames, each at its time.
    Collided(Vec<(usize, Time)>),
}

impl Bus {
    /// An idle bus with `stations` stations.
    pub(crate) fn new(rate: Rate, propagation: Duration, stations: usize, seed: u64) -> Bus {
        Bus {
            timing: Timing::new(1e9 / rate.bits() as f64, nanos(propagation)),
            rng: Rng::stream(seed, "channel collisions"),
            stations: vec![Station::default(); stations],
            free: 0,
            collisions: 0,
            used: 0,
            is_contended: false,
        }
    }

    /// A station without frames has a frame.
    pub(crate) fn request(&mut self, station: usize, now: Time) {
        if let Some(station) = self.stations.get_mut(station).filter(|s| !s.wants) {
            station.wants = true;
            station.ready = station.ready.max(now.as_nanos());
        }
    }

    /// When the next contention resolves: one propagation time after its first start.
    pub(crate) fn contention_end(&self) -> Option<Time> {
        self.starts().map(|(start, _)| start).min().map(|first| Time::from_nanos(first) + self.propagation())
    }

    /// Resolves the contention.
    pub(crate) fn resolve(&mut self) -> Option<Contention> {
        let mut starts: Vec<(u64, usize)> = self.starts().collect();
        starts.sort_unstable();
        let first = starts.first()?.0;
        starts.retain(|(start, _)| self.timing.collides(first, *start));
        match starts[..] {
            [(start, station)] => Some(Contention::Sends(station, Time::from_nanos(start))),
            _ => Some(Contention::Collided(self.collide(&starts))),
        }
    }

    /// A station sent its frame from `start` until `end`; `has_more` if another one waits.
    pub(crate) fn sent(&mut self, station: usize, start: Time, end: Time, has_more: bool) {
        self.occupy(start.as_nanos(), end.as_nanos());
        if let Some(station) = self.stations.get_mut(station) {
            station.wants = has_more;
            station.ready = end.as_nanos().saturating_add(self.timing.gap);
            station.back_off.sent();
        }
        self.is_contended = self.is_wanted();
    }

    /// A station gave up a frame; `has_more` if another one waits.
    pub(crate) fn gave_up(&mut self, station: usize, has_more: bool) {
        if let Some(station) = self.stations.get_mut(station) {
            station.wants = has_more;
        }
        self.is_contended = self.is_wanted();
    }

    fn is_wanted(&self) -> bool {
        self.stations.iter().any(|s| s.wants)
    }

    /// The medium is in use from `start` to `end`, and until all stations sense it free.
    fn occupy(&mut self, start: u64, end: u64) {
        let since = if self.is_contended { self.free.min(start) } else { start };
        self.free = self.timing.free_after(end);
        self.used = self.used.saturating_add(self.free.saturating_sub(since));
    }

    fn propagation(&self) -> Duration {
        Duration::from_nanos(self.timing.propagation)
    }

    /// The earliest start of each station with a frame, without the others.
    fn starts(&self) -> impl Iterator<Item = (u64, usize)> {
        let wanting = self.stations.iter().enumerate().filter(|(_, s)| s.wants);
        wanting.map(|(i, s)| (s.ready.max(self.free), i))
    }

    fn collide(&mut self, starts: &[(u64, usize)]) -> Vec<(usize, Time)> {
        self.collisions += 1;
        let start = |i: usize| starts.get(i).map_or(0, |(start, _)| *start);
        let (mut over, mut given_up) = (0, Vec::new());
        for (i, (at, index)) in starts.iter().enumerate() {
            let end = self.timing.collision_end(*at, i == 0, [start(0), start(1)]);
            over = over.max(end);
            let Some(station) = self.stations.get_mut(*index) else { continue };
            let slots = station.back_off.collided(&mut self.rng);
            station.ready = end.saturating_add(slots.unwrap_or(0).saturating_mul(self.timing.slot));
            if slots.is_none() {
                given_up.push((*index, Time::from_nanos(end)));
            }
        }
        self.occupy(start(0), over);
        self.is_contended = true;
        given_up
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use remora_base::Rng;

    use super::*;

    #[test]
    fn timing_of_ten_mbit_is_that_of_802_3() {
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
    fn short_packet_is_padded() {
        for (packet, frame) in [(20, 72), (46, 72), (52, 78), (1500, 1526)] {
            assert_eq!(frame_bytes(packet), frame);
        }
    }

    #[test]
    fn collision_lasts_preamble_and_jam_or_until_heard() {
        let t = Timing::new(100.0, 1_000);
        assert_eq!(t.collision_end(0, true, [0, 500]), 9_600);
        assert_eq!(t.collision_end(500, false, [0, 500]), 10_100);
        // Far apart: the first hears of it only then.
        let far = Timing::new(100.0, 20_000);
        assert_eq!(far.collision_end(0, true, [0, 15_000]), 38_200);
    }

    #[test]
    fn back_off_doubles_ten_times_gives_up_at_sixteen() {
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

    const FRAME: Duration = Duration::from_micros(800);

    fn bus(stations: usize, seed: u64) -> Bus {
        Bus::new(Rate::mbit(10), Duration::from_micros(5), stations, seed)
    }

    #[test]
    fn back_off_counts_as_use_and_silence_does_not() {
        let mut bus = bus(2, 1);
        let mut at = Time::from_micros(100);
        // One frame with its gap and its propagation, and nothing before.
        bus.request(0, at);
        bus.sent(0, at, at + FRAME, false);
        assert_eq!(bus.used, 800_000 + 5_000 + 9_600);
        // From then on both always have a frame, so the medium is never unused.
        at = Time::from_millis(10);
        (0..2).for_each(|s| bus.request(s, at));
        let before = bus.used;
        for _ in 0..100 {
            match bus.resolve().unwrap() {
                Contention::Sends(station, start) => bus.sent(station, start, start + FRAME, true),
                Contention::Collided(given_up) => given_up.iter().for_each(|(s, _)| bus.gave_up(*s, true)),
            }
        }
        assert_eq!(bus.used - before, bus.free - at.as_nanos());
        assert!(bus.collisions > 5, "{}", bus.collisions);
    }

    /// Share of the time that frames take if all stations always have one, the gap counted in.
    fn efficiency(stations: usize, frame: Duration) -> f64 {
        let mut bus = bus(stations, 1);
        (0..stations).for_each(|s| bus.request(s, Time::ZERO));
        let (mut sent, mut end) = (0u32, Time::ZERO);
        while sent < 20_000 {
            match bus.resolve().unwrap() {
                Contention::Sends(station, start) => {
                    end = start + frame;
                    bus.sent(station, start, end, true);
                    sent += 1;
                }
                Contention::Collided(given_up) => given_up.iter().for_each(|(s, _)| bus.gave_up(*s, true)),
            }
        }
        f64::from(sent) * (frame + Duration::from_nanos(9_600)).as_secs_f64() / end.as_secs_f64()
    }

    #[test]
    fn full_medium_has_efficiency_of_metcalfe_and_boggs() {
        // Packets of 21 slots: 1 / (1 + W / 21), W slots of contention for each.
        for stations in [2, 8, 32] {
            let frame = Duration::from_nanos(21 * 51_200);
            let success = (1.0 - 1.0 / stations as f64).powi(stations as i32 - 1);
            let expected = 21.0 / (21.0 + (1.0 - success) / success);
            let got = efficiency(stations, frame);
            assert!((got / expected - 1.0).abs() < 0.05, "{stations}: {got} {expected}");
        }
    }

    #[test]
    fn station_alone_pays_only_the_interframe_gap() {
        let mut bus = bus(3, 1);
        bus.request(1, Time::from_micros(7));
        assert_eq!(bus.contention_end(), Some(Time::from_micros(12)));
        assert_eq!(bus.resolve(), Some(Contention::Sends(1, Time::from_micros(7))));
        bus.sent(1, Time::from_micros(7), Time::from_micros(7) + FRAME, true);
        // The station hears its own frame at once, but all stations must sense the medium free.
        assert_eq!(bus.resolve(), Some(Contention::Sends(1, Time::from_nanos(7_000 + 800_000 + 5_000 + 9_600))));
    }

    proptest! {
        /// Frames never overlap, none starts before its arrival, and each is sent
        /// or given up.
        #[test]
        fn frames_of_stations_never_overlap(seed in 0u64..1000, offers in prop::collection::vec((0usize..6, 0u64..3_000), 1..80)) {
            let mut bus = bus(6, seed);
            let mut queues = [const { Vec::new() }; 6];
            let mut coming: Vec<(Time, usize)> = Vec::new();
            let mut at = Time::ZERO;
            for (station, gap) in offers {
                at += Duration::from_micros(gap);
                coming.push((at, station));
            }
            let (all, mut done, mut last_end) = (coming.len(), 0, Time::ZERO);
            coming.reverse();
            while done < all {
                // A frame that arrives before the contention resolves takes part in it.
                let contention_end = bus.contention_end();
                if let Some((at, station)) = coming.last().copied().filter(|(at, _)| contention_end.is_none_or(|s| *at <= s)) {
                    coming.pop();
                    queues[station].push(at);
                    bus.request(station, at);
                    continue;
                }
                let mut ended = |station: usize, queues: &mut [Vec<Time>; 6]| {
                    done += 1;
                    let came = queues[station].remove(0);
                    (came, !queues[station].is_empty())
                };
                match bus.resolve() {
                    Some(Contention::Sends(station, start)) => {
                        let (came, has_more) = ended(station, &mut queues);
                        prop_assert!(start >= came && start >= last_end, "{start} {came} {last_end}");
                        last_end = start + FRAME;
                        bus.sent(station, start, last_end, has_more);
                    }
                    Some(Contention::Collided(given_up)) => {
                        for (station, _) in given_up {
                            let (_, has_more) = ended(station, &mut queues);
                            bus.gave_up(station, has_more);
                        }
                    }
                    None => prop_assert!(false, "{} frames wait for nothing", all - done),
                }
            }
        }
    }
}
