//! Listings: OPENDIR, READDIR, READDIRPLUS.

use std::sync::Arc;

use remora_wire::fuse::{DirectoryPage, Entry, Errno, FileKind, Opened, Reply};
use remora_wire::nfs3::{ACCESS_READ, FileType};

use crate::ahead;
use crate::needs;
use crate::node::{Node, NodeId, Target};
use crate::stat;
use crate::state::{ListEntry, Op, State, Stop};

/// Entries before those of the server: `.` and `..`.
const DOTS: usize = 2;
/// Longest name in bytes.
const NAME_MAX: usize = 255;

/// Opens a directory. Its entries are those of this moment, or of the last rewinddir(3).
pub(crate) fn opendir(state: &mut State, op: &Op) -> Result<Reply, Stop> {
    let window = state.config.policy.open;
    if state.node(op.node)?.kind != FileType::Directory {
        return Err(Errno::ENOTDIR.into());
    }
    // Both calls leave together.
    let permitted = needs::access(state, op, op.node, ACCESS_READ, window);
    let listed = needs::listing(state, op, op.node, window);
    if op.is_first {
        ahead::opened_directory(state, op);
    }
    let entries = match permitted.and(listed) {
        Ok(()) => Some(snapshot(state, op.node)?),
        // df(1) and file managers open the mount point; READDIR waits for the names.
        Err(Stop::Wait) if op.node == NodeId::ROOT => None,
        Err(stop) => return Err(stop),
    };
    let fh = state.open(op.node, &op.caller);
    if let Some(handle) = state.handles.get_mut(&fh) {
        handle.entries = entries;
    }
    Ok(Reply::Opened(Opened { fh, ..Opened::default() }))
}

/// The entries of a directory, without the hidden names of files that were removed here while open.
fn snapshot(state: &mut State, dir: NodeId) -> Result<Arc<Vec<ListEntry>>, Errno> {
    let hidden = state.hidden_prefix();
    let names = state.node(dir)?.dir().current();
    let shown = names.into_iter().filter(|(name, _)| is_valid(name) && !name.starts_with(hidden.as_bytes()));
    let known: Vec<_> = shown.collect();
    let mut entries = Vec::with_capacity(known.len());
    for (name, target) in known {
        match target {
            Target::Absent => {}
            Target::Unknown { fileid } => entries.push(ListEntry { name, fileid, node: None }),
            Target::Node(id) => {
                let fileid = state.nodes.get(id).map_or(0, Node::shown_fileid);
                entries.push(ListEntry { name, fileid, node: Some(id) });
            }
        }
    }
    Ok(Arc::new(entries))
}

/// Whether the kernel takes the name: a listing with another one would fail as a whole.
fn is_valid(name: &[u8]) -> bool {
    !name.is_empty() && name.len() <= NAME_MAX && !name.contains(&b'/') && !name.contains(&0)
}

/// Where a page of a listing starts, its maximum size in bytes, and whether it carries attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) handle: u64,
    pub(crate) offset: u64,
    pub(crate) size: u32,
    pub(crate) has_attributes: bool,
}

pub(crate) fn readdir(state: &mut State, op: &Op, page: Page) -> Result<Reply, Stop> {
    let handle = state.handle(page.handle)?;
    let known = handle.entries.clone().filter(|_| page.offset > 0 || !handle.has_been_read);
    let entries = match known {
        Some(entries) => entries,
        None => {
            let window = state.config.policy.open;
            let permitted = needs::access(state, op, op.node, ACCESS_READ, window);
            needs::listing(state, op, op.node, window)?;
            permitted?;
            snapshot(state, op.node)?
        }
    };
    if let Some(handle) = state.handles.get_mut(&page.handle) {
        handle.entries = Some(entries.clone());
        handle.has_been_read = true;
    }
    let mut out = DirectoryPage::new(page.size);
    let parent = state.node(op.node)?.location.as_ref().map_or(op.node, |location| location.dir);
    let mut at = usize::try_from(page.offset).unwrap_or(usize::MAX);
    while at < DOTS + entries.len() {
        let cookie = at as u64 + 1;
        let fits = match at {
            0 => push_plain(state, &mut out, page, Item { node: op.node, cookie, name: b"." }),
            1 => push_plain(state, &mut out, page, Item { node: parent, cookie, name: b".." }),
            _ => push_entry(state, &mut out, page, &entries[at - DOTS], cookie),
        };
        if !fits {
            break;
        }
        at += 1;
    }
    Ok(Reply::Directory(out.into_bytes()))
}

/// An entry of a listing.
struct Item<'n> {
    node: NodeId,
    cookie: u64,
    name: &'n [u8],
}

/// Adds `.` or `..`, for which the kernel takes no reference.
fn push_plain(state: &State, out: &mut DirectoryPage, page: Page, item: Item) -> bool {
    let fileid = state.nodes.get(item.node).map_or(0, Node::shown_fileid);
    push_unreferenced(out, page, fileid, FileKind::Directory, &item)
}

fn push_unreferenced(out: &mut DirectoryPage, page: Page, fileid: u64, kind: FileKind, item: &Item) -> bool {
    // The kernel leaves out an entry without a number.
    let ino = fileid.max(1);
    if !page.has_attributes {
        return out.push(ino, item.cookie, kind, item.name);
    }
    let mut entry = Entry { nodeid: 0, ..Entry::default() };
    entry.attr.ino = ino;
    entry.attr.mode = kind.mode_bits();
    out.push_plus(&entry, item.cookie, item.name)
}

fn push_entry(state: &mut State, out: &mut DirectoryPage, page: Page, entry: &ListEntry, cookie: u64) -> bool {
    let now = state.now;
    let known = entry.node.and_then(|id| Some((id, state.nodes.get(id)?)));
    let kind = known.as_ref().map_or(FileKind::Unknown, |(_, node)| stat::kind(node.kind));
    let window = state.config.policy.stat;
    let is_current = known.as_ref().is_some_and(|(_, node)| {
        let attr = node.attr.as_ref().filter(|cached| !cached.is_outdated() && now.since(cached.asked) < window);
        attr.is_some() && !node.is_stale
    });
    match known {
        Some((id, _)) if page.has_attributes && is_current => {
            let fits = out.push_plus(&stat::entry(state, id), cookie, &entry.name);
            if fits {
                state.nodes.add_lookup(id);
            }
            fits
        }
        _ => {
            let item = Item { node: entry.node.unwrap_or(NodeId::ROOT), cookie, name: &entry.name };
            push_unreferenced(out, page, entry.fileid, kind, &item)
        }
    }
}
