//! Lanes: groups of test programs of the workspace that run side by side.
//!
//! Cargo runs one test program after the other. Some of them mostly wait for timeouts or for an emulated hop; these are
//! lanes of their own, whose output is printed after that of the others.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Seek;
use std::process::{Child, Command};

use cargo_metadata::{MetadataCommand, TargetKind};

use super::output::{count, show};
use super::tally::Tally;
use crate::cmd::{self, Result};

/// The test programs that mostly wait, lane by lane. Emulated hops come first: the programs beside them leave the
/// processors idle enough for punctual timers, which the simulator, the last of the others, does not.
const WAITING: &[&[&str]] = &[
    &["emulate", "mount_lab", "output", "wireless_real"],
    &["cp", "files", "interop", "kill9", "link", "send_recv"],
    &["mount"],
];

/// Runs all test programs of the workspace. `cargo` returns a `cargo test` command; `others` are tests that cargo does
/// not run and that tolerate a busy machine.
pub(super) fn run(cargo: impl Fn() -> Command, others: impl FnOnce(&mut Tally), tally: &mut Tally) -> Result {
    // Build everything before the lanes start.
    if cmd::run(cargo().arg("--no-run")).is_err() {
        tally.end(false);
        return Ok(());
    }
    let lanes = WAITING.iter().map(|names| Lane::start(tests(cargo(), names.iter().copied())));
    let lanes = lanes.collect::<Result<Vec<_>>>()?;
    let all = names()?;
    let busy = all.iter().map(String::as_str).filter(|name| !WAITING.concat().contains(name));
    count(tests(cargo(), busy).args(["--lib", "--bins"]), tally)?;
    count(cargo().arg("--doc"), tally)?;
    others(tally);
    lanes.into_iter().try_for_each(|lane| lane.end(tally))
}

fn tests<'a>(mut cargo: Command, names: impl Iterator<Item = &'a str>) -> Command {
    names.for_each(|name| _ = cargo.args(["--test", name]));
    cargo
}

/// The names of all test programs. Several packages may share one.
fn names() -> Result<BTreeSet<String>> {
    let metadata = MetadataCommand::new().current_dir(cmd::root()).no_deps().exec()?;
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    Ok(targets.filter(|t| t.kind.contains(&TargetKind::Test)).map(|t| t.name).collect())
}

/// A lane that runs on a thread. Its output goes to an unnamed file: a pipe would need a reader, and would end only with
/// the last process that a test left behind.
struct Lane {
    running: Child,
    printed: File,
}

impl Lane {
    fn start(mut tests: Command) -> Result<Lane> {
        let printed = tempfile::tempfile()?;
        tests.stdout(printed.try_clone()?).stderr(printed.try_clone()?);
        let running = tests.spawn().map_err(|e| format!("cannot start cargo: {e}"))?;
        Ok(Lane { running, printed })
    }

    fn end(mut self, tally: &mut Tally) -> Result {
        let passed = self.running.wait()?.success();
        self.printed.rewind()?;
        show(self.printed, tally)?;
        tally.end(passed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_wait_are_tests_of_the_workspace() {
        let all = names().unwrap();
        assert!(WAITING.concat().iter().all(|name| all.contains(*name)), "{all:?}");
    }
}
