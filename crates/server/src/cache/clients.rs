//! The cache's bytes by client, and which client evicts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use super::slab::{By, List, Slab};
use super::types::EntryId;

/// The charge for a client, in bytes.
pub(super) const CLIENT_OVERHEAD: usize = 256;

/// The clients that have completed entries.
#[derive(Debug, Default)]
pub(super) struct Clients {
    shares: BTreeMap<IpAddr, Share>,
    /// The clients ordered by bytes.
    ranking: BTreeSet<(usize, IpAddr)>,
}

#[derive(Debug)]
struct Share {
    bytes: usize,
    /// Completed entries, the oldest first.
    entries: List,
}

impl Clients {
    /// Charges `client` for an entry that has just been completed.
    pub(super) fn add<T>(&mut self, slab: &mut Slab<T>, client: IpAddr, id: EntryId, bytes: usize) {
        let fresh = || Share { bytes: 0, entries: List::new(By::Client) };
        let share = self.shares.entry(client).or_insert_with(fresh);
        slab.push_back(&mut share.entries, id);
        self.ranking.remove(&(share.bytes, client));
        share.bytes += bytes;
        self.ranking.insert((share.bytes, client));
    }

    /// Makes an entry its client's youngest.
    pub(super) fn renew<T>(&mut self, slab: &mut Slab<T>, client: IpAddr, id: EntryId) {
        if let Some(share) = self.shares.get_mut(&client) {
            slab.unlink(&mut share.entries, id);
            slab.push_back(&mut share.entries, id);
        }
    }

    /// Removes an entry and its charge.
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

    /// The oldest entry of the client that holds most.
    pub(super) fn next_to_go<T>(&self, slab: &Slab<T>) -> Option<EntryId> {
        let (_, client) = self.ranking.last()?;
        slab.front(&self.shares.get(client)?.entries)
    }

    /// The bytes of the client that holds most.
    pub(super) fn largest(&self) -> usize {
        self.ranking.last().map_or(0, |(bytes, _)| *bytes)
    }

    /// The charges for clients, in bytes.
    pub(super) fn overhead(&self) -> usize {
        self.shares.len() * CLIENT_OVERHEAD
    }
}
