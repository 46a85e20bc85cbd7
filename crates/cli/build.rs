//! Gives `--version` the commit that a release build was made from.
//!
//! A debug build has no commit, so that a commit does not have it built again; nor has one from a tarball, or without
//! git.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env!("CARGO_PKG_VERSION");
    let is_release = std::env::var("PROFILE").is_ok_and(|profile| profile == "release");
    match is_release.then(commit).flatten() {
        Some(commit) => println!("cargo::rustc-env=REMORA_VERSION={version} ({commit})"),
        None => println!("cargo::rustc-env=REMORA_VERSION={version}"),
    }
}

/// The commit's short hash and date, if this is a work tree of the project.
fn commit() -> Option<String> {
    let root = Path::new("../..").canonicalize().ok()?;
    // A tarball may have been unpacked in somebody else's work tree.
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?).canonicalize().ok()? != root {
        return None;
    }
    // Written at each commit and checkout. Cargo takes a file that does not exist for one that has changed.
    for file in ["HEAD", "logs/HEAD"].iter().filter_map(|name| git(&["rev-parse", "--git-path", name])) {
        if Path::new(&file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    git(&["log", "-1", "--abbrev=9", "--format=%h %cs"])
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    let text = String::from_utf8(out.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
