//! Changes of names and attributes that go to the log instead of to the server: checked and executed here as a server
//! would (RFC 1813), then acknowledged when the store has the record.

use remora_wire::fuse::Errno;
use remora_wire::nfs3::{self, ACCESS_DELETE, ACCESS_EXTEND, ACCESS_LOOKUP, FileType, SetAttr, SetTime, WccAttr};
use remora_wire::rpc::AuthUnix;

use crate::change_log::append;
use crate::change_log::local::{self, NewObject};
use crate::change_log::log::{Entry, Logged, ReplacedNode, Stage};
use crate::change_log::record::{LogObject, RecordId};
use crate::config::Writes;
use crate::data;
use crate::deferred_setattr;
use crate::dirty_store;
use crate::disk::fetch;
use crate::needs::{self, NameWindow};
use crate::node::{Location, Node, NodeId, Target};
use crate::ranges::RangeSet;
use crate::state::{Change, Op, State, Step, Stop};
use crate::store_queue::StepId;

/// Longest name in bytes.
const NAME_MAX: usize = 255;
const STICKY: u32 = 0o1000;
/// Directories above a directory, at most.
const DEPTH_MAX: usize = 4096;

/// Whether a change goes to the log: the server is out of reach or slow, or an earlier change of the same objects is in
/// the log.
pub(crate) fn is_logged(state: &State, change: &Change) -> bool {
    let is_slow = state.config.writes == Writes::Back && state.link.sync_max > 0;
    let renames_name = !matches!(change, Change::SetAttr(_));
    if state.is_disconnected() || is_slow && renames_name {
        return true;
    }
    if state.log.is_empty() {
        return false;
    }
    let object = match change {
        Change::Link { node, .. } => Some(*node),
        Change::Remove(at) | Change::Rename { from: at, .. } => current(state, at),
        _ => None,
    };
    let replaced = if let Change::Rename { to, .. } = change { current(state, to) } else { None };
    let subjects = change.subjects().into_iter().flatten().chain(object).chain(replaced);
    subjects.into_iter().any(|id| is_touched(state, id))
}

/// Whether a change of the object must follow records of the log.
pub(crate) fn is_touched(state: &State, id: NodeId) -> bool {
    state.nodes.get(id).is_some_and(|node| node.is_local || node.log_references > 0 && state.log.touches(id))
}

/// What a name is known to stand for.
fn current(state: &State, at: &Location) -> Option<NodeId> {
    match needs::known(state, at.dir, &at.name)? {
        (Target::Node(id), _) => Some(id),
        _ => None,
    }
}

/// Step `index` of `op`: sends the change, or logs it, at the first time, then returns its result.
pub(crate) fn step(state: &mut State, op: &mut Op, index: usize, change: Change, call: nfs3::Call) -> Result<(), Stop> {
    if op.steps.get(index).is_some() || !is_logged(state, &change) {
        return state.step(op, index, change, call);
    }
    if dirty_store::is_full(state, 0) {
        return Err(Errno::ENOSPC.into());
    }
    let is_new = execute(state, op, change, call)?;
    if !is_new {
        op.steps.push(Step::Done(Ok(())));
        return Ok(());
    }
    op.steps.push(Step::InFlight);
    state.store.log.steps.push(StepId { unique: op.unique, index });
    Err(Stop::Wait)
}

/// Checks a change and adds its record. Returns whether there is one.
fn execute(state: &mut State, op: &Op, change: Change, call: nfs3::Call) -> Result<bool, Stop> {
    match (change, call) {
        (Change::Make(at), call) => make(state, op, &at, call)?,
        (Change::Link { node, to }, _) => link(state, op, node, &to)?,
        (Change::Remove(at), call) => return remove(state, op, at, matches!(call, nfs3::Call::RmDir(_))),
        (Change::Rename { from, to }, _) => return rename(state, op, from, to),
        (Change::SetAttr(node), nfs3::Call::SetAttr(args)) => set_attr(state, op, node, args.attr)?,
        _ => return Err(Errno::EIO.into()),
    }
    Ok(true)
}

fn window(state: &State) -> NameWindow {
    NameWindow { present: state.config.policy.open, absent: state.config.policy.open }
}

/// Fails unless the caller may make the name `at`, and it does not exist.
fn check_absent(state: &mut State, op: &Op, at: &Location) -> Result<(), Stop> {
    if at.name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let window = window(state);
    if needs::child(state, op, at.dir, &at.name, window)?.is_some() {
        return Err(Errno::EEXIST.into());
    }
    needs::access(state, op, at.dir, ACCESS_EXTEND | ACCESS_LOOKUP, state.config.policy.stat)
}

/// The object at a name that the caller may remove.
fn removable(state: &mut State, op: &Op, at: &Location) -> Result<NodeId, Stop> {
    let window = window(state);
    let id = needs::child(state, op, at.dir, &at.name, window)?.ok_or(Errno::ENOENT)?;
    needs::access(state, op, at.dir, ACCESS_DELETE | ACCESS_LOOKUP, state.config.policy.stat)?;
    needs::attr(state, op, id, state.config.policy.stat)?;
    let uid = op.caller.auth.uid;
    let owner = |state: &State, id: NodeId| Some(state.nodes.get(id)?.attr.as_ref()?.attr.uid);
    let dir = state.nodes.get(at.dir).and_then(|node| node.attr.as_ref());
    let is_sticky = dir.is_some_and(|cached| cached.attr.mode & STICKY != 0);
    if is_sticky && uid != 0 && owner(state, at.dir) != Some(uid) && owner(state, id) != Some(uid) {
        return Err(Errno::EPERM.into());
    }
    Ok(id)
}

fn make(state: &mut State, op: &Op, at: &Location, call: nfs3::Call) -> Result<(), Stop> {
    check_absent(state, op, at)?;
    let (what, set) = match call {
        nfs3::Call::Create(args) => match args.how {
            nfs3::CreateHow::Unchecked(set) | nfs3::CreateHow::Guarded(set) => (LogObject::File, set),
            nfs3::CreateHow::Exclusive(_) => (LogObject::File, SetAttr::NONE),
        },
        nfs3::Call::MkDir(args) => (LogObject::Directory, args.attr),
        nfs3::Call::SymLink(args) => (LogObject::SymLink(args.target), args.attr),
        nfs3::Call::MkNod(args) => {
            let set = match &args.what {
                nfs3::NodeKind::Char(set, _) | nfs3::NodeKind::Block(set, _) => set.clone(),
                nfs3::NodeKind::Socket(set) | nfs3::NodeKind::Fifo(set) => set.clone(),
                _ => SetAttr::NONE,
            };
            (LogObject::Special(args.what), set)
        }
        _ => return Err(Errno::EIO.into()),
    };
    let auth = op.caller.auth.clone();
    let node = local::make(state, &NewObject { at, what: &what, set: &set, auth: &auth });
    add_made(state, node, at, Made { what, set, auth });
    Ok(())
}

/// What an object is made of.
pub(crate) struct Made {
    pub(crate) what: LogObject,
    pub(crate) set: SetAttr,
    pub(crate) auth: std::sync::Arc<AuthUnix>,
}

/// Adds the record that makes an object. A file gets its attributes after its data.
pub(crate) fn add_made(state: &mut State, node: NodeId, at: &Location, made: Made) -> RecordId {
    let Made { what, set, auth } = made;
    let number = state.log.next_object;
    let verifier = (state.config.client_id ^ number.rotate_left(40)).to_be_bytes();
    if what == LogObject::File {
        let completion = local::completion(state, &set);
        data::update(state, node, |file| _ = file.size.get_or_insert(0));
        deferred_setattr::add(state, node, &auth, &completion);
        dirty_store::changed(state, node, None);
    }
    append::append(state, Logged::Make { at: at.clone(), node, what, attr: set, verifier }, auth)
}

fn link(state: &mut State, op: &Op, node: NodeId, to: &Location) -> Result<(), Stop> {
    if state.node(node)?.kind == FileType::Directory {
        return Err(Errno::EPERM.into());
    }
    check_absent(state, op, to)?;
    append::append(state, Logged::Link { node, at: to.clone() }, op.caller.auth.clone());
    Ok(())
}

/// What the server last showed of an object; `None` of one that was made or is being changed here.
pub(crate) fn seen(state: &State, id: NodeId) -> Option<WccAttr> {
    // The attributes after changes that are in flight are not known.
    let is_known = |node: &&Node| !node.is_local && node.own.in_flight == 0 && !node.own.is_unseen;
    let node = state.nodes.get(id).filter(is_known)?;
    node.attr.as_ref().map(|cached| cached.attr.wcc())
}

fn remove(state: &mut State, op: &Op, at: Location, is_directory: bool) -> Result<bool, Stop> {
    let id = removable(state, op, &at)?;
    match (state.node(id)?.kind == FileType::Directory, is_directory) {
        (true, false) => return Err(Errno::EISDIR.into()),
        (false, true) => return Err(Errno::ENOTDIR.into()),
        (true, true) => check_empty(state, op, id)?,
        (false, false) => {}
    }
    let auth = op.caller.auth.clone();
    let (seen, node) = (seen(state, id), id);
    let base = match cancel(state, id, &at) {
        Some(Cancelled { leftover: None }) => None,
        Some(Cancelled { leftover: Some(replaced) }) => Some((replaced.node, replaced.seen)),
        None => Some((node, seen)),
    };
    let logged = base.map(|(node, seen)| {
        let is_directory = state.nodes.get(node).is_some_and(|node| node.kind == FileType::Directory);
        append::append(state, Logged::Remove { at: at.clone(), node, seen, is_directory }, auth);
    });
    if base.is_none_or(|(node, _)| node != id) {
        // The cancelled records are removed from the store before the call is answered.
        drop_object(state, id);
    } else if !append::is_linked(state, id) {
        discard(state, id);
    }
    let _ = logged;
    Ok(true)
}

/// A file without a name needs no data, unless it is open.
fn discard(state: &mut State, id: NodeId) {
    if state.nodes.get(id).is_some_and(|node| node.opens == 0 && node.file.is_some()) {
        data::discard(state, id);
    }
}

/// An object that was made here, and of which the server hears nothing, is gone.
fn drop_object(state: &mut State, id: NodeId) {
    if let Some(node) = state.nodes.get_mut(id) {
        node.location = None;
        node.is_stale = node.opens == 0;
    }
    discard(state, id);
    state.nodes.settle(id);
}

/// Fails if the directory has a name.
fn check_empty(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    let window = state.config.policy.open;
    needs::listing(state, op, id, window)?;
    let hidden = state.hidden_prefix();
    let names = state.node(id)?.dir().current();
    let has_name = names.iter().any(|(name, target)| {
        *target != Target::Absent && !matches!(&name[..], b"." | b"..") && !name.starts_with(hidden.as_bytes())
    });
    if has_name { Err(Errno::ENOTEMPTY.into()) } else { Ok(()) }
}

fn rename(state: &mut State, op: &Op, from: Location, to: Location) -> Result<bool, Stop> {
    if to.name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG.into());
    }
    let node = removable(state, op, &from)?;
    let window = window(state);
    let target = needs::child(state, op, to.dir, &to.name, window)?;
    needs::access(state, op, to.dir, ACCESS_EXTEND | ACCESS_LOOKUP, state.config.policy.stat)?;
    let is_directory = state.node(node)?.kind == FileType::Directory;
    if target == Some(node) {
        return Ok(false);
    }
    if is_directory && is_within(state, to.dir, node) {
        return Err(Errno::EINVAL.into());
    }
    if let Some(target) = target {
        removable(state, op, &to)?;
        match (is_directory, state.node(target)?.kind == FileType::Directory) {
            (true, false) => return Err(Errno::ENOTDIR.into()),
            (false, true) => return Err(Errno::EISDIR.into()),
            (true, true) => check_empty(state, op, target)?,
            (false, false) => {}
        }
    }
    let mut replaced = target.map(|node| ReplacedNode { node, seen: seen(state, node) });
    if let Some(target) = target
        && let Some(cancelled) = cancel(state, target, &to)
    {
        replaced = cancelled.leftover;
        drop_object(state, target);
    }
    let auth = op.caller.auth.clone();
    if replaced.is_none() && move_unsent(state, node, &to) {
        return Ok(true);
    }
    let seen = seen(state, node);
    if replaced.is_some_and(|replaced| replaced.node == node) {
        // The server has the object under both names, of which only the first one goes. A rename would do nothing there.
        append::append(state, Logged::Remove { at: from, node, seen, is_directory }, auth);
        if let Some(node) = state.nodes.get_mut(node) {
            node.location = Some(to);
        }
        return Ok(true);
    }
    append::append(state, Logged::Rename { from, to, node, seen, replaced }, auth);
    if let Some(ReplacedNode { node, .. }) = replaced
        && !append::is_linked(state, node)
    {
        discard(state, node);
    }
    Ok(true)
}

/// Whether `dir` is `above`, or lies in it.
fn is_within(state: &State, dir: NodeId, above: NodeId) -> bool {
    let mut at = Some(dir);
    for _ in 0..DEPTH_MAX {
        match at {
            Some(id) if id == above => return true,
            Some(id) => at = state.nodes.get(id).and_then(|node| node.location.as_ref()).map(|location| location.dir),
            None => return false,
        }
    }
    true
}

/// An object that the server has not made is made at `to` instead. Returns whether that is so.
fn move_unsent(state: &mut State, node: NodeId, to: &Location) -> bool {
    let records = state.log.of_object(node);
    let [record] = records[..] else { return false };
    // A record that moves something into a directory may be what the new name of the directory waits for.
    if state.log.has_names_in(node) {
        return false;
    }
    let Some(entry) = state.log.get(record) else { return false };
    if entry.stage != Stage::Waiting || !matches!(entry.change, Logged::Make { .. }) {
        return false;
    }
    let Some(entry) = append::remove(state, record) else { return false };
    if let Logged::Make { what, attr, verifier, .. } = entry.change {
        append::append(state, Logged::Make { at: to.clone(), node, what, attr, verifier }, entry.auth);
    }
    true
}

/// What is left of the records of an object that was made and removed here.
struct Cancelled {
    /// The server's object that lost the last name to it.
    leftover: Option<ReplacedNode>,
}

/// Takes out all records of an object that only this machine knows and that loses its only name, `at`. Returns `None` if
/// the server knows of it.
fn cancel(state: &mut State, id: NodeId, at: &Location) -> Option<Cancelled> {
    if !state.nodes.get(id)?.is_local || state.log.has_names_in(id) {
        return None;
    }
    let records = state.log.of_object(id);
    let mut leftovers = Vec::new();
    for record in &records {
        let entry = state.log.get(*record).filter(|entry| entry.stage == Stage::Waiting)?;
        match &entry.change {
            Logged::Make { .. } | Logged::SetAttr { .. } => {}
            Logged::Rename { to, node, replaced, .. } if *node == id => {
                leftovers.extend(replaced.map(|replaced| (*record, to.clone(), replaced)));
            }
            _ => return None,
        }
    }
    let mut leftover = None;
    for (record, name, replaced) in leftovers {
        if name == *at {
            leftover = Some(replaced);
        } else {
            remove_replaced(state, record, name, replaced);
        }
    }
    for record in records {
        let is_cancelled = state.log.get(record).is_some_and(|entry| !matches!(entry.change, Logged::Remove { .. }));
        if is_cancelled {
            append::remove(state, record);
        }
    }
    Some(Cancelled { leftover })
}

/// A rename becomes the removal of the object that lost its name to it, before all later records of that name.
fn remove_replaced(state: &mut State, record: RecordId, at: Location, replaced: ReplacedNode) {
    let Some(entry) = append::take(state, record) else { return };
    let ReplacedNode { node, seen } = replaced;
    let is_directory = state.nodes.get(node).is_some_and(|node| node.kind == FileType::Directory);
    append::insert(state, record, Entry { change: Logged::Remove { at, node, seen, is_directory }, ..entry });
    append::store(state, record);
}

/// Changes attributes of an object that is not a regular file.
fn set_attr(state: &mut State, op: &Op, node: NodeId, set: SetAttr) -> Result<(), Stop> {
    check_owner(state, op, node, &set)?;
    let seen = seen(state, node);
    append::append(state, Logged::SetAttr { node, set, seen }, op.caller.auth.clone());
    Ok(())
}

/// Fails unless the server would surely let the caller change these attributes (POSIX chmod, chown, utimensat).
pub(crate) fn check_owner(state: &mut State, op: &Op, node: NodeId, set: &SetAttr) -> Result<(), Stop> {
    needs::attr(state, op, node, state.config.policy.stat)?;
    let auth = &op.caller.auth;
    let attr = state.node(node)?.attr.as_ref().map(|cached| cached.attr.clone()).ok_or(Errno::EIO)?;
    let is_owner = auth.uid == 0 || auth.uid == attr.uid;
    let gives_away = set.uid.is_some_and(|uid| uid != attr.uid);
    let groups = |gid: u32| auth.gid == gid || auth.gids.contains(&gid) || gid == attr.gid;
    let is_permitted = auth.uid == 0 || is_owner && !gives_away && set.gid.is_none_or(groups);
    if is_permitted {
        return Ok(());
    }
    let only_touches = set.mode.is_none() && set.uid.is_none() && set.gid.is_none();
    if only_touches
        && matches!(
            (&set.atime, &set.mtime),
            (nfs3::SetTime::Server | nfs3::SetTime::Keep, nfs3::SetTime::Server | nfs3::SetTime::Keep)
        )
    {
        return needs::access(state, op, node, nfs3::ACCESS_MODIFY, state.config.policy.stat);
    }
    Err(Errno::EPERM.into())
}

/// Whether changes of the object's attributes and data are made here first: the server is out of reach, or the log has
/// records about the object.
pub(crate) fn is_kept_here(state: &State, op: &Op) -> bool {
    op.steps.is_empty()
        && (state.is_disconnected() || is_touched(state, op.node) || op.is_applied && is_dirty(state, op))
}

fn is_dirty(state: &State, op: &Op) -> bool {
    state.nodes.get(op.node).is_some_and(|node| node.file.as_ref().is_some_and(|file| file.kept.object.is_some()))
}

/// Fails unless the caller may truncate the file; one that is open for writing (`fh`) may be.
pub(crate) fn check_truncate(state: &mut State, op: &mut Op, fh: Option<u64>) -> Result<(), Stop> {
    if let Some(fh) = fh {
        op.caller = state.handle(fh)?.opener.clone();
    } else {
        needs::access(state, op, op.node, nfs3::ACCESS_MODIFY, state.config.policy.stat)?;
    }
    needs::attr(state, op, op.node, state.config.policy.stat)
}

/// Changes the attributes and the size of a file here. The server gets the attributes after the data.
pub(crate) fn set_file_attr(state: &mut State, op: &Op, set: SetAttr) {
    let id = op.node;
    let now = state.server_nfs_time();
    let at = |time: SetTime| if time == SetTime::Server { SetTime::To(now) } else { time };
    let mut set = SetAttr { atime: at(set.atime), mtime: at(set.mtime), ..set };
    if let Some(size) = set.size.take() {
        let old = state.nodes.get(id).map_or(0, crate::node::Node::size);
        let earlier = state.nodes.get(id).and_then(|node| node.file.as_ref()?.cut);
        let cut = earlier.into_iter().chain([size, old]).min();
        data::truncate(state, id, size);
        data::update(state, id, |file| {
            file.size = Some(size);
            if let Some(deferred) = &mut file.deferred {
                deferred.set.size = None;
            }
            file.cut = cut;
        });
        // What is written later lies beyond, or the file ends in a hole.
        set.size = (Some(size) > cut).then_some(size);
        if set.mtime == SetTime::Keep {
            set.mtime = SetTime::To(now);
        }
    }
    deferred_setattr::add(state, id, &op.caller.auth, &set);
    if let Some(node) = state.nodes.get_mut(id) {
        node.shown_ctime = Some(now);
    }
    dirty_store::changed(state, id, None);
}

/// Fails, or waits, unless all data of a file is here that is opened for writing without the server.
pub(crate) fn has_all(state: &mut State, op: &Op, id: NodeId) -> Result<(), Stop> {
    if !state.is_disconnected() || state.node(id)?.is_local {
        return Ok(());
    }
    fetch::loaded(state, op, id)?;
    let node = state.node(id)?;
    let seen = node.attr.as_ref().map(|cached| cached.attr.size);
    let size = node.server_size().into_iter().chain(seen).min().unwrap_or(0);
    let mut here = RangeSet::default();
    here.insert(0..size);
    let missing = node.file().extents.missing(0..size);
    missing.into_iter().for_each(|gap| here.remove(gap));
    node.disk.iter().flat_map(|disk| disk.ranges.iter()).for_each(|range| here.insert(range));
    match here.gaps(0..size).first() {
        None => Ok(()),
        Some(gap) => data::awaited(state, op, id, gap.clone()),
    }
}

/// A file that was removed while it was open is closed: its hidden name goes.
pub(crate) fn remove_hidden(state: &mut State, node: NodeId, at: Location, auth: std::sync::Arc<AuthUnix>) {
    let seen = seen(state, node);
    match cancel(state, node, &at) {
        Some(Cancelled { leftover }) => {
            if let Some(ReplacedNode { node, seen }) = leftover {
                append::append(state, Logged::Remove { at, node, seen, is_directory: false }, auth);
            }
            drop_object(state, node);
        }
        None => {
            append::append(state, Logged::Remove { at, node, seen, is_directory: false }, auth);
            if !append::is_linked(state, node) {
                discard(state, node);
            }
        }
    }
}
