//! Statistics of the stations in a capture (pcap, pcapng): packet rates, sizes, burstiness, and pairs.
//!
//! Read `format` (records and frames), then `stations` (counts, and a network file made from them). The file is
//! read once; memory is bounded. Stations are IP addresses, or link addresses without IP. Sizes are those on the
//! wire with the captured link header, without the frame check sequence.

mod format;
#[cfg(test)]
mod format_tests;
mod stations;
#[cfg(test)]
mod tests;

use std::io::{self, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use format::{End, damage};
use stations::Tally;

pub use stations::{Calibration, CaptureError, Pair, STATIONS_MAX, Station, skeleton};

/// Magic number of pcapng: a section header block.
const PCAPNG: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
/// Magic numbers of pcap: microseconds and nanoseconds in either byte order, and the modified format.
const PCAP: [[u8; 4]; 5] = [
    [0xa1, 0xb2, 0xc3, 0xd4],
    [0xd4, 0xc3, 0xb2, 0xa1],
    [0xa1, 0xb2, 0x3c, 0x4d],
    [0x4d, 0x3c, 0xb2, 0xa1],
    [0x34, 0xcd, 0xb2, 0xa1],
];

/// Reads the capture at `path`. Burstiness is that of counts in bins of length `bin` (at least 1 us).
pub fn calibrate(path: &Path, bin: Duration) -> Result<Calibration, CaptureError> {
    calibrate_from(BufReader::new(std::fs::File::open(path)?), bin)
}

pub fn calibrate_from(mut input: impl Read, bin: Duration) -> Result<Calibration, CaptureError> {
    let mut magic = [0; 4];
    input.read_exact(&mut magic).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => CaptureError::Foreign,
        _ => CaptureError::Io(e),
    })?;
    let whole = magic.chain(input);
    let mut tally = Tally::new(bin);
    let end = if magic == PCAPNG {
        format::read_pcapng(whole, &mut tally)?
    } else if PCAP.contains(&magic) {
        format::read_pcap(whole, &mut tally)?
    } else {
        return Err(CaptureError::Foreign);
    };
    if end == End::Cut && tally.packets() == 0 {
        return Err(damage(&tally, "it ends in the middle"));
    }
    tally.finish(end == End::Cut)
}
