//! The report as a page: the papers' figures redrawn, those beyond them, and every table.

use super::experiments::{Origin, Vertical};
use super::outcome::{ExperimentOutcome, Report};
use super::plot::{Drawing, drawings};
use super::real::Peer;
use super::runner::Source;
use super::tables::{place, table};
use crate::report::page::{Html, document, escape};

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = self.introduction();
        for (origin, title) in [(Origin::Papers, "The papers' experiments"), (Origin::Beyond, "Beyond the papers")] {
            let of: Vec<&ExperimentOutcome> = self.experiments.iter().filter(|e| e.origin == origin).collect();
            if !of.is_empty() {
                body += &format!("<h2>{title}</h2>");
            }
            for outcome in of {
                body += &section(outcome)?;
            }
        }
        Ok(document("remora lab wireless", &body))
    }
}

impl Report {
    fn introduction(&self) -> String {
        let links: String = self.experiments.iter().map(|e| format!("<a href=\"#{0}\">{0}</a> ", e.name)).collect();
        format!(
            "<h1>Files over wireless links</h1>\
             <p class=\"note\">{}</p>\
             <p>Made by <code>{}</code> (Remora {}): {} in each cell{}. \
             Figures show medians and their 95 % intervals (order statistics); a run that was cut off at its limit \
             ranks above all others, and a median beyond the limit is an open sign with an arrow, which no line leads to. The <em>floor</em> is the first \
             moment at which the channel could have carried the file in full frames, in the weather of the very same \
             seed. Reductions compare means, as the papers do.</p><nav>{links}</nav>",
            self.made_how(),
            escape(&self.command),
            self.version,
            self.seeds_text(),
            if self.complete { "" } else { "; interrupted, so that not all runs were made" },
        )
    }

    fn made_how(&self) -> String {
        if self.source != Source::Real {
            return "Everything here is <strong>simulated</strong>: the real client, server and link code ran in virtual \
                    time over an emulated channel. The papers' own figures are named as such."
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
             channel, in real time{conditions}; the simulator's figures stand beside, and name themselves.{peers}"
        )
    }
}

fn section(outcome: &ExperimentOutcome) -> Result<String, String> {
    let mut html = format!("<h3 id=\"{0}\">{0}</h3><p>{1}.</p>", outcome.name, escape(outcome.about));
    let all = drawings(outcome)?;
    let packets = outcome.experiment.figures.iter().any(|f| f.y == Vertical::Packets);
    html += &all.iter().map(|d| figure(d, packets)).collect::<String>();
    for cell in &outcome.cells {
        for failed in &cell.failures {
            let (place, why) = (escape(&place(cell)), escape(&failed.why));
            html += &format!("<p class=\"note\">Failed: {place}, seed {}: {why}</p>", failed.seed);
        }
    }
    let open = if all.is_empty() { " open" } else { "" };
    html += &format!("<details{open}><summary>table</summary>{}</details>", table(outcome).to_html());
    Ok(html)
}

fn figure(drawing: &Drawing, packets: bool) -> String {
    let mut legend: String = drawing
        .legend
        .iter()
        .map(|(name, mark)| {
            let sign = if packets { '●' } else { mark.sign() };
            format!("<span><span style=\"color:{}\">{sign}</span> {}</span>", mark.colour(), escape(name))
        })
        .collect();
    if drawing.has_paper {
        legend += "<span>○ the paper's mean</span>";
    }
    if packets {
        legend += "<span>× sent again</span>";
    }
    let title =
        if drawing.title.is_empty() { String::new() } else { format!("<strong>{}</strong>", escape(&drawing.title)) };
    format!(
        "<figure><figcaption>{title}<div class=\"legend\">{legend}</div></figcaption>\
         <div class=\"wrap\">{}</div></figure>",
        drawing.svg
    )
}
