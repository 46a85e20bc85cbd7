//! The bytes of a file on a disk with a volatile cache.
//!
//! Two versions share their blocks: the visible one, and the durable one, which a crash restores. For blocks with
//! volatile writes, the durable version is stored separately. Absent blocks are zeros, so a hole takes no space.

use std::collections::BTreeMap;

/// Bytes per block.
pub(crate) const BLOCK: u64 = 4096;

type Block = Box<[u8; BLOCK as usize]>;

/// The content of a file. Invariant: the bytes of a block at and after the file size are 0.
#[derive(Default)]
pub(crate) struct Content {
    size: u64,
    blocks: BTreeMap<u64, Block>,
    durable_size: u64,
    /// The durable version of blocks with volatile changes (`None`: zeros).
    shadow: BTreeMap<u64, Option<Block>>,
}

impl Content {
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The number of blocks that take space.
    pub(crate) fn allocated(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// Whether a crash would change anything.
    pub(crate) fn is_volatile(&self) -> bool {
        self.size != self.durable_size || !self.shadow.is_empty()
    }

    /// The number of blocks that a write of `len` bytes at `offset` would add.
    pub(crate) fn growth(&self, offset: u64, len: u64) -> u64 {
        if len == 0 {
            return 0;
        }
        let (first, end) = (offset / BLOCK, (offset + len).div_ceil(BLOCK));
        (end - first).saturating_sub(self.blocks.range(first..end).count() as u64)
    }

    /// At most `count` visible bytes from `offset`.
    pub(crate) fn read(&self, offset: u64, count: u64) -> Vec<u8> {
        copy_out(|b| self.blocks.get(&b), offset, count.min(self.size.saturating_sub(offset)))
    }

    /// All durable bytes.
    pub(crate) fn read_durable(&self) -> Vec<u8> {
        let block = |b| match self.shadow.get(&b) {
            Some(durable) => durable.as_ref(),
            None => self.blocks.get(&b),
        };
        copy_out(block, 0, self.durable_size)
    }

    /// Writes `data` at `offset`. With `durable`, these bytes (and no others) survive a crash. Writing no bytes changes
    /// nothing, as in POSIX.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8], durable: bool) {
        if data.is_empty() {
            return;
        }
        for (block, at, piece) in pieces(offset, data) {
            if !durable {
                let visible = self.blocks.get(&block);
                self.shadow.entry(block).or_insert_with(|| visible.cloned());
            } else if let Some(kept) = self.shadow.get_mut(&block) {
                put(kept.get_or_insert_with(zeros), at, piece);
            }
            put(self.blocks.entry(block).or_insert_with(zeros), at, piece);
        }
        let end = offset + data.len() as u64;
        self.size = self.size.max(end);
        if durable {
            self.durable_size = self.durable_size.max(end);
        }
    }

    /// Truncates, or extends with zeros. The new size is durable at once; volatile bytes below it stay volatile.
    pub(crate) fn set_size(&mut self, size: u64) {
        let keep = size.div_ceil(BLOCK);
        self.blocks.split_off(&keep);
        self.shadow.split_off(&keep);
        let tail = (size % BLOCK) as usize;
        if tail != 0 {
            let last = keep - 1;
            let versions = [self.blocks.get_mut(&last), self.shadow.get_mut(&last).and_then(Option::as_mut)];
            versions.into_iter().flatten().for_each(|b| b[tail..].fill(0));
        }
        (self.size, self.durable_size) = (size, size);
    }

    /// Makes everything visible durable.
    pub(crate) fn flush(&mut self) {
        self.shadow.clear();
        self.durable_size = self.size;
    }

    /// Restores the durable version.
    pub(crate) fn revert(&mut self) {
        for (b, durable) in std::mem::take(&mut self.shadow) {
            match durable {
                Some(block) => self.blocks.insert(b, block),
                None => self.blocks.remove(&b),
            };
        }
        self.size = self.durable_size;
    }
}

fn zeros() -> Block {
    Box::new([0; BLOCK as usize])
}

fn put(block: &mut Block, at: usize, piece: &[u8]) {
    block[at..at + piece.len()].copy_from_slice(piece);
}

/// Splits `data` at block boundaries: (block, offset in it, bytes).
fn pieces(offset: u64, data: &[u8]) -> impl Iterator<Item = (u64, usize, &[u8])> {
    let (mut offset, mut rest) = (offset, data);
    std::iter::from_fn(move || {
        let at = offset % BLOCK;
        let len = rest.len().min((BLOCK - at) as usize);
        let (piece, later) = rest.split_at(len);
        let this = (offset / BLOCK, at as usize, piece);
        offset += len as u64;
        rest = later;
        (len > 0).then_some(this)
    })
}

fn copy_out<'a>(block: impl Fn(u64) -> Option<&'a Block>, offset: u64, count: u64) -> Vec<u8> {
    let mut out = vec![0; count as usize];
    let mut done = 0;
    while done < out.len() {
        let at = offset + done as u64;
        let from = (at % BLOCK) as usize;
        let len = (out.len() - done).min(BLOCK as usize - from);
        if let Some(b) = block(at / BLOCK) {
            out[done..done + len].copy_from_slice(&b[from..from + len]);
        }
        done += len;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, Vec<u8>, bool),
        SetSize(u64),
        Flush,
        Revert,
    }

    fn step() -> impl Strategy<Value = Step> {
        let span = 3 * BLOCK;
        prop_oneof![
            4 => (0..span, prop::collection::vec(1..=255u8, 0..5000), any::<bool>())
                .prop_map(|(o, d, s)| Step::Write(o, d, s)),
            1 => (0..span).prop_map(Step::SetSize),
            1 => Just(Step::Flush),
            1 => Just(Step::Revert),
        ]
    }

    fn put_flat(flat: &mut Vec<u8>, offset: usize, data: &[u8]) {
        if !data.is_empty() && flat.len() < offset + data.len() {
            flat.resize(offset + data.len(), 0);
        }
        if !data.is_empty() {
            flat[offset..offset + data.len()].copy_from_slice(data);
        }
    }

    #[test]
    fn empty_write_changes_nothing() {
        let mut c = Content::default();
        assert_eq!(c.growth(1, 0), 0);
        c.write(1, &[], true);
        assert_eq!((c.size(), c.allocated(), c.is_volatile()), (0, 0, false));
    }

    proptest! {
        /// Compares with two flat byte vectors, the visible and the durable one.
        #[test]
        fn content_agrees_with_a_flat_model(steps in prop::collection::vec(step(), 0..30)) {
            let (mut real, mut visible, mut durable) = (Content::default(), Vec::new(), Vec::new());
            for step in steps {
                match step {
                    Step::Write(offset, data, stable) => {
                        let before = real.allocated();
                        let growth = real.growth(offset, data.len() as u64);
                        real.write(offset, &data, stable);
                        prop_assert_eq!(real.allocated(), before + growth);
                        put_flat(&mut visible, offset as usize, &data);
                        if stable {
                            put_flat(&mut durable, offset as usize, &data);
                        }
                    }
                    Step::SetSize(n) => {
                        real.set_size(n);
                        visible.resize(n as usize, 0);
                        durable.resize(n as usize, 0);
                    }
                    Step::Flush => {
                        real.flush();
                        durable = visible.clone();
                    }
                    Step::Revert => {
                        real.revert();
                        visible = durable.clone();
                    }
                }
                prop_assert_eq!(real.read(0, u64::MAX), visible.clone());
                prop_assert_eq!(real.read_durable(), durable.clone());
                prop_assert!(real.is_volatile() || visible == durable);
            }
        }
    }
}
