//! `cp -r` from a server.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, FileType};
use tokio::task::{block_in_place, spawn_blocking};

use crate::cp::created_objects::{CreatedObjects, FileKey};
use crate::cp::resume::temp_name::{is_part, is_plain, part_name};
use crate::cp::resume::tree_marker::TreeMarker;
use crate::cp::transfer::attributes::dress;
use crate::cp::transfer::destination::{By, LocalDestination};
use crate::cp::transfer::download;
use crate::cp::transfer::partial_download::{above, rename_here, sync_dir, sync_opened};
use crate::cp::tree::name_folding::{Grouped, group};
use crate::cp::ui::job::{Job, count};
use crate::output::escape;
use crate::output::exit::{self, Error, Result};
use crate::remote::attributes::type_name;
use crate::remote::concurrency::Ahead;
use crate::remote::concurrency::{NEAR_MAX, Pool};
use crate::remote::filesystem::Remote;
use crate::remote::listing::DEPTH_MAX;
use crate::remote::listing::{Entry, Listing, Node};

/// Why temporary files are skipped: their copies would meet those of this command.
pub(crate) const UNFINISHED: &str = "remains of an unfinished copy";

/// A directory to download.
struct Down {
    node: Node,
    url: String,
    dest: PathBuf,
    /// It may be reached through a symbolic link: only the user's own destination.
    through_link: bool,
    depth: usize,
}

/// A listing made ahead of its turn.
type EarlyTempFile = Result<Option<Listing>, ClientError>;

/// Downloads a directory to `dest`.
pub(crate) async fn down(
    job: &Arc<Job>,
    remote: &Remote,
    node: Node,
    url: &str,
    dest: &LocalDestination,
    begun: &TreeMarker,
) -> Result {
    let (url, through_link) = (url.to_owned(), dest.by == By::User);
    let top = Down { node, url, dest: dest.path.clone(), through_link, depth: 0 };
    let mut pool = Pool::new(remote.session());
    let filled = fill_here(job, remote, top, begun, &mut pool).await;
    end(job, filled, begun, pool).await
}

/// Ends a tree copy with the result `filled`; removes the marker if all is complete.
pub(crate) async fn end(job: &Job, filled: Result, begun: &TreeMarker, mut pool: Pool) -> Result {
    if filled.is_err() {
        pool.tidy().await;
    }
    filled?;
    if !job.has_failed() {
        begun.forget();
    }
    Ok(())
}

/// Makes the directory and its content.
async fn fill_here(job: &Arc<Job>, remote: &Remote, top: Down, begun: &TreeMarker, pool: &mut Pool) -> Result {
    // Modes and times come last, for filling a directory needs the one and changes the other.
    let mut finished: Vec<Filled> = Vec::new();
    let (mut walk, root) = (Some(job.progress.walk()), top.dest.clone());
    // Few at a time: a page of a listing is lost with any of its fragments.
    let mut dirs = Ahead::new(NEAR_MAX, |dir| list(remote.clone(), dir));
    dirs.push(top);
    while let Some((dir, early)) = dirs.next().await? {
        let entries = match open_down(job, remote, &dir, early, begun).await {
            Ok((is_copy, Listing { entries, unknown })) => {
                count(&job.counts.directories);
                let attr = is_copy.then(|| dir.node.attr.clone());
                finished.push(Filled { path: dir.dest.clone(), attr, depth: dir.depth });
                let below = dir.dest.strip_prefix(&root).unwrap_or(Path::new(""));
                for (name, e) in unknown {
                    // Its type is unknown.
                    if [false, true].iter().any(|is_dir| job.filter.takes_in(below, &name, *is_dir)) {
                        job.settle(Err(Error::remote(escape::child_url(&dir.url, &name))(e)))?;
                    }
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
        let entries = copied_entries(job, &dir, entries)?;
        let Grouped { alone, groups } = group(entries, |entry| entry.name.to_vec());
        for entries in alone.into_iter().map(|entry| vec![entry]).chain(groups) {
            let may_fold = entries.len() > 1;
            let (into, files) = entries.into_iter().partition(|entry| entry.node.is_dir());
            let files = Files { url: dir.url.clone(), path: dir.dest.clone(), list: files, may_fold };
            // A directory whose name may be that of a file is made after the file.
            match into.is_empty() {
                true => pool.spawn(files.bytes(), files.fetch(job.clone(), remote.clone())).await?,
                false => files.fetch(job.clone(), remote.clone()).await?,
            }
            dirs_below(&dir, into).for_each(|dir| dirs.push(dir));
        }
    }
    drop(walk);
    pool.finish().await?;
    finish_here(job, finished, pool).await
}

/// The entries to copy.
fn copied_entries(job: &Job, dir: &Down, mut entries: Vec<Entry>) -> Result<Vec<Entry>> {
    let mut impossible = Vec::new();
    entries.retain(|entry| match &entry.name[..] {
        name if !is_plain(name) => {
            impossible.push(escape::printable(name));
            false
        }
        name if is_part(name) => {
            skip(job, &escape::child_url(&dir.url, name), UNFINISHED);
            false
        }
        _ => true,
    });
    for name in impossible {
        job.settle(Err(Error::refused(&dir.url, format!("the server lists the invalid name '{name}'"))))?;
    }
    Ok(entries)
}

/// The directories in `dir`.
fn dirs_below(dir: &Down, entries: Vec<Entry>) -> impl Iterator<Item = Down> {
    entries.into_iter().map(|Entry { name, node }| {
        let (url, dest) = (escape::child_url(&dir.url, &name), dir.dest.join(OsStr::from_bytes(&name)));
        Down { node, url, dest, through_link: false, depth: dir.depth + 1 }
    })
}

/// Files of a directory that are downloaded one after another.
struct Files {
    /// URL of the directory.
    url: String,
    path: PathBuf,
    list: Vec<Entry>,
    /// The local file system may take some of their names for one.
    may_fold: bool,
}

impl Files {
    fn bytes(&self) -> u64 {
        self.list.iter().map(|entry| entry.node.attr.size).fold(0, u64::saturating_add)
    }

    async fn fetch(self, job: Arc<Job>, remote: Remote) -> Result {
        for entry in self.list {
            let (url, dest) =
                (escape::child_url(&self.url, &entry.name), self.path.join(OsStr::from_bytes(&entry.name)));
            down_entry(&job, &remote, entry, &url, &dest).await?;
            if self.may_fold {
                job.created.remember_name(&dest);
            }
        }
        Ok(())
    }
}

async fn list(remote: Remote, dir: Down) -> (Down, EarlyTempFile) {
    let early = remote.list_early(&dir.node.fh, dir.depth).await;
    (dir, early)
}

/// Makes the directory, and lists the one on the server unless that is done. Returns whether it gets the attributes of
/// the source.
async fn open_down(
    job: &Job,
    remote: &Remote,
    dir: &Down,
    early: EarlyTempFile,
    begun: &TreeMarker,
) -> Result<(bool, Listing)> {
    if dir.depth > DEPTH_MAX {
        return Err(Error::refused(&dir.url, "directories are nested too deeply"));
    }
    // Private until it is complete.
    let is_copy = match fs::DirBuilder::new().mode(0o700).create(&dir.dest) {
        Ok(()) => {
            if let Ok(meta) = fs::metadata(&dir.dest) {
                job.created.note(FileKey::of_local(&meta));
                if dir.depth == 0 {
                    begun.made((meta.dev(), meta.ino()));
                }
            }
            true
        }
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let meta = if dir.through_link { fs::metadata(&dir.dest) } else { fs::symlink_metadata(&dir.dest) };
            let Ok(meta) = meta else { return Err(no_dir_there(dir.dest.display())) };
            // Several exports may be copied into the user's directory.
            if !dir.through_link {
                job.created.check_here(&dir.dest, &meta).map_err(Error::local(dir.dest.display()))?;
            }
            if !meta.is_dir() {
                return Err(no_dir_there(dir.dest.display()));
            }
            if !dir.through_link {
                job.created.note(FileKey::of_local(&meta));
            }
            // The user's own directory keeps its attributes.
            let may_be_ours = job.resume && !dir.through_link;
            let is_copy = may_be_ours || dir.depth > 0 || begun.is((meta.dev(), meta.ino()));
            if let Some(mode) = reopened(meta.mode()).filter(|_| job.resume && is_copy) {
                // If this fails, filling the directory reports why.
                let _ = fs::set_permissions(&dir.dest, fs::Permissions::from_mode(mode));
            }
            is_copy
        }
        Err(e) => return Err(Error::local(dir.dest.display())(e)),
    };
    job.created.remember_name(&dir.dest);
    Ok((is_copy, remote.list_now(&dir.node.fh, early).await.map_err(Error::remote(&dir.url))?))
}

/// The error for an object in the place of a directory.
pub(crate) fn no_dir_there(name: impl fmt::Display) -> Error {
    Error::refused(name, "exists and is not a directory")
}

/// The mode to fill a directory with, if its own denies that to its owner.
pub(crate) fn reopened(mode: u32) -> Option<u32> {
    (mode & 0o700 != 0o700).then_some(mode & 0o777 | 0o700)
}

/// The entries of the directory `below` that the filters accept.
fn filtered(job: &Job, below: &Path, mut entries: Vec<Entry>) -> Vec<Entry> {
    entries.retain(|entry| job.filter.takes_in(below, &entry.name, entry.node.is_dir()));
    entries
}

/// Adds files to the progress before any of them is copied.
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

/// Downloads a symbolic link that the user named.
pub(crate) async fn link_down(job: &Job, remote: &Remote, link: &Node, url: &str, dest: &Path) -> Result {
    link_down_in_tree(job, remote, link, url, dest).await?;
    block_in_place(|| sync_dir(above(dest))).map_err(Error::local(dest.display()))
}

/// Downloads a symbolic link in a tree, which is flushed as a whole.
async fn link_down_in_tree(job: &Job, remote: &Remote, link: &Node, url: &str, dest: &Path) -> Result {
    download::check_replaceable(&job.created, dest)?;
    if let Some(meta) = fs::symlink_metadata(dest).ok().filter(|_| job.no_clobber) {
        download::note_found(&job.created, &meta);
        job.leave(dest.display());
        return Ok(());
    }
    let target = remote.readlink(&link.fh).await.map_err(Error::remote(url))?;
    link_here(&job.created, &target, dest).map_err(Error::local(dest.display()))?;
    job.copied(&job.counts.symlinks, url, dest.display());
    Ok(())
}

pub(crate) fn skip(job: &Job, name: &str, kind: &str) {
    count(&job.counts.skipped);
    job.note(&format!("{name}: skipped: {kind}"));
}

/// Makes a symbolic link to `target` in place of the object at `dest`.
fn link_here(created: &CreatedObjects, target: &[u8], dest: &Path) -> io::Result<()> {
    let name = dest.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let part = dest.with_file_name(OsStr::from_bytes(&part_name(name.as_bytes(), "")));
    // Left by an earlier copy.
    let _ = fs::remove_file(&part);
    std::os::unix::fs::symlink(OsStr::from_bytes(target), &part)?;
    rename_here(&part, dest, created).inspect_err(|_| drop(fs::remove_file(&part)))
}

/// A directory whose content is complete.
struct Filled {
    path: PathBuf,
    /// Attributes of the source; `None` for the user's own directory.
    attr: Option<Attr>,
    depth: usize,
}

/// Sets attributes of directories and flushes them, the deepest first, because a mode may deny access; those of one
/// depth concurrently.
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
        // Opened before its mode denies that.
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
