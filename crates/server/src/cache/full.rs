//! The full cache: exact replies to non-idempotent requests, failures included.
//!
//! * A request is identified by client address, transport, XID, procedure, length and a keyed hash of its credential
//!   and arguments. The port must be the same for datagrams. A stream's client may have reconnected from another
//!   port: then the old connection must have ended, or be older than the new one. (The server may never learn that a
//!   connection broke, because a roaming client sends no FIN.) A request that was read late on an older connection is
//!   a duplicate if that connection was broken off.
//! * Some programs start with the same XID each time, and so repeat a request of an earlier run. It is not a
//!   duplicate if both connections began alike and the reply is known to have been delivered; see
//!   `is_from_the_start`.
//! * A duplicate of a request in progress is parked: the reply goes, once, to the newest path that still exists.
//! * Entries in progress are never evicted. Completed ones are evicted above a bound of bytes, the oldest of the
//!   client that holds most first, so that a flood costs the flooder.
//! * A reply expires some time after its last replay, and at the latest after a multiple of that.
//!
//! All operations take constant or logarithmic time, by an index of hashes and lists by age.

use std::time::Duration;

use bytes::Bytes;
use remora_base::{Path, Peer, Time};

use super::clients::Clients;
use super::index::Index;
use super::key::Key;
use super::key::Request;
use super::slab::{By, List, Slab};
use super::types::{EntryId, Finished, Stats, Verdict};
use crate::connections::{Connections, Streams};

/// The charge for an entry, in bytes: its slot, its key in the index (whose tables may be less than half full), its
/// paths, and the allocator's overhead.
pub(super) const ENTRY_OVERHEAD: usize = 800;
/// Most paths remembered of a request in progress.
const PATHS_MAX: usize = 4;
/// Most entries that expire in one call.
const EXPIRE_MAX: usize = 64;
/// Most requests with equal keys that are not duplicates of each other. Earlier ones are forgotten, which bounds the
/// search.
const NAMESAKES_MAX: u8 = 16;
/// Replays renew a reply for this many times the time to keep it.
const RENEWED: u32 = 3;
/// How late expiry may be, so that one timer serves many entries.
const EXPIRE_SLACK: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Full {
    bytes_max: usize,
    keep: Duration,
    entries: Slab<Entry>,
    /// The latest entry of each key, which links to its namesakes.
    index: Index,
    /// Completed entries by the time of their completion or last replay.
    ages: List,
    /// Completed entries by client.
    clients: Clients,
    /// Charges for entries, without those for clients.
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    key: Key,
    /// The port of the last duplicate.
    port: u16,
    /// An earlier entry with the same key, from another stream.
    namesake: Option<EntryId>,
    /// The number of namesakes that follow.
    namesakes: u8,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The newest path of the request, and the earlier ones in order.
    InProgress { path: Peer, former: Vec<Peer> },
    /// `since`: when it was completed. `at`: when it was completed or last replayed.
    Done { path: Peer, reply: Bytes, since: Time, at: Time },
}

impl Entry {
    fn charge(&self) -> usize {
        match &self.state {
            State::InProgress { .. } => ENTRY_OVERHEAD,
            State::Done { reply, .. } => ENTRY_OVERHEAD + reply.len(),
        }
    }

    /// Whether `request`, from another port, may be a duplicate of this one.
    fn may_be_again(&self, request: &Request, streams: Streams) -> bool {
        let is_later = self.newest_path().is_some_and(|p| p < request.peer.path);
        (is_later || self.is_cut_off(streams.connections)) && !self.is_from_the_start(request, streams)
    }

    /// Whether `request` is the original, read late on a connection that its client has broken off, and this entry
    /// its duplicate.
    fn is_moved_on(&self, request: &Request, streams: Streams) -> bool {
        let Path::Stream(stream) = request.peer.path else { return false };
        self.newest_path().is_some_and(|p| p > request.peer.path) && streams.ends.is_broken(stream)
    }

    /// Whether `request` is from a program that has started again with the same XID, and not a duplicate: both
    /// connections began alike, and a client does not resend a request whose reply was delivered. If the old
    /// connection has ended, its reply may have been acknowledged by a middlebox (a tunnel's end) and lost behind it.
    /// Then the new connection must have brought a new call before, since duplicates come first; or the old
    /// connection must have brought further calls one at a time after this one was answered, which shows that its
    /// client had the reply.
    fn is_from_the_start(&self, request: &Request, streams: Streams) -> bool {
        let State::Done { path: Peer { path: Path::Stream(old), .. }, reply, .. } = &self.state else { return false };
        let Path::Stream(new) = &request.peer.path else { return false };
        let known = streams.connections;
        let Some(first) = known.first(*new) else { return false };
        match known.first(*old) {
            // A client that pings and then resends its request may not have the reply.
            Some(then) => {
                let is_asked_first = request.xid == first.xid && first.null.is_some();
                then == first && !is_asked_first && reply.is_unique() && streams.ends.has_arrived(*old)
            }
            None => known.of_ended(*old).is_some_and(|e| e.first == first && (known.brought_new(*new) || e.in_step)),
        }
    }

    /// The newest connection of the request; later connections compare greater.
    fn newest_path(&self) -> Option<Path> {
        self.paths().map(|p| p.path).max()
    }

    fn is_cut_off(&self, live: &Connections) -> bool {
        !self.paths().any(|p| live.reaches(p))
    }

    /// The newest path that still exists.
    fn goes_to(&self, live: &Connections) -> Option<Peer> {
        self.paths().find(|p| live.reaches(p)).copied()
    }

    /// The paths on which the request arrived, the newest first.
    fn paths(&self) -> impl Iterator<Item = &Peer> {
        let (path, former) = match &self.state {
            State::InProgress { path, former } => (path, former.as_slice()),
            State::Done { path, .. } => (path, &[][..]),
        };
        std::iter::once(path).chain(former.iter().rev())
    }
}

impl Full {
    pub(super) fn new(bytes_max: usize, keep: Duration) -> Full {
        Full {
            bytes_max,
            keep,
            entries: Slab::default(),
            index: Index::default(),
            ages: List::new(By::Age),
            clients: Clients::default(),
            bytes: 0,
        }
    }

    pub(super) fn begin(
        &mut self,
        now: Time,
        request: &Request,
        streams: Streams,
        room: bool,
        stats: &mut Stats,
    ) -> Verdict {
        self.expire(now, stats);
        if let Some(id) = self.find(request, streams, stats)
            && let Some(entry) = self.entries.get_mut(id)
        {
            if let State::InProgress { path, former } = &mut entry.state {
                park(path, former, request.peer);
                stats.in_progress_parked += 1;
                return Verdict::InProgress;
            }
            if let Some(reply) = self.replay(now, id, request.peer) {
                stats.replays += 1;
                return Verdict::Replay(reply);
            }
        }
        match room.then(|| self.start(request, stats)).flatten() {
            Some(id) => Verdict::Execute(Some(id)),
            None => Verdict::NoRoom,
        }
    }

    /// Finds the entry of `request`, and notes the port.
    fn find(&mut self, request: &Request, streams: Streams, stats: &mut Stats) -> Option<EntryId> {
        let first = self.index.get(&request.key())?;
        let namesakes = || std::iter::successors(Some(first), |id| self.entries.get(*id)?.namesake);
        let port = request.peer.addr.port();
        let is = |id: &EntryId, what: &dyn Fn(&Entry) -> bool| self.entries.get(*id).is_some_and(what);
        if let Some(id) = namesakes().find(|id| is(id, &|e| e.port == port)) {
            return Some(id);
        }
        if !request.is_stream() {
            return None;
        }
        if let Some(id) = namesakes().find(|id| is(id, &|e| e.is_moved_on(request, streams))) {
            return Some(id);
        }
        let id = namesakes().find(|id| is(id, &|e| e.may_be_again(request, streams)))?;
        self.entries.get_mut(id)?.port = port;
        stats.from_new_port += 1;
        Some(id)
    }

    fn start(&mut self, request: &Request, stats: &mut Stats) -> Option<EntryId> {
        let (key, port) = (request.key(), request.peer.addr.port());
        let state = State::InProgress { path: request.peer, former: Vec::new() };
        let before = self.index.get(&key);
        let namesakes = before.and_then(|id| self.entries.get(id)).map_or(0, |e| e.namesakes + 1);
        let (namesake, namesakes) = if namesakes < NAMESAKES_MAX { (before, namesakes) } else { (None, 0) };
        let entry = Entry { key, port, namesake, namesakes, state };
        let charge = entry.charge();
        let id = self.entries.insert(entry)?;
        self.bytes += charge;
        self.index.insert(key, id);
        self.make_room(stats);
        Some(id)
    }

    /// The reply of a completed entry, whose age starts again.
    fn replay(&mut self, now: Time, id: EntryId, from: Peer) -> Option<Bytes> {
        let entry = self.entries.get_mut(id)?;
        let client = entry.key.client;
        let State::Done { path, reply, since, at } = &mut entry.state else { return None };
        // A request that was read late may be from an older connection.
        if from.path >= path.path {
            *path = from;
        }
        let reply = reply.clone();
        if now.since(*since) > self.keep * RENEWED {
            return Some(reply);
        }
        *at = now;
        self.entries.unlink(&mut self.ages, id);
        self.entries.push_back(&mut self.ages, id);
        self.clients.renew(&mut self.entries, client, id);
        Some(reply)
    }

    pub(super) fn finish(
        &mut self,
        now: Time,
        id: EntryId,
        live: &Connections,
        reply: Bytes,
        stats: &mut Stats,
    ) -> Option<Finished> {
        let entry = self.entries.get_mut(id)?;
        let State::InProgress { path, .. } = &entry.state else { return None };
        let to = entry.goes_to(live);
        let path = to.unwrap_or(*path);
        self.bytes -= entry.charge();
        entry.state = State::Done { path, reply: reply.clone(), since: now, at: now };
        let (client, charge) = (entry.key.client, entry.charge());
        self.bytes += charge;
        self.entries.push_back(&mut self.ages, id);
        self.clients.add(&mut self.entries, client, id, charge);
        self.make_room(stats);
        to.map(|to| Finished { to, reply })
    }

    /// Removes an entry in progress whose request was not executed.
    pub(super) fn withdraw(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get(id).filter(|e| matches!(e.state, State::InProgress { .. })) else { return };
        let (key, charge) = (entry.key, entry.charge());
        self.drop_from_index(&key, id);
        self.entries.remove(id);
        self.bytes -= charge;
    }

    pub(super) fn goes_to(&self, id: EntryId, live: &Connections) -> Option<Peer> {
        self.entries.get(id)?.goes_to(live)
    }

    fn make_room(&mut self, stats: &mut Stats) {
        self.shrink(self.bytes_max, stats);
    }

    /// Evicts replies until at most `bytes_max` is held, or only entries in progress.
    pub(super) fn shrink(&mut self, bytes_max: usize, stats: &mut Stats) {
        while self.bytes() > bytes_max {
            let Some(id) = self.clients.next_to_go(&self.entries) else { return };
            self.forget(id);
            stats.evictions += 1;
        }
    }

    /// The oldest completed entry, and the time of its completion or last replay.
    fn oldest(&self) -> Option<(EntryId, Time)> {
        let id = self.entries.front(&self.ages)?;
        match self.entries.get(id)?.state {
            State::Done { at, .. } => Some((id, at)),
            State::InProgress { .. } => None,
        }
    }

    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.oldest().map(|(_, at)| at + self.keep + EXPIRE_SLACK)
    }

    pub(super) fn expire(&mut self, now: Time, stats: &mut Stats) {
        for _ in 0..EXPIRE_MAX {
            match self.oldest() {
                Some((id, at)) if at + self.keep <= now => {
                    self.forget(id);
                    stats.expirations += 1;
                }
                _ => return,
            }
        }
    }

    /// Removes a completed entry.
    fn forget(&mut self, id: EntryId) {
        let Some(entry) = self.entries.get(id) else { return };
        let (key, charge) = (entry.key, entry.charge());
        self.drop_from_index(&key, id);
        self.entries.unlink(&mut self.ages, id);
        self.clients.remove(&mut self.entries, key.client, id, charge);
        self.entries.remove(id);
        self.bytes -= charge;
    }

    fn drop_from_index(&mut self, key: &Key, id: EntryId) {
        let behind = self.entries.get(id).and_then(|e| e.namesake);
        let mut at = self.index.get(key);
        if at == Some(id) {
            match behind {
                Some(behind) => self.index.insert(*key, behind),
                None => self.index.remove(key),
            }
            return;
        }
        while let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
            if entry.namesake == Some(id) {
                entry.namesake = behind;
                return;
            }
            at = entry.namesake;
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.clients.overhead()
    }

    /// The bytes of the client that holds most.
    pub(super) fn largest(&self) -> usize {
        self.clients.largest()
    }
}

/// Notes a path of the request. The numbers of connections order the paths: a request on an older connection may be
/// read later.
fn park(newest: &mut Peer, former: &mut Vec<Peer>, path: Peer) {
    former.retain(|p| *p != path);
    if path.path < newest.path {
        let at = former.partition_point(|p| p.path < path.path);
        former.insert(at, path);
    } else if path != *newest {
        former.push(std::mem::replace(newest, path));
    }
    if former.len() >= PATHS_MAX {
        former.remove(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flat_charge_covers_the_bookkeeping() {
        let place = Slab::<Entry>::place_bytes();
        // A table of keys is 7/16 to 7/8 full, with one byte a slot in addition to the keys.
        let key = (size_of::<(Key, EntryId)>() + 1) * 16 / 7;
        let paths = PATHS_MAX * size_of::<Peer>();
        assert!(place + key + paths <= ENTRY_OVERHEAD, "{place}, {key} and {paths}");
    }

    #[test]
    fn paths_are_bounded_and_the_newest_stay() {
        let path = |n| Peer::stream(([10, 0, 0, 1], 700).into(), n);
        let (mut newest, mut former) = (path(0), Vec::new());
        (1..9).for_each(|n| park(&mut newest, &mut former, path(n)));
        assert_eq!((newest, &former[..]), (path(8), &[5, 6, 7].map(path)[..]));
        // Older paths that are read late are inserted in order.
        [7, 8, 6].into_iter().for_each(|n| park(&mut newest, &mut former, path(n)));
        assert_eq!((newest, former), (path(8), [5, 6, 7].map(path).to_vec()));
        let (mut newest, mut former) = (path(8), vec![path(3)]);
        park(&mut newest, &mut former, path(5));
        assert_eq!((newest, former), (path(8), [3, 5].map(path).to_vec()));
    }
}
