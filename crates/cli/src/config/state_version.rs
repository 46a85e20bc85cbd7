//! The version of a state directory, so that an older program leaves alone what it would misread. The stores of mounts
//! have versions of their own.

use std::fs::File;
use std::io;
use std::io::Read;
use std::path::Path;

use crate::config::state_dir;
use crate::output::exit::{Error, Result};

/// The newest version that this program can read. A change that older programs would misread adds one.
const VERSION: u64 = 1;
/// Its file. A directory without it has version 1.
const FILE: &str = "version";
/// A number has no more digits.
const LENGTH_MAX: u64 = 32;

/// Fails if a newer program has written `dir`.
pub(crate) fn check(dir: &Path) -> Result {
    let path = dir.join(FILE);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(LENGTH_MAX).read_to_string(&mut text)) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => drop(read.map_err(Error::local(path.display()))?),
    }
    match text.trim().parse::<u64>() {
        Ok(version) if version <= VERSION => Ok(()),
        Ok(version) => {
            let why = format!(
                "holds state of version {version}, which a newer remora has written; this one ({}) knows up to \
                 {VERSION}",
                env!("CARGO_PKG_VERSION")
            );
            let hint = "install the newer remora, or choose another directory with --state DIR";
            Err(Error::refused(dir.display(), why).with_hint(hint))
        }
        Err(_) => Err(Error::refused(path.display(), "has no version of remora's state in it")),
    }
}

/// The same, and notes the version in a directory without one.
pub(crate) fn check_and_note(dir: &Path) -> Result {
    check(dir)?;
    let path = dir.join(FILE);
    if path.exists() {
        return Ok(());
    }
    state_dir::make(&path, format!("{VERSION}\n").as_bytes()).map_err(Error::local(path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_state_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(FILE);
        assert!(check(dir.path()).is_ok() && !file.exists(), "a first start");
        check_and_note(dir.path()).unwrap();
        check_and_note(dir.path()).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1\n");
        for (text, words) in [("2\n", "version 2, which a newer remora has written"), ("x", "has no version")] {
            std::fs::write(&file, text).unwrap();
            let why = check_and_note(dir.path()).unwrap_err().to_string();
            assert!(why.contains(words), "{why}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
    }
}
