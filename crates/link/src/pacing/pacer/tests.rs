//! Tests of the pacer with a configured and with a learned rate.

use std::collections::VecDeque;

use super::*;

const FRAME: u64 = 1500;

/// Delay from the acknowledgement of the first of `frames` frames, sent back to back, until the pacer opens, if the
/// acknowledgement comes after `ms` milliseconds.
fn opens_after(frames: u32, ms: u64) -> Duration {
    opens_behind(0, frames, ms)
}

/// The same if `others` short frames precede the acknowledgement.
fn opens_behind(others: u32, frames: u32, ms: u64) -> Duration {
    let config = LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() };
    let (mut pacer, mut ack_delay) = (Pacer::new(&config, Time::ZERO), AckDelay::default());
    ack_delay.sample(Time::ZERO, Duration::from_millis(5), None);
    let first = pacer.send(Time::ZERO, FRAME, true, &config);
    for _ in 1..frames {
        pacer.send(Time::ZERO, FRAME, true, &config);
    }
    let answered = Time::from_millis(ms);
    // The acknowledgement itself is one of them.
    for _ in 0..others + u32::from(others > 0) {
        pacer.heard(answered, 100, true, &config);
    }
    pacer.confirm(answered, &first, true, 0, &ack_delay, &config);
    pacer.opens_at(&config).map_or(Duration::MAX, |at| at.since(answered))
}

#[test]
fn late_ack_adds_at_most_what_device_can_hold() {
    let frame = Duration::from_millis(12);
    // Nothing was sent after it: the delay arose elsewhere, at the peer or in a handoff.
    assert_eq!(opens_after(1, 1000), Duration::ZERO);
    // One frame may still be in the device, with one of another station before it.
    assert!(opens_after(2, 1000) <= frame * 2, "{:?}", opens_after(2, 1000));
    // So may nine.
    assert!(opens_after(10, 300) >= frame * 9, "{:?}", opens_after(10, 300));
    // A timely acknowledgement shows that the device is not full.
    assert!(opens_after(3, 17) <= frame * 4);
}

/// Stations take turns: each frame before the acknowledgement had one of ours before it.
#[test]
fn ack_behind_peer_frames_does_not_delay_pacer() {
    let frame = Duration::from_millis(12);
    assert!(opens_behind(0, 4, 47) >= frame * 2, "{:?}", opens_behind(0, 4, 47));
    assert!(opens_behind(2, 4, 47) <= frame / 2, "{:?}", opens_behind(2, 4, 47));
    // Two frames before it do not explain this delay.
    assert!(opens_behind(20, 4, 80) >= frame * 2, "{:?}", opens_behind(20, 4, 80));
}

#[test]
fn early_acks_do_not_raise_configured_rate() {
    let config = LinkConfig { rate: Some(Rate::mbit(1)), ..LinkConfig::default() };
    let (mut pacer, ack_delay) = (Pacer::new(&config, Time::ZERO), AckDelay::default());
    // A hop a hundred times faster, with immediate acknowledgements.
    let mut sent = 0;
    for ms in 0..1000 {
        let now = Time::from_millis(ms);
        while pacer.gate(now, &config) == Gate::Open {
            let departure = pacer.send(now, FRAME, true, &config);
            pacer.confirm(now + Duration::from_micros(200), &departure, true, 0, &ack_delay, &config);
            sent += FRAME;
        }
    }
    let allowed = config.rate.map_or(0, |rate| rate.bits() / 8);
    assert!((allowed - 2 * FRAME..=allowed + 2 * FRAME).contains(&sent), "{sent} of {allowed}");
}

/// A hop with a long RTT, idle but for probes and one small frame before a bulk transfer.
#[test]
fn probes_in_pause_do_not_lower_delivery_rate() {
    let config = LinkConfig { rate: Some(Rate::mbit(1)), duplex: Duplex::Full, ..LinkConfig::default() };
    let (trip, ack_delay) = (Duration::from_millis(600), AckDelay::default());
    let mut pacer = Pacer::new(&config, Time::ZERO);
    let mut answers: VecDeque<(Time, Departure)> = VecDeque::new();
    let mut least = u64::MAX;
    for ms in 0..5000 {
        let now = Time::from_millis(ms);
        while let Some((_, departure)) = answers.front().copied().filter(|(at, _)| *at <= now) {
            answers.pop_front();
            pacer.confirm(now, &departure, true, 0, &ack_delay, &config);
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

/// Single frames of another destination form no train.
#[test]
fn small_frames_alone_do_not_end_rate_search() {
    let config = LinkConfig { rate: None, duplex: Duplex::Full, ..LinkConfig::default() };
    let (mut pacer, ack_delay) = (Pacer::new(&config, Time::ZERO), AckDelay::default());
    for n in 0..10 {
        let now = Time::from_millis(20 * n);
        let alone = pacer.send(now, 60, true, &config);
        pacer.confirm(now + Duration::from_millis(20), &alone, true, 0, &ack_delay, &config);
    }
    let now = Time::from_millis(200);
    let mut sent = 0;
    while sent < 100 && pacer.gate(now, &config) == Gate::Open {
        pacer.send(now, FRAME, true, &config);
        sent += 1;
    }
    assert!(sent >= FIRST_FRAMES, "{sent} frames at once");
}
