//! File ids that wait_and_release a restart without any privilege.
//!
//! An id is the inode number, the time of birth (which tells an inode's lives apart), and a
//! hint where to look: one byte for each directory between the root and the object. The hint
//! narrows a search; what is found counts only if number and birth match.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::FileId;

/// What an object is, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct InodeKey {
    /// Inode number.
    pub(crate) ino: u64,
    /// Birth in nanoseconds since 1970; where the file system does not tell, 0 or what [`InodeGeneration`](crate::local::inode::inode_generation::InodeGeneration)
    /// has for it.
    pub(crate) birth_ns: u64,
}

/// A byte of hash for each directory on the way from the root (which has none) down to the
/// object's parent, as far as they fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PathHint {
    len: u8,
    bytes: [u8; PathHint::MAX],
}

impl PathHint {
    /// The most directories a hint describes.
    pub(crate) const MAX: usize = FileId::MAX - 16;

    /// The hint for objects in directory `dir`, whose own hint this is.
    pub(crate) fn below(mut self, dir: u64) -> PathHint {
        if let Some(slot) = self.bytes.get_mut(usize::from(self.len)) {
            *slot = hash(dir);
            self.len += 1;
        }
        self
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Whether the way down may lead from a directory at `depth` (the root: 0) through its
    /// subdirectory `dir`.
    pub(crate) fn leads_through(&self, depth: usize, dir: u64) -> bool {
        match self.as_bytes().get(depth) {
            Some(byte) => *byte == hash(dir),
            // Deeper than a hint can tell.
            None => depth >= PathHint::MAX,
        }
    }
}

/// Only the byte matters, and only to this program; but it must not change between versions.
fn hash(ino: u64) -> u8 {
    let mut h = SipHasher13::new_with_keys(0, 0);
    h.write_u64(ino.to_le());
    h.finish() as u8
}

pub(crate) fn encode(key: InodeKey, hint: &PathHint) -> Option<FileId> {
    let mut bytes = [0; FileId::MAX];
    let (ino, rest) = bytes.split_first_chunk_mut()?;
    let (born, rest) = rest.split_first_chunk_mut()?;
    (*ino, *born) = (key.ino.to_be_bytes(), key.birth_ns.to_be_bytes());
    rest.get_mut(..hint.as_bytes().len())?.copy_from_slice(hint.as_bytes());
    FileId::new(bytes.get(..16 + hint.as_bytes().len())?)
}

pub(crate) fn decode(id: &FileId) -> Option<(InodeKey, PathHint)> {
    let (ino, rest) = id.as_bytes().split_first_chunk()?;
    let (born, hint) = rest.split_first_chunk()?;
    let mut bytes = [0; PathHint::MAX];
    bytes.get_mut(..hint.len())?.copy_from_slice(hint);
    let key = InodeKey { ino: u64::from_be_bytes(*ino), birth_ns: u64::from_be_bytes(*born) };
    Some((key, PathHint { len: hint.len() as u8, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_come_back_with_hints_of_every_length() {
        let key = InodeKey { ino: 7, birth_ns: 9 };
        let mut hint = PathHint::default();
        for depth in 0..40 {
            let id = encode(key, &hint).unwrap();
            assert_eq!(decode(&id), Some((key, hint)));
            assert_eq!(id.as_bytes().len(), 16 + depth.min(PathHint::MAX));
            hint = hint.below(100 + depth as u64);
        }
        for short in [&b""[..], b"1234567", b"123456789abcdef"] {
            assert_eq!(decode(&FileId::new(short).unwrap()), None);
        }
    }

    #[test]
    fn a_hint_leads_through_the_directories_it_was_made_of() {
        let dirs: Vec<u64> = (0..30).map(|i| i * 977).collect();
        let hint = dirs.iter().fold(PathHint::default(), |h, d| h.below(*d));
        assert!(dirs.iter().enumerate().all(|(depth, d)| hint.leads_through(depth, *d)));
        let strangers = (0..1000).filter(|d| hint.leads_through(3, 1_000_000 + d)).count();
        assert!(strangers < 20, "{strangers} of 1000");
        assert!(!PathHint::default().leads_through(0, 1));
    }
}
