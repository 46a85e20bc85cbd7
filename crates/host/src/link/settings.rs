//! What an end of a link is told: by flags and files above, resolved and typed here.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use remora_base::Rate;
use remora_link::{Class, Duplex, Mode, Scheduler};

use super::error::LinkError;
use super::key::{Identity, PublicKey, SharedSecret};
use super::table::Table;

/// An end of a link.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its keys.
    pub identity: Identity,
    /// Which end it is.
    pub role: Role,
    /// Name of the network device (at most 15 bytes).
    pub device: String,
    /// Its addresses in the tunnel, with the tunnel's network.
    pub addresses: Vec<IpNet>,
    /// Largest IP packet below the tunnel (bytes).
    pub outer_mtu: u16,
    /// Whether to pass packets on between networks while the link is up.
    pub forward: bool,
    /// How the link protocol works.
    pub tuning: Tuning,
}

/// Which end of a link it is.
#[derive(Clone, Debug)]
pub enum Role {
    /// The base station.
    Base {
        /// Where mobiles call.
        listen: SocketAddr,
        /// Those it serves.
        mobiles: Vec<Mobile>,
    },
    /// A mobile.
    Mobile {
        /// Where the base is.
        base: SocketAddr,
        /// Its key.
        key: PublicKey,
        /// A secret shared with it.
        secret: Option<SharedSecret>,
        /// What is reached through it, beside the tunnel's network.
        routes: Vec<IpNet>,
        /// A sign of life after so much silence.
        keepalive: Duration,
    },
}

/// A mobile as its base knows it.
#[derive(Clone, Debug)]
pub struct Mobile {
    /// What people call it.
    pub name: String,
    /// Its key.
    pub key: PublicKey,
    /// A secret shared with it.
    pub secret: Option<SharedSecret>,
    /// Its address in the tunnel.
    pub address: IpAddr,
    /// Networks behind it.
    pub routes: Vec<IpNet>,
}

/// How the link protocol works; what is `None` is left to its own defaults.
#[derive(Clone, Debug, Default)]
pub struct Tuning {
    /// What the poor hop carries; `None`: learned.
    pub rate: Option<Rate>,
    /// Whether the two ends share the hop's medium.
    pub duplex: Option<Duplex>,
    /// With or without retransmission.
    pub mode: Option<Mode>,
    /// Whose turn it is at a base.
    pub scheduler: Option<Scheduler>,
    /// How long packets may stand in a queue before some are dropped.
    pub queue_delay: Option<Duration>,
    /// How long packets of a class are worth sending.
    pub lifetimes: Vec<(Class, Duration)>,
    /// How many times a packet of a class is sent at most (1 or more).
    pub attempts: Vec<(Class, u32)>,
}

impl Settings {
    /// Bytes below the link protocol in each datagram: IP, UDP, session.
    pub(super) fn overhead(&self) -> usize {
        let (Role::Base { listen: outer, .. } | Role::Mobile { base: outer, .. }) = &self.role;
        let ip = if outer.ip().to_canonical().is_ipv4() { 20 } else { 40 };
        ip + 8 + super::session::OVERHEAD
    }

    /// All addresses and networks of the tunnel and behind it.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = IpNet> + '_ {
        let (mobiles, routes) = match &self.role {
            Role::Base { mobiles, .. } => (&mobiles[..], &[][..]),
            Role::Mobile { routes, .. } => (&[][..], &routes[..]),
        };
        let theirs = mobiles.iter().flat_map(|m| std::iter::once(m.address.into()).chain(m.routes.iter().copied()));
        self.addresses.iter().chain(routes).copied().chain(theirs)
    }

    /// Which end an address belongs to, for a base; checks that each has one owner and that
    /// the base is not reached through its own tunnel.
    pub(super) fn table(&self) -> Result<Table, LinkError> {
        let mut table = Table::default();
        match &self.role {
            Role::Mobile { base, .. } => {
                let endpoint = base.ip().to_canonical();
                if let Some(network) = self.addresses.iter().find(|n| n.contains(&endpoint)) {
                    return Err(LinkError::Loop { endpoint, network: network.trunc() });
                }
            }
            Role::Base { mobiles, .. } => {
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

/// Two mobiles want `prefix`. Those whose names are their address, which is the same, are told apart by key.
fn overlap(prefix: IpNet, first: Option<&Mobile>, second: &Mobile) -> LinkError {
    let of_one_name = first.is_some_and(|first| first.name == second.name);
    let name = |m: &Mobile| if of_one_name { m.key.to_string() } else { m.name.clone() };
    LinkError::Overlap { prefix, first: first.map_or_else(String::new, name), second: name(second) }
}

fn settings(why: String) -> LinkError {
    LinkError::Settings(why)
}
