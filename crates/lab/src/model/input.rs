//! The numbers of a topology by name, for sliders, sweeps and sensitivities.
//!
//! Names are those of the file, as in `medium.floor.rate` and `flow.1.rate` (flows and copies are counted from 1).

use remora_base::Rate;
use remora_model::mva::WINDOW_MAX;
use remora_model::{Bits, Burst, Copy, Flow, Kind, OutOfRange, PacketRate, STATIONS_MAX, Seconds, Size, Topology};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unit {
    Number,
    Count,
    Bytes,
    Seconds,
    BitsPerSecond,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Rate,
    Propagation,
    Walk,
    Latency,
    Overhead,
    Good,
    Bad,
    Stations,
    GroupCost,
    GatewayCost,
    FlowRate,
    Size,
    Variation,
    File,
    Block,
    Window,
    Packets,
    Packet,
    ReplyPackets,
    Reply,
    Software,
    Disk,
    Think,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// As in `copy.1.window`.
    pub name: String,
    table: &'static str,
    index: usize,
    field: Field,
}

/// All numbers of a topology, in the order of the file's tables.
pub fn inputs(topology: &Topology) -> Vec<Input> {
    let mut all = Vec::new();
    let mut add = |table: &'static str, index: usize, name: &str, fields: &[Field]| {
        all.extend(fields.iter().map(|f| Input {
            name: format!("{table}.{name}.{}", f.key()),
            table,
            index,
            field: *f,
        }));
    };
    for (i, medium) in topology.media.iter().enumerate() {
        let fields: &[Field] = match medium.kind {
            Kind::Ethernet { .. } => &[Field::Rate, Field::Propagation],
            Kind::Ring { .. } => &[Field::Rate, Field::Walk],
            Kind::Switch { .. } => &[Field::Rate, Field::Latency],
            Kind::Wifi { .. } => &[Field::Rate, Field::Overhead, Field::Good, Field::Bad],
        };
        add("medium", i, &medium.name, fields);
    }
    for (i, group) in topology.groups.iter().enumerate() {
        add("group", i, &group.name, &[Field::Stations, Field::GroupCost]);
    }
    for (i, gateway) in topology.gateways.iter().enumerate() {
        add("gateway", i, &gateway.name, &[Field::GatewayCost]);
    }
    for i in 0..topology.flows.len() {
        add("flow", i, &(i + 1).to_string(), &[Field::FlowRate, Field::Size, Field::Variation]);
    }
    for i in 0..topology.copies.len() {
        let sizes = [Field::File, Field::Block, Field::Window, Field::Packets, Field::Packet, Field::ReplyPackets];
        let times = [Field::Reply, Field::Software, Field::Disk, Field::Think];
        add("copy", i, &(i + 1).to_string(), &[&sizes[..], &times[..]].concat());
    }
    all
}

impl Field {
    fn key(self) -> &'static str {
        match self {
            Field::Rate | Field::FlowRate => "rate",
            Field::Propagation => "propagation",
            Field::Walk => "walk",
            Field::Latency => "latency",
            Field::Overhead => "overhead",
            Field::Good => "good",
            Field::Bad => "bad",
            Field::Stations => "stations",
            Field::GroupCost | Field::GatewayCost => "cost",
            Field::Size => "size",
            Field::Variation => "variation",
            Field::File => "file",
            Field::Block => "block",
            Field::Window => "window",
            Field::Packets => "packets",
            Field::Packet => "packet",
            Field::ReplyPackets => "reply-packets",
            Field::Reply => "reply",
            Field::Software => "software",
            Field::Disk => "disk",
            Field::Think => "think",
        }
    }
}

impl Input {
    /// Its array of tables in the file, the index there, and the key.
    pub fn place(&self) -> (&'static str, usize, &'static str) {
        (self.table, self.index, self.field.key())
    }

    pub fn unit(&self) -> Unit {
        match self.field {
            Field::Rate => Unit::BitsPerSecond,
            Field::Stations | Field::Window => Unit::Count,
            Field::FlowRate | Field::Variation | Field::Packets | Field::ReplyPackets => Unit::Number,
            Field::Size | Field::File | Field::Block | Field::Packet | Field::Reply => Unit::Bytes,
            _ => Unit::Seconds,
        }
    }

    pub fn is_whole(&self) -> bool {
        matches!(self.unit(), Unit::Count | Unit::Bytes | Unit::BitsPerSecond)
    }

    /// Its value; `None` if the topology has no such table.
    pub fn get(&self, topology: &Topology) -> Option<f64> {
        let i = self.index;
        Some(match self.field {
            Field::Rate => topology.media.get(i)?.rate.bits() as f64,
            Field::Propagation | Field::Walk | Field::Latency | Field::Overhead | Field::Good | Field::Bad => {
                return self.of_kind(&topology.media.get(i)?.kind);
            }
            Field::Stations => f64::from(topology.groups.get(i)?.stations),
            Field::GroupCost => topology.groups.get(i)?.cost.get(),
            Field::GatewayCost => topology.gateways.get(i)?.cost.get(),
            Field::FlowRate => topology.flows.get(i)?.rate.get(),
            Field::Size => topology.flows.get(i)?.size.mean_bits() / 8.0,
            Field::Variation => variation(topology.flows.get(i)?.size),
            _ => self.of_copy(topology.copies.get(i)?),
        })
    }

    fn of_kind(&self, kind: &Kind) -> Option<f64> {
        Some(match (self.field, kind) {
            (Field::Propagation, Kind::Ethernet { propagation }) => propagation.get(),
            (Field::Walk, Kind::Ring { walk, .. }) => walk.get(),
            (Field::Latency, Kind::Switch { latency }) => latency.get(),
            (Field::Overhead, Kind::Wifi { overhead, .. }) => overhead.get(),
            (Field::Good, Kind::Wifi { channel: weather, .. }) => weather.good_s,
            (Field::Bad, Kind::Wifi { channel: weather, .. }) => weather.bad_s,
            _ => return None,
        })
    }

    fn of_copy(&self, copy: &Copy) -> f64 {
        match self.field {
            Field::File => copy.file_bytes as f64,
            Field::Block => copy.block_bytes as f64,
            Field::Window => f64::from(copy.window),
            Field::Packets => copy.data.packets,
            Field::Packet => copy.data.size.mean_bits() / 8.0,
            Field::ReplyPackets => copy.reply.packets,
            Field::Reply => copy.reply.size.mean_bits() / 8.0,
            Field::Software => copy.software.get(),
            Field::Disk => copy.disk.get(),
            _ => copy.think.get(),
        }
    }

    /// Sets it to `value`, rounded if it is an integer. An error says what was expected.
    /// [`Network::new`](remora_model::Network::new) refuses further values.
    pub fn set(&self, topology: &mut Topology, value: f64) -> Result<(), String> {
        self.try_set(topology, value).map_err(|why| format!("{}: {why}", self.name))
    }

    fn try_set(&self, topology: &mut Topology, value: f64) -> Result<(), String> {
        let (i, gone) = (self.index, || "there is no such table".to_owned());
        match self.field {
            Field::Rate => topology.media.get_mut(i).ok_or_else(gone)?.rate = bit_rate(value)?,
            Field::Propagation | Field::Walk | Field::Latency | Field::Overhead | Field::Good | Field::Bad => {
                self.set_kind(&mut topology.media.get_mut(i).ok_or_else(gone)?.kind, seconds(value)?)?;
            }
            Field::Stations => {
                topology.groups.get_mut(i).ok_or_else(gone)?.stations = whole(value, STATIONS_MAX.into())? as u32;
            }
            Field::GroupCost => topology.groups.get_mut(i).ok_or_else(gone)?.cost = seconds(value)?,
            Field::GatewayCost => topology.gateways.get_mut(i).ok_or_else(gone)?.cost = seconds(value)?,
            Field::FlowRate | Field::Size | Field::Variation => {
                self.set_flow(topology.flows.get_mut(i).ok_or_else(gone)?, value)?;
            }
            _ => self.set_copy(topology.copies.get_mut(i).ok_or_else(gone)?, value)?,
        }
        Ok(())
    }

    fn set_kind(&self, kind: &mut Kind, value: Seconds) -> Result<(), String> {
        match (self.field, kind) {
            (Field::Propagation, Kind::Ethernet { propagation }) => *propagation = value,
            (Field::Walk, Kind::Ring { walk, .. }) => *walk = value,
            (Field::Latency, Kind::Switch { latency }) => *latency = value,
            (Field::Overhead, Kind::Wifi { overhead, .. }) => *overhead = value,
            (Field::Good, Kind::Wifi { channel: weather, .. }) => weather.good_s = value.get(),
            (Field::Bad, Kind::Wifi { channel: weather, .. }) => weather.bad_s = value.get(),
            _ => return Err("this kind of medium has no such number".into()),
        }
        Ok(())
    }

    fn set_flow(&self, flow: &mut Flow, value: f64) -> Result<(), String> {
        let varying = |bits: f64, scv| Size::varying(Bits::new(bits).map_err(text)?, scv).map_err(text);
        match self.field {
            Field::FlowRate => flow.rate = PacketRate::new(value).map_err(text)?,
            Field::Size => flow.size = varying(value.round() * 8.0, variation(flow.size))?,
            _ => flow.size = varying(flow.size.mean_bits(), value)?,
        }
        Ok(())
    }

    fn set_copy(&self, copy: &mut Copy, value: f64) -> Result<(), String> {
        let size = || Ok::<_, String>(Size::constant(Bits::new(value.round() * 8.0).map_err(text)?));
        match self.field {
            Field::File => copy.file_bytes = whole(value, 1e18)? as u64,
            Field::Block => copy.block_bytes = whole(value, 1e18)? as u64,
            Field::Window => copy.window = whole(value, WINDOW_MAX.into())? as u32,
            Field::Packets => copy.data.packets = value,
            Field::ReplyPackets => copy.reply.packets = value,
            Field::Packet => copy.data = Burst { size: size()?, ..copy.data },
            Field::Reply => copy.reply = Burst { size: size()?, ..copy.reply },
            Field::Software => copy.software = seconds(value)?,
            Field::Disk => copy.disk = seconds(value)?,
            _ => copy.think = seconds(value)?,
        }
        Ok(())
    }

    /// Range and step of a slider, from the value in the file: about three times that value, within what the model
    /// accepts.
    pub fn slider(&self, value: f64) -> Slider {
        let idle = match self.field {
            Field::FlowRate => 1000.0,
            Field::Variation | Field::Packets | Field::ReplyPackets => 1.0,
            _ => 0.01,
        };
        let wide = nice(if value > 0.0 { 3.0 * value } else { idle });
        let most = match self.field {
            Field::Stations => f64::from(STATIONS_MAX),
            Field::Window => f64::from(WINDOW_MAX),
            Field::Variation => 100.0,
            Field::Packets | Field::ReplyPackets => 1e4,
            _ => f64::INFINITY,
        };
        let high = wide.min(most).max(value);
        let step = high / SLIDER_STEPS;
        let (low, step) = match (self.unit(), self.field) {
            (Unit::Count, _) => (1.0, 1.0),
            (Unit::Bytes, _) => (step.round().max(1.0), step.round().max(1.0)),
            (Unit::BitsPerSecond, _) | (_, Field::Packets | Field::Good) => (step, step),
            _ => (0.0, step),
        };
        Slider { low, high, step }
    }
}

/// Steps of a slider from 0 to its end.
const SLIDER_STEPS: f64 = 300.0;

/// Range and step of a slider, in the input's unit.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Slider {
    pub low: f64,
    pub high: f64,
    pub step: f64,
}

/// The next of 1, 2, 3, 5, 10, 20... from `value`.
fn nice(value: f64) -> f64 {
    let unit = 10f64.powf(value.log10().floor());
    let lead = [1.0, 2.0, 3.0, 5.0, 10.0].into_iter().find(|l| l * unit >= value * (1.0 - 1e-9));
    lead.unwrap_or(10.0) * unit
}

fn text(e: OutOfRange) -> String {
    e.to_string()
}

fn seconds(value: f64) -> Result<Seconds, String> {
    Seconds::new(value).map_err(text)
}

fn whole(value: f64, max: f64) -> Result<f64, String> {
    let value = value.round();
    if (1.0..=max).contains(&value) { Ok(value) } else { Err(format!("{value} is out of range: expected 1 to {max}")) }
}

fn bit_rate(value: f64) -> Result<Rate, String> {
    let bits = whole(value, 1e15)?;
    Rate::from_bits(bits as u64).ok_or_else(|| "expected at least 1 bit/s".into())
}

/// Variance over mean squared; rounding errors near zero count as zero.
fn variation(size: Size) -> f64 {
    let scv = size.scv();
    if scv < 1e-12 { 0.0 } else { scv }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::examples;

    #[test]
    fn input_reads_back_its_set_value() {
        let topology = examples::office();
        let all = inputs(&topology);
        let names: Vec<&str> = all.iter().map(|i| i.name.as_str()).collect();
        for name in ["medium.floor.rate", "group.desks.stations", "gateway.router.cost", "flow.2.size", "copy.1.window"]
        {
            assert!(names.contains(&name), "{name} is not in {names:?}");
        }
        for input in &all {
            let mut changed = topology.clone();
            let slider = input.slider(input.get(&topology).unwrap());
            let to = [slider.low + slider.step, slider.high];
            for value in to {
                input.set(&mut changed, value).unwrap();
                let got = input.get(&changed).unwrap();
                let expected = if input.is_whole() { value.round() } else { value };
                assert!((got - expected).abs() <= 1e-9 * expected.abs(), "{}: {got} {expected}", input.name);
                for other in all.iter().filter(|o| *o != input) {
                    let (a, b) = (other.get(&changed).unwrap(), other.get(&topology).unwrap());
                    assert!((a - b).abs() <= 1e-9 * b.abs(), "{} changed {}", input.name, other.name);
                }
            }
        }
    }

    #[test]
    fn input_out_of_range_is_refused_by_name() {
        let topology = examples::office();
        for (name, value) in [
            ("medium.floor.rate", 0.0),
            ("group.desks.stations", 0.4),
            ("flow.1.rate", -1.0),
            ("flow.1.variation", f64::NAN),
            ("copy.1.window", 1e9),
            ("copy.1.packet", 0.0),
            ("copy.1.disk", -1e-9),
        ] {
            let input = inputs(&topology).into_iter().find(|i| i.name == name).unwrap();
            let why = input.set(&mut topology.clone(), value).unwrap_err();
            assert!(why.starts_with(name) && why.contains("expected"), "{why}");
        }
    }

    #[test]
    fn slider_ends_are_round_numbers() {
        for (value, end) in [(8.0, 30.0), (1.0, 3.0), (0.1, 0.3), (40.0, 200.0), (333.0, 1000.0)] {
            assert!((nice(3.0 * value) - end).abs() < 1e-9, "{value}: {}", nice(3.0 * value));
        }
    }
}
