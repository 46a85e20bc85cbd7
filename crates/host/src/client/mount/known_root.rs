//! The address of a server and the handle of what an earlier run mounted. Handles outlive sessions (RFC 1813, section
//! 2.6), so calls can be sent side by side with MOUNT, which saves a round trip. The result of MOUNT decides.

use std::net::SocketAddr;

use bytes::Bytes;
use remora_client::Transport;
use remora_wire::nfs3::{FH_MAX, Fh};
use serde::{Deserialize, Serialize};

use crate::client::error::ClientError;
use crate::client::options::Options;
use crate::client::session::Session;
use crate::client::target::Target;
use crate::client::transport::connection::Connection;
use crate::client::transport::parallel_streams::ParallelStreams;

/// A mounted directory of a server, over UDP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct KnownRoot {
    server: SocketAddr,
    root: Fh,
}

/// Its stored form.
#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    server: SocketAddr,
    root: Vec<u8>,
}

impl From<KnownRoot> for Stored {
    fn from(known: KnownRoot) -> Stored {
        Stored { server: known.server, root: known.root.0.to_vec() }
    }
}

impl TryFrom<Stored> for KnownRoot {
    type Error = &'static str;

    fn try_from(stored: Stored) -> Result<KnownRoot, &'static str> {
        if stored.root.len() > FH_MAX as usize {
            return Err("a file handle that is too long");
        }
        Ok(KnownRoot { server: stored.server, root: Fh(Bytes::from(stored.root)) })
    }
}

impl KnownRoot {
    /// Of a session; `None` over TCP, where connecting takes as long as mounting, and for addresses with a zone.
    pub fn of(session: &Session) -> Option<KnownRoot> {
        let connection = session.own_connection();
        // An interface number does not outlive the interface.
        let has_zone = matches!(connection.server, SocketAddr::V6(v6) if v6.scope_id() != 0);
        (connection.transport == Transport::Udp && !has_zone)
            .then(|| KnownRoot { server: connection.server, root: session.root().clone() })
    }

    /// Opens a session without MOUNT, if there is a route to the server now. The target may have moved.
    pub async fn open(&self, target: &Target, options: Options) -> Result<Session, ClientError> {
        let connection = Connection::open_at_once(self.server, options.config.clone(), &options).await?;
        let streams = target.transport.is_none().then(|| ParallelStreams::new(options));
        Ok(Session::new(connection, streams, self.root.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_root_round_trips_through_storage() {
        let root = Fh(Bytes::from_static(b"root"));
        let known = KnownRoot { server: "10.0.0.1:2049".parse().unwrap(), root };
        let text = serde_json::to_string(&known).unwrap();
        assert_eq!(serde_json::from_str::<KnownRoot>(&text).unwrap(), known);
        let long = Stored { server: known.server, root: vec![0; FH_MAX as usize + 1] };
        assert!(serde_json::from_str::<KnownRoot>(&serde_json::to_string(&long).unwrap()).is_err());
    }
}
