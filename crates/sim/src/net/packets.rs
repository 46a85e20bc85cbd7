//! IP fragmentation and reassembly of datagrams (RFC 791, section 3.2).
//!
//! Packets are complete with headers, as a host sends them, because the link protocol examines
//! them; only UDP's checksum is omitted (RFC 768: zero). Addresses identify the client.

use bytes::{BufMut, Bytes, BytesMut};
use etherparse::defrag::IpDefragPool;
use etherparse::{IpFragOffset, IpNumber, Ipv4Header, NetSlice, SlicedPacket, UdpHeader};

/// Bytes of a UDP header.
const UDP_HEADER: usize = UdpHeader::LEN;
/// Maximum payload of a UDP datagram, in bytes.
const DATAGRAM_MAX: usize = 65_535 - Ipv4Header::MIN_LEN - UDP_HEADER;
/// Age in packets at which an incomplete datagram is dropped. Few of each client are in flight at a
/// time; an older one lost a fragment.
const PARTIAL_AGE_MAX: u64 = 2048;
/// Packets between two searches for old datagrams.
const LOOK_EVERY: u64 = 256;
const HOPS: u8 = 64;
const NFS_PORT: u16 = 2049;

/// Fragments a station's datagrams into packets.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    next_ident: u16,
}

impl Cutter {
    /// The packets of a datagram from or to `client`, none longer than `mtu` bytes; none if it is
    /// too long for UDP.
    pub(crate) fn cut(&mut self, client: usize, datagram: &[u8], mtu: usize) -> Vec<Bytes> {
        let (Ok(client), 0..=DATAGRAM_MAX) = (u16::try_from(client), datagram.len()) else { return Vec::new() };
        let identification = self.next_ident;
        self.next_ident = identification.wrapping_add(1);
        let length = (UDP_HEADER + datagram.len()) as u16;
        let udp = UdpHeader { source_port: NFS_PORT, destination_port: NFS_PORT, length, checksum: 0 };
        let whole = [&udp.to_bytes(), datagram].concat();
        let room = mtu.saturating_sub(Ipv4Header::MIN_LEN).max(UDP_HEADER);
        let mut packets = Vec::with_capacity(whole.len() / room + 1);
        let mut offset = 0;
        while offset < whole.len() {
            let rest = whole.len() - offset;
            let carried = if rest <= room { rest } else { room & !7 };
            let mut ip = Ipv4Header {
                identification,
                more_fragments: carried < rest,
                fragment_offset: IpFragOffset::try_new((offset / 8) as u16).unwrap_or_default(),
                time_to_live: HOPS,
                protocol: IpNumber::UDP,
                total_len: (Ipv4Header::MIN_LEN + carried) as u16,
                ..Ipv4Header::default()
            };
            let [high, low] = client.to_be_bytes();
            (ip.source, ip.destination) = ([10, 0, high, low], [10, 1, high, low]);
            ip.header_checksum = ip.calc_header_checksum();
            let mut packet = BytesMut::with_capacity(Ipv4Header::MIN_LEN + carried);
            packet.put_slice(&ip.to_bytes());
            packet.put_slice(&whole[offset..offset + carried]);
            packets.push(packet.freeze());
            offset += carried;
        }
        packets
    }
}

/// Reassembles the datagrams of one station's [`Fragmenter`].
#[derive(Debug)]
pub(crate) struct Joiner {
    partial: IpDefragPool<u64>,
    /// Packets received.
    taken: u64,
}

impl Default for Joiner {
    fn default() -> Joiner {
        Joiner { partial: IpDefragPool::new(), taken: 0 }
    }
}

impl Joiner {
    /// Handles a packet; returns the datagram that it completes, and its client.
    pub(crate) fn take(&mut self, packet: &Bytes) -> Option<(usize, Bytes)> {
        let sliced = SlicedPacket::from_ip(packet).ok()?;
        let Some(NetSlice::Ipv4(ip)) = &sliced.net else { return None };
        let [_, _, high, low] = ip.header().destination();
        let client = usize::from(u16::from_be_bytes([high, low]));
        if !ip.header().is_fragmenting_payload() {
            return Some((client, packet.slice_ref(ip.payload().payload.get(UDP_HEADER..)?)));
        }
        self.taken += 1;
        let taken = self.taken;
        if taken.is_multiple_of(LOOK_EVERY) {
            self.partial.retain(|touched| touched + PARTIAL_AGE_MAX > taken);
        }
        let whole = self.partial.process_sliced_packet(&sliced, taken, ()).ok()??;
        let whole = Bytes::from(whole.payload);
        (whole.len() >= UDP_HEADER).then(|| (client, whole.slice(UDP_HEADER..)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(len: usize) -> Bytes {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    fn lengths(len: usize, mtu: usize) -> Vec<usize> {
        Cutter::default().cut(0, &datagram(len), mtu).iter().map(Bytes::len).collect()
    }

    #[test]
    fn fragments_have_the_lengths_of_ip() {
        assert_eq!(lengths(0, 1500), [28]);
        assert_eq!(lengths(1472, 1500), [1500]);
        assert_eq!(lengths(1473, 1500), [1500, 21]);
        assert_eq!(lengths(8192 + 120, 1500), [1500, 1500, 1500, 1500, 1500, 940]);
        assert_eq!(lengths(DATAGRAM_MAX + 1, 1500), [0; 0]);
    }

    #[test]
    fn datagrams_reassemble_despite_reordering_and_loss() {
        for mtu in [576, 1006, 1438, 1500] {
            let (mut cutter, mut joiner) = (Cutter::default(), Joiner::default());
            for len in (0..20_000).step_by(613) {
                let sent = datagram(len);
                let mut lossy = cutter.cut(3, &sent, mtu);
                lossy.pop();
                assert!(lossy.iter().all(|p| joiner.take(p).is_none()), "one packet is missing");

                let mut packets = cutter.cut(3, &sent, mtu);
                packets.reverse();
                let doubled: Vec<Bytes> = packets.iter().flat_map(|p| [p.clone(), p.clone()]).collect();
                let whole: Vec<(usize, Bytes)> = doubled.iter().filter_map(|p| joiner.take(p)).collect();
                assert_eq!(whole.first(), Some(&(3, sent)), "{len} bytes in packets of {mtu}");
            }
        }
    }

    #[test]
    fn malformed_packet_is_dropped() {
        let mut joiner = Joiner::default();
        for bad in [&b""[..], &[0; 19], &[0xff; 20], &[0; 28], &[0xff; 1500]] {
            assert_eq!(joiner.take(&Bytes::copy_from_slice(bad)), None);
        }
    }
}
