//! Open files: OPEN, READ, WRITE, FLUSH, FSYNC, RELEASE.

use std::sync::Arc;

use bytes::Bytes;
use remora_wire::fuse::{Errno, Opened, Reply};
use remora_wire::nfs3::{self, ACCESS_EXECUTE, ACCESS_MODIFY, ACCESS_READ, SetAttr};
use remora_wire::rpc::AuthUnix;

use crate::ahead;
use crate::call::Priority;
use crate::change_log::step;
use crate::config::Writes;
use crate::data;
use crate::dirty_store;
use crate::disk::fetch;
use crate::needs::{self, NameWindow};
use crate::node::{Location, Node, NodeId};
use crate::prefetch;
use crate::read_grant;
use crate::state::{Change, Op, Purpose, State, Stop};
use crate::writeback::{self, Amount};

const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_WRONLY: u32 = 1;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
const O_DIRECT: u32 = 0o40000;
/// The file is opened to be executed (`__FMODE_EXEC`).
const FMODE_EXEC: u32 = 0x20;

/// Opens a file: checks its attributes, its name, and the caller's permission, each as new as the policy wants.
pub(crate) fn open(state: &mut State, op: &mut Op, flags: u32) -> Result<Reply, Stop> {
    let id = op.node;
    if op.steps.is_empty() {
        let window = state.config.policy.open;
        let bits = match flags & O_ACCMODE {
            O_RDONLY if flags & FMODE_EXEC != 0 => ACCESS_EXECUTE,
            O_RDONLY => ACCESS_READ,
            O_WRONLY => ACCESS_MODIFY,
            _ => ACCESS_READ | ACCESS_MODIFY,
        };
        if bits & ACCESS_MODIFY != 0 && state.config.read_only {
            return Err(Errno::EROFS.into());
        }
        fetch::start_load(state, id);
        if op.is_first && bits & ACCESS_MODIFY == 0 {
            ahead::opening(state, op);
        }
        // The calls leave together. A reply to ACCESS has the attributes, too, and one to READ tells of both.
        let is_unknown = needs::known_grant(state, op, id, bits, window)?.is_none();
        let permitted = match is_unknown && bits == ACCESS_READ && read_grant::await_read(state, op, id) {
            true => Err(Stop::Wait),
            false => needs::access(state, op, id, bits, window),
        };
        let named = is_named(state, op, id);
        if op.is_first && bits & ACCESS_MODIFY == 0 {
            ahead::opened_file(state, op);
            prefetch::opened_file(state, op);
        }
        permitted?;
        named?;
        needs::attr(state, op, id, window)?;
        if bits & ACCESS_MODIFY != 0 && flags & O_TRUNC == 0 {
            step::has_all(state, op, id)?;
        }
    }
    if flags & O_TRUNC != 0 {
        set_size(state, op, 0)?;
    }
    ahead::used(state, id);
    let node = state.node(id)?;
    let is_changed = std::mem::take(&mut node.file().is_changed);
    let fh = state.open(id, &op.caller);
    let direct_io = flags & O_DIRECT != 0;
    Ok(Reply::Opened(Opened { fh, keep_cache: !is_changed, direct_io, ..Opened::default() }))
}

/// Whether the object is still what its name stands for; ESTALE makes the kernel look the name up again.
fn is_named(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    let window = state.config.policy.open;
    let Some(location) = state.node(id)?.location.clone() else { return Ok(()) };
    let window = NameWindow { present: window, absent: window };
    match needs::child(state, op, location.dir, &location.name, window) {
        Ok(Some(found)) if found == id => Ok(()),
        Err(Stop::Wait) => Err(Stop::Wait),
        _ => Err(Errno::ESTALE.into()),
    }
}

/// Truncates or extends the file of `op`, after all that was written to it.
fn set_size(state: &mut State, op: &mut Op, size: u64) -> Result<(), Stop> {
    let id = op.node;
    if step::is_kept_here(state, op) {
        if !std::mem::replace(&mut op.is_applied, true) {
            step::set_file_attr(state, op, SetAttr { size: Some(size), ..SetAttr::NONE });
        }
        dirty_store::saved(state, op, id)?;
        return Ok(());
    }
    if op.steps.is_empty() {
        writeback::settled(state, op, id)?;
    }
    let fh = state.node(id)?.fh.clone();
    let attr = SetAttr { size: Some(size), ..SetAttr::NONE };
    let call = nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh, attr, guard: None });
    step::step(state, op, 0, Change::SetAttr(id), call)?;
    data::truncate(state, id, size);
    Ok(())
}

pub(crate) fn read(state: &mut State, op: &Op, fh: u64, offset: u64, size: u32) -> Result<Reply, Stop> {
    let id = state.handle(fh)?.node;
    data::read(state, op, id, offset..offset.saturating_add(u64::from(size))).map(Reply::Data)
}

/// Data of a WRITE, and the flags of its open file.
#[derive(Clone, Debug)]
pub(crate) struct WriteRequest {
    pub(crate) fh: u64,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    pub(crate) flags: u32,
}

/// Answered from memory, so that the kernel never holds dirty pages; waits only while too much is uncommitted.
pub(crate) fn write(state: &mut State, op: &mut Op, request: WriteRequest) -> Result<Reply, Stop> {
    let handle = state.handle(request.fh)?;
    let (id, opener) = (handle.node, handle.opener.clone());
    // Pages of a shared mapping are written without a caller.
    op.caller = opener;
    let node = state.node(id)?;
    let size = node.size();
    let file = node.file();
    if !file.refused.is_empty() {
        return Err(file.error.take().unwrap_or(Errno::EIO).into());
    }
    let len = request.data.len() as u64;
    if dirty_store::is_full(state, len) {
        return Err(Errno::ENOSPC.into());
    }
    let (bytes_max, files_max) = (state.dirty_max(), state.dirty_files_max());
    if state.is_disconnected() && (state.dirty_bytes + len > bytes_max || state.dirty_files.len() > files_max) {
        return Err(Errno::ENOSPC.into());
    }
    let is_crowded = state.dirty_files.len() >= files_max && !state.dirty_files.contains(&id);
    if state.dirty_bytes > 0 && state.dirty_bytes + len > bytes_max || is_crowded {
        state.space_waiters.insert(op.unique);
        let files: Vec<NodeId> = state.dirty_files.iter().copied().collect();
        files.into_iter().for_each(|id| writeback::send(state, id, Amount::All));
        return Err(Stop::Wait);
    }
    let mut offset = request.offset;
    if request.flags & O_APPEND != 0 {
        let window = state.config.policy.open;
        if !state.node(id)?.is_dirty() {
            needs::attr(state, op, id, window)?;
        }
        offset = size;
    }
    writeback::write(state, id, offset, request.data, op)?;
    Ok(Reply::Written { size: len as u32 })
}

/// close(2) and fsync(2): waits until the server has committed all that was written; with `back`, until the store has
/// it, and fsync(2) until it is safe there from a loss of power.
pub(crate) fn flush(state: &mut State, op: &Op, fh: u64, is_fsync: bool) -> Result<Reply, Stop> {
    let id = state.handle(fh)?.node;
    let is_kept = state.node(id)?.file().kept.object.is_some();
    // A record that the server refused may keep it from making this file for long.
    if state.acknowledges_here() || state.node(id)?.is_local {
        dirty_store::saved(state, op, id)?;
        if is_fsync {
            dirty_store::synced(state, op, id)?;
        }
        writeback::reported(state, id)?;
        return Ok(Reply::Empty);
    } else if is_kept {
        // After a crash, an older version of the store would be sent again.
        dirty_store::saved(state, op, id)?;
        dirty_store::synced(state, op, id)?;
    }
    writeback::flushed(state, op, id)?;
    Ok(Reply::Empty)
}

/// The last close of a handle.
pub(crate) fn release(state: &mut State, fh: u64) -> Result<Reply, Stop> {
    close(state, fh);
    Ok(Reply::Empty)
}

/// Drops a handle. The file that was removed while open is removed now.
pub(crate) fn close(state: &mut State, fh: u64) {
    let Some(handle) = state.handles.remove(&fh) else { return };
    let id = handle.node;
    let Some(node) = state.nodes.get_mut(id) else { return };
    node.opens = node.opens.saturating_sub(1);
    let is_last = node.opens == 0;
    let removed = if is_last { node.remove_at_close.take() } else { None };
    if let Some(at) = removed {
        if has_other_names(state, id) {
            writeback::send(state, id, Amount::All);
        } else {
            data::discard(state, id);
        }
        if step::is_logged(state, &Change::Remove(at.clone())) {
            step::remove_hidden(state, id, at, handle.opener.auth);
        } else {
            remove_name(state, &handle.opener.auth, at);
        }
    } else if is_last {
        if state.config.writes == Writes::Through && state.nodes.get(id).is_none_or(|node| !is_kept(node)) {
            writeback::drop_refused(state, id);
        }
        writeback::send(state, id, Amount::All);
    }
    state.nodes.settle(id);
}

/// Whether the file has names beside the hidden one.
fn has_other_names(state: &State, id: NodeId) -> bool {
    let Some(node) = state.nodes.get(id) else { return false };
    let logged = node.logged.as_ref().map_or(0, |logged| logged.links);
    node.attr.as_ref().is_some_and(|cached| i64::from(cached.attr.nlink) + logged > 1)
}

/// Whether the store has data of the file.
fn is_kept(node: &Node) -> bool {
    node.file.as_ref().is_some_and(|file| file.kept.object.is_some())
}

/// Removes a name for which nothing waits.
pub(crate) fn remove_name(state: &mut State, auth: &Arc<AuthUnix>, at: Location) {
    let Some(dir) = state.nodes.get(at.dir).map(|node| node.fh.clone()) else { return };
    let call = nfs3::Call::Remove(nfs3::DirOp { dir, name: at.name.clone() });
    let change = Change::Remove(at);
    state.begin_change(&change);
    state.submit(Priority::WriteBack, auth, call, Purpose::Change { op: None, change });
}
