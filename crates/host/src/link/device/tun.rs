//! The network device of an end: a TUN device with addresses, MTU and routes. The device is not persistent: it
//! disappears with the process, together with its addresses and routes.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use ipnet::{IpNet, Ipv6Net};
use route_manager::{Route, RouteManager};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use tun_rs::{DeviceBuilder, SyncDevice};

use super::forwarding::Forwarding;
use super::link_monitor::{DeviceChange, LinkMonitor};
use crate::link::error::LinkError;
use crate::link::routing_table::around;
use crate::link::settings::{LinkRole, LinkSettings};

/// The default routing table (`RT_TABLE_MAIN`).
const MAIN_TABLE: u8 = 254;

/// A TUN device that is up.
pub(in crate::link) struct Device {
    tun: SyncDevice,
    link_monitor: LinkMonitor,
    index: u32,
    /// IPv6 addresses, which the device loses when it is set down.
    addresses: Vec<Ipv6Net>,
    routes: BTreeSet<IpNet>,
    /// Dropped after the device.
    _forwarding: Option<Forwarding>,
}

impl Device {
    /// Creates the device with `mtu` and sets its routes.
    pub(in crate::link) fn new(settings: &LinkSettings, mtu: u16) -> Result<Device, LinkError> {
        let name = &settings.device;
        let failed = |source| LinkError::Device { name: name.clone(), source };
        if exists(name).map_err(failed)? {
            return Err(LinkError::DeviceBusy(name.clone()));
        }
        let tun = open(settings, mtu)?;
        tun.set_nonblocking(true).map_err(failed)?;
        let index = tun.if_index().map_err(failed)?;
        let link_monitor = LinkMonitor::of(index).map_err(LinkError::System)?;
        let routes = routes(settings);
        for prefix in &routes {
            let prefix = *prefix;
            add_route(prefix, index).map_err(|source| match source.kind() {
                io::ErrorKind::AlreadyExists => LinkError::RouteTaken { prefix },
                _ => LinkError::Route { prefix, source },
            })?;
        }
        no_better_route(&settings.addresses, index)?;
        let forwarding = settings.forward.then(|| Forwarding::on(&settings.addresses)).transpose()?;
        let v6 = |net: &IpNet| if let IpNet::V6(net) = net { Some(*net) } else { None };
        let addresses = settings.addresses.iter().filter_map(v6).collect();
        Ok(Device { tun, link_monitor, index, addresses, routes, _forwarding: forwarding })
    }

    /// The changes since the last call.
    pub(in crate::link) fn changes(&mut self) -> Vec<DeviceChange> {
        self.link_monitor.take()
    }

    /// The source of change events, for `poll`.
    pub(in crate::link) fn link_monitor(&self) -> &LinkMonitor {
        &self.link_monitor
    }

    /// Restores the addresses and routes lost when the device was set down; the kernel restores IPv4 addresses and
    /// their networks itself. Returns whether any was missing. The error names the first that the kernel refuses or
    /// that another device has.
    pub(in crate::link) fn restore(&self) -> Result<bool, String> {
        let v6 = self.addresses.iter().map(|n| (IpNet::V6(*n), self.tun.add_address_v6(n.addr(), n.prefix_len())));
        let routes = self.routes.iter().map(|prefix| (*prefix, add_route(*prefix, self.index)));
        let (mut lacked, mut failed) = (false, None);
        for (net, added) in v6.chain(routes) {
            match added {
                Ok(()) => lacked = true,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => failed = failed.or_else(|| Some(format!("{net}: {e}"))),
            }
        }
        let all = list().map_err(|e| e.to_string())?;
        let taken = taken(&all, &self.routes, self.index);
        let taken = taken.map(|net| format!("{net}: another interface has just that network"));
        failed.or(taken).map_or(Ok(lacked), Err)
    }

    /// Whether the device is down according to the kernel.
    pub(in crate::link) fn is_down(&self) -> bool {
        self.link_monitor.is_up_now().is_ok_and(|is_up| !is_up)
    }

    /// The TUN descriptor, for `poll`.
    pub(in crate::link) fn tun(&self) -> &SyncDevice {
        &self.tun
    }
}

/// Whether a device with this name exists. The kernel would reuse a persistent TUN device, and its error for others is
/// not clear.
fn exists(name: &str) -> io::Result<bool> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    match name_to_index(&any, name) {
        Ok(_) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn open(settings: &LinkSettings, mtu: u16) -> Result<SyncDevice, LinkError> {
    let mut builder = DeviceBuilder::new().name(&settings.device).mtu(mtu);
    let mut first_v4 = true;
    for net in &settings.addresses {
        match net {
            IpNet::V4(v4) if first_v4 => {
                builder = builder.ipv4(v4.addr(), v4.prefix_len(), None);
                first_v4 = false;
            }
            IpNet::V4(v4) => {
                return Err(LinkError::Settings(format!("{v4}: one IPv4 address is all the device takes")));
            }
            IpNet::V6(v6) => builder = builder.ipv6(v6.addr(), v6.prefix_len()),
        }
    }
    builder.build_sync().map_err(|source| match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::PERM | Errno::ACCESS) => LinkError::NotAllowed,
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => LinkError::NoTun,
        Some(Errno::BUSY) => LinkError::DeviceBusy(settings.device.clone()),
        _ => LinkError::Device { name: settings.device.clone(), source },
    })
}

/// The networks routed into the tunnel, besides its own. A mobile's routes exclude the address of its base; two that
/// overlap yield the same pieces.
fn routes(settings: &LinkSettings) -> BTreeSet<IpNet> {
    let all: Vec<IpNet> = match &settings.role {
        LinkRole::Base { mobiles, .. } => {
            mobiles.iter().flat_map(|m| std::iter::once(m.address.into()).chain(m.routes.iter().copied())).collect()
        }
        LinkRole::Mobile { base, routes, .. } => {
            routes.iter().flat_map(|r| around(*r, base.ip().to_canonical())).collect()
        }
    };
    // The kernel already routes the device's own networks there.
    let own = |prefix: &IpNet| settings.addresses.iter().any(|n| n.contains(prefix));
    all.into_iter().map(|p| p.trunc()).filter(|p| !own(p)).collect()
}

fn add_route(prefix: IpNet, index: u32) -> io::Result<()> {
    RouteManager::new()?.add(&Route::new(prefix.network(), prefix.prefix_len()).with_if_index(index))
}

fn list() -> io::Result<Vec<Route>> {
    RouteManager::new()?.list()
}

/// Returns an error if packets for the tunnel would leave unsealed by another device: the kernel accepts two routes to
/// one network and prefers the older of two equal ones.
fn no_better_route(own: &[IpNet], index: u32) -> Result<(), LinkError> {
    match beaten(&list().map_err(LinkError::System)?, index) {
        None => Ok(()),
        Some(network) if own.iter().any(|n| n.trunc() == network) => Err(LinkError::NetworkTaken { network }),
        Some(prefix) => Err(LinkError::RouteTaken { prefix }),
    }
}

/// One of `routes` that device `index` lacks, because the kernel takes only the first of equal ones, or a network that
/// another device's route takes.
fn taken(all: &[Route], routes: &BTreeSet<IpNet>, index: u32) -> Option<IpNet> {
    let ours = of_main_table(all).filter(|r| r.if_index() == Some(index)).filter_map(place).collect();
    routes.difference(&ours).next().copied().or_else(|| beaten(all, index))
}

fn of_main_table(all: &[Route]) -> impl Iterator<Item = &Route> {
    all.iter().filter(|r| r.table() == MAIN_TABLE)
}

fn place(route: &Route) -> Option<IpNet> {
    IpNet::new(route.destination(), route.prefix()).ok()
}

/// A network with a route by device `index` that another device takes at the same or a lower cost. Each device has a
/// route to its own link.
fn beaten(all: &[Route], index: u32) -> Option<IpNet> {
    let cost = |r: &Route| r.metric().unwrap_or(0);
    let is_beaten = |ours: &&Route| {
        let mut others = of_main_table(all).filter(|r| r.if_index() != Some(index));
        others.any(|other| place(other) == place(ours) && cost(other) <= cost(ours))
    };
    let is_of_link = |r: &&Route| matches!(r.destination(), IpAddr::V6(at) if at.is_unicast_link_local());
    of_main_table(all).filter(|r| r.if_index() == Some(index) && !is_of_link(r)).find(is_beaten).and_then(place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::settings::{LinkTuning, MobileSettings};
    use crate::link::tunnel::LinkIdentity;
    use std::net::IpAddr;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn settings(role: LinkRole) -> LinkSettings {
        LinkSettings {
            identity: LinkIdentity::generate().unwrap(),
            role,
            device: "remora0".into(),
            addresses: vec![net("10.78.0.1/24")],
            outer_mtu: 1500,
            forward: false,
            tuning: LinkTuning::default(),
        }
    }

    fn mobile(routes: &[&str]) -> LinkSettings {
        settings(LinkRole::Mobile {
            base: "192.0.2.1:51900".parse().unwrap(),
            key: LinkIdentity::generate().unwrap().public,
            secret: None,
            routes: routes.iter().map(|r| net(r)).collect(),
            keepalive: std::time::Duration::from_secs(5),
        })
    }

    #[test]
    fn mobile_routes_exclude_base() {
        assert_eq!(routes(&mobile(&["10.1.0.0/16", "10.78.0.0/24"])), [net("10.1.0.0/16")].into());
        let all = routes(&mobile(&["0.0.0.0/0"]));
        let base: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(all.len(), 32);
        assert!(!all.iter().any(|p| p.contains(&base)));
        // The kernel stores each route once.
        assert_eq!(routes(&mobile(&["0.0.0.0/0", "192.0.0.0/8"])), all);
        assert_eq!(routes(&mobile(&["10.1.0.5/16", "10.1.0.0/16"])).len(), 1);
    }

    #[test]
    fn base_routes_networks_behind_mobiles() {
        let one = MobileSettings {
            name: "robot".into(),
            key: LinkIdentity::generate().unwrap().public,
            secret: None,
            address: "10.78.0.2".parse().unwrap(),
            routes: vec![net("192.168.7.1/24")],
        };
        let base = settings(LinkRole::Base { listen: "0.0.0.0:0".parse().unwrap(), mobiles: vec![one.clone()] });
        assert_eq!(routes(&base), [net("192.168.7.0/24")].into(), "its own address is in the tunnel's network");
        let twin = MobileSettings { name: "twin".into(), key: LinkIdentity::generate().unwrap().public, ..one.clone() };
        let refused = |mobiles: Vec<MobileSettings>| {
            let both = settings(LinkRole::Base { listen: "0.0.0.0:0".parse().unwrap(), mobiles });
            both.table().map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(refused(vec![one.clone(), twin.clone()]), "10.78.0.2/32 is given to robot and to twin");
        // Mobiles without names of their own.
        let namesake = MobileSettings { name: twin.name.clone(), ..one };
        let keys = format!("10.78.0.2/32 is given to {} and to {}", namesake.key, twin.key);
        assert_eq!(refused(vec![namesake, twin]), keys);
    }

    #[test]
    fn network_of_other_device_is_detected() {
        let route = |to: &str, index, metric| {
            let route = Route::new(net(to).addr(), net(to).prefix_len()).with_if_index(index).with_table(MAIN_TABLE);
            route.with_metric(metric)
        };
        let ours = || {
            vec![
                route("10.78.0.0/24", 7, 0),
                route("fd78::/64", 7, 256),
                route("fd79::/64", 7, 1024),
                route("fe80::/64", 7, 256),
            ]
        };
        for (other, beats) in [
            (route("10.78.0.0/24", 2, 0), true),
            // The tunnel's route has the lower metric.
            (route("10.78.0.0/24", 2, 600), false),
            (route("fd78::/64", 2, 256), true),
            (route("fd79::/64", 2, 256), true),
            (route("fe80::/64", 2, 256), false),
            // Other devices have another network, or another table.
            (route("10.78.0.0/25", 2, 0), false),
            (route("0.0.0.0/0", 2, 0), false),
            (route("10.78.0.0/24", 2, 0).with_table(100), false),
        ] {
            let place = IpNet::new(other.destination(), other.prefix()).unwrap();
            assert_eq!(beaten(&[vec![other.clone()], ours()].concat(), 7), beats.then_some(place), "{other:?}");
        }
        assert_eq!(beaten(&ours(), 7), None);
    }

    #[test]
    fn base_inside_its_tunnel_is_refused() {
        let mut inside = mobile(&[]);
        inside.addresses = vec![net("192.0.2.9/24")];
        assert!(matches!(inside.table(), Err(LinkError::Loop { .. })));
        assert!(mobile(&[]).table().is_ok());
        let LinkRole::Mobile { base, .. } = &mut inside.role else { return };
        *base = "[::ffff:192.0.2.1]:51900".parse().unwrap();
        let refused = inside.table().map(|_| ()).unwrap_err().to_string();
        assert_eq!(refused, "the base's address 192.0.2.1 is inside the tunnel's own network 192.0.2.0/24");
    }
}
