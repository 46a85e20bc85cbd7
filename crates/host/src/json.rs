//! JSON without loss in programs whose numbers are doubles, such as `jq` and JavaScript.
//!
//! Integers above 2^53 are strings of digits. Identifiers, which are often that large, are always strings
//! ([`as_digits`]).

use std::fmt::Display;
use std::io;

use serde::{Serialize, Serializer};
use serde_json::ser::{CompactFormatter, Formatter};

/// The largest integer below which a double holds every integer: 2^53.
const EXACT_MAX: u64 = 1 << 53;

/// `value` on one line, without a newline.
pub fn line(value: &impl Serialize) -> serde_json::Result<String> {
    let mut bytes = Vec::new();
    let exact = Exact { compact: CompactFormatter, in_key: false };
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, exact))?;
    String::from_utf8(bytes).map_err(serde::ser::Error::custom)
}

/// For `#[serde(serialize_with)]`: an identifier as a string of its digits.
pub fn as_digits<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Writes integers that a double does not hold as strings. serde_json writes the quotes around a key, whatever it is.
struct Exact {
    compact: CompactFormatter,
    in_key: bool,
}

impl Exact {
    fn write<W: ?Sized + io::Write>(&self, writer: &mut W, value: impl Display, is_exact: bool) -> io::Result<()> {
        if is_exact || self.in_key { write!(writer, "{value}") } else { write!(writer, "\"{value}\"") }
    }
}

impl Formatter for Exact {
    fn write_u64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u64) -> io::Result<()> {
        self.write(writer, value, value <= EXACT_MAX)
    }

    fn write_i64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i64) -> io::Result<()> {
        self.write(writer, value, value.unsigned_abs() <= EXACT_MAX)
    }

    fn write_u128<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: u128) -> io::Result<()> {
        self.write(writer, value, value <= EXACT_MAX.into())
    }

    fn write_i128<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: i128) -> io::Result<()> {
        self.write(writer, value, value.unsigned_abs() <= EXACT_MAX.into())
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.in_key = true;
        self.compact.begin_object_key(writer, first)
    }

    fn end_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.in_key = false;
        self.compact.end_object_key(writer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    struct Extremes {
        exact: u64,
        above: u64,
        most: u64,
        least: i64,
        wide: u128,
        deep: i128,
        #[serde(serialize_with = "as_digits")]
        id: u64,
        nested: serde_json::Value,
    }

    #[test]
    fn integers_above_2_to_the_53_are_strings() {
        let nested = json!({ "list": [1, u64::MAX, -7], "text": "a\"b", "half": 0.5, "none": null });
        let extremes = Extremes {
            exact: EXACT_MAX,
            above: EXACT_MAX + 1,
            most: u64::MAX,
            least: i64::MIN,
            wide: u128::MAX,
            deep: -1,
            id: 7,
            nested,
        };
        assert_eq!(
            line(&extremes).unwrap(),
            "{\"exact\":9007199254740992,\"above\":\"9007199254740993\",\"most\":\"18446744073709551615\",\
             \"least\":\"-9223372036854775808\",\"wide\":\"340282366920938463463374607431768211455\",\"deep\":-1,\
             \"id\":\"7\",\"nested\":{\"half\":0.5,\"list\":[1,\"18446744073709551615\",-7],\"none\":null,\
             \"text\":\"a\\\"b\"}}"
        );
    }

    #[test]
    fn integer_key_above_2_to_the_53_has_one_pair_of_quotes() {
        let map = std::collections::BTreeMap::from([(7, u64::MAX), (u64::MAX, 7)]);
        assert_eq!(line(&map).unwrap(), "{\"7\":\"18446744073709551615\",\"18446744073709551615\":7}");
    }
}
