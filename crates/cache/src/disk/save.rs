//! Saves to the disk cache: when an object is saved, and what its record says.

use std::ops::Range;
use std::time::Duration;

use remora_base::Time;

use crate::disk::fetch;
use crate::disk::job::{DiskChild, DiskGrant, DiskJob, DiskJobId, DiskName, DiskPart, DiskRecord, DiskWork};
use crate::disk::object::{DiskState, Load};
use crate::extents::Extents;
use crate::node::{Node, NodeId, Target};
use crate::ranges::RangeSet;
use crate::state::State;

/// How long an object waits for more before it is saved.
const DELAY: Duration = Duration::from_secs(2);
/// Age of attributes from which a record has them, so that a later change gets other times: for servers that have whole
/// seconds only, and for others, whose clocks tick at least every 10 ms.
const SECONDS_AGE: Duration = Duration::from_millis(2100);
const TICKS_AGE: Duration = Duration::from_millis(100);
/// Unsaved bytes of a file that are saved at once.
const UNSAVED_MAX: u64 = 1 << 20;
/// Maximum bytes of a save, and of each of its parts.
const SAVE_MAX: u64 = 4 << 20;
const PART_MAX: usize = 128 << 10;
/// Maximum names of a directory that is saved.
pub(crate) const NAMES_MAX: usize = 20_000;

fn disk(state: &mut State, id: NodeId) -> Option<&mut DiskState> {
    state.nodes.get_mut(id)?.disk.as_deref_mut()
}

/// Something has become known of an object: it is saved soon.
pub(crate) fn learned(state: &mut State, id: NodeId) {
    fetch::start_load(state, id);
    let at = state.now + DELAY;
    let Some(disk) = disk(state, id) else { return };
    disk.is_old = true;
    if disk.due.is_none() {
        schedule(state, id, at);
    }
}

/// The attributes of an object have changed.
pub(crate) fn attr_changed(state: &mut State, id: NodeId) {
    if disk(state, id).is_some() {
        learned(state, id);
    }
}

/// The memory has `bytes` more bytes that the server has, too.
pub(crate) fn arrived(state: &mut State, id: NodeId, bytes: u64) {
    learned(state, id);
    let now = state.now;
    let Some(disk) = disk(state, id) else { return };
    disk.unsaved += bytes;
    if disk.unsaved >= UNSAVED_MAX {
        schedule(state, id, now);
    }
}

fn schedule(state: &mut State, id: NodeId, at: Time) {
    let Some(disk) = state.nodes.get_mut(id).and_then(|node| node.disk.as_deref_mut()) else { return };
    if let Some(before) = disk.due.replace(at) {
        state.disk.due.remove(&(before, id));
    }
    if state.disk.is_on {
        state.disk.due.insert((at, id));
    }
}

/// `range` of a file has other contents now, or none.
pub(crate) fn overwritten(state: &mut State, id: NodeId, range: Range<u64>) {
    if let Some(disk) = disk(state, id) {
        disk.overwrite(range);
    }
}

/// The file was removed.
pub(crate) fn removed(state: &mut State, id: NodeId) {
    overwritten(state, id, 0..u64::MAX);
    let has_room = state.disk.has_room();
    let Some(node) = state.nodes.get_mut(id) else { return };
    if node.disk.as_deref_mut().is_some_and(|disk| std::mem::take(&mut disk.is_stored)) && has_room {
        let job = state.disk.job(node.fh.clone(), DiskWork::Remove);
        state.disk.jobs.push_back(job);
    }
}

/// Whether what is known of the object belongs to its known attributes, and nothing changes it now.
pub(crate) fn is_settled(node: &Node) -> bool {
    let is_current = node.attr.as_ref().is_some_and(|cached| !cached.is_outdated());
    is_current && !node.is_stale && node.own.in_flight == 0 && !node.is_dirty()
}

/// The next job.
pub(crate) fn poll_job(state: &mut State) -> Option<DiskJob> {
    if let Some(job) = state.disk.jobs.pop_front() {
        return Some(job);
    }
    while state.disk.has_room_for_save() && state.disk.due.first().is_some_and(|(at, _)| *at <= state.now) {
        let (_, id) = state.disk.due.pop_first()?;
        if let Some(job) = save(state, id) {
            return Some(job);
        }
    }
    None
}

/// Saves what it can of a file before its data is evicted from memory.
pub(crate) fn before_eviction(state: &mut State, id: NodeId) {
    let Some(due) = disk(state, id).and_then(|disk| disk.due.filter(|_| disk.unsaved > 0)) else { return };
    if state.disk.has_room_for_save() {
        state.disk.due.remove(&(due, id));
        let job = save(state, id);
        state.disk.jobs.extend(job);
    }
}

/// Saves everything now, for the end of the mount.
pub(crate) fn save_all(state: &mut State) {
    let due: Vec<NodeId> = state.disk.due.iter().map(|(_, id)| *id).collect();
    due.into_iter().for_each(|id| schedule(state, id, state.now));
}

/// Whether nothing can be saved now or within a moment.
pub(crate) fn is_saved(state: &State) -> bool {
    let soon = state.now + TICKS_AGE;
    state.disk.saves.is_empty() && state.disk.due.first().is_none_or(|(at, _)| *at > soon)
}

/// A save is done.
pub(crate) fn saved(state: &mut State, id: NodeId, job: DiskJobId) {
    if let Some(disk) = disk(state, id) {
        let saved = disk.saving.remove(&job).unwrap_or_default();
        saved.iter().for_each(|range| disk.ranges.insert(range));
    }
}

/// The job that saves an object, if there is something to save.
fn save(state: &mut State, id: NodeId) -> Option<DiskJob> {
    let (now, file_max) = (state.now, state.config.disk_file_max);
    let node = state.nodes.get_mut(id)?;
    let is_settled = is_settled(node);
    let disk = node.disk.as_deref_mut()?;
    disk.due = None;
    if matches!(disk.load, Load::InFlight) {
        schedule(state, id, now + DELAY);
        return None;
    }
    // Otherwise a reply that is still to come makes it due again.
    let cached = node.attr.as_ref().filter(|_| is_settled)?;
    let size = cached.attr.size;
    let has_seconds = cached.attr.mtime.nanos == 0 && cached.attr.ctime.nanos == 0;
    let version_at = cached.since + if has_seconds { SECONDS_AGE } else { TICKS_AGE };
    let has_version = version_at <= now;
    let kept = disk.ranges_to_come();
    let data = match &node.file {
        Some(file) if size <= file_max => parts(&file.extents, kept.gaps(0..size)),
        _ => Vec::new(),
    };
    let is_old = std::mem::replace(&mut disk.is_old, !has_version);
    if data.is_empty() && !(is_old && has_version) {
        disk.is_old = is_old;
        if is_old {
            schedule(state, id, version_at);
        }
        return None;
    }
    let mut saving = RangeSet::default();
    data.iter().for_each(|part| saving.insert(part.offset..part.offset + part.data.len() as u64));
    let is_more = saving.bytes() + PART_MAX as u64 > SAVE_MAX;
    disk.unsaved = 0;
    disk.is_stored = true;
    let fh = node.fh.clone();
    let record = if has_version { record(state, id).map(Box::new) } else { None };
    let job = state.disk.job(fh, DiskWork::Save { record, kept: kept.iter().collect(), data });
    state.disk.saves.insert(job.id, id);
    self::disk(state, id)?.saving.insert(job.id, saving);
    if is_more {
        schedule(state, id, now);
    } else if !has_version {
        schedule(state, id, version_at);
    }
    Some(job)
}

/// What is in memory of `ranges`, as much as a save takes.
fn parts(extents: &Extents, ranges: Vec<Range<u64>>) -> Vec<DiskPart> {
    let held = ranges.into_iter().flat_map(|range| extents.parts(range));
    let cut = held.flat_map(|(start, bytes)| {
        let cuts = (0..bytes.len()).step_by(PART_MAX);
        let part = move |at: usize| bytes.slice(at..bytes.len().min(at + PART_MAX));
        cuts.map(move |at| DiskPart { offset: start + at as u64, data: part(at) })
    });
    let mut bytes = 0;
    cut.take_while(|part| {
        bytes += part.data.len() as u64;
        bytes <= SAVE_MAX
    })
    .collect()
}

/// What is known of an object.
fn record(state: &State, id: NodeId) -> Option<DiskRecord> {
    let node = state.nodes.get(id)?;
    let grants = node.grants.iter().filter_map(|(credential, grant)| {
        let auth = state.credentials.get(*credential)?;
        let (uid, gid, groups) = (auth.uid, auth.gid, auth.gids.clone());
        Some(DiskGrant { uid, gid, groups, tested: grant.tested, granted: grant.granted })
    });
    let attr = node.attr.as_ref()?.attr.clone();
    Some(DiskRecord {
        attr,
        names: names(state, node),
        grants: grants.collect(),
        link_target: node.link_target.clone(),
    })
}

/// All names of a directory, if they belong to its attributes.
fn names(state: &State, node: &Node) -> Option<Vec<DiskName>> {
    let dir = node.dir.as_ref()?;
    if !dir.complete.is_some_and(|listed| listed.is_confirmed) || dir.names.len() > NAMES_MAX {
        return None;
    }
    let mut names = Vec::with_capacity(dir.names.len());
    for (name, dentry) in &dir.names {
        let (fileid, child) = match dentry.target {
            _ if !dentry.is_confirmed => return None,
            Target::Absent => continue,
            Target::Unknown { fileid } => (fileid, None),
            Target::Node(id) => {
                let child = state.nodes.get(id)?;
                let known = child.attr.as_ref().filter(|_| !child.is_stale);
                (child.fileid, known.map(|cached| DiskChild { fh: child.fh.clone(), attr: cached.attr.clone() }))
            }
        };
        names.push(DiskName { name: name.clone(), fileid, child });
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use remora_wire::nfs3::{Fh, NfsTime};

    use super::*;
    use crate::config::Config;
    use crate::example;
    use crate::learn;

    /// The records that are saved at these times after the attributes came, in milliseconds.
    fn saved(nanos: u32, times: [u64; 3]) -> [Option<bool>; 3] {
        let config = Config { disk_file_max: 1, ..Config::default() };
        let mut state = State::new(config, Fh(Bytes::new()), Time::from_secs(10));
        let attr = example::file(NfsTime { secs: 5, nanos });
        let id = state.nodes.intern(&Fh(Bytes::from_static(b"file")), &attr);
        fetch::made(&mut state, id);
        let began = state.now;
        learn::learn_attr(&mut state, id, &attr, began);
        times.map(|ms| {
            let now = began + Duration::from_millis(ms);
            state.now = now;
            if let Some(node) = state.nodes.get_mut(id) {
                node.file().extents.insert(0, Bytes::from_static(b"x"));
            }
            learned(&mut state, id);
            schedule(&mut state, id, now);
            match poll_job(&mut state).map(|job| job.work) {
                Some(DiskWork::Save { record, .. }) => Some(record.is_some()),
                _ => None,
            }
        })
    }

    #[test]
    fn record_waits_until_a_later_change_gets_other_times() {
        assert_eq!(saved(1, [50, 99, 100]), [Some(false), None, Some(true)], "the data alone is saved before");
        assert_eq!(saved(0, [100, 2000, 2100]), [Some(false), None, Some(true)], "a clock of whole seconds");
    }
}
