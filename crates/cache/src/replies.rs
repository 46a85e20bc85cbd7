//! Replies of the server, and their effects on the cache and on the operations that wait.

use std::ops::Range;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::fuse::{Errno, StatFs};
use remora_wire::nfs3::{self, Fh, Reply, Status, Wcc};

use crate::call::{CallFailure, CallId, Priority};
use crate::change_effects::{self, forget_names};
use crate::data;
use crate::disconnection;
use crate::disk::save;
use crate::errno::errno;
use crate::learn::{self, Names, Shown};
use crate::needs;
use crate::node::{Grant, Location, NodeId, Target};
use crate::read_grant;
use crate::recovery;
use crate::reintegration;
use crate::state::{Change, ListingProgress, Pending, Purpose, State};
use crate::store_queue::StepId;
use crate::writeback;

/// Times that a listing starts again because the directory changed.
const RESTARTS_MAX: u32 = 8;
/// Entries of a directory.
const ENTRIES_MAX: usize = 10_000_000;

/// Handles the reply to `id`, or its absence.
pub(crate) fn handle(state: &mut State, id: CallId, result: Result<Reply, CallFailure>) {
    let Some(mut pending) = state.pending.remove(&id) else { return };
    state.ahead.remove(&id);
    state.queue.answered(id);
    if result.is_ok() {
        disconnection::heard(state);
    }
    disconnection::call_ended(state, id);
    if let Some(key) = &pending.key
        && state.fetches.get(key) == Some(&id)
    {
        state.fetches.remove(key);
    }
    let purpose = pending.purpose.clone();
    match result {
        Ok(reply) => {
            let status = reply.status();
            if let Some(Status::Stale | Status::BadHandle) = status {
                lost(state, &purpose, pending.asked);
            }
            answered(state, id, &mut pending, reply);
        }
        Err(failure) => {
            let errno = if failure == CallFailure::TimedOut { Errno::ETIMEDOUT } else { Errno::EIO };
            match purpose {
                Purpose::Write { node, range } => {
                    learn::finish_write(state, node, &Wcc::NONE, pending.asked);
                    writeback::unanswered(state, node, Some((id, range)), failure);
                }
                Purpose::Commit(node) => {
                    data::update(state, node, |file| file.commit = None);
                    writeback::unanswered(state, node, None, failure);
                }
                Purpose::Read { node, .. } => _ = data::ended(state, node, id),
                Purpose::Check(node) => recovery::unanswered(state, node),
                Purpose::CheckRead { node, .. } => recovery::unread(state, node),
                Purpose::Reintegrate { record, call } => {
                    reintegration::replies::unanswered(state, record, call, pending.asked);
                }
                Purpose::Change { op, change } => {
                    learn::finish_change(state, &change, [&Wcc::NONE, &Wcc::NONE], pending.asked);
                    forget_names(state, &change);
                    if let Change::Complete(id) = &change {
                        writeback::completed(state, *id, Some(errno));
                    }
                    if let Change::Deferred(id) = &change {
                        writeback::attr_changed(state, *id, Err(failure));
                    }
                    if let Change::Cut(id) = &change {
                        writeback::cut(state, *id, Err(failure));
                    }
                    complete(state, op, Err(errno));
                }
                _ => {}
            }
            fail(state, &pending.waiters, errno);
        }
    }
    state.ready.extend(pending.waiters);
    state.hoard.wake(subject(&pending.purpose));
}

/// The operations that wait for the call fail.
fn fail(state: &mut State, waiters: &[u64], errno: Errno) {
    for unique in waiters {
        if let Some(op) = state.held.get_mut(unique) {
            op.failure = Some(errno);
        }
    }
}

fn fail_status(state: &mut State, pending: &Pending, status: Status) {
    fail(state, &pending.waiters, errno(status));
}

/// The server does not know the object of the call any more.
fn lost(state: &mut State, purpose: &Purpose, asked: Time) {
    let Some(id) = subject(purpose).filter(|id| *id != NodeId::ROOT) else { return };
    let Some(node) = state.nodes.get_mut(id).filter(|node| asked >= node.fh_since) else { return };
    node.is_stale = true;
    if let Some(location) = node.location.clone() {
        learn::forget_name(state, &location);
    }
}

/// The object whose handle the call has.
fn subject(purpose: &Purpose) -> Option<NodeId> {
    Some(match purpose {
        Purpose::GetAttr(id) | Purpose::ReadLink(id) | Purpose::Commit(id) | Purpose::Check(id) => *id,
        Purpose::CheckRead { node, .. } => *node,
        Purpose::Access { node, .. } | Purpose::Read { node, .. } | Purpose::Write { node, .. } => *node,
        Purpose::Lookup { at, .. } => at.dir,
        Purpose::List(progress) => progress.dir,
        Purpose::Change { change: Change::SetAttr(id) | Change::Complete(id), .. } => *id,
        Purpose::Change { change: Change::Deferred(id) | Change::Cut(id), .. } => *id,
        Purpose::Change { change: Change::Make(at) | Change::Remove(at), .. } => at.dir,
        Purpose::Change { .. } | Purpose::Reintegrate { .. } | Purpose::Found { .. } | Purpose::StatFs => return None,
    })
}

/// Takes a reply of the right kind for its call.
fn answered(state: &mut State, id: CallId, pending: &mut Pending, reply: Reply) {
    let asked = pending.asked;
    match (pending.purpose.clone(), reply) {
        (Purpose::GetAttr(node), Reply::GetAttr(result)) => match result {
            Ok(attr) => learn::learn_attr(state, node, &attr, asked),
            Err(failed) => fail_status(state, pending, failed.status),
        },
        (Purpose::Found { at, fh }, Reply::GetAttr(result)) => match result {
            Ok(attr) => learn::learn_object(state, Shown { at: &at, fh: &fh, attr: &attr, asked }, false),
            Err(failed) => fail_status(state, pending, failed.status),
        },
        (Purpose::Lookup { at, credential }, Reply::Lookup(result)) => {
            looked_up(state, pending, at, credential, result);
        }
        (Purpose::Access { node, credential }, Reply::Access(result)) => match result {
            Ok(ok) => {
                if let Some(attr) = &ok.attr {
                    learn::learn_attr(state, node, attr, asked);
                }
                let grant = Grant { tested: 0x3f, granted: ok.access, asked };
                learn::learn_grant(state, node, credential, grant);
            }
            Err(failed) => fail_status(state, pending, failed.status),
        },
        (Purpose::ReadLink(node), Reply::ReadLink(result)) => match result {
            Ok(ok) => read_link(state, node, ok, asked),
            Err(failed) => fail_status(state, pending, failed.status),
        },
        (purpose @ Purpose::Read { .. }, Reply::Read(result)) => read(state, id, pending, purpose, result),
        (Purpose::List(progress), reply) => listed(state, pending, *progress, reply),
        (Purpose::StatFs, Reply::FsStat(Ok(ok))) => state.statfs = Some(figures(&ok)),
        (Purpose::Write { node, range }, Reply::Write(result)) => match result {
            Ok(ok) => {
                learn::finish_write(state, node, &ok.wcc, asked);
                writeback::written(state, node, id, range, &ok);
            }
            Err(failed) => {
                learn::finish_write(state, node, &failed.info, asked);
                writeback::refused(state, node, id, range, errno(failed.status));
            }
        },
        (Purpose::Commit(node), Reply::Commit(result)) => {
            data::update(state, node, |file| file.commit = None);
            writeback::committed(state, node, result.as_ref().map_err(|failed| failed.status));
        }
        (check @ (Purpose::Check(_) | Purpose::CheckRead { .. }), reply) => checked(state, check, reply, asked),
        (Purpose::Reintegrate { record, call }, reply) => {
            reintegration::replies::answered(state, record, call, reply, asked);
        }
        (Purpose::Change { op, change }, reply) => changed(state, op, change, reply, asked),
        _ => fail(state, &pending.waiters, Errno::EIO),
    }
}

fn read(
    state: &mut State,
    id: CallId,
    pending: &Pending,
    purpose: Purpose,
    result: Result<nfs3::ReadOk, nfs3::Failed<Option<nfs3::Attr>>>,
) {
    let Purpose::Read { node, range, reader } = purpose else { return };
    let is_wanted = data::ended(state, node, id);
    let ok = match result {
        Ok(ok) => ok,
        Err(failed) => return fail_status(state, pending, failed.status),
    };
    if let Some(attr) = &ok.attr {
        learn::learn_attr(state, node, attr, pending.asked);
        read_grant::learn(state, node, &reader, attr, pending.asked);
    }
    if !is_wanted {
        return;
    }
    let rest = rest(&range, &ok);
    if let Err(errno) = data::arrived(state, node, range, &ok) {
        fail(state, &pending.waiters, errno);
    } else if let Some(rest) = rest.filter(|_| !state.hoard.calls.contains(&id)) {
        let is_awaited = !pending.waiters.is_empty();
        let priority = if is_awaited { Priority::Foreground } else { Priority::ReadAhead };
        data::fetch_rest(state, &reader, node, rest, priority);
    }
}

/// What the reply to a READ of `range` leaves out before the end of the file.
fn rest(range: &Range<u64>, reply: &nfs3::ReadOk) -> Option<Range<u64>> {
    let end = range.start + reply.data.len() as u64;
    (!reply.eof && (range.start + 1..range.end).contains(&end)).then_some(end..range.end)
}

fn read_link(state: &mut State, id: NodeId, ok: nfs3::ReadLinkOk, asked: Time) {
    if let Some(attr) = &ok.attr {
        learn::learn_attr(state, id, attr, asked);
    }
    if let Some(node) = state.nodes.get_mut(id) {
        node.link_target = Some(ok.target);
    }
    save::learned(state, id);
}

/// The server shows a file with data from an earlier run.
fn checked(state: &mut State, check: Purpose, reply: Reply, asked: Time) {
    match (check, reply) {
        (Purpose::Check(node), Reply::GetAttr(result)) => {
            recovery::seen(state, node, result.map_err(|failed| errno(failed.status)), asked);
        }
        (Purpose::CheckRead { node, range }, Reply::Read(result)) => {
            let rest = result.as_ref().ok().and_then(|ok| rest(&range, ok));
            recovery::read(state, node, range, rest, result.ok().as_ref().map(|ok| &ok.data));
        }
        _ => {}
    }
}

fn looked_up(
    state: &mut State,
    pending: &mut Pending,
    at: Location,
    credential: crate::credentials::CredentialId,
    result: Result<nfs3::LookupOk, nfs3::Failed<Option<nfs3::Attr>>>,
) {
    let asked = pending.asked;
    let dir_attr = match &result {
        Ok(ok) => &ok.dir,
        Err(failed) => &failed.info,
    };
    if let Some(attr) = dir_attr {
        learn::learn_attr(state, at.dir, attr, asked);
    }
    let is_confirmed = learn::is_confirmed(state, at.dir, dir_attr.as_ref());
    let may_search = Grant { tested: nfs3::ACCESS_LOOKUP, granted: nfs3::ACCESS_LOOKUP, asked };
    match result {
        Ok(ok) => {
            learn::learn_grant(state, at.dir, credential, may_search);
            match &ok.attr {
                Some(attr) => learn::learn_object(state, Shown { at: &at, fh: &ok.fh, attr, asked }, is_confirmed),
                None => {
                    let auth = pending.waiters.iter().find_map(|unique| state.held.get(unique)).map(|op| &op.caller);
                    let auth = auth.map(|caller| caller.auth.clone());
                    let auth = auth.unwrap_or_else(|| state.credentials.of(0, 0, &[]).auth);
                    let call = nfs3::Call::GetAttr(ok.fh.clone());
                    let next = state.submit(Priority::Foreground, &auth, call, Purpose::Found { at, fh: ok.fh });
                    hand_over(state, pending, next);
                }
            }
        }
        Err(failed) if failed.status == Status::NoEnt => {
            learn::learn_grant(state, at.dir, credential, may_search);
            learn::learn_name(state, &at, Target::Absent, asked, is_confirmed);
        }
        Err(failed) => fail_status(state, pending, failed.status),
    }
}

/// Those who waited for one call wait for the next one.
fn hand_over(state: &mut State, pending: &mut Pending, next: CallId) {
    if let Some(key) = pending.key.take() {
        state.fetches.insert(key.clone(), next);
        if let Some(pending) = state.pending.get_mut(&next) {
            pending.key = Some(key);
        }
    }
    for unique in std::mem::take(&mut pending.waiters) {
        state.wait_for(next, unique);
    }
}

/// A page of a listing: asks for the next one, or records all names.
fn listed(state: &mut State, pending: &mut Pending, mut progress: ListingProgress, reply: Reply) {
    let known = progress.found.len();
    let restarts = progress.restarts;
    let eof = match reply {
        Reply::ReadDirPlus(Ok(page)) => {
            learn_dir(state, &mut progress, page.dir, pending.asked);
            progress.verf = page.verf;
            for entry in page.entries.list {
                progress.cookie = entry.cookie;
                let target = match (&entry.fh, &entry.attr) {
                    (Some(fh), Some(attr)) => Target::Node(listed_object(state, fh, attr, pending.asked)),
                    _ => Target::Unknown { fileid: entry.fileid },
                };
                // A slice would keep the whole page in memory.
                progress.found.push((Bytes::copy_from_slice(&entry.name), target));
            }
            page.entries.eof
        }
        Reply::ReadDir(Ok(page)) => {
            learn_dir(state, &mut progress, page.dir, pending.asked);
            progress.verf = page.verf;
            for entry in page.entries.list {
                progress.cookie = entry.cookie;
                progress.found.push((Bytes::copy_from_slice(&entry.name), Target::Unknown { fileid: entry.fileid }));
            }
            page.entries.eof
        }
        Reply::ReadDirPlus(Err(failed)) if failed.status == Status::NotSupp => {
            progress = restart(progress, state.now);
            progress.is_plain = true;
            false
        }
        Reply::ReadDirPlus(Err(failed)) | Reply::ReadDir(Err(failed))
            if failed.status == Status::BadCookie && progress.restarts < RESTARTS_MAX =>
        {
            progress = restart(progress, state.now);
            false
        }
        Reply::ReadDirPlus(Err(failed)) | Reply::ReadDir(Err(failed)) => {
            return fail_status(state, pending, failed.status);
        }
        _ => return fail(state, &pending.waiters, Errno::EIO),
    };
    if eof {
        return record_listing(state, progress);
    }
    // A server that adds no entry, or goes on for ever, is broken.
    let is_stuck = progress.restarts == restarts && progress.found.len() == known;
    if is_stuck || progress.found.len() > ENTRIES_MAX {
        return fail(state, &pending.waiters, Errno::EIO);
    }
    let is_ahead = pending.waiters.is_empty();
    let priority = if is_ahead { Priority::Prefetch } else { Priority::Foreground };
    match needs::listing_call(state, &progress, priority) {
        Ok(call) => {
            let auth = progress.credential.auth.clone();
            let next = state.submit(priority, &auth, call, Purpose::List(Box::new(progress)));
            if is_ahead {
                state.ahead.insert(next);
            }
            hand_over(state, pending, next);
        }
        Err(errno) => fail(state, &pending.waiters, errno),
    }
}

fn listed_object(state: &mut State, fh: &Fh, attr: &nfs3::Attr, asked: Time) -> NodeId {
    let id = state.nodes.intern(fh, attr);
    learn::learn_attr(state, id, attr, asked);
    id
}

fn restart(progress: ListingProgress, now: Time) -> ListingProgress {
    let restarts = progress.restarts + 1;
    ListingProgress { began: now, cookie: 0, verf: [0; 8], found: Vec::new(), restarts, ..progress }
}

/// Attributes of the directory in a page.
fn learn_dir(state: &mut State, progress: &mut ListingProgress, attr: Option<nfs3::Attr>, asked: Time) {
    let is_first = progress.found.is_empty();
    let Some(attr) = attr else {
        progress.is_uniform = false;
        return;
    };
    learn::learn_attr(state, progress.dir, &attr, asked);
    if is_first {
        progress.attr = Some(attr);
    } else {
        progress.is_uniform &= progress.attr.as_ref().is_some_and(|first| first.wcc() == attr.wcc());
    }
}

fn record_listing(state: &mut State, progress: ListingProgress) {
    let is_confirmed = progress.is_uniform && learn::is_confirmed(state, progress.dir, progress.attr.as_ref());
    let ListingProgress { dir, found, began, .. } = progress;
    learn::learn_names(state, Names { dir, found, began, is_confirmed });
}

fn figures(ok: &nfs3::FsStatOk) -> StatFs {
    const BLOCK: u64 = 4096;
    StatFs {
        blocks: ok.total / BLOCK,
        bfree: ok.free / BLOCK,
        bavail: ok.avail / BLOCK,
        files: ok.files,
        ffree: ok.files_free,
        bsize: BLOCK as u32,
        namelen: 255,
        frsize: BLOCK as u32,
    }
}

/// A change is answered: records its effects, and the result for its operation.
fn changed(state: &mut State, op: Option<StepId>, change: Change, reply: Reply, asked: Time) {
    change_effects::record(state, &change, &reply, asked);
    if let Change::Complete(id) = &change {
        writeback::completed(state, *id, reply.status().map(errno));
    }
    if let Change::Deferred(id) = &change {
        writeback::attr_changed(state, *id, Ok(reply.status().map(errno)));
    }
    if let Change::Cut(id) = &change {
        writeback::cut(state, *id, Ok(reply.status().map(errno)));
    }
    let result = match reply.status() {
        None => Ok(()),
        Some(status) => Err(errno(status)),
    };
    complete(state, op, result);
}

fn complete(state: &mut State, step: Option<StepId>, result: Result<(), Errno>) {
    if let Some(step) = step {
        state.finish_step(step, result);
    }
}
