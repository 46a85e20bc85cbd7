//! Names and files ahead of the programs that will ask for them, in link time that no foreground call uses.
//!
//! A program that looks up several names of a directory makes the cache list it. One that walks from directory to
//! directory makes it list the following ones, or confirm that they have not changed. One that opens files in the order
//! of their names makes it read the following small files, more of them the longer the program goes on, and those of
//! the next directories once it has come from one to the next. A short file is read while it is opened.

use std::ops::Bound;
use std::sync::Arc;

use remora_wire::nfs3::{self, FileType, Name};
use remora_wire::rpc::AuthUnix;

use crate::call::Priority;
use crate::credentials::Caller;
use crate::data;
use crate::disk::fetch::may_have;
use crate::needs;
use crate::node::{Location, Node, NodeId};
use crate::read_grant;
use crate::state::{FetchKey, ListingProgress, Op, Purpose, State};

/// Names looked up in a directory from which it is listed.
const MISSES: u32 = 4;
/// Directories listed ahead.
const DIRECTORIES: usize = 16;
/// Calls in flight for which no program waits.
const CALLS_MAX: usize = 128;
/// Files opened in order from which the following ones are read.
const STREAK: u32 = 3;
/// What a program that comes to the next directory in order has opened of it, as it were.
const STREAK_CONTINUED: u32 = STREAK + 4;
/// Files read ahead: at first, and at most.
const FILES_MIN: usize = 4;
const FILES_MAX: usize = 64;
/// Size in bytes up to which a file is read when it is opened.
const OPENING_MAX: u64 = 32 << 10;
/// Size in bytes up to which a file is read ahead.
const FILE_MAX: u64 = 64 << 10;

/// A LOOKUP had to ask the server.
pub(crate) fn missed_name(state: &mut State, op: &Op, dir: NodeId) {
    if state.is_disconnected() {
        return;
    }
    let Ok(node) = state.node(dir) else { return };
    let names = node.dir();
    names.misses += 1;
    if names.misses == MISSES && names.complete.is_none() {
        list(state, dir, &op.caller);
        list_siblings(state, dir, &op.caller);
    }
}

/// The attributes of an object were too old. After a few, its directory is listed anew, and those behind it that are as
/// old: a listing has all attributes.
pub(crate) fn missed_attr(state: &mut State, op: &Op, id: NodeId) {
    if state.is_disconnected() {
        return;
    }
    let Some(location) = state.nodes.get(id).and_then(|node| node.location.clone()) else { return };
    let Ok(dir) = state.node(location.dir) else { return };
    let names = dir.dir();
    names.misses += 1;
    if names.misses != MISSES {
        return;
    }
    list(state, location.dir, &op.caller);
    for dir in siblings(state, location.dir) {
        if needs::is_old(state, dir) {
            list(state, dir, &op.caller);
        }
    }
}

/// A directory was opened: if its parent is known, those behind it are listed.
pub(crate) fn opened_directory(state: &mut State, op: &Op) {
    if state.is_disconnected() {
        return;
    }
    list_siblings(state, op.node, &op.caller);
}

fn list_siblings(state: &mut State, dir: NodeId, caller: &Caller) {
    for id in siblings(state, dir) {
        let Some(node) = state.nodes.get(id) else { continue };
        match node.dir.as_ref().is_none_or(|names| names.complete.is_none()) || needs::is_old(state, id) {
            true => list(state, id, caller),
            false => confirm(state, id, caller),
        }
    }
}

/// The directories after `dir` beside it.
fn siblings(state: &State, dir: NodeId) -> Vec<NodeId> {
    let Some(location) = state.nodes.get(dir).and_then(|node| node.location.as_ref()) else { return Vec::new() };
    let is_directory = |id: &NodeId| state.nodes.get(*id).is_some_and(|node| node.kind == FileType::Directory);
    let siblings = following(state, location.dir, &location.name, 4 * DIRECTORIES).into_iter().filter(is_directory);
    siblings.take(DIRECTORIES).collect()
}

/// Whether the attributes serve an open for some time.
fn is_confirmed(state: &State, id: NodeId) -> bool {
    let attr = state.nodes.get(id).and_then(|node| node.attr.as_ref());
    attr.is_some_and(|cached| state.now.since(cached.asked) < state.config.policy.open / 2)
}

/// Asks for the attributes of a directory, which confirm its names, unless they are new.
fn confirm(state: &mut State, dir: NodeId, caller: &Caller) {
    if !is_confirmed(state, dir) {
        ask_access(state, dir, caller);
    }
}

/// Objects whose names follow `name` in a directory, at most `count`; none if the directory was not listed.
fn following(state: &State, dir: NodeId, name: &Name, count: usize) -> Vec<NodeId> {
    let Some(names) = state.nodes.get(dir).and_then(|node| node.dir.as_ref()) else { return Vec::new() };
    if names.complete.is_none() {
        return Vec::new();
    }
    let behind = names.names.range::<Name, _>((Bound::Excluded(name), Bound::Unbounded));
    behind.filter_map(|(_, dentry)| dentry.node()).take(count).collect()
}

/// Lists a directory for which no program waits, and asks for the caller's permissions.
fn list(state: &mut State, dir: NodeId, caller: &Caller) {
    // With a window of 0 nothing may be answered that was fetched before.
    if state.config.policy.open.is_zero() {
        return;
    }
    if state.nodes.get(dir).is_none_or(|node| node.is_local) {
        return;
    }
    let progress = ListingProgress::new(dir, state.now, caller.clone());
    let Ok(call) = needs::listing_call(state, &progress, Priority::Prefetch) else { return };
    fetch(state, FetchKey::Listing(dir), &caller.auth, call, Purpose::List(Box::new(progress)));
    ask_access(state, dir, caller);
}

fn ask_access(state: &mut State, id: NodeId, caller: &Caller) {
    let Ok(node) = state.node(id) else { return };
    if node.is_local {
        return;
    }
    let fh = node.fh.clone();
    let call = nfs3::Call::Access(nfs3::AccessArgs { fh, access: needs::ACCESS_ALL });
    let purpose = Purpose::Access { node: id, credential: caller.id };
    fetch(state, FetchKey::Access(id, caller.id), &caller.auth, call, purpose);
}

/// A call for which no program waits, unless the same is in flight.
fn fetch(state: &mut State, key: FetchKey, auth: &Arc<AuthUnix>, call: nfs3::Call, purpose: Purpose) {
    if state.fetches.contains_key(&key) || state.ahead.len() >= CALLS_MAX {
        return;
    }
    let id = state.submit(Priority::Prefetch, auth, call, purpose);
    state.ahead.insert(id);
    state.fetches.insert(key.clone(), id);
    if let Some(pending) = state.pending.get_mut(&id) {
        pending.key = Some(key);
    }
}

/// A file was opened to be read: counts those that were opened in order, and reads the following ones.
pub(crate) fn opened_file(state: &mut State, op: &Op) {
    if state.config.policy.open.is_zero() || state.is_disconnected() {
        return;
    }
    let Some(location) = state.nodes.get(op.node).and_then(|node| node.location.clone()) else { return };
    let is_ahead = state.nodes.get(op.node).and_then(|node| node.file.as_ref()).is_some_and(|file| file.unused > 0);
    let Ok(dir) = state.node(location.dir) else { return };
    let names = dir.dir();
    let is_next = names.last_opened.as_ref().is_some_and(|last| *last < location.name);
    names.streak = match is_next {
        true => names.streak + 1,
        // The program comes from the directory before, and goes on at its pace.
        false if is_ahead => STREAK_CONTINUED,
        false => 1,
    };
    names.last_opened = Some(location.name.clone());
    let Some(beyond) = names.streak.checked_sub(STREAK) else { return };
    let count = FILES_MAX.min(FILES_MIN << beyond.min(8));
    for id in walk(state, &location, count, &op.caller) {
        read(state, id, &op.caller);
    }
}

/// The next objects of a program that opens files in the order of their names, at most `count`: the rest of the
/// directory, and the next directories if it came here from the one before. Confirms the names of all of them.
fn walk(state: &mut State, from: &Location, count: usize, caller: &Caller) -> Vec<NodeId> {
    let mut left = state.link.ahead_max / 4;
    confirm(state, from.dir, caller);
    let mut found = following(state, from.dir, &from.name, count);
    for dir in next_directories(state, from.dir) {
        if found.len() >= count {
            break;
        }
        confirm(state, dir, caller);
        found.extend(following(state, dir, &Name::new(), count - found.len()));
    }
    let size = |id: &NodeId| state.nodes.get(*id).map_or(0, Node::size);
    let sizes: Vec<u64> = found.iter().map(size).collect();
    let fitting = sizes.iter().take_while(|size| {
        let fits = left > 0;
        left = left.saturating_sub(**size);
        fits
    });
    found.truncate(fitting.count());
    found
}

/// The directories after `dir` beside it, if files of the one before it were opened in order, too.
fn next_directories(state: &State, dir: NodeId) -> Vec<NodeId> {
    let Some(location) = state.nodes.get(dir).and_then(|node| node.location.clone()) else { return Vec::new() };
    let Some(parent) = state.nodes.get(location.dir).and_then(|node| node.dir.as_ref()) else { return Vec::new() };
    let names_of = |id: &NodeId| state.nodes.get(*id)?.dir.as_ref();
    let before = parent.names.range::<Name, _>((Bound::Unbounded, Bound::Excluded(&location.name))).rev();
    let mut before = before.filter_map(|(_, dentry)| dentry.node()).take(4 * DIRECTORIES);
    if before.find_map(|id| names_of(&id)).is_none_or(|names| names.streak < STREAK) {
        return Vec::new();
    }
    let is_listed = |id: &NodeId| names_of(id).is_some_and(|names| names.complete.is_some());
    siblings(state, dir).into_iter().filter(is_listed).collect()
}

/// A file is being opened to be read: a short one is fetched beside the calls that check its attributes.
pub(crate) fn opening(state: &mut State, op: &Op) {
    if state.config.policy.open.is_zero() || state.is_disconnected() {
        return;
    }
    let Ok(node) = state.node(op.node) else { return };
    let size = node.size();
    if node.kind != FileType::Regular || size == 0 || size > OPENING_MAX {
        return;
    }
    for gap in node.file().extents.missing(0..size) {
        // The object was there a moment ago.
        let _ = data::fetch(state, &op.caller, op.node, gap, Priority::Foreground);
    }
}

/// Reads a small file ahead.
pub(crate) fn read(state: &mut State, id: NodeId, caller: &Caller) {
    let block = state.link.read_block.max(512);
    let room = state.config.memory_max / 4;
    let is_full = state.ahead.len() >= CALLS_MAX || state.ahead_bytes > room;
    let is_confirmed = is_confirmed(state, id);
    let shows_permission = read_grant::is_expected(state, id, caller);
    let Ok(node) = state.node(id) else { return };
    let size = node.size();
    if node.kind != FileType::Regular || size > FILE_MAX || is_full || node.server_size().is_some() {
        return;
    }
    let is_permitted = node.grants.contains_key(&caller.id);
    let fh = node.fh.clone();
    let file = node.file();
    let is_reading = !file.reading.is_empty();
    let is_read = size == 0 || is_reading || file.extents.missing(0..size).is_empty();
    let is_shown = shows_permission && (is_reading || !is_read);
    if !(is_shown || is_permitted && is_confirmed) {
        ask_access(state, id, caller);
    }
    if is_read || may_have(state, id, size) {
        return;
    }
    let mut offset = 0;
    while offset < size {
        let end = size.min(offset + u64::from(block));
        let range = offset..end;
        let count = (end - offset) as u32;
        let call = nfs3::Call::Read(nfs3::ReadArgs { fh: fh.clone(), offset, count });
        let purpose = Purpose::Read { node: id, range: range.clone(), reader: caller.clone() };
        let call = state.submit(Priority::Prefetch, &caller.auth, call, purpose);
        state.ahead.insert(call);
        if let Ok(node) = state.node(id) {
            node.file().reading.insert(call, range);
            node.file().unused += end - offset;
        }
        state.ahead_bytes += end - offset;
        state.figures.ahead_bytes += end - offset;
        offset = end;
    }
}

/// A program uses a file: its bytes that were read ahead count as used.
pub(crate) fn used(state: &mut State, id: NodeId) {
    let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) else { return };
    let unused = std::mem::take(&mut file.unused);
    state.ahead_bytes = state.ahead_bytes.saturating_sub(unused);
    state.figures.ahead_used_bytes += unused;
}
