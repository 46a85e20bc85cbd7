//! The flags of `remora serve`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use remora_atp::session::PublicKey;

use crate::config::address;

pub(crate) const HELP: &str = "\
Examples:
  remora serve ~/files
  remora serve --read-only --listen 0.0.0.0:2049 --allow 10.1.0.0/16 \\
      --export music=/srv/media/music
  # for clients that ask
  remora serve --portmap --listen 0.0.0.0:2049 --allow 10.1.0.0/16 ~/files
  # what would be served, and to whom
  remora serve --exports /etc/exports --check
  # SIGHUP: read again
  remora serve --exports /etc/remora/exports.toml --listen 0.0.0.0:2049
  remora serve ~/files --atp 0.0.0.0:4049   # and objects with priorities (ATP)
  # to see what the duplicate request cache is for
  remora serve --cache off ~/files

With --exports a hang-up (kill -HUP) makes it read the files again; without, it
ends it.";

#[derive(Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Directories to share: each under its absolute path and its last name, a single one also
    /// as /
    #[arg(value_name = "DIR")]
    pub(crate) dirs: Vec<PathBuf>,
    /// Share DIR as /NAME; a single one also as /
    #[arg(long, value_name = "NAME=DIR")]
    pub(crate) export: Vec<OsString>,
    /// Share what this file says, in TOML (*.toml) or as exports(5); may be given several times
    #[arg(long, value_name = "FILE")]
    pub(crate) exports: Vec<PathBuf>,
    /// What --exports files are written in, whatever their names
    #[arg(long, value_enum, requires = "exports")]
    pub(crate) exports_format: Option<ExportsFormat>,
    /// Print what would be shared, with whom and how, and end: 0 if it could be served, 2 if not
    #[arg(long)]
    pub(crate) check: bool,
    /// Where to listen, UDP and TCP; a port alone is on loopback, port 0 picks a free one
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:2049", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// Serve over TCP only (NFS, MOUNT and the portmapper)
    #[arg(long)]
    pub(crate) no_udp: bool,
    /// Answer MOUNT on this port, too (it is always answered on the NFS port); nothing else is
    /// answered there
    #[arg(long, value_name = "PORT")]
    pub(crate) mount_port: Option<u16>,
    /// Answer as a portmapper, too, for clients that do not know the ports: on port 111, or on
    /// the one given; nothing else is answered there
    #[arg(long, value_name = "PORT", num_args = 0..=1, require_equals = true, default_missing_value = "111")]
    pub(crate) portmap: Option<u16>,
    /// Register with the rpcbind that runs on this machine, until the end
    #[arg(long, conflicts_with = "portmap")]
    pub(crate) rpcbind: bool,
    /// Serve over ATP, too, on this UDP port: small calls do not wait behind large ones there, and
    /// the line may go and come back. The server's key is printed; clients name it in their URLs
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen)]
    pub(crate) atp: Option<SocketAddr>,
    /// Where the server's key for ATP is kept [default: atp.key in the directory of --state]
    #[arg(long, value_name = "FILE", requires = "atp")]
    pub(crate) atp_key: Option<PathBuf>,
    /// Let in over ATP only who has this key; may be given several times [default: everybody whom
    /// the exports let in]
    #[arg(long, value_name = "KEY", requires = "atp")]
    pub(crate) atp_allow: Vec<PublicKey>,
    /// Refuse every change
    #[arg(long, conflicts_with = "exports")]
    pub(crate) read_only: bool,
    /// Whose identity is taken away: root's, everybody's or nobody's
    #[arg(long, value_enum, default_value = "root", conflicts_with = "exports")]
    pub(crate) squash: Squash,
    /// Serve clients of this network only; may be given several times
    #[arg(long, value_name = "CIDR", conflicts_with = "exports")]
    pub(crate) allow: Vec<String>,
    /// Accept only ports below 1024, which need root on the client's machine; without this any user there can claim any
    /// uid
    #[arg(long, conflicts_with = "exports")]
    pub(crate) secure: bool,
    /// Duplicate request cache
    #[arg(long, value_enum, default_value = "full")]
    pub(crate) cache: Cache,
    /// What is on stable storage before a reply says so
    #[arg(long, value_enum, default_value = "strict")]
    pub(crate) durability: Durability,
    /// Where the key that signs file handles is kept [default: $XDG_STATE_HOME/remora, or
    /// /var/lib/remora for root]
    #[arg(long, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Print an object when ready (addresses, exports), one after each SIGHUP and one at the end
    /// (counters)
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
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
    /// Everything that RFC 1813 asks for
    Strict,
    /// Data, but names and attributes only when the system writes them back: faster, and a crash of
    /// the machine may undo half a minute of them
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
    /// None: every retransmission is executed again
    Off,
    /// The reference port's of 1989: turns some failures of duplicates into successes
    Reference,
    /// Juszczak's of 1989: drops duplicates for a while
    Juszczak,
    /// Keeps exact replies; a duplicate gets the same one again
    Full,
}
