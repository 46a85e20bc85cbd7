//! The report as a page.

use super::outcome::{Group, Report};
use super::plot;
use crate::report::page::{Body, Figure, Html};

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = Body::new("What a duplicate request cache is for");
        body.note(&self.made_how());
        body.provenance(&self.made);
        for line in self.troubles() {
            body.note(&line);
        }
        for group in Group::ALL.into_iter().filter(|group| self.group(*group).next().is_some()) {
            body.table(group.title(), &self.table(group));
            if group == Group::Tables {
                let caption = "Bars are simulated or measured, lines across them the paper's.".to_owned();
                body.figure(&Figure { caption, svg: plot::speeds(self)?, ..Figure::default() });
                body.note(&self.nearness());
            }
        }
        body.heading("Example 1: a lost write");
        body.paragraph(
            "The client creates a file, c(0), and writes to it, w(0). The create is slow, so the client retransmits it, \
             c(1), just before the reply arrives.",
        );
        for example in &self.examples {
            let caption = format!("{}. {}", example.title(), example.verdict());
            body.figure(&Figure { caption, svg: plot::timeline(&example.timeline)?, ..Figure::default() });
        }
        Ok(body.finish("remora lab drc"))
    }
}
