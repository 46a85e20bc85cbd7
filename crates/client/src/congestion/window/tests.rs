//! The window on modelled paths.

use super::*;

const BLOCK: u32 = 4096;

#[test]
fn window_never_exceeds_the_byte_limit() {
    for rule in [WindowSize::Fixed(1000), WindowSize::Adaptive] {
        let mut w = Window::new(rule, 10 * u64::from(BLOCK));
        (0..2000).for_each(|_| w.on_reply(seen(Some(10.0), 10.0, None)));
        let mut flight = InFlight::default();
        assert_eq!(w.room(flight, BLOCK), 10, "{rule:?}");
        (0..10).for_each(|_| flight.add(BLOCK));
        assert_eq!((w.room(flight, BLOCK), w.opens_at(flight, BLOCK)), (0, None), "{rule:?}");
    }
}

#[test]
fn shorter_blocks_do_not_lengthen_the_queue() {
    let (long, short) = (BLOCK * 5, BLOCK);
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    let reply = |w: &mut Window, bytes, at_ms| {
        w.on_sent(Time::from_millis(at_ms));
        w.on_reply(ReplySample { bytes, sent: Time::from_millis(at_ms), ..seen(Some(400.0), 200.0, Some(200.0)) });
    };
    (1..50).for_each(|n| reply(&mut w, long, n * 200));
    assert_eq!(w.room(InFlight::default(), long), 2);
    w.on_shorter(long, short);
    assert_eq!(w.room(InFlight::default(), short), 2, "of the bytes there would be ten");
    // Replies to the long ones in flight change nothing.
    for at_ms in [49 * 200 - 1, 49 * 200] {
        w.on_reply(ReplySample {
            bytes: long,
            sent: Time::from_millis(at_ms),
            ..seen(Some(400.0), 200.0, Some(200.0))
        });
        assert_eq!(w.room(InFlight::default(), short), 2);
    }
    w.on_shorter(short, long);
    assert_eq!(w.room(InFlight::default(), short), 2, "they are no shorter");
}

fn seen(rtt_ms: Option<f64>, shortest_ms: f64, spacing_ms: Option<f64>) -> ReplySample {
    let ms = |t: f64| Duration::from_secs_f64(t / 1e3);
    ReplySample {
        bytes: BLOCK,
        rtt: rtt_ms.map(ms),
        shortest: Some(ms(shortest_ms)),
        spacing: spacing_ms.map(ms),
        full: true,
        repaired: false,
        sent: Time::ZERO,
        pause: Duration::ZERO,
        jitter: Duration::ZERO,
        repair: Duration::ZERO,
        noise: 0.0,
    }
}

fn admits(w: &Window, flight: InFlight, bytes: u32) -> bool {
    w.opens_at(flight, bytes) == Some(Time::ZERO)
}

fn size(w: &Window) -> u32 {
    w.room(InFlight::default(), BLOCK)
}

/// The window after `replies` on a pipe where a request takes `service` at the bottleneck and `delay` elsewhere.
fn settled(service: f64, delay: f64, paced: bool, replies: u32) -> u32 {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    let shortest = service + delay;
    for n in 0..replies {
        let rtt = shortest.max(f64::from(size(&w)) * service);
        let sent = Time::from_millis(u64::from(n));
        w.on_sent(sent);
        w.on_reply(ReplySample { sent, ..seen(Some(rtt), shortest, Some(service).filter(|_| paced && n > 2)) });
    }
    size(&w)
}

#[test]
fn retransmitting_link_is_kept_busy() {
    let settled = |repair_ms| {
        let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
        for n in 0..2000 {
            let rtt = 110f64.max(f64::from(size(&w)) * 10.0);
            let sent = Time::from_millis(n);
            w.on_sent(sent);
            let repair = Duration::from_millis(repair_ms);
            w.on_reply(ReplySample { sent, repair, ..seen(Some(rtt), 110.0, Some(10.0)) });
        }
        size(&w)
    };
    let (without, with) = (settled(0), settled(100));
    assert!((9..=11).contains(&(with - without)), "{with} after {without}");
}

#[test]
fn keeps_the_pipe_full_and_the_queue_short() {
    for (service, delay) in [(48.0, 5.0), (48.0, 600.0), (5.0, 50.0), (1.0, 100.0)] {
        let pipe: f64 = (service + delay) / service;
        for (paced, replies) in [(false, 5000), (true, 5000), (true, 20)] {
            let w = f64::from(settled(service, delay, paced, replies));
            assert!(w >= pipe && w <= pipe + 3.5, "service {service}, delay {delay}: window {w}, pipe {pipe}");
        }
    }
}

#[test]
fn only_a_long_path_is_filled_from_the_start() {
    for (trip_ms, at_once, later) in [(1, 2, 2), (60, 2, 2), (300, 12, 12), (600, 16, 24), (60_000, 16, 64)] {
        let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
        w.prepare(Duration::from_millis(trip_ms));
        assert_eq!(size(&w), later, "{trip_ms} ms");
        w.on_sent(Time::ZERO);
        let mut flight = InFlight::default();
        let mut last = Time::ZERO;
        for n in 0..later {
            let at = w.opens_at(flight, BLOCK).unwrap_or(Time::MAX);
            assert_eq!(at > Time::ZERO, n >= at_once, "{trip_ms} ms, request {n}: {at:?}");
            assert!(at >= last, "{trip_ms} ms");
            (last, _) = (at, flight.add(BLOCK));
        }
        assert_eq!(w.opens_at(flight, BLOCK), None, "{trip_ms} ms");
        // The first reply comes then; until shortly before there was something to send.
        assert!(last < Time::from_millis(trip_ms.max(1)), "{trip_ms} ms: {last:?}");
    }
}

#[test]
fn fixed_window_never_changes() {
    let mut w = Window::new(WindowSize::Fixed(5), u64::MAX);
    w.prepare(Duration::from_secs(1));
    w.on_reply(seen(Some(9e3), 1.0, Some(1.0)));
    assert_eq!(size(&w), 5);
    assert!(
        !admits(&w, InFlight { requests: 5, bytes: 0 }, 1) && admits(&w, InFlight { requests: 4, bytes: 1 << 40 }, 1)
    );
}

#[test]
fn window_counts_bytes_for_any_block_size() {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    w.prepare(Duration::from_secs(1));
    let mut flight = InFlight::default();
    while admits(&w, flight, 16_384) {
        flight.add(16_384);
    }
    assert_eq!((flight.requests, flight.bytes), (4, 65_536));
}

#[test]
fn repairing_stream_of_tiny_requests_has_a_bounded_window() {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    let tiny = ReplySample { bytes: 100, repaired: true, ..seen(Some(10.0), 10.0, Some(0.0001)) };
    (0..REPAIRED_LEAST_MAX as u32 / 50).for_each(|_| w.on_reply(tiny));
    assert_eq!(w.bytes, REPAIRED_LEAST_MAX as u64, "never less");
    w.on_reply(ReplySample { repaired: false, ..tiny });
    assert_eq!(w.bytes, 100 * REQUESTS_MAX);
}

/// Earlier requests waited in a longer queue.
#[test]
fn queue_shrinks_the_window_once() {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    (0..200).for_each(|_| w.on_reply(seen(Some(10.0), 10.0, None)));
    let open = size(&w);
    let crowded = |sent| ReplySample { sent, ..seen(Some(40.0), 10.0, None) };
    w.on_sent(Time::from_millis(5));
    (0..open * 2).for_each(|_| w.on_reply(crowded(Time::from_millis(4))));
    let less = size(&w);
    assert!(less < open / 2 && less > open / 5, "{less} of {open}");
    (0..open * 2).for_each(|_| w.on_reply(crowded(Time::from_millis(5))));
    assert_eq!(size(&w), less);
    (0..open * 2).for_each(|_| w.on_reply(crowded(Time::from_millis(6))));
    assert!(size(&w) < less);
}

/// A link that carries `each` requests every 50 ms, and nothing between.
#[test]
fn wait_for_a_turn_is_no_queue() {
    let (each, turn) = (15, Duration::from_millis(50));
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    for nth in 0..400u64 {
        let held = size(&w);
        for n in 0..held.min(each) {
            // The rest waits for the next turn.
            let turns = held.div_ceil(each);
            let sent = Time::from_millis(nth * 50);
            let pause = if n == 0 { turn } else { Duration::ZERO };
            w.on_sent(sent);
            w.on_reply(ReplySample { sent, pause, ..seen(Some(f64::from(turns) * 50.0), 5.0, Some(0.01)) });
        }
    }
    assert!((each * 2 / 3..each * 3).contains(&size(&w)), "{}", size(&w));
}

#[test]
fn queue_overflow_halves_the_window_and_a_burst_does_not() {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    (0..200).for_each(|_| w.on_reply(seen(Some(10.0), 10.0, None)));
    let open = size(&w);
    let lost = |n: u32| u64::from(n * BLOCK);
    w.on_losses(lost(open));
    (0..open * 3).for_each(|_| w.on_reply(ReplySample { full: false, ..seen(None, 10.0, None) }));
    assert_eq!(size(&w), open, "one burst that took the whole window");
    for _ in 0..open * 8 {
        w.on_losses(lost(1));
        w.on_reply(ReplySample { full: false, ..seen(None, 10.0, None) });
    }
    assert!(size(&w) <= open / 4, "{} of {open}", size(&w));
}

/// A burst that takes a whole window says nothing of the BDP.
#[test]
fn window_reopens_after_a_burst() {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    let calm = seen(Some(1000.0), 1000.0, Some(10.0));
    let answered = |w: &mut Window, replies: u32| (0..replies).for_each(|_| w.on_reply(calm));
    answered(&mut w, 2);
    let small = size(&w);
    w.on_losses(u64::from(small * BLOCK));
    answered(&mut w, 1);
    assert!(size(&w) <= small && small < 30, "{small}");
    // The round of the burst, one without, and the replies that it takes to open.
    answered(&mut w, 2 * small + 100 / OPENING as u32);
    assert!((100..=105).contains(&size(&w)), "{}", size(&w));
}

/// A BDP of 50 requests where the RTT varies by up to `spread_ms` without a queue.
fn on_a_path_with_jitter(spread_ms: f64, told: bool) -> u32 {
    let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
    let jitter = if told { Duration::from_secs_f64(spread_ms / 1.5e3) } else { Duration::ZERO };
    for n in 0..4000u32 {
        let at = Time::from_millis(u64::from(n));
        let queued = size(&w).saturating_sub(50);
        // 0, 0.38, 0.76, 0.15, ... of the spread: evenly distributed over twenty.
        let own = spread_ms * (0.1 + f64::from(n * 7 % 18) / 20.0);
        w.on_sent(at);
        w.on_reply(ReplySample { sent: at, jitter, ..seen(Some(50.0 + f64::from(queued) + own), 50.0, Some(1.0)) });
    }
    size(&w)
}

#[test]
fn jitter_is_no_queue() {
    assert!(on_a_path_with_jitter(30.0, false) < 45, "taken for a queue");
    assert!((50..80).contains(&on_a_path_with_jitter(30.0, true)), "{}", on_a_path_with_jitter(30.0, true));
}

/// With a fifth of all frames lost, more than a third of the requests are, in every round.
#[test]
fn independent_loss_is_no_overflow() {
    for (noise, lost, shrinks) in
        [(0.0, 6, true), (0.56, 6, false), (0.56, 12, true), (20.0, 12, false), (20.0, 20, true)]
    {
        let mut w = Window::new(WindowSize::Adaptive, u64::MAX);
        let reply = |w: &mut Window, n: u64| {
            w.on_sent(Time::from_millis(n));
            w.on_reply(ReplySample { noise, sent: Time::from_millis(n), ..seen(Some(100.0), 95.0, Some(5.0)) });
        };
        (0..500).for_each(|n| reply(&mut w, n));
        let before = size(&w);
        let mut least = before;
        for n in 500..700 {
            // Requests of each ten that are answered.
            if n % 10 == 0 {
                w.on_losses(u64::from(BLOCK) * lost);
            }
            reply(&mut w, n);
            least = least.min(size(&w));
        }
        assert_eq!(least < before * 2 / 3, shrinks, "{noise}, {lost} lost of ten: {before} to {least}");
    }
}
