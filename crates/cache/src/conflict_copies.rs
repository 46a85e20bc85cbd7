//! Reported conflicts follow the copies that they name.

use crate::change_log::record::ConflictId;
use crate::node::Location;
use crate::path;
use crate::state::State;

/// The object at `from` is at `to` now: so are the copies there and below.
pub(crate) fn renamed(state: &mut State, from: &Location, to: &Location) {
    if state.log.conflicts.is_empty() {
        return;
    }
    let old = path::path(state, from.dir, Some(&from.name));
    let new = path::path(state, to.dir, Some(&to.name));
    for conflict in state.log.conflicts.values_mut() {
        let Some(copy) = &mut conflict.copy else { continue };
        let below = copy.strip_prefix(&old[..]).filter(|rest| rest.is_empty() || rest.starts_with(b"/"));
        if let Some(below) = below {
            *copy = [&new, below].concat();
            state.store.log.batch.conflicts.push(conflict.clone());
        }
    }
}

/// The copy at `at` is gone: that settles its conflict.
pub(crate) fn removed(state: &mut State, at: &Location) {
    if state.log.conflicts.is_empty() {
        return;
    }
    let path = path::path(state, at.dir, Some(&at.name));
    let is_settled = |copy: &Option<Vec<u8>>| copy.as_ref() == Some(&path);
    let conflicts = state.log.conflicts.iter();
    let settled: Vec<ConflictId> =
        conflicts.filter(|(_, conflict)| is_settled(&conflict.copy)).map(|(id, _)| *id).collect();
    for id in settled {
        state.log.conflicts.remove(&id);
        state.store.log.batch.dismissed.push(id);
    }
}
