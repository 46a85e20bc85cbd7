//! What a capture (pcap or pcapng) says about the stations in it: packet rates, sizes with their
//! second moment, burstiness, and who sends to whom. The file is read once, packet by packet;
//! memory is bounded whatever is in it.
//!
//! Stations are told apart by IP address, or by link address where there is no IP. Sizes are those
//! on the wire, link header included as far as the capture has it, frame check sequence not.

mod frame;
mod pcap;
mod pcapng;
mod record;
mod stations;
mod topology;

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use pcap_parser::Linktype;

pub use stations::{Calibration, Pair, STATIONS_MAX, Station};
pub use topology::skeleton;

use frame::stations_of;
use stations::Tally;

/// What a pcapng file begins with: a section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// What pcap files begin with: microseconds and nanoseconds in either byte order, and the modified format.
const PCAP: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x34, 0xcd, 0xb2, 0xa1],
];

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
    #[error("has packets of link type {0}, expected Ethernet, Linux cooked, BSD loopback, or raw IP")]
    LinkType(i32),
    /// Its packets have no times.
    #[error("has {0} packets, all without a time (simple packet blocks): rates need times")]
    Untimed(u64),
    /// There is nothing to compute a rate from.
    #[error("has {0} packets at one moment: rates need two moments")]
    Short(u64),
}

/// Reads the capture at `path`; burstiness is that of counts in bins of this length (1 us or more).
pub fn calibrate(path: &Path, bin: Duration) -> Result<Calibration, CaptureError> {
    calibrate_from(BufReader::new(std::fs::File::open(path)?), bin)
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
        pcapng::read(whole, &mut tally)?
    } else if PCAP.contains(&magic) {
        pcap::read(whole, &mut tally)?
    } else {
        return Err(CaptureError::Foreign);
    };
    if end == End::Cut && tally.packets() == 0 {
        return Err(damage(&tally, "it ends in the middle"));
    }
    tally.finish(end == End::Cut)
}

/// A packet as it was captured.
struct Packet<'a> {
    link: Linktype,
    /// Since 1970.
    time_s: f64,
    /// The length that the capture gives it on the wire.
    original_len: u32,
    /// What was captured of it.
    data: &'a [u8],
}

/// Counts a packet. On the wire it was at least as long as what was captured of it, whatever the capture says.
fn add(tally: &mut Tally, packet: Packet<'_>) -> Result<(), CaptureError> {
    let Packet { link, time_s, original_len, data } = packet;
    let ends = stations_of(link, data).ok_or(CaptureError::LinkType(link.0))?;
    tally.add(time_s, original_len.max(data.len() as u32), ends);
    Ok(())
}

fn damage(tally: &Tally, why: impl Into<String>) -> CaptureError {
    CaptureError::Damaged { packets: tally.packets(), why: why.into() }
}

#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod tests;
