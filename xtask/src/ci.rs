//! `cargo xtask ci`: runs every check, even after one failed, and prints how long each took.

use std::time::{Duration, Instant};

use crate::cmd::{self, Result};
use crate::{figures, package, test, tidy};

/// Runs all checks. The tests come last, so that their tally ends the output.
pub(crate) fn run() -> Result {
    let mut steps = Steps::default();
    // Packages download while the processors compile.
    let preparing = std::thread::spawn(|| {
        test::provide(false);
        // The check tries again what failed here, and says why.
        let _ = package::prepare();
    });
    steps.run("fmt", || cmd::run(&mut cmd::cargo(&["fmt", "--all", "--check"])));
    steps.run("tidy", tidy::run);
    steps.run("clippy", || {
        cmd::run(&mut cmd::cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
    });
    steps.run("doc", || cmd::run(cmd::cargo(&["doc", "--no-deps", "--workspace"]).env("RUSTDOCFLAGS", "-D warnings")));
    steps.run("fuzz", fuzz_targets);
    steps.run("figures", || figures::run(None, cmd::Build::Debug));
    // Tests and checks find and report missing programs themselves.
    let _ = preparing.join();
    steps.run("package", || package::run(&package::Options { check: true, debug: true, is_static: false }));
    let mut report = None;
    steps.run("test", || {
        let done = test::execute(&test::Options { require_all: true, ..test::Options::default() })?;
        let verdict = done.verdict();
        report = Some(done);
        verdict
    });
    println!("\n{}", steps.table());
    let verdict = steps.verdict();
    if let Err(why) = &verdict {
        println!("error: {why}\n");
    }
    if let Some(report) = report {
        println!("{report}");
    }
    verdict.map_err(|_| cmd::Told.into())
}

/// Checks the fuzz targets, which are outside the workspace.
fn fuzz_targets() -> Result {
    const THERE: &[&str] = &["--manifest-path", "fuzz/Cargo.toml"];
    cmd::run(cmd::cargo(&["fmt"]).args(THERE).arg("--check"))?;
    // Most dependencies were checked for the workspace already. Nothing is linked, so libFuzzer, which needs a
    // C++ compiler, is not needed.
    let mut clippy = cmd::cargo(&["clippy"]);
    clippy.args(THERE).arg("--target-dir").arg(cmd::target_dir()?).args(["--", "-D", "warnings"]);
    cmd::run(clippy.env("CUSTOM_LIBFUZZER_PATH", "./libfuzzer.a"))
}

/// A finished step: its name, duration and error.
#[derive(Default)]
struct Steps(Vec<(&'static str, Duration, Option<String>)>);

impl Steps {
    fn run(&mut self, name: &'static str, step: impl FnOnce() -> Result) {
        println!("== {name}");
        let start = Instant::now();
        let why = step().err().map(|e| e.to_string());
        let took = start.elapsed();
        match &why {
            None => println!("== {name}: ok in {:.1} s", took.as_secs_f64()),
            Some(why) => println!("== {name}: FAILED in {:.1} s: {why}", took.as_secs_f64()),
        }
        self.0.push((name, took, why));
    }

    fn table(&self) -> String {
        let row = |(name, took, why): &(&str, Duration, Option<String>)| {
            let verdict = if why.is_none() { "ok" } else { "FAILED" };
            format!("{name:8} {:8.1} s  {verdict}\n", took.as_secs_f64())
        };
        self.0.iter().map(row).collect()
    }

    fn verdict(&self) -> Result {
        let failed: Vec<&str> = self.0.iter().filter(|s| s.2.is_some()).map(|s| s.0).collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", ")).into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_step_does_not_stop_the_next_but_fails_the_whole() {
        let mut steps = Steps::default();
        steps.run("one", || Err("broken".into()));
        steps.run("two", || Ok(()));
        assert_eq!(steps.0.len(), 2);
        assert!(steps.table().contains("one") && steps.table().contains("FAILED"));
        assert_eq!(steps.verdict().unwrap_err().to_string(), "failed: one");
    }
}
