//! The pacer by hand: what it lets go, with a rate that is told and one that is learned.

use std::collections::VecDeque;

use super::*;

const FRAME: u64 = 1500;

/// How long after the answer to the first of `frames` frames, sent at once, the device is
/// taken to have room, if the answer comes after `ms` milliseconds.
fn opens_after(frames: u32, ms: u64) -> Duration {
    opens_behind(0, frames, ms)
}

/// The same if the answer comes behind `others` short frames.
fn opens_behind(others: u32, frames: u32, ms: u64) -> Duration {
    let config = Config { rate: Some(Rate::mbit(1)), ..Config::default() };
    let (mut pacer, mut lag) = (Pacer::new(&config, Time::ZERO), Lag::default());
    lag.sample(Time::ZERO, Duration::from_millis(5), None);
    let first = pacer.send(Time::ZERO, FRAME, true, &config);
    for _ in 1..frames {
        pacer.send(Time::ZERO, FRAME, true, &config);
    }
    let answered = Time::from_millis(ms);
    // The answer itself is one of them.
    for _ in 0..others + u32::from(others > 0) {
        pacer.heard(answered, 100, true, &config);
    }
    pacer.confirm(answered, &first, true, 0, &lag, &config);
    pacer.opens_at(&config).map_or(Duration::MAX, |at| at.since(answered))
}

#[test]
fn a_late_answer_tells_of_no_more_than_the_device_can_hold() {
    let frame = Duration::from_millis(12);
    // Nothing was sent after it: it waited elsewhere, at the other end or for a cell switch.
    assert_eq!(opens_after(1, 1000), Duration::ZERO);
    // One frame may still be there, with one of another station before it.
    assert!(opens_after(2, 1000) <= frame * 2, "{:?}", opens_after(2, 1000));
    // So may nine.
    assert!(opens_after(10, 300) >= frame * 9, "{:?}", opens_after(10, 300));
    // An answer in time tells that a device thought to be full is not.
    assert!(opens_after(3, 17) <= frame * 4);
}

/// Stations take turns: each of the frames before the answer had one of ours before it.
#[test]
fn an_answer_late_for_what_came_before_it_tells_of_no_device_that_is_behind() {
    let frame = Duration::from_millis(12);
    assert!(opens_behind(0, 4, 47) >= frame * 2, "{:?}", opens_behind(0, 4, 47));
    assert!(opens_behind(2, 4, 47) <= frame / 2, "{:?}", opens_behind(2, 4, 47));
    // What so little does not account for does.
    assert!(opens_behind(20, 4, 80) >= frame * 2, "{:?}", opens_behind(20, 4, 80));
}

#[test]
fn answers_that_come_early_do_not_raise_the_rate_we_were_told() {
    let config = Config { rate: Some(Rate::mbit(1)), ..Config::default() };
    let (mut pacer, lag) = (Pacer::new(&config, Time::ZERO), Lag::default());
    // A hop a hundred times as fast, whose answers come at once.
    let mut sent = 0;
    for ms in 0..1000 {
        let now = Time::from_millis(ms);
        while pacer.gate(now, &config) == Gate::Open {
            let departure = pacer.send(now, FRAME, true, &config);
            pacer.confirm(now + Duration::from_micros(200), &departure, true, 0, &lag, &config);
            sent += FRAME;
        }
    }
    let told = config.rate.map_or(0, |rate| rate.bits() / 8);
    assert!((told - 2 * FRAME..=told + 2 * FRAME).contains(&sent), "{sent} of {told}");
}

/// A long way, where probes and something small go for a while before there is more to send.
#[test]
fn probes_in_a_pause_do_not_make_a_hop_seem_slow() {
    let config = Config { rate: Some(Rate::mbit(1)), duplex: Duplex::Full, ..Config::default() };
    let (trip, lag) = (Duration::from_millis(600), Lag::default());
    let mut pacer = Pacer::new(&config, Time::ZERO);
    let mut answers: VecDeque<(Time, Departure)> = VecDeque::new();
    let mut least = u64::MAX;
    for ms in 0..5000 {
        let now = Time::from_millis(ms);
        while let Some((_, departure)) = answers.front().copied().filter(|(at, _)| *at <= now) {
            answers.pop_front();
            pacer.confirm(now, &departure, true, 0, &lag, &config);
            least = least.min(pacer.product());
        }
        let is_bulk = ms >= 1200;
        let cost = if is_bulk { FRAME } else { 60 };
        let is_data = is_bulk || ms == 0;
        if (is_bulk || ms % 6 == 0) && pacer.gate(now, &config) == Gate::Open {
            let departure = pacer.send(now, cost, is_data, &config);
            answers.push_back((departure.at + trip, departure));
        }
    }
    let carried = Rate::mbit(1).bits() / 8 * 6 / 10;
    assert!(least >= carried * 9 / 10, "{least} of {carried} bytes may be under way");
}

/// Another destination's few frames, each by itself, are no train and tell of no rate.
#[test]
fn a_rate_that_nobody_has_seen_is_not_taken_to_have_found_its_level() {
    let config = Config { rate: None, duplex: Duplex::Full, ..Config::default() };
    let (mut pacer, lag) = (Pacer::new(&config, Time::ZERO), Lag::default());
    for n in 0..10 {
        let now = Time::from_millis(20 * n);
        let alone = pacer.send(now, 60, true, &config);
        pacer.confirm(now + Duration::from_millis(20), &alone, true, 0, &lag, &config);
    }
    let now = Time::from_millis(200);
    let mut sent = 0;
    while sent < 100 && pacer.gate(now, &config) == Gate::Open {
        pacer.send(now, FRAME, true, &config);
        sent += 1;
    }
    assert!(sent >= FIRST_FRAMES, "{sent} frames at once");
}
