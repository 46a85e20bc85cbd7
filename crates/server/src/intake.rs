//! Decodes and hashes messages without the server's state.
//!
//! This is most of the work for a message and depends on nothing that changes. A host whose threads share a
//! [`Server`](crate::Server) does it outside the server's lock.

use bytes::Bytes;
use remora_base::Peer;

use crate::Programs;
use crate::cache::{self, Keys, Request};
use crate::dispatch::{self, Incoming};

/// Decodes messages for servers of one configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    keys: Keys,
    cache: cache::Config,
    portmap: bool,
}

/// A decoded message.
#[derive(Debug)]
pub struct Message {
    pub(crate) from: Peer,
    /// The length in bytes.
    pub(crate) bytes: usize,
    pub(crate) incoming: Incoming,
    /// The key for the duplicate request cache, if the cache covers the procedure.
    pub(crate) request: Option<Request>,
}

impl Message {
    /// The user that the call acts for; `None` for an anonymous caller, and for what is no call with a user.
    pub fn user(&self) -> Option<u32> {
        let caller = match &self.incoming {
            Incoming::Nfs(call) => &call.caller,
            Incoming::Mount { caller, .. } => caller,
            _ => return None,
        };
        caller.as_ref().map(|cred| cred.uid)
    }

    /// Replaces the supplementary groups of the call's user.
    pub fn set_groups(&mut self, groups: &[u32]) {
        let caller = match &mut self.incoming {
            Incoming::Nfs(call) => &mut call.caller,
            Incoming::Mount { caller, .. } => caller,
            _ => return,
        };
        if let Some(cred) = caller {
            cred.gids = groups.to_vec();
        }
    }
}

impl Intake {
    /// `seed` generates the secret of the cache's hash.
    pub(crate) fn new(cache: cache::Config, seed: u64) -> Intake {
        Intake { keys: Keys::new(seed), cache, portmap: false }
    }

    /// Decodes calls of the portmapper from now on.
    pub(crate) fn read_portmap(&mut self) {
        self.portmap = true;
    }

    /// Decodes a message from `from` that arrived where `programs` are served.
    pub fn read(&self, from: Peer, programs: Programs, message: Bytes) -> Message {
        let bytes = message.len();
        let incoming = dispatch::read(message, programs, self.portmap);
        let request = match &incoming {
            Incoming::Nfs(nfs) if self.cache.covers(nfs.call.proc()) => {
                let plain = self.keys.request(from, nfs.xid, nfs.call.proc(), &nfs.cred, &nfs.args);
                Some(Request { version: nfs.form.version(), ..plain })
            }
            _ => None,
        };
        Message { from, bytes, incoming, request }
    }
}
