//! Compresses IP headers and the ports of TCP and UDP against a context (after RFC 2507).
//!
//! Addresses, ports and all other constant fields form the *context*, which is not sent. Lengths and the IPv4 header
//! checksum are derived. An IPv4 packet carries its identification, and a fragment its offset. The fields that TCP
//! changes are sent in full: encoded as differences they would be unusable after a loss.

use bytes::{BufMut, Bytes, BytesMut};
use etherparse::{IpFragOffset, IpNumber, Ipv4Header, Ipv6Header};

/// The more-fragments flag in IPv4's fragment word (RFC 791).
const MORE: u16 = 0x2000;
/// Bytes of the UDP header before its checksum.
const UDP_LEN_WITHOUT_CHECKSUM: usize = 6;
/// Bytes of the ports in a TCP or UDP header.
const PORTS: usize = 4;

/// Header fields that all packets of a flow share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Context {
    /// The ports of TCP and UDP; `None` for fragments and other protocols.
    ports: Option<[u8; PORTS]>,
    ip: Ip,
}

/// An IP header with its variable fields set to zero.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Ip {
    V4 { header: Box<Ipv4Header>, is_fragment: bool },
    V6(Ipv6Header),
}

/// Header fields that differ from packet to packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct VariableFields {
    /// Length of the whole packet.
    total: u16,
    identification: u16,
    /// Fragment offset and more-fragments flag.
    fragment: u16,
}

impl Context {
    /// The context of the packet that begins with `start`; `None` if its headers are incomplete or unusual.
    pub(crate) fn of(start: &[u8]) -> Option<Context> {
        read(start).map(|(context, _)| context)
    }

    /// Compresses `start`, the beginning of a packet of `total` bytes, and returns its context. `rest` means that more
    /// of the packet follows, so its length is encoded. `None` if decompression would not restore `start` exactly.
    pub(crate) fn shorten(start: &[u8], total: usize, rest: bool) -> Option<(Context, Bytes)> {
        let (context, fields) = read(start)?;
        let fields = VariableFields { total: u16::try_from(total).ok()?, ..fields };
        let body = start.strip_prefix(&*context.headers(&fields)?)?;
        let mut brief = BytesMut::with_capacity(start.len());
        if rest {
            brief.put_u16(fields.total);
        }
        if let Ip::V4 { is_fragment, .. } = context.ip {
            brief.put_u16(fields.identification);
            if is_fragment {
                brief.put_u16(fields.fragment);
            }
        }
        brief.put_slice(body);
        Some((context, brief.freeze()))
    }

    /// Restores compressed bytes. `None` if they are malformed.
    pub(crate) fn restore(&self, brief: &[u8], rest: bool) -> Option<Bytes> {
        let mut fields = VariableFields::default();
        let mut body = brief;
        let mut take = || {
            let (word, after) = body.split_first_chunk()?;
            body = after;
            Some(u16::from_be_bytes(*word))
        };
        if rest {
            fields.total = take()?;
        }
        if let Ip::V4 { is_fragment, .. } = self.ip {
            fields.identification = take()?;
            if is_fragment {
                fields.fragment = take()?;
            }
        }
        if !rest {
            fields.total = u16::try_from(self.headers_len() + body.len()).ok()?;
        }
        let headers = self.headers(&fields)?;
        Some([&headers, body].concat().into())
    }

    /// Bytes of headers that are not sent.
    fn headers_len(&self) -> usize {
        let ip = match &self.ip {
            Ip::V4 { header, .. } => header.header_len(),
            Ip::V6(_) => Ipv6Header::LEN,
        };
        ip + self.transport_len()
    }

    fn transport_len(&self) -> usize {
        match (self.ports, self.protocol()) {
            (None, _) => 0,
            (Some(_), IpNumber::UDP) => UDP_LEN_WITHOUT_CHECKSUM,
            (Some(_), _) => PORTS,
        }
    }

    fn protocol(&self) -> IpNumber {
        match &self.ip {
            Ip::V4 { header, .. } => header.protocol,
            Ip::V6(header) => header.next_header,
        }
    }

    /// The headers that are not sent.
    fn headers(&self, fields: &VariableFields) -> Option<BytesMut> {
        let mut out = BytesMut::with_capacity(self.headers_len());
        let payload = match &self.ip {
            Ip::V4 { header, .. } => {
                let mut header = header.clone();
                header.total_len = fields.total;
                header.identification = fields.identification;
                header.more_fragments = fields.fragment & MORE != 0;
                header.fragment_offset = IpFragOffset::try_new(fields.fragment & !MORE).ok()?;
                header.header_checksum = header.calc_header_checksum();
                out.put_slice(&header.to_bytes());
                fields.total.checked_sub(out.len() as u16)?
            }
            Ip::V6(header) => {
                let payload_length = fields.total.checked_sub(Ipv6Header::LEN as u16)?;
                out.put_slice(&Ipv6Header { payload_length, ..header.clone() }.to_bytes());
                payload_length
            }
        };
        if let Some(ports) = self.ports {
            out.put_slice(&ports);
            if self.protocol() == IpNumber::UDP {
                out.put_u16(payload);
            }
        }
        Some(out)
    }
}

fn read(start: &[u8]) -> Option<(Context, VariableFields)> {
    let ports = |protocol, rest: &[u8]| match protocol {
        IpNumber::TCP => rest.first_chunk::<PORTS>().copied(),
        IpNumber::UDP => {
            rest.first_chunk::<UDP_LEN_WITHOUT_CHECKSUM>().and_then(|header| header.first_chunk::<PORTS>().copied())
        }
        _ => None,
    };
    match start.first()? >> 4 {
        4 => {
            let (mut header, rest) = Ipv4Header::from_slice(start).ok()?;
            let more = if header.more_fragments { MORE } else { 0 };
            let fragment = header.fragment_offset.value() | more;
            let fields = VariableFields { total: header.total_len, identification: header.identification, fragment };
            (header.total_len, header.identification, header.header_checksum) = (0, 0, 0);
            (header.more_fragments, header.fragment_offset) = (false, IpFragOffset::ZERO);
            let is_fragment = fragment != 0;
            let ports = if is_fragment { None } else { ports(header.protocol, rest) };
            Some((Context { ports, ip: Ip::V4 { header: Box::new(header), is_fragment } }, fields))
        }
        6 => {
            let (mut header, rest) = Ipv6Header::from_slice(start).ok()?;
            header.payload_length = 0;
            Some((Context { ports: ports(header.next_header, rest), ip: Ip::V6(header) }, VariableFields::default()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{Ipv6FlowLabel, PacketBuilder};
    use proptest::prelude::*;

    /// UDP and TCP packets over IPv4 and IPv6 with a payload of `len` bytes.
    fn packets(len: usize) -> [Vec<u8>; 4] {
        let payload = vec![7; len];
        let v4 = || PacketBuilder::ipv4([10, 0, 0, 1], [192, 168, 1, 9], 63);
        let v6 = || PacketBuilder::ipv6([1; 16], [2; 16], 63);
        let mut packets = [const { Vec::new() }; 4];
        v4().udp(700, 2049).write(&mut packets[0], &payload).unwrap();
        v4().tcp(700, 2049, 12_345, 9).ack(77).write(&mut packets[1], &payload).unwrap();
        v6().udp(700, 2049).write(&mut packets[2], &payload).unwrap();
        v6().tcp(700, 2049, 12_345, 9).write(&mut packets[3], &payload).unwrap();
        packets
    }

    fn fragment(offset: u16, more: bool, len: usize) -> Vec<u8> {
        let mut ip = Ipv4Header::new(len as u16, 64, IpNumber::UDP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap();
        ip.identification = 4711;
        ip.fragment_offset = IpFragOffset::try_new(offset).unwrap();
        ip.more_fragments = more;
        ip.header_checksum = ip.calc_header_checksum();
        let mut packet = ip.to_bytes().to_vec();
        packet.resize(20 + len, 9);
        packet
    }

    /// Length of `packet` after compression, checked by decompressing it.
    fn brief(packet: &[u8]) -> Option<usize> {
        let (context, brief) = Context::shorten(packet, packet.len(), false)?;
        assert_eq!(context.restore(&brief, false).unwrap(), packet);
        assert_eq!(Context::of(packet), Some(context));
        Some(brief.len())
    }

    #[test]
    fn compressed_headers_are_restored() {
        for len in [0, 1, 1400, 4000] {
            let [udp4, tcp4, udp6, tcp6] = packets(len);
            assert_eq!(brief(&udp4), Some(2 + 2 + len), "identification and checksum");
            assert_eq!(brief(&tcp4), Some(2 + 16 + len));
            assert_eq!(brief(&udp6), Some(2 + len));
            assert_eq!(brief(&tcp6), Some(16 + len));
            assert_eq!(brief(&fragment(185, true, len)), Some(4 + len));
        }
        assert_eq!(brief(&fragment(185, false, 9)), Some(4 + 9));
        assert_eq!(brief(&fragment(0, true, 16)), Some(4 + 16));
    }

    #[test]
    fn first_chunk_encodes_packet_length() {
        for packet in packets(4000) {
            let (start, _) = packet.split_at(1400);
            let (context, brief) = Context::shorten(start, packet.len(), true).unwrap();
            assert!(brief.len() <= start.len() - 20);
            assert_eq!(context.restore(&brief, true).unwrap(), start);
        }
    }

    #[test]
    fn context_is_the_same_within_flow_only() {
        let [udp, tcp, ..] = packets(100).map(|p| Context::of(&p).unwrap());
        let [longer, ..] = packets(200).map(|p| Context::of(&p).unwrap());
        assert_eq!(udp, longer);
        assert_ne!(udp, tcp);
        let [first, middle, last] = [fragment(0, true, 80), fragment(10, true, 80), fragment(20, false, 5)];
        assert_eq!(Context::of(&first), Context::of(&middle));
        assert_eq!(Context::of(&last), Context::of(&middle));
        assert_ne!(Context::of(&last), Context::of(&fragment(0, false, 5)), "a whole packet has no place in another");
    }

    #[test]
    fn irreversible_headers_are_not_compressed() {
        let [udp, _, udp6, _] = packets(10);
        let changed = |at: usize, to: u8| {
            let mut packet = udp.clone();
            packet[at] = to;
            packet
        };
        for (what, packet) in [
            ("a wrong checksum", changed(10, udp[10] ^ 1)),
            ("a wrong length", changed(3, udp[3] - 1)),
            ("a bit that must be zero", changed(6, udp[6] | 0x80)),
            ("another length in UDP", changed(25, udp[25] - 1)),
            ("a version nobody knows", changed(0, 0x55)),
            ("half a header", udp[..15].to_vec()),
            ("half a header", udp6[..39].to_vec()),
            ("nothing", Vec::new()),
        ] {
            assert_eq!(Context::shorten(&packet, packet.len(), false), None, "{what}");
        }
        let long = vec![0x60; 70_000];
        assert_eq!(Context::shorten(&long, long.len(), false), None);
    }

    #[test]
    fn malformed_compressed_headers_are_refused() {
        for packet in packets(0).iter().chain([&fragment(1, true, 8)]) {
            let context = Context::of(packet).unwrap();
            let needed = if packet[0] >> 4 == 4 { 2 } else { 0 };
            assert!((0..needed).all(|len| context.restore(&vec![0; len], false).is_none()));
            assert_eq!(context.restore(&[0, 19, 0, 0, 0, 0], true), None, "shorter than its headers");
        }
    }

    proptest! {
        #[test]
        fn any_compressed_packet_is_restored(
            mut packet in proptest::collection::vec(any::<u8>(), 0..100),
            version in prop_oneof![Just(0x45u8), Just(0x46), Just(0x60)],
            protocol in prop_oneof![Just(6u8), Just(17), any::<u8>()],
            mend in any::<bool>(),
        ) {
            if let Some(first) = packet.first_mut() {
                *first = version;
            }
            if packet.len() >= 60 {
                packet[if version == 0x60 { 6 } else { 9 }] = protocol;
            }
            if let Ok((mut header, _)) = Ipv4Header::from_slice(&packet) && mend {
                header.total_len = packet.len() as u16;
                header.header_checksum = header.calc_header_checksum();
                let bytes = header.to_bytes();
                packet[..bytes.len()].copy_from_slice(&bytes);
            }
            if version == 0x60 && mend && packet.len() >= 40 {
                let payload = packet.len() as u16 - 40;
                packet[4..6].copy_from_slice(&payload.to_be_bytes());
            }
            brief(&packet);
        }

        #[test]
        fn restore_of_any_bytes_does_not_panic(
            brief in proptest::collection::vec(any::<u8>(), 0..20),
            rest in any::<bool>(),
        ) {
            for packet in packets(3).iter().chain([&fragment(1, true, 8)]) {
                let _ = Context::of(packet).unwrap().restore(&brief, rest);
            }
        }
    }

    #[test]
    fn flow_label_is_part_of_context() {
        let [.., mut tcp] = packets(1);
        let (mut header, _) = Ipv6Header::from_slice(&tcp).unwrap();
        header.flow_label = Ipv6FlowLabel::try_new(0x12345).unwrap();
        tcp[..Ipv6Header::LEN].copy_from_slice(&header.to_bytes());
        assert_eq!(brief(&tcp), Some(17));
    }
}
