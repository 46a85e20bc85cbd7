//! `cp -r`: whole directories, several files at a time.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, Fh, FileType, SetAttr, Status};
use tokio::task::{block_in_place, spawn_blocking};

use super::begun::Begun;
use super::download;
use super::job::{Job, count};
use super::named::{By, Dest};
use super::names::{is_part, is_plain, part_name};
use super::part::{above, sync_dir, sync_opened};
use super::preserve::{Looks, dress};
use super::remote_part::CREATE_TRIES;
use super::upload::{self, Destination};
use crate::ahead::Ahead;
use crate::exit::{self, Error, Result};
use crate::listing::DEPTH_MAX;
use crate::object::type_name;
use crate::out;
use crate::pool::{NEAR_MAX, Pool, jobs_max};
use crate::remote::{Entry, Listing, Node, Remote};

/// Why hidden names are left out: copied, they would meet those of the copies themselves.
const UNFINISHED: &str = "copy that was not finished";

/// A remote directory on its way here.
struct Down {
    node: Node,
    url: String,
    dest: PathBuf,
    /// Whether it may be reached through a link: further ones than the user's own lead who knows where.
    through_link: bool,
    depth: usize,
}

/// What came of listing a directory before its turn.
type Early = Result<Option<Listing>, ClientError>;

/// Copies a remote directory and all that is in it to `dest`.
pub(crate) async fn down(job: &Arc<Job>, remote: &Remote, node: Node, url: &str, dest: &Dest, begun: &Begun) -> Result {
    let (url, through_link) = (url.to_owned(), dest.by == By::User);
    let top = Down { node, url, dest: dest.path.clone(), through_link, depth: 0 };
    let mut pool = Pool::new(remote.session());
    let filled = fill_here(job, remote, top, begun, &mut pool).await;
    end(job, filled, begun, pool).await
}

/// Ends a copy of a tree of which came what `filled` says. Once all is there nothing need be known of its beginning.
async fn end(job: &Job, filled: Result, begun: &Begun, mut pool: Pool) -> Result {
    if filled.is_err() {
        pool.tidy().await;
    }
    filled?;
    if !job.has_failed() {
        begun.forget();
    }
    Ok(())
}

/// Makes the directory here and all that is in it.
async fn fill_here(job: &Arc<Job>, remote: &Remote, top: Down, begun: &Begun, pool: &mut Pool) -> Result {
    // Modes and times come last: filling a directory needs the one and changes the other.
    let mut finished: Vec<Filled> = Vec::new();
    let (mut walk, root) = (Some(job.progress.walk()), top.dest.clone());
    // Few at a time, for a listing is long, and where one datagram is lost, all are that make a page.
    let mut dirs = Ahead::new(NEAR_MAX, |dir| list(remote.clone(), dir));
    dirs.push(top);
    while let Some((dir, early)) = dirs.next().await? {
        let entries = match open_down(job, remote, &dir, early, begun).await {
            Ok((is_copy, Listing { entries, unknown })) => {
                count(&job.counts.directories);
                let attr = is_copy.then(|| dir.node.attr.clone());
                finished.push(Filled { path: dir.dest.clone(), attr, depth: dir.depth });
                for (name, e) in unknown {
                    job.settle(Err(Error::remote(out::below(&dir.url, &name))(e)))?;
                }
                entries
            }
            Err(e) => {
                job.settle(Err(e))?;
                continue;
            }
        };
        let below = dir.dest.strip_prefix(&root).unwrap_or(Path::new("")).to_owned();
        let entries = filtered(job, &below, entries);
        expect_files(job, &entries);
        let is_last = dirs.is_empty() && !entries.iter().any(|entry| entry.node.is_dir());
        walk = walk.filter(|_| !is_last);
        for entry in entries {
            if !is_plain(&entry.name) {
                let name = out::shown(&entry.name);
                job.settle(Err(Error::refused(&dir.url, format!("the server lists the impossible name '{name}'"))))?;
                continue;
            }
            let url = out::below(&dir.url, &entry.name);
            let dest = dir.dest.join(OsStr::from_bytes(&entry.name));
            if is_part(&entry.name) {
                skip(job, &url, UNFINISHED);
            } else if entry.node.is_dir() {
                dirs.push(Down { node: entry.node, url, dest, through_link: false, depth: dir.depth + 1 });
            } else {
                let (job, remote, bytes) = (job.clone(), remote.clone(), entry.node.attr.size);
                pool.spawn(bytes, async move { down_entry(&job, &remote, entry, &url, &dest).await }).await?;
            }
        }
    }
    drop(walk);
    pool.finish().await?;
    finish_here(job, finished, pool).await
}

async fn list(remote: Remote, dir: Down) -> (Down, Early) {
    let early = remote.list_early(&dir.node.fh, dir.depth).await;
    (dir, early)
}

/// Makes the directory here, and lists the one there, if that was not done yet. Says whether it is to look like that.
async fn open_down(job: &Job, remote: &Remote, dir: &Down, early: Early, begun: &Begun) -> Result<(bool, Listing)> {
    if dir.depth > DEPTH_MAX {
        return Err(Error::refused(&dir.url, "directories lie too deep in one another"));
    }
    // What is in it may be private: it opens up when all is there.
    let is_copy = match fs::DirBuilder::new().mode(0o700).create(&dir.dest) {
        Ok(()) => {
            if dir.depth == 0
                && let Ok(meta) = fs::metadata(&dir.dest)
            {
                begun.made((meta.dev(), meta.ino()));
            }
            true
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let meta = if dir.through_link { fs::metadata(&dir.dest) } else { fs::symlink_metadata(&dir.dest) };
            let Some(meta) = meta.ok().filter(fs::Metadata::is_dir) else {
                return Err(Error::refused(dir.dest.display(), "exists and is not a directory"));
            };
            // One that is the user's own stays as it is: also when resuming, if it was named itself.
            let may_be_ours = job.resume && !dir.through_link;
            let is_copy = may_be_ours || dir.depth > 0 || begun.is((meta.dev(), meta.ino()));
            if let Some(mode) = reopened(meta.mode()).filter(|_| job.resume && is_copy) {
                // Where it may not be opened up, what fails in it says so.
                let _ = fs::set_permissions(&dir.dest, fs::Permissions::from_mode(mode));
            }
            is_copy
        }
        Err(e) => return Err(Error::local(dir.dest.display())(e)),
    };
    Ok((is_copy, remote.list_now(&dir.node.fh, early).await.map_err(Error::remote(&dir.url))?))
}

/// The mode to fill a directory in that an earlier try has given its own, if that one forbids it.
fn reopened(mode: u32) -> Option<u32> {
    (mode & 0o700 != 0o700).then_some(mode & 0o777 | 0o700)
}

/// Those that no rule leaves out of what is in the directory that lies at `below` in the one that is copied.
fn filtered(job: &Job, below: &Path, mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| job.filter.takes_in(below, &entry.name, entry.node.is_dir()));
    entries
}

/// Counts the files among what a directory holds before any of them is copied.
fn expect_files(job: &Job, entries: &[Entry]) {
    for Entry { name, node } in entries {
        if node.attr.kind == FileType::Regular && is_plain(name) && !is_part(name) {
            job.progress.expect_file(node.attr.size);
        }
    }
}

async fn down_entry(job: &Job, remote: &Remote, entry: Entry, url: &str, dest: &Path) -> Result {
    let is_file = entry.node.attr.kind == FileType::Regular;
    let settled = job.settle(down_one(job, remote, entry, url, dest).await);
    if is_file {
        job.progress.file_done();
    }
    settled
}

async fn down_one(job: &Job, remote: &Remote, entry: Entry, url: &str, dest: &Path) -> Result {
    match entry.node.attr.kind {
        FileType::Regular => download::file(job, remote, &entry.node, url, dest).await,
        FileType::SymLink => link_down_in_tree(job, remote, &entry.node, url, dest).await,
        kind => {
            skip(job, url, type_name(kind));
            Ok(())
        }
    }
}

/// Downloads a symbolic link that was named, as a link.
pub(super) async fn link_down(job: &Job, remote: &Remote, link: &Node, url: &str, dest: &Path) -> Result {
    link_down_in_tree(job, remote, link, url, dest).await?;
    block_in_place(|| sync_dir(above(dest))).map_err(Error::local(dest.display()))
}

/// The same for one in a tree, which is made safe as a whole.
async fn link_down_in_tree(job: &Job, remote: &Remote, link: &Node, url: &str, dest: &Path) -> Result {
    download::check_replaceable(dest)?;
    if job.no_clobber && fs::symlink_metadata(dest).is_ok() {
        job.leave(dest.display());
        return Ok(());
    }
    let target = remote.readlink(&link.fh).await.map_err(Error::remote(url))?;
    link_here(&target, dest).map_err(Error::local(dest.display()))?;
    job.copied(&job.counts.symlinks, url, dest.display());
    Ok(())
}

fn skip(job: &Job, name: &str, kind: &str) {
    count(&job.counts.skipped);
    job.note(&format!("{name}: skipped, because it is a {kind}"));
}

/// Makes a link that points at `target`, and replaces what has its name.
fn link_here(target: &[u8], dest: &Path) -> io::Result<()> {
    let name = dest.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let part = dest.with_file_name(OsStr::from_bytes(&part_name(name.as_bytes(), "")));
    // What an earlier copy left.
    let _ = fs::remove_file(&part);
    std::os::unix::fs::symlink(OsStr::from_bytes(target), &part)?;
    fs::rename(&part, dest).inspect_err(|_| drop(fs::remove_file(&part)))
}

/// A directory here with all that is to be in it.
struct Filled {
    path: PathBuf,
    /// What it is to look like, if it is not the user's own.
    attr: Option<Attr>,
    depth: usize,
}

/// Gives directories their modes and times and makes them safe, the deepest first, for a mode may close the way; those
/// that lie equally deep side by side.
async fn finish_here(job: &Arc<Job>, mut dirs: Vec<Filled>, pool: &mut Pool) -> Result {
    while let Some(depth) = dirs.last().map(|dir| dir.depth) {
        while let Some(dir) = dirs.pop_if(|dir| dir.depth == depth) {
            let job = job.clone();
            let finished = async {
                let finished = spawn_blocking(move || dir.finish(&job)).await;
                finished.map_err(|e| Error::refused("remora", e.to_string()))?
            };
            pool.spawn(0, finished).await?;
        }
        pool.finish().await?;
    }
    Ok(())
}

impl Filled {
    fn finish(&self, job: &Job) -> Result {
        // Before its mode closes it.
        let dir = fs::File::open(&self.path);
        if let Some(attr) = &self.attr {
            let dressed = match &dir {
                Ok(dir) => dress(dir, attr, job.preserve),
                Err(e) => Err(e.kind().into()),
            };
            job.settle(dressed.map_err(|e| Error::bare(self.path.display(), exit::io_text(&e))))?;
        }
        let is_top = self.depth == 0;
        let safe = sync_opened(dir).and_then(|()| if is_top { sync_dir(above(&self.path)) } else { Ok(()) });
        job.settle(safe.map_err(Error::local(self.path.display())))
    }
}

/// A directory on its way to a server.
struct Up {
    source: PathBuf,
    dest: Destination,
    depth: usize,
    /// What an earlier try made is to be completed.
    resumes: bool,
}

/// A directory there, and what it is to look like in the end.
struct Made {
    node: Node,
    looks: Looks,
    /// It was not there before, and nothing was in it.
    is_new: bool,
}

/// One with all that is to be in it.
struct Sent {
    node: Node,
    looks: Looks,
    url: String,
    depth: usize,
}

/// Copies a directory and all that is in it to `dest`.
pub(crate) async fn up(job: &Arc<Job>, source: &Path, dest: Destination, begun: &Begun) -> Result {
    let remote = dest.remote.clone();
    let top = Up { source: source.to_owned(), dest, depth: 0, resumes: job.resume };
    let mut pool = Pool::new(remote.session());
    let filled = fill_there(job, &remote, top, begun, &mut pool).await;
    end(job, filled, begun, pool).await
}

/// Makes the directory there and all that is in it.
async fn fill_there(job: &Arc<Job>, remote: &Remote, top: Up, begun: &Begun, pool: &mut Pool) -> Result {
    let mut finished: Vec<Sent> = Vec::new();
    let (mut walk, root) = (Some(job.progress.walk()), top.source.clone());
    let mut dirs = Ahead::new(jobs_max(remote.session()), |dir| open_up(job.clone(), dir));
    let mut opened = Some(open_top(job, top, begun).await);
    while let Some((dir, made)) = opened {
        let found = made.and_then(|Made { node, looks, is_new }| {
            count(&job.counts.directories);
            finished.push(Sent { node: node.clone(), looks, url: dir.dest.url.clone(), depth: dir.depth });
            let entries = fs::read_dir(&dir.source).and_then(|list| list.collect::<io::Result<Vec<_>>>());
            Ok((node, is_new, entries.map_err(Error::local(dir.source.display()))?))
        });
        let (node, is_new, entries) = match found {
            Ok(found) => found,
            Err(e) => {
                job.settle(Err(e))?;
                opened = dirs.next().await?;
                continue;
            }
        };
        let mut entries: Vec<_> = entries.into_iter().map(Local::new).collect();
        let below = dir.source.strip_prefix(&root).unwrap_or(Path::new(""));
        entries.retain(|local| job.filter.takes_in(below, local.entry.file_name().as_bytes(), local.is_dir));
        // Directories are made while files wait for their turn.
        entries.sort_by_key(|local| !local.is_dir);
        entries.iter().filter_map(Local::file_bytes).for_each(|bytes| job.progress.expect_file(bytes));
        let is_last = dirs.is_empty() && !entries.iter().any(|local| local.is_dir);
        walk = walk.filter(|_| !is_last);
        for Local { entry, is_dir, bytes } in entries {
            let name = entry.file_name().as_bytes().to_vec();
            let url = out::below(&dir.dest.url, &name);
            if is_part(&name) {
                skip(job, &entry.path().display().to_string(), UNFINISHED);
                continue;
            }
            let dest = Destination { old: is_new.then_some(None), ..Destination::new(remote, &node, name, url) };
            if is_dir {
                dirs.push(Up { source: entry.path(), dest, depth: dir.depth + 1, resumes: dir.resumes });
            } else {
                let job = job.clone();
                let send = async move {
                    let settled = job.settle(up_one(&job, &entry.path(), &dest).await);
                    bytes.iter().for_each(|_| job.progress.file_done());
                    settled
                };
                pool.spawn(bytes.unwrap_or_default(), send).await?;
            }
        }
        opened = dirs.next().await?;
    }
    drop(walk);
    pool.finish().await?;
    finish_there(job, remote, finished, pool).await
}

/// What lies in a directory here.
struct Local {
    entry: fs::DirEntry,
    is_dir: bool,
    /// Of a regular file.
    bytes: Option<u64>,
}

impl Local {
    fn new(entry: fs::DirEntry) -> Local {
        let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
        let meta = if is_dir { None } else { entry.metadata().ok() };
        let bytes = meta.filter(fs::Metadata::is_file).map(|meta| meta.len());
        Local { entry, is_dir, bytes }
    }

    /// Of a file that is to be copied.
    fn file_bytes(&self) -> Option<u64> {
        self.bytes.filter(|_| !is_part(self.entry.file_name().as_bytes()))
    }
}

/// Gives directories their modes and times, the deepest first, for a mode may close the way; those that lie equally
/// deep side by side.
async fn finish_there(job: &Arc<Job>, remote: &Remote, mut dirs: Vec<Sent>, pool: &mut Pool) -> Result {
    while let Some(depth) = dirs.last().map(|dir| dir.depth) {
        while let Some(Sent { node, looks, url, .. }) = dirs.pop_if(|dir| dir.depth == depth) {
            let (job, remote) = (job.clone(), remote.clone());
            let dress = async move {
                let dressed = looks.set(&remote, &node.fh).await.map_err(|e| match e {
                    e if exit::is_lost(&e) => Error::remote(url)(e),
                    e => Error::bare(url, exit::remote_text(&e)),
                });
                job.settle(dressed.map(|_| ()))
            };
            pool.spawn(0, dress).await?;
        }
        pool.finish().await?;
    }
    Ok(())
}

async fn open_up(job: Arc<Job>, dir: Up) -> (Up, Result<Made>) {
    let made = make_there(&job, &dir).await;
    (dir, made)
}

/// The same for the first one.
async fn open_top(job: &Arc<Job>, dir: Up, begun: &Begun) -> (Up, Result<Made>) {
    begun.begin();
    let (dir, made) = open_up(job.clone(), dir).await;
    match &made {
        Ok(made) => begun.made_there(&made.node),
        // It may have been made all the same.
        Err(e) if e.is_lost() => {}
        Err(_) => begun.forget(),
    }
    (dir, made)
}

/// The directory there, made if need be.
async fn make_there(job: &Job, dir: &Up) -> Result<Made> {
    let failed = |e| Error::remote(&dir.dest.url)(e);
    if dir.depth > DEPTH_MAX {
        return Err(Error::refused(dir.source.display(), "directories lie too deep in one another"));
    }
    let meta = fs::metadata(&dir.source).map_err(Error::local(dir.source.display()))?;
    let remote = &dir.dest.remote;
    let (node, is_new) = match remote.mkdir(&dir.dest.dir.fh, &dir.dest.name, meta.mode() & 0o777 | 0o700).await {
        Err(e) if e.status() == Some(Status::Exist) => {
            let there = remote.lookup(&dir.dest.dir.fh, &dir.dest.name).await.map_err(failed)?;
            if !there.is_dir() {
                return Err(Error::refused(&dir.dest.url, "exists and is not a directory"));
            }
            if let Some(mode) = reopened(there.attr.mode).filter(|_| dir.resumes) {
                // Where it may not be opened up, what fails in it says so.
                let _ = remote.setattr(&there.fh, SetAttr { mode: Some(mode), ..SetAttr::NONE }).await;
            }
            (there, false)
        }
        made => (made.map_err(failed)?, true),
    };
    Ok(Made { node, looks: Looks::of(&meta, job.preserve), is_new })
}

pub(super) async fn up_one(job: &Job, source: &Path, dest: &Destination) -> Result {
    let meta = fs::symlink_metadata(source).map_err(Error::local(source.display()))?;
    if meta.is_file() {
        return upload::file(job, source, dest).await;
    }
    if !meta.is_symlink() {
        skip(job, &source.display().to_string(), "special file");
        return Ok(());
    }
    let target = fs::read_link(source).map_err(Error::local(source.display()))?;
    let target = Bytes::copy_from_slice(target.as_os_str().as_bytes());
    if job.no_clobber && is_taken(dest).await? {
        job.leave(&dest.url);
        return Ok(());
    }
    link_there(target, dest).await?;
    job.copied(&job.counts.symlinks, source.display(), &dest.url);
    Ok(())
}

/// Whether something has the name.
async fn is_taken(dest: &Destination) -> Result<bool> {
    match &dest.old {
        Some(old) => Ok(old.is_some()),
        None => {
            let found = dest.remote.find(&dest.dir.fh, &dest.name).await.map_err(Error::remote(&dest.url))?;
            Ok(found.is_some())
        }
    }
}

/// Makes a link that points at `target`, and replaces what has its name.
async fn link_there(target: Bytes, dest: &Destination) -> Result {
    let failed = |e| Error::remote(&dest.url)(e);
    let (remote, dir) = (&dest.remote, &dest.dir.fh);
    let part = part_name(&dest.name, "");
    // Side by side, for a round trip may be long.
    let old = async {
        match dest.old.clone() {
            Some(old) => Ok(old),
            None => remote.find(dir, &dest.name).await,
        }
    };
    let (node, old) = tokio::join!(hidden_link(remote, dir, &part, target), old);
    let node = node.map_err(failed)?;
    let may_go = old.map_err(failed).and_then(|old| match &old {
        Some(old) => upload::check_replaceable(old, &dest.url),
        None => Ok(()),
    });
    let renamed = match may_go {
        Ok(()) => remote.rename(&node, (dir, &part), (dir, &dest.name)).await.map_err(failed),
        refused => refused,
    };
    if renamed.is_err() {
        // Best effort: what stood in the way is what there is to tell.
        let _ = remote.remove(dir, &part).await;
    }
    renamed
}

/// The link under its hidden name. What an earlier copy left there goes. What is there after that is mostly
/// our own: a server may have forgotten what it did before it could say so, and do it again.
async fn hidden_link(remote: &Remote, dir: &Fh, part: &[u8], target: Bytes) -> Result<Node, ClientError> {
    for tries in 0..CREATE_TRIES {
        match remote.symlink(dir, part, target.clone()).await {
            Err(e) if e.status() == Some(Status::Exist) => {}
            Err(e) => return Err(e),
            Ok(made) => return Ok(made),
        }
        if tries > 0
            && let Some(node) = remote.find(dir, part).await?
            && node.attr.kind == FileType::SymLink
            && remote.readlink(&node.fh).await? == target
        {
            return Ok(node);
        }
        match remote.remove(dir, part).await {
            Err(e) if e.status() != Some(Status::NoEnt) => return Err(e),
            _ => {}
        }
    }
    Err(Status::Exist.into())
}
