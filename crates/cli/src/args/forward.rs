//! The flags of `remora forward`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use remora_atp::Priority;
use remora_atp::session::PublicKey;
use remora_atp::stream::Target;

use super::gateway::{connections, hold, window};
use crate::address;
use crate::units;

pub(crate) const HELP: &str = "\
Opens local TCP ports whose connections are carried as ATP objects to a remora
gateway, which connects to their targets. While the link is away, or this
machine's address changes, connections pause; nothing of them is lost. They are
reset when the gateway ends, or forgets us, and when their target does not want
them: a local program sees its connection accepted before that is known.

Short answers and keystrokes pass long copies of the same priority; between
forwards the priority decides.

Examples:
  remora forward --listen 8080 --to wiki.example.net:80 atp://192.0.2.7:4050 \\
      --key PUBLIC-KEY
  remora forward --listen 2222 --to nas:22 --priority high --listen 8730 \\
      --to nas:873 --priority low atp://gw.example.net:4050 --key PUBLIC-KEY
  remora forward --listen 7000 --to alarm:7000 --deadline 5s \\
      atp://192.0.2.7:4050 --key PUBLIC-KEY

Exit codes:
  0    ended by Ctrl-C or a termination
  1    a port is taken, or a key does not fit
  2    wrong usage
  3    the gateway's name has no address, or nobody answers there for --timeout
       at first; later it is waited for

--json prints an object when ready: listen (a list), gateway, key; one for each
change: event (up, silent, heard, down, failed), why, to, connections (or
missed, with the lines that were not read in time); and each second in which
something happened, and at the end: up, sessions, connections, asked, done,
refused, reset, sent_bytes, received_bytes.";

/// `remora forward`.
#[derive(Args, Debug)]
pub(crate) struct Forward {
    /// The gateway, as in atp://192.0.2.7:4050
    #[arg(value_name = "atp://HOST:PORT", value_parser = gateway)]
    pub(crate) gateway: Target,
    /// The gateway's public key, which it prints
    #[arg(long, value_name = "KEY")]
    pub(crate) key: PublicKey,
    /// A local port, on loopback unless an address is named; one for each --to
    #[arg(long, value_name = "[HOST:]PORT", required = true, value_parser = address::listen)]
    pub(crate) listen: Vec<SocketAddr>,
    /// Where the gateway is to connect to; one for each --listen. A port alone: on the gateway's machine
    #[arg(long, value_name = "[HOST:]PORT", required = true, value_parser = address::target)]
    pub(crate) to: Vec<Target>,
    /// low, medium, high, or 0 to 15: higher goes first. One for all, or one for each --to
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Vec<Priority>,
    /// Reset a connection whose bytes take longer over the link. One for all, or one for each --to
    /// [default: they are held]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) deadline: Vec<Duration>,
    /// File with this end's key; made if there is none [default: as remora keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,
    /// Give up when the gateway does not answer for so long at first; 0: never
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = units::duration)]
    pub(crate) timeout: Duration,
    /// Take a gateway that is silent for so long for lost, and its connections with it
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = hold)]
    pub(crate) hold: Duration,
    /// Connections at once; more wait
    #[arg(long, value_name = "N", default_value = "128", value_parser = connections)]
    pub(crate) connections: usize,
    /// Bytes of a connection on their way, each way, 64K to 16M: less than the link's rate times its
    /// round trip slows it down
    #[arg(long, value_name = "SIZE", default_value = "512K", value_parser = window)]
    pub(crate) window: u32,
    /// Print objects instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Say nothing about the link
    #[arg(short, long)]
    pub(crate) quiet: bool,
    #[command(flatten)]
    pub(crate) verbosity: super::Verbosity,
}

/// Reads `atp://HOST:PORT`; the scheme may be left out.
fn gateway(text: &str) -> Result<Target, String> {
    text.strip_prefix("atp://").unwrap_or(text).trim_end_matches('/').parse().map_err(|e| format!("{e}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_are_read() {
        for text in ["atp://nas:4050", "atp://nas:4050/", "nas:4050"] {
            assert_eq!(gateway(text).unwrap().to_string(), "nas:4050", "{text}");
        }
        assert!(gateway("http://nas:4050").is_err() && gateway("atp://nas").is_err());
    }
}
