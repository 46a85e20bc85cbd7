//! Any message round-trips to the last byte (RFC 4506, 5531, 1813), as do records under any
//! fragmentation (RFC 5531, section 11).

mod common;

use bytes::Bytes;
use common::{Message, any_of, nfs3_call, nfs3_reply};
use proptest::prelude::*;
use remora_wire::nfs3::{Failed, Proc, Reply, Status, Wcc};
use remora_wire::record::RecordReader;
use remora_wire::{Error, Reader, Xdr, mount};

fn assert_roundtrip(message: &Message) {
    let bytes = message.to_bytes();
    assert_eq!(bytes.len() % 4, 0, "XDR comes in units of four bytes");
    assert_eq!(message.decode_alike(bytes), Some((message.clone(), 0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_message_round_trips(message in any_of::<Message>()) {
        assert_roundtrip(&message);
    }

    #[test]
    fn decoder_stops_at_the_end_of_its_message(message in any_of::<Message>(), more in any::<[u8; 5]>()) {
        let mut bytes = message.to_bytes().to_vec();
        bytes.extend_from_slice(&more);
        prop_assert_eq!(message.decode_alike(bytes.into()), Some((message, more.len())));
    }
}

#[test]
fn every_nfs3_procedure_round_trips() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for proc in Proc::ALL {
        let drawn = proptest::collection::vec(any::<u8>(), 0..600);
        let survive = |bytes: Vec<u8>| {
            assert_roundtrip(&Message::Nfs3Call(nfs3_call(proc, &mut common::Draw::new(&bytes))));
            assert_roundtrip(&Message::Nfs3Reply(nfs3_reply(proc, &mut common::Draw::new(&bytes))));
            Ok(())
        };
        runner.run(&drawn, survive).unwrap_or_else(|e| panic!("{proc:?}: {e}"));
    }
}

#[test]
fn every_nfs2_procedure_round_trips() {
    use remora_wire::nfs2;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for proc in nfs2::Proc::ALL {
        let drawn = proptest::collection::vec(any::<u8>(), 0..600);
        let survive = |bytes: Vec<u8>| {
            assert_roundtrip(&Message::Nfs2Call(common::nfs2::call(proc, &mut common::Draw::new(&bytes))));
            assert_roundtrip(&Message::Nfs2Reply(common::nfs2::reply(proc, &mut common::Draw::new(&bytes))));
            Ok(())
        };
        runner.run(&drawn, survive).unwrap_or_else(|e| panic!("{proc:?}: {e}"));
    }
}

#[test]
fn unknown_error_code_is_server_fault() {
    // RFC 1813 lacks error 85; the rest is that of any failed SETATTR.
    let unknown = [&85u32.to_bytes()[..], &Wcc::NONE.to_bytes()].concat();
    let r = &mut Reader::new(unknown.into());
    let failed = Failed { status: Status::ServerFault, info: Wcc::NONE };
    assert_eq!(Reply::decode(Proc::SetAttr, r), Ok(Reply::SetAttr(Err(failed))));
    assert_eq!(r.remaining(), 0);
    // A truncated reply is refused, whatever its number.
    assert_eq!(Reply::decode(Proc::SetAttr, &mut Reader::new(85u32.to_bytes())), Err(Error::Truncated));

    let refused = mount::Reply::decode(1, &mut Reader::new(85u32.to_bytes()));
    assert_eq!(refused, Ok(mount::Reply::Mnt(Err(mount::MountError::ServerFault))));
}

/// `record` on a stream, in fragments of these lengths and a last one with the rest.
fn fragmented(record: &[u8], lengths: &[usize]) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), record);
    for &len in lengths {
        if len == 0 || len > rest.len() {
            continue;
        }
        out.extend_from_slice(&(len as u32).to_be_bytes());
        out.extend_from_slice(&rest[..len]);
        rest = &rest[len..];
    }
    out.extend_from_slice(&remora_wire::record::mark(rest.len()));
    out.extend_from_slice(rest);
    out
}

proptest! {
    #[test]
    fn records_round_trip_under_any_fragmentation(
        records in proptest::collection::vec(
            (proptest::collection::vec(any::<u8>(), 0..300), proptest::collection::vec(0..100usize, 0..6)), 0..8),
        arrivals in proptest::collection::vec(1..50usize, 1..20),
    ) {
        let stream: Vec<u8> = records.iter().flat_map(|(record, lengths)| fragmented(record, lengths)).collect();
        let mut reader = RecordReader::new(300);
        let (mut seen, mut rest, mut arrivals) = (Vec::<Bytes>::new(), &stream[..], arrivals.iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(*arrivals.next().unwrap_or(&1)));
            rest = later;
            reader.push(now);
            while let Some(record) = reader.next_record().unwrap() {
                seen.push(record);
            }
        }
        prop_assert_eq!(seen, records.into_iter().map(|(record, _)| Bytes::from(record)).collect::<Vec<_>>());
        prop_assert_eq!(reader.held(), 0);
    }
}

#[test]
fn record_is_received_in_one_piece_after_its_mark() {
    let mut reader = RecordReader::new(1 << 20);
    let room = |reader: &mut RecordReader| {
        let buffer = reader.roomy_buffer(1000);
        buffer.capacity() - buffer.len()
    };
    assert!(room(&mut reader) >= 1000);
    reader.push(&remora_wire::record::mark(100_000));
    assert!(room(&mut reader) >= 100_000);
    reader.push(&[0; 100_000]);
    assert_eq!(reader.next_record().unwrap().unwrap().len(), 100_000);
    reader.push(&remora_wire::record::mark(1 << 30));
    assert!(room(&mut reader) < 4 << 20, "no more than a record may have");
}
