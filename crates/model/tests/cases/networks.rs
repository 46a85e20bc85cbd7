//! Networks as tables, and queries on their reports.

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, TwoStateChannel};
use remora_model::{
    Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, Network, PacketRate, Report, Seconds, Size, Topology,
};

/// A group on medium `m0`, `m1`, ...: name, which medium, stations, seconds for each packet.
pub(crate) type G = (&'static str, usize, u32, f64);
/// A flow: from, to, packets a second of each station, mean bits, squared coefficient of variation.
pub(crate) type F = (&'static str, &'static str, f64, f64, f64);

pub(crate) fn seconds(s: f64) -> Seconds {
    Seconds::new(s).unwrap()
}

pub(crate) fn topology(media: &[(u64, Kind)], groups: &[G], flows: &[F]) -> Topology {
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

pub(crate) fn solved(topology: Topology) -> Report {
    Network::new(topology).unwrap().solve()
}

pub(crate) fn ring(walk_s: f64, discipline: Discipline) -> Kind {
    Kind::Ring { walk: seconds(walk_s), discipline }
}

pub(crate) fn switch(latency_s: f64) -> Kind {
    Kind::Switch { latency: seconds(latency_s) }
}

pub(crate) fn wifi(overhead_s: f64, good_s: f64, bad_s: f64, bad: Periods) -> Kind {
    Kind::Wifi { overhead: seconds(overhead_s), channel: TwoStateChannel { good_s, bad_s, bad } }
}

/// A gateway between the first two media.
pub(crate) fn joined(mut topology: Topology, cost_s: f64, law: Law) -> Topology {
    let joins = vec!["m0".to_owned(), "m1".to_owned()];
    topology.gateways.push(Gateway { name: "g".into(), joins, cost: seconds(cost_s), law });
    topology
}

/// A copy of 1 MiB from `a` to `b`: window, packets and bits of data and of replies, seconds of
/// software, disk and think time for each of `blocks`.
pub(crate) struct C {
    pub(crate) blocks: u64,
    pub(crate) window: u32,
    pub(crate) data: (f64, f64),
    pub(crate) reply: (f64, f64),
    pub(crate) times_s: [f64; 3],
}

pub(crate) fn copied(mut topology: Topology, copy: &C) -> Report {
    let burst = |(packets, bits)| Burst { packets, size: Size::constant(Bits::new(bits).unwrap()) };
    let [software, disk, think] = copy.times_s.map(seconds);
    topology.copies.push(Copy {
        from: "a".into(),
        to: "b".into(),
        file_bytes: 1 << 20,
        block_bytes: (1 << 20) / copy.blocks,
        window: copy.window,
        data: burst(copy.data),
        reply: burst(copy.reply),
        software,
        disk,
        think,
    });
    solved(topology)
}

/// Each flow is within the band, and within 8 % of the simulated milliseconds.
#[track_caller]
pub(crate) fn near(topology: Topology, simulated_ms: &[f64]) {
    for (flow, ms) in solved(topology).flows.iter().zip(simulated_ms) {
        let off = flow.delay_s.value().unwrap() * 1e3 / ms - 1.0;
        assert!(off.abs() < 0.08 && flow.delay_s.outside().is_empty(), "{off:+.3} {flow:?}");
    }
}

/// Some flow is outside its band.
#[track_caller]
pub(crate) fn outside(topology: Topology) {
    let report = solved(topology);
    assert!(report.flows.iter().any(|f| !f.delay_s.outside().is_empty()), "{report:?}");
}
