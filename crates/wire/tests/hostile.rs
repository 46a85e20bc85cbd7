//! Decoding any input ends in a message or an error, and its memory is bounded by the bytes
//! received.
#![expect(unsafe_code, reason = "a global allocator that counts is unsafe to write")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use bytes::Bytes;
use common::{Message, any_of};
use proptest::prelude::*;
use remora_wire::record::{RecordError, RecordReader};

/// Bytes allocated per byte of a message: the memory of a directory entry with 32 bytes on the
/// wire, times three for a list that doubles as it grows.
const ALLOCATED_PER_BYTE: usize = 32;
/// Bytes allocated for any message: the first slots of a list.
const ALLOCATED_ANYWAY: usize = 2048;

/// The system's allocator with a counter for each thread.
struct Counting;

thread_local! {
    static ALLOCATED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed to the system's allocator unchanged; the counter neither allocates
// nor has a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATED.set(ALLOCATED.get() + layout.size());
        // SAFETY: the caller fulfils the contract of System.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Decodes `bytes` as a message like `kind`, and checks the memory used.
fn decode(kind: &Message, bytes: Bytes) -> Option<(Message, usize)> {
    let (len, before) = (bytes.len(), ALLOCATED.get());
    let decoded = kind.decode_alike(bytes);
    let took = ALLOCATED.get() - before;
    assert!(took <= ALLOCATED_PER_BYTE * len + ALLOCATED_ANYWAY, "{took} bytes allocated for a message of {len}");
    decoded
}

/// A mutation: an offset (modulo the length), and the word to write there.
fn mutation() -> impl Strategy<Value = (usize, [u8; 4])> {
    let word = prop_oneof![any::<[u8; 4]>(), (0..70u32).prop_map(u32::to_be_bytes), Just([0xff; 4]), Just([0x7f; 4])];
    (any::<usize>(), word)
}

fn mutate(bytes: &mut [u8], at: usize, word: [u8; 4]) {
    // Lengths and discriminants are words, so a mutation replaces a word.
    let words = bytes.len() / 4;
    if let Some(place) = bytes.chunks_exact_mut(4).nth(at % words.max(1)) {
        place.copy_from_slice(&word);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn truncated_message_is_refused(message in any_of::<Message>()) {
        let whole = message.to_bytes();
        for len in 0..whole.len() {
            prop_assert_eq!(decode(&message, whole.slice(..len)), None, "cut to {} bytes of {}", len, whole.len());
        }
    }

    #[test]
    fn mutated_message_is_refused_or_round_trips(
        message in any_of::<Message>(),
        mutations in proptest::collection::vec(mutation(), 1..5),
    ) {
        let mut bytes = message.to_bytes().to_vec();
        mutations.iter().for_each(|(at, word)| mutate(&mut bytes, *at, *word));
        if let Some((other, _)) = decode(&message, bytes.into()) {
            prop_assert_eq!(decode(&other, other.to_bytes()), Some((other, 0)));
        }
    }

    #[test]
    fn random_bytes_are_refused_or_decoded(
        kind in any_of::<Message>(),
        noise in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..400),
    ) {
        decode(&kind, noise.into());
    }

    #[test]
    fn record_reader_buffers_no_more_than_its_limit(
        stream in proptest::collection::vec(prop_oneof![Just(0u8), Just(0x80), any::<u8>()], 0..400),
    ) {
        let mut reader = RecordReader::new(64);
        let before = ALLOCATED.get();
        for (i, byte) in stream.iter().enumerate() {
            reader.push(&[*byte]);
            match reader.next_record() {
                Ok(Some(record)) => prop_assert!(record.len() <= 64),
                Ok(None) => {}
                Err(_) => break,
            }
            prop_assert!(reader.held() <= i + 1);
        }
        let took = ALLOCATED.get() - before;
        prop_assert!(took <= ALLOCATED_PER_BYTE * stream.len() + ALLOCATED_ANYWAY, "{} bytes allocated", took);
    }
}

/// The longest list that fits: many small entries.
#[test]
fn page_of_small_entries_takes_bounded_memory() {
    use remora_wire::nfs3::{Entries, EntryPlus, ReadDirPlusOk, Reply};
    let entry = |cookie| EntryPlus { fileid: 1, name: Bytes::new(), cookie, attr: None, fh: None };
    let entries = Entries { list: (1..2000).map(entry).collect(), eof: true };
    let page = Message::Nfs3Reply(Reply::ReadDirPlus(Ok(ReadDirPlusOk { dir: None, verf: [0; 8], entries })));
    assert_eq!(decode(&page, page.to_bytes()), Some((page, 0)));
}

#[test]
fn false_record_length_is_refused_before_its_bytes() {
    let mark = |len: u32, last: bool| (len | if last { 0x8000_0000 } else { 0 }).to_be_bytes();
    let too_large = |len| Err(RecordError::TooLarge { len, max: 64 });
    type Outcome = Result<Option<Bytes>, RecordError>;
    let cases: &[(&[u8], Outcome)] = &[
        (&mark(65, true), too_large(65)),
        (&mark(0x7fff_ffff, false), too_large(0x7fff_ffff)),
        (&[&mark(60, false)[..], &[7; 60], &mark(5, true)].concat(), too_large(65)),
        (&mark(0, false), Err(RecordError::EmptyFragment)),
        (&[&mark(1, false)[..], &[7], &mark(0, false)].concat(), Err(RecordError::EmptyFragment)),
        (&mark(0, true), Ok(Some(Bytes::new()))),
        (&mark(64, true), Ok(None)),
        (&mark(64, true)[..3], Ok(None)),
    ];
    for (i, (stream, expected)) in cases.iter().enumerate() {
        let mut reader = RecordReader::new(64);
        reader.push(stream);
        assert_eq!(reader.next_record(), *expected, "case {i}");
    }
}
