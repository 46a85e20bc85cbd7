//! Random topologies of one submodel each, or of a mixture. The draws are independent of the
//! model's bands. All values can be written in a file: whole bytes, whole nanoseconds.

use std::fmt;

use remora_base::{Rate, Rng};
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, TwoStateChannel};
use remora_model::{
    Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, Network, OutOfRange, PacketRate, Report, Seconds, Size,
    Topology,
};
use serde::Serialize;

/// The subject of a case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Submodel {
    Ethernet,
    Ring(Discipline),
    Switch,
    /// A gateway between switches.
    Gateway,
    Wifi,
    /// Two to four media of any kinds, and the gateways between them.
    Mixed,
    /// A switch between ten to sixty media of any kinds, with up to 9,600 stations.
    Campus,
}

impl Submodel {
    pub const ALL: [Submodel; 9] = [
        Submodel::Ethernet,
        Submodel::Ring(Discipline::Exhaustive),
        Submodel::Ring(Discipline::Gated),
        Submodel::Ring(Discipline::OneLimited),
        Submodel::Switch,
        Submodel::Gateway,
        Submodel::Wifi,
        Submodel::Mixed,
        Submodel::Campus,
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
            Submodel::Mixed => "mixed",
            Submodel::Campus => "campus",
        })
    }
}

/// One draw; a value out of range yields an empty topology, which counts as outside all bands.
pub(super) fn topology(submodel: Submodel, copies: bool, rng: &mut Rng) -> Topology {
    Draw { rng }.topology(submodel, copies).unwrap_or_default()
}

/// The share of networks with more traffic than they can carry.
const OVERLOADS: f64 = 0.1;

fn time(seconds: f64) -> Result<Seconds, OutOfRange> {
    Seconds::new((seconds * 1e9).round() / 1e9)
}

fn bytes(bits: f64) -> Result<Bits, OutOfRange> {
    Bits::new((bits / 8.0).round() * 8.0)
}

struct Draw<'a> {
    rng: &'a mut Rng,
}

impl Draw<'_> {
    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.rng.unit() * (high - low)
    }

    fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    /// Log-uniform from `low` to `high`, inclusive.
    fn count(&mut self, low: u32, high: u32) -> u32 {
        (self.scale(f64::from(low), f64::from(high) + 1.0) as u32).clamp(low, high)
    }

    fn one_of<T: std::marker::Copy>(&mut self, all: &[T]) -> T {
        all[self.rng.below(all.len() as u64) as usize]
    }

    fn topology(&mut self, submodel: Submodel, copies: bool) -> Result<Topology, OutOfRange> {
        let mut topology = self.media(submodel)?;
        if submodel == Submodel::Campus {
            self.campus(&mut topology)?;
        } else {
            self.groups(&mut topology, copies)?;
            self.flows(&mut topology)?;
        }
        let load = match self.rng.unit() {
            u if u < OVERLOADS => self.between(1.0, 1.5),
            // Half of all copies have little or no background traffic.
            _ if copies && self.rng.chance(0.5) => self.between(0.0, 0.1),
            _ => self.between(0.05, 0.95),
        };
        scaled(&mut topology, load)?;
        if copies {
            for _ in 0..=u32::from(self.rng.chance(0.15)) {
                self.copy(&mut topology)?;
            }
        }
        Ok(topology)
    }

    fn media(&mut self, submodel: Submodel) -> Result<Topology, OutOfRange> {
        let mut topology = Topology::default();
        let media = match submodel {
            Submodel::Gateway => self.count(2, 3),
            Submodel::Mixed => self.count(2, 4),
            Submodel::Campus => self.count(11, 61),
            _ => 1,
        };
        for i in 0..media {
            let of = match submodel {
                Submodel::Gateway => Submodel::Switch,
                Submodel::Campus if i == 0 => Submodel::Switch,
                Submodel::Mixed | Submodel::Campus => self.one_of(&Submodel::ALL[..6]),
                one => one,
            };
            topology.media.push(self.medium(of, i)?);
        }
        // A chain of media, for gateways alone one in the middle of all, and on a campus one beside
        // each medium.
        let names: Vec<String> = topology.media.iter().map(|m| m.name.clone()).collect();
        let joins: Vec<Vec<String>> = match submodel {
            Submodel::Gateway => vec![names],
            Submodel::Campus => names[1..].iter().map(|name| vec![names[0].clone(), name.clone()]).collect(),
            _ => names.windows(2).map(<[String]>::to_vec).collect(),
        };
        for (i, joins) in joins.into_iter().enumerate() {
            let law = if self.rng.chance(0.5) { Law::Constant } else { Law::Exponential };
            let cost = time(self.scale(1e-5, 1e-3))?;
            topology.gateways.push(Gateway { name: format!("g{i}"), joins, cost, law });
        }
        Ok(topology)
    }

    fn medium(&mut self, of: Submodel, number: u32) -> Result<Medium, OutOfRange> {
        let mbit: u64 = match of {
            Submodel::Ethernet => self.one_of(&[10, 10, 100]),
            Submodel::Ring(_) => self.one_of(&[4, 16, 100]),
            Submodel::Wifi => self.one_of(&[1, 2, 11, 54]),
            Submodel::Switch | Submodel::Gateway | Submodel::Mixed | Submodel::Campus => self.one_of(&[10, 100, 1000]),
        };
        let bits_per_s = mbit as f64 * 1e6;
        let kind = match of {
            Submodel::Ethernet => {
                // Up to half a slot, as long as cables may be.
                let bits = if self.rng.chance(0.5) { self.between(0.0, 51.2) } else { self.between(0.0, 256.0) };
                Kind::Ethernet { propagation: time(bits / bits_per_s)? }
            }
            Submodel::Ring(discipline) => Kind::Ring { walk: time(self.scale(1.0, 500.0) / bits_per_s)?, discipline },
            Submodel::Switch | Submodel::Gateway | Submodel::Mixed | Submodel::Campus => {
                Kind::Switch { latency: time(self.between(0.0, 20e-6))? }
            }
            Submodel::Wifi => {
                let bad = self.one_of(&[Periods::Exponential, Periods::Uniform, Periods::Constant]);
                let good_s = time(self.scale(0.1, 10.0))?.get();
                let bad_s = if self.rng.chance(0.3) { 0.0 } else { time(good_s * self.scale(0.003, 0.5))?.get() };
                Kind::Wifi { overhead: time(self.between(0.0, 1e-3))?, channel: TwoStateChannel { good_s, bad_s, bad } }
            }
        };
        Ok(Medium { name: format!("m{number}"), rate: Rate::mbit(mbit), kind })
    }

    /// One to three groups of stations on each medium, in half of all cases with another one that
    /// is a server.
    fn groups(&mut self, topology: &mut Topology, copies: bool) -> Result<(), OutOfRange> {
        let media: Vec<Medium> = topology.media.clone();
        for medium in &media {
            let wifi = matches!(medium.kind, Kind::Wifi { .. });
            // All packets of a cell are to or from its base.
            let base = wifi && topology.gateways.is_empty();
            if base {
                self.group(topology, &medium.name, 1)?;
            }
            let kinds = self.count(1, 3);
            let most: u32 = if wifi { 12 } else { 150 };
            for _ in 0..kinds {
                let least = if kinds == 1 && !wifi { 2 } else { 1 };
                let stations = self.count(least, most / kinds);
                self.group(topology, &medium.name, stations)?;
            }
            // A file is copied from one group to another.
            if !wifi && (self.rng.chance(0.5) || copies && topology.groups.len() < 2) {
                self.group(topology, &medium.name, 1)?;
            }
        }
        Ok(())
    }

    fn group(&mut self, topology: &mut Topology, medium: &str, stations: u32) -> Result<(), OutOfRange> {
        let cost = if self.rng.chance(0.7) { 0.0 } else { self.scale(1e-6, 1e-3) };
        topology.groups.push(Group {
            name: format!("s{}", topology.groups.len()),
            medium: medium.into(),
            stations,
            cost: time(cost)?,
        });
        Ok(())
    }

    /// Servers on the first medium, stations on each of the others that talk to them, and flows
    /// within some media.
    fn campus(&mut self, topology: &mut Topology) -> Result<(), OutOfRange> {
        let names: Vec<String> = topology.media.iter().map(|m| m.name.clone()).collect();
        for (i, name) in names.iter().enumerate() {
            let stations = if i == 0 { self.count(1, 16) } else { self.count(2, 160) };
            self.group(topology, name, stations)?;
            if i == 0 {
                continue;
            }
            self.flow(topology, i, 0)?;
            for (chance, from) in [(0.5, 0), (0.2, i)] {
                if self.rng.chance(chance) {
                    self.flow(topology, from, i)?;
                }
            }
        }
        Ok(())
    }

    /// One to four flows with weights as rates.
    fn flows(&mut self, topology: &mut Topology) -> Result<(), OutOfRange> {
        for _ in 0..self.count(1, 4) {
            let (from, to) = self.pair(topology);
            self.flow(topology, from, to)?;
        }
        Ok(())
    }

    fn flow(&mut self, topology: &mut Topology, from: usize, to: usize) -> Result<(), OutOfRange> {
        let stations = f64::from(topology.groups[from].stations);
        let bits = bytes(self.scale(512.0, 12_208.0))?;
        let scv = if self.rng.chance(0.5) { 0.0 } else { self.between(0.0, 1.5) };
        topology.flows.push(Flow {
            from: topology.groups[from].name.clone(),
            to: topology.groups[to].name.clone(),
            rate: PacketRate::new(self.scale(0.1, 1.0) / stations / bits.get())?,
            size: Size::varying(bits, scv)?,
        });
        Ok(())
    }

    /// The sender and the receiver of a flow.
    fn pair(&mut self, topology: &Topology) -> (usize, usize) {
        let count = topology.groups.len() as u64;
        loop {
            let (from, to) = (self.rng.below(count) as usize, self.rng.below(count) as usize);
            let (a, b) = (&topology.groups[from], &topology.groups[to]);
            let cell = topology.media.iter().any(|m| m.name == a.medium && matches!(m.kind, Kind::Wifi { .. }));
            let within = a.medium == b.medium && cell;
            let to_base = topology.gateways.is_empty() && (from == 0) != (to == 0);
            if (from != to || a.stations > 1) && (!within || to_base) {
                return (from, to);
            }
            // In a cell all packets are to or from its base: the gateway or the first group.
        }
    }

    fn copy(&mut self, topology: &mut Topology) -> Result<(), OutOfRange> {
        let (mut from, mut to) = self.pair(topology);
        while from == to {
            (from, to) = self.pair(topology);
        }
        let mut some = |high: f64| if self.rng.chance(0.5) { 0.0 } else { self.rng.unit() * high };
        let (software, disk, think) = (some(5e-3), some(10e-3), some(20e-3));
        let (block_bytes, packets) =
            self.one_of(&[(1024, 1.0), (1460, 1.0), (8192, 6.0), (32_768, 23.0), (65_536, 45.0)]);
        let size = |bits: f64| -> Result<Size, OutOfRange> { Ok(Size::constant(bytes(bits)?)) };
        let replies = self.one_of(&[1.0, 1.0, 0.5, (packets / 2.0f64).max(1.0)]);
        topology.copies.push(Copy {
            from: topology.groups[from].name.clone(),
            to: topology.groups[to].name.clone(),
            file_bytes: 1 << 30,
            block_bytes,
            window: self.one_of(&[1, 1, 2, 3, 4, 8, 16, 64]),
            data: Burst { packets, size: size(block_bytes as f64 * 8.0 / packets + 500.0)? },
            reply: Burst { packets: replies, size: size(self.scale(512.0, 1600.0))? },
            software: time(software)?,
            disk: time(disk)?,
            think: time(think)?,
        });
        Ok(())
    }
}

/// Scales all rates so that the busiest medium or gateway has this load.
fn scaled(topology: &mut Topology, load: f64) -> Result<(), OutOfRange> {
    let Ok(network) = Network::new(topology.clone()) else { return Ok(()) };
    let fullest = fullest(&network.solve());
    for flow in &mut topology.flows {
        flow.rate = PacketRate::new(flow.rate.get() * load / fullest)?;
    }
    Ok(())
}

/// The highest utilisation that is proportional to the rates.
fn fullest(report: &Report) -> f64 {
    let media = report.media.iter().map(|m| m.busy.unwrap_or(0.0).max(m.load));
    media.chain(report.gateways.iter().map(|g| g.utilisation)).fold(0.0, f64::max)
}
