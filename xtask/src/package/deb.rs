//! The Debian package, made by cargo-deb from `[package.metadata.deb]` of `crates/cli`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cmd::{self, Build, Result};

/// The version of cargo-deb that is installed.
const CARGO_DEB: &str = "3.8.0";

/// Builds the program and packages it. Returns the package's path.
pub(super) fn build(build: Build) -> Result<PathBuf> {
    let target = cmd::target_dir()?;
    let profile = match build {
        Build::Debug => "dev",
        Build::Release => "dist",
    };
    let program = match build {
        Build::Debug => cmd::built("remora", Build::Debug)?,
        Build::Release => {
            cmd::run(&mut cmd::cargo(&["build", "--profile", profile, "--package", "remora-cli"]))?;
            target.join(profile).join("remora")
        }
    };
    generate(&program)?;
    let package = target.join("package/remora.deb");
    let mut deb = Command::new(cargo_deb(&target)?);
    deb.current_dir(cmd::root()).args(["--package", "remora-cli", "--no-build", "--profile", profile]);
    deb.arg("--output").arg(&package);
    match build {
        Build::Debug => deb.args(["--fast", "--no-strip"]),
        Build::Release => deb.arg("--dbgsym"),
    };
    cmd::run(&mut deb)?;
    println!("{}: {:.1} MB", package.display(), fs::metadata(&package)?.len() as f64 / 1e6);
    Ok(package)
}

/// Writes man pages and completions beside the program, where the package's assets name them.
fn generate(program: &Path) -> Result {
    let share = program.with_file_name("share");
    if share.exists() {
        fs::remove_dir_all(&share)?;
    }
    cmd::run(Command::new(program).arg("generate").arg(&share))
}

/// The path of cargo-deb; installs it below the target directory.
fn cargo_deb(target: &Path) -> Result<PathBuf> {
    let tools = target.join("tools");
    let program = tools.join("bin/cargo-deb");
    if !program.is_file() {
        // A debug build packages as well and is there sooner.
        let mut install =
            cmd::cargo(&["install", "--quiet", "--debug", "--locked", "cargo-deb", "--version", CARGO_DEB]);
        cmd::run(install.arg("--root").arg(&tools))?;
    }
    Ok(program)
}
