//! Copies without end: they wait in queues that flows alone overload.
//!
//! With a large window, the rate of such a copy falls too slowly to be seen in a run, and meanwhile
//! it takes capacity that it does not have in the end. It is left out of simulations.

use std::collections::BTreeMap;

use remora_model::queue::PROCESSOR;
use remora_model::ring::Discipline;
use remora_model::{Kind, Network, Reason, Report};

use super::super::selection::{Place, places};

/// Whether each copy has no end, where the offered traffic alone decides that. `open` is the report
/// without copies.
pub(super) fn endless_copies(network: &Network, open: &Report) -> Vec<bool> {
    let loads = loads(network, open);
    let is_full = |(place, _): &(Place, usize)| loads.get(place).is_some_and(|load| *load >= 1.0);
    let routes = network.copy_routes().iter();
    routes.map(|(there, back)| [there, back].into_iter().any(|way| places(network, way).iter().any(is_full))).collect()
}

/// The load of places by flows, which is exact or too low: flows do not count behind a queue that
/// may grow.
fn loads(network: &Network, open: &Report) -> BTreeMap<Place, f64> {
    let mut loads = BTreeMap::new();
    for (flow, (route, about)) in network.flow_routes().iter().zip(&open.flows).enumerate() {
        let processor_full = about.delay_s.outside().contains(&Reason::Saturated { formula: PROCESSOR.name });
        for (place, element) in places(network, route) {
            let before = element.saturating_sub(1).min(about.parts.len());
            let is_reached =
                element == 0 || !processor_full && about.parts[..before].iter().all(|p| p.delay_s.is_some());
            if is_reached {
                *loads.entry(place).or_insert(0.0) += about.packets_per_s * seconds(network, place, flow);
            }
        }
    }
    loads
}

/// The share of a second that a packet of a flow takes of each queue of a place; 0 where the
/// capacity is not exactly known, or queues with little traffic do not grow.
fn seconds(network: &Network, place: Place, flow: usize) -> f64 {
    let topology = network.topology();
    let bits = topology.flows[flow].size.mean_bits();
    let on = |medium: usize| bits / topology.media[medium].rate.bits() as f64;
    match place {
        Place::Processor(group) => topology.groups[group].cost.get() / f64::from(topology.groups[group].stations),
        Place::Gateway(gateway) => topology.gateways[gateway].cost.get(),
        Place::From(medium, port) | Place::To(medium, port) => on(medium) / network.ports(medium)[port],
        Place::Medium(medium) => match topology.media[medium].kind {
            Kind::Ring { discipline: Discipline::Exhaustive | Discipline::Gated, .. } => on(medium),
            Kind::Ring { .. } | Kind::Ethernet { .. } | Kind::Wifi { .. } | Kind::Switch { .. } => 0.0,
        },
    }
}
