//! The full cache: exact replies of non-idempotent requests, failures included.
//!
//! * A request is known by client, transport, xid, procedure, length and a keyed hash of its
//!   credential and all its arguments. The port it comes from must be the same, but for
//!   streams: the client may have reconnected from elsewhere, if the connection it came on is
//!   gone or older than the one it comes on now. (The server may learn late, or never, that a
//!   connection broke: a roaming client sends no FIN.) Two live connections of one client
//!   would be mistaken for a reconnection only if both used one xid for requests that are
//!   alike to the last byte, within [`Config::Full`](super::Config::Full)'s `keep`.
//! * A duplicate of a request in progress is parked: when the reply is there it goes, once, to
//!   the newest path that still exists.
//! * Entries in progress are never evicted. Completed ones are, beyond a bound of bytes:
//!   always the oldest of the client that has the most, so that a flood costs the flooder.
//! * A reply expires some time after it was last asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Path, Peer, Time};

use super::clients::Clients;
use super::key::Key;
use super::{Connections, EntryId, Finished, Request, Stats, Verdict};

/// The flat charge for an entry, in bytes: its records in the four trees (whose nodes may be
/// half empty), its paths and the allocator's own.
pub(super) const ENTRY_OVERHEAD: usize = 768;
/// Most paths remembered of a request in progress.
const PATHS_MAX: usize = 4;
/// Most entries that expire in one call.
const EXPIRE_MAX: usize = 64;
/// How late expiry may be, so that one timer serves many entries.
const EXPIRE_SLACK: Duration = Duration::from_secs(1);

/// The cache.
#[derive(Debug)]
pub(super) struct Full {
    bytes_max: usize,
    keep: Duration,
    entries: BTreeMap<EntryId, Entry>,
    /// Entries by what they are known by, the port last.
    index: BTreeMap<(Key, u16), EntryId>,
    /// Completed entries by age.
    ages: BTreeSet<(Time, EntryId)>,
    /// Completed entries by client.
    clients: Clients,
    /// Charges for entries; those for clients come on top.
    bytes: usize,
    next: u64,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    port: u16,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The paths it came in on, the newest last; never empty.
    InProgress(Vec<Peer>),
    /// `at` is when it was completed or last replayed.
    Done { path: Peer, reply: Bytes, at: Time },
}

impl Entry {
    fn charge(&self) -> usize {
        match &self.state {
            State::InProgress(_) => ENTRY_OVERHEAD,
            State::Done { reply, .. } => ENTRY_OVERHEAD + reply.len(),
        }
    }

    /// Whether a request on `path`, from another port, may be this one come again.
    fn may_come_on(&self, path: Path, live: &Connections) -> bool {
        self.newest_path().is_some_and(|p| p < path) || self.is_cut_off(live)
    }

    /// The connection it last came on; later connections compare greater.
    fn newest_path(&self) -> Option<Path> {
        match &self.state {
            State::InProgress(paths) => paths.iter().map(|p| p.path).max(),
            State::Done { path, .. } => Some(path.path),
        }
    }

    fn is_cut_off(&self, live: &Connections) -> bool {
        match &self.state {
            State::InProgress(paths) => !paths.iter().any(|p| live.reaches(p)),
            State::Done { path, .. } => !live.reaches(path),
        }
    }
}

impl Full {
    pub(super) fn new(bytes_max: usize, keep: Duration) -> Full {
        Full {
            bytes_max,
            keep,
            entries: BTreeMap::new(),
            index: BTreeMap::new(),
            ages: BTreeSet::new(),
            clients: Clients::default(),
            bytes: 0,
            next: 0,
        }
    }

    pub(super) fn begin(
        &mut self,
        now: Time,
        request: &Request,
        live: &Connections,
        room: bool,
        stats: &mut Stats,
    ) -> Verdict {
        self.expire(now, stats);
        if let Some(id) = self.find(request, live, stats)
            && let Some(entry) = self.entries.get_mut(&id)
        {
            if let State::InProgress(paths) = &mut entry.state {
                park(paths, request.peer);
                stats.in_progress_parked += 1;
                return Verdict::InProgress;
            }
            if let Some(reply) = self.replay(now, id, request.peer) {
                stats.replays += 1;
                return Verdict::Replay(reply);
            }
        }
        if !room {
            return Verdict::NoRoom;
        }
        Verdict::Execute(Some(self.start(request, stats)))
    }

    /// The entry of `request`, now under the port it came from.
    fn find(&mut self, request: &Request, live: &Connections, stats: &mut Stats) -> Option<EntryId> {
        let (key, port) = (request.key(), request.peer.addr.port());
        if let Some(id) = self.index.get(&(key, port)) {
            return Some(*id);
        }
        if !request.is_stream() {
            return None;
        }
        let path = request.peer.path;
        let again = |id: &EntryId| self.entries.get(id).is_some_and(|e| e.may_come_on(path, live));
        let (old, id) =
            self.index.range((key, 0)..=(key, u16::MAX)).find(|(_, id)| again(id)).map(|(k, v)| (*k, *v))?;
        self.index.remove(&old);
        self.index.insert((key, port), id);
        self.entries.get_mut(&id)?.port = port;
        stats.from_new_port += 1;
        Some(id)
    }

    fn start(&mut self, request: &Request, stats: &mut Stats) -> EntryId {
        let id = EntryId(self.next);
        self.next += 1;
        let (key, port) = (request.key(), request.peer.addr.port());
        let state = State::InProgress(vec![request.peer]);
        let entry = Entry { key, port, state };
        self.bytes += entry.charge();
        self.index.insert((key, port), id);
        self.entries.insert(id, entry);
        self.make_room(stats);
        id
    }

    /// The reply of a completed entry, which stays young by being asked for.
    fn replay(&mut self, now: Time, id: EntryId, from: Peer) -> Option<Bytes> {
        let entry = self.entries.get_mut(&id)?;
        let charge = entry.charge();
        let State::Done { path, reply, at } = &mut entry.state else { return None };
        let old = std::mem::replace(at, now);
        *path = from;
        self.ages.remove(&(old, id));
        self.ages.insert((now, id));
        self.clients.remove(entry.key.client, old, id, charge);
        self.clients.add(entry.key.client, now, id, charge);
        Some(reply.clone())
    }

    pub(super) fn finish(
        &mut self,
        now: Time,
        id: EntryId,
        live: &Connections,
        reply: Bytes,
        stats: &mut Stats,
    ) -> Option<Finished> {
        let entry = self.entries.get_mut(&id)?;
        let State::InProgress(paths) = &entry.state else { return None };
        let to = paths.iter().rfind(|p| live.reaches(p)).copied();
        let path = to.or(paths.last().copied())?;
        self.bytes -= entry.charge();
        entry.state = State::Done { path, reply: reply.clone(), at: now };
        self.bytes += entry.charge();
        self.ages.insert((now, id));
        self.clients.add(entry.key.client, now, id, entry.charge());
        self.make_room(stats);
        to.map(|to| Finished { to, reply })
    }

    fn make_room(&mut self, stats: &mut Stats) {
        while self.bytes() > self.bytes_max {
            let Some(id) = self.clients.next_to_go() else { return };
            self.forget(id);
            stats.evictions += 1;
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.ages.first().map(|(at, _)| *at + self.keep + EXPIRE_SLACK)
    }

    pub(super) fn expire(&mut self, now: Time, stats: &mut Stats) {
        for _ in 0..EXPIRE_MAX {
            match self.ages.first() {
                Some((at, id)) if *at + self.keep <= now => {
                    let id = *id;
                    self.forget(id);
                    stats.expirations += 1;
                }
                _ => return,
            }
        }
    }

    /// Removes a completed entry from everywhere.
    fn forget(&mut self, id: EntryId) {
        let Some(entry) = self.entries.remove(&id) else { return };
        self.bytes -= entry.charge();
        self.index.remove(&(entry.key, entry.port));
        if let State::Done { at, .. } = entry.state {
            self.ages.remove(&(at, id));
            self.clients.remove(entry.key.client, at, id, entry.charge());
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.clients.overhead()
    }
}

/// Notes that the request came in on `path` once more.
fn park(paths: &mut Vec<Peer>, path: Peer) {
    paths.retain(|p| *p != path);
    paths.push(path);
    if paths.len() > PATHS_MAX {
        paths.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flat_charge_covers_the_bookkeeping() {
        let records =
            size_of::<(EntryId, Entry)>() + size_of::<((Key, u16), EntryId)>() + 2 * size_of::<(Time, EntryId)>();
        let paths = PATHS_MAX * size_of::<Peer>();
        // B-tree nodes are at least half full but for the root.
        assert!(2 * records + paths <= ENTRY_OVERHEAD, "{records} and {paths}");
    }

    #[test]
    fn paths_are_bounded_and_the_newest_stay() {
        let mut paths = Vec::new();
        let path = |n| Peer::stream(([10, 0, 0, 1], 700).into(), n);
        (0..9).for_each(|n| park(&mut paths, path(n)));
        park(&mut paths, path(7));
        assert_eq!(paths, [5, 6, 8, 7].map(path));
    }
}
