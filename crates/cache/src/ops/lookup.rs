//! Names and attributes: LOOKUP, GETATTR, READLINK, ACCESS, STATFS.

use std::time::Duration;

use remora_wire::fuse::{Entry, Errno, Reply, StatFs};
use remora_wire::nfs3::{ACCESS_EXECUTE, ACCESS_EXTEND, ACCESS_LOOKUP, ACCESS_MODIFY, ACCESS_READ, FileType, Name};

use crate::ahead;
use crate::disk::fetch;
use crate::needs::{self, NameWindow};
use crate::node::{Location, NodeId};
use crate::stat;
use crate::state::{Op, State, Stop};

/// Bits of access(2).
const R_OK: u32 = 4;
const W_OK: u32 = 2;
const X_OK: u32 = 1;
/// Longest target of a symbolic link in bytes (PATH_MAX without its NUL).
const TARGET_MAX: usize = 4095;

pub(crate) fn lookup(state: &mut State, op: &Op, name: &Name) -> Result<Reply, Stop> {
    let policy = state.config.policy;
    let window = NameWindow { present: policy.stat, absent: policy.open };
    let child = needs::child(state, op, op.node, name, window);
    if child == Err(Stop::Wait) && op.is_first {
        ahead::missed_name(state, op, op.node);
    }
    match child? {
        Some(id) => {
            // Of several links to a file, OPEN checks the name that was looked up last.
            state.node(id)?.location = Some(Location { dir: op.node, name: name.clone() });
            fetch::start_load(state, id);
            let found = entry(state, op, id);
            if found == Err(Stop::Wait) && op.is_first {
                ahead::missed_attr(state, op, id);
            }
            found
        }
        // A number of 0 lets the kernel remember that there is no such name.
        None => {
            let as_of = needs::known(state, op.node, name).map(|(_, as_of)| as_of);
            let valid = as_of.map_or(Duration::ZERO, |as_of| state.kernel_validity(as_of, policy.open));
            if valid.is_zero() {
                return Err(Errno::ENOENT.into());
            }
            Ok(Reply::Entry(Entry { nodeid: 0, entry_valid: valid, attr_valid: valid, ..Entry::default() }))
        }
    }
}

/// The answer that gives the kernel a reference to `id`.
pub(crate) fn entry(state: &mut State, op: &Op, id: NodeId) -> Result<Reply, Stop> {
    needs::attr(state, op, id, state.config.policy.stat)?;
    state.nodes.add_lookup(id);
    Ok(Reply::Entry(stat::entry(state, id)))
}

pub(crate) fn getattr(state: &mut State, op: &Op) -> Result<Reply, Stop> {
    let fresh = needs::attr(state, op, op.node, state.config.policy.stat);
    if fresh == Err(Stop::Wait) && op.is_first {
        ahead::missed_attr(state, op, op.node);
    }
    // The mount point answers without the server, so that listings of its parent do not wait.
    let is_known = state.node(op.node)?.attr.is_some();
    if !(op.node == NodeId::ROOT && is_known) {
        fresh?;
    }
    Ok(attr(state, op.node))
}

/// The attributes of `id`, without another look at the server.
pub(crate) fn attr(state: &State, id: NodeId) -> Reply {
    let node = state.nodes.get(id);
    let is_dirty = node.is_some_and(|node| node.file.as_ref().is_some_and(|file| file.size.is_some()));
    // The times of a file that is being written change without a word to the kernel.
    let valid = if is_dirty { Duration::ZERO } else { stat::validity(state, id) };
    Reply::Attr { attr: stat::attr(state, id), valid }
}

pub(crate) fn readlink(state: &mut State, op: &Op) -> Result<Reply, Stop> {
    let target = needs::link_target(state, op, op.node)?;
    // The kernel takes no answer that is longer, and would wait for another one.
    if target.len() > TARGET_MAX { Err(Errno::ENAMETOOLONG.into()) } else { Ok(Reply::Target(target)) }
}

pub(crate) fn access(state: &mut State, op: &Op, mask: u32) -> Result<Reply, Stop> {
    if mask & (R_OK | W_OK | X_OK) == 0 {
        return Ok(Reply::Empty);
    }
    let execute = if state.node(op.node)?.kind == FileType::Directory { ACCESS_LOOKUP } else { ACCESS_EXECUTE };
    let wanted = [(R_OK, ACCESS_READ), (W_OK, ACCESS_MODIFY | ACCESS_EXTEND), (X_OK, execute)];
    let bits = wanted.into_iter().filter(|(asked, _)| mask & asked != 0).fold(0, |bits, (_, bit)| bits | bit);
    needs::access(state, op, op.node, bits, state.config.policy.open)?;
    Ok(Reply::Empty)
}

/// The figures of the last reply, so that nothing waits; zeros before the first.
pub(crate) fn statfs(state: &mut State, op: &Op) -> Result<Reply, Stop> {
    needs::refresh_statfs(state, Some(op));
    let unknown = StatFs { bsize: 4096, frsize: 4096, namelen: 255, ..StatFs::default() };
    Ok(Reply::StatFs(state.statfs.unwrap_or(unknown)))
}
