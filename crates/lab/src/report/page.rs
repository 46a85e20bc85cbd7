//! An HTML page that needs nothing from anywhere, readable on a phone and in the dark.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

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

/// A page's place on the disk, found writable before anybody has waited for what goes there.
/// The page appears whole or not at all.
pub(crate) struct Place {
    path: PathBuf,
    mode: Permissions,
}

impl Place {
    /// Makes sure that there is room for a page at `path`: that nothing is there but a file, which is
    /// replaced, and keeps its mode.
    pub(crate) fn reserve(path: &Path) -> io::Result<Place> {
        // What a link leads to is replaced, and not the link.
        let is_link = fs::symlink_metadata(path).is_ok_and(|there| there.is_symlink());
        let path = if is_link { fs::canonicalize(path)? } else { path.to_owned() };
        let readable = match fs::metadata(&path) {
            Ok(there) if there.is_file() => there.permissions(),
            Ok(_) => return Err(io::Error::other("it is not a regular file, and is not replaced by one")),
            Err(_) => Permissions::from_mode(0o644),
        };
        let place = Place { path, mode: readable };
        // It is made to see that it can be, and made again for the page: kept for so long as a run takes, it would
        // stay behind where that is killed.
        place.beside()?.close()?;
        Ok(place)
    }

    /// A file that can take the page's name.
    fn beside(&self) -> io::Result<NamedTempFile> {
        let directory = self.path.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Builder::new().prefix(".remora-page-").permissions(self.mode.clone()).tempfile_in(directory)
    }

    /// Puts the page, or what else it is, there.
    pub(crate) fn write(self, page: impl AsRef<[u8]>) -> io::Result<()> {
        let mut file = self.beside()?;
        file.write_all(page.as_ref())?;
        file.persist(&self.path).map_err(|e| e.error)?;
        Ok(())
    }
}

/// A report that makes a page.
pub trait Html {
    /// A page that needs nothing from anywhere; an error is plotters' own words.
    fn to_html(&self) -> Result<String, String>;
}

/// A page's place on the disk, found writable before anything is run.
pub struct Page(Place);

impl Page {
    /// Makes sure that a page can be written to `path`.
    pub fn reserve(path: &Path) -> io::Result<Page> {
        Place::reserve(path).map(Page)
    }

    /// Puts the report there.
    pub fn write(self, report: &impl Html) -> io::Result<()> {
        self.0.write(report.to_html().map_err(io::Error::other)?)
    }
}

/// A whole page; `body` is HTML.
pub(crate) fn document(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escape(title)
    )
}

/// Text as HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// A figure drawn in black on nothing, in the page's own ink instead.
pub(crate) fn in_ink(svg: &str) -> String {
    svg.replace("\"#000000\"", "\"currentColor\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_place_that_is_reserved_leaves_nothing_until_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let page = dir.path().join("page.html");
        let place = Place::reserve(&page).unwrap();
        assert_eq!(names(dir.path()), Vec::<String>::new());
        place.write("first").unwrap();
        fs::set_permissions(&page, Permissions::from_mode(0o600)).unwrap();
        Place::reserve(&page).unwrap().write("second").unwrap();
        assert_eq!((names(dir.path()), fs::read(&page).unwrap()), (vec!["page.html".to_owned()], b"second".to_vec()));
        assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600, "it keeps its mode");
        assert!(Place::reserve(&dir.path().join("no/page.html")).is_err());
        assert!(Place::reserve(dir.path()).is_err());
    }
}
