//! Normalization and lookup of export paths.

use std::collections::BTreeMap;

/// The components of a path, without empty ones and `.`. A `..` removes the component before it, and does nothing at
/// the top.
///
/// Only the text is changed; nothing is looked up. The result is a path that the client could have sent, and grants
/// no further right.
pub(crate) fn components(path: &[u8]) -> Vec<&[u8]> {
    let mut parts = Vec::new();
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => {}
            b".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts
}

pub(crate) fn leads_up(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|part| part == b"..")
}

/// The normalized spelling of `path`.
pub fn plain_path(path: &[u8]) -> Vec<u8> {
    [b"/", &components(path).join(&b'/')[..]].concat()
}

/// A prefix tree from paths to numbers. A lookup takes one step for each component.
#[derive(Default)]
pub(crate) struct Tree {
    here: Option<usize>,
    below: BTreeMap<Vec<u8>, Tree>,
}

impl Tree {
    /// Inserts a path. Returns whether it was new.
    pub(crate) fn insert(&mut self, path: &[&[u8]], what: usize) -> bool {
        let end = path.iter().fold(self, |tree, part| tree.below.entry(part.to_vec()).or_default());
        end.here.replace(what).is_none()
    }

    /// The number of the longest known prefix of `path`, and the components in it.
    pub(crate) fn longest_head(&self, path: &[&[u8]]) -> Option<(usize, usize)> {
        let (mut tree, mut found) = (self, self.here.map(|what| (what, 0)));
        for (n, part) in (1..).zip(path) {
            let Some(next) = tree.below.get(*part) else { break };
            tree = next;
            found = tree.here.map(|what| (what, n)).or(found);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_spelling() {
        for (path, want) in [
            ("", "/"),
            ("/.//", "/"),
            ("//a/./c/", "/a/c"),
            ("a/.c", "/a/.c"),
            ("/a/..", "/"),
            ("/a/b/../c", "/a/c"),
            ("/a//b/.././/c/", "/a/c"),
            ("/a/../../b/", "/b"),
            ("/..", "/"),
            ("/a/...", "/a/..."),
        ] {
            assert_eq!(plain_path(path.as_bytes()), want.as_bytes(), "{path}");
        }
        assert!(leads_up(b"/a/..") && leads_up(b"../a") && !leads_up(b"/a/..b/.../."));
    }

    #[test]
    fn longest_prefix_equals_linear_search() {
        // All paths of up to four components `a` or `b`, every third of which is known.
        let path = |n: usize| -> Vec<&[u8]> {
            let bits = n.ilog2();
            (0..bits).rev().map(|bit| if n >> bit & 1 == 0 { &b"a"[..] } else { b"b" }).collect()
        };
        let paths: Vec<Vec<&[u8]>> = (1..32).map(path).collect();
        let known: Vec<_> = paths.iter().enumerate().skip(1).step_by(3).collect();
        let mut tree = Tree::default();
        for (n, path) in &known {
            assert!(tree.insert(path, *n));
            assert!(!tree.insert(path, *n), "it is there");
        }
        for path in &paths {
            let heads = known.iter().filter(|(_, known)| path.starts_with(known));
            let want = heads.map(|(n, known)| (*n, known.len())).max_by_key(|(_, len)| *len);
            assert_eq!(tree.longest_head(path), want, "{path:?}");
        }
    }
}
