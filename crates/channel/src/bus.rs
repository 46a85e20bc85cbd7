//! Stations on a shared Ethernet: each listens, sends when the medium is free, and backs off after a
//! collision. The rules are in [`csma`](crate::csma); here is whose turn it is.

use std::time::Duration;

use remora_base::{Rate, Rng, Time};

use crate::burst::nanos;
use crate::csma::{BackOff, Timing};

/// The medium and its stations.
#[derive(Clone, Debug)]
pub(crate) struct Bus {
    timing: Timing,
    rng: Rng,
    stations: Vec<Station>,
    /// When everybody sees the medium free, in nanoseconds.
    free: u64,
    /// Collisions until now.
    pub(crate) collisions: u64,
}

#[derive(Clone, Copy, Default, Debug)]
struct Station {
    /// It has a frame.
    wants: bool,
    /// When its first frame may go as far as its own back-off is concerned, in nanoseconds.
    ready: u64,
    back_off: BackOff,
}

/// What came of a contention.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Settled {
    /// A station sends its first frame from here on.
    Sends(usize, Time),
    /// Stations collided; these give up their first frames, at a moment each.
    Collided(Vec<(usize, Time)>),
}

impl Bus {
    /// An idle bus with so many stations.
    pub(crate) fn new(rate: Rate, propagation: Duration, stations: usize, seed: u64) -> Bus {
        Bus {
            timing: Timing::new(1e9 / rate.bits() as f64, nanos(propagation)),
            rng: Rng::stream(seed, "channel collisions"),
            stations: vec![Station::default(); stations],
            free: 0,
            collisions: 0,
        }
    }

    /// A station that had nothing to send has something.
    pub(crate) fn wants(&mut self, station: usize, now: Time) {
        if let Some(station) = self.stations.get_mut(station).filter(|s| !s.wants) {
            station.wants = true;
            station.ready = station.ready.max(now.as_nanos());
        }
    }

    /// When the next contention is settled: when the first to start can have been heard by all.
    pub(crate) fn settles(&self) -> Option<Time> {
        self.starts().map(|(start, _)| start).min().map(|first| Time::from_nanos(first) + self.propagation())
    }

    /// Settles it.
    pub(crate) fn settle(&mut self) -> Option<Settled> {
        let mut starts: Vec<(u64, usize)> = self.starts().collect();
        starts.sort_unstable();
        let first = starts.first()?.0;
        starts.retain(|(start, _)| self.timing.collides(first, *start));
        match starts[..] {
            [(start, station)] => Some(Settled::Sends(station, Time::from_nanos(start))),
            _ => Some(Settled::Collided(self.collide(&starts))),
        }
    }

    /// A station's frame has been sent and ends at `end`; whether it has more.
    pub(crate) fn sent(&mut self, station: usize, end: Time, has_more: bool) {
        self.free = self.timing.free_after(end.as_nanos());
        if let Some(station) = self.stations.get_mut(station) {
            station.wants = has_more;
            station.ready = end.as_nanos().saturating_add(self.timing.gap);
            station.back_off.sent();
        }
    }

    /// A station has given up a frame; whether it has more.
    pub(crate) fn gave_up(&mut self, station: usize, has_more: bool) {
        if let Some(station) = self.stations.get_mut(station) {
            station.wants = has_more;
        }
    }

    fn propagation(&self) -> Duration {
        Duration::from_nanos(self.timing.propagation)
    }

    /// When each station with a frame would start, by itself.
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
        self.free = self.timing.free_after(over);
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FRAME: Duration = Duration::from_micros(800);

    fn bus(stations: usize, seed: u64) -> Bus {
        Bus::new(Rate::mbit(10), Duration::from_micros(5), stations, seed)
    }

    /// Share of the time that frames take if all stations always have one, the gap counted in.
    fn efficiency(stations: usize, frame: Duration) -> f64 {
        let mut bus = bus(stations, 1);
        (0..stations).for_each(|s| bus.wants(s, Time::ZERO));
        let (mut sent, mut end) = (0u32, Time::ZERO);
        while sent < 20_000 {
            match bus.settle().unwrap() {
                Settled::Sends(station, start) => {
                    end = start + frame;
                    bus.sent(station, end, true);
                    sent += 1;
                }
                Settled::Collided(given_up) => given_up.iter().for_each(|(s, _)| bus.gave_up(*s, true)),
            }
        }
        f64::from(sent) * (frame + Duration::from_nanos(9_600)).as_secs_f64() / end.as_secs_f64()
    }

    #[test]
    fn many_stations_share_a_full_medium_as_metcalfe_and_boggs_say() {
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
    fn a_station_alone_pays_nothing_but_the_gap() {
        let mut bus = bus(3, 1);
        bus.wants(1, Time::from_micros(7));
        assert_eq!(bus.settles(), Some(Time::from_micros(12)));
        assert_eq!(bus.settle(), Some(Settled::Sends(1, Time::from_micros(7))));
        bus.sent(1, Time::from_micros(7) + FRAME, true);
        // Its own frame needs no time to reach it, but everybody else's view counts.
        assert_eq!(bus.settle(), Some(Settled::Sends(1, Time::from_nanos(7_000 + 800_000 + 5_000 + 9_600))));
    }

    proptest! {
        /// Frames never overlap, none starts before its station had it, and everybody gets through
        /// or gives up.
        #[test]
        fn one_at_a_time(seed in 0u64..1000, offers in prop::collection::vec((0usize..6, 0u64..3_000), 1..80)) {
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
                // What comes before the contention is settled takes part in it.
                let settles = bus.settles();
                if let Some((at, station)) = coming.last().copied().filter(|(at, _)| settles.is_none_or(|s| *at <= s)) {
                    coming.pop();
                    queues[station].push(at);
                    bus.wants(station, at);
                    continue;
                }
                let mut ended = |station: usize, queues: &mut [Vec<Time>; 6]| {
                    done += 1;
                    let came = queues[station].remove(0);
                    (came, !queues[station].is_empty())
                };
                match bus.settle() {
                    Some(Settled::Sends(station, start)) => {
                        let (came, has_more) = ended(station, &mut queues);
                        prop_assert!(start >= came && start >= last_end, "{start} {came} {last_end}");
                        last_end = start + FRAME;
                        bus.sent(station, last_end, has_more);
                    }
                    Some(Settled::Collided(given_up)) => {
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
