//! The profile in TOML: read with errors that name their lines, and changed without losing comments.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use remora_cache::{HOARD_PRIORITY_MAX, HOARD_PRIORITY_MIN, HoardEntry, NameGlob};
use remora_host::client::Target;
use remora_host::mount::store::StoreKey;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::commands::hoard::flags::PRIORITY_DEFAULT;
use crate::config::state_dir;
use crate::config::text_file::{self, key_at, line_at};
use crate::output::exit::{Error, Result};

/// Nobody has a longer one.
const BYTES_MAX: u64 = 1 << 20;
/// Entries of a profile.
const ENTRIES_MAX: usize = 1000;
const HEADER: &str = "# What mounts keep on this machine; see remora hoard --help.\n\n";

/// An entry as it is written.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProfileEntry {
    pub(crate) url: String,
    pub(crate) path: String,
    #[serde(default = "priority_default")]
    pub(crate) priority: u8,
    #[serde(default)]
    pub(crate) recursive: bool,
    pub(crate) glob: Option<String>,
}

fn priority_default() -> u8 {
    PRIORITY_DEFAULT
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    #[serde(default)]
    entry: Vec<Spanned<ProfileEntry>>,
}

impl ProfileEntry {
    /// What is wrong with it, and the key.
    fn check(&self) -> Result<(), (&'static str, String)> {
        if let Err(error) = Target::parse(&self.url) {
            return Err(("url", error.to_string()));
        }
        if self.path.split('/').any(|name| matches!(name, "." | "..")) || self.path.contains('\0') {
            return Err(("path", format!("'{}' is not a path from the mounted directory", self.path)));
        }
        if !(HOARD_PRIORITY_MIN..=HOARD_PRIORITY_MAX).contains(&self.priority) {
            let why = format!("{}: expected {HOARD_PRIORITY_MIN} to {HOARD_PRIORITY_MAX}", self.priority);
            return Err(("priority", why));
        }
        match self.glob.as_deref().map(NameGlob::parse) {
            Some(Err(why)) => Err(("glob", why)),
            _ => Ok(()),
        }
    }

    /// Whether it is of this export.
    pub(crate) fn is_of(&self, export: &StoreKey) -> bool {
        Target::parse(&self.url).is_ok_and(|target| StoreKey::of(&target) == *export)
    }

    /// Whether it names the same files: path and glob identify an entry of an export.
    fn is_same(&self, path: &str, glob: Option<&str>) -> bool {
        components(&self.path).eq(components(path)) && self.glob.as_deref() == glob
    }

    fn hoarded(&self) -> HoardEntry {
        HoardEntry {
            path: self.path.clone().into_bytes(),
            priority: self.priority,
            recursive: self.recursive,
            glob: self.glob.as_deref().and_then(|glob| NameGlob::parse(glob).ok()),
        }
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// Where the profile of this user is.
pub(crate) fn path() -> Result<PathBuf> {
    let dir = state_dir::config_dir().ok_or_else(|| {
        let why = "there is no home directory for the profile";
        Error::refused("hoard", why).with_hint("set XDG_CONFIG_HOME or HOME")
    })?;
    Ok(dir.join("hoard.toml"))
}

/// The profile at a path. A missing one has no entries.
#[derive(Debug)]
pub(crate) struct Profile {
    path: PathBuf,
    text: String,
    pub(crate) entries: Vec<ProfileEntry>,
}

impl Profile {
    pub(crate) fn read(path: &Path) -> Result<Profile> {
        let text = match text_file::read(path, BYTES_MAX, "a profile") {
            Err(Error::Local { source, .. }) if source.kind() == io::ErrorKind::NotFound => String::new(),
            text => text?,
        };
        let entries = parse(&text).map_err(|why| {
            Error::refused(path.display(), why).with_hint("remora hoard --help shows what an entry looks like")
        })?;
        Ok(Profile { path: path.to_owned(), text, entries })
    }

    /// What to hoard of an export.
    pub(crate) fn hoarded(&self, export: &StoreKey) -> Vec<HoardEntry> {
        self.entries.iter().filter(|entry| entry.is_of(export)).map(ProfileEntry::hoarded).collect()
    }

    /// Adds an entry, instead of one with the same path and glob.
    pub(crate) fn add(&self, export: &StoreKey, entry: &ProfileEntry) -> Result {
        let table = {
            let mut table = Table::new();
            table["url"] = value(&entry.url);
            table["path"] = value(&entry.path);
            table["priority"] = value(i64::from(entry.priority));
            table["recursive"] = value(entry.recursive);
            if let Some(glob) = &entry.glob {
                table["glob"] = value(glob);
            }
            table
        };
        let mut document = self.document()?;
        let same = self
            .entries
            .iter()
            .position(|known| known.is_of(export) && known.is_same(&entry.path, entry.glob.as_deref()));
        if same.is_none() && self.entries.len() >= ENTRIES_MAX {
            return Err(Error::refused(self.path.display(), format!("it has {ENTRIES_MAX} entries already")));
        }
        let tables = self.tables(&mut document)?;
        match same.and_then(|at| tables.get_mut(at)) {
            Some(known) => {
                known["priority"] = value(i64::from(entry.priority));
                known["recursive"] = value(entry.recursive);
            }
            None => tables.push(table),
        }
        self.write(&document)
    }

    /// Removes the entries of a path, or the one with this glob. Returns how many.
    pub(crate) fn remove(&self, export: &StoreKey, path: &str, glob: Option<&str>) -> Result<usize> {
        let is_meant = |known: &ProfileEntry| {
            let glob = glob.or(known.glob.as_deref());
            known.is_of(export) && known.is_same(path, glob)
        };
        let meant: Vec<usize> = (0..self.entries.len()).filter(|at| is_meant(&self.entries[*at])).collect();
        let mut document = self.document()?;
        let tables = self.tables(&mut document)?;
        meant.iter().rev().for_each(|at| drop(tables.remove(*at)));
        if !meant.is_empty() {
            self.write(&document)?;
        }
        Ok(meant.len())
    }

    fn document(&self) -> Result<DocumentMut> {
        self.text.parse().map_err(|error: toml_edit::TomlError| Error::refused(self.path.display(), error.to_string()))
    }

    /// The tables of the entries, in the order of [`Profile::entries`].
    fn tables<'d>(&self, document: &'d mut DocumentMut) -> Result<&'d mut ArrayOfTables> {
        let item = document.entry("entry").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        item.as_array_of_tables_mut().ok_or_else(|| {
            let why = "its entries are an inline array, which this command does not change";
            Error::refused(self.path.display(), why).with_hint("write each entry as a table [[entry]]")
        })
    }

    /// Replaces the file at once.
    fn write(&self, document: &DocumentMut) -> Result {
        let failed = || Error::local(self.path.display());
        let dir = self.path.parent().unwrap_or(Path::new("."));
        state_dir::make_private(dir).map_err(failed())?;
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed())?;
        let header = if self.text.is_empty() { HEADER } else { "" };
        let written = file.write_all(format!("{header}{document}").as_bytes()).and_then(|()| file.as_file().sync_all());
        written.map_err(failed())?;
        // One that is a symbolic link stays one.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        file.persist(path).map_err(|error| failed()(error.error))?;
        Ok(())
    }
}

fn parse(text: &str) -> Result<Vec<ProfileEntry>, String> {
    let file: ProfileFile = toml::from_str(text).map_err(|error| match error.span() {
        Some(span) => at_line(text, &span, error.message()),
        None => error.message().to_owned(),
    })?;
    if file.entry.len() > ENTRIES_MAX {
        return Err(format!("it has more than {ENTRIES_MAX} entries"));
    }
    for entry in &file.entry {
        entry.get_ref().check().map_err(|(key, why)| {
            let at = key_at(text, entry.span().start, key);
            at_line(text, &(at..at), &format!("{key}: {why}"))
        })?;
    }
    Ok(file.entry.into_iter().map(Spanned::into_inner).collect())
}

fn at_line(text: &str, span: &Range<usize>, why: &str) -> String {
    format!("line {}: {why}", line_at(text, span.start).0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const URL: &str = "nfs://nas/srv";

    fn export() -> StoreKey {
        StoreKey::of(&Target::parse(URL).unwrap())
    }

    fn entry(path: &str, priority: u8, glob: Option<&str>) -> ProfileEntry {
        let (url, path, glob) = (URL.to_owned(), path.to_owned(), glob.map(str::to_owned));
        ProfileEntry { url, path, priority, recursive: true, glob }
    }

    #[test]
    fn errors_name_their_line() {
        let good = "[[entry]]\nurl = \"nfs://nas/srv\"\npath = \"/a\"\n";
        assert_eq!(parse(good).unwrap().len(), 1);
        for (text, words) in [
            ("[[entry]]\nurl = 5\n", "line 2: "),
            (&format!("{good}priority = 0\n")[..], "line 4: priority: 0: expected 1 to 100"),
            (&format!("{good}\n{good}glob = \"a/b\"\n"), "line 8: glob: 'a/b' is not a glob for names"),
            (&format!("{good}glob = \"[a\"\n"), "line 4: glob: '[a' is not a glob"),
            (&format!("{good}recursiv = true\n"), "line 4: unknown field `recursiv`"),
            ("[[entry]]\nurl = \"nas\"\npath = \"a\"\n", "line 2: url: "),
            ("[[entry]]\nurl = \"nfs://nas/\"\npath = \"../a\"\n", "line 3: path: '../a' is not a path"),
            ("[[entry]]\nurl = \"nfs://nas/\"\n", "line 1: missing field `path`"),
            ("[[entry]\n", "line 1: "),
        ] {
            let why = parse(text).unwrap_err();
            assert!(why.starts_with(words) || why.contains(words), "{text}: {why}");
        }
    }

    #[test]
    fn change_keeps_comments_and_other_entries() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("remora/hoard.toml");
        let read = || Profile::read(&path).unwrap();
        read().add(&export(), &entry("/a", 90, None)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with(HEADER), "{text}");
        fs::write(&path, format!("{text}# by hand\n\n[[entry]]\nurl = \"nfs://other/\" # mine\npath = \"/a\"\n"))
            .unwrap();
        read().add(&export(), &entry("/b", 10, Some("*.rs"))).unwrap();
        read().add(&export(), &entry("a/", 20, None)).unwrap();
        let known = read();
        let found: Vec<_> = known.entries.iter().map(|e| (e.url.as_str(), e.path.as_str(), e.priority)).collect();
        assert_eq!(found, [(URL, "/a", 20), ("nfs://other/", "/a", 50), (URL, "/b", 10)]);
        assert_eq!(known.hoarded(&export()).len(), 2);
        assert_eq!(known.remove(&export(), "/a", None).unwrap(), 1);
        assert_eq!(read().remove(&export(), "/b", Some("*.c")).unwrap(), 0);
        assert_eq!(read().remove(&export(), "/b", None).unwrap(), 1);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains("# mine") && text.contains("# by hand") && read().entries.len() == 1, "{text}");
    }
}
