//! One file from here to a server.

use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_host::client::{ClientError, upload};
use remora_wire::nfs3::{FileType, NfsTime, SetAttr, SetTime};

use super::job::{Job, count};
use super::journal::Identity;
use super::remote_part::RemotePart;
use super::verify;
use crate::exit::{Error, Result};
use crate::remote::{Node, Remote};

/// Where an upload goes.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) remote: Remote,
    pub(crate) dir: Node,
    pub(crate) name: Vec<u8>,
    /// For messages, and to find the journal again.
    pub(crate) url: String,
}

/// Copies `source` to `dest`, which is replaced when all is on the server's disk.
pub(crate) async fn file(job: &Job, source: &Path, dest: &Destination) -> Result {
    let here = |e| Error::local(source.display())(e);
    let there = |e| Error::remote(&dest.url)(e);
    let file = File::open(source).map_err(here)?;
    let identity = Identity::of_local(&file.metadata().map_err(here)?);
    job.progress.expect(identity.size());
    let old = dest.remote.find(&dest.dir.fh, &dest.name).await.map_err(there)?;
    if let Some(old) = old {
        check_replaceable(&old, &dest.url)?;
        if job.resume && is_there(job, &file, &identity, &dest.remote, &old).await.map_err(there)? {
            job.progress.skip(identity.size());
            count(&job.counts.files);
            return Ok(());
        }
    }
    let part = RemotePart::open(job, source, &identity, dest).await.map_err(there)?;
    job.progress.skip(part.bytes());
    match fill(job, source, &file, &identity, &part, dest).await {
        Ok(()) => {}
        // Kept, for --resume.
        Err(e) if e.is_lost() => return Err(e),
        Err(e) => {
            part.discard().await;
            return Err(match e {
                Error::Remote { source: ClientError::Local(e), .. } => here(e),
                e => e,
            });
        }
    }
    part.finish().await.map_err(there)?;
    count(&job.counts.files);
    Ok(())
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
/// should be.
async fn fill(
    job: &Job,
    source: &Path,
    file: &File,
    identity: &Identity,
    part: &RemotePart,
    dest: &Destination,
) -> Result {
    let here = |e| Error::local(source.display())(e);
    let there = |e| Error::remote(&dest.url)(e);
    send(job, file, part, identity.size()).await.map_err(there)?;
    let meta = file.metadata().map_err(here)?;
    let attr = dest.remote.setattr(&part.node.fh, copied_attributes(&meta)).await.map_err(there)?;
    if attr.size != identity.size() {
        return Err(Error::refused(&dest.url, "the copy has not the size of its source"));
    }
    if Identity::of_local(&meta) != *identity {
        let name = source.display();
        job.note(&format!("{name}: changed while it was copied; the copy may be a mixture of old and new"));
    }
    if job.verify {
        let node = Node { fh: part.node.fh.clone(), attr };
        if !verify::same(reopen(file).map_err(here)?, &dest.remote, &node).await.map_err(there)? {
            return Err(Error::Mismatch(source.display().to_string()));
        }
        count(&job.counts.verified);
    }
    Ok(())
}

/// Permission bits and the time of modification.
pub(crate) fn copied_attributes(meta: &fs::Metadata) -> SetAttr {
    // NFSv3's times end in 2106 and begin in 1970.
    let secs = u32::try_from(meta.mtime().max(0)).unwrap_or(u32::MAX);
    let mtime = NfsTime { secs, nanos: meta.mtime_nsec() as u32 };
    SetAttr { mode: Some(meta.mode() & 0o777), mtime: SetTime::To(mtime), ..SetAttr::NONE }
}

async fn send(job: &Job, file: &File, part: &RemotePart, size: u64) -> Result<(), ClientError> {
    let missing = part.missing(size);
    if missing.is_empty() {
        return Ok(());
    }
    let limits = part.remote.limits().await?;
    let mut pace = Pace::default();
    for range in missing {
        let mut at = range.start;
        while at < range.end {
            let step = at..range.end.min(at.saturating_add(pace.bytes));
            let started = Instant::now();
            let progress = |bytes| job.progress.add(bytes);
            upload(part.remote.session(), part.node.fh.clone(), step.clone(), limits, |p| read(file, p), progress)
                .await?;
            part.committed(step.clone())?;
            pace.took(started.elapsed());
            at = step.end;
        }
    }
    Ok(())
}

fn read(file: &File, piece: Range<u64>) -> io::Result<Bytes> {
    let mut data = vec![0; (piece.end - piece.start) as usize];
    file.read_exact_at(&mut data, piece.start).map_err(|e| match e.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("became shorter while it was copied"),
        _ => e,
    })?;
    Ok(data.into())
}

/// How much is sent before a COMMIT: what takes a second or few, so that an interruption
/// loses no more, and a fast link is not held up.
struct Pace {
    bytes: u64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { bytes: 256 << 10 }
    }
}

impl Pace {
    const BYTES: std::ops::RangeInclusive<u64> = 64 << 10..=256 << 20;
    const GOOD: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(4);

    fn took(&mut self, time: Duration) {
        if time < *Pace::GOOD.start() {
            self.bytes = (self.bytes * 2).min(*Pace::BYTES.end());
        } else if time > *Pace::GOOD.end() {
            self.bytes = (self.bytes / 2).max(*Pace::BYTES.start());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_come_every_few_seconds_at_any_rate() {
        for bytes_per_second in [8_000u64, 125_000, 12_500_000] {
            let mut pace = Pace::default();
            for _ in 0..40 {
                pace.took(Duration::from_secs_f64(pace.bytes as f64 / bytes_per_second as f64));
            }
            let seconds = pace.bytes as f64 / bytes_per_second as f64;
            assert!((0.9..8.5).contains(&seconds), "{bytes_per_second} B/s: {seconds} s");
        }
    }
}
