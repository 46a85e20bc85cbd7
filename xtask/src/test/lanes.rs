//! The whole workspace's tests, in two lanes side by side.
//!
//! Cargo runs one test program after the other, and some of them do little but wait: for timeouts, or for
//! an emulated hop that is as slow as the real one. These are a lane of their own, whose output is shown when
//! the other's has been.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Seek;
use std::process::Command;
use std::thread::{self, JoinHandle};

use cargo_metadata::{MetadataCommand, TargetKind};

use super::{Tally, show, stream};
use crate::cmd::{self, Result};

/// Those that mostly wait, in the order in which they run. Emulated hops come first: what runs beside them then
/// leaves the processors time to be punctual, which the simulator, the last of the others, does not.
const WAITING: &[&[&str]] = &[
    &["emulate", "errors", "odd_servers", "wireless_real"],
    &["interop", "kill9", "parts", "recovery", "terminal", "trees", "unread"],
];

/// Runs all of it; `cargo` gives a command of `cargo test` on the workspace.
pub(super) fn run(cargo: impl Fn() -> Command, tally: &mut Tally) -> Result {
    // The lanes find everything built.
    if cmd::run(cargo().arg("--no-run")).is_err() {
        tally.end(false);
        return Ok(());
    }
    let lane = Lane::start(WAITING.iter().map(|names| tests(cargo(), names.iter().copied())).collect())?;
    let all = names()?;
    let others = all.iter().map(String::as_str).filter(|name| !WAITING.concat().contains(name));
    stream(tests(cargo(), others).args(["--lib", "--bins"]), tally)?;
    lane.end(tally)?;
    stream(cargo().arg("--doc"), tally)
}

fn tests<'a>(mut cargo: Command, names: impl Iterator<Item = &'a str>) -> Command {
    names.for_each(|name| _ = cargo.args(["--test", name]));
    cargo
}

/// The names of all test programs; some are those of several packages.
fn names() -> Result<BTreeSet<String>> {
    let metadata = MetadataCommand::new().current_dir(cmd::root()).no_deps().exec()?;
    let targets = metadata.packages.into_iter().flat_map(|package| package.targets);
    Ok(targets.filter(|t| t.kind.contains(&TargetKind::Test)).map(|t| t.name).collect())
}

/// Tests that run on their own. What they print goes to a file without a name: a pipe would want a
/// reader, and end only with the last process that some test may have left behind.
struct Lane {
    running: JoinHandle<std::io::Result<bool>>,
    printed: File,
}

impl Lane {
    /// Runs these one after the other.
    fn start(mut commands: Vec<Command>) -> Result<Lane> {
        let printed = tempfile::tempfile()?;
        for command in &mut commands {
            command.stdout(printed.try_clone()?).stderr(printed.try_clone()?);
        }
        let run = move || {
            // What comes behind one that fails runs all the same.
            commands.iter_mut().try_fold(true, |ok, command| Ok(command.status()?.success() && ok))
        };
        Ok(Lane { running: thread::spawn(run), printed })
    }

    fn end(mut self, tally: &mut Tally) -> Result {
        let passed = self.running.join().map_err(|_| "a lane of tests panicked")?;
        let passed = passed.map_err(|e| format!("cannot start cargo: {e}"))?;
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
