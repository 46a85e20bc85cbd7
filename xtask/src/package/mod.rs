//! `cargo xtask package`: makes the Debian package, or a static binary and a container of it. With `--check`, a bare
//! Debian installs the package, runs its services under systemd, and removes it; or the container serves.

mod bare_debian;
mod container;
mod deb;

use clap::Args;

pub(crate) use bare_debian::prepare;

use crate::cmd::{Build, Result};

pub(crate) const HELP: &str = "\
Examples:
  cargo xtask package                 # target/package/remora.deb, and its debug symbols
  cargo xtask package --check         # the same, put to work in a bare Debian (root)
  cargo xtask package --debug --check # with the debug build
  cargo xtask package --static --check  # a static binary, and a container of it (root)

Needs binutils and dpkg-dev. --check installs mmdebstrap, systemd-container and prometheus by
apt-get, and keeps the bare Debian in ~/.cache/remora.";

/// Flags of `cargo xtask package`.
#[derive(Args)]
pub(crate) struct Options {
    /// Install the package in a bare Debian, use it, and remove it
    #[arg(long)]
    pub(crate) check: bool,
    /// Package the debug build, which exists already where tests ran
    #[arg(long)]
    pub(crate) debug: bool,
    /// Make a static binary of the server (musl) instead, for a container; with --check run the container
    #[arg(long = "static")]
    pub(crate) is_static: bool,
}

pub(crate) fn run(options: &Options) -> Result {
    let build = if options.debug { Build::Debug } else { Build::Release };
    if options.is_static {
        return container::build(build, options.check);
    }
    let package = deb::build(build)?;
    if options.check { bare_debian::check(&package) } else { Ok(()) }
}
