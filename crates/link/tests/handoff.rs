//! The hand-off signal, from either end, heard and lost.

mod common;

use std::time::Duration;

use common::{Medium, World};
use remora_base::{Rate, Time};
use remora_link::{Config, Event, HandOffPhase, State};

const BEGIN: HandOffPhase = HandOffPhase::Begin { expected: Duration::from_millis(300) };

fn world(bad: &[(u64, u64)]) -> World {
    let mut medium = Medium::new(1);
    medium.bad[0] = bad.iter().map(|(b, e)| (Time::from_millis(*b), Time::from_millis(*e))).collect();
    World::new(&Config { rate: Some(Rate::mbit(1)), ..Config::default() }, medium, 4)
}

fn phases(world: &World, station: usize) -> Vec<HandOffPhase> {
    let of = |(s, e): &(usize, Event)| match e {
        Event::HandOff { phase, .. } if *s == station => Some(*phase),
        _ => None,
    };
    world.events.iter().filter_map(of).collect()
}

fn deliveries(world: &World, to: usize, from_ms: u64, to_ms: u64) -> usize {
    let within = Time::from_millis(from_ms)..Time::from_millis(to_ms);
    world.delivered[to].iter().filter(|(at, ..)| within.contains(at)).count()
}

#[test]
fn both_ends_hold_what_they_have_and_go_on_at_once() {
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
        assert_eq!(world.view(0, 1).state, State::HandOff);
        assert_eq!(world.view(1, 0).state, State::HandOff);
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
fn a_signal_that_is_lost_is_repeated_and_told_once() {
    let mut world = world(&[(990, 1100), (1390, 1500)]);
    world.run(Time::from_secs(1), |_| {});
    world.links[1].announce_handoff(world.now, BEGIN);
    world.run(Time::from_millis(1350), |_| {});
    assert_eq!(phases(&world, 0), [BEGIN]);
    world.run(Time::from_millis(1400), |_| {});
    world.links[1].announce_handoff(world.now, HandOffPhase::End);
    world.run(Time::from_secs(2), |_| {});
    assert_eq!(phases(&world, 0), [BEGIN, HandOffPhase::End]);
}

#[test]
fn a_switch_whose_end_is_never_told_does_not_hold_for_ever() {
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
