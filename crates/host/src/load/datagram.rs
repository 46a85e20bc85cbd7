//! Wire format of load datagrams, in network byte order. Each begins with [`MAGIC`], its kind and the run's id.
//! Data is padded to the run's size, a question to the length of its answer.

use std::time::Duration;

use super::tally::Carried;

/// Remora's load, version 1.
const MAGIC: [u8; 4] = *b"RML1";
const DATA: u8 = 0;
const END: u8 = 1;
const REPORT: u8 = 2;
/// Magic, kind, run.
const HEADER: usize = 4 + 4 + 8;
/// Minimum bytes of data: a number and a time.
pub(super) const DATA_MIN: usize = HEADER + 2 * 8;
/// Bytes of an answer, and therefore of a question.
pub(super) const REPORT_BYTES: usize = HEADER + 7 * 8;

/// A load datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Datagram {
    /// A packet of the load.
    Data {
        /// Its number, from 0.
        number: u64,
        /// Time of sending, since the start of the run.
        sent: Duration,
    },
    /// The run has ended; requests the receiver's counters.
    End {
        /// Number of packets sent.
        sent: u64,
    },
    /// The receiver's counters.
    Report(Carried),
}

/// Encodes a datagram of `run` into `buffer`; returns its length. Data fills the buffer, which has at least
/// [`DATA_MIN`] bytes.
pub(super) fn encode(run: u64, datagram: &Datagram, buffer: &mut [u8]) -> usize {
    let (kind, words, length) = match datagram {
        Datagram::Data { number, sent } => (DATA, [*number, nanos(*sent), 0, 0, 0, 0, 0], buffer.len()),
        Datagram::End { sent } => (END, [*sent, 0, 0, 0, 0, 0, 0], REPORT_BYTES),
        Datagram::Report(c) => {
            let words = [c.packets, c.bytes, c.lost, c.duplicates, c.reordered, nanos(c.jitter), nanos(c.span)];
            (REPORT, words, REPORT_BYTES)
        }
    };
    let head = MAGIC.into_iter().chain([kind, 0, 0, 0]).chain(run.to_be_bytes());
    let body = words.into_iter().flat_map(u64::to_be_bytes);
    buffer.iter_mut().zip(head.chain(body)).for_each(|(to, byte)| *to = byte);
    length.min(buffer.len())
}

/// Decodes a datagram and its run; `None` if it is not one.
pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Datagram)> {
    let (magic, rest) = bytes.split_first_chunk::<4>()?;
    let ([kind, 0, 0, 0], rest) = rest.split_first_chunk::<4>()? else { return None };
    if *magic != MAGIC {
        return None;
    }
    let mut words = rest.chunks_exact(8).map_while(|w| Some(u64::from_be_bytes(w.try_into().ok()?)));
    let mut next = || words.next();
    let run = next()?;
    let datagram = match *kind {
        DATA => Datagram::Data { number: next()?, sent: Duration::from_nanos(next()?) },
        END if bytes.len() >= REPORT_BYTES => Datagram::End { sent: next()? },
        REPORT => Datagram::Report(Carried {
            packets: next()?,
            bytes: next()?,
            lost: next()?,
            duplicates: next()?,
            reordered: next()?,
            jitter: Duration::from_nanos(next()?),
            span: Duration::from_nanos(next()?),
        }),
        _ => return None,
    };
    Some((run, datagram))
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn datagram_round_trips() {
        let carried = Carried {
            packets: 1,
            bytes: 2,
            lost: 3,
            duplicates: 4,
            reordered: 5,
            jitter: Duration::from_nanos(6),
            span: Duration::from_nanos(7),
        };
        let data = Datagram::Data { number: 9, sent: Duration::from_millis(3) };
        for (datagram, room, length) in [
            (data, DATA_MIN, DATA_MIN),
            (data, 1000, 1000),
            (Datagram::End { sent: 12 }, 2000, REPORT_BYTES),
            (Datagram::Report(carried), 2000, REPORT_BYTES),
        ] {
            let mut buffer = vec![0xff; room];
            let n = encode(77, &datagram, &mut buffer);
            assert_eq!(n, length);
            assert_eq!(decode(&buffer[..n]), Some((77, datagram)));
        }
    }

    #[test]
    fn question_is_as_long_as_its_answer() {
        let mut buffer = [0; REPORT_BYTES];
        encode(1, &Datagram::End { sent: 3 }, &mut buffer);
        assert!(decode(&buffer).is_some());
        assert_eq!(decode(&buffer[..REPORT_BYTES - 1]), None);
    }

    proptest! {
        #[test]
        fn anything_is_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..100), kind in 0u8..4) {
            decode(&bytes);
            let ours: Vec<u8> = MAGIC.into_iter().chain([kind, 0, 0, 0]).chain(bytes).collect();
            if let Some((run, datagram)) = decode(&ours) {
                let mut buffer = vec![0; ours.len().max(REPORT_BYTES)];
                let n = encode(run, &datagram, &mut buffer);
                prop_assert_eq!(decode(&buffer[..n]), Some((run, datagram)));
            }
        }
    }
}
