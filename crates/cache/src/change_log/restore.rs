//! Takes the change log of an earlier run.

use std::sync::Arc;

use remora_wire::fuse::Errno;
use remora_wire::nfs3::{Attr, FileType, NfsTime};

use crate::change_log::append;
use crate::change_log::local::{self, NewObject};
use crate::change_log::log::{Entry, Logged, ReplacedNode, Stage};
use crate::change_log::record::{LogChange, LogName, LogNode, LogObject, LogRecord, Replaced, SavedLog};
use crate::data;
use crate::deferred_setattr;
use crate::dirty_store;
use crate::disk::fetch;
use crate::node::{Location, NodeId};
use crate::state::State;

/// Takes the log. Objects that the server has made since are found by their bindings.
pub(crate) fn restore(state: &mut State, log: SavedLog) {
    // The earlier run may have been killed before its last barrier.
    state.store.saves += 1;
    state.store.barrier_at = Some(state.now);
    for binding in log.bindings {
        state.log.bound.insert(binding.provisional.clone(), NodeId::ROOT);
        state.log.bindings.insert(binding.provisional.clone(), binding);
    }
    log.records.into_iter().for_each(|record| restore_record(state, record));
    log.conflicts.into_iter().for_each(|conflict| state.log.restore_conflict(conflict));
}

/// The object of a record.
pub(crate) fn object(state: &mut State, object: &LogNode) -> NodeId {
    let id = if let Some(binding) = state.log.bindings.get(&object.fh) {
        let id = state.nodes.adopt(&binding.fh, object.kind, binding.fileid);
        state.log.bound.insert(object.fh.clone(), id);
        if let Some(node) = state.nodes.get_mut(id) {
            node.shown_fileid = Some(object.fileid);
        }
        id
    } else if let Some(id) = state.nodes.by_handle(&object.fh) {
        id
    } else {
        state.nodes.adopt(&object.fh, object.kind, object.fileid)
    };
    fetch::start_load(state, id);
    id
}

fn location(state: &mut State, at: LogName) -> Location {
    Location { dir: object(state, &at.dir), name: at.name }
}

fn restore_record(state: &mut State, record: LogRecord) {
    let LogRecord { id, change, credential, at, path, refusal } = record;
    let auth = state.credentials.of(credential.uid, credential.gid, &credential.gids).auth;
    let change = match change {
        LogChange::Make { object: made, .. } if state.log.bindings.contains_key(&made.fh) => {
            // The server has made it, and the record was to go with the binding.
            state.store.log.batch.removed.push(id);
            return;
        }
        LogChange::Make { at: name, object: made, what, attr, verifier } => {
            let name = location(state, name);
            let node = object(state, &made);
            made_before(state, node, &NewObject { at: &name, what: &what, set: &attr, auth: &auth }, at);
            Logged::Make { at: name, node, what, attr, verifier }
        }
        LogChange::Link { object: linked, at } => {
            Logged::Link { node: object(state, &linked), at: location(state, at) }
        }
        LogChange::Remove { at, object: removed, seen, is_directory } => {
            Logged::Remove { at: location(state, at), node: object(state, &removed), seen, is_directory }
        }
        LogChange::Rename { from, to, object: moved, seen, replaced } => {
            let (from, to, node) = (location(state, from), location(state, to), object(state, &moved));
            let replaced =
                replaced.map(|Replaced { object: gone, seen }| ReplacedNode { node: object(state, &gone), seen });
            Logged::Rename { from, to, node, seen, replaced }
        }
        LogChange::SetAttr { object: changed, set, seen } => {
            Logged::SetAttr { node: object(state, &changed), set, seen }
        }
    };
    let stage = refusal.map_or(Stage::Waiting, |errno| Stage::Refused(Errno(errno.cast_signed())));
    for node in [Some(change.node()), change.replaced()].into_iter().flatten() {
        if let Some(node) = state.nodes.get_mut(node) {
            node.own.has_sent = true;
        }
    }
    append::insert(state, id, Entry { change, auth, at, path, stage, sent_at: None });
    state.log.is_changed(id);
    state.log.is_saved(id, state.store.saves);
}

/// An object that was made in an earlier run and that the server does not have.
fn made_before(state: &mut State, id: NodeId, new: &NewObject<'_>, at: NfsTime) {
    let attr = local::attr(state, new, state.nodes.get(id).map_or(0, |node| node.fileid));
    let attr = Attr { atime: at, mtime: at, ctime: at, ..attr };
    let now = state.now;
    let Some(node) = state.nodes.get_mut(id) else { return };
    node.is_local = true;
    node.disk = None;
    if let LogObject::SymLink(target) = new.what {
        node.link_target = Some(target.clone());
    }
    if attr.kind == FileType::Directory {
        node.dir().complete = Some(local::LISTED);
    }
    node.location = Some(new.at.clone());
    node.attr = Some(local::known_attr(attr, now));
    if *new.what == LogObject::File {
        // The store may not have the file yet, which follows its record.
        let (completion, auth) = (local::completion(state, new.set), Arc::new(new.auth.clone()));
        data::update(state, id, |file| _ = file.size.get_or_insert(0));
        deferred_setattr::add(state, id, &auth, &completion);
        dirty_store::changed(state, id, None);
    }
}
