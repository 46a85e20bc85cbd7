//! `remora ls`: lists a directory, sorted by name, and with `-R` all that is below it.

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, Fh, FileType};

use super::several::Several;
use crate::ahead::Ahead;
use crate::args::Ls;
use crate::exit::{self, Error, Result};
use crate::listing::DEPTH_MAX;
use crate::object::{Object, long_line};
use crate::out;
use crate::pool::{NEAR_MAX, jobs_max};
use crate::remote::{Entry, Listing, Remote};
use crate::servers::Servers;

/// So much is written at a time, in bytes: a long listing needs neither many writes nor much room.
const PAGE: usize = 1 << 16;

pub(crate) async fn run(args: Ls) -> Result {
    let place = Servers::new(args.link.clone()).place(&args.url).await?;
    let (remote, url) = (&place.remote, args.url.clone());
    let node = place.look(!args.long).await.map_err(Error::remote(&url))?;
    let top = Dir { fh: node.fh.clone(), url, path: Vec::new(), depth: 0 };
    if !node.is_dir() {
        let name = place.name().unwrap_or_default().to_owned();
        return print(remote, &args, &top, &[Entry { name: name.into(), node }]).await;
    }
    let mut told = Several::new("ls");
    let mut dirs = Ahead::new(NEAR_MAX, |dir| list(remote.clone(), dir));
    dirs.push(top);
    while let Some((dir, early)) = dirs.next().await? {
        let Listing { mut entries, unknown } = match remote.list_now(&dir.fh, early).await {
            Ok(listing) => listing,
            Err(e) => {
                told.settle(Err(Error::remote(&dir.url)(e)))?;
                continue;
            }
        };
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        print(remote, &args, &dir, &entries).await?;
        // What could not be looked at is told when all else is.
        for (name, e) in unknown {
            told.settle(Err(Error::remote(format!("{}: {}", dir.url, out::shown(&name)))(e)))?;
        }
        for inner in entries.iter().filter(|entry| args.recursive && entry.node.is_dir()) {
            let inner = dir.inner(inner);
            match inner.depth > DEPTH_MAX {
                true => told.settle(Err(Error::refused(inner.url, "directories lie too deep in one another")))?,
                false => dirs.push(inner),
            }
        }
    }
    told.finish()
}

/// A directory to be listed.
struct Dir {
    fh: Fh,
    url: String,
    /// From the one that was named, which has none.
    path: Vec<u8>,
    depth: usize,
}

impl Dir {
    /// The path of what is in it.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        match self.depth {
            0 => name.to_owned(),
            _ => [&self.path, &b"/"[..], name].concat(),
        }
    }

    fn inner(&self, Entry { name, node }: &Entry) -> Dir {
        let (url, path) = (out::below(&self.url, name), self.path_of(name));
        Dir { fh: node.fh.clone(), url, path, depth: self.depth + 1 }
    }
}

/// Lists it, before its turn perhaps.
async fn list(remote: Remote, dir: Dir) -> (Dir, std::result::Result<Option<Listing>, ClientError>) {
    let early = remote.list_early(&dir.fh, dir.depth).await;
    (dir, early)
}

/// Prints what is in a directory, or what was named and is none.
async fn print(remote: &Remote, args: &Ls, dir: &Dir, entries: &[Entry]) -> Result {
    let mut targets = Ahead::new(jobs_max(remote.session()), |link| target(remote.clone(), link));
    if args.long || args.json {
        entries.iter().filter(|e| is_link(e)).for_each(|link| targets.push(link.node.fh.clone()));
    }
    let mut page = String::new();
    for entry in entries {
        let target = match is_link(entry) {
            true => targets.next().await?.unwrap_or(Ok(None)),
            false => Ok(None),
        };
        let target = match target {
            Ok(target) => target,
            Err(e) => {
                out::text(&page)?;
                return Err(Error::remote(&dir.url)(e));
            }
        };
        page.push_str(&line(args, &dir.path_of(&entry.name), &entry.node.attr, target.as_deref())?);
        if page.len() > PAGE {
            out::text(&page)?;
            page.clear();
        }
    }
    out::text(&page)
}

fn line(args: &Ls, path: &[u8], attr: &Attr, target: Option<&[u8]>) -> Result<String> {
    match () {
        () if args.json => Ok(out::json_line(&Object::new(path, attr, target))? + "\n"),
        () if args.long => Ok(long_line(path, attr, target)),
        () => Ok(out::shown(path) + "\n"),
    }
}

fn is_link(entry: &Entry) -> bool {
    entry.node.attr.kind == FileType::SymLink
}

/// What a symbolic link points at; a link that cannot be read is shown without. Fails if the server is out of
/// reach: what is asked next would be waited for as long.
async fn target(remote: Remote, link: Fh) -> Result<Option<Bytes>, ClientError> {
    match remote.readlink(&link).await {
        Err(e) if exit::is_lost(&e) => Err(e),
        target => Ok(target.ok()),
    }
}
