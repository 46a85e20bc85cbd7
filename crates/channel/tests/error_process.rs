//! The error process: the timeline of good and bad periods.

use std::time::Duration;

use proptest::prelude::*;
use remora_base::Time;
use remora_channel::{Config, Distribution, ErrorModel, ErrorProcess, Outage, Period};

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn two_state(distribution: Distribution, good_ms: u64, bad_ms: u64) -> Config {
    let errors = ErrorModel::TwoState { distribution, good_mean: ms(good_ms), bad_mean: ms(bad_ms) };
    Config { errors, ..Config::default() }
}

fn errors(config: &Config, seed: u64) -> ErrorProcess {
    ErrorProcess::new(config, seed).unwrap()
}

/// Lengths of the good and the bad periods between zero and the end of the last bad one.
fn lengths(config: &Config, seed: u64, until: Time) -> (Vec<Duration>, Vec<Duration>) {
    let mut good_from = Time::ZERO;
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for p in errors(config, seed).bad_periods(Time::ZERO, until).filter(|p| p.end < until) {
        good.push(p.start.since(good_from));
        bad.push(p.end.since(p.start));
        good_from = p.end;
    }
    (good, bad)
}

fn mean_ms(lengths: &[Duration]) -> f64 {
    lengths.iter().sum::<Duration>().as_secs_f64() * 1e3 / lengths.len() as f64
}

fn assert_near(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got / want - 1.0).abs() < tolerance, "{what}: {got}, expected {want}");
}

#[test]
fn share_of_bad_time_is_that_of_the_means() {
    let laws = [Distribution::Uniform, Distribution::Deterministic, Distribution::Exponential];
    for distribution in laws {
        for bad_ms in [40, 80, 120, 160, 500] {
            let bad = 1.0 - errors(&two_state(distribution, 1000, bad_ms), 1).good_fraction(Time::from_secs(20_000));
            let want = bad_ms as f64 / (1000 + bad_ms) as f64;
            assert_near(bad, want, 0.03, &format!("{distribution:?} {bad_ms}"));
        }
    }
}

#[test]
fn uniform_periods_are_on_the_grid_below_twice_the_mean() {
    let (good, bad) = lengths(&two_state(Distribution::Uniform, 1000, 80), 2, Time::from_secs(20_000));
    assert!(good.iter().chain(&bad).all(|d| d.as_nanos() % ms(20).as_nanos() == 0 && !d.is_zero()));
    // One bad length in nine is drawn as zero and vanishes; of the others 20 to 160 ms, almost
    // none is joined to its neighbour by an empty good period (one in 101).
    assert_near(mean_ms(&bad), 80.0 * 9.0 / 8.0, 0.03, "bad mean");
    let joined = bad.iter().filter(|d| **d > ms(160)).count();
    assert!(joined * 50 < bad.len(), "{joined} of {}", bad.len());
    for step in 1..=8 {
        let share = bad.iter().filter(|d| **d == ms(20 * step)).count() as f64 / bad.len() as f64;
        assert_near(share, 0.125, 0.15, &format!("bad periods of {} ms", 20 * step));
    }
}

#[test]
fn deterministic_periods_are_constant_across_spans() {
    let (good, bad) = lengths(&two_state(Distribution::Deterministic, 1000, 77), 3, Time::from_secs(10_000));
    assert!(bad.len() > 9000);
    assert!(good.iter().all(|d| *d == ms(1000)) && bad.iter().all(|d| *d == ms(77)));
}

#[test]
fn exponential_periods_have_mean_and_tail() {
    let (good, bad) = lengths(&two_state(Distribution::Exponential, 1000, 100), 4, Time::from_secs(20_000));
    for (periods, mean) in [(good, 1000.0), (bad, 100.0)] {
        assert_near(mean_ms(&periods), mean, 0.03, "mean");
        for k in [0.5, 1.0, 2.0] {
            let beyond = periods.iter().filter(|d| d.as_secs_f64() * 1e3 > k * mean).count();
            assert_near(beyond as f64 / periods.len() as f64, (-k).exp(), 0.06, &format!("beyond {k} means"));
        }
    }
}

#[test]
fn process_begins_good_and_zero_bad_mean_is_never_bad() {
    for seed in 0..500 {
        assert!(!errors(&two_state(Distribution::Uniform, 20, 500), seed).is_bad(Time::ZERO), "{seed}");
    }
    let mut fair = errors(&two_state(Distribution::Uniform, 1000, 0), 5);
    assert!(!fair.bad_overlaps(Time::ZERO, Time::MAX));
    assert_eq!(fair.good_fraction(Time::MAX), 1.0);
    assert_eq!(fair.first_fit(Time::from_secs(7), Duration::from_secs(1000)), Some(Time::from_secs(7)));
}

#[test]
fn far_future_costs_no_more_than_near() {
    let mut w = errors(&two_state(Distribution::Uniform, 1000, 160), 6);
    let age = Time::from_secs(500 * 365 * 86_400);
    let bad = w.bad_periods(age, age + Duration::from_secs(100)).count();
    assert!((50..150).contains(&bad), "{bad}");
    let _ = (w.is_bad(Time::MAX), w.bad_overlaps(Time::MAX, Time::MAX), w.first_fit(Time::MAX, ms(12)));
}

#[test]
fn frame_longer_than_good_periods_never_fits() {
    let mut w = errors(&two_state(Distribution::Deterministic, 100, 10), 7);
    assert_eq!(w.first_fit(Time::ZERO, ms(100)), Some(Time::ZERO));
    assert_eq!(w.first_fit(Time::from_millis(1), ms(100)), Some(Time::from_millis(110)));
    assert_eq!(w.first_fit(Time::ZERO, ms(101)), None);
    let forever = Outage { start: Time::from_secs(1), length: Duration::MAX };
    let mut w = errors(&Config { outages: vec![forever], ..Config::default() }, 7);
    assert_eq!(w.first_fit(Time::from_secs(1), ms(1)), None);
}

#[test]
fn touching_outages_merge_and_edges_are_half_open() {
    let outage = |start, length| Outage { start: Time::from_millis(start), length: ms(length) };
    let config =
        Config { outages: vec![outage(50, 10), outage(10, 20), outage(30, 5), outage(12, 3)], ..Config::default() };
    let mut w = errors(&config, 8);
    let period = |start, end| Period { start: Time::from_millis(start), end: Time::from_millis(end) };
    let all: Vec<_> = w.bad_periods(Time::ZERO, Time::MAX).collect();
    assert_eq!(all, [period(10, 35), period(50, 60)]);
    let clipped: Vec<_> = w.bad_periods(Time::from_millis(20), Time::from_millis(55)).collect();
    assert_eq!(clipped, [period(20, 35), period(50, 55)]);
    for (at, bad) in [(9, false), (10, true), (34, true), (35, false), (59, true), (60, false)] {
        assert_eq!(w.is_bad(Time::from_millis(at)), bad, "{at}");
    }
    assert!(!w.bad_overlaps(Time::from_millis(35), Time::from_millis(50)));
    assert!(w.bad_overlaps(Time::from_millis(35), Time::from_nanos(50_000_001)));
    assert_near(w.good_fraction(Time::from_millis(100)), 0.65, 1e-9, "good fraction");
}

fn any_law() -> impl Strategy<Value = Distribution> {
    prop_oneof![Just(Distribution::Uniform), Just(Distribution::Deterministic), Just(Distribution::Exponential)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Spans last about three minutes here, so the queries jump between several.
    #[test]
    fn order_of_queries_does_not_matter(
        law in any_law(),
        seed: u64,
        questions in prop::collection::vec((0u64..1_000_000, 0u64..200), 1..20),
    ) {
        let config = two_state(law, 30, 15);
        let mut one = errors(&config, seed);
        for (at, length) in questions {
            let (at, end) = (Time::from_millis(at), Time::from_millis(at + length));
            let mut fresh = errors(&config, seed);
            prop_assert_eq!(one.is_bad(at), fresh.is_bad(at));
            prop_assert_eq!(one.bad_overlaps(at, end), fresh.bad_overlaps(at, end));
            prop_assert_eq!(one.first_fit(at, ms(10)), fresh.first_fit(at, ms(10)));
            let periods: Vec<_> = fresh.bad_periods(at, end).collect();
            prop_assert_eq!(one.bad_overlaps(at, end), !periods.is_empty());
            let bad = periods.iter().any(|p| p.start <= at && at < p.end);
            prop_assert_eq!(one.is_bad(at) && length > 0, bad);
        }
    }

    /// At every moment, the merged timeline is bad where bursts or outages are.
    #[test]
    fn merging_adds_the_outages_and_nothing_else(
        law in any_law(),
        seed: u64,
        outages in prop::collection::vec((0u64..1000, 1u64..100), 0..12),
    ) {
        let plain = two_state(law, 40, 20);
        let outage = |(start, length)| Outage { start: Time::from_millis(start), length: ms(length) };
        let stormy = Config { outages: outages.iter().copied().map(outage).collect(), ..plain.clone() };
        let (mut plain, mut w) = (errors(&plain, seed), errors(&stormy, seed));
        let periods: Vec<_> = w.bad_periods(Time::ZERO, Time::from_secs(2)).collect();
        prop_assert!(periods.windows(2).all(|two| two[0].end < two[1].start));
        for at in 0..1100 {
            let t = Time::from_millis(at);
            let out = outages.iter().any(|(start, length)| (*start..start + length).contains(&at));
            prop_assert_eq!(w.is_bad(t), out || plain.is_bad(t), "{}", at);
            prop_assert_eq!(w.is_bad(t), periods.iter().any(|p| p.start <= t && t < p.end), "{}", at);
        }
    }
}
