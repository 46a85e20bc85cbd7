//! The output of test programs: printed as it arrives, and counted.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use super::tally::Tally;
use crate::cmd::Result;

/// Runs `test`, prints its output as it arrives, and counts the results.
pub(super) fn count(test: &mut Command, tally: &mut Tally) -> Result {
    let mut child = test.stdout(Stdio::piped()).spawn().map_err(|e| format!("cannot start cargo: {e}"))?;
    if let Some(stdout) = child.stdout.take() {
        show(stdout, tally)?;
    }
    tally.end(child.wait()?.success());
    Ok(())
}

/// Prints the output of tests, and counts the results.
pub(super) fn show(printed: impl Read, tally: &mut Tally) -> io::Result<()> {
    for line in BufReader::new(printed).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.line(&line);
    }
    Ok(())
}
