//! `remora cp`: copies files to or from a server.
//!
//! A file is copied to a hidden name beside its own ([`part`], [`remote_part`]) and renamed
//! when all of it is on stable storage, so that nothing partial ever has the final name. What
//! has arrived is in a [`journal`], from which `--resume` goes on.

mod download;
pub(crate) mod in_order;
mod job;
mod journal;
mod lock;
mod names;
mod part;
mod progress;
mod ranges;
mod remote_part;
mod tree;
mod upload;
mod verify;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use remora_host::client::Target;
use remora_wire::nfs3::{FileType, Status};

use crate::args::Cp;
use crate::exit::{Error, Result};
use crate::interrupt::Kept;
use crate::remote::Node;
use crate::servers::{Place, Servers};
use job::Job;
use upload::Destination;

pub(crate) async fn run(args: Cp, kept: Kept) -> Result {
    let Some((dest, sources)) = args.paths.split_last() else { return Ok(()) };
    let remote_sources = sources.iter().filter(|s| Target::is_url(s)).count();
    let download = match (remote_sources, Target::is_url(dest)) {
        (n, false) if n == sources.len() => true,
        (0, true) => false,
        (0, false) => {
            return Err(Error::Usage("neither source nor destination is a URL; for local copies there is cp".into()));
        }
        _ => {
            return Err(Error::Usage(
                "exactly one side must be nfs:// URLs; between servers, copy to a local file and from there".into(),
            ));
        }
    };
    let started = Instant::now();
    let job = Arc::new(Job::new(&args, kept));
    let mut servers = Servers::new(args.link.clone());
    let result = if download {
        download_all(&job, &mut servers, sources, Path::new(dest)).await
    } else {
        upload_all(&job, &mut servers, sources, dest).await
    };
    match result {
        Ok(()) | Err(Error::Reported(_)) => {}
        Err(e) => drop(job.settle(Err(e))),
    }
    job.finish(started.elapsed())
}

async fn download_all(job: &Arc<Job>, servers: &mut Servers, urls: &[String], dest: &Path) -> Result {
    let is_dir = fs::metadata(dest).is_ok_and(|m| m.is_dir());
    let wants_dir = urls.len() > 1 || dest.as_os_str().as_bytes().ends_with(b"/");
    if wants_dir && !is_dir && !(job.recursive && urls.len() == 1) {
        return Err(Error::refused(dest.display(), "no such directory"));
    }
    for url in urls {
        let place = servers.place(url).await?;
        job.progress.watch(place.remote.session());
        job.settle(download_one(job, &place, dest, is_dir).await)?;
    }
    Ok(())
}

async fn download_one(job: &Arc<Job>, place: &Place, dest: &Path, into: bool) -> Result {
    let url = &place.url;
    let follow = !job.recursive || place.is_dir;
    let node = place.remote.walk(&place.parts, follow).await.map_err(Error::remote(url))?;
    let dest = match place.name() {
        Some(name) if into => dest.join(name),
        _ => dest.to_owned(),
    };
    match node.attr.kind {
        FileType::Regular => {
            // A link that was named is the user's, and what it leads to is meant.
            let dest = fs::canonicalize(&dest).unwrap_or(dest);
            download::file(job, &place.remote, &node, url, &dest).await
        }
        FileType::Directory if job.recursive => tree::down(job, &place.remote, node, url, &dest).await,
        FileType::Directory => Err(Error::refused(url, "is a directory; -r copies it with all that is in it")),
        kind => Err(Error::refused(url, format!("is a {}, which cannot be copied", crate::object::type_name(kind)))),
    }
}

async fn upload_all(job: &Arc<Job>, servers: &mut Servers, sources: &[String], url: &str) -> Result {
    let place = servers.place(url).await?;
    job.progress.watch(place.remote.session());
    let there = match place.remote.walk(&place.parts, true).await {
        Err(e) if e.status() == Some(Status::NoEnt) => None,
        there => Some(there.map_err(Error::remote(url))?),
    };
    let dir = there.filter(Node::is_dir);
    if dir.is_none() && (sources.len() > 1 || (place.is_dir && !job.recursive)) {
        return Err(Error::refused(url, "no such directory"));
    }
    for source in sources {
        job.settle(upload_one(job, &place, dir.as_ref(), Path::new(source)).await)?;
    }
    Ok(())
}

async fn upload_one(job: &Arc<Job>, place: &Place, into: Option<&Node>, source: &Path) -> Result {
    let here = |e| Error::local(source.display())(e);
    let meta = if job.recursive { fs::symlink_metadata(source) } else { fs::metadata(source) }.map_err(here)?;
    let dest = match into {
        Some(dir) => {
            let name = local_name(source).ok_or_else(|| Error::refused(source.display(), "has no name"))?;
            let url = format!("{}/{}", place.url.trim_end_matches('/'), crate::out::shown(&name));
            Destination { remote: place.remote.clone(), dir: dir.clone(), name, url }
        }
        None => {
            let parent = place.remote.parent(&place.parts).await.map_err(Error::remote(&place.url))?;
            let (dir, name) = parent.ok_or_else(|| Error::refused(&place.url, "is not a directory"))?;
            let name = name.as_bytes().to_vec();
            Destination { remote: place.remote.clone(), dir, name, url: place.url.clone() }
        }
    };
    if meta.is_dir() && !job.recursive {
        return Err(Error::refused(source.display(), "is a directory; -r copies it with all that is in it"));
    }
    if meta.is_dir() { tree::up(job, source, dest).await } else { tree::up_one(job, source, &dest).await }
}

/// The last name of a path, also of `.` and `dir/..`.
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
