//! The fuzz targets in `fuzz/`, run by cargo-fuzz.
//!
//! The name of a target leads to its files: seeds as text in `fuzz/seeds/TARGET/`, a dictionary in
//! `fuzz/TARGET.dict`. A target writes its binary seeds itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cmd::{self, Result};

/// Targets that take milliseconds for a command. libFuzzer tries longer inputs only after the shorter ones, which it
/// would never finish here.
const SLOW: &[&str] = &["atp_peer", "atp_session", "link_handshake"];
/// Longest input of those targets, in bytes: a few dozen commands.
const SLOW_LEN_MAX: usize = 300;
/// Environment variable that names the directory for a target's seeds.
const SEEDS: &str = "REMORA_FUZZ_SEEDS";

/// Runs `target`, or every target, for `seconds` seconds.
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
        cmd::run(command(name)?.arg(format!("-max_total_time={seconds}")))?;
    }
    Ok(())
}

/// The command that fuzzes `target`. The caller appends how long.
fn command(target: &str) -> Result<Command> {
    let fuzz = cmd::root().join("fuzz");
    // libFuzzer writes new inputs to the first directory and only reads the others.
    let (corpus, written) = (fuzz.join("corpus").join(target), fuzz.join("target/seeds").join(target));
    for dir in [&corpus, &written] {
        std::fs::create_dir_all(dir).map_err(|e| format!("cannot make {}: {e}", dir.display()))?;
    }
    // Without a sanitizer a stable compiler suffices; the code under test is safe Rust.
    let mut command = cmd::cargo(&["fuzz", "run", "--sanitizer", "none", target]);
    command
        .arg(corpus)
        .arg(&written)
        .env(SEEDS, written)
        .args(seeds(&fuzz, target))
        .arg("--")
        .args(flags(&fuzz, target));
    Ok(command)
}

/// The directories of seeds in the repository.
fn seeds(fuzz: &Path, target: &str) -> Option<PathBuf> {
    Some(fuzz.join("seeds").join(target)).filter(|dir| dir.is_dir())
}

fn flags(fuzz: &Path, target: &str) -> Vec<String> {
    let mut flags = Vec::new();
    if SLOW.contains(&target) {
        flags.extend(["-len_control=0".to_owned(), format!("-max_len={SLOW_LEN_MAX}")]);
    }
    let dictionary = fuzz.join(format!("{target}.dict"));
    if dictionary.is_file() {
        flags.push(format!("-dict={}", dictionary.display()));
    }
    flags
}

fn require_cargo_fuzz() -> Result {
    let mut probe = cmd::cargo(&["fuzz", "--version"]);
    let there = probe.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success());
    if there { Ok(()) } else { Err("cargo-fuzz is not installed; get it with: cargo install cargo-fuzz".into()) }
}

/// The names of the fuzz targets, sorted. A target is a file, or a directory if it is long.
fn targets() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in cmd::root().join("fuzz/fuzz_targets").read_dir()? {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_declared_and_each_seed_has_a_target() {
        let all = targets().unwrap();
        let manifest = std::fs::read_to_string(cmd::root().join("fuzz/Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let mut declared: Vec<_> =
            manifest["bin"].as_array().unwrap().iter().map(|b| b["name"].as_str().unwrap()).collect();
        declared.sort();
        assert_eq!(declared, all);
        let seeded = cmd::root().join("fuzz/seeds").read_dir().unwrap();
        let seeded = seeded.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        for name in SLOW.iter().map(|name| name.to_string()).chain(seeded) {
            assert!(all.contains(&name), "{name} is no target");
        }
    }

    #[test]
    fn a_target_gets_its_seeds_dictionary_and_lengths() {
        let fuzz = cmd::root().join("fuzz");
        let dictionary = format!("-dict={}", fuzz.join("exports.dict").display());
        for (target, has_seeds, expected) in [
            ("exports", true, vec![dictionary]),
            ("link_handshake", false, vec!["-len_control=0".into(), "-max_len=300".into()]),
            ("mount", false, vec![]),
        ] {
            assert_eq!(seeds(&fuzz, target).is_some(), has_seeds, "{target}");
            assert_eq!(flags(&fuzz, target), expected, "{target}");
        }
    }
}
