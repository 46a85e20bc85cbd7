//! Upload of one file.

use std::fs::File;
use std::future::pending;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use remora_client::Written;
use remora_host::client::{self, ClientError, TransferLimits, UploadProgress};
use remora_wire::nfs3::{Attr, Fh, FileType};

use crate::cp::created_objects::FileKey;
use crate::cp::resume::source_state::{Change, SourceIdentity, SourceState};
use crate::cp::transfer::attributes::UploadAttributes;
use crate::cp::transfer::partial_upload::PartialUpload;
use crate::cp::transfer::sparse;
use crate::cp::transfer::upload_destination::UploadDestination;
use crate::cp::transfer::verify;
use crate::cp::ui::job::{Job, count};
use crate::interrupt::AtRisk;
use crate::output::exit::{self, Error, Result};
use crate::remote::filesystem::Remote;
use crate::remote::listing::Node;

/// An open source and its state at that time.
struct Source<'a> {
    path: &'a Path,
    file: File,
    state: SourceState,
    /// Attributes of the copy. They are the initial ones, so that a changed source differs from its copy.
    looks: UploadAttributes,
}

impl Source<'_> {
    fn open(path: &Path, preserves: bool) -> io::Result<Source<'_>> {
        let file = File::open(path)?;
        let meta = file.metadata()?;
        Ok(Source { path, file, state: SourceState::of_local(&meta), looks: UploadAttributes::of(&meta, preserves) })
    }

    fn identity(&self) -> &SourceIdentity {
        self.state.identity()
    }

    /// Whether its size is 0 and it has content, as files in /proc.
    fn is_not_empty(&self) -> io::Result<bool> {
        let says_so = self.identity().size() == 0 && self.file.read_at(&mut [0], 0)? > 0;
        // It may have grown just now.
        Ok(says_so && self.file.metadata()?.len() == 0)
    }

    fn now(&self) -> io::Result<SourceState> {
        Ok(SourceState::of_local(&self.file.metadata()?))
    }
}

/// Uploads `source` and replaces `dest` when all of it is on stable storage.
pub(crate) async fn file(job: &Job, source: &Path, dest: &UploadDestination) -> Result {
    let here = |e| Error::local(source.display())(e);
    let there = |e| Error::remote(&dest.url)(e);
    job.kept.go_on().await;
    let from = Source::open(source, job.preserve).map_err(here)?;
    if from.is_not_empty().map_err(here)? {
        return Err(Error::not_empty(source.display()));
    }
    let identity = from.identity();
    let old = match &dest.old {
        Some(old) => old.clone(),
        None => dest.remote.find(&dest.dir.fh, &dest.name).await.map_err(there)?,
    };
    if let Some(old) = &old {
        check_replaceable(job, source, old, &dest.url)?;
        if job.no_clobber {
            note_found(job, old, dest);
            job.progress.pass_over(identity.size());
            job.leave(&dest.url);
            return Ok(());
        }
        if job.resume && is_there(job, &from, &dest.remote, old).await.map_err(there)? {
            PartialUpload::forget_begun(source, dest);
            note_found(job, old, dest);
            job.progress.skip(identity.size());
            job.copied(&job.counts.files, source.display(), &dest.url);
            return Ok(());
        }
    }
    let mut part = PartialUpload::open(job, source, identity, dest, old.as_ref()).await.map_err(there)?;
    job.progress.skip(part.bytes());
    let filled = fill(job, &from, &part, dest).await;
    let done = match filled {
        Ok(Filled { is_late, bare, change }) => {
            let late = is_late.then_some(from.looks.attr);
            part.finish(late).await.map(|e| (e.or(bare), change)).map_err(there)
        }
        Err(e) => Err(e),
    };
    let why = match done {
        Ok((bare, change)) => {
            job.copied(&job.counts.files, source.display(), &dest.url);
            note_created(job, part.node(), dest).await;
            let bare = bare.map_or(Ok(()), |e| Err(Error::bare(&dest.url, exit::remote_text(&e))));
            return match change.error(source.display()) {
                Some(error) => job.settle(bare).and(Err(error)),
                None => bare,
            };
        }
        Err(why) => why,
    };
    part.give_up(&why).await;
    Err(match why {
        Error::Remote { source: ClientError::Local(e), .. } => here(e),
        why => why,
    })
}

pub(crate) fn check_replaceable(job: &Job, source: &Path, old: &Node, url: &str) -> Result {
    job.created.check_there(source, old)?;
    match old.attr.kind {
        FileType::Regular | FileType::SymLink => Ok(()),
        FileType::Directory => Err(Error::refused(url, "is a directory")),
        _ => Err(Error::refused(url, "is not a regular file; cp does not replace it")),
    }
}

/// Records an object that stays. One with several hard links may be meant by each of its names.
pub(crate) fn note_found(job: &Job, old: &Node, dest: &UploadDestination) {
    if old.attr.nlink > 1 {
        return;
    }
    match dest.may_fold {
        true => job.created.note_named(old, &dest.name),
        false => job.created.note(FileKey::of_handle(old)),
    };
}

/// Records an object that has its final name.
pub(crate) async fn note_created(job: &Job, made: &Node, dest: &UploadDestination) {
    job.created.note(FileKey::of_handle(made));
    // The final name may have another handle. Best effort: the temporary one is enough on most servers.
    if dest.may_fold
        && let Ok(node) = dest.remote.lookup(&dest.dir.fh, &dest.name).await
    {
        job.created.note_named(&node, &dest.name);
    }
}

/// Whether a complete copy exists.
async fn is_there(job: &Job, source: &Source<'_>, remote: &Remote, old: &Node) -> Result<bool, ClientError> {
    if old.attr.kind != FileType::Regular || !source.identity().is_copied_by(&SourceIdentity::of_remote(&old.attr)) {
        return Ok(false);
    }
    if !job.verify {
        return Ok(true);
    }
    let same = verify::same(&job.progress, &source.file, remote, old).await?;
    if same {
        count(&job.counts.verified);
    }
    Ok(same)
}

/// Uploads what is missing, sets attributes, and checks both files. Unless the server is near, attributes are left to
/// be set together with the rename.
async fn fill(job: &Job, source: &Source<'_>, part: &PartialUpload, dest: &UploadDestination) -> Result<Filled> {
    let here = |e| Error::local(source.path.display())(e);
    let there = |e| Error::remote(&dest.url)(e);
    let seen = send(job, source, part).await.map_err(there)?;
    let as_sent = source.now().map_err(here)?;
    let change = source.state.change_to(&as_sent);
    let is_far = !dest.remote.session().is_near() && !dest.remote.handles_follow_names();
    let is_late = seen.size.is_some() && !job.verify && !job.preserve && is_far;
    let fh = &part.node().fh;
    let look = if is_late {
        None
    } else {
        let set = source.looks.set(&dest.remote, fh).await;
        Some(Look::after(set, &dest.remote, fh).await.map_err(there)?)
    };
    if look.as_ref().map(|look| look.attr.size).or(seen.size) != Some(source.identity().size()) {
        return Err(Error::refused(&dest.url, "the copy differs in size from its source"));
    }
    let Some(Look { attr, mut bare }) = look else {
        return Ok(Filled { is_late, bare: None, change });
    };
    if !job.verify {
        return Ok(Filled { is_late: false, bare, change });
    }
    let node = Node { fh: fh.clone(), attr };
    let is_sent_again = verify_copy(job, source, part, &node).await?;
    if is_sent_again {
        let set = source.looks.set(&dest.remote, fh).await;
        bare = Look::after(set, &dest.remote, fh).await.map_err(there)?.bare;
    }
    let meanwhile = as_sent.change_to(&source.now().map_err(here)?);
    if meanwhile == Change::None {
        count(&job.counts.verified);
    }
    Ok(Filled { is_late: false, bare, change: change.compared(meanwhile) })
}

/// Compares source and copy, and uploads damaged ranges again unless the source has changed. Returns whether any were.
async fn verify_copy(job: &Job, source: &Source<'_>, part: &PartialUpload, node: &Node) -> Result<bool> {
    let here = |e| Error::local(source.path.display())(e);
    let failed = |e| Error::remote(part.url())(e);
    let mut ranges = verify::all(node);
    for turn in 0.. {
        ranges =
            match verify::differing(&job.progress, &source.file, &part.remote, node, ranges).await.map_err(failed)? {
                Some(found) if found.is_empty() => return Ok(turn > 0),
                Some(found) if turn < verify::AGAIN_MAX => found,
                _ => break,
            };
        // Otherwise the copy would mix two states.
        if source.state.change_to(&source.now().map_err(here)?) != Change::None {
            break;
        }
        verify::tell(job, part.url(), &ranges);
        // They are counted already.
        let sending = Sending::begin(job, source, part).await.map_err(failed)?;
        sending.send(ranges.clone()).await.map_err(failed)?;
    }
    Err(Error::Mismatch(source.path.display().to_string()))
}

/// A copy with all its bytes.
struct Filled {
    /// Attributes are to be set with the rename.
    is_late: bool,
    /// Why the server set no attributes.
    bare: Option<ClientError>,
    /// Change of the source meanwhile.
    change: Change,
}

/// Attributes of the copy after they were set.
struct Look {
    attr: Attr,
    /// Why the server set none.
    bare: Option<ClientError>,
}

impl Look {
    /// From the result of setting them; if that failed, the attributes are read.
    async fn after(set: Result<Attr, ClientError>, remote: &Remote, fh: &Fh) -> Result<Look, ClientError> {
        match set {
            Err(e) if !exit::is_lost(&e) => Ok(Look { attr: remote.getattr(fh).await?, bare: Some(e) }),
            set => Ok(Look { attr: set?, bare: None }),
        }
    }
}

/// Uploads what is missing.
async fn send(job: &Job, source: &Source<'_>, part: &PartialUpload) -> Result<Written, ClientError> {
    let missing = to_send(job, source, part).await?;
    if missing.is_empty() {
        return Ok(Written::default());
    }
    let uncounted = AtomicU64::new(missing.iter().map(|range| range.end - range.start).sum());
    let mut sending = Sending::begin(job, source, part).await?;
    sending.uncounted = Some(&uncounted);
    sending.send(missing).await
}

/// Ranges that are missing on the server. Holes are left out where the server extends files: the temporary file was
/// empty, and nothing was written into the holes.
async fn to_send(job: &Job, source: &Source<'_>, part: &PartialUpload) -> Result<Vec<Range<u64>>, ClientError> {
    let size = source.identity().size();
    let all = part.missing(size);
    let holes = sparse::of(&source.file, size);
    if holes.bytes() == 0 || !part.stretch(size).await? {
        return Ok(all);
    }
    let missing = part.missing_beside(&holes, size);
    let bytes = |ranges: &[Range<u64>]| ranges.iter().map(|range| range.end - range.start).sum::<u64>();
    job.progress.leave_out(bytes(&all) - bytes(&missing));
    Ok(missing)
}

/// An upload in progress.
struct Sending<'a> {
    job: &'a Job,
    file: &'a File,
    part: &'a PartialUpload,
    limits: TransferLimits,
    /// Bytes not counted yet. Bytes that the server lost do not count again.
    uncounted: Option<&'a AtomicU64>,
    /// Data that is not on stable storage.
    at_risk: AtRisk,
}

impl<'a> Sending<'a> {
    async fn begin(job: &'a Job, source: &'a Source<'_>, part: &'a PartialUpload) -> Result<Sending<'a>, ClientError> {
        let limits = part.remote.limits().await?;
        job.kept.go_on().await;
        let (file, at_risk) = (&source.file, job.kept.at_risk());
        Ok(Sending { job, file, part, limits, uncounted: None, at_risk })
    }

    async fn send(mut self, ranges: Vec<Range<u64>>) -> Result<Written, ClientError> {
        let (session, fh) = (self.part.remote.session(), self.part.node().fh.clone());
        let sent = client::send(session, fh, ranges, self.limits, &mut self).await?;
        // The data is no longer at risk.
        drop(self);
        match sent {
            Some(written) => Ok(written),
            // The signal that stopped it ends the process.
            None => pending().await,
        }
    }
}

impl UploadProgress for Sending<'_> {
    fn read(&mut self, piece: Range<u64>) -> io::Result<Bytes> {
        read(self.file, piece)
    }

    fn sent(&mut self, bytes: u64) {
        let Some(uncounted) = self.uncounted else { return };
        let left = uncounted.load(Ordering::Relaxed);
        uncounted.store(left.saturating_sub(bytes), Ordering::Relaxed);
        self.job.progress.add(bytes.min(left));
    }

    fn stable(&mut self, pieces: Vec<Range<u64>>) -> io::Result<()> {
        self.part.committed(pieces).unwrap_or_else(|why| self.job.cannot_note(&why));
        Ok(())
    }

    async fn stopped(&self) {
        self.at_risk.ends().await;
    }
}

fn read(file: &File, piece: Range<u64>) -> io::Result<Bytes> {
    let mut data = vec![0; (piece.end - piece.start) as usize];
    file.read_exact_at(&mut data, piece.start).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("was truncated during the copy"),
        _ => e,
    })?;
    Ok(data.into())
}
