//! A static binary, and a container of it alone: `packaging/Containerfile`. What happens with the container is
//! `packaging/check-container.sh`.

use std::fs;
use std::process::Command;

use crate::cmd::{self, Build, Result};
use crate::test;

const TARGET: &str = "x86_64-unknown-linux-musl";
/// The compiler of the C code in it, and what runs containers.
const PROGRAMS: [(&str, &str); 4] =
    [("musl-gcc", "musl-tools"), ("podman", "podman"), ("buildah", "buildah"), ("runc", "runc")];

/// Builds the server without the laboratory as a static binary in a directory of its own, from which a container can be
/// made; with `check` makes it and puts it to work.
pub(super) fn build(build: Build, check: bool) -> Result {
    let needed = if check { &PROGRAMS[..] } else { &PROGRAMS[..1] };
    let missing: Vec<&str> = needed.iter().filter(|(p, _)| cmd::find(p).is_none()).map(|(_, p)| *p).collect();
    if !missing.is_empty() {
        test::install(&missing)?;
    }
    cmd::run(Command::new("rustup").args(["target", "add", TARGET]).current_dir(cmd::root()))?;
    let (profile, dir) = match build {
        Build::Debug => ("dev", "debug"),
        Build::Release => ("release", "release"),
    };
    let flags = ["build", "--package", "remora-cli", "--no-default-features", "--target", TARGET, "--profile", profile];
    cmd::run(&mut cmd::cargo(&flags))?;
    let target = cmd::target_dir()?;
    let place = target.join("package/static");
    fs::create_dir_all(&place)?;
    let program = place.join("remora");
    fs::copy(target.join(TARGET).join(dir).join("remora"), &program)?;
    println!("{}: {:.1} MB, static", program.display(), fs::metadata(&program)?.len() as f64 / 1e6);
    if !check {
        return Ok(());
    }
    cmd::run(Command::new("sh").arg(cmd::root().join("packaging/check-container.sh")).arg(&place))
}
