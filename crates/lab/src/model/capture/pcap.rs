//! pcap files: microseconds or nanoseconds, either byte order, and the modified format of old Linux distributions.

use std::io::Read;

use pcap_parser::{
    Linktype, PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_frame_modified, parse_pcap_header,
};

use super::record::{self, Next, missing};
use super::stations::Tally;
use super::{CaptureError, End, Packet, add, damage};

/// The part of a header's link type field that is the link type; the rest describes frame check sequences.
const LINK_MASK: i32 = 0xffff;

/// Counts the packets of a file.
pub(super) fn read(mut input: impl Read, tally: &mut Tally) -> Result<End, CaptureError> {
    let mut bytes = Vec::new();
    if let Next::End(_) = record::read(&mut input, &mut bytes, tally, |b| missing(&parse_pcap_header(b)))? {
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
        if let Next::End(end) = record::read(&mut input, &mut bytes, tally, |b| missing(&parse(b)))? {
            return Ok(end);
        }
        let (_, frame) = parse(&bytes).map_err(|_| damage(tally, "an unreadable record"))?;
        let time_s = time_s(&header, frame.ts_sec, frame.ts_usec).map_err(|why| damage(tally, why))?;
        add(tally, Packet { link, time_s, original_len: frame.origlen, data: frame.data })?;
    }
}

/// A record's time in seconds since 1970; the error says which part is out of range.
fn time_s(header: &PcapHeader, seconds: u32, fraction: u32) -> Result<f64, String> {
    let units = if header.is_nanosecond_precision() { 1_000_000_000 } else { 1_000_000 };
    if fraction >= units {
        return Err(format!("a time with {fraction} parts of {units} of a second"));
    }
    Ok(f64::from(seconds) + f64::from(fraction) / f64::from(units))
}
