//! The mount's read-ahead of small files, which programs open in the order of their names.
//!
//! The same rules as in the cache manager (its module `ahead`), with every directory listed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::trace::TracedFile;

/// Files that are read ahead of one.
pub(super) const AHEAD_MAX: usize = 64;
/// Files opened in order from which the following ones are read.
const STREAK: u32 = 3;
/// What a program that comes to the next directory in order has opened of it, as it were.
const STREAK_CONTINUED: u32 = STREAK + 4;
const FILES_MIN: usize = 4;
/// Size in bytes up to which a file is read ahead.
const FILE_MAX: u64 = 64 << 10;
/// Bytes that are read ahead of one file, at most.
const BYTES_MAX: u64 = 1 << 20;
/// Directories that are looked at.
const DIRECTORIES: usize = 16;

/// What a method needs to know of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct CacheView {
    /// Bytes that may be prefetched.
    pub(super) room: u64,
    /// Whether the file of this access was prefetched and not read until now.
    pub(super) is_first_use: bool,
}

#[derive(Debug, Default)]
struct Directory {
    /// Files by their names' ranks.
    files: BTreeMap<u32, usize>,
    streak: u32,
    last_opened: Option<u32>,
}

/// The last part of a path, and the directory that it is in.
#[derive(Clone, Debug, Default)]
struct Place {
    directory: Vec<u32>,
    name: u32,
}

#[derive(Debug)]
pub(super) struct Neighbours {
    places: Vec<Place>,
    directories: BTreeMap<Vec<u32>, Directory>,
    /// Directories by the one that they are in.
    siblings: BTreeMap<Vec<u32>, BTreeSet<u32>>,
}

impl Neighbours {
    pub(super) fn new(files: &[TracedFile]) -> Neighbours {
        let place = |file: &TracedFile| match file.path.split_last() {
            Some((name, directory)) => Place { directory: directory.to_vec(), name: *name },
            None => Place::default(),
        };
        let mut neighbours = Neighbours {
            places: files.iter().map(place).collect(),
            directories: BTreeMap::new(),
            siblings: BTreeMap::new(),
        };
        for (file, place) in neighbours.places.iter().enumerate() {
            neighbours.directories.entry(place.directory.clone()).or_default().files.insert(place.name, file);
            if let Some((name, parent)) = place.directory.split_last() {
                neighbours.siblings.entry(parent.to_vec()).or_default().insert(*name);
            }
        }
        neighbours
    }

    /// A file was opened: the files that the mount would read ahead.
    pub(super) fn opened(&mut self, file: usize, sizes: &[Option<u64>], view: CacheView) -> Vec<usize> {
        let Some(place) = self.places.get(file).cloned() else { return Vec::new() };
        let Some(directory) = self.directories.get_mut(&place.directory) else { return Vec::new() };
        let is_next = directory.last_opened.is_some_and(|last| last < place.name);
        directory.streak = match is_next {
            true => directory.streak + 1,
            false if view.is_first_use => STREAK_CONTINUED,
            false => 1,
        };
        directory.last_opened = Some(place.name);
        let Some(beyond) = directory.streak.checked_sub(STREAK) else { return Vec::new() };
        let count = AHEAD_MAX.min(FILES_MIN << beyond.min(8));
        let mut found = self.following(&place.directory, Bound::Excluded(place.name), count, sizes);
        for next in self.next_directories(&place.directory) {
            let left = count.saturating_sub(found.len());
            found.extend(self.following(&next, Bound::Unbounded, left, sizes));
        }
        let mut left = view.room.min(BYTES_MAX);
        let size = |file: &usize| sizes.get(*file).copied().flatten().unwrap_or(0);
        let fitting = found.iter().take_while(|file| {
            let fits = left > 0;
            left = left.saturating_sub(size(file));
            fits
        });
        found.truncate(fitting.count());
        found.retain(|file| size(file) <= FILE_MAX);
        found
    }

    /// Files of a directory that exist, behind a name, at most `count`.
    fn following(&self, directory: &[u32], from: Bound<u32>, count: usize, sizes: &[Option<u64>]) -> Vec<usize> {
        let Some(directory) = self.directories.get(directory) else { return Vec::new() };
        let behind = directory.files.range((from, Bound::Unbounded)).map(|(_, file)| *file);
        behind.filter(|file| sizes.get(*file).copied().flatten().is_some()).take(count).collect()
    }

    /// The directories after this one beside it, if files of the one before it were opened in order, too.
    fn next_directories(&self, directory: &[u32]) -> Vec<Vec<u32>> {
        let Some((name, parent)) = directory.split_last() else { return Vec::new() };
        let Some(siblings) = self.siblings.get(parent) else { return Vec::new() };
        let path = |name: &u32| parent.iter().copied().chain([*name]).collect::<Vec<u32>>();
        let before = siblings.range(..*name).next_back().and_then(|name| self.directories.get(&path(name)));
        if before.is_none_or(|before| before.streak < STREAK) {
            return Vec::new();
        }
        siblings.range((Bound::Excluded(*name), Bound::Unbounded)).take(DIRECTORIES).map(path).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VIEW: CacheView = CacheView { room: 1 << 20, is_first_use: false };

    fn files(paths: &[[u32; 2]]) -> Vec<TracedFile> {
        paths.iter().map(|path| TracedFile { path: path.to_vec(), size: Some(100) }).collect()
    }

    #[test]
    fn third_file_in_order_leads_to_the_following_ones() {
        let files = files(&[[0, 0], [0, 1], [0, 2], [0, 3], [0, 4], [0, 5], [0, 6], [0, 7]]);
        let mut sizes = vec![Some(100); 8];
        sizes[4] = None;
        sizes[5] = Some(FILE_MAX + 1);
        let mut neighbours = Neighbours::new(&files);
        assert_eq!(neighbours.opened(0, &sizes, VIEW), [0; 0]);
        assert_eq!(neighbours.opened(1, &sizes, VIEW), [0; 0]);
        assert_eq!(neighbours.opened(2, &sizes, VIEW), [3, 6, 7]);
        let narrow = CacheView { room: 100, ..VIEW };
        assert_eq!(neighbours.opened(5, &sizes, narrow), [6]);
        assert_eq!(neighbours.opened(1, &sizes, VIEW), [0; 0], "not in order");
    }

    #[test]
    fn next_directory_follows_if_the_one_before_was_in_order() {
        let paths = [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1]];
        let sizes = vec![Some(100); 8];
        let mut neighbours = Neighbours::new(&files(&paths));
        for (file, expected) in [(0, vec![]), (1, vec![]), (2, vec![]), (3, vec![]), (4, vec![]), (5, vec![6, 7])] {
            assert_eq!(neighbours.opened(file, &sizes, VIEW), expected, "{file}");
        }
    }
}
