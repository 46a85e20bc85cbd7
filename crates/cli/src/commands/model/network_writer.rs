//! A network as the TOML that `model::network_file` reads.

use remora_model::ring::Discipline;
use remora_model::wifi::Periods;
use remora_model::{Burst, Copy, Flow, Gateway, Group, Kind, Law, Medium, Seconds, Topology};
use toml::Value;

type Pairs = Vec<(&'static str, Value)>;

/// The file. Times are written in nanoseconds and sizes in bytes.
pub(crate) fn toml(topology: &Topology) -> String {
    let Topology { media, groups, gateways, flows, copies } = topology;
    let tables = media.iter().map(|m| ("medium", medium(m)));
    let tables = tables.chain(groups.iter().map(|g| ("group", group(g))));
    let tables = tables.chain(gateways.iter().map(|g| ("gateway", gateway(g))));
    let tables = tables.chain(flows.iter().map(|f| ("flow", flow(f))));
    let tables = tables.chain(copies.iter().map(|c| ("copy", copy(c))));
    let texts = tables.map(|(name, pairs)| {
        let lines: String = pairs.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        format!("[[{name}]]\n{lines}")
    });
    texts.collect::<Vec<_>>().join("\n")
}

fn time(time: Seconds) -> Value {
    seconds(time.get())
}

fn seconds(seconds: f64) -> Value {
    format!("{:.3}us", seconds * 1e6).into()
}

fn bytes(bits: f64) -> Value {
    format!("{:.0}B", bits / 8.0).into()
}

fn text(text: &str) -> Value {
    text.into()
}

fn medium(medium: &Medium) -> Pairs {
    let (kind, own): (_, Pairs) = match medium.kind {
        Kind::Ethernet { propagation } => ("ethernet", vec![("propagation", time(propagation))]),
        Kind::Ring { walk, discipline } => {
            let discipline = match discipline {
                Discipline::Exhaustive => "exhaustive",
                Discipline::Gated => "gated",
                Discipline::OneLimited => "one-limited",
            };
            ("ring", vec![("walk", time(walk)), ("discipline", text(discipline))])
        }
        Kind::Switch { latency } => ("switch", vec![("latency", time(latency))]),
        Kind::Wifi { overhead, channel } => {
            let periods = match channel.bad {
                Periods::Exponential => "exponential",
                Periods::Uniform => "uniform",
                Periods::Constant => "constant",
            };
            let (good, bad) = (seconds(channel.good_s), seconds(channel.bad_s));
            ("wifi", vec![("overhead", time(overhead)), ("good", good), ("bad", bad), ("periods", text(periods))])
        }
    };
    let rate = format!("{}bit", medium.rate.bits()).into();
    [vec![("name", text(&medium.name)), ("type", text(kind)), ("rate", rate)], own].concat()
}

fn group(group: &Group) -> Pairs {
    let Group { name, medium, stations, cost } = group;
    vec![("name", text(name)), ("medium", text(medium)), ("stations", (*stations).into()), ("cost", time(*cost))]
}

fn gateway(gateway: &Gateway) -> Pairs {
    let law = match gateway.law {
        Law::Constant => "constant",
        Law::Exponential => "exponential",
    };
    let joins = gateway.joins.to_vec().into();
    vec![("name", text(&gateway.name)), ("joins", joins), ("cost", time(gateway.cost)), ("law", text(law))]
}

fn flow(flow: &Flow) -> Pairs {
    vec![
        ("from", text(&flow.from)),
        ("to", text(&flow.to)),
        ("rate", flow.rate.get().into()),
        ("size", bytes(flow.size.mean_bits())),
        ("variation", flow.size.scv().into()),
    ]
}

fn copy(copy: &Copy) -> Pairs {
    let size = |burst: Burst| bytes(burst.size.mean_bits());
    vec![
        ("from", text(&copy.from)),
        ("to", text(&copy.to)),
        ("file", format!("{}B", copy.file_bytes).into()),
        ("block", format!("{}B", copy.block_bytes).into()),
        ("window", copy.window.into()),
        ("packets", copy.data.packets.into()),
        ("packet", size(copy.data)),
        ("reply-packets", copy.reply.packets.into()),
        ("reply", size(copy.reply)),
        ("software", time(copy.software)),
        ("disk", time(copy.disk)),
        ("think", time(copy.think)),
    ]
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
            let text = toml(&topology);
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
