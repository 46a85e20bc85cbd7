//! The report as a page: the tables and the figures.

use remora_sim::atp::Class;

use super::outcome::{Report, Row};
use super::{plot, ratios, tables};
use crate::report::page::{Html, document, escape};

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = format!(
            "<h1>What gets through in time</h1><p class=\"note\">{} {}</p><p>Made by <code>{}</code> (Remora {}).</p>",
            escape(&self.made_how()),
            escape(self.schemes()),
            escape(&self.command),
            self.version,
        );
        for line in self.troubles() {
            body += &format!("<p class=\"note\">{}</p>", escape(&line));
        }
        if !self.rows.is_empty() {
            if !self.verdicts.is_empty() {
                body += &format!("<h2>{}</h2>{}", escape(tables::VERDICTS), self.verdict_table().to_html());
            }
            body += &format!("<h2>{}</h2>{}", escape(tables::GLANCE), self.glance().to_html());
            for class in Class::ALL {
                body += &self.bars(class.name())?;
            }
            body += &format!("<h2>{}</h2>{}", escape(tables::TABLE_2), self.statuses().to_html());
        }
        for curve in &self.curves {
            let error = tables::curve_error(&curve.seconds);
            let caption = format!("Estimate off by {error} of the bandwidth in the median.");
            body += &format!("<h2>ATP 02, Figure {}: {}</h2>", curve.figure, curve.scheme);
            body += &figure(&caption, &plot::CURVE, &plot::curve(curve)?);
        }
        if !self.bulk.is_empty() {
            let names: Vec<&str> = self.bulk.iter().map(|b| b.scheme.as_str()).collect();
            body += &format!("<h2>{}</h2>", escape(tables::BULK));
            body += &figure("", &names, &plot::bulk(&self.bulk)?);
            body += &self.bulk_table().to_html();
            if let Some(ratios) = self.ratios() {
                body += &format!("<h3>{}</h3>{}", escape(ratios::TITLE), ratios.to_html());
            }
        }
        for timeline in &self.timelines {
            let name = format!("ATP 02, Figure 5: {}", timeline.scheme);
            body += &format!(
                "<h2>{name}</h2><details><summary>Events</summary><pre>{}</pre></details>",
                escape(&timeline.to_text())
            );
        }
        Ok(document("remora lab atp", &body))
    }
}

impl Report {
    /// Figure 6 for one class.
    fn bars(&self, class: &str) -> Result<String, String> {
        let rows: Vec<&Row> = self.rows.iter().filter(|r| r.class == class).collect();
        if rows.is_empty() {
            return Ok(String::new());
        }
        let mut schemes: Vec<&str> = Vec::new();
        for row in &rows {
            if !schemes.contains(&row.scheme) {
                schemes.push(row.scheme);
            }
        }
        let caption = format!("Objects of {class} priority delivered in time; lines across are the oracle's.");
        Ok(figure(&caption, &schemes, &plot::bars(&rows, &schemes)?))
    }
}

fn figure(caption: &str, names: &[&str], svg: &str) -> String {
    let item =
        |(n, name): (usize, &&str)| format!("<span><b style=\"color:{}\">■</b> {}</span>", plot::css(n), escape(name));
    let legend: String = names.iter().enumerate().map(item).collect();
    format!(
        "<figure><figcaption>{}</figcaption><div class=\"legend\">{legend}</div><div class=\"wrap\">{svg}</div></figure>",
        escape(caption)
    )
}
