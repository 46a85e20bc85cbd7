//! The command: what is copied where, and whether an unfinished tree is completed.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use remora_host::client::{ClientError, Target};
use remora_wire::nfs3::{FileType, Status};

use crate::config::state_dir;
use crate::cp::flags::Cp;
use crate::cp::resume::tree_marker::TreeMarker;
use crate::cp::resume::{lock_file, temp_name};
use crate::cp::transfer::destination::{self, LocalDestination, no_directory};
use crate::cp::transfer::upload_destination::{EarlyTempFile, UploadDestination};
use crate::cp::transfer::{download, upload};
use crate::cp::tree::unique_names::UniqueNames;
use crate::cp::tree::{download_tree, upload_tree};
use crate::cp::ui::job::Job;
use crate::cp::ui::progress;
use crate::interrupt::Kept;
use crate::output::exit::{Error, Result};
use crate::remote::filesystem;
use crate::remote::listing::Node;
use crate::remote::servers::{Look, Place, Servers, Wanted};

pub(crate) async fn run(args: Cp, kept: Kept) -> Result {
    let Some((dest, sources)) = args.paths.split_last().filter(|(_, sources)| !sources.is_empty()) else {
        return Err(Error::Usage("source and destination are missing: remora cp SRC... DST".into()));
    };
    let urls: Vec<&str> = sources.iter().filter_map(|s| as_url(s)).collect();
    let upload_to = match (urls.len(), as_url(dest)) {
        (n, None) if n == sources.len() => None,
        (0, Some(url)) => Some(url),
        (0, None) => {
            return Err(Error::Usage(match args.paths.iter().filter_map(|p| p.to_str()).find_map(meant) {
                Some(why) => why,
                None => "neither source nor destination is a URL; use cp for local copies".into(),
            }));
        }
        _ => {
            return Err(Error::Usage(
                "either the sources or the destination must be URLs, not both; to copy between servers, copy to a local file first".into(),
            ));
        }
    };
    let job = Arc::new(Job::new(&args, kept));
    // A bar shows stalls itself.
    let is_shown = !args.json && progress::can_be_drawn();
    let new = if args.quiet || is_shown { Servers::quiet } else { Servers::new };
    let mut servers = new(args.link.clone()).advising(progress::ADVICE).limited(args.bwlimit.0);
    let result = match upload_to {
        None => download_all(&job, &mut servers, &urls, dest).await,
        Some(url) => upload_all(&job, &mut servers, sources, url).await,
    };
    match result {
        Ok(()) | Err(Error::Reported(_)) => {}
        Err(e) => drop(job.settle(Err(e))),
    }
    job.finish()
}

/// Hint for an argument that looks like a URL and is none.
fn meant(word: &str) -> Option<String> {
    let looks = word.contains("://") || Target::guess(word).is_some();
    looks.then(|| Target::parse(word).err().map(|e| e.to_string())).flatten()
}

/// The argument as a URL, if it is one; all others are local paths.
fn as_url(word: &Path) -> Option<&str> {
    word.to_str().filter(|word| Target::is_url(word))
}

async fn download_all(job: &Arc<Job>, servers: &mut Servers, urls: &[&str], dest: &Path) -> Result {
    let is_dir = fs::metadata(dest).is_ok_and(|m| m.is_dir());
    let wants_dir = urls.len() > 1 || dest.as_os_str().as_bytes().ends_with(b"/");
    if wants_dir && !is_dir && !(job.recursive && urls.len() == 1) {
        let missing = fs::symlink_metadata(dest).is_err_and(|e| e.kind() == io::ErrorKind::NotFound);
        return Err(Error::refused(dest.display(), no_directory(!missing)));
    }
    let mut given = UniqueNames::default();
    let mut walk = Some(job.progress.walk());
    for (nth, url) in urls.iter().enumerate() {
        // With `-r` a link is copied as a link.
        let wanted = if job.recursive { Wanted::Named(0) } else { Wanted::Read };
        let done = match servers.look(url, wanted, &Source { job }).await {
            Ok((place, node)) => {
                job.progress.watch(place.remote.session());
                walk = walk.filter(|_| nth + 1 < urls.len());
                let into = is_dir && !(urls.len() == 1 && is_begun_here(job, &place, &node, dest));
                let name = place.name().filter(|_| into);
                let copy = download_one(job, &place, node, dest, into);
                let done = given.once(name.map(str::as_bytes), url, &job.counts, copy).await;
                if let (Some(name), true) = (name, urls.len() > 1) {
                    job.created.remember_name(&dest.join(name));
                }
                done
            }
            Err(e) => Err(e),
        };
        job.settle(done)?;
    }
    Ok(())
}

/// The source of a download.
struct Source<'a> {
    job: &'a Job,
}

impl Look for Source<'_> {
    type Found = std::result::Result<Node, ClientError>;

    async fn look(&self, place: &Place) -> Self::Found {
        self.job.mounted();
        place.look(!self.job.recursive).await
    }
}

/// The destination of uploads.
struct Goal<'a> {
    job: &'a Job,
    sources: &'a [PathBuf],
}

impl Look for Goal<'_> {
    /// The object at the destination, and the temporary file that was made already.
    type Found = (std::result::Result<Node, ClientError>, Option<EarlyTempFile>);

    async fn look(&self, place: &Place) -> Self::Found {
        self.job.mounted();
        // Concurrently, to save a round trip.
        tokio::join!(place.remote.walk(&place.parts, false), begin_early(self.job, place, self.sources))
    }

    async fn undo(&self, place: &Place, (_, early): Self::Found) {
        if let Some(early) = early {
            early.discard(&place.remote).await;
        }
    }
}

/// Whether `dest` is a directory that an interrupted copy of this source to this name made, and is to be completed.
fn is_begun_here(job: &Job, place: &Place, node: &std::result::Result<Node, ClientError>, dest: &Path) -> bool {
    let (Ok(meta), Ok(node)) = (fs::metadata(dest), node) else { return false };
    let begun = TreeMarker::down(place, node, dest);
    // Without --resume it is copied into from now on.
    if !job.resume {
        begun.forget();
    }
    job.resume && job.recursive && begun.is((meta.dev(), meta.ino()))
}

async fn download_one(
    job: &Arc<Job>,
    place: &Place,
    node: std::result::Result<Node, ClientError>,
    dest: &Path,
    into: bool,
) -> Result {
    let url = &place.url;
    let node = node.map_err(Error::remote(url))?;
    let dest = LocalDestination::new(dest, place.name().filter(|_| into));
    match node.attr.kind {
        FileType::Regular => {
            let dest = dest.file()?;
            job.progress.expect_file(node.attr.size);
            let done = download::file(job, &place.remote, &node, url, &dest).await;
            job.progress.file_done();
            done
        }
        FileType::Directory if job.recursive => {
            let begun = TreeMarker::down(place, &node, &dest.path);
            download_tree::down(job, &place.remote, node, url, &dest, &begun).await
        }
        FileType::SymLink if job.recursive => {
            // A link replaces a link, but nothing that a file would not replace.
            if dest.path.exists() {
                dest.file()?;
            }
            download_tree::link_down(job, &place.remote, &node, url, &dest.path).await
        }
        FileType::Directory => Err(Error::refused(url, "is a directory; use -r to copy it")),
        kind => Err(Error::refused(
            url,
            format!("is a {}, which cannot be copied", crate::remote::attributes::type_name(kind)),
        )),
    }
}

async fn upload_all(job: &Arc<Job>, servers: &mut Servers, sources: &[PathBuf], url: &str) -> Result {
    if let Some(dir) = state_dir::user_dir() {
        lock_file::sweep(&dir);
    }
    let (place, (there, early)) = servers.look(url, Wanted::Named(0), &Goal { job, sources }).await?;
    job.progress.watch(place.remote.session());
    let there = find_out(&place, there).await;
    if let Ok((_, Some(found))) = &there
        && is_begun_there(job, &place, sources, found)
    {
        return go_on(job, servers, sources, url).await;
    }
    let into = match there {
        Ok((None, found)) if sources.len() > 1 || (place.is_dir && !job.recursive) => {
            Err(Error::refused(url, no_directory(found.is_some())))
        }
        Ok((Some(dir), _)) => Ok(Into::Directory(dir)),
        Ok((None, found)) => Ok(Into::Name { found, early: early.clone() }),
        Err(e) => Err(Error::remote(url)(e)),
    };
    if let (Some(early), Err(_) | Ok(Into::Directory(_))) = (early, &into) {
        early.discard(&place.remote).await;
    }
    let into = into?;
    let mut given = UniqueNames::default();
    let mut walk = Some(job.progress.walk());
    for (nth, source) in sources.iter().enumerate() {
        walk = walk.filter(|_| nth + 1 < sources.len());
        let name = local_name(source).filter(|_| matches!(into, Into::Directory(_)));
        let copy = upload_one(job, &place, &into, source, sources.len() > 1);
        let done = given.once(name.as_deref(), source.display(), &job.counts, copy).await;
        if let Into::Name { early: Some(early), .. } = &into
            && !done.as_ref().is_err_and(Error::is_lost)
        {
            early.discard(&place.remote).await;
        }
        job.settle(done)?;
    }
    Ok(())
}

/// Whether the destination is a directory that an interrupted copy of this source to this name made, and is to be
/// completed.
fn is_begun_there(job: &Job, place: &Place, sources: &[PathBuf], found: &Node) -> bool {
    let [source] = sources else { return false };
    if !found.is_dir() {
        return false;
    }
    let begun = TreeMarker::up(source, place);
    if !job.resume {
        begun.forget();
    }
    job.resume && job.recursive && begun.is_there(found)
}

/// Completes an unfinished upload.
async fn go_on(job: &Arc<Job>, servers: &mut Servers, sources: &[PathBuf], url: &str) -> Result {
    // The directory itself may have been mounted; its parent is needed.
    let place = servers.entry(url).await?;
    job.progress.watch(place.remote.session());
    let into = Into::Name { found: None, early: None };
    for source in sources {
        job.settle(upload_one(job, &place, &into, source, false).await)?;
    }
    Ok(())
}

/// The directory that the place is or leads to, and the object at the place.
async fn find_out(
    place: &Place,
    there: std::result::Result<Node, ClientError>,
) -> std::result::Result<(Option<Node>, Option<Node>), ClientError> {
    let found = match there {
        Err(e) if e.status() == Some(Status::NoEnt) => return Ok((None, None)),
        found => found?,
    };
    let leads_to = match found.attr.kind {
        FileType::SymLink => match place.remote.walk(&place.parts, true).await {
            // Another link may replace it; for other sources it is resolved again.
            Err(e) if e.status() == Some(Status::NoEnt) || matches!(e, ClientError::Local(_)) => None,
            end => Some(end?),
        },
        _ => Some(found.clone()),
    };
    Ok((leads_to.filter(Node::is_dir), Some(found)))
}

/// Destination of uploads.
enum Into {
    /// A directory: files keep their names.
    Directory(Node),
    /// The name in the URL, the object there, and the temporary file that was made already.
    Name { found: Option<Node>, early: Option<EarlyTempFile> },
}

/// Makes the temporary file of an upload before the destination was looked up.
async fn begin_early(job: &Job, place: &Place, sources: &[PathBuf]) -> Option<EarlyTempFile> {
    let ([source], [name]) = (sources, &place.parts[..]) else { return None };
    let is_file = destination::source(source, job.recursive).is_ok_and(|m| m.is_file());
    let is_plain = temp_name::is_plain(name.as_bytes()) && !place.is_dir;
    let is_near = !place.is_recalled && place.remote.session().is_near();
    if !is_file || !is_plain || job.resume || is_near {
        return None;
    }
    EarlyTempFile::make(&place.remote, source, name.as_bytes()).await
}

/// Resolves a symbolic link at `dest`, whose components are `path`.
async fn aim(dest: UploadDestination, path: impl FnOnce() -> Vec<Bytes>) -> Result<UploadDestination> {
    let old = match dest.old.clone() {
        Some(old) => old,
        None => dest.remote.find(&dest.dir.fh, &dest.name).await.map_err(Error::remote(&dest.url))?,
    };
    if old.as_ref().is_none_or(|old| old.attr.kind != FileType::SymLink) {
        return Ok(UploadDestination { old: Some(old), ..dest });
    }
    let (end, above) = dest.remote.end(path()).await.map_err(|e| match e.status() {
        Some(Status::NoEnt) => Error::refused(&dest.url, destination::LEADS_NOWHERE),
        _ => Error::remote(&dest.url)(e),
    })?;
    let (dir, name) = above.ok_or_else(|| Error::refused(&dest.url, "is a directory"))?;
    // The temporary file made already is beside the link.
    Ok(UploadDestination { dir, name: name.to_vec(), old: Some(Some(end)), early: None, ..dest })
}

async fn upload_one(job: &Arc<Job>, place: &Place, into: &Into, source: &Path, may_fold: bool) -> Result {
    let meta = destination::source(source, job.recursive).map_err(Error::local(source.display()))?;
    let dest = match into {
        Into::Directory(dir) => {
            let name = local_name(source).ok_or_else(|| Error::refused(source.display(), "has no name"))?;
            let url = crate::output::escape::child_url(&place.url, &name);
            UploadDestination { may_fold, ..UploadDestination::new(&place.remote, dir, name, url) }
        }
        Into::Name { found, early } => {
            let parent = place.remote.parent(&place.parts).await.map_err(Error::remote(&place.url))?;
            let (dir, name) = parent.ok_or_else(|| Error::refused(&place.url, "is not a directory"))?;
            let dest = UploadDestination::new(&place.remote, &dir, name.as_bytes().to_vec(), place.url.clone());
            UploadDestination { old: Some(found.clone()), early: early.clone(), ..dest }
        }
    };
    if meta.is_dir() && !job.recursive {
        return Err(Error::refused(source.display(), "is a directory; use -r to copy it"));
    }
    if let Into::Name { found, .. } = into
        && place.is_dir
        && !meta.is_dir()
    {
        return Err(Error::refused(&place.url, no_directory(found.is_some())));
    }
    if meta.is_file() {
        let below = matches!(into, Into::Directory(_)).then(|| Bytes::copy_from_slice(&dest.name));
        let dest = aim(dest, || filesystem::names(&place.parts).into_iter().chain(below).collect()).await?;
        job.progress.expect_file(meta.len());
        let done = upload::file(job, source, &dest).await;
        job.progress.file_done();
        return done;
    }
    if meta.is_symlink() {
        return upload_tree::up_one(job, source, &dest).await;
    }
    if !meta.is_dir() {
        return Err(destination::not_copied(source));
    }
    let begun = match into {
        Into::Directory(_) => TreeMarker::never(),
        Into::Name { .. } => TreeMarker::up(source, place),
    };
    upload_tree::up(job, source, dest, &begun).await
}

/// The last component of a path, also of `.` and `dir/..`.
fn local_name(path: &Path) -> Option<Vec<u8>> {
    let whole: PathBuf;
    let name = match path.file_name() {
        Some(name) => name,
        None => {
            whole = fs::canonicalize(path).ok()?;
            whole.file_name()?
        }
    };
    Some(name.as_bytes().to_vec())
}
