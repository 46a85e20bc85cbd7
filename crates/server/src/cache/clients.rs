//! How much of the cache each client has, and whose turn it is to give something up.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use remora_base::Time;

use super::EntryId;

/// The flat charge for a client that has anything, in bytes.
pub(super) const CLIENT_OVERHEAD: usize = 256;

/// The clients with completed entries.
#[derive(Debug, Default)]
pub(super) struct Clients {
    shares: BTreeMap<IpAddr, Share>,
    /// The same clients by bytes, so that the largest is found at once.
    ranking: BTreeSet<(usize, IpAddr)>,
}

#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    /// Completed entries by age.
    entries: BTreeSet<(Time, EntryId)>,
}

impl Clients {
    /// Charges `client` with `bytes` for a completed entry.
    pub(super) fn add(&mut self, client: IpAddr, at: Time, id: EntryId, bytes: usize) {
        self.change(client, |share| {
            share.entries.insert((at, id));
            share.bytes += bytes;
        });
    }

    /// Takes that back.
    pub(super) fn remove(&mut self, client: IpAddr, at: Time, id: EntryId, bytes: usize) {
        self.change(client, |share| {
            share.entries.remove(&(at, id));
            share.bytes = share.bytes.saturating_sub(bytes);
        });
    }

    /// The oldest entry of the client with the most bytes.
    pub(super) fn next_to_go(&self) -> Option<EntryId> {
        let (_, client) = self.ranking.last()?;
        self.shares.get(client)?.entries.first().map(|(_, id)| *id)
    }

    /// Charges for the clients themselves, in bytes.
    pub(super) fn overhead(&self) -> usize {
        self.shares.len() * CLIENT_OVERHEAD
    }

    fn change(&mut self, client: IpAddr, f: impl FnOnce(&mut Share)) {
        let share = self.shares.entry(client).or_default();
        self.ranking.remove(&(share.bytes, client));
        f(share);
        if share.entries.is_empty() {
            self.shares.remove(&client);
        } else {
            self.ranking.insert((share.bytes, client));
        }
    }
}
