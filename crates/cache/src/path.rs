//! Paths of objects, for people.

use remora_wire::nfs3::Name;

use crate::node::{Location, NodeId};
use crate::state::State;

/// Whether the way from the mounted directory to a directory is known.
fn is_known(state: &State, dir: NodeId) -> bool {
    const DEPTH_MAX: usize = 256;
    let above = |id: &NodeId| Some(state.nodes.get(*id)?.location.as_ref()?.dir);
    std::iter::successors(Some(dir), above).take(DEPTH_MAX).any(|id| id == NodeId::ROOT)
}

/// Path of a name that had the path `before` in an earlier run, if its directory has not been looked up since.
pub(crate) fn path_since(state: &State, at: &Location, before: &[u8]) -> Vec<u8> {
    let end = before.iter().rposition(|byte| *byte == b'/');
    match end.filter(|_| !is_known(state, at.dir)) {
        Some(end) => [&before[..=end], &at.name].concat(),
        None => path(state, at.dir, Some(&at.name)),
    }
}

/// Path of an object, or of a name in it, from the mounted directory.
pub(crate) fn path(state: &State, id: NodeId, child: Option<&Name>) -> Vec<u8> {
    const DEPTH_MAX: usize = 256;
    let mut names: Vec<Name> = child.into_iter().cloned().collect();
    let mut at = id;
    while at != NodeId::ROOT && names.len() < DEPTH_MAX {
        let Some(node) = state.nodes.get(at) else { break };
        let Some(location) = &node.location else {
            // A file that was written before a restart may not have been looked up since.
            if let Some(file) = &node.file
                && names.is_empty()
                && !file.kept.path.is_empty()
            {
                return file.kept.path.clone();
            }
            break;
        };
        names.push(location.name.clone());
        at = location.dir;
    }
    let mut path = Vec::new();
    for name in names.iter().rev() {
        path.push(b'/');
        path.extend_from_slice(name);
    }
    if path.is_empty() { b"/".to_vec() } else { path }
}
