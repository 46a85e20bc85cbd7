//! The walk over the profile: which object is next, what has come of each, and when walks begin and end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use remora_base::Time;
use remora_wire::nfs3::FileType;

use crate::connectivity::Connectivity;
use crate::data;
use crate::disk::job::DiskWork;
use crate::hoard::object;
use crate::hoard::profile::HoardPlan;
use crate::hoard::status::{HoardMiss, HoardMissReason, HoardProgress, HoardStatus, MISSING_MAX};
use crate::hoard::step::{Step, Work};
use crate::hoard::walk_state::{ActiveObject, Pin, Visit, Walk, WalkEntry};
use crate::node::NodeId;
use crate::path;
use crate::state::State;

/// Time from the end of a walk to the next one.
const INTERVAL: Duration = Duration::from_secs(600);
/// Time from a new profile to its walk.
const DELAY: Duration = Duration::from_secs(1);
/// How often all active objects are looked at, for what no reply shows.
const LOOK: Duration = Duration::from_secs(1);
/// Time without progress after which an object is given up.
const STUCK: Duration = Duration::from_secs(30);
/// Silence of the server at which a walk stops.
const SILENCE_MAX: Duration = Duration::from_secs(2);
/// Read-ahead of a link that is not slow: it carries 1 MiB/s or more.
const AHEAD_GOOD: u64 = 4 << 20;
/// Objects that a walk works on at a time.
const ACTIVE_MAX: usize = 2048;
/// Objects taken into work before the kernel's requests get their turn.
const TURN: usize = 64;
/// Starved objects that are refused again before the others wait for another turn.
const REFUSED_MAX: usize = 16;
/// Objects of a walk.
const OBJECTS_MAX: usize = 1_000_000;
/// Bytes on their way to the disk, at least and at most.
const MOVING_MIN: u64 = 1 << 20;
const MOVING_MAX: u64 = 16 << 20;

/// Hoards by this plan from now on, and begins a walk if it is another one than before.
pub(crate) fn set_plan(state: &mut State, plan: HoardPlan) {
    if state.hoard.plan.as_ref() == Some(&plan) {
        return;
    }
    state.hoard.plan = Some(plan);
    (state.hoard.last, state.hoard.finished) = (None, None);
    // What is in flight for the walk ends by itself.
    state.hoard.walk = None;
    state.hoard.pins.clear();
    begin_at(state, state.now + DELAY);
}

/// Begins a walk now, unless one is going on.
pub(crate) fn ask(state: &mut State) {
    match &mut state.hoard.walk {
        Some(walk) => walk.is_asked = true,
        None if state.hoard.plan.is_some() => {
            state.hoard.is_asked = true;
            begin_at(state, state.now);
        }
        None => {}
    }
}

fn begin_at(state: &mut State, at: Time) {
    state.hoard.next_walk = Some(at);
    state.hoard.due = Some(at);
}

/// Goes on with the walk, as far as that is possible now.
pub(crate) fn advance(state: &mut State, connectivity: Connectivity) {
    let is_due = state.hoard.due.is_some_and(|due| due <= state.now);
    if !is_due && state.hoard.ready.is_empty() && state.hoard.pinned.is_empty() {
        return;
    }
    if state.hoard.walk.is_none() && state.hoard.next_walk.is_some_and(|at| at <= state.now) {
        begin(state, connectivity);
    }
    let Some(mut walk) = state.hoard.walk.take() else {
        state.hoard.ready.clear();
        state.hoard.pinned.clear();
        state.hoard.is_paused = state.hoard.next_walk.is_some_and(|at| at <= state.now);
        state.hoard.due = state.hoard.next_walk.map(|at| at.max(state.now + LOOK));
        return;
    };
    if !is_good(state, connectivity, walk.is_asked) {
        state.hoard.is_paused = true;
        // All are looked at when the walk goes on.
        state.hoard.ready.clear();
        state.hoard.due = Some(state.now + LOOK);
        state.hoard.walk = Some(walk);
        return;
    }
    if std::mem::take(&mut state.hoard.is_paused) {
        let now = state.now;
        walk.active.values_mut().for_each(|active| active.since = now);
    }
    go_on(state, &mut walk);
    if !state.disk.is_on {
        return end(state, *walk);
    }
    if walk.active.is_empty() && walk.stack.is_empty() && walk.entries.is_empty() {
        return finish(state, *walk);
    }
    state.hoard.due.get_or_insert(walk.next_look);
    state.hoard.walk = Some(walk);
}

/// Whether the link takes a walk.
fn is_good(state: &State, connectivity: Connectivity, is_asked: bool) -> bool {
    let is_reachable = match connectivity {
        Connectivity::Connected => true,
        Connectivity::Weak => is_asked || state.link.ahead_max >= AHEAD_GOOD,
        Connectivity::Disconnected { .. } => false,
    };
    is_reachable && state.connection.silence < SILENCE_MAX
}

fn begin(state: &mut State, connectivity: Connectivity) {
    if !state.disk.is_on || !is_good(state, connectivity, state.hoard.is_asked) {
        return;
    }
    let Some(plan) = state.hoard.plan.clone() else { return };
    let mut entries = plan.entries;
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.priority));
    let wall = (state.config.wall_at_zero + state.now.since(Time::ZERO)).as_secs();
    let stamp = wall.max(state.hoard.last_stamp + 1);
    state.hoard.last_stamp = stamp;
    state.hoard.next_walk = None;
    let owner = plan.owner;
    state.hoard.walk = Some(Box::new(Walk {
        began: state.now,
        stamp,
        is_asked: std::mem::take(&mut state.hoard.is_asked),
        caller: state.credentials.of(owner.uid, owner.gid, &owner.groups),
        bytes_max: plan.bytes_max,
        entries: entries.iter().map(|entry| Arc::new(WalkEntry::new(entry))).collect::<VecDeque<_>>(),
        priority: 0,
        stack: Vec::new(),
        active: BTreeMap::new(),
        starved: BTreeSet::new(),
        unexpanded: 0,
        entered: BTreeSet::new(),
        seen: BTreeSet::new(),
        moving_bytes: 0,
        planned_bytes: 0,
        next_look: state.now + LOOK,
        progress: HoardProgress::default(),
    }));
}

/// Continues with objects whose replies have come, then begins with further ones.
fn go_on(state: &mut State, walk: &mut Walk) {
    state.hoard.due = None;
    for (id, found) in std::mem::take(&mut state.hoard.pinned) {
        if let Some(active) = walk.active.get_mut(&id) {
            if matches!(active.pin, Pin::InFlight) {
                active.pin = Pin::Done(found);
            }
            state.hoard.ready.insert(id);
        }
    }
    let pending = &state.pending;
    state.hoard.calls.retain(|id| pending.contains_key(id));
    let mut ready = std::mem::take(&mut state.hoard.ready);
    if walk.next_look <= state.now {
        walk.next_look = state.now + LOOK;
        give_up_stuck(state, walk);
        ready.extend(walk.active.keys());
    }
    for id in ready {
        walk.starved.remove(&id);
        work_on(state, walk, id);
    }
    let mut refused = 0;
    for id in walk.starved.clone() {
        walk.starved.remove(&id);
        work_on(state, walk, id);
        refused += usize::from(walk.starved.contains(&id));
        if refused >= REFUSED_MAX {
            break;
        }
    }
    for _ in 0..TURN {
        if walk.active.len() >= ACTIVE_MAX || !walk.starved.is_empty() {
            return;
        }
        let Some(visit) = next(state, walk) else { return };
        enter(state, walk, visit);
    }
    state.hoard.due = Some(state.now);
}

/// The next object. Entries follow each other when all names of the one before are known, and those of a lower priority
/// when all data has come.
fn next(state: &State, walk: &mut Walk) -> Option<Visit> {
    if let Some(visit) = walk.stack.pop() {
        return Some(visit);
    }
    if walk.unexpanded > 0 {
        return None;
    }
    let is_lower = walk.entries.front().is_some_and(|entry| entry.priority < walk.priority);
    if is_lower && !state.hoard.calls.is_empty() {
        return None;
    }
    let entry = walk.entries.pop_front()?;
    walk.priority = entry.priority;
    walk.entered.clear();
    Some(Visit { node: NodeId::ROOT, entry, depth: 0, counted: None })
}

/// Begins to work on an object, unless the walk has been there.
fn enter(state: &mut State, walk: &mut Walk, visit: Visit) {
    let id = visit.node;
    let is_directory = state.nodes.get(id).is_some_and(|node| node.kind == FileType::Directory);
    let is_new = if is_directory { walk.entered.insert(id) } else { walk.seen.insert(id) };
    if !is_new {
        uncount(&mut walk.progress, &visit);
        return;
    }
    if let Some(active) = walk.active.get_mut(&id) {
        // A directory that an entry before this one has gone through.
        walk.unexpanded += usize::from(std::mem::replace(&mut active.is_expanded, false));
        active.visit = visit;
        return work_on(state, walk, id);
    }
    if walk.entered.len() + walk.seen.len() > OBJECTS_MAX {
        walk.progress.is_cut = true;
        (walk.stack, walk.entries) = (Vec::new(), VecDeque::new());
        return;
    }
    walk.unexpanded += usize::from(is_directory);
    walk.active.insert(id, ActiveObject::new(visit, is_directory, state.now));
    work_on(state, walk, id);
}

/// What shows whether an object has got on.
fn marks(active: &ActiveObject) -> [u64; 4] {
    [active.attempts.into(), active.known_bytes, active.pins.into(), u64::from(active.is_expanded)]
}

/// Does what can be done about an active object now.
fn work_on(state: &mut State, walk: &mut Walk, id: NodeId) {
    let Some(mut active) = walk.active.remove(&id) else { return };
    let (mut found, mut lost) = (Vec::new(), Vec::new());
    let moving_max = (state.config.memory_max / 4).clamp(MOVING_MIN, MOVING_MAX);
    let mut work = Work {
        began: walk.began,
        stamp: walk.stamp,
        caller: walk.caller.clone(),
        room: moving_max.saturating_sub(walk.moving_bytes),
        disk_room: walk.bytes_max.saturating_sub(walk.planned_bytes),
        found: &mut found,
        lost: &mut lost,
    };
    let (before, moving, planned) = (marks(&active), active.moving_bytes, active.planned_bytes.unwrap_or(0));
    let was_expanded = active.is_expanded;
    let step = object::step(state, &mut work, id, &mut active);
    walk.moving_bytes = walk.moving_bytes.saturating_sub(moving) + active.moving_bytes;
    walk.planned_bytes = walk.planned_bytes.saturating_sub(planned) + active.planned_bytes.unwrap_or(0);
    if marks(&active) != before {
        active.since = state.now;
    }
    if active.is_expanded && !was_expanded {
        walk.unexpanded -= 1;
    }
    for visit in found.iter().filter(|visit| visit.counted.is_some()) {
        walk.progress.files_wanted += 1;
        walk.progress.bytes_wanted += visit.counted.unwrap_or(0);
    }
    // The last one is taken first.
    walk.stack.extend(found.into_iter().rev());
    for (name, reason) in lost {
        walk.progress.files_wanted += 1;
        walk.progress.miss(HoardMiss { path: path::path(state, id, Some(&name)), bytes: 0, reason });
    }
    match step {
        Step::Wait => _ = walk.active.insert(id, active),
        Step::Starved => {
            walk.active.insert(id, active);
            walk.starved.insert(id);
        }
        step => leave(state, walk, id, &active, step),
    }
}

/// Takes the result of an object.
fn leave(state: &mut State, walk: &mut Walk, id: NodeId, active: &ActiveObject, step: Step) {
    walk.moving_bytes = walk.moving_bytes.saturating_sub(active.moving_bytes);
    if active.is_directory && !active.is_expanded {
        walk.unexpanded -= 1;
    }
    let size = state.nodes.get(id).map_or(0, |node| if node.kind == FileType::Regular { node.size() } else { 0 });
    let progress = &mut walk.progress;
    uncount(progress, &active.visit);
    match step {
        Step::There => {
            progress.pinned_bytes += active.planned_bytes.unwrap_or(0);
            if active.is_directory {
                progress.directories += u64::from(walk.seen.insert(id));
            } else {
                progress.files_wanted += 1;
                progress.files_there += 1;
                progress.bytes_wanted += size;
                progress.bytes_there += size;
            }
            if active.asked_bytes > 0 {
                drop_data(state, id);
            }
        }
        Step::Missing(reason) => {
            walk.planned_bytes = walk.planned_bytes.saturating_sub(active.planned_bytes.unwrap_or(0));
            progress.is_full |= reason == HoardMissReason::NoRoom;
            progress.files_wanted += 1;
            progress.bytes_wanted += size;
            progress.miss(HoardMiss { path: path::path(state, id, None), bytes: size, reason });
        }
        Step::Gone | Step::Wait | Step::Starved => {}
    }
}

/// The object is counted anew, or not at all.
fn uncount(progress: &mut HoardProgress, visit: &Visit) {
    if let Some(counted) = visit.counted {
        progress.files_wanted -= 1;
        progress.bytes_wanted = progress.bytes_wanted.saturating_sub(counted);
    }
}

/// Drops data from memory that the disk cache has now, unless a program uses the file.
fn drop_data(state: &mut State, id: NodeId) {
    let Some(node) = state.nodes.get(id) else { return };
    let is_used = node.opens > 0 || node.is_dirty();
    if !is_used && node.file.as_ref().is_some_and(|file| file.reading.is_empty()) {
        data::drop_clean(state, id);
    }
}

/// Gives up objects that have not got on for long although nothing is in flight for them.
fn give_up_stuck(state: &mut State, walk: &mut Walk) {
    if !state.hoard.calls.is_empty() || !state.hoard.pins.is_empty() || !state.disk.saves.is_empty() {
        return;
    }
    let now = state.now;
    let is_stuck = |active: &ActiveObject| now.since(active.since) >= STUCK;
    let stuck: Vec<NodeId> = walk.active.iter().filter(|(_, active)| is_stuck(active)).map(|(id, _)| *id).collect();
    for id in stuck {
        walk.starved.remove(&id);
        if let Some(active) = walk.active.remove(&id) {
            leave(state, walk, id, &active, Step::Missing(HoardMissReason::Failed));
        }
    }
}

/// All of the profile was visited: other pins are of no use any more.
fn finish(state: &mut State, walk: Walk) {
    if let Ok(fh) = state.node(NodeId::ROOT).map(|root| root.fh.clone()) {
        let job = state.disk.job(fh, DiskWork::Unpin { all_but: walk.stamp });
        state.disk.jobs.push_back(job);
    }
    end(state, walk);
}

fn end(state: &mut State, walk: Walk) {
    state.hoard.last = Some(walk.progress);
    state.hoard.finished = Some(state.now);
    state.hoard.ready.clear();
    begin_at(state, state.now + INTERVAL);
}

/// State of hoarding.
pub(crate) fn status(state: &State) -> HoardStatus {
    let hoard = &state.hoard;
    let plan = hoard.plan.as_ref();
    HoardStatus {
        entries: plan.map_or(0, |plan| plan.entries.len()),
        running: hoard.walk.as_ref().map(|walk| running(state, walk)),
        is_paused: hoard.is_paused || state.connection.silence >= SILENCE_MAX,
        last: hoard.last.clone(),
        finished: hoard.finished,
        bytes_max: plan.map_or(0, |plan| plan.bytes_max),
        has_disk: state.disk.is_on,
    }
}

/// The figures of a walk with what it works on.
fn running(state: &State, walk: &Walk) -> HoardProgress {
    let mut progress = walk.progress.clone();
    for (id, active) in walk.active.iter().filter(|(_, active)| !active.is_directory) {
        progress.bytes_there += active.known_bytes.saturating_sub(active.moving_bytes);
        if progress.missing.len() < MISSING_MAX {
            let bytes = state.nodes.get(*id).map_or(0, |node| node.size());
            let reason = HoardMissReason::NotYet;
            progress.miss(HoardMiss { path: path::path(state, *id, None), bytes, reason });
        }
    }
    progress
}
