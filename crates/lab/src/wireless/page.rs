//! The report as a page: figures and tables of every experiment.

use super::experiments::Origin;
use super::outcome::{ExperimentOutcome, Report};
use super::plot::figures;
use super::real::Peer;
use super::tables::{place, table};
use crate::report::page::{Body, Html, escape};
use crate::report::provenance::Source;

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("Files over wireless links");
        body.html(&self.introduction());
        for (origin, title) in [(Origin::Papers, "The papers' experiments"), (Origin::Beyond, "Beyond the papers")] {
            let of: Vec<&ExperimentOutcome> = self.experiments.iter().filter(|e| e.origin == origin).collect();
            if !of.is_empty() {
                body.heading(title);
            }
            for outcome in of {
                body.html(&section(outcome)?);
            }
        }
        Ok(body.finish("remora lab wireless"))
    }
}

impl Report {
    fn introduction(&self) -> String {
        let links: String = self.experiments.iter().map(|e| format!("<a href=\"#{0}\">{0}</a> ", e.name)).collect();
        format!(
            "<p class=\"note\">{}</p>\
             <p>Made by <code>{}</code> (Remora {}): {} in each cell{}. \
             Figures show medians and their 95 % intervals (order statistics). A run that was cut off at its limit ranks \
             above all others; a median beyond the limit is an open sign with an arrow, and no line leads to it. The \
             <em>floor</em> is the first moment at which the channel could have carried the file in full frames, with \
             the same seed. Reductions compare means, as the papers do.</p><nav>{links}</nav>",
            self.made_how(),
            escape(&self.made.command),
            self.made.version,
            self.seeds_text(),
            if self.complete { "" } else { "; interrupted, so not all runs were made" },
        )
    }

    fn made_how(&self) -> String {
        if self.made.source != Source::Real {
            return "Everything here is <strong>simulated</strong>: the real client, server and link code ran in virtual \
                    time over an emulated channel. The papers' figures are marked."
                .into();
        }
        let peer = |p: &Peer| match &p.missing {
            None => format!(" {}: {}.", p.name, escape(p.version.as_deref().unwrap_or_default())),
            Some(missing) => format!(" {}: skipped, {}.", p.name, escape(missing)),
        };
        let peers: String = self.peers.iter().map(peer).collect();
        let conditions = self.conditions.map(|c| format!(" ({c})")).unwrap_or_default();
        format!(
            "Everything here is <strong>real</strong>: programs in network namespaces on both sides of an emulated \
             channel, in real time{conditions}. The simulator's figures stand beside them and are marked.{peers}"
        )
    }
}

fn section(outcome: &ExperimentOutcome) -> Result<String, String> {
    let mut html = format!("<h3 id=\"{0}\">{0}</h3><p>{1}.</p>", outcome.name, escape(outcome.about));
    let figures = figures(outcome)?;
    html.extend(figures.iter().map(|figure| figure.to_html()));
    for cell in &outcome.cells {
        for failed in &cell.failures {
            let (place, why) = (escape(&place(cell)), escape(&failed.why));
            html += &format!("<p class=\"note\">Failed: {place}, seed {}: {why}</p>", failed.seed);
        }
    }
    let open = if figures.is_empty() { " open" } else { "" };
    html += &format!("<details{open}><summary>table</summary>{}</details>", table(outcome).to_html());
    Ok(html)
}
