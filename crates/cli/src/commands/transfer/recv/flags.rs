//! The flags of `remora recv`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use remora_atp::session::PublicKey;

use crate::config::{address, units};

pub(crate) const HELP: &str = "\
Takes files and directories that remora send sends, and puts them into DIR. A
file appears under its name whole or not at all. Names that lead elsewhere, that
are hidden in DIR, or that have control characters or such as rearrange text are
refused; a file that is there is kept unless --overwrite is given. Files get the
permission bits that the sender gives less those of the umask (0600 if it gives
none), never a set-id bit, and its time. What has arrived of a file whose sender
went away is kept while this runs, and not sent again. Each sender has its share
of the places for unfinished files; what is beyond that waits.

Examples:
  remora recv inbox --listen 0.0.0.0:4100 --from PUBLIC-KEY
  remora recv . --listen 127.0.0.1:0 --from-anyone --once

Ctrl-C ends it and removes what is unfinished.

--json prints an object when ready: listen, key; and one for each file: file,
from, outcome (stored or refused), why, bytes; and event missed with lines, the
number of those that were not read in time.";

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("guests").required(true).args(["from", "from_anyone"]))]
pub(crate) struct Recv {
    /// Where files go; made, for its owner alone (0700), if only this directory is missing
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// Where to listen, over UDP; a port alone is on loopback, port 0 picks a free one
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// File with this end's key; made if there is none [default: as remora keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Whose files are taken: the sender's public key; may be given several times
    #[arg(long, value_name = "KEY")]
    pub(crate) from: Vec<PublicKey>,
    /// Take files from everyone who can reach this address
    #[arg(long)]
    pub(crate) from_anyone: bool,
    /// Replace files of the same name
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Refuse larger files
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) max_size: Option<u64>,
    /// End when so many files have been stored [default if given: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) once: Option<u64>,
    /// Print objects instead of text
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}
