//! A file of the project, and a violation of a rule in it.

use std::fmt;

/// A text file of the project.
pub(super) struct File {
    /// Relative to the root, with `/` as separator.
    pub(super) path: String,
    pub(super) text: String,
}

/// A place where a file breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Violation {
    pub(super) path: String,
    /// Counted from 1.
    pub(super) line: usize,
    /// What is wrong, and how to correct it.
    what: String,
}

impl Violation {
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Violation {
        Violation { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// The first line, counted from 1, of the file at `path` that contains `wanted`, or 1 if none does.
pub(super) fn line_of(files: &[File], path: &str, wanted: &str) -> usize {
    let file = files.iter().find(|f| f.path == path);
    file.and_then(|f| f.text.lines().position(|l| l.contains(wanted))).map_or(1, |at| at + 1)
}

#[cfg(test)]
pub(super) fn file(path: &str, text: &str) -> File {
    File { path: path.to_owned(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violation_prints_file_line_and_message() {
        let files = [file("a.toml", "x\ny = 1\n")];
        assert_eq!(line_of(&files, "a.toml", "y ="), 2);
        assert_eq!(line_of(&files, "a.toml", "z"), 1);
        assert_eq!(Violation::new("a.toml", 2, "remove it").to_string(), "a.toml:2: remove it");
    }
}
