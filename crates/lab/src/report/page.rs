//! HTML pages: one file without external resources, readable on a phone and on a dark screen.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::{Builder, NamedTempFile};

use super::chart::Mark;
use super::number::escape;
use super::plot;
use super::provenance::Provenance;
use super::table::Table;

pub(crate) const STYLE: &str = ":root{color-scheme:light dark;--ink:#222;--soft:#555;--line:#ddd;--paper:#fff}\
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--soft:#aaa;--line:#444;--paper:#16181b}}\
body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:var(--ink);background:var(--paper)}\
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem}h3{font-size:1rem;margin:1.2rem 0 .2rem}\
svg{width:100%;min-width:28rem;height:auto;display:block}.wrap{overflow-x:auto}\
table{border-collapse:collapse;margin:1rem 0;font-size:.9rem;font-variant-numeric:tabular-nums}\
td,th{padding:.15rem .9rem .15rem 0;text-align:right;white-space:nowrap}\
td:first-child,th:first-child,.name{text-align:left}th{vertical-align:bottom}\
tr+tr{border-top:1px solid var(--line)}tr.group{border-top:2px solid var(--soft)}\
small,figcaption{color:var(--soft)}figure{margin:1rem 0}code{overflow-wrap:anywhere}\
.legend{display:flex;flex-wrap:wrap;gap:.1rem 1.2rem;font-size:.9rem;margin:.2rem 0}\
details{margin:.5rem 0}summary{cursor:pointer}nav a{margin-right:1rem;white-space:nowrap}a{color:inherit}\
.note{border-left:4px solid #d55e00;padding:.2rem .8rem}\
.topology{min-width:0;max-width:36rem}.sign{width:.7em;height:.7em;min-width:0;display:inline-block}\
.doubts p{margin:.2rem 0;font-size:.85rem;color:var(--soft)}pre{overflow-x:auto;font-size:.85rem}";

/// A file that is written whole or not at all. It is checked to be writable before the experiment runs.
pub(crate) struct ReservedFile {
    path: PathBuf,
    mode: Permissions,
}

impl ReservedFile {
    /// Checks that a file can be written to `path`. An existing regular file is replaced later and keeps its mode;
    /// anything else is an error.
    pub(crate) fn reserve(path: &Path) -> io::Result<ReservedFile> {
        // A symbolic link stays; its target is replaced.
        let is_link = fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
        let path = if is_link { fs::canonicalize(path)? } else { path.to_owned() };
        let mode = match fs::metadata(&path) {
            Ok(there) if there.is_file() => there.permissions(),
            Ok(_) => return Err(io::Error::other("it is not a regular file")),
            Err(_) => Permissions::from_mode(0o644),
        };
        let file = ReservedFile { path, mode };
        // A trial file is made and removed at once: a file kept for the whole run would stay behind a killed process.
        file.temporary()?.close()?;
        Ok(file)
    }

    /// A temporary file in the same directory.
    fn temporary(&self) -> io::Result<NamedTempFile> {
        let directory = self.path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Builder::new().prefix(".remora-page-").permissions(self.mode.clone()).tempfile_in(directory)
    }

    pub(crate) fn write(self, content: impl AsRef<[u8]>) -> io::Result<()> {
        let mut file = self.temporary()?;
        file.write_all(content.as_ref())?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

/// A report that can be shown as a page.
pub trait Html {
    /// The whole page; an error is plotters' message.
    fn to_html(&self) -> Result<String, String>;
}

/// The file of a page, checked to be writable before the experiment runs.
pub struct Page(ReservedFile);

impl Page {
    /// Checks that a page can be written to `path`.
    pub fn reserve(path: &Path) -> io::Result<Page> {
        ReservedFile::reserve(path).map(Page)
    }

    pub fn write(self, report: &impl Html) -> io::Result<()> {
        self.0.write(report.to_html().map_err(io::Error::other)?)
    }
}

/// The body of a page under construction. All text is escaped but that of `html`.
pub(crate) struct Body(String);

impl Body {
    pub(crate) fn new(title: &str) -> Body {
        Body(format!("<h1>{}</h1>", escape(title)))
    }

    pub(crate) fn html(&mut self, html: &str) {
        self.0 += html;
    }

    pub(crate) fn heading(&mut self, title: &str) {
        self.0 += &format!("<h2>{}</h2>", escape(title));
    }

    pub(crate) fn paragraph(&mut self, text: &str) {
        self.0 += &format!("<p>{}</p>", escape(text));
    }

    pub(crate) fn note(&mut self, text: &str) {
        self.0 += &format!("<p class=\"note\">{}</p>", escape(text));
    }

    /// The command line and the version that made the figures.
    pub(crate) fn provenance(&mut self, made: &Provenance) {
        self.0 += &format!("<p>Made by <code>{}</code> (Remora {}).</p>", escape(&made.command), made.version);
    }

    pub(crate) fn table(&mut self, title: &str, table: &Table) {
        self.heading(title);
        self.0 += &table.to_html();
    }

    pub(crate) fn figure(&mut self, figure: &Figure) {
        self.0 += &figure.to_html();
    }

    pub(crate) fn finish(self, title: &str) -> String {
        document(title, &self.0)
    }
}

/// A drawing with its caption and legend.
#[derive(Default)]
pub(crate) struct Figure {
    pub(crate) caption: String,
    pub(crate) legend: Vec<LegendEntry>,
    pub(crate) svg: String,
    pub(crate) remark: &'static str,
}

impl Figure {
    pub(crate) fn to_html(&self) -> String {
        let legend: String = self.legend.iter().map(LegendEntry::to_html).collect();
        let legend = if legend.is_empty() { legend } else { format!("<div class=\"legend\">{legend}</div>") };
        let remark =
            if self.remark.is_empty() { String::new() } else { format!("<small>{}</small>", escape(self.remark)) };
        let (caption, svg) = (escape(&self.caption), &self.svg);
        format!("<figure><figcaption>{caption}{legend}</figcaption><div class=\"wrap\">{svg}</div>{remark}</figure>")
    }
}

pub(crate) struct LegendEntry {
    sign: char,
    colour: Option<String>,
    name: String,
}

impl LegendEntry {
    /// A sign in the colour of the text.
    pub(crate) fn plain(sign: char, name: &str) -> LegendEntry {
        LegendEntry { sign, colour: None, name: name.to_owned() }
    }

    pub(crate) fn marked(mark: Mark, name: &str) -> LegendEntry {
        LegendEntry { sign: mark.sign(), ..LegendEntry::coloured(plot::css(mark.colour()), name) }
    }

    pub(crate) fn coloured(css: String, name: &str) -> LegendEntry {
        LegendEntry { sign: '■', colour: Some(css), name: name.to_owned() }
    }

    /// Blocks in the colours of the first series.
    pub(crate) fn series<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<LegendEntry> {
        let entry = |(n, name)| LegendEntry::coloured(plot::css(plot::colour(n)), name);
        names.into_iter().enumerate().map(entry).collect()
    }

    pub(crate) fn with_sign(self, sign: char) -> LegendEntry {
        LegendEntry { sign, ..self }
    }

    /// The sign is a drawing: the pages of `model serve` forbid inline styles.
    fn to_html(&self) -> String {
        let sign = match &self.colour {
            Some(css) => format!(
                "<svg class=\"sign\" viewBox=\"0 0 10 10\"><text x=\"0\" y=\"9\" font-size=\"11\" fill=\"{css}\">{}</text></svg>",
                self.sign
            ),
            None => self.sign.to_string(),
        };
        format!("<span>{sign} {}</span>", escape(&self.name))
    }
}

/// A whole page; `body` is HTML.
fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escape(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn reserved_file_leaves_nothing_until_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("page.html");
        let place = ReservedFile::reserve(&page).unwrap();
        assert_eq!(names(dir.path()), Vec::<String>::new());
        place.write("first").unwrap();
        fs::set_permissions(&page, Permissions::from_mode(0o600)).unwrap();
        ReservedFile::reserve(&page).unwrap().write("second").unwrap();
        assert_eq!((names(dir.path()), fs::read(&page).unwrap()), (vec!["page.html".to_owned()], b"second".to_vec()));
        assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600, "it keeps its mode");
        assert!(ReservedFile::reserve(&dir.path().join("no/page.html")).is_err());
        assert!(ReservedFile::reserve(dir.path()).is_err());
    }
}
