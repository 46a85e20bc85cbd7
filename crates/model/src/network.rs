//! A validated topology: names resolved, the media a forest, a route for each flow and copy.

use std::collections::{BTreeMap, VecDeque};

use crate::formulas::mva::WINDOW_MAX;
use crate::topology::{COPIES_MAX, Copy, Flow, Kind, STATIONS_MAX, TABLES_MAX, Table, Topology, TopologyError};

/// A topology that can be solved.
#[derive(Clone, Debug)]
pub struct Network {
    pub(crate) topology: Topology,
    /// Stations behind each port of each medium.
    pub(crate) ports: Vec<Vec<f64>>,
    /// Medium and port of each gateway's attachments.
    pub(crate) attached: Vec<Vec<(usize, usize)>>,
    /// Medium and port of each group.
    pub(crate) group_ports: Vec<(usize, usize)>,
    pub(crate) flows: Vec<Route>,
    /// The data's route and the reply's.
    pub(crate) copies: Vec<(Route, Route)>,
}

/// A route between groups; indices follow the order of the topology.
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    /// The sender's group.
    pub from: usize,
    /// The receiver's group.
    pub to: usize,
    /// Media in order.
    pub hops: Vec<Hop>,
    /// The gateways between the hops: one fewer.
    pub gateways: Vec<usize>,
}

/// A crossing of a medium from one port to another.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Hop {
    pub medium: usize,
    /// The port of entry, of [`Network::ports`].
    pub from: usize,
    /// The port of exit.
    pub to: usize,
}

type Names<'a> = BTreeMap<&'a str, usize>;

impl Network {
    /// Checks `topology` and finds the routes.
    pub fn new(topology: Topology) -> Result<Network, TopologyError> {
        let media = names(Table::Media, topology.media.iter().map(|m| m.name.as_str()))?;
        let groups = names(Table::Groups, topology.groups.iter().map(|g| g.name.as_str()))?;
        names(Table::Gateways, topology.gateways.iter().map(|g| g.name.as_str()))?;
        check_media(&topology)?;
        let mut plan = Plan::new(&topology, &media)?;
        plan.root();
        let flows = topology.flows.iter().enumerate().map(|(i, flow)| plan.flow(&groups, i, flow));
        let flows = flows.collect::<Result<_, _>>()?;
        let copies = topology.copies.iter().enumerate().map(|(i, copy)| plan.copy(&groups, i, copy));
        let copies = copies.collect::<Result<_, _>>()?;
        bound(Table::Flows, topology.flows.len(), TABLES_MAX)?;
        bound(Table::Copies, topology.copies.len(), COPIES_MAX)?;
        let attached = plan.edges.split_off(plan.topology.media.len());
        Ok(Network { ports: plan.ports, attached, group_ports: plan.group_port, flows, copies, topology })
    }

    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The stations behind each port of a medium: those of a group, or one gateway. Groups come
    /// first, then gateways, each in order; empty beyond the last medium.
    pub fn ports(&self, medium: usize) -> &[f64] {
        self.ports.get(medium).map_or(&[], Vec::as_slice)
    }

    pub fn flow_routes(&self) -> &[Route] {
        &self.flows
    }

    /// Each copy's routes: the data's and the reply's.
    pub fn copy_routes(&self) -> &[(Route, Route)] {
        &self.copies
    }

    pub fn stations(&self) -> u64 {
        self.topology.groups.iter().map(|g| u64::from(g.stations)).sum()
    }
}

fn error(table: Table, index: usize, key: &'static str, why: impl Into<String>) -> TopologyError {
    TopologyError { table, index, key, why: why.into() }
}

fn bound(table: Table, count: usize, max: usize) -> Result<(), TopologyError> {
    let why = || format!("{count} entries: expected at most {max}");
    if count > max { Err(error(table, max, "name", why())) } else { Ok(()) }
}

fn names<'a>(table: Table, all: impl ExactSizeIterator<Item = &'a str>) -> Result<Names<'a>, TopologyError> {
    bound(table, all.len(), TABLES_MAX)?;
    let mut names = Names::new();
    for (i, name) in all.enumerate() {
        if name.is_empty() {
            return Err(error(table, i, "name", "is empty"));
        }
        if let Some(c) = name.chars().find(|c| is_unprintable(*c)) {
            return Err(error(
                table,
                i,
                "name",
                format!("has the character {}, which tables cannot show", c.escape_unicode()),
            ));
        }
        if names.insert(name, i).is_some() {
            return Err(error(table, i, "name", format!("duplicate name '{name}'")));
        }
    }
    Ok(names)
}

/// Whether the character controls terminals or is forbidden in XML 1.0 (section 2.2), which
/// drawings are.
fn is_unprintable(c: char) -> bool {
    c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}')
}

fn check_media(topology: &Topology) -> Result<(), TopologyError> {
    for (i, medium) in topology.media.iter().enumerate() {
        if let Kind::Wifi { channel, .. } = &medium.kind {
            let (good, bad) = (channel.good_s, channel.bad_s);
            if !(1e-3..=1e6).contains(&good) {
                return Err(error(Table::Media, i, "good", "expected 1ms to 1000000s"));
            }
            if !(0.0..=1e6).contains(&bad) {
                return Err(error(Table::Media, i, "bad", "expected 0 to 1000000s"));
            }
        }
    }
    Ok(())
}

/// Media and gateways as nodes of a graph, media first.
struct Plan<'a> {
    topology: &'a Topology,
    ports: Vec<Vec<f64>>,
    /// Medium and port of each group.
    group_port: Vec<(usize, usize)>,
    /// Neighbours, with the port of the gateway on the medium.
    edges: Vec<Vec<(usize, usize)>>,
    /// The node one step nearer to its tree's root.
    parent: Vec<Option<usize>>,
    depth: Vec<usize>,
    root: Vec<usize>,
}

impl<'a> Plan<'a> {
    fn new(topology: &'a Topology, media: &Names) -> Result<Plan<'a>, TopologyError> {
        let nodes = topology.media.len() + topology.gateways.len();
        let mut plan = Plan {
            topology,
            ports: vec![Vec::new(); topology.media.len()],
            group_port: Vec::new(),
            edges: vec![Vec::new(); nodes],
            parent: vec![None; nodes],
            depth: vec![0; nodes],
            root: (0..nodes).collect(),
        };
        for (i, group) in topology.groups.iter().enumerate() {
            let unknown = || error(Table::Groups, i, "medium", format!("no medium is called '{}'", group.medium));
            let medium = *media.get(group.medium.as_str()).ok_or_else(unknown)?;
            if !(1..=STATIONS_MAX).contains(&group.stations) {
                return Err(error(Table::Groups, i, "stations", format!("expected 1 to {STATIONS_MAX}")));
            }
            let port = plan.port(medium, f64::from(group.stations));
            plan.group_port.push((medium, port));
        }
        for i in 0..topology.gateways.len() {
            plan.join(i, media)?;
        }
        Ok(plan)
    }

    fn port(&mut self, medium: usize, stations: f64) -> usize {
        self.ports[medium].push(stations);
        self.ports[medium].len() - 1
    }

    fn join(&mut self, gateway: usize, media: &Names) -> Result<(), TopologyError> {
        let topology = self.topology;
        let joins = &topology.gateways[gateway].joins;
        let wrong = |why: String| error(Table::Gateways, gateway, "joins", why);
        if joins.len() < 2 {
            return Err(wrong("expected two media or more".into()));
        }
        let node = topology.media.len() + gateway;
        for name in joins {
            let medium = *media.get(name.as_str()).ok_or_else(|| wrong(format!("no medium is called '{name}'")))?;
            let (a, b) = (self.top(medium), self.top(node));
            if a == b {
                return Err(wrong(format!("'{name}' is connected twice: media and gateways must form a tree")));
            }
            self.root[a] = b;
            let port = self.port(medium, 1.0);
            self.edges[node].push((medium, port));
            self.edges[medium].push((node, port));
        }
        Ok(())
    }

    /// The representative of the tree of `node`, while trees merge.
    fn top(&mut self, mut node: usize) -> usize {
        while self.root[node] != node {
            self.root[node] = self.root[self.root[node]];
            node = self.root[node];
        }
        node
    }

    /// Gives every tree a root and every node its parent.
    fn root(&mut self) {
        let mut seen = vec![false; self.edges.len()];
        for start in 0..self.edges.len() {
            let mut waiting = VecDeque::from([start]);
            if std::mem::replace(&mut seen[start], true) {
                continue;
            }
            while let Some(node) = waiting.pop_front() {
                for (next, _) in self.edges[node].clone() {
                    if !std::mem::replace(&mut seen[next], true) {
                        self.parent[next] = Some(node);
                        self.depth[next] = self.depth[node] + 1;
                        waiting.push_back(next);
                    }
                }
            }
        }
    }

    /// The nodes from `a` to `b`, inclusive; `None` if they are not connected.
    fn path(&self, mut a: usize, mut b: usize) -> Option<Vec<usize>> {
        let (mut there, mut back) = (vec![a], vec![b]);
        while a != b {
            if self.depth[a] >= self.depth[b] {
                a = self.parent[a]?;
                there.push(a);
            } else {
                b = self.parent[b]?;
                back.push(b);
            }
        }
        back.pop();
        there.extend(back.into_iter().rev());
        Some(there)
    }

    /// The port of the gateway at node `gateway` on `medium`.
    fn gateway_port(&self, gateway: usize, medium: usize) -> Option<usize> {
        self.edges[gateway].iter().find(|(m, _)| *m == medium).map(|(_, port)| *port)
    }

    fn route(&self, from: usize, to: usize) -> Option<Route> {
        let ((start, first), (end, last)) = (self.group_port[from], self.group_port[to]);
        let path = self.path(start, end)?;
        let media = self.topology.media.len();
        let mut hops = Vec::with_capacity(path.len() / 2 + 1);
        let mut port = first;
        // Media and gateways alternate.
        for pair in path.chunks(2) {
            match *pair {
                [medium, gateway] => {
                    hops.push(Hop { medium, from: port, to: self.gateway_port(gateway, medium)? });
                    let next = path.get(2 * hops.len())?;
                    port = self.gateway_port(gateway, *next)?;
                }
                [medium] => hops.push(Hop { medium, from: port, to: last }),
                _ => return None,
            }
        }
        let gateways = path.iter().filter(|n| **n >= media).map(|n| n - media).collect();
        Some(Route { from, to, hops, gateways })
    }

    fn between(&self, groups: &Names, table: Table, i: usize, from: &str, to: &str) -> Result<Route, TopologyError> {
        let find = |key, name: &str| {
            groups.get(name).copied().ok_or_else(|| error(table, i, key, format!("no group is called '{name}'")))
        };
        let (a, b) = (find("from", from)?, find("to", to)?);
        self.route(a, b).ok_or_else(|| error(table, i, "to", format!("no route from '{from}' to '{to}'")))
    }

    fn flow(&self, groups: &Names, i: usize, flow: &Flow) -> Result<Route, TopologyError> {
        let route = self.between(groups, Table::Flows, i, &flow.from, &flow.to)?;
        if route.from == route.to && self.topology.groups[route.from].stations < 2 {
            return Err(error(
                Table::Flows,
                i,
                "to",
                format!("'{}' has one station, which cannot send to itself", flow.to),
            ));
        }
        Ok(route)
    }

    fn copy(&self, groups: &Names, i: usize, copy: &Copy) -> Result<(Route, Route), TopologyError> {
        let wrong = |key, why: String| Err(error(Table::Copies, i, key, why));
        let there = self.between(groups, Table::Copies, i, &copy.from, &copy.to)?;
        let back = self.between(groups, Table::Copies, i, &copy.to, &copy.from)?;
        if there.from == there.to {
            return wrong("to", "expected another group than from".into());
        }
        if !(1..=WINDOW_MAX).contains(&copy.window) {
            return wrong("window", format!("expected 1 to {WINDOW_MAX}"));
        }
        if copy.block_bytes == 0 || copy.file_bytes == 0 {
            return wrong(if copy.block_bytes == 0 { "block" } else { "file" }, "expected 1 byte or more".into());
        }
        let fits = |burst: f64| (0.0..=1e4).contains(&burst);
        if !fits(copy.reply.packets) {
            return wrong("reply-packets", "expected 0 to 10000".into());
        }
        if !fits(copy.data.packets) || copy.data.packets <= 0.0 {
            return wrong("packets", "expected more than 0, and 10000 at most".into());
        }
        Ok((there, back))
    }
}
