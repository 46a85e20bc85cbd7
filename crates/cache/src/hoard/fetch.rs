//! Calls of a walk. No program waits for them.

use std::sync::Arc;

use remora_wire::nfs3;
use remora_wire::rpc::AuthUnix;

use crate::call::Priority;
use crate::hoard::status::HoardMissReason;
use crate::hoard::step::Step;
use crate::hoard::walk_state::ActiveObject;
use crate::state::{FetchKey, Purpose, State};

/// Calls of a walk in flight.
pub(crate) const CALLS_MAX: usize = 64;
/// Calls for one object beside LOOKUPs and READs.
const ATTEMPTS_MAX: u32 = 6;

/// A call, and what its reply shows.
pub(crate) struct Question {
    pub(crate) key: FetchKey,
    pub(crate) call: nfs3::Call,
    pub(crate) purpose: Purpose,
}

/// Whether another call may leave.
pub(crate) fn has_room(state: &State) -> bool {
    state.hoard.calls.len() < CALLS_MAX
}

/// Asks the server, unless the same question is in flight.
pub(crate) fn ask(state: &mut State, auth: &Arc<AuthUnix>, active: &mut ActiveObject, question: Question) -> Step {
    if state.fetches.contains_key(&question.key) {
        return Step::Wait;
    }
    if active.attempts >= ATTEMPTS_MAX {
        return Step::Missing(HoardMissReason::Failed);
    }
    if !has_room(state) {
        return Step::Starved;
    }
    active.attempts += 1;
    send(state, auth, question);
    Step::Wait
}

/// Sends a call that others may wait for.
pub(crate) fn send(state: &mut State, auth: &Arc<AuthUnix>, question: Question) {
    let Question { key, call, purpose } = question;
    let id = state.submit(Priority::Prefetch, auth, call, purpose);
    state.fetches.insert(key.clone(), id);
    if let Some(pending) = state.pending.get_mut(&id) {
        pending.key = Some(key);
    }
    state.hoard.calls.insert(id);
}
