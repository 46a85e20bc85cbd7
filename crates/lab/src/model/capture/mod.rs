//! What a capture (pcap or pcapng) says about the stations in it: packet rates, sizes with their
//! second moment, burstiness, and who sends to whom. The file is read once, packet by packet;
//! memory is bounded whatever is in it.
//!
//! Stations are told apart by IP address, or by link address where there is no IP. Sizes are those
//! on the wire, link header included as far as the capture has it, frame check sequence not.

mod frame;
mod pcap;
mod pcapng;
mod stations;
mod topology;

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use pcap_file::DataLink;

pub use stations::{Calibration, Pair, STATIONS_MAX, Station};
pub use topology::skeleton;

use frame::stations_of;
use stations::Tally;

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
    /// In the middle of one, as where the capturing program was killed: what comes before stands.
    Cut,
}

/// As [`calibrate`], of what `input` gives.
pub fn calibrate_from(mut input: impl Read, bin: Duration) -> Result<Calibration, CaptureError> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => CaptureError::Foreign,
        _ => CaptureError::Io(e),
    })?;
    let mut whole = BufReader::new(magic.chain(input));
    let mut tally = Tally::new(bin);
    let end = if magic == PCAPNG {
        pcapng::read(&mut whole, &mut tally)?
    } else if PCAP.contains(&magic) {
        pcap::read(&mut whole, &mut tally)?
    } else {
        return Err(CaptureError::Foreign);
    };
    if end == End::Cut && tally.packets() == 0 {
        return Err(damaged(&tally, "it ends in the middle"));
    }
    tally.finish(end == End::Cut)
}

fn add(tally: &mut Tally, link: DataLink, time_s: f64, size: u32, data: &[u8]) -> Result<(), CaptureError> {
    let ends = stations_of(link, data).ok_or(CaptureError::LinkType(link.into()))?;
    tally.add(time_s, size, ends);
    Ok(())
}

/// The next `len` bytes of `input`, or as many as there are, in place of what is in `bytes`; whether
/// it has as many. Memory is taken as they come, whatever `len` is.
fn take(input: &mut impl Read, len: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
    bytes.clear();
    more(input, len, bytes)
}

/// As [`take`], behind what is in `bytes`.
fn more(input: &mut impl Read, len: usize, bytes: &mut Vec<u8>) -> io::Result<bool> {
    Ok(input.take(len as u64).read_to_end(bytes)? == len)
}

fn damaged(tally: &Tally, why: impl Into<String>) -> CaptureError {
    CaptureError::Damaged { packets: tally.packets(), why: why.into() }
}

#[cfg(test)]
mod tests;
