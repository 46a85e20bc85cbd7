//! A network as the TOML that `model::network_file` reads.

use remora_model::ring::Discipline;
use remora_model::wifi::Periods;
use remora_model::{Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, Seconds, Topology};
use serde::Serialize;

#[derive(Serialize)]
struct File<'a> {
    medium: Vec<MediumTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    group: Vec<GroupTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gateway: Vec<GatewayTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    flow: Vec<FlowTable<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    copy: Vec<CopyTable<'a>>,
}

#[derive(Default, Serialize)]
struct MediumTable<'a> {
    name: &'a str,
    r#type: &'static str,
    rate: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    propagation: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    walk: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    discipline: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    good: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bad: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    periods: Option<&'static str>,
}

#[derive(Serialize)]
struct GroupTable<'a> {
    name: &'a str,
    medium: &'a str,
    stations: u32,
    cost: String,
}

#[derive(Serialize)]
struct GatewayTable<'a> {
    name: &'a str,
    joins: &'a [String],
    cost: String,
    law: &'static str,
}

#[derive(Serialize)]
struct FlowTable<'a> {
    from: &'a str,
    to: &'a str,
    rate: f64,
    size: String,
    variation: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct CopyTable<'a> {
    from: &'a str,
    to: &'a str,
    file: String,
    block: String,
    window: u32,
    packets: f64,
    packet: String,
    reply_packets: f64,
    reply: String,
    software: String,
    disk: String,
    think: String,
}

/// The file. Times are written in whole nanoseconds and sizes in whole bytes, as the file has them.
pub(crate) fn toml(topology: &Topology) -> Result<String, toml::ser::Error> {
    toml::to_string(&File {
        medium: topology.media.iter().map(medium).collect(),
        group: topology.groups.iter().map(group).collect(),
        gateway: topology.gateways.iter().map(gateway).collect(),
        flow: topology.flows.iter().map(flow).collect(),
        copy: topology.copies.iter().map(copy).collect(),
    })
}

fn time(time: Seconds) -> String {
    seconds(time.get())
}

fn seconds(seconds: f64) -> String {
    format!("{:.3}us", seconds * 1e6)
}

fn bytes(bits: f64) -> String {
    format!("{:.0}B", bits / 8.0)
}

fn medium(medium: &Medium) -> MediumTable<'_> {
    let table = MediumTable { name: &medium.name, rate: format!("{}bit", medium.rate.bits()), ..Default::default() };
    match medium.kind {
        Kind::Ethernet { propagation } => {
            MediumTable { r#type: "ethernet", propagation: Some(time(propagation)), ..table }
        }
        Kind::Ring { walk, discipline } => {
            let discipline = match discipline {
                Discipline::Exhaustive => "exhaustive",
                Discipline::Gated => "gated",
                Discipline::OneLimited => "one-limited",
            };
            MediumTable { r#type: "ring", walk: Some(time(walk)), discipline: Some(discipline), ..table }
        }
        Kind::Switch { latency } => MediumTable { r#type: "switch", latency: Some(time(latency)), ..table },
        Kind::Wifi { overhead, channel: weather } => MediumTable {
            r#type: "wifi",
            overhead: Some(time(overhead)),
            good: Some(seconds(weather.good_s)),
            bad: Some(seconds(weather.bad_s)),
            periods: Some(match weather.bad {
                Periods::Exponential => "exponential",
                Periods::Uniform => "uniform",
                Periods::Constant => "constant",
            }),
            ..table
        },
    }
}

fn group(group: &Group) -> GroupTable<'_> {
    GroupTable { name: &group.name, medium: &group.medium, stations: group.stations, cost: time(group.cost) }
}

fn gateway(gateway: &Gateway) -> GatewayTable<'_> {
    let law = match gateway.law {
        Law::Constant => "constant",
        Law::Exponential => "exponential",
    };
    GatewayTable { name: &gateway.name, joins: &gateway.joins, cost: time(gateway.cost), law }
}

fn flow(flow: &Flow) -> FlowTable<'_> {
    let (size, variation) = (bytes(flow.size.mean_bits()), flow.size.scv());
    FlowTable { from: &flow.from, to: &flow.to, rate: flow.rate.get(), size, variation }
}

fn copy(copy: &Copy) -> CopyTable<'_> {
    let size = |burst: Burst| bytes(burst.size.mean_bits());
    CopyTable {
        from: &copy.from,
        to: &copy.to,
        file: format!("{}B", copy.file_bytes),
        block: format!("{}B", copy.block_bytes),
        window: copy.window,
        packets: copy.data.packets,
        packet: size(copy.data),
        reply_packets: copy.reply.packets,
        reply: size(copy.reply),
        software: time(copy.software),
        disk: time(copy.disk),
        think: time(copy.think),
    }
}

#[cfg(test)]
mod tests {
    use remora_sim::network::check::{Case, Submodel};

    use super::*;
    use crate::commands::model::example::OFFICE;
    use crate::commands::model::network_file::parse;

    /// What is written is read as the same network, whatever is in it.
    #[test]
    fn written_network_parses_to_the_same_network() {
        let drawn =
            Submodel::ALL.iter().flat_map(|s| [false, true].map(|copies| Case::draw(*s, copies, 5, 0).topology));
        for topology in drawn.chain([parse(OFFICE).unwrap().0]) {
            let text = toml(&topology).unwrap();
            let (read, network) = parse(&text).unwrap_or_else(|(line, why)| panic!("{line}: {why}\n{text}"));
            for (was, is) in topology.flows.iter().zip(&read.flows) {
                assert!((was.size.scv() - is.size.scv()).abs() < 1e-9, "{text}");
            }
            // A variation comes back but for the last digit.
            let same = |a: &Topology, b: &Topology| (a.media == b.media, a.groups == b.groups, a.copies == b.copies);
            assert_eq!(same(&topology, &read), (true, true, true), "{text}");
            let (was, is) = (remora_model::Network::new(topology).unwrap().solve(), network.solve());
            for (was, is) in was.flows.iter().zip(&is.flows) {
                let near = was.delay_s.value().zip(is.delay_s.value()).is_none_or(|(a, b)| (a / b - 1.0).abs() < 1e-6);
                assert!(near && was.delay_s.outside().len() == is.delay_s.outside().len(), "{was:?} {is:?}");
            }
        }
    }
}
