//! Who sent a captured frame to whom.

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, LinkSlice};
use pcap_parser::Linktype;

/// Where Linux's cooked headers have the protocol, and how long they are: version 1 and 2.
const SLL: Cooked = Cooked { protocol_at: 14, header_len: 16 };
const SLL2: Cooked = Cooked { protocol_at: 0, header_len: 20 };
/// Raw IP as some BSD systems number it in their files.
const BSD_RAW: [Linktype; 2] = [Linktype(12), Linktype(14)];
/// The address family before each packet of a BSD loopback or tunnel interface.
const FAMILY_LEN: usize = 4;

/// What Linux puts in front of packets of no one interface.
struct Cooked {
    protocol_at: usize,
    header_len: usize,
}

/// Sender and receiver of a frame; `None` for a link type that is not understood. What cannot be
/// read is from and to `unknown`.
pub(super) fn stations_of(link: Linktype, data: &[u8]) -> Option<(String, String)> {
    let unknown = || ("unknown".to_owned(), "unknown".to_owned());
    let found = match link {
        Linktype::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok().and_then(|p| by_ip(&p).or_else(|| by_link(&p))),
        Linktype::RAW | Linktype::IPV4 | Linktype::IPV6 => raw(data),
        link if BSD_RAW.contains(&link) => raw(data),
        Linktype::NULL | Linktype::LOOP => data.get(FAMILY_LEN..).and_then(raw),
        Linktype::LINUX_SLL => SLL.stations_of(data),
        Linktype::LINUX_SLL2 => SLL2.stations_of(data),
        _ => return None,
    };
    Some(found.unwrap_or_else(unknown))
}

fn raw(data: &[u8]) -> Option<(String, String)> {
    by_ip(&LaxSlicedPacket::from_ip(data).ok()?)
}

fn by_ip(packet: &LaxSlicedPacket<'_>) -> Option<(String, String)> {
    match packet.net.as_ref()? {
        LaxNetSlice::Ipv4(ip) => {
            let header = ip.header();
            Some((header.source_addr().to_string(), header.destination_addr().to_string()))
        }
        LaxNetSlice::Ipv6(ip) => {
            let header = ip.header();
            Some((header.source_addr().to_string(), header.destination_addr().to_string()))
        }
        LaxNetSlice::Arp(_) => None,
    }
}

fn by_link(packet: &LaxSlicedPacket<'_>) -> Option<(String, String)> {
    match packet.link.as_ref()? {
        LinkSlice::Ethernet2(frame) => Some((address(&frame.source()), address(&frame.destination()))),
        _ => None,
    }
}

impl Cooked {
    /// By IP alone: of the link addresses only the sender's is in the header.
    fn stations_of(&self, data: &[u8]) -> Option<(String, String)> {
        let protocol = data.get(self.protocol_at..)?.first_chunk().copied()?;
        let payload = data.get(self.header_len..)?;
        by_ip(&LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes(protocol)), payload))
    }
}

fn address(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}
