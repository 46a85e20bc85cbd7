//! Networks whose results are known in closed form, and rules that hold for all of them.

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::{Bits, Flow, Group, Kind, Medium, Network, PacketRate, Seconds, Size, Topology};

use super::check::{Case, Submodel};
use super::{Comparison, NEAR, Options, Simulated, What, run};

fn seconds(s: f64) -> Seconds {
    Seconds::new(s).unwrap()
}

fn size(bits: f64, scv: f64) -> Size {
    Size::varying(Bits::new(bits).unwrap(), scv).unwrap()
}

/// One medium of 10 Mbit/s with `stations` that send `load` of it to one another.
fn one(kind: Kind, stations: u32, load: f64, size: Size) -> Topology {
    let rate = PacketRate::new(load * 1e7 / size.mean_bits() / f64::from(stations)).unwrap();
    Topology {
        media: vec![Medium { name: "m".into(), rate: Rate::mbit(10), kind }],
        groups: vec![Group { name: "all".into(), medium: "m".into(), stations, cost: Seconds::ZERO }],
        flows: vec![Flow { from: "all".into(), to: "all".into(), rate, size }],
        ..Topology::default()
    }
}

fn simulate(topology: &Topology, seconds: f64, seed: u64) -> Simulated {
    let network = Network::new(topology.clone()).unwrap();
    Simulated::of(&[run(&network, &Options { seconds }, seed).unwrap()])
}

/// Model over simulation, less 1.
fn off(topology: &Topology, seconds: f64) -> f64 {
    let report = Network::new(topology.clone()).unwrap().solve();
    let lines = Comparison::of(topology, &report, &simulate(topology, seconds, 1)).lines;
    lines.iter().find(|l| l.what == What::Flow).and_then(|l| l.off).unwrap()
}

#[test]
fn a_seed_gives_the_same_run_again() {
    let topology = one(Kind::Ethernet { propagation: seconds(5e-6) }, 20, 0.4, size(8000.0, 0.5));
    assert_eq!(simulate(&topology, 5.0, 3), simulate(&topology, 5.0, 3));
    assert_ne!(simulate(&topology, 5.0, 3), simulate(&topology, 5.0, 4));
}

#[test]
fn rings_are_those_of_the_books() {
    for discipline in [Discipline::Exhaustive, Discipline::Gated, Discipline::OneLimited] {
        let ring = one(Kind::Ring { walk: seconds(20e-6), discipline }, 20, 0.6, size(8000.0, 0.0));
        let off = off(&ring, 300.0);
        assert!(off.abs() < 0.01, "{discipline:?}: {off}");
    }
}

/// A ring that takes no time to walk is one queue, M/G/1.
#[test]
fn one_queue_is_that_of_pollaczek_and_khinchine() {
    for (load, scv) in [(0.5, 0.0), (0.5, 1.0)] {
        let ring = Kind::Ring { walk: seconds(0.0), discipline: Discipline::Exhaustive };
        let off = off(&one(ring, 10, load, size(8000.0, scv)), 400.0);
        assert!(off.abs() < 0.01, "{load} {scv}: {off}");
    }
}

/// Every submodel within its bands, drawn at random: a few of each; `remora model --check` has more.
#[test]
fn the_model_is_near_the_simulation() {
    for submodel in Submodel::ALL {
        for copies in [false, true] {
            let case = Case::draw(submodel, copies, 11, 0);
            let report = Network::new(case.topology.clone()).unwrap().solve();
            let packets: f64 = report.flows.iter().map(|f| f.packets_per_s).sum();
            let run = simulate(&case.topology, 40_000.0 / packets, 1);
            for line in Comparison::of(&case.topology, &report, &run).lines {
                let about = if copies { What::Copy } else { What::Flow };
                let chance = line.within_s.zip(line.simulated_s).map_or(0.0, |(w, s)| w / s);
                if line.what == about {
                    assert!(line.off.unwrap().abs() < NEAR + chance, "{submodel} {copies}: {line:?}");
                }
            }
        }
    }
}

/// Metcalfe & Boggs 1976, table I: efficiency with so many stations that always have a packet of
/// 1024 bits, 21.3 slots of 48. Their slot is the round trip; here that is half of 802.3's.
#[test]
fn saturation_is_that_of_metcalfe_and_boggs() {
    for (stations, published) in [(2, 0.9552), (5, 0.9367), (10, 0.9310), (32, 0.9272), (64, 0.9263)] {
        let ethernet = Kind::Ethernet { propagation: seconds(12.8e-6) };
        let topology = one(ethernet, stations, 3.0, size(512.0 * 1024.0 / 48.0, 0.0));
        let share = simulate(&topology, 15.0, 1).media[0].carried_bits_per_s / 1e7;
        assert!((share / published - 1.0).abs() < 0.05, "{stations}: {share} {published}");
    }
}

/// What no queue can keep up with overflows within bounds and says so.
#[test]
fn too_much_traffic_ends_and_is_counted() {
    let topology = one(Kind::Ethernet { propagation: seconds(5e-6) }, 10, 5.0, size(8000.0, 0.0));
    let medium = &simulate(&topology, 10.0, 1).media[0];
    assert!(medium.lost > 0 && medium.busy > 0.95, "{medium:?}");
    assert!((0.8e7..1e7).contains(&medium.carried_bits_per_s), "{medium:?}");
}
