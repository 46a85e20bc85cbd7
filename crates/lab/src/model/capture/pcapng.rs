//! The blocks of a pcapng file (draft-ietf-opsawg-pcapng, section 3). Where each ends is found
//! here, so that a file that ends in the middle is told from a damaged one; what is in it, by `pcap_file`.

use std::io::Read;

use pcap_file::Endianness;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgParser};

use super::stations::Tally;
use super::{CaptureError, End, PCAPNG, add, damaged, more, take};

/// Interfaces of a file at most.
const INTERFACES_MAX: usize = 1000;
/// A block's bytes at most, as in Wireshark.
const BLOCK_MAX: usize = 16 << 20;
/// Type, length, and what tells a section's order of bytes; no block is shorter.
const HEAD: usize = 12;
/// A section's byte-order magic where the highest byte comes first.
const BIG_ENDIAN: [u8; 4] = [0x1a, 0x2b, 0x3c, 0x4d];

/// Counts all packets of `input`.
pub(super) fn read(input: &mut impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let mut bytes = Vec::new();
    // The first block tells the order of its bytes itself.
    if let Some(end) = block(input, Endianness::Little, &mut bytes, tally)? {
        return Ok(end);
    }
    let (_, mut parser) = PcapNgParser::new(&bytes).map_err(|e| damaged(tally, e.to_string()))?;
    loop {
        if let Some(end) = block(input, parser.section().endianness, &mut bytes, tally)? {
            return Ok(end);
        }
        let (_, block) = parser.next_block(&bytes).map_err(|e| damaged(tally, e.to_string()))?;
        match block {
            Block::EnhancedPacket(packet) => count(&packet, parser.interfaces(), tally)?,
            // Packets without a time, and all that is no packet.
            _ if parser.interfaces().len() > INTERFACES_MAX => {
                return Err(damaged(tally, format!("more than {INTERFACES_MAX} interfaces")));
            }
            _ => {}
        }
    }
}

/// Reads the next block to `bytes`; if there is none, how the file ends.
fn block(
    input: &mut impl Read,
    order: Endianness,
    bytes: &mut Vec<u8>,
    tally: &Tally,
) -> Result<Option<End>, CaptureError> {
    if !take(input, HEAD, bytes)? {
        return Ok(Some(if bytes.is_empty() { End::Whole } else { End::Cut }));
    }
    let length = length(bytes, order) as usize;
    if !(HEAD..=BLOCK_MAX).contains(&length) {
        return Err(damaged(tally, format!("a block of {length} bytes")));
    }
    let whole = more(input, length - HEAD, bytes)?;
    Ok(if whole { None } else { Some(End::Cut) })
}

/// A block's length in bytes, of its head.
fn length(head: &[u8], order: Endianness) -> u32 {
    let word = |at: usize| head.get(at..at + 4).and_then(|w| w.try_into().ok()).unwrap_or([0; 4]);
    let big = if word(0) == PCAPNG { word(8) == BIG_ENDIAN } else { order == Endianness::Big };
    if big { u32::from_be_bytes(word(4)) } else { u32::from_le_bytes(word(4)) }
}

fn count(
    packet: &EnhancedPacketBlock<'_>,
    interfaces: &[InterfaceDescriptionBlock<'_>],
    tally: &mut Tally,
) -> Result<(), CaptureError> {
    let interface = usize::try_from(packet.interface_id).ok().and_then(|i| interfaces.get(i));
    let interface = interface.ok_or_else(|| damaged(tally, format!("no interface {}", packet.interface_id)))?;
    // The library hands over units of the interface's clock as nanoseconds.
    let time_s = packet.timestamp.as_nanos() as f64 * resolution(interface);
    add(tally, interface.linktype, time_s, packet.original_len, &packet.data)
}

/// Seconds of a unit of an interface's clock (`if_tsresol`): microseconds unless it says otherwise.
fn resolution(interface: &InterfaceDescriptionBlock<'_>) -> f64 {
    let given = interface.options.iter().find_map(|option| match option {
        InterfaceDescriptionOption::IfTsResol(r) => Some(*r),
        _ => None,
    });
    match given {
        None => 1e-6,
        Some(r) if r & 0x80 != 0 => 2f64.powi(-i32::from(r & 0x7f)),
        Some(r) => 10f64.powi(-i32::from(r)),
    }
}
