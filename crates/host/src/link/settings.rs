//! Settings of an end of a link, resolved from flags and files.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use remora_base::Rate;
use remora_link::{ArqMode, Class, Duplex, MediumScheduler};

use super::error::LinkError;
use super::routing_table::RoutingTable;
use super::tunnel::{self, LinkIdentity, LinkPublicKey, SharedSecret};

/// Settings of one end.
#[derive(Clone, Debug)]
pub struct LinkSettings {
    pub identity: LinkIdentity,
    pub role: LinkRole,
    /// Name of the network device (at most 15 bytes).
    pub device: String,
    /// Addresses in the tunnel, with the tunnel's network.
    pub addresses: Vec<IpNet>,
    /// Largest IP packet below the tunnel, in bytes.
    pub outer_mtu: u16,
    /// Whether to enable IP forwarding while the link runs.
    pub forward: bool,
    /// Settings of the link protocol.
    pub tuning: LinkTuning,
}

/// The role of an end.
#[derive(Clone, Debug)]
pub enum LinkRole {
    Base {
        /// The address for calls of mobiles.
        listen: SocketAddr,
        mobiles: Vec<MobileSettings>,
    },
    /// A mobile of a base station.
    Mobile {
        base: SocketAddr,
        key: LinkPublicKey,
        secret: Option<SharedSecret>,
        /// Networks routed through the base, besides the tunnel's.
        routes: Vec<IpNet>,
        /// Silence after which a keepalive is sent.
        keepalive: Duration,
    },
}

/// A mobile in the base's settings.
#[derive(Clone, Debug)]
pub struct MobileSettings {
    pub name: String,
    pub key: LinkPublicKey,
    pub secret: Option<SharedSecret>,
    pub address: IpAddr,
    /// Networks behind the mobile.
    pub routes: Vec<IpNet>,
}

/// Settings of the link protocol; `None` selects the core's default.
#[derive(Clone, Debug, Default)]
pub struct LinkTuning {
    /// The rate of the hop; `None` if it is learned.
    pub rate: Option<Rate>,
    /// Whether the two ends share the hop's medium.
    pub duplex: Option<Duplex>,
    /// With or without retransmission.
    pub mode: Option<ArqMode>,
    /// How a base shares the medium among its mobiles.
    pub scheduler: Option<MediumScheduler>,
    /// Acceptable queueing delay (CoDel target).
    pub queue_delay: Option<Duration>,
    /// Lifetime of packets by class.
    pub lifetimes: Vec<(Class, Duration)>,
    /// Most transmissions of a packet by class (at least 1).
    pub attempts: Vec<(Class, u32)>,
}

impl LinkSettings {
    /// Bytes below the link protocol in each datagram: IP, UDP, session.
    pub(super) fn overhead(&self) -> usize {
        let (LinkRole::Base { listen: outer, .. } | LinkRole::Mobile { base: outer, .. }) = &self.role;
        let ip = if outer.ip().to_canonical().is_ipv4() { 20 } else { 40 };
        ip + 8 + tunnel::OVERHEAD
    }

    /// All addresses and networks of the tunnel and behind it.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        let (mobiles, routes) = match &self.role {
            LinkRole::Base { mobiles, .. } => (&mobiles[..], &[][..]),
            LinkRole::Mobile { routes, .. } => (&[][..], &routes[..]),
        };
        let theirs = mobiles.iter().flat_map(|m| std::iter::once(m.address.into()).chain(m.routes.iter().copied()));
        self.addresses.iter().chain(routes).copied().chain(theirs)
    }

    /// The routing table of a base. Checks that each address has one owner and that the base is not reached through
    /// its own tunnel.
    pub(super) fn table(&self) -> Result<RoutingTable, LinkError> {
        let mut table = RoutingTable::default();
        match &self.role {
            LinkRole::Mobile { base, .. } => {
                let endpoint = base.ip().to_canonical();
                if let Some(network) = self.addresses.iter().find(|n| n.contains(&endpoint)) {
                    return Err(LinkError::Loop { endpoint, network: network.trunc() });
                }
            }
            LinkRole::Base { mobiles, .. } => {
                for (i, m) in mobiles.iter().enumerate() {
                    if let Some(other) = mobiles.iter().take(i).find(|o| o.key == m.key) {
                        return Err(settings(format!("{} and {} have the same key", other.name, m.name)));
                    }
                    if self.addresses.iter().any(|a| a.addr() == m.address) {
                        return Err(settings(format!("mobile {} has the base's own address {}", m.name, m.address)));
                    }
                    for prefix in std::iter::once(IpNet::from(m.address)).chain(m.routes.iter().copied()) {
                        table.insert(prefix, i).map_err(|owner| overlap(prefix, mobiles.get(owner), m))?;
                    }
                }
            }
        }
        Ok(table)
    }
}

/// The error for two mobiles with `prefix`. Mobiles named after the same address are distinguished by key.
fn overlap(prefix: IpNet, first: Option<&MobileSettings>, second: &MobileSettings) -> LinkError {
    let of_one_name = first.is_some_and(|first| first.name == second.name);
    let name = |m: &MobileSettings| if of_one_name { m.key.to_string() } else { m.name.clone() };
    LinkError::Overlap { prefix, first: first.map_or_else(String::new, name), second: name(second) }
}

fn settings(why: String) -> LinkError {
    LinkError::Settings(why)
}
