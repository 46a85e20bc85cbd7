//! The report: one HTML page that needs nothing from anywhere.

use std::io;
use std::path::{Path, PathBuf};

use remora_channel::Config;

use super::{DemoError, Finish, Outcome, Way, plot};
use crate::report::page::{Place, document};

/// The report's place on the disk, found writable before anybody has waited for a race. The
/// page appears there whole or not at all.
pub(super) struct Page {
    path: PathBuf,
    place: Place,
}

impl Page {
    pub(super) fn reserve(path: &Path) -> Result<Page, DemoError> {
        let place = Place::reserve(path).map_err(|source| DemoError::Report { path: path.to_owned(), source })?;
        Ok(Page { path: path.to_owned(), place })
    }

    pub(super) fn write(self, outcome: &Outcome, link: &Config) -> Result<(), DemoError> {
        let written = page(outcome, link).map_err(io::Error::other).and_then(|text| self.place.write(&text));
        written.map_err(|source| DemoError::Report { path: self.path, source })
    }
}

fn page(outcome: &Outcome, link: &Config) -> Result<String, String> {
    let mut body = format!(
        "<h1>A file over a bursty wireless link</h1>\
         <p>{} KiB to a server and back over UDP, in real time, through an emulated half-duplex link of {}/s with \
         good periods of 1 s and bad ones of 80 ms in the mean (uniform, on a 20 ms grid; NFS/W 97), seed {}. \
         While the link is bad, shaded below, every frame is lost. Each client has a link of its own with the same \
         weather. The <em>floor</em> is the first moment at which the link could have carried the file in full \
         frames with IP and UDP headers only.</p>",
        outcome.bytes.div_ceil(1024),
        link.rate,
        outcome.seed
    );
    for (way, title) in [(Way::Write, "Write: to the server"), (Way::Read, "Read: from the server")] {
        let plot = plot::svg(outcome, link, way)?;
        body += &format!("<h2>{title}</h2><div class=\"wrap\">{plot}</div>{}", table(outcome, way));
    }
    let late = outcome.legs.iter().map(|l| l.lateness_ms).fold(0.0, f64::max);
    body += &format!(
        "<p><small>The latest any frame was handed over by the emulator: {late:.1} ms. Made by \
         <code>remora demo --seed {}</code>.</small></p>",
        outcome.seed
    );
    Ok(document("remora demo", &body))
}

fn table(outcome: &Outcome, way: Way) -> String {
    let mut rows = String::from(
        "<tr><th>client</th><th>seconds</th><th>times the floor</th><th>sent again</th><th>copy</th></tr>",
    );
    for leg in outcome.legs.iter().filter(|l| l.way == way) {
        let ratio = leg.ratio.map_or("&ndash;".to_owned(), |r| format!("{r:.2}"));
        let copy = match (leg.finish, leg.intact) {
            (Finish::Stopped, _) => "stopped on the way",
            (Finish::Done, Some(true)) => "intact",
            (Finish::Done, _) => "damaged",
        };
        rows += &format!(
            "<tr><td>{}</td><td>{:.2}</td><td>{ratio}</td><td>{}</td><td>{copy}</td></tr>",
            leg.racer, leg.seconds, leg.retransmissions
        );
    }
    let floor = outcome.legs.iter().find(|l| l.way == way).and_then(|l| l.floor_seconds);
    let floor = floor
        .map_or(String::new(), |f| format!("<tr><td>floor</td><td>{f:.2}</td><td>1.00</td><td></td><td></td></tr>"));
    format!("<div class=\"wrap\"><table>{rows}{floor}</table></div>")
}
