//! What programs open, counted by directory and by program.

use std::collections::{BTreeMap, BTreeSet};

use crate::node::NodeId;

/// Directories, and of each one programs and files, that are counted.
const DIRECTORIES_MAX: usize = 1024;
const PROGRAMS_MAX: usize = 8;
const FILES_MAX: usize = 256;
/// Longest name of a program in bytes.
const PROGRAM_MAX: usize = 16;

/// Opens of the files in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryUse {
    /// Path from the mounted directory.
    pub path: Vec<u8>,
    pub opens: u64,
    /// Different files, at most 256.
    pub files: usize,
    /// Opens by program, the first 8 programs.
    pub programs: BTreeMap<String, u64>,
}

/// Counts of a directory.
#[derive(Debug, Default)]
pub(crate) struct UseCount {
    pub(crate) opens: u64,
    pub(crate) files: BTreeSet<NodeId>,
    pub(crate) programs: BTreeMap<String, u64>,
}

/// Counts since the mount.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    counts: BTreeMap<NodeId, UseCount>,
}

impl Usage {
    /// A program opened `file` in `dir`.
    pub(crate) fn opened(&mut self, dir: NodeId, file: NodeId, program: &str) {
        if self.counts.len() >= DIRECTORIES_MAX && !self.counts.contains_key(&dir) {
            self.forget_half();
        }
        let count = self.counts.entry(dir).or_default();
        count.opens += 1;
        if count.files.len() < FILES_MAX {
            count.files.insert(file);
        }
        let program: String = program.chars().take(PROGRAM_MAX).collect();
        if count.programs.len() < PROGRAMS_MAX || count.programs.contains_key(&program) {
            *count.programs.entry(program).or_default() += 1;
        }
    }

    /// Forgets the half of the directories with the fewest opens.
    fn forget_half(&mut self) {
        let mut order: Vec<(u64, NodeId)> = self.counts.iter().map(|(dir, count)| (count.opens, *dir)).collect();
        order.sort_unstable();
        order.iter().take(order.len() / 2).for_each(|(_, dir)| _ = self.counts.remove(dir));
    }

    pub(crate) fn counts(&self) -> impl Iterator<Item = (NodeId, &UseCount)> {
        self.counts.iter().map(|(dir, count)| (*dir, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_used_directories_stay_within_the_bound() {
        let mut usage = Usage::default();
        (0..40).for_each(|n| usage.opened(NodeId(7), NodeId(100 + n % 3), "make"));
        for dir in 0..3 * DIRECTORIES_MAX as u64 {
            usage.opened(NodeId(1000 + dir), NodeId(1), "find");
        }
        assert!(usage.counts().count() <= DIRECTORIES_MAX);
        let kept = usage.counts().find(|(dir, _)| *dir == NodeId(7)).unwrap().1;
        assert_eq!((kept.opens, kept.files.len(), kept.programs["make"]), (40, 3, 40));
    }

    #[test]
    fn programs_of_a_directory_are_bounded() {
        let mut usage = Usage::default();
        (0..50).for_each(|n| usage.opened(NodeId(7), NodeId(8), &format!("a-long-name-of-program-{n}")));
        (0..50).for_each(|n| usage.opened(NodeId(7), NodeId(8), &format!("p{n}")));
        let count = usage.counts().next().unwrap().1;
        assert_eq!((count.opens, count.programs.len()), (100, PROGRAMS_MAX));
        assert!(count.programs.keys().all(|name| name.len() <= PROGRAM_MAX));
    }
}
