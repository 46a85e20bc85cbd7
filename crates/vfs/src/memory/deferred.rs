//! Stable writes and commits whose flush comes later ([`MemFs::defer`]).

use std::sync::{Arc, Mutex, PoisonError};

use remora_wire::nfs3::{Stable, Status, Wcc};

use super::MemFs;
use super::state::State;
use crate::{FileId, Flush, FlushKey, Flushing, Ledger, Result};

/// Flushes are for somebody else to do.
pub(super) struct Later {
    ledger: Arc<Ledger>,
    /// The verifier before the change.
    since: [u8; 8],
}

/// A flush of all that was written to a file.
struct FileFlush {
    state: Arc<Mutex<State>>,
    id: FileId,
    number: u64,
    since: [u8; 8],
}

impl MemFs {
    /// From now on the view of [`Vfs::deferring`](crate::Vfs::deferring) is there: what it
    /// writes is volatile until the flush that it notes, as COMMIT would flush it.
    pub fn defer(&self) {
        self.lock().defers = true;
    }

    pub(super) fn later(&self, ledger: &Arc<Ledger>) -> Option<MemFs> {
        let since = Some(self.lock()).filter(|state| state.defers)?.verifier;
        let later = Some(Later { ledger: ledger.clone(), since });
        Some(MemFs { root: self.root, state: self.state.clone(), later })
    }

    /// How stable a write is made at once.
    pub(super) fn at_once(&self, stable: Stable) -> Stable {
        if self.later.is_some() { Stable::Unstable } else { stable }
    }

    /// What `write` came to, with the flush noted that makes it as stable as was asked.
    pub(super) fn owe(&self, id: &FileId, asked: Stable, written: (Wcc, Stable)) -> Result<(Wcc, Stable)> {
        let (wcc, stable) = written;
        match &self.later {
            Some(later) if asked != Stable::Unstable && stable == Stable::Unstable => {
                self.note(later, id)?;
                Ok((wcc, Stable::FileSync))
            }
            _ => Ok((wcc, stable)),
        }
    }

    pub(super) fn note(&self, later: &Later, id: &FileId) -> Result<()> {
        let number = self.lock().number(id)?;
        let flush = FileFlush { state: self.state.clone(), id: *id, number, since: later.since };
        later.ledger.note(Flush::new(flush));
        Ok(())
    }
}

impl Flushing for FileFlush {
    fn key(&self) -> FlushKey {
        FlushKey { disk: Arc::as_ptr(&self.state) as usize as u64, object: self.number.into(), depth: 0 }
    }

    fn is_dear(&self) -> bool {
        false
    }

    fn run(&self, _others: &[&Flush]) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.number(&self.id) {
            Ok(number) => state.flush(number),
            // Removed meanwhile: there is nothing left to lose.
            Err(_) => Ok(()),
        }
    }

    fn verdict(&self) -> Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.verifier == self.since { Ok(()) } else { Err(Status::Io) }
    }
}
