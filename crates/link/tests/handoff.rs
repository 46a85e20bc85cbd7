//! The handoff signal from either end, received and lost.

mod common;

use std::time::Duration;

use common::{Medium, World, packet};
use remora_base::{Core, Rate, Time};
use remora_link::{Class, Duplex, HandOffPhase, LinkConfig, LinkEvent, PeerState};
use remora_wire::link::{Announcement, Frame, HandOff};

const BEGIN: HandOffPhase = HandOffPhase::Begin { expected: Duration::from_millis(300) };

fn world(bad: &[(u64, u64)]) -> World {
    let mut medium = Medium::new(1);
    medium.bad[0] = bad.iter().map(|(b, e)| (Time::from_millis(*b), Time::from_millis(*e))).collect();
    World::new(&LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() }, medium, 4)
}

fn phases(world: &World, station: usize) -> Vec<HandOffPhase> {
    let of = |(s, e): &(usize, LinkEvent)| match e {
        LinkEvent::HandOff { phase, .. } if *s == station => Some(*phase),
        _ => None,
    };
    world.events.iter().filter_map(of).collect()
}

fn deliveries(world: &World, to: usize, from_ms: u64, to_ms: u64) -> usize {
    let within = Time::from_millis(from_ms)..Time::from_millis(to_ms);
    world.delivered[to].iter().filter(|(at, ..)| within.contains(at)).count()
}

#[test]
fn handoff_holds_both_ends_until_its_end() {
    for announcer in [0, 1] {
        let mut world = world(&[(1100, 1400)]);
        let mut next = 0;
        let mut go = |w: &mut World, until: u64| {
            w.run(Time::from_millis(until), |w| {
                w.saturate(0, 1, 1, &mut next, 1400, 3);
                w.saturate(1, 0, 2, &mut next, 1400, 3);
            });
        };
        go(&mut world, 1000);
        world.links[announcer].announce_handoff(world.now, BEGIN);
        go(&mut world, 1100);
        let lost = world.lost;
        assert_eq!(world.view(0, 1).state, PeerState::HandOff);
        assert_eq!(world.view(1, 0).state, PeerState::HandOff);
        go(&mut world, 1400);
        assert_eq!(world.lost, lost, "something was sent into the gap");
        world.links[announcer].announce_handoff(world.now, HandOffPhase::End);
        go(&mut world, 2000);
        assert_eq!(phases(&world, 1 - announcer), [BEGIN, HandOffPhase::End]);
        assert_eq!(phases(&world, announcer), []);
        for to in [0, 1] {
            assert!(deliveries(&world, to, 1400, 1460) > 0, "station {to} goes on at once");
            assert!(deliveries(&world, to, 1500, 2000) > 12, "station {to} goes on");
        }
    }
}

#[test]
fn lost_handoff_signal_is_repeated_and_reported_once() {
    let mut world = world(&[(990, 1100), (1390, 1500)]);
    world.run(Time::from_secs(1), |_| {});
    world.links[1].announce_handoff(world.now, BEGIN);
    world.run(Time::from_millis(1350), |_| {});
    // Repetitions after 20, 60 and 140 ms; half of the elapsed time is subtracted.
    let begin = HandOffPhase::Begin { expected: Duration::from_millis(230) };
    assert_eq!(phases(&world, 0), [begin]);
    world.run(Time::from_millis(1400), |_| {});
    world.links[1].announce_handoff(world.now, HandOffPhase::End);
    world.run(Time::from_secs(2), |_| {});
    assert_eq!(phases(&world, 0), [begin, HandOffPhase::End]);
}

#[test]
fn handoff_without_end_signal_times_out() {
    for announcer in [0, 1] {
        let mut world = world(&[]);
        let mut next = 0;
        world.run(Time::from_secs(1), |_| {});
        world.links[announcer].announce_handoff(world.now, BEGIN);
        world.run(Time::from_secs(4), |w| {
            w.saturate(0, 1, 1, &mut next, 1400, 3);
            w.saturate(1, 0, 2, &mut next, 1400, 3);
        });
        // Twice 300 ms and a second.
        assert_eq!(phases(&world, 1 - announcer), [BEGIN, HandOffPhase::End]);
        for to in [0, 1] {
            assert_eq!(deliveries(&world, to, 1100, 2590), 0);
            assert!(deliveries(&world, to, 2600, 2700) > 0, "station {to} goes on");
        }
    }
}

fn base_holds(world: &World) -> bool {
    world.view(0, 1).state == PeerState::HandOff
}

#[test]
fn late_handoff_signal_does_not_extend_hold() {
    let mut world = world(&[(990, 1250)]);
    world.run(Time::from_secs(1), |_| {});
    world.links[1].announce_handoff(world.now, BEGIN);
    // Twice 300 ms and a second after the announcement, as at the mobile.
    world.run(Time::from_millis(2590), |_| {});
    assert!(base_holds(&world));
    world.run(Time::from_millis(2610), |_| {});
    assert!(!base_holds(&world));
}

#[test]
fn unheard_handoff_signal_expires_with_handoff() {
    let mut world = world(&[(990, 2650)]);
    world.run(Time::from_secs(1), |_| {});
    world.links[1].announce_handoff(world.now, BEGIN);
    world.run(Time::from_secs(5), |w| assert!(!base_holds(w), "{:?}", w.now));
    assert_eq!(phases(&world, 0), []);
}

/// Packets delivered to the sixth mobile in two minutes, while the other five are unreachable; the base may announce a
/// handoff.
fn given_beside_silent_ones(announces: bool) -> usize {
    let mut medium = Medium::new(6);
    medium.rate = Rate::from_bits(9600).unwrap();
    medium.bad[..5].fill(vec![(Time::ZERO, Time::MAX)]);
    let mut world = World::new(&LinkConfig { rate: Some(medium.rate), ..LinkConfig::default() }, medium, 4);
    let mut next = 0;
    let mut go = |w: &mut World, until: u64| {
        w.run(Time::from_secs(until), |w| w.saturate(0, 6, 1, &mut next, 400, 3));
    };
    go(&mut world, 1);
    if announces {
        world.links[0].announce_handoff(world.now, HandOffPhase::Begin { expected: Duration::from_secs(1) });
        go(&mut world, 2);
        world.links[0].announce_handoff(world.now, HandOffPhase::End);
    }
    go(&mut world, 2);
    let before = world.delivered[6].len();
    go(&mut world, 122);
    world.delivered[6].len() - before
}

#[test]
fn unheard_handoff_signals_leave_share_of_others() {
    let [with, without] = [true, false].map(given_beside_silent_ones);
    assert!(with * 100 >= without * 80, "{with} packets, {without} without");
}

/// A mobile in a handoff does not acknowledge frames in flight to it.
#[test]
fn mobile_in_handoff_leaves_window_to_others() {
    for rate in [None, Some(Rate::mbit(10))] {
        let mut medium = Medium::new(2);
        (medium.rate, medium.half_duplex, medium.delay) = (Rate::mbit(10), false, Duration::from_millis(50));
        let mut world = World::new(&LinkConfig { rate, duplex: Duplex::Full, ..LinkConfig::default() }, medium, 4);
        let mut next = 0;
        world.run(Time::from_secs(3), |w| w.saturate(0, 1, 1, &mut next, 1400, 30));
        world.links[1].announce_handoff(world.now, HandOffPhase::Begin { expected: Duration::from_secs(3) });
        world.run(Time::from_millis(3200), |w| w.saturate(0, 1, 1, &mut next, 1400, 30));
        assert_eq!(world.view(0, 1).state, PeerState::HandOff);
        world.send(0, 2, packet(2, 0, 100, Class::Default));
        world.run(Time::from_millis(3400), |_| {});
        assert_eq!(world.labels(2), [(2, 0)], "rate known: {}", rate.is_some());
    }
}

/// One mobile announces a long handoff and restarts during it, with a new epoch, or with the same one if `same`.
fn killed(same: bool) -> World {
    let mut world = world(&[]);
    let mut next = 0;
    world.run(Time::from_secs(1), |w| {
        w.saturate(0, 1, 1, &mut next, 1400, 3);
        w.saturate(1, 0, 2, &mut next, 1400, 3);
    });
    world.links[1].announce_handoff(world.now, HandOffPhase::Begin { expected: Duration::from_secs(60) });
    world.run(Time::from_millis(1500), |_| {});
    assert_eq!(world.view(0, 1).state, PeerState::HandOff);
    world.restart(1, if same { 4 } else { 77 });
    world.delivered.iter_mut().for_each(Vec::clear);
    world
}

const HELD: HandOffPhase = HandOffPhase::Begin { expected: Duration::from_secs(60) };

#[test]
fn restart_during_handoff_ends_it() {
    let mut world = killed(false);
    let mut next = 100_000;
    world.run(Time::from_millis(2500), |w| {
        w.saturate(0, 1, 1, &mut next, 1400, 3);
        w.saturate(1, 0, 2, &mut next, 1400, 3);
    });
    assert_eq!(phases(&world, 0), [HELD, HandOffPhase::End]);
    for to in [0, 1] {
        assert!(deliveries(&world, to, 1500, 1650) > 0, "station {to} goes on at once");
        assert!(deliveries(&world, to, 1650, 2500) > 20, "station {to} goes on");
    }
}

#[test]
fn removal_of_peer_ends_its_handoff() {
    for switches in [true, false] {
        let mut world = world(&[]);
        if switches {
            world.links[1].announce_handoff(world.now, HELD);
        }
        world.run(Time::from_secs(1), |_| {});
        assert_eq!(world.view(0, 1).state == PeerState::HandOff, switches);
        world.links[0].remove_peer(world.now, common::peer(1));
        let told = std::iter::from_fn(|| world.links[0].poll_event()).collect::<Vec<_>>();
        let end = LinkEvent::HandOff { peer: common::peer(1), phase: HandOffPhase::End };
        assert_eq!(told, if switches { vec![end] } else { vec![] });
    }
}

#[test]
fn handoff_signal_of_past_epoch_is_refused() {
    let mut world = killed(false);
    world.send(1, 0, packet(2, 0, 100, Class::Default));
    world.run(Time::from_millis(1600), |_| {});
    assert_eq!(world.view(0, 1).state, PeerState::Good);
    let announcement = Announcement { epoch: first_life(), id: 7 };
    world.inject(1, 0, Frame::HandOff(HandOff { announcement, expected_ms: Some(60_000) }).to_bytes());
    assert_eq!((world.view(0, 1).state, phases(&world, 0)), (PeerState::Good, vec![HELD, HandOffPhase::End]));
}

/// The first epoch of the restarted mobile.
fn first_life() -> u16 {
    let mut world = world(&[]);
    world.links[1].announce_handoff(Time::ZERO, HELD);
    match world.links[1].poll_transmit(Time::ZERO).map(|t| Frame::decode(t.payload)) {
        Some(Ok(Frame::HandOff(signal))) => signal.announcement.epoch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn reported_restart_ends_handoff() {
    // The mobile sends nothing after its restart, or its new epoch equals the old one. Without the report of the layer
    // below nobody detects the restart.
    for same in [false, true] {
        let mut world = killed(same);
        let now = world.now;
        world.links[0].restarted(now, common::peer(1));
        let mut next = 100_000;
        world.run(Time::from_millis(2500), |w| {
            w.saturate(0, 1, 1, &mut next, 1400, 3);
            if same {
                w.saturate(1, 0, 2, &mut next, 1400, 3);
            }
        });
        assert_eq!(phases(&world, 0), [HELD, HandOffPhase::End]);
        assert!(deliveries(&world, 1, 1500, 1650) > 0, "it goes on at once");
        assert!(deliveries(&world, 1, 1650, 2500) > 20, "it goes on");
        let numbers: Vec<u32> = world.labels(0).into_iter().map(|(_, number)| number).collect();
        assert!(numbers.is_sorted() && numbers.first().is_none_or(|n| *n >= 100_000), "{numbers:?}");
        assert!(!same || deliveries(&world, 0, 1500, 2500) > 20, "{numbers:?}");
    }
}

/// The acknowledgement waited for the end of the handoff and is no sample of the delay.
#[test]
fn handoff_does_not_delay_outage_detection() {
    let mut world = world(&[(4050, 4350)]);
    let mut next = 0;
    for _ in 0..20 {
        world.send(1, 0, packet(2, next, 1400, Class::Default));
        world.run(world.now + Duration::from_millis(50), |_| {});
        next += 1;
    }
    world.send(1, 0, packet(2, next, 1400, Class::Default));
    world.links[1].announce_handoff(world.now, HandOffPhase::Begin { expected: Duration::from_secs(3) });
    world.run(Time::from_secs(4), |_| {});
    world.links[1].announce_handoff(world.now, HandOffPhase::End);
    let mut go = |w: &mut World, until: u64| {
        w.run(Time::from_millis(until), |w| w.saturate(1, 0, 2, &mut next, 1400, 3));
    };
    go(&mut world, 4050);
    let round_trip = world.view(1, 0).round_trip;
    assert!(round_trip.is_some_and(|trip| trip < Duration::from_millis(50)), "{round_trip:?}");
    go(&mut world, 5000);
    assert!(deliveries(&world, 0, 4350, 4450) > 0, "it goes on at once");
    assert!(deliveries(&world, 0, 4450, 5000) > 35, "it goes on");
}
