//! Packets and times by their moments, as cells ([`remora_model::Traffic`], [`remora_model::Moments`]).

use super::book::Pad;
use super::expr::{Expr, when};

/// Packets of all sorts that come together.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    /// Packets a second.
    pub(super) pps: Expr,
    /// Bits a second.
    pub(super) bits: Expr,
    /// The sum of the squares of their bits, a second.
    pub(super) bits2: Expr,
}

impl Traffic {
    pub(super) fn none() -> Traffic {
        let zero = || Expr::from(0.0);
        Traffic { pps: zero(), bits: zero(), bits2: zero() }
    }

    /// `pps` packets a second of `bytes` each on average, whose variance over mean squared is `scv`.
    pub(super) fn of(pps: &Expr, bytes: &Expr, scv: &Expr) -> Traffic {
        let bits = pps * (bytes * 8.0);
        let bits2 = &bits * (bytes * 8.0) * (1.0 + scv);
        Traffic { pps: pps.clone(), bits, bits2 }
    }

    pub(super) fn plus(&self, other: &Traffic) -> Traffic {
        Traffic { pps: &self.pps + &other.pps, bits: &self.bits + &other.bits, bits2: &self.bits2 + &other.bits2 }
    }

    /// Without `other`, which is part of it; what rounding leaves below zero is none.
    pub(super) fn less(&self, other: &Traffic) -> Traffic {
        let less = |all: &Expr, part: &Expr| if part.is_literal() { all.clone() } else { (all - part).max(0.0) };
        Traffic {
            pps: less(&self.pps, &other.pps),
            bits: less(&self.bits, &other.bits),
            bits2: less(&self.bits2, &other.bits2),
        }
    }

    pub(super) fn times(&self, factor: &Expr) -> Traffic {
        Traffic { pps: &self.pps * factor, bits: &self.bits * factor, bits2: &self.bits2 * factor }
    }

    pub(super) fn over(&self, parts: &Expr) -> Traffic {
        Traffic { pps: &self.pps / parts, bits: &self.bits / parts, bits2: &self.bits2 / parts }
    }

    pub(super) fn sum<'a>(all: impl IntoIterator<Item = &'a Traffic>) -> Traffic {
        all.into_iter().fold(Traffic::none(), |sum, next| sum.plus(next))
    }

    /// Whether no input can make it more than nothing.
    pub(super) fn is_none(&self) -> bool {
        self.pps.is_literal()
    }

    /// Mean packet in bits; 0 without traffic.
    pub(super) fn mean_bits(&self) -> Expr {
        when(&self.pps.gt(0.0), &self.bits / &self.pps, 0.0)
    }

    /// Second moment of the size; 0 without traffic.
    fn second_bits2(&self) -> Expr {
        when(&self.pps.gt(0.0), &self.bits2 / &self.pps, 0.0)
    }

    /// Three cells.
    pub(super) fn put(&self, pad: &mut Pad<'_>, what: &str) -> Traffic {
        Traffic {
            pps: pad.put(&format!("{what}: packets"), "1/s", &self.pps),
            bits: pad.put(&format!("{what}: bits"), "bit/s", &self.bits),
            bits2: pad.put(&format!("{what}: squares of their bits"), "bit2/s", &self.bits2),
        }
    }

    /// The time to send a packet at `rate`, each with `more` seconds on top: two cells.
    pub(super) fn service(&self, pad: &mut Pad<'_>, what: &str, rate: &Expr, more: &Expr) -> Moments {
        let mean = pad.put(&format!("{what}: mean time"), "s", self.mean_bits() / rate + more);
        // Mean of the square of `time + more`.
        let bits = &mean - more;
        let square = self.second_bits2() / rate.powi(2) + 2.0 * bits * more + more * more;
        let second = pad.put(&format!("{what}: mean of its square"), "s2", square);
        Moments { mean, second }
    }

    /// The part of the time that this takes of a medium whose packets take `more` on top of their bits.
    pub(super) fn airtime(&self, rate: &Expr, more: &Expr) -> Expr {
        &self.bits / rate + &self.pps * more
    }

    /// The sum of the squares of that time, a second.
    pub(super) fn square(&self, rate: &Expr, more: &Expr) -> Expr {
        &self.bits2 / rate.powi(2) + 2.0 * (&self.bits / rate) * more + &self.pps * (more * more)
    }
}

/// Mean and second moment of a time.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    pub(super) mean: Expr,
    pub(super) second: Expr,
}

impl Moments {
    pub(super) fn variance(&self) -> Expr {
        (&self.second - self.mean.powi(2)).max(0.0)
    }

    /// Variance over mean squared; 0 for no time at all.
    pub(super) fn scv(&self) -> Expr {
        when(&self.mean.gt(0.0), (&self.second / self.mean.powi(2) - 1.0).max(0.0), 0.0)
    }

    /// Two lengths that stand for all, and the chance of the longer one: three cells.
    pub(super) fn points(&self, pad: &mut Pad<'_>, what: &str) -> Points {
        let scv = pad.put(&format!("{what}: variation"), "", self.scv());
        let few = scv.le(1.0);
        let short = when(&few, 1.0 - scv.sqrt(), 0.0) * &self.mean;
        let long = when(&few, 1.0 + scv.sqrt(), 1.0 + &scv) * &self.mean;
        Points {
            short: pad.put(&format!("{what}: the shorter of two that stand for all"), "s", short),
            long: pad.put(&format!("{what}: the longer one"), "s", long),
            chance: pad.put(&format!("{what}: chance of the longer one"), "", when(&few, 0.5, 1.0 / (1.0 + &scv))),
        }
    }
}

/// Two lengths for all.
pub(super) struct Points {
    pub(super) short: Expr,
    pub(super) long: Expr,
    pub(super) chance: Expr,
}

impl Points {
    /// The mean of `of` over the two.
    pub(super) fn mean_of(&self, of: impl Fn(&Expr) -> Expr) -> Expr {
        self.mix(&of(&self.short), &of(&self.long))
    }

    /// The mean of what the two make.
    pub(super) fn mix(&self, short: &Expr, long: &Expr) -> Expr {
        (1.0 - &self.chance) * short + &self.chance * long
    }
}
