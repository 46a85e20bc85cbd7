//! Networks in which a formula was once off by more than 10 % without a word, each with what the simulation
//! (`remora model FILE --simulate`) says: now the model is near it, or says that it may not be.

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, Weather};
use remora_model::{
    Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, Network, PacketRate, Report, Seconds, Size, Topology,
};

/// A group on medium `m0`, `m1`, ...: name, which medium, stations, seconds for each packet.
type G = (&'static str, usize, u32, f64);
/// A flow: from, to, packets a second of each station, mean bits, variation.
type F = (&'static str, &'static str, f64, f64, f64);

fn seconds(s: f64) -> Seconds {
    Seconds::new(s).unwrap()
}

fn topology(media: &[(u64, Kind)], groups: &[G], flows: &[F]) -> Topology {
    let size = |bits: f64, scv: f64| Size::varying(Bits::new(bits).unwrap(), scv).unwrap();
    Topology {
        media: (0..media.len())
            .map(|i| Medium { name: format!("m{i}"), rate: Rate::mbit(media[i].0), kind: media[i].1.clone() })
            .collect(),
        groups: groups
            .iter()
            .map(|(name, medium, stations, cost)| Group {
                name: (*name).into(),
                medium: format!("m{medium}"),
                stations: *stations,
                cost: seconds(*cost),
            })
            .collect(),
        flows: flows
            .iter()
            .map(|(from, to, rate, bits, scv)| Flow {
                from: (*from).into(),
                to: (*to).into(),
                rate: PacketRate::new(*rate).unwrap(),
                size: size(*bits, *scv),
            })
            .collect(),
        ..Topology::default()
    }
}

fn solved(topology: Topology) -> Report {
    Network::new(topology).unwrap().solve()
}

fn ring(walk_s: f64, discipline: Discipline) -> Kind {
    Kind::Ring { walk: seconds(walk_s), discipline }
}

fn switch(latency_s: f64) -> Kind {
    Kind::Switch { latency: seconds(latency_s) }
}

fn wifi(overhead_s: f64, good_s: f64, bad_s: f64, bad: Periods) -> Kind {
    Kind::Wifi { overhead: seconds(overhead_s), weather: Weather { good_s, bad_s, bad } }
}

/// Each flow is within 8 % of what was simulated, in milliseconds, and within the band.
#[track_caller]
fn near(topology: Topology, simulated_ms: &[f64]) {
    for (flow, ms) in solved(topology).flows.iter().zip(simulated_ms) {
        let off = flow.delay_s.value().unwrap() * 1e3 / ms - 1.0;
        assert!(off.abs() < 0.08 && flow.delay_s.outside().is_empty(), "{off:+.3} {flow:?}");
    }
}

/// Some flow is outside of its band.
#[track_caller]
fn outside(topology: Topology) {
    let report = solved(topology);
    assert!(report.flows.iter().any(|f| !f.delay_s.outside().is_empty()), "{report:?}");
}

/// Long packets of one station are met by all others: who has short ones waits longer than its load says.
#[test]
fn the_work_under_way_counts_on_a_ring() {
    let groups = [("a", 0, 23, 0.0), ("b", 0, 5, 0.0), ("c", 0, 1, 0.0)];
    let flows = [
        ("a", "c", 21.64, 1295.5, 0.0),
        ("b", "a", 76.4, 1114.3, 0.0),
        ("c", "b", 71.23, 10_368.4, 0.0),
        ("a", "a", 6.715, 2530.6, 1.089),
    ];
    let media = [(4, ring(4.5115e-7, Discipline::Exhaustive))];
    near(topology(&media, &groups, &flows), &[1.1598, 1.2322, 3.2384, 1.4699]);
}

/// A processor that is slower than the medium: packets of one station never meet there.
#[test]
fn packets_that_a_processor_has_spaced_do_not_meet() {
    let groups = [("a", 0, 5, 1e-4), ("b", 0, 2, 0.0), ("c", 0, 21, 0.0)];
    let media = [(100, ring(1.474e-7, Discipline::OneLimited))];
    near(topology(&media, &groups, &[("a", "b", 1923.0, 6552.2, 0.121)]), &[0.1176]);
    let groups = [("a", 0, 2, 2e-4), ("b", 0, 1, 1.05e-5)];
    let flows = [("b", "a", 1411.9, 4614.7, 0.0), ("a", "b", 1758.9, 1657.1, 0.238)];
    near(topology(&[(10, switch(1.93e-5))], &groups, &flows), &[1.3712, 0.4442]);
}

/// A long packet comes to a switch's port behind others of its sender that are gone by then.
#[test]
fn long_packets_wait_less_at_a_switchs_port() {
    let flows = [("a", "a", 81_058.7, 2103.0, 1.265), ("a", "a", 30_142.5, 9956.2, 0.0)];
    near(topology(&[(1000, switch(1.02e-5))], &[("a", 0, 2, 0.0)], &flows), &[0.0221, 0.0339]);
}

/// Both queues of a station stand still in the same bad periods.
#[test]
fn bad_periods_hold_up_both_directions() {
    let groups = [("base", 0, 1, 0.0), ("a", 0, 5, 0.0), ("b", 0, 1, 0.0)];
    let flows =
        [("b", "base", 154.63, 619.1, 1.366), ("base", "b", 91.85, 2055.8, 0.0), ("base", "b", 105.92, 8285.1, 0.0)];
    let media = [(11, wifi(1e-4, 0.3508, 0.0365, Periods::Constant))];
    near(topology(&media, &groups, &flows), &[2.2361, 2.4555, 3.0587]);
}

/// One packet a turn: a station with many short packets is held up by another one's long ones. Both on a ring
/// and in a cell.
#[test]
fn queues_that_take_turns_and_are_not_alike_say_so() {
    let groups = [("a", 0, 2, 0.0), ("b", 0, 2, 0.0)];
    let flows = [("b", "a", 64.76, 9128.6, 0.386), ("a", "b", 435.16, 1564.0, 0.0)];
    outside(topology(&[(4, ring(5.534e-7, Discipline::OneLimited))], &groups, &flows));
    let groups = [("a", 0, 1, 0.0), ("b", 0, 1, 0.0)];
    let flows = [("a", "b", 70.1, 7468.2, 0.656), ("b", "a", 291.0, 689.1, 0.091)];
    outside(topology(&[(2, wifi(4e-4, 0.2827, 0.002, Periods::Uniform))], &groups, &flows));
    let flows = [("a", "b", 118.36, 1738.0, 0.8), ("b", "a", 75.11, 10_483.1, 0.0)];
    outside(topology(&[(2, wifi(6.52e-5, 0.39, 0.0, Periods::Constant))], &groups, &flows));
}

/// Frames of very different lengths: the longest are lost again and again.
#[test]
fn long_frames_in_short_good_periods_say_so() {
    let flows = [("b", "a", 37.85, 1177.7, 0.0), ("b", "a", 14.24, 6588.5, 1.163)];
    let groups = [("a", 0, 1, 0.0), ("b", 0, 3, 1e-4)];
    outside(topology(&[(1, wifi(2e-4, 0.174, 1e-3, Periods::Constant))], &groups, &flows));
}

/// Over one line after the other short packets run into the same long ones, at each of them.
#[test]
fn lines_behind_one_another_say_so() {
    let groups = [("a", 0, 42, 0.0), ("b", 1, 7, 5.9e-5), ("c", 1, 1, 0.0)];
    let flows = [("a", "b", 13.27, 2847.1, 0.216), ("c", "a", 1226.4, 2758.0, 1.399)];
    let mut two = topology(&[(10, switch(1.07e-5)), (10, switch(7.3e-6))], &groups, &flows);
    let joins = vec!["m0".to_owned(), "m1".to_owned()];
    two.gateways.push(Gateway { name: "g".into(), joins, cost: seconds(3.7e-5), law: Law::Exponential });
    outside(two);
}

/// What a token brings at once queues at a gateway that takes longer for each than the ring.
#[test]
fn bursts_out_of_a_ring_say_so() {
    let groups = [("a", 0, 11, 0.0), ("b", 1, 120, 0.0)];
    let media = [(100, switch(5.2e-6)), (16, ring(1.7632e-5, Discipline::Exhaustive))];
    let mut two = topology(&media, &groups, &[("b", "a", 20.34, 1183.3, 0.0)]);
    let joins = vec!["m0".to_owned(), "m1".to_owned()];
    two.gateways.push(Gateway { name: "g".into(), joins, cost: seconds(2.2e-4), law: Law::Constant });
    outside(two);
}

fn copied(mut topology: Topology, window: u32, data: (f64, f64), reply: (f64, f64), think_s: f64) -> Report {
    let burst = |(packets, bits)| Burst { packets, size: Size::constant(Bits::new(bits).unwrap()) };
    topology.copies.push(Copy {
        from: "a".into(),
        to: "b".into(),
        file_bytes: 1 << 20,
        block_bytes: 32_768,
        window,
        data: burst(data),
        reply: burst(reply),
        software: Seconds::ZERO,
        disk: Seconds::ZERO,
        think: seconds(think_s),
    });
    solved(topology)
}

/// Blocks that come to a ring together stay together: each reply waits for all of the data (-20 %). Where a
/// gateway is busy all the time they cost nothing, and the model need not doubt.
#[test]
fn blocks_that_hold_up_one_another_say_so() {
    let media = [(16, ring(1e-6, Discipline::Exhaustive))];
    let groups = [("a", 0, 10, 0.0), ("b", 0, 10, 0.0)];
    let report = copied(topology(&media, &groups, &[]), 2, (23.0, 11_898.0), (1.0, 600.0), 60e-3);
    assert!(!report.copies[0].outcome.outside().is_empty(), "{report:?}");
    let groups = [("a", 0, 10, 0.0), ("b", 1, 10, 0.0)];
    let mut two = topology(&[(1000, switch(0.0)), (1000, switch(0.0))], &groups, &[]);
    let joins = vec!["m0".to_owned(), "m1".to_owned()];
    two.gateways.push(Gateway { name: "g".into(), joins, cost: seconds(1e-3), law: Law::Constant });
    let report = copied(two, 16, (23.0, 11_898.0), (1.0, 600.0), 5e-3);
    let outcome = &report.copies[0].outcome;
    let off = outcome.value().unwrap().seconds / (32.0 * 24e-3) - 1.0;
    assert!(outcome.outside().is_empty() && off.abs() < 0.02, "{off} {outcome:?}");
}
