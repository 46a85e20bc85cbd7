//! `remora rm`: removes files, and with `-r` directories and all that is in them.

use std::future::Future;
use std::pin::Pin;

use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, Status};

use super::several::Several;
use crate::args::Rm;
use crate::exit::{Error, Result};
use crate::pool::Pool;
use crate::remote::{Listing, Node, Remote};
use crate::servers::Servers;

/// How deep directories may lie in one another.
const DEPTH_MAX: usize = 256;

pub(crate) async fn run(args: Rm) -> Result {
    let mut servers = Servers::new(args.link.clone());
    let mut several = Several::new("rm");
    for url in &args.urls {
        let removed = match servers.entry(url).await {
            Ok(place) => remove(&args, &place.remote, &place.parts, url).await,
            Err(e) => Err(e),
        };
        several.settle(removed)?;
    }
    several.finish()
}

async fn remove(args: &Rm, remote: &Remote, parts: &[String], url: &str) -> Result {
    let failed = |e| Error::remote(url)(e);
    let gone_is_fine = |e: Error| if args.force && e.status() == Some(Status::NoEnt) { Ok(()) } else { Err(e) };
    let (dir, name) = match remote.parent(parts).await.map_err(failed) {
        Ok(Some(found)) => found,
        Ok(None) => return Err(Error::refused(url, "this is the export itself; it cannot be removed")),
        Err(e) => return gone_is_fine(e),
    };
    let node = match remote.lookup(&dir.fh, name.as_bytes()).await.map_err(failed) {
        Ok(node) => node,
        Err(e) => return gone_is_fine(e),
    };
    if !node.is_dir() {
        return gone(remote.remove(&dir.fh, name.as_bytes()).await).map_err(failed);
    }
    if !args.recursive {
        return Err(Error::refused(url, "is a directory; -r removes it with all that is in it"));
    }
    empty(remote.clone(), node, url.to_owned(), 0).await?;
    gone(remote.rmdir(&dir.fh, name.as_bytes()).await).map_err(failed)
}

/// It was there a moment ago: somebody else, or a request of ours whose reply was lost, removed it first.
fn gone(done: std::result::Result<(), ClientError>) -> std::result::Result<(), ClientError> {
    match done {
        Err(e) if e.status() == Some(Status::NoEnt) => Ok(()),
        done => done,
    }
}

/// Removes all that is in a directory.
fn empty(remote: Remote, dir: Node, url: String, depth: usize) -> Pin<Box<dyn Future<Output = Result> + Send>> {
    Box::pin(async move {
        if depth > DEPTH_MAX {
            return Err(Error::refused(url, "directories lie too deep in one another"));
        }
        let mut pool = Pool::default();
        let below = |name: &[u8]| crate::out::below(&url, name);
        let Listing { entries, unknown } = remote.list(&dir.fh).await.map_err(Error::remote(&url))?;
        for entry in entries {
            let inner = below(&entry.name);
            if entry.node.is_dir() {
                empty(remote.clone(), entry.node, inner.clone(), depth + 1).await?;
                gone(remote.rmdir(&dir.fh, &entry.name).await).map_err(Error::remote(inner))?;
            } else {
                pool.spawn(remove_one(remote.clone(), dir.fh.clone(), entry.name, inner)).await?;
            }
        }
        pool.finish().await?;
        // The directory stays, with what could not be looked at.
        unknown.into_iter().next().map_or(Ok(()), |(name, e)| Err(Error::remote(below(&name))(e)))
    })
}

async fn remove_one(remote: Remote, dir: Fh, name: bytes::Bytes, url: String) -> Result {
    gone(remote.remove(&dir, &name).await).map_err(Error::remote(url))
}
