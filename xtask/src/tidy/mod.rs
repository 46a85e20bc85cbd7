//! The rules of the house that the compiler does not know: who may import whom, what a
//! dependency needs, and how files look. Each rule is a function from what it reads to what
//! it found.

mod clocks;
mod imports;
mod licences;
mod links;
mod manifest;
mod modules;
mod prose;
mod syntax;
mod text;

use std::fmt;
use std::process::Command;

use cargo_metadata::MetadataCommand;

use crate::cmd::{self, Result, root};

/// A file of the project.
pub(crate) struct File {
    /// From the root, with `/` between its parts.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A rule broken.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    path: String,
    /// From 1.
    line: usize,
    /// What is wrong, and what to do.
    what: String,
}

impl Violation {
    fn new(path: &str, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Where the rules about modules, prose and functions do not hold yet. `--strict` applies them there, too.
const NOT_YET: &[&str] = &[
    "crates/",
    "xtask/",
    "docs/",
    "fuzz/",
    "README.md",
    "ARCHITECTURE.md",
    "SEMANTICS.md",
    "CHANGELOG.md",
    "SECURITY.md",
];

/// Checks all rules and prints what it finds.
pub(crate) fn run(strict: bool) -> Result {
    let files = project_files()?;
    let metadata = MetadataCommand::new().current_dir(root()).no_deps().exec()?;
    let mut found = imports::check(&metadata, &files);
    found.extend(manifest::check(&files));
    found.extend(licences::check(&files)?);
    found.extend(clocks::check(&files));
    found.extend(links::check(&files, |path| root().join(path).exists()));
    found.extend(text::check_all(&files));
    let new = [modules::check(&files), prose::check(&files), syntax::check(&files)].concat();
    found.extend(new.into_iter().filter(|v| strict || !NOT_YET.iter().any(|begin| v.path.starts_with(begin))));
    found.sort();
    found.iter().for_each(|violation| println!("{violation}"));
    match found.len() {
        0 => Ok(()),
        n => Err(format!("tidy found {n} violation{}", if n == 1 { "" } else { "s" }).into()),
    }
}

/// The text files that git tracks or would track.
fn project_files() -> Result<Vec<File>> {
    let mut git = Command::new("git");
    // On a build machine the checkout may be another user's.
    git.args(["-c", "safe.directory=*", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    let out = git.current_dir(root()).output().map_err(|e| format!("cannot start git: {e}"))?;
    if !out.status.success() {
        return Err(format!("{} failed: {}", cmd::name(&git), String::from_utf8_lossy(&out.stderr).trim()).into());
    }
    let mut paths: Vec<&str> = std::str::from_utf8(&out.stdout)?.split('\0').filter(|p| !p.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    // What is not UTF-8 is not text, what is a link is read under its own name, and what git
    // tracks may be deleted.
    let read = |path: &&str| {
        let text = std::fs::read_to_string(root().join(path)).ok()?;
        Some(File { path: (*path).to_owned(), text })
    };
    Ok(paths.iter().filter_map(read).collect())
}

/// The line (from 1) of `file` among `files` where `wanted` first stands; 1 if nowhere.
fn line_of(files: &[File], path: &str, wanted: &str) -> usize {
    let file = files.iter().find(|f| f.path == path);
    file.and_then(|f| f.text.lines().position(|l| l.contains(wanted))).map_or(1, |at| at + 1)
}

#[cfg(test)]
pub(crate) fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_reads_as_file_line_and_what_to_do() {
        let files = [file("a.toml", "x\ny = 1\n")];
        assert_eq!(line_of(&files, "a.toml", "y ="), 2);
        assert_eq!(line_of(&files, "a.toml", "z"), 1);
        assert_eq!(Violation::new("a.toml", 2, "remove it").to_string(), "a.toml:2: remove it");
    }
}
