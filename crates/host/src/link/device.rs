//! The network device of an end: a TUN device with addresses, MTU and routes, and what has to
//! be undone. The device is not persistent: it goes with the process, however that ends, and
//! its addresses and routes go with it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use ipnet::{IpNet, Ipv6Net};
use route_manager::{Route, RouteManager};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use tun_rs::{DeviceBuilder, SyncDevice};

use super::error::LinkError;
use super::forward::Forwarding;
use super::settings::{Role, Settings};
use super::table::around;
use super::ups::{Change, Ups};

/// Where routes are unless somebody says otherwise (`RT_TABLE_MAIN`).
const MAIN_TABLE: u8 = 254;

/// A device that is up.
pub(super) struct Device {
    tun: SyncDevice,
    ups: Ups,
    index: u32,
    /// What it loses when it is taken down.
    addresses: Vec<Ipv6Net>,
    routes: BTreeSet<IpNet>,
    /// Undone after the device has gone.
    _forwarding: Option<Forwarding>,
}

impl Device {
    /// Makes the device, with `mtu` for packets in the tunnel, and sets its routes.
    pub(super) fn new(settings: &Settings, mtu: u16) -> Result<Device, LinkError> {
        let name = &settings.device;
        let failed = |source| LinkError::Device { name: name.clone(), source };
        if exists(name).map_err(failed)? {
            return Err(LinkError::DeviceBusy(name.clone()));
        }
        let tun = open(settings, mtu)?;
        tun.set_nonblocking(true).map_err(failed)?;
        let index = tun.if_index().map_err(failed)?;
        let ups = Ups::of(index).map_err(LinkError::System)?;
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
        Ok(Device { tun, ups, index, addresses, routes, _forwarding: forwarding })
    }

    /// What was done to it since this was last asked.
    pub(super) fn changes(&mut self) -> Vec<Change> {
        self.ups.take()
    }

    /// For `poll`: when to ask what was done to it.
    pub(super) fn ups(&self) -> &Ups {
        &self.ups
    }

    /// Gives it what it lost when it was taken down: IPv4's addresses and their networks come back by themselves.
    /// Whether it lacked anything; an error names the first that it did not take, or that another device has.
    pub(super) fn restore(&self) -> Result<bool, String> {
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

    /// Whether it is down, as far as the system says.
    pub(super) fn is_down(&self) -> bool {
        self.ups.is_up_now().is_ok_and(|is_up| !is_up)
    }

    /// For `poll`.
    pub(super) fn tun(&self) -> &SyncDevice {
        &self.tun
    }
}

/// Whether there is such a device here. The kernel would take a TUN device that somebody made
/// persistent, and says little about others.
fn exists(name: &str) -> io::Result<bool> {
    let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    match name_to_index(&any, name) {
        Ok(_) => Ok(true),
        Err(Errno::NODEV) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

fn open(settings: &Settings, mtu: u16) -> Result<SyncDevice, LinkError> {
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

/// What goes into the tunnel, beside its own network. A mobile's routes go around its base, and two that
/// overlap are made of the same pieces there.
fn routes(settings: &Settings) -> BTreeSet<IpNet> {
    let all: Vec<IpNet> = match &settings.role {
        Role::Base { mobiles, .. } => {
            mobiles.iter().flat_map(|m| std::iter::once(m.address.into()).chain(m.routes.iter().copied())).collect()
        }
        Role::Mobile { base, routes, .. } => routes.iter().flat_map(|r| around(*r, base.ip().to_canonical())).collect(),
    };
    // The kernel routes the device's own networks there already.
    let own = |prefix: &IpNet| settings.addresses.iter().any(|n| n.contains(prefix));
    all.into_iter().map(|p| p.trunc()).filter(|p| !own(p)).collect()
}

fn add_route(prefix: IpNet, index: u32) -> io::Result<()> {
    RouteManager::new()?.add(&Route::new(prefix.network(), prefix.prefix_len()).with_if_index(index))
}

fn list() -> io::Result<Vec<Route>> {
    RouteManager::new()?.list()
}

/// Refuses to start where packets for the tunnel would go elsewhere, past its seal: the system takes two
/// routes to one network, and the older of two equal ones counts.
fn no_better_route(own: &[IpNet], index: u32) -> Result<(), LinkError> {
    match beaten(&list().map_err(LinkError::System)?, index) {
        None => Ok(()),
        Some(network) if own.iter().any(|n| n.trunc() == network) => Err(LinkError::NetworkTaken { network }),
        Some(prefix) => Err(LinkError::RouteTaken { prefix }),
    }
}

/// One of `routes` that device `index` does not have, for of equal ones the system takes only the first; or a
/// network that it does not get.
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

/// A network that device `index` has a route to and does not get, as another one has a route to it that
/// costs no more. Each device has a route to its own link.
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
    use super::super::key::Identity;
    use super::super::settings::{Mobile, Tuning};
    use super::*;
    use std::net::IpAddr;

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn settings(role: Role) -> Settings {
        Settings {
            identity: Identity::generate().unwrap(),
            role,
            device: "remora0".into(),
            addresses: vec![net("10.78.0.1/24")],
            outer_mtu: 1500,
            forward: false,
            tuning: Tuning::default(),
        }
    }

    fn mobile(routes: &[&str]) -> Settings {
        settings(Role::Mobile {
            base: "192.0.2.1:51900".parse().unwrap(),
            key: Identity::generate().unwrap().public,
            secret: None,
            routes: routes.iter().map(|r| net(r)).collect(),
            keepalive: std::time::Duration::from_secs(5),
        })
    }

    #[test]
    fn a_mobiles_routes_go_around_the_base() {
        assert_eq!(routes(&mobile(&["10.1.0.0/16", "10.78.0.0/24"])), [net("10.1.0.0/16")].into());
        let all = routes(&mobile(&["0.0.0.0/0"]));
        let base: IpAddr = "192.0.2.1".parse().unwrap();
        assert_eq!(all.len(), 32);
        assert!(!all.iter().any(|p| p.contains(&base)));
        // The kernel has room for each once.
        assert_eq!(routes(&mobile(&["0.0.0.0/0", "192.0.0.0/8"])), all);
        assert_eq!(routes(&mobile(&["10.1.0.5/16", "10.1.0.0/16"])).len(), 1);
    }

    #[test]
    fn a_base_routes_what_is_behind_its_mobiles() {
        let one = Mobile {
            name: "robot".into(),
            key: Identity::generate().unwrap().public,
            secret: None,
            address: "10.78.0.2".parse().unwrap(),
            routes: vec![net("192.168.7.1/24")],
        };
        let base = settings(Role::Base { listen: "0.0.0.0:0".parse().unwrap(), mobiles: vec![one.clone()] });
        assert_eq!(routes(&base), [net("192.168.7.0/24")].into(), "its own address is in the tunnel's network");
        let twin = Mobile { name: "twin".into(), key: Identity::generate().unwrap().public, ..one.clone() };
        let refused = |mobiles: Vec<Mobile>| {
            let both = settings(Role::Base { listen: "0.0.0.0:0".parse().unwrap(), mobiles });
            both.table().map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(refused(vec![one.clone(), twin.clone()]), "10.78.0.2/32 is given to robot and to twin");
        // Without names of their own.
        let namesake = Mobile { name: twin.name.clone(), ..one };
        let keys = format!("10.78.0.2/32 is given to {} and to {}", namesake.key, twin.key);
        assert_eq!(refused(vec![namesake, twin]), keys);
    }

    #[test]
    fn a_network_that_another_device_has_is_not_the_tunnels() {
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
            // Ours is the better one.
            (route("10.78.0.0/24", 2, 600), false),
            (route("fd78::/64", 2, 256), true),
            (route("fd79::/64", 2, 256), true),
            (route("fe80::/64", 2, 256), false),
            // Others hold another network, or are in a table of their own.
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
    fn the_base_is_not_inside_its_own_tunnel() {
        let mut inside = mobile(&[]);
        inside.addresses = vec![net("192.0.2.9/24")];
        assert!(matches!(inside.table(), Err(LinkError::Loop { .. })));
        assert!(mobile(&[]).table().is_ok());
        let Role::Mobile { base, .. } = &mut inside.role else { return };
        *base = "[::ffff:192.0.2.1]:51900".parse().unwrap();
        let refused = inside.table().map(|_| ()).unwrap_err().to_string();
        assert_eq!(refused, "the base's address 192.0.2.1 is inside the tunnel's own network 192.0.2.0/24");
    }
}
