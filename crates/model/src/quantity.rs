//! Quantities with their units. Formulas calculate in plain `f64` of these units; their inputs and
//! outputs are typed.

use serde::Serialize;

/// A number outside its range.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
#[error("{value} is out of range: expected {low} to {high} {unit}")]
pub struct OutOfRange {
    value: f64,
    low: f64,
    high: f64,
    unit: &'static str,
}

macro_rules! quantity {
    ($(#[$doc:meta])* $name:ident, $low:expr, $high:expr, $unit:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Serialize)]
        pub struct $name(f64);

        impl $name {
            /// `value` in this unit; an error if it is out of range or not a number.
            pub fn new(value: f64) -> Result<$name, OutOfRange> {
                if ($low..=$high).contains(&value) {
                    Ok($name(value))
                } else {
                    Err(OutOfRange { value, low: $low, high: $high, unit: $unit })
                }
            }

            /// The number in this unit.
            pub fn get(self) -> f64 {
                self.0
            }
        }
    };
}

quantity!(
    /// A length of time in seconds (range: 0 to 1e9).
    Seconds, 0.0, 1e9, "seconds"
);
quantity!(
    /// A mean packet size in bits (range: 1 to 1e9).
    Bits, 1.0, 1e9, "bits"
);
quantity!(PacketRate, 0.0, 1e12, "packets a second");

impl Seconds {
    pub const ZERO: Seconds = Seconds(0.0);
}

/// A packet-size distribution, reduced to mean and second moment.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Size {
    mean_bits: f64,
    second_bits2: f64,
}

impl Size {
    pub fn constant(size: Bits) -> Size {
        Size { mean_bits: size.get(), second_bits2: size.get() * size.get() }
    }

    /// Sizes with this mean and squared coefficient of variation (0: constant; 1: exponential;
    /// range: 0 to 100).
    pub fn varying(mean: Bits, scv: f64) -> Result<Size, OutOfRange> {
        let high = 100.0;
        if !(0.0..=high).contains(&scv) {
            return Err(OutOfRange { value: scv, low: 0.0, high, unit: "(variance over mean squared)" });
        }
        Ok(Size { mean_bits: mean.get(), second_bits2: mean.get() * mean.get() * (1.0 + scv) })
    }

    pub fn mean_bits(self) -> f64 {
        self.mean_bits
    }

    /// Squared coefficient of variation (0: constant; 1: exponential).
    pub fn scv(self) -> f64 {
        (self.second_bits2 / (self.mean_bits * self.mean_bits) - 1.0).max(0.0)
    }
}

/// A stream of packets: its rate, and the rate times the moments of its sizes. Adding streams adds
/// these sums, whatever their distributions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Traffic {
    packets_per_s: f64,
    bits_per_s: f64,
    bits2_per_s: f64,
}

impl Traffic {
    /// `rate` packets a second of this size.
    pub fn new(rate: PacketRate, size: Size) -> Traffic {
        Traffic::of(rate.get(), size)
    }

    pub(crate) fn of(rate: f64, size: Size) -> Traffic {
        Traffic { packets_per_s: rate, bits_per_s: rate * size.mean_bits, bits2_per_s: rate * size.second_bits2 }
    }

    /// The superposition of both.
    #[must_use]
    pub fn plus(self, other: Traffic) -> Traffic {
        Traffic {
            packets_per_s: self.packets_per_s + other.packets_per_s,
            bits_per_s: self.bits_per_s + other.bits_per_s,
            bits2_per_s: self.bits2_per_s + other.bits2_per_s,
        }
    }

    /// The stream with its rate multiplied by `factor` (0 or more).
    #[must_use]
    pub fn times(self, factor: f64) -> Traffic {
        Traffic {
            packets_per_s: self.packets_per_s * factor,
            bits_per_s: self.bits_per_s * factor,
            bits2_per_s: self.bits2_per_s * factor,
        }
    }

    /// The stream without `other`, which is part of it; negative rounding errors become 0.
    pub(crate) fn less(self, other: Traffic) -> Traffic {
        Traffic {
            packets_per_s: (self.packets_per_s - other.packets_per_s).max(0.0),
            bits_per_s: (self.bits_per_s - other.bits_per_s).max(0.0),
            bits2_per_s: (self.bits2_per_s - other.bits2_per_s).max(0.0),
        }
    }

    /// Packets a second.
    pub fn packets_per_s(self) -> f64 {
        self.packets_per_s
    }

    /// Bits a second.
    pub fn bits_per_s(self) -> f64 {
        self.bits_per_s
    }

    /// Mean packet size in bits; 0 without traffic.
    pub fn mean_bits(self) -> f64 {
        if self.packets_per_s > 0.0 { self.bits_per_s / self.packets_per_s } else { 0.0 }
    }

    /// Second moment of the packet size in bits squared; 0 without traffic.
    pub fn second_bits2(self) -> f64 {
        if self.packets_per_s > 0.0 { self.bits2_per_s / self.packets_per_s } else { 0.0 }
    }

    /// Mean and second moment of the transmission time at `bits_per_s`, plus `more_s` seconds for
    /// each packet, in seconds and seconds squared.
    pub(crate) fn service(self, bits_per_s: f64, more_s: f64) -> Moments {
        let (m1, m2) = (self.mean_bits() / bits_per_s, self.second_bits2() / (bits_per_s * bits_per_s));
        Moments { mean: m1 + more_s, second: m2 + 2.0 * m1 * more_s + more_s * more_s }
    }
}

/// Mean and second moment of a time, in seconds and seconds squared.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moments {
    /// Mean, in seconds.
    pub mean: f64,
    /// Mean of the square, in seconds squared; not less than the square of the mean.
    pub second: f64,
}

impl Moments {
    /// A constant time.
    pub fn constant(seconds: f64) -> Moments {
        Moments { mean: seconds, second: seconds * seconds }
    }

    /// An exponentially distributed time.
    pub fn exponential(mean: f64) -> Moments {
        Moments { mean, second: 2.0 * mean * mean }
    }

    /// Squared coefficient of variation; 0 for no time at all.
    pub fn scv(self) -> f64 {
        if self.mean > 0.0 { (self.second / (self.mean * self.mean) - 1.0).max(0.0) } else { 0.0 }
    }

    /// The mean of `of` over a two-point distribution with these two moments.
    pub(crate) fn mean_of(self, of: impl Fn(f64) -> f64) -> f64 {
        let scv = self.scv();
        let (short, long, chance) = if scv <= 1.0 {
            let spread = scv.sqrt();
            (1.0 - spread, 1.0 + spread, 0.5)
        } else {
            (0.0, 1.0 + scv, 1.0 / (1.0 + scv))
        };
        (1.0 - chance) * of(short * self.mean) + chance * of(long * self.mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantity_out_of_range_is_refused() {
        assert!(Seconds::new(0.0).is_ok() && Bits::new(1.0).is_ok() && PacketRate::new(1e12).is_ok());
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(Seconds::new(bad).is_err() && Bits::new(bad).is_err() && PacketRate::new(bad).is_err(), "{bad}");
        }
        let e = Bits::new(0.0).unwrap_err();
        assert_eq!(e.to_string(), "0 is out of range: expected 1 to 1000000000 bits");
    }

    #[test]
    fn moments_of_mixture_are_those_of_its_parts() {
        let pps = |n| PacketRate::new(n).unwrap();
        let size = |n| Size::constant(Bits::new(n).unwrap());
        let both = Traffic::new(pps(30.0), size(1000.0)).plus(Traffic::new(pps(10.0), size(5000.0)));
        assert_eq!(both.packets_per_s(), 40.0);
        assert_eq!(both.mean_bits(), 2000.0);
        assert_eq!(both.second_bits2(), (30.0 * 1e6 + 10.0 * 25e6) / 40.0);
        assert_eq!(Traffic::default().mean_bits(), 0.0);
        let service = both.service(1e6, 0.001);
        assert!((service.mean - 0.003).abs() < 1e-12 && service.scv() > 0.0);
    }
}
