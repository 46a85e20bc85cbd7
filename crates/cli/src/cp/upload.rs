//! One file from here to a server.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use bytes::Bytes;
use remora_host::client::{self, ClientError, Progress, Written};
use remora_wire::nfs3::{Attr, Fh, FileType, NfsTime, SetAttr, SetTime};
use tokio::sync::oneshot;

use super::job::{Job, count};
use super::journal::Identity;
use super::remote_part::{Early, Named, RemotePart};
use super::verify;
use crate::exit::{self, Error, Result, io_text};
use crate::remote::{Node, Remote};

/// Where an upload goes.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) remote: Remote,
    pub(crate) dir: Node,
    pub(crate) name: Vec<u8>,
    /// What has this name, or that nothing has it, if that was just seen.
    pub(crate) old: Option<Option<Node>>,
    /// The hidden file, if it was made already.
    pub(crate) early: Option<Early>,
    /// For messages.
    pub(crate) url: String,
}

impl Destination {
    /// A name in a directory, of which nothing else is known.
    pub(crate) fn new(remote: &Remote, dir: &Node, name: Vec<u8>, url: String) -> Destination {
        Destination { remote: remote.clone(), dir: dir.clone(), name, old: None, early: None, url }
    }
}

/// Copies `source` to `dest`, which is replaced when all is on the server's disk.
pub(crate) async fn file(job: &Job, source: &Path, dest: &Destination) -> Result {
    let here = |e| Error::local(source.display())(e);
    let there = |e| Error::remote(&dest.url)(e);
    let file = File::open(source).map_err(here)?;
    let identity = Identity::of_local(&file.metadata().map_err(here)?);
    job.progress.expect(identity.size());
    let old = match &dest.old {
        Some(old) => old.clone(),
        None => dest.remote.find(&dest.dir.fh, &dest.name).await.map_err(there)?,
    };
    if let Some(old) = &old {
        check_replaceable(old, &dest.url)?;
        let may_be_whole = job.resume && !RemotePart::may_be_begun(source, dest);
        if may_be_whole && is_there(job, &file, &identity, &dest.remote, old).await.map_err(there)? {
            RemotePart::forget_begun(source, dest);
            job.progress.skip(identity.size());
            count(&job.counts.files);
            return Ok(());
        }
    }
    let mut part = RemotePart::open(job, source, &identity, dest, old.as_ref()).await.map_err(there)?;
    job.progress.skip(part.bytes());
    let filled = fill(job, source, &file, &identity, &part, dest, old.is_none()).await;
    let done = match filled {
        Ok(Filled { late, bare }) => part.finish(late).await.map(|e| e.or(bare)).map_err(there),
        Err(e) => Err(e),
    };
    let why = match done {
        Ok(bare) => {
            count(&job.counts.files);
            return bare.map_or(Ok(()), |e| Err(Error::bare(&dest.url, exit::remote_text(&e))));
        }
        Err(why) => why,
    };
    part.give_up(&why).await;
    Err(match why {
        Error::Remote { source: ClientError::Local(e), .. } => here(e),
        why => why,
    })
}

fn check_replaceable(old: &Node, url: &str) -> Result {
    match old.attr.kind {
        FileType::Regular | FileType::SymLink => Ok(()),
        FileType::Directory => Err(Error::refused(url, "is a directory")),
        _ => Err(Error::refused(url, "is not a regular file, and is not replaced by one")),
    }
}

/// Whether the copy was made before.
async fn is_there(
    job: &Job,
    file: &File,
    identity: &Identity,
    remote: &Remote,
    old: &Node,
) -> Result<bool, ClientError> {
    if old.attr.kind != FileType::Regular || !identity.is_copied_by(&Identity::of_remote(&old.attr)) {
        return Ok(false);
    }
    if !job.verify {
        return Ok(true);
    }
    let same = verify::same(reopen(file)?, remote, old).await?;
    if same {
        count(&job.counts.verified);
    }
    Ok(same)
}

/// The same file, to be read from its start.
fn reopen(file: &File) -> io::Result<File> {
    use std::os::fd::AsRawFd;
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Sends what is missing, sets mode and time, and looks whether both files are what they
/// should be. Unless round trips are short mode and time are left to be set together with the
/// name. `is_free`: nothing had the name when the copy began.
async fn fill(
    job: &Job,
    source: &Path,
    file: &File,
    identity: &Identity,
    part: &RemotePart,
    dest: &Destination,
    is_free: bool,
) -> Result<Filled> {
    let here = |e| Error::local(source.display())(e);
    let there = |e| Error::remote(&dest.url)(e);
    let Sent { seen, named } = send(job, file, part, identity.size(), is_free).await.map_err(there)?;
    let meta = file.metadata().map_err(here)?;
    let wanted = copied_attributes(&meta);
    let is_set = named.is_some_and(|n| n.is_last(&wanted, &seen, dest.remote.session()));
    let is_late = seen.size.is_some() && !job.verify && !dest.remote.session().is_near();
    let fh = &part.node.fh;
    let look = if is_set || is_late {
        None
    } else {
        let set = dest.remote.setattr(fh, wanted.clone()).await;
        Some(Look::after(set, &dest.remote, fh).await.map_err(there)?)
    };
    if look.as_ref().map(|look| look.attr.size).or(seen.size) != Some(identity.size()) {
        return Err(Error::refused(&dest.url, "the copy has not the size of its source"));
    }
    if Identity::of_local(&meta) != *identity {
        let name = source.display();
        job.note(&format!("{name}: changed while it was copied; the copy may be a mixture of old and new"));
    }
    let Some(Look { attr, bare }) = look else {
        return Ok(Filled { late: (!is_set).then_some(wanted), bare: None });
    };
    if job.verify {
        let node = Node { fh: fh.clone(), attr };
        if !verify::same(reopen(file).map_err(here)?, &dest.remote, &node).await.map_err(there)? {
            return Err(Error::Mismatch(source.display().to_string()));
        }
        count(&job.counts.verified);
    }
    Ok(Filled { late: None, bare })
}

/// All bytes are there.
struct Filled {
    /// Mode and time, if they are to be set together with the name.
    late: Option<SetAttr>,
    /// Why it has not got them, if the server took none.
    bare: Option<ClientError>,
}

/// What the file looks like once its attributes were to be set.
struct Look {
    attr: Attr,
    /// Why it has not got them, if the server took none.
    bare: Option<ClientError>,
}

impl Look {
    /// After `set`; a file that did not get its attributes is looked at all the same.
    async fn after(set: Result<Attr, ClientError>, remote: &Remote, fh: &Fh) -> Result<Look, ClientError> {
        match set {
            Err(e) if !exit::is_lost(&e) => Ok(Look { attr: remote.getattr(fh).await?, bare: Some(e) }),
            set => Ok(Look { attr: set?, bare: None }),
        }
    }
}

/// Permission bits and the time of modification.
pub(crate) fn copied_attributes(meta: &fs::Metadata) -> SetAttr {
    // NFSv3's times end in 2106 and begin in 1970.
    let secs = u32::try_from(meta.mtime().max(0)).unwrap_or(u32::MAX);
    let mtime = NfsTime { secs, nanos: meta.mtime_nsec() as u32 };
    SetAttr { mode: Some(meta.mode() & 0o777), mtime: SetTime::To(mtime), ..SetAttr::NONE }
}

/// What came of sending a file.
#[derive(Default)]
struct Sent {
    seen: Written,
    /// If the copy got its name behind its last bytes.
    named: Option<Named>,
}

/// Sends what is missing. A whole copy to a name that `is_free` may get that name while its last
/// bytes are on their way; if they do not arrive, or the name cannot be given, that is an error.
async fn send(job: &Job, file: &File, part: &RemotePart, size: u64, is_free: bool) -> Result<Sent, ClientError> {
    let missing = part.missing(size);
    if missing.is_empty() {
        return Ok(Sent::default());
    }
    let limits = part.remote.limits().await?;
    let is_whole = missing.first() == Some(&(0..size));
    let (tell, told) = oneshot::channel();
    let mut tell = Some(tell).filter(|_| is_free && is_whole && !job.verify);
    let sending = async {
        let mut sending = Sending { job, file, part, all_sent: tell.take(), is_warned: false };
        let mut seen = Written::default();
        for range in missing {
            let fh = part.node.fh.clone();
            seen = client::send(part.remote.session(), fh, range, limits, &mut sending).await?;
        }
        Ok::<_, ClientError>(seen)
    };
    let naming = async {
        // Without a word it is done when all has arrived.
        let Ok(()) = told.await else { return Ok(None) };
        part.give_name(copied_attributes(&file.metadata()?)).await
    };
    let (seen, named) = tokio::join!(sending, naming);
    Ok(Sent { seen: seen?, named: named? })
}

/// A file on its way.
struct Sending<'a> {
    job: &'a Job,
    file: &'a File,
    part: &'a RemotePart,
    /// Told when the copy may get its name.
    all_sent: Option<oneshot::Sender<()>>,
    /// That it cannot be resumed was said.
    is_warned: bool,
}

impl Progress for Sending<'_> {
    fn read(&mut self, piece: Range<u64>) -> io::Result<Bytes> {
        read(self.file, piece)
    }

    fn sent(&mut self, bytes: u64) {
        self.job.progress.add(bytes);
    }

    fn stable(&mut self, pieces: Vec<Range<u64>>) -> io::Result<()> {
        let Err(why) = self.part.committed(pieces) else { return Ok(()) };
        // The copy is worth more than that it can be resumed.
        if !std::mem::replace(&mut self.is_warned, true) {
            let what = "if it is interrupted, it begins anew: what has arrived could not be noted here";
            self.job.note(&format!("{}: {what}: {}", self.part.url(), io_text(&why)));
        }
        Ok(())
    }

    fn all_sent(&mut self) {
        if let Some(tell) = self.all_sent.take() {
            // Whoever gives the name lives as long as this.
            let _ = tell.send(());
        }
    }
}

fn read(file: &File, piece: Range<u64>) -> io::Result<Bytes> {
    let mut data = vec![0; (piece.end - piece.start) as usize];
    file.read_exact_at(&mut data, piece.start).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("became shorter while it was copied"),
        _ => e,
    })?;
    Ok(data.into())
}
