//! `cargo xtask test`: installs what the tests need, runs the tests and the simulator, and prints a summary with each
//! skipped test and the reason.

mod lanes;
mod output;
mod packages;
mod report;
mod tally;

use std::process::Command;
use std::thread;

use clap::Args;

use crate::cmd::{self, Result};
use crate::{attack, interop, swarm};
pub(crate) use packages::{install, provide};
use report::REQUIRE_ALL;
pub(crate) use report::Report;
pub(crate) use report::requires_all;
pub(crate) use tally::Tally;

pub(crate) const HELP: &str = "\
ARGS go to `cargo test`; with any, only what they choose runs, and no simulator, no guest:
  cargo xtask test -p remora-wire
  cargo xtask test -p remora-cli --test interop -- --nocapture

Some tests drive other people's NFS programs. Where these are missing and cannot be
installed, such tests are skipped and the summary says so; with REMORA_REQUIRE_ALL=1 a
skipped test fails the run.";

/// Flags of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Options {
    /// Install nothing; skip the tests whose needs are missing
    #[arg(long)]
    pub(crate) no_install: bool,
    /// Seeds for the simulator's swarm; 0 for none
    #[arg(long, value_name = "N", default_value_t = 300)]
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
        Options { no_install: false, sim_seeds: 300, no_interop: false, require_all: false, args: Vec::new() }
    }
}

/// Runs the tests and prints the summary. The tally is the last line of all.
pub(crate) fn run(options: &Options) -> Result {
    execute(options)?.tell()
}

/// Runs the tests. Failing tests are in the report; an error is a fault of the runner.
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
        output::count(&mut cargo_test(options), &mut tally)?;
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
    Ok(Report::new(tally, installed, options.require_all))
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
