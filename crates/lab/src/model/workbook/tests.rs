//! Cells against the model.
//!
//! `crates/cli/tests/model_people/sheet.rs` checks that spreadsheet programs compute the same from the texts.

use remora_model::{FlowReport, Network, Reason, Seconds, Topology};
use remora_sim::network::check::{Case, Submodel};

use super::book::Book;
use super::results::ResultCells;
use super::{Spreadsheet, network};
use crate::model::input::inputs;
use crate::model::{examples, workbook};

fn filled(topology: &Topology) -> (Network, Book, ResultCells) {
    let network = Network::new(topology.clone()).unwrap();
    workbook::refuse_network(&network).unwrap();
    let mut book = Book::default();
    let results = network::fill(&network, &network.solve(), &mut book);
    workbook::refuse_book(&book).unwrap();
    (network, book, results)
}

#[track_caller]
fn same(what: &str, cell: f64, model: Option<f64>) {
    match model {
        None => assert!(cell.is_nan(), "{what}: {cell}, the model has none"),
        Some(model) => {
            let near = (cell - model).abs() <= 1e-6 * model.abs() + 1e-15;
            assert!(near, "{what}: {cell}, the model says {model}");
        }
    }
}

/// Compares all result cells with the model.
fn check(name: &str, topology: &Topology) {
    let (network, _, results) = filled(topology);
    let report = network.solve();
    let counts = (results.flows.len(), results.media.len(), results.gateways.len(), results.copy.iter().len());
    assert_eq!(counts, (report.flows.len(), report.media.len(), report.gateways.len(), report.copies.len()), "{name}");
    for (i, (cells, flow)) in results.flows.iter().zip(&report.flows).enumerate() {
        let what = format!("{name}: flow {i}");
        for (at, _, delay) in &cells.media {
            same(&format!("{what}, part {}", 2 * at), delay.value(), flow.parts[2 * at].delay_s);
        }
        for (at, _, delay) in &cells.gateways {
            same(&format!("{what}, part {}", 2 * at + 1), delay.value(), flow.parts[2 * at + 1].delay_s);
        }
        same(&what, cells.delay().value(), flow.delay_s.value().copied());
        same(&what, cells.pps.value(), Some(flow.packets_per_s));
    }
    for (cells, medium) in results.media.iter().zip(&report.media) {
        let what = format!("{name}: {}", medium.name);
        same(&format!("{what} load"), cells.load.value(), Some(medium.load));
        same(&format!("{what} busy"), cells.busy.value(), medium.busy);
        same(&format!("{what} offered"), cells.offered.value(), Some(medium.offered_packets_per_s));
        same(&format!("{what} carried"), cells.carried.value(), medium.carried_packets_per_s);
        same(&format!("{what} mean"), cells.bits.value(), Some(medium.mean_bits));
        same(&format!("{what} delay"), cells.delay.value(), medium.delay_s.as_ref().and_then(|d| d.value().copied()));
    }
    for ((queue, delay), gateway) in results.gateways.iter().zip(&report.gateways) {
        same(&format!("{name}: {}", gateway.name), queue.busy.value(), Some(gateway.utilisation));
        same(&format!("{name}: {}", gateway.name), delay.value(), gateway.delay_s.value().copied());
    }
    for (cells, copy) in results.copy.iter().zip(&report.copies) {
        let outcome = copy.outcome.value();
        same(&format!("{name}: copy"), cells.seconds.value(), outcome.map(|o| o.seconds));
        same(&format!("{name}: copy's rate"), cells.bits_per_s.value(), outcome.map(|o| o.bits_per_s));
        same(&format!("{name}: copy's block"), cells.response.value(), outcome.map(|o| o.response_s));
    }
}

/// Random networks of one submodel: flows alone within the bands, with copies where nothing is nearly saturated. Beyond,
/// sheet and model stop their iterations at other points.
fn drawn(submodel: Submodel, copies: bool) -> impl Iterator<Item = Case> {
    let is_comparable = move |case: &Case| {
        let report = Network::new(case.topology.clone()).unwrap().solve();
        let is_steady = |flow: &FlowReport| flow.delay_s.value().is_some_and(|seconds| *seconds < 1000.0);
        let flows = |flow| if copies { is_steady(flow) } else { flow.delay_s.is_answered() };
        report.flows.iter().all(flows) && report.media.iter().all(|medium| medium.load < 0.95)
    };
    (0..1000).map(move |number| Case::draw(submodel, copies, 11, number)).filter(is_comparable)
}

/// A campus is larger than a workbook.
fn submodels() -> impl Iterator<Item = Submodel> {
    Submodel::ALL.into_iter().filter(|submodel| *submodel != Submodel::Campus)
}

#[test]
fn cells_match_the_model_for_flows() {
    for submodel in submodels() {
        for case in drawn(submodel, false).take(2) {
            check(&format!("{submodel:?} {}", case.number), &case.topology);
        }
    }
}

#[test]
fn cells_match_the_model_for_copies() {
    for submodel in submodels() {
        let mut case = drawn(submodel, true).next().unwrap();
        case.topology.copies.truncate(1);
        check(&format!("{submodel:?} copy"), &case.topology);
    }
}

#[test]
fn cells_match_the_model_for_examples() {
    check("office", &examples::office());
    check("figure 10", &examples::copy89(1034.0));
}

/// Packets slightly too slow for a burst queue if other traffic delays them.
#[test]
fn cells_match_the_model_for_delayed_bursts() {
    check("trickle", &examples::trickle());
}

#[test]
fn cells_match_the_model_for_two_wireless_cells() {
    let mut topology = examples::cells();
    check("two cells", &topology);
    topology.media.swap(0, 1);
    check("two cells, swapped", &topology);
}

#[test]
fn cells_match_the_model_for_think_time_in_bad_periods() {
    let mut topology = examples::office();
    let copy = &mut topology.copies[0];
    (copy.to, copy.think) = ("robots".into(), Seconds::new(0.05).unwrap());
    check("robots", &topology);
}

#[test]
fn cells_match_the_model_for_equal_names() {
    for name in ["floor", "backbone", "servers software", "desks disk"] {
        let mut topology = examples::office();
        topology.gateways[0].name = name.into();
        check(name, &topology);
    }
}

#[test]
fn cells_match_the_model_for_an_empty_flow_and_a_copy() {
    let (network, _, results) = filled(&examples::copy89(0.0));
    assert!(network.solve().flows[0].delay_s.outside().contains(&Reason::BesideCopy));
    let told = results.flows[0].doubts.iter().filter(|(doubt, _)| doubt.value() == Some(true));
    let told: Vec<&str> = told.map(|(_, text)| text.as_str()).collect();
    assert!(told.iter().any(|text| text.contains("beside a copy")), "{told:?}");
}

#[test]
fn cells_match_the_model_for_a_file_below_the_window() {
    for (bytes, blocks) in [(1, 1), (8192, 1), (20_000, 3), (24_576, 3)] {
        let mut topology = examples::office();
        topology.copies.truncate(1);
        let copy = topology.copies.first_mut().unwrap();
        (copy.file_bytes, copy.block_bytes, copy.window) = (bytes, 8192, 16);
        check("short", &topology);
        let seconds = |window| {
            let mut topology = topology.clone();
            topology.copies[0].window = window;
            Network::new(topology).unwrap().solve().copies[0].outcome.value().unwrap().seconds
        };
        assert_eq!(seconds(16), seconds(blocks));
        // A part of a block counts as that part.
        assert!(blocks == 1 || bytes % 8192 != 0 || seconds(1) > seconds(blocks), "{bytes}");
    }
}

#[test]
fn simulated_figures_are_constants_of_the_sheet() {
    let network = Network::new(examples::copy89(1034.0)).unwrap();
    let formulas = network.solve();
    let mut answered = formulas.clone();
    answered.flows[0].delay_s.simulate(0.0123, Some(0.0004));
    answered.media[0].delay_s.as_mut().unwrap().saturate();
    let cells = |report| {
        let mut book = Book::default();
        network::fill(&network, report, &mut book);
        book.cells()
    };
    // A heading of five cells, two names, six figures, two remarks.
    assert_eq!(cells(&answered) - cells(&formulas), 15);
}

/// Overload, no senders, no processors, no bad periods.
#[test]
fn cells_match_the_model_for_extreme_networks() {
    for (key, factor) in [("rate", 30.0), ("rate", 0.0), ("cost", 0.0), ("cost", 40.0), ("bad", 0.0), ("bad", 10.0)] {
        let mut topology = examples::office();
        topology.copies.clear();
        for input in inputs(&topology.clone()).into_iter().filter(|i| i.name.ends_with(key)) {
            if !input.name.starts_with("medium") || key == "bad" {
                let value = input.get(&topology).unwrap() * factor;
                input.set(&mut topology, value).unwrap();
            }
        }
        check(&format!("{key} times {factor}"), &topology);
    }
}

#[test]
fn network_too_large_is_refused_by_name() {
    let of = |change: fn(&mut Topology)| {
        let mut topology = examples::office();
        change(&mut topology);
        let network = Network::new(topology).unwrap();
        Spreadsheet::of(&network, &network.solve()).err().map(|why| why.to_string())
    };
    assert_eq!(of(|_| {}), None);
    for (change, words) in [
        ((|t| t.copies.push(t.copies[0].clone())) as fn(&mut Topology), "copy 2 (servers > desks)"),
        (|t| t.copies[0].window = 4000, "copy 1 (servers > desks): a window of 4000"),
        (|t| t.flows = vec![t.flows[0].clone(); 300], "300 flows"),
    ] {
        let why = of(change).unwrap();
        assert!(why.contains(words), "{why}");
    }
}
