//! A report of the model as tables. Reasons for doubt are collected once each and numbered.

use remora_model::nmt1989::Results;
use remora_model::{CopyReport, Estimate, FlowReport, GatewayReport, MediumReport, Origin, Reason, Report};

use crate::report::number::digits;
use crate::report::table::Table;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tables {
    /// Counts the figures by their source.
    pub verdict: String,
    /// Media, gateways, flows and copies; empty tables are left out.
    pub tables: Vec<Table>,
    /// Reasons for doubt; mark `[1]` is the first.
    pub doubts: Vec<String>,
}

pub fn tables(report: &Report) -> Tables {
    let mut doubts = Doubts::default();
    let mut tables = vec![
        media(&report.media, &mut doubts),
        gateways(&report.gateways, &mut doubts),
        flows(&report.flows, &mut doubts),
        copies(&report.copies, &mut doubts),
    ];
    tables.retain(|t| !t.rows.is_empty());
    Tables { verdict: verdict(report), tables, doubts: doubts.0 }
}

/// Counts the figures by their source.
fn verdict(report: &Report) -> String {
    fn of<T>(estimate: &Estimate<T>) -> (Origin, bool) {
        (estimate.how(), estimate.is_answered())
    }
    let media = report.media.iter().filter_map(|m| m.delay_s.as_ref()).map(of);
    let gateways = report.gateways.iter().map(|g| of(&g.delay_s));
    let flows = report.flows.iter().map(|f| of(&f.delay_s));
    let copies = report.copies.iter().map(|c| of(&c.outcome));
    let all: Vec<(Origin, bool)> = media.chain(gateways).chain(flows).chain(copies).collect();
    let count = |how: Origin| all.iter().filter(|of| **of == (how, true)).count();
    let doubted = all.iter().filter(|(_, answered)| !answered).count();
    let mut parts = vec![format!("{} by formula (within 10 %)", count(Origin::Formula))];
    for (count, what) in [
        (count(Origin::Simulated), "simulated (+-: 95 % confidence)"),
        (count(Origin::Saturated), "saturated"),
        (doubted, "by a formula outside its band"),
    ] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    format!("{} figures: {}", all.len(), parts.join(", "))
}

/// Reasons for doubt, in the order of their marks.
#[derive(Default)]
pub struct Doubts(Vec<String>);

impl Doubts {
    pub fn reasons(&self) -> &[String] {
        &self.0
    }

    /// The numbers of `reasons`, as in `[1,3]`; new reasons are added.
    pub fn marks(&mut self, reasons: &[Reason]) -> String {
        let mut numbers = Vec::new();
        for reason in reasons {
            let line = reason.to_string();
            let known = self.0.iter().position(|l| *l == line);
            let at = known.unwrap_or_else(|| {
                self.0.push(line);
                self.0.len() - 1
            });
            numbers.push((at + 1).to_string());
        }
        if numbers.is_empty() { String::new() } else { format!("[{}]", numbers.join(",")) }
    }
}

fn table<const N: usize>(left: usize, head: [&str; N], rows: impl Iterator<Item = [String; N]>) -> Table {
    Table::new(left, head, rows.map(|row| row.to_vec()))
}

fn optional(value: Option<f64>) -> String {
    value.map_or("-".into(), digits)
}

/// A figure's value in milliseconds, its interval, and its source with the reasons for doubt.
fn cells(estimate: &Estimate<f64>, doubts: &mut Doubts) -> [String; 3] {
    [ms(estimate), half_width(estimate, 1e3), source(estimate, doubts)]
}

fn ms(estimate: &Estimate<f64>) -> String {
    estimate.value().map_or("no end".into(), |s| digits(s * 1e3))
}

/// The half-width of an interval, with two digits.
fn half_width<T>(estimate: &Estimate<T>, scale: f64) -> String {
    let known = |half: f64| if half > 0.0 { two_digits(half * scale) } else { "0".into() };
    estimate.half_width_s().map_or("-".into(), known)
}

fn two_digits(value: f64) -> String {
    let decimals = 1 - value.log10().floor() as i32;
    if decimals >= 0 { format!("{value:.*}", decimals as usize) } else { digits(value) }
}

/// As in `simulated [1]`.
fn source<T>(estimate: &Estimate<T>, doubts: &mut Doubts) -> String {
    format!("{} {}", estimate.how(), doubts.marks(estimate.outside())).trim_end().to_owned()
}

fn percent(share: f64) -> String {
    format!("{:.1}", share * 100.0)
}

fn media(media: &[MediumReport], doubts: &mut Doubts) -> Table {
    let rows = media.iter().map(|m| {
        let [delay, half, how] = match &m.delay_s {
            Some(delay) => cells(delay, doubts),
            None => ["-", "", ""].map(str::to_owned),
        };
        [
            m.name.clone(),
            percent(m.load),
            delay,
            half,
            how,
            m.busy.map_or("over".into(), percent),
            digits(m.offered_packets_per_s),
            optional(m.carried_packets_per_s),
            digits(m.mean_bits / 8.0),
        ]
    });
    table(1, ["medium", "load %", "delay ms", "+-", "by", "busy %", "offered pps", "carried pps", "mean B"], rows)
}

fn gateways(gateways: &[GatewayReport], doubts: &mut Doubts) -> Table {
    let rows = gateways.iter().map(|g| {
        let [delay, half, how] = cells(&g.delay_s, doubts);
        [
            g.name.clone(),
            percent(g.utilisation),
            delay,
            half,
            how,
            digits(g.packets_per_s),
            optional(g.carried_packets_per_s),
            g.p95_s.as_ref().map_or("-".into(), ms),
        ]
    });
    table(1, ["gateway", "load %", "delay ms", "+-", "by", "offered pps", "carried pps", "p95 ms"], rows)
}

fn flows(flows: &[FlowReport], doubts: &mut Doubts) -> Table {
    let rows = flows.iter().map(|f| {
        let parts = f.parts.iter().map(|p| format!("{} {}", p.name, optional(p.delay_s.map(|s| s * 1e3))));
        let [delay, half, how] = cells(&f.delay_s, doubts);
        [
            format!("{} > {}", f.from, f.to),
            digits(f.packets_per_s),
            optional(f.carried_packets_per_s),
            delay,
            half,
            how,
            parts.collect::<Vec<_>>().join(", "),
        ]
    });
    table(1, ["flow", "offered pps", "carried", "delay ms", "+-", "by", "of that, ms"], rows)
}

fn copies(copies: &[CopyReport], doubts: &mut Doubts) -> Table {
    let rows = copies.iter().map(|c| {
        let name = format!("{} > {}", c.from, c.to);
        let outcome = c.outcome.value();
        let busiest = outcome.and_then(|o| o.bottleneck()).map(|b| format!("{} ({} %)", b.name, percent(b.busy)));
        [
            name,
            c.window.to_string(),
            outcome.map_or("no end".into(), |o| digits(o.seconds)),
            half_width(&c.outcome, 1.0),
            source(&c.outcome, doubts),
            optional(outcome.map(|o| o.bits_per_s / 1e6)),
            optional(outcome.map(|o| o.response_s * 1e3)),
            busiest.unwrap_or_else(|| "-".into()),
        ]
    });
    table(1, ["copy", "window", "seconds", "+-", "by", "Mbit/s", "block ms", "busiest"], rows)
}

/// The sheet of Copy 89, with the paper's digits.
pub fn sheet(results: &Results) -> Table {
    let nine = |value: f64| {
        let whole = value.abs().max(1.0).log10().floor() as i32;
        format!("{value:.*}", (8 - whole).clamp(0, 8) as usize)
    };
    let percent = format!("{:.2}%", results.utilisation * 100.0);
    let rows = [
        ("Per-packet delay (ms)", nine(results.delay_s * 1e3)),
        ("Total number of packets", nine(results.packets)),
        ("Aggregate delay (packets*delay)", nine(results.aggregate_s)),
        ("Simple delay (packets/rate)", nine(results.simple_s)),
        ("Total delay in seconds", nine(results.total_s)),
        ("Utilization (data)", percent.clone()),
        ("Utilization (data & collisions)", percent),
        ("Effective throughput (pps)", format!("{:.2}", results.throughput_packets_per_s)),
    ];
    table(1, ["Copy 89", ""], rows.into_iter().map(|(name, value)| [name.to_owned(), value]))
}

#[cfg(test)]
mod tests {
    use remora_model::Network;

    use super::*;
    use crate::model::examples;

    #[test]
    fn figures_name_their_source_and_interval() {
        let mut report = Network::new(examples::copy89(1034.0)).unwrap().solve();
        let row =
            |report: &Report| tables(report).tables.into_iter().find(|t| t.head[0] == "flow").unwrap().rows.remove(0);
        assert!(row(&report)[5].starts_with("formula [") && row(&report)[4] == "-", "{:?}", row(&report));
        report.flows[0].delay_s.simulate(0.0123, Some(0.000_456_7));
        assert_eq!(row(&report)[3..5], ["12.30", "0.46"]);
        assert!(row(&report)[5].starts_with("simulated ["), "{:?}", row(&report));
        assert!(tables(&report).verdict.contains("1 simulated"), "{}", tables(&report).verdict);
        report.flows[0].delay_s.saturate();
        assert!(row(&report)[3] == "no end" && row(&report)[5].starts_with("saturated"), "{:?}", row(&report));
    }
}
