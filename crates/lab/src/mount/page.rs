//! The report as an HTML page: a drawing of all medians, and the tables.

use super::outcome::MountReport;
use super::work::Measure;
use crate::report::chart::{LevelChart, Mark, Series};
use crate::report::page::{Body, Figure, Html, LegendEntry};

/// Measures in a drawing.
const SHOWN: usize = 4;

impl Html for MountReport {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Programs on a mount over a bad link");
        body.provenance(&self.made);
        for note in self.notes() {
            body.paragraph(&note);
        }
        let measured = |measure: &Measure| self.cells.iter().any(|cell| cell.measure == *measure);
        let measures: Vec<Measure> = Measure::ALL.into_iter().filter(measured).collect();
        for shown in measures.chunks(SHOWN) {
            body.figure(&self.figure(shown)?);
        }
        body.table("Seconds", &self.table());
        body.table("Bars", &self.verdict_table());
        Ok(body.finish("remora lab mount"))
    }
}

impl MountReport {
    /// The medians of a few measures; one that was cut off is at the limit.
    fn figure(&self, measures: &[Measure]) -> Result<Figure, String> {
        let names: Vec<String> = measures.iter().map(|measure| measure.title().to_owned()).collect();
        let systems = self.systems();
        let circles = |system| {
            let median = |(level, measure): (usize, &Measure)| {
                Some((level, self.cell(*measure, system)?.seconds.median.min(self.limit_seconds)))
            };
            measures.iter().enumerate().filter_map(median).collect()
        };
        let lines: Vec<Series> =
            systems.iter().map(|system| Series { points: Vec::new(), circles: circles(*system) }).collect();
        let chart = LevelChart { x_title: "", x_levels: &names, y_title: "seconds", logarithmic: true, lines: &lines };
        let entry =
            |(system, mark): (&super::MountSystem, Mark)| LegendEntry::marked(mark, system.name()).with_sign('○');
        Ok(Figure {
            caption: "Medians of the seeds".into(),
            legend: systems.iter().zip(Mark::all()).map(entry).collect(),
            svg: chart.svg()?,
            remark: "What was cut off is drawn at the time limit.",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::MountSystem;
    use crate::mount::cell::tests::run;
    use crate::mount::outcome::tests::report;
    use crate::mount::work::Work;

    #[test]
    fn page_has_drawings_and_tables() {
        let all: Vec<(Measure, f64)> = Measure::ALL.iter().map(|measure| (*measure, 2.0)).collect();
        let cut_off = [(Measure::StatusFirst, f64::INFINITY)];
        let runs = [run(MountSystem::Udp, Work::List, 1, &all), run(MountSystem::Sshfs, Work::GitStatus, 1, &cut_off)];
        let html = report(&runs).to_html().unwrap();
        assert_eq!((html.matches("<figure").count(), html.matches("<table").count()), (4, 2));
        assert!(!html.contains("NaN") && !html.contains("inf\"") && !html.contains("src="), "{html}");
    }
}
