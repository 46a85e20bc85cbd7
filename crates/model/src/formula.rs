//! Formulas with a source and a band of validity, and estimates that carry their reasons for doubt.

use std::fmt;

use serde::Serialize;

/// The quantity that a band limits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Share of time that a server or medium is busy.
    Utilisation,
    /// Offered share of the medium's bit rate.
    Load,
    /// Stations on the medium.
    Stations,
    /// Number of stations that would produce the traffic if all were as busy as the busiest.
    BusyStations,
    /// Mean packet size in slot times of the medium.
    PacketSlots,
    /// Variance over mean squared of packet sizes or service times.
    Variation,
    /// Propagation time in slot times.
    PropagationSlots,
    /// Share of packets given up after 16 collisions.
    GivenUp,
    /// Utilisation of the sending station's own queue.
    StationUtilisation,
    /// Utilisation of the sending station's own queue, as far as its traffic equals that of all
    /// others.
    OwnQueue,
    /// Traffic of the busiest station over that of the average one.
    Imbalance,
    /// Probability that a frame overlaps a bad period.
    FrameLoss,
    /// How much more often long frames do than the average one.
    LongLoss,
    /// Regularity of arrivals: 1 minus the squared coefficient of variation of interarrival times.
    Regularity,
    /// Mean length in slot times of the packet in transmission at an arrival. Long packets are met
    /// more often.
    MetSlots,
    /// Length of the shorter packets where sizes vary, in slot times: they collide more often.
    ShortSlots,
    /// Share of time that a station's channel is bad.
    BadShare,
    /// Share of a ring's time used by others while a copy sends bursts.
    OthersLoad,
    /// The token's rotation time over the time from the sending of a copy's block until its reply.
    TokenWay,
    /// Slowdown of a copy whose blocks delay one another where data and replies meet.
    Bunching,
    /// Packets that arrive at one queue during another queue's turn, where queues are unequal: more
    /// than it may send at once.
    Turns,
    /// A ring's utilisation times the mismatch between the stations' shares of the load and of the
    /// work that an arrival meets.
    Unlike,
    /// Utilisation of the sender's port of a switch times that of the receiver's, more where sizes
    /// vary much.
    BothPorts,
    /// Share of the delay that bursts out of a shared medium may add.
    Bursts,
    /// Share of the delay that spacing by a processor or its line may save.
    Spacing,
    /// Share of the delay by which packets in sequence from an earlier medium may differ.
    Behind,
    /// Slowdown by bad periods of a copy whose window may outlast them.
    Outlasted,
    /// Slowdown of a copy from constant to exponential service times.
    Chance,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::Utilisation => "utilisation",
            Quantity::Load => "load",
            Quantity::Stations => "stations",
            Quantity::BusyStations => "stations, if all were as busy as the busiest",
            Quantity::PacketSlots => "mean packet in slot times",
            Quantity::Variation => "variation of sizes",
            Quantity::PropagationSlots => "propagation in slot times",
            Quantity::GivenUp => "share given up after 16 collisions",
            Quantity::StationUtilisation => "utilisation of the sender's queue",
            Quantity::OwnQueue => "utilisation of the sender's queue, where it sends about half of all",
            Quantity::Imbalance => "busiest station over the average one",
            Quantity::FrameLoss => "probability that a frame overlaps a bad period",
            Quantity::LongLoss => "how much more often long frames overlap one",
            Quantity::MetSlots => "packet in transmission at an arrival, in slot times",
            Quantity::ShortSlots => "shorter packets in slot times",
            Quantity::BadShare => "share of the time that is bad",
            Quantity::OthersLoad => "load of others beside a copy's bursts",
            Quantity::TokenWay => "the token's rotation as a share of the copy's round",
            Quantity::Bunching => "slowdown by the copy's own blocks",
            Quantity::Turns => "packets that arrive at one queue during another one's turn",
            Quantity::Unlike => "load times the mismatch of stations' shares of it and of the work in progress",
            Quantity::BothPorts => {
                "utilisation of the sender's port times that of the receiver's, more where sizes vary much"
            }
            Quantity::Bursts => "share of the delay that bursts out of a shared medium may add at gateways",
            Quantity::Spacing => "share of the delay that spacing by a processor or a line may save",
            Quantity::Behind => "share of the delay by which packets in sequence may differ",
            Quantity::Outlasted => "cost of bad periods that the window may outlast",
            Quantity::Chance => "slowdown from constant to exponential service",
            Quantity::Regularity => "regularity of arrivals (busy processors and gateways space them)",
        })
    }
}

/// The range of one quantity in which a formula is valid.
#[derive(Debug)]
pub struct Band<I: 'static> {
    pub quantity: Quantity,
    /// The quantity's value for an input.
    pub of: fn(&I) -> f64,
    pub low: f64,
    pub high: f64,
}

/// A reason to doubt a result.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Reason {
    /// An input is outside the formula's band.
    Outside {
        formula: &'static str,
        quantity: Quantity,
        value: f64,
        /// The band's lower end.
        low: f64,
        /// The band's upper end.
        high: f64,
    },
    /// The offered traffic exceeds the capacity: queues grow without bound and have no mean.
    Saturated { formula: &'static str },
    /// Copies saturate a resource together: their split is a convention.
    SharedBottleneck,
    /// An earlier resource is saturated: less traffic arrives here than the flows offer.
    Starved,
    /// Packets of copies come in bursts, which the formulas treat as Poisson arrivals.
    BesideCopy,
    /// The copies' rates did not converge within the iteration limit.
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
            Reason::SharedBottleneck => f.write_str("copies saturate a resource together; their split is a convention"),
            Reason::Starved => {
                f.write_str("behind a saturated resource: less traffic arrives here than the flows offer")
            }
            Reason::BesideCopy => f.write_str("beside a copy: its bursts are treated as Poisson arrivals"),
            Reason::Unsettled => f.write_str("the rates of the copies did not converge"),
        }
    }
}

/// In its band, a formula is within this relative difference of a simulation.
pub const NEAR: f64 = 0.1;

/// The source of a figure.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    Formula,
    /// A simulation, because the formula is outside its band.
    Simulated,
    /// A queue that grows without limit: there is no value.
    Saturated,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Formula => "formula",
            Origin::Simulated => "simulated",
            Origin::Saturated => "saturated",
        })
    }
}

/// A value, or `None`, with the reasons to doubt the formula. Outside this crate only a [`Formula`]
/// creates one, so no estimate lacks its reasons.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Estimate<T> {
    value: Option<T>,
    how: Origin,
    /// Half-width of the interval around the value, in seconds; `None` if unknown.
    half_width_s: Option<f64>,
    outside: Vec<Reason>,
}

impl<T> Estimate<T> {
    /// An input or plain arithmetic, free of doubt.
    pub(crate) fn given(value: T) -> Estimate<T> {
        Estimate::by_formula(Some(value), Vec::new())
    }

    fn by_formula(value: Option<T>, outside: Vec<Reason>) -> Estimate<T> {
        Estimate { value, how: Origin::Formula, half_width_s: None, outside }
    }

    /// The value; `None` where the formula has none, such as the delay of a saturated queue.
    pub fn value(&self) -> Option<&T> {
        self.value.as_ref()
    }

    /// The source of the value.
    pub fn how(&self) -> Origin {
        self.how
    }

    /// Half-width of the interval around the value, in seconds: 10 % within a formula's band, the
    /// 95 % confidence of a simulation; `None` if unknown.
    pub fn half_width_s(&self) -> Option<f64> {
        self.half_width_s
    }

    /// The reasons to doubt the formula; empty within the band.
    pub fn outside(&self) -> &[Reason] {
        &self.outside
    }

    /// Whether a formula within its band, a simulation, or saturation answers.
    pub fn is_answered(&self) -> bool {
        match self.how {
            Origin::Formula => self.value.is_some() && self.outside.is_empty(),
            Origin::Simulated | Origin::Saturated => true,
        }
    }

    /// Replaces the formula's value by a simulated one; keeps the reasons.
    pub fn simulate(&mut self, value: T, half_width_s: Option<f64>) {
        (self.value, self.how, self.half_width_s) = (Some(value), Origin::Simulated, half_width_s);
    }

    /// Declares that there is no value, because a queue grows without limit; keeps the reasons.
    pub fn saturate(&mut self) {
        (self.value, self.how, self.half_width_s) = (None, Origin::Saturated, None);
    }

    /// Gives a value within the band its interval; `seconds` is the value in seconds.
    pub(crate) fn set_interval(&mut self, seconds: impl FnOnce(&T) -> f64) {
        if self.outside.is_empty() {
            self.half_width_s = self.value.as_ref().map(|value| NEAR * seconds(value));
        }
    }

    /// Applies `f` to the value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Estimate<U> {
        Estimate::by_formula(self.value.map(f), self.outside)
    }

    /// Combines two values; the result has the reasons of both.
    pub fn with<U, V>(mut self, other: Estimate<U>, f: impl FnOnce(T, U) -> V) -> Estimate<V> {
        for reason in other.outside {
            if !self.outside.contains(&reason) {
                self.outside.push(reason);
            }
        }
        Estimate::by_formula(self.value.zip(other.value).map(|(a, b)| f(a, b)), self.outside)
    }

    /// Adds a reason.
    #[must_use]
    pub(crate) fn doubt(mut self, reason: Reason) -> Estimate<T> {
        self.suspect(reason);
        self
    }

    /// Adds a reason that is not present yet.
    pub(crate) fn suspect(&mut self, reason: Reason) {
        if !self.outside.contains(&reason) {
            self.outside.push(reason);
        }
    }
}

impl Estimate<f64> {
    /// The sum, with the reasons of both.
    #[must_use]
    pub fn plus(self, other: Estimate<f64>) -> Estimate<f64> {
        self.with(other, |a, b| a + b)
    }
}

/// A formula as data: name, source, bands of validity, function.
#[derive(Debug)]
pub struct Formula<I: 'static, O> {
    pub name: &'static str,
    pub source: &'static str,
    pub(crate) compute: fn(&I) -> Option<O>,
    pub bands: &'static [Band<I>],
}

impl<I, O> Formula<I, O> {
    /// The value at `input`, with a reason for every band that `input` violates.
    pub fn at(&self, input: &I) -> Estimate<O> {
        let mut outside = Vec::new();
        for Band { quantity, of, low, high } in self.bands {
            let value = of(input);
            // A tiny excess is rounding; NaN is outside.
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
        Estimate::by_formula(value, outside)
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
    fn estimate_outside_band_names_the_band() {
        assert!(HALF.at(&1.0).outside().is_empty());
        let beyond = HALF.at(&1.5);
        assert_eq!((beyond.value(), beyond.outside().len()), (Some(&0.75), 1));
        assert_eq!(beyond.outside()[0].to_string(), "half: load is 1.500, the formula holds from 0 to 1");
        assert_eq!(HALF.at(&3.0).value(), None);
        assert_eq!(HALF.at(&f64::NAN).outside().len(), 2);
    }

    #[test]
    fn estimate_is_answered_in_band_or_by_simulation() {
        let (within, mut beyond) = (HALF.at(&1.0), HALF.at(&1.5));
        assert!(within.is_answered() && !beyond.is_answered());
        beyond.simulate(0.8, Some(0.1));
        assert_eq!((beyond.value(), beyond.how(), beyond.half_width_s()), (Some(&0.8), Origin::Simulated, Some(0.1)));
        assert_eq!((beyond.is_answered(), beyond.outside().len()), (true, 1), "the reasons stay");
        beyond.saturate();
        assert_eq!((beyond.value(), beyond.is_answered()), (None, true));
    }

    #[test]
    fn combined_estimate_has_each_reason_once() {
        let sum = HALF.at(&1.5).plus(HALF.at(&1.5)).plus(HALF.at(&0.5));
        assert_eq!((sum.value(), sum.outside().len()), (Some(&1.75), 1));
        assert_eq!(HALF.at(&3.0).plus(HALF.at(&1.0)).value(), None);
    }
}
