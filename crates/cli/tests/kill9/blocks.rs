//! What may be in a file whose writes were acknowledged, committed, or cut off by a kill.

use std::collections::BTreeSet;

use remora_wire::nfs3::Stable;

/// Bytes of a block: a page, which a killed process has written as a whole or not at all.
pub(crate) const BLOCK: usize = 4096;
/// Blocks of a file.
pub(crate) const BLOCKS: usize = 16;

/// Versions of one block. Version 0 is a hole.
#[derive(Clone, Default)]
struct Block {
    /// The last one acknowledged as stable.
    safe: u64,
    /// Those acknowledged since, and not committed.
    unsafe_since: Vec<u64>,
}

/// A file of blocks, as its only writer knows it.
pub(crate) struct Blocks {
    /// Tells the blocks of different files apart.
    file: u64,
    blocks: Vec<Block>,
    /// The verifier under which data are uncommitted.
    verf: Option<[u8; 8]>,
}

impl Blocks {
    pub(crate) fn new(file: u64) -> Blocks {
        Blocks { file, blocks: vec![Block::default(); BLOCKS], verf: None }
    }

    /// The bytes of `count` blocks from `first` on in this version.
    pub(crate) fn bytes(&self, first: usize, count: usize, version: u64) -> Vec<u8> {
        (first..first + count).flat_map(|n| content(self.file, n, version)).collect()
    }

    /// A WRITE was acknowledged. Whether data acknowledged before it are lost, as far as their
    /// writer can know.
    pub(crate) fn written(&mut self, first: usize, count: usize, version: u64, done: Stable, verf: [u8; 8]) -> bool {
        for block in &mut self.blocks[first..first + count] {
            if done == Stable::Unstable {
                block.unsafe_since.retain(|v| *v != version);
                block.unsafe_since.push(version);
            } else {
                *block = Block { safe: version, unsafe_since: Vec::new() };
            }
        }
        // What was written under another verifier may be gone.
        let lost = done == Stable::Unstable && self.verf.replace(verf).is_some_and(|before| before != verf);
        lost && self.is_uncommitted()
    }

    /// A COMMIT was acknowledged. Whether it says that data were lost.
    pub(crate) fn committed(&mut self, verf: [u8; 8]) -> bool {
        let lost = self.verf.is_some_and(|before| before != verf) && self.is_uncommitted();
        if !lost {
            for block in &mut self.blocks {
                block.safe = block.unsafe_since.last().copied().unwrap_or(block.safe);
                block.unsafe_since.clear();
            }
        }
        self.verf = None;
        lost
    }

    fn is_uncommitted(&self) -> bool {
        self.blocks.iter().any(|b| !b.unsafe_since.is_empty())
    }

    /// What is to be written again once data are lost: block and version.
    pub(crate) fn uncommitted(&self) -> Vec<(usize, u64)> {
        let last = |(n, b): (usize, &Block)| b.unsafe_since.last().map(|v| (n, *v));
        self.blocks.iter().enumerate().filter_map(last).collect()
    }

    /// Checks the bytes found from block `first` on; `under_way` is a write that was not
    /// acknowledged: first block, count and version. What is beyond the end counts as a hole.
    pub(crate) fn check(
        &self,
        first: usize,
        found: &[u8],
        under_way: Option<(usize, usize, u64)>,
    ) -> Result<(), String> {
        for (n, bytes) in (first..).zip(found.chunks(BLOCK)) {
            let Some(block) = self.blocks.get(n) else { return Err(format!("block {n} was never written")) };
            let mut allowed: BTreeSet<u64> = block.unsafe_since.iter().copied().collect();
            allowed.insert(block.safe);
            allowed.extend(under_way.filter(|(first, count, _)| (*first..first + count).contains(&n)).map(|w| w.2));
            if !allowed.iter().any(|version| content(self.file, n, *version) == bytes) {
                let head = bytes.first_chunk().map(|b| u64::from_le_bytes(*b));
                return Err(format!("block {n} is none of its versions {allowed:?}; it begins with {head:?}"));
            }
        }
        Ok(())
    }

    /// Checks the whole file.
    pub(crate) fn check_all(&self, found: &[u8], under_way: Option<(usize, usize, u64)>) -> Result<(), String> {
        let mut found = found.to_vec();
        if found.len() > BLOCKS * BLOCK || !found.len().is_multiple_of(BLOCK) {
            return Err(format!("{} bytes are not what was written", found.len()));
        }
        found.resize(BLOCKS * BLOCK, 0);
        self.check(0, &found, under_way)
    }
}

/// A block's bytes: the version first, then what no other block or version has.
fn content(file: u64, block: usize, version: u64) -> Vec<u8> {
    if version == 0 {
        return vec![0; BLOCK];
    }
    let mut state = (file << 40 | (block as u64) << 32 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = version.to_le_bytes().to_vec();
    while bytes.len() < BLOCK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

#[test]
fn checker_accepts_only_acknowledged_or_outstanding_data() {
    let (old, new) = ([1; 8], [2; 8]);
    let mut b = Blocks::new(3);
    assert!(b.check_all(&[], None).is_ok());
    assert!(!b.written(0, 2, 1, Stable::FileSync, old));
    let one = b.bytes(0, 2, 1);
    assert!(b.check_all(&one, None).is_ok() && b.check_all(&[], None).is_err());
    let torn = [&b.bytes(0, 1, 1)[..], &b.bytes(1, 1, 2)].concat();
    assert!(b.check_all(&torn, None).is_err() && b.check_all(&torn, Some((0, 2, 2))).is_ok());
    // Uncommitted data may be there or not; those of the version before may not be gone.
    assert!(!b.written(0, 1, 2, Stable::Unstable, old));
    let two = [&b.bytes(0, 1, 2)[..], &b.bytes(1, 1, 1)].concat();
    assert!(b.check_all(&one, None).is_ok() && b.check_all(&two, None).is_ok());
    assert!(b.committed(new), "another verifier: written again");
    assert_eq!(b.uncommitted(), [(0, 2)]);
    assert!(!b.written(0, 1, 2, Stable::Unstable, new) && !b.committed(new));
    assert!(b.check_all(&one, None).is_err() && b.check_all(&two, None).is_ok());
}
