//! Topologies drawn at random, one submodel each.

use std::fmt;

use remora_base::{Rate, Rng};
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, Weather};
use remora_model::{
    Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, OutOfRange, PacketRate, Seconds, Size, Topology,
};
use serde::Serialize;

/// What a case is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submodel {
    /// A shared Ethernet.
    Ethernet,
    /// A token ring.
    Ring(Discipline),
    /// A switch.
    Switch,
    /// Two switches and the gateway between them.
    Gateway,
    /// A wireless cell.
    Wifi,
}

impl Submodel {
    /// All of them.
    pub const ALL: [Submodel; 7] = [
        Submodel::Ethernet,
        Submodel::Ring(Discipline::Exhaustive),
        Submodel::Ring(Discipline::Gated),
        Submodel::Ring(Discipline::OneLimited),
        Submodel::Switch,
        Submodel::Gateway,
        Submodel::Wifi,
    ];
}

impl fmt::Display for Submodel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Submodel::Ethernet => "ethernet",
            Submodel::Ring(Discipline::Exhaustive) => "ring, exhaustive",
            Submodel::Ring(Discipline::Gated) => "ring, gated",
            Submodel::Ring(Discipline::OneLimited) => "ring, 1-limited",
            Submodel::Switch => "switch",
            Submodel::Gateway => "gateway",
            Submodel::Wifi => "wifi",
        })
    }
}

/// One draw; what is out of range makes an empty topology, which counts as outside all bands.
pub(super) fn topology(submodel: Submodel, copies: bool, rng: &mut Rng) -> Topology {
    Draw { rng }.topology(submodel, copies).unwrap_or_default()
}

struct Draw<'a> {
    rng: &'a mut Rng,
}

impl Draw<'_> {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.rng.unit() * (high - low)
    }

    /// Evenly in the logarithm.
    fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn topology(&mut self, submodel: Submodel, copies: bool) -> Result<Topology, OutOfRange> {
        let rate = if self.rng.chance(0.5) { 10 } else { 100 };
        let bits_per_s = rate as f64 * 1e6;
        let kind = self.kind(submodel, bits_per_s)?;
        let two = submodel == Submodel::Gateway;
        let medium = |name: &str| Medium { name: name.into(), rate: Rate::mbit(rate), kind: kind.clone() };
        let stations = match submodel {
            Submodel::Ethernet => self.scale(12.0, 180.0),
            Submodel::Wifi => self.between(1.0, 8.0),
            _ => self.scale(4.0, 100.0),
        } as u32;
        let far = if two { "n" } else { "m" };
        let mut topology = Topology { media: vec![medium("m")], ..Topology::default() };
        topology.groups.push(group("many", "m", stations, Seconds::ZERO));
        topology.groups.push(group("one", far, 1, Seconds::ZERO));
        if two {
            topology.media.push(medium("n"));
            let law = if self.rng.chance(0.5) { Law::Constant } else { Law::Exponential };
            let cost = Seconds::new(self.scale(2e-5, 1e-3))?;
            topology.gateways.push(Gateway { name: "g".into(), joins: vec!["m".into(), "n".into()], cost, law });
        }
        topology.flows = self.flows(submodel, bits_per_s, &topology)?;
        if copies {
            self.copy(&mut topology, far)?;
        }
        Ok(topology)
    }

    fn kind(&mut self, submodel: Submodel, bits_per_s: f64) -> Result<Kind, OutOfRange> {
        Ok(match submodel {
            Submodel::Ethernet => Kind::Ethernet { propagation: Seconds::new(self.between(0.0, 50.0) / bits_per_s)? },
            Submodel::Ring(discipline) => {
                Kind::Ring { walk: Seconds::new(self.scale(1.0, 200.0) / bits_per_s)?, discipline }
            }
            Submodel::Switch | Submodel::Gateway => {
                Kind::Switch { latency: Seconds::new(self.between(0.0, 1000.0) / bits_per_s)? }
            }
            Submodel::Wifi => {
                let bad = [Periods::Exponential, Periods::Uniform, Periods::Constant][self.rng.below(3) as usize];
                let good_s = self.scale(0.1, 2.0);
                let bad_s = if self.rng.chance(0.2) { 0.0 } else { good_s * self.scale(0.01, 0.3) };
                let overhead = Seconds::new(self.scale(50.0, 3000.0) / bits_per_s)?;
                Kind::Wifi { overhead, weather: Weather { good_s, bad_s, bad } }
            }
        })
    }

    /// Background: among the many, or there and back where the medium has a middle.
    fn flows(&mut self, submodel: Submodel, bits_per_s: f64, topology: &Topology) -> Result<Vec<Flow>, OutOfRange> {
        let bits = self.scale(2048.0, 12_208.0);
        let scv = if self.rng.chance(0.5) { 0.0 } else { self.between(0.0, 1.0) };
        let size = Size::varying(Bits::new(bits)?, scv)?;
        let load = self.between(0.05, 0.92);
        let stations = f64::from(topology.groups[0].stations);
        let flow = |from: &str, to: &str, packets_per_s: f64| -> Result<Flow, OutOfRange> {
            Ok(Flow { from: from.into(), to: to.into(), rate: PacketRate::new(packets_per_s)?, size })
        };
        let all = load * bits_per_s / bits;
        Ok(match submodel {
            Submodel::Ethernet | Submodel::Ring(_) => vec![flow("many", "many", all / stations)?],
            // Ports are full one by one: what all send to the one must fit through its link.
            Submodel::Switch => {
                vec![flow("many", "one", all * self.between(0.0, 1.0) / stations)?, flow("one", "many", all)?]
            }
            Submodel::Gateway => {
                let share = self.between(0.1, 0.9);
                let cost = topology.gateways.first().map_or(1.0, |g| g.cost.get());
                let all = load * (1.0 / cost).min(bits_per_s / bits);
                vec![flow("many", "one", all * share / stations)?, flow("one", "many", all * (1.0 - share))?]
            }
            Submodel::Wifi => {
                let share = self.between(0.2, 0.8);
                vec![flow("one", "many", all * share)?, flow("many", "one", all * (1.0 - share) / stations)?]
            }
        })
    }

    fn copy(&mut self, topology: &mut Topology, far: &str) -> Result<(), OutOfRange> {
        let mut some = |high: f64| if self.rng.chance(0.5) { 0.0 } else { self.rng.unit() * high };
        let (software, disk, think) = (some(5e-3), some(5e-3), some(5e-3));
        let (cost_from, cost_to) = (some(5e-4), some(5e-4));
        // A wireless cell's copies are between the base and a station; on a switch only what has the
        // same port is in the way.
        let middle = |m: &Medium| matches!(m.kind, Kind::Wifi { .. } | Kind::Switch { .. });
        let (from, to) = if topology.media.len() == 1 && topology.media.iter().any(middle) {
            ("one", "laptop")
        } else {
            ("sender", "receiver")
        };
        if from == "one" {
            topology.groups[1].cost = Seconds::new(cost_from)?;
        } else {
            topology.groups.push(group(from, "m", 1, Seconds::new(cost_from)?));
        }
        topology.groups.push(group(to, if from == "one" { "m" } else { far }, 1, Seconds::new(cost_to)?));
        let (block_bytes, packets) = [(1024, 1.0), (8192, 6.0), (32_768, 23.0)][self.rng.below(3) as usize];
        let size = |bits: f64| -> Result<Size, OutOfRange> { Ok(Size::constant(Bits::new(bits)?)) };
        topology.copies.push(Copy {
            from: from.into(),
            to: to.into(),
            file_bytes: 1 << 20,
            block_bytes,
            window: [1, 2, 4, 8, 32][self.rng.below(5) as usize],
            data: Burst { packets, size: size(block_bytes as f64 * 8.0 / packets + 500.0)? },
            reply: Burst { packets: 1.0, size: size(1200.0)? },
            software: Seconds::new(software)?,
            disk: Seconds::new(disk)?,
            think: Seconds::new(think)?,
        });
        Ok(())
    }
}

fn group(name: &str, medium: &str, stations: u32, cost: Seconds) -> Group {
    Group { name: name.into(), medium: medium.into(), stations, cost }
}
