//! A network in TOML. Unknown keys, keys of another type of medium and values out of range are
//! errors that name their line.

use std::ops::Range;
use std::path::Path;

use remora_base::Rate;
use remora_model::ring::Discipline;
use remora_model::wifi::{Periods, TwoStateChannel};
use remora_model::{
    Bits, Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, Network, OutOfRange, PacketRate, Seconds, Size, Table,
    Topology,
};
use serde::Deserialize;
use toml::Spanned;

use crate::config::text_file::{Bytes, Text, Time, key_at, line_at};
use crate::output::exit::{Error, Result};

/// No network needs a longer one. Reading ends there, whatever the path leads to.
const BYTES_MAX: u64 = 16 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    medium: Vec<Spanned<MediumTable>>,
    #[serde(default)]
    group: Vec<Spanned<GroupTable>>,
    #[serde(default)]
    gateway: Vec<Spanned<GatewayTable>>,
    #[serde(default)]
    flow: Vec<Spanned<FlowTable>>,
    #[serde(default)]
    copy: Vec<Spanned<CopyTable>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Type {
    Ethernet,
    Ring,
    Switch,
    Wifi,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum RingDiscipline {
    Exhaustive,
    Gated,
    OneLimited,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum BadPeriods {
    Exponential,
    Uniform,
    Constant,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MediumTable {
    name: String,
    r#type: Type,
    rate: Text<Rate>,
    propagation: Option<Text<Time>>,
    walk: Option<Text<Time>>,
    discipline: Option<RingDiscipline>,
    latency: Option<Text<Time>>,
    overhead: Option<Text<Time>>,
    good: Option<Text<Time>>,
    bad: Option<Text<Time>>,
    periods: Option<BadPeriods>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupTable {
    name: String,
    medium: String,
    stations: u32,
    cost: Option<Text<Time>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ServiceLaw {
    Constant,
    Exponential,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GatewayTable {
    name: String,
    joins: Vec<String>,
    cost: Text<Time>,
    law: Option<ServiceLaw>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowTable {
    from: String,
    to: String,
    rate: f64,
    size: Text<Bytes>,
    #[serde(default)]
    variation: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct CopyTable {
    from: String,
    to: String,
    file: Text<Bytes>,
    block: Text<Bytes>,
    window: Option<u32>,
    packets: Option<f64>,
    packet: Text<Bytes>,
    reply_packets: Option<f64>,
    reply: Text<Bytes>,
    software: Option<Text<Time>>,
    disk: Option<Text<Time>>,
    think: Option<Text<Time>>,
}

/// A key and what is wrong with its value.
type Wrong = (&'static str, String);

/// Reads and checks the network at `path`.
pub(crate) fn read(path: &Path) -> Result<(Topology, Network)> {
    parse_at(path, &text(path)?)
}

/// What is in the file at `path`.
pub(crate) fn text(path: &Path) -> Result<String> {
    crate::config::text_file::read(path, BYTES_MAX, "a network")
}

/// The network in `text`, which is that of the file at `path`.
pub(crate) fn parse_at(path: &Path, text: &str) -> Result<(Topology, Network)> {
    parse(text).map_err(|(line, why)| Error::Usage(format!("{}:{line}: {why}", path.display())))
}

/// The network in `text`, or a line, from 1, and what is wrong there.
pub(crate) fn parse(text: &str) -> Result<(Topology, Network), (usize, String)> {
    let file: File = toml::from_str(text).map_err(|e| {
        let (number, line) = line_at(text, e.span().map_or(text.len(), |s| s.start));
        let why = e.message().trim().replace('\n', ": ");
        (number, if line.is_empty() { why } else { format!("{line}: {why}") })
    })?;
    let spans = Spans::of(&file);
    let at = |span: Range<usize>, (key, why): Wrong| {
        (line_at(text, key_at(text, span.start, key)).0, format!("{key}: {why}"))
    };
    let topology = Topology {
        media: each(&file.medium, medium).map_err(|(span, wrong)| at(span, wrong))?,
        groups: each(&file.group, group).map_err(|(span, wrong)| at(span, wrong))?,
        gateways: each(&file.gateway, gateway).map_err(|(span, wrong)| at(span, wrong))?,
        flows: each(&file.flow, flow).map_err(|(span, wrong)| at(span, wrong))?,
        copies: each(&file.copy, copy).map_err(|(span, wrong)| at(span, wrong))?,
    };
    let network = Network::new(topology.clone());
    let network = network.map_err(|e| at(spans.get(e.table, e.index), (e.key, e.why)))?;
    Ok((topology, network))
}

/// Where each table stands.
struct Spans([Vec<Range<usize>>; 5]);

impl Spans {
    fn of(file: &File) -> Spans {
        fn all<T>(tables: &[Spanned<T>]) -> Vec<Range<usize>> {
            tables.iter().map(Spanned::span).collect()
        }
        Spans([all(&file.medium), all(&file.group), all(&file.gateway), all(&file.flow), all(&file.copy)])
    }

    fn get(&self, table: Table, index: usize) -> Range<usize> {
        let tables = match table {
            Table::Media => &self.0[0],
            Table::Groups => &self.0[1],
            Table::Gateways => &self.0[2],
            Table::Flows => &self.0[3],
            Table::Copies => &self.0[4],
        };
        tables.get(index).cloned().unwrap_or(0..0)
    }
}

fn each<T, U>(tables: &[Spanned<T>], read: fn(&T) -> Result<U, Wrong>) -> Result<Vec<U>, (Range<usize>, Wrong)> {
    tables.iter().map(|t| read(t.get_ref()).map_err(|wrong| (t.span(), wrong))).collect()
}

fn seconds(key: &'static str, time: &Option<Text<Time>>, default: f64) -> Result<Seconds, Wrong> {
    let value = time.as_ref().map_or(default, |t| t.0.0.as_secs_f64());
    Seconds::new(value).map_err(|e| (key, e.to_string()))
}

fn bits(key: &'static str, bytes: &Text<Bytes>) -> Result<Bits, Wrong> {
    Bits::new(bytes.0.0 as f64 * 8.0).map_err(|e| (key, e.to_string()))
}

fn medium(table: &MediumTable) -> Result<Medium, Wrong> {
    let given = [
        ("propagation", table.propagation.is_some(), Type::Ethernet, "an ethernet"),
        ("walk", table.walk.is_some(), Type::Ring, "a ring"),
        ("discipline", table.discipline.is_some(), Type::Ring, "a ring"),
        ("latency", table.latency.is_some(), Type::Switch, "a switch"),
        ("overhead", table.overhead.is_some(), Type::Wifi, "a wifi cell"),
        ("good", table.good.is_some(), Type::Wifi, "a wifi cell"),
        ("bad", table.bad.is_some(), Type::Wifi, "a wifi cell"),
        ("periods", table.periods.is_some(), Type::Wifi, "a wifi cell"),
    ];
    if let Some((key, _, _, whose)) = given.into_iter().find(|(_, given, of, _)| *given && *of != table.r#type) {
        return Err((key, format!("only {whose} has this key")));
    }
    let kind = match table.r#type {
        Type::Ethernet => Kind::Ethernet { propagation: seconds("propagation", &table.propagation, 5e-6)? },
        Type::Switch => Kind::Switch { latency: seconds("latency", &table.latency, 0.0)? },
        Type::Ring => {
            if table.walk.is_none() {
                return Err(("name", format!("the ring '{}' needs a walk time, as in walk = \"3us\"", table.name)));
            }
            let discipline = match table.discipline {
                Some(RingDiscipline::Gated) => Discipline::Gated,
                Some(RingDiscipline::OneLimited) => Discipline::OneLimited,
                Some(RingDiscipline::Exhaustive) | None => Discipline::Exhaustive,
            };
            Kind::Ring { walk: seconds("walk", &table.walk, 0.0)?, discipline }
        }
        Type::Wifi => {
            let bad = match table.periods {
                Some(BadPeriods::Exponential) => Periods::Exponential,
                Some(BadPeriods::Constant) => Periods::Constant,
                Some(BadPeriods::Uniform) | None => Periods::Uniform,
            };
            let (good_s, bad_s) = (seconds("good", &table.good, 1.0)?.get(), seconds("bad", &table.bad, 0.0)?.get());
            let overhead = seconds("overhead", &table.overhead, 0.0)?;
            Kind::Wifi { overhead, channel: TwoStateChannel { good_s, bad_s, bad } }
        }
    };
    Ok(Medium { name: table.name.clone(), rate: table.rate.0, kind })
}

fn group(table: &GroupTable) -> Result<Group, Wrong> {
    Ok(Group {
        name: table.name.clone(),
        medium: table.medium.clone(),
        stations: table.stations,
        cost: seconds("cost", &table.cost, 0.0)?,
    })
}

fn gateway(table: &GatewayTable) -> Result<Gateway, Wrong> {
    let cost = Seconds::new(table.cost.0.0.as_secs_f64()).map_err(|e| ("cost", e.to_string()))?;
    let law = match table.law {
        Some(ServiceLaw::Exponential) => Law::Exponential,
        Some(ServiceLaw::Constant) | None => Law::Constant,
    };
    Ok(Gateway { name: table.name.clone(), joins: table.joins.clone(), cost, law })
}

fn flow(table: &FlowTable) -> Result<Flow, Wrong> {
    let wrong = |key| move |e: OutOfRange| (key, e.to_string());
    Ok(Flow {
        from: table.from.clone(),
        to: table.to.clone(),
        rate: PacketRate::new(table.rate).map_err(wrong("rate"))?,
        size: Size::varying(bits("size", &table.size)?, table.variation).map_err(wrong("variation"))?,
    })
}

fn copy(table: &CopyTable) -> Result<Copy, Wrong> {
    let burst = |packets: Option<f64>, size| Burst { packets: packets.unwrap_or(1.0), size: Size::constant(size) };
    Ok(Copy {
        from: table.from.clone(),
        to: table.to.clone(),
        file_bytes: table.file.0.0,
        block_bytes: table.block.0.0,
        window: table.window.unwrap_or(1),
        data: burst(table.packets, bits("packet", &table.packet)?),
        reply: burst(table.reply_packets, bits("reply", &table.reply)?),
        software: seconds("software", &table.software, 0.0)?,
        disk: seconds("disk", &table.disk, 0.0)?,
        think: seconds("think", &table.think, 0.0)?,
    })
}

#[cfg(test)]
#[path = "network_file_tests.rs"]
mod tests;
