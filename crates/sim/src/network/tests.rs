//! Networks with known closed forms, and properties of all networks.

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, TwoStateChannel};
use remora_model::{
    Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, NEAR, Network, Origin, PacketRate, Report, Seconds,
    Size, Topology,
};

use super::answer::{Goal, Trial};
use super::check::{Case, Verdict, judge};
use super::{Comparison, Options, Selection, Simulated, Subject, Wanted, run};

fn seconds(s: f64) -> Seconds {
    Seconds::new(s).unwrap()
}

fn size(bits: f64, scv: f64) -> Size {
    Size::varying(Bits::new(bits).unwrap(), scv).unwrap()
}

/// One medium of 10 Mbit/s with `stations` stations that send `load` to one another.
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

/// Model over simulation, minus 1.
fn off(topology: &Topology, seconds: f64) -> f64 {
    let report = Network::new(topology.clone()).unwrap().solve();
    let lines = Comparison::of(topology, &report, &simulate(topology, seconds, 1)).lines;
    lines.iter().find(|l| l.what == Subject::Flow).and_then(|l| l.off).unwrap()
}

#[test]
fn same_seed_gives_the_same_run() {
    let topology = one(Kind::Ethernet { propagation: seconds(5e-6) }, 20, 0.4, size(8000.0, 0.5));
    assert_eq!(simulate(&topology, 5.0, 3), simulate(&topology, 5.0, 3));
    assert_ne!(simulate(&topology, 5.0, 3), simulate(&topology, 5.0, 4));
}

#[test]
fn ring_wait_equals_closed_form() {
    for discipline in [Discipline::Exhaustive, Discipline::Gated, Discipline::OneLimited] {
        let ring = one(Kind::Ring { walk: seconds(20e-6), discipline }, 20, 0.6, size(8000.0, 0.0));
        let off = off(&ring, 300.0);
        assert!(off.abs() < 0.01, "{discipline:?}: {off}");
    }
}

/// A ring without walk is one M/G/1 queue.
#[test]
fn ring_without_walk_is_an_mg1_queue() {
    for (load, scv) in [(0.5, 0.0), (0.5, 1.0)] {
        let ring = Kind::Ring { walk: seconds(0.0), discipline: Discipline::Exhaustive };
        let off = off(&one(ring, 10, load, size(8000.0, scv)), 400.0);
        assert!(off.abs() < 0.01, "{load} {scv}: {off}");
    }
}

/// The answer to a topology, and a trial of the whole network.
fn answered<'a>(network: &'a Network, report: &'a Report, events: u64, seed: u64) -> (Report, Trial<'a>) {
    let goal = Goal { events, half_width: 0.025 };
    let mut answer = Trial::of(network, report, seed).unwrap();
    answer.run(goal, &|| false, |all, advance| all.iter_mut().for_each(advance));
    let mut whole = Trial::whole(network, report, seed + 1).unwrap();
    whole.run(goal, &|| false, |all, advance| all.iter_mut().for_each(advance));
    (answer.complete(), whole)
}

/// Random draws of every submodel, one of each; `remora model --check` has more.
#[test]
fn answers_are_near_a_simulation_of_all() {
    for number in 0..Case::kinds().len() as u64 {
        let case = Case::number(11, number);
        let network = Network::new(case.topology.clone()).unwrap();
        let report = network.solve();
        let (answer, whole) = answered(&network, &report, 400_000, 1);
        for figure in judge(&network, &answer, &whole.figures()) {
            let half = |half: Option<f64>| half.unwrap_or(0.0);
            let chance = 2.0 * half(figure.half_width).hypot(half(figure.reference_half_width));
            let near = figure.value.zip(figure.reference).map(|(a, b)| (a - b).abs() <= NEAR * b + chance);
            let is_answered = figure.verdict != Verdict::Unanswered;
            let saturated = figure.how == Origin::Saturated && figure.reference_saturated;
            assert!(is_answered && (near == Some(true) || saturated), "{} {number}: {figure:?}", case.kind());
        }
    }
}

#[test]
fn same_seed_gives_the_same_answer() {
    let topology = one(Kind::Ethernet { propagation: seconds(5e-6) }, 3, 0.5, size(8000.0, 0.5));
    let network = Network::new(topology).unwrap();
    let report = network.solve();
    let answer = |seed| answered(&network, &report, 50_000, seed).0;
    assert_eq!(answer(3), answer(3));
    assert_ne!(answer(3), answer(4));
    assert_eq!(answer(3).flows[0].delay_s.how(), Origin::Simulated);
}

/// A port with more traffic than it carries: the flow to it is saturated at the line's rate, the
/// other flow of the switch has a delay.
#[test]
fn overload_is_answered_with_the_carried_rate() {
    let mut topology = one(Kind::Switch { latency: seconds(0.0) }, 20, 0.6, size(8000.0, 0.0));
    for name in ["sink", "other"] {
        topology.groups.push(Group { name: name.into(), medium: "m".into(), stations: 1, cost: Seconds::ZERO });
        // Of 20 stations: 1.25 and a tenth of the line.
        let rate = PacketRate::new(if name == "sink" { 78.125 } else { 6.25 }).unwrap();
        topology.flows.push(Flow { from: "all".into(), to: name.into(), rate, size: size(8000.0, 0.0) });
    }
    let network = Network::new(topology).unwrap();
    let report = network.solve();
    let (answer, _) = answered(&network, &report, 400_000, 1);
    let [_, sink, other] = &answer.flows[..] else { panic!("{answer:?}") };
    assert_eq!((sink.delay_s.how(), sink.delay_s.value()), (Origin::Saturated, None));
    assert!((sink.carried_packets_per_s.unwrap() / 1250.0 - 1.0).abs() < 0.02, "{sink:?}");
    assert!(other.delay_s.is_answered() && other.delay_s.value().is_some(), "{other:?}");
    assert_eq!(answer.media[0].delay_s.as_ref().unwrap().how(), Origin::Saturated);
}

/// Network 91 of seed 8: a copy with a large window beside flows that overload its sender's processor,
/// and network 171 of seed 11: its replies cross an overloaded port. Neither has an end; without the
/// copy the other direction is quiet.
#[test]
fn copy_behind_an_overloaded_queue_is_saturated() {
    for (cost, load) in [(1.3e-3, 0.5), (0.0, 1.2)] {
        let mut topology = one(Kind::Switch { latency: seconds(0.0) }, 1, load, size(8000.0, 0.0));
        topology.groups[0].cost = seconds(cost);
        topology.groups.push(Group { name: "to".into(), medium: "m".into(), stations: 1, cost: Seconds::ZERO });
        let back = Flow { from: "to".into(), to: "all".into(), ..topology.flows[0].clone() };
        topology.flows[0].to = "to".into();
        topology.flows.push(Flow { rate: PacketRate::new(300.0).unwrap(), ..back });
        let burst = Burst { packets: 1.0, size: size(8000.0, 0.0) };
        topology.copies.push(Copy {
            from: "to".into(),
            to: "all".into(),
            file_bytes: 1 << 30,
            block_bytes: 1000,
            window: 64,
            data: burst,
            reply: burst,
            software: Seconds::ZERO,
            disk: Seconds::ZERO,
            think: Seconds::ZERO,
        });
        let network = Network::new(topology).unwrap();
        let report = network.solve();
        let (answer, whole) = answered(&network, &report, 200_000, 1);
        assert_eq!(answer.copies[0].outcome.how(), Origin::Saturated);
        assert_eq!(answer.flows[0].delay_s.how(), Origin::Saturated);
        let back = answer.flows[1].delay_s.value().unwrap();
        assert!((back / 1.8e-3 - 1.0).abs() < 0.1, "two ports, with 0.13 ms of M/D/1 wait at each or at one: {back}");
        let figures = judge(&network, &answer, &whole.figures());
        assert!(figures.iter().all(|figure| figure.verdict == Verdict::Right), "{figures:?}");
    }
}

/// Network 11 of seed 8 has a gateway near saturation, whose queue fills for longer than the run: it is simulated for
/// longer. A switch with little load is not.
#[test]
fn trial_goes_on_while_queues_fill() {
    let quiet = one(Kind::Switch { latency: seconds(0.0) }, 2, 0.3, size(8000.0, 0.0));
    for (topology, goes_on) in [(quiet, false), (Case::number(8, 11).topology, true)] {
        let network = Network::new(topology).unwrap();
        let report = network.solve();
        let goal = Goal { events: 400_000, half_width: 1e-6 };
        let mut trial = Trial::whole(&network, &report, 1).unwrap();
        trial.run(goal, &|| false, |all, advance| all.iter_mut().for_each(advance));
        trial.run_longer(goal, &|| false, |all, advance| all.iter_mut().for_each(advance));
        assert_eq!(trial.events() > goal.events, goes_on, "{}", trial.events());
        assert!(trial.events() <= 4 * goal.events);
    }
}

/// A flow with few packets is simulated with more. The mean of the medium is still that of the packets offered.
#[test]
fn medium_with_raised_flow_has_the_mean_of_offered_packets() {
    let channel = TwoStateChannel { good_s: 1.0, bad_s: 0.0, bad: Periods::Uniform };
    let mut topology = one(Kind::Wifi { overhead: seconds(5e-5), channel }, 1, 0.1, size(8000.0, 0.0));
    topology.media[0].rate = Rate::mbit(1);
    topology.groups.push(Group { name: "base".into(), medium: "m".into(), stations: 1, cost: Seconds::ZERO });
    // Network 67 of seed 7: two rare flows beside a copy, of which one is rarer.
    let flow = |rate, bytes: f64| Flow {
        from: "base".into(),
        to: "all".into(),
        rate: PacketRate::new(rate).unwrap(),
        size: size(8.0 * bytes, 0.0),
    };
    topology.flows = vec![flow(0.003, 1269.0), flow(0.2, 353.0)];
    let burst = |packets, bytes: f64| Burst { packets, size: size(8.0 * bytes, 0.0) };
    topology.copies.push(Copy {
        from: "all".into(),
        to: "base".into(),
        file_bytes: 1 << 30,
        block_bytes: 1460,
        window: 1,
        data: burst(1.0, 1487.0),
        reply: burst(1.0, 131.0),
        software: Seconds::ZERO,
        disk: Seconds::ZERO,
        think: seconds(0.004),
    });
    let network = Network::new(topology).unwrap();
    let report = network.solve();
    let (answer, _) = answered(&network, &report, 400_000, 1);
    let [long, short] = [0, 1].map(|flow| *answer.flows[flow].delay_s.value().unwrap());
    let medium = answer.media[0].delay_s.as_ref().unwrap();
    assert_eq!(medium.how(), Origin::Simulated);
    let expected = (0.003 * long + 0.2 * short) / 0.203;
    assert!(long > 1.5 * short && (medium.value().unwrap() / expected - 1.0).abs() < 0.05, "{medium:?} {expected}");
}

/// Two media that a gateway joins: a flow on the second one needs those that come from the first
/// one, and no flow of a third medium.
#[test]
fn selection_has_what_loads_the_wanted_flow() {
    let ethernet = Kind::Ethernet { propagation: seconds(5e-6) };
    let mut topology = one(ethernet.clone(), 5, 0.1, size(8000.0, 0.0));
    for name in ["n", "o"] {
        topology.media.push(Medium { name: name.into(), rate: Rate::mbit(10), kind: ethernet.clone() });
        topology.groups.push(Group { name: name.into(), medium: name.into(), stations: 5, cost: Seconds::ZERO });
    }
    let joins = ["m", "n", "o"].map(str::to_owned).to_vec();
    topology.gateways.push(Gateway { name: "g".into(), joins, cost: seconds(1e-5), law: Law::Constant });
    let rate = PacketRate::new(1.0).unwrap();
    for (from, to) in [("all", "n"), ("n", "n"), ("n", "o"), ("o", "o")] {
        topology.flows.push(Flow { from: from.into(), to: to.into(), rate, size: size(8000.0, 0.0) });
    }
    let network = Network::new(topology).unwrap();
    for (wanted, elements) in [
        // all > all, all > n, n > n, n > o, o > o: media and gateways of the route that matter.
        (vec![0], [1, 1, 0, 0, 0]),
        (vec![2], [1, 3, 1, 2, 0]),
        (vec![4], [1, 3, 1, 3, 1]),
    ] {
        let wanted = Wanted { flows: wanted, ..Wanted::default() };
        assert_eq!(Selection::of(&network, &wanted).flows, elements, "{wanted:?}");
    }
}

/// Networks 123 and 155 of seed 8: a gateway whose delay no formula gives, crossed by a copy that has one.
#[test]
fn selection_has_copies_across_a_wanted_gateway() {
    let switch = Kind::Switch { latency: seconds(0.0) };
    let mut topology = one(switch.clone(), 2, 0.1, size(8000.0, 0.0));
    topology.media.push(Medium { name: "n".into(), rate: Rate::mbit(10), kind: switch });
    topology.groups.push(Group { name: "n".into(), medium: "n".into(), stations: 1, cost: Seconds::ZERO });
    let joins = ["m", "n"].map(str::to_owned).to_vec();
    topology.gateways.push(Gateway { name: "g".into(), joins, cost: seconds(1e-5), law: Law::Constant });
    let burst = Burst { packets: 1.0, size: size(8000.0, 0.0) };
    topology.copies.push(Copy {
        from: "all".into(),
        to: "n".into(),
        file_bytes: 1 << 30,
        block_bytes: 1000,
        window: 1,
        data: burst,
        reply: burst,
        software: Seconds::ZERO,
        disk: Seconds::ZERO,
        think: Seconds::ZERO,
    });
    let network = Network::new(topology).unwrap();
    let selected = |gateways| Selection::of(&network, &Wanted { gateways, ..Wanted::default() }).copies;
    assert_eq!((selected(vec![0]), selected(Vec::new())), (vec![true], vec![false]));
}

/// A file that fits into the window takes a round, however small its last block.
#[test]
fn file_of_block_and_byte_takes_a_round() {
    let switch = Kind::Switch { latency: seconds(0.0) };
    let burst = |packets, bytes: f64| Burst { packets, size: size(8.0 * bytes, 0.0) };
    let group = |name: &str| Group { name: name.into(), medium: "m".into(), stations: 1, cost: Seconds::ZERO };
    let topology = Topology {
        media: vec![Medium { name: "m".into(), rate: Rate::mbit(1000), kind: switch }],
        groups: vec![group("a"), group("b")],
        copies: vec![Copy {
            from: "a".into(),
            to: "b".into(),
            file_bytes: 8193,
            block_bytes: 8192,
            window: 4,
            data: burst(6.0, 1420.0),
            reply: burst(1.0, 150.0),
            software: Seconds::ZERO,
            disk: Seconds::ZERO,
            think: seconds(0.05),
        }],
        ..Topology::default()
    };
    let report = Network::new(topology.clone()).unwrap().solve();
    let line = Comparison::of(&topology, &report, &simulate(&topology, 10.0, 1)).lines.pop().unwrap();
    // A run ends within a round, which it does not count.
    assert!(line.simulated_s.unwrap() > 0.0499 && line.near(), "{line:?}");
}

/// Metcalfe & Boggs 1976, section 6: with `Q` saturated hosts a packet succeeds in a slot with
/// probability `A = (1 - 1/Q)^(Q-1)`, waits for `W = (1 - A)/A` slots, and the efficiency is `E =
/// (P/C) / (P/C + W*T)`; their table I prints it for C = 3 Mbit/s and T = 16 us, slots of 48 bits.
fn metcalfe_and_boggs(hosts: u32, packet_bits: f64) -> f64 {
    let success = (1.0 - 1.0 / f64::from(hosts)).powi(hosts as i32 - 1);
    packet_bits / (packet_bits + (1.0 - success) / success * 48.0)
}

#[test]
fn saturation_is_that_of_metcalfe_and_boggs() {
    // Rows of their table, to its four digits.
    for (hosts, bits, printed) in [(2, 4096.0, 0.9884), (2, 1024.0, 0.9552), (5, 1024.0, 0.9367), (64, 1024.0, 0.9263)]
    {
        assert!((metcalfe_and_boggs(hosts, bits) - printed).abs() < 1e-4, "{hosts} {bits}");
    }
    // Their slot is the round trip, half of 802.3's. The packets are as long in slots.
    for (hosts, bits) in
        [(2, 1024.0), (5, 1024.0), (10, 1024.0), (32, 1024.0), (64, 1024.0), (10, 4096.0), (64, 4096.0)]
    {
        let ethernet = Kind::Ethernet { propagation: seconds(12.8e-6) };
        let topology = one(ethernet, hosts, 3.0, size(512.0 * bits / 48.0, 0.0));
        let share = simulate(&topology, 15.0, 1).media[0].carried_bits_per_s / 1e7;
        let published = metcalfe_and_boggs(hosts, bits);
        assert!((share / published - 1.0).abs() < 0.05, "{hosts} {bits}: {share} {published}");
    }
}

/// A saturated queue overflows within bounds and counts it.
#[test]
fn overload_is_bounded_and_counted() {
    let topology = one(Kind::Ethernet { propagation: seconds(5e-6) }, 10, 5.0, size(8000.0, 0.0));
    let medium = &simulate(&topology, 10.0, 1).media[0];
    assert!(medium.lost > 0 && medium.busy > 0.95, "{medium:?}");
    assert!((0.8e7..1e7).contains(&medium.carried_bits_per_s), "{medium:?}");
}
