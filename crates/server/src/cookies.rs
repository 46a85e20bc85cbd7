//! Places in a directory for NFSv2, whose cookies have 32 bits where a file system's have 64.
//!
//! A cookie below 2^31 stands for itself: that is what XFS, btrfs and tmpfs give out. Of a
//! larger one (ext4 makes them from 63 bits of a name's hash) a client gets a hash of 31
//! bits, marked by the top bit: the same each time, so nothing has to be allocated. The way
//! back is a bounded memory of the places where pages ended. What it forgot, or never knew
//! because the server was restarted or the client goes on in the middle of a page, is found
//! by listing the directory until the hash fits ([`crate::exec`]).
//!
//! Two cookies of one directory can have one hash. The memory knows the one that was given
//! out last, which is the one that is asked for; only the search may find the other one.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use remora_vfs::FileId;
use remora_wire::nfs3::Status;
use siphasher::sip::SipHasher24;

/// Most places remembered.
const PLACES_MAX: usize = 4096;
/// Cookies with this bit are hashes.
const HASHED: u32 = 1 << 31;

/// A directory, by its export and id, and a cookie that a client has.
type Place = (u64, FileId, u32);

/// The memory of places.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    places: Mutex<Places>,
    /// Held by the one search for a forgotten place.
    search: Mutex<()>,
}

#[derive(Debug, Default)]
struct Places {
    cookies: BTreeMap<Place, u64>,
    /// The places in the order they were first noted.
    ages: VecDeque<Place>,
}

/// What a client gets for the file system's `cookie`.
pub(crate) fn short(cookie: u64) -> u32 {
    match u32::try_from(cookie) {
        Ok(small) if small & HASHED == 0 => small,
        _ => {
            // A fixed key: cookies outlive a restart.
            let mut h = SipHasher24::new_with_keys(0, 0);
            h.write_u64(cookie.to_le());
            HASHED | h.finish() as u32
        }
    }
}

/// The file system's cookie, where a client's says it by itself.
pub(crate) fn plain(short: u32) -> Option<u64> {
    (short & HASHED == 0).then_some(u64::from(short))
}

impl Cookies {
    /// A page of directory `dir` of `export` ended at `cookie`.
    pub(crate) fn note(&self, export: u64, dir: FileId, cookie: u64) {
        let short = short(cookie);
        if plain(short).is_some() {
            return;
        }
        let place = (export, dir, short);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if places.cookies.insert(place, cookie).is_none() {
            places.ages.push_back(place);
            if places.ages.len() > PLACES_MAX
                && let Some(oldest) = places.ages.pop_front()
            {
                places.cookies.remove(&oldest);
            }
        }
    }

    /// The file system's cookie behind a client's, if a page of `dir` ended there.
    pub(crate) fn find(&self, export: u64, dir: FileId, short: u32) -> Option<u64> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.cookies.get(&(export, dir, short)).copied()
    }

    /// Leave to search for a place, while it is held. [`Status::Jukebox`] while there is another search.
    pub(crate) fn search(&self) -> Result<MutexGuard<'_, ()>, Status> {
        match self.search.try_lock() {
            Ok(alone) => Ok(alone),
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => Err(Status::Jukebox),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_cookies_stand_for_themselves_and_large_ones_are_marked() {
        for small in [0, 1, 77, (1 << 31) - 1] {
            assert_eq!(plain(short(small)), Some(small));
        }
        for large in [1 << 31, u64::from(u32::MAX), 1 << 32, u64::MAX >> 1, u64::MAX] {
            assert_eq!(plain(short(large)), None);
            assert_eq!(short(large), short(large));
        }
        let many: std::collections::BTreeSet<u32> = (1..10_000u64).map(|i| short(i << 40)).collect();
        assert!(many.len() > 9_990, "{} of 9999", many.len());
    }

    #[test]
    fn places_are_remembered_for_their_directory_and_bounded() {
        let (c, dir) = (Cookies::default(), |n: u64| FileId::new(&n.to_be_bytes()).unwrap());
        let cookie = 1 << 50;
        c.note(1, dir(1), cookie);
        assert_eq!(c.find(1, dir(1), short(cookie)), Some(cookie));
        assert_eq!(c.find(2, dir(1), short(cookie)), None);
        assert_eq!(c.find(1, dir(2), short(cookie)), None);
        for n in 0..2 * PLACES_MAX as u64 {
            c.note(1, dir(n), cookie + 1);
            c.note(1, dir(n), 5); // needs no memory
        }
        let places = c.places.lock().unwrap();
        assert_eq!((places.cookies.len(), places.ages.len()), (PLACES_MAX, PLACES_MAX));
    }
}
