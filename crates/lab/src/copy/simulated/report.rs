//! The report: text, drawings, JSON.

use serde::Serialize;

use super::experiment::{CopyExperiment, FULL, PAPER_LOAD, SimulatedCell};
use super::medium::{LoadLevel, SharedMedium};
use super::study;
use super::study::{CopyRun, LevelKey, Runs, SimulatedOptions};
use super::system::{SimulatedSystem, Without};
use crate::copy::page::{bars, bars_legend};
use crate::report::chart::{LevelChart, LevelPoint, Mark, Series};
use crate::report::number::{count, figure, megabytes, or_empty};
use crate::report::page::{Body, Figure, Html, LegendEntry};
use crate::report::provenance::{FailedRun, Provenance, SeedRun, Source};
use crate::report::statistics::Summary;
use crate::report::table::Table;

/// Copy 89, section 3.3: the average over its programs.
const PAPER_FACTOR: f64 = 4.0;

#[derive(Clone, Debug, Serialize)]
pub struct SimulatedCopyReport {
    #[serde(flatten)]
    pub made: Provenance,
    pub bytes: u64,
    pub experiments: Vec<ExperimentOutcome>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ExperimentOutcome {
    pub name: CopyExperiment,
    pub about: &'static str,
    /// Of the experiments with loads.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<SimulatedRow>,
    /// Of the experiment with hosts that lack parts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Ablation>,
    pub failures: Vec<FailedRun>,
}

/// The copies of a cell.
#[derive(Clone, Debug, Serialize)]
pub struct SimulatedRow {
    #[serde(flatten)]
    pub cell: SimulatedCell,
    /// The load alone.
    pub load: Option<LoadLevel>,
    /// The load's frames beside the copy, as a share of the time.
    pub load_frames: Option<Summary>,
    /// The medium's use beside the copy, as a share of the time.
    pub used: Option<Summary>,
    pub seconds: Option<Summary>,
    /// Time over that without load, by pairs of the same seed.
    pub factor: Option<Summary>,
    pub retransmissions: Option<Summary>,
    /// The copy's frames given up after sixteen collisions.
    pub given_up: Option<Summary>,
}

/// The parts of a copy's time, in seconds: medians of differences by pairs of the same seed.
#[derive(Clone, Debug, Serialize)]
pub struct Ablation {
    pub system: SimulatedSystem,
    pub medium: SharedMedium,
    /// The copy without load.
    pub quiet_s: f64,
    /// The copy's own frames.
    pub wire_s: f64,
    /// What instant disks save.
    pub disk_s: f64,
    /// What instant processors save then.
    pub processors_s: f64,
    /// What is left: timers, gaps and collisions of the copy's own frames.
    pub rest_s: f64,
    /// What the copy would save if wire, disk and processors worked at the same time: RPC's waits for replies.
    pub waits_s: f64,
    /// Additional time by load in percent.
    pub contention_s: Vec<(u32, f64)>,
}

/// Runs the experiments. An error is a load that cannot be made.
pub fn run_simulated(options: &SimulatedOptions) -> Result<SimulatedCopyReport, String> {
    let cells = options.experiments.iter().flat_map(|e| options.media.iter().flat_map(|medium| e.cells(*medium)));
    let runs = study::runs(options, cells.collect())?;
    let made = Provenance::new(Source::Simulated, &options.command, options.first_seed, options.seeds);
    Ok(SimulatedCopyReport::new(made, options, &runs))
}

impl SimulatedCopyReport {
    fn new(made: Provenance, options: &SimulatedOptions, runs: &Runs) -> SimulatedCopyReport {
        let outcome = |experiment: &CopyExperiment| {
            let cells: Vec<SimulatedCell> = options.media.iter().flat_map(|medium| experiment.cells(*medium)).collect();
            let has_parts = *experiment == CopyExperiment::Parts;
            let whole = cells.iter().filter(|cell| cell.is_quiet() && cell.without == Without::Nothing);
            let (rows, parts) = match has_parts {
                false => (cells.iter().map(|cell| runs.row(*cell)).collect(), Vec::new()),
                true => (Vec::new(), whole.filter_map(|cell| runs.ablation(*cell, &cells)).collect()),
            };
            let failures = cells.iter().flat_map(|cell| runs.failures(cell)).collect();
            ExperimentOutcome { name: *experiment, about: experiment.about(), rows, parts, failures }
        };
        let experiments = options.experiments.iter().map(outcome).collect();
        SimulatedCopyReport { made, bytes: options.bytes, experiments }
    }

    pub fn failures(&self) -> usize {
        self.experiments.iter().map(|e| e.failures.len()).sum()
    }

    /// The report as text, its tables at most `width` characters wide.
    pub fn to_text(&self, width: usize) -> String {
        let mut text = String::new();
        for experiment in &self.experiments {
            text += &format!("{}\n{}\n", experiment.about, experiment.table().to_text_within(width));
        }
        text + &self.notes().join("\n") + "\n"
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = vec![
            format!(
                "Simulated: files of {}, {} from {}; medians. Made by: {}",
                megabytes(self.bytes),
                count(self.made.seeds, "seed"),
                self.made.first_seed,
                self.made.command
            ),
            "used: share of the time in which the medium is in use (frames; with collisions also gaps, collisions and \
             back-off); frames: share that the load's frames take. Alone: before the copy. At 100 %, stations always \
             have a frame."
                .into(),
            format!("Copy 89: no change at loads to 65 %, about {PAPER_FACTOR} times as long at {PAPER_LOAD} %."),
        ];
        if self.experiments.iter().any(|e| !e.parts.is_empty()) {
            notes.push(
                "disk and processors: what the copy saves without them, in this order; wire: its own frames; RPC waits: \
                 what it would save if these three worked at the same time."
                    .into(),
            );
        }
        let failures = self.experiments.iter().flat_map(|e| &e.failures);
        notes.extend(failures.map(|failed| format!("FAILED seed {}: {}", failed.seed, failed.why)));
        notes
    }
}

impl Runs {
    fn done(&self, cell: &SimulatedCell) -> impl Iterator<Item = &CopyRun> {
        self.runs.get(cell).into_iter().flatten().filter_map(|run| run.result.as_ref().ok())
    }

    fn failures(&self, cell: &SimulatedCell) -> Vec<FailedRun> {
        let failed = |run: &SeedRun<CopyRun, String>| {
            run.result.as_ref().err().map(|why| FailedRun { seed: run.seed, why: why.clone() })
        };
        self.runs.get(cell).into_iter().flatten().filter_map(failed).collect()
    }

    fn summary(&self, cell: &SimulatedCell, value: impl Fn(&CopyRun) -> f64) -> Option<Summary> {
        Summary::of(&self.done(cell).map(value).collect::<Vec<_>>())
    }

    /// A value of two cells by pairs of the same seed.
    fn paired(&self, [one, other]: [&SimulatedCell; 2], of: impl Fn(f64, f64) -> f64) -> Option<Summary> {
        let (one, other) = (self.runs.get(one)?, self.runs.get(other)?);
        let pairs = one.iter().zip(other).filter_map(|(one, other)| {
            let (one, other) = (one.result.as_ref().ok()?, other.result.as_ref().ok()?);
            Some(of(one.seconds, other.seconds))
        });
        Summary::of(&pairs.collect::<Vec<_>>())
    }

    fn row(&self, cell: SimulatedCell) -> SimulatedRow {
        let load = LevelKey::of(&cell).and_then(|key| self.levels.get(&key)).copied();
        SimulatedRow {
            cell,
            load,
            load_frames: load.and_then(|_| self.summary(&cell, |run| run.load_frames)),
            used: load.and_then(|_| self.summary(&cell, |run| run.used)),
            seconds: self.summary(&cell, |run| run.seconds),
            factor: self.paired([&cell, &cell.quiet()], |loaded, quiet| loaded / quiet),
            retransmissions: self.summary(&cell, |run| run.retransmissions),
            given_up: self.summary(&cell, |run| run.given_up),
        }
    }

    /// The parts of a copy without load; `cells` has those with loads.
    fn ablation(&self, whole: SimulatedCell, cells: &[SimulatedCell]) -> Option<Ablation> {
        let bare = |without| SimulatedCell { without, ..whole };
        let (no_disk, no_hosts) = (bare(Without::Disk), bare(Without::Processors));
        let difference = |cells| Some(self.paired(cells, |one, other| one - other)?.median);
        let quiet_s = self.summary(&whole, |run| run.seconds)?.median;
        let wire_s = self.summary(&no_hosts, |run| run.wire_s)?.median;
        let disk_s = difference([&whole, &no_disk])?;
        let processors_s = difference([&no_disk, &no_hosts])?;
        let own = |cell: &&SimulatedCell| (cell.system, cell.medium) == (whole.system, whole.medium);
        let loaded = cells.iter().filter(own).filter(|cell| !cell.is_quiet());
        Some(Ablation {
            system: whole.system,
            medium: whole.medium,
            quiet_s,
            wire_s,
            disk_s,
            processors_s,
            rest_s: self.summary(&no_hosts, |run| run.seconds - run.wire_s)?.median,
            waits_s: quiet_s - wire_s.max(disk_s).max(processors_s),
            contention_s: loaded.filter_map(|cell| Some((cell.load_percent, difference([cell, &whole])?))).collect(),
        })
    }
}

impl ExperimentOutcome {
    fn table(&self) -> Table {
        if !self.parts.is_empty() {
            let head = [
                "medium",
                "system",
                "no load",
                "wire",
                "disk",
                "processors",
                "rest",
                "RPC waits",
                "+ at 60 %",
                "+ at 98 %",
            ];
            return Table::new(2, head, self.parts.iter().map(Ablation::cells));
        }
        let head = [
            "medium",
            "system",
            "load %",
            "stations",
            "used %",
            "frames %",
            "beside %",
            "s",
            "95 % interval",
            "x no load",
            "paper x",
            "resent",
            "given up",
        ];
        Table::new(4, head, self.rows.iter().map(SimulatedRow::cells))
    }

    /// A figure for each medium.
    fn figures(&self) -> Result<Vec<Figure>, String> {
        let media = self.rows.iter().map(|row| row.cell.medium).chain(self.parts.iter().map(|parts| parts.medium));
        let mut media: Vec<SharedMedium> = media.collect();
        media.dedup();
        let is_ablation = !self.parts.is_empty();
        let figure = |medium| if is_ablation { self.bars_of(medium) } else { self.figure_of(medium) };
        media.into_iter().map(figure).collect()
    }

    /// The parts of each system's time.
    fn bars_of(&self, medium: SharedMedium) -> Result<Figure, String> {
        let parts: Vec<&Ablation> = self.parts.iter().filter(|parts| parts.medium == medium).collect();
        let names: Vec<String> = parts.iter().map(|parts| parts.system.name().to_owned()).collect();
        let svg = bars(&names, &parts.iter().map(|parts| parts.levels()).collect::<Vec<_>>())?;
        let loads = parts.first().into_iter().flat_map(|parts| &parts.contention_s);
        let loads = loads.map(|(load, _)| format!("contention at {load} %"));
        let names = ["wire", "disk", "processors", "rest"].map(str::to_owned).into_iter().chain(loads);
        let caption = format!("{}: {}", self.about, medium.name());
        Ok(Figure { caption, legend: bars_legend(names), svg, ..Figure::default() })
    }

    /// The factor over the loads, or over the number of stations at the paper's load; a line for each system.
    fn figure_of(&self, medium: SharedMedium) -> Result<Figure, String> {
        let by_stations = self.name == CopyExperiment::Stations;
        let is_shown = |row: &&SimulatedRow| {
            let of_load = !by_stations || row.cell.load_percent == PAPER_LOAD;
            row.cell.medium == medium && row.load.is_some() && of_load
        };
        let rows: Vec<&SimulatedRow> = self.rows.iter().filter(is_shown).collect();
        let level = |row: &SimulatedRow| if by_stations { row.cell.stations } else { row.cell.load_percent as usize };
        let mut levels: Vec<usize> = rows.iter().map(|row| level(row)).collect();
        levels.sort_unstable();
        levels.dedup();
        let systems = SimulatedSystem::ALL.into_iter().filter(|s| rows.iter().any(|row| row.cell.system == *s));
        let systems: Vec<SimulatedSystem> = systems.collect();
        let paper = levels.iter().position(|level| *level == PAPER_LOAD as usize).filter(|_| !by_stations);
        let line = |system: &SimulatedSystem| {
            let own = rows.iter().filter(|row| row.cell.system == *system);
            let point = |row: &&SimulatedRow| {
                let factor = row.factor.filter(|factor| factor.median.is_finite())?;
                let at = levels.iter().position(|l| *l == level(row))?;
                let (median, interval) = (factor.median, factor.interval());
                Some(LevelPoint { level: at, median, interval, is_beyond: false, limit: factor.median })
            };
            let circles = paper.filter(|_| *system == SimulatedSystem::Nfs1989).map(|at| (at, PAPER_FACTOR));
            Series { points: own.filter_map(point).collect(), circles: circles.into_iter().collect() }
        };
        let lines: Vec<Series> = systems.iter().map(line).collect();
        let unit = if by_stations { "" } else { " %" };
        let x_levels: Vec<String> = levels.iter().map(|level| format!("{level}{unit}")).collect();
        let x_title = if by_stations { "stations that make a load of 98 %" } else { "load" };
        let chart =
            LevelChart { x_title, x_levels: &x_levels, y_title: "times no load", logarithmic: false, lines: &lines };
        let mut legend: Vec<LegendEntry> =
            systems.iter().zip(Mark::all()).map(|(system, mark)| LegendEntry::marked(mark, system.name())).collect();
        if paper.is_some() {
            legend.push(LegendEntry::plain('○', "Copy 89"));
        }
        let caption = format!("{}: {}", self.about, medium.name());
        Ok(Figure { caption, legend, svg: chart.svg()?, ..Figure::default() })
    }
}

impl SimulatedRow {
    fn cells(&self) -> Vec<String> {
        let SimulatedCell { system, medium, load_percent, stations, .. } = self.cell;
        let median = |summary: Option<Summary>| or_empty(summary, |s| figure(s.median));
        let percent = |share: f64| figure(100.0 * share);
        let interval = self.seconds.and_then(|s| s.interval());
        let paper = match load_percent {
            0 | 10 | 60 => Some(1.0),
            PAPER_LOAD => Some(PAPER_FACTOR),
            _ => None,
        };
        vec![
            medium.name().into(),
            system.name().into(),
            if load_percent == FULL { "full".into() } else { load_percent.to_string() },
            if self.cell.is_quiet() { String::new() } else { stations.to_string() },
            or_empty(self.load, |load| percent(load.used)),
            or_empty(self.load, |load| percent(load.frames)),
            or_empty(self.load_frames, |s| percent(s.median)),
            median(self.seconds),
            or_empty(interval, |(low, high)| format!("{} to {}", figure(low), figure(high))),
            median(self.factor),
            or_empty(paper.filter(|_| self.cell.medium == SharedMedium::Ethernet), figure),
            median(self.retransmissions),
            median(self.given_up),
        ]
    }
}

impl Ablation {
    /// Upper ends of the parts of a bar; each load's is on top of the lower one's.
    fn levels(&self) -> Vec<f64> {
        let mut levels = Vec::new();
        let mut below: f64 = 0.0;
        for part in [self.wire_s, self.disk_s, self.processors_s, self.rest_s] {
            below += part.max(0.0);
            levels.push(below);
        }
        let quiet = below;
        for (_, more) in &self.contention_s {
            below = below.max(quiet + if more.is_finite() { *more } else { 0.0 });
            levels.push(below);
        }
        levels
    }

    fn cells(&self) -> Vec<String> {
        let at = |percent: u32| self.contention_s.iter().find(|(load, _)| *load == percent).map(|(_, s)| *s);
        let mut row = vec![self.medium.name().to_owned(), self.system.name().to_owned()];
        row.extend([self.quiet_s, self.wire_s, self.disk_s, self.processors_s, self.rest_s, self.waits_s].map(figure));
        row.extend([60, PAPER_LOAD].map(|percent| or_empty(at(percent), figure)));
        row
    }
}

impl Html for SimulatedCopyReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Copying files beside a load, simulated");
        for note in self.notes() {
            body.paragraph(&note);
        }
        for experiment in &self.experiments {
            for figure in experiment.figures()? {
                body.figure(&figure);
            }
            body.table(experiment.about, &experiment.table());
        }
        Ok(body.finish("remora lab copy"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ablation(medium: SharedMedium) -> Ablation {
        Ablation {
            system: SimulatedSystem::Nfs1989,
            medium,
            quiet_s: 12.0,
            wire_s: 1.0,
            disk_s: 6.0,
            processors_s: 5.0,
            rest_s: -0.5,
            waits_s: 6.0,
            contention_s: vec![(60, -1.0), (98, f64::INFINITY)],
        }
    }

    #[test]
    fn bar_of_parts_never_shrinks() {
        assert_eq!(ablation(SharedMedium::Turns).levels(), [1.0, 7.0, 12.0, 12.0, 12.0, 12.0]);
        let mut longer = ablation(SharedMedium::Turns);
        longer.contention_s = vec![(60, 2.0), (98, 30.0)];
        assert_eq!(longer.levels()[4..], [14.0, 42.0]);
    }

    #[test]
    fn page_has_a_figure_for_each_medium() {
        let cell = |load_percent| SimulatedCell {
            system: SimulatedSystem::Nfs1989,
            medium: SharedMedium::Ethernet,
            load_percent,
            stations: 2,
            without: Without::Nothing,
        };
        let load = SharedMedium::Ethernet.loaded(1.0, 2).ok();
        let summary = Summary::of(&[2.0, 3.0, 4.0]);
        let row = |load_percent| SimulatedRow {
            cell: cell(load_percent),
            load,
            load_frames: summary,
            used: summary,
            seconds: summary,
            factor: summary,
            retransmissions: summary,
            given_up: summary,
        };
        let outcome = |name: CopyExperiment, rows, parts| ExperimentOutcome {
            name,
            about: name.about(),
            rows,
            parts,
            failures: Vec::new(),
        };
        let report = SimulatedCopyReport {
            made: Provenance::new(Source::Simulated, "remora lab copy media", 1, 3),
            bytes: 1_000_000,
            experiments: vec![
                outcome(CopyExperiment::Media, vec![row(60), row(PAPER_LOAD), row(FULL)], Vec::new()),
                outcome(CopyExperiment::Parts, Vec::new(), SharedMedium::ALL.map(ablation).to_vec()),
            ],
        };
        let html = report.to_html().unwrap();
        assert_eq!((html.matches("<figure").count(), html.matches("<table").count()), (4, 2));
        assert!(html.contains("Copy 89") && !html.contains("NaN") && !html.contains("inf,"));
        let text = report.to_text(120);
        assert!(text.contains("RPC waits") && text.contains("cut off") && text.contains("full"), "{text}");
    }
}
