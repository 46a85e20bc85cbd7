//! What waits for one destination: flows, fair to one another, each under CoDel (FQ-CoDel,
//! RFC 8290, section 4, with flows given by the host instead of hashed here).
//!
//! A flow that has nothing waiting and then sends a little goes before those that always
//! wait, so a small call does not queue behind a bulk transfer. Interactive flows may send
//! more before they count as always waiting, bulk ones less.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use remora_base::Time;

use crate::clock::Clock;
use crate::codel::{Aim, Codel};
use crate::{Class, Config, Packet};

/// A standing queue of so many frames is never too long for CoDel,
const TARGET_FRAMES: u32 = 3;
/// nor one of so many if its sender would not notice: more than the windows of request and
/// reply protocols, fewer than the queue holds.
const TARGET_FRAMES_UNRESPONSIVE: u32 = 48;

/// A packet and since when it waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    /// The packet.
    pub(crate) packet: Packet,
    /// When it came.
    pub(crate) came: Time,
    /// What the queue's own clock said then.
    stamp: Time,
}

/// What fell out of a queue since it was last asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) overflow: u64,
    pub(crate) codel: u64,
    pub(crate) expired: u64,
}

/// The queue of one destination.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    flows: BTreeMap<u64, Flow>,
    /// Flows that have begun to wait and not yet used up their share.
    fresh: VecDeque<u64>,
    /// The others, in turn.
    standing: VecDeque<u64>,
    packets: usize,
    bytes: usize,
    clock: Clock,
    dropped: Dropped,
}

#[derive(Clone, Debug)]
struct Flow {
    packets: VecDeque<Waiting>,
    bytes: usize,
    /// Bytes it may still send in this turn.
    credit: i64,
    /// Bytes it may send in each turn.
    share: i64,
    codel: Codel,
}

impl Queue {
    pub(crate) fn new(now: Time) -> Queue {
        Queue {
            flows: BTreeMap::new(),
            fresh: VecDeque::new(),
            standing: VecDeque::new(),
            packets: 0,
            bytes: 0,
            clock: Clock::new(now),
            dropped: Dropped::default(),
        }
    }

    /// Packets waiting.
    pub(crate) fn packets(&self) -> usize {
        self.packets
    }

    /// Their bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The flow that is to go before everything else, if there is one.
    pub(crate) fn fresh(&self) -> Option<u64> {
        let waits = |id: &&u64| self.flows.get(id).is_some_and(|f| f.credit > 0 && !f.packets.is_empty());
        self.fresh.iter().find(waits).copied()
    }

    /// Lets the queue's clock run, or stops it while nothing can be sent.
    pub(crate) fn set_running(&mut self, now: Time, running: bool) {
        self.clock.set_running(now, running);
    }

    /// What has been dropped since this was last asked.
    pub(crate) fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.dropped)
    }

    /// Adds a packet; if that is too much, the longest flow loses its oldest, which helps
    /// the sender to notice soonest.
    pub(crate) fn push(&mut self, now: Time, packet: Packet, config: &Config) {
        let share = share(packet.class, config);
        let (id, len) = (packet.flow, packet.bytes.len());
        let stamp = self.clock.read(now);
        let flow = self.flows.entry(id).or_insert_with(|| {
            self.fresh.push_back(id);
            Flow { packets: VecDeque::new(), bytes: 0, credit: share, share, codel: Codel::default() }
        });
        flow.share = share;
        flow.packets.push_back(Waiting { packet, came: now, stamp });
        flow.bytes += len;
        self.packets += 1;
        self.bytes += len;
        while self.packets > config.queue_packets_max.max(1) || self.bytes > config.queue_bytes_max.max(len) {
            self.drop_from_longest();
        }
    }

    /// The next packet to send. Packets older than their lifetime and what CoDel drops are
    /// passed over, so there may be none though some waited.
    pub(crate) fn pop(&mut self, now: Time, aim: &Aim, config: &Config) -> Option<Waiting> {
        let felt = self.clock.read(now);
        loop {
            let is_fresh = !self.fresh.is_empty();
            let id = *self.fresh.front().or_else(|| self.standing.front())?;
            let Some(flow) = self.flows.get_mut(&id) else {
                self.leave(is_fresh);
                continue;
            };
            if flow.credit <= 0 {
                flow.credit += flow.share;
                self.leave(is_fresh);
                self.standing.push_back(id);
                continue;
            }
            let before = (flow.packets.len(), flow.bytes);
            let taken = flow.pop(now, felt, aim, config, &mut self.dropped);
            self.packets -= before.0 - flow.packets.len();
            self.bytes -= before.1 - flow.bytes;
            if let Some(waiting) = taken {
                flow.credit -= waiting.packet.bytes.len().max(1) as i64;
                return Some(waiting);
            }
            self.leave(is_fresh);
            // A fresh flow that has run empty takes a turn among the standing ones first, or
            // it could come back as fresh at once and starve them.
            if is_fresh && !self.standing.is_empty() {
                self.standing.push_back(id);
            } else {
                self.flows.remove(&id);
            }
        }
    }

    /// Drops what is older than its lifetime at the head of each flow.
    pub(crate) fn expire(&mut self, now: Time, config: &Config) {
        for flow in self.flows.values_mut() {
            while let Some(head) = flow.packets.front().filter(|w| is_expired(now, w, config)) {
                let len = head.packet.bytes.len();
                flow.packets.pop_front();
                flow.bytes -= len;
                self.packets -= 1;
                self.bytes -= len;
                self.dropped.expired += 1;
            }
        }
    }

    fn leave(&mut self, is_fresh: bool) {
        if is_fresh {
            self.fresh.pop_front()
        } else {
            self.standing.pop_front()
        };
    }

    fn drop_from_longest(&mut self) {
        let Some(flow) = self.flows.values_mut().max_by_key(|f| f.bytes) else { return };
        if let Some(oldest) = flow.packets.pop_front() {
            let len = oldest.packet.bytes.len();
            flow.bytes -= len;
            self.bytes -= len;
            self.packets -= 1;
            self.dropped.overflow += 1;
        }
    }
}

impl Flow {
    fn pop(&mut self, now: Time, felt: Time, aim: &Aim, config: &Config, dropped: &mut Dropped) -> Option<Waiting> {
        while let Some(waiting) = self.packets.pop_front() {
            self.bytes -= waiting.packet.bytes.len();
            if is_expired(now, &waiting, config) {
                dropped.expired += 1;
            } else if self.codel.drops(felt, felt.since(waiting.stamp), self.bytes, &waiting.packet, aim) {
                dropped.codel += 1;
            } else {
                return Some(waiting);
            }
        }
        self.codel.empty();
        None
    }
}

fn is_expired(now: Time, waiting: &Waiting, config: &Config) -> bool {
    now.since(waiting.came) > config.limits.get(waiting.packet.class).lifetime
}

/// Bytes a flow of this class may send in a turn.
fn share(class: Class, config: &Config) -> i64 {
    let frame = i64::try_from(config.mtu).unwrap_or(i64::MAX / 8);
    match class {
        Class::Interactive => frame * 4,
        Class::Default => frame,
        Class::Bulk => (frame / 4).max(1),
    }
}

/// What CoDel is to keep to where a full frame takes `frame` and `sharers` destinations
/// share the link.
pub(crate) fn aim(config: &Config, frame: Duration, sharers: usize, round_trip: Duration) -> Aim {
    let sharers = u32::try_from(sharers.max(1)).unwrap_or(u32::MAX);
    let frames = |n: u32| frame.saturating_mul(n).saturating_mul(sharers);
    Aim {
        target: config.codel.target.max(frames(TARGET_FRAMES)),
        target_unresponsive: config.codel.target_unresponsive.max(frames(TARGET_FRAMES_UNRESPONSIVE)),
        interval: config.codel.interval + round_trip,
        frame: frames(1),
        frame_bytes: config.mtu,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn packet(flow: u64, len: usize, class: Class) -> Packet {
        Packet { flow, class, responsive: true, bytes: Bytes::from(vec![flow as u8; len]) }
    }

    fn pop_all(queue: &mut Queue, now: Time, config: &Config) -> Vec<(u64, usize)> {
        let aim = aim(config, Duration::from_millis(12), 1, Duration::ZERO);
        let popped = std::iter::from_fn(|| queue.pop(now, &aim, config));
        popped.map(|w| (w.packet.flow, w.packet.bytes.len())).collect()
    }

    #[test]
    fn a_small_flow_goes_before_one_that_always_waits() {
        let (config, mut queue) = (Config::default(), Queue::new(Time::ZERO));
        let aim = aim(&config, Duration::from_millis(12), 1, Duration::ZERO);
        for _ in 0..10 {
            queue.push(Time::ZERO, packet(1, 1400, Class::Default), &config);
        }
        // The bulk flow has used its first turn when the small one comes.
        for _ in 0..3 {
            assert_eq!(queue.pop(Time::ZERO, &aim, &config).unwrap().packet.flow, 1);
        }
        assert_eq!(queue.fresh(), None);
        queue.push(Time::ZERO, packet(2, 100, Class::Default), &config);
        assert_eq!(queue.fresh(), Some(2));
        assert_eq!(queue.pop(Time::ZERO, &aim, &config).unwrap().packet.flow, 2);
        assert_eq!(queue.pop(Time::ZERO, &aim, &config).unwrap().packet.flow, 1);
    }

    #[test]
    fn standing_flows_share_by_bytes_and_class() {
        let (config, mut queue) = (Config { queue_packets_max: 4000, ..Config::default() }, Queue::new(Time::ZERO));
        let flows = [(1, 1400, Class::Default), (2, 700, Class::Default), (3, 1400, Class::Bulk)];
        for _ in 0..400 {
            for (flow, len, class) in flows {
                queue.push(Time::ZERO, packet(flow, len, class), &config);
            }
        }
        let mut sent = BTreeMap::<u64, usize>::new();
        for (flow, len) in pop_all(&mut queue, Time::ZERO, &config).into_iter().take(300) {
            *sent.entry(flow).or_default() += len;
        }
        let ratio = |a, b| sent[&a] as f64 / sent[&b] as f64;
        assert!((0.95..1.05).contains(&ratio(1, 2)), "{sent:?}");
        assert!((3.6..4.4).contains(&ratio(1, 3)), "{sent:?}");
    }

    #[test]
    fn a_full_queue_drops_the_oldest_of_the_longest_flow() {
        let config = Config { queue_packets_max: 4, queue_bytes_max: 3000, ..Config::default() };
        let mut queue = Queue::new(Time::ZERO);
        queue.push(Time::ZERO, packet(9, 50, Class::Default), &config);
        for len in [500, 501, 502, 503, 504, 1400] {
            queue.push(Time::ZERO, packet(1, len, Class::Default), &config);
            assert!(queue.packets() <= 4 && queue.bytes() <= 3000);
        }
        assert_eq!(queue.take_dropped(), Dropped { overflow: 3, ..Dropped::default() });
        assert_eq!(pop_all(&mut queue, Time::ZERO, &config), [(9, 50), (1, 503), (1, 504), (1, 1400)]);
        assert_eq!((queue.packets(), queue.bytes()), (0, 0));
    }

    #[test]
    fn old_packets_are_passed_over_and_counted() {
        let (config, mut queue) = (Config::default(), Queue::new(Time::ZERO));
        queue.push(Time::ZERO, packet(1, 100, Class::Interactive), &config);
        queue.push(Time::ZERO, packet(2, 100, Class::Default), &config);
        let late = Time::from_millis(201);
        assert_eq!(pop_all(&mut queue, late, &config), [(2, 100)]);
        queue.push(Time::ZERO, packet(1, 100, Class::Interactive), &config);
        queue.expire(late, &config);
        assert_eq!((queue.packets(), queue.bytes(), queue.take_dropped().expired), (0, 0, 2));
    }

    #[test]
    fn an_outage_is_not_a_queue() {
        let config = Config { queue_packets_max: 4000, queue_bytes_max: 1 << 30, ..Config::default() };
        for (stopped, drops) in [(true, 0), (false, 1)] {
            let mut queue = Queue::new(Time::ZERO);
            let aim = aim(&config, Duration::from_millis(12), 1, Duration::ZERO);
            for _ in 0..20 {
                queue.push(Time::ZERO, packet(1, 1400, Class::Default), &config);
            }
            queue.set_running(Time::ZERO, !stopped);
            for at in [Time::from_secs(5), Time::from_millis(5150)] {
                queue.set_running(at, true);
                assert!(queue.pop(at, &aim, &config).is_some());
                queue.set_running(at, !stopped);
            }
            assert_eq!(queue.take_dropped().codel, drops, "stopped: {stopped}");
        }
    }

    #[test]
    fn flows_that_are_gone_leave_nothing_behind() {
        let (config, mut queue) = (Config::default(), Queue::new(Time::ZERO));
        for flow in 0..10_000 {
            queue.push(Time::ZERO, packet(flow, 40, Class::Default), &config);
            if flow % 2 == 0 {
                pop_all(&mut queue, Time::ZERO, &config);
            }
        }
        pop_all(&mut queue, Time::ZERO, &config);
        assert_eq!((queue.flows.len(), queue.fresh.len(), queue.standing.len()), (0, 0, 0));
    }
}
