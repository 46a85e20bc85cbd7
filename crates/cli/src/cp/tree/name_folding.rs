//! Names that some file system takes for one.
//!
//! [`CreatedObjects`](crate::cp::created_objects::CreatedObjects) finds out whether one does. It compares a copy with
//! earlier ones, so copies whose names may be one must not run concurrently.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use icu_normalizer::DecomposingNormalizerBorrowed;

/// Entries with distinct names, and groups of the others.
pub(crate) struct Grouped<T> {
    pub(crate) alone: Vec<T>,
    pub(crate) groups: Vec<Vec<T>>,
}

/// Groups the entries of a directory by similar names, in order.
pub(crate) fn group<T>(entries: Vec<T>, name: impl Fn(&T) -> Vec<u8>) -> Grouped<T> {
    let keys: Vec<u64> = entries.iter().map(|entry| skeleton(&name(entry))).collect();
    let mut counts: HashMap<u64, u32> = HashMap::with_capacity(keys.len());
    keys.iter().for_each(|key| *counts.entry(*key).or_default() += 1);
    let mut grouped = Grouped { alone: Vec::with_capacity(counts.len()), groups: Vec::new() };
    let mut places: HashMap<u64, usize> = HashMap::new();
    for (key, entry) in keys.into_iter().zip(entries) {
        if counts.get(&key) == Some(&1) {
            grouped.alone.push(entry);
            continue;
        }
        let place = *places.entry(key).or_insert(grouped.groups.len());
        match grouped.groups.get_mut(place) {
            Some(group) => group.push(entry),
            None => grouped.groups.push(vec![entry]),
        }
    }
    grouped
}

/// A hash of the letters and digits of a name without case, accents and compatibility forms. It is equal for all names
/// that some file system takes for one (NTFS, exFAT, vfat, APFS, HFS+, ext4, ZFS, and servers that replace characters),
/// and for some that none does.
fn skeleton(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    if name.is_ascii() {
        let letters = name.iter().filter(|b| b.is_ascii_alphanumeric());
        letters.for_each(|b| char::from(b.to_ascii_lowercase()).hash(&mut hasher));
        return hasher.finish();
    }
    let name = String::from_utf8_lossy(name);
    let decomposed = DecomposingNormalizerBorrowed::new_nfkd().normalize_iter(name.chars());
    // Twice: the capital sharp s has the small one as lower case, whose upper case is SS.
    let folded = decomposed.flat_map(char::to_lowercase).flat_map(char::to_uppercase).flat_map(char::to_lowercase);
    // Casefold ignores Hangul fillers (Default_Ignorable_Code_Point), which are letters.
    let is_filler = |c: char| matches!(c, '\u{115f}' | '\u{1160}');
    folded.filter(|c| c.is_alphanumeric() && !is_filler(*c)).for_each(|c| c.hash(&mut hasher));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_names_are_in_one_group() {
        for (one, other) in [
            ("README", "readme"),
            ("\u{e9}", "e\u{301}"),
            ("\u{c9}", "e\u{301}"),
            ("stra\u{df}e", "STRASSE"),
            ("\u{1e9e}", "ss"),
            ("\u{3c2}", "\u{3a3}"),
            ("\u{212a}", "k"),
            ("\u{17f}", "S"),
            ("\u{fb01}le", "FILE"),
            ("a\u{ad}b\u{200d}", "ab"),
            ("a\u{115f}\u{3164}", "a"),
            ("a.", "a"),
            ("a ", "a"),
            ("a:b", "a?b"),
            ("\u{ac00}", "\u{1100}\u{1161}"),
            ("\u{390}", "\u{3b9}\u{308}\u{301}"),
        ] {
            assert_eq!(skeleton(one.as_bytes()), skeleton(other.as_bytes()), "{one} {other}");
        }
        for (one, other) in [("a", "b"), ("\u{e9}", "a"), ("\u{65e5}", "\u{672c}"), ("1", "2")] {
            assert_ne!(skeleton(one.as_bytes()), skeleton(other.as_bytes()), "{one} {other}");
        }
    }

    #[test]
    fn grouped_entries_keep_their_order() {
        let Grouped { alone, groups } = group(vec!["b", "X", "A", "c", "x", "a"], |name| name.as_bytes().to_vec());
        assert_eq!((alone, groups), (vec!["b", "c"], vec![vec!["X", "x"], vec!["A", "a"]]));
    }
}
