//! The flags of `remora recv`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use remora_atp::session::PublicKey;

use crate::config::settings::names;
use crate::config::{address, units};
use crate::metrics::endpoint::MetricsFlags;

pub(crate) const HELP: &str = "\
Receives files and directories from remora send and stores them in DIR. A file
appears under its name only when it is complete. Rejected are names that lead
outside DIR, hidden names, and names with control or text-direction characters.
An existing file is kept unless --overwrite is given. A file gets the sender's
modification time, and its permission bits less the umask (0600 if it sends
none), but no set-ID bits. While recv runs, it keeps the received part of a file
whose sender disappeared; that part is not sent again. All senders share the
slots for incomplete files; further files wait.

Examples:
  remora recv inbox --listen 0.0.0.0:4100 --from PUBLIC-KEY
  remora recv . --listen 127.0.0.1:0 --from-anyone --once

Ctrl-C stops it and removes incomplete files.

--json prints an object when ready (listen, key), one for each file (file, from,
outcome: stored or refused, why, bytes), and event missed with lines, the number
of output lines that were dropped because nobody read them in time.";

#[derive(Args, Debug)]
#[command(group = ArgGroup::new("guests").required(true).args(["from", "from_anyone"]))]
pub(crate) struct Recv {
    /// Directory for the files; created with mode 0700 if its parent exists
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,
    /// UDP address to listen on; a port alone means loopback, port 0 a free port
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// File with this end's private key; created if missing [default: as remora keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Public key of a sender to accept. May be repeated
    #[arg(long, value_name = "KEY", value_parser = names::key::<PublicKey>)]
    pub(crate) from: Vec<PublicKey>,
    /// Accept files from any sender that can reach this address
    #[arg(long)]
    pub(crate) from_anyone: bool,
    /// Replace files of the same name
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Reject larger files
    #[arg(long, value_name = "SIZE", value_parser = units::bytes)]
    pub(crate) max_size: Option<u64>,
    /// Exit after storing N files [default if given: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "1", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) once: Option<u64>,
    /// Print JSON objects instead of text
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}
