//! Single queues in cells: Pollaczek & Khinchine, and arrivals that come out of other queues
//! ([`remora_model::queue`]).

use super::book::Pad;
use super::expr::{Expr, when};
use super::traffic::Moments;

/// A queue with one server.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    pub(super) arrivals: Expr,
    pub(super) service: Moments,
    pub(super) busy: Expr,
    pub(super) scv: Expr,
    /// Mean wait with Poisson arrivals; no value where it can't keep up.
    pub(super) wait: Expr,
}

impl Queue {
    /// Three cells.
    pub(super) fn put(pad: &mut Pad<'_>, what: &str, arrivals: &Expr, service: Moments) -> Queue {
        let busy = pad.put(&format!("{what}: utilisation"), "", arrivals * &service.mean);
        let scv = pad.put(&format!("{what}: variation of service"), "", service.scv());
        let wait = arrivals * &service.second / (2.0 * (1.0 - &busy));
        let wait = pad.put(&format!("{what}: M/G/1 wait"), "s", wait.only_if(&busy.lt(1.0)));
        Queue { arrivals: arrivals.clone(), service, busy, scv, wait }
    }

    /// How much more regular than Poisson departures are if arrivals are so by `regular` (Whitt 1983).
    pub(super) fn departures(&self, regular: &Expr) -> Expr {
        let busy = self.busy.max(0.0).min(1.0).powi(2);
        (&busy * (1.0 - &self.scv) + (1.0 - &busy) * regular).max(0.0).min(1.0)
    }

    /// The wait of arrivals that are more regular than Poisson (Kraemer & Langenbach-Belz 1976).
    pub(super) fn wait_of(&self, regular: &Expr) -> Expr {
        let both = &self.scv + (1.0 - regular);
        let few = 0.0 - 2.0 * (1.0 - &self.busy) * regular.powi(2) / (3.0 * &self.busy * &both);
        let wait = &self.wait * &both / (1.0 + &self.scv) * few.exp();
        // Without arrivals nobody waits; a queue that can't keep up has no wait at all.
        let idle = when(&self.busy.lt(1.0), 0.0, Expr::none());
        when(&self.busy.gt(0.0).and(&both.gt(0.0)), wait, idle)
    }

    /// What packets need not wait at a second queue as fast as this one (Rubin 1974; below 0 where long
    /// packets are caught up with): 0 where this one can't keep up.
    pub(super) fn waited_before(&self) -> Expr {
        let busy = self.busy.min(1.0);
        let light = 1.0 - (2.5 * &self.scv + self.scv.sqrt()) / (1.0 + &self.scv);
        let spaced = &light + (1.0 - &light) * (&busy * (0.6 + 0.28 * (&busy * &busy)));
        (&self.wait * spaced).or(0.0)
    }
}
