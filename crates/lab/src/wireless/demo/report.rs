//! The results as text and as a page.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plotters::prelude::*;
use remora_base::Time;
use remora_channel::{Config, ErrorProcess};
use serde::Serialize;

use super::options::{CopyDirection, link};
use super::race::{DemoError, Finish, LegResult};
use crate::report::page::{Body, Figure, Html, LegendEntry, Page};
use crate::report::plot::{self, Axis};
use crate::report::table::Table;

#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub seed: u64,
    /// Mean length of the link's bad periods, in milliseconds.
    pub bad_mean_ms: u64,
    pub bytes: u64,
    /// Writes before reads, each in the order of `racers`.
    pub legs: Vec<LegResult>,
    pub report: PathBuf,
}

impl Outcome {
    /// Whether every finished copy is intact.
    pub fn all_intact(&self) -> bool {
        self.legs.iter().all(|l| l.intact != Some(false))
    }
}

const SIZE: plot::Size = plot::Size { width: 960, height: 400 };
const WAYS: [(CopyDirection, &str); 2] =
    [(CopyDirection::Write, "Write: to the server"), (CopyDirection::Read, "Read: from the server")];

/// Lateness of a frame, some 1 % of a copy's time, beyond which the times depend on the machine.
const LATENESS_MAX_MS: f64 = 100.0;

/// Checks that the page can be written.
pub(super) fn reserve(path: &Path) -> Result<Page, DemoError> {
    Page::reserve(path).map_err(|source| DemoError::Report { path: path.to_owned(), source })
}

pub(super) fn write(page: Page, outcome: &Outcome) -> Result<(), DemoError> {
    page.write(outcome).map_err(|source| DemoError::Report { path: outcome.report.clone(), source })
}

impl Outcome {
    pub fn table(&self) -> String {
        let both = WAYS.map(|(way, title)| {
            let bytes = self.bytes;
            format!("{title}, {bytes} bytes\n{}", self.results(way).to_text())
        });
        both.into_iter().chain(self.lateness_warning().map(|w| format!("{w}\n"))).collect()
    }

    fn link(&self) -> Config {
        link(Duration::from_millis(self.bad_mean_ms))
    }

    fn lateness_ms(&self) -> f64 {
        self.legs.iter().map(|l| l.lateness_ms).fold(0.0, f64::max)
    }

    /// A warning if the emulator passed frames on too late for the times to count.
    fn lateness_warning(&self) -> Option<String> {
        let late = self.lateness_ms();
        let why = "this machine was busy, and the times may be too long; run it again when it is idle";
        (late >= LATENESS_MAX_MS).then(|| format!("warning: a frame left the emulator {late:.0} ms late: {why}"))
    }

    fn of(&self, way: CopyDirection) -> impl Iterator<Item = &LegResult> {
        self.legs.iter().filter(move |l| l.way == way)
    }

    fn results(&self, way: CopyDirection) -> Table {
        let row = |leg: &LegResult| {
            let copy = match (leg.finish, leg.intact) {
                (Finish::Stopped, _) => {
                    format!("stopped at {:.0} %", leg.bytes as f64 / self.bytes.max(1) as f64 * 100.0)
                }
                (Finish::Done, Some(true)) => "intact".to_owned(),
                (Finish::Done, _) => "DAMAGED".to_owned(),
            };
            let ratio = leg.ratio.map_or("-".to_owned(), |r| format!("{r:.2}"));
            vec![leg.racer.to_owned(), format!("{:.2}", leg.seconds), ratio, leg.retransmissions.to_string(), copy]
        };
        let floor = self.of(way).find_map(|l| l.floor_seconds);
        let floor = floor.map(|f| vec!["floor".into(), format!("{f:.2}"), "1.00".into(), String::new(), String::new()]);
        Table::new(1, ["client", "seconds", "x floor", "sent again", "copy"], self.of(way).map(row).chain(floor))
    }

    /// Bytes over time, the bad periods shaded.
    fn figure(&self, way: CopyDirection) -> Result<Figure, String> {
        let legs: Vec<&LegResult> = self.of(way).collect();
        let end = legs.iter().map(|l| l.seconds).fold(1.0, f64::max) * 1.02;
        let kib = |bytes: u64| bytes as f64 / 1024.0;
        let top = kib(self.bytes.max(1)) * 1.05;
        let svg = plot::svg(SIZE, |root| {
            let mut canvas = plot::axes(root, Axis::linear("seconds", 0.0..end), Axis::linear("KiB across", 0.0..top))?;
            if let Some(first) = legs.first() {
                let shade = plot::VERMILION.mix(0.2).filled();
                let periods = bad_periods(&self.link(), self.seed, first.began, end).into_iter();
                canvas.draw_series(periods.map(|(from, to)| Rectangle::new([(from, 0.0), (to, top)], shade)))?;
                if let Some(floor) = first.floor_seconds {
                    plot::line(&mut canvas, vec![(floor, 0.0), (floor, top)], BLACK.mix(0.6).stroke_width(1))?;
                }
            }
            for (n, leg) in legs.iter().enumerate() {
                let points = std::iter::once((0.0, 0.0)).chain(leg.curve.iter().map(|(t, b)| (*t, kib(*b))));
                plot::line(&mut canvas, points.collect(), plot::colour(2 * n).stroke_width(2))?;
            }
            Ok(())
        })?;
        let entry = |(n, leg): (usize, &&LegResult)| LegendEntry::coloured(plot::css(plot::colour(2 * n)), leg.racer);
        let mut legend: Vec<LegendEntry> = legs.iter().enumerate().map(entry).collect();
        legend.push(LegendEntry::plain('│', "the channel's floor"));
        Ok(Figure { legend, svg, ..Figure::default() })
    }
}

impl Html for Outcome {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("A file over a bursty wireless link");
        body.html(&format!(
            "<p>{} KiB to a server and back over UDP, in real time, through an emulated half-duplex link of {}/s with \
             good periods of 1 s and bad ones of {} ms in the mean (uniform, on a 20 ms grid; NFS/W 97), seed {}. \
             While the link is bad, shaded below, every frame is lost. Each client has a link of its own with the same \
             weather. The <em>floor</em> is the first moment at which the link could have carried the file in full \
             frames with IP and UDP headers only.</p>",
            self.bytes.div_ceil(1024),
            self.link().rate,
            self.bad_mean_ms,
            self.seed
        ));
        for (way, title) in WAYS {
            body.heading(title);
            body.figure(&self.figure(way)?);
            body.html(&self.results(way).to_html());
        }
        if let Some(warning) = self.lateness_warning() {
            body.html(&format!("<p><strong>{warning}.</strong></p>"));
        }
        let late = self.lateness_ms();
        body.html(&format!(
            "<p><small>The emulator's latest frame was {late:.1} ms late. Made by <code>remora demo --seed {} \
             --bad-mean {}ms</code>.</small></p>",
            self.seed, self.bad_mean_ms
        ));
        Ok(body.finish("remora demo"))
    }
}

/// The bad periods in view, in seconds since `began`.
fn bad_periods(link: &Config, seed: u64, began: Time, seconds: f64) -> Vec<(f64, f64)> {
    let Ok(mut weather) = ErrorProcess::new(link, seed) else { return Vec::new() };
    let until = began + Duration::from_secs_f64(seconds);
    let view = |t: Time| t.since(began).as_secs_f64().min(seconds);
    weather.bad_periods(began, until).map(|p| (view(p.start), view(p.end))).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn late_frame_is_warned_of_from_a_hundred_ms_on() {
        let leg = |lateness_ms| LegResult {
            racer: "one",
            way: CopyDirection::Read,
            finish: Finish::Done,
            seconds: 10.0,
            floor_seconds: Some(9.0),
            ratio: Some(1.1),
            bytes: 1,
            retransmissions: 0,
            probes: 0,
            intact: Some(true),
            lateness_ms,
            curve: Vec::new(),
            began: Time::ZERO,
        };
        let outcome = |latest| Outcome {
            seed: 1,
            bad_mean_ms: 80,
            bytes: 1,
            legs: vec![leg(1.0), leg(latest)],
            report: PathBuf::new(),
        };
        assert!(!outcome(99.0).table().contains("warning"), "{}", outcome(99.0).table());
        let table = outcome(505.5).table();
        assert!(table.contains("506 ms late: this machine was busy"), "{table}");
    }
}
