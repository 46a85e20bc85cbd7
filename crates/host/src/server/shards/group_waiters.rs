//! Calls that wait for the groups of their users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use remora_base::Peer;
use remora_server::Message;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::reply_path::DatagramPath;
use crate::Clock;
use crate::server::admission::permits::Permit;
use crate::server::groups::cache::{Found, GroupCache, UserGroups};
use crate::server::groups::lookup::GroupLookup;

/// Threads that look up users.
const LOOKUPS_MAX: usize = 4;
/// How long calls wait for a look-up. Then the groups known before count, or else those of the call.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// A call that has been admitted and decoded.
#[derive(Debug)]
pub(crate) struct AdmittedCall {
    pub(super) from: Peer,
    /// Where the reply to a datagram goes.
    pub(super) path: Option<DatagramPath>,
    pub(super) message: Message,
    pub(super) permit: Permit,
}

impl AdmittedCall {
    fn act_for(&mut self, groups: &UserGroups) {
        if let Some(groups) = groups {
            self.message.set_groups(groups);
        }
    }
}

/// The groups of users, and the calls that wait for them.
pub(crate) struct GroupWaiters {
    lookup: GroupLookup,
    cache: Arc<Mutex<GroupCache<AdmittedCall>>>,
    /// Held by a look-up until it ends, however long that takes.
    turns: Arc<Semaphore>,
    runtime: Handle,
}

impl GroupWaiters {
    /// Look-ups block threads of `runtime`.
    pub(crate) fn new(lookup: GroupLookup, runtime: Handle) -> GroupWaiters {
        let cache = Arc::new(Mutex::new(GroupCache::new()));
        GroupWaiters { lookup, cache, turns: Arc::new(Semaphore::new(LOOKUPS_MAX)), runtime }
    }

    /// Gives the call the groups of its user; or keeps it, and passes it to `take` when they are known.
    pub(super) fn find(
        &self,
        clock: Clock,
        call: AdmittedCall,
        take: impl Fn(AdmittedCall) + Send + 'static,
    ) -> Option<AdmittedCall> {
        // Nothing is asked for clients that may use nothing. Root needs no groups, or is squashed.
        let Some(uid) = call.message.user().filter(|uid| *uid != 0 && !call.permit.is_stranger()) else {
            return Some(call);
        };
        let found = lock(&self.cache).find(clock.now(), uid, call);
        match found {
            Found::Groups(mut call, groups) => {
                call.act_for(&groups);
                Some(call)
            }
            Found::Waits => None,
            Found::Asked => {
                self.ask(clock, uid, take);
                None
            }
        }
    }

    /// Has the groups of all users looked up again.
    pub(super) fn expire(&self) {
        lock(&self.cache).expire();
    }

    fn ask(&self, clock: Clock, uid: u32, take: impl Fn(AdmittedCall) + Send + 'static) {
        let (lookup, cache, turns) = (self.lookup.clone(), self.cache.clone(), self.turns.clone());
        self.runtime.spawn(async move {
            let found = match timeout(LOOKUP_MAX, find(lookup, turns, uid)).await {
                Ok(Ok(found)) => {
                    debug!(uid, groups = found.as_ref().map(Vec::len), "groups looked up");
                    Ok(found.map(Arc::from))
                }
                Ok(Err(why)) => {
                    warn!(uid, %why, "cannot look up groups");
                    Err(())
                }
                Err(_) => {
                    warn!(uid, seconds = LOOKUP_MAX.as_secs(), "cannot look up groups: no answer");
                    Err(())
                }
            };
            let (calls, groups) = lock(&cache).learn(clock.now(), uid, found);
            for mut call in calls {
                call.act_for(&groups);
                take(call);
            }
        });
    }
}

async fn find(lookup: GroupLookup, turns: Arc<Semaphore>, uid: u32) -> std::io::Result<Option<Vec<u32>>> {
    let turn = turns.acquire_owned().await.map_err(std::io::Error::other)?;
    let found = tokio::task::spawn_blocking(move || {
        let found = lookup.find(uid);
        drop(turn);
        found
    });
    found.await.map_err(std::io::Error::other)?
}

fn lock(cache: &Mutex<GroupCache<AdmittedCall>>) -> MutexGuard<'_, GroupCache<AdmittedCall>> {
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}
