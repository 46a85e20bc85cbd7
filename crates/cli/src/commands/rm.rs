//! `remora rm`: removes files, and with `-r` directories and all that is in them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Fh, Status};

use super::several::Several;
use crate::ahead::Ahead;
use crate::args::Rm;
use crate::exit::{self, Error, Result};
use crate::listing::DEPTH_MAX;
use crate::out;
use crate::pool::{NEAR_MAX, Pool};
use crate::remote::{Listing, Node, Remote};
use crate::servers::{Place, Servers};

const COMMAND: &str = "rm";

pub(crate) async fn run(args: Rm) -> Result {
    let mut servers = Servers::new(args.link.clone());
    let told = Told::default();
    for url in &args.urls {
        let removed = match servers.entry(url).await {
            Ok(place) => remove(&args, &place, url, &told).await,
            Err(e) => Err(e),
        };
        told.settle(removed)?;
    }
    told.finish()
}

/// What could not be removed, by whichever job.
#[derive(Clone)]
struct Told(Arc<Mutex<Several>>);

impl Default for Told {
    fn default() -> Told {
        Told(Arc::new(Mutex::new(Several::new(COMMAND))))
    }
}

impl Told {
    /// As [`Several::settle`], but others do not wait while it is told.
    fn settle(&self, result: Result) -> Result {
        let untold = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(result)?;
        if let Some(untold) = untold {
            exit::show(COMMAND, &untold);
        }
        Ok(())
    }

    fn finish(&self) -> Result {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

async fn remove(args: &Rm, place: &Place, url: &str, told: &Told) -> Result {
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
    let name = Bytes::copy_from_slice(name.as_bytes());
    let top = Dir { fh: node.fh, parent: dir.fh, name, way: Way::Named(url.to_owned()), stays: AtomicBool::new(false) };
    remove_tree(remote, top, told).await
}

/// It was there a moment ago: somebody else, or a request of ours whose reply was lost, removed it first.
fn gone(done: std::result::Result<(), ClientError>) -> std::result::Result<(), ClientError> {
    match done {
        Err(e) if e.status() == Some(Status::NoEnt) => Ok(()),
        done => done,
    }
}

/// A directory that is to be removed with all that is in it.
struct Dir {
    fh: Fh,
    /// Where it lies, under which name.
    parent: Fh,
    name: Bytes,
    way: Way,
    /// Something in it could not be removed, and that was told.
    stays: AtomicBool,
}

/// How a directory was come by.
enum Way {
    /// By its URL.
    Named(String),
    /// It lies in this one.
    In(Arc<Dir>),
}

impl Dir {
    fn inside(above: &Arc<Dir>, name: Bytes, node: Node) -> Dir {
        let way = Way::In(above.clone());
        Dir { fh: node.fh, parent: above.fh.clone(), name, way, stays: AtomicBool::new(false) }
    }

    /// It, and those in which it lies, from within.
    fn way_up(&self) -> impl Iterator<Item = &Dir> {
        std::iter::successors(Some(self), |dir| match &dir.way {
            Way::Named(_) => None,
            Way::In(above) => Some(above),
        })
    }

    /// How many lie between it and the one that was named, that one included.
    fn depth(&self) -> usize {
        self.way_up().count() - 1
    }

    fn url(&self) -> String {
        match &self.way {
            Way::Named(url) => url.clone(),
            Way::In(above) => out::below(&above.url(), &self.name),
        }
    }

    /// What became of something in it, or of itself: if that stays, so does all in which it lies.
    fn settle(&self, told: &Told, result: Result) -> Result {
        if result.is_err() {
            self.way_up().for_each(|dir| dir.stays.store(true, Ordering::Relaxed));
        }
        told.settle(result)
    }
}

/// Removes a directory and all that is in it, but what cannot be removed and the directories in which that lies.
async fn remove_tree(remote: &Remote, top: Dir, told: &Told) -> Result {
    let mut pool = Pool::new(remote.session());
    // Few at a time, for a listing is long, and where one datagram is lost, all are that make a page.
    let mut listed = Ahead::new(NEAR_MAX, |dir| list(remote.clone(), dir));
    listed.push(Arc::new(top));
    // Each behind the one in which it lies.
    let mut emptied = Vec::new();
    while let Some((dir, early)) = listed.next().await? {
        let Listing { entries, unknown } = match remote.list_now(&dir.fh, early).await {
            Ok(listing) => listing,
            Err(e) => {
                dir.settle(told, Err(Error::remote(dir.url())(e)))?;
                continue;
            }
        };
        for (name, e) in unknown {
            dir.settle(told, Err(Error::remote(out::below(&dir.url(), &name))(e)))?;
        }
        let is_deepest = dir.depth() >= DEPTH_MAX;
        for entry in entries {
            if entry.node.is_dir() && is_deepest {
                let url = out::below(&dir.url(), &entry.name);
                dir.settle(told, Err(Error::refused(url, "directories lie too deep in one another")))?;
            } else if entry.node.is_dir() {
                listed.push(Arc::new(Dir::inside(&dir, entry.name, entry.node)));
            } else {
                pool.spawn(0, remove_one(remote.clone(), dir.clone(), entry.name, told.clone())).await?;
            }
        }
        emptied.push(dir);
    }
    pool.finish().await?;
    remove_emptied(remote, emptied, pool, told).await
}

/// Removes these, the deepest first; those that lie equally deep side by side.
async fn remove_emptied(remote: &Remote, mut dirs: Vec<Arc<Dir>>, mut pool: Pool, told: &Told) -> Result {
    while let Some(depth) = dirs.last().map(|dir| dir.depth()) {
        while let Some(dir) = dirs.pop_if(|dir| dir.depth() == depth) {
            if !dir.stays.load(Ordering::Relaxed) {
                pool.spawn(0, remove_dir(remote.clone(), dir, told.clone())).await?;
            }
        }
        pool.finish().await?;
    }
    Ok(())
}

async fn list(remote: Remote, dir: Arc<Dir>) -> (Arc<Dir>, std::result::Result<Option<Listing>, ClientError>) {
    let early = remote.list_early(&dir.fh, dir.depth()).await;
    (dir, early)
}

async fn remove_one(remote: Remote, dir: Arc<Dir>, name: Bytes, told: Told) -> Result {
    let removed = gone(remote.remove(&dir.fh, &name).await);
    dir.settle(&told, removed.map_err(|e| Error::remote(out::below(&dir.url(), &name))(e)))
}

async fn remove_dir(remote: Remote, dir: Arc<Dir>, told: Told) -> Result {
    let removed = gone(remote.rmdir(&dir.parent, &dir.name).await);
    dir.settle(&told, removed.map_err(|e| Error::remote(dir.url())(e)))
}
