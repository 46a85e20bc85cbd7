//! What Copy 89 found beside what this study found: ratios, for the machines are 36 years apart.

use super::outcome::{CellOutcome, Parts, Predicted, Report};
use super::tables::figure;
use crate::report::table::Table;

/// A row: what is compared, the paper's least and most, how much of it a copy has.
type Ratio = (&'static str, &'static str, fn(&Parts, f64) -> f64);

/// Sections 3.1, 3.3 and 4. Its 98 % are the most there was.
const RATIOS: [Ratio; 5] = [
    ("hardware over the bare bits", "4 to 8", |p, _| p.hardware_s / p.bits_s),
    ("software: no load over hardware", "1 to 2.5", |p, _| (p.hardware_s + p.software_s) / p.hardware_s),
    ("no load over the bare bits", "8 to 19", |p, _| (p.hardware_s + p.software_s) / p.bits_s),
    ("contention: 98 % over no load", "4", |p, more| 1.0 + more / (p.hardware_s + p.software_s)),
    ("98 % over the bare bits", "34 to 63", |p, more| (p.hardware_s + p.software_s + more) / p.bits_s),
];

impl Report {
    /// The table of ratios, for the largest files.
    pub(super) fn beside_paper(&self) -> Table {
        let largest = self.parts.iter().map(|p| p.bytes).max();
        let parts: Vec<&Parts> = self.parts.iter().filter(|p| Some(p.bytes) == largest).collect();
        let ratio = |(what, paper, of): Ratio| {
            let values = parts.iter().map(|p| of(p, at_98(p)));
            vec![what.to_owned(), paper.to_owned(), range(values.filter(|v| v.is_finite()))]
        };
        let mut rows: Vec<Vec<String>> = RATIOS.into_iter().map(ratio).collect();
        let off = |of: fn(&CellOutcome) -> Option<&Predicted>| {
            let all = self.cells.iter().filter_map(of).filter(|p| !p.fitted);
            range(all.map(|p| p.difference_percent.abs()))
        };
        rows.push(vec!["the model is off, %".into(), "16 to 37".into(), off(|c| c.predicted.as_ref())]);
        rows.push(vec!["the simulator is off, %".into(), String::new(), off(|c| c.simulated.as_ref())]);
        Table::new(1, ["", "Copy 89", "here"], rows)
    }
}

/// What a load of 98 % adds; no number where there was none, or a copy was cut off.
fn at_98(parts: &Parts) -> f64 {
    let most = parts.contention_s.iter().find(|(load, _)| *load == 98.0);
    most.map_or(f64::NAN, |(_, seconds)| *seconds)
}

fn range(values: impl Iterator<Item = f64>) -> String {
    let (least, most) = values.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
    match (least.is_finite(), figure(least), figure(most)) {
        (false, ..) => String::new(),
        (true, least, most) if least == most => least,
        (true, least, most) => format!("{least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::tests::report;
    use super::*;

    #[test]
    fn ratios_are_of_the_parts() {
        let mut report = report();
        let here = |report: &Report, row: usize| report.beside_paper().rows[row][2].clone();
        // 0.8 s of bits, 0.855 s of frames, 1.0035 s without load; there was no load of 98 %.
        assert_eq!([here(&report, 0), here(&report, 1), here(&report, 2)], ["1.07", "1.17", "1.25"]);
        assert_eq!([here(&report, 3), here(&report, 4)], ["", ""]);
        report.parts[0].contention_s.push((98.0, 3.0 * 1.0035));
        assert_eq!(here(&report, 3), "4");
    }

    #[test]
    fn a_range_has_two_ends_or_one() {
        assert_eq!(range([2.0, 1.0].into_iter()), "1 to 2");
        assert_eq!(range([2.0, 2.001].into_iter()), "2");
        assert_eq!(range(std::iter::empty()), "");
    }
}
