//! What a capture (pcap or pcapng) says about the stations in it: packet rates, sizes with their
//! second moment, burstiness, and who sends to whom. The file is read once, packet by packet;
//! memory is bounded whatever is in it.
//!
//! Stations are told apart by IP address, or by link address where there is no IP. Sizes are those
//! on the wire, link header included as far as the capture has it, frame check sequence not.

mod frame;
mod stations;
mod topology;

use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError};

pub use stations::{Calibration, Pair, STATIONS_MAX, Station};
pub use topology::skeleton;

use frame::stations_of;
use stations::Tally;

/// Interfaces of a pcapng file at most.
const INTERFACES_MAX: usize = 1000;
/// What a pcapng file begins with: a section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// What pcap files begin with, in either order of bytes: microseconds, nanoseconds.
const PCAP: [[u8; 4]; 4] =
    [[0xa1, 0xb2, 0xc3, 0xd4], [0xd4, 0xc3, 0xb2, 0xa1], [0xa1, 0xb2, 0x3c, 0x4d], [0x4d, 0x3c, 0xb2, 0xa1]];

/// Why a capture cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The system said no.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It begins with something else.
    #[error("is neither pcap nor pcapng")]
    Foreign,
    /// It is damaged.
    #[error("is damaged after packet {packets}: {why}")]
    Damaged {
        /// Packets read until then.
        packets: u64,
        /// What is wrong.
        why: String,
    },
    /// Its packets begin with something that is not understood.
    #[error("has packets of link type {0}, expected Ethernet, Linux cooked, or raw IP")]
    LinkType(u32),
    /// There is nothing to compute a rate from.
    #[error("has {0} packets at one moment: rates need two moments")]
    Short(u64),
}

/// Reads the capture at `path`; burstiness is that of counts in bins of this length (1 us or more).
pub fn calibrate(path: &Path, bin: Duration) -> Result<Calibration, CaptureError> {
    calibrate_from(std::fs::File::open(path)?, bin)
}

/// As [`calibrate`], of what `input` gives.
pub fn calibrate_from(mut input: impl Read, bin: Duration) -> Result<Calibration, CaptureError> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => CaptureError::Foreign,
        _ => CaptureError::Io(e),
    })?;
    let whole = magic.chain(input);
    let mut tally = Tally::new(bin);
    if magic == PCAPNG {
        pcapng(whole, &mut tally)?;
    } else if PCAP.contains(&magic) {
        pcap(whole, &mut tally)?;
    } else {
        return Err(CaptureError::Foreign);
    }
    tally.finish()
}

fn pcap(input: impl Read, tally: &mut Tally) -> Result<(), CaptureError> {
    let mut reader = PcapReader::new(input).map_err(|e| damaged(tally, e))?;
    let link = reader.header().datalink;
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(|e| damaged(tally, e))?;
        add(tally, link, packet.timestamp.as_secs_f64(), packet.orig_len, &packet.data)?;
    }
    Ok(())
}

fn pcapng(input: impl Read, tally: &mut Tally) -> Result<(), CaptureError> {
    let mut reader = PcapNgReader::new(input).map_err(|e| damaged(tally, e))?;
    while let Some(block) = reader.next_block() {
        let packet = match block.map_err(|e| damaged(tally, e))? {
            Block::EnhancedPacket(packet) => packet.into_owned(),
            // Packets without a time, and all that is no packet.
            _ => {
                if reader.interfaces().len() > INTERFACES_MAX {
                    let why = format!("more than {INTERFACES_MAX} interfaces");
                    return Err(CaptureError::Damaged { packets: tally.packets(), why });
                }
                continue;
            }
        };
        let interface = usize::try_from(packet.interface_id).ok().and_then(|i| reader.interfaces().get(i));
        let Some(interface) = interface else {
            let why = format!("no interface {}", packet.interface_id);
            return Err(CaptureError::Damaged { packets: tally.packets(), why });
        };
        // The library hands over units of the interface's clock as nanoseconds.
        let time = packet.timestamp.as_nanos() as f64 * resolution(interface);
        add(tally, interface.linktype, time, packet.original_len, &packet.data)?;
    }
    Ok(())
}

/// Seconds of a unit of an interface's clock (pcapng, `if_tsresol`): microseconds unless it says
/// otherwise.
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

fn add(tally: &mut Tally, link: DataLink, time_s: f64, size: u32, data: &[u8]) -> Result<(), CaptureError> {
    let ends = stations_of(link, data).ok_or(CaptureError::LinkType(link.into()))?;
    tally.add(time_s, size, ends);
    Ok(())
}

fn damaged(tally: &Tally, e: PcapError) -> CaptureError {
    let why = match e {
        PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof => "it ends in the middle".to_owned(),
        PcapError::IoError(e) => return CaptureError::Io(e),
        PcapError::IncompleteBuffer => "it ends in the middle".to_owned(),
        other => other.to_string(),
    };
    CaptureError::Damaged { packets: tally.packets(), why }
}

#[cfg(test)]
mod tests;
