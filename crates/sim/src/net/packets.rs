//! Datagrams cut into IP packets and put together again (RFC 791, section 3.2).
//!
//! The packets have the lengths that IP gives them: a header of 20 bytes each, the 8-byte UDP
//! header in the first, every fragment but the last a multiple of 8 bytes. What stands in the
//! headers is this module's own: whose datagram it is and where the fragment goes. In place of
//! IP's 16-bit identification, which wraps within seconds on a fast link (RFC 4963), there are
//! 32 bits.

use std::collections::BTreeMap;

use bytes::{BufMut, Bytes, BytesMut};

/// Bytes of an IP header without options.
pub(crate) const IP_HEADER: usize = 20;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;
/// The longest payload of a UDP datagram, in bytes.
const DATAGRAM_MAX: usize = 65_535 - IP_HEADER - UDP_HEADER;
/// Datagrams a receiver holds incomplete. A few of each client are on their way at a time; what
/// is older has lost a fragment.
const PARTIAL_MAX: usize = 64;

/// Cuts a station's datagrams into packets.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    next_ident: u32,
}

impl Cutter {
    /// The packets of a datagram from or to `client`, none longer than `mtu` bytes. None at all
    /// if it is longer than UDP allows.
    pub(crate) fn cut(&mut self, client: usize, datagram: &[u8], mtu: usize) -> Vec<Bytes> {
        let (Ok(client), 0..=DATAGRAM_MAX) = (u16::try_from(client), datagram.len()) else { return Vec::new() };
        let ident = self.next_ident;
        self.next_ident = ident.wrapping_add(1);
        let total = UDP_HEADER + datagram.len();
        let room = mtu.saturating_sub(IP_HEADER).max(UDP_HEADER);
        let mut packets = Vec::with_capacity(total / room + 1);
        let mut offset = 0;
        while offset < total {
            let rest = total - offset;
            let carried = if rest <= room { rest } else { room & !7 };
            let mut packet = BytesMut::with_capacity(IP_HEADER + carried);
            packet.put_u32(ident);
            packet.put_u16(client);
            packet.put_u16(offset as u16);
            packet.put_u16(total as u16);
            packet.put_bytes(0, IP_HEADER - packet.len());
            if offset == 0 {
                packet.put_bytes(0, UDP_HEADER);
            }
            packet.put_slice(&datagram[offset.saturating_sub(UDP_HEADER)..offset + carried - UDP_HEADER]);
            packets.push(packet.freeze());
            offset += carried;
        }
        packets
    }
}

/// Puts together what one station's [`Cutter`] cut, as far as it arrives.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    partial: BTreeMap<u32, Partial>,
}

/// A datagram some of whose fragments are here.
#[derive(Debug)]
struct Partial {
    bytes: Vec<u8>,
    missing: usize,
    /// Where the fragments that are here begin.
    offsets: Vec<usize>,
}

impl Joiner {
    /// Takes a packet; returns the datagram that it completes, and whose it is.
    pub(crate) fn take(&mut self, packet: &Bytes) -> Option<(usize, Bytes)> {
        let (header, body) = packet.split_first_chunk::<IP_HEADER>()?;
        let number = |at: usize| usize::from(u16::from_be_bytes([header[at], header[at + 1]]));
        let ident = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let (client, offset, total) = (number(4), number(6), number(8));
        if total < UDP_HEADER || offset + body.len() > total {
            return None;
        }
        if body.len() == total {
            return Some((client, packet.slice(IP_HEADER + UDP_HEADER..)));
        }
        let new = || Partial { bytes: vec![0; total], missing: total, offsets: Vec::new() };
        let partial = self.partial.entry(ident).or_insert_with(new);
        if partial.bytes.len() != total || partial.offsets.contains(&offset) {
            return None;
        }
        partial.bytes[offset..offset + body.len()].copy_from_slice(body);
        partial.offsets.push(offset);
        partial.missing = partial.missing.saturating_sub(body.len());
        if partial.missing == 0 {
            let whole = Bytes::from(self.partial.remove(&ident)?.bytes);
            return Some((client, whole.slice(UDP_HEADER..)));
        }
        if self.partial.len() > PARTIAL_MAX {
            self.partial.pop_first(); // the oldest: identifiers only grow
        }
        None
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
    fn packets_have_the_lengths_ip_gives_them() {
        assert_eq!(lengths(0, 1500), [28]);
        assert_eq!(lengths(1472, 1500), [1500]);
        assert_eq!(lengths(1473, 1500), [1500, 21]);
        assert_eq!(lengths(8192 + 120, 1500), [1500, 1500, 1500, 1500, 1500, 940]);
        assert_eq!(lengths(DATAGRAM_MAX + 1, 1500), [0; 0]);
    }

    #[test]
    fn datagrams_come_back_whole_whatever_the_order_and_the_losses() {
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
            assert!(joiner.partial.len() <= PARTIAL_MAX);
        }
    }

    #[test]
    fn what_is_no_packet_is_dropped() {
        let mut joiner = Joiner::default();
        for bad in [&b""[..], &[0; 19], &[0xff; 20], &[0; 28], &[0xff; 1500]] {
            assert_eq!(joiner.take(&Bytes::copy_from_slice(bad)), None);
        }
    }
}
