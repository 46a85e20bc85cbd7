//! The flags of `remora keys`.

use std::path::PathBuf;

use clap::Args;

pub(crate) const HELP: &str = "\
A key pair is who you are to remora send and remora recv. The file holds the
secret half and is for its owner alone (mode 0600); the public half is what the
other side is told.

Examples:
  remora keys
  remora keys --file ~/keys/field-laptop.key
  remora keys --json | jq -r .public

--json prints one object: public, file, made (whether it is new).";

/// `remora keys`.
#[derive(Args, Debug)]
pub(crate) struct Keys {
    /// The file [default: remora/atp.key in $XDG_CONFIG_HOME or ~/.config]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}
