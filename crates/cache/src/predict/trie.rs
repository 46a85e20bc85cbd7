//! Counts of file sequences: a trie whose edges are files.

use std::collections::{BTreeMap, VecDeque};

/// Identifies a file for the predictor; the same after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FileKey(pub u64);

/// A count that reaches it is halved with those of its siblings, so that the trie follows changes of habit.
pub(super) const COUNT_MAX: u32 = 64;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NodeId(u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Edge {
    parent: NodeId,
    file: FileKey,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    id: NodeId,
    /// Times that the edge was taken, at least 1.
    count: u32,
}

/// A node with its parent, as in a list in which parents come first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ListedNode {
    /// Index of the parent: of the roots first, then of the list.
    pub(super) parent: u32,
    pub(super) file: FileKey,
    pub(super) count: u32,
}

/// What [`Trie::count`] did.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) node: NodeId,
    pub(super) is_new: bool,
}

/// The most probable edge out of a node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Likeliest {
    pub(super) file: FileKey,
    pub(super) count: u32,
    /// Sum of the counts of all edges out of the node.
    pub(super) total: u32,
}

/// A trie with several roots. Its memory is that of its edges; the caller bounds their number by [`Trie::halve`].
#[derive(Clone, Debug, Default)]
pub(super) struct Trie {
    edges: BTreeMap<Edge, Node>,
    next: u32,
}

impl Trie {
    /// A new root.
    pub(super) fn root(&mut self) -> NodeId {
        let id = NodeId(self.next);
        self.next += 1;
        id
    }

    /// Number of nodes, without roots.
    pub(super) fn len(&self) -> usize {
        self.edges.len()
    }

    pub(super) fn child(&self, parent: NodeId, file: FileKey) -> Option<NodeId> {
        self.edges.get(&Edge { parent, file }).map(|node| node.id)
    }

    /// Counts the edge, and makes it if it is new.
    pub(super) fn count(&mut self, parent: NodeId, file: FileKey) -> Counted {
        let edge = Edge { parent, file };
        if let Some(node) = self.edges.get_mut(&edge) {
            node.count += 1;
            let (node, is_full) = (node.id, node.count >= COUNT_MAX);
            if is_full {
                self.children_mut(parent).for_each(|sibling| sibling.count = sibling.count.div_ceil(2));
            }
            return Counted { node, is_new: false };
        }
        Counted { node: self.insert(edge, 1), is_new: true }
    }

    fn insert(&mut self, edge: Edge, count: u32) -> NodeId {
        let id = self.root();
        self.edges.insert(edge, Node { id, count });
        id
    }

    fn children_mut(&mut self, parent: NodeId) -> impl Iterator<Item = &mut Node> {
        self.edges.range_mut(edges_of(parent)).map(|(_, node)| node)
    }

    /// The edge with the highest count; of equals that of the least key.
    pub(super) fn likeliest(&self, parent: NodeId) -> Option<Likeliest> {
        let mut best: Option<Likeliest> = None;
        let mut total = 0;
        for (edge, node) in self.edges.range(edges_of(parent)) {
            total += node.count;
            if best.is_none_or(|best| node.count > best.count) {
                best = Some(Likeliest { file: edge.file, count: node.count, total: 0 });
            }
        }
        best.map(|best| Likeliest { total, ..best })
    }

    /// Halves all counts. Drops nodes with a count of one and unreachable nodes; the roots get new identifiers.
    pub(super) fn halve(&mut self, roots: &mut [NodeId]) {
        self.rebuild(roots, |count| count / 2);
    }

    /// Drops what no root leads to. The roots get new identifiers.
    pub(super) fn prune(&mut self, roots: &mut [NodeId]) {
        self.rebuild(roots, |count| count);
    }

    fn rebuild(&mut self, roots: &mut [NodeId], count: impl Fn(u32) -> u32) {
        let mut rebuilt = Trie::default();
        let mut queue = VecDeque::new();
        for root in roots {
            let old = *root;
            *root = rebuilt.root();
            queue.push_back((old, *root));
        }
        while let Some((old, new)) = queue.pop_front() {
            for (edge, node) in self.edges.range(edges_of(old)) {
                let count = count(node.count);
                if count > 0 {
                    queue.push_back((node.id, rebuilt.insert(Edge { parent: new, file: edge.file }, count)));
                }
            }
        }
        *self = rebuilt;
    }

    /// All nodes that the roots lead to, parents first.
    pub(super) fn list(&self, roots: &[NodeId]) -> Vec<ListedNode> {
        let mut listed = Vec::with_capacity(self.len());
        let mut queue: VecDeque<NodeId> = roots.iter().copied().collect();
        let mut parent = 0;
        while let Some(id) = queue.pop_front() {
            for (edge, node) in self.edges.range(edges_of(id)) {
                listed.push(ListedNode { parent, file: edge.file, count: node.count });
                queue.push_back(node.id);
            }
            parent += 1;
        }
        listed
    }

    /// A trie from what [`Trie::list`] gave, with so many roots. `None` if that is no such list, or nodes are deeper than
    /// `depth_max`.
    pub(super) fn from_list(roots: u32, nodes: &[ListedNode], depth_max: u32) -> Option<(Trie, Vec<NodeId>)> {
        let mut trie = Trie::default();
        let roots: Vec<NodeId> = (0..roots).map(|_| trie.root()).collect();
        let mut depths = vec![0; roots.len()];
        for node in nodes {
            // Identifiers are indexes here.
            let depth = depths.get(node.parent as usize)? + 1;
            let edge = Edge { parent: NodeId(node.parent), file: node.file };
            if depth > depth_max || !(1..COUNT_MAX).contains(&node.count) || trie.edges.contains_key(&edge) {
                return None;
            }
            trie.insert(edge, node.count);
            depths.push(depth);
        }
        Some((trie, roots))
    }
}

fn edges_of(parent: NodeId) -> std::ops::RangeInclusive<Edge> {
    Edge { parent, file: FileKey(u64::MIN) }..=Edge { parent, file: FileKey(u64::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn likeliest_edge_has_the_highest_count() {
        let mut trie = Trie::default();
        let root = trie.root();
        assert_eq!(trie.likeliest(root), None);
        for file in [3, 1, 3, 2, 3] {
            trie.count(root, FileKey(file));
        }
        assert_eq!(trie.likeliest(root), Some(Likeliest { file: FileKey(3), count: 3, total: 5 }));
    }

    #[test]
    fn counts_stay_below_their_limit() {
        let mut trie = Trie::default();
        let root = trie.root();
        trie.count(root, FileKey(1));
        for _ in 0..1000 {
            trie.count(root, FileKey(2));
            assert!(trie.list(&[root]).iter().all(|node| (1..COUNT_MAX).contains(&node.count)));
        }
    }

    #[test]
    fn halving_drops_single_nodes_and_their_subtrees() {
        let mut trie = Trie::default();
        let mut roots = [trie.root()];
        let once = trie.count(roots[0], FileKey(1)).node;
        for _ in 0..4 {
            trie.count(once, FileKey(2));
            trie.count(roots[0], FileKey(3));
        }
        trie.halve(&mut roots);
        assert_eq!(trie.list(&roots), [ListedNode { parent: 0, file: FileKey(3), count: 2 }]);
    }

    #[test]
    fn pruning_drops_what_no_root_leads_to() {
        let mut trie = Trie::default();
        let [kept, lost] = [trie.root(), trie.root()];
        trie.count(lost, FileKey(1));
        let child = trie.count(kept, FileKey(2)).node;
        trie.count(child, FileKey(3));
        let mut roots = [kept];
        trie.prune(&mut roots);
        let files: Vec<u64> = trie.list(&roots).iter().map(|node| node.file.0).collect();
        assert_eq!((files, trie.len()), (vec![2, 3], 2));
    }
}
