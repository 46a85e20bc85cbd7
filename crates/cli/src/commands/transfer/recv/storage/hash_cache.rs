//! Hashes of files, valid while the files do not change.

use std::collections::BTreeMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use crate::cp::resume::lock_file::AS_IT_IS;

/// Files that are remembered.
const FILES_MAX: usize = 1024;
/// Two changes within one tick of a file system's clock look like one: what changed so shortly before it was hashed
/// is not remembered. FAT has the longest ticks.
const TICK: Duration = Duration::from_secs(3);
/// Bytes hashed between two checks for cancellation.
const BLOCK: usize = 1 << 20;

/// A file in one state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    number: (u64, u64),
    size: u64,
    mtime: (i64, i64),
    ctime: (i64, i64),
}

impl Stamp {
    pub(crate) fn of(meta: &Metadata) -> Stamp {
        let (mtime, ctime) = ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()));
        Stamp { number: (meta.dev(), meta.ino()), size: meta.size(), mtime, ctime }
    }

    /// Whether it had come to rest by then.
    fn rests(&self, by: SystemTime) -> bool {
        let by = by.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().saturating_sub(TICK);
        let last = self.mtime.0.max(self.ctime.0);
        u64::try_from(last).is_ok_and(|last| last < by.as_secs())
    }
}

/// The hashes that are known.
#[derive(Debug, Default)]
pub(crate) struct HashCache(BTreeMap<(u64, u64), (Stamp, blake3::Hash)>);

impl HashCache {
    pub(crate) fn get(&self, stamp: &Stamp) -> Option<blake3::Hash> {
        self.0.get(&stamp.number).filter(|(of, _)| of == stamp).map(|(_, hash)| *hash)
    }

    /// Takes note of what a file was found to hash to, from `began` on.
    pub(crate) fn note(&mut self, stamp: Stamp, hash: blake3::Hash, began: SystemTime) {
        if !stamp.rests(began) {
            return;
        }
        self.insert(stamp, hash);
    }

    /// The same, for who does not mind that it may have changed within a tick.
    pub(crate) fn insert(&mut self, stamp: Stamp, hash: blake3::Hash) {
        if self.0.len() >= FILES_MAX && !self.0.contains_key(&stamp.number) {
            // Whichever it is: it is hashed again.
            self.0.pop_first();
        }
        self.0.insert(stamp.number, (stamp, hash));
    }
}

/// The hash of what a file was all the while; no link is followed to it.
pub(crate) fn hash_at(path: &Path, stop: &AtomicBool) -> io::Result<(Stamp, blake3::Hash)> {
    let file = OpenOptions::new().read(true).custom_flags(AS_IT_IS).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let hash = hash_of(&file, stop)?;
    let stamp = Stamp::of(&meta);
    if Stamp::of(&file.metadata()?) != stamp {
        return Err(io::Error::other("changed while it was read"));
    }
    Ok((stamp, hash))
}

/// The hash of an open file, unless that is to stop.
pub(crate) fn hash_of(file: &File, stop: &AtomicBool) -> io::Result<blake3::Hash> {
    let (mut hasher, mut block) = (blake3::Hasher::new(), vec![0; BLOCK]);
    while !stop.load(Ordering::Relaxed) {
        match file.read_at(&mut block, hasher.count()) {
            Ok(0) => return Ok(hasher.finalize()),
            Ok(n) => hasher.update(block.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e),
        };
    }
    Err(io::Error::other("it was stopped"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_hash_is_used_only_for_an_unchanged_settled_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        std::fs::write(&path, vec![7; BLOCK + 1]).unwrap();
        let (stamp, hash) = hash_at(&path, &AtomicBool::new(false)).unwrap();
        assert_eq!(hash, blake3::hash(&[7; BLOCK + 1]));
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(stamp.ctime.0 as u64);
        for (after, is_known) in [(0, false), (3, false), (4, true)] {
            let mut known = HashCache::default();
            known.note(stamp, hash, changed + Duration::from_secs(after));
            assert_eq!(known.get(&stamp).is_some(), is_known, "{after}");
            let (seconds, nanos) = stamp.ctime;
            for other in [Stamp { size: 1, ..stamp }, Stamp { ctime: (seconds, nanos + 1), ..stamp }] {
                assert_eq!(known.get(&other), None);
            }
        }
        assert!(hash_at(&path, &AtomicBool::new(true)).is_err());
    }

    #[test]
    fn hash_cache_is_bounded() {
        let mut known = HashCache::default();
        for n in 0..2 * FILES_MAX as u64 {
            let stamp = Stamp { number: (1, n), size: 0, mtime: (0, 0), ctime: (0, 0) };
            known.note(stamp, blake3::hash(b""), SystemTime::now());
            assert!(known.get(&stamp).is_some());
        }
        assert_eq!(known.0.len(), FILES_MAX);
    }
}
