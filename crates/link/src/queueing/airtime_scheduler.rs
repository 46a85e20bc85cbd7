//! Schedules the destinations: round robin (NFS/W 95, section 5), or deficit round robin by airtime.
//!
//! Every frame is charged, including failed attempts and probes, so a destination pays for its own bad channel.

use remora_base::Peer;

use crate::MediumScheduler;

/// Largest debt of a destination, in quanta. The excess of a long outage's probes is forgiven, which bounds the wait
/// of the destination after the outage.
const DEBT_TURNS: i64 = 4;

/// Deficit round robin over the destinations.
#[derive(Clone, Debug)]
pub(crate) struct AirtimeScheduler {
    scheduler: MediumScheduler,
    /// Bytes of airtime in one turn.
    quantum: i64,
    ring: Vec<SchedulerEntry>,
    /// Index of the destination that has its turn.
    at: usize,
}

#[derive(Clone, Copy, Debug)]
struct SchedulerEntry {
    peer: Peer,
    /// Bytes of airtime left in this turn.
    credit: i64,
}

impl AirtimeScheduler {
    /// Starts without destinations. A turn is worth `quantum` bytes of airtime, a full frame.
    pub(crate) fn new(scheduler: MediumScheduler, quantum: u64) -> AirtimeScheduler {
        AirtimeScheduler {
            scheduler,
            quantum: i64::try_from(quantum).unwrap_or(i64::MAX / 64).max(1),
            ring: Vec::new(),
            at: 0,
        }
    }

    pub(crate) fn add(&mut self, peer: Peer) {
        self.ring.push(SchedulerEntry { peer, credit: self.quantum });
    }

    pub(crate) fn remove(&mut self, peer: Peer) {
        if let Some(index) = self.ring.iter().position(|p| p.peer == peer) {
            self.ring.remove(index);
            self.at -= usize::from(index < self.at);
        }
    }

    /// The next destination among those that are `ready`.
    pub(crate) fn pick(&mut self, ready: impl Fn(Peer) -> bool) -> Option<Peer> {
        let ready: Vec<bool> = self.ring.iter().map(|p| ready(p.peer)).collect();
        if !ready.contains(&true) {
            return None;
        }
        // Each round adds a quantum to every ready destination, and debt is bounded, so the loop ends.
        loop {
            self.at %= self.ring.len();
            let entry = &mut self.ring[self.at];
            if ready[self.at] && entry.credit > 0 {
                return Some(entry.peer);
            }
            // Unused credit expires.
            entry.credit = if ready[self.at] { entry.credit + self.quantum } else { entry.credit.min(0) };
            self.at += 1;
        }
    }

    /// Charges `peer` for `cost` bytes of airtime.
    pub(crate) fn charge(&mut self, peer: Peer, cost: u64) {
        let Some(entry) = self.ring.iter_mut().find(|p| p.peer == peer) else { return };
        let cost = match self.scheduler {
            MediumScheduler::Airtime => i64::try_from(cost).unwrap_or(self.quantum),
            MediumScheduler::RoundRobin => self.quantum,
        };
        entry.credit = entry.credit.saturating_sub(cost).max(-DEBT_TURNS * self.quantum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn peer(i: u8) -> Peer {
        Peer::datagram(([10, 0, 0, i], 0).into())
    }

    /// Bytes sent to each destination in `turns` turns, where its frames cost `costs` bytes.
    fn run(scheduler: MediumScheduler, costs: &[u64], turns: usize, ready: impl Fn(usize, Peer) -> bool) -> Vec<u64> {
        let mut all = AirtimeScheduler::new(scheduler, 1500);
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
    fn airtime_shares_time_and_round_robin_shares_frames() {
        let sent = run(MediumScheduler::Airtime, &[1500, 500, 100], 20_000, |_, _| true);
        let (most, least) = (sent.iter().max().unwrap(), sent.iter().min().unwrap());
        assert!((most - least) * 100 < *most, "{sent:?}");
        assert_eq!(run(MediumScheduler::RoundRobin, &[1500, 500, 100], 300, |_, _| true), [150_000, 50_000, 10_000]);
    }

    #[test]
    fn idle_destination_saves_no_credit() {
        let sent = run(MediumScheduler::Airtime, &[1500, 1500], 1000, |turn, p| turn >= 500 || p == peer(0));
        assert!(sent[1].abs_diff(250 * 1500) <= 2 * 1500, "{sent:?}");
    }

    #[test]
    fn scheduler_destinations_can_be_added_and_removed() {
        let mut scheduler = AirtimeScheduler::new(MediumScheduler::Airtime, 1500);
        assert_eq!(scheduler.pick(|_| true), None);
        (0..3).for_each(|i| scheduler.add(peer(i)));
        assert_eq!(scheduler.pick(|p| p == peer(2)), Some(peer(2)));
        scheduler.remove(peer(2));
        scheduler.remove(peer(2));
        assert_eq!(scheduler.pick(|_| true), Some(peer(0)));
        scheduler.charge(peer(0), u64::MAX);
        assert_eq!(scheduler.pick(|p| p == peer(0)), Some(peer(0)), "debt is bounded");
    }
}
