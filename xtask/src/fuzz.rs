//! The fuzz targets in `fuzz/`, run by cargo-fuzz.

use std::process::Stdio;

use crate::cmd::{self, Result};

/// Runs `target`, or each one there is, for `seconds` seconds.
pub(crate) fn run(target: Option<&str>, seconds: u64) -> Result {
    require_cargo_fuzz()?;
    let all = targets()?;
    let chosen: Vec<&str> = match target {
        Some(name) if all.iter().any(|t| t == name) => vec![name],
        Some(name) => return Err(format!("no fuzz target '{name}'; there are: {}", all.join(", ")).into()),
        None => all.iter().map(String::as_str).collect(),
    };
    for name in chosen {
        println!("== {name}: {seconds} s");
        // Without a sanitizer a stable compiler will do, and the code under test is safe Rust.
        let mut fuzz = cmd::cargo(&["fuzz", "run", "--sanitizer", "none", name, "--"]);
        cmd::run(fuzz.arg(format!("-max_total_time={seconds}")))?;
    }
    Ok(())
}

fn require_cargo_fuzz() -> Result {
    let mut probe = cmd::cargo(&["fuzz", "--version"]);
    let there = probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if there { Ok(()) } else { Err("cargo-fuzz is not installed; get it with: cargo install cargo-fuzz".into()) }
}

/// The names of the fuzz targets, in order.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in cmd::root().join("fuzz/fuzz_targets").read_dir()? {
        let file = entry?.file_name();
        names.extend(file.to_string_lossy().strip_suffix(".rs").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}
