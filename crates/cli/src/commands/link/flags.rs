//! The flags of `remora link`. A flag that is also in the configuration file has no default here:
//! flags come before the file, the file before the defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use remora_base::Rate;
use serde::Deserialize;

use crate::commands::lab::channel::Duplex;
use crate::config::{address, units};

const LINK_KEYS: &str = "\
Examples:
  remora link keys
  remora link keys --key /etc/remora/radio.key";

const LINK_BASE: &str = "\
Examples:
  remora link base --address 10.78.0.1/24 --mobile 'PUBLIC-KEY=10.78.0.2' \\
      --rate 1Mbit
  remora link base --print-config > /etc/remora/base.toml
  remora link base --config /etc/remora/base.toml --view";

const LINK_MOBILE: &str = "\
Examples:
  remora link mobile --address 10.78.0.2/24 --base base.example.net:51900 \\
      --base-key PUBLIC-KEY --route 192.168.1.0/24 --rate 1Mbit
  remora link mobile --config /etc/remora/mobile.toml --json";

const LINK_STATUS: &str = "\
Examples:
  remora link status
  remora link status --device remora0 --json | jq .";

const LINK_HANDOFF: &str = "\
Examples:
  remora link handoff begin --for 2s
  remora link handoff end";

const LINK_HANDOFF_BEGIN: &str = "\
Examples:
  remora link handoff begin --for 2s
  remora link handoff begin --device remora0";

const LINK_HANDOFF_END: &str = "\
Examples:
  remora link handoff end
  remora link handoff end --device remora0";

pub(crate) const HELP: &str = "\
Two ends of a poor hop (radio, satellite, Wi-Fi in the field) run a link; all IP
traffic that is routed into it is sealed, queued by destination and flow, and
sent again until it arrives or is too old to be worth it. Everything above gets
better and needs no change.

Examples:
  remora link keys   # at each end: makes a key, prints its public half
  remora link base --address 10.78.0.1/24 --mobile 'PUBLIC-KEY=10.78.0.2' \\
      --rate 1Mbit
  remora link mobile --address 10.78.0.2/24 --base base.example.net:51900 \\
      --base-key PUBLIC-KEY --route 192.168.1.0/24 --rate 1Mbit
  remora link status

Making network devices needs root, or CAP_NET_ADMIN. Ctrl-C takes all back.";

#[derive(Args, Debug)]
pub(crate) struct Tunnel {
    #[command(subcommand)]
    pub(crate) what: LinkCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LinkCommand {
    /// Make this end's key if there is none, and print its public half
    #[command(after_help = LINK_KEYS)]
    Keys(Keys),
    /// Be the base station that mobiles call
    #[command(after_help = LINK_BASE)]
    Base(Box<Base>),
    /// Be a mobile
    #[command(after_help = LINK_MOBILE)]
    Mobile(Box<Mobile>),
    /// Show the links that run on this machine
    #[command(after_help = LINK_STATUS)]
    Status(Status),
    /// Announce a cell switch to the other ends, or its end
    #[command(after_help = LINK_HANDOFF)]
    Handoff(Handoff),
}

#[derive(Args, Debug)]
pub(crate) struct Keys {
    /// The file [default: link.key in $XDG_STATE_HOME/remora, or in /var/lib/remora for root]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
}

/// Flags of both ends.
#[derive(Args, Debug)]
pub(crate) struct EndpointFlags {
    /// Read settings from this file (TOML); flags come before it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print an example of such a file and end
    #[arg(long)]
    pub(crate) print_config: bool,
    /// File with this end's key; see remora link keys [default: as there]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// This end's address in the tunnel, with the tunnel's network; once for IPv4, any times for
    /// IPv6
    #[arg(long, value_name = "ADDR/LEN", value_parser = units::address_in_network)]
    pub(crate) address: Vec<IpNet>,
    /// Name of the network device [default: rlink0]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Longest IP packet on the hop in bytes; the device's own follows [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// What the hop carries, as in 1Mbit; without it, that is learned
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// Whether the two ends share the hop's medium (radio) or not (satellite, cellular)
    /// [default: half]
    #[arg(long, value_enum)]
    pub(crate) duplex: Option<Duplex>,
    /// Send lost frames again or not [default: arq]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// Whose turn it is, among several mobiles [default: airtime]
    #[arg(long, value_enum)]
    pub(crate) scheduler: Option<Scheduler>,
    /// How long packets may stand in a queue before some are dropped, which tells TCP to slow down: 20 ms
    /// unless set, and three frames or half a round trip at least
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) queue_delay: Option<Duration>,
    /// How long packets of a class (interactive, default, bulk, probe; by DSCP) are worth sending; may
    /// be given several times
    #[arg(long, value_name = "CLASS=TIME", value_parser = lifetime)]
    pub(crate) lifetime: Vec<(Class, Duration)>,
    /// How many times a packet of a class (as above) is sent at most [default: 30, interactive 12]; may be given
    /// several times
    #[arg(long, value_name = "CLASS=N", value_parser = attempts)]
    pub(crate) attempts: Vec<(Class, u32)>,
    /// Pass packets on between networks while the link is up
    #[arg(long)]
    pub(crate) forward: bool,
    /// Print an object when ready and one each second: state, queue, airtime, retransmissions, ...
    #[arg(long, conflicts_with = "view")]
    pub(crate) json: bool,
    /// Show the figures on the terminal as they change; q ends it
    #[arg(long)]
    pub(crate) view: bool,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}

#[derive(Args, Debug)]
pub(crate) struct Base {
    #[command(flatten)]
    pub(crate) ends: EndpointFlags,
    /// Where mobiles call, over UDP; a port alone is on all addresses [default: 0.0.0.0:51900]
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen_everywhere)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// A mobile: its public key, its address in the tunnel, further ones (IPv6) and networks behind it; may be
    /// given several times
    #[arg(long, value_name = "KEY=ADDR[,NET]...")]
    pub(crate) mobile: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Mobile {
    #[command(flatten)]
    pub(crate) ends: EndpointFlags,
    /// Where the base is
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) base: Option<String>,
    /// The base's public key
    #[arg(long, value_name = "KEY")]
    pub(crate) base_key: Option<String>,
    /// File with a secret shared with the base, on top of the keys
    #[arg(long, value_name = "FILE")]
    pub(crate) psk: Option<PathBuf>,
    /// A network that is reached through the tunnel, or an address; may be given several times
    #[arg(long, value_name = "NET", value_parser = units::network)]
    pub(crate) route: Vec<IpNet>,
    /// A sign of life after so much silence [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) keepalive: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Only the link on this network device
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Print an object for each link
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Handoff {
    #[command(subcommand)]
    pub(crate) phase: LinkHandoffPhase,
    /// Only the link on this network device
    #[arg(long, value_name = "NAME", global = true)]
    pub(crate) device: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LinkHandoffPhase {
    /// It is imminent
    #[command(after_help = LINK_HANDOFF_BEGIN)]
    Begin {
        /// How long it is expected to take, at most a minute
        #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = units::duration)]
        expected: Duration,
    },
    /// It is over
    #[command(after_help = LINK_HANDOFF_END)]
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Yes, until they arrive or are too old
    Arq,
    /// No, for comparison
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheduler {
    /// A frame each in turn
    RoundRobin,
    /// The same time on the medium for each
    Airtime,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Class {
    Interactive,
    Default,
    Bulk,
    Probe,
}

fn lifetime(text: &str) -> Result<(Class, Duration), String> {
    let (class, time) =
        text.split_once('=').ok_or_else(|| format!("'{text}' is not a lifetime: expected one as in bulk=2s"))?;
    Ok((class_named(class)?, units::duration(time)?))
}

fn attempts(text: &str) -> Result<(Class, u32), String> {
    let (class, times) = text
        .split_once('=')
        .ok_or_else(|| format!("'{text}' is not a number of attempts: expected one as in bulk=5"))?;
    let times = times.parse().map_err(|_| format!("'{times}' is not a number of attempts: expected one as in 5"))?;
    Ok((class_named(class)?, times))
}

fn class_named(name: &str) -> Result<Class, String> {
    Class::from_str(name, true)
        .map_err(|_| format!("'{name}' is not a class: expected interactive, default, bulk or probe"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_checked() {
        assert_eq!(attempts("bulk=2"), Ok((Class::Bulk, 2)));
        for bad in ["bulk", "slow=2", "bulk=often", "bulk=-1", "bulk=5000000000"] {
            assert!(attempts(bad).is_err(), "{bad}");
        }
        assert!(attempts("slow=2").is_err_and(|e| e.contains("interactive, default, bulk or probe")));
    }

    #[test]
    fn lifetimes_are_checked() {
        assert_eq!(lifetime("bulk=2s"), Ok((Class::Bulk, Duration::from_secs(2))));
        for bad in ["bulk", "slow=2s", "bulk=soon"] {
            assert!(lifetime(bad).is_err(), "{bad}");
        }
        assert!(lifetime("slow=2s").is_err_and(|e| e.contains("interactive, default, bulk or probe")));
    }
}
