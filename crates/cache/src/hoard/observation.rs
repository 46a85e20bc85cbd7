//! Observed use: opens of files, and the report of them.

use crate::hoard::usage::DirectoryUse;
use crate::node::NodeId;
use crate::path;
use crate::state::State;

/// A program opened an object.
pub(crate) fn opened(state: &mut State, id: NodeId, program: &str) {
    let location = state.nodes.get(id).and_then(|node| node.location.as_ref());
    if let Some(dir) = location.map(|location| location.dir) {
        state.hoard.usage.opened(dir, id, program);
    }
}

/// Directories by the number of opens.
pub(crate) fn usage(state: &State, max: usize) -> Vec<DirectoryUse> {
    let known = state.hoard.usage.counts().filter(|(dir, _)| state.nodes.get(*dir).is_some());
    let mut uses: Vec<DirectoryUse> = known
        .map(|(dir, count)| DirectoryUse {
            path: path::path(state, dir, None),
            opens: count.opens,
            files: count.files.len(),
            programs: count.programs.clone(),
        })
        .collect();
    uses.sort_by(|one, other| other.opens.cmp(&one.opens).then(one.path.cmp(&other.path)));
    uses.truncate(max);
    uses
}
