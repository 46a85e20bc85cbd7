//! Comparison of the model with the server's files.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use remora_vfs::memory::TreeNode;
use remora_wire::nfs3::FileType;

use super::model::{Kind, Model};

/// Every object of the server by its path from the root: [`MemFs::tree`](remora_vfs::MemFs::tree).
pub type Tree = BTreeMap<Vec<u8>, TreeNode>;

/// Differences between the files in `home` and the model, as text; paths in `except` are skipped.
pub fn differences(model: &Model, tree: &Tree, home: &str, except: &BTreeSet<String>) -> Vec<String> {
    let mut found = Vec::new();
    for (path, kind) in model.entries().filter(|(p, _)| !except.contains(*p)) {
        if let Err(how) = compare(model, path, kind, tree.get(full(home, path).as_bytes())) {
            found.push(format!("{home}/{path} {how}"));
        }
    }
    for path in below(tree, home) {
        if model.kind(&path).is_none() && !except.contains(&path) {
            found.push(format!("{home}/{path} exists unexpectedly"));
        }
    }
    found
}

fn compare(model: &Model, path: &str, kind: &Kind, node: Option<&TreeNode>) -> Result<(), String> {
    let node = node.ok_or("is missing")?;
    let wrong = |want: &str| Err(format!("is a {:?} instead of a {want}", node.attr.kind));
    match kind {
        Kind::Dir if node.attr.kind != FileType::Directory => wrong("directory"),
        Kind::SymLink(target) if node.attr.kind != FileType::SymLink || node.content != target.as_bytes() => {
            wrong(&format!("link to {target}"))
        }
        Kind::File(_) if node.attr.kind != FileType::Regular => wrong("file"),
        Kind::File(_) if !model.is_unsure(path) => {
            let want = model.bytes(path).map_or(&[][..], |b| b);
            first_difference(want, &node.content).map_or(Ok(()), Err)
        }
        _ => Ok(()),
    }
}

/// The first difference between `got` and `want`.
pub(crate) fn first_difference(want: &[u8], got: &[u8]) -> Option<String> {
    if want == got {
        return None;
    }
    let at = want.iter().zip(got).take_while(|(w, g)| w == g).count();
    let lost = match got.get(at) {
        None => "ends",
        Some(0) => "has zeros",
        Some(_) => "has other bytes",
    };
    Some(format!("{lost} from byte {at}: {} bytes instead of {}", got.len(), want.len()))
}

/// Whether `got` may be the result of a failed upload of `new` over `old`: each byte old or new (or
/// zero, where there was none), and no shorter than before.
pub fn mixture(old: &[u8], new: &[u8], got: &[u8]) -> bool {
    let byte = |bytes: &[u8], at: usize| bytes.get(at).copied();
    (old.len()..=old.len().max(new.len())).contains(&got.len())
        && got.iter().enumerate().all(|(at, b)| Some(*b) == byte(new, at) || *b == byte(old, at).unwrap_or(0))
}

fn full(home: &str, path: &str) -> String {
    if path.is_empty() { home.to_string() } else { format!("{home}/{path}") }
}

/// Paths in `home`, relative to it.
fn below(tree: &Tree, home: &str) -> impl Iterator<Item = String> {
    let prefix = Bytes::from(format!("{home}/"));
    let start = prefix.to_vec();
    tree.range(start..)
        .map_while(move |(path, _)| path.strip_prefix(&prefix[..]))
        .map(|path| String::from_utf8_lossy(path).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixture_holds_old_and_new_bytes_only() {
        for (got, legal) in [
            ("aaaa", true),
            ("bbbb", true),
            ("abab", true),
            ("bbaabb", true),
            ("aaaa\0\0", true),
            ("aaa", false),
            ("aaca", false),
            ("bb\0abb", false),
            ("aaaa\0\0\0", false),
        ] {
            assert_eq!(mixture(b"aaaa", b"bbbbbb", got.as_bytes()), legal, "{got:?}");
        }
    }

    #[test]
    fn difference_names_the_path() {
        assert_eq!(first_difference(b"abc", b"abc"), None);
        let cases =
            [(&b"ab"[..], "ends from byte 2"), (b"ab\0", "zeros from byte 2"), (b"xbc", "other bytes from byte 0")];
        for (got, want) in cases {
            assert!(first_difference(b"abc", got).unwrap().contains(want));
        }
    }
}
