//! Inputs in yellow cells, the traffic that follows from them, and queues with one server.

use std::collections::BTreeMap;

use remora_model::{Kind, Network, Route, Topology};

use super::book::{ABOUT, Book, FIRST, Pad, VALUE, cell_at};
use super::expr::{Expr, sum, when};
use crate::model::input::{Input, Unit, inputs};

/// The network file as cells of the sheet of inputs.
pub(super) struct NetworkPlan<'a> {
    pub(super) network: &'a Network,
    pub(super) topology: &'a Topology,
    cells: BTreeMap<(&'static str, usize, &'static str), Expr>,
    /// Ports of each medium by name: groups, then gateways.
    pub(super) ports: Vec<Vec<Behind>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Behind {
    Group(usize),
    Gateway(usize),
}

impl<'a> NetworkPlan<'a> {
    pub(super) fn new(network: &'a Network, book: &mut Book, sheet: usize) -> NetworkPlan<'a> {
        let topology = network.topology();
        for (column, head) in [(0, "Inputs"), (1, "unit"), (ABOUT, " of")] {
            book.head(sheet, cell_at(FIRST, column), head);
        }
        book.right(sheet, cell_at(FIRST, VALUE), "value");
        let mut cells = BTreeMap::new();
        for (row, input) in (FIRST + 1..).zip(inputs(topology)) {
            let Some(value) = input.get(topology) else { continue };
            book.text(sheet, cell_at(row, 0), input.name.as_str());
            book.text(sheet, cell_at(row, 1), unit(input.unit()));
            book.aside(sheet, cell_at(row, ABOUT), about(topology, &input));
            cells.insert(input.place(), book.input(sheet, cell_at(row, VALUE), value, input.unit()));
        }
        let ports = topology.media.iter().map(|medium| {
            let groups = (0..).zip(&topology.groups).filter(|(_, g)| g.medium == medium.name);
            let gateways = (0..).zip(&topology.gateways).filter(|(_, g)| g.joins.contains(&medium.name));
            groups.map(|(i, _)| Behind::Group(i)).chain(gateways.map(|(i, _)| Behind::Gateway(i))).collect()
        });
        NetworkPlan { network, topology, cells, ports: ports.collect() }
    }

    /// An input's cell; `None` if the element has no such number.
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

    pub(super) fn places(&self, behind: Behind) -> Vec<(usize, usize)> {
        let of =
            |(medium, ports): (usize, &Vec<Behind>)| ports.iter().position(|p| *p == behind).map(|port| (medium, port));
        self.ports.iter().enumerate().filter_map(of).collect()
    }

    pub(super) fn flow_name(&self, flow: usize) -> String {
        let about = &self.topology.flows[flow];
        format!("{}: {} > {}", flow + 1, about.from, about.to)
    }

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

/// The element that a number belongs to.
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

/// Traffic through a port, by station behind it.
#[derive(Clone, Debug)]
pub(super) struct Port {
    pub(super) stations: Expr,
    pub(super) sends: Traffic,
    pub(super) receives: Traffic,
    /// Regularity of each station's packets, beyond Poisson.
    pub(super) regular: Expr,
    pub(super) regular_in: Expr,
    /// Processor time for each packet, in seconds.
    pub(super) spacing: Expr,
}

/// Traffic between two ports of a medium, all stations together.
pub(super) type Streams = BTreeMap<(usize, usize), Traffic>;

pub(super) struct Loads {
    pub(super) ports: Vec<Vec<Port>>,
    pub(super) streams: Vec<Streams>,
    pub(super) gateways: Vec<Traffic>,
    /// Packets per second of each station of a group, by gateway.
    pub(super) through: BTreeMap<(usize, usize), Expr>,
    /// Packets per second that each station of a group sends and receives.
    pub(super) handled: Vec<Expr>,
}

pub(super) type LoadSource<'a> = (&'a Route, Traffic);

pub(super) struct Sheets<'a> {
    pub(super) media: &'a [usize],
    pub(super) rest: usize,
    /// Suffix of the titles.
    pub(super) what: &'a str,
}

impl Loads {
    /// Writes the loads of all `sources` to their sheets.
    pub(super) fn new(
        plan: &NetworkPlan<'_>,
        book: &mut Book,
        sheets: &Sheets<'_>,
        sources: &[LoadSource<'_>],
    ) -> Loads {
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

    fn add_groups(&mut self, plan: &NetworkPlan<'_>, book: &mut Book, sheets: &Sheets<'_>, sources: &[LoadSource<'_>]) {
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

    fn add_gateways(
        &mut self,
        plan: &NetworkPlan<'_>,
        book: &mut Book,
        sheets: &Sheets<'_>,
        sources: &[LoadSource<'_>],
    ) {
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

fn ports(
    plan: &NetworkPlan<'_>,
    book: &mut Book,
    sheets: &Sheets<'_>,
    sources: &[LoadSource<'_>],
    medium: usize,
) -> Vec<Port> {
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

fn streams(
    plan: &NetworkPlan<'_>,
    book: &mut Book,
    sheets: &Sheets<'_>,
    sources: &[LoadSource<'_>],
    medium: usize,
) -> Streams {
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

/// Most columns of a sheet.
pub(super) const COLUMNS_MAX: usize = 200 - VALUE as usize;

#[derive(Clone, Debug)]
pub(super) struct QueueCells {
    pub(super) arrivals: Expr,
    pub(super) service: Moments,
    pub(super) busy: Expr,
    pub(super) scv: Expr,
    /// Mean wait for Poisson arrivals; no value if saturated.
    pub(super) wait: Expr,
}

impl QueueCells {
    pub(super) fn put(pad: &mut Pad<'_>, what: &str, arrivals: &Expr, service: Moments) -> QueueCells {
        let busy = pad.put(&format!("{what}: utilisation"), "", arrivals * &service.mean);
        let scv = pad.put(&format!("{what}: variation of service"), "", service.scv());
        let wait = arrivals * &service.second / (2.0 * (1.0 - &busy));
        let wait = pad.put(&format!("{what}: M/G/1 wait"), "s", wait.only_if(&busy.lt(1.0)));
        QueueCells { arrivals: arrivals.clone(), service, busy, scv, wait }
    }

    /// Regularity of departures for arrivals of regularity `regular` (Whitt 1983).
    pub(super) fn departures(&self, regular: &Expr) -> Expr {
        let busy = self.busy.max(0.0).min(1.0).powi(2);
        (&busy * (1.0 - &self.scv) + (1.0 - &busy) * regular).max(0.0).min(1.0)
    }

    /// Wait of arrivals more regular than Poisson (Kraemer & Langenbach-Belz 1976).
    pub(super) fn wait_of(&self, regular: &Expr) -> Expr {
        let both = &self.scv + (1.0 - regular);
        let few = 0.0 - 2.0 * (1.0 - &self.busy) * regular.powi(2) / (3.0 * &self.busy * &both);
        let wait = &self.wait * &both / (1.0 + &self.scv) * few.exp();
        // No arrivals, no wait; a saturated queue has no value.
        let idle = when(&self.busy.lt(1.0), 0.0, Expr::none());
        when(&self.busy.gt(0.0).and(&both.gt(0.0)), wait, idle)
    }

    /// Wait spared at a second queue of the same rate (Rubin 1974; below 0 if long packets are caught up with); 0 if
    /// saturated.
    pub(super) fn waited_before(&self) -> Expr {
        let busy = self.busy.min(1.0);
        let light = 1.0 - (2.5 * &self.scv + self.scv.sqrt()) / (1.0 + &self.scv);
        let spaced = &light + (1.0 - &light) * (&busy * (0.6 + 0.28 * (&busy * &busy)));
        (&self.wait * spaced).or(0.0)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Traffic {
    pub(super) pps: Expr,
    /// Bits a second.
    pub(super) bits: Expr,
    /// Sum of squared bits per second.
    pub(super) bits2: Expr,
}

impl Traffic {
    pub(super) fn none() -> Traffic {
        let zero = || Expr::from(0.0);
        Traffic { pps: zero(), bits: zero(), bits2: zero() }
    }

    /// `pps` packets per second of mean size `bytes` and squared coefficient of variation `scv`.
    pub(super) fn of(pps: &Expr, bytes: &Expr, scv: &Expr) -> Traffic {
        let bits = pps * (bytes * 8.0);
        let bits2 = &bits * (bytes * 8.0) * (1.0 + scv);
        Traffic { pps: pps.clone(), bits, bits2 }
    }

    pub(super) fn plus(&self, other: &Traffic) -> Traffic {
        Traffic { pps: &self.pps + &other.pps, bits: &self.bits + &other.bits, bits2: &self.bits2 + &other.bits2 }
    }

    /// Removes `other`, which is part of it; at least zero.
    pub(super) fn less(&self, other: &Traffic) -> Traffic {
        let less = |all: &Expr, part: &Expr| if part.is_literal() { all.clone() } else { (all - part).max(0.0) };
        Traffic {
            pps: less(&self.pps, &other.pps),
            bits: less(&self.bits, &other.bits),
            bits2: less(&self.bits2, &other.bits2),
        }
    }

    pub(super) fn times(&self, factor: &Expr) -> Traffic {
        Traffic { pps: &self.pps * factor, bits: &self.bits * factor, bits2: &self.bits2 * factor }
    }

    pub(super) fn over(&self, parts: &Expr) -> Traffic {
        Traffic { pps: &self.pps / parts, bits: &self.bits / parts, bits2: &self.bits2 / parts }
    }

    pub(super) fn sum<'a>(all: impl IntoIterator<Item = &'a Traffic>) -> Traffic {
        all.into_iter().fold(Traffic::none(), |sum, next| sum.plus(next))
    }

    /// Whether it is zero for all inputs.
    pub(super) fn is_none(&self) -> bool {
        self.pps.is_literal()
    }

    pub(super) fn mean_bits(&self) -> Expr {
        when(&self.pps.gt(0.0), &self.bits / &self.pps, 0.0)
    }

    fn second_bits2(&self) -> Expr {
        when(&self.pps.gt(0.0), &self.bits2 / &self.pps, 0.0)
    }

    pub(super) fn put(&self, pad: &mut Pad<'_>, what: &str) -> Traffic {
        Traffic {
            pps: pad.put(&format!("{what}: packets"), "1/s", &self.pps),
            bits: pad.put(&format!("{what}: bits"), "bit/s", &self.bits),
            bits2: pad.put(&format!("{what}: squares of their bits"), "bit2/s", &self.bits2),
        }
    }

    /// Transmission time of a packet at `rate`, plus `more` seconds: two cells.
    pub(super) fn service(&self, pad: &mut Pad<'_>, what: &str, rate: &Expr, more: &Expr) -> Moments {
        let mean = pad.put(&format!("{what}: mean time"), "s", self.mean_bits() / rate + more);
        // Mean of the square of `time + more`.
        let bits = &mean - more;
        let square = self.second_bits2() / rate.powi(2) + 2.0 * bits * more + more * more;
        let second = pad.put(&format!("{what}: mean of its square"), "s2", square);
        Moments { mean, second }
    }

    /// Utilisation of a medium with overhead `more` per packet.
    pub(super) fn airtime(&self, rate: &Expr, more: &Expr) -> Expr {
        &self.bits / rate + &self.pps * more
    }

    /// Sum of squared transmission times per second.
    pub(super) fn square(&self, rate: &Expr, more: &Expr) -> Expr {
        &self.bits2 / rate.powi(2) + 2.0 * (&self.bits / rate) * more + &self.pps * (more * more)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Moments {
    pub(super) mean: Expr,
    pub(super) second: Expr,
}

impl Moments {
    pub(super) fn variance(&self) -> Expr {
        (&self.second - self.mean.powi(2)).max(0.0)
    }

    /// Squared coefficient of variation; 0 for no time.
    pub(super) fn scv(&self) -> Expr {
        when(&self.mean.gt(0.0), (&self.second / self.mean.powi(2) - 1.0).max(0.0), 0.0)
    }

    /// Two representative lengths and the probability of the longer: three cells.
    pub(super) fn points(&self, pad: &mut Pad<'_>, what: &str) -> Points {
        let scv = pad.put(&format!("{what}: variation"), "", self.scv());
        let few = scv.le(1.0);
        let short = when(&few, 1.0 - scv.sqrt(), 0.0) * &self.mean;
        let long = when(&few, 1.0 + scv.sqrt(), 1.0 + &scv) * &self.mean;
        Points {
            short: pad.put(&format!("{what}: the shorter of two that stand for all"), "s", short),
            long: pad.put(&format!("{what}: the longer one"), "s", long),
            chance: pad.put(&format!("{what}: chance of the longer one"), "", when(&few, 0.5, 1.0 / (1.0 + &scv))),
        }
    }
}

pub(super) struct Points {
    pub(super) short: Expr,
    pub(super) long: Expr,
    pub(super) chance: Expr,
}

impl Points {
    pub(super) fn mean_of(&self, of: impl Fn(&Expr) -> Expr) -> Expr {
        self.mix(&of(&self.short), &of(&self.long))
    }

    pub(super) fn mix(&self, short: &Expr, long: &Expr) -> Expr {
        (1.0 - &self.chance) * short + &self.chance * long
    }
}

/// Number of station pairs behind two ports; no station sends to itself.
pub(super) fn pairs(ports: &[Port], from: usize, to: usize) -> Expr {
    let (senders, receivers) = (&ports[from].stations, &ports[to].stations);
    let pairs = if from == to { senders * (receivers - 1.0) } else { senders * receivers };
    pairs.max(1.0)
}

/// Traffic of one station to one other, by port.
pub(super) fn pair(ports: &[Port], streams: &Streams, from: usize, to: usize) -> Traffic {
    streams.get(&(from, to)).map_or_else(Traffic::none, |all| all.over(&pairs(ports, from, to)))
}
