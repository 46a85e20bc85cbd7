//! The table of known objects, by number and by file handle.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::nfs3::{Attr, Fh, FileType};

use crate::node::{Location, Node, NodeId};

/// All known objects. Those that the kernel has forgotten are evicted, the oldest first.
#[derive(Debug)]
pub(crate) struct NodeTable {
    /// Boxed, for the map has room for twice as many as it holds.
    nodes: BTreeMap<NodeId, Box<Node>>,
    by_fh: BTreeMap<Fh, NodeId>,
    next: u64,
    /// Forgotten objects in the order in which they were forgotten.
    forgotten: BTreeMap<u64, NodeId>,
    next_forgotten: u64,
    forgotten_max: usize,
    /// Objects that were evicted, until [`take_evicted`](NodeTable::take_evicted).
    evicted: Vec<Node>,
}

impl NodeTable {
    pub(crate) fn new(root: Fh, forgotten_max: usize) -> NodeTable {
        let mut node = Node::new(root.clone(), FileType::Directory, 0);
        node.lookups = 1;
        NodeTable {
            nodes: BTreeMap::from([(NodeId::ROOT, Box::new(node))]),
            by_fh: BTreeMap::from([(root, NodeId::ROOT)]),
            next: NodeId::ROOT.0 + 1,
            forgotten: BTreeMap::new(),
            next_forgotten: 0,
            forgotten_max,
            evicted: Vec::new(),
        }
    }

    pub(crate) fn get(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(&id).map(|node| &**node)
    }

    pub(crate) fn get_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(&id).map(|node| &mut **node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(id, node)| (*id, &**node))
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The object with this handle, new if it is not known. A server may use a handle again: an object of another
    /// type or file identifier is another one.
    pub(crate) fn intern(&mut self, fh: &Fh, attr: &Attr) -> NodeId {
        if let Some(id) = self.by_fh.get(fh).copied()
            && let Some(node) = self.nodes.get_mut(&id)
            && !node.is_stale
            && node.kind == attr.kind
            && (node.fileid == attr.fileid || node.attr.is_none())
        {
            node.fileid = attr.fileid;
            return id;
        }
        self.insert(Node::new(fh.clone(), attr.kind, attr.fileid))
    }

    /// The object with this handle, of which nothing else is known yet.
    pub(crate) fn adopt(&mut self, fh: &Fh, kind: FileType, fileid: u64) -> NodeId {
        if let Some(id) = self.by_fh.get(fh)
            && self.nodes.get(id).is_some_and(|node| node.kind == kind && node.fileid == fileid && !node.is_stale)
        {
            return *id;
        }
        self.insert(Node::new(fh.clone(), kind, fileid))
    }

    /// The object has lost the name `at`.
    pub(crate) fn forget_place(&mut self, id: NodeId, at: &Location) {
        if let Some(node) = self.nodes.get_mut(&id).filter(|node| node.location.as_ref() == Some(at)) {
            node.location = None;
        }
    }

    /// The object has another handle now.
    pub(crate) fn rebind(&mut self, now: Time, id: NodeId, fh: &Fh) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let fh = Fh(Bytes::copy_from_slice(&fh.0));
        let former = std::mem::replace(&mut node.fh, fh.clone());
        node.fh_since = now;
        if self.by_fh.get(&former) == Some(&id) {
            self.by_fh.remove(&former);
        }
        self.by_fh.insert(fh, id);
    }

    /// The object with this handle, whatever is known of it.
    pub(crate) fn by_handle(&self, fh: &Fh) -> Option<NodeId> {
        self.by_fh.get(fh).copied()
    }

    pub(crate) fn insert(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        // A slice would keep the whole reply in memory.
        let fh = Fh(Bytes::copy_from_slice(&node.fh.0));
        self.by_fh.insert(fh.clone(), id);
        self.nodes.insert(id, Box::new(Node { fh, ..node }));
        self.settle(id);
        id
    }

    /// Counts a reference of the kernel.
    pub(crate) fn add_lookup(&mut self, id: NodeId) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups += 1;
        }
        self.settle(id);
    }

    /// The kernel drops `lookups` references.
    pub(crate) fn forget(&mut self, id: NodeId, lookups: u64) {
        if let Some(node) = self.nodes.get_mut(&id) {
            node.lookups = node.lookups.saturating_sub(lookups);
        }
        self.settle(id);
    }

    /// Moves an object into or out of the order of eviction, after its references have changed.
    pub(crate) fn settle(&mut self, id: NodeId) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let is_used =
            node.lookups > 0 || node.opens > 0 || node.is_dirty() || node.log_references > 0 || id == NodeId::ROOT;
        match node.forgotten {
            Some(place) if is_used => {
                self.forgotten.remove(&place);
                node.forgotten = None;
            }
            None if !is_used => {
                node.forgotten = Some(self.next_forgotten);
                self.forgotten.insert(self.next_forgotten, id);
                self.next_forgotten += 1;
            }
            _ => {}
        }
        while self.forgotten.len() > self.forgotten_max {
            if let Some((_, oldest)) = self.forgotten.pop_first() {
                self.remove(oldest);
            }
        }
    }

    fn remove(&mut self, id: NodeId) {
        let Some(node) = self.nodes.remove(&id) else { return };
        if self.by_fh.get(&node.fh) == Some(&id) {
            self.by_fh.remove(&node.fh);
        }
        self.evicted.push(*node);
    }

    /// Objects that were evicted since the last call.
    pub(crate) fn take_evicted(&mut self) -> Vec<Node> {
        std::mem::take(&mut self.evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::example;

    #[test]
    fn known_object_does_not_keep_its_reply_in_memory() {
        let attr = example::file(example::TIME);
        let mut table = NodeTable::new(Fh(Bytes::new()), 10);
        let reply = Bytes::from(vec![1; 1000]);
        table.intern(&Fh(reply.slice(10..20)), &attr);
        assert!(table.len() == 2 && reply.is_unique());
    }
}
