//! The report of `remora lab copy` as text, with ratios beside those of Copy 89 (the machines are 36 years apart).

use super::judge::Accuracy;
use super::outcome::{CellOutcome, CopyPeer, CopyStudyReport, Parts, Predicted};
use super::predict::Fitted;
use crate::report::number::{count, figure, megabytes};
use crate::report::statistics::Summary;
use crate::report::table::Table;

/// A row: the ratio's name, the range in Copy 89, and the formula.
type PaperRatio = (&'static str, &'static str, fn(&Parts, f64) -> f64);

/// Sections 3.1, 3.3 and 4. 98 % is the highest load.
const RATIOS: [PaperRatio; 5] = [
    ("hardware over the bare bits", "4 to 8", |p, _| p.hardware_s / p.bits_s),
    ("software: no load over hardware", "1 to 2.5", |p, _| (p.hardware_s + p.software_s) / p.hardware_s),
    ("no load over the bare bits", "8 to 19", |p, _| (p.hardware_s + p.software_s) / p.bits_s),
    ("contention: 98 % over no load", "4", |p, more| 1.0 + more / (p.hardware_s + p.software_s)),
    ("98 % over the bare bits", "34 to 63", |p, more| (p.hardware_s + p.software_s + more) / p.bits_s),
];

impl CopyStudyReport {
    pub(super) fn beside_paper(&self) -> Table {
        let largest = self.parts.iter().map(|p| p.bytes).max();
        let parts: Vec<&Parts> = self.parts.iter().filter(|p| Some(p.bytes) == largest).collect();
        let ratio = |(what, paper, of): PaperRatio| {
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
        rows.push(vec!["the baseline is off, %".into(), String::new(), off(|c| c.baseline.as_ref())]);
        Table::new(1, ["", "Copy 89", "here"], rows)
    }
}

/// Additional time at a load of 98 %; not a number if it was not measured or copies
/// exceeded the time limit.
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

impl CopyStudyReport {
    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::new();
        for (title, table) in self.tables() {
            text += &format!("{title}\n{}\n", table.to_text_within(width));
        }
        text + &self.notes().join("\n") + "\n"
    }

    pub(super) fn tables(&self) -> Vec<(&'static str, Table)> {
        vec![
            ("Copies, beside a load on the same medium", self.copies()),
            ("Where the time goes: hardware, software, contention (medians, s)", self.decomposition()),
            ("Beside Copy 89 (least and most of all systems)", self.beside_paper()),
            ("Fitted to copies without load; the rest is predicted", self.fits()),
        ]
    }

    fn copies(&self) -> Table {
        let head = [
            "system",
            "size",
            "load %",
            "carried %",
            "s",
            "95 % interval",
            "cut off",
            "x no load",
            "paper x",
            "model s",
            "off %",
            "",
            "simulated s",
            "off %",
            "",
            "baseline s",
            "off %",
            "",
        ];
        Table::new(3, head, self.cells.iter().filter(|c| !c.cell.is_setup()).map(copy_row))
    }

    fn decomposition(&self) -> Table {
        let mut loads: Vec<f64> = self.parts.iter().flat_map(|p| p.contention_s.iter().map(|(l, _)| *l)).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let head = ["system", "size", "bare bits", "disk", "wire", "hardware", "software", "of which setup"];
        let mut head = head.map(str::to_owned).to_vec();
        head.extend(loads.iter().map(|load| format!("+ at {load} %")));
        Table::new(2, head, self.parts.iter().map(|parts| parts_row(parts, &loads)))
    }

    fn fits(&self) -> Table {
        let head =
            ["system", "size", "setup and end s", "exchanges", "blocks", "under way", "software us/block", "simulated"];
        Table::new(2, head, self.fitted.iter().map(fit_row))
    }

    fn access(&self) -> &'static str {
        match self.collisions {
            false => "stations take turns frame by frame, so there are no collisions",
            true => "stations collide and back off as on an Ethernet (IEEE 802.3)",
        }
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let rate = self.rate_bits_per_s as f64 / 1e6;
        let mut notes = vec![
            format!(
                "Real programs on an emulated half-duplex medium of {rate} Mbit/s ({} times Copy 89's); {}. Made by: {}",
                figure(self.compression),
                self.access(),
                self.made.command
            ),
            format!(
                "{} from {}, {} copies at a time on a medium each, {} in all; medians and their 95 % intervals; \
                 no run is discarded; copies that were cut off rank above all others.",
                count(self.made.seeds, "seed"),
                self.made.first_seed,
                self.jobs,
                minutes(self.took_s)
            ),
            "carried: load that arrived during the flow. model: remora_model for that load; \
             simulated: remora_sim for the offered load; baseline: setup + bytes / (rate x (1 - carried load)), which \
             nothing was fitted for. ~: fitted, the rest is predicted; *: outside the model's band of validity; OUT: \
             out of tolerance (10 % at loads to 60 %, 20 % beyond)."
                .into(),
            "paper x: Copy 89 found no change at loads to 65 % and about four times as long at 98 %.".into(),
        ];
        notes.extend(self.peers.iter().filter_map(absent));
        let late: usize = self.cells.iter().map(|c| c.late).sum();
        if late > 0 {
            notes.push(format!(
                "In {late} runs the emulator was more than {} ms late: this machine is too busy \
                 for this rate.",
                self.lateness_ms_bound
            ));
        }
        for cell in &self.cells {
            notes.extend(cell.failures.iter().map(|why| format!("FAILED {}: {why}", cell.cell)));
        }
        if !self.complete {
            notes.push("Interrupted: not all runs were made.".into());
        }
        notes.extend(self.verdicts().iter().map(said));
        notes
    }
}

fn said(verdict: &Accuracy) -> String {
    let out = if verdict.out.is_empty() { String::new() } else { format!("; OUT: {}", verdict.out.join(", ")) };
    format!(
        "Predictions of {} within tolerance: {} of {}, the worst is {:.1} % off{out}.",
        verdict.by, verdict.good, verdict.all, verdict.worst_percent
    )
}

fn absent(peer: &CopyPeer) -> Option<String> {
    let missing = peer.missing.as_ref()?;
    Some(format!("SKIPPED {}: {missing}", peer.system.name()))
}

fn copy_row(outcome: &CellOutcome) -> Vec<String> {
    let cell = &outcome.cell;
    let median = |m: Option<Summary>| m.map(|m| figure(m.median)).unwrap_or_default();
    let load = if cell.system.has_network() { figure(cell.load_percent) } else { "-".into() };
    let interval = outcome.seconds.and_then(|s| s.interval());
    let mut row = vec![
        cell.system.name().to_owned(),
        megabytes(cell.bytes),
        load,
        outcome.load_carried.map(|l| figure(l.median * 100.0)).unwrap_or_default(),
        median(outcome.seconds),
        interval.map(|(low, high)| format!("{} to {}", figure(low), figure(high))).unwrap_or_default(),
        outcome.seconds.map(|s| format!("{}/{}", s.censored, s.runs)).unwrap_or_default(),
        median(outcome.factor),
        outcome.paper_factor.map(figure).unwrap_or_default(),
    ];
    for predicted in [&outcome.predicted, &outcome.simulated, &outcome.baseline] {
        row.extend(predicted.as_ref().map_or_else(Default::default, prediction));
    }
    row
}

/// Seconds with marks, error, and verdict.
fn prediction(predicted: &Predicted) -> [String; 3] {
    let mark = if predicted.fitted { "~" } else { "" };
    let doubt = if predicted.doubts.is_empty() { "" } else { "*" };
    let judged = match predicted.is_within_tolerance() {
        _ if predicted.fitted => "",
        true => "in",
        false => "OUT",
    };
    let off = format!("{:+.1}", predicted.difference_percent);
    [format!("{mark}{}{doubt}", figure(predicted.seconds)), off, judged.to_owned()]
}

fn fit_row(fitted: &Fitted) -> Vec<String> {
    vec![
        fitted.system.name().to_owned(),
        megabytes(fitted.bytes),
        figure(fitted.rest_s),
        figure(fitted.exchanges),
        figure(fitted.blocks),
        fitted.window.to_string(),
        figure(fitted.software_s * 1e6),
        figure(fitted.software_simulated_s * 1e6),
    ]
}

fn parts_row(parts: &Parts, loads: &[f64]) -> Vec<String> {
    let mut row = vec![
        parts.system.name().to_owned(),
        megabytes(parts.bytes),
        figure(parts.bits_s),
        parts.disk_s.map(figure).unwrap_or_default(),
        figure(parts.wire_s),
        figure(parts.hardware_s),
        figure(parts.software_s),
        parts.setup_s.map(figure).unwrap_or_default(),
    ];
    let at = |load: &f64| parts.contention_s.iter().find(|(l, _)| l == load).map(|(_, s)| figure(*s));
    row.extend(loads.iter().map(|load| at(load).unwrap_or_default()));
    row
}

fn minutes(seconds: f64) -> String {
    if seconds < 120.0 { format!("{} s", figure(seconds)) } else { format!("{} min", figure(seconds / 60.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::copy::outcome::tests::report;

    #[test]
    fn ratios_follow_from_the_parts() {
        let mut report = report();
        let here = |report: &CopyStudyReport, row: usize| report.beside_paper().rows[row][2].clone();
        // 0.8 s of bits, 0.855 s of frames, 1.0035 s without load; no load of 98 %.
        assert_eq!([here(&report, 0), here(&report, 1), here(&report, 2)], ["1.07", "1.17", "1.25"]);
        assert_eq!([here(&report, 3), here(&report, 4)], ["", ""]);
        report.parts[0].contention_s.push((98.0, 3.0 * 1.0035));
        assert_eq!(here(&report, 3), "4");
    }

    #[test]
    fn range_of_equal_values_has_one_end() {
        assert_eq!(range([2.0, 1.0].into_iter()), "1 to 2");
        assert_eq!(range([2.0, 2.001].into_iter()), "2");
        assert_eq!(range(std::iter::empty()), "");
    }

    #[test]
    fn tables_show_measured_and_missing_runs() {
        let text = report().to_text(usize::MAX);
        for piece in [
            "2.3",
            "1/7",
            "SKIPPED ftp: install vsftpd",
            "FAILED scp 1 MB at 60 %: it broke",
            "no collisions",
            "+ at 60 %",
            "Predictions of the simulator within tolerance: 1 of 1",
        ] {
            assert!(text.contains(piece), "{piece}: {text}");
        }
    }

    #[test]
    fn figures_have_three_digits() {
        for (value, text) in
            [(0.0, "0"), (0.1234, "0.123"), (9.876, "9.88"), (12.34, "12.3"), (100.0, "100"), (1234.5, "1234")]
        {
            assert_eq!(figure(value), text);
        }
        assert_eq!(figure(f64::INFINITY), "cut off");
        assert_eq!((megabytes(1000), megabytes(2_500_000)), ("1000 B".into(), "2.5 MB".into()));
    }
}
