//! `cargo xtask package`: makes the Debian package. With `--check`, a bare Debian installs it, runs its services under
//! systemd, and removes it.

mod bare_debian;
mod deb;

use clap::Args;

use crate::cmd::{Build, Result};

pub(crate) const HELP: &str = "\
Examples:
  cargo xtask package                 # target/package/remora.deb, and its debug symbols
  cargo xtask package --check         # the same, put to work in a bare Debian (root)
  cargo xtask package --debug --check # with the debug build, as CI does

Needs objcopy and dpkg; installs cargo-deb below target/tools. --check installs debootstrap and
systemd-container by apt-get, and keeps the bare Debian in ~/.cache/remora.";

/// Flags of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct Options {
    /// Install the package in a bare Debian, use it, and remove it
    #[arg(long)]
    pub(crate) check: bool,
    /// Package the debug build, which exists already where tests ran
    #[arg(long)]
    pub(crate) debug: bool,
}

pub(crate) fn run(options: &Options) -> Result {
    let package = deb::build(if options.debug { Build::Debug } else { Build::Release })?;
    if options.check { bare_debian::check(&package) } else { Ok(()) }
}
