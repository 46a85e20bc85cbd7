//! Starts and stops an end of a link.

use std::net::{SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use remora_base::Time;
use remora_link::{Link, LinkConfig};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::sockopt::Ipv4PathMtuDiscovery;

use super::check;
use super::control::{LinkCommand, LinkControl};
use super::device::Device;
use super::diagnostics::{LinkNotice, LinkReport};
use super::error::LinkError;
use super::settings::{LinkRole, LinkSettings};
use super::tunnel::{KnownPeer, TIMESTAMP_MAX, TunnelEndpoint};
use super::worker::{LinkPeer, Worker, peer_at};
use crate::Clock;
use crate::handoff::Herald;

/// The smallest MTU of IPv6 (RFC 8200, section 5).
const INNER_MIN_V6: usize = 1280;
/// The smallest MTU of an IPv4 tunnel (RFC 791 requires 68).
const INNER_MIN_V4: usize = 256;
/// The smallest frame. Below this the frame's own headers are most of it.
const FRAME_MIN: usize = 256;
/// Most notices waiting to be read.
const NOTICES_MAX: usize = 256;

/// A running end of a link. Dropping it stops the end: it notifies its peers and restores device, addresses, routes
/// and forwarding.
#[derive(Debug)]
pub struct Daemon {
    listen: SocketAddr,
    control: LinkControl,
    notices: Receiver<LinkNotice>,
    thread: Option<JoinHandle<Result<(), LinkError>>>,
}

impl Daemon {
    /// Creates the device and starts the event loop.
    pub fn start(settings: LinkSettings) -> Result<Daemon, LinkError> {
        let table = settings.table()?;
        check::settings(&settings)?;
        let config = config(&settings)?;
        let mtu = u16::try_from(config.packet_max()).unwrap_or(u16::MAX);
        let (socket, listen) = open(&settings.role)?;
        let device = Device::new(&settings, mtu)?;
        let clock = Clock::start();
        let seed = seed()?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wake = Arc::new(wake.map_err(|e| LinkError::System(e.into()))?);
        let (commands, inbox) = channel();
        let (outbox, notices) = sync_channel(NOTICES_MAX);
        let role = match settings.role {
            LinkRole::Base { .. } => "base",
            LinkRole::Mobile { .. } => "mobile",
        };
        let report =
            LinkReport { role: role.to_owned(), device: settings.device.clone(), mtu, ..LinkReport::default() };
        let report = Arc::new(Mutex::new(report));
        let worker = Worker {
            device,
            socket,
            wake: wake.clone(),
            clock,
            tunnel: tunnel(&settings, seed, clock.now()),
            link: Link::new(config, seed, clock.now()),
            peers: peers(&settings),
            table: matches!(settings.role, LinkRole::Base { .. }).then_some(table),
            commands: inbox,
            notices: outbox,
            report: report.clone(),
            herald: Herald::start().map_err(LinkError::System)?,
        };
        let thread = std::thread::Builder::new().name("link".into()).spawn(move || worker.run());
        let thread = Some(thread.map_err(LinkError::System)?);
        Ok(Daemon { listen, control: LinkControl { commands, wake, report }, notices, thread })
    }

    /// The local address of its datagrams.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    /// A handle for other threads.
    pub fn control(&self) -> LinkControl {
        self.control.clone()
    }

    /// The next notice, if one arrives in time.
    pub fn notice(&self, within: Duration) -> Option<LinkNotice> {
        self.notices.recv_timeout(within).ok()
    }

    /// Whether the event loop has ended by itself.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops it; returns the error that had ended it before, if any.
    pub fn stop(mut self) -> Result<(), LinkError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), LinkError> {
        self.control.send(LinkCommand::Stop);
        let Some(thread) = self.thread.take() else { return Ok(()) };
        thread.join().unwrap_or_else(|_| Err(LinkError::System(std::io::Error::other("the link's thread failed"))))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// The configuration of the link core: the settings over its defaults.
fn config(settings: &LinkSettings) -> Result<LinkConfig, LinkError> {
    let tuning = &settings.tuning;
    let overhead = settings.overhead();
    let mut config = LinkConfig { rate: tuning.rate, overhead, ..LinkConfig::default() };
    config.mtu = usize::from(settings.outer_mtu).saturating_sub(overhead);
    config.duplex = tuning.duplex.unwrap_or(config.duplex);
    config.mode = tuning.mode.unwrap_or(config.mode);
    config.scheduler = tuning.scheduler.unwrap_or(config.scheduler);
    config.codel.target = tuning.queue_delay.unwrap_or(config.codel.target);
    for (class, lifetime) in &tuning.lifetimes {
        config.limits.get_mut(*class).lifetime = *lifetime;
    }
    for (class, attempts) in &tuning.attempts {
        config.limits.get_mut(*class).attempts = *attempts;
    }
    let v6 = settings.prefixes().any(|a| a.addr().is_ipv6());
    let least = if v6 { INNER_MIN_V6 } else { INNER_MIN_V4 };
    if config.mtu < FRAME_MIN {
        return Err(LinkError::Mtu { outer: settings.outer_mtu, inner: config.mtu, least: FRAME_MIN });
    }
    let inner = config.packet_max();
    if inner < least {
        return Err(LinkError::Mtu { outer: settings.outer_mtu, inner, least });
    }
    Ok(config)
}

fn open(role: &LinkRole) -> Result<(UdpSocket, SocketAddr), LinkError> {
    let at: SocketAddr = match role {
        LinkRole::Base { listen, .. } => *listen,
        // Not bound to an address, so that the kernel selects one for each datagram: the mobile may roam between
        // networks.
        LinkRole::Mobile { base: SocketAddr::V4(_), .. } => ([0, 0, 0, 0], 0).into(),
        LinkRole::Mobile { base: SocketAddr::V6(_), .. } => ([0u16; 8], 0).into(),
    };
    let failed = |source| LinkError::Socket { at, source };
    let socket = UdpSocket::bind(at).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    // If a hop carries less than `--mtu` and its ICMP messages are filtered, every large datagram would be lost, so
    // fragmentation is allowed. (IPv6 routers never fragment.) An error is ignored.
    let _ = rustix::net::sockopt::set_ip_mtu_discover(&socket, Ipv4PathMtuDiscovery::DONT);
    // Best effort: datagrams beyond the buffer are lost and retransmitted.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(&socket, 1 << 20);
    let listen = socket.local_addr().map_err(failed)?;
    Ok((socket, listen))
}

fn seed() -> Result<u64, LinkError> {
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|e| LinkError::System(std::io::Error::other(e.to_string())))?;
    Ok(u64::from_ne_bytes(seed))
}

fn tunnel(settings: &LinkSettings, seed: u64, now: Time) -> TunnelEndpoint {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // An invalid clock counts as zero: the base then returns the newest timestamp that it knows.
    let wall = u64::try_from(wall.as_nanos()).ok().filter(|wall| *wall < TIMESTAMP_MAX).unwrap_or_default();
    let identity = settings.identity.clone();
    match &settings.role {
        LinkRole::Base { mobiles, .. } => {
            let known = mobiles.iter().map(|m| KnownPeer { key: m.key, secret: m.secret.clone() });
            TunnelEndpoint::base(identity, known.collect(), seed, wall, now)
        }
        LinkRole::Mobile { base, key, secret, keepalive, .. } => {
            let known = KnownPeer { key: *key, secret: secret.clone() };
            TunnelEndpoint::mobile(identity, known, *base, *keepalive, seed, wall, now)
        }
    }
}

fn peers(settings: &LinkSettings) -> Vec<LinkPeer> {
    match &settings.role {
        LinkRole::Base { mobiles, .. } => mobiles
            .iter()
            .map(|m| LinkPeer { name: m.name.clone(), key: m.key, address: Some(m.address), peer: peer_at(m.address) })
            .collect(),
        LinkRole::Mobile { base, key, .. } => {
            vec![LinkPeer { name: "the base".into(), key: *key, address: None, peer: peer_at(base.ip()) }]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::settings::{LinkTuning, MobileSettings};
    use super::super::tunnel::LinkIdentity;
    use super::*;
    use remora_link::ArqMode;
    use rustix::net::sockopt::ip_mtu_discover;

    #[test]
    fn socket_allows_fragmentation() {
        for at in ["127.0.0.1:0", "[::]:0"] {
            let base = LinkRole::Base { listen: at.parse().unwrap(), mobiles: Vec::new() };
            let (socket, _) = open(&base).unwrap();
            assert_eq!(ip_mtu_discover(&socket).unwrap(), Ipv4PathMtuDiscovery::DONT, "{at}");
        }
    }

    #[test]
    fn ipv6_in_tunnel_requires_its_minimum_mtu() {
        let key = LinkIdentity::generate().unwrap().public;
        let mobile = |address: &str, routes: &[&str]| MobileSettings {
            name: "robot".into(),
            key,
            secret: None,
            address: address.parse().unwrap(),
            routes: routes.iter().map(|r| r.parse().unwrap()).collect(),
        };
        let base = |mobile| LinkRole::Base { listen: "0.0.0.0:0".parse().unwrap(), mobiles: vec![mobile] };
        let to = |route: &str| LinkRole::Mobile {
            base: "192.0.2.1:1".parse().unwrap(),
            key,
            secret: None,
            routes: vec![route.parse().unwrap()],
            keepalive: Duration::from_secs(5),
        };
        for (role, own, is_v6) in [
            (base(mobile("10.78.0.2", &["10.1.0.0/16"])), "10.78.0.1/24", false),
            (base(mobile("10.78.0.2", &[])), "fd78::1/64", true),
            (base(mobile("fd78::2", &[])), "10.78.0.1/24", true),
            (base(mobile("10.78.0.2", &["fd79::/64"])), "10.78.0.1/24", true),
            (to("10.1.0.0/16"), "10.78.0.2/24", false),
            (to("::/0"), "10.78.0.2/24", true),
        ] {
            let settings = LinkSettings {
                identity: LinkIdentity::generate().unwrap(),
                role,
                device: "rlink0".into(),
                addresses: vec![own.parse().unwrap()],
                outer_mtu: 1000,
                forward: false,
                tuning: LinkTuning { mode: Some(ArqMode::None), ..LinkTuning::default() },
            };
            let refused = matches!(config(&settings), Err(LinkError::Mtu { least: INNER_MIN_V6, .. }));
            assert_eq!(refused, is_v6, "{settings:?}");
        }
    }

    #[test]
    fn class_settings_reach_link_core() {
        let settings = LinkSettings {
            identity: LinkIdentity::generate().unwrap(),
            role: LinkRole::Base { listen: ([0, 0, 0, 0], 0).into(), mobiles: Vec::new() },
            device: "rlink0".into(),
            addresses: vec!["10.78.0.1/24".parse().unwrap()],
            outer_mtu: 1500,
            forward: false,
            tuning: LinkTuning {
                lifetimes: vec![(remora_link::Class::Bulk, std::time::Duration::from_secs(7))],
                // A later entry wins.
                attempts: vec![(remora_link::Class::Bulk, 9), (remora_link::Class::Bulk, 5)],
                ..LinkTuning::default()
            },
        };
        let (told, own) = (config(&settings).unwrap().limits, LinkConfig::default().limits);
        assert_eq!((told.bulk.lifetime.as_secs(), told.bulk.attempts), (7, 5));
        assert_eq!((told.interactive, told.default, told.probe), (own.interactive, own.default, own.probe));
    }
}
