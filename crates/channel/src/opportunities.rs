//! Delivery opportunities of a recorded link, in Mahimahi's trace format.
//!
//! A trace is text. A line is a time in whole milliseconds, not before that of the line above; at
//! that time 1500 bytes may leave. A time on several lines carries 1500 bytes for each. The trace
//! repeats after the time of its last line.

use std::fmt;

use remora_base::Time;
use thiserror::Error;

pub(crate) const OPPORTUNITY_BYTES: u64 = 1500;
const LINES_MAX: usize = 10_000_000;
/// Characters of a bad line shown in its error.
const SHOWN_MAX: usize = 40;

/// The delivery opportunities of a trace, repeated forever. Never empty.
#[derive(Clone, PartialEq, Eq)]
pub struct Opportunities {
    /// Milliseconds from the start of a round; sorted, the last one above 0.
    times_ms: Vec<u32>,
}

impl Opportunities {
    /// Reads a trace: 1 to 10 000 000 lines with times from 0 to 2^32 - 1 ms (49 days), the last
    /// one after 0.
    pub fn parse(text: &str) -> Result<Opportunities, TraceError> {
        let mut times_ms: Vec<u32> = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            if line > LINES_MAX {
                return Err(TraceError::TooLong);
            }
            let Ok(ms) = text.trim().parse() else {
                return Err(TraceError::NotATime { line, text: text.chars().take(SHOWN_MAX).collect() });
            };
            if let Some(before) = times_ms.last().copied().filter(|before| *before > ms) {
                return Err(TraceError::Backwards { line, ms, before });
            }
            times_ms.push(ms);
        }
        match times_ms.last() {
            None => Err(TraceError::Empty),
            Some(0) => Err(TraceError::NoLength { line: times_ms.len() }),
            Some(_) => Ok(Opportunities { times_ms }),
        }
    }

    pub fn per_round(&self) -> usize {
        self.times_ms.len()
    }

    /// Milliseconds in a round (at least 1).
    pub fn round_ms(&self) -> u32 {
        self.times_ms.last().copied().unwrap_or(1)
    }

    /// When the opportunities of a round are, in milliseconds from its start; sorted.
    pub fn times_ms(&self) -> &[u32] {
        &self.times_ms
    }

    /// When opportunity `index` is, counted from 0 over all rounds; [`Time::MAX`] beyond the end of
    /// time.
    pub(crate) fn at(&self, index: u128) -> Time {
        let per_round = self.times_ms.len() as u128;
        let in_round = self.times_ms.get((index % per_round) as usize).copied().unwrap_or(0);
        let ms = (index / per_round).saturating_mul(u128::from(self.round_ms())).saturating_add(u128::from(in_round));
        Time::from_millis(u64::try_from(ms).unwrap_or(u64::MAX))
    }

    /// The first opportunity at or after `t`.
    pub(crate) fn first_from(&self, t: Time) -> u128 {
        let ms = t.as_nanos().div_ceil(1_000_000);
        // A round's first moment belongs to the round before, which may end in opportunities.
        let round = ms.saturating_sub(1) / u64::from(self.round_ms());
        let into_round = ms - round * u64::from(self.round_ms());
        let line = self.times_ms.partition_point(|at| u64::from(*at) < into_round);
        u128::from(round) * self.times_ms.len() as u128 + line as u128
    }
}

impl fmt::Debug for Opportunities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opportunities({} in {} ms)", self.per_round(), self.round_ms())
    }
}

/// An invalid trace. Lines are counted from 1.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum TraceError {
    /// A line is not a time.
    #[error("line {line}: '{text}' is not a time: expected whole milliseconds from 0 to {}", u32::MAX)]
    NotATime { line: usize, text: String },
    /// A time is before that of the line above.
    #[error("line {line}: {ms} ms comes after {before} ms: expected a time not before that of the line above")]
    Backwards {
        line: usize,
        ms: u32,
        /// The time above.
        before: u32,
    },
    /// All times are 0.
    #[error("line {line}: the last time is 0: expected a later one, for the trace repeats after it")]
    NoLength {
        /// The last line.
        line: usize,
    },
    /// The text is empty.
    #[error("line 1: no text: expected a time in milliseconds on each line")]
    Empty,
    /// Too many lines.
    #[error("line {}: expected at most {LINES_MAX} lines", LINES_MAX + 1)]
    TooLong,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(times: &[u32]) -> String {
        times.iter().map(|t| format!("{t}\n")).collect()
    }

    #[test]
    fn trace_repeats_after_its_last_line() {
        let trace = Opportunities::parse("0\n3\n3\r\n 10\n").unwrap();
        assert_eq!((trace.per_round(), trace.round_ms()), (4, 10));
        let times: Vec<_> = (0..9).map(|i| trace.at(i)).collect();
        assert_eq!(times, [0, 3, 3, 10, 10, 13, 13, 20, 20].map(Time::from_millis));
    }

    #[test]
    fn bad_trace_error_names_line_and_expected_form() {
        let cases = [
            ("", "line 1: no text: expected a time in milliseconds on each line"),
            ("1\n\n2", "line 2: '' is not a time: expected whole milliseconds from 0 to 4294967295"),
            ("1\n-2", "line 2: '-2' is not a time: expected whole milliseconds from 0 to 4294967295"),
            ("4294967296", "line 1: '4294967296' is not a time: expected whole milliseconds from 0 to 4294967295"),
            ("1\n5\n4\n", "line 3: 4 ms comes after 5 ms: expected a time not before that of the line above"),
            ("0\n0\n", "line 2: the last time is 0: expected a later one, for the trace repeats after it"),
        ];
        for (text, error) in cases {
            assert_eq!(Opportunities::parse(text).map_err(|e| e.to_string()), Err(error.to_string()), "{text:?}");
        }
        let long = "x".repeat(1000);
        assert!(Opportunities::parse(&long).is_err_and(|e| e.to_string().len() < 150));
    }

    #[test]
    fn first_opportunity_equals_that_of_a_linear_search() {
        for times in [&[1][..], &[5], &[0, 5], &[0, 0, 3, 3, 3, 7, 7], &[2, 2, 9]] {
            let trace = Opportunities::parse(&text(times)).unwrap();
            for us in (0..40_000).step_by(250) {
                let t = Time::from_micros(us);
                let want = (0..).find(|i| trace.at(*i) >= t).unwrap();
                assert_eq!(trace.first_from(t), want, "{times:?} {t}");
            }
        }
    }

    #[test]
    fn opportunity_at_end_of_time_is_time_max() {
        let trace = Opportunities::parse(&text(&[1; 1000])).unwrap();
        let index = trace.first_from(Time::MAX);
        assert_eq!(trace.at(index), Time::MAX);
        assert_eq!(trace.at(u128::MAX), Time::MAX);
    }
}
