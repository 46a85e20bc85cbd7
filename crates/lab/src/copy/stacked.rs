//! Where copies' time goes, as a picture: a bar for each system, hardware below, software on it, and
//! what each load adds on top.

use plotters::prelude::*;

use super::outcome::Parts;
use super::tables::figure;
use crate::report::page::in_ink;

/// Of the picture, in units that are pixels on a wide screen.
const SIZE: (u32, u32) = (760, 360);
const FONT: (&str, u32) = ("sans-serif", 15);
/// Half of a bar's width.
const HALF: f64 = 0.3;

/// Colours of Okabe and Ito, that can be told apart by everybody, on white and on black: hardware,
/// software, then loads, the lightest first. Orange and vermilion, which are alike, do not meet.
const COLOURS: [RGBColor; 6] = [
    RGBColor(0x80, 0x80, 0x80),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xd5, 0x5e, 0x00),
];

type Fallible<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// The bars of copies of one size, and what their colours mean: a name and a colour for CSS.
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

    /// Names and colours, from below.
    pub(super) fn legend(&self) -> Vec<(String, String)> {
        let names = ["hardware: wire or disk".to_owned(), "software".to_owned()].into_iter();
        let names = names.chain(self.loads.iter().map(|l| format!("contention at {} %", figure(*l))));
        names
            .zip(COLOURS.iter().cycle())
            .map(|(name, RGBColor(r, g, b))| (name, format!("#{r:02x}{g:02x}{b:02x}")))
            .collect()
    }

    /// The picture; an error is plotters' own words.
    pub(super) fn svg(&self) -> Result<String, String> {
        let mut out = String::new();
        self.draw(&mut out).map_err(|e| e.to_string())?;
        Ok(in_ink(&out))
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

    fn draw(&self, out: &mut String) -> Fallible {
        let root = SVGBackend::with_string(out, SIZE).into_drawing_area();
        let tops = self.parts.iter().filter_map(|p| self.levels(p).last().copied());
        let top = tops.fold(0.0, f64::max).max(1e-3) * 1.06;
        let last = self.parts.len().saturating_sub(1) as f64;
        let mut canvas = ChartBuilder::on(&root)
            .margin(10)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(-0.5..last + 0.5, 0.0..top)?;
        let name = |x: &f64| {
            let near = (x - x.round()).abs() < 0.01;
            let parts = near.then(|| self.parts.get(x.round() as usize)).flatten();
            parts.map(|p| p.system.name().to_owned()).unwrap_or_default()
        };
        canvas
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.15))
            .label_style(FONT)
            .axis_desc_style(FONT)
            .x_labels(2 * self.parts.len() + 1)
            .x_label_formatter(&name)
            .y_desc("seconds")
            .draw()?;
        for (i, parts) in self.parts.iter().enumerate() {
            let (left, right, mut below) = (i as f64 - HALF, i as f64 + HALF, 0.0);
            for (level, colour) in self.levels(parts).into_iter().zip(COLOURS.iter().cycle()) {
                canvas.draw_series([Rectangle::new([(left, below), (right, level)], colour.filled())])?;
                below = level;
            }
        }
        root.present()?;
        Ok(())
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
    fn a_bar_only_grows_and_ends_at_the_longest() {
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
