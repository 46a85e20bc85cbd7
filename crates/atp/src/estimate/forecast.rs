//! What the scheduler can count on, and the sum of it over several peers.

use remora_base::{Rate, Time};

/// What the scheduler can count on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Forecast {
    /// What the link carries (`curbw` in ATP 02); `None` before anything is known.
    pub rate: Option<Rate>,
    /// What may be spent now: above `rate` to probe, below it to drain a queue.
    pub available: Option<Rate>,
    /// What the link has been shown not to exceed, `rate` or more; `None` while too little has been
    /// seen to say. Nothing is given up that this would carry.
    pub at_most: Option<Rate>,
    /// How far `rate` is to be believed.
    pub state: Knowledge,
    /// When `rate` was last confirmed by a measurement.
    pub measured: Option<Time>,
}

/// How far a rate is to be believed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Knowledge {
    /// Not at all: objects may be sent, and none is refused for lack of bandwidth. The rate, if
    /// there is one, is from before a blackout.
    Unknown,
    /// Admission may count on it.
    Known,
    /// Nothing has come back for about a round trip: objects are held, none is refused for lack
    /// of bandwidth, and the rate is the last one from before.
    Blackout {
        /// When something was last heard of the peer.
        since: Time,
    },
}

/// What several peers' estimators expect of the link they share. Each sees only what is left to
/// it, so the rates of those that are in use are added up. The link is known if one knows it,
/// and out only if all say so.
pub(crate) fn combine(forecasts: impl IntoIterator<Item = Forecast>) -> Option<Forecast> {
    forecasts.into_iter().reduce(|a, b| {
        let (a, b) = (only_live(a, b), only_live(b, a));
        Forecast {
            rate: sum(a.rate, b.rate),
            available: sum(a.available, b.available),
            // What one may carry beyond what has been seen, both may.
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

/// `this` without its rates if it is silent while `other` is not: they are frozen and old.
fn only_live(this: Forecast, other: Forecast) -> Forecast {
    let silent = |f: &Forecast| matches!(f.state, Knowledge::Blackout { .. });
    if silent(&this) && !silent(&other) {
        Forecast { rate: None, available: None, at_most: None, ..this }
    } else {
        this
    }
}

/// Whether what it carries is bounded, as far as it counts at all.
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
