//! `remora rm`: removes files, and with `-r` directories and all that is in them.

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, Status};

use super::several::Several;
use crate::args::Rm;
use crate::exit::{Error, Result};
use crate::out;
use crate::pool::Pool;
use crate::remote::{Entry, Listing, Node, Remote};
use crate::servers::{Place, Servers};

/// How deep directories may lie in one another.
const DEPTH_MAX: usize = 256;

pub(crate) async fn run(args: Rm) -> Result {
    let mut servers = Servers::new(args.link.clone());
    let mut several = Several::new("rm");
    for url in &args.urls {
        let removed = match servers.entry(url).await {
            Ok(place) => remove(&args, &place, url).await,
            Err(e) => Err(e),
        };
        several.settle(removed)?;
    }
    several.finish()
}

async fn remove(args: &Rm, place: &Place, url: &str) -> Result {
    let remote = &place.remote;
    let failed = |e| Error::remote(url)(e);
    let gone_is_fine = |e: Error| if args.force && e.status() == Some(Status::NoEnt) { Ok(()) } else { Err(e) };
    let (dir, name) = match remote.parent(&place.parts).await.map_err(failed) {
        Ok(Some(found)) => found,
        Ok(None) => return Err(Error::refused(url, "this is the export itself; it cannot be removed")),
        Err(e) => return gone_is_fine(e),
    };
    let node = match remote.lookup(&dir.fh, name.as_bytes()).await.map_err(failed) {
        Ok(node) => node,
        Err(e) => return gone_is_fine(e),
    };
    if !node.is_dir() && place.is_dir {
        return Err(failed(Status::NotDir.into()));
    }
    if !node.is_dir() {
        return gone(remote.remove(&dir.fh, name.as_bytes()).await).map_err(failed);
    }
    if !args.recursive {
        return Err(Error::refused(url, "is a directory; -r removes it with all that is in it"));
    }
    empty(remote, node, url).await?;
    gone(remote.rmdir(&dir.fh, name.as_bytes()).await).map_err(failed)
}

/// It was there a moment ago: somebody else, or a request of ours whose reply was lost, removed it first.
fn gone(done: std::result::Result<(), ClientError>) -> std::result::Result<(), ClientError> {
    match done {
        Err(e) if e.status() == Some(Status::NoEnt) => Ok(()),
        done => done,
    }
}

/// A directory that is being emptied: what it had but directories is gone.
struct Open {
    fh: Fh,
    name: Bytes,
    url: String,
    /// Those that still lie in it.
    inner: Vec<Entry>,
    /// The first of what could not be looked at.
    unknown: Option<Error>,
}

impl Open {
    /// Removes what is in a directory but directories.
    async fn begin(remote: &Remote, Entry { name, node }: Entry, url: String) -> Result<Open> {
        let Listing { entries, unknown } = remote.list(&node.fh).await.map_err(Error::remote(&url))?;
        let mut pool = Pool::new(remote.session());
        let mut inner = Vec::new();
        for entry in entries {
            if entry.node.is_dir() {
                inner.push(entry);
            } else {
                let at = out::below(&url, &entry.name);
                pool.spawn(0, remove_one(remote.clone(), node.fh.clone(), entry.name, at)).await?;
            }
        }
        pool.finish().await?;
        let unknown = unknown.into_iter().next().map(|(name, e)| Error::remote(out::below(&url, &name))(e));
        Ok(Open { fh: node.fh, name, url, inner, unknown })
    }
}

/// Removes all that is in a directory, the deepest first.
async fn empty(remote: &Remote, dir: Node, url: &str) -> Result {
    // Not by recursion: how deep it goes is the server's to say, and a thread's stack is short.
    let mut open = vec![Open::begin(remote, Entry { name: Bytes::new(), node: dir }, url.to_owned()).await?];
    while let Some(dir) = open.last_mut() {
        if let Some(entry) = dir.inner.pop() {
            let url = out::below(&dir.url, &entry.name);
            if open.len() > DEPTH_MAX {
                return Err(Error::refused(url, "directories lie too deep in one another"));
            }
            open.push(Open::begin(remote, entry, url).await?);
            continue;
        }
        // The directory stays, with what could not be looked at.
        if let Some(e) = dir.unknown.take() {
            return Err(e);
        }
        if let (Some(Open { name, url, .. }), Some(above)) = (open.pop(), open.last()) {
            gone(remote.rmdir(&above.fh, &name).await).map_err(Error::remote(url))?;
        }
    }
    Ok(())
}

async fn remove_one(remote: Remote, dir: Fh, name: Bytes, url: String) -> Result {
    gone(remote.remove(&dir, &name).await).map_err(Error::remote(url))
}
