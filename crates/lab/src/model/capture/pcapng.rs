//! pcapng files: sections of either byte order, interfaces with their link types and clocks, packets. Blocks that hold
//! neither are skipped unread, and so are all options but those of an interface's clock: other text in a capture,
//! whatever its encoding, changes no figure.

use std::io::Read;

use pcap_parser::{
    BOM_MAGIC, EPB_MAGIC, EnhancedPacketBlock, IDB_MAGIC, InterfaceDescriptionBlock, Linktype, OptionCode, SHB_MAGIC,
    SPB_MAGIC, parse_enhancedpacketblock_be, parse_enhancedpacketblock_le, parse_interfacedescriptionblock_be,
    parse_interfacedescriptionblock_le, parse_sectionheaderblock, parse_unknownblock_be, parse_unknownblock_le,
};

use super::record::{self, Next, missing};
use super::stations::Tally;
use super::{CaptureError, End, Packet, add, damage};

/// Interfaces of a section at most.
const INTERFACES_MAX: usize = 1000;
/// Block type of the packet block that the enhanced one replaced; old captures have it.
const PACKET_BLOCK: u32 = 2;
/// Where a packet block has what differs from an enhanced one: the number of the interface in 16 bits, then a count of
/// drops in 16 bits.
const INTERFACE_AT: usize = 8;

/// What an interface description block says.
struct Interface {
    link: Linktype,
    /// Seconds of a unit of its clock (`if_tsresol`).
    unit_s: f64,
    /// Seconds to add to its times (`if_tsoffset`).
    offset_s: f64,
}

/// The section being read.
#[derive(Default)]
struct Section {
    is_big_endian: bool,
    interfaces: Vec<Interface>,
}

/// Counts the packets of a file. Packets without a time (simple packet blocks) count for nothing, for rates need times.
pub(super) fn read(mut input: impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let (mut bytes, mut section, mut untimed) = (Vec::new(), Section::default(), 0);
    let end = loop {
        if let Next::End(end) = record::read(&mut input, &mut bytes, tally, |b| section.missing(b))? {
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
    /// The section that a section header block begins.
    fn begin(bytes: &[u8]) -> Option<Section> {
        let (_, header) = parse_sectionheaderblock(bytes).ok()?;
        Some(Section { is_big_endian: header.bom != BOM_MAGIC, interfaces: Vec::new() })
    }

    /// How many bytes are missing from the block that begins with these.
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

    /// The type of a block, which reads the same in either byte order for a section header.
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

    /// From the option's bytes, for the parser takes them as little-endian everywhere.
    fn offset_s(&self, block: &InterfaceDescriptionBlock<'_>) -> f64 {
        let option = block.options.iter().find(|o| o.code == OptionCode::IfTsoffset);
        let bytes = option.and_then(|o| o.as_bytes().ok()?.try_into().ok()).unwrap_or_default();
        (if self.is_big_endian { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) }) as f64
    }

    /// Turns a packet block into an enhanced one.
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
        add(tally, Packet { link: interface.link, time_s, original_len: block.origlen, data })
    }
}

/// Seconds of a unit of a clock (`if_tsresol`): a negative power of two, or of ten.
fn unit_s(resolution: u8) -> f64 {
    let exponent = -i32::from(resolution & 0x7f);
    if resolution & 0x80 != 0 { 2f64.powi(exponent) } else { 10f64.powi(exponent) }
}
