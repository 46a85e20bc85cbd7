//! The flags of `remora keys`.

use std::path::PathBuf;

use clap::Args;

pub(crate) const HELP: &str = "\
A key pair is who you are over ATP: to the other ends of remora send, recv,
forward and gateway, and to servers with proto=atp. The file holds the secret
half and is for its owner alone (mode 0600); the public half is what the other
side is told. It is kept beside the other keys, in $XDG_STATE_HOME/remora or
~/.local/state/remora, for root in /var/lib/remora; one that an earlier version
made in ~/.config/remora goes on being used. docs/guide/keys.md says which key is for
what. remora link has keys of its own: see remora link keys.

Examples:
  remora keys
  remora keys --file ~/keys/field-laptop.key
  remora keys --json | jq -r .public

--json prints one object: public, file, made (whether it is new).";

/// `remora keys`.
#[derive(Args, Debug)]
pub(crate) struct Keys {
    /// The file [default: atp.key in $XDG_STATE_HOME/remora or ~/.local/state/remora, or in
    /// /var/lib/remora for root]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}
