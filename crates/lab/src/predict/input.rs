//! Where traces come from: this crate, or files.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use super::strace::{StraceDoubts, StraceReader};
use super::trace::{HEADER, Trace, TraceError};

/// Maximum bytes of a trace in its text format.
const TEXT_MAX: u64 = 256 << 20;

const BUILT_IN: [BuiltIn; 5] = [
    BuiltIn { name: "git", text: include_str!("../../traces/git.trace") },
    BuiltIn { name: "make", text: include_str!("../../traces/make.trace") },
    BuiltIn { name: "cargo", text: include_str!("../../traces/cargo.trace") },
    BuiltIn { name: "vim", text: include_str!("../../traces/vim.trace") },
    BuiltIn { name: "mutt", text: include_str!("../../traces/mutt.trace") },
];

struct BuiltIn {
    name: &'static str,
    text: &'static str,
}

/// A trace, and what is doubtful of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadedTrace {
    pub trace: Trace,
    pub doubts: StraceDoubts,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Trace(#[from] TraceError),
    #[error("no line shows an opened file (was it recorded with the command of `remora lab predict --help`?)")]
    Empty,
}

/// The traces that come with the program.
pub fn built_in() -> Result<Vec<LoadedTrace>, InputError> {
    let load = |built_in: BuiltIn| {
        let trace = Trace::from_text(built_in.name, built_in.text)?;
        Ok(LoadedTrace { trace, doubts: StraceDoubts::default() })
    };
    BUILT_IN.into_iter().map(load).collect()
}

/// Reads a file in the text format of traces or of strace. Of the latter only files below `under` count.
pub fn load(path: &Path, under: &str) -> Result<LoadedTrace, InputError> {
    let name = path.file_stem().map_or_else(|| path.display().to_string(), |stem| stem.to_string_lossy().into_owned());
    let mut input = BufReader::new(File::open(path)?);
    let loaded = if input.fill_buf()?.starts_with(HEADER.as_bytes()) {
        let mut text = String::new();
        input.take(TEXT_MAX).read_to_string(&mut text)?;
        LoadedTrace { trace: Trace::from_text(&name, &text)?, doubts: StraceDoubts::default() }
    } else {
        let mut reader = StraceReader::new(under);
        reader.read(input)?;
        let (trace, doubts) = reader.finish(&name, size_now);
        LoadedTrace { trace, doubts }
    };
    if loaded.trace.accesses.is_empty() { Err(InputError::Empty) } else { Ok(loaded) }
}

/// The size that a regular file has now.
fn size_now(path: &str) -> Option<u64> {
    let there = std::fs::metadata(path).ok()?;
    there.is_file().then_some(there.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_traces_are_read_back_as_they_are() {
        for (built_in, loaded) in BUILT_IN.iter().zip(super::built_in().unwrap()) {
            assert_eq!(loaded.trace.to_text(), built_in.text, "{}", built_in.name);
        }
    }

    #[test]
    fn file_is_read_by_its_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.strace");
        std::fs::write(&path, "7<a> 1.000000 open(\"/h/a\", O_RDONLY) = 3</h/a>\n7<a> 1.0 x\n").unwrap();
        assert!(matches!(load(&path, ""), Err(InputError::Empty)), "its size is not known");
        let sized = "7<a> 1.000000 open(\"/h/a\", O_RDONLY) = 3</h/a>\n7<a> 1.000000 fstat(3</h/a>, {st_mode=S_IFREG|0644, st_size=5}) = 0\n";
        std::fs::write(&path, sized).unwrap();
        let loaded = load(&path, "").unwrap();
        assert_eq!((loaded.trace.name.as_str(), loaded.trace.accesses.len()), ("a", 1));
        std::fs::write(&path, loaded.trace.to_text()).unwrap();
        assert_eq!(load(&path, "").unwrap(), loaded);
        std::fs::write(&path, "remora-trace 1\nfile\n").unwrap();
        assert!(matches!(load(&path, ""), Err(InputError::Trace(TraceError { line: 2, .. }))));
    }
}
