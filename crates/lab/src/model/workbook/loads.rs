//! What everything carries: loads added along the routes, which are fixed in the file.

use std::collections::BTreeMap;

use remora_model::Route;

use super::book::{Book, VALUE};
use super::expr::{Expr, sum};
use super::inputs::{Behind, Plan};
use super::traffic::Traffic;

/// What goes through a port of a medium, for each station behind it.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) stations: Expr,
    pub(super) sends: Traffic,
    pub(super) receives: Traffic,
    /// How much more regular than Poisson what each of them sends is.
    pub(super) regular: Expr,
    /// The same of what it receives.
    pub(super) regular_in: Expr,
    /// Seconds that a station's processor takes for each packet.
    pub(super) spacing: Expr,
}

/// What goes from one port of a medium to another, all stations together.
pub(super) type Streams = BTreeMap<(usize, usize), Traffic>;

/// All loads.
pub(super) struct Loads {
    /// By medium and port.
    pub(super) ports: Vec<Vec<Port>>,
    /// By medium.
    pub(super) streams: Vec<Streams>,
    pub(super) gateways: Vec<Traffic>,
    /// Packets a second that each station of a group sends through a gateway.
    pub(super) through: BTreeMap<(usize, usize), Expr>,
    /// Packets a second that each station of a group sends and receives.
    pub(super) handled: Vec<Expr>,
}

/// Traffic that goes a way.
pub(super) type Source<'a> = (&'a Route, Traffic);

/// Where the blocks of loads go.
pub(super) struct Sheets<'a> {
    /// Of each medium.
    pub(super) media: &'a [usize],
    /// Of the groups and gateways.
    pub(super) rest: usize,
    /// What is in the titles behind what they are.
    pub(super) what: &'a str,
}

impl Loads {
    /// Writes the loads of all `sources` to their sheets.
    pub(super) fn new(plan: &Plan<'_>, book: &mut Book, sheets: &Sheets<'_>, sources: &[Source<'_>]) -> Loads {
        let mut loads = Loads {
            ports: Vec::new(),
            streams: Vec::new(),
            gateways: Vec::new(),
            through: BTreeMap::new(),
            handled: Vec::new(),
        };
        for medium in 0..plan.ports.len() {
            loads.ports.push(ports(plan, book, sheets, sources, medium));
            loads.streams.push(streams(plan, book, sheets, sources, medium));
        }
        loads.add_groups(plan, book, sheets, sources);
        loads.add_gateways(plan, book, sheets, sources);
        loads
    }

    fn add_groups(&mut self, plan: &Plan<'_>, book: &mut Book, sheets: &Sheets<'_>, sources: &[Source<'_>]) {
        let heads: Vec<String> = plan.topology.groups.iter().map(|g| g.name.clone()).collect();
        let block = book.block(sheets.rest, &format!("Groups{}", sheets.what), &heads);
        for group in 0..heads.len() {
            let mut pad = book.pad(block, group);
            let ends = sources.iter().flat_map(|(route, traffic)| [(route.from, traffic), (route.to, traffic)]);
            let all = sum(ends.filter(|(end, _)| *end == group).map(|(_, traffic)| traffic.pps.clone()));
            let handled = all / plan.group(group, "stations");
            self.handled.push(pad.put("sent and received by each station: packets", "1/s", handled));
        }
    }

    fn add_gateways(&mut self, plan: &Plan<'_>, book: &mut Book, sheets: &Sheets<'_>, sources: &[Source<'_>]) {
        let heads: Vec<String> = plan.topology.gateways.iter().map(|g| g.name.clone()).collect();
        if heads.is_empty() {
            return;
        }
        let block = book.block(sheets.rest, &format!("Gateways{}", sheets.what), &heads);
        for gateway in 0..heads.len() {
            let mut pad = book.pad(block, gateway);
            let here = || sources.iter().filter(|(route, _)| route.gateways.contains(&gateway));
            self.gateways.push(Traffic::sum(here().map(|(_, traffic)| traffic)).put(&mut pad, "all"));
            for group in 0..plan.topology.groups.len() {
                let from = here().filter(|(route, _)| route.from == group).map(|(_, traffic)| traffic.pps.clone());
                let each = sum(from) / plan.group(group, "stations");
                let label = format!("from each station of {}: packets", plan.topology.groups[group].name);
                self.through.insert((group, gateway), pad.put(&label, "1/s", each));
            }
        }
    }
}

fn ports(plan: &Plan<'_>, book: &mut Book, sheets: &Sheets<'_>, sources: &[Source<'_>], medium: usize) -> Vec<Port> {
    let behind = &plan.ports[medium];
    let heads: Vec<String> = behind.iter().map(|b| plan.name(*b).to_owned()).collect();
    let block = book.block(sheets.media[medium], &format!("Ports{}", sheets.what), &heads);
    let hops = || sources.iter().flat_map(|(route, traffic)| route.hops.iter().map(move |hop| (hop, traffic)));
    let here = || hops().filter(|(hop, _)| hop.medium == medium);
    let of = |(port, behind): (usize, &Behind)| {
        let mut pad = book.pad(block, port);
        let stations = pad.put("stations", "", plan.stations(*behind));
        let sent = Traffic::sum(here().filter(|(hop, _)| hop.from == port).map(|(_, traffic)| traffic));
        let received = Traffic::sum(here().filter(|(hop, _)| hop.to == port).map(|(_, traffic)| traffic));
        let sends = sent.over(&stations).put(&mut pad, "each sends");
        let receives = received.over(&stations).put(&mut pad, "each receives");
        let zero = || Expr::from(0.0);
        Port { stations, sends, receives, regular: zero(), regular_in: zero(), spacing: zero() }
    };
    behind.iter().enumerate().map(of).collect()
}

fn streams(plan: &Plan<'_>, book: &mut Book, sheets: &Sheets<'_>, sources: &[Source<'_>], medium: usize) -> Streams {
    let mut found: BTreeMap<(usize, usize), Vec<&Traffic>> = BTreeMap::new();
    for (route, traffic) in sources {
        for hop in route.hops.iter().filter(|hop| hop.medium == medium) {
            found.entry((hop.from, hop.to)).or_default().push(traffic);
        }
    }
    if found.is_empty() {
        return Streams::new();
    }
    let name = |port: usize| plan.name(plan.ports[medium][port]);
    let heads: Vec<String> = found.keys().map(|(from, to)| format!("{} > {}", name(*from), name(*to))).collect();
    let block = book.block(sheets.media[medium], &format!("From port to port{}", sheets.what), &heads);
    let of = |(column, (pair, all)): (usize, ((usize, usize), Vec<&Traffic>))| {
        (pair, Traffic::sum(all).put(&mut book.pad(block, column), "all stations together"))
    };
    found.into_iter().enumerate().map(of).collect()
}

/// Columns at most: what a sheet shows side by side.
pub(super) const COLUMNS_MAX: usize = 200 - VALUE as usize;
