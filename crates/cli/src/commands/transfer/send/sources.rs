//! The files to send: those of the command line and those in its directories.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, io};

use crate::commands::transfer::send::failure::{Failure, Kind};
use crate::commands::transfer::transfer_protocol::Announcement;
use crate::output::escape;
use crate::output::exit::{Error, Result, io_text};

/// What the command line calls standard input.
const STDIN: &str = "-";
/// Directories above a file, as many as a receiver takes.
const DEPTH_MAX: usize = 32;
/// Files and directories of one command.
const ENTRIES_MAX: usize = 100_000;

/// A file or a directory to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    /// What it is called over there. That of a directory ends with `/`.
    pub(crate) name: String,
    pub(crate) input: Input,
}

/// Where its bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    /// In the file at its path.
    File,
    /// In standard input.
    Stdin,
    /// In this file, which has no name: they were read from standard input.
    Spooled(Arc<File>),
    /// A directory at this depth.
    Directory(usize),
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) files: Vec<Source>,
    /// The deepest first: each is sent when all that is in it was.
    pub(crate) dirs: Vec<Source>,
    pub(crate) unsent: Vec<Unsent>,
    names: BTreeSet<String>,
}

/// What cannot be sent, as it is called here.
#[derive(Debug)]
pub(crate) struct Unsent {
    pub(crate) name: String,
    pub(crate) why: Failure,
}

/// A directory that is to be looked through.
struct SourceDir {
    path: PathBuf,
    /// Its name over there; empty if what is in it goes right into the receiver's directory.
    name: String,
    depth: usize,
}

impl Source {
    /// Sooner than those with less.
    pub(crate) fn rank(&self) -> usize {
        match self.input {
            Input::Directory(depth) => depth,
            _ => usize::MAX,
        }
    }

    pub(crate) fn is_dir(&self) -> bool {
        matches!(self.input, Input::Directory(_))
    }

    /// Its bytes, to be read from their beginning.
    pub(crate) fn open(&self) -> io::Result<File> {
        match &self.input {
            Input::Spooled(file) => file.try_clone(),
            _ => open(&self.path),
        }
    }

    /// Makes sure that its bytes can be read, before any receiver is asked to take them.
    pub(crate) fn prepare(&mut self) -> std::result::Result<(), Failure> {
        let prepared = match self.input {
            Input::Stdin => spool().map(|file| self.input = Input::Spooled(Arc::new(file))),
            _ => self.open().map(drop),
        };
        prepared.map_err(|e| Failure::new(Kind::Unreadable, io_text(&e)))
    }
}

/// Finds what the command line names. `name` is what the only one of `paths` is called over there.
pub(crate) fn find(paths: &[PathBuf], name: Option<&str>) -> Result<Sources> {
    if let Some(name) = name {
        if paths.len() != 1 {
            return Err(Error::Usage(format!("--name takes one file, not {}", paths.len())));
        }
        if name.split('/').any(str::is_empty) {
            return Err(Error::Usage(format!("--name: '{}' is not a valid name", escape::printable(name.as_bytes()))));
        }
    }
    let mut found = Sources::default();
    for path in paths {
        found.add(path, name)?;
    }
    found.dirs.sort_by_key(|dir| std::cmp::Reverse(dir.rank()));
    Ok(found)
}

impl Sources {
    /// Adds what a word of the command line names. A link is followed.
    fn add(&mut self, path: &Path, name: Option<&str>) -> Result {
        let is_stdin = path.as_os_str() == STDIN;
        let is_dir = !is_stdin && fs::metadata(path).is_ok_and(|found| found.is_dir());
        let called = match (name, path.file_name()) {
            (Some(name), _) => name,
            (None, _) if is_stdin => {
                return Err(Error::Usage("standard input has no name: give one with --name NAME".into()));
            }
            (None, Some(name)) => match name.to_str() {
                Some(name) => name,
                None => {
                    self.leave(name.as_bytes(), NOT_UTF_8);
                    return Ok(());
                }
            },
            // As in `cp -r . elsewhere`.
            (None, None) if is_dir => "",
            (None, None) => {
                return Err(Error::Usage(format!("{} has no name to send it under", path.display())));
            }
        };
        match is_dir {
            true => self.add_dir(path, called),
            false => self.add_file(path, called, if is_stdin { Input::Stdin } else { Input::File }),
        }
    }

    fn add_file(&mut self, path: &Path, name: &str, input: Input) -> Result {
        if !Announcement::new(0, name.to_owned(), u64::MAX, blake3::hash(b"")).fits() {
            self.leave(name.as_bytes(), "its path is too long");
            return Ok(());
        }
        if !self.names.insert(name.to_owned()) {
            return Err(Error::Usage(format!("two files are called {}", escape::printable(name.as_bytes()))));
        }
        if self.names.len() > ENTRIES_MAX {
            return Err(Error::Usage(format!(
                "more than {ENTRIES_MAX} files: send an archive, or use several commands"
            )));
        }
        let source = Source { path: path.to_owned(), name: name.to_owned(), input };
        if source.is_dir() {
            self.dirs.push(source)
        } else {
            self.files.push(source)
        }
        Ok(())
    }

    /// Adds a directory and all that is in it. No link in it is followed.
    fn add_dir(&mut self, path: &Path, name: &str) -> Result {
        let depth = name.split('/').filter(|name| !name.is_empty()).count();
        let mut left = vec![SourceDir { path: path.to_owned(), name: name.to_owned(), depth }];
        while let Some(folder) = left.pop() {
            if folder.depth > DEPTH_MAX {
                self.leave(folder.name.as_bytes(), "it is in too many nested directories");
                continue;
            }
            let entries = match fs::read_dir(&folder.path).and_then(Iterator::collect::<io::Result<Vec<_>>>) {
                Ok(entries) => entries,
                Err(e) => {
                    self.leave(folder.name.as_bytes(), &io_text(&e));
                    continue;
                }
            };
            // Another directory of the command line may have this name, too: then they become one, as with `cp -r`.
            let known = format!("{}/", folder.name);
            if folder.depth > 0 && !self.names.contains(&known) {
                self.add_file(&folder.path, &known, Input::Directory(folder.depth))?;
            }
            let mut entries: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
            entries.sort();
            for path in entries {
                left.extend(self.add_entry(&folder, path)?);
            }
        }
        Ok(())
    }

    /// Adds what is in a directory; gives back a directory.
    fn add_entry(&mut self, folder: &SourceDir, path: PathBuf) -> Result<Option<SourceDir>> {
        let own = path.file_name().unwrap_or_default();
        let joined = |own: &str| if folder.name.is_empty() { own.to_owned() } else { format!("{}/{own}", folder.name) };
        let Some(name) = own.to_str().map(joined) else {
            self.leave(joined(&own.to_string_lossy()).as_bytes(), NOT_UTF_8);
            return Ok(None);
        };
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => return Ok(Some(SourceDir { path, name, depth: folder.depth + 1 })),
            Ok(found) if found.is_symlink() => self.leave(name.as_bytes(), "is a symbolic link; send skips them"),
            // One that cannot be opened, or is no file, is found out like those of the command line.
            _ => self.add_file(&path, &name, Input::File)?,
        }
        Ok(None)
    }

    fn leave(&mut self, name: &[u8], why: &str) {
        let name = String::from_utf8_lossy(name).into_owned();
        self.unsent.push(Unsent { name, why: Failure::new(Kind::Refused, why) });
    }
}

const NOT_UTF_8: &str = "its name is not UTF-8";

fn open(path: &Path) -> io::Result<File> {
    // Looked at first: to open a pipe would wait for its other end.
    let meta = fs::metadata(path)?;
    if !meta.is_file() {
        let what = if meta.is_dir() { "is a directory" } else { "is not a file" };
        return Err(io::Error::other(what));
    }
    File::open(path)
}

/// Standard input in a file without a name: a file is announced by its size and hash.
fn spool() -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn names(sources: &[Source]) -> Vec<&str> {
        sources.iter().map(|source| source.name.as_str()).collect()
    }

    #[test]
    fn directories_are_found_recursively() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("d/e/f")).unwrap();
        for name in ["a", "d/b", "d/e/.c"] {
            fs::write(top.path().join(name), name).unwrap();
        }
        symlink("/etc", top.path().join("d/link")).unwrap();
        let at = |name: &str| top.path().join(name);
        let found = find(&[at("a"), at("d")], None).unwrap();
        assert_eq!(names(&found.files), ["a", "d/b", "d/e/.c"]);
        assert_eq!(names(&found.dirs), ["d/e/f/", "d/e/", "d/"]);
        let left: Vec<_> = found.unsent.iter().map(|left| (left.name.as_str(), left.why.kind)).collect();
        assert_eq!(left, [("d/link", Kind::Refused)]);
        assert_eq!(names(&find(&[at("d/.")], Some("x/y")).unwrap().dirs), ["x/y/e/f/", "x/y/e/", "x/y/"]);
        let all = find(&[at("d/e/..")], None).unwrap();
        assert_eq!((names(&all.files), names(&all.dirs)), (vec!["b", "e/.c"], vec!["e/f/", "e/"]), "as cp -r has it");
    }

    #[test]
    fn invalid_names_are_wrong_usage() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("x/d")).unwrap();
        fs::create_dir_all(top.path().join("y/d")).unwrap();
        let at = |name: &str| top.path().join(name);
        assert!(find(&["-".into()], None).is_err());
        assert_eq!(names(&find(&["-".into()], Some("log")).unwrap().files), ["log"]);
        for name in ["", "a/", "/a", "a//b"] {
            assert!(find(&["-".into()], Some(name)).is_err(), "{name}");
        }
        assert!(find(&[at("a"), at("b")], Some("log")).is_err());
        assert_eq!(names(&find(&[at("x/d"), at("y/d")], None).unwrap().dirs), ["d/"], "they become one");
        for dir in ["x", "y"] {
            fs::write(at(dir).join("d/f"), dir).unwrap();
        }
        assert!(find(&[at("x/d"), at("y/d")], None).is_err(), "two files are called d/f");
    }
}
