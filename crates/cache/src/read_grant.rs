//! Permissions that replies to other calls than ACCESS show: a READ that was answered, and an object that the caller made.

use remora_base::Time;
use remora_wire::nfs3::{ACCESS_READ, Attr};

use crate::change_log::local;
use crate::credentials::Caller;
use crate::disk::save;
use crate::learn;
use crate::needs::ACCESS_ALL;
use crate::node::{Grant, NodeId};
use crate::state::{Op, Purpose, State};

/// Whether a READ that `uid` made tells that it may read the file. A server also lets the owner read, and a caller
/// who may execute the file, against its mode (RFC 1813, section 4.4).
fn is_telling(attr: &Attr, uid: u32) -> bool {
    attr.mode & 0o444 == 0o444 || attr.uid == uid && attr.mode & 0o400 != 0
}

/// Whether a READ is expected to show that the caller may read the file.
pub(crate) fn is_expected(state: &State, id: NodeId, caller: &Caller) -> bool {
    let attr = state.nodes.get(id).and_then(|node| node.attr.as_ref());
    attr.is_some_and(|cached| is_telling(&cached.attr, caller.auth.uid))
}

/// The caller has made the object: as its owner he may do what its mode says.
pub(crate) fn made(state: &mut State, id: NodeId, maker: &Caller) {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(id).filter(|node| !node.is_local) else { return };
    let Some(cached) = node.attr.as_ref().filter(|cached| cached.attr.uid == maker.auth.uid) else { return };
    let granted = local::granted(&cached.attr, &maker.auth);
    node.grants.entry(maker.id).or_insert(Grant { tested: ACCESS_ALL, granted, asked: now });
    save::learned(state, id);
}

/// The mode of an object was changed here: only its owner's permissions are known.
pub(crate) fn mode_changed(state: &mut State, id: NodeId) {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(id) else { return };
    let callers = std::mem::take(&mut node.grants).into_keys();
    let Some(cached) = &node.attr else { return };
    for caller in callers {
        let Some(auth) = state.credentials.get(caller).filter(|auth| auth.uid == cached.attr.uid) else { continue };
        let granted = local::granted(&cached.attr, auth);
        node.grants.insert(caller, Grant { tested: ACCESS_ALL, granted, asked: now });
    }
    save::learned(state, id);
}

/// A READ was answered with these attributes.
pub(crate) fn learn(state: &mut State, id: NodeId, reader: &Caller, attr: &Attr, asked: Time) {
    if is_telling(attr, reader.auth.uid) {
        learn::learn_grant(state, id, reader.id, Grant { tested: ACCESS_READ, granted: ACCESS_READ, asked });
    }
}

/// Waits for a READ in flight that is expected to show that the caller of `op` may read the file. Returns whether there
/// is one.
pub(crate) fn await_read(state: &mut State, op: &Op, id: NodeId) -> bool {
    if !is_expected(state, id, &op.caller) {
        return false;
    }
    let window = state.config.policy.open;
    let Some(file) = state.nodes.get(id).and_then(|node| node.file.as_ref()) else { return false };
    let tells = |call| {
        let pending = state.pending.get(call)?;
        let Purpose::Read { reader, .. } = &pending.purpose else { return None };
        (reader.id == op.caller.id && state.is_fresh(pending.asked, op, window)).then_some(*call)
    };
    let Some(call) = file.reading.keys().find_map(tells) else { return false };
    state.wait_for(call, op.unique);
    true
}

#[cfg(test)]
mod tests {
    use remora_wire::nfs3::{FileType, NfsTime, SpecData};

    use super::*;

    fn attr(mode: u32, uid: u32) -> Attr {
        let zero = NfsTime { secs: 0, nanos: 0 };
        Attr {
            kind: FileType::Regular,
            mode,
            nlink: 1,
            uid,
            gid: 0,
            size: 1,
            used: 1,
            rdev: SpecData { major: 0, minor: 0 },
            fsid: 1,
            fileid: 1,
            atime: zero,
            mtime: zero,
            ctime: zero,
        }
    }

    #[test]
    fn read_shows_permission_where_the_mode_grants_it() {
        for (mode, uid, is_shown) in [
            (0o644, 7, true),
            (0o644, 8, true),
            (0o600, 7, true),
            (0o600, 0, false),
            (0o640, 8, false),
            (0o244, 7, false),
            (0o711, 8, false),
        ] {
            assert_eq!(is_telling(&attr(mode, 7), uid), is_shown, "mode {mode:o} of 7, read by {uid}");
        }
    }
}
