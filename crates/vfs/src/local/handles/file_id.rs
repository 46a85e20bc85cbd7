//! File ids that survive restarts without privileges.
//!
//! An id is the inode number, the birth time, and a hint: one byte for each directory between the root and the object.
//! The hint narrows a search. What is found counts only if number and birth time match.

use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use crate::local::inode::stat::InodeKey;
use crate::types::FileId;

/// A byte of hash for each directory from below the root down to the object's parent, as many as fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PathHint {
    len: u8,
    bytes: [u8; PathHint::MAX],
}

impl PathHint {
    /// The most directories that a hint describes.
    pub(crate) const MAX: usize = FileId::MAX - 16;

    /// The hint of objects in the directory with inode number `dir`, whose own hint this is.
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

    /// Whether the path may lead from a directory at `depth` (the root: 0) through its subdirectory `dir`.
    pub(crate) fn leads_through(&self, depth: usize, dir: u64) -> bool {
        match self.as_bytes().get(depth) {
            Some(byte) => *byte == hash(dir),
            // True only if the path may be longer than the hint.
            None => depth >= PathHint::MAX,
        }
    }
}

/// Must not change between versions.
fn hash(ino: u64) -> u8 {
    let mut hasher = SipHasher13::new_with_keys(0, 0);
    hasher.write_u64(ino.to_le());
    hasher.finish() as u8
}

pub(crate) fn encode(key: InodeKey, hint: &PathHint) -> Option<FileId> {
    let mut bytes = [0; FileId::MAX];
    let (ino, rest) = bytes.split_first_chunk_mut()?;
    let (birth, rest) = rest.split_first_chunk_mut()?;
    (*ino, *birth) = (key.ino.to_be_bytes(), key.birth_ns.to_be_bytes());
    rest.get_mut(..hint.as_bytes().len())?.copy_from_slice(hint.as_bytes());
    FileId::new(bytes.get(..16 + hint.as_bytes().len())?)
}

pub(crate) fn decode(id: &FileId) -> Option<(InodeKey, PathHint)> {
    let (ino, rest) = id.as_bytes().split_first_chunk()?;
    let (birth, hint) = rest.split_first_chunk()?;
    let mut bytes = [0; PathHint::MAX];
    bytes.get_mut(..hint.len())?.copy_from_slice(hint);
    let key = InodeKey { ino: u64::from_be_bytes(*ino), birth_ns: u64::from_be_bytes(*birth) };
    Some((key, PathHint { len: hint.len() as u8, bytes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_inverts_encode_for_every_hint_length() {
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
    fn hint_leads_through_its_own_directories() {
        let dirs: Vec<u64> = (0..30).map(|i| i * 977).collect();
        let hint = dirs.iter().fold(PathHint::default(), |h, d| h.below(*d));
        assert!(dirs.iter().enumerate().all(|(depth, d)| hint.leads_through(depth, *d)));
        let others = (0..1000).filter(|d| hint.leads_through(3, 1_000_000 + d)).count();
        assert!(others < 20, "{others} of 1000 other directories");
        assert!(!PathHint::default().leads_through(0, 1));
    }
}
