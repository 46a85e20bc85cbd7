//! The flags of `remora link`. A flag that is also in the configuration file has no default here:
//! flags come before the file, the file before the defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use ipnet::IpNet;
use remora_base::Rate;
use serde::Deserialize;

use crate::config::duplex::Duplex;
use crate::config::{address, units};
use crate::metrics::endpoint::MetricsFlags;

const LINK_KEYS: &str = "\
Examples:
  remora link keys
  remora link keys --key /etc/remora/radio.key
  remora link keys --json | jq -r .public

--json prints one object: public, file, made (whether it is new).";

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
Both ends of a poor hop (radio, satellite, Wi-Fi in the field) run a link. It
encrypts the IP packets routed into it, queues them by destination and flow, and
retransmits each until it arrives or expires. Programs need no change.

Examples:
  remora link keys   # at each end: creates a key, prints its public half
  remora link base --address 10.78.0.1/24 --mobile 'PUBLIC-KEY=10.78.0.2' \\
      --rate 1Mbit
  remora link mobile --address 10.78.0.2/24 --base base.example.net:51900 \\
      --base-key PUBLIC-KEY --route 192.168.1.0/24 --rate 1Mbit
  remora link status

A network device needs root or CAP_NET_ADMIN. Ctrl-C removes it and its routes.";

#[derive(Args, Debug)]
pub(crate) struct Tunnel {
    #[command(subcommand)]
    pub(crate) what: LinkCommand,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LinkCommand {
    /// Create this end's key if missing, and print its public half
    #[command(after_help = LINK_KEYS)]
    Keys(Keys),
    /// Run the base station that mobiles connect to
    #[command(after_help = LINK_BASE)]
    Base(Box<Base>),
    /// Run a mobile
    #[command(after_help = LINK_MOBILE)]
    Mobile(Box<Mobile>),
    /// Show the running links of this machine
    #[command(after_help = LINK_STATUS)]
    Status(Status),
    /// Announce to the peers that a hand-off begins or ends
    #[command(after_help = LINK_HANDOFF)]
    Handoff(Handoff),
}

#[derive(Args, Debug)]
pub(crate) struct Keys {
    /// Key file [default: link.key in $XDG_STATE_HOME/remora, or in /var/lib/remora for root]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Print an object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Flags of both ends.
#[derive(Args, Debug)]
pub(crate) struct EndpointFlags {
    /// Configuration file (TOML); flags override it
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Print an example configuration file and exit
    #[arg(long)]
    pub(crate) print_config: bool,
    /// File with this end's private key [default: as remora link keys]
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// This end's address in the tunnel, with the prefix length of the tunnel's network; one for IPv4, any
    /// number for IPv6
    #[arg(long, value_name = "ADDR/LEN", value_parser = units::address_in_network)]
    pub(crate) address: Vec<IpNet>,
    /// Name of the network device [default: rlink0]
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// MTU of the hop in bytes; that of the device follows from it [default: 1500]
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u16>,
    /// Rate of the hop, such as 1Mbit [default: estimated]
    #[arg(long)]
    pub(crate) rate: Option<Rate>,
    /// Whether the two ends share the hop's medium (radio) or not (satellite, cellular)
    /// [default: half]
    #[arg(long, value_enum)]
    pub(crate) duplex: Option<Duplex>,
    /// Whether lost frames are retransmitted [default: arq]
    #[arg(long, value_enum)]
    pub(crate) mode: Option<Mode>,
    /// How several mobiles share the medium [default: airtime]
    #[arg(long, value_enum)]
    pub(crate) scheduler: Option<Scheduler>,
    /// Target queueing delay; above it packets are dropped so that TCP slows down. At least three frames or
    /// half an RTT [default: 20ms]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) queue_delay: Option<Duration>,
    /// Lifetime of the packets of a class (interactive, default, bulk, probe; by DSCP). May be repeated
    #[arg(long, value_name = "CLASS=TIME", value_parser = lifetime)]
    pub(crate) lifetime: Vec<(Class, Duration)>,
    /// Maximum transmissions of a packet of a class [default: 30, interactive 12]. May be repeated
    #[arg(long, value_name = "CLASS=N", value_parser = attempts)]
    pub(crate) attempts: Vec<(Class, u32)>,
    /// Enable IP forwarding while the link is up
    #[arg(long)]
    pub(crate) forward: bool,
    /// Print a JSON object when ready, then one each second: state, queue, airtime, retransmissions, ...
    #[arg(long, conflicts_with = "view")]
    pub(crate) json: bool,
    /// Show live figures on the terminal; q quits
    #[arg(long)]
    pub(crate) view: bool,
    #[command(flatten)]
    pub(crate) metrics: MetricsFlags,
    #[command(flatten)]
    pub(crate) verbosity: crate::output::diagnostics::Verbosity,
}

#[derive(Args, Debug)]
pub(crate) struct Base {
    #[command(flatten)]
    pub(crate) ends: EndpointFlags,
    /// UDP address for mobiles; a port alone means all addresses [default: 0.0.0.0:51900]
    #[arg(long, value_name = "[HOST:]PORT", value_parser = address::listen_everywhere)]
    pub(crate) listen: Option<std::net::SocketAddr>,
    /// A mobile: its public key, its address in the tunnel, further addresses (IPv6) and networks behind it.
    /// May be repeated
    #[arg(long, value_name = "KEY=ADDR[,NET]...")]
    pub(crate) mobile: Vec<String>,
}

#[derive(Args, Debug)]
pub(crate) struct Mobile {
    #[command(flatten)]
    pub(crate) ends: EndpointFlags,
    /// Address of the base
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) base: Option<String>,
    /// Public key of the base
    #[arg(long, value_name = "KEY")]
    pub(crate) base_key: Option<String>,
    /// File with a pre-shared secret of this mobile and the base, in addition to the keys
    #[arg(long, value_name = "FILE")]
    pub(crate) psk: Option<PathBuf>,
    /// Network or address to route through the tunnel. May be repeated
    #[arg(long, value_name = "NET", value_parser = units::network)]
    pub(crate) route: Vec<IpNet>,
    /// Send a keepalive after this much silence [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = units::duration)]
    pub(crate) keepalive: Option<Duration>,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    /// Only the link on this network device
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Print a JSON object for each link
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
    /// The hand-off begins
    #[command(after_help = LINK_HANDOFF_BEGIN)]
    Begin {
        /// Expected duration, at most a minute
        #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = units::duration)]
        expected: Duration,
    },
    /// The hand-off is over
    #[command(after_help = LINK_HANDOFF_END)]
    End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Until they arrive or expire
    Arq,
    /// Never, for comparison
    None,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scheduler {
    /// One frame each in turn
    RoundRobin,
    /// Equal time on the medium for each
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
