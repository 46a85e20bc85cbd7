//! A slab of entries with intrusive lists.
//!
//! All operations take constant time: a slot is found by its number, and an entry is on two lists by links in its
//! slot. Slots are allocated in chunks that never move, because moving all entries to a larger allocation took tens
//! of milliseconds.

use super::types::EntryId;

const NONE: u32 = u32::MAX;

/// The kinds of lists. Each has its own links in a slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    /// All completed entries by age.
    Age,
    /// One client's completed entries by age.
    Client,
}

/// A list's ends.
#[derive(Debug)]
pub(super) struct List {
    by: By,
    front: u32,
    back: u32,
}

impl List {
    pub(super) fn new(by: By) -> List {
        List { by, front: NONE, back: NONE }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.front == NONE
    }
}

#[derive(Clone, Copy, Debug)]
struct Link {
    before: u32,
    behind: u32,
}

const UNLINKED: Link = Link { before: NONE, behind: NONE };

#[derive(Debug)]
struct Place<T> {
    /// Distinguishes the entry from earlier ones in the slot, whose ids must find nothing.
    turn: u32,
    /// For [`By::Age`] and [`By::Client`]. In a free slot the first links to the next free one.
    links: [Link; 2],
    value: Option<T>,
}

#[derive(Debug)]
pub(super) struct Slab<T> {
    chunks: Vec<Vec<Place<T>>>,
    free: u32,
    len: usize,
    /// Entries so far, modulo 2^32.
    turns: u32,
}

/// Slots in a chunk. One empty chunk is kept.
const CHUNK: usize = 1024;

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { chunks: Vec::new(), free: NONE, len: 0, turns: 0 }
    }
}

impl<T> Slab<T> {
    /// Inserts an entry that is on no list. `None` if all slot numbers are used.
    pub(super) fn insert(&mut self, value: T) -> Option<EntryId> {
        let at = if self.free == NONE { self.another()? } else { self.free };
        let turn = self.turns.wrapping_add(1);
        let fresh = Place { turn, links: [UNLINKED; 2], value: Some(value) };
        let former = std::mem::replace(self.at_mut(at)?, fresh);
        self.free = former.links[0].behind;
        self.turns = turn;
        self.len += 1;
        Some(id(at, turn))
    }

    /// Adds a slot.
    fn another(&mut self) -> Option<u32> {
        let full = self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK);
        if full {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let chunk = self.chunks.last_mut()?;
        let at = u32::try_from(before + chunk.len()).ok().filter(|at| *at != NONE)?;
        chunk.push(Place { turn: 0, links: [UNLINKED; 2], value: None });
        Some(at)
    }

    /// Removes an entry, which must be on no list.
    pub(super) fn remove(&mut self, entry: EntryId) -> Option<T> {
        let (at, free) = (number(entry), self.free);
        let place = self.place_mut(entry)?;
        let value = place.value.take()?;
        place.links[0].behind = free;
        self.free = at;
        self.len -= 1;
        if self.len == 0 && self.chunks.len() > 1 {
            // Gives the memory of a flood back.
            (self.chunks, self.free) = (Vec::new(), NONE);
        }
        Some(value)
    }

    /// The size of a slot in bytes.
    #[cfg(test)]
    pub(super) const fn place_bytes() -> usize {
        size_of::<Place<T>>()
    }

    pub(super) fn get(&self, entry: EntryId) -> Option<&T> {
        let place = self.at(number(entry))?;
        place.value.as_ref().filter(|_| place.turn == turn(entry))
    }

    pub(super) fn get_mut(&mut self, entry: EntryId) -> Option<&mut T> {
        self.place_mut(entry)?.value.as_mut()
    }

    /// The first entry of a list.
    pub(super) fn front(&self, list: &List) -> Option<EntryId> {
        let place = self.at(list.front)?;
        Some(id(list.front, place.turn))
    }

    /// Appends an entry, which must be on no list of that kind.
    pub(super) fn push_back(&mut self, list: &mut List, entry: EntryId) {
        let (at, last) = (number(entry), list.back);
        let Some(link) = self.link(list.by, at) else { return };
        *link = Link { before: last, behind: NONE };
        match self.link(list.by, last) {
            Some(link) => link.behind = at,
            None => list.front = at,
        }
        list.back = at;
    }

    /// Removes an entry from its list.
    pub(super) fn unlink(&mut self, list: &mut List, entry: EntryId) {
        let Some(link) = self.link(list.by, number(entry)) else { return };
        let Link { before, behind } = std::mem::replace(link, UNLINKED);
        match self.link(list.by, before) {
            Some(link) => link.behind = behind,
            None => list.front = behind,
        }
        match self.link(list.by, behind) {
            Some(link) => link.before = before,
            None => list.back = before,
        }
    }

    fn place_mut(&mut self, entry: EntryId) -> Option<&mut Place<T>> {
        self.at_mut(number(entry)).filter(|place| place.turn == turn(entry))
    }

    fn link(&mut self, by: By, at: u32) -> Option<&mut Link> {
        self.at_mut(at).map(|place| &mut place.links[by as usize])
    }

    fn at(&self, at: u32) -> Option<&Place<T>> {
        self.chunks.get(at as usize / CHUNK)?.get(at as usize % CHUNK)
    }

    fn at_mut(&mut self, at: u32) -> Option<&mut Place<T>> {
        self.chunks.get_mut(at as usize / CHUNK)?.get_mut(at as usize % CHUNK)
    }
}

fn id(at: u32, turn: u32) -> EntryId {
    EntryId(u64::from(turn) << 32 | u64::from(at))
}

fn number(entry: EntryId) -> u32 {
    entry.0 as u32
}

fn turn(entry: EntryId) -> u32 {
    (entry.0 >> 32) as u32
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Copy, Debug)]
    enum Op {
        Insert(bool),
        Remove(prop::sample::Index),
        ToBack(prop::sample::Index),
        Flood,
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            6 => any::<bool>().prop_map(Op::Insert),
            4 => any::<prop::sample::Index>().prop_map(Op::Remove),
            4 => any::<prop::sample::Index>().prop_map(Op::ToBack),
            1 => Just(Op::Flood),
        ]
    }

    fn on_list(slab: &mut Slab<u32>, list: &mut List) -> Vec<u32> {
        let ids: Vec<EntryId> = std::iter::from_fn(|| {
            let id = slab.front(list)?;
            slab.unlink(list, id);
            Some(id)
        })
        .collect();
        ids.iter().for_each(|id| slab.push_back(list, *id));
        ids.iter().map(|id| *slab.get(*id).expect("what is on a list is here")).collect()
    }

    proptest! {
        /// Against a queue: all entries are on one list, every second one on the other as well.
        #[test]
        fn lists_keep_their_order_and_ids_find_their_own_entry_only(ops in prop::collection::vec(op(), 0..100)) {
            let (mut slab, mut all, mut some) = (Slab::default(), List::new(By::Age), List::new(By::Client));
            let mut model: VecDeque<(EntryId, u32, bool)> = VecDeque::new();
            let mut former = Vec::new();
            let mut next = 0;
            for op in ops {
                match op {
                    Op::Insert(both) => {
                        next += 1;
                        let id = slab.insert(next).unwrap();
                        slab.push_back(&mut all, id);
                        if both {
                            slab.push_back(&mut some, id);
                        }
                        model.push_back((id, next, both));
                    }
                    Op::Remove(i) if !model.is_empty() => {
                        let (id, value, both) = model.remove(i.index(model.len())).unwrap();
                        slab.unlink(&mut all, id);
                        if both {
                            slab.unlink(&mut some, id);
                        }
                        prop_assert_eq!(slab.remove(id), Some(value));
                        former.push(id);
                    }
                    Op::ToBack(i) if !model.is_empty() => {
                        let entry = model.remove(i.index(model.len())).unwrap();
                        slab.unlink(&mut all, entry.0);
                        slab.push_back(&mut all, entry.0);
                        if entry.2 {
                            slab.unlink(&mut some, entry.0);
                            slab.push_back(&mut some, entry.0);
                        }
                        model.push_back(entry);
                    }
                    Op::Flood if model.is_empty() => {
                        let ids: Vec<EntryId> = (0..2 * CHUNK as u32).map(|n| slab.insert(n).unwrap()).collect();
                        ids.iter().for_each(|id| { slab.remove(*id); });
                        prop_assert!(slab.chunks.is_empty(), "the room is given back");
                        former.extend(ids.into_iter().take(3));
                    }
                    Op::Remove(_) | Op::ToBack(_) | Op::Flood => {}
                }
                prop_assert_eq!(on_list(&mut slab, &mut all), model.iter().map(|e| e.1).collect::<Vec<_>>());
                prop_assert_eq!(
                    on_list(&mut slab, &mut some),
                    model.iter().filter(|e| e.2).map(|e| e.1).collect::<Vec<_>>()
                );
                prop_assert!(former.iter().all(|id| slab.get(*id).is_none() && slab.remove(*id).is_none()));
                prop_assert_eq!(some.is_empty(), !model.iter().any(|e| e.2));
            }
        }
    }
}
