//! The flags of `remora serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use remora_atp::session::PublicKey;

use crate::config::address;
use crate::config::settings::names;
use crate::metrics::endpoint::MetricsFlags;
use crate::output::diagnostics::Verbosity;

pub(crate) const HELP: &str = "\
Examples:
  remora serve ~/files
  remora serve --read-only --listen 0.0.0.0:2049 --allow 10.1.0.0/16 \\
      --export music=/srv/media/music
  # answer clients that ask a portmapper for the port
  remora serve --portmap --listen 0.0.0.0:2049 --allow 10.1.0.0/16 ~/files
  # show what would be shared and with whom
  remora serve --exports /etc/exports --check
  # SIGHUP reloads the file
  remora serve --exports /etc/remora/exports.toml --listen 0.0.0.0:2049
  remora serve ~/files --atp 0.0.0.0:4049   # also over ATP
  # metrics for Prometheus at http://127.0.0.1:9105/metrics
  remora serve ~/files --metrics 9105
  # users in more than 16 groups
  remora serve --exports /etc/exports --manage-gids
  # without the duplicate request cache, for experiments
  remora serve --cache off ~/files

SIGHUP (kill -HUP) reloads the --exports files. Without --exports it stops the
server.";

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Directories to share, each under its absolute path and its last name; a single one also as /
    #[arg(value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Share DIR as /NAME; a single one also as /. May be repeated
    #[arg(long, value_name = "NAME=DIR")]
    pub(crate) export: Vec<OsString>,
    /// Share the exports in this file: TOML (*.toml) or exports(5). May be repeated
    #[arg(long, value_name = "FILE")]
    pub(crate) exports: Vec<PathBuf>,
    /// Format of the --exports files [default: by file name]
    #[arg(long, value_enum, requires = "exports")]
    pub(crate) exports_format: Option<ExportsFormat>,
    /// Print the exports with their clients and options, then exit: 0 if they can be served, else 2
    #[arg(long)]
    pub(crate) check: bool,
    /// UDP and TCP address to listen on; a port alone means loopback, port 0 a free port
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:2049", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// Serve over TCP only (NFS, MOUNT and the portmapper)
    #[arg(long)]
    pub(crate) no_udp: bool,
    /// Additional port for MOUNT, which the NFS port always serves as well
    #[arg(long, value_name = "PORT")]
    pub(crate) mount_port: Option<u16>,
    /// Run a portmapper on port 111, or on PORT, for clients that do not know the server's ports
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "111")]
    pub(crate) portmap: Option<u16>,
    /// Register with the rpcbind of this machine until the server stops
    #[arg(long, conflicts_with = "portmap")]
    pub(crate) rpcbind: bool,
    /// Also serve over ATP on this UDP port: small calls overtake large ones, and connections survive
    /// outages. Prints the server's public key, which clients put into their URLs
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) atp: Option<SocketAddr>,
    /// File with the server's ATP key [default: atp.key in the --state directory]
    #[arg(long, value_name = "FILE", requires = "atp")]
    pub(crate) atp_key: Option<PathBuf>,
    /// Accept only clients with this key over ATP. May be repeated [default: any client that the
    /// exports allow]
    #[arg(long, value_name = "KEY", requires = "atp", value_parser = names::key::<PublicKey>)]
    pub(crate) atp_allow: Vec<PublicKey>,
    /// Reject all changes
    #[arg(long, conflicts_with = "exports")]
    pub(crate) read_only: bool,
    /// Users that are mapped to the anonymous user (squashed)
    #[arg(long, value_enum, default_value = "root", conflicts_with = "exports")]
    pub(crate) squash: Squash,
    /// Serve only clients in this network. May be repeated
    #[arg(long, value_name = "CIDR", conflicts_with = "exports")]
    pub(crate) allow: Vec<String>,
    /// Require client ports below 1024, which only root can use. Without this, any user of a client machine can claim
    /// any uid
    #[arg(long, conflicts_with = "exports")]
    pub(crate) secure: bool,
    /// Look up each user's groups on this machine, in place of the list that clients send, which has 16 at most
    #[arg(long)]
    pub(crate) manage_gids: bool,
    /// Duplicate request cache
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) cache: Cache,
    /// What reaches stable storage before the reply
    #[arg(long, value_enum, default_value = "strict")]
    pub(crate) durability: Durability,
    /// Directory of the key that signs file handles [default: $XDG_STATE_HOME/remora, or
    /// /var/lib/remora for root]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Print JSON objects: when ready (addresses, exports), after each SIGHUP, and at the end
    /// (counters)
    #[arg(long)]
    pub(crate) json: bool,
    /// Append a line for each answered call to this file (- for standard error): client, uid, procedure, export,
    /// name, status, microseconds
    #[arg(long, value_name = "FILE")]
    pub(crate) access_log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Squash {
    Root,
    All,
    None,
}

impl From<Squash> for remora_server::Squash {
    fn from(squash: Squash) -> remora_server::Squash {
        match squash {
            Squash::Root => remora_server::Squash::Root,
            Squash::All => remora_server::Squash::All,
            Squash::None => remora_server::Squash::None,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Durability {
    /// As RFC 1813 requires
    Strict,
    /// Data at once; names and attributes when the system writes them back. Faster, but a machine
    /// crash can undo the last 30 s of them
    NamesLater,
}

impl From<Durability> for remora_server::Durability {
    fn from(durability: Durability) -> remora_server::Durability {
        match durability {
            Durability::Strict => remora_server::Durability::Strict,
            Durability::NamesLater => remora_server::Durability::NamesLater,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum ExportsFormat {
    /// TOML: tables named export
    Toml,
    /// The lines of /etc/exports
    Exports,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Cache {
    /// None: executes every retransmission again
    Off,
    /// The reference port of 1989: turns some failures of duplicates into successes
    Reference,
    /// Juszczak 1989: drops duplicates for a time
    Juszczak,
    /// Stores complete replies and replays them
    Full,
}
