//! The tally of tests, counted from the output of test programs.
//!
//! Two kinds of lines count: libtest's `test result:`, and `SKIPPED name: reason`, which
//! `skip::skipped` writes for each test whose needs are missing.

use std::fmt;

/// Most names listed in the summary; further ones are only counted.
const LISTED_MAX: usize = 200;

/// The numbers of tests, and the names of those that failed or were skipped.
#[derive(Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    /// `SKIPPED` lines since the last result line, whose ignored tests are the same ones.
    announced: usize,
    /// Skipped tests with a reason.
    reasoned: usize,
    failures: Vec<String>,
    reasons: Vec<String>,
}

impl Tally {
    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    pub(super) fn skipped(&self) -> usize {
        self.skipped
    }

    /// Counts a line of output.
    pub(super) fn line(&mut self, line: &str) {
        if let Some(counts) = line.strip_prefix("test result: ") {
            let ignored = count(counts, "ignored");
            // To libtest a test that reports itself as skipped has passed.
            self.passed += count(counts, "passed").saturating_sub(self.announced.saturating_sub(ignored));
            self.failed += count(counts, "failed");
            self.close(ignored);
        } else if let Some(reason) = line.strip_prefix("SKIPPED ") {
            self.announced += 1;
            keep(&mut self.reasons, reason);
        } else if let Some(name) = line.strip_prefix("test ").and_then(|l| l.strip_suffix(" ... FAILED")) {
            keep(&mut self.failures, name);
        }
    }

    /// Ends the output of one cargo command. `success` is cargo's verdict.
    pub(super) fn end(&mut self, success: bool) {
        self.close(0);
        if !success && self.failed == 0 {
            // A compile error, or a test program that died before its result line.
            self.one_more("cargo test (see its output)", false);
        }
    }

    /// Adds a test that cargo did not run.
    pub(crate) fn one_more(&mut self, name: &str, passed: bool) {
        if passed {
            self.passed += 1;
        } else {
            self.failed += 1;
            keep(&mut self.failures, name);
        }
    }

    /// Adds a skipped test that cargo did not run. `reason` begins with its name.
    pub(crate) fn one_skipped(&mut self, reason: &str) {
        self.skipped += 1;
        self.reasoned += 1;
        keep(&mut self.reasons, reason);
    }

    fn close(&mut self, ignored: usize) {
        self.skipped += ignored.max(self.announced);
        self.reasoned += self.announced;
        self.announced = 0;
    }
}

/// The number before `what` in `ok. 12 passed; 0 failed; ...`, or 0 if there is none.
fn count(counts: &str, what: &str) -> usize {
    let before = |item: &str| item.trim().strip_suffix(what)?.trim().parse().ok();
    counts.split(['.', ';']).find_map(before).unwrap_or(0)
}

fn keep(list: &mut Vec<String>, item: &str) {
    if list.len() < LISTED_MAX {
        list.push(item.to_owned());
    }
}

/// Lists failed and skipped tests with reasons. The last line is the sum.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failures.iter().try_for_each(|name| writeln!(f, "failed:  {name}"))?;
        self.reasons.iter().try_for_each(|reason| writeln!(f, "skipped: {reason}"))?;
        if self.skipped > self.reasoned {
            writeln!(f, "skipped: {} that gave no reason", self.skipped - self.reasoned)?;
        }
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str], success: bool) -> String {
        let mut t = Tally::default();
        lines.iter().for_each(|l| t.line(l));
        t.end(success);
        t.to_string()
    }

    const OK: &str = "test result: ok. 12 passed; 0 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.01s";
    const BAD: &str =
        "test result: FAILED. 1 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.2s";

    #[test]
    fn counts_every_result_line() {
        let cases: &[(&[&str], bool, &str)] = &[
            (&[], true, "0 passed, 0 failed, 0 skipped"),
            (&[OK, "noise", OK], true, "24 passed, 0 failed, 0 skipped"),
            (&[OK, BAD], false, "skipped: 1 that gave no reason\n13 passed, 2 failed, 1 skipped"),
            (&[OK], false, "failed:  cargo test (see its output)\n12 passed, 1 failed, 0 skipped"),
            (
                &["test a::b ... FAILED", "test result: FAILED. 0 passed; 1 failed"],
                false,
                "failed:  a::b\n0 passed, 1 failed, 0 skipped",
            ),
        ];
        for (lines, success, expected) in cases {
            assert_eq!(tally(lines, *success), *expected, "{lines:?}");
        }
    }

    #[test]
    fn a_skip_is_counted_once_whether_announced_or_ignored_or_both() {
        let ignored = "test result: ok. 1 passed; 0 failed; 1 ignored; 0 measured";
        let none = "test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured";
        let why = "SKIPPED interop::ls: nfs-ls is not installed";
        let listed = "skipped: interop::ls: nfs-ls is not installed\n";
        assert_eq!(tally(&[why, ignored], true), format!("{listed}1 passed, 0 failed, 1 skipped"));
        assert_eq!(tally(&[why, none], true), format!("{listed}0 passed, 0 failed, 1 skipped"), "not as passed, too");
        assert_eq!(tally(&[none, why], true), format!("{listed}1 passed, 0 failed, 1 skipped"));
        assert_eq!(tally(&[why, none, ignored], true).lines().last(), Some("1 passed, 0 failed, 2 skipped"));
    }
}
