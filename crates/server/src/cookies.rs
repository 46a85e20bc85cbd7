//! Directory cookies for NFSv2, which have 32 bits instead of the file system's 64.
//!
//! A cookie below 2^31 is used as it is (XFS, btrfs and tmpfs have such cookies). A larger one (ext4 has 63 bits of a
//! hash of the name) is replaced by a hash of 31 bits, marked by the top bit. The hash is always the same, so nothing
//! has to be allocated. A bounded memory maps hashes back to cookies at which pages ended. A cookie that is not
//! there, after a restart or in the middle of a page, is found by listing the directory until the hash matches
//! ([`crate::exec`]).
//!
//! Two cookies of a directory may have the same hash. The memory keeps the latest one at which a page ended, which is
//! the one that a client uses next. A search may stop at the other one.

use std::collections::{BTreeMap, VecDeque};
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use remora_base::Time;
use remora_vfs::FileId;
use siphasher::sip::SipHasher24;

/// Most cookies remembered.
const PLACES_MAX: usize = 4096;
/// The mark of a hashed cookie.
const HASHED: u32 = 1 << 31;

/// A directory (its export and id) and a client's cookie in it.
type Place = (u64, FileId, u32);

/// The memory of cookies, and the budgets of searches.
#[derive(Debug, Default)]
pub(crate) struct Cookies {
    places: Mutex<Places>,
    searches: Mutex<Budgets>,
}

#[derive(Debug, Default)]
struct Places {
    cookies: BTreeMap<Place, u64>,
    /// The cookies in the order in which they were noted.
    ages: VecDeque<Place>,
}

/// The client's cookie for the file system's `cookie`.
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

/// The file system's cookie, if the client's is not a hash.
pub(crate) fn plain(short: u32) -> Option<u64> {
    (short & HASHED == 0).then_some(u64::from(short))
}

impl Cookies {
    /// Notes that a page of directory `dir` of `export` ended at `cookie`.
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

    /// The file system's cookie for a client's, if a page of `dir` ended there.
    pub(crate) fn find(&self, export: u64, dir: FileId, short: u32) -> Option<u64> {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.cookies.get(&(export, dir, short)).copied()
    }

    pub(crate) fn may_search(&self, now: Time, client: IpAddr) -> bool {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner).may_search(now, client)
    }

    /// Charges `client` for a search that read `entries` entries.
    pub(crate) fn searched(&self, client: IpAddr, entries: u64) {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner).spend(client, entries);
    }
}

/// Entries that searches may read. A client can invent cookies, and each costs a listing of the whole directory, so
/// there is a budget for each client and one for all.
#[derive(Debug, Default)]
struct Budgets {
    all: Budget,
    clients: BTreeMap<IpAddr, Budget>,
}

/// Entries spent and not yet earned back.
#[derive(Clone, Copy, Debug, Default)]
struct Budget {
    spent: u64,
    since: Time,
}

/// The size of a budget in entries. Two million take about one second of a processor.
struct Rate {
    burst: u64,
    per_second: u64,
}

const CLIENT: Rate = Rate { burst: 200_000, per_second: 100_000 };
const ALL: Rate = Rate { burst: 2_000_000, per_second: 1_000_000 };
/// Most clients with a budget.
const CLIENTS_MAX: usize = 1024;

impl Budget {
    /// Earns entries back until `now`. Returns whether the budget has some left.
    fn has_left(&mut self, now: Time, rate: &Rate) -> bool {
        let millis = u64::try_from(now.since(self.since).as_millis()).unwrap_or(u64::MAX);
        // Whole milliseconds only, or calls in quick succession would earn nothing.
        if millis > 0 {
            self.spent = self.spent.saturating_sub(millis.saturating_mul(rate.per_second / 1000));
            self.since = now;
        }
        self.spent < rate.burst
    }
}

impl Budgets {
    fn may_search(&mut self, now: Time, client: IpAddr) -> bool {
        if self.clients.len() >= CLIENTS_MAX {
            self.clients.retain(|_, budget| !budget.has_left(now, &CLIENT) || budget.spent > 0);
        }
        let is_known = self.clients.contains_key(&client);
        (is_known || self.clients.len() < CLIENTS_MAX)
            && self.all.has_left(now, &ALL)
            && self.clients.entry(client).or_insert(Budget { spent: 0, since: now }).has_left(now, &CLIENT)
    }

    fn spend(&mut self, client: IpAddr, entries: u64) {
        self.all.spent += entries;
        if let Some(budget) = self.clients.get_mut(&client) {
            budget.spent += entries;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn large_cookies_are_mapped_small_ones_kept() {
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

    #[test]
    fn search_budget_is_each_client_s_own_and_comes_back_with_time() {
        let (c, now) = (Cookies::default(), Time::from_secs(100));
        let client = |n: u32| IpAddr::from(n.to_be_bytes());
        assert!(c.may_search(now, client(1)));
        c.searched(client(1), CLIENT.burst + 200_000);
        assert!(!c.may_search(now + Duration::from_millis(1999), client(1)));
        assert!(c.may_search(now, client(2)), "another one's is its own");
        for micros in 0..4 {
            assert!(!c.may_search(now + Duration::from_micros(1_999_000 + 250 * micros), client(1)));
        }
        assert!(c.may_search(now + Duration::from_millis(2010), client(1)));
    }

    #[test]
    fn search_budgets_are_bounded() {
        let (c, mut now) = (Cookies::default(), Time::from_secs(100));
        let client = |n: u32| IpAddr::from(n.to_be_bytes());
        let spend = |now, n| {
            c.may_search(now, client(n)) && {
                c.searched(client(n), 100_000);
                true
            }
        };
        let spenders = (0..5000).filter(|n| spend(now, *n)).count();
        assert_eq!(spenders as u64, ALL.burst / 100_000);
        for n in 0..10_000 {
            now += Duration::from_millis(100);
            spend(now, n);
        }
        assert!(c.searches.lock().unwrap().clients.len() <= CLIENTS_MAX);
    }
}
