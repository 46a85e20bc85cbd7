//! A look at the memory file system from outside, for checkers. It sees everything, asks no
//! permission and meets no fault.

use std::collections::BTreeMap;

use bytes::Bytes;
use remora_wire::nfs3::{Attr, FsStatOk};

use super::content::BLOCK;
use super::node::{Body, Node};
use super::state::{ROOT, State};
use super::{MemFs, names};
use crate::{FileId, Result};

/// An object in a snapshot of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TreeNode {
    /// Which it is.
    pub id: FileId,
    /// Its attributes.
    pub attr: Attr,
    /// A file's bytes or a link's target; empty for everything else.
    pub content: Bytes,
}

impl MemFs {
    /// All bytes of a file (or a link's target), volatile ones included.
    pub fn read_all(&self, id: &FileId) -> Result<Bytes> {
        let state = self.lock();
        Ok(visible(state.node(state.number(id)?)?))
    }

    /// The bytes of a file that a crash would leave.
    pub fn read_durable(&self, id: &FileId) -> Result<Bytes> {
        let state = self.lock();
        let node = state.node(state.number(id)?)?;
        Ok(match &node.body {
            Body::File(content) => content.read_durable().into(),
            _ => visible(node),
        })
    }

    /// How many files a crash would change.
    pub fn volatile_files(&self) -> usize {
        let is_volatile = |node: &Node| matches!(&node.body, Body::File(content) if content.is_volatile());
        self.lock().nodes().filter(|(_, node)| is_volatile(node)).count()
    }

    /// Every object by its path from the root (`a/b/c`; the root's is empty). Files with
    /// several names appear under each.
    pub fn tree(&self) -> BTreeMap<Vec<u8>, TreeNode> {
        let state = self.lock();
        let mut tree = BTreeMap::new();
        let mut todo = vec![(Vec::new(), ROOT)];
        while let Some((path, number)) = todo.pop() {
            let (Ok(id), Ok(attr), Ok(node)) = (state.id(number), state.attr(number), state.node(number)) else {
                continue;
            };
            if let Ok(dir) = node.dir() {
                todo.extend(dir.names().map(|(name, child)| (join(&path, name), child)));
            }
            tree.insert(path, TreeNode { id, attr, content: visible(node) });
        }
        tree
    }
}

impl State {
    pub(super) fn fsstat(&self) -> FsStatOk {
        let files = self.nodes().count() as u64;
        let free = self.free_blocks().saturating_mul(BLOCK);
        // There is no limit on the number of files; clients like to see one.
        let files_free = u64::from(u32::MAX);
        FsStatOk {
            attr: None,
            total: self.capacity,
            free,
            avail: free,
            files: files + files_free,
            files_free,
            files_avail: files_free,
            invar_secs: 0,
        }
    }
}

fn visible(node: &Node) -> Bytes {
    match &node.body {
        Body::File(content) => content.read(0, u64::MAX).into(),
        Body::Link(target) => target.clone(),
        _ => Bytes::new(),
    }
}

fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    debug_assert!(name.len() <= names::NAME_MAX);
    if path.is_empty() { name.to_vec() } else { [path, name].join(&b'/') }
}
