//! Letting TCP connections in.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use remora_server::Programs;
use remora_vfs::local::note_refused;
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::connection;
use super::hub::Hub;
use crate::tcp::{KeepAlive, harden};

/// How long to leave a listener alone that fails, for instance for want of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A peer that is silent for the first, and then for each of a number of probes, is gone.
const KEEP_ALIVE: KeepAlive = KeepAlive { idle: Duration::from_secs(120), between: Duration::from_secs(30), count: 8 };

/// Accepts for ever, for these programs.
pub(super) async fn run(hub: Arc<Hub>, listener: TcpListener, programs: Programs) {
    loop {
        match listener.accept().await {
            Ok((stream, addr)) => welcome(&hub, stream, addr, programs),
            Err(e) => {
                hub.counters.accept_errors.count();
                note_refused(e.raw_os_error().unwrap_or_default());
                // A client that left while it waited is no reason to make others wait.
                if e.kind() != io::ErrorKind::ConnectionAborted {
                    hub.evict_idle();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

fn welcome(hub: &Arc<Hub>, stream: TcpStream, addr: SocketAddr, programs: Programs) {
    if hub.connections() >= hub.connections_max() && !hub.make_room(addr) {
        hub.counters.refused.count();
        debug!(client = %addr, "connection refused: there is no room");
        return;
    }
    hub.counters.accepted.count();
    if harden(&stream, &KEEP_ALIVE).is_ok() {
        let (connection, read) = connection::open(hub, stream, addr, programs);
        tokio::spawn(connection::run(hub.clone(), connection, read));
    }
}
