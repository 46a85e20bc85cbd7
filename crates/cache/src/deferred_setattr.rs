//! SETATTRs that are deferred until the server has the file's data (`back` mode).
//!
//! `tar` and `cp -p` set times and mode after they have written. The change is answered from here and sent strictly after
//! the file's WRITEs; WRITEs that come later wait for its reply.

use std::sync::Arc;
use std::time::Duration;

use remora_wire::fuse::Errno;
use remora_wire::nfs3::{
    self, ACCESS_EXECUTE, ACCESS_EXTEND, ACCESS_MODIFY, ACCESS_READ, Attr, NfsTime, SetAttr, SetTime,
};
use remora_wire::rpc::AuthUnix;

use crate::call::Priority;
use crate::config::Writes;
use crate::data;
use crate::kept::{DeferredSetAttr, merged};
use crate::node::{Node, NodeId};
use crate::state::{Change, Op, Purpose, State};

/// How long a change waits for more while the file is open.
const DELAY: Duration = Duration::from_secs(1);
const SET_ID: u32 = 0o6000;

/// Whether the server would surely permit the change, which must follow data that is not sent yet.
pub(crate) fn is_possible(state: &State, op: &Op, set: &SetAttr) -> bool {
    let Some(node) = state.nodes.get(op.node) else { return false };
    let (Some(cached), Some(file)) = (&node.attr, &node.file) else { return false };
    let (attr, auth) = (&cached.attr, &op.caller.auth);
    let is_owner = auth.uid == attr.uid;
    let keeps_owners = set.uid.is_none_or(|uid| uid == attr.uid) && set.gid.is_none_or(|gid| gid == attr.gid);
    let has_set_id = (set.mode.unwrap_or_default() | attr.mode) & SET_ID != 0;
    let is_simple = set.size.is_none() && is_owner && (keeps_owners || auth.uid == 0) && !has_set_id;
    state.config.writes == Writes::Back && is_simple && !file.is_flushed()
}

/// Records a change that follows the data.
pub(crate) fn add(state: &mut State, id: NodeId, auth: &Arc<AuthUnix>, set: &SetAttr) {
    let at = state.now + DELAY;
    data::update(state, id, |file| {
        let earlier = file.deferred.take().map_or(SetAttr::NONE, |deferred| deferred.set);
        file.deferred = Some(DeferredSetAttr { set: merged(&earlier, set), auth: auth.clone(), at });
        file.send_at = Some(file.send_at.map_or(at, |earlier| earlier.min(at)));
        file.writer.get_or_insert_with(|| auth.clone());
    });
    state.timers.insert((at, id));
}

/// A program writes again: the file's time will be that of the write, by the server's clock or
/// `at`. The file reaches to `end` at least.
pub(crate) fn written(deferred: &mut Option<DeferredSetAttr>, at: Option<NfsTime>, end: u64) {
    if let Some(change) = deferred {
        change.set.size = change.set.size.filter(|size| *size > end);
        change.set.mtime = at.map_or(SetTime::Keep, SetTime::To);
        if change.set == SetAttr::NONE {
            *deferred = None;
        }
    }
}

/// Sends the change, once all data is committed and no program is likely to write more.
pub(crate) fn send(state: &mut State, id: NodeId) {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(id) else { return };
    let (fh, is_closed) = (node.fh.clone(), node.opens == 0);
    let Some(file) = node.file.as_deref_mut() else { return };
    let is_ready = file.cut.is_none()
        && file.cut_sent.is_none()
        && file.is_committed()
        && file.completing == 0
        && file.deferred_sent.is_none()
        && file.check.is_none()
        && !file.kept.is_behind();
    let Some(deferred) =
        file.deferred.take_if(|deferred| is_ready && (is_closed || file.is_urgent || deferred.at <= now))
    else {
        return;
    };
    let priority = if file.is_urgent { Priority::Durable } else { Priority::WriteBack };
    let call = nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh, attr: deferred.set.clone(), guard: None });
    let change = Change::Deferred(id);
    let auth = deferred.auth.clone();
    file.deferred_sent = Some(deferred);
    state.begin_change(&change);
    state.submit(priority, &auth, call, Purpose::Change { op: None, change });
}

/// The server has changed the attributes, or refused: the next fsync or close reports that.
pub(crate) fn answered(state: &mut State, id: NodeId, error: Option<Errno>) {
    data::update(state, id, |file| {
        file.deferred_sent = None;
        file.error = file.error.or(error);
    });
}

/// No reply came: the change is sent again later.
pub(crate) fn unanswered(state: &mut State, id: NodeId) {
    let at = state.now + DELAY;
    data::update(state, id, |file| {
        if let Some(sent) = file.deferred_sent.take() {
            let later = file.deferred.take().map_or(SetAttr::NONE, |deferred| deferred.set);
            file.deferred = Some(DeferredSetAttr { set: merged(&sent.set, &later), auth: sent.auth, at });
            file.send_at = Some(at);
        }
    });
    state.timers.insert((at, id));
}

/// The attributes of an object with the changes that the server lacks.
pub(crate) fn overlaid(node: &Node, attr: &Attr) -> Attr {
    let mut attr = attr.clone();
    if let Some(logged) = &node.logged {
        lay_over(&mut attr, &logged.set);
    }
    let Some(file) = &node.file else { return attr };
    for deferred in [&file.deferred_sent, &file.deferred].into_iter().flatten() {
        lay_over(&mut attr, &deferred.set);
    }
    attr
}

fn lay_over(attr: &mut Attr, set: &SetAttr) {
    attr.mode = set.mode.unwrap_or(attr.mode);
    attr.uid = set.uid.unwrap_or(attr.uid);
    attr.gid = set.gid.unwrap_or(attr.gid);
    if let SetTime::To(time) = &set.atime {
        attr.atime = *time;
    }
    if let SetTime::To(time) = &set.mtime {
        attr.mtime = *time;
    }
}

/// Whether a program has set the file's time after its last write.
pub(crate) fn has_mtime(node: &Node) -> bool {
    let Some(file) = &node.file else { return false };
    [&file.deferred_sent, &file.deferred]
        .into_iter()
        .flatten()
        .any(|deferred| matches!(deferred.set.mtime, SetTime::To(_)))
}

/// What the owner may do by a mode that the server does not have yet (`ACCESS_*`).
pub(crate) fn granted(node: &Node, uid: u32) -> Option<u32> {
    let (cached, file) = (node.attr.as_ref()?, node.file.as_ref()?);
    let changes = [&file.deferred, &file.deferred_sent].into_iter().flatten();
    let mode = changes.filter_map(|deferred| deferred.set.mode).next()?;
    if uid != cached.attr.uid {
        return None;
    }
    let bits = [(0o400, ACCESS_READ), (0o200, ACCESS_MODIFY | ACCESS_EXTEND), (0o100, ACCESS_EXECUTE)];
    let allowed = |bit: u32| mode & bit != 0 || uid == 0 && bit != 0o100;
    Some(bits.into_iter().filter(|(bit, _)| allowed(*bit)).fold(0, |all, (_, access)| all | access))
}
