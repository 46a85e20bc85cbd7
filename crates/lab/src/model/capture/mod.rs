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

use pcap_file::pcap::{PcapReader, RawPcapPacket};
use pcap_file::pcapng::blocks::interface_description::{InterfaceDescriptionBlock, InterfaceDescriptionOption};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};

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

/// How a capture ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// After a packet.
    Whole,
    /// In the middle of one, as where the capturing program was killed: what comes before stands. A length
    /// that is damaged looks the same.
    Cut,
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
    let end = if magic == PCAPNG {
        pcapng(whole, &mut tally)?
    } else if PCAP.contains(&magic) {
        pcap(whole, &mut tally)?
    } else {
        return Err(CaptureError::Foreign);
    };
    if end == End::Cut && tally.packets() == 0 {
        return Err(damage(&tally, "it ends in the middle"));
    }
    tally.finish(end == End::Cut)
}

fn pcap(input: impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let mut reader = PcapReader::new(input).map_err(|e| damaged(tally, e))?;
    let header = reader.header();
    // Raw, for the library takes no packet that was longer than the snap length.
    while let Some(packet) = reader.next_raw_packet() {
        let packet = match packet {
            Err(e) if is_end(&e) => return Ok(End::Cut),
            packet => packet.map_err(|e| damaged(tally, e))?,
        };
        let time_s = time_s(&packet, header.ts_resolution).map_err(|why| damage(tally, why))?;
        add(tally, header.datalink, time_s, packet.orig_len, &packet.data)?;
    }
    Ok(End::Whole)
}

/// When a packet was, in seconds; an error says what cannot be.
fn time_s(packet: &RawPcapPacket<'_>, resolution: TsResolution) -> Result<f64, String> {
    let units = match resolution {
        TsResolution::MicroSecond => 1_000_000,
        TsResolution::NanoSecond => 1_000_000_000,
    };
    if packet.ts_frac >= units {
        return Err(format!("a time with {} parts of {units} of a second", packet.ts_frac));
    }
    if packet.incl_len > packet.orig_len {
        return Err(format!("{} bytes of a packet of {}", packet.incl_len, packet.orig_len));
    }
    Ok(f64::from(packet.ts_sec) + f64::from(packet.ts_frac) / f64::from(units))
}

fn pcapng(input: impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let mut reader = PcapNgReader::new(input).map_err(|e| damaged(tally, e))?;
    while let Some(block) = reader.next_block() {
        let block = match block {
            Err(e) if is_end(&e) => return Ok(End::Cut),
            block => block.map_err(|e| damaged(tally, e))?,
        };
        let packet = match block {
            Block::EnhancedPacket(packet) => packet.into_owned(),
            // Packets without a time, and all that is no packet.
            _ => {
                if reader.interfaces().len() > INTERFACES_MAX {
                    return Err(damage(tally, format!("more than {INTERFACES_MAX} interfaces")));
                }
                continue;
            }
        };
        let interface = usize::try_from(packet.interface_id).ok().and_then(|i| reader.interfaces().get(i));
        let Some(interface) = interface else {
            return Err(damage(tally, format!("no interface {}", packet.interface_id)));
        };
        // The library hands over units of the interface's clock as nanoseconds.
        let time = packet.timestamp.as_nanos() as f64 * resolution(interface);
        add(tally, interface.linktype, time, packet.original_len, &packet.data)?;
    }
    Ok(End::Whole)
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

/// Whether that is the end of the input.
fn is_end(e: &PcapError) -> bool {
    matches!(e, PcapError::IoError(e) if e.kind() == io::ErrorKind::UnexpectedEof)
}

fn damaged(tally: &Tally, e: PcapError) -> CaptureError {
    match e {
        e if is_end(&e) => damage(tally, "it ends in the middle"),
        PcapError::IoError(e) => CaptureError::Io(e),
        other => damage(tally, other.to_string()),
    }
}

fn damage(tally: &Tally, why: impl Into<String>) -> CaptureError {
    CaptureError::Damaged { packets: tally.packets(), why: why.into() }
}

#[cfg(test)]
mod tests;
