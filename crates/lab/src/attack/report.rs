//! The results of the attacks.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Highest ratio of the reference client's longest latency to its limit of the 99th percentile.
const MAX_OVER_P99: f64 = 3.0;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    #[default]
    Held,
    Failed,
    /// The attack could not run on this machine.
    Skipped,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct Row {
    pub name: &'static str,
    pub verdict: Verdict,
    pub happened: String,
    pub complaints: Vec<String>,
    /// Server counters that rose.
    pub counted: Vec<(String, u64)>,
    /// Growth of the server's memory, in MiB.
    pub memory_mib: u64,
    pub memory_max_mib: u64,
    /// Correctly answered calls of the reference client.
    pub good_calls: u64,
    /// 99th percentile of their latency, in milliseconds.
    pub good_p99_ms: f64,
    pub good_max_ms: f64,
    /// Its rate over that before the attack; `None` if it does not count.
    pub good_rate_ratio: Option<f64>,
}

impl Row {
    pub(super) fn skipped(name: &'static str, why: &str) -> Row {
        Row { name, verdict: Verdict::Skipped, happened: why.to_owned(), ..Row::default() }
    }

    pub(super) fn broken(name: &'static str, why: String) -> Row {
        Row { name, verdict: Verdict::Failed, complaints: vec![why], ..Row::default() }
    }

    pub(super) fn complain(&mut self, what: impl fmt::Display) {
        self.complaints.push(what.to_string());
    }

    pub(super) fn judge(&mut self, good_error: Option<String>, p99_max: Duration, rate_ratio_min: f64) {
        if let Some(e) = good_error {
            self.complain(format!("the reference client: {e}"));
        }
        if self.good_p99_ms > p99_max.as_secs_f64() * 1e3 {
            self.complain(format!("the reference client waited {:.0} ms", self.good_p99_ms));
        }
        if let Some(ratio) = self.good_rate_ratio.filter(|ratio| *ratio < rate_ratio_min) {
            self.complain(format!("the reference client had {:.0} % of its rate", ratio * 100.0));
        }
        // A stall of all clients shows here: a few slow calls do not change the percentile.
        if self.good_max_ms > MAX_OVER_P99 * p99_max.as_secs_f64() * 1e3 {
            self.complain(format!("the reference client waited once for {:.0} ms", self.good_max_ms));
        }
        if self.good_calls == 0 {
            self.complain("the reference client made no call");
        }
        if self.counted.is_empty() {
            self.complain("no counter shows the attack");
        }
        if self.memory_mib > self.memory_max_mib {
            self.complain(format!("{} MiB of memory, limit {} MiB", self.memory_mib, self.memory_max_mib));
        }
        self.verdict = if self.complaints.is_empty() { Verdict::Held } else { Verdict::Failed };
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct AttackReport {
    pub seconds: f64,
    pub seed: u64,
    pub rows: Vec<Row>,
}

impl AttackReport {
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|r| r.verdict == verdict).count()
    }

    pub fn heading() -> String {
        format!(
            "{:18} {:7} {:>7} {:>9} {:>9}  {:<34} {}",
            "attack", "", "MiB", "p99 ms", "max ms", "counted", "what happened"
        )
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Held => "held",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        };
        let counted: Vec<String> = self.counted.iter().map(|(name, n)| format!("{name} {n}")).collect();
        let (mib, p99, max) = (self.memory_mib, self.good_p99_ms, self.good_max_ms);
        let (name, counted) = (self.name, counted.join(", "));
        write!(f, "{name:18} {verdict:7} {mib:>7} {p99:>9.2} {max:>9.2}  {counted:<34} {}", self.happened)?;
        if let Some(ratio) = self.good_rate_ratio {
            write!(f, "; the reference client had {:.0} % of its rate", ratio * 100.0)?;
        }
        self.complaints.iter().try_for_each(|c| write!(f, "\n  {c}"))
    }
}

impl fmt::Display for AttackReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [held, failed, skipped] = [Verdict::Held, Verdict::Failed, Verdict::Skipped].map(|v| self.count(v));
        write!(f, "{held} held, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_fails_for_each_complaint() {
        let fine = Row {
            counted: vec![("refused".into(), 1)],
            memory_mib: 1,
            memory_max_mib: 1,
            good_calls: 1,
            good_p99_ms: 1.0,
            good_max_ms: 5.0,
            good_rate_ratio: Some(0.6),
            ..Row::default()
        };
        let judge = |mut row: Row, error: Option<&str>| {
            row.judge(error.map(str::to_owned), Duration::from_millis(2), 0.5);
            (row.verdict, row.complaints.len())
        };
        assert_eq!(judge(fine.clone(), None), (Verdict::Held, 0));
        assert_eq!(judge(fine.clone(), Some("EIO")), (Verdict::Failed, 1));
        for wrong in [
            Row { counted: Vec::new(), ..fine.clone() },
            Row { memory_mib: 2, ..fine.clone() },
            Row { good_calls: 0, ..fine.clone() },
            Row { good_p99_ms: 3.0, ..fine.clone() },
            Row { good_max_ms: 7.0, ..fine.clone() },
            Row { good_rate_ratio: Some(0.4), ..fine.clone() },
            Row { complaints: vec!["it died".into()], ..fine },
        ] {
            assert_eq!(judge(wrong, None), (Verdict::Failed, 1));
        }
    }
}
