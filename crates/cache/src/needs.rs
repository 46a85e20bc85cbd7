//! What operations need to know: each function returns it from the cache, or starts the call that fetches it.

use std::time::Duration;

use remora_base::Time;
use remora_wire::fuse::Errno;
use remora_wire::nfs3::{self, ACCESS_LOOKUP, FileType, Name};

use crate::call::Priority;
use crate::change_log::local;
use crate::deferred_setattr;
use crate::disk::fetch;
use crate::node::{Dentry, Location, NodeId, Target};
use crate::path;
use crate::read_grant;
use crate::state::{FetchKey, ListingProgress, Op, Purpose, State, Stop};

/// Names of a directory that is listed anew for its attributes, at most.
const OLD_NAMES_MAX: usize = 256;
/// All bits of ACCESS.
pub(crate) const ACCESS_ALL: u32 = 0x3f;
/// Bytes of a page of names that no program waits for while file data is moving: one packet.
const LIST_PAGE_SHARED: u32 = 1400;

/// Attributes that are new enough.
pub(crate) fn attr(state: &mut State, op: &Op, id: NodeId, window: Duration) -> Result<(), Stop> {
    let is_disconnected = state.is_disconnected();
    let node = state.node(id)?;
    let known = node.attr.as_ref().filter(|cached| is_disconnected || !cached.is_outdated());
    let (asked, fh) = (known.map(|cached| cached.asked), node.fh.clone());
    if asked.is_some_and(|asked| state.is_fresh(asked, op, window)) {
        return Ok(());
    }
    if asked.is_none() {
        fetch::loaded(state, op, id)?;
        note_miss(state, id, None);
    }
    Err(state.fetch(op, FetchKey::Attr(id), window, nfs3::Call::GetAttr(fh), Purpose::GetAttr(id)))
}

/// A program needs what the cache does not have while it is disconnected.
pub(crate) fn note_miss(state: &mut State, id: NodeId, child: Option<&Name>) {
    if state.is_disconnected() {
        let path = path::path(state, id, child);
        state.log.miss(path);
    }
}

/// Permission for the caller of all of `bits` (`ACCESS_*`), or EACCES.
pub(crate) fn access(state: &mut State, op: &Op, id: NodeId, bits: u32, window: Duration) -> Result<(), Stop> {
    if granted(state, op, id, bits, window)? & bits == bits { Ok(()) } else { Err(Errno::EACCES.into()) }
}

/// The bits of ACCESS that the caller has, of those asked for.
pub(crate) fn granted(state: &mut State, op: &Op, id: NodeId, bits: u32, window: Duration) -> Result<u32, Stop> {
    if let Some(granted) = known_grant(state, op, id, bits, window)? {
        return Ok(granted);
    }
    fetch::loaded(state, op, id)?;
    note_miss(state, id, None);
    let (fh, credential) = (state.node(id)?.fh.clone(), op.caller.id);
    let call = nfs3::Call::Access(nfs3::AccessArgs { fh, access: ACCESS_ALL });
    let purpose = Purpose::Access { node: id, credential };
    Err(state.fetch(op, FetchKey::Access(id, credential), window, call, purpose))
}

/// The same, if it is known without a call.
pub(crate) fn known_grant(
    state: &mut State,
    op: &Op,
    id: NodeId,
    bits: u32,
    window: Duration,
) -> Result<Option<u32>, Errno> {
    let node = state.node(id)?;
    if let Some(granted) = deferred_setattr::granted(node, op.caller.auth.uid) {
        return Ok(Some(granted));
    }
    if let Some(cached) = node.attr.as_ref().filter(|_| node.is_local) {
        return Ok(Some(local::granted(&cached.attr, &op.caller.auth)));
    }
    let Some(grant) = node.grants.get(&op.caller.id).copied().filter(|grant| grant.tested & bits == bits) else {
        let of_owner = read_grant::of_owner(node, &op.caller);
        return Ok(of_owner.filter(|_| state.is_disconnected()));
    };
    // Grants are dropped when the object changes, so each is as new as the attributes.
    let confirmed = node.attr.as_ref().map(|cached| cached.asked);
    let as_of = confirmed.map_or(grant.asked, |asked| asked.max(grant.asked));
    Ok(state.is_fresh(as_of, op, window).then_some(grant.granted))
}

/// How old a name may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NameWindow {
    pub(crate) present: Duration,
    pub(crate) absent: Duration,
}

/// What `name` in `dir` stands for: an object, or `None` if there is no such name.
pub(crate) fn child(
    state: &mut State,
    op: &Op,
    dir: NodeId,
    name: &Name,
    window: NameWindow,
) -> Result<Option<NodeId>, Stop> {
    let node = state.node(dir)?;
    if node.kind != FileType::Directory {
        return Err(Errno::ENOTDIR.into());
    }
    let fh = node.fh.clone();
    let known = known(state, dir, name);
    match known {
        Some((Target::Node(id), asked)) if state.is_fresh(asked, op, window.present) && is_usable(state, id) => {
            access(state, op, dir, ACCESS_LOOKUP, state.config.policy.stat)?;
            return Ok(Some(id));
        }
        Some((Target::Absent, asked)) if state.is_fresh(asked, op, window.absent) => {
            access(state, op, dir, ACCESS_LOOKUP, state.config.policy.stat)?;
            return Ok(None);
        }
        None => fetch::loaded(state, op, dir)?,
        _ => {}
    }
    note_miss(state, dir, Some(name));
    let at = Location { dir, name: name.clone() };
    let call = nfs3::Call::Lookup(nfs3::DirOp { dir: fh, name: name.clone() });
    let purpose = Purpose::Lookup { at, credential: op.caller.id };
    let window = window.present.min(window.absent);
    Err(state.fetch(op, FetchKey::Name(dir, name.clone()), window, call, purpose))
}

/// What is known of `name` in `dir`, and as of when.
pub(crate) fn known(state: &State, dir: NodeId, name: &Name) -> Option<(Target, Time)> {
    let node = state.nodes.get(dir)?;
    // Names are dropped when the directory changes, so its attributes confirm them.
    let confirmed = node.attr.as_ref().map(|cached| cached.asked);
    let as_of =
        |asked: Time, is_confirmed: bool| if is_confirmed { confirmed.map_or(asked, |c| c.max(asked)) } else { asked };
    let names = node.dir.as_ref()?;
    if let Some(target) = names.logged.get(name) {
        return Some((*target, Time::MAX));
    }
    match (names.names.get(name), names.complete) {
        (Some(dentry), _) => Some((dentry.target, as_of(dentry.asked, dentry.is_confirmed))),
        (None, Some(listed)) => Some((Target::Absent, as_of(listed.began, listed.is_confirmed))),
        (None, None) => None,
    }
}

fn is_usable(state: &State, id: NodeId) -> bool {
    state.nodes.get(id).is_some_and(|node| !node.is_stale)
}

/// All names of a directory.
pub(crate) fn listing(state: &mut State, op: &Op, dir: NodeId, window: Duration) -> Result<(), Stop> {
    let node = state.node(dir)?;
    let confirmed = node.attr.as_ref().map(|cached| cached.asked);
    let is_local = node.is_local;
    let Some(listed) = node.dir.as_ref().and_then(|names| names.complete) else {
        fetch::loaded(state, op, dir)?;
        note_miss(state, dir, None);
        return Err(fetch_listing(state, op, dir, window));
    };
    if is_local || state.is_disconnected() {
        return Ok(());
    }
    if !listed.is_confirmed {
        let is_fresh = state.is_fresh(listed.began, op, window);
        return if is_fresh { Ok(()) } else { Err(fetch_listing(state, op, dir, window)) };
    }
    if listed.began < op.arrived && !window.is_zero() && is_old(state, dir) {
        return Err(fetch_listing(state, op, dir, window));
    }
    if confirmed.is_some_and(|asked| state.is_fresh(asked.max(listed.began), op, window)) {
        return Ok(());
    }
    // One GETATTR may confirm all names.
    attr(state, op, dir, window)
}

/// Whether a directory has few names, and the attributes of the first object in it are too old for stat(2): it is
/// listed anew where one call could confirm the names.
pub(crate) fn is_old(state: &State, dir: NodeId) -> bool {
    let names = state.nodes.get(dir).and_then(|node| node.dir.as_ref());
    let names = names.filter(|names| names.names.len() <= OLD_NAMES_MAX);
    let first = names.and_then(|names| names.names.values().find_map(Dentry::node));
    let attr = first.and_then(|id| state.nodes.get(id)).and_then(|node| node.attr.as_ref());
    attr.is_some_and(|cached| state.now.since(cached.asked) >= state.config.policy.stat)
}

fn fetch_listing(state: &mut State, op: &Op, dir: NodeId, window: Duration) -> Stop {
    let progress = ListingProgress::new(dir, state.now, op.caller.clone());
    match listing_call(state, &progress, Priority::Foreground) {
        Ok(call) => state.fetch(op, FetchKey::Listing(dir), window, call, Purpose::List(Box::new(progress))),
        Err(errno) => errno.into(),
    }
}

/// The call for the next page of a listing.
pub(crate) fn listing_call(
    state: &mut State,
    progress: &ListingProgress,
    priority: Priority,
) -> Result<nfs3::Call, Errno> {
    let is_shared = priority == Priority::Prefetch && state.queue.has_data();
    let max_count = if is_shared { LIST_PAGE_SHARED } else { state.link.list_page.max(1024) };
    let dir = state.node(progress.dir)?.fh.clone();
    let (cookie, verf) = (progress.cookie, progress.verf);
    Ok(if progress.is_plain {
        nfs3::Call::ReadDir(nfs3::ReadDirArgs { dir, cookie, verf, count: max_count })
    } else {
        nfs3::Call::ReadDirPlus(nfs3::ReadDirPlusArgs { dir, cookie, verf, dir_count: max_count / 4, max_count })
    })
}

/// The target of a symbolic link.
pub(crate) fn link_target(state: &mut State, op: &Op, id: NodeId) -> Result<bytes::Bytes, Stop> {
    let window = state.config.policy.stat;
    attr(state, op, id, window)?;
    let node = state.node(id)?;
    if node.kind != FileType::SymLink {
        return Err(Errno::EINVAL.into());
    }
    if let Some(target) = &node.link_target {
        return Ok(target.clone());
    }
    fetch::loaded(state, op, id)?;
    note_miss(state, id, None);
    let node = state.node(id)?;
    let fh = node.fh.clone();
    Err(state.fetch(op, FetchKey::LinkTarget(id), window, nfs3::Call::ReadLink(fh), Purpose::ReadLink(id)))
}

/// Refreshes the figures of statfs(2), for which nothing waits.
pub(crate) fn refresh_statfs(state: &mut State, op: Option<&Op>) {
    if state.fetches.contains_key(&FetchKey::StatFs) || state.is_disconnected() {
        return;
    }
    let Ok(root) = state.node(NodeId::ROOT) else { return };
    let fh = root.fh.clone();
    let auth = match op {
        Some(op) => op.caller.auth.clone(),
        None => state.credentials.of(0, 0, &[]).auth,
    };
    let id = state.submit(Priority::Foreground, &auth, nfs3::Call::FsStat(fh), Purpose::StatFs);
    state.fetches.insert(FetchKey::StatFs, id);
    if let Some(pending) = state.pending.get_mut(&id) {
        pending.key = Some(FetchKey::StatFs);
    }
}
