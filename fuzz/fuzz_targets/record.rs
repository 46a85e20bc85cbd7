//! A stream of records, arriving in pieces: however it is cut, the same records come out, and
//! the same error ends it.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use remora_wire::record::{RecordError, RecordReader};

const RECORD_MAX: usize = 256;

/// The records of `stream`, pushed in pieces of these sizes in turn, and how it ends.
fn read(stream: &[u8], pieces: &[u8]) -> (Vec<Bytes>, Option<RecordError>) {
    let mut reader = RecordReader::new(RECORD_MAX);
    let (mut records, mut rest, mut sizes) = (Vec::new(), stream, pieces.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(stream.len(), |s| usize::from(*s) + 1);
        let (now, later) = rest.split_at(size.min(rest.len()));
        rest = later;
        reader.push(now);
        loop {
            match reader.next_record() {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                Err(e) => return (records, Some(e)),
            }
        }
        assert!(reader.held() <= stream.len());
    }
    assert!(records.iter().all(|r| r.len() <= RECORD_MAX));
    (records, None)
}

fuzz_target!(|data: &[u8]| {
    let (pieces, stream) = data.split_at(data.len().min(4));
    assert_eq!(read(stream, pieces), read(stream, &[]));
});
