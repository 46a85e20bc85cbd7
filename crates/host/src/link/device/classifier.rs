//! Classifies IP packets for the link core: destination, urgency, and the flow within which order is kept.
//!
//! A flow is a 5-tuple: addresses, protocol and ports. Only the first fragment of a datagram carries the ports, so the
//! flows of fragmented datagrams are remembered by identification until the last fragment. The fragments of NFS over
//! UDP so stay in one flow with the datagrams before and after them. A fragment without a known first one, and a
//! protocol without ports, is classified by addresses and protocol.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::net::IpAddr;

use etherparse::{IpNumber, IpSlice, Ipv6ExtensionSlice};
use siphasher::sip::SipHasher24;

/// Most fragmented datagrams whose flows are remembered.
const DATAGRAMS_MAX: usize = 64;

/// The header fields of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::link) struct PacketHeaders {
    pub(in crate::link) source: IpAddr,
    pub(in crate::link) destination: IpAddr,
    /// Differentiated services code point (0 to 63).
    pub(in crate::link) dscp: u8,
    /// Equal for packets that are kept in order.
    pub(in crate::link) flow: u64,
    /// Source and destination port of a UDP datagram or its first fragment.
    pub(in crate::link) udp: Option<(u16, u16)>,
    /// Whether the sender reacts to drops: TCP, except fragments, each of which costs a datagram.
    pub(in crate::link) responsive: bool,
}

/// Parses headers and remembers the flows of fragmented datagrams.
#[derive(Debug, Default)]
pub(in crate::link) struct Classifier {
    fragmented: VecDeque<(Datagram, u64)>,
}

/// The header fields that the fragments of a datagram share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Datagram {
    ends: (IpAddr, IpAddr),
    protocol: u8,
    id: u32,
}

/// The position of a packet in its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fragment {
    No,
    First { id: u32 },
    Later { id: u32 },
}

impl Classifier {
    /// `None` for anything except complete IP packets with unicast addresses.
    pub(in crate::link) fn read(&mut self, packet: &[u8]) -> Option<PacketHeaders> {
        let ip = IpSlice::from_slice(packet).ok()?;
        let (source, destination) = unicast(&ip)?;
        let protocol = ip.payload_ip_number();
        let datagram = |id| Datagram { ends: (source, destination), protocol: protocol.0, id };
        let fragment = fragment(&ip);
        let responsive = fragment == Fragment::No && protocol == IpNumber::TCP;
        let ports = if matches!(fragment, Fragment::Later { .. }) { None } else { ports(&ip) };
        let udp = ports.filter(|_| protocol == IpNumber::UDP);
        let udp = udp.map(|[a, b, c, d]| (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])));
        let flow = match fragment {
            Fragment::No => hash(source, destination, protocol, ports),
            Fragment::First { id } => {
                let flow = hash(source, destination, protocol, ports);
                self.remember(datagram(id), flow);
                flow
            }
            Fragment::Later { id } => {
                let known = self.fragmented.iter().rev().find(|(d, _)| *d == datagram(id));
                known.map_or_else(|| hash(source, destination, protocol, None), |(_, flow)| *flow)
            }
        };
        let dscp = match &ip {
            IpSlice::Ipv4(v4) => v4.header().dcp().value(),
            IpSlice::Ipv6(v6) => v6.header().dscp().value(),
        };
        Some(PacketHeaders { source, destination, dscp, flow, udp, responsive })
    }

    fn remember(&mut self, datagram: Datagram, flow: u64) {
        if self.fragmented.len() == DATAGRAMS_MAX {
            self.fragmented.pop_front();
        }
        self.fragmented.push_back((datagram, flow));
    }
}

/// A packet's source and destination; `None` as for [`Classifier::read`].
pub(in crate::link) fn addresses(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    unicast(&IpSlice::from_slice(packet).ok()?)
}

fn unicast(ip: &IpSlice<'_>) -> Option<(IpAddr, IpAddr)> {
    let (source, destination) = (ip.source_addr(), ip.destination_addr());
    (!is_local_only(source) && !is_local_only(destination)).then_some((source, destination))
}

/// Link-local and similar addresses, which a tunnel does not carry.
fn is_local_only(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(a) => a.is_multicast() || a.is_broadcast() || a.is_unspecified() || a.is_link_local(),
        IpAddr::V6(a) => a.is_multicast() || a.is_unspecified() || a.is_unicast_link_local(),
    }
}

fn fragment(ip: &IpSlice<'_>) -> Fragment {
    let (offset, more, id) = match ip {
        IpSlice::Ipv4(v4) => {
            let h = v4.header();
            (h.fragments_offset().value(), h.more_fragments(), u32::from(h.identification()))
        }
        IpSlice::Ipv6(v6) => {
            let header = v6.extensions().clone().into_iter().find_map(|e| match e {
                Ipv6ExtensionSlice::Fragment(f) => Some(f),
                _ => None,
            });
            let Some(f) = header else { return Fragment::No };
            (f.fragment_offset().value(), f.more_fragments(), f.identification())
        }
    };
    match (offset, more) {
        (0, false) => Fragment::No,
        (0, true) => Fragment::First { id },
        _ => Fragment::Later { id },
    }
}

/// Source and destination port, if the protocol has them and they are complete.
fn ports(ip: &IpSlice<'_>) -> Option<[u8; 4]> {
    let protocol = ip.payload_ip_number();
    let has_ports = [IpNumber::TCP, IpNumber::UDP, IpNumber::UDP_LITE, IpNumber::SCTP, IpNumber::DCCP];
    if !has_ports.contains(&protocol) {
        return None;
    }
    ip.payload().payload.first_chunk::<4>().copied()
}

fn hash(source: IpAddr, destination: IpAddr, protocol: IpNumber, ports: Option<[u8; 4]>) -> u64 {
    let mut h = SipHasher24::new();
    for addr in [source, destination] {
        match addr {
            IpAddr::V4(a) => h.write(&a.octets()),
            IpAddr::V6(a) => h.write(&a.octets()),
        }
    }
    h.write_u8(protocol.0);
    if let Some(ports) = ports {
        h.write(&ports);
    }
    h.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{IpDscp, IpFragOffset, IpHeaders, Ipv4Header, Ipv6FragmentHeader, PacketBuilder};
    use proptest::prelude::*;

    fn udp(from: u16, to: u16, dscp: u8) -> Vec<u8> {
        let mut ip = Ipv4Header::new(0, 64, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
        ip.dscp = IpDscp::try_new(dscp).unwrap();
        let mut packet = Vec::new();
        let udp = PacketBuilder::ip(IpHeaders::Ipv4(ip, Default::default())).udp(from, to);
        udp.write(&mut packet, b"some payload").unwrap();
        packet
    }

    /// A fragment at `offset` (in units of 8 bytes) of datagram `id`.
    fn v4_fragment(id: u16, offset: u16, more: bool, payload: &[u8]) -> Vec<u8> {
        let mut ip = Ipv4Header::new(payload.len() as u16, 64, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
        ip.identification = id;
        ip.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        ip.more_fragments = more;
        let mut packet = Vec::new();
        ip.write(&mut packet).unwrap();
        packet.extend_from_slice(payload);
        packet
    }

    #[test]
    fn flows_are_five_tuples() {
        let mut c = Classifier::default();
        let a = c.read(&udp(1000, 2049, 46)).unwrap();
        assert_eq!((a.source, a.destination), ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()));
        assert_eq!((a.dscp, a.udp), (46, Some((1000, 2049))));
        assert_eq!(c.read(&udp(1000, 2049, 0)).unwrap().flow, a.flow, "the class does not change the flow");
        assert_ne!(c.read(&udp(1001, 2049, 0)).unwrap().flow, a.flow);
        let tcp = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64).tcp(1000, 2049, 0, 0);
        let mut packet = Vec::new();
        tcp.write(&mut packet, &[]).unwrap();
        let b = c.read(&packet).unwrap();
        assert_ne!(b.flow, a.flow);
        assert_eq!(b.udp, None);
        assert_eq!((a.responsive, b.responsive), (false, true), "a lost datagram is not missed soon");
    }

    #[test]
    fn fragments_stay_with_their_flow() {
        let mut c = Classifier::default();
        let whole = c.read(&udp(1000, 2049, 0)).unwrap().flow;
        let ports = [&1000u16.to_be_bytes()[..], &2049u16.to_be_bytes(), &[0; 12]].concat();
        assert_eq!(c.read(&v4_fragment(7, 0, true, &ports)).unwrap().flow, whole);
        assert_eq!(c.read(&v4_fragment(7, 2, true, &[0; 16])).unwrap().flow, whole);
        assert_eq!(c.read(&v4_fragment(7, 2, true, &ports)).unwrap().udp, None, "its middle has no ports");
        assert_eq!(c.read(&v4_fragment(7, 4, false, &[0; 3])).unwrap().flow, whole);
        let orphan = c.read(&v4_fragment(8, 2, false, &[0; 16])).unwrap().flow;
        assert_ne!(orphan, whole, "by addresses and protocol alone");
        for id in 100..1000 {
            c.read(&v4_fragment(id, 0, true, &ports)).unwrap();
        }
        assert!(c.fragmented.len() <= DATAGRAMS_MAX);
        assert_eq!(c.read(&v4_fragment(7, 2, true, &[0; 16])).unwrap().flow, orphan, "forgotten");
    }

    #[test]
    fn ipv6_fragments_stay_with_their_flow() {
        let packet = |offset, more| {
            let mut ip = etherparse::Ipv6Header { next_header: IpNumber::UDP, hop_limit: 9, ..Default::default() };
            (ip.source[15], ip.destination[15]) = (1, 2);
            let offset = IpFragOffset::try_new(offset).unwrap();
            let fragment = Ipv6FragmentHeader::new(IpNumber::UDP, offset, more, 77);
            ip.next_header = IpNumber::IPV6_FRAGMENTATION_HEADER;
            ip.payload_length = 8 + 16;
            let mut packet = Vec::new();
            ip.write(&mut packet).unwrap();
            packet.extend_from_slice(&fragment.to_bytes());
            packet.extend_from_slice(&[3; 16]);
            packet
        };
        let mut c = Classifier::default();
        let first = c.read(&packet(0, true)).unwrap();
        assert_eq!(c.read(&packet(2, false)).unwrap().flow, first.flow);
        assert_ne!(Classifier::default().read(&packet(2, false)).unwrap().flow, first.flow);
    }

    #[test]
    fn packet_not_for_tunnel_is_refused() {
        let mut c = Classifier::default();
        let good = udp(1, 2, 0);
        let mut multicast = good.clone();
        multicast[16..20].copy_from_slice(&[224, 0, 0, 22]);
        // A link-local address, as used by the metadata service of a cloud: it is valid on one wire only.
        let mut link_local = good.clone();
        link_local[16..20].copy_from_slice(&[169, 254, 169, 254]);
        for bad in [&[][..], &[0x45], &good[..19], &multicast, &link_local] {
            assert_eq!(c.read(bad), None);
        }
    }

    proptest! {
        #[test]
        fn read_of_any_packet_does_not_panic(packet in proptest::collection::vec(any::<u8>(), 0..120), version in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60)]) {
            let mut packet = packet;
            if let Some(first) = packet.first_mut() {
                *first = version;
            }
            let _ = Classifier::default().read(&packet);
        }
    }
}
