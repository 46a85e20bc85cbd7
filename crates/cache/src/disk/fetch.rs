//! Loads and reads from the disk cache.

use std::ops::Range;

use crate::disk::object::{DiskState, Load};
use crate::disk::queue::DiskRead;
use crate::node::NodeId;
use crate::ranges::RangeSet;
use crate::state::{Op, State, Stop};

/// Maximum bytes of a read.
const READ_MAX: u64 = 1 << 20;

/// Asks the disk for the record of an object, unless the record is known.
pub(crate) fn start_load(state: &mut State, id: NodeId) {
    let is_on = state.disk.is_on;
    let Some(node) = state.nodes.get_mut(id).filter(|node| is_on && node.disk.is_none()) else { return };
    let mut disk = DiskState::default();
    if state.disk.has_room() {
        disk.load = Load::InFlight;
        state.disk.read(id, node.fh.clone(), None, state.now);
    }
    node.disk = Some(Box::new(disk));
}

/// The object was made here just now: the disk has nothing of it.
pub(crate) fn made(state: &mut State, id: NodeId) {
    let is_on = state.disk.is_on;
    if let Some(node) = state.nodes.get_mut(id).filter(|_| is_on) {
        node.disk.get_or_insert_default();
    }
}

/// Waits until it is known what the disk has of an object.
pub(crate) fn loaded(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    start_load(state, id);
    let load = state.disk.reads_of(id).find(|read| read.range.is_none());
    load.map_or(Ok(()), |load| {
        load.waiters.insert(op.unique);
        Err(Stop::Wait)
    })
}

/// Whether the disk has all data of a file, or that is unknown yet.
pub(crate) fn may_have(state: &mut State, id: NodeId, size: u64) -> bool {
    start_load(state, id);
    let disk = state.nodes.get(id).and_then(|node| node.disk.as_ref());
    disk.is_some_and(|disk| !matches!(disk.load, Load::Done) || disk.ranges.gaps(0..size).is_empty())
}

/// Starts disk reads for the parts of `wanted` that the disk has, and leaves the other parts in `wanted`. While the
/// disk has not answered which parts it has, `wanted` becomes empty.
pub(crate) fn fetch(state: &mut State, id: NodeId, wanted: &mut RangeSet) {
    let Some(node) = state.nodes.get(id) else { return };
    let Some(disk) = &node.disk else { return };
    if matches!(disk.load, Load::InFlight) {
        return wanted.clear();
    }
    for read in state.disk.reads_of(id) {
        read.range.clone().into_iter().for_each(|range| wanted.remove(range));
    }
    let mut found = wanted.clone();
    wanted.iter().flat_map(|range| disk.ranges.gaps(range)).for_each(|gap| found.remove(gap));
    for range in found.iter() {
        for start in (range.start..range.end).step_by(READ_MAX as usize) {
            let part = start..range.end.min(start + READ_MAX);
            if !state.disk.has_room() {
                return;
            }
            wanted.remove(part.clone());
            state.disk.read(id, node.fh.clone(), Some(part), state.now);
        }
    }
}

/// The operation `unique` runs again when the disk has answered.
pub(crate) fn wait_for(state: &mut State, id: NodeId, wanted: &Range<u64>, unique: u64) {
    let overlaps = |range: &Range<u64>| range.start < wanted.end && range.end > wanted.start;
    for read in state.disk.reads_of(id).filter(|read| read.range.as_ref().is_none_or(overlaps)) {
        read.waiters.insert(unique);
    }
}

/// A load or read has ended: the server is asked for what is not in memory now.
pub(crate) fn end(state: &mut State, read: DiskRead) {
    if let Some(node) = state.nodes.get_mut(read.node)
        && let Some(disk) = node.disk.as_deref_mut()
    {
        match (read.range, &node.file) {
            (Some(range), Some(file)) => {
                file.extents.missing(range).into_iter().for_each(|gap| disk.ranges.remove(gap));
            }
            (Some(range), None) => disk.ranges.remove(range),
            (None, _) if matches!(disk.load, Load::InFlight) => disk.load = Load::Done,
            (None, _) => {}
        }
    }
    state.ready.extend(read.waiters);
}

/// Gives up what the disk does not answer.
pub(crate) fn handle_timeout(state: &mut State) {
    while let Some(read) = state.disk.pop_late(state.now) {
        end(state, read);
    }
}

/// Uses the disk cache no more.
pub(crate) fn switch_off(state: &mut State) {
    let reads = std::mem::take(&mut state.disk).reads;
    reads.into_values().for_each(|read| end(state, read));
}
