//! Sends one file: announces it, sends its parts, waits for the receiver's verdict.

use std::fs::File;
use std::io;
use std::io::Seek;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use bytes::Bytes;
use remora_atp::session::{PublicKey, Refusal};
use remora_atp::{Options, Outcome, Priority, Rejection};
use remora_host::atp::{AtpError, Remote, Request};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{JoinSet, block_in_place, spawn_blocking};

use crate::commands::transfer::send::answer_timeout::{AnswerTimeout, UnansweredBytes};
use crate::commands::transfer::send::failure::{Failure, Kind};
use crate::commands::transfer::send::sources::{Input, Source};
use crate::commands::transfer::transfer_protocol::{ASK_FROM, Announcement, Kept, Verdict};
use crate::cp::ui::progress::Progress;
use crate::output::stdio;

/// Most attempts for a file that the receiver dropped to make room for others.
const ROUNDS_MAX: usize = 8;
/// Poll interval of a request.
const LOOK: Duration = Duration::from_millis(100);
/// Retries of a part that the receiver had no room for, and the pause before each.
const RETRIES: u32 = 20;
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// Context shared by all files.
#[derive(Clone)]
pub(crate) struct TransferContext {
    pub(crate) remote: Remote,
    /// The public key of this sender.
    pub(crate) key: PublicKey,
    pub(crate) priority: Priority,
    pub(crate) deadline: Option<Instant>,
    /// Part size in bytes.
    pub(crate) part: u64,
    /// Memory for parts, in KiB.
    pub(crate) room: Arc<Semaphore>,
    /// Start of the current silence of the link.
    pub(crate) silent: watch::Receiver<Option<Instant>>,
    pub(crate) unanswered: UnansweredBytes,
    pub(crate) progress: Arc<Progress>,
    /// Limits the notice that a file waits for a place to one; `None` with --quiet.
    pub(crate) full: Option<Arc<Once>>,
}

/// Bytes sent, and bytes that the receiver had already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) bytes: u64,
    pub(crate) kept: u64,
}

/// Sends a file. Cancels on drop.
pub(crate) async fn ship(
    lane: TransferContext,
    source: Source,
    number: u32,
    mut verdicts: mpsc::Receiver<Verdict>,
) -> Result<Sent, Failure> {
    if source.is_dir() {
        return lane.ship_dir(source, number, verdicts).await;
    }
    let (file, said) = survey(source, number).await?;
    let mut missing = vec![(0, said.size)];
    if said.size > ASK_FROM {
        lane.deliver(object(said.question())?).await?;
        missing = lane.missing(lane.verdict(&mut verdicts, said.size, lane.deadline).await?, said.size)?;
    }
    let bytes = missing.iter().map(|(from, to)| to - from).fold(0, u64::saturating_add).min(said.size);
    let sent = Sent { bytes, kept: said.size - bytes };
    lane.progress.skip(sent.kept);
    let (file, said) = (Arc::new(file), Arc::new(said));
    for _ in 0..ROUNDS_MAX {
        if missing.is_empty() {
            return Ok(sent);
        }
        let verdict = lane.send_missing(&file, &said, &missing, &mut verdicts).await?;
        missing = lane.missing(verdict, said.size)?;
    }
    Err(Failure::new(Kind::Refused, "the receiver lost a part of the file"))
}

/// The parts of a range; one, even if nothing is in it.
fn cut(from: u64, to: u64, part: u64) -> impl Iterator<Item = (u64, usize)> {
    let count = (to - from).div_ceil(part).max(1);
    // A part is 32 MB at most.
    (0..count).map(move |n| from + n * part).map(move |at| (at, (to - at).min(part) as usize))
}

/// Opens and hashes the file; returns its announcement.
async fn survey(source: Source, number: u32) -> Result<(File, Announcement), Failure> {
    let survey = move || {
        let file = source.open()?;
        // What was read from standard input was left at its end.
        (&file).rewind()?;
        let kept = match &source.input {
            Input::Spooled(_) => Kept::default(),
            _ => Kept::from(&file.metadata()?),
        };
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(&file)?;
        // What was hashed, should it have grown meanwhile.
        let size = hasher.count();
        Ok((file, Announcement::new(number, source.name, size, hasher.finalize()).with(kept)))
    };
    joined(spawn_blocking(survey).await)
}

/// The result of work on the disk.
fn joined<T>(work: Result<io::Result<T>, tokio::task::JoinError>) -> Result<T, Failure> {
    work.unwrap_or_else(|e| Err(io::Error::other(e))).map_err(|e| Failure::unreadable(&e))
}

fn object(object: serde_json::Result<Bytes>) -> Result<Bytes, Failure> {
    object.map_err(|e| Failure::new(Kind::Unreadable, e.to_string()))
}

/// A request that is cancelled on drop.
struct Followed(Request);

impl Drop for Followed {
    fn drop(&mut self) {
        // Gone means that it had ended.
        let _ = self.0.cancel();
    }
}

impl TransferContext {
    /// Sends a directory with its mode and time.
    async fn ship_dir(
        &self,
        source: Source,
        number: u32,
        mut verdicts: mpsc::Receiver<Verdict>,
    ) -> Result<Sent, Failure> {
        let kept =
            joined(spawn_blocking(move || std::fs::metadata(&source.path).map(|found| Kept::from(&found))).await)?;
        let said = Announcement::new(number, source.name, 0, blake3::hash(b"")).with(kept);
        self.deliver(object(said.question())?).await?;
        match self.verdict(&mut verdicts, 0, self.deadline).await? {
            Verdict::Stored => Ok(Sent { bytes: 0, kept: 0 }),
            Verdict::Refused { why } => Err(Failure::new(Kind::Refused, why)),
            Verdict::Missing { .. } | Verdict::Waits => {
                Err(Failure::new(Kind::Refused, "the receiver sent an invalid answer"))
            }
        }
    }

    /// The ranges to send after this verdict on a file of `size` bytes; none if the receiver has all of it.
    fn missing(&self, verdict: Verdict, size: u64) -> Result<Vec<(u64, u64)>, Failure> {
        match verdict {
            Verdict::Missing { missing } if missing.iter().all(|(from, to)| from < to && *to <= size) => Ok(missing),
            Verdict::Stored => Ok(Vec::new()),
            Verdict::Refused { why } => Err(Failure::new(Kind::Refused, why)),
            Verdict::Missing { .. } | Verdict::Waits => {
                Err(Failure::new(Kind::Refused, "the receiver sent an invalid answer"))
            }
        }
    }

    /// Sends these ranges; returns the receiver's verdict.
    async fn send_missing(
        &self,
        file: &Arc<File>,
        said: &Arc<Announcement>,
        missing: &[(u64, u64)],
        verdicts: &mut mpsc::Receiver<Verdict>,
    ) -> Result<Verdict, Failure> {
        // What needs no question needs no place either, if it comes as a whole.
        let part = if said.size <= ASK_FROM { ASK_FROM } else { self.part };
        let parts = missing.iter().flat_map(|(from, to)| cut(*from, *to, part));
        let early = tokio::select! {
            done = self.send_parts(file, said, parts) => done.map(|()| None)?,
            early = verdicts.recv() => early,
        };
        match early {
            // It makes room for others' files, and takes this one anew. This word may also have been overtaken by the
            // next: what holds now is asked.
            Some(Verdict::Waits) => {
                self.tell_full();
                self.deliver(object(said.question())?).await?;
                let mut wait = AnswerTimeout::new(&self.unanswered, said.size);
                wait.for_place();
                self.verdict_within(verdicts, wait, self.deadline).await
            }
            Some(verdict) => Ok(verdict),
            None => self.verdict(verdicts, said.size, None).await,
        }
    }

    /// Sends all parts, as many concurrently as memory allows.
    async fn send_parts(
        &self,
        file: &Arc<File>,
        said: &Arc<Announcement>,
        parts: impl Iterator<Item = (u64, usize)>,
    ) -> Result<(), Failure> {
        let mut on_way: JoinSet<Result<(), Failure>> = JoinSet::new();
        for (at, len) in parts {
            let kib = u32::try_from(len.div_ceil(1024).max(1)).unwrap_or(u32::MAX);
            let room = loop {
                tokio::select! {
                    room = self.room.clone().acquire_many_owned(kib) => break room,
                    Some(done) = on_way.join_next() => finished(done)?,
                }
            };
            // It is never closed.
            let Ok(room) = room else { return Ok(()) };
            let (lane, file, said) = (self.clone(), file.clone(), said.clone());
            on_way.spawn(async move {
                let _room = room;
                let read = move || {
                    let mut data = vec![0; len];
                    file.read_exact_at(&mut data, at)?;
                    said.part(at, &data).map_err(io::Error::other)
                };
                let object = joined(spawn_blocking(read).await)?;
                lane.deliver(object).await
            });
        }
        while let Some(done) = on_way.join_next().await {
            finished(done)?;
        }
        Ok(())
    }

    /// Sends an object and waits for its delivery.
    async fn deliver(&self, object: Bytes) -> Result<(), Failure> {
        for _ in 0..RETRIES {
            let deadline = self.deadline.map(|at| at.saturating_duration_since(Instant::now()));
            if deadline.is_some_and(|left| left.is_zero()) {
                return Err(Failure::expired());
            }
            let options = Options { priority: self.priority, deadline, ..Options::default() };
            let request = self.remote.send(object.clone(), options).map_err(|_| self.lost())?;
            match self.follow(Followed(request)).await? {
                Outcome::Rejected(Rejection::TooMany | Rejection::TooManyBytes) => {
                    tokio::time::sleep(RETRY_AFTER).await;
                }
                outcome => return self.judge(outcome),
            }
        }
        Err(Failure::new(Kind::Refused, "the receiver has no space for it now"))
    }

    /// Counts what has got there until the request ends.
    async fn follow(&self, mut request: Followed) -> Result<Outcome, Failure> {
        let mut counted = 0;
        loop {
            let acknowledged = tokio::select! {
                end = &mut request.0 => {
                    let end = end.map_err(|_| self.lost())?;
                    if end.outcome == Outcome::Delivered {
                        self.progress.add(end.size.saturating_sub(counted));
                    }
                    return Ok(end.outcome);
                }
                () = tokio::time::sleep(LOOK) => request.0.progress().map_or(counted, |p| p.acknowledged),
            };
            self.progress.add(acknowledged.saturating_sub(counted));
            counted = acknowledged.max(counted);
        }
    }

    fn judge(&self, outcome: Outcome) -> Result<(), Failure> {
        let (kind, why) = match outcome {
            Outcome::Delivered => return Ok(()),
            Outcome::Rejected(Rejection::InsufficientBandwidth { needed, available }) => {
                let [needed, available] = [needed, available].map(|rate| rate.bits().div_ceil(1000));
                let why = format!("insufficient bandwidth: by its deadline it needs {needed} kbit/s of {available}");
                (Kind::Rejected, why)
            }
            Outcome::Rejected(Rejection::TooLarge) => {
                (Kind::Refused, "its parts are too large for the receiver: try --part 1M".into())
            }
            Outcome::Rejected(_) => (Kind::Rejected, "too much data is in transfer".into()),
            Outcome::Expired => return Err(Failure::expired()),
            Outcome::Evicted => (Kind::Evicted, "insufficient bandwidth: it cannot arrive by its deadline".into()),
            Outcome::Cancelled => (Kind::Lost, "cancelled".into()),
            Outcome::Lost => return Err(self.lost()),
        };
        Err(Failure::new(kind, why))
    }

    fn lost(&self) -> Failure {
        match self.remote.ended() {
            // It lets us know only when our side of the handshake is done.
            Some(AtpError::Refused(Refusal::NotAdmitted)) => Failure::new(Kind::Refused, not_let_in(self.key)),
            Some(e) => Failure::new(Kind::Lost, format!("lost the receiver: {e}")),
            None => Failure::new(Kind::Lost, "the receiver stopped the transfer"),
        }
    }

    fn tell_full(&self) {
        let text = "the receiver has its maximum of unfinished files; waiting";
        let tell = || block_in_place(|| self.progress.suspend(|| stdio::eprint(text)));
        self.full.iter().for_each(|full| full.call_once(tell));
    }

    /// Waits for the receiver's word on a file of so many bytes, through silence of the link as long as it takes, and
    /// for a place if the receiver says that it waits for one.
    async fn verdict(
        &self,
        verdicts: &mut mpsc::Receiver<Verdict>,
        size: u64,
        deadline: Option<Instant>,
    ) -> Result<Verdict, Failure> {
        self.verdict_within(verdicts, AnswerTimeout::new(&self.unanswered, size), deadline).await
    }

    async fn verdict_within(
        &self,
        verdicts: &mut mpsc::Receiver<Verdict>,
        mut wait: AnswerTimeout,
        mut deadline: Option<Instant>,
    ) -> Result<Verdict, Failure> {
        while !wait.is_over() {
            tokio::select! {
                verdict = verdicts.recv() => match verdict.ok_or_else(|| self.lost())? {
                    Verdict::Waits => {
                        wait.for_place();
                        // The receiver does not have the file yet.
                        deadline = self.deadline;
                        self.tell_full();
                    }
                    verdict => return Ok(verdict),
                },
                () = tokio::time::sleep(LOOK) => {}
            }
            if self.remote.ended().is_some() {
                return Err(self.lost());
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Err(Failure::expired());
            }
            if self.silent.borrow().is_none() {
                wait.add(LOOK);
            }
        }
        Err(Failure::new(Kind::Lost, "it arrived, but the receiver did not report the result"))
    }
}

/// What the receiver's operator must do to accept this key.
pub(crate) fn not_let_in(key: PublicKey) -> String {
    format!("the receiver does not admit this key: start it with --from {key}")
}

fn finished(done: Result<Result<(), Failure>, tokio::task::JoinError>) -> Result<(), Failure> {
    done.unwrap_or_else(|e| Err(Failure::new(Kind::Lost, e.to_string())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_and_no_more() {
        for (from, to, part, want) in [
            (0, 0, 10, &[(0, 0)][..]),
            (0, 10, 10, &[(0, 10)]),
            (5, 26, 10, &[(5, 10), (15, 10), (25, 1)]),
            (u64::MAX - 1, u64::MAX, 10, &[(u64::MAX - 1, 1)]),
        ] {
            assert_eq!(cut(from, to, part).collect::<Vec<_>>(), want, "{from}..{to}");
        }
    }
}
