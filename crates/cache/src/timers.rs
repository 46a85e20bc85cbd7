//! Timers of files with uncommitted data, and of the disk cache.

use std::time::Duration;

use remora_base::Time;

use crate::dirty_store;
use crate::disconnection;
use crate::disk::fetch;
use crate::node::NodeId;
use crate::recovery;
use crate::state::State;
use crate::writeback::{self, Amount};

/// Sends and commits what has waited long enough.
pub(crate) fn handle_timeout(state: &mut State) {
    fetch::handle_timeout(state);
    disconnection::handle_timeout(state);
    let now = state.now;
    let later = state.timers.split_off(&(now + Duration::from_nanos(1), NodeId::MIN));
    for (_, id) in std::mem::replace(&mut state.timers, later) {
        let Some(file) = state.nodes.get_mut(id).and_then(|node| node.file.as_mut()) else { continue };
        let is_checked = file.check.is_none();
        let sends = file.send_at.take_if(|at| *at <= now).is_some();
        let commits = file.commit_at.take_if(|at| *at <= now).is_some();
        let saves = file.kept.save_at.is_some_and(|at| at <= now);
        if sends && is_checked {
            writeback::send(state, id, Amount::All);
        } else if sends {
            recovery::start(state, id);
        }
        if commits {
            writeback::commit(state, id, true);
        }
        if saves {
            dirty_store::save_now(state, id);
        }
    }
}

/// When [`handle_timeout`] is next due.
pub(crate) fn poll_timeout(state: &State) -> Option<Time> {
    let file = state.timers.first().map(|(at, _)| *at);
    let barrier = state.store.barrier_at.filter(|_| !state.store.has_barrier());
    let log = state.store.log_retry_at();
    file.into_iter()
        .chain(barrier)
        .chain(state.disk.poll_timeout())
        .chain(log)
        .chain(disconnection::poll_timeout(state))
        .chain(state.hoard.poll_timeout())
        .min()
}
