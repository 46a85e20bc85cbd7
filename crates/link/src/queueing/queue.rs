//! The queue of one destination: fair queueing among its flows, each under CoDel (FQ-CoDel, RFC 8290, section 4, with
//! flows given by the host instead of hashed).
//!
//! A sparse flow, one that is empty when its packet arrives, precedes standing ones, so a small call does not wait
//! behind a bulk transfer. An interactive flow may send more before it counts as standing, a bulk flow less.

use std::time::Duration;

use remora_base::Time;

use crate::queueing::codel::CodelParams;
use crate::queueing::flows::{Flow, Flows, Waiting};
use crate::queueing::stopped_clock::StoppedClock;
use crate::{Class, LinkConfig, Packet};

/// Shortest CoDel target in frames,
const TARGET_FRAMES: u32 = 3;
/// and as a fraction of the RTT: senders over a long RTT send in bursts, and recover from a drop only after several
/// RTTs;
const TARGET_PART: u32 = 2;
/// and in frames for unresponsive senders: more than the windows of request-reply protocols, fewer than the queue
/// holds.
const TARGET_FRAMES_UNRESPONSIVE: u32 = 48;

/// How long an outage may last until the oldest and newest packet of a responsive flow are dropped too. They wake the
/// sender: TCP doubles its RTO, so after an outage it may stay silent as long as the outage lasted. The newest packet
/// is TCP's latest retransmission. If the original had arrived and only its acknowledgement is lost, TCP believes that
/// the rest is in flight; the oldest packet, sent after the lost ones, corrects that.
const WAKES_FOR: Duration = Duration::from_secs(600);

/// Packets dropped since the last report, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Dropped {
    pub(crate) overflow: u64,
    pub(crate) codel: u64,
    pub(crate) expired: u64,
}

/// The queue of one destination.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    flows: Flows,
    clock: StoppedClock,
    dropped: Dropped,
}

impl Queue {
    pub(crate) fn new(now: Time) -> Queue {
        Queue { flows: Flows::default(), clock: StoppedClock::new(now), dropped: Dropped::default() }
    }

    pub(crate) fn packets(&self) -> usize {
        self.flows.packets()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.flows.bytes()
    }

    /// The fresh flow that has its turn, if there is one.
    pub(crate) fn fresh(&self) -> Option<u64> {
        self.flows.first_fresh()
    }

    /// Starts the queue's clock, or stops it while nothing can be sent.
    pub(crate) fn set_running(&mut self, now: Time, running: bool) {
        self.clock.set_running(now, running);
    }

    /// Returns and resets the counts of drops.
    pub(crate) fn take_dropped(&mut self) -> Dropped {
        std::mem::take(&mut self.dropped)
    }

    /// Adds a packet. If the queue is full, drops the oldest packets of the longest flow; dropping at the head informs
    /// the sender soonest.
    pub(crate) fn push(&mut self, now: Time, packet: Packet, config: &LinkConfig) {
        let (id, len, share) = (packet.flow, packet.bytes.len(), share(packet.class, config));
        let stamp = self.clock.read(now);
        self.flows.push(id, share, Waiting { packet, came: now, stamp });
        while self.packets() > config.queue_packets_max.max(1) || self.bytes() > config.queue_bytes_max.max(len) {
            let Some(longest) = self.flows.longest() else { return };
            let lost = self.flows.change(longest, Flow::pop).flatten();
            self.dropped.overflow += u64::from(lost.is_some());
            self.flows.settle(longest);
        }
    }

    /// The next packet to send. Skips expired packets and those that CoDel drops, so there may be none even if packets
    /// were waiting.
    pub(crate) fn pop(&mut self, now: Time, params: &CodelParams, config: &LinkConfig) -> Option<Waiting> {
        let felt = self.clock.read(now);
        loop {
            let id = self.flows.next()?;
            let dropped = &mut self.dropped;
            let taken = self.flows.change(id, |flow| take(flow, now, felt, params, config, dropped)).flatten();
            if let Some(waiting) = taken {
                self.flows.charge(id, waiting.packet.bytes.len());
                return Some(waiting);
            }
            self.flows.pass(id);
        }
    }

    /// Drops expired packets, except those that wake their sender. A full frame takes `frame`.
    pub(crate) fn expire(&mut self, now: Time, frame: Duration, config: &LinkConfig) {
        let (least, felt) = (config.lifetime_min(frame), self.clock.read(now));
        self.drop_old(now, least, config, |waiting, is_end| is_end && wakes(now, felt, waiting, least, config));
    }

    /// Drops all expired packets after a restart of the peer.
    pub(crate) fn peer_restarted(&mut self, now: Time, config: &LinkConfig) {
        self.drop_old(now, config.lifetime_min(Duration::ZERO), config, |_, _| false);
    }

    /// Drops expired packets for which `stays` is false, in flows whose first packet is expired. The second argument
    /// of `stays` is true for a flow's oldest and newest packet.
    fn drop_old(&mut self, now: Time, least: Duration, config: &LinkConfig, stays: impl Fn(&Waiting, bool) -> bool) {
        let is_old = |waiting: &Waiting| is_old(now, waiting, least, config);
        for id in self.flows.those(|flow| flow.packets.front().is_some_and(is_old)) {
            let gone = self.flows.change(id, |flow| flow.retain(|w, is_end| !is_old(w) || stays(w, is_end)));
            self.dropped.expired += gone.unwrap_or_default() as u64;
            self.flows.settle(id);
        }
    }
}

/// The next packet of `flow` to send.
fn take(
    flow: &mut Flow,
    now: Time,
    felt: Time,
    params: &CodelParams,
    config: &LinkConfig,
    dropped: &mut Dropped,
) -> Option<Waiting> {
    while let Some(mut waiting) = flow.pop() {
        let behind = flow.bytes();
        let is_old = is_old(now, &waiting, params.lifetime_min, config);
        if is_old && wakes(now, felt, &waiting, params.lifetime_min, config) {
            // Its lifetime starts again.
            waiting.came = now;
            return Some(waiting);
        } else if is_old {
            dropped.expired += 1;
        } else if flow.codel.drops(felt, felt.since(waiting.stamp), behind, &waiting.packet, params) {
            dropped.codel += 1;
        } else {
            return Some(waiting);
        }
    }
    flow.codel.empty();
    None
}

/// Whether a packet has exceeded its lifetime.
fn is_old(now: Time, waiting: &Waiting, least: Duration, config: &LinkConfig) -> bool {
    now.since(waiting.came) > lifetime(waiting, least, config)
}

/// Whether an expired packet is still worth sending: it expired only because of an outage, and its sender waits for an
/// acknowledgement.
fn wakes(now: Time, felt: Time, waiting: &Waiting, least: Duration, config: &LinkConfig) -> bool {
    waiting.packet.responsive
        && felt.since(waiting.stamp) <= lifetime(waiting, least, config)
        && now.since(waiting.came) <= WAKES_FOR
}

fn lifetime(waiting: &Waiting, least: Duration, config: &LinkConfig) -> Duration {
    config.limits.get(waiting.packet.class).lifetime.max(least)
}

/// The quantum of a flow of this class, in bytes.
fn share(class: Class, config: &LinkConfig) -> i64 {
    let frame = i64::try_from(config.mtu).unwrap_or(i64::MAX / 8);
    match class {
        Class::Interactive => frame * 4,
        Class::Default | Class::Probe => frame,
        Class::Bulk => (frame / 4).max(1),
    }
}

/// The CoDel parameters where a full frame takes `frame` and `sharers` destinations share the link.
pub(crate) fn codel_params(config: &LinkConfig, frame: Duration, sharers: usize, round_trip: Duration) -> CodelParams {
    let sharers = u32::try_from(sharers.max(1)).unwrap_or(u32::MAX);
    let frames = |n: u32| frame.saturating_mul(n).saturating_mul(sharers);
    CodelParams {
        target: config.codel.target.max(frames(TARGET_FRAMES)).max(round_trip / TARGET_PART),
        target_unresponsive: config.codel.target_unresponsive.max(frames(TARGET_FRAMES_UNRESPONSIVE)),
        interval: config.codel.interval + round_trip,
        frame: frames(1),
        frame_bytes: config.mtu,
        lifetime_min: config.lifetime_min(frame),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;
    use crate::queueing::flows::FLOWS_MAX;

    fn packet(flow: u64, len: usize, class: Class) -> Packet {
        Packet { flow, class, responsive: true, bytes: Bytes::from(vec![flow as u8; len]) }
    }

    fn pop_all(queue: &mut Queue, now: Time, config: &LinkConfig) -> Vec<(u64, usize)> {
        let params = codel_params(config, Duration::from_millis(12), 1, Duration::ZERO);
        let popped = std::iter::from_fn(|| queue.pop(now, &params, config));
        popped.map(|w| (w.packet.flow, w.packet.bytes.len())).collect()
    }

    #[test]
    fn sparse_flow_precedes_standing_flow() {
        let (config, mut queue) = (LinkConfig::default(), Queue::new(Time::ZERO));
        let params = codel_params(&config, Duration::from_millis(12), 1, Duration::ZERO);
        for _ in 0..10 {
            queue.push(Time::ZERO, packet(1, 1400, Class::Default), &config);
        }
        // Flow 1, the standing one, uses its first quantum. Then the packet of flow 2, the sparse one, arrives.
        for _ in 0..3 {
            assert_eq!(queue.pop(Time::ZERO, &params, &config).unwrap().packet.flow, 1);
        }
        assert_eq!(queue.fresh(), None);
        queue.push(Time::ZERO, packet(2, 100, Class::Default), &config);
        assert_eq!(queue.fresh(), Some(2));
        assert_eq!(queue.pop(Time::ZERO, &params, &config).unwrap().packet.flow, 2);
        assert_eq!(queue.pop(Time::ZERO, &params, &config).unwrap().packet.flow, 1);
    }

    #[test]
    fn standing_flows_share_by_bytes_and_class() {
        let (config, mut queue) =
            (LinkConfig { queue_packets_max: 4000, ..LinkConfig::default() }, Queue::new(Time::ZERO));
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
    fn full_queue_drops_oldest_of_longest_flow() {
        let config = LinkConfig { queue_packets_max: 4, queue_bytes_max: 3000, ..LinkConfig::default() };
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
    fn expired_packets_are_dropped_and_counted() {
        let (config, mut queue) = (LinkConfig::default(), Queue::new(Time::ZERO));
        queue.push(Time::ZERO, packet(1, 100, Class::Interactive), &config);
        queue.push(Time::ZERO, packet(2, 100, Class::Default), &config);
        let late = Time::from_millis(201);
        assert_eq!(pop_all(&mut queue, late, &config), [(2, 100)]);
        queue.push(Time::ZERO, packet(1, 100, Class::Interactive), &config);
        queue.expire(late, Duration::ZERO, &config);
        assert_eq!((queue.packets(), queue.bytes(), queue.take_dropped().expired), (0, 0, 2));
    }

    #[test]
    fn lifetime_covers_a_few_frames_on_slow_hop() {
        let (config, mut queue) = (LinkConfig::default(), Queue::new(Time::ZERO));
        // A frame at 9600 bit/s; one at 1 Mbit/s; one with an airtime above the longest lifetime.
        for (frame, ms, is_sent) in [(1250, 3700, true), (1250, 3800, false), (12, 201, false), (60_000, 21_000, false)]
        {
            let frame = Duration::from_millis(frame);
            let params = codel_params(&config, frame, 1, Duration::ZERO);
            queue.push(Time::ZERO, packet(1, 100, Class::Interactive), &config);
            queue.push(Time::ZERO, packet(2, 100, Class::Interactive), &config);
            let now = Time::from_millis(ms);
            assert_eq!(queue.pop(now, &params, &config).is_some(), is_sent, "{frame:?}");
            queue.expire(now, frame, &config);
            assert_eq!(queue.packets(), usize::from(is_sent), "{frame:?}");
            let _ = queue.pop(now, &params, &config);
        }
    }

    #[test]
    fn outage_adds_no_sojourn_time() {
        let config = LinkConfig { queue_packets_max: 4000, queue_bytes_max: 1 << 30, ..LinkConfig::default() };
        for (stopped, drops) in [(true, 0), (false, 1)] {
            let mut queue = Queue::new(Time::ZERO);
            let params = codel_params(&config, Duration::from_millis(12), 1, Duration::ZERO);
            for _ in 0..20 {
                queue.push(Time::ZERO, packet(1, 1400, Class::Default), &config);
            }
            queue.set_running(Time::ZERO, !stopped);
            for at in [Time::from_secs(5), Time::from_millis(5150)] {
                queue.set_running(at, true);
                assert!(queue.pop(at, &params, &config).is_some());
                queue.set_running(at, !stopped);
            }
            assert_eq!(queue.take_dropped().codel, drops, "stopped: {stopped}");
        }
    }

    #[test]
    fn queue_shorter_than_half_rtt_has_no_drops() {
        let config = LinkConfig { queue_packets_max: 1000, ..LinkConfig::default() };
        let drops = |wait: u64, round_trip: u64| {
            let (mut queue, at) = (Queue::new(Time::ZERO), Time::from_millis);
            let params = codel_params(&config, Duration::from_millis(12), 1, Duration::from_millis(round_trip));
            for now in (0..5000).step_by(12) {
                queue.push(at(now), packet(1, 1400, Class::Default), &config);
                if now >= wait {
                    queue.pop(at(now), &params, &config);
                }
            }
            queue.take_dropped().codel
        };
        assert_eq!(drops(240, 600), 0);
        assert!(drops(240, 20) > 10 && drops(400, 600) > 5);
    }

    #[test]
    fn empty_flows_are_removed() {
        let (config, mut queue) = (LinkConfig::default(), Queue::new(Time::ZERO));
        for flow in 0..10_000 {
            queue.push(Time::ZERO, packet(flow, 40, Class::Default), &config);
            if flow % 2 == 0 {
                pop_all(&mut queue, Time::ZERO, &config);
            }
        }
        pop_all(&mut queue, Time::ZERO, &config);
        assert_eq!((queue.flows.len(), queue.packets(), queue.bytes()), (0, 0, 0));
    }

    #[test]
    fn flood_of_flows_is_bounded() {
        // A full queue in an outage; a queue emptied by lifetimes; a queue whose packets leave as they arrive, next to
        // a standing flow.
        let config = LinkConfig::default();
        let params = codel_params(&config, Duration::from_millis(12), 1, Duration::ZERO);
        for (packets, expires, sends) in [(100_000, false, 0), (20_000, true, 0), (50_000, false, 1)] {
            let (mut queue, mut bulk) = (Queue::new(Time::ZERO), 0);
            for n in 0..packets {
                let now = Time::ZERO + Duration::from_micros(500) * n;
                queue.push(now, packet(u64::from(n) << 32, 40, Class::Default), &config);
                if expires && n % 100 == 0 {
                    queue.expire(now, Duration::ZERO, &config);
                }
                if sends > 0 && n % 10 == 0 {
                    queue.push(now, packet(7, 1400, Class::Default), &config);
                }
                for _ in 0..sends {
                    bulk += u64::from(queue.pop(now, &params, &config).is_some_and(|w| w.packet.flow == 7));
                }
                let bound = FLOWS_MAX + config.queue_packets_max;
                assert!(queue.flows.len() <= bound, "{} flows after {n} packets", queue.flows.len());
            }
            assert!(queue.packets() <= config.queue_packets_max);
            assert!(sends > 0 || queue.flows.len() == queue.packets(), "{} flows", queue.flows.len());
            assert!(sends == 0 || bulk > 25, "{bulk} packets of the flow that was there first");
        }
    }

    #[test]
    fn flow_without_credit_does_not_return_as_fresh_after_drop() {
        let config = LinkConfig { queue_packets_max: 2, ..LinkConfig::default() };
        let params = codel_params(&config, Duration::from_millis(12), 1, Duration::ZERO);
        let mut queue = Queue::new(Time::ZERO);
        for flow in [1, 1, 1, 1] {
            queue.push(Time::ZERO, packet(flow, 1400, Class::Default), &config);
            queue.pop(Time::ZERO, &params, &config);
        }
        // The flow has a deficit; its only packet is dropped for the packet of another.
        queue.push(Time::ZERO, packet(1, 1400, Class::Default), &config);
        queue.push(Time::ZERO, packet(2, 100, Class::Default), &config);
        queue.push(Time::ZERO, packet(3, 100, Class::Default), &config);
        queue.push(Time::ZERO, packet(1, 50, Class::Default), &config);
        let order = pop_all(&mut queue, Time::ZERO, &config);
        assert_eq!(order.last(), Some(&(1, 50)), "{order:?}");
    }

    #[test]
    fn interactive_flow_precedes_others_once_a_round() {
        // The flow sends with every second packet sent: always, or only while its queue is empty. Without a bound it
        // would get half of the link.
        for (class, len, only_if_none, least, most) in [
            (Class::Interactive, 200, false, 490, 500),
            (Class::Interactive, 1400, false, 150, 340),
            (Class::Interactive, 1400, true, 150, 340),
            (Class::Default, 200, false, 200, 340),
        ] {
            let config = LinkConfig { queue_packets_max: 100_000, queue_bytes_max: 1 << 30, ..LinkConfig::default() };
            let params = codel_params(&config, Duration::from_millis(12), 1, Duration::ZERO);
            let mut queue = Queue::new(Time::ZERO);
            for n in 0..20 * 1000 {
                queue.push(Time::ZERO, packet(n % 20, 1400, Class::Default), &config);
            }
            (0..20).for_each(|_| drop(queue.pop(Time::ZERO, &params, &config)));
            let (mut pushed, mut sent) = (0, 0);
            for n in 0..1000 {
                if n % 2 == 0 && !(only_if_none && pushed > sent) {
                    queue.push(Time::ZERO, packet(99, len, class), &config);
                    pushed += 1;
                }
                sent += i32::from(queue.pop(Time::ZERO, &params, &config).is_some_and(|w| w.packet.flow == 99));
            }
            assert!((least..=most).contains(&sent), "{class:?}, {len} B, {only_if_none}: {sent} of 1000");
        }
    }
}
