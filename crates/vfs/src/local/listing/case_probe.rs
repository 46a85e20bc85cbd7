//! Probes whether a directory is case-insensitive by looking its own names up in the other case.

use std::os::fd::AsFd;

use remora_wire::nfs3::FileType;
use rustix::io::Errno;

use crate::local::inode::stat;
use crate::local::listing::getdents;

/// Entries that are read to find names with letters.
const ENTRIES_MAX: usize = 256;
/// Names that are looked up.
const LOOKUPS_MAX: usize = 8;

/// Whether names of the open directory `dir` are case-insensitive, or `None` if none of its names shows it.
pub(crate) fn is_case_insensitive(dir: impl AsFd) -> Option<bool> {
    let mut names = Vec::new();
    getdents::scan(&dir, 0, |entry| {
        names.push(entry.file_name().to_bytes().to_vec());
        Ok(names.len() < ENTRIES_MAX)
    })
    .ok()?;
    let with_letters = names.iter().filter(|name| name.iter().any(u8::is_ascii_alphabetic)).take(LOOKUPS_MAX);
    with_letters.filter_map(|name| matches_other_case(&dir, name, &names)).next()
}

/// Whether `name` is found in the other case, too. `names` are those of the directory.
fn matches_other_case(dir: impl AsFd, name: &[u8], names: &[Vec<u8>]) -> Option<bool> {
    let other: Vec<u8> = name.iter().map(|b| if b.is_ascii_alphabetic() { b ^ 0x20 } else { *b }).collect();
    if names.contains(&other) {
        return Some(false);
    }
    let here = stat::at(&dir, name).ok()?;
    // A file with several links may have both names.
    if here.attr.kind != FileType::Directory && here.attr.nlink > 1 {
        return None;
    }
    match stat::at(&dir, &other) {
        Ok(there) => Some(there.key == here.key && there.attr.fsid == here.attr.fsid),
        Err(Errno::NOENT) => Some(false),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn probe_tells_only_from_names_that_show_the_case() {
        let dir = tempfile::tempdir().unwrap();
        let probe = || is_case_insensitive(File::open(dir.path()).unwrap());
        assert_eq!(probe(), None, "empty");
        fs::write(dir.path().join("1.2"), b"").unwrap();
        assert_eq!(probe(), None, "no letters");
        fs::write(dir.path().join("name"), b"").unwrap();
        fs::hard_link(dir.path().join("name"), dir.path().join("other")).unwrap();
        assert_eq!(probe(), None, "a file with two links may have both names");
        fs::remove_file(dir.path().join("other")).unwrap();
        assert_eq!(probe(), Some(false));
        fs::hard_link(dir.path().join("name"), dir.path().join("NAME")).unwrap();
        assert_eq!(probe(), Some(false));
    }
}
