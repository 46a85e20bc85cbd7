//! The queue of notifications to the kernel.
//!
//! The kernel carries a notification out under the lock of the directory or file, which a LOOKUP or READ may hold until
//! its reply. A writer that waits for the lock stops every later caller there. So one thread writes notifications, and
//! those of nodes with outstanding requests stay in the queue.
//!
//! The queue holds at most one notification for each file, which its nodes bound, and [`NAMES_MAX`] names. With more
//! names all of them are expired at once; a kernel that cannot do that lets them expire by their timeouts.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use remora_wire::fuse::{Name, Notification};

/// Maximum number of queued notifications of names.
const NAMES_MAX: usize = 4096;

/// A queue of notifications.
pub(super) struct NotificationQueue {
    state: Mutex<State>,
    changed: Condvar,
    can_inc_epoch: bool,
}

#[derive(Default)]
struct State {
    /// The keys of `pending`, oldest first.
    order: VecDeque<Key>,
    pending: BTreeMap<Key, Notification>,
    names: usize,
    is_stopped: bool,
}

/// Subject of a notification.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Epoch,
    Inode(u64),
    Name { parent: u64, name: Name },
}

impl Key {
    fn of(notification: &Notification) -> Key {
        match notification {
            Notification::IncEpoch => Key::Epoch,
            Notification::InvalInode { nodeid, .. } => Key::Inode(*nodeid),
            Notification::InvalEntry { parent, name, .. } | Notification::Delete { parent, name, .. } => {
                Key::Name { parent: *parent, name: name.clone() }
            }
        }
    }

    fn is_name(&self) -> bool {
        matches!(self, Key::Name { .. })
    }
}

impl NotificationQueue {
    pub(super) fn new(can_inc_epoch: bool) -> NotificationQueue {
        NotificationQueue { state: Mutex::default(), changed: Condvar::new(), can_inc_epoch }
    }

    /// Adds a notification, or merges it with a queued one of the same file or name.
    pub(super) fn push(&self, notification: Notification) {
        let key = Key::of(&notification);
        let mut state = self.lock();
        match state.pending.remove(&key) {
            Some(queued) => {
                state.pending.insert(key, merged(queued, notification));
            }
            None if key.is_name() && state.names == NAMES_MAX => self.expire_names(&mut state),
            None => state.add(key, notification),
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The next notification whose nodes are not held; waits for one. `None` once the queue is stopped.
    pub(super) fn next(&self, is_held: impl Fn(u64) -> bool) -> Option<Notification> {
        let mut state = self.lock();
        loop {
            if state.is_stopped {
                return None;
            }
            let free = (0..state.order.len()).find(|&index| !nodes(&state.pending[&state.order[index]]).any(&is_held));
            if let Some(key) = free.and_then(|index| state.order.remove(index)) {
                state.names -= usize::from(key.is_name());
                return state.pending.remove(&key);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Makes [`next`](NotificationQueue::next) look again: a request was answered.
    pub(super) fn wake(&self) {
        if !self.lock().order.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Drops the queue.
    pub(super) fn stop(&self) {
        self.lock().is_stopped = true;
        self.changed.notify_all();
    }

    fn expire_names(&self, state: &mut State) {
        state.order.retain(|key| !key.is_name());
        state.pending.retain(|key, _| !key.is_name());
        state.names = 0;
        if self.can_inc_epoch && !state.pending.contains_key(&Key::Epoch) {
            state.add(Key::Epoch, Notification::IncEpoch);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn add(&mut self, key: Key, notification: Notification) {
        self.names += usize::from(key.is_name());
        self.order.push_back(key.clone());
        self.pending.insert(key, notification);
    }
}

/// The nodes whose locks the notification takes.
fn nodes(notification: &Notification) -> impl Iterator<Item = u64> {
    let nodes = match notification {
        Notification::InvalInode { nodeid, .. } => [Some(*nodeid), None],
        Notification::InvalEntry { parent, .. } => [Some(*parent), None],
        Notification::Delete { parent, child, .. } => [Some(*parent), Some(*child)],
        Notification::IncEpoch => [None, None],
    };
    nodes.into_iter().flatten()
}

/// A notification with the effects of both, which have the same subject.
fn merged(old: Notification, new: Notification) -> Notification {
    use Notification::{InvalEntry, InvalInode};
    match (old, new) {
        (InvalInode { nodeid, offset: a, len: a_len }, InvalInode { offset: b, len: b_len, .. }) => {
            // A negative offset is that of attributes alone.
            let (offset, len) = match (a < 0, b < 0) {
                (true, _) => (b, b_len),
                (false, true) => (a, a_len),
                (false, false) if (a, a_len) == (b, b_len) => (a, a_len),
                (false, false) => (0, 0),
            };
            InvalInode { nodeid, offset, len }
        }
        (old @ Notification::Delete { .. }, InvalEntry { .. }) => old,
        (old @ InvalEntry { expire_only: false, .. }, InvalEntry { expire_only: true, .. }) => old,
        (_, new) => new,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(nodeid: u64, offset: i64, len: i64) -> Notification {
        Notification::InvalInode { nodeid, offset, len }
    }

    fn entry(parent: u64, name: &str, expire_only: bool) -> Notification {
        Notification::InvalEntry { parent, name: Name::copy_from_slice(name.as_bytes()), expire_only }
    }

    fn delete(parent: u64, child: u64, name: &str) -> Notification {
        Notification::Delete { parent, child, name: Name::copy_from_slice(name.as_bytes()) }
    }

    /// All that the queue gives while `held` is held.
    fn drain(queue: &NotificationQueue, held: &[u64]) -> Vec<Notification> {
        let is_held = |node: u64| held.contains(&node);
        let is_free = |n: &Notification| !nodes(n).any(is_held);
        let mut all = Vec::new();
        while queue.lock().pending.values().any(is_free) {
            all.extend(queue.next(is_held));
        }
        all
    }

    #[test]
    fn held_node_delays_only_its_own_notifications() {
        let queue = NotificationQueue::new(true);
        let all = [inode(2, 0, 0), entry(3, "a", false), delete(4, 2, "b"), inode(5, 0, 0), Notification::IncEpoch];
        all.iter().for_each(|notification| queue.push(notification.clone()));
        assert_eq!(drain(&queue, &[2]), [all[1].clone(), all[3].clone(), all[4].clone()]);
        assert_eq!(drain(&queue, &[]), [all[0].clone(), all[2].clone()]);
    }

    #[test]
    fn notifications_of_one_subject_are_merged() {
        for (old, new, merged) in [
            (inode(2, -1, 0), inode(2, 4096, 10), inode(2, 4096, 10)),
            (inode(2, 4096, 10), inode(2, -1, 0), inode(2, 4096, 10)),
            (inode(2, 4096, 10), inode(2, 4096, 10), inode(2, 4096, 10)),
            (inode(2, 4096, 10), inode(2, 8192, 10), inode(2, 0, 0)),
            (entry(2, "a", true), entry(2, "a", false), entry(2, "a", false)),
            (entry(2, "a", false), entry(2, "a", true), entry(2, "a", false)),
            (entry(2, "a", true), delete(2, 9, "a"), delete(2, 9, "a")),
            (delete(2, 9, "a"), entry(2, "a", false), delete(2, 9, "a")),
        ] {
            let queue = NotificationQueue::new(true);
            queue.push(old);
            queue.push(new);
            assert_eq!(drain(&queue, &[]), [merged]);
        }
    }

    #[test]
    fn too_many_names_are_expired_at_once() {
        for can_inc_epoch in [true, false] {
            let queue = NotificationQueue::new(can_inc_epoch);
            queue.push(inode(2, 0, 0));
            (0..=NAMES_MAX).for_each(|n| queue.push(entry(3, &n.to_string(), false)));
            queue.push(entry(3, "later", false));
            let mut expected = vec![inode(2, 0, 0), Notification::IncEpoch, entry(3, "later", false)];
            expected.retain(|notification| can_inc_epoch || *notification != Notification::IncEpoch);
            assert_eq!(drain(&queue, &[]), expected);
            queue.stop();
            assert_eq!(queue.next(|_| false), None);
        }
    }
}
