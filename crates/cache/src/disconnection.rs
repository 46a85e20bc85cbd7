//! Changes of the connection's state: to work without the server, and to return to it.
//!
//! The mount is disconnected when the server has owed a reply for long, and connected again at the first reply: each state
//! lasts for some time, whatever the link does. While it is disconnected one call looks for the server.

use std::time::Duration;

use remora_base::Time;
use remora_wire::nfs3;

use crate::call::{CallId, Priority};
use crate::dirty_store;
use crate::disk::completion;
use crate::node::NodeId;
use crate::reintegration::send;
use crate::state::{Purpose, State, Step};

/// When a call that looks for the server and failed is followed by the next one.
const PROBE_RETRY: Duration = Duration::from_secs(2);

/// The server has owed a reply for this long.
pub(crate) fn set_silence(state: &mut State, silence: Duration) {
    state.connection.silence = silence;
    let is_long = state.config.offline.after.is_some_and(|after| silence >= after);
    if is_long && !state.is_disconnected() {
        disconnect(state, false);
    }
}

/// Works without the server until [`go_online`].
pub(crate) fn go_offline(state: &mut State) {
    if state.is_disconnected() {
        state.connection.set_disconnected(Some(true));
        run_held(state);
    } else {
        disconnect(state, true);
    }
}

/// Looks for the server, and uses it once it answers.
pub(crate) fn go_online(state: &mut State) {
    if state.connection.is_asked() {
        state.connection.set_disconnected(Some(false));
        state.connection.probe_at = Some(state.now);
    }
}

fn disconnect(state: &mut State, is_asked: bool) {
    state.connection.set_disconnected(Some(is_asked));
    state.connection.probe_at = (!is_asked).then_some(state.now);
    // What is unsent is acknowledged from the store from now on.
    dirty_store::save_all(state);
    completion::use_unconfirmed(state);
    run_held(state);
}

/// Runs operations again that wait for nothing but answers: the cache may have them.
fn run_held(state: &mut State) {
    let has_sent = |steps: &[Step]| steps.iter().any(|step| matches!(step, Step::InFlight));
    let held = state.held.values().filter(|op| !has_sent(&op.steps)).map(|op| op.unique);
    let held: Vec<u64> = held.collect();
    state.ready.extend(held);
}

/// The server has answered.
pub(crate) fn heard(state: &mut State) {
    state.connection.silence = Duration::ZERO;
    if !state.is_disconnected() || state.connection.is_asked() {
        return;
    }
    state.connection.set_disconnected(None);
    state.connection.probe_at = None;
    state.connection.probe = None;
    send::check_files(state);
    send::run(state);
}

/// A call has ended; one that looked for the server may be followed by another.
pub(crate) fn call_ended(state: &mut State, id: CallId) {
    if state.connection.probe == Some(id) {
        state.connection.probe = None;
        state.connection.probe_at = state.is_disconnected().then_some(state.now + PROBE_RETRY);
    }
}

/// Looks for the server.
pub(crate) fn handle_timeout(state: &mut State) {
    if state.connection.probe_at.is_none_or(|at| at > state.now) {
        return;
    }
    state.connection.probe_at = None;
    if !state.is_disconnected() || state.connection.is_asked() || state.connection.probe.is_some() {
        return;
    }
    let Some(root) = state.nodes.get(NodeId::ROOT).map(|node| node.fh.clone()) else { return };
    let auth = state.credentials.of(0, 0, &[]).auth;
    let id = state.submit(Priority::Foreground, &auth, nfs3::Call::GetAttr(root), Purpose::GetAttr(NodeId::ROOT));
    state.connection.probe = Some(id);
}

/// When [`handle_timeout`] is next due.
pub(crate) fn poll_timeout(state: &State) -> Option<Time> {
    state.connection.probe_at
}
