//! A formula with its source and its band of validity, and results that cannot be had without
//! the reasons to doubt them.

use std::fmt;

use serde::Serialize;

/// What a band is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Share of the time that a server or medium is busy.
    Utilisation,
    /// Share of the medium's bit rate that packets ask for.
    Load,
    /// Stations on the medium.
    Stations,
    /// Stations that would make all of the traffic, did all of them as much as the busiest.
    BusyStations,
    /// Mean packet size in slot times of the medium.
    PacketSlots,
    /// Variance over mean squared of packet sizes or service times.
    Variation,
    /// Propagation time in slot times.
    PropagationSlots,
    /// Share of the packets that are given up after 16 collisions.
    GivenUp,
    /// How busy the sending station's own queue is.
    StationUtilisation,
    /// The same, as far as the station and all others bring as much as one another.
    OwnQueue,
    /// The busiest station's traffic over that of the average station.
    Imbalance,
    /// Chance that a frame meets a bad period.
    FrameLoss,
    /// By how much more often long frames do.
    LongLoss,
    /// How much more regular than Poisson packets come (1 less the squared coefficient of variation
    /// of the time between them).
    Regularity,
    /// Mean length of the packet under way when another one comes, in slot times: long ones are met more often.
    MetSlots,
    /// Length of the shorter packets where sizes vary, in slot times: they collide more.
    ShortSlots,
    /// Share of the time that a station can't be heard.
    BadShare,
    /// Share of a ring's time that others use while a copy sends bursts.
    OthersLoad,
    /// A token's way once around, as a part of a copy's round.
    TokenWay,
    /// By how much a copy may be slower because its blocks hold up one another where data and replies meet.
    Bunching,
    /// Packets of one queue that come while one of another queue has its turn, where queues take turns and are
    /// not alike: what it may not send at once.
    Turns,
    /// How busy a ring is times how unlike stations' parts of its load are to their parts of the work that a packet
    /// meets under way.
    Unlike,
    /// How busy the sender's and the receiver's ports of a switch are, multiplied, and more where sizes vary much.
    BothPorts,
    /// How much of the delay may be more because packets leave a shared medium in bursts.
    Bursts,
    /// How much of the delay may be less because a processor, or its line, spaces what a station sends.
    Spacing,
    /// How much of the delay may be more or less because packets come one behind the other from a medium before.
    Behind,
    /// By how much bad periods slow a copy down that might have enough under way to outlast them.
    Outlasted,
    /// By how much chance may slow a copy down: from service times all the same to exponential ones.
    Chance,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::Utilisation => "utilisation",
            Quantity::Load => "load",
            Quantity::Stations => "stations",
            Quantity::BusyStations => "stations, if all did as the busiest",
            Quantity::PacketSlots => "mean packet in slot times",
            Quantity::Variation => "variation of sizes",
            Quantity::PropagationSlots => "propagation in slot times",
            Quantity::GivenUp => "share given up after 16 collisions",
            Quantity::StationUtilisation => "utilisation of the sender's queue",
            Quantity::OwnQueue => "utilisation of the sender's queue, where it sends about half of all",
            Quantity::Imbalance => "busiest station over the average one",
            Quantity::FrameLoss => "chance that a frame meets a bad period",
            Quantity::LongLoss => "by how much more often long frames meet one",
            Quantity::MetSlots => "packet that is met under way, in slot times",
            Quantity::ShortSlots => "shorter packets in slot times",
            Quantity::BadShare => "share of the time that is bad",
            Quantity::OthersLoad => "load of others beside a copy's bursts",
            Quantity::TokenWay => "the token's way around as a part of the copy's round",
            Quantity::Bunching => "by how much the copy's own blocks may hold up one another",
            Quantity::Turns => "packets of one queue that come during another one's turn",
            Quantity::Unlike => "load times how unlike stations' parts of it are to those of the work under way",
            Quantity::BothPorts => {
                "utilisation of the sender's port times that of the receiver's, more where sizes vary much"
            }
            Quantity::Bursts => "part of the delay that bursts out of a shared medium may add at gateways",
            Quantity::Spacing => "part of the delay that a processor's or a line's spacing of packets may save",
            Quantity::Behind => "part of the delay by which packets may differ that have come one behind the other",
            Quantity::Outlasted => "what bad periods cost, which the window may outlast",
            Quantity::Chance => "what chance may cost, from constant to exponential service",
            Quantity::Regularity => "regularity of arrivals (processors and gateways that are busy space them)",
        })
    }
}

/// Where a formula may be believed, in one of its quantities.
#[derive(Debug)]
pub struct Band<I: 'static> {
    pub quantity: Quantity,
    /// Its value in an input.
    pub of: fn(&I) -> f64,
    /// From here.
    pub low: f64,
    /// To here.
    pub high: f64,
}

/// Why a result should be doubted.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// An input is not where the formula has been shown to hold.
    Outside {
        formula: &'static str,
        /// Of which input.
        quantity: Quantity,
        value: f64,
        /// The band's lower end.
        low: f64,
        /// The band's upper end.
        high: f64,
    },
    /// More is asked for than can be carried: queues grow without end, and there is no mean.
    Saturated { formula: &'static str },
    /// Copies fill a place together: how they split it is a convention.
    SharedBottleneck,
    /// A place before this one cannot carry what it is asked for: less comes here than the flows say.
    Starved,
    /// Packets of copies come in bursts, and are taken for Poisson.
    BesideCopy,
    /// The copies' rates had not settled when the rounds were used up.
    Unsettled,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Outside { formula, quantity, value, low, high } => {
                write!(f, "{formula}: {quantity} is {value:.3}, the formula holds from {low} to {high}")
            }
            Reason::Saturated { formula } => {
                write!(f, "{formula}: more traffic than it can carry, queues grow without end")
            }
            Reason::SharedBottleneck => {
                f.write_str("copies fill a place together, and how they split it is a convention")
            }
            Reason::Starved => {
                f.write_str("behind a place that cannot carry what it is asked for: less comes here than the flows say")
            }
            Reason::BesideCopy => f.write_str("beside a copy: its bursts are taken for packets that come one by one"),
            Reason::Unsettled => f.write_str("the rates of the copies did not settle"),
        }
    }
}

/// A result: its value, or `None` where there is none, and why to doubt it. Outside of this
/// crate only a [`Formula`] makes one, so none is without its reasons.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Estimate<T> {
    value: Option<T>,
    outside: Vec<Reason>,
}

impl<T> Estimate<T> {
    /// What was given or is plain arithmetic: there is nothing to doubt.
    pub(crate) fn given(value: T) -> Estimate<T> {
        Estimate { value: Some(value), outside: Vec::new() }
    }

    /// The value; `None` where the formula has none, as for the delay of a saturated queue.
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// Why to doubt it; empty within the band.
    pub fn outside(&self) -> &[Reason] {
        &self.outside
    }

    /// The same with the value put through `f`.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Estimate<U> {
        Estimate { value: self.value.map(f), outside: self.outside }
    }

    /// Both values made into one, with the doubts of both.
    pub fn with<U, V>(mut self, other: Estimate<U>, f: impl FnOnce(T, U) -> V) -> Estimate<V> {
        for reason in other.outside {
            if !self.outside.contains(&reason) {
                self.outside.push(reason);
            }
        }
        Estimate { value: self.value.zip(other.value).map(|(a, b)| f(a, b)), outside: self.outside }
    }

    /// The same with another doubt.
    #[must_use]
    pub(crate) fn doubt(mut self, reason: Reason) -> Estimate<T> {
        self.suspect(reason);
        self
    }

    /// Adds a doubt, if it is a new one.
    pub(crate) fn suspect(&mut self, reason: Reason) {
        if !self.outside.contains(&reason) {
            self.outside.push(reason);
        }
    }
}

impl Estimate<f64> {
    /// The sum, with the doubts of both.
    #[must_use]
    pub fn plus(self, other: Estimate<f64>) -> Estimate<f64> {
        self.with(other, |a, b| a + b)
    }
}

/// A formula as data: what it is called, where it is from, where it holds.
#[derive(Debug)]
pub struct Formula<I: 'static, O> {
    /// What it is called.
    pub name: &'static str,
    /// Where it is from.
    pub source: &'static str,
    pub(crate) compute: fn(&I) -> Option<O>,
    /// Where it holds.
    pub bands: &'static [Band<I>],
}

impl<I, O> Formula<I, O> {
    /// Its value at `input`, with every band that `input` is outside of.
    pub fn at(&self, input: &I) -> Estimate<O> {
        let mut outside = Vec::new();
        for Band { quantity, of, low, high } in self.bands {
            let value = of(input);
            // A little beyond the end is rounding; what is no number is outside.
            let slack = 1e-9 * high.abs();
            if !(low - slack..=high + slack).contains(&value) {
                outside.push(Reason::Outside {
                    formula: self.name,
                    quantity: *quantity,
                    value,
                    low: *low,
                    high: *high,
                });
            }
        }
        let value = (self.compute)(input);
        if value.is_none() {
            outside.push(Reason::Saturated { formula: self.name });
        }
        Estimate { value, outside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static HALF: Formula<f64, f64> = Formula {
        name: "half",
        source: "arithmetic",
        compute: |x| (*x < 2.0).then_some(x / 2.0),
        bands: &[Band { quantity: Quantity::Load, of: |x| *x, low: 0.0, high: 1.0 }],
    };

    #[test]
    fn results_say_what_they_are_outside_of() {
        assert!(HALF.at(&1.0).outside().is_empty());
        let beyond = HALF.at(&1.5);
        assert_eq!((beyond.value(), beyond.outside().len()), (Some(&0.75), 1));
        assert_eq!(beyond.outside()[0].to_string(), "half: load is 1.500, the formula holds from 0 to 1");
        assert_eq!(HALF.at(&3.0).value(), None);
        assert_eq!(HALF.at(&f64::NAN).outside().len(), 2);
    }

    #[test]
    fn doubts_are_inherited_once() {
        let sum = HALF.at(&1.5).plus(HALF.at(&1.5)).plus(HALF.at(&0.5));
        assert_eq!((sum.value(), sum.outside().len()), (Some(&1.75), 1));
        assert_eq!(HALF.at(&3.0).plus(HALF.at(&1.0)).value(), None);
    }
}
