//! Pieces of a file that the server puts off (NFS3ERR_JUKEBOX). Each waits by itself while the others go on: a server
//! that puts off some of many requests, for lack of a resource or while it fetches a part of the file from tape, delays
//! those and not the file.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use remora_client::Piece;
use tokio::time::{Instant, timeout_at};

use crate::client::error::ClientError;
use crate::client::transport::jukebox_retry::{JukeboxRetry, PAUSE};

/// Deferred pieces from which no new one is sent.
const WAITING_MAX: usize = 64;
/// Excess of deferred over finished pieces from which the whole file waits.
const MOSTLY: u32 = 16;
/// Key of a COMMIT among the pieces.
const COMMIT: u64 = u64::MAX;

/// Deferred pieces; a COMMIT is an empty one.
pub(crate) struct DeferredPieces {
    later: JukeboxRetry,
    waiting: Vec<Waiting>,
    /// Pauses of unfinished pieces, by their start.
    pauses: BTreeMap<u64, Pause>,
    /// Requests that were not put off.
    done: u64,
    /// Excess of requests put off lately.
    excess: u32,
}

struct Waiting {
    piece: Piece,
    until: Instant,
}

/// Pause of a piece, and `done` when it began.
struct Pause {
    lasts: Duration,
    done: u64,
}

impl DeferredPieces {
    pub(crate) fn new(later: JukeboxRetry) -> DeferredPieces {
        DeferredPieces { later, waiting: Vec::new(), pauses: BTreeMap::new(), done: 0, excess: 0 }
    }

    /// The server put this piece off; fails when the patience is over. The pause doubles while the server finishes
    /// nothing, and grows by a constant while it finishes others.
    pub(crate) fn push(&mut self, piece: Piece, now: Instant) -> Result<(), ClientError> {
        self.later.bear()?;
        self.excess = (self.excess + 1).min(MOSTLY);
        let done = self.done;
        let lasts = match self.pauses.get(&key(&piece)) {
            None => PAUSE.0,
            Some(last) if last.done < done => last.lasts + PAUSE.0,
            Some(last) => last.lasts * 2,
        };
        let lasts = lasts.min(PAUSE.1);
        self.pauses.insert(key(&piece), Pause { lasts, done });
        self.waiting.push(Waiting { piece, until: now + lasts });
        Ok(())
    }

    /// The server finished this piece.
    pub(crate) fn done(&mut self, piece: &Piece) {
        self.later.is_over();
        self.pauses.remove(&key(piece));
        self.done += 1;
        self.excess = self.excess.saturating_sub(1);
    }

    /// Whether no piece is deferred.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether only due pieces may be sent.
    pub(crate) fn is_held(&self) -> bool {
        self.waiting.len() >= WAITING_MAX || (self.excess >= MOSTLY && !self.is_empty())
    }

    /// Removes and returns a due piece.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Piece> {
        self.take(|w| !w.piece.is_empty() && w.until <= now)
    }

    /// Removes a due COMMIT. Returns whether there was one.
    pub(crate) fn take_due_commit(&mut self, now: Instant) -> bool {
        self.take(|w| w.piece.is_empty() && w.until <= now).is_some()
    }

    fn take(&mut self, is_meant: impl Fn(&Waiting) -> bool) -> Option<Piece> {
        let found = self.waiting.iter().position(is_meant)?;
        Some(self.waiting.remove(found).piece)
    }

    /// Waits for `answer`, or until a piece is due. Pieces that were due by `now` wait for room, and so for an answer.
    pub(crate) async fn or_due<T>(
        &self,
        now: Instant,
        answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<Option<T>, ClientError> {
        let Some(due) = self.waiting.iter().map(|w| w.until).filter(|until| *until > now).min() else {
            return answer.await.map(Some);
        };
        timeout_at(due, answer).await.ok().transpose()
    }
}

fn key(piece: &Piece) -> u64 {
    if piece.is_empty() { COMMIT } else { piece.start }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Defers `piece` and waits until it is due; returns the tenths of a second.
    fn tenths(refused: &mut DeferredPieces, piece: Piece, now: &mut Instant) -> u32 {
        refused.push(piece.clone(), *now).unwrap();
        for tenths in 1.. {
            assert_eq!(refused.take_due(*now), None);
            *now += PAUSE.0;
            if refused.take_due(*now) == Some(piece.clone()) {
                return tenths;
            }
        }
        unreachable!()
    }

    #[test]
    fn pause_doubles_alone_and_grows_linearly_beside_others() {
        let mut refused = DeferredPieces::new(JukeboxRetry::new(None));
        let mut now = Instant::now();
        let alone: Vec<u32> = (0..8).map(|_| tenths(&mut refused, 5..9, &mut now)).collect();
        assert_eq!(alone, [1, 2, 4, 8, 16, 32, 50, 50]);
        let mut beside = |refused: &mut DeferredPieces| {
            refused.done(&(70..80));
            tenths(refused, 20..30, &mut now)
        };
        let beside: Vec<u32> = std::iter::repeat_with(|| beside(&mut refused)).take(4).collect();
        assert_eq!(beside, [1, 2, 3, 4]);
        refused.done(&(20..30));
        assert_eq!(tenths(&mut refused, 20..30, &mut now), 1, "it was done meanwhile");
        assert_eq!(tenths(&mut refused, 0..20, &mut now), 1, "another one");
    }

    #[test]
    fn new_pieces_wait_while_most_are_deferred() {
        let now = Instant::now();
        let mut refused = DeferredPieces::new(JukeboxRetry::new(None));
        let mut starts = (0_u64..).map(|n| n * 10);
        let mut next = || starts.next().map(|start| start..start + 10).unwrap();
        // Every third is put off.
        for _ in 0..WAITING_MAX - 1 {
            refused.push(next(), now).unwrap();
            (0..2).for_each(|_| refused.done(&next()));
            assert!(!refused.is_held());
        }
        refused.push(next(), now).unwrap();
        assert!(refused.is_held(), "many wait");

        let mut refused = DeferredPieces::new(JukeboxRetry::new(None));
        for _ in 0..MOSTLY {
            assert!(!refused.is_held());
            refused.push(next(), now).unwrap();
        }
        assert!(refused.is_held(), "all were refused");
        while refused.take_due(now + PAUSE.0).is_some() {}
        assert!(!refused.is_held(), "there is nothing else to wait for");
    }

    #[test]
    fn deferred_commit_is_no_piece() {
        let (mut refused, now) = (DeferredPieces::new(JukeboxRetry::new(None)), Instant::now());
        refused.push(0..0, now).unwrap();
        refused.push(0..10, now).unwrap();
        let due = now + PAUSE.0;
        assert!(!refused.take_due_commit(now) && refused.take_due_commit(due) && !refused.take_due_commit(due));
        assert_eq!((refused.take_due(due), refused.take_due(due), refused.is_empty()), (Some(0..10), None, true));
    }

    #[tokio::test]
    async fn patience_counts_only_without_progress() {
        let mut refused = DeferredPieces::new(JukeboxRetry::new(Some(Duration::from_millis(50))));
        for _ in 0..2 {
            refused.push(0..10, Instant::now()).unwrap();
            tokio::time::sleep(Duration::from_millis(60)).await;
            refused.done(&(10..20));
        }
        refused.push(0..10, Instant::now()).unwrap();
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(refused.push(0..10, Instant::now()).is_err());
    }
}
