//! Whose turn it is among the destinations: round robin (NFS/W 95, section 5), or deficit
//! round robin by airtime.
//!
//! Everything sent is charged, failed attempts and probes too, so a destination with a bad
//! channel pays for it itself.

use remora_base::Peer;

use crate::Scheduler;

/// Turns' worth of debt a destination can have; probes beyond that are forgiven, which bounds
/// how long it waits for its turn when its channel is good again.
const DEBT_TURNS: i64 = 4;

/// The destinations in turn.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    scheduler: Scheduler,
    /// Bytes of airtime in one turn.
    quantum: i64,
    ring: Vec<Place>,
    /// Whose turn it is.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    peer: Peer,
    /// Bytes of airtime it may still use in this turn.
    credit: i64,
}

impl Turns {
    /// No destinations yet; a turn is worth `quantum` bytes of airtime, a full frame.
    pub(crate) fn new(scheduler: Scheduler, quantum: u64) -> Turns {
        Turns { scheduler, quantum: i64::try_from(quantum).unwrap_or(i64::MAX / 64).max(1), ring: Vec::new(), at: 0 }
    }

    pub(crate) fn add(&mut self, peer: Peer) {
        self.ring.push(Place { peer, credit: self.quantum });
    }

    pub(crate) fn remove(&mut self, peer: Peer) {
        if let Some(index) = self.ring.iter().position(|p| p.peer == peer) {
            self.ring.remove(index);
            self.at -= usize::from(index < self.at);
        }
    }

    /// The next among those that are `ready`.
    pub(crate) fn pick(&mut self, ready: impl Fn(Peer) -> bool) -> Option<Peer> {
        let ready: Vec<bool> = self.ring.iter().map(|p| ready(p.peer)).collect();
        if !ready.contains(&true) {
            return None;
        }
        // Each time round adds a quantum to who is ready, and nobody owes more than a few.
        loop {
            self.at %= self.ring.len();
            let place = &mut self.ring[self.at];
            if ready[self.at] && place.credit > 0 {
                return Some(place.peer);
            }
            // Who does not use a turn does not save it up.
            place.credit = if ready[self.at] { place.credit + self.quantum } else { place.credit.min(0) };
            self.at += 1;
        }
    }

    /// `peer` has used `cost` bytes of airtime.
    pub(crate) fn charge(&mut self, peer: Peer, cost: u64) {
        let Some(place) = self.ring.iter_mut().find(|p| p.peer == peer) else { return };
        let cost = match self.scheduler {
            Scheduler::Airtime => i64::try_from(cost).unwrap_or(self.quantum),
            Scheduler::RoundRobin => self.quantum,
        };
        place.credit = place.credit.saturating_sub(cost).max(-DEBT_TURNS * self.quantum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn peer(i: u8) -> Peer {
        Peer::datagram(([10, 0, 0, i], 0).into())
    }

    /// Bytes sent to each destination in `turns` turns, where `cost` is what its frames take.
    fn run(scheduler: Scheduler, costs: &[u64], turns: usize, ready: impl Fn(usize, Peer) -> bool) -> Vec<u64> {
        let mut all = Turns::new(scheduler, 1500);
        (0..costs.len()).for_each(|i| all.add(peer(i as u8)));
        let mut sent = BTreeMap::<Peer, u64>::new();
        for turn in 0..turns {
            let Some(picked) = all.pick(|p| ready(turn, p)) else { continue };
            let index = (0..costs.len()).find(|i| peer(*i as u8) == picked).unwrap();
            all.charge(picked, costs[index]);
            *sent.entry(picked).or_default() += costs[index];
        }
        (0..costs.len()).map(|i| sent.get(&peer(i as u8)).copied().unwrap_or(0)).collect()
    }

    #[test]
    fn airtime_is_shared_evenly_and_frames_are_in_round_robin() {
        let sent = run(Scheduler::Airtime, &[1500, 500, 100], 20_000, |_, _| true);
        let (most, least) = (sent.iter().max().unwrap(), sent.iter().min().unwrap());
        assert!((most - least) * 100 < *most, "{sent:?}");
        assert_eq!(run(Scheduler::RoundRobin, &[1500, 500, 100], 300, |_, _| true), [150_000, 50_000, 10_000]);
    }

    #[test]
    fn who_was_away_gets_no_more_than_its_share_afterwards() {
        let sent = run(Scheduler::Airtime, &[1500, 1500], 1000, |turn, p| turn >= 500 || p == peer(0));
        assert!(sent[1].abs_diff(250 * 1500) <= 2 * 1500, "{sent:?}");
    }

    #[test]
    fn destinations_come_and_go() {
        let mut turns = Turns::new(Scheduler::Airtime, 1500);
        assert_eq!(turns.pick(|_| true), None);
        (0..3).for_each(|i| turns.add(peer(i)));
        assert_eq!(turns.pick(|p| p == peer(2)), Some(peer(2)));
        turns.remove(peer(2));
        turns.remove(peer(2));
        assert_eq!(turns.pick(|_| true), Some(peer(0)));
        turns.charge(peer(0), u64::MAX);
        assert_eq!(turns.pick(|p| p == peer(0)), Some(peer(0)), "debt is bounded");
    }
}
