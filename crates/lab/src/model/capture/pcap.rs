//! The records of a pcap file (draft-ietf-opsawg-pcap, section 5). They are read here and not by
//! `pcap_file`'s reader, which refuses packets that were longer than the snap length.

use std::io::Read;

use pcap_file::pcap::PcapHeader;
use pcap_file::{Endianness, TsResolution};

use super::stations::Tally;
use super::{CaptureError, End, add, damaged, take};

/// The file's header, and a record's, in bytes.
const FILE_HEADER: usize = 24;
const RECORD_HEADER: usize = 16;
/// Bytes kept of a packet at most: libpcap's MAXIMUM_SNAPLEN. The header's own snap length is no
/// bound: some programs write 0.
const KEPT_MAX: u32 = 256 << 10;

/// Counts all packets of `input`.
pub(super) fn read(input: &mut impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let mut bytes = Vec::new();
    if !take(input, FILE_HEADER, &mut bytes)? {
        return Ok(End::Cut);
    }
    let (_, header) = PcapHeader::from_slice(&bytes).map_err(|e| damaged(tally, e.to_string()))?;
    loop {
        if !take(input, RECORD_HEADER, &mut bytes)? {
            return Ok(if bytes.is_empty() { End::Whole } else { End::Cut });
        }
        let record = Record::of(&header, &bytes);
        let time_s = record.time_s(&header).map_err(|why| damaged(tally, why))?;
        if !take(input, record.kept as usize, &mut bytes)? {
            return Ok(End::Cut);
        }
        add(tally, header.datalink, time_s, record.sent, &bytes)?;
    }
}

/// What stands before a packet.
struct Record {
    seconds: u32,
    fraction: u32,
    /// Bytes of it that follow.
    kept: u32,
    /// Bytes that it had.
    sent: u32,
}

impl Record {
    fn of(header: &PcapHeader, bytes: &[u8]) -> Record {
        let number = |word: [u8; 4]| match header.endianness {
            Endianness::Big => u32::from_be_bytes(word),
            Endianness::Little => u32::from_le_bytes(word),
        };
        let mut words = bytes.chunks_exact(4).map_while(|w| Some(number(w.try_into().ok()?)));
        let mut next = || words.next().unwrap_or_default();
        Record { seconds: next(), fraction: next(), kept: next(), sent: next() }
    }

    /// When it was, in seconds; an error says what cannot be.
    fn time_s(&self, header: &PcapHeader) -> Result<f64, String> {
        let units = match header.ts_resolution {
            TsResolution::MicroSecond => 1_000_000,
            TsResolution::NanoSecond => 1_000_000_000,
        };
        if self.fraction >= units {
            return Err(format!("a time with {} parts of {units} of a second", self.fraction));
        }
        if self.kept > KEPT_MAX || self.kept > self.sent {
            return Err(format!("{} bytes of a packet of {}", self.kept, self.sent));
        }
        Ok(f64::from(self.seconds) + f64::from(self.fraction) / f64::from(units))
    }
}
