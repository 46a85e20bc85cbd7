//! The estimators on a link in virtual time: how soon they are right, how long a queue they
//! leave, and how they live through blackouts. `cargo test -p remora-atp --test estimate --
//! --nocapture` prints the figures.

mod link;

use std::time::Duration;

use link::{Link, Load, MTU, run};
use remora_atp::estimate::{Kind, Knowledge};
use remora_base::Time;

const KB: f64 = 1000.0;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn packet_time(rate: f64) -> Duration {
    Duration::from_secs_f64(MTU as f64 / rate)
}

#[test]
fn steps_are_followed() {
    // The paper needs three seconds and more. From and to in KB/s, round trip in ms, and the milliseconds after which the estimate must be
    // within 10 % to stay: half a round trip before anything can be seen, and three pairs.
    let cases = [
        (50.0, 140.0, 5, 500),
        (50.0, 140.0, 50, 500),
        (50.0, 140.0, 100, 500),
        (50.0, 140.0, 200, 500),
        (50.0, 140.0, 600, 800),
        (140.0, 50.0, 100, 350),
        (200.0, 20.0, 100, 500),
        (140.0, 5.0, 50, 1500),
        (20.0, 200.0, 100, 600),
        (5.0, 50.0, 50, 2300),
        (500.0, 5000.0, 40, 300),
        (5000.0, 500.0, 40, 300),
    ];
    for (from, to, rtt, within) in cases {
        let link = Link::steps(&[(0, from * KB), (5_000, to * KB)], rtt);
        let (start, end) = (Time::from_secs(5), Time::from_secs(11));
        let r = run(Kind::Rate, &link, Load::Greedy, end, 1);
        let took = r.settled(start, to * KB, 0.10, Duration::from_secs(3));
        println!("step {from:>5} -> {to:>5} KB/s, {rtt:>3} ms: {took:?}");
        assert!(took.is_some_and(|t| t <= ms(within)), "{from} -> {to} KB/s at {rtt} ms: {took:?}");
    }
}

#[test]
fn the_paper_takes_seconds_for_the_same_step() {
    let link = Link::steps(&[(0, 50.0 * KB), (20_000, 140.0 * KB)], 50);
    let r = run(Kind::Paper, &link, Load::Greedy, Time::from_secs(40), 1);
    let took = r.settled(Time::from_secs(20), 140.0 * KB, 0.10, Duration::from_secs(2));
    println!("paper: {took:?}");
    assert!(took.is_some_and(|t| t >= Duration::from_secs(3) && t < Duration::from_secs(12)), "{took:?}");
}

#[test]
fn the_link_is_used_and_no_queue_stands() {
    // KB/s, round trip in ms, jitter in ms, loss.
    let cases = [
        (50.0, 20, 0, 0.0),
        (50.0, 200, 0, 0.0),
        (512.0, 5, 0, 0.0),
        (512.0, 100, 0, 0.0),
        (140.0, 600, 0, 0.0),
        (5.0, 100, 0, 0.0),
        (5000.0, 40, 0, 0.0),
        (140.0, 50, 5, 0.0),
        (140.0, 50, 0, 0.01),
        (140.0, 50, 10, 0.05),
    ];
    for (rate, rtt, jitter, loss) in cases {
        let link = Link { jitter: ms(jitter), loss, ..Link::steady(rate * KB, rtt) };
        let (warm, end) = (Time::from_secs(10), Time::from_secs(if rate > 1000.0 { 15 } else { 40 }));
        let r = run(Kind::Rate, &link, Load::Greedy, end, 1);
        let used = r.utilization(&link, warm, end) / (1.0 - loss);
        let (p50, p95) = (r.wait(warm, 0.5), r.wait(warm, 0.95));
        let right = r.share(warm, |s| (s.rate / (rate * KB) - 1.0).abs() < 0.15);
        println!(
            "{rate:>5} KB/s, {rtt:>3} ms, jitter {jitter:>2} ms, loss {loss}: used {used:.3}, waits {p50:?} {p95:?}, right {right:.2}"
        );
        let name = format!("{rate} KB/s, {rtt} ms, jitter {jitter} ms, loss {loss}");
        assert!(used > 0.93, "{name}: {used}");
        let allowed = packet_time(rate * KB) * 2 + ms(10) + ms(jitter);
        assert!(p95 <= allowed, "{name}: {p95:?} > {allowed:?}");
        // Jitter of more than a packet's time blurs every pair.
        let enough = if ms(jitter) > packet_time(rate * KB) { 0.8 } else { 0.95 };
        assert!(right > enough, "{name}: {right}");
    }
}

#[test]
fn the_first_round_trip_is_enough_to_know() {
    for (rate, rtt) in [(5.0, 100), (50.0, 20), (140.0, 200), (1000.0, 50), (140.0, 600)] {
        let r = run(Kind::Rate, &Link::steady(rate * KB, rtt), Load::Greedy, Time::from_secs(8), 1);
        let took = r.settled(Time::ZERO, rate * KB, 0.10, Duration::from_secs(3)).unwrap();
        println!("start at {rate} KB/s, {rtt} ms: {took:?}");
        let allowed = ms(rtt + 30) + packet_time(rate * KB) * 3;
        assert!(took <= allowed, "{rate} KB/s, {rtt} ms: {took:?} > {allowed:?}");
    }
}

#[test]
fn blackouts_are_noticed_held_and_left_at_once() {
    for (rtt, out_ms, drops) in [
        (50, 500, false),
        (50, 2_000, true),
        (50, 30_000, false),
        (100, 30_000, true),
        (5, 30_000, true),
        (100, 180_000, true),
        (100, 180_000, false),
        (600, 30_000, true),
    ] {
        let (out, back) = (Time::from_secs(10), Time::from_secs(10) + ms(out_ms));
        let steps = [(0, 100.0 * KB), (10_000, 0.0), (10_000 + out_ms, 100.0 * KB)];
        let link = Link { drops, ..Link::steps(&steps, rtt) };
        let r = run(Kind::Rate, &link, Load::Greedy, back + Duration::from_secs(10), 1);
        let declared = r.seen.iter().find(|s| s.at >= out && matches!(s.state, Knowledge::Blackout { .. }));
        let declared = declared.map(|s| s.at.since(out)).unwrap();
        let first = r.arrived.iter().find(|(t, _)| *t > back + ms(rtt / 2)).map(|(t, _)| t.since(back)).unwrap();
        let settled = r.settled(back, 100.0 * KB, 0.10, Duration::from_secs(3)).unwrap();
        println!(
            "blackout {out_ms} ms, rtt {rtt}, drops {drops}: declared {declared:?}, first data {first:?}, right {settled:?}, probes {} B",
            r.probe_bytes
        );
        let name = format!("blackout of {out_ms} ms, {rtt} ms, drops {drops}");
        assert!(declared <= ms(rtt) * 2 + ms(200), "{name}: {declared:?}");
        let allowed = if out_ms > 60_000 { ms(rtt) * 2 + ms(500) } else { ms(rtt) + ms(rtt / 2) + ms(110) };
        assert!(first <= allowed, "{name}: {first:?} > {allowed:?}");
        // The forecast is held: not a rejection while it is dark.
        let dark = |s: &&link::Seen| s.at > out + declared && s.at < back;
        assert!(r.seen.iter().filter(dark).all(|s| matches!(s.state, Knowledge::Blackout { .. })), "{name}");
        assert!(settled <= allowed + ms(500), "{name}: {settled:?}");
    }
}

#[test]
fn an_outage_shorter_than_a_round_trip_changes_little() {
    let steps = [(0, 100.0 * KB), (10_000, 0.0), (10_100, 100.0 * KB)];
    let r = run(Kind::Rate, &Link::steps(&steps, 200), Load::Greedy, Time::from_secs(14), 1);
    let near = r.share(Time::from_secs(10), |s| (s.rate / (100.0 * KB) - 1.0).abs() < 0.1);
    assert!(near > 0.97, "{near}");
    assert_eq!(r.estimator.stats().blackouts, 0);
}

#[test]
fn after_a_blackout_another_rate_makes_no_queue() {
    // The old rate is twenty times too high.
    let steps = [(0, 200.0 * KB), (10_000, 0.0), (20_000, 10.0 * KB)];
    for drops in [true, false] {
        let link = Link { drops, ..Link::steps(&steps, 100) };
        let r = run(Kind::Rate, &link, Load::Greedy, Time::from_secs(40), 1);
        // What was on its way before is in the way when the bottleneck keeps it; not so afterwards.
        let settle = Time::from_secs(if drops { 21 } else { 26 });
        let worst = r.wait(settle, 1.0);
        println!("after a blackout at a 20th of the rate, drops {drops}: longest wait {worst:?}");
        assert!(worst <= packet_time(10.0 * KB) * 5, "drops {drops}: {worst:?}");
        let settled = r.settled(Time::from_secs(20), 10.0 * KB, 0.10, Duration::from_secs(3)).unwrap();
        assert!(settled < Duration::from_secs(5), "drops {drops}: {settled:?}");
    }
}

#[test]
fn sparse_objects_keep_the_estimate() {
    // 4 KB each half second: the high class of ATP 02, alone.
    for (jitter, loss) in [(0, 0.0), (3, 0.0), (0, 0.03)] {
        let link = Link {
            jitter: ms(jitter),
            loss,
            ..Link::steps(&[(0, 150.0 * KB), (20_000, 60.0 * KB), (40_000, 150.0 * KB)], 60)
        };
        let r = run(Kind::Rate, &link, Load::Objects(4096, ms(500)), Time::from_secs(60), 1);
        let right = r.share(Time::from_secs(1), |s| (s.rate / link.rate_at(s.at) - 1.0).abs() < 0.2);
        println!("sparse objects, jitter {jitter} ms, loss {loss}: right {right:.2}");
        assert!(right > 0.9, "{right}");
    }
}

#[test]
fn pairs_find_out_on_an_idle_link() {
    // Everything is refused at the first rate; nothing is sent that could show the second. Rates in
    // KB/s, round trip in ms, ms within which the estimate is 10 % from it to stay.
    let cases = [(50.0, 140.0, 5, 500), (50.0, 140.0, 50, 500), (50.0, 140.0, 100, 500), (5.0, 100.0, 60, 12_000)];
    for (from, to, rtt, within) in cases {
        // Wherever in the pause between two pairs the rise comes.
        for at in (20_000..20_300).step_by(50) {
            let link = Link::steps(&[(0, from * KB), (at, to * KB)], rtt);
            let r = run(Kind::Rate, &link, Load::Until(Time::from_secs(15)), Time::from_secs(40), 1);
            let settled = r.settled(Time::from_millis(at), to * KB, 0.1, Duration::from_secs(5));
            let name = format!("idle, {from} -> {to} KB/s at {at} ms, {rtt} ms");
            println!("{name}: {settled:?}, {} bytes of probes", r.probe_bytes);
            assert!(settled.is_some_and(|took| took <= ms(within)), "{name}: {settled:?}");
            assert!(r.probe_bytes < 25 * 4 * 2 * MTU, "{name}: {} bytes of probes", r.probe_bytes);
        }
    }
}

#[test]
fn who_only_waits_learns_of_a_rise_with_few_pairs() {
    for kind in [Kind::Rate, Kind::Paper] {
        let link = Link::steps(&[(0, 5.0 * KB), (80_000, 100.0 * KB)], 60);
        let r = run(kind, &link, Load::Idle(Time::from_secs(15)), Time::from_secs(120), 1);
        let settled = r.settled(Time::from_secs(80), 100.0 * KB, 0.2, Duration::from_secs(5)).unwrap();
        println!("waiting, {kind:?}: {settled:?}, {} bytes of probes", r.probe_bytes);
        assert!(settled <= Duration::from_secs(12), "{kind:?}: {settled:?}");
        assert!(r.probe_bytes < 120 * 2 * MTU, "{kind:?}: {} bytes of probes", r.probe_bytes);
    }
}
