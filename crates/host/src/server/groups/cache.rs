//! Known groups of users, and calls that wait for a look-up.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use lru::LruCache;
use remora_base::Time;

/// Most users whose groups are known; the least recently used one is forgotten.
const USERS_MAX: NonZeroUsize = NonZeroUsize::new(4096).expect("not zero");
/// How long groups count.
const LIFETIME: Duration = Duration::from_secs(300);
/// The same for unknown users and after a failure.
const FAILURE_LIFETIME: Duration = Duration::from_secs(30);

/// Groups of users, and calls `C` that wait for them. Their number is bounded by admission.
pub(crate) struct GroupCache<C> {
    known: LruCache<u32, Known>,
    waiting: HashMap<u32, Vec<C>>,
}

struct Known {
    /// `None`: those in the call count.
    groups: UserGroups,
    until: Time,
}

/// The groups of a user; `None` if the machine does not know them, so that those in the call count.
pub(crate) type UserGroups = Option<Arc<[u32]>>;

/// Where a call stands.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Found<C> {
    /// It can go on.
    Groups(C, UserGroups),
    /// It waits. The user's groups must be looked up.
    Asked,
    /// It waits for a look-up in progress.
    Waits,
}

impl<C> GroupCache<C> {
    pub(crate) fn new() -> GroupCache<C> {
        GroupCache { known: LruCache::new(USERS_MAX), waiting: HashMap::new() }
    }

    /// Finds the groups of `uid` for a call, or has the call wait for them.
    pub(crate) fn find(&mut self, now: Time, uid: u32, call: C) -> Found<C> {
        if let Some(known) = self.known.get(&uid).filter(|known| now < known.until) {
            return Found::Groups(call, known.groups.clone());
        }
        match self.waiting.get_mut(&uid) {
            Some(calls) => {
                calls.push(call);
                Found::Waits
            }
            None => {
                self.waiting.insert(uid, vec![call]);
                Found::Asked
            }
        }
    }

    /// Takes the result of a look-up; `Err` for a failure, after which the groups known before count on. Returns the calls
    /// that waited, and the groups.
    pub(crate) fn learn(&mut self, now: Time, uid: u32, found: Result<UserGroups, ()>) -> (Vec<C>, UserGroups) {
        let before = || self.known.peek(&uid).and_then(|known| known.groups.clone());
        let lifetime = if matches!(found, Ok(Some(_))) { LIFETIME } else { FAILURE_LIFETIME };
        let groups = found.unwrap_or_else(|()| before());
        self.known.put(uid, Known { groups: groups.clone(), until: now + lifetime });
        (self.waiting.remove(&uid).unwrap_or_default(), groups)
    }

    /// Has the groups of all users looked up again.
    pub(crate) fn expire(&mut self) {
        self.known.iter_mut().for_each(|(_, known)| known.until = Time::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn list(groups: &[u32]) -> UserGroups {
        Some(groups.into())
    }

    #[test]
    fn calls_of_a_user_wait_for_one_lookup() {
        let mut cache = GroupCache::new();
        assert_eq!(cache.find(at(0), 7, 'a'), Found::Asked);
        assert_eq!(cache.find(at(0), 7, 'b'), Found::Waits);
        assert_eq!(cache.find(at(0), 8, 'c'), Found::Asked, "another user");
        assert_eq!(cache.learn(at(1), 7, Ok(list(&[1, 2]))), (vec!['a', 'b'], list(&[1, 2])));
        assert_eq!(cache.find(at(1), 7, 'd'), Found::Groups('d', list(&[1, 2])));
    }

    #[test]
    fn groups_count_for_their_lifetime() {
        let mut cache = GroupCache::new();
        for (found, lifetime) in [(Ok(list(&[1])), 300), (Ok(None), 30), (Err(()), 30)] {
            cache.find(at(0), 7, 'a');
            cache.expire();
            cache.learn(at(0), 7, found.clone());
            assert!(matches!(cache.find(at(lifetime - 1), 7, 'b'), Found::Groups('b', _)), "{found:?}");
            assert_eq!(cache.find(at(lifetime), 7, 'c'), Found::Asked, "{found:?}");
            cache.learn(at(lifetime), 7, Ok(None));
        }
    }

    #[test]
    fn known_groups_outlive_a_failed_lookup() {
        let mut cache = GroupCache::new();
        cache.find(at(0), 7, 'a');
        cache.learn(at(0), 7, Ok(list(&[1])));
        cache.expire();
        assert_eq!(cache.find(at(1), 7, 'b'), Found::Asked);
        assert_eq!(cache.learn(at(2), 7, Err(())), (vec!['b'], list(&[1])));
        cache.expire();
        cache.find(at(3), 7, 'c');
        assert_eq!(cache.learn(at(3), 7, Ok(None)), (vec!['c'], None), "a user that was removed");
        assert_eq!(cache.find(at(3), 8, 'd'), Found::Asked);
        assert_eq!(cache.learn(at(3), 8, Err(())), (vec!['d'], None));
    }

    #[test]
    fn users_beyond_the_bound_are_forgotten() {
        let mut cache = GroupCache::new();
        for uid in 0..=USERS_MAX.get() as u32 {
            cache.find(at(0), uid, ());
            cache.learn(at(0), uid, Ok(list(&[1])));
        }
        assert_eq!(cache.known.len(), USERS_MAX.get());
        assert_eq!((cache.find(at(0), 0, ()), cache.waiting.len()), (Found::Asked, 1));
    }
}
