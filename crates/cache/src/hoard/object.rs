//! What a walk does about one object: confirms its attributes, asks for permission, has its record saved, and pins it.

use std::ops::Range;

use remora_wire::nfs3::{self, ACCESS_READ, FileType};

use crate::disk::fetch as disk_fetch;
use crate::disk::job::DiskWork;
use crate::disk::object::Load;
use crate::disk::save;
use crate::hoard::directory;
use crate::hoard::fetch::{self, Question};
use crate::hoard::file_data;
use crate::hoard::status::HoardMissReason;
use crate::hoard::step::{Step, Work};
use crate::hoard::walk_state::{ActiveObject, Pin, PinnedObject};
use crate::needs::ACCESS_ALL;
use crate::node::NodeId;
use crate::ranges::RangeSet;
use crate::state::{FetchKey, Purpose, State};

/// Loads and reads of the disk cache in flight beside which a walk loads records.
const LOADS_MAX: usize = 64;
/// Pins in flight.
const PINS_MAX: usize = 64;
/// Times that an object is pinned of which the disk cache has dropped something.
const PIN_TRIES: u32 = 3;
/// Changes of a file while it is read.
const CHANGES_MAX: u32 = 3;

/// Does what can be done about an object now.
pub(crate) fn step(state: &mut State, work: &mut Work, id: NodeId, active: &mut ActiveObject) -> Step {
    let Some(node) = state.nodes.get(id) else { return Step::Missing(HoardMissReason::Failed) };
    if node.is_stale {
        return Step::Gone;
    }
    let kind = node.kind;
    let granted = match load(state, id).and_then(|()| permitted(state, work, id, active)) {
        Ok(granted) => granted,
        Err(step) => return step,
    };
    let is_readable = granted & ACCESS_READ != 0 || kind == FileType::SymLink;
    let content = match kind {
        FileType::Directory | FileType::Regular if !is_readable => Err(Step::Missing(HoardMissReason::NoPermission)),
        FileType::Directory => directory::expand(state, work, id, active),
        FileType::Regular => file_data::read(state, work, id, active),
        FileType::SymLink => target(state, work, id, active),
        _ => Ok(()),
    };
    match content.and_then(|()| saved(state, id)).and_then(|()| pinned(state, work, id, active)) {
        Ok(()) => Step::There,
        Err(step) => step,
    }
}

/// Waits until it is known what the disk cache has of the object.
fn load(state: &mut State, id: NodeId) -> Result<(), Step> {
    let is_known = state.nodes.get(id).is_some_and(|node| node.disk.is_some());
    if !is_known && (state.disk.reads.len() >= LOADS_MAX || !state.disk.has_room()) {
        return Err(Step::Starved);
    }
    disk_fetch::start_load(state, id);
    match state.nodes.get(id).and_then(|node| node.disk.as_ref()) {
        Some(disk) if matches!(disk.load, Load::InFlight) => Err(Step::Wait),
        Some(_) => Ok(()),
        None => Err(Step::Missing(HoardMissReason::Failed)),
    }
}

/// The bits of ACCESS that the owner of the mount has, once the attributes are as new as the walk.
fn permitted(state: &mut State, work: &Work, id: NodeId, active: &mut ActiveObject) -> Result<u32, Step> {
    let Some(node) = state.nodes.get(id) else { return Err(Step::Gone) };
    let attr = node.attr.as_ref().filter(|cached| cached.asked >= work.began && !cached.is_outdated());
    let grant = node.grants.get(&work.caller.id).filter(|grant| grant.tested & ACCESS_ALL == ACCESS_ALL);
    let fh = node.fh.clone();
    let question = match (attr, grant) {
        (Some(cached), Some(grant)) => {
            let (granted, version) = (grant.granted, cached.attr.wcc());
            if active.version.replace(version).is_some_and(|before| before != version) {
                active.changes += 1;
                active.attempts = 0;
            }
            let is_changing = active.changes > CHANGES_MAX;
            return if is_changing { Err(Step::Missing(HoardMissReason::Changing)) } else { Ok(granted) };
        }
        (_, None) => Question {
            key: FetchKey::Access(id, work.caller.id),
            call: nfs3::Call::Access(nfs3::AccessArgs { fh, access: ACCESS_ALL }),
            purpose: Purpose::Access { node: id, credential: work.caller.id },
        },
        (None, Some(_)) => {
            Question { key: FetchKey::Attr(id), call: nfs3::Call::GetAttr(fh), purpose: Purpose::GetAttr(id) }
        }
    };
    Err(fetch::ask(state, &work.caller.auth, active, question))
}

/// Waits for the target of a symbolic link.
fn target(state: &mut State, work: &Work, id: NodeId, active: &mut ActiveObject) -> Result<(), Step> {
    let Some(node) = state.nodes.get(id) else { return Err(Step::Gone) };
    if node.link_target.is_some() {
        return Ok(());
    }
    let call = nfs3::Call::ReadLink(node.fh.clone());
    let question = Question { key: FetchKey::LinkTarget(id), call, purpose: Purpose::ReadLink(id) };
    Err(fetch::ask(state, &work.caller.auth, active, question))
}

/// Waits until the disk cache has the object's record.
fn saved(state: &mut State, id: NodeId) -> Result<(), Step> {
    let Some(node) = state.nodes.get(id) else { return Err(Step::Gone) };
    // The store of unsent data has local writes; the disk cache gets them once the server has them.
    if node.is_dirty() {
        return Err(Step::Missing(HoardMissReason::Changing));
    }
    let Some(disk) = &node.disk else { return Err(Step::Missing(HoardMissReason::Failed)) };
    if disk.is_stored && !disk.is_old && disk.saving.is_empty() {
        return Ok(());
    }
    if disk.due.is_none() && disk.saving.is_empty() {
        save::learned(state, id);
    }
    Err(Step::Wait)
}

/// Waits until the disk cache has pinned the object, and has all of it.
fn pinned(state: &mut State, work: &Work, id: NodeId, active: &mut ActiveObject) -> Result<(), Step> {
    let Some(node) = state.nodes.get_mut(id) else { return Err(Step::Gone) };
    let size = if node.kind == FileType::Regular { node.size() } else { 0 };
    match std::mem::take(&mut active.pin) {
        Pin::InFlight => {
            active.pin = Pin::InFlight;
            Err(Step::Wait)
        }
        Pin::None if state.hoard.pins.len() >= PINS_MAX || !state.disk.has_room() => Err(Step::Starved),
        Pin::None => {
            let job = state.disk.job(node.fh.clone(), DiskWork::Pin(work.stamp));
            state.hoard.pins.insert(job.id, id);
            state.disk.jobs.push_back(job);
            active.pin = Pin::InFlight;
            Err(Step::Wait)
        }
        Pin::Done(found) => {
            let gaps = match &found {
                Some(PinnedObject { ranges, .. }) => gaps(ranges, size),
                None => std::iter::once(0..u64::MAX).collect(),
            };
            if gaps.is_empty() {
                active.planned_bytes = found.map(|found| found.bytes);
                return Ok(());
            }
            active.pins += 1;
            if active.pins >= PIN_TRIES {
                return Err(Step::Missing(HoardMissReason::Failed));
            }
            if let Some(disk) = node.disk.as_deref_mut() {
                gaps.into_iter().for_each(|gap| disk.ranges.remove(gap));
            }
            save::learned(state, id);
            Err(Step::Starved)
        }
    }
}

/// Parts of a file of `size` bytes that `ranges` lack.
fn gaps(ranges: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut there = RangeSet::default();
    ranges.iter().for_each(|range| there.insert(range.clone()));
    there.gaps(0..size)
}
