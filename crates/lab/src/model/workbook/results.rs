//! The results on the first sheet, in the units of `remora model`'s tables.

use remora_model::queue::PROCESSOR;
use remora_model::{Estimate, Origin, Quantity, Report};

use super::book::{self, BEYOND, Book, FIRST, RESULTS as NAMES, ResultTable, cell_at};
use super::copy::CopyCells;
use super::expr::{Expr, sum};
use super::medium::DoubtCells;
use super::traffic::{NetworkPlan, QueueCells};

pub(super) struct FlowCells {
    pub(super) pps: Expr,
    /// Hop, medium, delay.
    pub(super) media: Vec<(usize, usize, Expr)>,
    pub(super) gateways: Vec<(usize, usize, Expr)>,
    pub(super) doubts: DoubtCells,
    processor: Expr,
}

pub(super) struct MediumCells {
    pub(super) load: Expr,
    pub(super) busy: Expr,
    pub(super) offered: Expr,
    pub(super) carried: Expr,
    pub(super) bits: Expr,
    pub(super) delay: Expr,
}

pub(super) struct ResultCells {
    pub(super) flows: Vec<FlowCells>,
    pub(super) media: Vec<MediumCells>,
    pub(super) gateways: Vec<(QueueCells, Expr)>,
    pub(super) copy: Option<CopyCells>,
}

impl FlowCells {
    pub(super) fn new(pps: &Expr) -> FlowCells {
        let (media, gateways) = (Vec::new(), Vec::new());
        FlowCells { pps: pps.clone(), media, gateways, doubts: Vec::new(), processor: Expr::from(0.0) }
    }

    pub(super) fn doubt_processor(&mut self, busy: Expr) {
        let most = book::high(&PROCESSOR, Quantity::Utilisation);
        self.doubts.push((busy.gt(most), format!("the sender's software: utilisation beyond {most}")));
        self.processor = busy;
    }

    fn parts<'a>(&self, plan: &'a NetworkPlan<'_>) -> Vec<(&'a str, Expr)> {
        let media = self.media.iter().map(|(at, i, delay)| (2 * at, plan.topology.media[*i].name.as_str(), delay));
        let gateways = self.gateways.iter();
        let gateways = gateways.map(|(at, i, delay)| (2 * at + 1, plan.topology.gateways[*i].name.as_str(), delay));
        let mut parts: Vec<_> = media.chain(gateways).collect();
        parts.sort_by_key(|(at, ..)| *at);
        parts.into_iter().map(|(_, name, delay)| (name, delay.clone())).collect()
    }

    /// End-to-end delay; no value if a queue is saturated.
    pub(super) fn delay(&self) -> Expr {
        let parts = self.media.iter().map(|(_, _, d)| d).chain(self.gateways.iter().map(|(_, _, d)| d));
        sum(parts.cloned()).only_if(&self.processor.lt(1.0))
    }
}

impl ResultCells {
    pub(super) fn write(&self, plan: &NetworkPlan<'_>, answered: &Report, book: &mut Book, sheet: usize) {
        book.title(sheet, cell_at(0, 0), "A network by the formulas of remora model");
        let how = "Yellow cells are inputs; the rest follows from them. A grey word behind a result marks a formula outside of the range that it was checked for.";
        book.soft(sheet, cell_at(1, 0), how);
        let more = "Not every band is checked here, as remora model FILE does. Sheet \
                    Formulas names what is used, its source and its band.";
        book.soft(sheet, cell_at(2, 0), more);
        let mut table = ResultTable { book, sheet, row: FIRST };
        if let Some(copy) = &self.copy {
            table.heads(&["copy", "seconds", "Mbit/s", "block ms", BEYOND]);
            copy.write(plan, &mut table);
        }
        if !self.flows.is_empty() {
            self.flows(plan, &mut table);
        }
        table.heads(&["medium", "load %", "delay ms", "busy %", "offered pps", "carried pps", "mean B"]);
        for (about, m) in plan.topology.media.iter().zip(&self.media) {
            let percent = |e: &Expr| e * 100.0;
            table.row(
                &about.name,
                &[
                    (percent(&m.load), "-"),
                    (&m.delay * 1000.0, if m.delay.is_literal() { "-" } else { "no end" }),
                    (percent(&m.busy), "over"),
                    (m.offered.clone(), "-"),
                    (m.carried.clone(), "-"),
                    (&m.bits / 8.0, "-"),
                ],
            );
        }
        self.gateways(plan, &mut table);
        simulated(plan, answered, &mut table);
    }

    fn flows(&self, plan: &NetworkPlan<'_>, table: &mut ResultTable<'_>) {
        let most = self.flows.iter().map(|f| f.media.len() + f.gateways.len()).max().unwrap_or(0);
        let mut heads = vec!["flow", "pps", "delay ms"];
        heads.extend((0..2 * most).map(|i| if i % 2 == 0 { "part" } else { "ms" }));
        heads.push(BEYOND);
        table.heads(&heads);
        for (i, flow) in self.flows.iter().enumerate() {
            let row = table.row(&plan.flow_name(i), &[(flow.pps.clone(), "-"), (flow.delay() * 1000.0, "no end")]);
            for (column, (name, delay)) in (NAMES + 3..).step_by(2).zip(flow.parts(plan)) {
                table.book.aside(table.sheet, cell_at(row, column), name);
                table.book.shown(table.sheet, cell_at(row, column + 1), delay * 1000.0, "no end");
            }
            let column = NAMES + 3 + 2 * most.min(200) as u16;
            table.book.told(table.sheet, cell_at(row, column), flow.doubts.clone());
        }
    }

    fn gateways(&self, plan: &NetworkPlan<'_>, table: &mut ResultTable<'_>) {
        if self.gateways.is_empty() {
            return;
        }
        table.heads(&["gateway", "busy %", "delay ms", "pps", "p95 ms"]);
        for (about, (queue, delay)) in plan.topology.gateways.iter().zip(&self.gateways) {
            let p95 = 20f64.ln() * &queue.service.mean / (1.0 - &queue.busy);
            let p95 = match about.law {
                remora_model::Law::Exponential => (p95.only_if(&queue.busy.lt(1.0)) * 1000.0, "no end"),
                remora_model::Law::Constant => (Expr::none(), "-"),
            };
            let busy = (&queue.busy * 100.0, "-");
            table.row(&about.name, &[busy, (delay * 1000.0, "no end"), (queue.arrivals.clone(), "-"), p95]);
        }
    }
}

/// The figures that no formula gives, as constants: they hold for the inputs as they were written.
fn simulated(plan: &NetworkPlan<'_>, answered: &Report, table: &mut ResultTable<'_>) {
    let mut rows: Vec<(String, &'static str, Simulated)> = Vec::new();
    for (i, flow) in answered.flows.iter().enumerate() {
        let of = Simulated::of(&flow.delay_s, |s| *s, flow.carried_packets_per_s);
        rows.extend(of.map(|of| (plan.flow_name(i), "flow, delay s", of)));
    }
    for copy in &answered.copies {
        let of = Simulated::of(&copy.outcome, |outcome| outcome.seconds, None);
        rows.extend(of.map(|of| (format!("{} > {}", copy.from, copy.to), "copy, s", of)));
    }
    for medium in &answered.media {
        let delay = medium.delay_s.as_ref();
        let of = delay.and_then(|delay| Simulated::of(delay, |s| *s, medium.carried_packets_per_s));
        rows.extend(of.map(|of| (medium.name.clone(), "medium, delay s", of)));
    }
    for gateway in &answered.gateways {
        let of = Simulated::of(&gateway.delay_s, |s| *s, gateway.carried_packets_per_s);
        rows.extend(of.map(|of| (gateway.name.clone(), "gateway, delay s", of)));
    }
    if rows.is_empty() {
        return;
    }
    table.heads(&["simulated, for the inputs as written", "seconds", "+-", "carried pps", "by"]);
    for (name, what, Simulated { seconds, half_width_s, carried, how }) in rows {
        let constant = |value: Option<f64>| value.map_or_else(Expr::none, Expr::from);
        let none = if how == Origin::Saturated { "no end" } else { "-" };
        let figures = [(constant(seconds), none), (constant(half_width_s), "-"), (constant(carried), "-")];
        let row = table.row(&name, &figures);
        table.book.aside(table.sheet, cell_at(row, NAMES + 4), format!("{what}: {how}"));
    }
}

/// A figure by simulation.
struct Simulated {
    seconds: Option<f64>,
    half_width_s: Option<f64>,
    /// Packets a second.
    carried: Option<f64>,
    how: Origin,
}

impl Simulated {
    /// `None` if a formula gives the figure.
    fn of<T>(estimate: &Estimate<T>, seconds: impl FnOnce(&T) -> f64, carried: Option<f64>) -> Option<Simulated> {
        let how = estimate.how();
        let (seconds, half_width_s) = (estimate.value().map(seconds), estimate.half_width_s());
        (how != Origin::Formula).then_some(Simulated { seconds, half_width_s, carried, how })
    }
}
