//! How much of the cache each client has, and whose turn it is to give something up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::slab::{By, List, Slab};
use super::types::EntryId;

/// The flat charge for a client that has anything, in bytes.
pub(super) const CLIENT_OVERHEAD: usize = 256;

/// The clients with completed entries.
#[derive(Debug, Default)]
pub(super) struct Clients {
    shares: BTreeMap<IpAddr, Share>,
    /// The same clients by bytes, so that the largest is found at once.
    ranking: BTreeSet<(usize, IpAddr)>,
}

#[derive(Debug)]
struct Share {
    bytes: usize,
    /// Its completed entries, the oldest in front.
    entries: List,
}

impl Clients {
    /// Charges `client` with `bytes` for an entry that was completed just now.
    pub(super) fn add<T>(&mut self, slab: &mut Slab<T>, client: IpAddr, id: EntryId, bytes: usize) {
        let fresh = || Share { bytes: 0, entries: List::new(By::Client) };
        let share = self.shares.entry(client).or_insert_with(fresh);
        slab.push_back(&mut share.entries, id);
        self.ranking.remove(&(share.bytes, client));
        share.bytes += bytes;
        self.ranking.insert((share.bytes, client));
    }

    /// An entry has become its client's youngest.
    pub(super) fn renew<T>(&mut self, slab: &mut Slab<T>, client: IpAddr, id: EntryId) {
        if let Some(share) = self.shares.get_mut(&client) {
            slab.unlink(&mut share.entries, id);
            slab.push_back(&mut share.entries, id);
        }
    }

    /// An entry is given up, and its charge with it.
    pub(super) fn remove<T>(&mut self, slab: &mut Slab<T>, client: IpAddr, id: EntryId, bytes: usize) {
        let Some(share) = self.shares.get_mut(&client) else { return };
        slab.unlink(&mut share.entries, id);
        self.ranking.remove(&(share.bytes, client));
        share.bytes = share.bytes.saturating_sub(bytes);
        if share.entries.is_empty() {
            self.shares.remove(&client);
        } else {
            self.ranking.insert((share.bytes, client));
        }
    }

    /// The oldest entry of the client with the most bytes.
    pub(super) fn next_to_go<T>(&self, slab: &Slab<T>) -> Option<EntryId> {
        let (_, client) = self.ranking.last()?;
        slab.front(&self.shares.get(client)?.entries)
    }

    /// What the client has that has the most, in bytes.
    pub(super) fn largest(&self) -> usize {
        self.ranking.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// Charges for the clients themselves, in bytes.
    pub(super) fn overhead(&self) -> usize {
        self.shares.len() * CLIENT_OVERHEAD
    }
}
