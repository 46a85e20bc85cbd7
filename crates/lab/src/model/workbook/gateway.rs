//! Gateways in cells: M/G/1 or, where arrivals come spaced, G/G/1.

use remora_model::Law;

use super::book::{Book, Pad};
use super::expr::{Expr, when};
use super::inputs::Plan;
use super::loads::Loads;
use super::queue::Queue;
use super::traffic::{Moments, Points};

/// A gateway's time for a packet.
pub(super) fn service(plan: &Plan<'_>, gateway: usize) -> Moments {
    let cost = plan.cost(gateway);
    let second = match plan.topology.gateways[gateway].law {
        Law::Constant => cost.powi(2),
        Law::Exponential => 2.0 * cost.powi(2),
    };
    Moments { mean: cost, second }
}

/// The queues of all gateways, a block of `sheet`.
pub(super) fn queues(plan: &Plan<'_>, book: &mut Book, sheet: usize, loads: &Loads) -> Vec<Queue> {
    let names: Vec<String> = plan.topology.gateways.iter().map(|g| g.name.clone()).collect();
    if names.is_empty() {
        return Vec::new();
    }
    let block = book.block(sheet, "Gateways as queues (M/G/1)", &names);
    let of = |i: usize| Queue::put(&mut book.pad(block, i), "queue", &loads.gateways[i].pps, service(plan, i));
    (0..names.len()).map(of).collect()
}

/// How a flow's packets come to a gateway.
pub(super) struct Comes<'a> {
    /// How much more regular than Poisson all that comes is.
    pub(super) regular: &'a Expr,
    /// How much longer than the average packet these take to come in.
    pub(super) longer: Expr,
    /// What they need not wait for others of the same station.
    pub(super) spared: Expr,
}

/// Mean time in a gateway.
pub(super) fn delay(pad: &mut Pad<'_>, queue: &Queue, comes: &Comes<'_>) -> Expr {
    let longer = pad.put("longer to come in than the average packet", "s", &comes.longer);
    let spaced = pad.put("G/G/1 wait", "s", queue.wait_of(comes.regular));
    let least = (queue.wait.or(0.0) - &comes.spared).max(0.0);
    let wait = pad.put("wait, less what is spared", "s", spaced.min(least));
    let left = (0.0 - longer * &queue.busy / &wait).exp();
    let left = when(&wait.gt(0.0), left, 1.0).min(2.0);
    pad.put("delay", "s", wait * left + &queue.service.mean)
}

/// What packets of a group's station need not wait for one another, because its processor has spaced them
/// (Friedman 1965).
pub(super) fn spared(pad: &mut Pad<'_>, plan: &Plan<'_>, loads: &Loads, (group, gateway): (usize, usize)) -> Expr {
    let (cost, service) = (plan.group(group, "cost"), service(plan, gateway));
    let rate = loads.through.get(&(group, gateway)).cloned().unwrap_or_else(|| Expr::from(0.0));
    let points = points(plan, gateway);
    let others = &loads.gateways[gateway].pps * &service.mean - &rate * &service.mean;
    let busy = others.max(0.0) + &rate * points.mean_of(|time| time.min(&cost));
    let busy = pad.put("busy, with what is faster than the processor", "", busy);
    let met = points.mean_of(|time| time.min(&cost).powi(2));
    pad.put("wait that the sender's processor spares", "s", rate * met / (2.0 * (1.0 - busy.min(0.95))))
}

/// Two times that stand for all.
fn points(plan: &Plan<'_>, gateway: usize) -> Points {
    let cost = plan.cost(gateway);
    let (short, long) = match plan.topology.gateways[gateway].law {
        Law::Constant => (cost.clone(), cost),
        Law::Exponential => (Expr::from(0.0), 2.0 * cost),
    };
    Points { short, long, chance: Expr::from(0.5) }
}
