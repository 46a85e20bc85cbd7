//! For the fuzz targets alone: an endpoint that says what no endpoint of ours says. A stranger's bytes do
//! not get behind the encryption, so a hostile peer must be one of the two ends.

use bytes::Bytes;
use noq_proto::{Dir, VarInt};
use remora_base::Time;

use super::state::Endpoint;
use crate::session::event::PeerId;
use crate::session::peer::PeerPhase;

/// In what `bytes` come to the peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forged {
    /// A DATAGRAM frame.
    Datagram,
    /// A stream of one or both directions.
    Stream {
        /// Whether the peer can answer on it.
        both: bool,
        /// How it ends; `None`: not at all.
        end: Option<ForgedEnd>,
    },
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForgedEnd {
    /// As one that is whole.
    Finish,
    /// With this code.
    Reset(u32),
}

impl Endpoint {
    /// Says `bytes` to `peer`, if there is a connection, and as far as QUIC lets it.
    pub fn forge(&mut self, now: Time, peer: PeerId, what: Forged, bytes: Bytes) {
        self.clock.set(now);
        let Some(p) = self.peers.get_mut(&peer).filter(|p| p.phase == PeerPhase::Up) else { return };
        match what {
            Forged::Datagram => drop(p.conn.datagrams().send(bytes, true)),
            Forged::Stream { both, end } => {
                let dir = if both { Dir::Bi } else { Dir::Uni };
                let Some(stream) = p.conn.streams().open(dir) else { return };
                let mut half = p.conn.send_stream(stream);
                // What does not fit in the window is lost, and no harm.
                let _ = half.write(&bytes);
                match end {
                    Some(ForgedEnd::Finish) => drop(half.finish()),
                    Some(ForgedEnd::Reset(code)) => drop(half.reset(VarInt::from_u32(code))),
                    None => {}
                }
            }
        }
        self.settle(now, peer);
    }
}
