//! An index from keys to entries.
//!
//! It is divided into many small tables: a single table would now and then move all its entries to a larger one, and
//! clients would wait for that.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use super::key::Key;
use super::types::EntryId;

/// The number of tables.
const PARTS: usize = 256;
/// The capacity that an empty table keeps.
const KEPT: usize = 4;

#[derive(Debug)]
pub(super) struct Index {
    parts: Vec<HashMap<Key, EntryId, BuildHasherDefault<KeyHasher>>>,
}

/// Uses bits of the key's hash, which is keyed: a client cannot cause collisions.
#[derive(Debug, Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        // Keys only write a number; see `Key`.
        self.0 = bytes.iter().fold(self.0, |hash, byte| hash.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl Default for Index {
    fn default() -> Index {
        Index { parts: (0..PARTS).map(|_| HashMap::default()).collect() }
    }
}

impl Index {
    pub(super) fn get(&self, key: &Key) -> Option<EntryId> {
        self.parts[part(key)].get(key).copied()
    }

    pub(super) fn insert(&mut self, key: Key, id: EntryId) {
        self.parts[part(&key)].insert(key, id);
    }

    /// Removes a key. An empty table gives its memory back.
    pub(super) fn remove(&mut self, key: &Key) {
        let part = &mut self.parts[part(key)];
        part.remove(key);
        if part.is_empty() {
            part.shrink_to(KEPT);
        }
    }
}

/// The table of a key, by bits of the hash that the tables do not use.
fn part(key: &Key) -> usize {
    key.spread() as usize % PARTS
}

#[cfg(test)]
mod tests {
    use remora_base::Peer;
    use remora_wire::nfs3::Proc;
    use remora_wire::rpc::OpaqueAuth;

    use super::super::key::Keys;
    use super::*;

    #[test]
    fn index_parts_are_balanced_and_shrink() {
        const KEYS: u32 = 100_000;
        let keys = Keys::new(1);
        let peer = Peer::stream(([10, 0, 0, 1], 700).into(), 1);
        // The same request with different XIDs, as from a client that writes the same again and again.
        let key = |xid: u32| keys.request(peer, xid, Proc::Write, &OpaqueAuth::none(), b"the same").key();
        let mut index = Index::default();
        (0..KEYS).for_each(|n| index.insert(key(n), EntryId(n.into())));
        assert!((0..KEYS).all(|n| index.get(&key(n)) == Some(EntryId(n.into()))));
        let largest = index.parts.iter().map(HashMap::len).max().unwrap();
        assert!(largest < 2 * KEYS as usize / PARTS, "{largest}");
        (0..KEYS).for_each(|n| index.remove(&key(n)));
        assert!(index.parts.iter().all(|part| part.is_empty() && part.capacity() < 2 * KEPT), "room is given back");
    }
}
