//! How regular arrivals are at gateways and behind them, one queue after the other (Whitt 1983), in cells.

use std::collections::BTreeMap;

use super::book::Book;
use super::expr::{Expr, sum, when};
use super::inputs::{Behind, Plan};
use super::loads::Loads;
use super::medium::Cell;
use super::queue::Queue;
use super::traffic::Traffic;

/// Gateways behind one another whose spacing of packets is followed.
const CHAIN: usize = 4;

/// Finds it for all ports, and returns it for what comes to each gateway.
pub(super) fn settle(
    (plan, book, sheet): (&Plan<'_>, &mut Book, usize),
    loads: &mut Loads,
    (cells, gateways): (&[Cell<'_>], &[Queue]),
    flows: &[Traffic],
) -> Vec<Expr> {
    processors(plan, book, sheet, loads);
    let mut regular = vec![Expr::from(0.0); gateways.len()];
    for round in 1..=gateways.len().min(CHAIN) {
        let spaced = spaced(plan, book, (sheet, round), loads, cells);
        let names: Vec<String> = plan.topology.gateways.iter().map(|g| g.name.clone()).collect();
        let block = book.block(sheet, &format!("Regularity at gateways, round {round}"), &names);
        let mut behind = Vec::new();
        for (i, queue) in gateways.iter().enumerate() {
            let mut pad = book.pad(block, i);
            let all = &loads.gateways[i].pps;
            let attached = plan.places(Behind::Gateway(i));
            let share = |(medium, port): &(usize, usize)| {
                let ports = &loads.ports[*medium];
                &ports[*port].receives.pps / all * cells[*medium].regular(ports, *port, &spaced[*medium])
            };
            let comes = sum(attached.iter().map(share)).max(0.0).min(1.0);
            let comes = when(&all.gt(0.0), comes, &regular[i]);
            let comes = pad.put("more regular than Poisson, in", "", comes);
            let out = when(&all.gt(0.0), queue.departures(&comes) / all, 0.0);
            behind.push((attached, pad.put("the same going out, for each packet a second", "s", out)));
            regular[i] = comes;
        }
        for (attached, out) in behind {
            for (medium, port) in attached {
                let port = &mut loads.ports[medium][port];
                port.regular = &out * &port.sends.pps;
            }
        }
        behind_gateways((plan, book, sheet), round, loads, cells, flows);
    }
    regular
}

/// What processors do to their own stations' packets.
fn processors(plan: &Plan<'_>, book: &mut Book, sheet: usize, loads: &mut Loads) {
    let names: Vec<String> = plan.topology.groups.iter().map(|g| g.name.clone()).collect();
    let block = book.block(sheet, "Processors", &names);
    for group in 0..names.len() {
        let (mut pad, handled, cost) = (book.pad(block, group), &loads.handled[group], plan.group(group, "cost"));
        let Some((medium, port)) = plan.places(Behind::Group(group)).first().copied() else { continue };
        let port = &mut loads.ports[medium][port];
        let busy = pad.put("processor of each station: busy", "", (handled * &cost).min(1.0));
        let part =
            pad.put("of that for what it sends", "", when(&handled.gt(0.0), (&port.sends.pps / handled).min(1.0), 0.0));
        port.regular = pad.put("more regular than Poisson", "", busy.powi(2) * part);
        let interrupts = pad.put("busy with what comes in", "", (handled - &port.sends.pps).max(0.0) * &cost);
        port.spacing = pad.put("time for each packet", "s", cost / (1.0 - interrupts.min(0.9)));
    }
}

/// How regular packets come to each medium that all share.
fn spaced(
    plan: &Plan<'_>,
    book: &mut Book,
    (sheet, round): (usize, usize),
    loads: &Loads,
    cells: &[Cell<'_>],
) -> Vec<Expr> {
    let names: Vec<String> = plan.topology.media.iter().map(|m| m.name.clone()).collect();
    let block = book.block(sheet, &format!("Regularity on media, round {round}"), &names);
    let of = |(i, cell): (usize, &Cell<'_>)| {
        book.pad(block, i).put("more regular than Poisson", "", cell.spaced(&loads.ports[i]))
    };
    cells.iter().enumerate().map(of).collect()
}

/// The same at the ports of switches that gateways send to.
fn behind_gateways(
    (plan, book, sheet): (&Plan<'_>, &mut Book, usize),
    round: usize,
    loads: &mut Loads,
    cells: &[Cell<'_>],
    flows: &[Traffic],
) {
    let mut streams: BTreeMap<(usize, usize), BTreeMap<usize, Expr>> = BTreeMap::new();
    for (route, traffic) in plan.network.flow_routes().iter().zip(flows) {
        for hop in route.hops.iter().skip(1).filter(|hop| !cells[hop.medium].links.is_empty()) {
            let from = streams.entry((hop.medium, hop.to)).or_default();
            let rate = from.entry(hop.from).or_insert_with(|| Expr::from(0.0));
            *rate = &*rate + &traffic.pps;
        }
    }
    if streams.is_empty() {
        return;
    }
    let name = |(medium, port): &(usize, usize)| plan.name(plan.ports[*medium][*port]).to_owned();
    let names: Vec<String> = streams.keys().map(name).collect();
    let block = book.block(sheet, &format!("Regularity behind gateways, round {round}"), &names);
    for (column, ((medium, to), streams)) in streams.into_iter().enumerate() {
        let ports = &loads.ports[medium];
        let of = |(from, rate): (usize, Expr)| {
            let (sent, port) = (&ports[from].sends.pps, &ports[to]);
            let received = &port.receives.pps;
            let part = &rate / sent * (&rate / &port.stations / received) / &port.stations;
            let regular = part * cells[medium].regular_out(ports, from);
            when(&sent.gt(0.0).and(&received.gt(0.0)), regular, 0.0)
        };
        let regular = sum(streams.into_iter().map(of)).min(1.0);
        let regular = book.pad(block, column).put("more regular than Poisson", "", regular);
        loads.ports[medium][to].regular_in = regular;
    }
}
