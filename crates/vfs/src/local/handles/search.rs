//! Looks for an object that is not where the table says, or of which it says nothing: after a
//! restart, or when somebody else renamed.

use std::time::{Duration, Instant};

use remora_wire::nfs3::Status;

use crate::Result;
use crate::local::LocalDisk;
use crate::local::creds::thread_creds;
use crate::local::handles::file_id::{InodeKey, PathHint};
use crate::local::handles::resolve::OpenObject;
use crate::local::handles::search_limit::SearchBudget;
use crate::local::handles::walk::{WalkErrors, WalkOutcome, Walker};

/// How often everything is looked at when directories change meanwhile: what was moved from one that was not
/// yet looked at to one that was is seen in neither.
const WALKS: usize = 3;
/// So many entries everybody may look at, whoever else does: that takes a tenth of a second.
const CONCURRENT_MAX: usize = 200_000;

impl LocalDisk {
    /// Finds `key`: first where `hint` points, then everywhere, looking at no more entries
    /// than the options allow each time. [`Status::Stale`] if it is not found; another error if not everything
    /// could be looked at, for clients throw away what they have of a stale file. Where there are many
    /// entries few look at them all at a time, or one, for that may take seconds: [`Status::Jukebox`] for who
    /// comes meanwhile.
    pub(crate) fn search(&self, key: InodeKey, hint: PathHint) -> Result<OpenObject> {
        if let Some(told) = self.paths().missing(key) {
            return Err(told);
        }
        thread_creds::restore();
        let (wanted, mut budget) = ((key, hint), SearchBudget::new(&self.disk.search_limit));
        let hinted = Walker::new(self, wanted, self.disk.search_entries, &mut budget);
        if let WalkOutcome::Found(object) = hinted.run(|depth, dir| hint.leads_through(depth, dir))? {
            return Ok(object);
        }
        let (mut took, mut told) = (Duration::ZERO, Status::Stale);
        for _ in 0..WALKS {
            let began = Instant::now();
            let walk = self.walk_everywhere(wanted, &mut budget)?;
            took = began.elapsed();
            match walk {
                WalkOutcome::Found(object) => return Ok(object),
                WalkOutcome::Changed => {}
                WalkOutcome::Failed(why) | WalkOutcome::LimitReached(WalkErrors { failed: Some(why), .. }) => {
                    told = why;
                    break;
                }
                WalkOutcome::LimitReached(_) | WalkOutcome::NotFound => break,
            }
        }
        self.paths().not_found(key, took, told);
        Err(told)
    }

    fn walk_everywhere(&self, wanted: (InodeKey, PathHint), budget: &mut SearchBudget<'_>) -> Result<WalkOutcome> {
        let max = self.disk.search_entries;
        match Walker::new(self, wanted, max.min(CONCURRENT_MAX), budget).run(|_, _| true)? {
            WalkOutcome::LimitReached(_) if max > CONCURRENT_MAX => self.walk_exclusively(wanted, budget),
            walk => Ok(walk),
        }
    }

    /// Looks everywhere, if nobody else does.
    fn walk_exclusively(&self, wanted: (InodeKey, PathHint), budget: &mut SearchBudget<'_>) -> Result<WalkOutcome> {
        let _alone = self.disk.search_limit.exclusive()?;
        // Whoever was before us may have looked for the same.
        if let Some(told) = self.paths().missing(wanted.0) {
            return Err(told);
        }
        Walker::new(self, wanted, self.disk.search_entries, budget).run(|_, _| true)
    }
}
