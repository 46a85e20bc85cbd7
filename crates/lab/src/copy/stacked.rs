//! Where the time of copies goes: a stacked bar for each system, hardware below, then software, then what each load
//! adds.

use plotters::prelude::*;

use super::outcome::Parts;
use super::tables::figure;
use crate::report::page::LegendEntry;
use crate::report::plot::{self, Axis, GREEN, GREY, ORANGE, PINK, SKY, VERMILION};

const SIZE: (u32, u32) = (760, 360);
/// Half of a bar's width.
const HALF: f64 = 0.3;
/// Hardware, software, then loads. Orange and vermilion, which are alike, do not meet.
const COLOURS: [RGBColor; 6] = [GREY, GREEN, SKY, ORANGE, PINK, VERMILION];

/// The bars of copies of one size.
pub(super) struct Stacked<'a> {
    parts: Vec<&'a Parts>,
    /// In percent, in order.
    loads: Vec<f64>,
}

impl<'a> Stacked<'a> {
    /// Of copies of `bytes`.
    pub(super) fn new(parts: &'a [Parts], bytes: u64) -> Stacked<'a> {
        let parts: Vec<&Parts> = parts.iter().filter(|p| p.bytes == bytes).collect();
        let mut loads: Vec<f64> = parts.iter().flat_map(|p| p.contention_s.iter().map(|(l, _)| *l)).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        Stacked { parts, loads }
    }

    /// From the bottom up.
    pub(super) fn legend(&self) -> Vec<LegendEntry> {
        let names = ["hardware: wire or disk".to_owned(), "software".to_owned()].into_iter();
        let names = names.chain(self.loads.iter().map(|l| format!("contention at {} %", figure(*l))));
        let entry = |(name, colour): (String, &RGBColor)| LegendEntry::coloured(plot::css(*colour), &name);
        names.zip(COLOURS.iter().cycle()).map(entry).collect()
    }

    /// The drawing as SVG; an error is plotters' message.
    pub(super) fn svg(&self) -> Result<String, String> {
        let tops = self.parts.iter().filter_map(|p| self.levels(p).last().copied());
        let top = tops.fold(0.0, f64::max).max(1e-3) * 1.06;
        let names: Vec<String> = self.parts.iter().map(|p| p.system.name().to_owned()).collect();
        plot::svg(SIZE, |root| {
            let mut canvas = plot::axes(root, Axis::levels("", &names), Axis::linear("seconds", 0.0..top))?;
            for (i, parts) in self.parts.iter().enumerate() {
                let (left, right, mut below) = (i as f64 - HALF, i as f64 + HALF, 0.0);
                for (level, colour) in self.levels(parts).into_iter().zip(COLOURS.iter().cycle()) {
                    canvas.draw_series([Rectangle::new([(left, below), (right, level)], colour.filled())])?;
                    below = level;
                }
            }
            Ok(())
        })
    }

    /// The heights at which a bar's colours end: each load's on top of the one before, as far as it
    /// adds more. What was cut off has no height.
    fn levels(&self, parts: &Parts) -> Vec<f64> {
        let alone = parts.hardware_s + parts.software_s;
        let at = |load: &f64| parts.contention_s.iter().find(|(l, _)| l == load).map_or(0.0, |(_, s)| *s);
        let mut levels = vec![parts.hardware_s.min(alone), alone];
        for load in &self.loads {
            let below = levels.last().copied().unwrap_or(0.0);
            let level = alone + at(load);
            levels.push(if level.is_finite() { level.max(below) } else { below });
        }
        levels
    }
}

#[cfg(test)]
mod tests {
    use super::super::plan::System;
    use super::*;

    fn parts(contention_s: &[(f64, f64)]) -> Parts {
        Parts {
            system: System::Scp,
            bytes: 1,
            bits_s: 0.8,
            disk_s: Some(0.1),
            wire_s: 0.9,
            hardware_s: 0.9,
            software_s: 0.3,
            setup_s: None,
            contention_s: contention_s.to_vec(),
        }
    }

    #[test]
    fn bar_only_grows_and_ends_at_the_longest() {
        let all = [parts(&[(60.0, 1.0), (98.0, 2.0)]), parts(&[(60.0, -0.1), (98.0, f64::INFINITY)])];
        let stacked = Stacked::new(&all, 1);
        let close = |a: Vec<f64>, b: [f64; 4]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(close(stacked.levels(&all[0]), [0.9, 1.2, 2.2, 3.2]));
        assert!(close(stacked.levels(&all[1]), [0.9, 1.2, 1.2, 1.2]));
        assert_eq!(stacked.legend().len(), 4);
        let svg = stacked.svg().unwrap();
        assert!(
            svg.contains("scp") && !svg.contains("NaN") && !svg.contains("inf") && !svg.contains("#000000"),
            "{svg}"
        );
        // Nothing to draw is no error.
        assert!(Stacked::new(&[], 1).svg().is_ok());
    }
}
