//! What can be done with a message before the server's state is needed: most of the work.
//!
//! Reading a message and hashing what the duplicate request cache knows it by take longer the
//! more it carries, and need nothing that changes. So a host that lets several threads take
//! turns at a [`Server`](crate::Server) does this part outside of its lock.

use bytes::Bytes;
use remora_base::Peer;

use crate::Programs;
use crate::cache::{self, Keys, Request};
use crate::dispatch::{self, Incoming};

/// Reads messages for servers of one configuration. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Intake {
    keys: Keys,
    cache: cache::Config,
    portmap: bool,
}

/// A message that has been read.
#[derive(Debug)]
pub struct Message {
    pub(crate) from: Peer,
    /// Its length.
    pub(crate) bytes: usize,
    pub(crate) incoming: Incoming,
    /// What the cache knows it by, if the cache is to be asked.
    pub(crate) request: Option<Request>,
}

impl Intake {
    /// For a server without a portmapper. `seed` makes the secret of the cache's hash.
    pub(crate) fn new(cache: cache::Config, seed: u64) -> Intake {
        Intake { keys: Keys::new(seed), cache, portmap: false }
    }

    /// From now on portmapper calls are read, too.
    pub(crate) fn read_portmap(&mut self) {
        self.portmap = true;
    }

    /// Reads a message that came from `from`, to where these programs are answered.
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
