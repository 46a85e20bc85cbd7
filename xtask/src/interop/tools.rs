//! fsx and pjdfstest, which cargo installs in fixed versions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cmd::{self, Result};

/// Programs and versions. A new version may have new tests: run it and revise `excused.toml`.
const TOOLS: [(&str, &str); 2] = [("fsx", "0.3.2"), ("pjdfstest", "0.2.2")];

/// Installs them below `target` if they are missing, and returns the directory.
pub(super) fn provide(target: &Path) -> Result<PathBuf> {
    let place = target.join("interop-tools");
    // Other tests run meanwhile, and some wait for it: it gives way to them, and gets its share beside other load.
    let cargo = cmd::cargo(&["install", "--quiet", "--locked", "--root"]);
    let mut install = Command::new("nice");
    install.args(["-n", "5"]).arg(cargo.get_program()).args(cargo.get_args()).current_dir(cmd::root());
    install.arg(&place).args(TOOLS.map(|(name, version)| format!("{name}@{version}")));
    // A directory of its own: the project's build has another profile and other features.
    install.env("CARGO_TARGET_DIR", place.join("build")).stdin(Stdio::null());
    cmd::run(&mut install)?;
    Ok(place.join("bin"))
}
