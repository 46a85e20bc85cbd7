//! The scratch directory on the server: created, filled and removed.

use bytes::Bytes;
use remora_client::Transport;
use remora_host::client::{ClientError, Session};
use remora_wire::nfs3::{
    Call, CommitArgs, CreateArgs, CreateHow, DirOp, Fh, MadeOk, MkDirArgs, ReadDirArgs, Reply, SetAttr, Stable, Status,
    SymLinkArgs, WriteArgs,
};
use tokio::task::JoinSet;

use super::plan::{Image, Span};

const WHOLE: usize = 16 << 20;
/// Number of small files, and bytes in each.
const SMALL: (usize, usize) = (64, 64 << 10);
/// Bytes of a WRITE while the files are filled.
const BLOCK: usize = 32 << 10;
const AT_ONCE: usize = 32;
/// Removed entries after which a directory that stays non-empty is given up.
const PAGES_MAX: usize = 100_000;

type Result<T = ()> = std::result::Result<T, ClientError>;

pub(super) fn image() -> Image {
    Image::new(WHOLE)
}

/// Makes a call and unpacks the results.
macro_rules! ask {
    ($session:expr, $proc:ident($args:expr)) => {
        match $session.ok(Call::$proc($args)).await {
            Ok(Reply::$proc(Ok(ok))) => Ok(ok),
            Ok(_) => Err(ClientError::Closed),
            Err(e) => Err(e),
        }
    };
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct FileNeeds {
    pub(super) small: bool,
    pub(super) data: bool,
    pub(super) sync: bool,
    pub(super) many: bool,
}

impl FileNeeds {
    pub(super) fn and(self, other: FileNeeds) -> FileNeeds {
        FileNeeds {
            small: self.small || other.small,
            data: self.data || other.data,
            sync: self.sync || other.sync,
            many: self.many || other.many,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct ScratchFiles {
    pub(super) dir: Fh,
    pub(super) small: Vec<Small>,
    pub(super) link: Fh,
    /// Holds the files that operations make.
    pub(super) new: Fh,
    pub(super) many: Option<Fh>,
    pub(super) data: Fh,
    pub(super) sync: Fh,
    pub(super) whole: Span,
}

#[derive(Clone, Debug)]
pub(super) struct Small {
    pub(super) name: Bytes,
    pub(super) fh: Fh,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct Scratch {
    session: Session,
    pub(super) name: String,
    /// `None` until [`Scratch::open`] if MKDIR returned no handle.
    fh: Option<Fh>,
}

impl Scratch {
    /// Creates an empty directory with a unique name. From here on it must be removed.
    pub(super) async fn make(session: Session, name: String) -> Result<Scratch> {
        let fh = make_dir(&session, &at(session.root(), name.as_bytes())).await?;
        Ok(Scratch { session, name, fh })
    }

    pub(super) fn transport(&self) -> Transport {
        self.session.transport()
    }

    /// Prepares it and returns the largest READ and WRITE.
    pub(super) async fn open(&mut self) -> Result<(u32, u32)> {
        if self.fh.is_none() {
            let at = at(self.session.root(), self.name.as_bytes());
            self.fh = Some(ask!(self.session, Lookup(at))?.fh);
        }
        let info = ask!(self.session, FsInfo(self.session.root().clone()))?;
        Ok((info.read_max, info.write_max))
    }

    pub(super) async fn fill(&self, image: &Image, needs: FileNeeds) -> Result<ScratchFiles> {
        let whole = Span { base: 0, len: WHOLE };
        let top = self.fh.as_ref().ok_or(ClientError::Closed)?;
        let dir = mkdir(&self.session, top, "files").await?;
        let mut small = Vec::new();
        for n in 0..SMALL.0 {
            let (name, span) = (format!("file {n:02}"), Span { base: n * SMALL.1, len: SMALL.1 });
            let fh = create(&self.session, &dir, &name).await?;
            if needs.small {
                write(&self.session, &fh, image, span).await?;
            }
            small.push(Small { name: name.into(), fh, span });
        }
        let attr = SetAttr::NONE;
        let target = Bytes::from_static(b"file 00");
        let at = at(&dir, b"link");
        let made = ask!(self.session, SymLink(SymLinkArgs { at: at.clone(), attr, target }))?;
        let link = handle(&self.session, at, made).await?;
        let new = mkdir(&self.session, top, "new").await?;
        let many = if needs.many { Some(mkdir(&self.session, top, "many").await?) } else { None };
        let data = create(&self.session, top, "data").await?;
        let sync = create(&self.session, top, "sync").await?;
        for (fh, needed) in [(&data, needs.data), (&sync, needs.sync)] {
            if needed {
                write(&self.session, fh, image, whole).await?;
            }
        }
        Ok(ScratchFiles { dir, small, link, new, many, data, sync, whole })
    }

    /// Removes the directory and its content.
    pub(super) async fn remove(&self) -> Result {
        // Without a handle nothing was created in it.
        if let Some(top) = &self.fh {
            for name in ["files", "new", "many"] {
                match ask!(self.session, Lookup(at(top, name.as_bytes()))) {
                    Ok(found) => {
                        self.remove_files(&found.fh).await?;
                        self.remove_empty(top, name).await?;
                    }
                    Err(e) if e.status() == Some(Status::NoEnt) => {}
                    Err(e) => return Err(e),
                }
            }
            self.remove_files(top).await?;
        }
        self.remove_empty(self.session.root(), &self.name).await
    }

    /// Removes all files of a directory.
    async fn remove_files(&self, fh: &Fh) -> Result {
        for _ in 0..PAGES_MAX {
            // From the start each time: removals change the cookies of some servers.
            let args = ReadDirArgs { dir: fh.clone(), cookie: 0, verf: [0; 8], count: 8 << 10 };
            let page = ask!(self.session, ReadDir(args))?;
            let names = page.entries.list.into_iter().map(|e| e.name).filter(|n| !matches!(&n[..], b"." | b".."));
            let calls: Vec<Call> = names.map(|n| Call::Remove(at(fh, &n))).collect();
            if calls.is_empty() {
                break;
            }
            all(&self.session, calls, Some(Status::NoEnt)).await?;
        }
        Ok(())
    }

    async fn remove_empty(&self, parent: &Fh, name: &str) -> Result {
        match ask!(self.session, RmDir(at(parent, name.as_bytes()))) {
            // The first reply may have been lost.
            Err(e) if e.status() == Some(Status::NoEnt) => Ok(()),
            done => done.map(|_| ()),
        }
    }
}

/// Makes concurrent calls; each must succeed or fail acceptably.
async fn all(session: &Session, calls: Vec<Call>, fine: Option<Status>) -> Result {
    let mut under_way = JoinSet::new();
    let judge = |done: std::result::Result<Result<Reply>, _>| match done {
        Ok(Err(e)) if fine.is_none() || e.status() != fine => Err(e),
        Ok(_) => Ok(()),
        Err(_) => Err(ClientError::Closed),
    };
    for call in calls {
        if under_way.len() >= AT_ONCE
            && let Some(done) = under_way.join_next().await
        {
            judge(done)?;
        }
        let session = session.clone();
        under_way.spawn(async move { session.ok(call).await });
    }
    while let Some(done) = under_way.join_next().await {
        judge(done)?;
    }
    Ok(())
}

async fn mkdir(session: &Session, dir: &Fh, name: &str) -> Result<Fh> {
    let at = at(dir, name.as_bytes());
    match make_dir(session, &at).await? {
        Some(fh) => Ok(fh),
        None => Ok(ask!(session, Lookup(at))?.fh),
    }
}

/// Creates a directory with a unique name; returns its handle if the server gives it.
async fn make_dir(session: &Session, at: &DirOp) -> Result<Option<Fh>> {
    let attr = SetAttr { mode: Some(0o755), ..SetAttr::NONE };
    match ask!(session, MkDir(MkDirArgs { at: at.clone(), attr })) {
        Ok(made) => Ok(made.fh),
        // A retransmission: the first reply was lost.
        Err(e) if e.status() == Some(Status::Exist) => Ok(None),
        Err(e) => Err(e),
    }
}

async fn create(session: &Session, dir: &Fh, name: &str) -> Result<Fh> {
    let at = at(dir, name.as_bytes());
    let how = CreateHow::Guarded(SetAttr { mode: Some(0o644), ..SetAttr::NONE });
    let made = ask!(session, Create(CreateArgs { at: at.clone(), how }))?;
    handle(session, at, made).await
}

/// The handle of a created file; servers may omit it.
async fn handle(session: &Session, at: DirOp, made: MadeOk) -> Result<Fh> {
    match made.fh {
        Some(fh) => Ok(fh),
        None => Ok(ask!(session, Lookup(at))?.fh),
    }
}

async fn write(session: &Session, fh: &Fh, image: &Image, span: Span) -> Result {
    let block = if session.transport() == Transport::Udp { BLOCK / 4 } else { BLOCK };
    let calls = (0..span.len).step_by(block).map(|offset| {
        let data = Bytes::copy_from_slice(image.bytes(span, offset as u64, block));
        let (offset, count) = (offset as u64, data.len() as u32);
        Call::Write(WriteArgs { fh: fh.clone(), offset, count, stable: Stable::Unstable, data })
    });
    all(session, calls.collect(), None).await?;
    ask!(session, Commit(CommitArgs { fh: fh.clone(), offset: 0, count: 0 })).map(|_| ())
}

fn at(dir: &Fh, name: &[u8]) -> DirOp {
    DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name) }
}
