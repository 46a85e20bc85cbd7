//! Permissions that replies to other calls than ACCESS show: a READ that was answered, and an object that the caller made.

use remora_base::Time;
use remora_wire::nfs3::{ACCESS_READ, Attr};

use crate::change_log::local;
use crate::credentials::Caller;
use crate::learn;
use crate::node::{Grant, Node, NodeId};
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

/// The caller has made the object.
pub(crate) fn made(state: &mut State, id: NodeId, maker: &Caller) {
    if let Some(node) = state.nodes.get_mut(id) {
        node.maker = Some(maker.id);
    }
}

/// What the owner may do by the object's mode, while the server cannot be asked: a caller who made it, or whom the server
/// let read it. It may take root for another user (squash), so that reading tells nothing of root.
pub(crate) fn of_owner(node: &Node, caller: &Caller) -> Option<u32> {
    let attr = &node.attr.as_ref()?.attr;
    let reads = || node.grants.get(&caller.id).is_some_and(|grant| grant.granted & ACCESS_READ != 0);
    let is_owner = attr.uid == caller.auth.uid && (node.maker == Some(caller.id) || caller.auth.uid != 0 && reads());
    is_owner.then(|| local::granted(attr, &caller.auth))
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
    use bytes::Bytes;
    use remora_wire::nfs3::{ACCESS_EXTEND, ACCESS_MODIFY, Fh, FileType};

    use super::*;
    use crate::credentials::Credentials;
    use crate::example;
    use crate::node::CachedAttr;

    fn attr(mode: u32, uid: u32) -> Attr {
        Attr { mode, uid, ..example::file(example::TIME) }
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
    #[test]
    fn owner_who_read_a_file_may_write_it_without_the_server() {
        const MAY_WRITE: u32 = ACCESS_READ | ACCESS_MODIFY | ACCESS_EXTEND;
        let mut credentials = Credentials::new(Bytes::new());
        for (uid, mode, granted, expected) in [
            (7, 0o644, Some(ACCESS_READ), Some(MAY_WRITE)),
            (7, 0o444, Some(ACCESS_READ), Some(ACCESS_READ)),
            (7, 0o644, Some(0), None),
            (7, 0o644, None, None),
            (8, 0o666, Some(ACCESS_READ), None),
            (0, 0o644, Some(ACCESS_READ), None),
        ] {
            let caller = credentials.of(uid, 1, &[]);
            let mut node = Node::new(Fh(Bytes::new()), FileType::Regular, 7);
            let attr = Attr { uid: if uid == 8 { 7 } else { uid }, ..attr(mode, 7) };
            let (asked, received, since) = (Time::ZERO, Time::ZERO, Time::ZERO);
            node.attr = Some(CachedAttr { attr, asked, received, since, outdated: None });
            if let Some(granted) = granted {
                node.grants.insert(caller.id, Grant { tested: ACCESS_READ, granted, asked });
            }
            assert_eq!(of_owner(&node, &caller), expected, "{uid}, mode {mode:o}, grant {granted:?}");
        }
    }
}
