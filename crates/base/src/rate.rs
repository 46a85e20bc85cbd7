//! Bit rates of links.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A bit rate in bits a second (range: 1 to 2^64 - 1, so every transmission ends).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Rate(std::num::NonZeroU64);

impl Rate {
    /// `bits` bits a second; `None` for zero.
    pub const fn from_bits(bits: u64) -> Option<Rate> {
        match std::num::NonZeroU64::new(bits) {
            Some(b) => Some(Rate(b)),
            None => None,
        }
    }

    /// `m` million bits a second. Panics on zero: for constants.
    pub const fn mbit(m: u64) -> Rate {
        Rate::of_bits(m * 1_000_000)
    }

    /// `b` bits a second. Panics on zero: for constants.
    pub const fn of_bits(b: u64) -> Rate {
        match Rate::from_bits(b) {
            Some(r) => r,
            None => panic!("a rate of zero"),
        }
    }

    /// Bits a second.
    pub const fn bits(self) -> u64 {
        self.0.get()
    }

    /// Transmission time of `bytes` bytes, rounded up to a nanosecond.
    pub fn airtime(self, bytes: u64) -> Duration {
        let ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.bits()));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.bits();
        let units = [(1_000_000_000, "Gbit"), (1_000_000, "Mbit"), (1_000, "kbit")];
        match units.into_iter().find(|(unit, _)| b.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", b / unit),
            None => write!(f, "{b}bit"),
        }
    }
}

/// Parses `64kbit`, `1.5Mbit`, `10Gbit`, `9600bit`, in any case and with an optional `/s`.
impl FromStr for Rate {
    type Err = String;

    fn from_str(s: &str) -> Result<Rate, String> {
        let bad = || format!("'{s}' is not a rate: expected a number and bit, kbit, Mbit or Gbit, as in 1Mbit");
        let low = s.trim().to_ascii_lowercase();
        let low = low.strip_suffix("/s").unwrap_or(&low);
        let unit_at = low.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?;
        let factor = match &low[unit_at..] {
            "bit" => 1.0,
            "kbit" => 1e3,
            "mbit" => 1e6,
            "gbit" => 1e9,
            _ => return Err(bad()),
        };
        let number: f64 = low[..unit_at].trim().parse().map_err(|_| bad())?;
        let bits = number * factor;
        if !(1.0..=1e15).contains(&bits) {
            return Err(format!("'{s}' is out of range: from 1bit to 1000000Gbit"));
        }
        Rate::from_bits(bits.round() as u64).ok_or_else(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_frame_at_one_megabit_takes_twelve_milliseconds() {
        assert_eq!(Rate::mbit(1).airtime(1500), Duration::from_millis(12));
        assert_eq!(Rate::from_bits(3).unwrap().airtime(1), Duration::from_nanos(2_666_666_667));
    }

    #[test]
    fn rate_text_round_trips() {
        for (text, bits) in [("1Mbit", 1_000_000), ("64kbit", 64_000), ("1.5mbit/s", 1_500_000), ("9600bit", 9600)] {
            assert_eq!(text.parse::<Rate>().unwrap().bits(), bits, "{text}");
        }
        assert_eq!(Rate::mbit(1).to_string(), "1Mbit");
        for bad in ["", "1", "0bit", "-1Mbit", "1 furlong", "nanbit", "1e99gbit"] {
            assert!(bad.parse::<Rate>().is_err(), "{bad}");
        }
    }
}
