//! Names: of unfinished copies, and of what a server says lies in a directory.

/// The longest hidden name, in bytes. Most file systems take 255, but those that encrypt names take less
/// (eCryptfs, and the encrypted shares of network storage: 143), and a copy is not to fail for a name that nobody sees.
const NAME_MAX: usize = 143;

/// What hidden names have in them.
const MARK: &str = ".remora-part";

/// The hidden name under which `name` is copied. `tag` sets copies by different people apart
/// where they meet in one directory; it may be empty.
pub(crate) fn part_name(name: &[u8], tag: &str) -> Vec<u8> {
    let part = [b".", name, MARK.as_bytes(), tag.as_bytes()].concat();
    // A download's journal has a suffix, and while it is written another.
    if part.len() + ".json.new".len() <= NAME_MAX {
        return part;
    }
    let hash = blake3::hash(name).to_hex();
    format!(".{}{MARK}{tag}", &hash[..32]).into_bytes()
}

/// Whether this is such a name: of a copy that is under way, or was given up.
pub(crate) fn is_part(name: &[u8]) -> bool {
    name.starts_with(b".") && name.windows(MARK.len()).any(|w| w == MARK.as_bytes())
}

/// Whether a name that a server lists may be used here: a single component that leads
/// nowhere else.
pub(crate) fn is_plain(name: &[u8]) -> bool {
    !matches!(name, b"" | b"." | b"..") && !name.iter().any(|b| matches!(b, b'/' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_hidden_and_never_too_long() {
        assert_eq!(part_name(b"a b", ""), b".a b.remora-part");
        for len in [1, 112, 113, 121, 122, 255] {
            let part = part_name(&vec![b'x'; len], "-12345678");
            assert!(part.len() + 9 <= NAME_MAX && is_part(&part) && is_plain(&part), "{len}");
        }
        assert_ne!(part_name(&[b'x'; 255], ""), part_name(&[b'y'; 255], ""));
        assert!(!is_part(b"a.remora-part") && !is_part(b".remora"));
    }

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for bad in [&b""[..], b".", b"..", b"../x", b"/etc", b"a\0b"] {
            assert!(!is_plain(bad), "{bad:?}");
        }
        assert!(is_plain(b"...") && is_plain("é b".as_bytes()) && is_plain(b"\xff"));
    }
}
