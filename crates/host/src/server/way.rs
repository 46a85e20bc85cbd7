//! What the cores know a connection by, whatever carries it.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use remora_base::{Peer, Time};
use remora_server::cache::Ends;

use super::admission::Share;
use super::connection::Connection;
use super::objects::Guest;
use super::outbox::Reply;
use super::places::Held;

/// A connection on which replies go out.
#[derive(Clone, Debug)]
pub(super) enum Way {
    /// TCP.
    Stream(Arc<Connection>),
    /// ATP.
    Objects(Arc<Guest>),
}

impl From<Arc<Connection>> for Way {
    fn from(connection: Arc<Connection>) -> Way {
        Way::Stream(connection)
    }
}

impl From<Arc<Guest>> for Way {
    fn from(guest: Arc<Guest>) -> Way {
        Way::Objects(guest)
    }
}

/// Connections by number, for a core that asks what became of them.
pub(super) struct Ways<'a>(pub(super) &'a HashMap<u64, Way>);

impl Ends for Ways<'_> {
    fn has_arrived(&self, connection: u64) -> bool {
        self.0.get(&connection).is_some_and(Way::seems_arrived)
    }

    fn is_broken(&self, connection: u64) -> bool {
        self.0.get(&connection).is_some_and(Way::is_broken)
    }
}

impl Way {
    /// Whose it is, and its share.
    pub(super) fn share(&self) -> (Peer, &Share) {
        match self {
            Way::Stream(connection) => (connection.peer(), connection.share()),
            Way::Objects(guest) => (guest.peer(), guest.share()),
        }
    }

    /// Its number.
    pub(super) fn id(&self) -> u64 {
        match self {
            Way::Stream(connection) => connection.id(),
            Way::Objects(guest) => guest.id(),
        }
    }

    /// Another one of it, that has replies for it which have left the core. They are to be [sent](Way::send) together.
    pub(super) fn expecting(&self) -> Way {
        match self {
            Way::Stream(connection) => connection.outbox.expect(),
            Way::Objects(guest) => guest.expect(),
        }
        self.clone()
    }

    /// Sends the replies that it was [expecting](Way::expecting), or queues them.
    pub(super) fn send(&self, replies: Vec<Reply>) {
        match self {
            Way::Stream(connection) => connection.outbox.send_expected(replies),
            Way::Objects(guest) => guest.send_expected(replies),
        }
    }

    /// Whether the other end has got all that was sent, as far as anybody can tell. Of what is still
    /// on its way to the socket this says nothing.
    fn seems_arrived(&self) -> bool {
        match self {
            Way::Stream(connection) => connection.outbox.seems_arrived(),
            Way::Objects(_) => false,
        }
    }

    /// Whether the other end has reset it, or is known to be gone.
    fn is_broken(&self) -> bool {
        match self {
            Way::Stream(connection) => connection.outbox.is_broken(),
            Way::Objects(guest) => guest.is_broken(),
        }
    }

    /// Ends it once its requests are answered.
    pub(super) fn stop(&self) {
        match self {
            Way::Stream(connection) => connection.stop(),
            Way::Objects(guest) => guest.stop(),
        }
    }

    /// Ends it for another's sake, who needs its descriptor.
    pub(super) fn evict(&self) {
        match self {
            Way::Stream(connection) => connection.evict(),
            Way::Objects(guest) => guest.stop(),
        }
    }

    /// The place it holds; `None` for what holds no descriptor, which nobody gains by ending it, and for what is
    /// about to give it up.
    pub(super) fn held(&self, now: Time, owed: &BTreeSet<Peer>) -> Option<Held<Way>> {
        match self {
            Way::Stream(connection) => {
                connection.held(now, owed).map(|(peer, quiet)| Held { peer, quiet, connection: self.clone() })
            }
            Way::Objects(_) => None,
        }
    }
}
