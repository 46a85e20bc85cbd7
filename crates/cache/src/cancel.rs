//! Cancellation: a READ that waits for the client core and that no program waits for any more is withdrawn.

use crate::call::CallId;
use crate::state::{Purpose, State};

/// Operation `unique` has ended without the replies that it waited for. Calls in flight simply end.
pub(crate) fn withdraw(state: &mut State, unique: u64) {
    let mut idle: Vec<CallId> = Vec::new();
    for (id, pending) in &mut state.pending {
        let before = pending.waiters.len();
        pending.waiters.retain(|waiter| *waiter != unique);
        if pending.waiters.is_empty() && before > 0 && matches!(pending.purpose, Purpose::Read { .. }) {
            idle.push(*id);
        }
    }
    for id in idle {
        if !state.queue.remove(id) {
            continue;
        }
        if let Some(Purpose::Read { node, .. }) = state.pending.remove(&id).map(|pending| pending.purpose)
            && let Some(file) = state.nodes.get_mut(node).and_then(|node| node.file.as_mut())
        {
            file.reading.remove(&id);
            state.nodes.settle(node);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use remora_base::Time;
    use remora_wire::nfs3::{self, Fh};
    use remora_wire::rpc::AuthUnix;

    use super::*;
    use crate::call::{BulkRoom, Priority};
    use crate::config::Config;
    use crate::node::NodeId;

    /// A READ for which operations 7 and 8 wait.
    fn read(state: &mut State) -> CallId {
        let call = nfs3::Call::Read(nfs3::ReadArgs { fh: Fh(Bytes::new()), offset: 0, count: 8192 });
        let reader = state.credentials.of(0, 0, &[]);
        let purpose = Purpose::Read { node: NodeId::ROOT, range: 0..8192, reader };
        let id = state.submit(Priority::Foreground, &Arc::new(AuthUnix::default()), call, purpose);
        state.node(NodeId::ROOT).unwrap().file().reading.insert(id, 0..8192);
        state.wait_for(id, 7);
        state.wait_for(id, 8);
        id
    }

    #[test]
    fn queued_read_is_withdrawn_when_nobody_waits_for_it() {
        let mut state = State::new(Config::default(), Fh(Bytes::new()), Time::ZERO);
        let (sent, _queued) = (read(&mut state), read(&mut state));
        assert_eq!(state.queue.pop(BulkRoom::All).unwrap().id, sent);
        withdraw(&mut state, 7);
        assert_eq!((state.queue.len(), state.pending.len()), (1, 2), "another operation waits");
        withdraw(&mut state, 8);
        assert_eq!(state.queue.len(), 0);
        let left: Vec<CallId> = state.pending.keys().copied().collect();
        let reading: Vec<CallId> = state.node(NodeId::ROOT).unwrap().file().reading.keys().copied().collect();
        assert_eq!([left, reading], [[sent], [sent]], "a call in flight ends with its reply");
    }
}
