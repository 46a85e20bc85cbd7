//! Steps as system calls, and what a mount or the server shows of a tree.

use std::collections::BTreeMap;
use std::rc::Rc;

use remora_vfs::MemFs;
use remora_wire::fuse::{Errno, FileKind};
use remora_wire::nfs3::FileType;

use super::model::{Content, Model, Part, Seen, Step, View, join, split, write_parts};
use crate::mount::system_calls::{self, O_RDONLY, ROOT};
use crate::mount::world::Shared;

/// Programs of one machine of the world.
pub(super) type Machine = system_calls::Machine<Shared>;

const PERMISSIONS: u32 = 0o7777;
/// Prefix of the names of removed files that are still open.
const HIDDEN: &str = ".nfs";

/// A result that the model does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The system call failed.
    Failed(Errno),
    /// The system call had another result.
    Other(String),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        Failure::Failed(errno)
    }
}

/// The object at a path below the directory `root` of the mount.
pub(super) async fn resolve(machine: &Machine, root: &str, path: &str) -> Result<u64, Errno> {
    let mut at = ROOT;
    for name in root.split('/').chain(path.split('/')).filter(|name| !name.is_empty()) {
        at = machine.lookup(at, name).await?;
    }
    Ok(at)
}

/// Does a step in the directory `root`, whose model is `model` before the step.
pub(super) async fn execute(machine: &Machine, root: &str, model: &Model, step: &Step) -> Result<(), Failure> {
    let parent = async |path: &str| resolve(machine, root, split(path).0).await;
    match step {
        Step::Write { path, is_new, parts, fsync } => {
            let before = if *is_new { None } else { model.data(path) };
            write(
                machine,
                parent(path).await?,
                Write { name: split(path).1, is_new: *is_new, parts, fsync: *fsync },
                before,
            )
            .await?;
        }
        Step::Truncate { path, size } => machine.truncate(parent(path).await?, split(path).1, *size).await?,
        Step::Rename { from, to } => {
            let (old, new) = (parent(from).await?, parent(to).await?);
            machine.lookup(old, split(from).1).await?;
            is_there(machine, new, split(to).1).await?;
            machine.rename_to(old, split(from).1, new, split(to).1).await?;
        }
        Step::Unlink { path, is_open } => {
            unlink(machine, parent(path).await?, split(path).1, *is_open, model.data(path)).await?
        }
        Step::MkDir { path } => {
            let dir = parent(path).await?;
            absent(machine, dir, split(path).1).await?;
            machine.mkdir(dir, split(path).1).await?;
        }
        Step::RmDir { path } => {
            let dir = parent(path).await?;
            machine.lookup(dir, split(path).1).await?;
            machine.rmdir(dir, split(path).1).await?;
        }
        Step::Link { from, to } => {
            let node = resolve(machine, root, from).await?;
            let dir = parent(to).await?;
            absent(machine, dir, split(to).1).await?;
            machine.link_node(node, dir, split(to).1).await?;
        }
        Step::SymLink { path, target } => {
            let dir = parent(path).await?;
            absent(machine, dir, split(path).1).await?;
            machine.symlink(dir, split(path).1, target).await?;
        }
        Step::Chmod { path, mode } => machine.chmod(resolve(machine, root, path).await?, *mode).await?,
        Step::Utimes { path, secs } => machine.utimes(resolve(machine, root, path).await?, *secs).await?,
        Step::List { path } => {
            let found = machine.list(resolve(machine, root, path).await?).await?;
            let expected: Vec<String> = model.names(path).into_iter().flat_map(|names| names.keys().cloned()).collect();
            if found != expected {
                return Err(Failure::Other(format!("expected {expected:?}, found {found:?}")));
            }
        }
        Step::Read { path } => {
            let found = machine.read(parent(path).await?, split(path).1).await?;
            let expected = model.data(path).unwrap_or_default();
            compare(&expected, &found)?;
        }
    }
    Ok(())
}

/// Whether a name is there. The kernel looks each name up before it changes it.
async fn is_there(machine: &Machine, dir: u64, name: &str) -> Result<bool, Errno> {
    match machine.lookup(dir, name).await {
        Ok(_) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(errno) => Err(errno),
    }
}

async fn absent(machine: &Machine, dir: u64, name: &str) -> Result<(), Errno> {
    if is_there(machine, dir, name).await? { Err(Errno::EEXIST) } else { Ok(()) }
}

fn compare(expected: &[u8], found: &[u8]) -> Result<(), Failure> {
    if expected == found {
        return Ok(());
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let (expected, found) = (expected.len(), found.len());
    Err(Failure::Other(format!("differs at byte {at}: expected {expected} bytes, found {found}")))
}

struct Write<'a> {
    name: &'a str,
    is_new: bool,
    parts: &'a [Part],
    fsync: bool,
}

/// Writes a file, reads it back and closes it.
async fn write(machine: &Machine, dir: u64, write: Write<'_>, before: Option<Rc<Vec<u8>>>) -> Result<(), Failure> {
    let Write { name, is_new, parts, fsync } = write;
    let file = if is_new { machine.create(dir, name, false).await? } else { machine.open(dir, name).await? };
    let mut data = before.unwrap_or_default().to_vec();
    write_parts(&mut data, parts);
    for part in parts {
        machine.write(file, part.offset as u64, part.data.clone()).await?;
    }
    if fsync {
        machine.fsync(file).await?;
    }
    let found = machine.read_open(file).await;
    machine.close(file).await?;
    compare(&data, &found?)
}

async fn unlink(
    machine: &Machine,
    dir: u64,
    name: &str,
    is_open: bool,
    data: Option<Rc<Vec<u8>>>,
) -> Result<(), Failure> {
    machine.lookup(dir, name).await?;
    let open = if is_open { Some(machine.open_flags(dir, name, O_RDONLY).await?) } else { None };
    let removed = machine.unlink(dir, name).await;
    let Some(file) = open else { return Ok(removed?) };
    let found = machine.read_open(file).await;
    machine.close(file).await?;
    removed?;
    compare(&data.unwrap_or_default(), &found?)
}

/// All that a mount shows below the directory `root`.
pub(super) async fn walk(machine: &Machine, root: &str) -> Result<View, Errno> {
    let mut view = View::new();
    let mut todo = vec![(String::new(), resolve(machine, root, "").await?)];
    while let Some((dir, node)) = todo.pop() {
        for name in machine.list(node).await? {
            let path = join(&dir, &name);
            let child = machine.lookup(node, &name).await?;
            let attr = machine.attr(child).await?;
            let content = match FileKind::of_mode(attr.mode) {
                FileKind::Directory => {
                    todo.push((path.clone(), child));
                    Content::Directory(BTreeMap::new())
                }
                FileKind::SymLink => {
                    Content::SymLink(String::from_utf8_lossy(&machine.readlink(child).await?).into_owned())
                }
                _ => Content::File(Rc::new(machine.read(node, &name).await?)),
            };
            let (mode, mtime) = (attr.mode & PERMISSIONS, Some(attr.mtime.secs));
            view.insert(path, Seen { content, mode, mtime, number: attr.ino });
        }
    }
    Ok(view)
}

/// What the server has below the directory `root`, and the hidden names there.
pub(super) struct OnServer {
    pub(super) view: View,
    pub(super) hidden: Vec<String>,
}

pub(super) fn on_server(fs: &MemFs, root: &str) -> OnServer {
    let mut found = OnServer { view: View::new(), hidden: Vec::new() };
    let prefix = if root.is_empty() { String::new() } else { format!("{root}/") };
    for (path, node) in fs.tree() {
        let path = String::from_utf8_lossy(&path).into_owned();
        let Some(path) = path.strip_prefix(&prefix).filter(|path| !path.is_empty()) else { continue };
        if split(path).1.starts_with(HIDDEN) {
            found.hidden.push(path.into());
            continue;
        }
        let content = match node.attr.kind {
            FileType::Directory => Content::Directory(BTreeMap::new()),
            FileType::SymLink => Content::SymLink(String::from_utf8_lossy(&node.content).into_owned()),
            _ => Content::File(Rc::new(node.content.to_vec())),
        };
        let mtime = Some(node.attr.mtime.secs as i64);
        let (mode, number) = (node.attr.mode & PERMISSIONS, node.attr.fileid);
        found.view.insert(path.into(), Seen { content, mode, mtime, number });
    }
    found
}
