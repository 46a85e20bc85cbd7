//! Temporary names, and checks of names from a server.

use std::path::{Path, PathBuf};

/// Longest temporary name in bytes. Most file systems take 255, those that encrypt names (eCryptfs, encrypted network
/// shares) 143.
const NAME_MAX: usize = 143;

/// Part of every temporary name.
const MARK: &str = ".remora-part";

/// The temporary name for `name`. `tag` keeps copies of different users apart; it may be empty.
pub(crate) fn part_name(name: &[u8], tag: &str) -> Vec<u8> {
    let part = [b".", name, MARK.as_bytes(), tag.as_bytes()].concat();
    // A download's journal has a suffix, and another while it is written.
    if part.len() + ".json.new".len() <= NAME_MAX {
        return part;
    }
    let hash = blake3::hash(name).to_hex();
    format!(".{}{MARK}{tag}", &hash[..32]).into_bytes()
}

/// Whether it is a temporary name.
pub(crate) fn is_part(name: &[u8]) -> bool {
    name.starts_with(b".") && name.windows(MARK.len()).any(|w| w == MARK.as_bytes())
}

/// Whether a name from a server is a single component.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0))
}

/// `path` with `suffix` appended to its name.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_names_are_hidden_and_short_enough() {
        assert_eq!(part_name(b"a b", ""), b".a b.remora-part");
        for len in [1, 112, 113, 121, 122, 255] {
            let part = part_name(&vec![b'x'; len], "-12345678");
            assert!(part.len() + 9 <= NAME_MAX && is_part(&part) && is_plain(&part), "{len}");
        }
        assert_ne!(part_name(&[b'x'; 255], ""), part_name(&[b'y'; 255], ""));
        assert!(!is_part(b"a.remora-part") && !is_part(b".remora"));
    }

    #[test]
    fn names_leading_elsewhere_are_not_plain() {
        for bad in [&b""[..], b".", b"..", b"../x", b"/etc", b"a\0b"] {
            assert!(!is_plain(bad), "{bad:?}");
        }
        assert!(is_plain(b"...") && is_plain("é b".as_bytes()) && is_plain(b"\xff"));
    }
}
