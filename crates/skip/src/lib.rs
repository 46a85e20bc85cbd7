//! Reports of skipped tests to `cargo xtask test`. For tests only.
//!
//! libtest hides the output of tests that pass, and a test that returns early passes. So the report
//! bypasses libtest's capture and goes to the process's standard output, where `xtask` counts it.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

/// Reports that the test `name` is skipped, and why; panics if all tests are required.
#[track_caller]
pub fn skipped(name: &str, why: &str) {
    assert!(!all_required(), "{name} must not be skipped here: {why}");
    // libtest may have begun a line that it ends when the test does.
    let line = format!("\nSKIPPED {name}: {why}\n");
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    stdout.and_then(|fd| File::from(fd).write_all(line.as_bytes())).expect("standard output is there");
}

/// The name of the running test: that of its thread.
pub fn this_test() -> String {
    std::thread::current().name().unwrap_or("a test").to_owned()
}

/// Whether every test must run.
pub fn all_required() -> bool {
    std::env::var_os("REMORA_REQUIRE_ALL").is_some_and(|v| v == "1")
}
