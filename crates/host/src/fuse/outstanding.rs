//! Requests that the kernel waits for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use remora_wire::fuse::{Operation, Request};

/// INTERRUPTs kept whose request another thread has not entered yet, or has answered.
const EARLY_MAX: usize = 256;

/// The outstanding requests of a connection.
#[derive(Default)]
pub(super) struct Outstanding(Mutex<Requests>);

#[derive(Default)]
struct Requests {
    by_number: BTreeMap<u64, Held>,
    /// Outstanding requests of each node that has any.
    by_node: BTreeMap<u64, usize>,
    early: BTreeSet<u64>,
}

struct Held {
    pid: u32,
    nodes: Vec<u64>,
}

impl Outstanding {
    /// Enters a request that needs a reply. Returns whether its INTERRUPT came first: another thread may read it.
    pub(super) fn begin(&self, request: &Request) -> bool {
        let header = request.header;
        let held = Held { pid: header.pid, nodes: nodes(request) };
        let mut requests = self.lock();
        for node in &held.nodes {
            *requests.by_node.entry(*node).or_default() += 1;
        }
        requests.by_number.insert(header.unique, held);
        requests.early.remove(&header.unique)
    }

    /// The thread that waits for request `unique`. If no such request is entered, its later
    /// [`begin`](Outstanding::begin) tells of the INTERRUPT.
    pub(super) fn interrupt(&self, unique: u64) -> Option<u32> {
        let mut requests = self.lock();
        let pid = requests.by_number.get(&unique).map(|held| held.pid);
        if pid.is_none() {
            requests.early.insert(unique);
            if requests.early.len() > EARLY_MAX {
                // Numbers rise, so the lowest was answered long ago.
                requests.early.pop_first();
            }
        }
        pid
    }

    /// Removes an answered request.
    pub(super) fn end(&self, unique: u64) {
        let mut requests = self.lock();
        let Some(held) = requests.by_number.remove(&unique) else { return };
        for node in held.nodes {
            if let Some(count) = requests.by_node.get_mut(&node) {
                *count -= 1;
                if *count == 0 {
                    requests.by_node.remove(&node);
                }
            }
        }
    }

    /// Whether a request on `node` is outstanding.
    pub(super) fn is_held(&self, node: u64) -> bool {
        self.lock().by_node.contains_key(&node)
    }

    fn lock(&self) -> MutexGuard<'_, Requests> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The nodes whose locks the kernel may hold during the request.
fn nodes(request: &Request) -> Vec<u64> {
    let mut nodes = vec![request.header.nodeid];
    match request.op {
        Operation::Rename { new_dir: other, .. } | Operation::Link { nodeid: other, .. } if !nodes.contains(&other) => {
            nodes.push(other);
        }
        _ => {}
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_wire::fuse::Header;

    fn request(unique: u64, op: Operation) -> Request {
        Request { header: Header { unique, nodeid: 5, uid: 0, gid: 0, pid: 300, opcode: 0 }, op }
    }

    #[test]
    fn node_is_held_until_its_last_request_is_answered() {
        let rename = Operation::Rename { name: "a".into(), new_dir: 6, new_name: "b".into(), flags: 0 };
        let outstanding = Outstanding::default();
        assert!(!outstanding.begin(&request(1, rename)));
        assert!(!outstanding.begin(&request(2, Operation::ReadLink)));
        let held = || [5, 6, 7].map(|node| outstanding.is_held(node));
        assert_eq!(held(), [true, true, false]);
        outstanding.end(1);
        assert_eq!(held(), [true, false, false]);
        outstanding.end(1);
        outstanding.end(2);
        assert_eq!(held(), [false; 3]);
    }

    #[test]
    fn interrupt_finds_its_request_in_either_order() {
        let outstanding = Outstanding::default();
        outstanding.begin(&request(1, Operation::ReadLink));
        assert_eq!(outstanding.interrupt(1), Some(300));
        assert_eq!(outstanding.interrupt(2), None);
        assert!(outstanding.begin(&request(2, Operation::ReadLink)));
        assert!(!outstanding.begin(&request(3, Operation::ReadLink)));
    }

    #[test]
    fn interrupts_of_answered_requests_are_bounded() {
        let outstanding = Outstanding::default();
        let count = EARLY_MAX as u64 + 10;
        (0..count).for_each(|unique| assert_eq!(outstanding.interrupt(unique), None));
        assert_eq!(outstanding.lock().early.len(), EARLY_MAX);
        assert!(!outstanding.begin(&request(0, Operation::ReadLink)));
        assert!(outstanding.begin(&request(count - 1, Operation::ReadLink)));
    }
}
