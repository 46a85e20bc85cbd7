//! Hostile input for the fuzz targets: an endpoint that sends malformed objects and frames. Behind the encryption
//! only a peer can do so.

use bytes::Bytes;
use noq_proto::{Dir, VarInt};
use remora_base::Time;

use super::state::Endpoint;
use crate::session::event::PeerId;
use crate::session::peer::PeerPhase;

/// The carrier of the forged bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forged {
    /// A DATAGRAM frame.
    Datagram,
    /// Bytes of a stream.
    Stream {
        /// Whether it is bidirectional.
        both: bool,
        /// How it ends; `None` to leave it open.
        end: Option<ForgedEnd>,
    },
}

/// End of a forged stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ForgedEnd {
    /// Ends it regularly.
    Finish,
    /// RESET_STREAM with this code.
    Reset(u32),
}

impl Endpoint {
    /// Sends `bytes` to `peer`, if connected, as far as flow control allows.
    pub fn forge(&mut self, now: Time, peer: PeerId, what: Forged, bytes: Bytes) {
        self.clock.set(now);
        let Some(p) = self.peers.get_mut(&peer).filter(|p| p.phase == PeerPhase::Up) else { return };
        match what {
            Forged::Datagram => drop(p.conn.datagrams().send(bytes, true)),
            Forged::Stream { both, end } => {
                let dir = if both { Dir::Bi } else { Dir::Uni };
                let Some(stream) = p.conn.streams().open(dir) else { return };
                let mut half = p.conn.send_stream(stream);
                // Bytes beyond the window are dropped.
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
