//! Reads files that a program is expected to open next, in link time that no foreground call uses.
//!
//! A file is known to the model by its name and the number of its directory, so that one that is replaced by a rename
//! stays the same file. Only files that were opened since the mount are read ahead: the model has no names.

use crate::ahead;
use crate::node::{Location, Node, NodeId};
use crate::state::{Op, State};

/// A file was opened to be read: learns from it, and reads those that are expected next.
pub(crate) fn opened_file(state: &mut State, op: &Op) {
    if state.config.policy.open.is_zero() || op.program.is_empty() {
        return;
    }
    let Some(at) = state.nodes.get(op.node).and_then(|node| node.location.clone()) else { return };
    let Some(dir) = state.nodes.get(at.dir).and_then(|dir| dir.attr.as_ref()) else { return };
    let dir_fileid = dir.attr.fileid;
    state.foresight.observe(&op.program, dir_fileid, at);
    let mut room = state.link.ahead_max / 4;
    for prediction in state.foresight.predict(&op.program) {
        let Some(id) = state.foresight.name_of(prediction.file).and_then(|at| node_at(state, at)) else { continue };
        let size = state.nodes.get(id).map_or(0, Node::size);
        if size > room {
            break;
        }
        if pays(prediction.probability, size, state.link.prefetch_max) {
            room -= size;
            ahead::read(state, id, &op.caller);
        }
    }
}

/// The object that has a name now.
fn node_at(state: &State, at: &Location) -> Option<NodeId> {
    state.nodes.get(at.dir)?.dir.as_ref()?.names.get(&at.name)?.node()
}

/// Whether to read a file ahead: what a round trip is worth, if the file is opened, exceeds the time on the link that is
/// wasted otherwise. `round_trip` is the former in bytes on this link.
fn pays(probability: f64, size: u64, round_trip: u64) -> bool {
    probability * round_trip as f64 > (1.0 - probability) * size as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_file_is_read_ahead_only_if_it_is_likely() {
        for (probability, size, expected) in
            [(0.6, 10 << 10, true), (0.6, 60 << 10, false), (0.9, 60 << 10, true), (1.0, 1 << 40, true)]
        {
            assert_eq!(pays(probability, size, 16 << 10), expected, "{probability} {size}");
        }
    }
}
