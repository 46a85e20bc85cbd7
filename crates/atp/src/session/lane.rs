//! Lanes: one for each bottleneck, with its scheduler. A scheduler numbers its requests from
//! zero; the endpoint's numbers have the lane above them, so that they are unique.

use remora_base::{Rate, Time};

use crate::estimate::{Forecast, Knowledge};
use crate::scheduler::{self, Scheduler};
use crate::{Final, Outcome, Rejection, RequestId, Upcall};

/// Bits of a request's number that are its scheduler's: 34 years at a thousand a second.
const LOCAL_BITS: u32 = 40;

/// One bottleneck's scheduler.
pub(super) struct Lane {
    pub(super) number: u32,
    pub(super) scheduler: Scheduler,
}

impl Lane {
    pub(super) fn new(number: u32, config: scheduler::Config) -> Lane {
        Lane { number, scheduler: Scheduler::new(config) }
    }

    /// The request's number outside.
    pub(super) fn outside(&self, local: RequestId) -> RequestId {
        RequestId(u64::from(self.number) << LOCAL_BITS | local.0)
    }

    /// The next upcall, as it is told outside.
    pub(super) fn poll_upcall(&mut self) -> Option<Upcall> {
        let upcall = self.scheduler.poll_upcall()?;
        Some(match upcall {
            Upcall::Final(f) => Upcall::Final(Final {
                request: self.outside(f.request),
                outcome: match f.outcome {
                    Outcome::Rejected(Rejection::WouldDisplace(other)) => {
                        Outcome::Rejected(Rejection::WouldDisplace(self.outside(other)))
                    }
                    other => other,
                },
                ..f
            }),
            Upcall::InsufficientBandwidth { request, needed, available } => {
                Upcall::InsufficientBandwidth { request: self.outside(request), needed, available }
            }
            Upcall::Resumed { request } => Upcall::Resumed { request: self.outside(request) },
            Upcall::Bandwidth { rate, side } => Upcall::Bandwidth { rate, side },
        })
    }
}

/// The number of a request's lane.
pub(super) const fn lane_of(request: RequestId) -> u32 {
    (request.0 >> LOCAL_BITS) as u32 // the rest of 64 bits fits
}

/// The request's number within its lane.
pub(super) const fn inside(request: RequestId) -> RequestId {
    RequestId(request.0 & ((1 << LOCAL_BITS) - 1))
}

/// What several peers' estimators expect of the link they share. Each sees only what is left to
/// it, so the rates of those that are in use are added up. The link is known if one knows it,
/// and out only if all say so.
pub(super) fn combine(forecasts: impl IntoIterator<Item = Forecast>) -> Option<Forecast> {
    forecasts.into_iter().reduce(|a, b| {
        let (a, b) = (only_live(a, b), only_live(b, a));
        Forecast {
            rate: sum(a.rate, b.rate),
            available: sum(a.available, b.available),
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
    if silent(&this) && !silent(&other) { Forecast { rate: None, available: None, ..this } } else { this }
}

fn sum(a: Option<Rate>, b: Option<Rate>) -> Option<Rate> {
    match (a, b) {
        (Some(a), Some(b)) => Rate::from_bits(a.bits().saturating_add(b.bits())),
        (a, b) => a.or(b),
    }
}

/// A time that is due, or `None`.
pub(super) fn is_due(at: Option<Time>, now: Time) -> bool {
    at.is_some_and(|at| at <= now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_out_and_come_in() {
        let lane = Lane::new(7, scheduler::Config::default());
        let outside = lane.outside(RequestId(123));
        assert_eq!((lane_of(outside), inside(outside)), (7, RequestId(123)));
    }

    #[test]
    fn forecasts_of_a_shared_link_add_up() {
        let f = |mbit: u64, state| Forecast { rate: Some(Rate::mbit(mbit)), available: None, state, measured: None };
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
