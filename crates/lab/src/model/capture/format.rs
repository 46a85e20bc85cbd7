//! pcap and pcapng records, and the stations of a frame.

use std::io::Read;

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, LinkSlice};
use pcap_parser::nom::{Err, IResult, Needed};
use pcap_parser::{
    BOM_MAGIC, EPB_MAGIC, EnhancedPacketBlock, IDB_MAGIC, InterfaceDescriptionBlock, Linktype, OptionCode, PcapHeader,
    SHB_MAGIC, SPB_MAGIC, parse_enhancedpacketblock_be, parse_enhancedpacketblock_le,
    parse_interfacedescriptionblock_be, parse_interfacedescriptionblock_le, parse_pcap_frame, parse_pcap_frame_be,
    parse_pcap_frame_modified, parse_pcap_header, parse_sectionheaderblock, parse_unknownblock_be,
    parse_unknownblock_le,
};

use super::stations::{CaptureError, Tally};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Whole,
    /// In the middle of a packet, as after the capturing program was killed, or at a damaged length. Earlier packets
    /// count.
    Cut,
}

pub(super) struct CapturedPacket<'a> {
    link: Linktype,
    /// Seconds since 1970.
    time_s: f64,
    /// Length on the wire, according to the capture.
    original_len: u32,
    data: &'a [u8],
}

/// Counts a packet. Its length is at least the captured length.
pub(super) fn add(tally: &mut Tally, packet: CapturedPacket<'_>) -> Result<(), CaptureError> {
    let CapturedPacket { link, time_s, original_len, data } = packet;
    let ends = stations_of(link, data).ok_or(CaptureError::LinkType(link.0))?;
    tally.add(time_s, original_len.max(data.len() as u32), ends.0, ends.1);
    Ok(())
}

pub(super) fn damage(tally: &Tally, why: impl Into<String>) -> CaptureError {
    CaptureError::Damaged { packets: tally.packets(), why: why.into() }
}

/// Offset of the protocol and length of Linux's cooked headers, versions 1 and 2.
const SLL: Cooked = Cooked { protocol_at: 14, header_len: 16 };
const SLL2: Cooked = Cooked { protocol_at: 0, header_len: 20 };
/// Link types that some BSD systems use for raw IP.
const BSD_RAW: [Linktype; 2] = [Linktype(12), Linktype(14)];
/// Length of the address family in front of each packet of a BSD loopback or tunnel interface.
const FAMILY_LEN: usize = 4;

/// Header of a capture on all Linux interfaces.
struct Cooked {
    protocol_at: usize,
    header_len: usize,
}

/// Sender and receiver of a frame; `None` for an unknown link type. Unreadable addresses are `unknown`.
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
    /// Uses IP addresses: the header has only the sender's link address.
    fn stations_of(&self, data: &[u8]) -> Option<(String, String)> {
        let protocol = data.get(self.protocol_at..)?.first_chunk().copied()?;
        let payload = data.get(self.header_len..)?;
        by_ip(&LaxSlicedPacket::from_ether_type(EtherType(u16::from_be_bytes(protocol)), payload))
    }
}

fn address(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

/// Bits of the header field that are the link type; the others describe frame check sequences.
const LINK_MASK: i32 = 0xffff;

pub(super) fn read_pcap(mut input: impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let mut bytes = Vec::new();
    if let Next::End(_) = read_record(&mut input, &mut bytes, tally, |b| missing(&parse_pcap_header(b)))? {
        return Ok(End::Cut);
    }
    let (_, header) = parse_pcap_header(&bytes).map_err(|_| damage(tally, "an unreadable header"))?;
    let parse = if header.is_modified_format() {
        parse_pcap_frame_modified
    } else if header.is_bigendian() {
        parse_pcap_frame_be
    } else {
        parse_pcap_frame
    };
    let link = Linktype(header.network.0 & LINK_MASK);
    loop {
        if let Next::End(end) = read_record(&mut input, &mut bytes, tally, |b| missing(&parse(b)))? {
            return Ok(end);
        }
        let (_, frame) = parse(&bytes).map_err(|_| damage(tally, "an unreadable record"))?;
        let time_s = time_s(&header, frame.ts_sec, frame.ts_usec).map_err(|why| damage(tally, why))?;
        add(tally, CapturedPacket { link, time_s, original_len: frame.origlen, data: frame.data })?;
    }
}

/// A record's time in seconds since 1970. An error says which field is out of range.
fn time_s(header: &PcapHeader, seconds: u32, fraction: u32) -> Result<f64, String> {
    let units = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
    if fraction >= units {
        return Err(format!("a time with {fraction} parts of {units} of a second"));
    }
    Ok(f64::from(seconds) + f64::from(fraction) / f64::from(units))
}

const INTERFACES_MAX: usize = 1000;
/// Block type of the obsolete packet block.
const PACKET_BLOCK: u32 = 2;
/// Offset at which a packet block differs from an enhanced one: interface (16 bits) and drop count (16 bits).
const INTERFACE_AT: usize = 8;

struct Interface {
    link: Linktype,
    /// Clock resolution in seconds (`if_tsresol`).
    unit_s: f64,
    /// Seconds to add to timestamps (`if_tsoffset`).
    offset_s: f64,
}

#[derive(Default)]
struct Section {
    is_big_endian: bool,
    interfaces: Vec<Interface>,
}

/// Counts the packets of a file. Packets without a time (simple packet blocks) are ignored.
pub(super) fn read_pcapng(mut input: impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let (mut bytes, mut section, mut untimed) = (Vec::new(), Section::default(), 0);
    let end = loop {
        if let Next::End(end) = read_record(&mut input, &mut bytes, tally, |b| section.missing(b))? {
            break end;
        }
        match section.block_type(&bytes) {
            SHB_MAGIC => section = Section::begin(&bytes).ok_or_else(|| unreadable(tally, "section header"))?,
            IDB_MAGIC => {
                let interface = section.interface(&bytes).ok_or_else(|| unreadable(tally, "interface description"))?;
                if section.interfaces.len() >= INTERFACES_MAX {
                    return Err(damage(tally, format!("more than {INTERFACES_MAX} interfaces")));
                }
                section.interfaces.push(interface);
            }
            EPB_MAGIC => section.count(&bytes, tally)?,
            PACKET_BLOCK => {
                section.make_enhanced(&mut bytes).ok_or_else(|| unreadable(tally, "packet"))?;
                section.count(&bytes, tally)?;
            }
            SPB_MAGIC => untimed += 1,
            _ if !section.is_block(&bytes) => return Err(unreadable(tally, "unknown")),
            _ => {}
        }
    };
    if tally.packets() == 0 && untimed > 0 {
        return Err(CaptureError::Untimed(untimed));
    }
    Ok(end)
}

fn unreadable(tally: &Tally, what: &str) -> CaptureError {
    damage(tally, format!("an unreadable block ({what})"))
}

impl Section {
    fn begin(bytes: &[u8]) -> Option<Section> {
        let (_, header) = parse_sectionheaderblock(bytes).ok()?;
        Some(Section { is_big_endian: header.bom != BOM_MAGIC, interfaces: Vec::new() })
    }

    /// Bytes missing from the block that begins with `bytes`.
    fn missing(&self, bytes: &[u8]) -> usize {
        match bytes.len() {
            len @ 0..4 => 4 - len,
            _ if self.block_type(bytes) == SHB_MAGIC => missing(&parse_sectionheaderblock(bytes)),
            _ if self.is_big_endian => missing(&parse_unknownblock_be(bytes)),
            _ => missing(&parse_unknownblock_le(bytes)),
        }
    }

    fn is_block(&self, bytes: &[u8]) -> bool {
        if self.is_big_endian { parse_unknownblock_be(bytes).is_ok() } else { parse_unknownblock_le(bytes).is_ok() }
    }

    /// A block's type. That of a section header is the same in either byte order.
    fn block_type(&self, bytes: &[u8]) -> u32 {
        self.word(bytes.first_chunk().copied().unwrap_or_default())
    }

    fn word(&self, bytes: [u8; 4]) -> u32 {
        if self.is_big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn interface(&self, bytes: &[u8]) -> Option<Interface> {
        let parse =
            if self.is_big_endian { parse_interfacedescriptionblock_be } else { parse_interfacedescriptionblock_le };
        let (_, block) = parse(bytes).ok()?;
        let offset_s = self.offset_s(&block);
        Some(Interface { link: block.linktype, unit_s: unit_s(block.if_tsresol), offset_s })
    }

    /// Decodes the option itself: the parser assumes little-endian.
    fn offset_s(&self, block: &InterfaceDescriptionBlock<'_>) -> f64 {
        let option = block.options.iter().find(|o| o.code == OptionCode::IfTsoffset);
        let bytes = option.and_then(|o| o.as_bytes().ok()?.try_into().ok()).unwrap_or_default();
        (if self.is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) }) as f64
    }

    /// Converts an obsolete packet block to an enhanced one.
    fn make_enhanced(&self, bytes: &mut [u8]) -> Option<()> {
        let interface = bytes.get(INTERFACE_AT..)?.first_chunk::<2>().copied()?;
        let to_bytes = if self.is_big_endian { u32::to_be_bytes } else { u32::to_le_bytes };
        let number = if self.is_big_endian { u16::from_be_bytes(interface) } else { u16::from_le_bytes(interface) };
        *bytes.first_chunk_mut()? = to_bytes(EPB_MAGIC);
        *bytes.get_mut(INTERFACE_AT..)?.first_chunk_mut()? = to_bytes(number.into());
        Some(())
    }

    /// Counts the packet of an enhanced packet block.
    fn count(&self, bytes: &[u8], tally: &mut Tally) -> Result<(), CaptureError> {
        let parse = if self.is_big_endian { parse_enhancedpacketblock_be } else { parse_enhancedpacketblock_le };
        let (_, block): (_, EnhancedPacketBlock<'_>) = parse(bytes).map_err(|_| unreadable(tally, "packet"))?;
        let interface = usize::try_from(block.if_id).ok().and_then(|i| self.interfaces.get(i));
        let Some(interface) = interface else {
            return Err(damage(tally, format!("no interface {}", block.if_id)));
        };
        let units = u64::from(block.ts_high) << 32 | u64::from(block.ts_low);
        let time_s = units as f64 * interface.unit_s + interface.offset_s;
        let data = block.data.get(..block.caplen as usize).unwrap_or(block.data);
        add(tally, CapturedPacket { link: interface.link, time_s, original_len: block.origlen, data })
    }
}

/// Clock resolution in seconds (`if_tsresol`): a negative power of two or of ten.
fn unit_s(resolution: u8) -> f64 {
    let exponent = -i32::from(resolution & 0x7f);
    if resolution & 0x80 != 0 { 2f64.powi(exponent) } else { 10f64.powi(exponent) }
}

const RECORD_MAX_BYTES: usize = 16 << 20;

pub(super) enum Next {
    Record,
    End(End),
}

/// Bytes that a parser still needs; 0 if it has a result or fails.
pub(super) fn missing<I, O, E>(parsed: &IResult<I, O, E>) -> usize {
    match parsed {
        Err(Err::Incomplete(Needed::Size(n))) => n.get(),
        Err(Err::Incomplete(Needed::Unknown)) => 1,
        _ => 0,
    }
}

/// Reads the next record into `bytes` until `missing` returns 0. Memory grows with the bytes received.
pub(super) fn read_record(
    input: &mut impl Read,
    bytes: &mut Vec<u8>,
    tally: &Tally,
    missing: impl Fn(&[u8]) -> usize,
) -> Result<Next, CaptureError> {
    bytes.clear();
    loop {
        let more = missing(bytes);
        if more == 0 {
            return Ok(Next::Record);
        }
        let whole = bytes.len().saturating_add(more);
        if whole > RECORD_MAX_BYTES {
            return Err(damage(tally, format!("a record of {whole} bytes, at most {RECORD_MAX_BYTES} are read")));
        }
        let read = input.take(more as u64).read_to_end(bytes)?;
        if read < more {
            return Ok(Next::End(if bytes.is_empty() { End::Whole } else { End::Cut }));
        }
    }
}
