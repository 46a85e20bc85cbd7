//! What the fuzz targets share: a decoder never panics, and what it accepts it can write and
//! read again as it was.

use bytes::Bytes;
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
