//! The rate of a file copy with a window of blocks. A *round* is the time from the sending of a
//! block until its reply. The packets of a block form a pipeline through the *places*: processors,
//! media and gateways. The blocks form a pipeline through the window.
//!
//! *A block alone.* Its first packet takes at each place its service time `d` and the wait `v` for
//! others' packets. The packets behind it come out spaced by the slowest place: the first place
//! serves them back to back, at later ones others' packets come in between. So a burst of `m`
//! packets takes `sum(d + v) + (m - 1) * max(spacing)`, not `m` times the whole way.
//!
//! *Many blocks.* With constant service times either the window `W`, in blocks, or the busiest place
//! limits the rate: `min(W / round, 1 / busiest)`. With exponential ones blocks queue:
//! mean-value analysis (Reiser & Lavenberg 1980) of the same round. Real copies lie in between, at
//! the point given by the variation of the block's service times; the interpolation is ours.

use crate::formula::{Band, Formula, Quantity};
use crate::formulas::mva::{Pace, WINDOW_MAX};

/// Variations above this are guesses.
const SURELY_VARIES: f64 = 0.1;

/// The times of one packet of a copy at a place.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Stop {
    /// Service time, in seconds.
    pub(crate) service_s: f64,
    /// Wait for others of a burst's first packet, in seconds.
    pub(crate) wait_s: f64,
    /// Time between packets of a burst that arrive together, in seconds.
    pub(crate) spacing_s: f64,
    /// Share of the time between two separate packets taken by others' packets.
    pub(crate) between: f64,
    /// Fixed delay without queueing, in seconds.
    pub(crate) delay_s: f64,
}

impl Stop {
    /// The place without others.
    pub(crate) fn quiet(&self) -> Stop {
        Stop { wait_s: 0.0, spacing_s: self.service_s, between: 0.0, ..*self }
    }
}

/// Duration of a burst along `stops`, in seconds.
pub(crate) fn burst_s(packets: f64, stops: &[Stop]) -> f64 {
    let first: f64 = stops.iter().map(|s| s.service_s + s.wait_s + s.delay_s).sum();
    let mut spacing = 0.0f64;
    for stop in stops {
        // Before the first place with a service time they are all together.
        spacing = spacing.max(stop.spacing_s + stop.between * spacing);
    }
    packets.min(1.0) * first + (packets - 1.0).max(0.0) * spacing
}

/// A place as a server of blocks.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Server {
    /// Service demand of a block, in seconds.
    pub demand_s: f64,
    /// Share of its time used by others.
    pub open: f64,
    /// Time between blocks if the copy saturates what others leave, in seconds.
    pub filled_s: f64,
    /// Squared coefficient of variation of that time.
    pub scv: f64,
}

/// A copy's round.
#[derive(Clone, PartialEq, Debug)]
pub struct Round {
    /// Blocks outstanding (1 to [`WINDOW_MAX`]; larger values count as that).
    pub window: u32,
    /// A block's round without other blocks, in seconds.
    pub alone_s: f64,
    /// Time of it that belongs to no place, in seconds.
    pub think_s: f64,
    /// Delay of a block by the other outstanding blocks on a medium that data and replies share,
    /// beyond that at the places, in seconds.
    pub bunched_s: f64,
    /// Cost of bad periods that the window may outlast, as a share of the time between blocks.
    pub outlasted: f64,
    /// The largest share of bad time of a wireless medium on the way.
    pub bad_share: f64,
    /// Token rotation time of all rings on the way, in seconds; the token's position at an arrival
    /// is random.
    pub around_s: f64,
    pub servers: Vec<Server>,
}

/// The rate of a copy.
pub static PACE: Formula<Round, Pace> = Formula {
    name: "copy",
    source: "a round of bursts; between min(W / round, 1 / busiest), exact for constant service, and mean-value \
             analysis (Reiser & Lavenberg 1980), for exponential service",
    compute: pace,
    bands: &[
        Band { quantity: Quantity::Utilisation, of: most_open, low: 0.0, high: 0.62 },
        Band { quantity: Quantity::Bunching, of: bunching, low: 0.0, high: 0.055 },
        Band { quantity: Quantity::Outlasted, of: |round| round.outlasted, low: 0.0, high: 0.05 },
        Band { quantity: Quantity::BadShare, of: |round| round.bad_share, low: 0.0, high: 0.15 },
        Band { quantity: Quantity::TokenWay, of: token_way, low: 0.0, high: 0.03 },
        Band { quantity: Quantity::Chance, of: chance, low: 0.0, high: 0.08 },
    ],
};

/// The slowdown of a block: none where the busiest place limits a window.
fn bunching(round: &Round) -> f64 {
    if round.window <= 1 {
        return if round.alone_s > 0.0 { round.bunched_s / round.alone_s } else { 0.0 };
    }
    let longer = Round { alone_s: round.alone_s + round.bunched_s, ..round.clone() };
    match (rate(round), rate(&longer)) {
        (Some(as_is), Some(longer)) if longer > 0.0 => as_is / longer - 1.0,
        _ => 0.0,
    }
}

fn token_way(round: &Round) -> f64 {
    if round.alone_s > 0.0 { round.around_s / round.alone_s } else { 0.0 }
}

/// The relative distance of the two extremes, unless service is known to be nearly constant.
fn chance(round: &Round) -> f64 {
    let window = round.window.clamp(1, WINDOW_MAX);
    let (constant, exponential) = (constant(round, window), analysis(round, window, busiest(round)).0);
    if constant <= 0.0 {
        return 0.0;
    }
    (1.0 - exponential / constant) * (variation(round) / SURELY_VARIES).min(1.0)
}

fn most_open(round: &Round) -> f64 {
    round.servers.iter().map(|s| s.open).fold(0.0, f64::max)
}

/// Blocks a second, and the queue at each place by mean-value analysis.
fn between(round: &Round) -> Option<(f64, f64, Vec<f64>)> {
    if round.servers.iter().any(|s| s.open >= 1.0) || round.alone_s <= 0.0 {
        return None;
    }
    let window = round.window.clamp(1, WINDOW_MAX);
    let constant = constant(round, window);
    let (exponential, queued) = analysis(round, window, busiest(round));
    Some((constant + (exponential - constant) * variation(round), exponential, queued))
}

fn rate(round: &Round) -> Option<f64> {
    between(round).map(|(rate, _, _)| rate)
}

fn pace(round: &Round) -> Option<Pace> {
    let (rate, exponential, mut queued) = between(round)?;
    let window = round.window.clamp(1, WINDOW_MAX);
    let scale = if exponential > 0.0 { rate / exponential } else { 1.0 };
    queued.iter_mut().for_each(|q| *q *= scale.min(1.0));
    let busy = round.servers.iter().map(|s| (s.open + rate * s.demand_s).min(1.0)).collect();
    let response_s = (f64::from(window) / rate - round.think_s).max(0.0);
    Some(Pace { requests_per_s: rate, response_s, queued, busy })
}

/// Time between blocks at the slowest place.
fn busiest(round: &Round) -> f64 {
    round.servers.iter().map(|s| s.filled_s).fold(0.0, f64::max)
}

/// The rate with constant service times.
fn constant(round: &Round, window: u32) -> f64 {
    let busiest = busiest(round);
    (f64::from(window) / round.alone_s).min(if busiest > 0.0 { 1.0 / busiest } else { f64::INFINITY })
}

/// Rate and queues by single-class mean-value analysis, where each place's share of the unloaded
/// round is proportional to its time.
fn analysis(round: &Round, window: u32, busiest: f64) -> (f64, Vec<f64>) {
    let all: f64 = round.servers.iter().map(|s| s.filled_s).sum();
    let inside = (round.alone_s - round.think_s).max(0.0);
    let share = if all > 0.0 { (inside / all).min(1.0) } else { 0.0 };
    let outside = round.alone_s - share * all;
    let mut queued = vec![0.0; round.servers.len()];
    let mut rate = 0.0;
    for n in 1..=window {
        let wait: f64 = round.servers.iter().zip(&queued).map(|(s, q)| s.filled_s * (share + q)).sum();
        rate = f64::from(n) / (outside + wait);
        if busiest > 0.0 {
            rate = rate.min(1.0 / busiest);
        }
        for (q, s) in queued.iter_mut().zip(&round.servers) {
            *q = rate * s.filled_s * (share + *q);
        }
    }
    (rate, queued)
}

/// How close to exponential the service is (0 to 1), weighted towards the slowest places.
fn variation(round: &Round) -> f64 {
    let square = |s: &Server| s.filled_s * s.filled_s;
    let all: f64 = round.servers.iter().map(square).sum();
    if all <= 0.0 {
        return 0.0;
    }
    let scv = round.servers.iter().map(|s| square(s) * s.scv.min(1.0)).sum::<f64>() / all;
    scv.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formulas::mva::{self, Centre, Closed};

    fn server(seconds: f64, scv: f64) -> Server {
        Server { demand_s: seconds, open: 0.0, filled_s: seconds, scv }
    }

    fn rate(window: u32, scv: f64, seconds: &[f64]) -> f64 {
        let servers = seconds.iter().map(|s| server(*s, scv)).collect();
        let round = Round {
            window,
            alone_s: 0.5 + seconds.iter().sum::<f64>(),
            think_s: 0.5,
            bunched_s: 0.0,
            outlasted: 0.0,
            bad_share: 0.0,
            around_s: 0.0,
            servers,
        };
        PACE.at(&round).value().unwrap().requests_per_s
    }

    #[test]
    fn constant_service_hides_round_or_saturates_place() {
        for (window, expected) in [(1, 1.0 / 0.9), (2, 2.0 / 0.9), (3, 1.0 / 0.3), (40, 1.0 / 0.3)] {
            assert!((rate(window, 0.0, &[0.1, 0.3]) / expected - 1.0).abs() < 1e-9, "{window}");
        }
    }

    #[test]
    fn exponential_service_equals_mean_value_analysis() {
        let demands = [0.1, 0.3, 0.05];
        for window in [1, 2, 5, 20] {
            let centres = demands.iter().map(|d| Centre { demand_s: *d, open: 0.0 }).collect();
            let exact = mva::PACE.at(&Closed { window, think_s: 0.5, centres });
            let exact = exact.value().unwrap().requests_per_s;
            assert!((rate(window, 1.0, &demands) / exact - 1.0).abs() < 1e-9, "{window}");
        }
    }

    #[test]
    fn burst_is_spaced_by_its_slowest_place() {
        let stop = |service_s, between| Stop { service_s, spacing_s: service_s, between, ..Stop::default() };
        // Ten packets, three places of 1, 2 and 1 s of which others use half of the last.
        let stops = [stop(1.0, 0.0), stop(2.0, 0.0), stop(1.0, 0.5)];
        assert_eq!(burst_s(10.0, &stops), 4.0 + 9.0 * 2.0);
        assert_eq!(burst_s(0.5, &stops), 2.0);
        // The first place serves them back to back, whatever others send.
        assert_eq!(burst_s(3.0, &[stop(1.0, 0.8)]), 3.0);
    }

    #[test]
    fn place_saturated_by_others_has_no_rate() {
        let full = Server { open: 1.0, ..server(0.1, 0.0) };
        assert_eq!(
            PACE.at(&Round {
                window: 1,
                alone_s: 1.0,
                think_s: 0.0,
                bunched_s: 0.0,
                outlasted: 0.0,
                bad_share: 0.0,
                around_s: 0.0,
                servers: vec![full]
            })
            .value(),
            None
        );
    }
}
