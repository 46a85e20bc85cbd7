//! Binds TCP and UDP sockets with the same port number, or takes those that the service manager has opened.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

use crate::server::options::{InheritedSockets, StartError};

/// Most connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Attempts to find a port that is free for both protocols.
const TRIES: usize = 32;

/// A TCP socket and, if UDP is served, a UDP socket with the same address and port.
pub(crate) struct Pair {
    pub(crate) tcp: TcpListener,
    pub(crate) udp: Option<UdpSocket>,
    pub(crate) addr: SocketAddr,
}

pub(crate) fn bind_all(addrs: &[SocketAddr], with_udp: bool) -> Result<Vec<Pair>, StartError> {
    // `[::]` includes IPv4, unless another socket is bound to it.
    let v6_only = addrs.iter().any(SocketAddr::is_ipv4);
    addrs.iter().map(|addr| pair(*addr, with_udp, v6_only)).collect()
}

/// Pairs the sockets that the service manager has opened.
pub(crate) fn adopt(sockets: InheritedSockets, with_udp: bool) -> Result<Vec<Pair>, StartError> {
    let mut datagram = Vec::new();
    for udp in sockets.udp.into_iter().filter(|_| with_udp) {
        let addr = udp.local_addr().map_err(StartError::Inherited)?;
        datagram.push((addr, udp));
    }
    let mut pairs = Vec::new();
    for tcp in sockets.tcp {
        tcp.set_nonblocking(true).map_err(StartError::Inherited)?;
        let addr = tcp.local_addr().map_err(StartError::Inherited)?;
        let udp = datagram.iter().position(|(at, _)| *at == addr).map(|at| datagram.swap_remove(at).1);
        pairs.push(Pair { tcp, udp, addr });
    }
    match datagram.first() {
        Some((addr, _)) => Err(StartError::Unpaired(*addr)),
        None => Ok(pairs),
    }
}

fn pair(addr: SocketAddr, with_udp: bool, v6_only: bool) -> Result<Pair, StartError> {
    let mut tries = if addr.port() == 0 { TRIES } else { 1 };
    loop {
        tries -= 1;
        let tcp = tcp(addr, v6_only).map_err(|e| StartError::bind(addr, "TCP", e))?;
        let addr = tcp.local_addr().map_err(|e| StartError::bind(addr, "TCP", e))?;
        if !with_udp {
            return Ok(Pair { tcp, udp: None, addr });
        }
        match udp(addr, v6_only) {
            Ok(udp) => return Ok(Pair { tcp, udp: Some(udp), addr }),
            Err(e) if e.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            Err(e) => return Err(StartError::bind(addr, "UDP", e)),
        }
    }
}

fn tcp(addr: SocketAddr, v6_only: bool) -> io::Result<TcpListener> {
    let socket = socket(addr, SocketType::STREAM, v6_only)?;
    // A restart must not wait for the TIME_WAIT of old connections.
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &addr)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn udp(addr: SocketAddr, v6_only: bool) -> io::Result<UdpSocket> {
    let socket = socket(addr, SocketType::DGRAM, v6_only)?;
    rustix::net::bind(&socket, &addr)?;
    Ok(socket.into())
}

fn socket(addr: SocketAddr, kind: SocketType, v6_only: bool) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)?;
    if addr.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(addr: &str) -> Result<Vec<Pair>, StartError> {
        bind_all(&[addr.parse().unwrap()], true)
    }

    #[test]
    fn both_protocols_get_one_port() {
        let pairs = bound("127.0.0.1:0").unwrap();
        let [pair] = pairs.as_slice() else { panic!("one address, one pair") };
        assert_eq!(pair.tcp.local_addr().unwrap(), pair.addr);
        assert_eq!(pair.udp.as_ref().unwrap().local_addr().unwrap(), pair.addr);
    }

    #[test]
    fn tcp_alone_leaves_the_udp_port_free() {
        let pairs = bind_all(&["127.0.0.1:0".parse().unwrap()], false).unwrap();
        let [pair] = pairs.as_slice() else { panic!("one address, one pair") };
        assert!(pair.udp.is_none());
        UdpSocket::bind(pair.addr).unwrap();
    }

    #[test]
    fn inherited_sockets_are_paired_by_address() {
        let [a, b] = [bound("127.0.0.1:0").unwrap().remove(0), bound("[::1]:0").unwrap().remove(0)];
        let (at_a, at_b) = (a.addr, b.addr);
        let inherited = InheritedSockets { tcp: vec![a.tcp, b.tcp], udp: b.udp.into_iter().chain(a.udp).collect() };
        let pairs = adopt(inherited, true).unwrap();
        let found: Vec<_> = pairs.iter().map(|p| (p.addr, p.udp.as_ref().unwrap().local_addr().unwrap())).collect();
        assert_eq!(found, [(at_a, at_a), (at_b, at_b)]);
    }

    #[test]
    fn inherited_udp_socket_needs_a_tcp_socket() {
        let inherited = || {
            let pair = bound("127.0.0.1:0").unwrap().remove(0);
            InheritedSockets { tcp: Vec::new(), udp: pair.udp.into_iter().collect() }
        };
        let why = adopt(inherited(), true).err().unwrap().to_string();
        assert!(why.contains("ListenStream="), "{why}");
        assert!(adopt(inherited(), false).unwrap().is_empty(), "--no-udp");
    }

    #[test]
    fn bind_errors_name_a_remedy() {
        let taken = bound("127.0.0.1:0").unwrap();
        let addr = taken[0].addr.to_string();
        let text = |addr: &str| bound(addr).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(text(&addr).contains("is taken by another server"), "{}", text(&addr));
        assert!(text("192.0.2.1:0").contains("not an address of this machine"));
        let privileged =
            StartError::bind("0.0.0.0:111".parse().unwrap(), "UDP", io::ErrorKind::PermissionDenied.into());
        assert!(privileged.to_string().contains("port 111 may be opened by root only"));
    }
}
