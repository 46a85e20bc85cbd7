//! The pace of a copy in cells: between what constant service allows and mean-value analysis row by row
//! ([`remora_model::pipeline`]).

use remora_model::Resource;

use super::book::Pad;
use super::expr::{Cond, Expr, most, sum, when};

/// Windows up to this size fit into a sheet.
pub(super) const WINDOW_ROWS: u32 = 256;
/// Rows of the analysis at least, so that the window may be widened.
const ROWS_MIN: u32 = 32;
/// From here on how much service times vary is no more than a guess.
const SURELY_VARIES: f64 = 0.1;

/// A place as blocks fill it.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) spot: Resource,
    pub(super) name: String,
    /// Time that a block needs there.
    pub(super) demand: Expr,
    /// Share of its time that others use.
    pub(super) open: Expr,
    /// Time from block to block if the copy fills what others leave.
    pub(super) filled: Expr,
    /// Variance of that time.
    pub(super) variance: Expr,
}

/// A copy's round.
pub(super) struct Round<'a> {
    pub(super) window: &'a Expr,
    /// The file's, which tells how many rows there are.
    pub(super) window_now: u32,
    pub(super) think: &'a Expr,
    /// A block's whole round without other blocks.
    pub(super) alone: &'a Expr,
    pub(super) servers: &'a [Server],
}

/// What comes of it.
pub(super) struct Paced {
    pub(super) rate: Expr,
    /// The most that others use of a place.
    pub(super) fullest: Expr,
    /// By how much chance may slow the copy down.
    pub(super) chance: Expr,
}

impl Round<'_> {
    /// Blocks a second; no value where a place has no time left.
    pub(super) fn rate(&self, pad: &mut Pad<'_>) -> Paced {
        let servers = self.servers;
        let busiest = pad.put("busiest place", "s", most(servers.iter().map(|s| s.filled.clone())));
        let pace = self.window / self.alone;
        let constant = when(&busiest.gt(0.0), pace.min(1.0 / &busiest), &pace);
        let constant = pad.put("pace with constant service", "1/s", constant);
        let all = pad.put("all places", "s", sum(servers.iter().map(|s| s.filled.clone())));
        let inside = (self.alone - self.think).max(0.0);
        let share = when(&all.gt(0.0), (inside / &all).min(1.0), 0.0);
        let share = pad.put("their part of the round", "", share);
        let outside = pad.put("rest of the round", "s", self.alone - &share * all);
        let exponential = self.analysis(pad, &busiest, &share, &outside);
        let square = |s: &Server| s.filled.powi(2);
        let squares = pad.put("squares of the places' times", "s2", sum(servers.iter().map(square)));
        let vary = servers.iter().map(|s| square(s) * (&s.variance / square(s).max(1e-24)).min(1.0));
        let variation = when(&squares.gt(0.0), (sum(vary) / &squares).sqrt(), 0.0);
        let variation = pad.put("how near to exponential service", "", variation);
        let rate = &constant + (&exponential - &constant) * &variation;
        let full = |s: &Server| when(&s.demand.gt(0.0), &s.open, 0.0);
        let fullest = pad.put("most used by others", "", most(servers.iter().map(full)));
        let fits: Cond = fullest.lt(1.0).and(&self.alone.gt(0.0)).and(&self.window.le(f64::from(self.rows())));
        let chance = (1.0 - exponential / constant) * (variation / SURELY_VARIES).min(1.0);
        let chance = pad.put("what chance may cost", "", chance);
        Paced { rate: pad.put("pace of all places", "1/s", rate.only_if(&fits)), fullest, chance }
    }

    /// How wide a window there are rows for.
    pub(super) fn rows(&self) -> u32 {
        self.window_now.next_power_of_two().clamp(ROWS_MIN, WINDOW_ROWS)
    }

    /// The rate by mean-value analysis, a step for each block of the window.
    fn analysis(&self, pad: &mut Pad<'_>, busiest: &Expr, share: &Expr, outside: &Expr) -> Expr {
        let mut queued = vec![Expr::from(0.0); self.servers.len()];
        let mut last = Expr::from(0.0);
        for n in 1..=self.rows() {
            let wait = sum(self.servers.iter().zip(&queued).map(|(s, q)| &s.filled * (share + q)));
            let rate = f64::from(n) / (outside + wait);
            let rate = when(&busiest.gt(0.0), rate.min(1.0 / busiest), rate);
            let rate = pad.put(&format!("{n} under way: pace"), "1/s", rate);
            for (q, s) in queued.iter_mut().zip(self.servers) {
                *q = pad.put(&format!("{n} under way: at {}", s.name), "", &rate * &s.filled * (share + &*q));
            }
            last = when(&self.window.lt(f64::from(n)), &last, &rate);
            last = pad.put(&format!("{n} under way, or the window: pace"), "1/s", last);
        }
        last
    }
}
