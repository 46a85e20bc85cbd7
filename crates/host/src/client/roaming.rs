//! A UDP socket that goes with the machine from network to network.
//!
//! A connected socket keeps the address that it got when it was connected. Once that is not the
//! machine's any more (Wi-Fi was left for the mobile network, the DHCP server gave another) nothing gets out,
//! or answers go where nobody is. TCP's connections fall silent then, and are made again; here the same requests
//! go on from a new socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use remora_base::Time;
use tokio::net::UdpSocket;

use super::line::bind;

/// How long nothing comes before the way is looked at, and how often then.
const SILENCE: Duration = Duration::from_secs(1);
/// How often where the kernel says that it cannot send.
const REFUSED: Duration = Duration::from_millis(100);

/// See the module.
pub(super) struct Roaming {
    pub(super) socket: UdpSocket,
    server: SocketAddr,
    /// When something came, or the way was looked at.
    sound: Time,
    /// The kernel could not send since.
    refused: bool,
}

impl Roaming {
    pub(super) fn new(socket: UdpSocket, server: SocketAddr, now: Time) -> Roaming {
        Roaming { socket, server, sound: now, refused: false }
    }

    /// Something came.
    pub(super) fn heard(&mut self, now: Time) {
        (self.sound, self.refused) = (now, false);
    }

    /// The kernel could not send.
    pub(super) fn refused(&mut self) {
        self.refused = true;
    }

    /// When to look whether the way is still this one, where an answer is waited for.
    pub(super) fn look_at(&self) -> Time {
        self.sound + if self.refused { REFUSED } else { SILENCE }
    }

    /// Looks; whether packets leave from another address now.
    pub(super) async fn look(&mut self, now: Time) -> bool {
        (self.sound, self.refused) = (now, false);
        // Without any way at present it is looked at again.
        let Ok(fresh) = bind(self.server).await else { return false };
        let moved = address(&fresh) != address(&self.socket);
        if moved {
            self.socket = fresh;
        }
        moved
    }
}

fn address(socket: &UdpSocket) -> Option<IpAddr> {
    socket.local_addr().ok().map(|a| a.ip())
}
