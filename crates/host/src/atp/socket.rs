//! The UDP socket: sends and receives many datagrams in a system call (GSO, GRO, recvmmsg), and answers from the
//! address that a peer uses.

use std::collections::BTreeMap;
use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroUsize;

use bytes::BytesMut;
use noq_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use remora_atp::session::Endpoint;
use remora_base::Time;
use rustix::io::Errno;

/// Buffers of one read, each for the segments that GRO joins.
const READ_BUFFERS: usize = 4;
/// Bytes of each buffer.
const READ_MAX: usize = 65_536;
/// Maximum bytes sent in one call.
const BATCH_MAX: usize = 65_000;
/// Peers whose local address is remembered; beyond it, all are forgotten.
const ROUTES_MAX: usize = 4096;
/// Requested socket buffers: some milliseconds at 1 Gbit/s.
const SOCKET_BUFFER: usize = 2 << 20;

/// A UDP socket.
pub(super) struct EndpointSocket {
    udp: UdpSocket,
    state: UdpSocketState,
    is_v6: bool,
    /// Bound to all addresses: answers then need a source address.
    is_wild: bool,
    routes: BTreeMap<SocketAddr, IpAddr>,
    buffers: Vec<Vec<u8>>,
}

/// Datagrams to one peer, all of one size but the last: one system call.
#[derive(Default)]
pub(super) struct Batch {
    to: Option<SocketAddr>,
    bytes: Vec<u8>,
    size: usize,
}

impl Batch {
    /// Fills the batch from `core`, at most `count_max` datagrams; returns whether there were any.
    pub(super) fn fill(&mut self, core: &mut Endpoint, now: Time, count_max: usize) -> bool {
        let count_max = NonZeroUsize::new(count_max).unwrap_or(NonZeroUsize::MIN);
        let made = core.poll_batch(now, count_max, &mut self.bytes);
        (self.to, self.size) = made.map_or((None, 0), |batch| (Some(batch.to), batch.segment));
        made.is_some()
    }

    /// Appends `next`, if both can be sent together, and empties it.
    pub(super) fn join(&mut self, next: &mut Batch, count_max: usize) -> bool {
        let all = self.bytes.len() + next.bytes.len();
        let joins = self.to.is_some()
            && self.to == next.to
            && self.size > 0
            && self.bytes.len().is_multiple_of(self.size)
            && (next.size == self.size || next.bytes.len() <= next.size.min(self.size))
            && all.div_ceil(self.size) <= count_max
            && all <= BATCH_MAX;
        if joins {
            self.bytes.extend_from_slice(&next.bytes);
            next.clear();
        }
        joins
    }

    pub(super) fn is_empty(&self) -> bool {
        self.to.is_none()
    }

    pub(super) fn clear(&mut self) {
        (self.to, self.size) = (None, 0);
        self.bytes.clear();
    }
}

/// Result of sending a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// Sent, or lost.
    Done,
    /// The socket buffer is full.
    Blocked,
    /// The interface to this address does not carry datagrams of this size.
    TooLarge(SocketAddr, usize),
}

/// Datagrams received together.
pub(super) struct Segments {
    rest: BytesMut,
    stride: usize,
}

impl Iterator for Segments {
    type Item = BytesMut;

    fn next(&mut self) -> Option<BytesMut> {
        let len = self.stride.min(self.rest.len());
        (len > 0).then(|| self.rest.split_to(len))
    }
}

impl EndpointSocket {
    /// Binds to `addr`; an IPv6 wildcard includes IPv4.
    pub(super) fn bind(addr: SocketAddr) -> io::Result<EndpointSocket> {
        let udp = UdpSocket::bind(addr)?;
        let state = UdpSocketState::new(UdpSockRef::from(&udp))?;
        // A smaller buffer costs only datagrams in bursts.
        let _ = state.set_recv_buffer_size(UdpSockRef::from(&udp), SOCKET_BUFFER);
        let _ = state.set_send_buffer_size(UdpSockRef::from(&udp), SOCKET_BUFFER);
        Ok(EndpointSocket {
            is_v6: addr.is_ipv6(),
            is_wild: addr.ip().is_unspecified(),
            routes: BTreeMap::new(),
            buffers: vec![vec![0; READ_MAX]; READ_BUFFERS],
            udp,
            state,
        })
    }

    pub(super) fn udp(&self) -> &UdpSocket {
        &self.udp
    }

    /// Maximum datagrams in one call.
    pub(super) fn batch_max(&self) -> usize {
        self.state.max_gso_segments().get()
    }

    /// Whether the kernel may fragment datagrams.
    pub(super) fn may_fragment(&self) -> bool {
        self.state.may_fragment()
    }

    /// Forgets the local addresses that peers use, after a change.
    pub(super) fn forget_routes(&mut self) {
        self.routes.clear();
    }

    /// Sends a batch. Errors other than those of [`Sent`] count as loss.
    pub(super) fn send(&mut self, batch: &Batch) -> Sent {
        let Some(to) = batch.to else { return Sent::Done };
        let src_ip = self.routes.get(&to).copied();
        let mut transmit = Transmit {
            destination: self.native(to),
            ecn: None,
            contents: &batch.bytes,
            segment_size: (batch.bytes.len() > batch.size).then_some(batch.size),
            src_ip,
        };
        let mut result = self.state.try_send(UdpSockRef::from(&self.udp), &transmit);
        if src_ip.is_some() && result.as_ref().is_err_and(|e| e.kind() != io::ErrorKind::WouldBlock) {
            // The source address may be gone.
            self.routes.remove(&to);
            transmit.src_ip = None;
            result = self.state.try_send(UdpSockRef::from(&self.udp), &transmit);
        }
        match result {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Sent::Blocked,
            Err(e) if Errno::from_io_error(&e) == Some(Errno::MSGSIZE) => Sent::TooLarge(to, batch.size),
            _ => Sent::Done,
        }
    }

    /// Passes received datagrams to `take`; returns whether there may be more.
    pub(super) fn receive(&mut self, mut take: impl FnMut(SocketAddr, Segments)) -> bool {
        let mut metas = [RecvMeta::default(); READ_BUFFERS];
        let mut slices: Vec<IoSliceMut> = self.buffers.iter_mut().map(|b| IoSliceMut::new(b)).collect();
        // An error concerns an earlier datagram, or says that there is none.
        let Ok(n) = self.state.recv(UdpSockRef::from(&self.udp), &mut slices, &mut metas) else { return false };
        for (meta, buffer) in metas.iter().zip(&self.buffers).take(n) {
            let from = SocketAddr::new(meta.addr.ip().to_canonical(), meta.addr.port());
            if let (true, Some(ours)) = (self.is_wild, meta.dst_ip) {
                remember(&mut self.routes, from, ours);
            }
            let Some(bytes) = buffer.get(..meta.len) else { continue };
            take(from, Segments { rest: BytesMut::from(bytes), stride: meta.stride.max(1) });
        }
        n == READ_BUFFERS
    }

    /// The address in the family of the socket.
    fn native(&self, addr: SocketAddr) -> SocketAddr {
        match addr.ip() {
            IpAddr::V4(v4) if self.is_v6 => SocketAddr::new(v4.to_ipv6_mapped().into(), addr.port()),
            _ => addr,
        }
    }
}

fn remember(routes: &mut BTreeMap<SocketAddr, IpAddr>, from: SocketAddr, ours: IpAddr) {
    if routes.get(&from) == Some(&ours) {
        return;
    }
    if routes.len() >= ROUTES_MAX {
        routes.clear();
    }
    routes.insert(from, ours);
}

/// The source address of datagrams to `peer`; sends nothing.
pub(super) fn source_towards(peer: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if peer.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(peer).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(to: &str, size: usize, bytes: usize) -> Batch {
        Batch { to: Some(to.parse().unwrap()), bytes: vec![7; bytes], size }
    }

    /// How many of these datagrams go into one batch.
    fn batch_of(sizes: &[usize], count_max: usize) -> usize {
        let one = |n: &usize| batch("127.0.0.1:1", *n, *n);
        let mut all = one(&sizes[0]);
        1 + sizes[1..].iter().take_while(|n| all.join(&mut one(n), count_max)).count()
    }

    #[test]
    fn batch_fits_one_system_call() {
        for (sizes, max, taken) in [
            (&[100, 100, 100][..], 8, 3),
            (&[100, 100, 100], 2, 2),
            (&[100, 60, 60], 8, 2), // after a shorter one there is no other
            (&[60, 100], 8, 1),
            (&[1200; 80], 128, 54), // as many as fit
            (&[0, 100], 8, 1),
        ] {
            assert_eq!(batch_of(sizes, max), taken, "{sizes:?}");
        }
        let (a, b) = ("127.0.0.1:1", "127.0.0.1:2");
        for (first, then, together, what) in [
            (batch(a, 100, 300), batch(a, 100, 250), true, "both have several"),
            (batch(a, 100, 300), batch(a, 60, 60), true, "a shorter one ends it"),
            (batch(a, 100, 250), batch(a, 100, 300), false, "after a shorter one there is no other"),
            (batch(a, 100, 300), batch(a, 60, 120), false, "two shorter ones"),
            (batch(a, 100, 300), batch(a, 40, 80), false, "two shorter ones that would be one"),
            (batch(a, 100, 300), batch(b, 100, 300), false, "one peer a batch"),
            (Batch::default(), batch(a, 100, 100), false, "nothing to join"),
        ] {
            let (mut first, mut then) = (first, then);
            let bytes = first.bytes.len() + then.bytes.len();
            assert_eq!(first.join(&mut then, 9), together, "{what}");
            assert_eq!((then.is_empty(), first.bytes.len() == bytes), (together, together), "{what}");
        }
    }

    #[test]
    fn datagram_larger_than_the_interface_carries_is_reported() {
        let mut socket = EndpointSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = socket.udp().local_addr().unwrap();
        // Beyond the maximum of an IPv4 packet.
        assert_eq!(socket.send(&batch(&to.to_string(), 65_530, 65_530)), Sent::TooLarge(to, 65_530));
    }

    #[test]
    fn datagrams_cross_between_families_and_in_batches() {
        let mut six = EndpointSocket::bind("[::]:0".parse().unwrap()).unwrap();
        let mut four = EndpointSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let to = SocketAddr::from(([127, 0, 0, 1], six.udp().local_addr().unwrap().port()));
        let batch = batch(&to.to_string(), 500, 1520);
        if four.batch_max() >= 4 {
            assert_eq!(four.send(&batch), Sent::Done);
            let mut got = Vec::new();
            for _ in 0..100 {
                six.receive(|from, came| got.extend(came.map(|d| (from, d.len()))));
                if got.len() == 4 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let from = four.udp().local_addr().unwrap();
            assert_eq!(got, [(from, 500), (from, 500), (from, 500), (from, 20)]);
        }
        assert_eq!(source_towards(to), Some(to.ip()));
    }
}
