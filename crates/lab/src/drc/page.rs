//! The report as a page: the tables, the speeds, and Example 1 drawn.

use super::outcome::{Example, Group, Report};
use super::plot;
use crate::report::page::{Html, document, escape};

impl Html for Report {
    fn to_html(&self) -> Result<String, String> {
        let mut body = format!(
            "<h1>What a duplicate request cache is for</h1><p class=\"note\">{}</p>\
             <p>Made by <code>{}</code> (Remora {}).</p>",
            escape(&self.made_how()),
            escape(&self.command),
            self.version,
        );
        for line in self.troubles() {
            body += &format!("<p class=\"note\">{}</p>", escape(&line));
        }
        for group in Group::ALL {
            if self.group(group).next().is_none() {
                continue;
            }
            body += &format!("<h2>{}</h2>", escape(group.title()));
            if group == Group::Tables {
                let caption = "Bars are ours, lines across them the paper's.";
                body += &figure(caption, &plot::speeds(self)?);
            }
            body += &self.table(group).to_html();
            if group == Group::Tables {
                body += &format!("<p class=\"note\">{}</p>", escape(&self.nearness()));
            }
        }
        body += "<h2>Example 1: a lost write</h2><p>The client creates a file, c(0), and writes to it, w(0). The \
                 create is slow, so it is sent again, c(1), just before its reply comes in.</p>";
        for example in &self.examples {
            body += &drawn(example)?;
        }
        Ok(document("remora lab drc", &body))
    }
}

fn drawn(example: &Example) -> Result<String, String> {
    let caption = format!("{}. {}", example.title(), example.verdict());
    Ok(figure(&caption, &plot::timeline(&example.timeline)?))
}

fn figure(caption: &str, svg: &str) -> String {
    format!("<figure><figcaption>{}</figcaption><div class=\"wrap\">{svg}</div></figure>", escape(caption))
}
