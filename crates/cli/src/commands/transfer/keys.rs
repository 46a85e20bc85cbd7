//! `remora keys`: the identity of this user for `send` and `recv`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use remora_atp::session::{Identity, PublicKey};
use remora_host::KeyFileError;
use remora_host::atp::keys;
use serde::Serialize;

use crate::config::settings::names;
use crate::config::{state_dir, state_version, units};
use crate::output::exit::{Error, Result};
use crate::output::stdio;

pub(crate) const HELP: &str = "\
A key pair identifies you over ATP: to the peers of remora send, recv, forward
and gateway, and to servers with proto=atp. The file holds the private key and
has mode 0600; give the printed public key to the peer. The file is in
$XDG_STATE_HOME/remora or ~/.local/state/remora, for root in /var/lib/remora; a
key that an earlier version made in ~/.config/remora remains in use.
docs/guide/keys.md lists which key is for what. remora link has its own keys:
see remora link keys.

Examples:
  remora keys
  remora keys --file ~/keys/field-laptop.key
  remora keys --json | jq -r .public

--json prints one object: public, file, made (whether it is new).";

#[derive(Args, Debug)]
pub(crate) struct Keys {
    /// Key file [default: atp.key in $XDG_STATE_HOME/remora or ~/.local/state/remora, or in
    /// /var/lib/remora for root]
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Print a JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// The two ends of a connection to a receiver or a gateway.
#[derive(Args, Debug)]
pub(crate) struct PeerFlags {
    /// Public key of the peer, as the peer prints it
    #[arg(long, value_name = "KEY", value_parser = names::key::<PublicKey>)]
    pub(crate) key: PublicKey,
    /// File with this end's private key; created if missing [default: as remora keys]
    #[arg(long, value_name = "FILE")]
    identity: Option<PathBuf>,
    /// Give up if the peer does not answer for this long at the start; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = units::duration)]
    timeout: Duration,
}

impl PeerFlags {
    pub(crate) fn identity(&self) -> Result<Identity> {
        identity(self.identity.as_deref())
    }

    /// Maximum wait for the first answer.
    pub(crate) fn timeout(&self) -> Duration {
        if self.timeout.is_zero() { Duration::MAX } else { self.timeout }
    }
}

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct KeyRecord<'a> {
    pub(crate) public: String,
    pub(crate) file: &'a Path,
    pub(crate) made: bool,
}

pub(crate) fn run(args: &Keys) -> Result {
    let path = path(args.file.as_deref())?;
    let made = !path.exists();
    let public = load(&path)?.public().to_string();
    if args.json {
        return stdio::print_json(&KeyRecord { public, file: &path, made });
    }
    stdio::print(&format!("{public}\n"))?;
    let what = if made { "created a key" } else { "the key is" };
    stdio::eprint(format_args!("{what} in {}; its public half is above", path.display()));
    Ok(())
}

/// The identity in the file that was told, or in the user's own; made if there is none.
pub(crate) fn identity(told: Option<&Path>) -> Result<Identity> {
    load(&path(told)?)
}

fn path(told: Option<&Path>) -> Result<PathBuf> {
    match told {
        Some(path) => {
            state_dir::check_named(path)?;
            Ok(path.to_owned())
        }
        None => {
            let path = keys::default_path().map_err(|e| Error::Usage(e.to_string()))?;
            path.parent().map_or(Ok(()), state_version::check)?;
            Ok(path)
        }
    }
}

fn load(path: &Path) -> Result<Identity> {
    keys::load_or_create(path).map_err(|e: KeyFileError| Error::refused(path.display(), e.to_string()))
}
