//! Objects that were made here: their handles, attributes and permissions until the server has made them.

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::{
    ACCESS_DELETE, ACCESS_EXECUTE, ACCESS_EXTEND, ACCESS_LOOKUP, ACCESS_MODIFY, ACCESS_READ, Attr, Fh, FileType,
    NodeKind, SetAttr, SetTime, SpecData,
};
use remora_wire::rpc::AuthUnix;

use crate::change_log::record::LogObject;
use crate::node::{CachedAttr, Listed, Location, Node, NodeId};
use crate::state::State;

/// Beginning of provisional handles.
const HANDLE: &[u8; 6] = b"remora";
const SET_GID: u32 = 0o2000;
/// Set in the numbers of objects that were made here, to tell them from most of the server's.
const FILEID: u64 = 1 << 62;

/// A handle and a number for an object that is made here, unlike all others.
pub(crate) fn identity(state: &mut State) -> (Fh, u64) {
    state.log.next_object += 1;
    let (mount, number) = (state.config.client_id, state.log.next_object);
    let handle: Vec<u8> = [&HANDLE[..], &mount.to_be_bytes(), &number.to_be_bytes()].concat();
    let fileid = FILEID | (mount.rotate_left(20) ^ number) & (FILEID - 1);
    (Fh(Bytes::from(handle)), fileid)
}

/// Whether a handle is one of an object that was made here.
pub(crate) fn is_provisional(fh: &Fh) -> bool {
    fh.0.starts_with(HANDLE)
}

/// The type of an object of the log.
pub(crate) fn kind(what: &LogObject) -> FileType {
    match what {
        LogObject::File => FileType::Regular,
        LogObject::Directory => FileType::Directory,
        LogObject::SymLink(_) => FileType::SymLink,
        LogObject::Special(NodeKind::Char(..)) => FileType::Char,
        LogObject::Special(NodeKind::Block(..)) => FileType::Block,
        LogObject::Special(NodeKind::Fifo(_)) => FileType::Fifo,
        LogObject::Special(_) => FileType::Socket,
    }
}

/// Who makes an object, and how.
pub(crate) struct NewObject<'n> {
    pub(crate) at: &'n Location,
    pub(crate) what: &'n LogObject,
    pub(crate) set: &'n SetAttr,
    pub(crate) auth: &'n AuthUnix,
}

/// An object that is made here.
pub(crate) fn make(state: &mut State, new: &NewObject<'_>) -> NodeId {
    let (fh, fileid) = identity(state);
    let attr = attr(state, new, fileid);
    let mut node = Node::new(fh, attr.kind, fileid);
    if let LogObject::SymLink(target) = new.what {
        node.link_target = Some(target.clone());
    }
    if attr.kind == FileType::Directory {
        node.dir().complete = Some(LISTED);
    }
    node.location = Some(new.at.clone());
    node.is_local = true;
    node.attr = Some(known_attr(attr, state.now));
    state.nodes.insert(node)
}

/// Attributes of an object that was made here: nothing is newer.
pub(crate) fn known_attr(attr: Attr, now: Time) -> CachedAttr {
    CachedAttr { attr, asked: Time::MAX, received: Time::MAX, since: now, outdated: None }
}

/// Attributes of an object that is made here.
pub(crate) fn attr(state: &State, new: &NewObject<'_>, fileid: u64) -> Attr {
    let dir = state.nodes.get(new.at.dir).and_then(|node| node.attr.as_ref()).map(|cached| &cached.attr);
    let inherits = dir.is_some_and(|dir| dir.mode & SET_GID != 0);
    let kind = kind(new.what);
    let mode = new.set.mode.unwrap_or(0o777);
    let now = state.server_nfs_time();
    let rdev = match new.what {
        LogObject::Special(NodeKind::Char(_, rdev) | NodeKind::Block(_, rdev)) => *rdev,
        _ => SpecData { major: 0, minor: 0 },
    };
    let size = if let LogObject::SymLink(target) = new.what { target.len() as u64 } else { 0 };
    Attr {
        kind,
        mode: if inherits && kind == FileType::Directory { mode | SET_GID } else { mode },
        nlink: if kind == FileType::Directory { 2 } else { 1 },
        uid: new.auth.uid,
        gid: dir.filter(|_| inherits).map_or(new.auth.gid, |dir| dir.gid),
        size,
        used: size,
        rdev,
        fsid: dir.map_or(0, |dir| dir.fsid),
        fileid,
        atime: now,
        mtime: now,
        ctime: now,
    }
}

/// What a caller may do by the mode of an object that was made here (`ACCESS_*`).
pub(crate) fn granted(attr: &Attr, auth: &AuthUnix) -> u32 {
    let is_directory = attr.kind == FileType::Directory;
    if auth.uid == 0 {
        let executes = is_directory || attr.mode & 0o111 != 0;
        return ACCESS_READ
            | ACCESS_MODIFY
            | ACCESS_EXTEND
            | ACCESS_DELETE
            | if executes { execute(is_directory) } else { 0 };
    }
    let shift = match () {
        () if auth.uid == attr.uid => 6,
        () if auth.gid == attr.gid || auth.gids.contains(&attr.gid) => 3,
        () => 0,
    };
    let bits = attr.mode >> shift;
    let write = ACCESS_MODIFY | ACCESS_EXTEND | if is_directory { ACCESS_DELETE } else { 0 };
    let granted = [(4, ACCESS_READ), (2, write), (1, execute(is_directory))];
    granted.into_iter().filter(|(bit, _)| bits & bit != 0).fold(0, |all, (_, access)| all | access)
}

fn execute(is_directory: bool) -> u32 {
    if is_directory { ACCESS_LOOKUP } else { ACCESS_EXECUTE }
}

/// All names of a directory that was made here: nothing is newer.
pub(crate) const LISTED: Listed = Listed { began: Time::MAX, is_confirmed: false };

/// What the server has made of an object, or has in its place.
pub(crate) struct ServerObject<'s> {
    pub(crate) fh: &'s Fh,
    pub(crate) attr: &'s Attr,
    /// The server has made it for us just now.
    pub(crate) is_new: bool,
}

/// The server has made the object: it gets the server's handle, number and attributes. Its data is not sent before
/// [`Node::is_binding`] is cleared.
pub(crate) fn bind(state: &mut State, id: NodeId, object: &ServerObject<'_>) {
    let ServerObject { fh, attr, is_new } = *object;
    let now = state.now;
    state.nodes.rebind(now, id, fh);
    let Some(node) = state.nodes.get_mut(id) else { return };
    node.is_local = false;
    node.is_binding = true;
    node.is_stale = false;
    node.shown_fileid.get_or_insert(node.fileid);
    if let Some(cached) = &node.attr {
        node.shown_ctime.get_or_insert(cached.attr.ctime);
    }
    node.fileid = attr.fileid;
    node.attr = Some(CachedAttr { attr: attr.clone(), asked: now, received: now, since: now, outdated: None });
    if let Some(dir) = &mut node.dir
        && let Some(listed) = &mut dir.complete
    {
        // Nobody else can have made a name in it yet.
        *listed = Listed { began: now, is_confirmed: true };
    }
    if let Some(dir) = node.dir.as_mut().filter(|_| !is_new) {
        dir.complete = None;
    }
    state.nodes.settle(id);
}

/// The change of attributes that completes a file, after its data: an exclusive creation sets none.
pub(crate) fn completion(state: &State, set: &SetAttr) -> SetAttr {
    SetAttr { atime: SetTime::Server, mtime: SetTime::To(state.server_nfs_time()), ..set.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn mode_grants_what_posix_says() {
        let (read, write) = (ACCESS_READ, ACCESS_MODIFY | ACCESS_EXTEND);
        for (mode, uid, groups, expected) in [
            (0o640, 7, vec![], read | write),
            (0o640, 8, vec![70], read),
            (0o640, 8, vec![71], 0),
            (0o645, 8, vec![71], read | ACCESS_EXECUTE),
            (0o040, 7, vec![70], 0),
            (0o000, 0, vec![], read | write | ACCESS_DELETE),
            (0o100, 0, vec![], read | write | ACCESS_DELETE | ACCESS_EXECUTE),
        ] {
            let attr = Attr { mode, uid: 7, gid: 70, ..example::file(example::TIME) };
            let auth = AuthUnix { uid, gids: groups.clone(), gid: 1, ..AuthUnix::default() };
            assert_eq!(granted(&attr, &auth), expected, "mode {mode:o}, user {uid}, groups {groups:?}");
        }
    }
}
