//! pjdfstest's results, compared with the list of excused failures.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

/// Tests that may fail or be skipped, with a reason for each.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Excused {
    failed: BTreeMap<String, String>,
    skipped: BTreeMap<String, String>,
}

impl Excused {
    /// Reads the list in the repository.
    pub(super) fn load() -> Result<Excused, String> {
        toml::from_str(include_str!("excused.toml")).map_err(|e| format!("excused.toml: {e}"))
    }

    /// Reads the list for `remora mount`.
    pub(super) fn load_for_mount() -> Result<Excused, String> {
        toml::from_str(include_str!("excused-mount.toml")).map_err(|e| format!("excused-mount.toml: {e}"))
    }
}

/// The tests of a run by verdict.
#[derive(Default)]
struct Run<'a> {
    passed: BTreeSet<&'a str>,
    failed: BTreeSet<&'a str>,
    skipped: BTreeSet<&'a str>,
}

/// Parses a run's output: a line for each test, name first and verdict last, then a summary. Without the summary the
/// run did not finish.
fn read(log: &str) -> Result<Run<'_>, String> {
    let mut run = Run::default();
    let mut total = None;
    for line in log.lines() {
        if let Some(counts) = line.strip_prefix("Summary: ") {
            total = counts.rsplit(", ").next().and_then(|t| t.strip_suffix(" total")?.parse::<usize>().ok());
        }
        // Details of a test are indented.
        let (Some(name), Some(verdict)) = (line.split(' ').next(), line.rsplit(' ').next()) else { continue };
        match verdict {
            _ if !name.contains("::") => false,
            "ok" => run.passed.insert(name),
            "FAILED" => run.failed.insert(name),
            "skipped" => run.skipped.insert(name),
            _ => false,
        };
    }
    let found = run.passed.len() + run.failed.len() + run.skipped.len();
    match total {
        None => Err("pjdfstest did not come to its end".into()),
        Some(total) if total != found => Err(format!("pjdfstest speaks of {total} tests and names {found}")),
        Some(_) => Ok(run),
    }
}

/// Judges a run, and a second run of the tests that the first had to skip. Returns a note, or what is wrong.
pub(super) fn judge(log: &str, second: &str, excused: &Excused) -> Result<String, String> {
    let (mut run, second) = (read(log)?, read(second)?);
    run.skipped.retain(|name| !second.passed.contains(name) && !second.failed.contains(name));
    run.passed.extend(&second.passed);
    run.failed.extend(&second.failed);
    let mut wrong = Vec::new();
    let mut compare = |what: &str, found: &BTreeSet<&str>, excused: &BTreeMap<String, String>| {
        let is_excused = |name: &str| excused.contains_key(name);
        wrong.extend(found.iter().filter(|n| !is_excused(n)).map(|n| format!("{n} {what}")));
        let stale = excused.keys().filter(|n| !found.contains(n.as_str()));
        wrong.extend(stale.map(|n| format!("{n} is in excused.toml as one that {what}, and it did not")));
    };
    compare("failed", &run.failed, &excused.failed);
    compare("was skipped", &run.skipped, &excused.skipped);
    if wrong.is_empty() {
        let (passed, other) = (run.passed.len(), run.failed.len() + run.skipped.len());
        Ok(format!("{passed} of its tests passed, {other} are excused"))
    } else {
        Err(wrong.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "chmod::a    ok\nunlink::b      FAILED\n\tleft: 1\nmkdir::erofs  skipped\n\tno: remounts ok\n\
                         \nSummary: 1 failed, 1 skipped, 1 passed, 0 expected failures, 3 total\n";
    const SECOND: &str = "mkdir::erofs   ok\n\nSummary: 0 failed, 0 skipped, 1 passed, 0 expected failures, 1 total\n";

    fn excused(failed: &[&str], skipped: &[&str]) -> Excused {
        let map = |names: &[&str]| names.iter().map(|n| ((*n).to_owned(), "why".to_owned())).collect();
        Excused { failed: map(failed), skipped: map(skipped) }
    }

    #[test]
    fn only_what_is_excused_may_fail_and_all_that_is_excused_must() {
        let ok = judge(FIRST, SECOND, &excused(&["unlink::b"], &[]));
        assert_eq!(ok, Ok("2 of its tests passed, 1 are excused".into()));
        let cases = [
            (FIRST, SECOND, excused(&[], &[]), "unlink::b failed"),
            (FIRST, SECOND, excused(&["unlink::b", "chmod::a"], &[]), "chmod::a is in excused.toml"),
            (FIRST, SECOND, excused(&["unlink::b"], &["mkdir::erofs"]), "mkdir::erofs is in excused.toml"),
            (FIRST, &SECOND.replace("ok", "FAILED"), excused(&["unlink::b"], &[]), "mkdir::erofs failed"),
            (FIRST, "Summary: 0 total", excused(&["unlink::b"], &[]), "mkdir::erofs was skipped"),
            ("chmod::a ok\n", SECOND, excused(&[], &[]), "did not come to its end"),
            ("chmod::a ok\nSummary: 2 total", SECOND, excused(&[], &[]), "2 tests and names 1"),
        ];
        for (first, second, excused, want) in cases {
            let why = judge(first, second, &excused).unwrap_err();
            assert!(why.contains(want), "{why}, not {want}");
        }
    }

    #[test]
    fn every_excuse_has_a_reason() {
        for excused in [Excused::load().unwrap(), Excused::load_for_mount().unwrap()] {
            let mut all = excused.failed.iter().chain(&excused.skipped);
            assert!(all.all(|(name, why)| name.contains("::") && why.len() > 20));
        }
    }
}
