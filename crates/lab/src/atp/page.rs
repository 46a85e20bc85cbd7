//! The report as a page.

use remora_sim::atp::Class;

use super::outcome::{Report, Row};
use super::{plot, ratios, tables};
use crate::report::page::{Body, Figure, Html, LegendEntry};

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("What gets through in time");
        body.note(&format!("{} {}", self.made_how(), self.schemes()));
        body.provenance(&self.made_by);
        for line in self.troubles() {
            body.note(&line);
        }
        if !self.rows.is_empty() {
            if !self.verdicts.is_empty() {
                body.table(tables::VERDICTS, &self.verdict_table());
            }
            body.table(tables::GLANCE, &self.glance());
            for class in Class::ALL {
                self.bars(&mut body, class.name())?;
            }
            body.table(tables::TABLE_2, &self.statuses());
        }
        for curve in &self.curves {
            let error = tables::curve_error(&curve.seconds);
            body.heading(&format!("ATP 02, Figure {}: {}", curve.figure, curve.scheme));
            body.figure(&Figure {
                caption: format!("Estimate off by {error} of the bandwidth in the median."),
                legend: LegendEntry::series(plot::CURVE),
                svg: plot::curve(curve)?,
                ..Figure::default()
            });
        }
        if !self.bulk.is_empty() {
            let legend = LegendEntry::series(self.bulk.iter().map(|b| b.scheme.as_str()));
            body.table(tables::BULK, &self.bulk_table());
            body.figure(&Figure { legend, svg: plot::bulk(&self.bulk)?, ..Figure::default() });
            if let Some(ratios) = self.ratios() {
                body.table(ratios::TITLE, &ratios);
            }
        }
        for timeline in &self.timelines {
            body.heading(&format!("ATP 02, Figure 5: {}", timeline.scheme));
            let events = crate::report::page::escape(&timeline.to_text());
            body.html(&format!("<details><summary>Events</summary><pre>{events}</pre></details>"));
        }
        Ok(body.finish("remora lab atp"))
    }
}

impl Report {
    /// Figure 6 for one class.
    fn bars(&self, body: &mut Body, class: &str) -> Result<(), String> {
        let rows: Vec<&Row> = self.rows.iter().filter(|r| r.class == class).collect();
        if rows.is_empty() {
            return Ok(());
        }
        let mut schemes: Vec<&str> = Vec::new();
        for row in &rows {
            if !schemes.contains(&row.scheme) {
                schemes.push(row.scheme);
            }
        }
        body.figure(&Figure {
            caption: format!("Objects of {class} priority delivered in time; lines across are the oracle's."),
            svg: plot::bars(&rows, &schemes)?,
            legend: LegendEntry::series(schemes),
            ..Figure::default()
        });
        Ok(())
    }
}
