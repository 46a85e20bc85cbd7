//! The rule that a commit's subject is `area: imperative sentence` in at most 72 characters.

use std::process::Command;

use super::violation::Violation;
use crate::cmd::{Result, root};

/// Longest subject, in characters.
const SUBJECT_CHARS_MAX: usize = 72;
/// Older commits are exempt.
const SINCE: &str = "2026-11-28T20:30:00Z";

/// Checks the commits that lead to the one checked out. A tree without a repository has none.
pub(super) fn check() -> Result<Vec<Violation>> {
    let mut git = Command::new("git");
    // On a build machine the checkout may belong to another user.
    git.args(["-c", "safe.directory=*", "log", "--no-merges", "--format=%h %s", "--since", SINCE]).current_dir(root());
    let log = String::from_utf8_lossy(&git.output()?.stdout).into_owned();
    Ok(log.lines().filter_map(judge).collect())
}

/// Judges a line of an abbreviated hash and a subject.
fn judge(line: &str) -> Option<Violation> {
    let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
    let chars = subject.chars().count();
    let is_area = |area: &str| {
        !area.is_empty() && area.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/, ".contains(c))
    };
    let what = if chars > SUBJECT_CHARS_MAX {
        format!("subject of {chars} characters, at most {SUBJECT_CHARS_MAX}: {subject}")
    } else if !subject.split_once(": ").is_some_and(|(area, rest)| is_area(area) && !rest.is_empty()) {
        format!("subject that is no `area: imperative sentence`: {subject}")
    } else {
        return None;
    };
    Some(Violation::new(&format!("commit {hash}"), 1, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_without_area_or_too_long_is_a_violation() {
        let long = format!("abc vfs: {}", "a".repeat(SUBJECT_CHARS_MAX));
        let cases = [
            ("abc vfs: sync the parent directory after RENAME", false),
            ("abc client, host: rename modules", false),
            ("abc Fix things", true),
            ("abc Fix: things", true),
            ("abc vfs: ", true),
            ("abc", true),
            (long.as_str(), true),
        ];
        for (line, is_violation) in cases {
            assert_eq!(judge(line).is_some(), is_violation, "{line}");
        }
    }
}
