//! What the fuzz targets share: a decoder never panics, and what it accepts it can write and
//! read again as it was.

use bytes::Bytes;
use remora_atp::session::{Endpoint, Event};
use remora_base::{Core, Time};
use remora_wire::Reader;

/// Decodes `message`; if it is one, checks that it survives. Gives what stood behind it.
pub fn survives<T: PartialEq + std::fmt::Debug, E>(
    message: Bytes,
    decode: impl Fn(&mut Reader) -> Result<T, E>,
    encode: impl Fn(&T, &mut Vec<u8>),
) -> Option<(T, Bytes)> {
    let mut reader = Reader::new(message);
    let value = decode(&mut reader).ok()?;
    let mut out = Vec::new();
    encode(&value, &mut out);
    let mut again = Reader::new(out.into());
    assert_eq!(decode(&mut again).ok().as_ref(), Some(&value));
    assert_eq!(again.remaining(), 0);
    Some((value, reader.rest()))
}

/// The commands that an input is a row of: a head of so many bytes, a length, and as many bytes as that
/// says or as there are.
pub fn commands<const HEAD: usize>(mut input: &[u8]) -> impl Iterator<Item = ([u8; HEAD], &[u8])> {
    std::iter::from_fn(move || {
        let (head, rest) = input.split_first_chunk()?;
        let (len, rest) = rest.split_first()?;
        let (bytes, rest) = rest.split_at(rest.len().min((*len).into()));
        input = rest;
        Some((*head, bytes))
    })
}

/// Two ATP endpoints, and what lies between them.
pub trait Pair {
    /// Both, and the moment it is.
    fn ends(&mut self) -> (&mut [Endpoint; 2], Time);

    /// One has sent this to the other, number `to`.
    fn carry(&mut self, to: usize, payload: Bytes);

    /// Number `n` says this.
    fn take(&mut self, n: usize, event: Event);

    /// Lets both come to rest at this moment.
    fn settle(&mut self) {
        let (ends, now) = self.ends();
        for end in ends {
            if end.poll_timeout().is_some_and(|at| at <= now) {
                end.handle_timeout(now);
            }
        }
        for _ in 0..10_000 {
            if [0, 1].map(|n| self.turn(n)) == [false; 2] {
                return;
            }
        }
        panic!("no end of it");
    }

    /// Takes what number `n` has to send and to say; whether it sent anything.
    fn turn(&mut self, n: usize) -> bool {
        let mut sends = false;
        while let (ends, now) = self.ends()
            && let Some(transmit) = ends[n].poll_transmit(now)
        {
            sends = true;
            self.carry(1 - n, transmit.payload);
        }
        while let Some(event) = self.ends().0[n].poll_event() {
            self.take(n, event);
        }
        sends
    }
}
