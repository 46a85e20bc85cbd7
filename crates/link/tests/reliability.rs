//! What the link promises whatever the medium does: at most once, in order within a flow,
//! everything that its limits allow, nothing for ever.

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use common::{Medium, World, label, packet, peer};
use proptest::prelude::*;
use remora_base::{Core, Rate, Time};
use remora_link::{Class, Codel, Config, Duplex, Event, Limits, Link, Mode, Packet, PerClass, State};
use remora_wire::link::{Data, Frame, FrameNumbers, SHORT_LATE_MAX};

const MS: fn(u64) -> Duration = Duration::from_millis;

/// A link that drops nothing of its own accord.
fn keeping(rate: Option<Rate>) -> Config {
    let codel = Codel {
        target: Duration::from_secs(1000),
        target_unresponsive: Duration::from_secs(1000),
        interval: Duration::from_secs(1),
    };
    let patient = Limits { attempts: 1000, lifetime: Duration::from_secs(60) };
    let limits = PerClass { interactive: patient, default: patient, bulk: patient, probe: patient };
    Config { rate, codel, limits, queue_packets_max: 5000, queue_bytes_max: 1 << 30, ..Config::default() }
}

/// Every flow's numbers ascend: in order, and none twice.
fn assert_in_order(labels: &[(u32, u32)]) {
    let mut last = BTreeMap::new();
    for (flow, number) in labels {
        let before = last.insert(flow, number);
        assert!(before.is_none_or(|b| b < number), "flow {flow}: {number} after {before:?}");
    }
}

/// What arrived is what was offered, whole.
fn assert_whole(world: &World, station: usize, load: &Load) {
    for (_, _, arrived) in &world.delivered[station] {
        let (flow, number) = label(arrived);
        let (_, _, len, class, _) = load[number as usize];
        assert_eq!(*arrived, packet(flow, number, len, Class::ALL[usize::from(class)]).bytes);
    }
}

/// What has arrived whole and was acknowledged leaves spaced, as it was sent; an orderly good-bye of the sender's is no
/// reason to lose it.
#[test]
fn what_was_acknowledged_is_delivered_though_its_sender_leaves() {
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
    let rest = events.filter(|e| matches!(e, Event::Deliver { .. })).count();
    assert_eq!(before + rest, 20);
}

/// A sender whose packet 5 never gets through, and the 19 others that were acknowledged; those behind it are held.
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

/// All but the one that was lost, in order.
fn assert_all_but_5(world: &World) {
    let all = (0..20).filter(|number| *number != 5).map(|number| (1, number));
    assert_eq!(world.labels(0), all.collect::<Vec<_>>());
}

// Who has an acknowledgement keeps nothing to send again: what is held for what will never come is not to be lost with
// it.

#[test]
fn what_was_acknowledged_behind_a_gap_is_delivered_though_its_sender_leaves() {
    let mut world = held_behind_a_gap();
    world.links[0].remove_peer(world.now, peer(1));
    world.links[0].add_peer(world.now, peer(1));
    world.send(0, 1, packet(2, 0, 8, Class::Default));
    assert_all_but_5(&world);
}

#[test]
fn what_was_acknowledged_behind_a_gap_is_delivered_though_its_sender_is_known_to_begin_anew() {
    let mut world = held_behind_a_gap();
    world.tell_of_restart(0, 1);
    assert_all_but_5(&world);
}

#[test]
fn what_was_acknowledged_behind_a_gap_is_delivered_before_what_its_sender_sends_in_another_life() {
    let mut world = held_behind_a_gap();
    world.restart(1, 8);
    world.send(1, 0, packet(1, 20, 1_000, Class::Default));
    world.run(world.now + MS(100), |_| {});
    assert_eq!(world.delivered[0].pop().map(|(_, _, last)| label(&last)), Some((1, 20)));
    assert_all_but_5(&world);
}

/// A load: when (ms), flow, length, class, to the mobile or from it.
type Load = Vec<(u64, u32, usize, u8, bool)>;

fn load() -> impl Strategy<Value = Load> {
    let one = (0..3000u64, 0..4u32, prop_oneof![8..1400usize, 1400..4292usize], 0..3u8, any::<bool>());
    proptest::collection::vec(one, 1..120).prop_map(|mut load| {
        load.sort();
        load
    })
}

/// Offers the load, of which some flows are `responsive`, and gives the labels of what was offered in each direction.
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
    fn nothing_comes_late_and_nobody_waits_for_what_was_given_up(
        load in load(), loss in 0.0..0.6f64, bad in 0..1500u64, seed: u64, attempts in 1..6u32, window in 1..40usize,
    ) {
        let lifetime = MS(300);
        let limits = Limits { attempts, lifetime };
        let limits = PerClass { interactive: limits, default: limits, bulk: limits, probe: limits };
        let mut medium = Medium::new(1).with_weather(MS(bad), seed, Time::from_secs(6));
        medium.loss = loss;
        let config = Config { limits, window_frames: window, ..Config { rate: Some(Rate::mbit(1)), ..keeping(None) } };
        let mut world = World::new(&Config { limits, ..config }, medium, seed);
        // Of those that are, some wait for the end of an outage.
        let responsive = |flow: u32| flow.is_multiple_of(2);
        offer(&mut world, &load, responsive);
        world.run(Time::from_secs(9), |_| {});
        // Sent by the end of its lifetime, held for as long as an earlier one might still come.
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
    fn any_frames_at_all_do_no_harm(
        frames in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..40), 0..9u8, any::<bool>(), 0..400u64), 0..200),
        seed: u64,
    ) {
        let mut world = World::new(&keeping(Some(Rate::mbit(1))), Medium::new(1), seed);
        let mut now = Time::ZERO;
        for (number, (mut bytes, kind, to_base, wait)) in frames.into_iter().enumerate() {
            // Kinds that mean something are more telling than noise.
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
fn a_gap_in_one_flow_does_not_hold_another() {
    let mut medium = Medium::new(1);
    // The first frame is lost, and nothing else.
    medium.bad[0] = vec![(Time::ZERO, Time::from_millis(1))];
    let mut world = World::new(&keeping(Some(Rate::mbit(1))), medium, 3);
    for (flow, number) in [(1, 0), (2, 0), (1, 1), (2, 1)] {
        world.send(0, 1, packet(flow, number, 1000, Class::Default));
    }
    world.run(Time::from_secs(1), |_| {});
    assert_eq!(world.labels(1), [(2, 0), (2, 1), (1, 0), (1, 1)]);
}

#[test]
fn bytes_flow_again_soon_after_an_outage() {
    for seconds in [1, 10, 30] {
        for (from, to) in [(0, 1), (1, 0)] {
            for rate in [Some(Rate::mbit(1)), None] {
                let (begins, ends) = (Time::from_secs(2), Time::from_secs(2 + seconds));
                let mut medium = Medium::new(1);
                medium.bad[0] = vec![(begins, ends)];
                let mut world = World::new(&Config { rate, ..Config::default() }, medium, seconds);
                let mut next = 0;
                world.run(ends + MS(500), |w| w.saturate(from, to, 1, &mut next, 1400, 3));
                let first = world.delivered[to].iter().map(|(at, ..)| *at).find(|at| *at > ends).expect("it goes on");
                assert!(first.since(ends) <= MS(150), "{:?} after an outage of {seconds} s", first.since(ends));
                assert_in_order(&world.labels(to));
                let states: Vec<State> = world
                    .events
                    .iter()
                    .filter_map(|(s, e)| {
                        if let (Event::State { state, .. }, true) = (e, *s == from) { Some(*state) } else { None }
                    })
                    .collect();
                assert_eq!(states, [State::Suspect, State::Good]);
            }
        }
    }
}

/// TCP doubles its timeout: after an outage of a minute it is silent for up to another one, unless some of
/// what it sent has waited for the end.
#[test]
fn what_waited_longest_and_shortest_wakes_its_sender_after_any_outage() {
    for seconds in [60, 300] {
        let (begins, ends) = (Time::from_secs(1), Time::from_secs(1 + seconds));
        let mut medium = Medium::new(1);
        medium.bad[0] = vec![(begins, ends)];
        let mut world = World::new(&Config { rate: Some(Rate::mbit(1)), ..Config::default() }, medium, 1);
        // Two flows that listen and one that does not, of which nobody wants to hear minutes later.
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
        // The second of all is the first that found the channel bad.
        assert_eq!(labels, [(1, 2), (1, number), (2, 2), (2, number)], "after {seconds} s");
        let latest = times[3].since(ends);
        assert!(latest <= MS(1200), "{latest:?} after an outage of {seconds} s");
        assert_eq!(world.view(0, 1).queue_packets, 0);
    }
}

/// They are for the life of the other end that they were meant for, and not for ever.
#[test]
fn what_waits_for_the_end_of_an_outage_is_not_for_another_nor_for_ever() {
    for (seconds, restarts) in [(60, true), (620, false)] {
        let (begins, ends) = (Time::from_secs(1), Time::from_secs(1 + seconds));
        let mut medium = Medium::new(1);
        medium.bad[0] = vec![(begins, ends)];
        let mut world = World::new(&Config { rate: Some(Rate::mbit(1)), ..Config::default() }, medium, 1);
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
fn only_probes_go_into_an_outage() {
    let mut medium = Medium::new(1);
    medium.bad[0] = vec![(Time::from_secs(1), Time::from_secs(31))];
    let mut world = World::new(&Config { rate: Some(Rate::mbit(1)), ..Config::default() }, medium, 1);
    let mut next = 0;
    world.run(Time::from_secs(2), |w| w.saturate(0, 1, 1, &mut next, 1400, 3));
    let before = world.links[0].stats(common::peer(1)).copied().expect("a destination");
    world.run(Time::from_secs(30), |w| w.saturate(0, 1, 1, &mut next, 1400, 3));
    let after = world.links[0].stats(common::peer(1)).copied().expect("a destination");
    assert_eq!(after.data_frames, before.data_frames);
    assert!((280..=360).contains(&(after.rts - before.rts)), "{} probes", after.rts - before.rts);
}

/// Whether the layer below tells or the frames do, nothing that its last life delivered is delivered to the next.
#[test]
fn an_end_that_starts_again_is_recognised() {
    for (case, loss) in (0..8).zip([0.0, 0.2].into_iter().cycle()) {
        let (restarted, is_told) = (case / 2 % 2, case < 4);
        let mut medium = Medium::new(1);
        medium.loss = loss;
        // Of what arrives at last nothing is acknowledged.
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
            // All that was handed over after the restart has arrived.
            assert!(labels.ends_with(&(100..200).map(|n| (flow, n)).collect::<Vec<_>>()), "{labels:?}");
        }
    }
}

#[test]
fn numbers_wrap_around() {
    // A life whose first number is just below 2^16.
    let first = |seed: u64| {
        let mut link = Link::new(Config::default(), seed, Time::ZERO);
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
fn without_retransmission_each_frame_goes_once() {
    let mut medium = Medium::new(1);
    medium.loss = 0.3;
    let config = Config { mode: Mode::None, ..keeping(Some(Rate::mbit(1))) };
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
fn what_does_not_fit_is_counted() {
    let config = Config { queue_packets_max: 10, rate: Some(Rate::mbit(1)), ..Config::default() };
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

/// Nothing comes after it that would tell the other end not to wait for it.
#[test]
fn the_last_gap_is_told_when_it_is_given_up() {
    let twice = Limits { attempts: 2, lifetime: Duration::from_secs(60) };
    let limits = PerClass { interactive: twice, default: twice, bulk: twice, probe: twice };
    let mut medium = Medium::new(1);
    medium.delay = MS(20);
    // The first packet is lost, and again when it is sent again.
    medium.bad[0] = [(999, 1002), (1045, 1100)].map(|(b, e)| (Time::from_millis(b), Time::from_millis(e))).to_vec();
    let mut world = World::new(&Config { limits, ..keeping(Some(Rate::mbit(1))) }, medium, 1);
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

/// Numbers are told by their low bytes where that is enough, and many are under way.
#[test]
fn frames_that_come_late_are_not_taken_for_others() {
    for later in [1, 20, SHORT_LATE_MAX] {
        let mut medium = Medium::new(1);
        (medium.rate, medium.half_duplex, medium.delay) = (Rate::mbit(10), false, MS(50));
        // Some of them are sent for the second time, when their numbers are far behind.
        (medium.loss, medium.overtaken) = (0.05, Some((7, later)));
        let mut world = World::new(&Config { duplex: Duplex::Full, ..keeping(Some(Rate::mbit(10))) }, medium, 1);
        let mut next = 0;
        world.run(Time::from_secs(5), |w| w.saturate(0, 1, 1, &mut next, 1400, 30));
        world.run(Time::from_secs(6), |_| {});
        let all: Vec<_> = (0..next).map(|number| (1, number)).collect();
        assert!(next > 3000 && world.labels(1) == all, "{next} packets, late by {later}");
    }
}
