//! Paths to mount by, however they are spelt.

use std::collections::BTreeMap;

/// The components of a path, without empty ones and `.`. A `..` removes the component before it; at the top it does
/// nothing, as in `/..`.
///
/// This is done to the text: nothing is looked up. So the result is a path that the client could have sent as well, and
/// gives it no right that it has not.
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

/// Whether `..` is a component of `path`.
pub(crate) fn leads_up(path: &[u8]) -> bool {
    path.split(|b| *b == b'/').any(|part| part == b"..")
}

/// The one spelling of `path` that all others come to.
pub fn plain_path(path: &[u8]) -> Vec<u8> {
    [b"/", &components(path).join(&b'/')[..]].concat()
}

/// What each of many paths stands for: a tree, so that a path is looked up in one walk down,
/// however many there are.
#[derive(Default)]
pub(crate) struct Tree {
    here: Option<usize>,
    below: BTreeMap<Vec<u8>, Tree>,
}

impl Tree {
    /// Has the path of these components stand for `what`; whether it stood for nothing before.
    pub(crate) fn insert(&mut self, path: &[&[u8]], what: usize) -> bool {
        let end = path.iter().fold(self, |tree, part| tree.below.entry(part.to_vec()).or_default());
        end.here.replace(what).is_none()
    }

    /// What the longest known head of `path` stands for, and how many components that has.
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
    fn the_longest_head_is_the_one_that_a_look_at_each_finds() {
        // All paths of up to four components that are `a` or `b`, of which every third is known.
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
