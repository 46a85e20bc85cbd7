//! Handles of what was removed: the newest few, and some of all the others.

use remora_base::Rng;
use remora_wire::nfs3::Fh;

/// Most handles remembered.
const MAX: usize = 64;
/// The newest of them, which are kept; older ones may be dropped.
const NEWEST: usize = 4;

pub(crate) struct Gone {
    rng: Rng,
    handles: Vec<Fh>,
}

impl Gone {
    pub(crate) fn new(seed: u64, number: u64) -> Gone {
        Gone { rng: Rng::stream(seed, &format!("gone {number}")), handles: Vec::new() }
    }

    pub(crate) fn extend(&mut self, handles: impl IntoIterator<Item = Fh>) {
        self.handles.extend(handles);
        while self.handles.len() > MAX {
            self.handles.remove(self.rng.below((MAX - NEWEST) as u64) as usize);
        }
    }

    /// The newest, and others by chance, `n` in all if there are so many.
    pub(crate) fn some(&mut self, n: usize) -> Vec<Fh> {
        let mut left: Vec<&Fh> = self.handles.iter().collect();
        let mut some: Vec<Fh> = left.pop().cloned().into_iter().collect();
        while some.len() < n && !left.is_empty() {
            some.push(left.swap_remove(self.rng.below(left.len() as u64) as usize).clone());
        }
        some
    }
}

#[test]
fn newest_handles_and_samples_of_each_age_are_kept() {
    let fh = |n: u32| Fh(n.to_be_bytes().to_vec().into());
    let mut gone = Gone::new(1, 0);
    gone.extend((0..1000).map(fh));
    let kept = |from, to| (from..to).filter(|n| gone.handles.contains(&fh(*n))).count();
    assert_eq!((kept(0, 1000), kept(996, 1000)), (MAX, NEWEST));
    assert!(kept(0, 990) > 30);
    let mut asked: Vec<Fh> = (0..200).flat_map(|_| gone.some(3)).collect();
    assert!(asked.chunks(3).all(|some| some[0] == fh(999) && some[1] != some[2]));
    asked.sort_by(|a, b| a.0.cmp(&b.0));
    asked.dedup();
    assert_eq!(asked.len(), MAX, "all are asked for in the end");
}
