//! OpenListings that stay open from page to page, where a cookie is good for nothing else.
//!
//! An overlay of several layers, and a process behind FUSE or a server behind SMB, make a list of a directory for whoever has
//! opened it, and a cookie is a place in that list: to who opens the directory anew after something was removed it
//! means another place, and what has moved there is passed over. So what a listing was begun with stays open until it
//! has not been used for a while, and the verifier that the client comes back with says which it is (RFC 1813,
//! section 3.3.16). One that is there no more goes on as well as it can.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Cred;
use crate::local::handles::file_id::InodeKey;
use crate::local::inode::stat;

/// The verifier of listings that need none, and of a client that goes on without.
pub(crate) const NO_VERIFIER: [u8; 8] = [0; 8];
/// A listing that nobody goes on with for so long is closed.
const IDLE: Duration = Duration::from_secs(30);

/// A directory that is open for one listing. Its pages come one after the other.
pub(crate) type SharedDir = Arc<Mutex<OwnedFd>>;

/// See the module.
pub(crate) struct OpenListings {
    most: usize,
    state: Mutex<ListingsState>,
}

struct ListingsState {
    /// The one that was used last is at the end.
    listings: VecDeque<OpenListing>,
    next: u64,
}

struct OpenListing {
    verifier: u64,
    dir: InodeKey,
    /// Whose it is.
    cred: Cred,
    open: SharedDir,
    used: Instant,
}

impl OpenListings {
    /// Keeps at most so many open. `first`: the verifier of the first, which is not to be one that clients have from
    /// before.
    pub(crate) fn new(most: usize, first: u64) -> OpenListings {
        OpenListings { most: most.max(1), state: Mutex::new(ListingsState { listings: VecDeque::new(), next: first }) }
    }

    /// The listing of `dir` that `cred` goes on with; the latest, if its verifier does not say which.
    pub(crate) fn find(&self, verifier: [u8; 8], dir: InodeKey, cred: &Cred) -> Option<(SharedDir, [u8; 8])> {
        let mut state = self.lock();
        let says = |l: &OpenListing| verifier == NO_VERIFIER || l.verifier.to_be_bytes() == verifier;
        let is_meant = |l: &OpenListing| says(l) && l.dir == dir && l.cred == *cred;
        let at = state.listings.iter().rposition(is_meant)?;
        let mut listing = state.listings.remove(at)?;
        listing.used = Instant::now();
        let found = (listing.open.clone(), listing.verifier.to_be_bytes());
        state.listings.push_back(listing);
        Some(found)
    }

    /// Keeps a listing that is to go on; its verifier.
    pub(crate) fn keep(&self, dir: InodeKey, cred: &Cred, open: SharedDir) -> [u8; 8] {
        let mut state = self.lock();
        // Zeros mean none.
        state.next = state.next.wrapping_add(1).max(1);
        let verifier = state.next;
        state.listings.push_back(OpenListing { verifier, dir, cred: cred.clone(), open, used: Instant::now() });
        let one_too_many = if state.listings.len() > self.most { state.listings.pop_front() } else { None };
        drop(state);
        // To close it may take a while.
        drop(one_too_many);
        verifier.to_be_bytes()
    }

    /// Closes those of a directory that is going or gone.
    pub(crate) fn close(&self, dir: InodeKey) {
        self.close_if(|listing| listing.dir == dir);
    }

    /// Closes those of directories that somebody else removed.
    pub(crate) fn close_removed(&self) {
        let state = self.lock();
        let dirs: Vec<(u64, SharedDir)> = state.listings.iter().map(|l| (l.verifier, l.open.clone())).collect();
        drop(state);
        let is_gone = |open: &SharedDir| open.try_lock().is_ok_and(|dir| stat::links(&*dir) == Ok(0));
        let gone: Vec<u64> = dirs.into_iter().filter(|(_, open)| is_gone(open)).map(|(verifier, _)| verifier).collect();
        self.close_if(|listing| gone.contains(&listing.verifier));
    }

    /// Closes those that nobody goes on with.
    pub(crate) fn close_idle(&self) {
        self.close_if(|listing| listing.used.elapsed() >= IDLE);
    }

    fn close_if(&self, which: impl Fn(&OpenListing) -> bool) {
        let mut state = self.lock();
        let (some, others) = state.listings.drain(..).partition(which);
        let some: VecDeque<OpenListing> = some;
        state.listings = others;
        drop(state);
        // To close them may take a while.
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
    fn a_listing_is_its_callers_and_the_oldest_goes() {
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
        assert!(is_mine(first) && listings.find(second, key, &me).is_none(), "which was used longest ago");
        listings.close_idle();
        listings.close_removed();
        assert!(is_mine(first), "it was used just now, and is there");
        listings.close(other);
        assert!(is_mine(first));
        listings.close(key);
        assert!(!is_mine(first));
    }
}
