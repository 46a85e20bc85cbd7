//! Listings that keep their descriptor from page to page.
//!
//! An overlay of several layers, a FUSE process or an SMB server makes a list of a directory for each descriptor, and a
//! cookie is a position in that list. On another descriptor it would mean another position after a removal, and skip
//! entries. So the descriptor of a listing stays open until it is idle, and the verifier identifies it (RFC 1813,
//! section 3.3.16). A listing whose descriptor was closed continues on a new one as well as it can.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::local::inode::stat::{self, InodeKey};
use crate::types::Cred;

/// The verifier of listings that need none, and of clients that send none.
pub(crate) const NO_VERIFIER: [u8; 8] = [0; 8];
/// A listing without a request for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The descriptor of one listing. Its pages are read one at a time.
pub(crate) type SharedDir = Arc<Mutex<OwnedFd>>;

/// The open listings of an export.
pub(crate) struct OpenListings {
    max: usize,
    state: Mutex<ListingsState>,
}

struct ListingsState {
    /// The least recently used first.
    listings: VecDeque<OpenListing>,
    next: u64,
}

struct OpenListing {
    verifier: u64,
    dir: InodeKey,
    cred: Cred,
    open: SharedDir,
    used: Instant,
}

impl OpenListings {
    /// Keeps at most `max` listings open. `first` is the first verifier, which no client must have from an earlier
    /// start.
    pub(crate) fn new(max: usize, first: u64) -> OpenListings {
        OpenListings { max: max.max(1), state: Mutex::new(ListingsState { listings: VecDeque::new(), next: first }) }
    }

    /// The listing of `dir` by `cred` with this verifier, or the latest one for [`NO_VERIFIER`].
    pub(crate) fn find(&self, verifier: [u8; 8], dir: InodeKey, cred: &Cred) -> Option<(SharedDir, [u8; 8])> {
        let mut state = self.lock();
        let matches = |l: &OpenListing| verifier == NO_VERIFIER || l.verifier.to_be_bytes() == verifier;
        let is_wanted = |l: &OpenListing| matches(l) && l.dir == dir && l.cred == *cred;
        let at = state.listings.iter().rposition(is_wanted)?;
        let mut listing = state.listings.remove(at)?;
        listing.used = Instant::now();
        let found = (listing.open.clone(), listing.verifier.to_be_bytes());
        state.listings.push_back(listing);
        Some(found)
    }

    /// Keeps a listing open and returns its verifier.
    pub(crate) fn keep(&self, dir: InodeKey, cred: &Cred, open: SharedDir) -> [u8; 8] {
        let mut state = self.lock();
        // Never NO_VERIFIER.
        state.next = state.next.wrapping_add(1).max(1);
        let verifier = state.next;
        state.listings.push_back(OpenListing { verifier, dir, cred: cred.clone(), open, used: Instant::now() });
        let evicted = if state.listings.len() > self.max { state.listings.pop_front() } else { None };
        drop(state);
        // Closing may take long.
        drop(evicted);
        verifier.to_be_bytes()
    }

    /// Closes the listings of a directory that is being removed.
    pub(crate) fn close(&self, dir: InodeKey) {
        self.close_if(|listing| listing.dir == dir);
    }

    /// Closes the listings of directories that another program removed.
    pub(crate) fn close_removed(&self) {
        let state = self.lock();
        let dirs: Vec<(u64, SharedDir)> = state.listings.iter().map(|l| (l.verifier, l.open.clone())).collect();
        drop(state);
        let is_gone = |open: &SharedDir| open.try_lock().is_ok_and(|dir| stat::links(&*dir) == Ok(0));
        let gone: Vec<u64> = dirs.into_iter().filter(|(_, open)| is_gone(open)).map(|(verifier, _)| verifier).collect();
        self.close_if(|listing| gone.contains(&listing.verifier));
    }

    /// Closes idle listings.
    pub(crate) fn close_idle(&self) {
        self.close_if(|listing| listing.used.elapsed() >= IDLE_MAX);
    }

    fn close_if(&self, which: impl Fn(&OpenListing) -> bool) {
        let mut state = self.lock();
        let (some, others) = state.listings.drain(..).partition(which);
        let some: VecDeque<OpenListing> = some;
        state.listings = others;
        drop(state);
        // Closing may take long.
        drop(some);
    }

    fn lock(&self) -> MutexGuard<'_, ListingsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> SharedDir {
        Arc::new(Mutex::new(std::fs::File::open("/").unwrap().into()))
    }

    #[test]
    fn listing_belongs_to_its_caller_and_oldest_is_closed() {
        let (key, other) = (InodeKey { ino: 1, birth_ns: 0 }, InodeKey { ino: 2, birth_ns: 0 });
        let (me, you) = (Cred { uid: 1, gid: 1, gids: vec![] }, Cred { uid: 2, gid: 1, gids: vec![] });
        let listings = OpenListings::new(2, u64::MAX);
        let mine = open();
        let first = listings.keep(key, &me, mine.clone());
        assert_ne!(first, NO_VERIFIER);
        let is_mine = |verifier| listings.find(verifier, key, &me).is_some_and(|(it, _)| Arc::ptr_eq(&it, &mine));
        assert!(is_mine(first) && is_mine(NO_VERIFIER));
        assert!(listings.find(first, other, &me).is_none() && listings.find(first, key, &you).is_none());
        assert!(listings.find([7; 8], key, &me).is_none());
        let second = listings.keep(key, &me, open());
        assert!(is_mine(first) && !is_mine(second) && !is_mine(NO_VERIFIER), "it is not the latest");
        assert!(is_mine(first));
        listings.keep(other, &you, open());
        assert!(is_mine(first) && listings.find(second, key, &me).is_none(), "the least recently used one");
        listings.close_idle();
        listings.close_removed();
        assert!(is_mine(first), "it is in use");
        listings.close(other);
        assert!(is_mine(first));
        listings.close(key);
        assert!(!is_mine(first));
    }
}
