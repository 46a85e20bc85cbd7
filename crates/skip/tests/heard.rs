//! The report of a skipped test appears although libtest captures output; with all tests required
//! it fails.

use std::process::{Command, Output};

/// Set in the process that runs `one_that_cannot_run` for the other test.
const ASKED: &str = "SKIP_TEST_ASKED";

#[test]
fn one_that_cannot_run() {
    if std::env::var_os(ASKED).is_some() {
        println!("which libtest keeps to itself");
        skip::skipped(&skip::this_test(), "it is asked not to");
    }
}

fn run(required: &str) -> Output {
    let mut again = Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "one_that_cannot_run"]).env(ASKED, "1").env("REMORA_REQUIRE_ALL", required);
    again.output().unwrap()
}

#[test]
fn skip_prints_a_line_or_fails_where_required() {
    let out = run("0");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{text}");
    assert!(text.lines().any(|l| l == "SKIPPED one_that_cannot_run: it is asked not to"), "{text}");
    assert!(!text.contains("which libtest"), "{text}");
    let out = run("1");
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(!out.status.success() && text.contains("must not be skipped here: it is asked not to"), "{text}");
    assert!(text.contains("0 passed; 1 failed"), "{text}");
}
