//! The outcome of a step: its verdict, its duration, and how both are printed and counted.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::test::Tally;

/// The result of a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ended {
    Well,
    /// It ended with this exit code.
    Badly(u8),
    /// It exceeded its limit and was killed.
    Late,
}

/// A step with its verdict and duration.
#[derive(Serialize)]
pub(super) struct Outcome {
    step: &'static str,
    #[serde(flatten)]
    verdict: Verdict,
    seconds: f64,
}

/// The verdict on a step.
#[derive(Debug, Serialize)]
#[serde(tag = "verdict", content = "what", rename_all = "lowercase")]
pub(super) enum Verdict {
    /// With a note, which is empty in most cases.
    Passed(String),
    /// With the reason.
    Failed(String),
    /// With the reason.
    Skipped(String),
}

impl Outcome {
    pub(super) fn new(step: &'static str, verdict: Verdict, took: Duration) -> Outcome {
        Outcome { step, verdict, seconds: (took.as_secs_f64() * 10.0).round() / 10.0 }
    }

    /// Counts it among the project's tests.
    pub(super) fn count(&self, tally: &mut Tally) {
        match &self.verdict {
            Verdict::Passed(_) => tally.one_more(&self.name(), true),
            Verdict::Failed(_) => tally.one_more(&self.name(), false),
            Verdict::Skipped(why) => tally.one_skipped(&format!("{}: {why}", self.name())),
        }
    }

    fn name(&self) -> String {
        format!("interop::{}", self.step)
    }
}

/// Prints it as libtest does, with the seconds.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (verdict, what) = match &self.verdict {
            Verdict::Passed(what) => ("ok", what),
            Verdict::Failed(what) => ("FAILED", what),
            Verdict::Skipped(what) => ("skipped", what),
        };
        write!(f, "test {} ... {verdict} ({:.1} s)", self.name(), self.seconds)?;
        if what.is_empty() { Ok(()) } else { write!(f, ": {what}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_verdict_is_told_and_counted() {
        let cases = [
            (Verdict::Passed(String::new()), "test interop::tar ... ok (1.2 s)", "1 passed, 0 failed, 0 skipped"),
            (
                Verdict::Failed("bytes".into()),
                "test interop::tar ... FAILED (1.2 s): bytes",
                "failed:  interop::tar\n0 passed, 1 failed, 0 skipped",
            ),
            (
                Verdict::Skipped("needs root".into()),
                "test interop::tar ... skipped (1.2 s): needs root",
                "skipped: interop::tar: needs root\n0 passed, 0 failed, 1 skipped",
            ),
        ];
        for (verdict, told, counted) in cases {
            let outcome = Outcome::new("tar", verdict, Duration::from_millis(1234));
            assert_eq!(outcome.to_string(), told);
            let mut tally = Tally::default();
            outcome.count(&mut tally);
            assert_eq!(tally.to_string(), counted);
        }
    }

    #[test]
    fn programs_read_it() {
        let outcome = Outcome::new("tar", Verdict::Failed("bytes".into()), Duration::from_secs(2));
        let json = serde_json::to_string(&outcome).unwrap();
        assert_eq!(json, r#"{"step":"tar","verdict":"failed","what":"bytes","seconds":2.0}"#);
    }
}
