//! What the cores know a connection by, whatever carries it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use remora_base::{Peer, Time};
use remora_server::cache::Ends;

use crate::server::admission::eviction::Held;
use crate::server::admission::permits::Share;
use crate::server::net::atp::AtpClient;
use crate::server::net::reply_queue::Reply;
use crate::server::net::tcp_connection::Connection;

/// A connection on which replies go out.
#[derive(Clone, Debug)]
pub(crate) enum ReplyPath {
    /// TCP.
    Stream(Arc<Connection>),
    /// ATP.
    Objects(Arc<AtpClient>),
}

impl From<Arc<Connection>> for ReplyPath {
    fn from(connection: Arc<Connection>) -> ReplyPath {
        ReplyPath::Stream(connection)
    }
}

impl From<Arc<AtpClient>> for ReplyPath {
    fn from(guest: Arc<AtpClient>) -> ReplyPath {
        ReplyPath::Objects(guest)
    }
}

/// Connections by number, for a core that asks what became of them.
pub(crate) struct ReplyPaths<'a>(pub(crate) &'a HashMap<u64, ReplyPath>);

impl Ends for ReplyPaths<'_> {
    fn has_arrived(&self, connection: u64) -> bool {
        self.0.get(&connection).is_some_and(ReplyPath::seems_arrived)
    }

    fn is_broken(&self, connection: u64) -> bool {
        self.0.get(&connection).is_some_and(ReplyPath::is_broken)
    }
}

impl ReplyPath {
    /// Whose it is, and its share.
    pub(crate) fn share(&self) -> (Peer, &Share) {
        match self {
            ReplyPath::Stream(connection) => (connection.peer(), connection.share()),
            ReplyPath::Objects(guest) => (guest.peer(), guest.share()),
        }
    }

    /// Its number.
    pub(crate) fn id(&self) -> u64 {
        match self {
            ReplyPath::Stream(connection) => connection.id(),
            ReplyPath::Objects(guest) => guest.id(),
        }
    }

    /// Another one of it, that has replies for it which have left the core. They are to be [sent](ReplyPath::send) together.
    pub(crate) fn expecting(&self) -> ReplyPath {
        match self {
            ReplyPath::Stream(connection) => connection.outbox.expect(),
            ReplyPath::Objects(guest) => guest.expect(),
        }
        self.clone()
    }

    /// Sends the replies that it was [expecting](ReplyPath::expecting), or queues them.
    pub(crate) fn send(&self, replies: Vec<Reply>) {
        match self {
            ReplyPath::Stream(connection) => connection.outbox.send_expected(replies),
            ReplyPath::Objects(guest) => guest.send_expected(replies),
        }
    }

    /// Whether the other end has got all that was sent, as far as anybody can tell. Of what is still
    /// on its way to the socket this says nothing.
    fn seems_arrived(&self) -> bool {
        match self {
            ReplyPath::Stream(connection) => connection.outbox.seems_arrived(),
            ReplyPath::Objects(_) => false,
        }
    }

    /// Whether the other end has reset it, or is known to be gone.
    fn is_broken(&self) -> bool {
        match self {
            ReplyPath::Stream(connection) => connection.outbox.is_broken(),
            ReplyPath::Objects(guest) => guest.is_broken(),
        }
    }

    /// Ends it once its requests are answered.
    pub(crate) fn stop(&self) {
        match self {
            ReplyPath::Stream(connection) => connection.stop(),
            ReplyPath::Objects(guest) => guest.stop(),
        }
    }

    /// Ends it for another's sake, who needs its descriptor.
    pub(crate) fn evict(&self) {
        match self {
            ReplyPath::Stream(connection) => connection.evict(),
            ReplyPath::Objects(guest) => guest.stop(),
        }
    }

    /// The place it holds; `None` for what holds no descriptor, which nobody gains by ending it, and for what is
    /// about to give it up.
    pub(crate) fn held(&self, now: Time, owed: &BTreeSet<Peer>) -> Option<Held<ReplyPath>> {
        match self {
            ReplyPath::Stream(connection) => {
                connection.held(now, owed).map(|(peer, quiet)| Held { peer, quiet, connection: self.clone() })
            }
            ReplyPath::Objects(_) => None,
        }
    }
}
