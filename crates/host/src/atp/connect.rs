//! Connecting to a peer with several addresses, from any local address.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use remora_atp::session::{Identity, PublicKey, Refusal};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{AtpEndpoint, AtpError, EndpointSettings, Remote};

/// Delay before the next address is tried in parallel.
const NEXT_ADDRESS: Duration = Duration::from_millis(300);

/// Maximum number of addresses tried.
const ADDRESSES_MAX: usize = 4;

impl AtpEndpoint {
    /// Like [`bind`](AtpEndpoint::bind), on any port of all addresses; IPv4 only if the system has no IPv6.
    pub fn bind_anywhere(settings: EndpointSettings, identity: Identity) -> Result<AtpEndpoint, AtpError> {
        anywhere(|listen| AtpEndpoint::bind(EndpointSettings { listen, ..settings.clone() }, identity.clone()))
    }

    /// The same for a program that connects only to `peers`.
    pub fn bind_towards(
        peers: &[SocketAddr],
        settings: EndpointSettings,
        identity: Identity,
    ) -> Result<AtpEndpoint, AtpError> {
        if peers.iter().all(SocketAddr::is_ipv4) {
            let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
            return AtpEndpoint::bind(EndpointSettings { listen, ..settings }, identity);
        }
        AtpEndpoint::bind_anywhere(settings, identity)
    }

    /// Whether its socket can send to the family of `addr`.
    pub fn can_reach(&self, addr: SocketAddr) -> bool {
        let own = self.local_addr().ip();
        let takes_all = own == Ipv6Addr::UNSPECIFIED;
        takes_all || own.to_canonical().is_ipv4() == addr.ip().to_canonical().is_ipv4()
    }

    /// Connects to the owner of `key` at `addrs`: one after the other, soon in parallel, until one answers (like
    /// RFC 8305). A single address is not waited for.
    pub async fn connect_any(&self, addrs: &[SocketAddr], key: PublicKey) -> Result<Remote, AtpError> {
        if let [addr] = addrs {
            return self.connect(*addr, key);
        }
        let (mut asked, mut answers, mut why) = (Vec::new(), JoinSet::new(), None);
        let mut left = addrs.iter().take(ADDRESSES_MAX);
        loop {
            match left.next().map(|addr| self.connect(*addr, key)) {
                Some(Ok(remote)) => {
                    asked.push(remote.clone());
                    answers.spawn(async move { (remote.up().await, remote) });
                }
                Some(Err(e)) => why = worse(why, e),
                None if answers.is_empty() => return Err(why.unwrap_or(AtpError::Refused(Refusal::Silent))),
                None => {}
            }
            let patience = if left.len() > 0 { NEXT_ADDRESS } else { Duration::MAX };
            // No answer and no failure in time: try the next in parallel.
            let Ok(Some(Ok((up, remote)))) = timeout(patience, answers.join_next()).await else { continue };
            match up {
                Ok(()) => {
                    asked.iter().filter(|other| other.id() != remote.id()).for_each(Remote::close);
                    return Ok(remote);
                }
                Err(e) => why = worse(why, e),
            }
        }
    }
}

/// Binds to all addresses; IPv4 only if the system has no IPv6.
fn anywhere<T>(bind: impl Fn(SocketAddr) -> Result<T, AtpError>) -> Result<T, AtpError> {
    match bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0))) {
        Err(AtpError::Bind { source, .. }) if has_no_ipv6(&source) => {
            bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)))
        }
        bound => bound,
    }
}

fn has_no_ipv6(e: &std::io::Error) -> bool {
    e.kind() == ErrorKind::AddrNotAvailable || e.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error())
}

/// The more informative error: a wrong key or an MTU before silence, else the first.
fn worse(known: Option<AtpError>, e: AtpError) -> Option<AtpError> {
    let says =
        |e: &AtpError| matches!(e, AtpError::Refused(Refusal::WrongKey | Refusal::NotAdmitted | Refusal::Mtu { .. }));
    match known {
        Some(known) if says(&known) || !says(&e) => Some(known),
        _ => Some(e),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::UdpSocket;
    use std::process::Command;

    use nix::sched::{CloneFlags, unshare};

    use super::*;
    use crate::atp::keys;

    /// Connects on a thread in a network namespace whose loopback has this MTU. `None` if that is not possible.
    fn connected_at(mtu: u16, patience: Duration) -> Option<Result<(), AtpError>> {
        let connected = async || {
            let there = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let endpoint =
                AtpEndpoint::bind_towards(&[there], EndpointSettings::sender(), keys::generate().unwrap()).unwrap();
            let remote = endpoint.connect(there, keys::generate().unwrap().public()).unwrap();
            timeout(patience, remote.up()).await.unwrap_or(Err(AtpError::Refused(Refusal::Silent)))
        };
        let alone = || {
            unshare(CloneFlags::CLONE_NEWNET).ok()?;
            let set = Command::new("ip").args(["link", "set", "lo", "up", "mtu", &mtu.to_string()]).status();
            set.ok().filter(|set| set.success())?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            Some(runtime.block_on(connected()))
        };
        std::thread::scope(|scope| scope.spawn(alone).join().unwrap())
    }

    #[test]
    fn mtu_below_the_least_datagram_is_the_error() {
        for (mtu, patience) in [(1227, Duration::from_secs(60)), (1228, Duration::from_millis(200))] {
            let Some(connected) = connected_at(mtu, patience) else {
                return skip::skipped(&skip::this_test(), "no network namespaces, or no iproute2");
            };
            match connected {
                Err(AtpError::Refused(Refusal::Mtu { mtu: needed })) => assert_eq!((mtu, needed), (1227, 1228)),
                other => assert_eq!(mtu, 1228, "{other:?}"),
            }
        }
    }

    #[test]
    fn missing_ipv6_falls_back_to_ipv4() {
        let no = |errno: rustix::io::Errno| {
            move |addr: SocketAddr| match addr.is_ipv4() {
                true => Ok(addr),
                false => Err(AtpError::Bind { addr, source: io::Error::from(errno) }),
            }
        };
        for errno in [rustix::io::Errno::AFNOSUPPORT, rustix::io::Errno::ADDRNOTAVAIL] {
            assert_eq!(anywhere(no(errno)).unwrap().to_string(), "0.0.0.0:0");
        }
        assert!(anywhere(no(rustix::io::Errno::MFILE)).is_err());
        assert_eq!(anywhere(Ok).unwrap().to_string(), "[::]:0");
    }
}
