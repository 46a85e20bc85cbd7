//! Replies to the calls of a record: what they show of the server, and what follows.

use remora_base::Time;
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{self, Attr, Fh, FileType, Reply, Status, Wcc, WccAttr};

use crate::change_effects;
use crate::change_log::append::{self, finish, refuse};
use crate::change_log::local;
use crate::change_log::log::{Found, Logged, Stage};
use crate::change_log::record::{Binding, ConflictKind, LogObject, RecordId};
use crate::dirty_store;
use crate::disk::{fetch, save};
use crate::errno::errno;
use crate::learn;
use crate::node::{Location, NodeId, Target};
use crate::reintegration::conflict;
use crate::reintegration::send::{self, act, look};
use crate::state::{Change, LogCall, State};

/// A call got no reply: its outcome is unknown, and the record begins again.
pub(crate) fn unanswered(state: &mut State, id: RecordId, call: LogCall, asked: Time) {
    if let LogCall::Act(change) = &call {
        learn::finish_change(state, change, [&Wcc::NONE, &Wcc::NONE], asked);
        change_effects::forget_names(state, change);
    }
    state.log.set_stage(id, Stage::Waiting);
}

/// Takes the reply to a call of a record.
pub(crate) fn answered(state: &mut State, id: RecordId, call: LogCall, reply: Reply, asked: Time) {
    match (call, reply) {
        (LogCall::Act(change), reply) => acted(state, id, &change, reply, asked),
        (LogCall::Existing, Reply::Lookup(result)) => existing(state, id, result),
        (LogCall::ExistingTarget { fh, attr }, Reply::ReadLink(result)) => {
            let theirs = result.ok().map(|ok| ok.target);
            let is_same = matches!(what(state, id), Some(LogObject::SymLink(ours)) if Some(&ours) == theirs.as_ref());
            if is_same {
                bind(state, id, &fh, &attr, false)
            } else {
                conflict::rename_ours(state, id, ConflictKind::Content)
            }
        }
        (LogCall::From, Reply::Lookup(result)) => looked(state, id, true, result),
        (LogCall::To, Reply::Lookup(result)) => looked(state, id, false, result),
        (LogCall::Attr { fh, is_from }, Reply::GetAttr(result)) => match result {
            Ok(attr) => found(state, id, is_from, Found::Object { fh, attr: Box::new(attr) }),
            Err(_) => found(state, id, is_from, Found::Absent),
        },
        _ => refuse(state, id, Errno::EIO),
    }
}

fn what(state: &State, id: RecordId) -> Option<LogObject> {
    match &state.log.get(id)?.change {
        Logged::Make { what, .. } => Some(what.clone()),
        _ => None,
    }
}

type LookupResult = Result<nfs3::LookupOk, nfs3::Failed<Option<Attr>>>;

/// A name of a REMOVE, RMDIR or RENAME was looked up.
fn looked(state: &mut State, id: RecordId, is_from: bool, result: LookupResult) {
    match result {
        Ok(nfs3::LookupOk { fh, attr: Some(attr), .. }) => {
            found(state, id, is_from, Found::Object { fh, attr: Box::new(attr) });
        }
        Ok(nfs3::LookupOk { fh, attr: None, .. }) => {
            send::submit(state, id, nfs3::Call::GetAttr(fh.clone()), LogCall::Attr { fh, is_from });
        }
        Err(failed) if failed.status == Status::NoEnt => found(state, id, is_from, Found::Absent),
        Err(failed) if matches!(failed.status, Status::Stale | Status::BadHandle) => {
            lost_directory(state, id, is_from);
        }
        Err(failed) => refuse(state, id, errno(failed.status)),
    }
}

/// The server has lost a directory of the record. A removal in it is done.
fn lost_directory(state: &mut State, id: RecordId, is_from: bool) {
    let at = state.log.get(id).and_then(|entry| {
        let mut names = entry.change.names();
        if is_from { names.next().cloned() } else { names.nth(1).cloned() }
    });
    if let Some(at) = at
        && let Some(node) = state.nodes.get_mut(at.dir)
    {
        node.is_stale = at.dir != NodeId::ROOT;
    }
    let is_removal = matches!(state.log.get(id).map(|entry| &entry.change), Some(Logged::Remove { .. }));
    if is_removal { finish(state, id) } else { state.log.set_stage(id, Stage::Waiting) }
}

/// What the server has at a name is known: the change follows when all of it is.
fn found(state: &mut State, id: RecordId, is_from: bool, what: Found) {
    let Some(entry) = state.log.get_mut(id) else { return };
    let Stage::Looking { since, from, to } = &mut entry.stage else { return };
    let since = *since;
    *(if is_from { &mut *from } else { &mut *to }) = Some(what);
    let (from, to) = (from.clone(), to.clone());
    match (entry.change.clone(), from, to) {
        (Logged::Remove { at, node, seen, .. }, Some(found), _) => {
            decide_removal(state, id, &Removal { at, node, seen, since }, found);
        }
        (Logged::Rename { from: old, to: new, node, replaced, .. }, Some(from), Some(to)) => {
            let replaced =
                replaced.map(|replaced| Removal { at: new.clone(), node: replaced.node, seen: replaced.seen, since });
            decide_rename(state, id, &Move { from: old, to: new, node, replaced }, from, to);
        }
        _ => {}
    }
}

/// An object that loses a name.
struct Removal {
    at: Location,
    node: NodeId,
    seen: Option<WccAttr>,
    /// When the look at the server's names began.
    since: Time,
}

struct Move {
    from: Location,
    to: Location,
    node: NodeId,
    replaced: Option<Removal>,
}

fn is_object(state: &State, id: NodeId, fh: &Fh, attr: &Attr) -> bool {
    state.nodes.get(id).is_some_and(|node| node.fh == *fh || node.fileid == attr.fileid && node.kind == attr.kind)
}

/// Whether another client has changed the object since it was last seen here.
fn has_changed(state: &State, removal: &Removal, attr: &Attr) -> bool {
    let node = state.nodes.get(removal.node);
    // What changes made here may have led to.
    let known = node.filter(|node| node.own.has_sent).and_then(|node| node.attr.as_ref());
    let known = known.map(|cached| cached.attr.wcc());
    let is = |seen: &WccAttr| (seen.size, seen.mtime) == (attr.size, attr.mtime);
    let is_file = attr.kind == FileType::Regular;
    // An object that was made here shortly before a restart was never seen.
    let is_seen = removal.seen.is_some() || known.is_some();
    // A change of our own got no reply.
    let is_own = node.is_some_and(|node| node.own.is_unseen);
    is_file && is_seen && !is_own && !removal.seen.iter().chain(known.as_ref()).any(is)
}

/// Whether a change made here may be what the server showed of the object.
fn is_changing(state: &State, removal: &Removal) -> bool {
    let Some(node) = state.nodes.get(removal.node) else { return false };
    let is_newer = node.attr.as_ref().is_some_and(|cached| cached.received > removal.since);
    !send::is_quiet(state, removal.node) || is_newer
}

fn decide_removal(state: &mut State, id: RecordId, removal: &Removal, found: Found) {
    match found {
        Found::Absent => {
            learn::removed(state, &removal.at, Time::ZERO);
            finish(state, id);
        }
        Found::Object { fh, attr } => {
            let is_ours = is_object(state, removal.node, &fh, &attr);
            if is_ours && !has_changed(state, removal, &attr) {
                return act(state, id);
            }
            if is_ours && is_changing(state, removal) {
                return state.log.set_stage(id, Stage::Waiting);
            }
            conflict::skip(state, id, ConflictKind::ChangedThere);
        }
    }
}

fn decide_rename(state: &mut State, id: RecordId, moved: &Move, from: Found, to: Found) {
    let is_moved = |state: &State, found: &Found| matches!(found, Found::Object { fh, attr } if is_object(state, moved.node, fh, attr));
    if is_moved(state, &to) {
        // Ours, before a crash, or the same by another client.
        learn::renamed(state, &moved.from, &moved.to);
        return finish(state, id);
    }
    if !is_moved(state, &from) {
        return conflict::skip(state, id, ConflictKind::Renamed);
    }
    match (&to, &moved.replaced) {
        (Found::Absent, _) => act(state, id),
        (Found::Object { fh, attr }, Some(replaced))
            if is_object(state, replaced.node, fh, attr) && !has_changed(state, replaced, attr) =>
        {
            act(state, id);
        }
        (Found::Object { .. }, Some(replaced)) if is_changing(state, replaced) => {
            state.log.set_stage(id, Stage::Waiting);
        }
        (Found::Object { .. }, _) => conflict::rename_ours(state, id, ConflictKind::Content),
    }
}

/// The change was executed, or refused.
fn acted(state: &mut State, id: RecordId, change: &Change, reply: Reply, asked: Time) {
    let status = reply.status();
    if status.is_none()
        && let Some(made) = made(&reply)
    {
        let Some((fh, attr)) = made else {
            learn::finish_change(state, change, [&Wcc::NONE, &Wcc::NONE], asked);
            return look_at_existing(state, id);
        };
        bind(state, id, &fh, &attr, true);
        change_effects::record(state, change, &reply, asked);
        let Some(node) = state.log.get(id).map(|entry| entry.change.node()) else { return };
        append::relocate(state, node);
        fetch::made(state, node);
        return save::learned(state, node);
    }
    change_effects::record(state, change, &reply, asked);
    let Some(status) = status else { return finish(state, id) };
    failed(state, id, status);
}

/// The object in the reply to a change that makes one; the inner `None` if the reply lacks it.
#[allow(clippy::option_option, reason = "the outer one tells replies of other changes")]
fn made(reply: &Reply) -> Option<Option<(Fh, Attr)>> {
    match reply {
        Reply::Create(Ok(ok)) | Reply::MkDir(Ok(ok)) | Reply::SymLink(Ok(ok)) | Reply::MkNod(Ok(ok)) => {
            Some(ok.fh.clone().zip(ok.attr.clone()))
        }
        _ => None,
    }
}

fn failed(state: &mut State, id: RecordId, status: Status) {
    let Some(entry) = state.log.get(id) else { return };
    match (&entry.change, status) {
        (Logged::Make { .. } | Logged::Link { .. }, Status::Exist) => look_at_existing(state, id),
        (Logged::Make { at, .. }, Status::Stale | Status::BadHandle | Status::NoEnt | Status::NotDir) => {
            let dir = at.dir;
            if let Some(node) = state.nodes.get_mut(dir).filter(|_| dir != NodeId::ROOT) {
                node.is_stale = true;
            }
            state.log.set_stage(id, Stage::Waiting);
        }
        (Logged::Remove { .. }, Status::NoEnt | Status::Stale | Status::BadHandle) => finish(state, id),
        (Logged::Remove { .. }, Status::NotEmpty | Status::Exist) => conflict::skip(state, id, ConflictKind::Skipped),
        (Logged::Rename { .. }, Status::NotEmpty | Status::Exist | Status::Inval) => {
            conflict::skip(state, id, ConflictKind::Skipped);
        }
        // The first one of two transmissions may have been executed: the names show it.
        (Logged::Rename { .. }, Status::NoEnt) => state.log.set_stage(id, Stage::Waiting),
        (Logged::Rename { .. } | Logged::Link { .. }, Status::NoEnt | Status::Stale | Status::BadHandle) => {
            conflict::skip(state, id, ConflictKind::Renamed);
        }
        (Logged::SetAttr { node, .. }, Status::NotSync) => {
            let node = *node;
            conflict::skip_attributes(state, id, node);
        }
        (Logged::SetAttr { .. }, Status::NoEnt | Status::Stale | Status::BadHandle) => {
            conflict::skip(state, id, ConflictKind::Attributes);
        }
        (_, status) => refuse(state, id, errno(status)),
    }
}

/// Looks at what exists where the record makes a name.
fn look_at_existing(state: &mut State, id: RecordId) {
    let at = state.log.get(id).and_then(|entry| entry.change.names().last().cloned());
    at.into_iter().for_each(|at| look(state, id, &at, LogCall::Existing));
}

/// A name exists where the record makes one.
fn existing(state: &mut State, id: RecordId, result: LookupResult) {
    let Some(entry) = state.log.get(id) else { return };
    let ok = match result {
        Ok(ok) => ok,
        // It is gone again.
        Err(failed) if failed.status == Status::NoEnt => return state.log.set_stage(id, Stage::Waiting),
        Err(failed) => return refuse(state, id, errno(failed.status)),
    };
    let Some(attr) = ok.attr else { return conflict::rename_ours(state, id, ConflictKind::Content) };
    match &entry.change {
        Logged::Link { node, .. } => {
            if is_object(state, *node, &ok.fh, &attr) {
                finish(state, id);
            } else {
                conflict::rename_ours(state, id, ConflictKind::Content);
            }
        }
        Logged::Make { what: LogObject::Directory, .. } if attr.kind == FileType::Directory => {
            bind(state, id, &ok.fh, &attr, false);
        }
        Logged::Make { what: LogObject::SymLink(_), .. } if attr.kind == FileType::SymLink => {
            let call = nfs3::Call::ReadLink(ok.fh.clone());
            send::submit(state, id, call, LogCall::ExistingTarget { fh: ok.fh, attr: Box::new(attr) });
        }
        Logged::Make { what, .. } => {
            let kind = if local::kind(what) == attr.kind { ConflictKind::Content } else { ConflictKind::Type };
            conflict::rename_ours(state, id, kind);
        }
        _ => refuse(state, id, Errno::EEXIST),
    }
}

/// The server has the object of the record: it is sent on once the store knows that.
fn bind(state: &mut State, id: RecordId, fh: &Fh, attr: &Attr, is_new: bool) {
    let Some(entry) = state.log.get(id) else { return };
    let (node, at) = (entry.change.node(), entry.change.names().last().cloned());
    let Some(provisional) = state.nodes.get(node).map(|node| node.fh.clone()) else { return };
    local::bind(state, node, &local::ServerObject { fh, attr, is_new });
    if let Some(at) = at {
        // A look-up may have shown the server's object, as another one, before the record was done.
        learn::learn_name(state, &at, Target::Node(node), state.now, false);
    }
    if !is_new {
        save::learned(state, node);
    }
    state.log.bound.insert(provisional.clone(), node);
    let binding = Binding { provisional, fh: fh.clone(), fileid: attr.fileid };
    let changes = &mut state.store.log;
    changes.batch.bound.push(binding);
    changes.batch.removed.push(id);
    changes.done.push(id);
    state.log.set_stage(id, Stage::Done);
    dirty_store::changed(state, node, None);
}
