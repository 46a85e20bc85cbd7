//! Ends that have to wait for a processor: on a fast link between busy machines nothing is given up that
//! would arrive in time, and on a slow one what has no hope is, whether the machines are busy or not.
//! `cargo test -p remora-atp --test session_pauses -- --nocapture` prints how long it takes.

mod session_world;

use std::time::Duration;

use remora_atp::{Options, Outcome, Priority};
use remora_base::{Rng, Time};
use session_world::{Link, World, object};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Pauses of up to `longest` after up to 6 ms of work, for some minutes.
fn pauses(seed: u64, of: &str, longest: Duration) -> Vec<(Time, Time)> {
    let (mut rng, mut at, mut pauses) = (Rng::stream(seed, of), Time::from_secs(1), Vec::new());
    while at < Time::from_secs(201) {
        let from = at + (6 * MS).mul_f64(rng.unit());
        at = from + longest.mul_f64(0.1 + 0.9 * rng.unit());
        pauses.push((from, at));
    }
    pauses
}

/// A pair of which one end, or both, pause.
fn busy(seed: u64, link: Link, ends: &[usize], longest: Duration) -> World {
    let mut world = World::pair(seed, link);
    for end in ends {
        world.nodes[*end].pauses = pauses(seed, &format!("end {end}"), longest);
    }
    world
}

/// How an object of 1 MB ends on a link that carries it in 10 ms, and after how long.
fn carried(seed: u64, ends: &[usize], longest: Duration, deadline: Option<Duration>) -> (Option<Outcome>, Duration) {
    let mut world = busy(seed, Link::new(100_000_000, MS / 20), ends, longest);
    let peer = world.meet();
    let start = world.now;
    let request = world.send(1, peer, object(1, 1_000_000), Options { deadline, ..Options::default() });
    world.run_until(start + 150 * SECOND, |w| w.outcome(1, request).is_some());
    (world.outcome(1, request), world.now.since(start))
}

#[test]
fn nothing_is_given_up_on_a_fast_link_between_busy_machines() {
    for ends in [&[0][..], &[1], &[0, 1]] {
        for (longest, seed) in [10 * MS, 50 * MS, 200 * MS].into_iter().flat_map(|l| (0..4).map(move |seed| (l, seed)))
        {
            let name = format!("end {ends:?}, pauses up to {longest:?}, seed {seed}");
            let (outcome, alone) = carried(seed, ends, longest, None);
            assert_eq!(outcome, Some(Outcome::Delivered), "{name}");
            println!("{name}: {alone:?}");
            for deadline in [2 * alone, SECOND, 5 * SECOND] {
                let (outcome, took) = carried(seed, ends, longest, Some(deadline));
                if deadline >= 2 * alone {
                    assert_eq!(outcome, Some(Outcome::Delivered), "{name}: {took:?} of {deadline:?}");
                }
                // The link itself would carry it many times over in the other half.
                let is_early = outcome == Some(Outcome::Evicted) && took < deadline / 2;
                assert!(!is_early, "{name}: given up after {took:?} of {deadline:?}");
            }
        }
    }
}

#[test]
fn what_has_no_hope_on_a_slow_link_is_given_up_in_good_time() {
    // Bytes a second, the longest pause, and when it is to be clear.
    let cases = [
        (5_000, Duration::ZERO, 2 * SECOND),
        (50_000, Duration::ZERO, 3 * SECOND / 4),
        (50_000, 10 * MS, SECOND),
        (50_000, 50 * MS, 3 * SECOND / 2),
        (200_000, Duration::ZERO, SECOND / 2),
    ];
    for (rate, longest, within) in cases {
        for seed in 0..3 {
            let name = format!("{rate} B/s, pauses up to {longest:?}, seed {seed}");
            let ends: &[usize] = if longest.is_zero() { &[] } else { &[0, 1] };
            let mut world = busy(seed, Link::new(rate, 20 * MS), ends, longest);
            let peer = world.meet();
            let start = world.now;
            let due = |priority| Options { priority, deadline: Some(6 * SECOND), ..Options::default() };
            let never = world.send(1, peer, object(1, 3_000_000), due(Priority::HIGH));
            let fits = world.send(1, peer, object(2, rate as usize), due(Priority::LOW));
            world.run_for(7 * SECOND);
            let end = world.finals(1).into_iter().find(|f| f.request == never).expect("an end");
            let took = end.at.since(start);
            println!("{name}: {:?} after {took:?}", end.outcome);
            assert_eq!(end.outcome, Outcome::Evicted, "{name}");
            assert!(took <= within, "{name}: {took:?}");
            assert_eq!(world.outcome(1, fits), Some(Outcome::Delivered), "{name}");
        }
    }
}

/// Small objects show nothing of the link's rate: their gaps are the sender's and the receiver's own time.
#[test]
fn transfer_after_small_objects_runs_at_the_link_rate() {
    for seed in 0..6 {
        let mut world = busy(seed, Link::new(100_000_000, MS / 20), &[0, 1], 3 * MS);
        let peer = world.meet();
        for i in 0..1000 {
            world.send(1, peer, object(1, 20 + i % 100), Options::default());
            world.run_for(2 * MS);
        }
        let start = world.now;
        let large = world.send(1, peer, object(2, 10_000_000), Options::default());
        world.run_until(start + 20 * SECOND, |w| w.outcome(1, large).is_some());
        let took = world.now.since(start);
        println!("seed {seed}: {took:?}");
        // The link takes 100 ms, in about half of which an end pauses.
        assert!(took < SECOND, "seed {seed}: {took:?}");
    }
}

/// The first gap makes the first estimate, and the estimate recovers at once if that gap was a pause of the receiver.
#[test]
fn transfer_after_pause_in_first_burst_runs_at_link_rate() {
    for coalesced in [Duration::ZERO, MS / 10] {
        for pause in [MS, 5 * MS, 30 * MS, 200 * MS] {
            let mut world = World::pair(7, Link::new(100_000_000, MS / 20));
            let peer = world.meet();
            world.run_for(SECOND);
            // The first packet has arrived by then, and the second one has not.
            let from = world.now + Duration::from_micros(70);
            world.nodes[0].pauses.push((from, from + pause));
            world.coalesced = coalesced;
            let start = world.now;
            let request = world.send(1, peer, object(2, 20_000_000), Options::default());
            world.run_until(start + 60 * SECOND, |w| w.outcome(1, request).is_some());
            let took = world.now.since(start);
            println!("pause {pause:?}, together within {coalesced:?}: {took:?}");
            assert!(took < SECOND, "pause {pause:?}, together within {coalesced:?}: {took:?}");
        }
    }
}
