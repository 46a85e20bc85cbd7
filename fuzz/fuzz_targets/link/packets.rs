//! IP packets built from the fuzzer's input, whose headers the link compresses: IPv4 (RFC 791) and
//! IPv6 (RFC 8200) with TCP, UDP or neither, and fragments.

use bytes::Bytes;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Packet `n` of `flow`, with `bytes`. Of `what`: which transport, which version of IP, and what is unusual.
pub(crate) fn packet(flow: u8, n: u32, what: u8, bytes: &[u8]) -> Bytes {
    let body = [&n.to_be_bytes()[..], bytes].concat();
    let (proto, transport) = transport(flow, what, body);
    let header = if what & 4 == 0 { v4(flow, n, what, proto, &transport) } else { v6(flow, proto, &transport) };
    [header, transport].concat().into()
}

fn transport(flow: u8, what: u8, body: Vec<u8>) -> (u8, Vec<u8>) {
    let ports = [0x10, flow, 0x08, 0x01];
    match what & 3 {
        0 | 1 => (TCP, [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 2, 0x50, 0x10, 1, 0, 0, 0, 0, 0], &body].concat()),
        2 => (UDP, [&ports[..], &((8 + body.len()) as u16).to_be_bytes(), &[what, 1], &body].concat()),
        _ => (ICMP, body),
    }
}

fn v4(flow: u8, n: u32, what: u8, proto: u8, transport: &[u8]) -> Vec<u8> {
    let total = ((20 + transport.len()) as u16).to_be_bytes();
    let fragment = if what & 0x10 != 0 { [0x20, what >> 5] } else { [0x40, 0] };
    let id = (n as u16).to_be_bytes();
    let mut header = [&[0x45, what & 8][..], &total, &id, &fragment, &[64, proto, 0, 0]].concat();
    header.extend_from_slice(&[10, 0, 0, 1, 10, 0, 0, flow]);
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header
}

fn v6(flow: u8, proto: u8, transport: &[u8]) -> Vec<u8> {
    let addr = |n: u8| [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n];
    let len = (transport.len() as u16).to_be_bytes();
    [&[0x60, 0, 0, 0][..], &len, &[proto, 64], &addr(1), &addr(flow)].concat()
}

/// The Internet checksum of RFC 1071.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}
