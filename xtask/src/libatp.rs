//! `cargo xtask install-libatp`: builds ATP's C library and installs it where C compilers search.

use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::cmd::{self, Result};

/// Flags of `cargo xtask install-libatp`.
#[derive(Args)]
pub(crate) struct Options {
    /// The prefix: files go to PREFIX/lib, PREFIX/include and PREFIX/lib/pkgconfig
    #[arg(long, value_name = "DIR", default_value = "/usr/local")]
    prefix: PathBuf,
}

/// Builds and installs the library.
pub(crate) fn install(options: &Options) -> Result {
    cmd::run(&mut cmd::cargo(&["build", "--release", "--package", "remora-libatp"]))?;
    let prefix = std::path::absolute(&options.prefix)?;
    cmd::run(&mut script(&prefix, &cmd::target_dir()?.join("release")))?;
    let prefix = prefix.display();
    println!("installed: PKG_CONFIG_PATH={prefix}/lib/pkgconfig pkg-config --cflags --libs libatp");
    println!("if a program does not find libatp.so: run ldconfig, or set LD_LIBRARY_PATH={prefix}/lib");
    Ok(())
}

/// The version, which all crates of the workspace share.
fn script(prefix: &Path, built: &Path) -> Command {
    let mut command = Command::new(cmd::root().join("crates/libatp/install.sh"));
    command.arg(prefix).arg(built).arg(env!("CARGO_PKG_VERSION"));
    command
}
