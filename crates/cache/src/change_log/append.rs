//! Adds records to the change log and takes them out, with their effects on the names and attributes that programs see.

use std::collections::BTreeMap;
use std::sync::Arc;

use remora_wire::fuse::Errno;
use remora_wire::nfs3::{FileType, NfsTime, SetAttr, SetTime, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::change_log::log::{Entry, Logged, ReplacedNode, Stage};
use crate::change_log::record::{LogChange, LogName, LogNode, LogRecord, RecordId, Replaced};
use crate::kept::merged;
use crate::node::{Location, LoggedAttr, Node, NodeId, Target};
use crate::path;
use crate::state::State;

/// Adds a record. The store gets it with its next job.
pub(crate) fn append(state: &mut State, change: Logged, auth: Arc<AuthUnix>) -> RecordId {
    let id = state.log.next_id();
    let at = state.server_nfs_time();
    let path = match change.names().last() {
        Some(at) => path::path(state, at.dir, Some(&at.name)),
        None => path::path(state, change.node(), None),
    };
    insert(state, id, Entry { change, auth, at, path, stage: Stage::Waiting, sent_at: None });
    store(state, id);
    id
}

/// Adds a record with a number, and its effects.
pub(crate) fn insert(state: &mut State, id: RecordId, entry: Entry) {
    for node in referred(&entry.change) {
        if let Some(node) = state.nodes.get_mut(node) {
            node.log_references += 1;
        }
        state.nodes.settle(node);
    }
    let at = entry.at;
    for (location, target) in targets(&entry.change) {
        if !state.log.has_later_name(&location, id) {
            set_name(state, &location, target, at);
        }
    }
    let node = entry.change.node();
    let replaced = entry.change.replaced();
    match &entry.change {
        Logged::Remove { at, node, .. } => state.nodes.forget_place(*node, at),
        Logged::Rename { to, .. } => replaced.into_iter().for_each(|node| state.nodes.forget_place(node, to)),
        _ => {}
    }
    if let Logged::SetAttr { set, .. } = &entry.change {
        set_attr(state, node, set, at);
    }
    state.log.insert(id, entry);
    [Some(node), replaced].into_iter().flatten().for_each(|id| count_links(state, id));
}

/// The next job for the store puts the record there, new or changed.
pub(crate) fn store(state: &mut State, id: RecordId) {
    if let Some(record) = record(state, id) {
        state.store.log.batch.put.retain(|earlier| earlier.id != id);
        state.store.log.batch.put.push(record);
        state.log.is_changed(id);
    }
}

/// Records that remove a name of a file expect what changes made here have led to, once the server cannot lose it.
pub(crate) fn update_seen(state: &mut State, id: NodeId) {
    let Some(node) = state.nodes.get_mut(id) else { return };
    if node.own.in_flight > 0 || node.file.as_ref().is_some_and(|file| !file.is_safe()) {
        return;
    }
    let (Some(before), Some(cached)) = (node.own.unsettled.take(), &node.attr) else { return };
    let now = cached.attr.wcc();
    expect(state, id, now, |seen| seen.is_none_or(|seen| (seen.size, seen.mtime) == (before.size, before.mtime)));
}

/// Records that remove a name of a file expect these attributes if `is_old` is true of those that they expect.
pub(crate) fn expect(state: &mut State, id: NodeId, now: WccAttr, is_old: impl Fn(Option<WccAttr>) -> bool) {
    for record in state.log.of_object(id) {
        let Some(entry) = state.log.get_mut(record).filter(|entry| entry.stage != Stage::Done) else { continue };
        let seen = match &mut entry.change {
            Logged::Remove { node, seen, is_directory: false, .. } if *node == id => seen,
            Logged::Rename { replaced: Some(ReplacedNode { node, seen }), .. } if *node == id => seen,
            _ => continue,
        };
        if *seen != Some(now) && is_old(*seen) {
            *seen = Some(now);
            store(state, record);
        }
    }
}

/// Takes a record out: it is done, or of no use any more.
pub(crate) fn remove(state: &mut State, id: RecordId) -> Option<Entry> {
    let entry = take(state, id)?;
    state.store.log.batch.removed.push(id);
    Some(entry)
}

/// The server refused the change. It is kept and listed, and what depends on it waits.
pub(crate) fn refuse(state: &mut State, id: RecordId, errno: Errno) {
    state.log.set_stage(id, Stage::Refused(errno));
    store(state, id);
}

/// Takes a record out of the memory, with its effects.
pub(crate) fn take(state: &mut State, id: RecordId) -> Option<Entry> {
    let entry = state.log.remove(id)?;
    state.store.log.batch.put.retain(|record| record.id != id);
    for at in entry.change.names() {
        // The latest of the records that are left decides the name.
        let left = state.log.last_of_name(at).and_then(|id| state.log.get(id));
        let target = left.and_then(|entry| targets(&entry.change).into_iter().find(|(name, _)| name == at));
        let Some(dir) = state.nodes.get_mut(at.dir) else { continue };
        match target {
            Some((_, target)) => _ = dir.dir().logged.insert(at.name.clone(), target),
            None => _ = dir.dir().logged.remove(&at.name),
        }
    }
    for id in referred(&entry.change) {
        if let Some(node) = state.nodes.get_mut(id) {
            node.log_references = node.log_references.saturating_sub(1);
            if node.log_references == 0 {
                node.logged = None;
            }
        }
        count_links(state, id);
        state.nodes.settle(id);
    }
    Some(entry)
}

/// Forgets the provisional handles that nothing in the store has any more.
pub(crate) fn unbind(state: &mut State) {
    if !state.log.is_empty() || state.log.bound.is_empty() {
        return;
    }
    let has_record = |state: &State, id: NodeId| {
        let file = state.nodes.get(id).and_then(|node| node.file.as_ref());
        file.is_some_and(|file| file.kept.object.is_some() && !file.kept.is_saved())
    };
    let (kept, unused): (BTreeMap<_, _>, BTreeMap<_, _>) =
        std::mem::take(&mut state.log.bound).into_iter().partition(|(_, id)| has_record(state, *id));
    state.log.bound = kept;
    state.store.log.batch.unbound.extend(unused.into_keys());
}

/// Objects that a record refers to, each as often as it does.
fn referred(change: &Logged) -> Vec<NodeId> {
    let dirs = change.names().map(|at| at.dir);
    dirs.chain([change.node()]).chain(change.replaced()).collect()
}

/// What the names of a record stand for after the change.
fn targets(change: &Logged) -> Vec<(Location, Target)> {
    match change {
        Logged::Make { at, node, .. } | Logged::Link { node, at } => vec![(at.clone(), Target::Node(*node))],
        Logged::Remove { at, .. } => vec![(at.clone(), Target::Absent)],
        Logged::Rename { from, to, node, .. } => {
            vec![(from.clone(), Target::Absent), (to.clone(), Target::Node(*node))]
        }
        Logged::SetAttr { .. } => Vec::new(),
    }
}

fn set_name(state: &mut State, at: &Location, target: Target, time: NfsTime) {
    if let Target::Node(id) = target
        && let Some(node) = state.nodes.get_mut(id)
    {
        node.location = Some(at.clone());
    }
    let Some(dir) = state.nodes.get_mut(at.dir) else { return };
    dir.dir().logged.insert(at.name.clone(), target);
    if dir.is_local {
        if let Some(cached) = &mut dir.attr {
            cached.attr.mtime = time;
            cached.attr.ctime = time;
        }
    } else {
        logged_attr(dir).mtime = Some(time);
    }
}

/// The object is where the latest record that moves it puts it.
pub(crate) fn relocate(state: &mut State, id: NodeId) {
    let records = state.log.of_object(id);
    let place = |record: &RecordId| match &state.log.get(*record)?.change {
        Logged::Make { at, node, .. } | Logged::Link { node, at } if *node == id => Some(at.clone()),
        Logged::Rename { to, node, .. } if *node == id => Some(to.clone()),
        _ => None,
    };
    let latest = records.iter().rev().find_map(place);
    if let (Some(node), Some(latest)) = (state.nodes.get_mut(id), latest) {
        node.location = Some(latest);
    }
}

fn logged_attr(node: &mut Node) -> &mut LoggedAttr {
    node.logged.get_or_insert_with(|| Box::new(LoggedAttr { set: SetAttr::NONE, links: 0, mtime: None }))
}

fn set_attr(state: &mut State, id: NodeId, set: &SetAttr, time: NfsTime) {
    let Some(node) = state.nodes.get_mut(id) else { return };
    let set = SetAttr {
        atime: if set.atime == SetTime::Server { SetTime::To(time) } else { set.atime },
        mtime: if set.mtime == SetTime::Server { SetTime::To(time) } else { set.mtime },
        ..set.clone()
    };
    node.shown_ctime = Some(time);
    let logged = logged_attr(node);
    logged.set = merged(&logged.set, &set);
}

/// A record is done. It stays until the store has forgotten it for good, and later ones that depend on it wait: otherwise
/// it could be executed again after them, once a loss of power has brought it back.
pub(crate) fn finish(state: &mut State, id: RecordId) {
    let Some(entry) = state.log.get(id).filter(|entry| entry.stage != Stage::Done) else { return };
    let change = entry.change.clone();
    state.log.sent += 1;
    let now = state.now;
    // The reply may not have shown where it is now.
    if let Logged::Rename { to, node, .. } | Logged::Link { at: to, node } = &change
        && let Some(node) = state.nodes.get_mut(*node)
    {
        node.location = Some(to.clone());
        if let Some(cached) = &mut node.attr {
            // A link that was there already has no reply with its number of links.
            cached.outdated = Some(now);
        }
    }
    state.store.log.batch.removed.push(id);
    state.log.set_stage(id, Stage::Done);
    state.store.log.done.push(id);
    [Some(change.node()), change.replaced()].into_iter().flatten().for_each(|id| count_links(state, id));
    relocate(state, change.node());
}

/// Takes out a record that the store has forgotten, or is about to forget.
pub(crate) fn forget(state: &mut State, id: RecordId) {
    let Some(entry) = take(state, id) else { return };
    relocate(state, entry.change.node());
    entry.change.replaced().into_iter().for_each(|id| count_links(state, id));
}

/// Links of the object that a change makes or removes.
fn links(change: &Logged, id: NodeId) -> i64 {
    match change {
        Logged::Link { .. } => 1,
        Logged::Remove { .. } => -1,
        Logged::Rename { .. } if change.replaced() == Some(id) => -1,
        _ => 0,
    }
}

/// Counts the links of an object that records make and remove which the server has not executed.
pub(crate) fn count_links(state: &mut State, id: NodeId) {
    let records = state.log.of_object(id);
    let entries = records.iter().filter_map(|record| state.log.get(*record));
    let links: i64 = entries.filter(|entry| entry.stage != Stage::Done).map(|entry| links(&entry.change, id)).sum();
    let Some(node) = state.nodes.get_mut(id) else { return };
    if links != 0 || node.logged.is_some() {
        logged_attr(node).links = if node.kind == FileType::Directory { 0 } else { links };
    }
}

/// Whether the object has a name left, as far as is known.
pub(crate) fn is_linked(state: &State, id: NodeId) -> bool {
    let Some(node) = state.nodes.get(id) else { return false };
    let Some(cached) = node.attr.as_ref().filter(|cached| !cached.is_outdated()) else { return true };
    // The server's number may lack the removed name already.
    let is_unsure = |entry: &Entry| {
        links(&entry.change, id) < 0
            && entry.stage != Stage::Done
            && entry.sent_at.is_some_and(|at| at < cached.received)
    };
    if state.log.of_object(id).iter().any(|record| state.log.get(*record).is_some_and(is_unsure)) {
        return true;
    }
    let links = node.logged.as_ref().map_or(0, |logged| logged.links);
    i64::from(cached.attr.nlink) + links > 0
}

/// The record as the store has it.
pub(crate) fn record(state: &State, id: RecordId) -> Option<LogRecord> {
    let entry = state.log.get(id)?;
    let refusal = if let Stage::Refused(errno) = entry.stage { Some(errno.0.cast_unsigned()) } else { None };
    let change = change(state, &entry.change)?;
    Some(LogRecord { id, change, credential: (*entry.auth).clone(), at: entry.at, path: entry.path.clone(), refusal })
}

fn change(state: &State, change: &Logged) -> Option<LogChange> {
    let object = |id: NodeId| {
        let node = state.nodes.get(id)?;
        Some(LogNode { fh: node.fh.clone(), kind: node.kind, fileid: node.fileid })
    };
    let name = |at: &Location| Some(LogName { dir: object(at.dir)?, name: at.name.clone() });
    Some(match change {
        Logged::Make { at, node, what, attr, verifier } => LogChange::Make {
            at: name(at)?,
            object: object(*node)?,
            what: what.clone(),
            attr: attr.clone(),
            verifier: *verifier,
        },
        Logged::Link { node, at } => LogChange::Link { object: object(*node)?, at: name(at)? },
        Logged::Remove { at, node, seen, is_directory } => {
            LogChange::Remove { at: name(at)?, object: object(*node)?, seen: *seen, is_directory: *is_directory }
        }
        Logged::Rename { from, to, node, seen, replaced } => LogChange::Rename {
            from: name(from)?,
            to: name(to)?,
            object: object(*node)?,
            seen: *seen,
            replaced: match replaced {
                Some(replaced) => Some(Replaced { object: object(replaced.node)?, seen: replaced.seen }),
                None => None,
            },
        },
        Logged::SetAttr { node, set, seen } => {
            LogChange::SetAttr { object: object(*node)?, set: set.clone(), seen: *seen }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use remora_base::Time;
    use remora_wire::nfs3::{Attr, Fh};

    use super::*;
    use crate::config::Config;
    use crate::example;
    use crate::learn;

    fn file(nlink: u32) -> Attr {
        Attr { nlink, ..example::file(example::TIME) }
    }

    fn remove(state: &mut State, node: NodeId, name: &'static [u8]) -> RecordId {
        let at = Location { dir: NodeId::ROOT, name: Bytes::from_static(name) };
        append(state, Logged::Remove { at, node, seen: None, is_directory: false }, Arc::default())
    }

    #[test]
    fn executed_removal_is_not_counted_twice() {
        let mut state = State::new(Config::default(), Fh(Bytes::new()), Time::from_secs(10));
        let id = state.nodes.intern(&Fh(Bytes::from_static(b"file")), &file(3));
        let shows = |state: &mut State, nlink: u32| {
            state.now += Duration::from_secs(1);
            let now = state.now;
            learn::learn_attr(state, id, &file(nlink), now);
        };
        shows(&mut state, 3);
        let first = remove(&mut state, id, b"a");
        state.log.get_mut(first).unwrap().sent_at = Some(state.now);
        shows(&mut state, 2);
        let _ = remove(&mut state, id, b"b");
        assert!(is_linked(&state, id), "its reply is late, and the server may have executed it");
        finish(&mut state, first);
        assert!(is_linked(&state, id), "the store has yet to forget it");
        let _ = remove(&mut state, id, b"c");
        assert!(!is_linked(&state, id));
    }
}
