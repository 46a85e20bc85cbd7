//! The flags of `remora gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};
use remora_atp::session::PublicKey;
use remora_atp::stream::{STREAMS_MAX, Target, WINDOW_MIN};
use remora_wire::nfs3;

use crate::address;
use crate::units;

/// Less would take a slow answer for silence.
const HOLD_MIN: Duration = Duration::from_secs(10);
/// More than any link carries in a round trip.
const WINDOW_MAX: u64 = 16 << 20;

pub(crate) const HELP: &str = "\
The fixed end of a link that comes and goes: ATP on the mobiles' side, TCP
beyond. With --to it connects the remora forward of the mobiles that are let in
to the targets named, and to no others. With --nfs it stands in front of an NFS
server that knows nothing of ATP: clients say proto=atp.

Examples:
  remora gateway --listen 0.0.0.0:4050 --allow PUBLIC-KEY \\
      --to wiki.example.net:80 --to nas:22
  remora gateway --listen 0.0.0.0:4050 --allow PUBLIC-KEY --nfs nas
  remora gateway --listen 0.0.0.0:4050 --allow PUBLIC-KEY --nfs 127.0.0.1 \\
      --mount-port 20048
  # on a mobile, with --nfs here
  remora ls 'nfs://gw:4050/export?proto=atp&key=GATEWAY-KEY'

Names are looked up here, when a connection is made. To an NFS server all calls
come from this machine, with the user that each call names; as root they come
from a reserved port, which some servers ask for.

Ctrl-C ends it, and resets what it carries (exit code 0).

--json prints an object when ready: listen, key; one for each change: event
(came, left), key, addr, why (or missed, with the lines that were not read in
time); and each second in which something happened, and at the end: mobiles,
connections, asked, done, refused, reset, sent_bytes, received_bytes (to and
from mobiles), calls (of NFS), turned_away, violations.";

/// `remora gateway`.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("service").required(true).args(["to", "nfs"]))]
pub(crate) struct Gateway {
    /// Where mobiles find it, over UDP; a port alone is on loopback, port 0 picks a free one
    #[arg(long, value_name = "[HOST:]PORT", default_value = "127.0.0.1:4050", value_parser = address::listen)]
    pub(crate) listen: SocketAddr,
    /// A mobile to let in: its public key; may be given several times
    #[arg(long, value_name = "KEY", required = true)]
    pub(crate) allow: Vec<PublicKey>,
    /// Where mobiles may connect to, a port alone on this machine; may be given several times
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::target)]
    pub(crate) to: Vec<Target>,
    /// Carry NFS calls to this server, over TCP; a port alone is on this machine
    #[arg(long, value_name = "HOST[:PORT]", value_parser = server)]
    pub(crate) nfs: Option<Target>,
    /// Where the NFS server answers MOUNT [default: where its portmapper says, else the port of NFS]
    #[arg(long, value_name = "PORT", requires = "nfs", conflicts_with = "to", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) mount_port: Option<u16>,
    /// File with this end's key; made if there is none [default: as remora keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Sessions of mobiles at once; the keys share them when all are taken
    #[arg(long, value_name = "N", default_value = "256", value_parser = connections)]
    pub(crate) mobiles: usize,
    /// Connections of all mobiles at once; more are refused
    #[arg(long, value_name = "N", default_value = "512", value_parser = connections, conflicts_with = "nfs")]
    pub(crate) connections: usize,
    /// Bytes of a connection on their way, each way, 64K to 16M
    #[arg(long, value_name = "SIZE", default_value = "512K", value_parser = window, conflicts_with = "nfs")]
    pub(crate) window: u32,
    /// Forget a mobile that is silent for so long, and reset its connections
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = hold)]
    pub(crate) hold: Duration,
    /// Print objects instead of text
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) verbosity: super::Verbosity,
}

/// Reads `HOST`, `HOST:PORT` or a port of loopback.
fn server(text: &str) -> Result<Target, String> {
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    address::target(text).or_else(|_| Target::new(bare, nfs3::PORT)).map_err(|e| e.to_string())
}

/// Reads how many connections there may be.
pub(super) fn connections(text: &str) -> Result<usize, String> {
    let n = text.parse().ok().filter(|n| (1..=STREAMS_MAX).contains(n));
    n.ok_or_else(|| format!("expected 1 to {STREAMS_MAX}"))
}

/// Reads how many bytes of a connection may be on their way.
pub(super) fn window(text: &str) -> Result<u32, String> {
    let size = units::bytes(text)?;
    let size = u32::try_from(size).ok().filter(|_| (u64::from(WINDOW_MIN)..=WINDOW_MAX).contains(&size));
    size.ok_or_else(|| "expected 64K to 16M".into())
}

/// Reads how long a silent peer is held: long enough for a round trip or two over any link.
pub(super) fn hold(text: &str) -> Result<Duration, String> {
    let hold = units::duration(text)?;
    if hold >= HOLD_MIN { Ok(hold) } else { Err("expected 10s or more".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_a_port_or_the_usual_one() {
        for (text, at) in [
            ("nas", "nas:2049"),
            ("nas:20", "nas:20"),
            ("20", "127.0.0.1:20"),
            ("[::1]", "[::1]:2049"),
            ("[::1]:7", "[::1]:7"),
        ] {
            assert_eq!(server(text).unwrap().to_string(), at);
        }
        assert!(server("").is_err() && server("nas:0").is_err() && server("nas:").is_err());
    }

    #[test]
    fn bounds_are_kept() {
        assert_eq!((window("64K"), window("16M")), (Ok(WINDOW_MIN), Ok(16 << 20)));
        assert!(window("63K").is_err() && window("17M").is_err() && window("5G").is_err());
        assert!(hold("9s").is_err() && hold("10s").is_ok());
        assert!(connections("0").is_err() && connections("4097").is_err() && connections("1") == Ok(1));
    }
}
