//! Looks for an object that is not where the table says, or of which it says nothing: after a
//! restart, or when somebody else renamed.

use std::time::{Duration, Instant};

use remora_wire::nfs3::Status;

use super::LocalDisk;
use super::acting;
use super::effort::Effort;
use super::ids::{Hint, Key};
use super::resolve::Object;
use super::walk::{Mishaps, Walk, Walker};
use crate::Result;

/// How often everything is looked at when directories change meanwhile: what was moved from one that was not
/// yet looked at to one that was is seen in neither.
const WALKS: usize = 3;
/// So many entries everybody may look at, whoever else does: that takes a tenth of a second.
const SIDE_BY_SIDE: usize = 200_000;

impl LocalDisk {
    /// Finds `key`: first where `hint` points, then everywhere, looking at no more entries
    /// than the options allow each time. [`Status::Stale`] if it is not found; another error if not everything
    /// could be looked at, for clients throw away what they have of a stale file. Where there are many
    /// entries few look at them all at a time, or one, for that may take seconds: [`Status::Jukebox`] for who
    /// comes meanwhile.
    pub(super) fn search(&self, key: Key, hint: Hint) -> Result<Object> {
        if let Some(told) = self.table().missing(key) {
            return Err(told);
        }
        acting::own();
        let (wanted, mut effort) = ((key, hint), Effort::new(&self.disk.searches));
        let hinted = Walker::new(self, wanted, self.disk.search_entries, &mut effort);
        if let Walk::Found(object) = hinted.run(|depth, dir| hint.leads_through(depth, dir))? {
            return Ok(object);
        }
        let (mut took, mut told) = (Duration::ZERO, Status::Stale);
        for _ in 0..WALKS {
            let began = Instant::now();
            let walk = self.walk_everywhere(wanted, &mut effort)?;
            took = began.elapsed();
            match walk {
                Walk::Found(object) => return Ok(object),
                Walk::Overtaken => {}
                Walk::Failed(why) | Walk::Unfinished(Mishaps { failed: Some(why), .. }) => {
                    told = why;
                    break;
                }
                Walk::Unfinished(_) | Walk::Nowhere => break,
            }
        }
        self.table().not_found(key, took, told);
        Err(told)
    }

    fn walk_everywhere(&self, wanted: (Key, Hint), effort: &mut Effort<'_>) -> Result<Walk> {
        let max = self.disk.search_entries;
        match Walker::new(self, wanted, max.min(SIDE_BY_SIDE), effort).run(|_, _| true)? {
            Walk::Unfinished(_) if max > SIDE_BY_SIDE => self.walk_alone(wanted, effort),
            walk => Ok(walk),
        }
    }

    /// Looks everywhere, if nobody else does.
    fn walk_alone(&self, wanted: (Key, Hint), effort: &mut Effort<'_>) -> Result<Walk> {
        let _alone = self.disk.searches.alone()?;
        // Whoever was before us may have looked for the same.
        if let Some(told) = self.table().missing(wanted.0) {
            return Err(told);
        }
        Walker::new(self, wanted, self.disk.search_entries, effort).run(|_, _| true)
    }
}
