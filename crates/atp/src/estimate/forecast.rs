//! The expected bandwidth of a path, and the sum over several peers that share a bottleneck.

use remora_base::{Rate, Time};

/// Expected bandwidth, as the scheduler uses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// Estimated bandwidth (`curbw` in ATP 02); `None` before the first measurement.
    pub rate: Option<Rate>,
    /// Bandwidth to spend now: above `rate` to probe, below it to drain a queue.
    pub available: Option<Rate>,
    /// Upper bound of the bandwidth, at least `rate`; `None` while there are too few measurements. The scheduler
    /// gives up no object that this rate would deliver.
    pub at_most: Option<Rate>,
    /// Confidence in `rate`.
    pub state: Knowledge,
    /// Time of the last measurement that confirmed `rate`.
    pub measured: Option<Time>,
}

/// Confidence in a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knowledge {
    /// No current measurement. Objects are sent, and none is rejected for lack of bandwidth. A rate, if present, is
    /// from before a blackout.
    Unknown,
    /// Measured: admission uses it.
    Known,
    /// No answer for about a round-trip time: objects are held, none is rejected for lack of bandwidth, and the
    /// rate is the last one before the blackout.
    Blackout {
        /// Time of the last packet from the peer.
        since: Time,
    },
}

/// Combines the forecasts of peers that share a bottleneck. Each estimator sees only its own share, so the rates
/// add up. The result is known if one forecast is known, and a blackout only if all are.
pub(crate) fn combine(forecasts: impl IntoIterator<Item = Forecast>) -> Option<Forecast> {
    forecasts.into_iter().reduce(|a, b| {
        let (a, b) = (only_live(a, b), only_live(b, a));
        Forecast {
            rate: sum(a.rate, b.rate),
            available: sum(a.available, b.available),
            // The sum is bounded only if both are.
            at_most: sum(a.at_most, b.at_most).filter(|_| is_bounded(&a) && is_bounded(&b)),
            state: match (a.state, b.state) {
                (Knowledge::Known, _) | (_, Knowledge::Known) => Knowledge::Known,
                (Knowledge::Unknown, _) | (_, Knowledge::Unknown) => Knowledge::Unknown,
                (Knowledge::Blackout { since: a }, Knowledge::Blackout { since: b }) => {
                    Knowledge::Blackout { since: a.max(b) }
                }
            },
            measured: a.measured.max(b.measured),
        }
    })
}

/// Returns `this` without its rates if it is in a blackout and `other` is not: its rates are outdated.
fn only_live(this: Forecast, other: Forecast) -> Forecast {
    let silent = |f: &Forecast| matches!(f.state, Knowledge::Blackout { .. });
    if silent(&this) && !silent(&other) {
        Forecast { rate: None, available: None, at_most: None, ..this }
    } else {
        this
    }
}

/// Whether the forecast has an upper bound, or no rate at all.
fn is_bounded(f: &Forecast) -> bool {
    f.at_most.is_some() || f.rate.is_none()
}

fn sum(a: Option<Rate>, b: Option<Rate>) -> Option<Rate> {
    match (a, b) {
        (Some(a), Some(b)) => Rate::from_bits(a.bits().saturating_add(b.bits())),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecasts_of_a_shared_link_add_up() {
        let f = |mbit: u64, state| {
            let rate = Some(Rate::mbit(mbit));
            Forecast { rate, available: None, at_most: rate, state, measured: None }
        };
        let out = Knowledge::Blackout { since: Time::from_secs(1) };
        let cases = [
            (vec![f(1, Knowledge::Known), f(2, Knowledge::Known)], Some(Rate::mbit(3)), Knowledge::Known),
            (vec![f(1, Knowledge::Known), f(2, out)], Some(Rate::mbit(1)), Knowledge::Known),
            (vec![f(2, out), f(1, Knowledge::Unknown)], Some(Rate::mbit(1)), Knowledge::Unknown),
            (vec![f(2, out), f(2, out)], Some(Rate::mbit(4)), out),
        ];
        for (all, rate, state) in cases {
            let sum = combine(all.clone()).unwrap();
            assert_eq!((sum.rate, sum.state), (rate, state), "{all:?}");
        }
        assert_eq!(combine([]), None);
    }
}
