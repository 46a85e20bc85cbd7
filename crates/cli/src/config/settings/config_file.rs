//! Configuration files: where they are, who may write them, and on which line something is.

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::DeTable;

use crate::config::state_dir;
use crate::config::text_file::{self, line_at};
use crate::output::exit::{Error, Result};

/// The configuration of a machine.
const SYSTEM: &str = "/etc/remora/config.toml";
/// Nobody has a longer one.
const BYTES_MAX: u64 = 1 << 20;
/// Write permission of the group and of others.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// How alike two names must be for one to be meant by the other, as in clap.
const LIKENESS_MIN: f64 = 0.7;

/// A configuration file that was read.
#[derive(Debug)]
pub(crate) struct ConfigFile {
    pub(crate) path: PathBuf,
    text: String,
}

/// A mistake in a configuration file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Problem {
    pub(crate) line: usize,
    pub(crate) why: String,
}

impl ConfigFile {
    /// The file that a user names. Its owner and mode do not matter.
    pub(crate) fn named(path: &Path) -> Result<ConfigFile> {
        let text = text_file::read(path, BYTES_MAX, "a configuration")?;
        Ok(ConfigFile { path: path.to_owned(), text })
    }

    /// Where a configuration is looked for: the machine's, then the user's, which goes before it.
    pub(crate) fn usual_paths() -> Vec<PathBuf> {
        let user = state_dir::config_dir().map(|dir| dir.join("config.toml"));
        std::iter::once(PathBuf::from(SYSTEM)).chain(user).collect()
    }

    /// Those of [`ConfigFile::usual_paths`] that exist.
    pub(crate) fn usual() -> Result<Vec<ConfigFile>> {
        let mut files = Vec::new();
        for path in ConfigFile::usual_paths() {
            let file = match File::open(&path) {
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
                // A service may be kept out of home directories.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied && path != Path::new(SYSTEM) => continue,
                file => file.map_err(Error::local(path.display()))?,
            };
            let metadata = file.metadata().map_err(Error::local(path.display()))?;
            check_writers(&path, &metadata)?;
            let text = text_file::read_from(file, &path, BYTES_MAX, "a configuration")?;
            files.push(ConfigFile { path, text });
        }
        Ok(files)
    }

    #[cfg(test)]
    pub(crate) fn from_text(path: &str, text: &str) -> ConfigFile {
        ConfigFile { path: path.into(), text: text.to_owned() }
    }

    /// The file's table.
    pub(crate) fn table(&self) -> Result<DeTable<'_>, Problem> {
        let wrong = |e: &toml::de::Error| self.problem(e.span().unwrap_or_default(), e.message());
        DeTable::parse(&self.text).map(Spanned::into_inner).map_err(|e| wrong(&e))
    }

    /// What is wrong at these bytes of the file.
    pub(crate) fn problem(&self, at: Range<usize>, why: impl Into<String>) -> Problem {
        Problem { line: line_at(&self.text, at.start).0, why: why.into() }
    }

    /// A path of the file: `~/` is the user's home, a relative one is beside the file.
    pub(crate) fn path_of(&self, text: &str) -> PathBuf {
        let home = || std::env::var_os("HOME").map(PathBuf::from);
        match text.strip_prefix("~/").and_then(|rest| Some(home()?.join(rest))) {
            Some(path) => path,
            // Standard input or output.
            None if text == "-" => PathBuf::from(text),
            None => self.path.parent().unwrap_or(Path::new("")).join(text),
        }
    }

    /// The error of a command that this file stops.
    pub(crate) fn error(&self, Problem { line, why }: &Problem) -> Error {
        Error::Usage(format!("{}:{line}: {why}", self.path.display()))
    }
}

/// Refuses a file that another user than root and the caller can change.
fn check_writers(path: &Path, metadata: &Metadata) -> Result {
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(Error::refused(path.display(), format!("belongs to user {owner}, neither to you nor to root")));
    }
    if metadata.is_file() && metadata.permissions().mode() & WRITABLE_BY_OTHERS != 0 {
        let hint = format!("chmod go-w {}", path.display());
        return Err(Error::refused(path.display(), "other users may change it").with_hint(hint));
    }
    Ok(())
}

/// Says that `name` is none of `known`, and which of them is like it.
pub(crate) fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let likeness = |known: &str| strsim::jaro(&name.replace('_', "-"), known);
    let nearest = known.map(|known| (likeness(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    match nearest {
        Some((likeness, nearest)) if likeness >= LIKENESS_MIN => {
            format!("there is no {what} '{name}'; did you mean '{nearest}'?")
        }
        _ => format!("there is no {what} '{name}'"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn unknown_name_is_told_the_nearest() {
        let of = |name| unknown("flag", name, ["listen", "allow", "read-only"].into_iter());
        assert_eq!(of("listn"), "there is no flag 'listn'; did you mean 'listen'?");
        assert!(of("read_only").contains("'read-only'"));
        assert_eq!(of("xyz"), "there is no flag 'xyz'");
    }

    #[test]
    fn paths_are_beside_the_file_or_at_home() {
        let file = ConfigFile::from_text("/etc/remora/config.toml", "");
        for (text, path) in [("a.key", "/etc/remora/a.key"), ("/b.key", "/b.key"), ("-", "-")] {
            assert_eq!(file.path_of(text), Path::new(path));
        }
        assert!(file.path_of("~/c.key").is_absolute() && file.path_of("~/c.key").ends_with("c.key"));
    }

    #[test]
    fn file_that_others_may_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        fs::write(&path, "").unwrap();
        for (mode, is_refused) in [(0o644, false), (0o600, false), (0o664, true), (0o646, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check_writers(&path, &fs::metadata(&path).unwrap()).is_err(), is_refused, "{mode:o}");
        }
    }
}
