//! `cp -r` to a server.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, FileType, SetAttr, Status};

use crate::cp::created_objects::FileKey;
use crate::cp::resume::temp_name::{is_part, part_name};
use crate::cp::resume::tree_marker::TreeMarker;
use crate::cp::transfer::attributes::UploadAttributes;
use crate::cp::transfer::partial_upload::CREATE_TRIES;
use crate::cp::transfer::upload;
use crate::cp::transfer::upload_destination::UploadDestination;
use crate::cp::tree::download_tree::{UNFINISHED, end, no_dir_there, reopened, skip};
use crate::cp::tree::name_folding::{Grouped, group};
use crate::cp::ui::job::{Job, count};
use crate::output::escape;
use crate::output::exit::{self, Error, Result};
use crate::remote::concurrency::Ahead;
use crate::remote::concurrency::{Pool, jobs_max};
use crate::remote::filesystem::{NameIn, Remote};
use crate::remote::listing::DEPTH_MAX;
use crate::remote::listing::Node;

/// A directory to upload.
struct Up {
    source: PathBuf,
    dest: UploadDestination,
    depth: usize,
    resumes: bool,
}

/// A directory on the server and its final attributes.
struct Made {
    node: Node,
    looks: UploadAttributes,
    /// It was made by this command and is empty.
    is_new: bool,
}

/// A directory whose content is complete.
struct Sent {
    node: Node,
    looks: UploadAttributes,
    url: String,
    depth: usize,
}

/// Uploads a directory.
pub(crate) async fn up(job: &Arc<Job>, source: &Path, dest: UploadDestination, begun: &TreeMarker) -> Result {
    let remote = dest.remote.clone();
    let top = Up { source: source.to_owned(), dest, depth: 0, resumes: job.resume };
    let mut pool = Pool::new(remote.session());
    let filled = fill_there(job, &remote, top, begun, &mut pool).await;
    end(job, filled, begun, pool).await
}

/// Makes the directory and its content.
async fn fill_there(job: &Arc<Job>, remote: &Remote, top: Up, begun: &TreeMarker, pool: &mut Pool) -> Result {
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
        entries.iter().filter_map(Local::file_bytes).for_each(|bytes| job.progress.expect_file(bytes));
        let is_last = dirs.is_empty() && !entries.iter().any(|local| local.is_dir);
        walk = walk.filter(|_| !is_last);
        entries.retain(|local| local.is_finished(job));
        let filling = Filling { dir: &dir, remote, node, is_new };
        filling.send(job, entries, pool, |dir| dirs.push(dir)).await?;
        opened = dirs.next().await?;
    }
    drop(walk);
    pool.finish().await?;
    finish_there(job, remote, finished, pool).await
}

/// A directory that is being filled.
struct Filling<'a> {
    dir: &'a Up,
    remote: &'a Remote,
    node: Node,
    /// It was empty.
    is_new: bool,
}

impl Filling<'_> {
    /// Uploads the files of the directory, and passes its directories to `make`.
    async fn send(&self, job: &Arc<Job>, entries: Vec<Local>, pool: &mut Pool, mut make: impl FnMut(Up)) -> Result {
        let Grouped { alone, groups } = group(entries, |local| local.entry.file_name().as_bytes().to_vec());
        let (dirs, files): (Vec<_>, Vec<_>) = alone.into_iter().partition(|local| local.is_dir);
        // Directories are made while files wait.
        dirs.iter().for_each(|dir| make(self.dir_below(dir, false)));
        let mut alike = Vec::new();
        for group in groups {
            let (dirs, files): (Vec<_>, Vec<_>) = group.into_iter().partition(|local| local.is_dir);
            if dirs.is_empty() {
                alike.push(files);
                continue;
            }
            // Some servers replace an empty directory by a file of its name.
            send_files(job.clone(), self.files_below(files, true)).await?;
            dirs.iter().for_each(|dir| make(self.dir_below(dir, true)));
        }
        for files in files.into_iter().map(|file| vec![file]).chain(alike) {
            let may_fold = files.len() > 1;
            let bytes = files.iter().filter_map(|file| file.bytes).fold(0, u64::saturating_add);
            pool.spawn(bytes, send_files(job.clone(), self.files_below(files, may_fold))).await?;
        }
        Ok(())
    }

    fn dest(&self, entry: &fs::DirEntry, may_fold: bool) -> UploadDestination {
        let name = entry.file_name().as_bytes().to_vec();
        let url = escape::child_url(&self.dir.dest.url, &name);
        let old = (self.is_new && !may_fold).then_some(None);
        UploadDestination { old, may_fold, ..UploadDestination::new(self.remote, &self.node, name, url) }
    }

    fn dir_below(&self, local: &Local, may_fold: bool) -> Up {
        let dest = self.dest(&local.entry, may_fold);
        Up { source: local.entry.path(), dest, depth: self.dir.depth + 1, resumes: self.dir.resumes }
    }

    fn files_below(&self, files: Vec<Local>, may_fold: bool) -> Vec<FileUpload> {
        let upload = |Local { entry, bytes, .. }: &Local| {
            let (source, dest) = (entry.path(), self.dest(entry, may_fold));
            FileUpload { source, dest, is_counted: bytes.is_some() }
        };
        files.iter().map(upload).collect()
    }
}

/// An entry to upload that is no directory.
struct FileUpload {
    source: PathBuf,
    dest: UploadDestination,
    /// A regular file, which the progress counts.
    is_counted: bool,
}

/// Uploads files one after another.
async fn send_files(job: Arc<Job>, files: Vec<FileUpload>) -> Result {
    for FileUpload { source, dest, is_counted } in files {
        let settled = job.settle(up_one(&job, &source, &dest).await);
        if is_counted {
            job.progress.file_done();
        }
        settled?;
    }
    Ok(())
}

/// A local directory entry.
struct Local {
    entry: fs::DirEntry,
    is_dir: bool,
    /// Size of a regular file in bytes.
    bytes: Option<u64>,
}

impl Local {
    fn new(entry: fs::DirEntry) -> Local {
        let is_dir = entry.file_type().is_ok_and(|t| t.is_dir());
        let meta = if is_dir { None } else { entry.metadata().ok() };
        let bytes = meta.filter(fs::Metadata::is_file).map(|meta| meta.len());
        Local { entry, is_dir, bytes }
    }

    /// Whether it is no temporary file. Those are skipped.
    fn is_finished(&self, job: &Job) -> bool {
        let is_part = is_part(self.entry.file_name().as_bytes());
        if is_part {
            skip(job, &self.entry.path().display().to_string(), UNFINISHED);
        }
        !is_part
    }

    /// Size of a file that is to be copied, in bytes.
    fn file_bytes(&self) -> Option<u64> {
        self.bytes.filter(|_| !is_part(self.entry.file_name().as_bytes()))
    }
}

/// Sets modes and times of directories, the deepest first, because a mode may deny access; those of one depth
/// concurrently.
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

/// Makes the top directory, with its marker.
async fn open_top(job: &Arc<Job>, dir: Up, begun: &TreeMarker) -> (Up, Result<Made>) {
    begun.begin();
    let (dir, made) = open_up(job.clone(), dir).await;
    match &made {
        Ok(made) => begun.made_there(&made.node),
        // It may have been made nevertheless.
        Err(e) if e.is_lost() => {}
        Err(_) => begun.forget(),
    }
    (dir, made)
}

/// Makes the directory on the server, if it does not exist.
async fn make_there(job: &Job, dir: &Up) -> Result<Made> {
    let failed = |e| Error::remote(&dir.dest.url)(e);
    if dir.depth > DEPTH_MAX {
        return Err(Error::refused(dir.source.display(), "directories are nested too deeply"));
    }
    let meta = fs::metadata(&dir.source).map_err(Error::local(dir.source.display()))?;
    let remote = &dir.dest.remote;
    let (node, is_new) = match remote.mkdir(&dir.dest.dir.fh, &dir.dest.name, meta.mode() & 0o777 | 0o700).await {
        Err(e) if e.status() == Some(Status::Exist) => {
            let there = remote.lookup(&dir.dest.dir.fh, &dir.dest.name).await.map_err(failed)?;
            job.created.check_there(&dir.source, &there)?;
            if !there.is_dir() {
                return Err(no_dir_there(&dir.dest.url));
            }
            if let Some(mode) = reopened(there.attr.mode).filter(|_| dir.resumes) {
                // If this fails, filling the directory reports why.
                let _ = remote.setattr(&there.fh, SetAttr { mode: Some(mode), ..SetAttr::NONE }).await;
            }
            (there, false)
        }
        made => (made.map_err(failed)?, true),
    };
    let is_first = match dir.dest.may_fold {
        true => job.created.note_named(&node, &dir.dest.name),
        false => job.created.note(FileKey::of_handle(&node)),
    };
    if !is_first {
        // Two names were made concurrently; the server answered the other first.
        job.created.check_there(&dir.source, &node)?;
    }
    Ok(Made { node, looks: UploadAttributes::of(&meta, job.preserve), is_new })
}

pub(crate) async fn up_one(job: &Job, source: &Path, dest: &UploadDestination) -> Result {
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
    if job.no_clobber
        && let Some(old) = found(dest).await.map_err(Error::remote(&dest.url))?
    {
        job.created.check_there(source, &old)?;
        upload::note_found(job, &old, dest);
        job.leave(&dest.url);
        return Ok(());
    }
    link_there(job, source, target, dest).await?;
    job.copied(&job.counts.symlinks, source.display(), &dest.url);
    Ok(())
}

/// The object at the destination.
async fn found(dest: &UploadDestination) -> Result<Option<Node>, ClientError> {
    match dest.old.clone() {
        Some(old) => Ok(old),
        None => dest.remote.find(&dest.dir.fh, &dest.name).await,
    }
}

/// Makes a symbolic link to `target` in place of the object at `dest`.
async fn link_there(job: &Job, source: &Path, target: Bytes, dest: &UploadDestination) -> Result {
    let failed = |e| Error::remote(&dest.url)(e);
    let (remote, dir) = (&dest.remote, &dest.dir.fh);
    let part = part_name(&dest.name, "");
    // Concurrently, to save a round trip.
    let (node, old) = tokio::join!(hidden_link(remote, dir, &part, target), found(dest));
    let node = node.map_err(failed)?;
    let may_go = old.map_err(failed).and_then(|old| match &old {
        Some(old) => upload::check_replaceable(job, source, old, &dest.url),
        None => Ok(()),
    });
    let renamed = match may_go {
        Ok(()) => {
            remote.rename(&node, NameIn { dir, name: &part }, NameIn { dir, name: &dest.name }).await.map_err(failed)
        }
        refused => refused,
    };
    if renamed.is_err() {
        // Best effort: the first error is reported.
        let _ = remote.remove(dir, &part).await;
    }
    renamed?;
    upload::note_created(job, &node, dest).await;
    Ok(())
}

/// Makes the link under its temporary name, in place of an earlier one. An object there is mostly our own: a server may
/// have executed the call twice.
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
