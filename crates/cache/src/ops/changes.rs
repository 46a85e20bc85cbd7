//! Changes of names and attributes: CREATE, MKDIR, UNLINK, RENAME, LINK, SETATTR and their relatives.

use remora_wire::fuse::{self, Errno, Opened, Reply, TimeChange};
use remora_wire::nfs3::{self, CreateHow, DirOp, FileType, Name, NfsTime, NodeKind, SetAttr, SetTime};

use crate::call::Priority;
use crate::change_log::step;
use crate::config::Writes;
use crate::data;
use crate::deferred_setattr;
use crate::dirty_store;
use crate::needs::{self, NameWindow};
use crate::node::{Location, NodeId, Target};
use crate::ops::lookup;
use crate::read_grant;
use crate::stat;
use crate::state::{Change, Hidden, Op, Purpose, State, Step, Stop};
use crate::writeback;

const O_EXCL: u32 = 0o200;
const PERMISSIONS: u32 = 0o7777;
const RENAME_NOREPLACE: u32 = 1;

fn dir_op(state: &mut State, at: &Location) -> Result<DirOp, Errno> {
    Ok(DirOp { dir: state.node(at.dir)?.fh.clone(), name: at.name.clone() })
}

fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode & PERMISSIONS), ..SetAttr::NONE }
}

/// The object that a change has just made at `at`.
fn made(state: &mut State, op: &Op, at: &Location) -> Result<NodeId, Stop> {
    if let Some(id) = known(state, at) {
        return Ok(id);
    }
    // The reply had no handle.
    let window = state.config.policy.stat;
    let found = needs::child(state, op, at.dir, &at.name, NameWindow { present: window, absent: window })?;
    found.ok_or(Errno::ENOENT.into())
}

/// Creates and opens a file. The kernel has looked the name up before.
pub(crate) fn create(state: &mut State, op: &mut Op, name: Name, mode: u32, flags: u32) -> Result<Reply, Stop> {
    let at = Location { dir: op.node, name };
    let is_exclusive = flags & O_EXCL != 0;
    make_file(state, op, &at, mode, is_exclusive)?;
    let id = made(state, op, &at)?;
    needs::attr(state, op, id, state.config.policy.stat)?;
    read_grant::made(state, id, &op.caller);
    state.nodes.add_lookup(id);
    let fh = state.open(id, &op.caller);
    Ok(Reply::Created(stat::entry(state, id), Opened { fh, keep_cache: true, ..Opened::default() }))
}

/// CREATE with EXCLUSIVE and SETATTR for O_EXCL, so that a repeated call does not fail; else with GUARDED.
fn make_file(state: &mut State, op: &mut Op, at: &Location, mode: u32, is_exclusive: bool) -> Result<(), Stop> {
    let guarded = CreateHow::Guarded(with_mode(mode));
    let call = |state: &mut State, how| -> Result<nfs3::Call, Errno> {
        Ok(nfs3::Call::Create(nfs3::CreateArgs { at: dir_op(state, at)?, how }))
    };
    let is_logged = step::is_logged(state, &Change::Make(at.clone()));
    // The log makes files by exclusive creation itself.
    let is_exclusive_call = is_exclusive && (!op.steps.is_empty() || !is_logged);
    if is_exclusive_call {
        let verifier = state.config.client_id ^ op.unique.rotate_left(32);
        let first = call(state, CreateHow::Exclusive(verifier.to_be_bytes()))?;
        match step::step(state, op, 0, Change::Make(at.clone()), first) {
            Ok(()) => {
                let id = made(state, op, at)?;
                return Ok(complete(state, op, id, mode)?);
            }
            // The server lacks exclusive creation.
            Err(Stop::Failed(Errno::EOPNOTSUPP)) => {}
            Err(stop) => return Err(stop),
        }
    }
    let index = usize::from(is_exclusive_call);
    let call = call(state, guarded)?;
    match step::step(state, op, index, Change::Make(at.clone()), call) {
        // Another client was faster: the kernel looks the name up again and opens it.
        Err(Stop::Failed(Errno::EEXIST)) if !is_exclusive => Err(Errno::ESTALE.into()),
        result => result,
    }
}

/// Sends the SETATTR that an exclusive creation needs: the server may keep the verifier in the times. Nothing waits for
/// it but fsync, close and further changes of attributes.
fn complete(state: &mut State, op: &mut Op, id: NodeId, mode: u32) -> Result<(), Errno> {
    if std::mem::replace(&mut op.is_applied, true) {
        return Ok(());
    }
    let node = state.node(id)?;
    if let Some(cached) = &mut node.attr {
        cached.attr.mode = mode & PERMISSIONS;
    }
    let fh = node.fh.clone();
    let attr = SetAttr { atime: SetTime::Server, mtime: SetTime::Server, ..with_mode(mode) };
    if state.config.writes == Writes::Back {
        // One SETATTR after the data does for this and what the program sets itself.
        deferred_setattr::add(state, id, &op.caller.auth, &attr);
        dirty_store::changed(state, id, None);
        return Ok(());
    }
    let call = nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh, attr, guard: None });
    let change = Change::Complete(id);
    state.begin_change(&change);
    state.submit(Priority::Foreground, &op.caller.auth, call, Purpose::Change { op: None, change });
    data::update(state, id, |file| file.completing += 1);
    Ok(())
}

pub(crate) fn mknod(state: &mut State, op: &mut Op, name: Name, mode: u32, rdev: u32) -> Result<Reply, Stop> {
    let at = Location { dir: op.node, name };
    let (attr, spec) = (with_mode(mode), stat::device_numbers(rdev));
    let what = match fuse::FileKind::of_mode(mode) {
        fuse::FileKind::Regular | fuse::FileKind::Unknown => {
            make_file(state, op, &at, mode, false).map_err(|stop| match stop {
                Stop::Failed(Errno::ESTALE) => Errno::EEXIST.into(),
                stop => stop,
            })?;
            let id = made(state, op, &at)?;
            return lookup::entry(state, op, id);
        }
        fuse::FileKind::CharDevice => NodeKind::Char(attr, spec),
        fuse::FileKind::BlockDevice => NodeKind::Block(attr, spec),
        fuse::FileKind::Socket => NodeKind::Socket(attr),
        fuse::FileKind::Fifo => NodeKind::Fifo(attr),
        fuse::FileKind::Directory | fuse::FileKind::SymLink => return Err(Errno::EINVAL.into()),
    };
    let call = nfs3::Call::MkNod(nfs3::MkNodArgs { at: dir_op(state, &at)?, what });
    make(state, op, at, call)
}

pub(crate) fn mkdir(state: &mut State, op: &mut Op, name: Name, mode: u32) -> Result<Reply, Stop> {
    let at = Location { dir: op.node, name };
    let call = nfs3::Call::MkDir(nfs3::MkDirArgs { at: dir_op(state, &at)?, attr: with_mode(mode) });
    make(state, op, at, call)
}

pub(crate) fn symlink(state: &mut State, op: &mut Op, name: Name, target: bytes::Bytes) -> Result<Reply, Stop> {
    let at = Location { dir: op.node, name };
    let args = nfs3::SymLinkArgs { at: dir_op(state, &at)?, attr: with_mode(0o777), target };
    make(state, op, at, nfs3::Call::SymLink(args))
}

fn make(state: &mut State, op: &mut Op, at: Location, call: nfs3::Call) -> Result<Reply, Stop> {
    step::step(state, op, 0, Change::Make(at.clone()), call)?;
    let id = made(state, op, &at)?;
    read_grant::made(state, id, &op.caller);
    lookup::entry(state, op, id)
}

pub(crate) fn link(state: &mut State, op: &mut Op, node: NodeId, name: Name) -> Result<Reply, Stop> {
    let to = Location { dir: op.node, name };
    let call = link_call(state, node, &to)?;
    step::step(state, op, 0, Change::Link { node, to }, call)?;
    lookup::entry(state, op, node)
}

fn link_call(state: &mut State, node: NodeId, to: &Location) -> Result<nfs3::Call, Errno> {
    let fh = state.node(node)?.fh.clone();
    Ok(nfs3::Call::Link(nfs3::LinkArgs { fh, at: dir_op(state, to)? }))
}

fn rename_call(state: &mut State, from: &Location, to: &Location) -> Result<nfs3::Call, Errno> {
    Ok(nfs3::Call::Rename(nfs3::RenameArgs { from: dir_op(state, from)?, to: dir_op(state, to)? }))
}

/// The file that `at` stands for, if it is open here.
fn open_file(state: &State, at: &Location) -> Option<NodeId> {
    let id = known(state, at)?;
    let node = state.nodes.get(id)?;
    (node.opens > 0 && node.kind != FileType::Directory && node.remove_at_close.is_none()).then_some(id)
}

/// A name for a file that is removed while it is open ("silly rename"), unique to this mount.
fn hidden(state: &mut State, at: &Location) -> Location {
    state.next_silly += 1;
    let name = format!("{}{:08x}", state.hidden_prefix(), state.next_silly);
    Location { dir: at.dir, name: name.into_bytes().into() }
}

/// Removes a name. A file that is open here gets a hidden name until it is closed.
pub(crate) fn unlink(state: &mut State, op: &mut Op, name: Name) -> Result<Reply, Stop> {
    let at = Location { dir: op.node, name };
    if op.hidden.is_none()
        && op.steps.is_empty()
        && let Some(node) = open_file(state, &at)
    {
        op.hidden = Some(Hidden { node, at: hidden(state, &at) });
    }
    if let Some(hide) = op.hidden.clone() {
        let call = rename_call(state, &at, &hide.at)?;
        step::step(state, op, 0, Change::Rename { from: at, to: hide.at.clone() }, call)?;
        keep_until_close(state, op, hide);
        return Ok(Reply::Empty);
    }
    let call = nfs3::Call::Remove(dir_op(state, &at)?);
    step::step(state, op, 0, Change::Remove(at), call)?;
    Ok(Reply::Empty)
}

/// The hidden name is removed at the last close, which may have come meanwhile.
fn keep_until_close(state: &mut State, op: &Op, hide: Hidden) {
    let Some(node) = state.nodes.get_mut(hide.node) else { return };
    node.location = None;
    node.remove_at_close = Some(hide.at);
    if node.opens == 0 {
        // Opening and closing it once more removes the name.
        let fh = state.open(hide.node, &op.caller);
        super::files::close(state, fh);
    }
}

/// Removes a directory, after the hidden names in it whose files are closed.
pub(crate) fn rmdir(state: &mut State, op: &mut Op, name: Name) -> Result<Reply, Stop> {
    let at = Location { dir: op.node, name };
    if op.steps.is_empty()
        && let Some(dir) = known(state, &at)
    {
        let is_in = |purpose: &Purpose| matches!(purpose, Purpose::Change { op: None, change: Change::Remove(gone) } if gone.dir == dir);
        let removals: Vec<_> = state.pending.iter().filter(|(_, p)| is_in(&p.purpose)).map(|(id, _)| *id).collect();
        removals.iter().for_each(|id| state.wait_for(*id, op.unique));
        if !removals.is_empty() {
            return Err(Stop::Wait);
        }
    }
    let call = nfs3::Call::RmDir(dir_op(state, &at)?);
    step::step(state, op, 0, Change::Remove(at), call)?;
    Ok(Reply::Empty)
}

/// Renames an object. An open file at the new name keeps its data under a hidden link.
pub(crate) fn rename(state: &mut State, op: &mut Op, to: Location, name: Name, flags: u32) -> Result<Reply, Stop> {
    let from = Location { dir: op.node, name };
    if flags & !RENAME_NOREPLACE != 0 {
        return Err(Errno::EINVAL.into());
    }
    if flags & RENAME_NOREPLACE != 0 {
        return rename_if_absent(state, op, from, to);
    }
    if op.hidden.is_none()
        && op.steps.is_empty()
        && let Some(node) = open_file(state, &to)
        && Some(node) != known(state, &from)
    {
        op.hidden = Some(Hidden { node, at: hidden(state, &to) });
    }
    let mut index = 0;
    if let Some(hide) = op.hidden.clone() {
        let call = link_call(state, hide.node, &hide.at)?;
        let linked = step::step(state, op, 0, Change::Link { node: hide.node, to: hide.at.clone() }, call);
        if linked == Err(Stop::Wait) {
            return Err(Stop::Wait);
        }
        index = 1;
    }
    let call = rename_call(state, &from, &to)?;
    let result = step::step(state, op, index, Change::Rename { from, to }, call);
    if result == Err(Stop::Wait) {
        return Err(Stop::Wait);
    }
    // Without hard links, readers of the replaced file get ESTALE.
    let is_linked = matches!(op.steps.first(), Some(Step::Done(Ok(()))));
    if let Some(hide) = op.hidden.take()
        && is_linked
    {
        match result {
            Ok(()) => keep_until_close(state, op, hide),
            Err(_) => super::files::remove_name(state, &op.caller.auth, hide.at),
        }
    }
    result?;
    Ok(Reply::Empty)
}

fn known(state: &State, at: &Location) -> Option<NodeId> {
    match needs::known(state, at.dir, &at.name)? {
        (Target::Node(id), _) => Some(id),
        _ => None,
    }
}

/// RENAME_NOREPLACE, which NFS lacks: LINK fails if the name exists, as it should. For directories the name is looked
/// up first.
fn rename_if_absent(state: &mut State, op: &mut Op, from: Location, to: Location) -> Result<Reply, Stop> {
    let policy = state.config.policy;
    let window = NameWindow { present: policy.stat, absent: policy.open };
    if op.steps.is_empty() {
        let source = needs::child(state, op, from.dir, &from.name, window)?;
        op.node_at_start = Some(source.ok_or(Errno::ENOENT)?);
    }
    let node = op.node_at_start.ok_or(Errno::ENOENT)?;
    if state.node(node)?.kind == FileType::Directory {
        if op.steps.is_empty() && needs::child(state, op, to.dir, &to.name, window)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let call = rename_call(state, &from, &to)?;
        step::step(state, op, 0, Change::Rename { from, to }, call)?;
        return Ok(Reply::Empty);
    }
    let call = link_call(state, node, &to)?;
    step::step(state, op, 0, Change::Link { node, to }, call)?;
    let call = nfs3::Call::Remove(dir_op(state, &from)?);
    step::step(state, op, 1, Change::Remove(from), call)?;
    Ok(Reply::Empty)
}

/// Changes attributes, after all that was written to the file.
pub(crate) fn setattr(state: &mut State, op: &mut Op, set: &fuse::SetAttr) -> Result<Reply, Stop> {
    let id = op.node;
    let attr = SetAttr {
        mode: set.mode.map(|mode| mode & PERMISSIONS),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        atime: time(set.atime)?,
        mtime: time(set.mtime)?,
    };
    if attr == SetAttr::NONE {
        return lookup::getattr(state, op);
    }
    if op.steps.is_empty() && !op.is_applied && is_known(state, op, &attr) {
        return Ok(lookup::attr(state, id));
    }
    if step::is_kept_here(state, op) {
        return setattr_here(state, op, attr, set.fh);
    }
    if deferred_setattr::is_possible(state, op, &attr) || op.is_applied && set.size.is_none() {
        if !std::mem::replace(&mut op.is_applied, true) {
            deferred_setattr::add(state, id, &op.caller.auth, &attr);
            dirty_store::changed(state, id, None);
        }
        dirty_store::saved(state, op, id)?;
        return Ok(lookup::attr(state, id));
    }
    if let (Some(fh), true) = (set.fh, set.size.is_some()) {
        // ftruncate(2) is permitted by the open file, not by the mode.
        op.caller = state.handle(fh)?.opener.clone();
    }
    if op.steps.is_empty() {
        writeback::settled(state, op, id)?;
    }
    let fh = state.node(id)?.fh.clone();
    let call = nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh, attr, guard: None });
    step::step(state, op, 0, Change::SetAttr(id), call)?;
    if let Some(size) = set.size
        && !op.is_applied
    {
        op.is_applied = true;
        data::truncate(state, id, size);
    }
    needs::attr(state, op, id, state.config.policy.stat)?;
    Ok(lookup::attr(state, id))
}

/// Changes attributes without the server: those of a file follow its data, others go to the log.
fn setattr_here(state: &mut State, op: &mut Op, set: SetAttr, fh: Option<u64>) -> Result<Reply, Stop> {
    let id = op.node;
    if state.node(id)?.kind != FileType::Regular {
        let fh = state.node(id)?.fh.clone();
        let call = nfs3::Call::SetAttr(nfs3::SetAttrArgs { fh, attr: set, guard: None });
        step::step(state, op, 0, Change::SetAttr(id), call)?;
        return Ok(lookup::attr(state, id));
    }
    if !op.is_applied {
        if set.size.is_some() {
            step::check_truncate(state, op, fh)?;
        }
        let is_plain_truncation = set.size.is_some() && only_times(&set);
        if !is_plain_truncation {
            step::check_owner(state, op, id, &set)?;
        }
        op.is_applied = true;
        step::set_file_attr(state, op, set);
    }
    dirty_store::saved(state, op, id)?;
    Ok(lookup::attr(state, id))
}

/// Whether a truncation changes nothing else but times, as the kernel wants it.
fn only_times(set: &SetAttr) -> bool {
    set.mode.is_none() && set.uid.is_none() && set.gid.is_none()
}

/// Whether the caller's object has this mode and these owners already, as when an archive is unpacked: the change would only
/// move the ctime. Set-id bits are left to the server, which may clear them.
fn is_known(state: &State, op: &Op, set: &SetAttr) -> bool {
    const SET_ID: u32 = 0o6000;
    let Some(node) = state.nodes.get(op.node) else { return false };
    let Some(cached) = &node.attr else { return false };
    let attr = &deferred_setattr::overlaid(node, &cached.attr);
    let is_set = set.size.is_some() || set.atime != SetTime::Keep || set.mtime != SetTime::Keep;
    let is_same = set.mode.is_none_or(|mode| mode == attr.mode & PERMISSIONS)
        && set.uid.is_none_or(|uid| uid == attr.uid)
        && set.gid.is_none_or(|gid| gid == attr.gid);
    let is_fresh = !cached.is_outdated() && state.is_fresh(cached.asked, op, state.config.policy.open);
    let is_owner = op.caller.auth.uid == attr.uid;
    !is_set && is_same && is_fresh && is_owner && attr.mode & SET_ID == 0
}

fn time(change: TimeChange) -> Result<SetTime, Errno> {
    Ok(match change {
        TimeChange::Keep => SetTime::Keep,
        TimeChange::Now => SetTime::Server,
        TimeChange::To(time) => {
            let secs = u32::try_from(time.secs).map_err(|_| Errno::EOVERFLOW)?;
            SetTime::To(NfsTime { secs, nanos: time.nanos })
        }
    })
}
