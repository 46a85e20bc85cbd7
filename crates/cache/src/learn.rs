//! What the replies show of objects, and which changes are not ours.
//!
//! A change by another client is detected by size, mtime and ctime (RFC 1813, section 2.6). Attributes
//! before and after distinguish the changes made here.

use std::cmp::Ordering;

use remora_base::Time;
use remora_wire::fuse::Notification;
use remora_wire::nfs3::{self, Attr, Fh, FileType, Name, Wcc, WccAttr};

use crate::change_log::append;
use crate::conflict_copies;
use crate::credentials::CredentialId;
use crate::data;
use crate::disk::save;
use crate::node::{CachedAttr, Dentry, Grant, Listed, Location, Node, NodeId, Target, WccStep};
use crate::state::{Change, State};

/// Attributes in a reply to a call made at `asked`.
pub(crate) fn learn_attr(state: &mut State, id: NodeId, attr: &Attr, asked: Time) {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(id) else { return };
    if asked < node.fh_since {
        return;
    }
    if id == NodeId::ROOT && node.attr.is_none() {
        node.fileid = attr.fileid;
    }
    if node.kind != attr.kind || node.fileid != attr.fileid {
        // The server has given the handle to another object.
        node.is_stale = true;
        return;
    }
    let Some(old) = &mut node.attr else {
        node.attr = Some(CachedAttr { attr: attr.clone(), asked, received: now, since: now, outdated: None });
        state.disk.confirmed.extend(node.disk.as_ref().map(|_| id));
        return;
    };
    match age(old, attr, asked) {
        Age::Older => return,
        Age::Unknown => {
            old.outdated = Some(now);
            return;
        }
        Age::Newer => {}
    }
    let is_same = old.attr.wcc() == attr.wcc();
    let is_same_data = old.attr.size == attr.size && old.attr.mtime == attr.mtime;
    let since = if is_same { old.since } else { now };
    let was_outdated = old.is_outdated();
    let outdated = old.outdated.filter(|since| *since > asked);
    *old = CachedAttr { attr: attr.clone(), asked: asked.max(old.asked), received: now, since, outdated };
    if node.own.in_flight > 0 || is_same {
        if was_outdated {
            save::attr_changed(state, id);
        }
        return;
    }
    // Between two looks at a directory others may have changed it, too, and to list it again costs little.
    let is_unseen = std::mem::take(&mut node.own.is_unseen) && node.kind != FileType::Directory;
    let is_own = is_unseen | (std::mem::take(&mut node.own.has_new_name) && is_same_data);
    if is_own {
        save::attr_changed(state, id);
    } else {
        changed_by_others(state, id);
    }
}

/// Age of a reply's attributes, compared with those that are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Age {
    Older,
    Newer,
    /// The server's clock shows the same time for both.
    Unknown,
}

/// The age of attributes in a reply to a call made at `asked`. Calls that were in flight at the same time may have been
/// executed in either order.
fn age(old: &CachedAttr, attr: &Attr, asked: Time) -> Age {
    if old.received <= asked || old.attr.wcc() == attr.wcc() {
        return Age::Newer;
    }
    match attr.ctime.cmp(&old.attr.ctime) {
        Ordering::Less => Age::Older,
        Ordering::Equal => Age::Unknown,
        Ordering::Greater => Age::Newer,
    }
}

/// Another client changed the object: drops what may be wrong now.
fn changed_by_others(state: &mut State, id: NodeId) {
    let Some(node) = state.nodes.get_mut(id) else { return };
    node.own.unsettled = None;
    node.shown_ctime = None;
    node.grants.clear();
    node.link_target = None;
    if let Some(disk) = &mut node.disk {
        disk.overwrite(0..u64::MAX);
    }
    if let Some(dir) = &mut node.dir {
        let oldest = state.pending.values().next().map_or(Time::MAX, |pending| pending.asked);
        dir.dropped.retain(|_, asked| *asked > oldest);
        let names = std::mem::take(&mut dir.names).into_iter().filter(|(_, dentry)| dentry.asked > oldest);
        dir.dropped.extend(names.map(|(name, dentry)| (name, dentry.asked)));
        dir.complete = None;
    }
    let is_open = node.opens > 0;
    if node.file.is_some() {
        data::drop_clean(state, id);
        if let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) {
            file.is_changed = true;
            file.next_read = 0;
        }
        if is_open {
            state.notify(Notification::InvalInode { nodeid: id.0, offset: 0, len: 0 });
        }
    }
    save::attr_changed(state, id);
}

/// A WRITE to `id` is answered.
pub(crate) fn finish_write(state: &mut State, id: NodeId, wcc: &Wcc, asked: Time) {
    finish_own(state, id, wcc, asked, true);
}

/// A change of `id` that was made here is answered. If it `only_grows`, the larger of two sizes is the later one.
fn finish_own(state: &mut State, id: NodeId, wcc: &Wcc, asked: Time, only_grows: bool) {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(id) else { return };
    node.own.in_flight = node.own.in_flight.saturating_sub(1);
    match (&wcc.before, &wcc.after) {
        (Some(before), Some(after)) => node.own.steps.push(WccStep { before: *before, after: after.wcc() }),
        // Without both, the change is taken for the only one, as other clients do.
        _ => node.own.base = None,
    }
    match (&mut node.attr, &wcc.after) {
        (Some(old), Some(after)) => {
            let age = age(old, after, asked);
            let is_smaller = only_grows && age == Age::Unknown && after.size < old.attr.size;
            if age != Age::Older && !is_smaller {
                let since = if old.attr.wcc() == after.wcc() { old.since } else { now };
                let known = old.outdated.filter(|since| *since > asked);
                let outdated = if age == Age::Unknown && !only_grows { Some(now) } else { known };
                let asked = asked.max(old.asked);
                *old = CachedAttr { attr: after.clone(), asked, received: now, since, outdated };
            }
        }
        (None, Some(after)) => {
            node.attr = Some(CachedAttr { attr: after.clone(), asked, received: now, since: now, outdated: None })
        }
        (known, None) => {
            node.own.is_unseen = true;
            if let Some(known) = known {
                known.outdated = Some(now);
            }
        }
    }
    if node.own.in_flight > 0 {
        return save::attr_changed(state, id);
    }
    let before = node.own.base;
    if !node.own.explain_all() {
        return changed_by_others(state, id);
    }
    node.own.unsettled = node.own.unsettled.or(before);
    append::update_seen(state, id);
    save::attr_changed(state, id);
}

/// The object has lost a name by a change made here.
fn lost_name(state: &mut State, target: Option<Target>, at: &Location) {
    if let Some(Target::Node(id)) = target {
        state.nodes.forget_place(id, at);
        touch_name(state, Target::Node(id));
    }
}

/// A name made, removed or linked here changed the object itself.
fn touch_name(state: &mut State, target: Target) {
    let now = state.now;
    if let Target::Node(id) = target
        && let Some(node) = state.nodes.get_mut(id)
    {
        node.own.has_new_name = true;
        // The attributes of an object that only the log has are always new.
        if let Some(cached) = node.attr.as_mut().filter(|_| !node.is_local) {
            cached.outdated = Some(now);
        }
    }
}

/// Records what a name stands for, as a call made at `asked` showed it, unless something newer is known.
/// `is_confirmed`: see [`Dentry`].
pub(crate) fn learn_name(state: &mut State, at: &Location, target: Target, asked: Time, is_confirmed: bool) {
    let Some(dir) = state.nodes.get_mut(at.dir) else { return };
    let dir = dir.dir();
    let is_older = dir.names.get(&at.name).is_some_and(|known| known.asked > asked);
    let is_dropped = dir.dropped.get(&at.name).is_some_and(|dropped| *dropped > asked);
    if is_older || is_dropped || dir.unknown_since.is_some_and(|since| asked < since) {
        return;
    }
    dir.dropped.remove(&at.name);
    dir.names.insert(at.name.clone(), Dentry { target, asked, is_confirmed });
    if let Target::Node(id) = target
        && let Some(node) = state.nodes.get_mut(id)
    {
        node.location = Some(at.clone());
    }
}

/// Records what a change made here has done to a name.
fn change_name(state: &mut State, at: &Location, target: Target) {
    learn_name(state, at, target, state.now, true);
}

/// Whether a reply with these attributes of `dir` shows the names that belong to the known ones.
pub(crate) fn is_confirmed(state: &State, dir: NodeId, attr: Option<&Attr>) -> bool {
    let known = state.nodes.get(dir).and_then(|node| node.attr.as_ref());
    known.zip(attr).is_some_and(|(known, attr)| known.attr.wcc() == attr.wcc())
}

/// Records an object that the server showed at `at`.
pub(crate) fn learn_object(state: &mut State, object: Shown, is_confirmed: bool) {
    let Shown { at, fh, attr, asked } = object;
    let id = state.nodes.intern(fh, attr);
    learn_attr(state, id, attr, asked);
    learn_name(state, at, Target::Node(id), asked, is_confirmed);
}

/// All names that a listing showed.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) dir: NodeId,
    pub(crate) found: Vec<(Name, Target)>,
    /// When the listing began.
    pub(crate) began: Time,
    pub(crate) is_confirmed: bool,
}

/// Records all names of a directory.
pub(crate) fn learn_names(state: &mut State, names: Names) {
    let Names { dir: id, found, began, is_confirmed } = names;
    let Some(dir) = state.nodes.get_mut(id) else { return };
    let dir = dir.dir();
    if dir.unknown_since.is_some_and(|since| began < since) {
        return;
    }
    // Names that were made or removed here since the listing began are newer than it.
    dir.names.retain(|_, dentry| dentry.asked > began);
    dir.dropped.clear();
    dir.complete = Some(Listed { began, is_confirmed });
    dir.misses = 0;
    for (name, target) in found {
        if !matches!(&name[..], b"." | b"..") {
            learn_name(state, &Location { dir: id, name }, target, began, is_confirmed);
        }
    }
    save::learned(state, id);
}

/// A directory that was made here has no names.
pub(crate) fn made_directory(state: &mut State, at: &Location) {
    let began = state.now;
    if let Some(Target::Node(id)) = known_target(state, at)
        && let Some(node) = state.nodes.get_mut(id)
        && node.kind == nfs3::FileType::Directory
    {
        node.dir().complete = Some(Listed { began, is_confirmed: true });
    }
}

/// An object that the server showed at a name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shown<'r> {
    pub(crate) at: &'r Location,
    pub(crate) fh: &'r Fh,
    pub(crate) attr: &'r Attr,
    pub(crate) asked: Time,
}

/// Drops what is known of a name.
pub(crate) fn forget_name(state: &mut State, at: &Location) {
    let now = state.now;
    if let Some(dir) = state.nodes.get_mut(at.dir) {
        let dir = dir.dir();
        dir.names.remove(&at.name);
        dir.complete = None;
        dir.unknown_since = Some(now);
    }
}

/// The server granted `granted` of `tested` to a credential.
pub(crate) fn learn_grant(state: &mut State, id: NodeId, credential: CredentialId, grant: Grant) {
    if let Some(node) = state.nodes.get_mut(id) {
        let known = node.grants.entry(credential).or_insert(grant);
        if known.tested & !grant.tested == 0 {
            *known = grant;
        } else {
            known.granted = known.granted & !grant.tested | grant.granted;
        }
        save::learned(state, id);
    }
}

/// A change is answered: the attributes of its subjects, in their order.
pub(crate) fn finish_change(state: &mut State, change: &Change, wccs: [&Wcc; 2], asked: Time) {
    for (id, wcc) in change.subjects().into_iter().zip(wccs) {
        let Some(id) = id else { continue };
        finish_own(state, id, wcc, asked, false);
        if let Some(after) = &wcc.after
            && wcc.before.as_ref().is_some_and(|before: &WccAttr| before.ctime != after.ctime)
        {
            state.learn_skew(after.ctime);
        }
    }
}

/// The server removed the name `at` by a call made at `asked`.
pub(crate) fn removed(state: &mut State, at: &Location, asked: Time) {
    conflict_copies::removed(state, at);
    let target = known_target(state, at);
    // Of a file without another name nothing needs to be sent.
    let is_last = |node: &Node| {
        let links = node.logged.as_ref().map_or(0, |logged| logged.links.max(0));
        node.opens == 0
            && links == 0
            && node.file.is_some()
            && node.attr.as_ref().is_some_and(|cached| {
                // Later attributes may not count this name any more.
                !cached.is_outdated() && cached.received <= asked && cached.attr.nlink <= 1
            })
    };
    let gone = match target {
        Some(Target::Node(id)) => state.nodes.get(id).is_some_and(is_last).then_some(id),
        _ => None,
    };
    change_name(state, at, Target::Absent);
    lost_name(state, target.or_else(|| unsent_file(state, at)), at);
    if let Some(id) = gone {
        data::discard(state, id);
        save::removed(state, id);
    }
}

/// The server renamed `from` to `to`. If both are links to one file, that does nothing (POSIX).
pub(crate) fn renamed(state: &mut State, from: &Location, to: &Location) {
    conflict_copies::renamed(state, from, to);
    let (moved, replaced) = (known_target(state, from), known_target(state, to).or_else(|| unsent_file(state, to)));
    let Some(Target::Node(id)) = moved else {
        forget_name(state, from);
        return forget_name(state, to);
    };
    let links = state.nodes.get(id).and_then(|node| node.attr.as_ref()).map_or(1, |cached| cached.attr.nlink);
    if moved == replaced || links > 1 && replaced.is_none() {
        forget_name(state, from);
        return forget_name(state, to);
    }
    change_name(state, from, Target::Absent);
    change_name(state, to, Target::Node(id));
    touch_name(state, Target::Node(id));
    lost_name(state, replaced, to);
}

/// The file with unsent changes at a name that is not known any more.
fn unsent_file(state: &State, at: &Location) -> Option<Target> {
    let is_there = |id: &&NodeId| state.nodes.get(**id).is_some_and(|node| node.location.as_ref() == Some(at));
    state.dirty_files.iter().find(is_there).map(|id| Target::Node(*id))
}

/// The server linked `node` as `to`.
pub(crate) fn linked(state: &mut State, node: NodeId, to: &Location) {
    change_name(state, to, Target::Node(node));
    touch_name(state, Target::Node(node));
}

/// The object that a name is known to stand for.
pub(crate) fn known_node(state: &State, at: &Location) -> Option<NodeId> {
    known_target(state, at).and_then(|target| if let Target::Node(id) = target { Some(id) } else { None })
}

fn known_target(state: &State, at: &Location) -> Option<Target> {
    let dir = state.nodes.get(at.dir)?.dir.as_ref()?;
    dir.names.get(&at.name).map(|dentry| dentry.target)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::call::Priority;
    use crate::config::Config;
    use crate::state::Purpose;

    #[test]
    fn late_lookup_does_not_hide_a_name_made_since() {
        let mut state = State::new(Config::default(), Fh(Bytes::new()), Time::from_secs(10));
        let at = Location { dir: NodeId::ROOT, name: Bytes::from_static(b"file") };
        let look = |state: &mut State| {
            let call = nfs3::Call::GetAttr(Fh(Bytes::new()));
            let _ = state.submit(Priority::Foreground, &Default::default(), call, Purpose::StatFs);
            state.now
        };
        let early = look(&mut state);
        state.now = Time::from_secs(20);
        change_name(&mut state, &at, Target::Node(NodeId(7)));
        changed_by_others(&mut state, NodeId::ROOT);
        assert_eq!(known_target(&state, &at), None);
        learn_name(&mut state, &at, Target::Absent, early, false);
        assert_eq!(known_target(&state, &at), None, "it was looked up before it was made");
        let later = look(&mut state);
        learn_name(&mut state, &at, Target::Absent, later, false);
        assert_eq!(known_target(&state, &at), Some(Target::Absent), "another client removed it");
    }
}
