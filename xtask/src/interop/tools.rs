//! The test programs that cargo installs: fsx and pjdfstest, in fixed versions.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cmd::{self, Result};

/// Program and version. A new version may have new tests: run it and look at `excused.toml`.
const TOOLS: [(&str, &str); 2] = [("fsx", "0.3.2"), ("pjdfstest", "0.2.2")];

/// Sees to it that they are there, below `target`; where. Cargo does nothing where these
/// versions are installed already.
pub(super) fn provide(target: &Path) -> Result<PathBuf> {
    let place = target.join("interop-tools");
    // Other things may go on meanwhile that measure time.
    let cargo = cmd::cargo(&["install", "--quiet", "--locked", "--root"]);
    let mut install = Command::new("nice");
    install.args(["-n", "19"]).arg(cargo.get_program()).args(cargo.get_args()).current_dir(cmd::root());
    install.arg(&place).args(TOOLS.map(|(name, version)| format!("{name}@{version}")));
    // Apart from the project's own build, whose profile and features are others.
    install.env("CARGO_TARGET_DIR", place.join("build")).stdin(Stdio::null());
    cmd::run(&mut install)?;
    Ok(place.join("bin"))
}
