//! Networks for tests.

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, TwoStateChannel};
use remora_model::{Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, PacketRate, Seconds, Size, Topology};

fn seconds(value: f64) -> Seconds {
    Seconds::new(value).unwrap()
}

fn size(bytes: f64) -> Size {
    Size::constant(Bits::new(bytes * 8.0).unwrap())
}

fn medium(name: &str, mbit: u64, kind: Kind) -> Medium {
    Medium { name: name.into(), rate: Rate::mbit(mbit), kind }
}

fn group(name: &str, medium: &str, stations: u32, cost: f64) -> Group {
    Group { name: name.into(), medium: medium.into(), stations, cost: seconds(cost) }
}

fn flow(from: &str, to: &str, rate: f64, bytes: f64, scv: f64) -> Flow {
    let size = Size::varying(Bits::new(bytes * 8.0).unwrap(), scv).unwrap();
    Flow { from: from.into(), to: to.into(), rate: PacketRate::new(rate).unwrap(), size }
}

/// One medium of each kind, two gateways, a flow over each and a copy.
pub(super) fn office() -> Topology {
    let weather = TwoStateChannel { good_s: 1.0, bad_s: 0.08, bad: Periods::Uniform };
    let join = |name: &str, joins: &[&str], cost, law| Gateway {
        name: name.into(),
        joins: joins.iter().map(|j| (*j).into()).collect(),
        cost: seconds(cost),
        law,
    };
    Topology {
        media: vec![
            medium("floor", 10, Kind::Ethernet { propagation: seconds(5e-6) }),
            medium("backbone", 100, Kind::Switch { latency: seconds(1e-5) }),
            medium("hall", 11, Kind::Wifi { overhead: seconds(3e-4), channel: weather }),
            medium("machines", 16, Kind::Ring { walk: seconds(3e-6), discipline: Discipline::OneLimited }),
        ],
        groups: vec![
            group("desks", "floor", 40, 3e-4),
            group("servers", "backbone", 4, 1e-5),
            group("robots", "hall", 5, 0.0),
            group("controllers", "machines", 60, 0.0),
        ],
        gateways: vec![
            join("router", &["floor", "backbone", "machines"], 5e-5, Law::Constant),
            join("access <point>", &["hall", "backbone"], 2e-5, Law::Exponential),
        ],
        flows: vec![
            flow("desks", "servers", 8.0, 600.0, 0.8),
            flow("servers", "desks", 40.0, 900.0, 0.5),
            flow("robots", "servers", 10.0, 400.0, 0.0),
            flow("controllers", "controllers", 100.0, 200.0, 0.0),
        ],
        copies: vec![Copy {
            from: "servers".into(),
            to: "desks".into(),
            file_bytes: 100 << 20,
            block_bytes: 8192,
            window: 2,
            data: Burst { packets: 6.0, size: size(1420.0) },
            reply: Burst { packets: 1.0, size: size(150.0) },
            software: seconds(1e-3),
            disk: seconds(2e-3),
            think: Seconds::ZERO,
        }],
    }
}

/// A copy over media like `media`, from the first to the last.
fn copied(media: Vec<Medium>, groups: Vec<Group>, flows: Vec<Flow>, packets: f64, bytes: [f64; 2]) -> Topology {
    let joins = media.iter().map(|m| m.name.clone()).collect();
    let gateway = Gateway { name: "gateway".into(), joins, cost: Seconds::ZERO, law: Law::Constant };
    Topology {
        gateways: if media.len() > 1 { vec![gateway] } else { Vec::new() },
        media,
        groups,
        flows,
        copies: vec![Copy {
            from: "a".into(),
            to: "b".into(),
            file_bytes: 10 << 20,
            block_bytes: 8192,
            window: 1,
            data: Burst { packets, size: size(bytes[0]) },
            reply: Burst { packets: 1.0, size: size(bytes[1]) },
            software: Seconds::ZERO,
            disk: Seconds::ZERO,
            think: Seconds::ZERO,
        }],
    }
}

/// A ring on which packets arrive slower than they are sent, but faster than beside other traffic.
pub(super) fn trickle() -> Topology {
    let ring = Kind::Ring { walk: seconds(1e-6), discipline: Discipline::Exhaustive };
    let groups = vec![group("a", "ring", 1, 1e-3), group("m", "ring", 50, 0.0), group("b", "ring", 1, 0.0)];
    copied(vec![medium("ring", 16, ring)], groups, vec![flow("m", "m", 11.0, 1420.0, 0.0)], 6.0, [1420.0, 150.0])
}

/// Two wireless cells, the second with more traffic beside the copy.
pub(super) fn cells() -> Topology {
    let weather = TwoStateChannel { good_s: 1.0, bad_s: 0.0, bad: Periods::Exponential };
    let air = |name| medium(name, 2, Kind::Wifi { overhead: Seconds::ZERO, channel: weather });
    let of = |(name, on)| group(name, on, 1, 0.0);
    let groups = [("a", "first"), ("b", "second"), ("m", "first"), ("n", "first"), ("o", "second"), ("p", "second")];
    let flows = vec![flow("m", "n", 33.3, 1500.0, 0.0), flow("o", "p", 66.7, 1500.0, 0.0)];
    copied(vec![air("first"), air("second")], groups.map(of).to_vec(), flows, 1.0, [100.0, 100.0])
}

/// Copy 89's file over its Ethernet, beside `background` packets a second.
pub(super) fn copy89(background: f64) -> Topology {
    Topology {
        media: vec![medium("Local_Ethernet", 10, Kind::Ethernet { propagation: seconds(5.12e-6) })],
        groups: ["sending", "receiving", "background"]
            .map(|name| group(&format!("{name}_workstations"), "Local_Ethernet", 1, 0.0))
            .to_vec(),
        flows: vec![flow("background_workstations", "receiving_workstations", background, 1047.0, 0.0)],
        copies: vec![Copy {
            from: "sending_workstations".into(),
            to: "receiving_workstations".into(),
            file_bytes: 100_000_000,
            block_bytes: 8760,
            window: 1,
            data: Burst { packets: 6.0, size: size(1460.0) },
            reply: Burst { packets: 1.0, size: size(138.0) },
            software: seconds(0.1),
            disk: Seconds::ZERO,
            think: Seconds::ZERO,
        }],
        ..Topology::default()
    }
}
