//! Token rings in cells ([`remora_model::ring`]).

use remora_model::ring::Discipline;

use super::book::Pad;
use super::expr::{Expr, sum, when};
use super::loads::Port;
use super::traffic::{Moments, Traffic};

/// A ring and its load, but for the station in question.
pub(super) struct Ring<'a> {
    pub(super) discipline: Discipline,
    pub(super) rate: &'a Expr,
    pub(super) around: Expr,
    stations: Expr,
    walk: Expr,
    squares: Expr,
    met_squares: Expr,
}

impl<'a> Ring<'a> {
    /// Four cells about the ring itself.
    pub(super) fn put(
        pad: &mut Pad<'_>,
        (discipline, walk): (Discipline, &Expr),
        rate: &'a Expr,
        ports: &[Port],
    ) -> Ring<'a> {
        let stations = pad.put("stations on the ring", "", sum(ports.iter().map(|p| p.stations.clone())).max(1.0));
        let around = pad.put("token's way once around", "s", &stations * walk);
        let square = |p: &Port| &p.stations * (&p.sends.bits / rate).powi(2);
        let squares = pad.put("squares of the stations' loads", "", sum(ports.iter().map(square)));
        let all = sum(ports.iter().map(|p| &p.stations * &p.sends.bits2));
        let of = sum(ports.iter().map(|p| &p.stations * (&p.sends.bits / rate) * &p.sends.bits2));
        let met = when(&all.gt(0.0), of / all, 0.0);
        let met_squares = pad.put("the same, by the work under way", "", met);
        Ring { discipline, rate, around, stations, walk: walk.clone(), squares, met_squares }
    }

    /// Mean wait of a station that sends `own` while all send `load`, whose time to send is `service`.
    pub(super) fn wait(&self, pad: &mut Pad<'_>, load: &Traffic, service: &Moments, own: &Traffic) -> Wait {
        let busy = pad.put("ring's utilisation", "", &load.pps * &service.mean);
        let left = 1.0 - &busy;
        let own_busy = pad.put("station's load", "", &own.bits / self.rate);
        let met = when(&load.pps.gt(0.0), &own.bits2 / load.bits2.max(1e-300), 0.0);
        let met = pad.put("station's part of the work under way", "", met);
        let one_by_one = self.discipline == Discipline::OneLimited;
        let limit = if one_by_one { own.pps.clone() } else { Expr::from(0.0) };
        let own_left = pad.put("station's tokens left", "", &left - limit * &self.around);
        let walks = &self.walk * load.pps.max(&own.pps * &self.stations);
        let share = if one_by_one { &busy + walks } else { busy.clone() };
        let share = pad.put("share of what the ring can carry", "", share);
        let square = pad.put("squares, over the load", "", when(&busy.gt(0.0), &self.squares / &busy, 0.0));
        let queue = &load.pps * &service.second / (2.0 * &left);
        let queue = pad.put("wait in one queue of all", "s", queue);
        let walking = pad.put("half a cycle", "s", &self.around / (2.0 * &left));
        let part = pad.put("station's part of the wait", "", &left * &busy * met + &busy * &own_busy);
        let parts = pad.put("all stations' parts", "", &left * &self.met_squares + &busy * &square);
        let wait = match self.discipline {
            Discipline::Exhaustive => queue * (1.0 - part) / (1.0 - parts) + walking * (1.0 - &own_busy),
            Discipline::Gated => queue * (1.0 + part) / (1.0 + parts) + walking * (1.0 + &own_busy),
            Discipline::OneLimited => {
                let law = queue + &self.around / 2.0 + walking * (&busy + &square);
                law * (&left + &own_busy) / &own_left * &left / (&left + square)
            }
        };
        let fits = busy.lt(1.0).and(&share.lt(1.0)).and(&own_left.gt(0.0));
        let wait = pad.put("wait for the token", "s", wait.only_if(&fits));
        Wait { wait, busy, share, own_busy }
    }
}

/// What a station waits, and what that comes from.
pub(super) struct Wait {
    pub(super) wait: Expr,
    pub(super) busy: Expr,
    pub(super) share: Expr,
    pub(super) own_busy: Expr,
}

/// Mean way from a station behind one port to one behind another, as a part of once around. Stations stand in
/// the order of their groups, gateways behind them.
pub(super) fn way(ports: &[Port], from: usize, to: usize) -> Expr {
    let all = sum(ports.iter().map(|p| p.stations.clone()));
    if from == to {
        return Expr::from(0.5);
    }
    let middle = |port: usize| {
        let before = sum(ports.iter().take(port).map(|p| p.stations.clone()));
        before + ports.get(port).map_or(Expr::from(0.0), |p| &p.stations / 2.0)
    };
    // Who stands before the sender is reached behind all others.
    let once = if to > from { Expr::from(0.0) } else { all.clone() };
    (middle(to) - middle(from) + once) / all
}
