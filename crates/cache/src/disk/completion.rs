//! Results of the disk cache's jobs, and what is taken from it into memory.

use std::ops::Range;

use remora_base::Time;
use remora_wire::nfs3::Attr;

use crate::data;
use crate::disk::fetch;
use crate::disk::job::{DiskChild, DiskDone, DiskGrant, DiskJobId, DiskName, DiskObject, DiskPart};
use crate::disk::object::Load;
use crate::disk::save;
use crate::learn::{self, Names};
use crate::node::{CachedAttr, Grant, NodeId, Target};
use crate::ranges::RangeSet;
use crate::state::State;

/// The disk has done a job.
pub(crate) fn done(state: &mut State, job: DiskJobId, result: DiskDone) {
    let saved = state.disk.saves.remove(&job);
    let read = state.disk.reads.remove(&job);
    state.disk.ended += 1;
    state.hoard.disk_done(job, saved.or(read.as_ref().map(|read| read.node)), &result);
    match (result, read, saved) {
        (DiskDone::Failed, read, _) => {
            read.into_iter().for_each(|read| fetch::end(state, read));
            fetch::switch_off(state);
        }
        (DiskDone::Loaded(object), Some(read), _) => {
            load(state, read.node, object);
            fetch::end(state, read);
        }
        (DiskDone::Read(parts), Some(read), _) => {
            parts.into_iter().for_each(|part| take(state, read.node, part));
            fetch::end(state, read);
        }
        (_, Some(read), _) => fetch::end(state, read),
        (_, None, Some(id)) => save::saved(state, id, job),
        (_, None, None) => {}
    }
}

fn load(state: &mut State, id: NodeId, object: Option<Box<DiskObject>>) {
    let disk = state.nodes.get_mut(id).and_then(|node| node.disk.as_deref_mut());
    if let (Some(disk), Some(object)) = (disk, object) {
        disk.is_stored = true;
        disk.load = Load::Unconfirmed(object);
        if state.is_disconnected() { trust(state, id) } else { confirm(state, id) }
    }
}

/// Uses the records of objects whose attributes have come.
pub(crate) fn confirm_all(state: &mut State) {
    while let Some(id) = state.disk.confirmed.pop() {
        confirm(state, id);
    }
}

/// Uses what the disk has, confirmed or not: the mount is disconnected.
pub(crate) fn use_unconfirmed(state: &mut State) {
    let unconfirmed = |(id, node): (NodeId, &crate::node::Node)| {
        matches!(node.disk.as_ref()?.load, Load::Unconfirmed(_)).then_some(id)
    };
    let waiting: Vec<NodeId> = state.nodes.iter().filter_map(unconfirmed).collect();
    waiting.into_iter().for_each(|id| trust(state, id));
}

/// Takes the attributes of the disk's record for those of the server, as of long ago.
fn trust(state: &mut State, id: NodeId) {
    let Some(node) = state.nodes.get_mut(id).filter(|node| !node.is_local) else { return };
    let Some(disk) = node.disk.as_deref() else { return };
    let Load::Unconfirmed(object) = &disk.load else { return };
    // The record of the directory may have older ones.
    if node.attr.as_ref().is_none_or(|cached| cached.received == Time::ZERO) {
        node.attr = Some(old_attr(&object.record.attr));
        if id == NodeId::ROOT {
            node.fileid = object.record.attr.fileid;
        }
    }
    confirm(state, id);
}

fn old_attr(attr: &Attr) -> CachedAttr {
    CachedAttr { attr: attr.clone(), asked: Time::ZERO, received: Time::ZERO, since: Time::ZERO, outdated: None }
}

/// The object's attributes are known: what the disk has of it is used if it belongs to them.
fn confirm(state: &mut State, id: NodeId) {
    let is_disconnected = state.is_disconnected();
    let Some(node) = state.nodes.get_mut(id) else { return };
    // Unsent data lies over what the server had.
    let is_settled = save::is_settled(node) || is_disconnected && !node.is_stale && node.own.in_flight == 0;
    let unsent = node.file.as_ref().map(|file| file.uncommitted()).unwrap_or_default();
    let size = node.server_size().unwrap_or(u64::MAX);
    let (Some(cached), Some(disk)) = (&mut node.attr, node.disk.as_deref_mut()) else { return };
    let DiskObject { record, ranges } = match std::mem::take(&mut disk.load) {
        Load::Unconfirmed(object) => *object,
        other => {
            disk.load = other;
            return;
        }
    };
    let (theirs, ours) = (&cached.attr, &record.attr);
    let is_object = (ours.kind, ours.fsid, ours.fileid) == (theirs.kind, theirs.fsid, theirs.fileid);
    if !is_object || ours.wcc() != theirs.wcc() || !is_settled {
        return;
    }
    // It was old enough when it was saved.
    cached.since = Time::ZERO;
    let size = size.min(theirs.size);
    ranges.into_iter().for_each(|range| disk.ranges.insert(range.start.min(size)..range.end.min(size)));
    unsent.iter().for_each(|range| disk.ranges.remove(range));
    let asked = cached.asked;
    node.link_target = node.link_target.take().or(record.link_target);
    for DiskGrant { uid, gid, groups, tested, granted } in record.grants {
        let credential = state.credentials.of(uid, gid, &groups).id;
        node.grants.entry(credential).or_insert(Grant { tested, granted, asked });
    }
    let is_listed = node.dir.as_ref().is_some_and(|dir| dir.complete.is_some());
    let Some(names) = record.names.filter(|_| !is_listed) else { return };
    let is_old = disk.is_old;
    let mut target = |name: DiskName| match name.child {
        Some(DiskChild { fh, attr }) => {
            let id = state.nodes.adopt(&fh, attr.kind, attr.fileid);
            if let Some(node) = state.nodes.get_mut(id).filter(|_| is_disconnected) {
                node.attr.get_or_insert_with(|| old_attr(&attr));
            }
            Target::Node(id)
        }
        None => Target::Unknown { fileid: name.fileid },
    };
    let found = names.into_iter().map(|name| (name.name.clone(), target(name))).collect();
    learn::learn_names(state, Names { dir: id, found, began: asked, is_confirmed: true });
    // The disk has these names.
    if let Some(disk) = state.nodes.get_mut(id).and_then(|node| node.disk.as_deref_mut()) {
        disk.is_old = is_old;
    }
}

/// Takes data into memory, unless it has changed since it was saved.
fn take(state: &mut State, id: NodeId, part: DiskPart) {
    let range = part.offset..part.offset + part.data.len() as u64;
    let Some(disk) = state.nodes.get(id).and_then(|node| node.disk.as_ref()) else { return };
    let mut valid = RangeSet::default();
    valid.insert(range.clone());
    disk.ranges.gaps(range).into_iter().for_each(|gap| valid.remove(gap));
    let before = state.data_bytes;
    data::update(state, id, |file| {
        // What is in memory is newer.
        let missing: Vec<Range<u64>> = valid.iter().flat_map(|range| file.extents.missing(range)).collect();
        for Range { start, end } in missing {
            let bytes = part.data.slice((start - part.offset) as usize..(end - part.offset) as usize);
            file.extents.insert(start, bytes);
        }
    });
    state.figures.disk_bytes += state.data_bytes - before;
}
