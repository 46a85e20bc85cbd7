//! Traces of opened files, and their text format.
//!
//! The format has a line for each program, directory, file and access, in this order:
//!
//! ```text
//! remora-trace 1
//! program cc1
//! dir 0/3
//! file 12 1043
//! r0 +16 @0
//! w0 1050
//! ```
//!
//! A name is its rank among the names in that directory, so that the order of names stays and the names do not. A file
//! is in the directory of the last line above it; its size is that in bytes before the trace, `-` if it did not exist.
//! An access is `r` (opened to be read), `w` (written, or another file got the name) or `x` (removed), with its file,
//! the new size where that has changed, the milliseconds since the access before where they are not 0, and its program
//! where that is another one. Programs and files are numbered from 0.

use std::collections::BTreeMap;
use std::fmt::Write;

/// The first line of the text format.
pub(super) const HEADER: &str = "remora-trace 1";
/// Maximum lines of a trace, accesses and files each.
pub(super) const LINES_MAX: usize = 4_000_000;

/// Name of the programs that read nothing.
const WRITERS: &str = "(writers)";

/// What was done to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// It was opened to be read.
    Read,
    /// Its contents were replaced, or another file got its name.
    Write,
    /// It was removed, or got another name.
    Remove,
}

impl AccessKind {
    const ALL: [AccessKind; 3] = [AccessKind::Read, AccessKind::Write, AccessKind::Remove];

    const fn letter(self) -> &'static str {
        match self {
            AccessKind::Read => "r",
            AccessKind::Write => "w",
            AccessKind::Remove => "x",
        }
    }
}

/// An access of a program to a file; indexes into the trace's tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access {
    pub program: usize,
    /// Time since the beginning of the trace, in milliseconds.
    pub at_ms: u64,
    pub kind: AccessKind,
    pub file: usize,
    /// Size of the file in bytes.
    pub size: u64,
}

/// A file of a trace.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct TracedFile {
    /// Ranks of the parts of its path; the order of paths is that of the names.
    pub path: Vec<u32>,
    /// Size before the trace, in bytes; `None` if the file did not exist.
    pub size: Option<u64>,
}

/// Which files programs opened, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    pub name: String,
    pub programs: Vec<String>,
    pub files: Vec<TracedFile>,
    pub accesses: Vec<Access>,
}

/// Where a trace is not of its format.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct TraceError {
    pub line: usize,
    pub why: &'static str,
}

impl Trace {
    /// The trace in its text format.
    pub fn to_text(&self) -> String {
        let mut out = format!("{HEADER}\n");
        // Writing to a `String` cannot fail.
        for name in &self.programs {
            let _ = writeln!(out, "program {name}");
        }
        let mut dir: Option<&[u32]> = None;
        for file in &self.files {
            let Some((name, parent)) = file.path.split_last() else { continue };
            if dir != Some(parent) {
                let ranks: Vec<String> = parent.iter().map(u32::to_string).collect();
                let _ = writeln!(out, "dir {}", ranks.join("/"));
                dir = Some(parent);
            }
            let size = file.size.map_or("-".to_owned(), |size| size.to_string());
            let _ = writeln!(out, "file {name} {size}");
        }
        let mut sizes: Vec<Option<u64>> = self.files.iter().map(|file| file.size).collect();
        let (mut before_ms, mut program) = (0, None);
        for access in &self.accesses {
            let Some(size) = sizes.get_mut(access.file) else { continue };
            let _ = write!(out, "{}{}", access.kind.letter(), access.file);
            if *size != Some(access.size) {
                let _ = write!(out, " {}", access.size);
            }
            if access.at_ms > before_ms {
                let _ = write!(out, " +{}", access.at_ms - before_ms);
            }
            if program != Some(access.program) {
                let _ = write!(out, " @{}", access.program);
            }
            *size = Some(access.size);
            before_ms = before_ms.max(access.at_ms);
            program = Some(access.program);
            out.push('\n');
        }
        out
    }

    /// The trace of a text.
    pub fn from_text(name: &str, text: &str) -> Result<Trace, TraceError> {
        let mut reader =
            TraceReader { trace: Trace { name: name.to_owned(), ..Trace::default() }, ..TraceReader::default() };
        let mut lines = text.lines().zip(1..);
        if lines.next().is_none_or(|(header, _)| header != HEADER) {
            return Err(TraceError { line: 1, why: "not a trace of this version" });
        }
        for (text, line) in lines {
            reader.line(text).map_err(|why| TraceError { line, why })?;
            if reader.trace.accesses.len().max(reader.trace.files.len()) > LINES_MAX {
                return Err(TraceError { line, why: "the trace is too long" });
            }
        }
        Ok(reader.trace)
    }

    /// The first half of its accesses.
    pub fn first_half(&self) -> Trace {
        let half = self.accesses.len() / 2;
        Trace { accesses: self.accesses.iter().take(half).copied().collect(), ..self.clone() }
    }

    /// The trace without programs that access nothing. Those that read nothing become one.
    pub(super) fn with_readers_only(mut self) -> Trace {
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut programs = Vec::new();
        for access in self.accesses.iter().filter(|access| access.kind == AccessKind::Read) {
            numbers.entry(access.program).or_insert_with(|| {
                programs.push(self.programs.get(access.program).cloned().unwrap_or_default());
                programs.len() - 1
            });
        }
        let writers = programs.len();
        for access in &mut self.accesses {
            access.program = numbers.get(&access.program).copied().unwrap_or(writers);
        }
        if self.accesses.iter().any(|access| access.program == writers) {
            programs.push(WRITERS.to_owned());
        }
        self.programs = programs;
        self
    }

    /// Sum of the largest sizes of all files that are read, in bytes.
    pub fn bytes(&self) -> u64 {
        let mut sizes: BTreeMap<usize, u64> = BTreeMap::new();
        for access in self.accesses.iter().filter(|access| access.kind == AccessKind::Read) {
            let size = sizes.entry(access.file).or_default();
            *size = access.size.max(*size);
        }
        sizes.values().sum()
    }
}

#[derive(Default)]
struct TraceReader {
    trace: Trace,
    dir: Vec<u32>,
    sizes: Vec<Option<u64>>,
    at_ms: u64,
    program: Option<usize>,
}

impl TraceReader {
    fn line(&mut self, text: &str) -> Result<(), &'static str> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word {
            "program" => self.trace.programs.push(rest.to_owned()),
            "dir" => self.dir = ranks(rest).ok_or("not a directory")?,
            "file" => self.file(rest).ok_or("not a file")?,
            word => self.access(word, rest).ok_or("not an access")?,
        }
        Ok(())
    }

    fn file(&mut self, text: &str) -> Option<()> {
        let (name, size) = text.split_once(' ')?;
        let path = self.dir.iter().copied().chain([name.parse().ok()?]).collect();
        let size = if size == "-" { None } else { Some(size.parse().ok()?) };
        self.trace.files.push(TracedFile { path, size });
        self.sizes.push(size);
        Some(())
    }

    fn access(&mut self, word: &str, rest: &str) -> Option<()> {
        let kind = AccessKind::ALL.into_iter().find(|kind| word.starts_with(kind.letter()))?;
        let file = word.strip_prefix(kind.letter())?.parse().ok()?;
        let known: &mut Option<u64> = self.sizes.get_mut(file)?;
        for word in rest.split(' ').filter(|word| !word.is_empty()) {
            if let Some(wait_ms) = word.strip_prefix('+') {
                self.at_ms = self.at_ms.checked_add(wait_ms.parse().ok()?)?;
            } else if let Some(program) = word.strip_prefix('@') {
                self.program = program.parse().ok().filter(|program| *program < self.trace.programs.len());
            } else {
                *known = Some(word.parse().ok()?);
            }
        }
        let access = Access { program: self.program?, at_ms: self.at_ms, kind, file, size: (*known)? };
        self.trace.accesses.push(access);
        Some(())
    }
}

/// The ranks of a directory's path.
fn ranks(path: &str) -> Option<Vec<u32>> {
    let parts = path.split('/').filter(|rank| !rank.is_empty());
    parts.map(|rank| rank.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "remora-trace 1\nprogram cc 1\ndir 0\nfile 3 10\ndir \nfile 1 -\nr0 +5 @0\nw1 7\nr1 +2\nx0 +1\n";

    #[test]
    fn text_of_a_trace_is_read_back() {
        let trace = Trace::from_text("make", TEXT).unwrap();
        assert_eq!(trace.to_text(), TEXT);
        assert_eq!(trace.programs, ["cc 1"]);
        let last_read = Access { program: 0, at_ms: 7, kind: AccessKind::Read, file: 1, size: 7 };
        assert_eq!(trace.accesses.get(2), Some(&last_read));
        assert_eq!((trace.bytes(), trace.first_half().accesses.len()), (17, 2));
    }

    #[test]
    fn damaged_line_is_named() {
        for (bad, line, why) in [
            ("", 1, "not a trace of this version"),
            ("remora-trace 2\n", 1, "not a trace of this version"),
            ("remora-trace 1\ndir a\n", 2, "not a directory"),
            ("remora-trace 1\nfile a 1\n", 2, "not a file"),
            ("remora-trace 1\nfile 1 1 1\n", 2, "not a file"),
            ("remora-trace 1\nr0 5\n", 2, "not an access"),
            ("remora-trace 1\nfile 1 1\nr0\n", 3, "not an access"),
            ("remora-trace 1\nprogram a\nfile 1 -\nr0 @0\n", 4, "not an access"),
            ("remora-trace 1\nprogram a\nfile 1 1\nq0 @0\n", 4, "not an access"),
            ("remora-trace 1\nprogram a\nfile 1 1\nr1 @0\n", 4, "not an access"),
            ("remora-trace 1\nprogram a\nfile 1 1\nr0 @1\n", 4, "not an access"),
            ("remora-trace 1\nprogram a\nfile 1 1\n\n", 4, "not an access"),
        ] {
            assert_eq!(Trace::from_text("t", bad), Err(TraceError { line, why }), "{bad:?}");
        }
    }
}
