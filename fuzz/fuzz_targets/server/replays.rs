//! What was answered to changes: who repeats one on the same path gets the same reply.
//!
//! It is judged only where there is no doubt: nobody else uses the number for anything else, and the
//! reply is not yet too old to be kept.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use remora_base::{Peer, Time};

/// The cache keeps a reply at least this long.
const KEPT: Duration = Duration::from_secs(150);
/// Where the status of NFS is in a reply, and the one that says "not now": such a reply is not kept.
const STATUS: std::ops::Range<usize> = 24..28;
const JUKEBOX: [u8; 4] = 10_008u32.to_be_bytes();

struct Replied {
    to: Peer,
    reply: Bytes,
    at: Time,
}

/// What is known of numbers and replies.
pub(crate) struct Replays {
    on: bool,
    /// By path and number: the one change that was asked for with it, or `None` if there were others.
    asked: BTreeMap<(Peer, u32), Option<Bytes>>,
    /// By machine and message.
    replied: BTreeMap<(IpAddr, Bytes), Replied>,
}

impl Replays {
    pub(crate) fn new(on: bool) -> Replays {
        Replays { on, asked: BTreeMap::new(), replied: BTreeMap::new() }
    }

    /// Nothing is judged any more.
    pub(crate) fn stop(&mut self) {
        self.on = false;
    }

    /// A call that is about to be sent. Gives the reply it must get, if that is known.
    pub(crate) fn asks(&mut self, now: Time, from: Peer, xid: u32, message: &Bytes, changes: bool) -> Option<Bytes> {
        if !self.on || !changes {
            // A different request with this xid cannot be distinguished from a retransmission.
            self.asked.insert((from, xid), None);
            return None;
        }
        let asked = self.asked.entry((from, xid)).or_insert_with(|| Some(message.clone()));
        if asked.as_ref() != Some(message) {
            *asked = None;
        }
        let key = (from.addr.ip(), message.clone());
        let Replied { to, reply, at } = self.replied.get(&key)?;
        if *to == from {
            return (now.since(*at) < KEPT).then(|| reply.clone());
        }
        // What was done for one path is not known to the other.
        self.asked.insert((from, xid), None);
        self.asked.insert((*to, xid), None);
        self.replied.remove(&key);
        None
    }

    /// A reply that was sent.
    pub(crate) fn note(&mut self, now: Time, to: Peer, reply: &Bytes) {
        let Some(Some(message)) = self.asked.get(&(to, xid(reply))).filter(|_| self.on) else { return };
        if reply.get(STATUS).is_none_or(|status| status != JUKEBOX) {
            let key = (to.addr.ip(), message.clone());
            self.replied.entry(key).or_insert_with(|| Replied { to, reply: reply.clone(), at: now });
        }
    }
}

/// The number of a reply.
pub(crate) fn xid(reply: &Bytes) -> u32 {
    u32::from_be_bytes(*reply.first_chunk().expect("a reply has a number"))
}
