//! The report: one HTML page that needs nothing from anywhere.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use remora_channel::Config;
use tempfile::{Builder, NamedTempFile};

use super::{DemoError, Finish, Outcome, Way, plot};

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}\
h1{font-size:1.6rem}h2{font-size:1.2rem;margin-top:2rem}svg{width:100%;height:auto;border:1px solid #ddd}\
table{border-collapse:collapse;margin:1rem 0}td,th{padding:.25rem .9rem .25rem 0;text-align:right}\
td:first-child,th:first-child{text-align:left}tr+tr{border-top:1px solid #ddd}.wrap{overflow-x:auto}\
small{color:#555}";

/// The report's place on the disk, found writable before anybody has waited for a race. The
/// page appears there whole or not at all.
pub(super) struct Page {
    path: PathBuf,
    file: NamedTempFile,
}

impl Page {
    pub(super) fn reserve(path: &Path) -> Result<Page, DemoError> {
        let failed = |source| DemoError::Report { path: path.to_owned(), source };
        let directory = path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let readable = Permissions::from_mode(0o644);
        let file = Builder::new().prefix(".remora-demo-").permissions(readable).tempfile_in(directory);
        Ok(Page { path: path.to_owned(), file: file.map_err(failed)? })
    }

    pub(super) fn write(mut self, outcome: &Outcome, link: &Config) -> Result<(), DemoError> {
        let text = page(outcome, link).map_err(io::Error::other);
        let written = text.and_then(|text| self.file.write_all(text.as_bytes()));
        let path = self.path;
        let failed = |source| DemoError::Report { path: path.clone(), source };
        written.map_err(failed)?;
        self.file.persist(&path).map_err(|e| failed(e.error))?;
        Ok(())
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
        body += &format!("<h2>{title}</h2>{}{}", plot::svg(outcome, link, way)?, table(outcome, way));
    }
    let late = outcome.legs.iter().map(|l| l.lateness_ms).fold(0.0, f64::max);
    body += &format!(
        "<p><small>The latest any frame was handed over by the emulator: {late:.1} ms. Made by \
         <code>remora demo --seed {}</code>.</small></p>",
        outcome.seed
    );
    Ok(format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>remora demo</title><style>{STYLE}</style></head><body>{body}</body></html>\n"
    ))
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
