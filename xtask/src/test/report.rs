//! The report of a test run: its summary and its verdict.

use std::fmt;

use super::packages::Installed;
use super::tally::Tally;
use crate::cmd::{self, Result};

/// Environment variable: with the value 1 a skipped test is a failure.
pub(super) const REQUIRE_ALL: &str = "REMORA_REQUIRE_ALL";

pub(crate) fn requires_all() -> bool {
    std::env::var_os(REQUIRE_ALL).is_some_and(|v| v == "1")
}

/// The result of a test run.
pub(crate) struct Report {
    tally: Tally,
    installed: Installed,
    require_all: bool,
}

impl Report {
    /// A report of `tally` with the packages `installed`.
    pub(crate) fn new(tally: Tally, installed: Installed, require_all: bool) -> Report {
        Report { tally, installed, require_all }
    }

    /// Prints the report, the tally last, and returns the verdict.
    pub(crate) fn tell(&self) -> Result {
        let verdict = self.verdict();
        if let Err(why) = &verdict {
            println!("\nerror: {why}");
        }
        println!("\n{self}");
        verdict.map_err(|_| cmd::Told.into())
    }

    /// An error if a test failed, or if one was skipped although none may be.
    pub(crate) fn verdict(&self) -> Result {
        if self.tally.failed() > 0 {
            return Err("tests failed".into());
        }
        if self.require_all && self.tally.skipped() > 0 {
            return Err(format!("tests were skipped, and {REQUIRE_ALL} is set").into());
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "== summary")?;
        write!(f, "{}{}", self.installed, self.tally)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &[&str], require_all: bool) -> Report {
        let mut tally = Tally::default();
        lines.iter().for_each(|l| tally.line(l));
        tally.end(true);
        Report { tally, installed: Installed::default(), require_all }
    }

    #[test]
    fn skipped_test_fails_only_if_all_are_required() {
        let skipped = ["SKIPPED interop: no nfs-ls", "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured"];
        assert!(report(&skipped, false).verdict().is_ok());
        assert!(report(&skipped, true).verdict().is_err());
        assert!(report(&["test result: FAILED. 3 passed; 1 failed; 0 ignored"], false).verdict().is_err());
        assert!(report(&["test result: ok. 3 passed; 0 failed; 0 ignored"], true).verdict().is_ok());
    }

    #[test]
    fn report_ends_with_the_tally() {
        let text = report(&["test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured"], false).to_string();
        assert_eq!(text.lines().last(), Some("3 passed, 0 failed, 1 skipped"));
    }
}
