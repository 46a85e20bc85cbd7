//! Download of one file.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use remora_host::client::{ClientError, receive};
use remora_wire::nfs3::Attr;

use crate::cp::created_objects::{CreatedObjects, FileKey};
use crate::cp::resume::source_state::{Change, SourceIdentity, SourceState};
use crate::cp::transfer::destination;
use crate::cp::transfer::partial_download::PartialDownload;
use crate::cp::transfer::verify;
use crate::cp::ui::job::{Job, count};
use crate::output::exit::{self, Error, Result};
use crate::remote::filesystem::Remote;
use crate::remote::listing::Node;

/// Bytes read of a file that the server calls empty.
const FIRST: u32 = 512;

/// Downloads `source` from `url` and replaces `dest` when all of it has arrived.
pub(crate) async fn file(job: &Job, remote: &Remote, source: &Node, url: &str, dest: &Path) -> Result {
    check_replaceable(&job.created, dest)?;
    let size = source.attr.size;
    if let Some(meta) = fs::symlink_metadata(dest).ok().filter(|_| job.no_clobber) {
        note_found(&job.created, &meta);
        job.progress.pass_over(size);
        job.leave(dest.display());
        return Ok(());
    }
    if job.resume && is_there(job, remote, source, dest).await.map_err(Error::remote(url))? {
        job.progress.skip(size);
        job.copied(&job.counts.files, url, dest.display());
        return Ok(());
    }
    let identity = SourceIdentity::of_remote(&source.attr);
    let noted = if job.resume { PartialDownload::noted(dest) } else { None };
    let mut part =
        PartialDownload::open(dest, &identity, job.resume, job.kept.clone()).map_err(Error::local(dest.display()))?;
    if let Some(noted) = noted.filter(|_| part.is_fresh()) {
        job.note(&format!("{}: {}", dest.display(), noted.why_afresh(&identity)));
    }
    job.progress.skip(part.bytes());
    let done = match fill(job, remote, source, url, &part).await {
        Ok(change) => part
            .finish(&source.attr, job.preserve, &job.created)
            .map(|bare| (bare, change))
            .map_err(Error::local(dest.display())),
        Err(e) => Err(e),
    };
    match done {
        Ok((bare, change)) => {
            job.copied(&job.counts.files, url, dest.display());
            let bare = bare.map_or(Ok(()), |e| Err(Error::bare(dest.display(), exit::io_text(&e))));
            match change.error(url) {
                Some(error) => job.settle(bare).and(Err(error)),
                None => bare,
            }
        }
        Err(e) if e.is_lost() || e.may_pass() => {
            part.keep();
            Err(e)
        }
        Err(e) => {
            part.discard();
            Err(match e {
                Error::Remote { source: ClientError::Local(e), .. } => Error::local(dest.display())(e),
                e => e,
            })
        }
    }
}

/// Links are replaced, not followed: the server may have influenced where they lead.
pub(crate) fn check_replaceable(created: &CreatedObjects, dest: &Path) -> Result {
    let found = fs::symlink_metadata(dest);
    if let Ok(meta) = &found {
        created.check_here(dest, meta).map_err(Error::local(dest.display()))?;
    }
    match found {
        Ok(meta) if meta.is_dir() => Err(Error::refused(dest.display(), "is a directory")),
        Ok(meta) if !meta.is_file() && !meta.is_symlink() => Err(destination::not_replaced(dest)),
        // What cannot be examined could not be replaced either.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(Error::local(dest.display())(e)),
        _ => Ok(()),
    }
}

/// Records an object that stays. One with several hard links may be meant by each of its names.
pub(crate) fn note_found(created: &CreatedObjects, meta: &fs::Metadata) {
    if meta.nlink() <= 1 {
        created.note(FileKey::of_local(meta));
    }
}

/// Whether a complete copy exists.
async fn is_there(job: &Job, remote: &Remote, source: &Node, dest: &Path) -> Result<bool, ClientError> {
    let Ok(meta) = fs::symlink_metadata(dest) else { return Ok(false) };
    if !meta.is_file() || !SourceIdentity::of_remote(&source.attr).is_copied_by(&SourceIdentity::of_local(&meta)) {
        return Ok(false);
    }
    let same = !job.verify || verify::same(&job.progress, &fs::File::open(dest)?, remote, source).await?;
    if same && job.verify {
        count(&job.counts.verified);
    }
    if same {
        note_found(&job.created, &meta);
    }
    Ok(same)
}

/// Downloads what is missing. Returns the change of the source meanwhile.
async fn fill(job: &Job, remote: &Remote, source: &Node, url: &str, part: &PartialDownload) -> Result<Change> {
    let failed = |e| Error::remote(url)(e);
    let (seen, has_more) = match source.attr.size {
        0 => look(remote, source).await.map_err(failed)?,
        _ => (get(job, remote, source, part).await.map_err(failed)?, false),
    };
    let now = match seen {
        Some(attr) => attr,
        None => remote.getattr(&source.fh).await.map_err(failed)?,
    };
    if has_more && now.size == 0 {
        return Err(Error::not_empty(url));
    }
    if now.size < source.attr.size || part.bytes() < source.attr.size {
        return Err(Error::refused(url, "was truncated during the copy"));
    }
    let change = change(remote, source, &source.attr, &now).await.map_err(failed)?;
    if !job.verify {
        return Ok(change);
    }
    verify_copy(job, remote, source, url, part).await?;
    let meanwhile = change_since(remote, source, &now).await.map_err(failed)?;
    if meanwhile == Change::None {
        count(&job.counts.verified);
    }
    Ok(change.compared(meanwhile))
}

/// Compares source and copy, and downloads damaged ranges again unless the source has changed.
async fn verify_copy(job: &Job, remote: &Remote, source: &Node, url: &str, part: &PartialDownload) -> Result {
    let failed = |e| Error::remote(url)(e);
    let mut ranges = verify::all(source);
    for turn in 0.. {
        ranges = match verify::differing(&job.progress, part.file(), remote, source, ranges).await.map_err(failed)? {
            Some(found) if found.is_empty() => break,
            Some(found) if turn < verify::AGAIN_MAX => found,
            _ => return Err(Error::Mismatch(url.to_owned())),
        };
        // Otherwise the copy would mix two states.
        if change_since(remote, source, &source.attr).await.map_err(failed)? != Change::None {
            return Err(Error::Mismatch(url.to_owned()));
        }
        verify::tell(job, url, &ranges);
        let limits = remote.limits().await.map_err(failed)?;
        for range in ranges.clone() {
            let sink = |at, data: bytes::Bytes| part.write_over(at, &data);
            receive(remote.session(), source.fh.clone(), range, limits, sink).await.map_err(failed)?;
        }
    }
    Ok(())
}

async fn change_since(remote: &Remote, source: &Node, was: &Attr) -> Result<Change, ClientError> {
    change(remote, source, was, &remote.getattr(&source.fh).await?).await
}

async fn change(remote: &Remote, source: &Node, was: &Attr, now: &Attr) -> Result<Change, ClientError> {
    let now = SourceState::of_remote(now);
    let change = SourceState::of_remote(was).change_to(&now);
    if change != Change::Unclear {
        return Ok(change);
    }
    // On some servers each look finds another ctime; then it means nothing.
    let again = SourceState::of_remote(&remote.getattr(&source.fh).await?);
    Ok(match now.change_to(&again) {
        Change::None => Change::Unclear,
        Change::Unclear => Change::None,
        Change::Content => Change::Content,
    })
}

/// Attributes of a file that the server calls empty, and whether it has content.
async fn look(remote: &Remote, source: &Node) -> Result<(Option<Attr>, bool), ClientError> {
    let first = remote.read_first(&source.fh, FIRST).await?;
    Ok((first.attr, !first.data.is_empty()))
}

/// Downloads what is missing and returns the attributes of the last READ.
async fn get(job: &Job, remote: &Remote, source: &Node, part: &PartialDownload) -> Result<Option<Attr>, ClientError> {
    let missing = part.missing(source.attr.size);
    if missing.is_empty() {
        return Ok(None);
    }
    let limits = remote.limits().await?;
    let mut attr = None;
    for range in missing {
        let sink = |at, data: bytes::Bytes| -> io::Result<()> {
            part.write(at, &data)?;
            job.progress.add(data.len() as u64);
            Ok(())
        };
        tokio::select! {
            done = receive(remote.session(), source.fh.clone(), range, limits, sink) => attr = done?.attr,
            e = part.keep_saving() => return Err(e.into()),
        }
    }
    Ok(attr)
}
