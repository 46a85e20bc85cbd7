//! The numbers of the file in yellow cells, by their names, and the structure that no cell changes: names,
//! ports, ways.

use std::collections::BTreeMap;

use remora_model::{Kind, Network, Topology};

use super::book::{ABOUT, Book, FIRST, VALUE};
use super::expr::Expr;
use super::traffic::Traffic;
use crate::model::{Input, Unit, inputs};

/// The file as the formulas see it.
pub(super) struct Plan<'a> {
    pub(super) network: &'a Network,
    pub(super) topology: &'a Topology,
    cells: BTreeMap<(&'static str, usize, &'static str), Expr>,
    /// Ports of each medium by name: groups, then gateways.
    pub(super) ports: Vec<Vec<Behind>>,
}

/// What stands behind a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    Group(usize),
    Gateway(usize),
}

impl<'a> Plan<'a> {
    /// Writes the inputs to `sheet`.
    pub(super) fn new(network: &'a Network, book: &mut Book, sheet: usize) -> Plan<'a> {
        let topology = network.topology();
        for (column, head) in [(0, "Inputs"), (1, "unit"), (ABOUT, " of")] {
            book.head(sheet, (FIRST, column), head);
        }
        book.right(sheet, (FIRST, VALUE), "value");
        let mut cells = BTreeMap::new();
        for (row, input) in (FIRST + 1..).zip(inputs(topology)) {
            let Some(value) = input.get(topology) else { continue };
            book.text(sheet, (row, 0), input.name.as_str());
            book.text(sheet, (row, 1), unit(input.unit()));
            book.aside(sheet, (row, ABOUT), about(topology, &input));
            cells.insert(input.place(), book.input(sheet, (row, VALUE), value, input.unit()));
        }
        let ports = topology.media.iter().map(|medium| {
            let groups = (0..).zip(&topology.groups).filter(|(_, g)| g.medium == medium.name);
            let gateways = (0..).zip(&topology.gateways).filter(|(_, g)| g.joins.contains(&medium.name));
            groups.map(|(i, _)| Behind::Group(i)).chain(gateways.map(|(i, _)| Behind::Gateway(i))).collect()
        });
        Plan { network, topology, cells, ports: ports.collect() }
    }

    /// An input's cell; a file's medium of another kind has no such number.
    fn get(&self, table: &'static str, index: usize, key: &'static str) -> Expr {
        self.cells.get(&(table, index, key)).cloned().unwrap_or_else(Expr::none)
    }

    pub(super) fn medium(&self, index: usize, key: &'static str) -> Expr {
        self.get("medium", index, key)
    }

    pub(super) fn group(&self, index: usize, key: &'static str) -> Expr {
        self.get("group", index, key)
    }

    pub(super) fn cost(&self, gateway: usize) -> Expr {
        self.get("gateway", gateway, "cost")
    }

    pub(super) fn flow(&self, index: usize, key: &'static str) -> Expr {
        self.get("flow", index, key)
    }

    pub(super) fn copy(&self, index: usize, key: &'static str) -> Expr {
        self.get("copy", index, key)
    }

    pub(super) fn kind(&self, medium: usize) -> &Kind {
        &self.topology.media[medium].kind
    }

    pub(super) fn stations(&self, behind: Behind) -> Expr {
        match behind {
            Behind::Group(group) => self.group(group, "stations"),
            Behind::Gateway(_) => Expr::from(1.0),
        }
    }

    pub(super) fn name(&self, behind: Behind) -> &str {
        match behind {
            Behind::Group(group) => &self.topology.groups[group].name,
            Behind::Gateway(gateway) => &self.topology.gateways[gateway].name,
        }
    }

    /// Medium and port of each of these.
    pub(super) fn places(&self, behind: Behind) -> Vec<(usize, usize)> {
        let of =
            |(medium, ports): (usize, &Vec<Behind>)| ports.iter().position(|p| *p == behind).map(|port| (medium, port));
        self.ports.iter().enumerate().filter_map(of).collect()
    }

    pub(super) fn flow_name(&self, flow: usize) -> String {
        let about = &self.topology.flows[flow];
        format!("{}: {} > {}", flow + 1, about.from, about.to)
    }

    /// All that the flows send, a block of `sheet`.
    pub(super) fn flows(&self, book: &mut Book, sheet: usize) -> Vec<Traffic> {
        let heads: Vec<String> = (0..self.topology.flows.len()).map(|i| self.flow_name(i)).collect();
        let block = book.block(sheet, "What flows send, all stations together", &heads);
        let routes = self.network.flow_routes().iter().enumerate();
        let of = |(i, route): (usize, &remora_model::Route)| {
            let mut pad = book.pad(block, i);
            let pps = self.flow(i, "rate") * self.group(route.from, "stations");
            let pps = pad.put("packets", "1/s", pps);
            Traffic::of(&pps, &self.flow(i, "size"), &self.flow(i, "variation")).put(&mut pad, "all")
        };
        routes.map(of).collect()
    }
}

/// What a number belongs to, in a few words.
fn about(topology: &Topology, input: &Input) -> String {
    let (table, i, _) = input.place();
    let way = |from: &str, to: &str| format!("{from} > {to}");
    let text = match table {
        "medium" => topology.media.get(i).map(|m| match m.kind {
            Kind::Ethernet { .. } => "shared Ethernet".to_owned(),
            Kind::Ring { .. } => "token ring".to_owned(),
            Kind::Switch { .. } => "switch".to_owned(),
            Kind::Wifi { .. } => "wireless cell".to_owned(),
        }),
        "group" => topology.groups.get(i).map(|g| format!("on {}", g.medium)),
        "gateway" => topology.gateways.get(i).map(|g| g.joins.join(", ")),
        "flow" => topology.flows.get(i).map(|f| way(&f.from, &f.to)),
        _ => topology.copies.get(i).map(|c| way(&c.from, &c.to)),
    };
    text.unwrap_or_default()
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Number | Unit::Count => "",
        Unit::Bytes => "B",
        Unit::Seconds => "s",
        Unit::BitsPerSecond => "bit/s",
    }
}
