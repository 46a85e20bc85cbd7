//! Who sent a captured frame to whom.

use etherparse::{LaxNetSlice, LaxSlicedPacket, LinkSlice, SlicedPacket};
use pcap_file::DataLink;

/// Sender and receiver of a frame; `None` for a link type that is not understood. What cannot be
/// read is from and to `unknown`.
pub(super) fn stations_of(link: DataLink, data: &[u8]) -> Option<(String, String)> {
    let unknown = || ("unknown".to_owned(), "unknown".to_owned());
    let found = match link {
        DataLink::ETHERNET => LaxSlicedPacket::from_ethernet(data).ok().and_then(|p| by_ip(&p).or_else(|| by_link(&p))),
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => LaxSlicedPacket::from_ip(data).ok().and_then(|p| by_ip(&p)),
        DataLink::LINUX_SLL => cooked(data),
        _ => return None,
    };
    Some(found.unwrap_or_else(unknown))
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

/// What Linux puts in front of packets of no one interface: only the sender's link address is in
/// it. Such a packet that was cut short has no name.
fn cooked(data: &[u8]) -> Option<(String, String)> {
    let packet = SlicedPacket::from_linux_sll(data).ok()?;
    match packet.net? {
        etherparse::NetSlice::Ipv4(ip) => {
            Some((ip.header().source_addr().to_string(), ip.header().destination_addr().to_string()))
        }
        etherparse::NetSlice::Ipv6(ip) => {
            Some((ip.header().source_addr().to_string(), ip.header().destination_addr().to_string()))
        }
        etherparse::NetSlice::Arp(_) => None,
    }
}

fn address(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}
