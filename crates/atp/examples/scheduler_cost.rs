//! What the scheduler costs by the number of objects that wait: a submission, a pick with what
//! it wrote (plans that fall due included), and a forecast that moved by a tenth.
//!
//! `cargo run --release -p remora-atp --example scheduler_cost`

#![expect(clippy::disallowed_methods, reason = "a stopwatch around the core, not in it")]

use std::time::{Duration, Instant};

use remora_atp::estimate::{Forecast, Knowledge};
use remora_atp::{Config, Dest, Options, Policy, Priority, Scheduler};
use remora_base::{Rate, Time};

/// How much more the objects ask for than the link carries.
const LOADS: [(&str, u64); 3] = [("no deadlines", 0), ("all fit", 4), ("a third fit", 1)];

fn options(i: u64, timed: bool) -> Options {
    let priority = if i.is_multiple_of(2) { Priority::HIGH } else { Priority::LOW };
    let deadline = timed.then(|| Duration::from_millis(1000 + i * 7919 % 30_000));
    Options { priority, deadline, ..Options::default() }
}

fn filled(policy: Policy, objects: u64, load: u64) -> (Scheduler, Duration) {
    let mut s = Scheduler::new(Config { policy, ..Config::default() });
    // 10 KB each and 30 s for all of them.
    let rate = Rate::from_bits(objects * 10_752 * 8 / 30 * load.max(1) / 2);
    s.forecast(
        Time::ZERO,
        Forecast { rate, available: Rate::from_bits(1 << 40), at_most: rate, state: Knowledge::Known, measured: None },
    );
    let start = Instant::now();
    for i in 0..objects {
        s.submit(Time::from_millis(i), Dest(0), 10_000, options(i, load > 0));
    }
    (s, start.elapsed())
}

fn main() {
    println!(
        "{:8} {:14} {:>8} {:>12} {:>12} {:>12}",
        "policy", "load", "objects", "submit us", "pick us", "forecast us"
    );
    for (policy, load, objects) in [Policy::Remora, Policy::Paper]
        .into_iter()
        .flat_map(|p| LOADS.into_iter().flat_map(move |l| [100, 1000, 10_000].map(|n| (p, l, n))))
    {
        let (mut s, submitting) = filled(policy, objects, load.1);
        let mut now = Time::from_millis(objects);
        let picks = 2000;
        let start = Instant::now();
        for _ in 0..picks {
            now += Duration::from_micros(100);
            if let Some(pick) = s.pick(now, &mut |_| true) {
                s.written(now, pick.request, pick.remaining.min(1400));
            }
        }
        let picking = start.elapsed();
        let plans = 20;
        let start = Instant::now();
        for i in 0..plans {
            now += Duration::from_millis(50);
            let rate = Rate::from_bits(objects * 10_752 * 8 / 30 * load.1.max(1) / 2 * (100 - i % 2 * 10) / 100);
            let available = Rate::from_bits(1 << 40);
            s.forecast(now, Forecast { rate, available, at_most: rate, state: Knowledge::Known, measured: None });
        }
        let us = |d: Duration, n: u64| d.as_secs_f64() * 1e6 / n as f64;
        let name = format!("{policy:?}").to_lowercase();
        let (submit, pick, plan) = (us(submitting, objects), us(picking, picks), us(start.elapsed(), plans));
        println!("{name:8} {:14} {objects:>8} {submit:>12.2} {pick:>12.2} {plan:>12.1}", load.0);
    }
}
