//! A network's workbook: cell by cell what [`remora_model::Network::solve`] computes.

use remora_model::queue::{GG1_WAIT, POISSON};
use remora_model::{Hop, Network, Quantity, Report};

use super::book::{Block, Book};
use super::copy::CopyCells;
use super::expr::{Expr, most, sum, when};
use super::medium::{Comes, DoubtCells, MediumModel, Spaced};
use super::results::{FlowCells, MediumCells, ResultCells};
use super::traffic::{LoadSource, Loads, NetworkPlan, Port, QueueCells, Sheets, Traffic};
use super::{book, copy, medium};

/// Writes the sheets of a network and returns the cells of the results.
pub(super) fn fill(network: &Network, answered: &Report, book: &mut Book) -> ResultCells {
    let first = book.sheet("Network");
    let names: Vec<String> = (1..).zip(&network.topology().media).map(|(i, m)| format!("{i} {}", m.name)).collect();
    let media: Vec<usize> = names.iter().map(|name| book.sheet(name)).collect();
    let rest = book.sheet("Loads and gateways");
    let plan = NetworkPlan::new(network, book, first);
    let flows = plan.flows(book, rest);
    let routes = || network.flow_routes().iter().zip(flows.iter().cloned());
    let what = ", flows alone";
    let alone = (!network.copy_routes().is_empty())
        .then(|| Loads::new(&plan, book, &Sheets { media: &media, rest, what }, &routes().collect::<Vec<_>>()));
    let copied = alone.as_ref().zip(network.copy_routes().first()).map(|(alone, (there, back))| {
        let sheet = book.sheet("Copy");
        copy::solve(&plan, book, sheet, alone, [there, back])
    });
    let mut sources: Vec<LoadSource<'_>> = routes().collect();
    if let (Some(copied), Some((there, back))) = (&copied, network.copy_routes().first()) {
        sources.extend([(there, copied.data.clone()), (back, copied.reply.clone())]);
    }
    let mut loads = Loads::new(&plan, book, &Sheets { media: &media, rest, what: "" }, &sources);
    let cells: Vec<MediumModel<'_>> =
        media.iter().enumerate().map(|(i, sheet)| MediumModel::new(&plan, book, *sheet, i, &loads)).collect();
    let gateways = medium::queues(&plan, book, rest, &loads);
    let regular = medium::settle(&plan, book, rest, &mut loads, &cells, &gateways, &flows);
    let spaced: Vec<Spaced> =
        cells.iter().enumerate().map(|(i, c)| c.put_spaced(book, &loads.ports[i], &loads.streams[i])).collect();
    let (cells, spaced, gateways, regular) = (&cells[..], &spaced[..], &gateways[..], &regular[..]);
    let ways = Ways { plan: &plan, loads: &loads, alone: alone.as_ref(), cells, spaced, gateways, regular };
    let results = ways.results(book, rest, &flows, copied);
    results.write(&plan, answered, book, first);
    let notes = book.sheet("Formulas");
    book::write(book, notes, network.topology());
    results
}

/// Below this share of the traffic, bursts of copies do not show in others' delays.
const COPIES_LITTLE: f64 = 0.02;

struct Ways<'a> {
    plan: &'a NetworkPlan<'a>,
    loads: &'a Loads,
    /// Loads without the copy.
    alone: Option<&'a Loads>,
    cells: &'a [MediumModel<'a>],
    spaced: &'a [Spaced],
    gateways: &'a [QueueCells],
    regular: &'a [Expr],
}

/// A block with a column for each flow, and how many are filled.
struct Columns {
    block: Option<Block>,
    filled: usize,
}

impl Columns {
    fn new(book: &mut Book, sheet: usize, title: &str, heads: &[String]) -> Columns {
        Columns { block: (!heads.is_empty()).then(|| book.block(sheet, title, heads)), filled: 0 }
    }

    fn next(&mut self) -> Option<(Block, usize)> {
        self.filled += 1;
        self.block.map(|block| (block, self.filled - 1))
    }
}

impl Ways<'_> {
    fn results(&self, book: &mut Book, rest: usize, flows: &[Traffic], copied: Option<CopyCells>) -> ResultCells {
        let mut found: Vec<FlowCells> = flows.iter().map(|flow| FlowCells::new(&flow.pps)).collect();
        let over: Vec<Expr> = (0..self.cells.len()).map(|i| self.over(book, i, &mut found)).collect();
        for gateway in 0..self.gateways.len() {
            self.through(book, rest, gateway, &mut found);
        }
        for (flow, route) in found.iter_mut().zip(self.plan.network.flow_routes()) {
            flow.doubt_processor(&self.loads.handled[route.from] * self.plan.group(route.from, "cost"));
        }
        let media = over.into_iter().enumerate().map(|(i, delay)| self.medium(i, delay)).collect();
        let gateways = self.gateways.iter().zip(self.regular).map(|(queue, regular)| {
            let wait = queue.wait_of(regular).min(queue.wait.or(0.0));
            (queue.clone(), wait + &queue.service.mean)
        });
        ResultCells { flows: found, media, gateways: gateways.collect(), copy: copied }
    }

    /// Delays of all flows over a medium, and their mean; no value without packets.
    fn over(&self, book: &mut Book, medium: usize, found: &mut [FlowCells]) -> Expr {
        let cell = &self.cells[medium];
        let routes = || self.plan.network.flow_routes().iter().enumerate();
        let here = routes().flat_map(|(i, r)| r.hops.iter().enumerate().map(move |(at, hop)| (i, at, hop)));
        let here: Vec<_> = here.filter(|(_, _, hop)| hop.medium == medium).collect();
        let heads: Vec<String> = here.iter().map(|(i, ..)| self.plan.flow_name(*i)).collect();
        let mut columns = Columns::new(book, cell.sheet, "Delays of flows", &heads);
        let mut packets = Vec::new();
        let mut weighted = Vec::new();
        for (i, at, hop) in here {
            let Some((block, column)) = columns.next() else { continue };
            let mut pad = book.pad(block, column);
            let pps = pad.put("packets", "1/s", &found[i].pps);
            let bits = pad.put("mean packet", "bit", self.plan.flow(i, "size") * 8.0);
            let delay = cell.delay(&mut pad, hop, &bits, self.loads, &self.spaced[medium]);
            let times = when(&pps.gt(0.0), &pps * &delay, 0.0);
            weighted.push(pad.put("packets times delay", "", times));
            packets.push(pps);
            let mut doubts: DoubtCells = cell.doubts(hop.from, hop.to);
            let regular = &self.spaced[medium].regular;
            if cell.links.is_empty() {
                let name = &self.plan.topology.media[medium].name;
                let most = book::high(&POISSON, Quantity::Regularity);
                doubts.push((regular.gt(most), format!("{name}: arrivals more regular than Poisson by {most}")));
            }
            doubts.extend(self.beside_copy(hop));
            found[i].media.push((at, medium, delay));
            found[i].doubts.extend(doubts);
        }
        if packets.is_empty() {
            return Expr::none();
        }
        let block = book.block(cell.sheet, "All flows", &[]);
        let mut pad = book.pad(block, 0);
        let packets = pad.put("packets", "1/s", sum(packets));
        let mean = (sum(weighted) / &packets).only_if(&packets.gt(0.0));
        pad.put("mean delay", "s", mean)
    }

    /// Whether a copy's bursts matter on a hop.
    fn beside_copy(&self, hop: &Hop) -> DoubtCells {
        let Some(alone) = self.alone else { return DoubtCells::new() };
        let (with, without) = (&self.loads.ports[hop.medium], &alone.ports[hop.medium]);
        let sent = |ports: &[Port]| sum(ports.iter().map(|p| &p.sends.bits * &p.stations));
        let mut pairs = vec![
            (with[hop.from].sends.bits.clone(), without[hop.from].sends.bits.clone()),
            (with[hop.to].receives.bits.clone(), without[hop.to].receives.bits.clone()),
        ];
        if self.cells[hop.medium].links.is_empty() {
            pairs.push((self.cells[hop.medium].all.bits.clone(), sent(without)));
        }
        let name = &self.plan.topology.media[hop.medium].name;
        let bursts = pairs.into_iter().filter(|(with, _)| !with.is_literal());
        // An idle port has no share.
        let part = most(bursts.map(|(with, without)| when(&with.gt(0.0), 1.0 - without / &with, 0.0)));
        vec![(part.gt(COPIES_LITTLE), format!("{name}: beside a copy, whose bursts are taken for single packets"))]
    }

    fn through(&self, book: &mut Book, sheet: usize, gateway: usize, found: &mut [FlowCells]) {
        let routes = || self.plan.network.flow_routes().iter().enumerate();
        let at = |gateways: &[usize]| gateways.iter().position(|g| *g == gateway);
        let here: Vec<_> = routes().filter_map(|(i, route)| Some((i, at(&route.gateways)?, route))).collect();
        let heads: Vec<String> = here.iter().map(|(i, ..)| self.plan.flow_name(*i)).collect();
        let name = &self.plan.topology.gateways[gateway].name;
        let mut columns = Columns::new(book, sheet, &format!("Delays of flows through {name}"), &heads);
        let queue = &self.gateways[gateway];
        for (i, at, route) in here {
            let (Some((block, column)), Some(hop)) = (columns.next(), route.hops.get(at)) else { continue };
            let mut pad = book.pad(block, column);
            let spared = medium::spared(&mut pad, self.plan, self.loads, route.from, gateway);
            let to = &self.loads.ports[hop.medium][hop.to];
            let longer = (self.plan.flow(i, "size") * 8.0 - to.receives.mean_bits()) / &self.cells[hop.medium].rate;
            let regular = &self.regular[gateway];
            let delay = medium::delay(&mut pad, queue, &Comes { regular, longer, spared });
            found[i].gateways.push((at, gateway, delay));
            let most = [Quantity::Utilisation, Quantity::Regularity].map(|q| book::high(&GG1_WAIT, q));
            found[i].doubts.push((queue.busy.gt(most[0]), format!("{name}: utilisation beyond {}", most[0])));
            let spaced = (regular * &queue.busy).gt(most[1]);
            found[i].doubts.push((spaced, format!("{name}: regularity times utilisation beyond {}", most[1])));
        }
    }

    fn medium(&self, medium: usize, delay: Expr) -> MediumCells {
        let cell = &self.cells[medium];
        let carried = when(&cell.busy.or(2.0).lt(1.0), &cell.all.pps, cell.capacity().min(&cell.all.pps));
        MediumCells {
            load: cell.load.clone(),
            busy: cell.busy.clone(),
            offered: cell.all.pps.clone(),
            carried,
            bits: cell.all.mean_bits(),
            delay,
        }
    }
}
