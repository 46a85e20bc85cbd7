//! The report of the formulas, completed by the figures of a simulation.

use remora_model::{Copy, CopyReport, Estimate, Kind, Network, Outcome, Report};

use super::super::selection::Wanted;
use super::figures::{Figure, Figures};

/// Whether the half-width of every wanted figure is at most this share of it. Overloads take long to
/// reach their carried rates, which the half-width does not show.
pub(super) fn is_settled(wanted: &Wanted, figures: &Figures<'_>, share: f64) -> bool {
    let known = |figure: Figure| matches!(figure, Figure::Steady(interval) if interval.relative() <= share);
    wanted.flows.iter().all(|flow| known(figures.flow(*flow)))
        && wanted.media.iter().all(|medium| known(figures.medium(*medium)))
        && wanted.gateways.iter().all(|gateway| known(figures.gateway(*gateway)))
        && wanted.copies.iter().all(|copy| known(figures.copy(*copy)))
}

/// `report` with simulated figures where they are wanted. What no packet reached keeps the
/// formula's value and its reasons.
pub(super) fn complete(network: &Network, report: &Report, wanted: &Wanted, figures: &Figures<'_>) -> Report {
    let mut report = report.clone();
    for flow in &wanted.flows {
        let about = &mut report.flows[*flow];
        let figure = figures.flow(*flow);
        if figure != Figure::Unknown {
            for (part, delay_s) in about.parts.iter_mut().zip(figures.parts(*flow)) {
                part.delay_s = delay_s;
            }
        }
        about.carried_packets_per_s = match &figure {
            Figure::Saturated(carried) => Some(carried.mean),
            Figure::Steady(_) => Some(about.packets_per_s),
            Figure::Unknown => about.carried_packets_per_s,
        };
        put(&mut about.delay_s, &figure);
    }
    for medium in &wanted.media {
        let about = &mut report.media[*medium];
        let figure = figures.medium(*medium);
        if figure != Figure::Unknown {
            let carried = figures.medium_carried(*medium).mean;
            let is_switch = matches!(network.topology().media[*medium].kind, Kind::Switch { .. });
            about.carried_packets_per_s = Some(carried);
            about.busy = if is_switch { about.busy } else { Some(figures.medium_busy(*medium)) };
        }
        about.delay_s.iter_mut().for_each(|delay| put(delay, &figure));
    }
    for gateway in &wanted.gateways {
        let about = &mut report.gateways[*gateway];
        let figure = figures.gateway(*gateway);
        if figure != Figure::Unknown {
            about.carried_packets_per_s = Some(figures.gateway_carried(*gateway).mean);
        }
        if let Some(p95_s) = &mut about.p95_s {
            match figures.gateway_p95(*gateway) {
                _ if matches!(figure, Figure::Saturated(_)) => p95_s.saturate(),
                Some(p95) => p95_s.simulate(p95.mean, p95.half_width),
                None => {}
            }
        }
        put(&mut about.delay_s, &figure);
    }
    for copy in &wanted.copies {
        put_copy(&mut report.copies[*copy], &network.topology().copies[*copy], *copy, figures);
    }
    report
}

fn put(estimate: &mut Estimate<f64>, figure: &Figure) {
    match figure {
        Figure::Steady(interval) => estimate.simulate(interval.mean, interval.half_width),
        Figure::Saturated(_) => estimate.saturate(),
        Figure::Unknown => {}
    }
}

fn put_copy(report: &mut CopyReport, copy: &Copy, number: usize, figures: &Figures<'_>) {
    let interval = match figures.copy(number) {
        Figure::Steady(interval) => interval,
        Figure::Saturated(_) => return report.outcome.saturate(),
        Figure::Unknown => return,
    };
    // A file that fits into the window takes a round.
    let blocks = (copy.file_bytes as f64 / copy.block_bytes as f64).max(f64::from(copy.under_way()));
    let block_bits = copy.block_bytes as f64 * 8.0;
    let mut places = report.outcome.value().map_or(Vec::new(), |outcome| outcome.places.clone());
    let before_s = report.outcome.value().map_or(interval.mean, |outcome| block_bits / outcome.bits_per_s);
    for place in &mut places {
        // The copy's own share of the place changes with its rate.
        place.busy = (place.busy + place.demand_s * (1.0 / interval.mean - 1.0 / before_s)).clamp(0.0, 1.0);
    }
    let outcome = Outcome {
        seconds: blocks * interval.mean,
        bits_per_s: block_bits / interval.mean,
        response_s: figures.response(number).map_or(interval.mean, |response| response.mean),
        places,
    };
    report.outcome.simulate(outcome, interval.half_width.map(|half| half * blocks));
}
