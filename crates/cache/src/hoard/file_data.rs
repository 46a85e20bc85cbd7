//! What a walk does about the data of a file: reads what is neither in memory nor in the disk cache.

use remora_wire::nfs3;

use crate::call::Priority;
use crate::hoard::fetch;
use crate::hoard::status::HoardMissReason;
use crate::hoard::step::{Step, Work};
use crate::hoard::walk_state::ActiveObject;
use crate::node::{Node, NodeId};
use crate::ranges::RangeSet;
use crate::state::{Purpose, State};

/// Space that a file takes in the disk cache beside its data, about.
const RECORD_BYTES: u64 = 600;
/// Times its size that may be read of a file whose data is lost on the way to the disk.
const REREADS: u64 = 3;

/// Waits until the disk cache has all data of the file.
pub(crate) fn read(state: &mut State, work: &mut Work, id: NodeId, active: &mut ActiveObject) -> Result<(), Step> {
    let Some(node) = state.nodes.get(id) else { return Err(Step::Gone) };
    let size = node.size();
    if size > state.config.disk_file_max {
        return Err(Step::Missing(HoardMissReason::TooLarge));
    }
    if active.planned_bytes.is_none() {
        if size + RECORD_BYTES > work.disk_room {
            return Err(Step::Missing(HoardMissReason::NoRoom));
        }
        active.planned_bytes = Some(size + RECORD_BYTES);
    }
    let on_disk = node.disk.as_ref().map_or(u64::MAX, |disk| total(&disk.ranges.gaps(0..size)));
    if on_disk == 0 {
        (active.moving_bytes, active.known_bytes) = (0, size);
        return Ok(());
    }
    let missing = missing(node, size);
    let missing_bytes = total(&missing.iter().collect::<Vec<_>>());
    active.known_bytes = size - missing_bytes.min(size);
    active.moving_bytes = on_disk.min(size).saturating_sub(missing_bytes);
    if missing.is_empty() {
        return Err(Step::Wait);
    }
    if active.asked_bytes > size * REREADS + (1 << 20) {
        return Err(Step::Missing(HoardMissReason::Failed));
    }
    Err(ask(state, work, id, active, &missing))
}

fn total(ranges: &[std::ops::Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// What is neither in memory, nor on its way there or to the disk, nor on it.
fn missing(node: &Node, size: u64) -> RangeSet {
    let mut missing = RangeSet::default();
    missing.insert(0..size);
    if let Some(disk) = &node.disk {
        disk.ranges_to_come().iter().for_each(|range| missing.remove(range));
    }
    let Some(file) = &node.file else { return missing };
    let mut absent = RangeSet::default();
    missing.iter().flat_map(|range| file.extents.missing(range)).for_each(|gap| absent.insert(gap));
    file.reading.values().for_each(|range| absent.remove(range.clone()));
    absent
}

/// Sends READs for `missing`, as far as there is room.
fn ask(state: &mut State, work: &mut Work, id: NodeId, active: &mut ActiveObject, missing: &RangeSet) -> Step {
    let block = u64::from(state.link.read_block.max(512));
    let Some(fh) = state.nodes.get(id).map(|node| node.fh.clone()) else { return Step::Gone };
    for part in missing.iter() {
        let mut offset = part.start;
        while offset < part.end {
            let end = part.end.min(offset + block);
            if work.room == 0 || !fetch::has_room(state) {
                return Step::Starved;
            }
            let call = nfs3::Call::Read(nfs3::ReadArgs { fh: fh.clone(), offset, count: (end - offset) as u32 });
            let purpose = Purpose::Read { node: id, range: offset..end, reader: work.caller.clone() };
            let call = state.submit(Priority::Prefetch, &work.caller.auth, call, purpose);
            state.hoard.calls.insert(call);
            if let Some(node) = state.nodes.get_mut(id) {
                node.file().reading.insert(call, offset..end);
            }
            work.room = work.room.saturating_sub(end - offset);
            active.moving_bytes += end - offset;
            active.known_bytes += end - offset;
            active.asked_bytes += end - offset;
            offset = end;
        }
    }
    Step::Wait
}
