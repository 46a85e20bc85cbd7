//! Shared Ethernet in cells: the fixed point of [`remora_model::ethernet`] round by round, and its attempts
//! row by row.

use remora_model::ethernet::{
    ATTEMPTS_MAX, BUSY_MAX, DOUBLINGS_MAX, FRAGMENT_BITS, GAP_BITS, JAM_BITS, RETRY_MAX, ROUNDS, SLOT_BITS, fitted,
};

use super::book::Pad;
use super::expr::{Expr, sum, when};
use super::traffic::{Moments, Traffic};

/// A station on a shared Ethernet.
pub(super) struct Sender<'a> {
    pub(super) rate: &'a Expr,
    pub(super) propagation: &'a Expr,
    /// What all stations send together.
    pub(super) all: &'a Traffic,
    /// What this one sends.
    pub(super) own: &'a Traffic,
}

/// What a frame at the head of its station's queue goes through; all without a value where the medium is
/// asked for more than it can carry.
pub(super) struct Access {
    /// Time until it has arrived.
    pub(super) time: Moments,
    /// The same for a frame that has waited at its own station.
    pub(super) next: Moments,
    /// Share of the time that the medium is held.
    pub(super) busy: Expr,
}

/// Cells that the rounds and the attempts have in common.
struct Base {
    gap: Expr,
    collision: Expr,
    others: Expr,
    own_share: Expr,
    frame: Expr,
    met: Expr,
    own: Moments,
}

impl Sender<'_> {
    /// Follows a frame through its attempts.
    pub(super) fn settle(&self, pad: &mut Pad<'_>) -> Access {
        let base = self.base(pad);
        let (first, retry, busy) = self.rounds(pad, &base);
        let fits = busy.lt(1.0);
        let busy = pad.put("share of the time that the medium is held", "", busy.only_if(&fits));
        let time = self.attempts(pad, &base, &first, &retry, &(&base.others * &busy));
        let next = spared(pad, &base, &time);
        Access { time, next, busy }
    }

    fn base(&self, pad: &mut Pad<'_>) -> Base {
        let (rate, all, own) = (self.rate, self.all, self.own);
        let share = when(&all.bits.gt(0.0), (&own.bits / &all.bits).max(0.0).min(1.0), 0.0);
        let own_share = pad.put("share of all that this station sends", "", share);
        let others = pad.put("share of the others", "", 1.0 - &own_share);
        let gap = pad.put("gap behind a frame", "s", self.propagation + GAP_BITS / rate);
        let seen = (FRAGMENT_BITS / rate).max(self.propagation + JAM_BITS / rate);
        let collision = pad.put("a collision", "s", &gap + seen);
        let frame = all.service(pad, "a frame", rate, &Expr::from(0.0));
        let held = all.service(pad, "a frame and its gap", rate, &gap);
        let met = when(&frame.mean.gt(0.0), &held.second / &held.mean, 0.0);
        let met = pad.put("frame that is met under way", "s", met);
        // A silent station's frame is like those of the others.
        let speaks = own.pps.gt(0.0);
        let (mine, theirs) = (
            own.service(pad, "own frame until it has arrived", rate, self.propagation),
            all.service(pad, "any frame until it has arrived", rate, self.propagation),
        );
        let of = |mine: &Expr, theirs: &Expr| when(&speaks, mine, theirs);
        let mean = pad.put("this station's frame: mean", "s", of(&mine.mean, &theirs.mean));
        let second = pad.put("this station's frame: mean of the square", "s2", of(&mine.second, &theirs.second));
        Base { gap, collision, others, own_share, frame: frame.mean, met, own: Moments { mean, second } }
    }

    /// The fixed point of the collision chances, from no collision upwards: first, retry, busy.
    fn rounds(&self, pad: &mut Pad<'_>, base: &Base) -> (Expr, Expr, Expr) {
        let slots = self.propagation * self.rate / SLOT_BITS;
        let offered = pad.put("others' frames", "1/s", &base.others * &self.all.pps);
        let plain = pad.put("held without collisions", "", &self.all.pps * (&base.frame + &base.gap));
        let lost = pad.put("held by a collision for each frame", "", &self.all.pps * &base.collision / 2.0);
        let heard = pad.put("retry: part of the time counted as busy", "", 1.0 - fitted::RETRY_OWN * &base.own_share);
        let unheard = pad.put("first: collides unheard", "", 1.0 - (0.0 - &offered * 2.0 * self.propagation).exp());
        let again = pad.put("retry: unheard", "", fitted::RETRY_UNHEARD * slots);
        let (mut first, mut retry, mut busy) = (Expr::from(0.0), Expr::from(fitted::RETRY_IDLE), Expr::from(0.0));
        for round in 1..=ROUNDS {
            let label = |what: &str| format!("round {round}: {what}");
            busy = pad.put(&label("busy"), "", &plain + &first / (1.0 - &retry) * &lost);
            let busy_others = (&base.others * &busy).min(BUSY_MAX);
            let busy_retry = (&heard * &busy).min(BUSY_MAX);
            let joining = &offered * (&base.met * (1.0 + fitted::JOINING * &first) + &base.gap);
            let next = &busy_others * (1.0 - (0.0 - joining).exp()) + (1.0 - &busy_others) * &unheard;
            let idle = &again * (1.0 - &busy_retry);
            let retry_next = (fitted::RETRY_IDLE + idle + fitted::RETRY_BUSY * busy_retry).min(RETRY_MAX);
            first = pad.put(&label("first attempt collides"), "", next);
            retry = pad.put(&label("a later one does"), "", retry_next);
        }
        (first, retry, busy)
    }

    /// Mean and second moment of the time through all attempts.
    fn attempts(&self, pad: &mut Pad<'_>, base: &Base, first: &Expr, retry: &Expr, busy: &Expr) -> Moments {
        let slot = pad.put("slot", "s", SLOT_BITS / self.rate);
        let rest = |pad: &mut Pad<'_>, what: &str, factor: f64| {
            let wait = pad.put(&format!("{what} waits for a frame under way"), "s", factor * busy * &base.met / 2.0);
            let square = factor * busy * base.met.powi(2) / 3.0;
            let variance = (square - wait.powi(2)).max(0.0);
            (wait, pad.put(&format!("{what}: variance of that"), "s2", variance))
        };
        let (wait, variance) = rest(pad, "first attempt", fitted::FIRST_REST);
        let mean = pad.put("without collision", "s", &base.own.mean + wait);
        let variance = pad.put("without collision: variance", "s2", base.own.variance() + variance);
        let (wait, more) = rest(pad, "retry", fitted::RETRY_REST);
        let each = pad.put("cost of each collision, back-off apart", "s", &base.collision + wait);
        let chance = pad.put("ends at attempt 1: chance", "", 1.0 - first);
        let mut means = vec![&chance * &mean];
        let mut squares = vec![&chance * (mean.powi(2) + &variance)];
        let (mut collided, mut waited, mut spread) = (first.clone(), 0.0, 0.0);
        for k in 1..ATTEMPTS_MAX {
            let window = f64::from(1u32 << k.min(DOUBLINGS_MAX));
            waited += (window - 1.0) / 2.0;
            spread += (window * window - 1.0) / 12.0;
            // What fails at last is counted with what it has cost until then.
            let ends = if k + 1 < ATTEMPTS_MAX { &collided * (1.0 - retry) } else { collided.clone() };
            let chance = pad.put(&format!("ends at attempt {}: chance", k + 1), "", ends);
            let time = &mean + f64::from(k) * &each + waited * &slot;
            let time = pad.put(&format!("ends at attempt {}: after", k + 1), "s", time);
            let square = time.powi(2) + &variance + f64::from(k) * &more + spread * slot.powi(2);
            means.push(&chance * &time);
            squares.push(&chance * square);
            collided = collided * retry;
            if k % 4 == 0 {
                collided = pad.put(&format!("collides {} times: chance", k + 1), "", collided);
            }
        }
        Moments {
            mean: pad.put("time through all attempts: mean", "s", sum(means)),
            second: pad.put("time through all attempts: mean of its square", "s2", sum(squares)),
        }
    }

    /// Mean time from a frame's arrival at its station to its arrival at the other end.
    pub(super) fn delay(&self, pad: &mut Pad<'_>, access: &Access) -> Expr {
        let (first, next, rate) = (&access.time, &access.next, &self.own.pps);
        let busy_first = pad.put("station busy with first frames", "", rate * &first.mean);
        let busy_next = pad.put("station busy with next frames", "", rate * &next.mean);
        let often = pad.put("frames of a busy period, inverse", "", 1.0 - &busy_next + &busy_first);
        let wait =
            rate * &next.second / (2.0 * (1.0 - &busy_next)) + rate * (&first.second - &next.second) / (2.0 * &often);
        let wait = pad.put("wait at the own station", "s", wait.only_if(&busy_next.lt(1.0)));
        let idle = pad.put("chance that a frame finds none before it", "", (1.0 - busy_next) / often);
        let delay = wait.max(0.0) + &idle * &first.mean + (1.0 - &idle) * &next.mean;
        pad.put("delay of the station's average frame", "s", delay)
    }
}

/// The time of a frame that has waited for another one at its station: a part of the contention less.
fn spared(pad: &mut Pad<'_>, base: &Base, time: &Moments) -> Moments {
    let alone = pad.put("variance without others", "s2", base.own.variance());
    let contention = (&time.second - time.mean.powi(2) - &alone).max(0.0);
    let left = 1.0 - fitted::SPARED;
    let mean = &base.own.mean + &base.gap + left * (&time.mean - &base.own.mean);
    let mean = pad.put("time of one that has waited: mean", "s", mean);
    let second = mean.powi(2) + alone + left * left * contention;
    let second = pad.put("time of one that has waited: mean of its square", "s2", second);
    Moments { mean, second }
}

/// Frames a second that the medium carries when every station always has one (Metcalfe & Boggs 1976).
pub(super) fn capacity(rate: &Expr, propagation: &Expr, stations: &Expr, frame: &Expr) -> Expr {
    let n = stations.max(1.0);
    let success = when(&n.gt(1.0), (1.0 - 1.0 / &n).power(&(&n - 1.0)), 1.0);
    let contention = (1.0 - &success) / &success * (SLOT_BITS / rate);
    1.0 / (frame + propagation + GAP_BITS / rate + contention)
}
