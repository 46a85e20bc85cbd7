//! The files below a mounted directory: look-ups, listings, and the NFS calls of the commands.

use crate::remote::listing::Node;
use std::collections::HashSet;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use remora_client::{CallFailure, Transport};
use remora_host::client::{ClientError, Session, TransferLimits};
use remora_wire::nfs3::{
    Attr, Call, CreateArgs, CreateHow, DirOp, Entries, EntryPlus, Fh, FileType, FsStatOk, MadeOk, MkDirArgs, ReadArgs,
    ReadDirArgs, ReadDirOk, ReadDirPlusArgs, ReadDirPlusOk, ReadOk, RenameArgs, Reply, SetAttr, SetAttrArgs, Status,
    SymLinkArgs,
};
use remora_wire::rpc::Outcome;
use tokio::sync::OnceCell;
use tokio::task::{JoinError, JoinSet};

use crate::output::escape;
use crate::remote::concurrency::jobs_max;
use crate::remote::listing::{Entry, Listing, Taken, own};
use crate::remote::stall_notice::StallMonitor;

/// What a server's answer comes to.
type Result<T = ()> = std::result::Result<T, ClientError>;
/// A name, and what has it.
type LookedUp = (Bytes, Result<Option<Node>>);

/// Most symbolic links in a path, as on Linux.
const LINKS_MAX: usize = 40;
/// Most restarts of a listing whose directory changes.
const LISTINGS_MAX: usize = 5;
/// Largest listing in bytes that is held before its turn: some thousand entries.
const EARLY_MAX: usize = 1 << 20;

/// Makes a call, and takes the results out of its reply.
macro_rules! ask {
    ($remote:expr, $proc:ident($args:expr)) => {
        match $remote.session.ok(Call::$proc($args)).await {
            Ok(Reply::$proc(Ok(ok))) => Ok(ok),
            Ok(_) => Err(ClientError::Closed),
            Err(e) => Err(e),
        }
    };
}

/// A page of READDIR as one of READDIRPLUS.
fn with_nothing_known(page: ReadDirOk) -> ReadDirPlusOk {
    let entry = |e: remora_wire::nfs3::Entry| EntryPlus {
        fileid: e.fileid,
        name: e.name,
        cookie: e.cookie,
        attr: None,
        fh: None,
    };
    let entries = Entries { list: page.entries.list.into_iter().map(entry).collect(), eof: page.entries.eof };
    ReadDirPlusOk { dir: page.dir, verf: page.verf, entries }
}

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct NameIn<'a> {
    pub(crate) dir: &'a Fh,
    pub(crate) name: &'a [u8],
}

/// A mounted server; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    session: Session,
    info: Arc<OnceCell<Info>>,
    /// The server lacks READDIRPLUS.
    lists_names_only: Arc<AtomicBool>,
    /// The file handle changes on rename.
    handles_follow_names: Arc<AtomicBool>,
    /// Ends with the last clone.
    _watch: Option<Arc<StallMonitor>>,
}

/// What FSINFO says.
#[derive(Clone, Debug)]
struct Info {
    limits: TransferLimits,
    /// Of the mounted directory, if the server says.
    attr: Option<Attr>,
}

impl Remote {
    /// `watch` reports stalls.
    pub(crate) fn new(session: Session, watch: Option<StallMonitor>) -> Remote {
        Remote {
            session,
            info: Arc::default(),
            lists_names_only: Arc::default(),
            handles_follow_names: Arc::default(),
            _watch: watch.map(Arc::new),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Whether both are the same directory of the same server over the same transport.
    pub(crate) fn is_same(&self, other: &Remote) -> bool {
        let what = |remote: &Remote| (remote.session.transport(), remote.session.root().clone());
        what(self) == what(other) && self.session.server() == other.session.server()
    }

    /// Whether a rename changed a file handle, as on servers that store objects by path.
    pub(crate) fn handles_follow_names(&self) -> bool {
        self.handles_follow_names.load(Relaxed)
    }

    /// Records that a rename changed a file handle.
    pub(crate) fn note_handles_follow_names(&self) {
        self.handles_follow_names.store(true, Relaxed);
    }

    /// The largest blocks.
    pub(crate) async fn limits(&self) -> Result<TransferLimits> {
        Ok(self.info().await?.limits)
    }

    /// The answer to FSINFO, requested once.
    async fn info(&self) -> Result<&Info> {
        let ask = || async {
            let root = self.session.root();
            // Otherwise a lost GETATTR would delay the call.
            let (mut fsinfo, mut getattr) =
                (pin!(async { ask!(self, FsInfo(root.clone())) }), pin!(self.getattr(root)));
            let (info, early) = tokio::select! {
                info = &mut fsinfo => {
                    let tells = info.as_ref().is_ok_and(|info| info.attr.is_some());
                    (info, if tells { None } else { getattr.await.ok() })
                }
                attr = &mut getattr => (fsinfo.await, attr.ok()),
            };
            let (read_max, write_max, attr) = match info {
                Ok(info) => (info.read_max, info.write_max, info.attr.or(early)),
                Err(e) if is_missing(&e) => (0, 0, early),
                Err(e) => return Err(e),
            };
            // A server that says nothing gets blocks that every server takes.
            let known = |n: u32| if n == 0 { 8192 } else { n };
            let limits = TransferLimits { read_max: known(read_max), write_max: known(write_max) };
            Ok::<_, ClientError>(Info { limits, attr })
        };
        self.info.get_or_try_init(ask).await
    }

    /// The mounted directory.
    pub(crate) async fn root(&self) -> Result<Node> {
        let attr = match self.info().await {
            Ok(info) => info.attr.clone(),
            // GETATTR may be allowed where that is not. Who did not answer will not do it now.
            Err(e) if e.status().is_some() => None,
            Err(e) => return Err(e),
        };
        self.node(self.session.root().clone(), attr).await
    }

    pub(crate) async fn getattr(&self, fh: &Fh) -> Result<Attr> {
        ask!(self, GetAttr(fh.clone()))
    }

    /// Looks up `name` in `dir`.
    pub(crate) async fn lookup(&self, dir: &Fh, name: &[u8]) -> Result<Node> {
        let ok = ask!(self, Lookup(at(dir, name)))?;
        self.node(ok.fh, ok.attr).await
    }

    /// Looks up `name` in `dir`; `None` if it does not exist.
    pub(crate) async fn find(&self, dir: &Fh, name: &[u8]) -> Result<Option<Node>> {
        match self.lookup(dir, name).await {
            Err(e) if e.status() == Some(Status::NoEnt) => Ok(None),
            found => found.map(Some),
        }
    }

    async fn node(&self, fh: Fh, attr: Option<Attr>) -> Result<Node> {
        let attr = match attr {
            Some(attr) => attr,
            None => self.getattr(&fh).await?,
        };
        Ok(Node { fh: own(&fh), attr })
    }

    /// Resolves a path below the mounted directory. Follows relative symbolic links in it, the last one only with
    /// `follow`.
    pub(crate) async fn walk(&self, parts: &[String], follow: bool) -> Result<Node> {
        let (mut way, _) = self.way(names(parts), follow).await?;
        way.pop().ok_or_else(|| Status::Inval.into())
    }

    /// The same with all links followed, and the directory that holds it with its name there; `None` for
    /// the mounted directory itself.
    pub(crate) async fn end(&self, path: Vec<Bytes>) -> Result<(Node, Option<(Node, Bytes)>)> {
        let (mut way, name) = self.way(path, true).await?;
        let end = way.pop().ok_or(Status::Inval)?;
        Ok((end, way.pop().map(|dir| (dir, name))))
    }

    /// All directories on the way to what a path means, it itself, and its name where it lies, if it is no directory.
    async fn way(&self, mut todo: Vec<Bytes>, follow: bool) -> Result<(Vec<Node>, Bytes)> {
        // Both at once, for a round trip may be long.
        let (root, first) = tokio::join!(self.root(), self.first(todo.first()));
        let (mut way, mut first) = (vec![root?], first);
        todo.reverse();
        let (mut links, mut last) = (0, Bytes::new());
        while let Some(name) = todo.pop() {
            let here = way.last().ok_or(Status::Inval)?;
            match &name[..] {
                b"" | b"." => continue,
                b".." if way.len() > 1 => {
                    way.pop();
                    continue;
                }
                // Above what is mounted the server knows the way, and where its export ends.
                _ if !here.is_dir() => return Err(Status::NotDir.into()),
                _ => {}
            }
            let next = match first.take() {
                Some(found) => found?,
                None => self.lookup(&here.fh, &name).await?,
            };
            if next.attr.kind != FileType::SymLink || (todo.is_empty() && !follow) {
                way.push(next);
                last = name;
                continue;
            }
            links += 1;
            let target = self.readlink(&next.fh).await?;
            if links > LINKS_MAX {
                return Err(misled("the path has too many symbolic links"));
            }
            if target.starts_with(b"/") {
                let target = escape::printable(&target);
                return Err(misled(&format!("a symbolic link points to {target}, which is outside this server")));
            }
            todo.extend(target.rsplit(|b| *b == b'/').map(Bytes::copy_from_slice));
        }
        Ok((way, last))
    }

    /// What the first part means, if it is a name.
    async fn first(&self, part: Option<&Bytes>) -> Option<Result<Node>> {
        let name = part.filter(|p| !matches!(&p[..], b"" | b"." | b".."))?;
        Some(self.lookup(self.session.root(), name).await)
    }

    /// Resolves the parent directory; returns it and the last name, or `None` for the mounted directory itself.
    pub(crate) async fn parent<'p>(&self, parts: &'p [String]) -> Result<Option<(Node, &'p str)>> {
        let Some((name, above)) = parts.split_last() else { return Ok(None) };
        let dir = self.walk(above, true).await?;
        if dir.is_dir() { Ok(Some((dir, name))) } else { Err(Status::NotDir.into()) }
    }

    /// Reads a symbolic link.
    pub(crate) async fn readlink(&self, fh: &Fh) -> Result<Bytes> {
        Ok(ask!(self, ReadLink(fh.clone()))?.target)
    }

    /// Lists a directory without `.` and `..`.
    pub(crate) async fn list(&self, dir: &Fh) -> Result<Listing> {
        // How much is taken is for [`Taken`] to say.
        Ok(self.list_within(dir, usize::MAX).await?.unwrap_or_default())
    }

    /// The same while others are still worked at, so that it may have to wait; `None` if it takes more room than
    /// many may that wait: then it is to be listed when its turn has come. It has for one with `depth` 0, from which
    /// the others are known.
    pub(crate) async fn list_early(&self, dir: &Fh, depth: usize) -> Result<Option<Listing>> {
        self.list_within(dir, if depth == 0 { usize::MAX } else { EARLY_MAX }).await
    }

    /// What became of that, or the listing now that its turn has come.
    pub(crate) async fn list_now(&self, dir: &Fh, early: Result<Option<Listing>>) -> Result<Listing> {
        match early? {
            Some(listing) => Ok(listing),
            None => self.list(dir).await,
        }
    }

    async fn list_within(&self, dir: &Fh, bytes_max: usize) -> Result<Option<Listing>> {
        let mut tries = 0;
        loop {
            tries += 1;
            match self.list_once(dir, bytes_max).await {
                Err(e) if e.status() == Some(Status::BadCookie) && tries < LISTINGS_MAX => {}
                list => return list,
            }
        }
    }

    async fn list_once(&self, dir: &Fh, bytes_max: usize) -> Result<Option<Listing>> {
        let (mut listing, mut taken) = (Listing::default(), Taken::default());
        let (mut cookie, mut verf) = (0, [0; 8]);
        // Cookies seen: a repeated one means a loop.
        let mut ends = HashSet::from([cookie]);
        loop {
            let page = self.page(dir, cookie, verf).await?;
            verf = page.verf;
            match page.entries.list.last() {
                Some(last) if !page.entries.eof && !ends.insert(last.cookie) => return Err(ClientError::Circular),
                Some(last) => cookie = last.cookie,
                None if page.entries.eof => {}
                None => return Err(Status::TooSmall.into()),
            }
            let is_last = page.entries.eof;
            let page = page.entries.list.into_iter().map(|e| taken.entry(e)).collect::<Result<_>>()?;
            if taken.bytes() > bytes_max {
                return Ok(None);
            }
            self.complete(dir, page, &mut listing).await?;
            if is_last {
                return Ok(Some(listing));
            }
        }
    }

    /// Some entries of a directory, with all that the server tells of them.
    async fn page(&self, dir: &Fh, cookie: u64, verf: [u8; 8]) -> Result<ReadDirPlusOk> {
        loop {
            // A page over UDP is small, because one lost fragment loses all of it, if not each does.
            let (dir_count, max_count) = match (self.session.transport(), self.session.reply_max()) {
                (Transport::Udp, Some(most)) => (most / 2, most),
                (Transport::Udp, None) => (2048, 8192),
                (Transport::Tcp | Transport::Atp, _) => (16 << 10, 64 << 10),
            };
            let has_names_only = self.lists_names_only.load(Relaxed);
            let page = if has_names_only {
                let query = ReadDirArgs { dir: dir.clone(), cookie, verf, count: max_count };
                ask!(self, ReadDir(query)).map(with_nothing_known)
            } else {
                let query = ReadDirPlusArgs { dir: dir.clone(), cookie, verf, dir_count, max_count };
                ask!(self, ReadDirPlus(query))
            };
            match page {
                Err(e) if is_missing(&e) && !has_names_only => self.lists_names_only.store(true, Relaxed),
                Err(ClientError::Rpc(CallFailure::Fragments))
                    if self.session.reply_max().is_some_and(|most| most < max_count) => {}
                page => return page,
            }
        }
    }

    /// Adds a page to the listing. Looks up entries without attributes, some concurrently.
    async fn complete(&self, dir: &Fh, page: Vec<EntryPlus>, listing: &mut Listing) -> Result {
        let mut asked = JoinSet::new();
        for EntryPlus { name, fh, attr, .. } in page {
            if matches!(&name[..], b"." | b"..") {
                continue;
            }
            if let (Some(fh), Some(attr)) = (fh, attr) {
                listing.entries.push(Entry { name, node: Node { fh, attr } });
                continue;
            }
            if asked.len() >= jobs_max(&self.session) {
                answered(asked.join_next().await, listing)?;
            }
            let (remote, dir) = (self.clone(), dir.clone());
            asked.spawn(async move {
                let found = remote.find(&dir, &name).await;
                (name, found)
            });
        }
        while !asked.is_empty() {
            answered(asked.join_next().await, listing)?;
        }
        Ok(())
    }

    /// Reads the first block of a file.
    pub(crate) async fn read_first(&self, fh: &Fh, count: u32) -> Result<ReadOk> {
        ask!(self, Read(ReadArgs { fh: fh.clone(), offset: 0, count }))
    }

    pub(crate) async fn fsstat(&self, fh: &Fh) -> Result<FsStatOk> {
        ask!(self, FsStat(fh.clone()))
    }

    /// Creates a directory.
    pub(crate) async fn mkdir(&self, dir: &Fh, name: &[u8], mode: u32) -> Result<Node> {
        let attr = SetAttr { mode: Some(mode), ..SetAttr::NONE };
        let made = ask!(self, MkDir(MkDirArgs { at: at(dir, name), attr }))?;
        self.made(dir, name, made).await
    }

    /// Creates an empty file with mode 0600. It must not exist.
    pub(crate) async fn create(&self, dir: &Fh, name: &[u8]) -> Result<Node> {
        let how = CreateHow::Guarded(SetAttr { mode: Some(0o600), size: Some(0), ..SetAttr::NONE });
        let made = ask!(self, Create(CreateArgs { at: at(dir, name), how }))?;
        self.made(dir, name, made).await
    }

    /// Creates a symbolic link. It must not exist.
    pub(crate) async fn symlink(&self, dir: &Fh, name: &[u8], target: Bytes) -> Result<Node> {
        let args = SymLinkArgs { at: at(dir, name), attr: SetAttr::NONE, target };
        let made = ask!(self, SymLink(args))?;
        self.made(dir, name, made).await
    }

    async fn made(&self, dir: &Fh, name: &[u8], made: MadeOk) -> Result<Node> {
        match made.fh {
            Some(fh) => self.node(fh, made.attr).await,
            None => self.lookup(dir, name).await,
        }
    }

    /// Sets attributes; returns them all.
    pub(crate) async fn setattr(&self, fh: &Fh, attr: SetAttr) -> Result<Attr> {
        let wcc = ask!(self, SetAttr(SetAttrArgs { fh: fh.clone(), attr, guard: None }))?;
        Ok(self.node(fh.clone(), wcc.after).await?.attr)
    }

    pub(crate) async fn remove(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        ask!(self, Remove(at(dir, name))).map(|_| ())
    }

    /// Removes an empty directory.
    pub(crate) async fn rmdir(&self, dir: &Fh, name: &[u8]) -> Result<()> {
        ask!(self, RmDir(at(dir, name))).map(|_| ())
    }

    /// Renames `node`, replacing what has the new name.
    pub(crate) async fn rename(&self, node: &Node, from: NameIn<'_>, to: NameIn<'_>) -> Result<()> {
        let args = RenameArgs { from: at(from.dir, from.name), to: at(to.dir, to.name) };
        match ask!(self, Rename(args)) {
            // After a lost reply a server without a reply cache answers NOENT to the repetition.
            Err(e) if e.status() == Some(Status::NoEnt) => {
                let there = self.find(to.dir, to.name).await?;
                // Where handles tell the directory or the name, too, they change on the way to another one.
                let state = |n: &Node| (n.number(), n.attr.size, n.attr.mtime);
                let is_same = |n: &Node| state(n) == state(node);
                let is_it =
                    |n: Node| n.fh == node.fh || is_same(&n) || (from.dir != to.dir && n.number() == node.number());
                if there.is_some_and(is_it) { Ok(()) } else { Err(e) }
            }
            done => done.map(|_| ()),
        }
    }
}

/// An entry was looked up.
fn answered(done: Option<std::result::Result<LookedUp, JoinError>>, listing: &mut Listing) -> Result {
    let Some(done) = done else { return Ok(()) };
    let (name, found) = done.map_err(io::Error::other)?;
    listing.take(name, found)
}

/// Whether the server lacks the procedure.
fn is_missing(e: &ClientError) -> bool {
    matches!(e, ClientError::Status(Status::NotSupp) | ClientError::Rpc(CallFailure::Rpc(Outcome::ProcUnavail)))
}

/// The parts of a path, as names.
pub(crate) fn names(parts: &[String]) -> Vec<Bytes> {
    parts.iter().map(|part| Bytes::copy_from_slice(part.as_bytes())).collect()
}

/// A path that does not lead anywhere.
fn misled(why: &str) -> ClientError {
    ClientError::Local(io::Error::other(why))
}

fn at(dir: &Fh, name: &[u8]) -> DirOp {
    DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name) }
}
