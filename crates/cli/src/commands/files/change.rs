//! `remora mkdir`, `mv` and `rm`: commands that change names on a server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use clap::Args;
use remora_host::client::ClientError;
use remora_wire::nfs3::{Attr, Fh, Status};

use crate::commands::files::operands::OperandErrors;
use crate::config::settings::names;
use crate::cp::transfer::destination::no_directory;
use crate::output::exit::{Error, Result};
use crate::output::{escape, stdio};
use crate::remote::concurrency::{Ahead, NEAR_MAX, Pool};
use crate::remote::filesystem::{NameIn, Remote};
use crate::remote::flags::LinkArgs;
use crate::remote::listing::Node;
use crate::remote::listing::{DEPTH_MAX, Listing};
use crate::remote::servers::{Place, Servers};

pub(crate) const MKDIR_HELP: &str = "\
Examples:
  remora mkdir nfs://nas/home/photos
  remora mkdir -p nfs://nas/home/photos/2026/november";

#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    /// Create missing parents; accept existing directories
    #[arg(short)]
    pub(crate) parents: bool,
    /// Directories to create
    #[arg(value_name = "URL", required = true, value_parser = names::url)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

/// The server applies no umask; this is the usual one.
const MODE: u32 = 0o755;

pub(crate) async fn mkdir(args: Mkdir) -> Result {
    let mut servers = Servers::new(args.link);
    let mut several = OperandErrors::new("mkdir");
    for url in &args.urls {
        several.settle(make_all(&mut servers, url, args.parents).await)?;
    }
    several.finish()
}

async fn make_all(servers: &mut Servers, url: &str, parents: bool) -> Result {
    if !parents {
        let place = servers.entry(url).await?;
        return make(&place, &place.parts, false).await;
    }
    let place = servers.place(url).await?;
    for depth in 1..=place.parts.len() {
        make(&place, &place.parts[..depth], true).await?;
    }
    Ok(())
}

async fn make(place: &Place, parts: &[String], may_exist: bool) -> Result {
    let failed = |e| Error::remote(&place.url)(e);
    let Some((dir, name)) = place.remote.parent(parts).await.map_err(failed)? else {
        return if may_exist { Ok(()) } else { Err(failed(Status::Exist.into())) };
    };
    let remote = &place.remote;
    let sent_before = remote.session().stats().retransmissions;
    match remote.mkdir(&dir.fh, name.as_bytes(), MODE).await {
        // Also what a server says that was asked twice, or of a parent it may not change.
        Err(e) if may_exist && is_dir(place, parts).await => drop(e),
        Err(e) if e.status() == Some(Status::Exist) && remote.session().stats().retransmissions > sent_before => {
            if !is_ours(remote, &dir, name).await {
                return Err(failed(e));
            }
        }
        Err(e) if e.status() == Some(Status::Exist) && parts.len() < place.parts.len() => {
            return Err(Error::refused(
                &place.url,
                format!("{} is not a directory", escape::printable(name.as_bytes())),
            ));
        }
        made => drop::<Node>(made.map_err(failed)?),
    }
    Ok(())
}

async fn is_dir(place: &Place, parts: &[String]) -> bool {
    place.remote.walk(parts, true).await.is_ok_and(|node| node.is_dir())
}

/// Whether a request that was sent again made what is now in its way: the server may have forgotten that before it
/// could say so. Then `dir` has changed since it was looked at, and in it is a directory as new as that, still empty.
/// When in doubt it is not: who takes directories for locks must not have one that is another's.
async fn is_ours(remote: &Remote, dir: &Node, name: &str) -> bool {
    let time = |attr: &Attr| (attr.mtime.secs, attr.mtime.nanos);
    let before = time(&dir.attr);
    let Ok(made) = remote.lookup(&dir.fh, name.as_bytes()).await else { return false };
    let is_new = made.is_dir() && time(&made.attr) >= before;
    is_new
        && remote.getattr(&dir.fh).await.is_ok_and(|now| time(&now) != before)
        && remote.list(&made.fh).await.is_ok_and(|all| all.entries.is_empty() && all.unknown.is_empty())
}

pub(crate) const MV_HELP: &str = "\
Examples:
  remora mv nfs://nas/home/draft.txt nfs://nas/home/final.txt
  remora mv nfs://nas/home/final.txt nfs://nas/home/archive/";

#[derive(Args, Debug)]
pub(crate) struct Mv {
    /// What to move or rename
    #[arg(value_name = "URL", value_parser = names::url)]
    pub(crate) from: String,
    /// New name, or a directory to move into
    #[arg(value_name = "NEW-URL", value_parser = names::url)]
    pub(crate) to: String,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

pub(crate) async fn mv(args: Mv) -> Result {
    let mut servers = Servers::new(args.link);
    let (from, to) = (servers.entry(&args.from).await?, servers.place(&args.to).await?);
    if from.remote.session().server() != to.remote.session().server() {
        return Err(Error::Usage("mv works within one server; use cp and rm between servers".into()));
    }
    let failed_from = |e| Error::remote(&args.from)(e);
    let failed_to = |e| Error::remote(&args.to)(e);
    let remote = &from.remote;
    let Some((from_dir, name)) = remote.parent(&from.parts).await.map_err(failed_from)? else {
        return Err(Error::refused(&args.from, "is the root of the export and cannot be moved"));
    };
    let node = remote.lookup(&from_dir.fh, name.as_bytes()).await.map_err(failed_from)?;
    let there = match to.remote.walk(&to.parts, true).await {
        Err(e) if e.status() == Some(Status::NoEnt) => None,
        there => Some(there.map_err(failed_to)?),
    };
    let is_there = there.is_some();
    let (to_dir, new_name) = match (there, to.remote.parent(&to.parts).await) {
        (Some(dir), _) if dir.is_dir() => (dir, name),
        _ if to.is_dir && !node.is_dir() => return Err(Error::refused(&args.to, no_directory(is_there))),
        (_, Ok(Some(found))) => found,
        (_, Ok(None)) => return Err(Error::refused(&args.to, "is the root of the export")),
        (_, Err(e)) => return Err(failed_to(e)),
    };
    let is_same = from.path == to.path || (from_dir.fh == to_dir.fh && name == new_name);
    let is_into_itself = node.fh == to_dir.fh || is_below(&to.path, &from.path);
    let here = NameIn { dir: &from_dir.fh, name: name.as_bytes() };
    let there = NameIn { dir: &to_dir.fh, name: new_name.as_bytes() };
    if is_same {
        return Err(Error::refused(&args.to, "source and destination are the same"));
    }
    match remote.rename(&node, here, there).await {
        // It is for the server to say so: what a path leads to is not known here where there are links.
        Err(e) if e.status() == Some(Status::Inval) && node.is_dir() && is_into_itself => {
            Err(Error::refused(&args.from, format!("cannot be moved into itself ({})", args.to)))
        }
        moved => moved.map_err(failed_to),
    }
}

/// Whether a path leads through a directory that has the other one.
fn is_below(path: &str, dir: &str) -> bool {
    path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'))
}

pub(crate) const RM_HELP: &str = "\
Examples:
  remora rm nfs://nas/home/old.txt
  remora rm -r nfs://nas/home/photos/2019";

#[derive(Args, Debug)]
pub(crate) struct Rm {
    /// Remove directories recursively
    #[arg(short, long)]
    pub(crate) recursive: bool,
    /// Ignore files that do not exist
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Files to remove; with -r also directories
    #[arg(value_name = "URL", required = true, value_parser = names::url)]
    pub(crate) urls: Vec<String>,
    #[command(flatten)]
    pub(crate) link: LinkArgs,
}

const COMMAND: &str = "rm";

pub(crate) async fn rm(args: Rm) -> Result {
    let mut servers = Servers::new(args.link.clone());
    let told = SharedErrors::default();
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
struct SharedErrors(Arc<Mutex<OperandErrors>>);

impl Default for SharedErrors {
    fn default() -> SharedErrors {
        SharedErrors(Arc::new(Mutex::new(OperandErrors::new(COMMAND))))
    }
}

impl SharedErrors {
    /// As [`OperandErrors::settle`], without holding the lock while it prints.
    fn settle(&self, result: Result) -> Result {
        let untold = self.0.lock().unwrap_or_else(PoisonError::into_inner).add(result)?;
        if let Some(untold) = untold {
            stdio::print_error(COMMAND, &untold);
        }
        Ok(())
    }

    fn finish(&self) -> Result {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).finish()
    }
}

async fn remove(args: &Rm, place: &Place, url: &str, told: &SharedErrors) -> Result {
    let remote = &place.remote;
    let failed = |e| Error::remote(url)(e);
    let gone_is_fine = |e: Error| if args.force && e.status() == Some(Status::NoEnt) { Ok(()) } else { Err(e) };
    let (dir, name) = match remote.parent(&place.parts).await.map_err(failed) {
        Ok(Some(found)) => found,
        Ok(None) => return Err(Error::refused(url, "is the root of the export and cannot be removed")),
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
        return Err(Error::refused(url, "is a directory; use -r to remove it"));
    }
    let name = Bytes::copy_from_slice(name.as_bytes());
    let top = RemovedDir {
        fh: node.fh,
        parent: dir.fh,
        name,
        way: DirOrigin::Named(url.to_owned()),
        stays: AtomicBool::new(false),
    };
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
struct RemovedDir {
    fh: Fh,
    /// Where it lies, under which name.
    parent: Fh,
    name: Bytes,
    way: DirOrigin,
    /// Something in it could not be removed, and that was told.
    stays: AtomicBool,
}

/// How a directory was come by.
enum DirOrigin {
    /// By its URL.
    Named(String),
    /// It lies in this one.
    In(Arc<RemovedDir>),
}

impl RemovedDir {
    fn inside(above: &Arc<RemovedDir>, name: Bytes, node: Node) -> RemovedDir {
        let way = DirOrigin::In(above.clone());
        RemovedDir { fh: node.fh, parent: above.fh.clone(), name, way, stays: AtomicBool::new(false) }
    }

    /// It, and those in which it lies, from within.
    fn way_up(&self) -> impl Iterator<Item = &RemovedDir> {
        std::iter::successors(Some(self), |dir| match &dir.way {
            DirOrigin::Named(_) => None,
            DirOrigin::In(above) => Some(above),
        })
    }

    /// How many lie between it and the one that was named, that one included.
    fn depth(&self) -> usize {
        self.way_up().count() - 1
    }

    fn url(&self) -> String {
        match &self.way {
            DirOrigin::Named(url) => url.clone(),
            DirOrigin::In(above) => escape::child_url(&above.url(), &self.name),
        }
    }

    /// What became of something in it, or of itself: if that stays, so does all in which it lies.
    fn settle(&self, told: &SharedErrors, result: Result) -> Result {
        if result.is_err() {
            self.way_up().for_each(|dir| dir.stays.store(true, Ordering::Relaxed));
        }
        told.settle(result)
    }
}

/// Removes a directory and all that is in it, but what cannot be removed and the directories in which that lies.
async fn remove_tree(remote: &Remote, top: RemovedDir, told: &SharedErrors) -> Result {
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
            dir.settle(told, Err(Error::remote(escape::child_url(&dir.url(), &name))(e)))?;
        }
        let is_deepest = dir.depth() >= DEPTH_MAX;
        for entry in entries {
            if entry.node.is_dir() && is_deepest {
                let url = escape::child_url(&dir.url(), &entry.name);
                dir.settle(told, Err(Error::refused(url, "directories are nested too deeply")))?;
            } else if entry.node.is_dir() {
                listed.push(Arc::new(RemovedDir::inside(&dir, entry.name, entry.node)));
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
async fn remove_emptied(
    remote: &Remote,
    mut dirs: Vec<Arc<RemovedDir>>,
    mut pool: Pool,
    told: &SharedErrors,
) -> Result {
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

async fn list(
    remote: Remote,
    dir: Arc<RemovedDir>,
) -> (Arc<RemovedDir>, std::result::Result<Option<Listing>, ClientError>) {
    let early = remote.list_early(&dir.fh, dir.depth()).await;
    (dir, early)
}

async fn remove_one(remote: Remote, dir: Arc<RemovedDir>, name: Bytes, told: SharedErrors) -> Result {
    let removed = gone(remote.remove(&dir.fh, &name).await);
    dir.settle(&told, removed.map_err(|e| Error::remote(escape::child_url(&dir.url(), &name))(e)))
}

async fn remove_dir(remote: Remote, dir: Arc<RemovedDir>, told: SharedErrors) -> Result {
    let removed = gone(remote.rmdir(&dir.parent, &dir.name).await);
    dir.settle(&told, removed.map_err(|e| Error::remote(dir.url())(e)))
}
