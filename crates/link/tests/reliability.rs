//! Guarantees over any medium: delivery at most once, in order within a flow, everything that the limits allow, and
//! bounded delay.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{Medium, World, label, packet, peer};
use proptest::prelude::*;
use remora_base::{Core, Rate, Time};
use remora_link::{
    ArqMode, Class, Codel, Duplex, Link, LinkConfig, LinkEvent, Packet, PeerState, PerClass, RetransmissionLimits,
};
use remora_wire::link::{Data, Frame, FrameNumbers, SHORT_LATE_MAX};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A configuration whose queue drops nothing.
fn keeping(rate: Option<Rate>) -> LinkConfig {
    let codel = Codel {
        target: Duration::from_secs(1000),
        target_unresponsive: Duration::from_secs(1000),
        interval: Duration::from_secs(1),
    };
    let patient = RetransmissionLimits { attempts: 1000, lifetime: Duration::from_secs(60) };
    let limits = PerClass { interactive: patient, default: patient, bulk: patient, probe: patient };
    LinkConfig { rate, codel, limits, queue_packets_max: 5000, queue_bytes_max: 1 << 30, ..LinkConfig::default() }
}

/// Asserts that the numbers of every flow ascend: order and no duplicates.
fn assert_in_order(labels: &[(u32, u32)]) {
    let mut last = BTreeMap::new();
    for (flow, number) in labels {
        let before = last.insert(flow, number);
        assert!(before.is_none_or(|b| b < number), "flow {flow}: {number} after {before:?}");
    }
}

/// Asserts that delivered packets equal the offered ones.
fn assert_whole(world: &World, station: usize, load: &Load) {
    for (_, _, arrived) in &world.delivered[station] {
        let (flow, number) = label(arrived);
        let (_, _, len, class, _) = load[number as usize];
        assert_eq!(*arrived, packet(flow, number, len, Class::ALL[usize::from(class)]).bytes);
    }
}

/// Acknowledged packets are delivered with spacing. An orderly removal of the peer must not lose them.
#[test]
fn acked_packets_are_delivered_after_removal_of_peer() {
    let mut medium = Medium::new(1);
    medium.mute = Some((1, Time::from_millis(995), Time::from_millis(1_012)));
    let mut world = World::new(&keeping(Some(Rate::from_bits(1_000_000).unwrap())), medium, 7);
    world.run(Time::from_secs(1), |_| {});
    for number in 0..20 {
        world.send(1, 0, packet(1, number, 1_000, Class::Default));
    }
    let acknowledged = |w: &World| w.view(1, 0).stats.acknowledged as usize;
    while acknowledged(&world) < 20 {
        world.run(world.now + MS(1), |_| {});
    }
    let before = world.delivered[0].len();
    assert!(before < 20, "nothing was held");
    world.links[0].remove_peer(world.now, peer(1));
    let events = std::iter::from_fn(|| world.links[0].poll_event());
    let rest = events.filter(|e| matches!(e, LinkEvent::Deliver { .. })).count();
    assert_eq!(before + rest, 20);
}

/// A sender whose packet 5 never arrives. The 19 others are acknowledged; those behind the gap are held.
fn held_behind_a_gap() -> World {
    let mut medium = Medium::new(1);
    medium.longest = 1_040;
    let mut world = World::new(&keeping(Some(Rate::from_bits(1_000_000).unwrap())), medium, 7);
    for number in 0..20 {
        let len = if number == 5 { 1_200 } else { 1_000 };
        world.send(1, 0, packet(1, number, len, Class::Default));
    }
    while world.view(1, 0).stats.acknowledged < 19 {
        world.run(world.now + MS(1), |_| {});
    }
    assert_eq!(world.delivered[0].len(), 5, "nothing was held");
    world
}

/// Asserts that all packets except the lost one are delivered in order.
fn assert_all_but_5(world: &World) {
    let all = (0..20).filter(|number| *number != 5).map(|number| (1, number));
    assert_eq!(world.labels(0), all.collect::<Vec<_>>());
}

// A sender drops acknowledged packets. The receiver must not lose those that it holds behind a gap.

#[test]
fn acked_packets_behind_gap_survive_removal_of_peer() {
    let mut world = held_behind_a_gap();
    world.links[0].remove_peer(world.now, peer(1));
    world.links[0].add_peer(world.now, peer(1));
    world.send(0, 1, packet(2, 0, 8, Class::Default));
    assert_all_but_5(&world);
}

#[test]
fn acked_packets_behind_gap_survive_reported_restart() {
    let mut world = held_behind_a_gap();
    world.tell_of_restart(0, 1);
    assert_all_but_5(&world);
}

#[test]
fn acked_packets_behind_gap_precede_those_of_new_epoch() {
    let mut world = held_behind_a_gap();
    world.restart(1, 8);
    world.send(1, 0, packet(1, 20, 1_000, Class::Default));
    world.run(world.now + MS(100), |_| {});
    assert_eq!(world.delivered[0].pop().map(|(_, _, last)| label(&last)), Some((1, 20)));
    assert_all_but_5(&world);
}

/// A load: time (ms), flow, length, class, and whether to or from the mobile.
type Load = Vec<(u64, u32, usize, u8, bool)>;

fn load() -> impl Strategy<Value = Load> {
    let one = (0..3000u64, 0..4u32, prop_oneof![8..1400usize, 1400..4292usize], 0..3u8, any::<bool>());
    proptest::collection::vec(one, 1..120).prop_map(|mut load| {
        load.sort();
        load
    })
}

/// Offers the load, with some flows `responsive`; returns the labels offered in each direction.
fn offer(world: &mut World, load: &Load, responsive: impl Fn(u32) -> bool) -> [Vec<(u32, u32)>; 2] {
    let mut offered = [Vec::new(), Vec::new()];
    for (number, (at, flow, len, class, down)) in load.iter().enumerate() {
        world.run(Time::from_millis(*at), |_| {});
        let (from, to) = if *down { (0, 1) } else { (1, 0) };
        offered[to].push((*flow, number as u32));
        let packet = packet(*flow, number as u32, *len, Class::ALL[usize::from(*class)]);
        world.send(from, to, Packet { responsive: responsive(*flow), ..packet });
    }
    offered
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn everything_arrives_exactly_once_and_in_order(
        load in load(), loss in 0.0..0.4f64, bad in 0..300u64, seed: u64, known: bool, half_duplex: bool,
    ) {
        let mut medium = Medium::new(1).with_weather(MS(bad), seed, Time::from_secs(50));
        (medium.loss, medium.half_duplex) = (loss, half_duplex);
        let mut world = World::new(&keeping(known.then(|| Rate::mbit(1))), medium, seed);
        let offered = offer(&mut world, &load, |_| true);
        world.run(Time::from_secs(50), |_| {});
        for station in [0, 1] {
            let mut arrived = world.labels(station);
            assert_in_order(&arrived);
            assert_whole(&world, station, &load);
            arrived.sort_by_key(|(_, number)| *number);
            prop_assert_eq!(&arrived, &offered[station]);
            prop_assert_eq!(world.view(station, 1 - station).unacknowledged, 0);
        }
    }

    #[test]
    fn delivery_is_bounded_by_lifetime_and_hold_time(
        load in load(), loss in 0.0..0.6f64, bad in 0..1500u64, seed: u64, attempts in 1..6u32, window in 1..40usize,
    ) {
        let lifetime = MS(300);
        let limits = RetransmissionLimits { attempts, lifetime };
        let limits = PerClass { interactive: limits, default: limits, bulk: limits, probe: limits };
        let mut medium = Medium::new(1).with_weather(MS(bad), seed, Time::from_secs(6));
        medium.loss = loss;
        let config = LinkConfig { limits, window_frames: window, ..LinkConfig { rate: Some(Rate::mbit(1)), ..keeping(None) } };
        let mut world = World::new(&LinkConfig { limits, ..config }, medium, seed);
        // Responsive packets may wait for the end of an outage.
        let responsive = |flow: u32| flow.is_multiple_of(2);
        offer(&mut world, &load, responsive);
        world.run(Time::from_secs(9), |_| {});
        // Sent by the end of its lifetime, then held while an earlier one may arrive.
        let latest = lifetime + (lifetime + Duration::from_secs(1)) + MS(100);
        for station in [0, 1] {
            let labels: Vec<_> = world.labels(station).into_iter().filter(|(flow, _)| responsive(*flow)).collect();
            assert_in_order(&labels);
            assert_whole(&world, station, &load);
            for (at, _, p) in world.delivered[station].iter().filter(|(_, _, p)| !responsive(label(p).0)) {
                let offered_at = Time::from_millis(load[label(p).1 as usize].0);
                prop_assert!(at.since(offered_at) <= latest, "{:?} old", at.since(offered_at));
            }
            let view = world.view(station, 1 - station);
            prop_assert_eq!((view.unacknowledged, view.queue_packets, view.held), (0, 0, 0));
            let (stats, there) = (view.stats, world.view(1 - station, station).stats);
            prop_assert!(stats.gave_up.total() + there.delivered >= stats.offered, "{:?} {:?}", stats, there);
        }
    }

    #[test]
    fn any_frames_are_handled_safely(
        frames in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..40), 0..9u8, any::<bool>(), 0..400u64), 0..200),
        seed: u64,
    ) {
        let mut world = World::new(&keeping(Some(Rate::mbit(1))), Medium::new(1), seed);
        let mut now = Time::ZERO;
        for (number, (mut bytes, kind, to_base, wait)) in frames.into_iter().enumerate() {
            // Valid frame kinds reach more code than noise.
            if let Some(first) = bytes.first_mut().filter(|_| kind < 8) {
                *first = [0x82, 0xc0, 0xe2, 0xf8, 1, 2, 3, 5][usize::from(kind)];
            }
            let (from, to) = if to_base { (1, 0) } else { (0, 1) };
            world.send(from, to, packet(1, number as u32, 100, Class::Default));
            world.inject(from, to, bytes.into());
            now += MS(wait);
            world.run(now, |_| {});
            for (a, b) in [(0, 1), (1, 0)] {
                let view = world.view(a, b);
                prop_assert!(view.unacknowledged <= 2040 && view.held <= 2040, "{:?}", view);
            }
        }
    }
}

#[test]
fn gap_in_one_flow_does_not_hold_another() {
    let mut medium = Medium::new(1);
    // Only the first frame is lost.
    medium.bad[0] = vec![(Time::ZERO, Time::from_millis(1))];
    let mut world = World::new(&keeping(Some(Rate::mbit(1))), medium, 3);
    for (flow, number) in [(1, 0), (2, 0), (1, 1), (2, 1)] {
        world.send(0, 1, packet(flow, number, 1000, Class::Default));
    }
    world.run(Time::from_secs(1), |_| {});
    assert_eq!(world.labels(1), [(2, 0), (2, 1), (1, 0), (1, 1)]);
}

#[test]
fn throughput_resumes_soon_after_outage() {
    for seconds in [1, 10, 30] {
        for (from, to) in [(0, 1), (1, 0)] {
            for rate in [Some(Rate::mbit(1)), None] {
                let (begins, ends) = (Time::from_secs(2), Time::from_secs(2 + seconds));
                let mut medium = Medium::new(1);
                medium.bad[0] = vec![(begins, ends)];
                let mut world = World::new(&LinkConfig { rate, ..LinkConfig::default() }, medium, seconds);
                let mut next = 0;
                world.run(ends + MS(500), |w| w.saturate(from, to, 1, &mut next, 1400, 3));
                let first = world.delivered[to].iter().map(|(at, ..)| *at).find(|at| *at > ends).expect("it goes on");
                assert!(first.since(ends) <= MS(150), "{:?} after an outage of {seconds} s", first.since(ends));
                assert_in_order(&world.labels(to));
                let states: Vec<PeerState> = world
                    .events
                    .iter()
                    .filter_map(|(s, e)| {
                        if let (LinkEvent::State { state, .. }, true) = (e, *s == from) { Some(*state) } else { None }
                    })
                    .collect();
                assert_eq!(states, [PeerState::Suspect, PeerState::Good]);
            }
        }
    }
}

/// TCP doubles its RTO: after an outage of a minute it stays silent for up to another minute, unless a packet of its
/// own has waited for the end.
#[test]
fn oldest_and_newest_packet_survive_outage() {
    for seconds in [60, 300] {
        let (begins, ends) = (Time::from_secs(1), Time::from_secs(1 + seconds));
        let mut medium = Medium::new(1);
        medium.bad[0] = vec![(begins, ends)];
        let mut world = World::new(&LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() }, medium, 1);
        // Two responsive flows, and one unresponsive flow whose packets expire.
        let send = |w: &mut World, number: u32| {
            for flow in 1..4 {
                w.send(0, 1, Packet { responsive: flow < 3, ..packet(flow, number, 1400, Class::Default) });
            }
        };
        let (mut number, mut wait) = (0, 1);
        send(&mut world, number);
        world.run(begins, |_| {});
        let mut at = begins;
        while at < ends {
            number += 1;
            world.run(at, |_| {});
            send(&mut world, number);
            (at, wait) = (at + Duration::from_secs(wait), wait * 2);
        }
        world.run(ends + Duration::from_secs(3), |_| {});
        let after = world.delivered[1].iter().filter(|(at, ..)| *at > ends).map(|(at, _, p)| (*at, common::label(p)));
        let (times, mut labels): (Vec<Time>, Vec<_>) = after.unzip();
        labels.sort_unstable();
        // The second packet in all is the first that met the bad channel.
        assert_eq!(labels, [(1, 2), (1, number), (2, 2), (2, number)], "after {seconds} s");
        let latest = times[3].since(ends);
        assert!(latest <= MS(1200), "{latest:?} after an outage of {seconds} s");
        assert_eq!(world.view(0, 1).queue_packets, 0);
    }
}

/// Waiting packets are for the epoch of the peer that they were sent to, and for a limited time.
#[test]
fn packets_kept_in_outage_expire_on_restart_and_in_time() {
    for (seconds, restarts) in [(60, true), (620, false)] {
        let (begins, ends) = (Time::from_secs(1), Time::from_secs(1 + seconds));
        let mut medium = Medium::new(1);
        medium.bad[0] = vec![(begins, ends)];
        let mut world = World::new(&LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() }, medium, 1);
        world.send(1, 0, packet(9, 0, 100, Class::Default));
        world.send(0, 1, packet(1, 0, 1400, Class::Default));
        world.run(begins + MS(100), |_| {});
        for number in 1..6 {
            world.send(0, 1, packet(1, number, 1400, Class::Default));
            world.run(world.now + Duration::from_secs(2), |_| {});
        }
        world.run(ends - MS(500), |_| {});
        assert_eq!(world.view(0, 1).queue_packets, if restarts { 2 } else { 0 });
        if restarts {
            world.links[0].restarted(world.now, common::peer(1));
        }
        world.run(ends + Duration::from_secs(3), |_| {});
        assert_eq!(world.labels(1), [(1, 0)]);
        assert_eq!(world.view(0, 1).queue_packets, 0);
    }
}

#[test]
fn outage_gets_only_probes() {
    let mut medium = Medium::new(1);
    medium.bad[0] = vec![(Time::from_secs(1), Time::from_secs(31))];
    let mut world = World::new(&LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() }, medium, 1);
    let mut next = 0;
    world.run(Time::from_secs(2), |w| w.saturate(0, 1, 1, &mut next, 1400, 3));
    let before = world.links[0].stats(common::peer(1)).copied().expect("a destination");
    world.run(Time::from_secs(30), |w| w.saturate(0, 1, 1, &mut next, 1400, 3));
    let after = world.links[0].stats(common::peer(1)).copied().expect("a destination");
    assert_eq!(after.data_frames, before.data_frames);
    assert!((280..=360).contains(&(after.rts - before.rts)), "{} probes", after.rts - before.rts);
}

/// No packet delivered in one epoch is delivered again in the next, whether the layer below or a frame reports the
/// restart.
#[test]
fn restarted_end_is_detected() {
    for (case, loss) in (0..8).zip([0.0, 0.2].into_iter().cycle()) {
        let (restarted, is_told) = (case / 2 % 2, case < 4);
        let mut medium = Medium::new(1);
        medium.loss = loss;
        // The acknowledgements of the latest arrivals are lost.
        medium.mute = Some((restarted, Time::from_millis(250), Time::from_millis(300)));
        let mut world = World::new(&keeping(Some(Rate::mbit(1))), medium, 5);
        for number in 0..100 {
            world.send(0, 1, packet(1, number, 500, Class::Default));
            world.send(1, 0, packet(2, number, 500, Class::Default));
        }
        world.run(Time::from_millis(300), |_| {});
        assert!(world.view(1 - restarted, restarted).unacknowledged > 0);
        world.restart(restarted, 77);
        if is_told {
            world.tell_of_restart(1 - restarted, restarted);
        }
        for number in 100..200 {
            world.send(0, 1, packet(1, number, 500, Class::Default));
            world.send(1, 0, packet(2, number, 500, Class::Default));
        }
        world.run(Time::from_secs(20), |_| {});
        assert!(world.view(1 - restarted, restarted).stats.gave_up.restart > 0);
        for (station, flow) in [(0, 2), (1, 1)] {
            let labels = world.labels(station);
            assert_in_order(&labels);
            // All packets enqueued after the restart have arrived.
            assert!(labels.ends_with(&(100..200).map(|n| (flow, n)).collect::<Vec<_>>()), "{labels:?}");
        }
    }
}

#[test]
fn sequence_numbers_wrap_around() {
    // An epoch whose first number is just below 2^16.
    let first = |seed: u64| {
        let mut link = Link::new(LinkConfig::default(), seed, Time::ZERO);
        link.add_peer(Time::ZERO, common::peer(1));
        link.enqueue(Time::ZERO, common::peer(1), packet(1, 0, 8, Class::Default));
        match link.poll_transmit(Time::ZERO).map(|t| Frame::decode(t.payload)) {
            Some(Ok(Frame::Data(Data { place: FrameNumbers::Full { seq, .. }, .. }))) => seq,
            other => panic!("{other:?}"),
        }
    };
    let seed = (0..5000).find(|seed| first(seed * 1000) > 65_400).expect("one in five hundred");
    let mut medium = Medium::new(1);
    (medium.loss, medium.rate) = (0.2, Rate::mbit(10));
    let mut world = World::new(&keeping(Some(Rate::mbit(10))), medium, seed);
    for number in 0..1500 {
        world.send(0, 1, packet(number % 3, number, 200, Class::Default));
    }
    world.run(Time::from_secs(15), |_| {});
    assert_in_order(&world.labels(1));
    assert_eq!(world.delivered[1].len(), 1500);
}

#[test]
fn mode_none_sends_each_frame_once() {
    let mut medium = Medium::new(1);
    medium.loss = 0.3;
    let config = LinkConfig { mode: ArqMode::None, ..keeping(Some(Rate::mbit(1))) };
    let mut world = World::new(&config, medium, 9);
    for number in 0..200 {
        world.send(0, 1, packet(1, number, 500, Class::Default));
    }
    world.run(Time::from_secs(3), |_| {});
    let stats = world.view(0, 1).stats;
    assert_eq!((stats.data_frames, stats.retransmitted, world.view(1, 0).stats.acks), (200, 0, 0));
    assert_eq!(world.delivered[1].len() as u64, 200 - world.lost);
    assert!((30..=90).contains(&world.lost), "{}", world.lost);
    assert!(world.device_max <= 2, "{} frames in the device", world.device_max);
}

#[test]
fn packet_too_long_is_counted() {
    let config = LinkConfig { queue_packets_max: 10, rate: Some(Rate::mbit(1)), ..LinkConfig::default() };
    let mut world = World::new(&config, Medium::new(1), 1);
    world.send(0, 1, packet(1, 0, config.packet_max() + 1, Class::Default));
    for number in 0..50 {
        world.send(0, 1, packet(1, number, 1000, Class::Default));
    }
    world.links[0].enqueue(Time::ZERO, common::peer(9), packet(1, 0, 100, Class::Default));
    world.links[0].handle_input(Time::ZERO, common::peer(9), Bytes::from_static(&[4]));
    let snapshot = world.links[0].snapshot();
    let stats = snapshot.peers[0].stats;
    assert_eq!((stats.too_long, snapshot.no_such_peer, snapshot.bad_frames), (1, 1, 1));
    assert!(stats.overflow >= 35 && snapshot.peers[0].queue_packets <= 10, "{stats:?}");
}

/// No later packet announces that the gap was abandoned.
#[test]
fn abandoned_last_gap_is_announced() {
    let twice = RetransmissionLimits { attempts: 2, lifetime: Duration::from_secs(60) };
    let limits = PerClass { interactive: twice, default: twice, bulk: twice, probe: twice };
    let mut medium = Medium::new(1);
    medium.delay = MS(20);
    // The first packet and its retransmission are lost.
    medium.bad[0] = [(999, 1002), (1045, 1100)].map(|(b, e)| (Time::from_millis(b), Time::from_millis(e))).to_vec();
    let mut world = World::new(&LinkConfig { limits, ..keeping(Some(Rate::mbit(1))) }, medium, 1);
    world.run(Time::from_secs(1), |_| {});
    world.send(0, 1, packet(1, 0, 100, Class::Default));
    world.run(Time::from_millis(1005), |_| {});
    world.send(0, 1, packet(1, 1, 100, Class::Default));
    world.run(Time::from_millis(1500), |_| {});
    assert_eq!(world.view(0, 1).stats.gave_up.attempts, 1);
    assert_eq!(world.labels(1), [(1, 1)]);
    world.run(Time::from_secs(5), |_| {});
    assert!(world.view(0, 1).stats.rts < 20, "{:?}", world.view(0, 1).stats);
}

/// Numbers are sent as their low bytes where possible, with many frames in flight.
#[test]
fn reordered_frames_keep_their_numbers() {
    for later in [1, 20, SHORT_LATE_MAX] {
        let mut medium = Medium::new(1);
        (medium.rate, medium.half_duplex, medium.delay) = (Rate::mbit(10), false, MS(50));
        // Some of them are retransmissions with numbers far behind.
        (medium.loss, medium.overtaken) = (0.05, Some((7, later)));
        let mut world = World::new(&LinkConfig { duplex: Duplex::Full, ..keeping(Some(Rate::mbit(10))) }, medium, 1);
        let mut next = 0;
        world.run(Time::from_secs(5), |w| w.saturate(0, 1, 1, &mut next, 1400, 30));
        world.run(Time::from_secs(6), |_| {});
        let all: Vec<_> = (0..next).map(|number| (1, number)).collect();
        assert!(next > 3000 && world.labels(1) == all, "{next} packets, late by {later}");
    }
}
