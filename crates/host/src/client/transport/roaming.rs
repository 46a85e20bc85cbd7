//! A UDP socket that follows the machine to other networks.
//!
//! A connected socket keeps its local address. When that is no longer the machine's (a new Wi-Fi or DHCP lease),
//! nothing is sent, or replies go astray. TCP connections fall silent and are made again; here the same requests go on
//! from a new socket.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use remora_base::Time;
use remora_wire::urgency::{PROBE_DSCP, is_probe};
use tokio::net::UdpSocket;

use crate::client::transport::connect::bind;

/// Silence after which the route is checked, and interval of the checks.
const SILENCE: Duration = Duration::from_secs(1);
/// Interval while the kernel cannot send.
const REFUSED: Duration = Duration::from_millis(100);

/// A UDP socket that follows the machine.
pub(crate) struct RoamingSocket {
    pub(crate) socket: UdpSocket,
    server: SocketAddr,
    /// When something arrived, or the route was checked.
    sound: Time,
    /// The kernel could not send since.
    refused: bool,
    /// The socket marks packets as probes.
    marked: bool,
}

impl RoamingSocket {
    pub(crate) fn new(socket: UdpSocket, server: SocketAddr, now: Time) -> RoamingSocket {
        RoamingSocket { socket, server, sound: now, refused: false, marked: false }
    }

    /// Sends a message; a probe with its mark.
    pub(crate) fn try_send(&mut self, message: &Bytes) -> io::Result<usize> {
        let is_probe = is_probe(message);
        if is_probe != self.marked {
            // Best effort: the mark only affects priority.
            let traffic_class = if is_probe { u32::from(PROBE_DSCP) << 2 } else { 0 };
            let _ = match self.server {
                SocketAddr::V4(_) => self.socket.set_tos_v4(traffic_class),
                SocketAddr::V6(_) => self.socket.set_tclass_v6(traffic_class),
            };
            self.marked = is_probe;
        }
        self.socket.try_send(message)
    }

    /// A message arrived.
    pub(crate) fn heard(&mut self, now: Time) {
        (self.sound, self.refused) = (now, false);
    }

    /// The kernel could not send.
    pub(crate) fn refused(&mut self) {
        self.refused = true;
    }

    /// When to check the route, while a reply is due.
    pub(crate) fn look_at(&self) -> Time {
        self.sound + if self.refused { REFUSED } else { SILENCE }
    }

    /// Checks the route. Returns whether packets leave from another address now.
    pub(crate) async fn look(&mut self, now: Time) -> bool {
        (self.sound, self.refused) = (now, false);
        // Without a route the next check decides.
        let Ok(fresh) = bind(self.server).await else { return false };
        let moved = address(&fresh) != address(&self.socket);
        if moved {
            (self.socket, self.marked) = (fresh, false);
        }
        moved
    }
}

fn address(socket: &UdpSocket) -> Option<IpAddr> {
    socket.local_addr().ok().map(|a| a.ip())
}

#[cfg(test)]
mod tests {
    use remora_wire::rpc::{CallHeader, OpaqueAuth};

    use super::*;

    #[tokio::test]
    async fn only_probes_are_marked() {
        for listen in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(server) = UdpSocket::bind(listen).await else { continue };
            let server = server.local_addr().unwrap();
            let mut way = RoamingSocket::new(bind(server).await.unwrap(), server, Time::ZERO);
            way.socket.writable().await.unwrap();
            for (proc, mark) in [(1, 0), (0, 12), (0, 12), (3, 0)] {
                let (cred, verf) = (OpaqueAuth::none(), OpaqueAuth::none());
                let mut call = Vec::new();
                CallHeader { xid: 1, prog: 100_003, vers: 3, proc, cred, verf }.encode(&mut call);
                way.try_send(&call.into()).unwrap();
                let marked = if server.is_ipv4() { way.socket.tos_v4() } else { way.socket.tclass_v6() };
                assert_eq!(marked.unwrap(), mark, "procedure {proc} over {listen}");
            }
        }
    }
}
