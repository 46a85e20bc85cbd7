//! The bandwidth of a link over time, as in the experiments of ATP 02, section 4, and its integral:
//! the capacity in bytes until a moment.
//!
//! [`Trace::paper`] is *reconstructed*: ATP 02 has its synthetic trace as a drawing only (Figure
//! 4). The reconstruction agrees with its text, Figure 5 and Table 2; the rest is drawn between.

use std::time::Duration;

use remora_base::Time;
use remora_channel::Opportunities;
use thiserror::Error;

/// Maximum of knots.
const KNOTS_MAX: usize = 1_000_000;
/// Maximum rate in bytes a second; faster links need no priorities.
const RATE_MAX: f64 = 1e9;
/// Maximum length in seconds.
const LENGTH_MAX_S: f64 = 86_400.0;
/// Interval over which opportunities are counted for a rate.
const BIN_MS: u32 = 100;
const OPPORTUNITY_BYTES: f64 = 1500.0;
/// The length of the workloads.
const ROUNDS_MS: u32 = 300_000;

/// Time in seconds, rate in bytes a second. ATP 02: the estimates of Figure 5 from 136 to 150 s;
/// nothing from about 150 to 180 s; 50 KB/s to 210 s; "has jumped to 140 KB/s from 48 KB/s" near
/// 220 s; below 64 KB/s from 120 to 220 s; 192 KB/s to 200 KB/s elsewhere.
const PAPER: [(f64, f64); 22] = [
    (0.0, 192e3),
    (40.0, 200e3),
    (90.0, 192e3),
    (110.0, 120e3),
    (120.0, 64e3),
    (136.0, 54.0e3),
    (137.5, 41.6e3),
    (139.0, 38.6e3),
    (140.6, 30.9e3),
    (142.0, 29.3e3),
    (144.5, 20.7e3),
    (147.0, 14.2e3),
    (150.0, 5.3e3),
    (151.0, 0.0),
    (180.0, 0.0),
    (180.0, 50e3),
    (210.0, 50e3),
    (220.0, 48e3),
    (220.0, 140e3),
    (240.0, 192e3),
    (270.0, 200e3),
    (300.0, 192e3),
];

/// Bandwidth over time: linear between knots, constant before the first and after the last.
#[derive(Clone, PartialEq, Debug)]
pub struct Trace {
    /// By time; two at the same moment are a jump. Never empty.
    knots: Vec<Knot>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Knot {
    at: f64,
    /// Bytes a second from here on.
    rate: f64,
    /// Capacity in bytes until here.
    carried: f64,
}

impl Trace {
    /// The trace of ATP 02, reconstructed: 300 s.
    pub fn paper() -> Trace {
        Trace::between(PAPER)
    }

    /// A constant rate in bytes a second.
    pub fn constant(rate: f64) -> Trace {
        Trace::between([(0.0, rate.clamp(0.0, RATE_MAX))])
    }

    /// Parses lines of `time_s,rate_Bps` (a heading and `#` lines are skipped), or a Mahimahi
    /// trace, which has one number on a line.
    pub fn parse(text: &str) -> Result<Trace, TraceError> {
        let first = text.lines().find(|l| !l.trim().is_empty()).ok_or(TraceError::Empty)?;
        match first.trim().parse::<u32>() {
            Ok(_) => Ok(Trace::from_opportunities(&Opportunities::parse(text)?)),
            Err(_) => Trace::parse_csv(text),
        }
    }

    fn parse_csv(text: &str) -> Result<Trace, TraceError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let heading = points.is_empty() && text.trim_start().starts_with(|c: char| c.is_alphabetic());
            if text.trim().is_empty() || text.trim_start().starts_with('#') || heading {
                continue;
            }
            let bad = || TraceError::NotAPoint { line };
            let (at, rate) = text.split_once(',').ok_or_else(bad)?;
            let (at, rate) = (at.trim().parse().map_err(|_| bad())?, rate.trim().parse().map_err(|_| bad())?);
            let in_range = (0.0..=LENGTH_MAX_S).contains(&at) && (0.0..=RATE_MAX).contains(&rate);
            let in_order = points.last().is_none_or(|(before, _)| *before <= at);
            if !in_range || !in_order || points.len() >= KNOTS_MAX {
                return Err(bad());
            }
            points.push((at, rate));
        }
        if points.last().is_none_or(|(at, _)| *at <= 0.0) {
            return Err(TraceError::Empty);
        }
        Ok(Trace::between(points))
    }

    /// A recorded link: its rate in tenths of a second, in whole rounds that cover the workloads.
    fn from_opportunities(recorded: &Opportunities) -> Trace {
        let round_ms = recorded.round_ms();
        let mut counts = vec![0u32; round_ms.div_ceil(BIN_MS).clamp(1, KNOTS_MAX as u32 / 2) as usize];
        for ms in recorded.times_ms() {
            // A round's first moment ends the round before.
            if let Some(count) = counts.get_mut((ms.saturating_sub(1) / BIN_MS) as usize) {
                *count += 1;
            }
        }
        let round: Vec<_> = (0u32..)
            .zip(counts)
            .map(|(n, count)| {
                let (from_ms, to_ms) = (n * BIN_MS, ((n + 1) * BIN_MS).min(round_ms));
                (to_ms, f64::from(count) * OPPORTUNITY_BYTES * 1e3 / f64::from(to_ms - from_ms))
            })
            .collect();
        let mut points: Vec<(f64, f64)> = Vec::new();
        for n in 0..ROUNDS_MS.div_ceil(round_ms).max(1) {
            for (to_ms, rate) in &round {
                let to = (f64::from(n) * f64::from(round_ms) + f64::from(*to_ms)) / 1e3;
                match points.last_mut() {
                    Some((end, last)) if last == rate => *end = to,
                    last => {
                        let from = last.map_or(0.0, |(end, _)| *end);
                        points.extend([(from, *rate), (to, *rate)]);
                    }
                }
            }
        }
        Trace::between(points)
    }

    fn between(points: impl IntoIterator<Item = (f64, f64)>) -> Trace {
        let mut points = points.into_iter().peekable();
        // Before the first point the rate is the first one's.
        let begin = points.peek().filter(|(at, _)| *at > 0.0).map(|(_, rate)| (0.0, *rate));
        let mut knots: Vec<Knot> = Vec::new();
        for (at, rate) in begin.into_iter().chain(points) {
            let carried = knots.last().map_or(0.0, |k| k.carried + (k.rate + rate) / 2.0 * (at - k.at));
            knots.push(Knot { at, rate, carried });
        }
        Trace { knots }
    }

    pub fn delayed(&self, by: Duration) -> Trace {
        let by = by.as_secs_f64();
        let first = self.knots.first().map(|k| (0.0, k.rate));
        Trace::between(first.into_iter().chain(self.knots.iter().map(|k| (k.at + by, k.rate))))
    }

    /// The rest of the trace after `begun`.
    pub fn after(&self, begun: Duration) -> Trace {
        let at = begun.as_secs_f64();
        let rest = self.knots.iter().filter(|k| k.at > at).map(|k| (k.at - at, k.rate));
        Trace::between(std::iter::once((0.0, self.rate(Time::ZERO + begun))).chain(rest))
    }

    /// Time of the last knot.
    pub fn length(&self) -> Duration {
        Duration::from_secs_f64(self.knots.last().map_or(0.0, |k| k.at))
    }

    /// Bytes a second at a moment; at a jump, the later rate.
    pub fn rate(&self, now: Time) -> f64 {
        let at = now.as_secs_f64();
        let next = self.knots.partition_point(|k| k.at <= at);
        match (next.checked_sub(1).and_then(|n| self.knots.get(n)), self.knots.get(next)) {
            (Some(a), Some(b)) => a.rate + slope(a, b) * (at - a.at),
            (Some(only), None) | (None, Some(only)) => only.rate,
            (None, None) => 0.0,
        }
    }

    /// Capacity in bytes until a moment: C(t).
    pub fn carried(&self, by: Time) -> f64 {
        let at = by.as_secs_f64();
        let next = self.knots.partition_point(|k| k.at <= at);
        match next.checked_sub(1).and_then(|n| self.knots.get(n)) {
            Some(a) => a.carried + (a.rate + self.rate(by)) / 2.0 * (at - a.at),
            None => 0.0,
        }
    }

    /// The first moment with a capacity of `bytes`; `None` if there is none.
    pub fn when(&self, bytes: f64) -> Option<Time> {
        let next = self.knots.partition_point(|k| k.carried < bytes);
        let before = next.checked_sub(1).and_then(|n| self.knots.get(n));
        let Some(a) = before else { return Some(Time::ZERO) };
        let need = bytes - a.carried;
        let slope = self.knots.get(next).map_or(0.0, |b| slope(a, b));
        // The root of rate t + slope t^2 / 2 = need in the form that does not cancel.
        let reach = a.rate + (a.rate * a.rate + 2.0 * slope * need).max(0.0).sqrt();
        let seconds = a.at + 2.0 * need / reach;
        (reach > 0.0 && seconds < 1e9).then(|| Time::from_nanos((seconds * 1e9).ceil() as u64))
    }
}

fn slope(a: &Knot, b: &Knot) -> f64 {
    if b.at > a.at { (b.rate - a.rate) / (b.at - a.at) } else { 0.0 }
}

/// An invalid trace. Lines are counted from 1.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// Not two numbers, out of range, or before the line above.
    #[error(
        "line {line}: expected time_s,rate_Bps with a time not before that of the line above, of {LENGTH_MAX_S} s at \
         most, and a rate from 0 to {RATE_MAX}"
    )]
    NotAPoint { line: usize },
    #[error("the trace has no length")]
    Empty,
    #[error(transparent)]
    Mahimahi(#[from] remora_channel::TraceError),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn trace_begins_with_the_rate_of_its_first_line() {
        let trace = Trace::parse("2,100\n3,100\n").unwrap();
        assert_eq!((trace.carried(Time::ZERO), trace.carried(Time::from_secs(1))), (0.0, 100.0));
        assert_eq!(trace.when(50.0), Some(Time::from_millis(500)));
        assert_eq!((trace.rate(Time::ZERO), trace.length()), (100.0, Duration::from_secs(3)));
    }

    #[test]
    fn paper_trace_agrees_with_the_papers_text() {
        let trace = Trace::paper();
        let kb = |s: f64| trace.rate(Time::from_nanos((s * 1e9) as u64)) / 1e3;
        assert_eq!(trace.length(), Duration::from_secs(300));
        for (at, rate) in [(136.0, 54.0), (144.5, 20.7), (165.0, 0.0), (180.0, 50.0), (195.0, 50.0), (220.0, 140.0)] {
            assert!((kb(at) - rate).abs() < 1e-6, "{at} s: {} KB/s", kb(at));
        }
        assert!((1200..2200).all(|t| kb(f64::from(t) / 10.0) <= 64.0));
        assert!((0..3000).all(|t| kb(f64::from(t) / 10.0) <= 200.0));
        // Also for `--trace`, and for tests that cannot use this crate.
        let file = Trace::parse(include_str!("../../../../docs/examples/atp02-trace.csv")).unwrap();
        assert_eq!(file, trace);
    }

    #[test]
    fn integral_is_the_area() {
        let trace =
            Trace::parse("time_s,rate_Bps\n# up, a gap, and a jump\n0,0\n10,100\n10,0\n20,0\n20,50\n30,50\n").unwrap();
        for (at, carried) in [(0, 0.0), (5, 125.0), (10, 500.0), (15, 500.0), (20, 500.0), (30, 1000.0), (40, 1500.0)] {
            assert!((trace.carried(Time::from_secs(at)) - carried).abs() < 1e-9, "{at}");
        }
        assert_eq!(trace.when(125.0), Some(Time::from_secs(5)));
        assert_eq!(trace.when(500.0), Some(Time::from_secs(10)));
        assert_eq!(trace.when(550.0), Some(Time::from_secs(21)));
        assert_eq!(trace.when(1500.0), Some(Time::from_secs(40)));
        assert_eq!(Trace::parse("0,5\n1,0\n").unwrap().when(3.0), None);
        let late = trace.delayed(Duration::from_secs(1));
        assert!((late.carried(Time::from_secs(6)) - 125.0).abs() < 1e-9);
    }

    #[test]
    fn mahimahi_trace_repeats_in_rounds() {
        let every_ms = |last: u32| (1..=last).map(|ms| format!("{ms}\n")).collect::<String>();
        for (text, length) in
            [(every_ms(1000), 300.0), ("1\n".into(), 300.0), (every_ms(150), 300.0), (every_ms(301_007), 301.007)]
        {
            let trace = Trace::parse(&text).unwrap();
            assert_eq!(trace.length().as_secs_f64(), length);
            for ms in [1, 140, 500, 299_999] {
                assert!((trace.rate(Time::from_millis(ms)) - 1.5e6).abs() < 1e-6, "{ms}");
            }
            assert!((trace.carried(Time::from_secs(10)) - 15e6).abs() < 1e-3);
        }
        // 12 kB in the first tenth, 1.5 in the last fiftieth of a second.
        let text: String = [1, 2, 3, 4, 5, 6, 7, 8, 120].map(|ms| format!("{ms}\n")).concat();
        let trace = Trace::parse(&text).unwrap();
        for (ms, rate) in [(50, 120e3), (110, 75e3), (120 + 50, 120e3), (120 + 110, 75e3)] {
            assert!(
                (trace.rate(Time::from_millis(ms)) - rate).abs() < 1e-6,
                "{ms}: {}",
                trace.rate(Time::from_millis(ms))
            );
        }
    }

    #[test]
    fn bad_line_is_refused() {
        for bad in
            ["", "\n", "x,y\n", "0,5\n", "0,5\n-1,5\n", "0,-5\n1,5\n", "0,5\n1,nan\n", "0,5\n2,5\n1,5\n", "2\n1\n"]
        {
            assert!(Trace::parse(bad).is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn when_is_the_inverse_of_carried(ms in 0u64..400_000, bytes in 1.0f64..1e6) {
            let trace = Trace::paper();
            let start = trace.carried(Time::from_millis(ms));
            let end = trace.when(start + bytes).unwrap();
            prop_assert!((trace.carried(end) - start - bytes).abs() < 1.0);
            prop_assert!(end >= Time::from_millis(ms) - Duration::from_micros(1));
        }
    }
}
