//! UDP sockets. A reply leaves from the local address that the request was sent to (`IP_PKTINFO`, `IPV6_PKTINFO`).
//! One system call receives many datagrams.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use nix::libc::{in_addr, in_pktinfo, in6_addr, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, RecvMsg, SockaddrStorage, recvmmsg, sendmsg,
    setsockopt, sockopt,
};
use remora_base::Path;
use remora_server::Programs;
use tokio::io::Interest;
use tokio::net::UdpSocket;

use super::context::NetContext;
use crate::server::admission::request_size;
use crate::server::shards::dispatcher::AdmittedRequest;
use crate::server::shards::reply_path::{DatagramPath, DatagramSender};

/// Larger than any datagram.
const BUFFER: usize = 64 << 10;
/// Most datagrams in a system call. Pages that no datagram reaches take no memory.
const BATCH: usize = 16;
/// The system's buffer in each direction, in bytes. The system may give less.
const SYSTEM_BUFFER: usize = 4 << 20;

/// Pause after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct DatagramSocket {
    socket: UdpSocket,
    /// Whether the socket is bound to every address, so that replies must name theirs.
    wildcard: bool,
    programs: Programs,
}

/// A received datagram.
struct Arrival {
    from: SocketAddr,
    local: Option<IpAddr>,
    len: usize,
}

impl DatagramSocket {
    /// Prepares `socket`, on which `programs` are served. Must be called in a runtime.
    pub(crate) fn new(socket: std::net::UdpSocket, programs: Programs) -> io::Result<DatagramSocket> {
        let addr = socket.local_addr()?;
        enlarge_buffers(&socket);
        let wildcard = addr.ip().is_unspecified();
        if wildcard && addr.is_ipv4() {
            setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
        } else if wildcard {
            setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
        }
        socket.set_nonblocking(true)?;
        Ok(DatagramSocket { socket: UdpSocket::from_std(socket)?, wildcard, programs })
    }

    /// Waits for datagrams. Datagram `n` is in part `n` of `buffer`, of [`BUFFER`] bytes. Datagrams without a source
    /// address are left out.
    async fn receive(&self, buffer: &mut [u8]) -> io::Result<Vec<(usize, Arrival)>> {
        self.socket.async_io(Interest::READABLE, || self.receive_now(buffer)).await
    }

    fn receive_now(&self, buffer: &mut [u8]) -> io::Result<Vec<(usize, Arrival)>> {
        let mut slices: Vec<_> = buffer.chunks_exact_mut(BUFFER).map(|part| [IoSliceMut::new(part)]).collect();
        let control = self.wildcard.then(|| nix::cmsg_space!(in_pktinfo, in6_pktinfo));
        let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(slices.len(), control);
        let fd = self.socket.as_raw_fd();
        let got = recvmmsg(fd, &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None)?;
        let arrival = |message: RecvMsg<'_, '_, SockaddrStorage>| {
            let cmsgs = if self.wildcard { message.cmsgs().ok() } else { None };
            let local = cmsgs.and_then(|mut c| c.find_map(local_address));
            Some(Arrival { from: message.address.and_then(socket_addr)?, local, len: message.bytes })
        };
        Ok(got.enumerate().filter_map(|(n, message)| Some((n, arrival(message)?))).collect())
    }
}

impl DatagramSender for DatagramSocket {
    fn send(&self, to: SocketAddr, local: Option<IpAddr>, payload: &[u8]) -> io::Result<()> {
        let (fd, to) = (self.socket.as_raw_fd(), SockaddrStorage::from(to));
        let send = |source: &[ControlMessage<'_>]| {
            sendmsg(fd, &[IoSlice::new(payload)], source, MsgFlags::MSG_DONTWAIT, Some(&to))
        };
        match local {
            None => send(&[]),
            Some(IpAddr::V4(ip)) => send(&[ControlMessage::Ipv4PacketInfo(&source_v4(ip))]),
            Some(IpAddr::V6(ip)) => send(&[ControlMessage::Ipv6PacketInfo(&source_v6(ip))]),
        }?;
        Ok(())
    }
}

/// Gives the datagrams of `socket` to the cores, for ever.
pub(crate) async fn run(context: Arc<NetContext>, socket: Arc<DatagramSocket>) {
    let mut buffer = vec![0; BATCH * BUFFER];
    loop {
        let Ok(arrivals) = socket.receive(&mut buffer).await else {
            // Often the error of an earlier send, which is counted already. A permanent error must not spin.
            tokio::time::sleep(ERROR_PAUSE).await;
            continue;
        };
        for (n, arrival) in arrivals {
            context.counters.datagrams_in.count();
            let message = buffer.get(n * BUFFER..n * BUFFER + arrival.len).unwrap_or_default();
            admit(&context, &socket, &arrival, Bytes::copy_from_slice(message));
        }
    }
}

fn admit(context: &NetContext, socket: &Arc<DatagramSocket>, arrival: &Arrival, message: Bytes) {
    let from = arrival.from;
    let is_stranger = context.is_stranger(from);
    let cost = request_size::of(&message, is_stranger, context.core_limits.io_max(Path::Datagram));
    let Some(permit) = context.admission.try_admit(from, is_stranger, cost) else {
        return context.counters.datagrams_dropped.count();
    };
    let path = DatagramPath { socket: socket.clone(), local: arrival.local };
    context.dispatcher.datagram(from, path, socket.programs, AdmittedRequest { message, permit });
}

/// Enlarges the buffers: with small ones, bursts of WRITEs over UDP are lost.
fn enlarge_buffers(socket: &std::net::UdpSocket) {
    use rustix::net::sockopt as opt;
    // The first way needs CAP_NET_ADMIN, the second may give less; neither is essential.
    let _ = opt::set_socket_recv_buffer_size_force(socket, SYSTEM_BUFFER)
        .or_else(|_| opt::set_socket_recv_buffer_size(socket, SYSTEM_BUFFER));
    let _ = opt::set_socket_send_buffer_size_force(socket, SYSTEM_BUFFER)
        .or_else(|_| opt::set_socket_send_buffer_size(socket, SYSTEM_BUFFER));
}

fn local_address(message: ControlMessageOwned) -> Option<IpAddr> {
    match message {
        ControlMessageOwned::Ipv4PacketInfo(info) => {
            Some(IpAddr::V4(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes())))
        }
        ControlMessageOwned::Ipv6PacketInfo(info) => Some(IpAddr::V6(Ipv6Addr::from(info.ipi6_addr.s6_addr))),
        _ => None,
    }
}

fn source_v4(ip: Ipv4Addr) -> in_pktinfo {
    let any = in_addr { s_addr: 0 };
    in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }, ipi_addr: any }
}

fn source_v6(ip: Ipv6Addr) -> in6_pktinfo {
    in6_pktinfo { ipi6_addr: in6_addr { s6_addr: ip.octets() }, ipi6_ifindex: 0 }
}

fn socket_addr(addr: SockaddrStorage) -> Option<SocketAddr> {
    let v4 = addr.as_sockaddr_in().map(|a| SocketAddr::V4((*a).into()));
    v4.or_else(|| addr.as_sockaddr_in6().map(|a| SocketAddr::V6((*a).into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All addresses in 127.0.0.0/8 are local, which replaces several interfaces.
    #[tokio::test]
    async fn replies_leave_from_the_address_the_request_was_sent_to() {
        for (bind, target) in [("0.0.0.0:0", "127.0.0.7"), ("0.0.0.0:0", "127.0.0.1"), ("[::]:0", "::1")] {
            let Ok(socket) = std::net::UdpSocket::bind(bind) else { continue }; // no IPv6 here
            let port = socket.local_addr().unwrap().port();
            let server = DatagramSocket::new(socket, Programs::All).unwrap();
            let target = SocketAddr::new(target.parse().unwrap(), port);
            let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let client = UdpSocket::bind(any).await.unwrap();
            client.send_to(b"ping", target).await.unwrap();
            client.send_to(b"again", target).await.unwrap();

            let mut buffer = vec![0; 2 * BUFFER];
            let mut got = server.receive(&mut buffer).await.unwrap();
            let came = |got: &(usize, Arrival), buffer: &[u8]| {
                (got.1.local, buffer[got.0 * BUFFER..got.0 * BUFFER + got.1.len].to_vec())
            };
            assert_eq!(came(&got[0], &buffer), (Some(target.ip()), b"ping".to_vec()));
            if got.len() == 2 {
                assert_eq!(came(&got[1], &buffer), (Some(target.ip()), b"again".to_vec()));
            }
            let (_, got) = got.swap_remove(0);
            let mut buffer = [0; 100];
            server.send(got.from, got.local, b"pong").unwrap();
            assert_eq!(client.recv_from(&mut buffer).await.unwrap(), (4, target));
        }
    }
}
