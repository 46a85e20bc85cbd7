//! `cargo xtask test`: what the tests need, the tests, the simulator, and a summary that
//! says what did not run and why.

mod lanes;
mod packages;
mod tally;

use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::thread;

use clap::Args;

use crate::cmd::{self, Result};
use crate::{attack, interop, swarm};
use packages::Installed;
pub(crate) use packages::provide;
pub(crate) use tally::Tally;

/// When this is set to 1, a test that cannot run is a failure.
const REQUIRE_ALL: &str = "REMORA_REQUIRE_ALL";

pub(crate) const HELP: &str = "\
ARGS go to `cargo test`; with any, only what they choose runs, and no simulator, no guest:
  cargo xtask test -p remora-wire
  cargo xtask test -p remora-cli --test interop -- --nocapture

Some tests drive other people's NFS programs. Where these are missing and cannot be
installed, such tests are skipped and the summary says so; with REMORA_REQUIRE_ALL=1 a
skipped test fails the run.";

/// What `cargo xtask test` takes.
#[derive(Args)]
pub(crate) struct Options {
    /// Install nothing; skip the tests whose needs are missing
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Seeds for the simulator's swarm; 0 for none
    #[arg(long, value_name = "N", default_value_t = 200)]
    pub(crate) sim_seeds: u64,
    /// Without the Linux kernel's client in a guest (`cargo xtask interop`)
    #[arg(long)]
    pub(crate) no_interop: bool,
    /// Fail if any test is skipped.
    #[arg(skip = requires_all())]
    pub(crate) require_all: bool,
    /// Arguments for `cargo test`
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options { no_install: false, sim_seeds: 200, no_interop: false, require_all: false, args: Vec::new() }
    }
}

fn requires_all() -> bool {
    std::env::var_os(REQUIRE_ALL).is_some_and(|v| v == "1")
}

/// What came out.
pub(crate) struct Report {
    tally: Tally,
    installed: Installed,
    require_all: bool,
}

/// Runs the tests and prints the summary. Its last line is the tally, and the last line of
/// all, so a failure is told before.
pub(crate) fn run(options: &Options) -> Result {
    execute(options)?.tell()
}

/// Runs the tests. An error is one of ours; tests that fail are in the report.
pub(crate) fn execute(options: &Options) -> Result<Report> {
    let installed = packages::provide(options.no_install);
    let mut tally = Tally::default();
    let with_guest = options.args.is_empty() && !options.no_interop;
    let preparing = with_guest.then(|| thread::spawn(interop::prepare));
    let simulate = |tally: &mut Tally| {
        if options.sim_seeds > 0 {
            println!("== simulator: {} seeds", options.sim_seeds);
            tally.one_more("simulator swarm", swarm::run(options.sim_seeds, 0, cmd::Build::Debug).is_ok());
        }
    };
    if options.args.is_empty() {
        lanes::run(|| cargo_test(options), simulate, &mut tally)?;
    } else {
        stream(&mut cargo_test(options), &mut tally)?;
    }
    if options.args.is_empty() {
        println!("== attacks");
        tally.one_more("attacks", attack::run(&attack::Options::SHORT).is_ok());
    }
    if let Some(preparing) = preparing {
        println!("== interop: the Linux kernel's client in a guest");
        let _ = preparing.join();
        if let Err(why) = interop::count(&mut tally) {
            println!("error: {why}");
            tally.one_more("interop (see above)", false);
        }
    }
    Ok(Report { tally, installed, require_all: options.require_all })
}

fn cargo_test(options: &Options) -> Command {
    let mut test = cmd::heeding_signals(cmd::cargo(&["test", "--no-fail-fast"]));
    if options.args.is_empty() {
        test.arg("--workspace");
    }
    if options.require_all {
        test.env(REQUIRE_ALL, "1");
    }
    test.args(&options.args);
    test
}

/// Runs `test`, shows what it prints as it comes, and counts.
fn stream(test: &mut Command, tally: &mut Tally) -> Result {
    let mut child = test.stdout(Stdio::piped()).spawn().map_err(|e| format!("cannot start cargo: {e}"))?;
    if let Some(stdout) = child.stdout.take() {
        show(stdout, tally)?;
    }
    tally.end(child.wait()?.success());
    Ok(())
}

/// Shows what tests print, and counts.
fn show(printed: impl Read, tally: &mut Tally) -> io::Result<()> {
    for line in BufReader::new(printed).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.line(&line);
    }
    Ok(())
}

impl Report {
    /// What a tally comes to where `installed` is what there is.
    pub(crate) fn new(tally: Tally, installed: Installed) -> Report {
        Report { tally, installed, require_all: requires_all() }
    }

    /// Prints it, the tally last, and what it means.
    pub(crate) fn tell(&self) -> Result {
        let verdict = self.verdict();
        if let Err(why) = &verdict {
            println!("\nerror: {why}");
        }
        println!("\n{self}");
        verdict.map_err(|_| cmd::Told.into())
    }

    /// Failure if a test failed, or was skipped where none may be.
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
    fn skipping_fails_only_where_all_is_required() {
        let skipped = ["SKIPPED interop: no nfs-ls", "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured"];
        assert!(report(&skipped, false).verdict().is_ok());
        assert!(report(&skipped, true).verdict().is_err());
        assert!(report(&["test result: FAILED. 3 passed; 1 failed; 0 ignored"], false).verdict().is_err());
        assert!(report(&["test result: ok. 3 passed; 0 failed; 0 ignored"], true).verdict().is_ok());
    }

    #[test]
    fn the_last_line_is_the_tally() {
        let text = report(&["test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured"], false).to_string();
        assert_eq!(text.lines().last(), Some("3 passed, 0 failed, 1 skipped"));
    }
}
