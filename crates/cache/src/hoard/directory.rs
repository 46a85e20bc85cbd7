//! What a walk does about a directory: lists it, and takes what is in it into the walk.

use remora_wire::nfs3::{self, FileType, Name};

use crate::call::Priority;
use crate::disk::save::NAMES_MAX;
use crate::hoard::fetch::{self, Question};
use crate::hoard::status::HoardMissReason;
use crate::hoard::step::{Step, Work};
use crate::hoard::walk_state::{ActiveObject, Visit};
use crate::needs;
use crate::node::{Location, NodeId, Target};
use crate::state::{FetchKey, ListingProgress, Purpose, State};

/// A name of a directory, and what it stands for.
struct Child {
    name: Name,
    target: Target,
}

/// Takes what is in the directory into the walk, once its names are known.
pub(crate) fn expand(state: &mut State, work: &mut Work, id: NodeId, active: &mut ActiveObject) -> Result<(), Step> {
    if active.is_expanded {
        return Ok(());
    }
    listed(state, work, id, active)?;
    let children = children(state, id, active);
    looked_up(state, work, id, active, &children)?;
    active.is_expanded = true;
    if active.visit.is_ancestor() && children.is_empty() {
        let name = active.visit.entry.names.get(active.visit.depth).cloned().unwrap_or_default();
        work.lost.push((name, HoardMissReason::NotFound));
    }
    for Child { name, target } in children {
        match target {
            Target::Node(node) => {
                let known = state.nodes.get(node);
                let is_directory = known.is_some_and(|node| node.kind == FileType::Directory);
                let counted = if is_directory { None } else { Some(known.map_or(0, |node| node.size())) };
                let (entry, depth) = (active.visit.entry.clone(), active.visit.depth + 1);
                work.found.push(Visit { node, entry, depth, counted });
            }
            _ => work.lost.push((name, HoardMissReason::Failed)),
        }
    }
    Ok(())
}

/// Waits until all names are known, and the attributes of the objects that the walk goes on with.
fn listed(state: &mut State, work: &Work, id: NodeId, active: &mut ActiveObject) -> Result<(), Step> {
    let key = FetchKey::Listing(id);
    if state.fetches.contains_key(&key) {
        return Err(Step::Wait);
    }
    let Some(node) = state.nodes.get(id) else { return Err(Step::Gone) };
    let names = node.dir.as_ref().filter(|names| names.complete.is_some_and(|listed| listed.is_confirmed));
    let is_complete = names.is_some();
    if names.is_some_and(|names| names.names.len() > NAMES_MAX) {
        return Err(Step::Missing(HoardMissReason::TooLarge));
    }
    let is_old = |child: &Child| match child.target {
        Target::Node(id) => {
            let attr = state.nodes.get(id).and_then(|node| node.attr.as_ref());
            attr.is_none_or(|cached| cached.asked < work.began)
        }
        _ => true,
    };
    if is_complete && (active.is_listed || !children(state, id, active).iter().any(is_old)) {
        return Ok(());
    }
    let progress = ListingProgress::new(id, state.now, work.caller.clone());
    let Ok(call) = needs::listing_call(state, &progress, Priority::Prefetch) else { return Err(Step::Gone) };
    active.is_listed = true;
    let question = Question { key, call, purpose: Purpose::List(Box::new(progress)) };
    Err(fetch::ask(state, &work.caller.auth, active, question))
}

/// The names that the walk goes on with.
fn children(state: &State, id: NodeId, active: &ActiveObject) -> Vec<Child> {
    let Some(names) = state.nodes.get(id).and_then(|node| node.dir.as_ref()) else { return Vec::new() };
    let visit = &active.visit;
    let child = |(name, target): (&Name, Target)| Child { name: name.clone(), target };
    if visit.is_ancestor() {
        let name = visit.entry.names.get(visit.depth).into_iter();
        let known = name.filter_map(|name| Some((name, names.names.get(name)?.target)));
        return known.filter(|(_, target)| *target != Target::Absent).map(child).collect();
    }
    if !visit.is_entered() {
        return Vec::new();
    }
    let hidden = state.hidden_prefix();
    let is_wanted = |(name, target): &(&Name, Target)| {
        let is_directory = match target {
            Target::Absent => return false,
            Target::Node(id) => state.nodes.get(*id).is_some_and(|node| node.kind == FileType::Directory),
            // It may be one.
            Target::Unknown { .. } => visit.entry.recursive,
        };
        let is_named = visit.entry.glob.as_ref().is_none_or(|glob| glob.matches(name));
        !name.starts_with(hidden.as_bytes()) && if is_directory { visit.entry.recursive } else { is_named }
    };
    let all = names.names.iter().map(|(name, dentry)| (name, dentry.target));
    all.filter(is_wanted).map(child).collect()
}

/// Waits until the names are looked up that were listed without their handles.
fn looked_up(
    state: &mut State,
    work: &Work,
    id: NodeId,
    active: &mut ActiveObject,
    children: &[Child],
) -> Result<(), Step> {
    let Some(fh) = state.nodes.get(id).map(|node| node.fh.clone()) else { return Err(Step::Gone) };
    let unknown = children.iter().filter(|child| matches!(child.target, Target::Unknown { .. }));
    let mut waits = Ok(());
    for Child { name, .. } in unknown {
        let key = FetchKey::Name(id, name.clone());
        if state.fetches.contains_key(&key) {
            waits = Err(Step::Wait);
        } else if active.lookups.contains(name) {
            // It failed.
        } else if !fetch::has_room(state) {
            return Err(Step::Starved);
        } else {
            active.lookups.insert(name.clone());
            let call = nfs3::Call::Lookup(nfs3::DirOp { dir: fh.clone(), name: name.clone() });
            let at = Location { dir: id, name: name.clone() };
            let purpose = Purpose::Lookup { at, credential: work.caller.id };
            fetch::send(state, &work.caller.auth, Question { key, call, purpose });
            waits = Err(Step::Wait);
        }
    }
    waits
}
